//! Usage of cards by DAGs: the book, and where each DAG was when it was last told.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{Bandwidth, CardId, DagName, DagUid, Timestamp};
use snic_tables::{CardCounters, DagRow, Table};
use snic_usage::{
    Account, AccountKey, Book, Retention, UsageRates, UsageReading, UsageRecord, UsageWrite,
};

use crate::state::card::CardMachine;
use crate::state::dags::{DagEntry, Dags};
use crate::store::records::regions_of;

/// Usage of cards by DAGs.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    book: Book,
    /// The card and the UID that each DAG has in the book.
    placed: BTreeMap<DagName, (CardId, DagUid)>,
    retention: Retention,
}

/// UsageRates at which a DAG uses its card.
fn rates(entry: &DagEntry) -> UsageRates {
    let regions = entry.desired().map_or(0, |placement| regions_of(placement).len());
    UsageRates { promised: entry.spec().bandwidth.get(), regions: regions as u32 }
}

impl Usage {
    /// Continues from records; DAGs that came or left since they were written do so now.
    pub fn restore(records: Vec<UsageRecord>, dags: &Dags, now: Timestamp) -> Self {
        let mut usage = Self { book: Book::restore(records), ..Self::default() };
        let on_card: Vec<(&CardId, &DagEntry)> =
            dags.iter().filter_map(|entry| Some((entry.card()?, entry))).collect();
        let all: BTreeSet<(&CardId, DagUid)> =
            on_card.iter().map(|(card, entry)| (*card, entry.uid())).collect();
        for card in usage.book.cards() {
            for uid in usage.book.held(&card) {
                if !all.contains(&(&card, uid)) {
                    usage.book.leave(now, &card, uid);
                }
            }
        }
        on_card.iter().for_each(|(_, entry)| usage.place(now, entry));
        usage
    }

    /// A DAG is where its entry says, and nowhere else.
    pub fn follow(&mut self, now: Timestamp, name: &DagName, entry: Option<&DagEntry>) {
        let place = entry.and_then(|entry| Some((entry.card()?.clone(), entry.uid())));
        if let Some((card, uid)) =
            self.placed.get(name).filter(|before| Some(*before) != place.as_ref())
        {
            self.book.leave(now, card, *uid);
            self.placed.remove(name);
        }
        if let Some(entry) = entry.filter(|_| place.is_some()) {
            self.place(now, entry);
        }
    }

    fn place(&mut self, now: Timestamp, entry: &DagEntry) {
        let (Some(card), name) = (entry.card(), entry.name()) else { return };
        self.book.place(now, card, (&name.tenant, &name.dag, entry.uid()), rates(entry));
        self.placed.insert(name.clone(), (card.clone(), entry.uid()));
    }

    /// Rows of a card that may still count packets of DAGs that have left.
    pub fn counting(&self, card: &CardId) -> Vec<u16> {
        self.book.counting(card)
    }

    /// Whether a DAG that gets its row of a card is charged for its own packets alone.
    pub fn may_take(&self, card: &CardId, uid: DagUid) -> bool {
        self.book.may_take(card, uid)
    }

    /// A card was read back, and has this boot id.
    pub fn booted(&mut self, now: Timestamp, card: &CardId, boot: u32) {
        self.book.booted(now, card, boot);
    }

    /// A card was removed, or another device takes its place.
    pub fn replaced(&mut self, card: &CardId) {
        self.book.replaced(card);
    }

    /// Takes in the counters of a card, as it has just read them.
    pub fn read(&mut self, now: Timestamp, id: &CardId, card: &CardMachine) {
        let counters: &CardCounters = card.counters();
        let profile = card.profile();
        let line = Bandwidth::from_bps(profile.ingress.get().max(profile.egress.get()));
        let reading = UsageReading { now, clock_hz: profile.clock_hz, line, counters };
        let tables = card.tables();
        let is_active = |row: u16| {
            let has_row = tables.active().get::<DagRow>(row).is_some();
            has_row
                || tables.target().get::<DagRow>(row).is_some()
                || tables.under_way(Table::Dag).contains(&row)
        };
        self.book.read(id, &reading, is_active);
    }

    /// Closes the interval if it is over; gives what is to be stored.
    pub fn close(&mut self, now: Timestamp) -> Vec<UsageWrite> {
        self.book.close(now, &self.retention);
        self.book.take_writes()
    }

    /// All accounts, by key.
    pub fn accounts(&self) -> impl Iterator<Item = (&AccountKey, &Account)> {
        self.book.accounts()
    }

    /// Second up to which intervals are closed.
    pub const fn closed(&self) -> Option<u64> {
        self.book.closed()
    }

    /// Ages up to which intervals are kept.
    pub const fn retention(&self) -> &Retention {
        &self.retention
    }

    /// Each invariant, recomputed.
    ///
    /// # Errors
    /// One is broken: which.
    pub fn check(&self, dags: &Dags) -> Result<(), String> {
        self.book.check()?;
        let placed: Vec<(&DagEntry, &CardId)> =
            dags.iter().filter_map(|entry| Some((entry, entry.card()?))).collect();
        let told = placed.iter().find(|(entry, card)| {
            self.placed.get(entry.name()) != Some(&((*card).clone(), entry.uid()))
        });
        if let Some((entry, card)) = told {
            return Err(format!(
                "{} is on card {card}, and its usage is not counted",
                entry.name()
            ));
        }
        match placed.len() == self.placed.len() {
            true => Ok(()),
            false => Err("usage is counted of a DAG that has no place".to_owned()),
        }
    }
}
