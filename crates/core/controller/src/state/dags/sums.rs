//! Sums and lists over many DAGs, kept up to date with each change of one of them: which are on a card, what is
//! promised there and who holds more, which rows are taken, and what each tenant uses. So a request costs the same
//! however many DAGs there are.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use snic_domain::{Bandwidth, CardId, DagName, TenantId};

use super::DagEntry;
use super::entries::{DagNumber, Entries, NamedEntry};
use super::uids::{RowCounts, TakenRows};

/// The part of a DAG that is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    row: u16,
    card: Option<CardId>,
    guaranteed: Bandwidth,
    /// Held beyond that, where it could be made smaller now.
    burst: Option<Bandwidth>,
    threads: u32,
    configurations: usize,
}

impl Counted {
    fn of(entry: &DagEntry) -> Self {
        Self { card: entry.card().cloned(), ..Self::without_card(entry) }
    }

    fn without_card(entry: &DagEntry) -> Self {
        Self {
            row: entry.uid().row(),
            card: None,
            guaranteed: entry.spec().bandwidth,
            burst: entry.burst_to_give(),
            threads: entry.threads(),
            configurations: entry.spec().configurations(),
        }
    }

    /// Whether it is still the same; without a copy of the card's id.
    fn is_still(&self, entry: &DagEntry) -> bool {
        let Self { row, card, guaranteed, burst, threads: used, configurations } = self;
        *row == entry.uid().row()
            && card.as_ref() == entry.card()
            && *guaranteed == entry.spec().bandwidth
            && *burst == entry.burst_to_give()
            && *used == entry.threads()
            && *configurations == entry.spec().configurations()
    }
}

/// DAGs of one card.
#[derive(Debug, Default, PartialEq, Eq)]
struct OnCard {
    by_name: BTreeMap<Arc<DagName>, DagNumber>,
    rows: TakenRows,
    /// In bits per second; a sum of this type cannot overflow.
    guaranteed: u128,
    /// Those that hold more than they were guaranteed and could be made smaller now; who holds most beyond comes first.
    borrowers: BTreeMap<(Reverse<Bandwidth>, Arc<DagName>), DagNumber>,
}

/// Use of one tenant.
#[derive(Debug, Default, PartialEq, Eq)]
struct OfTenant {
    dags: usize,
    threads: u64,
    configurations: usize,
}

/// Sums over all DAGs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DagSums {
    /// Counted part of each DAG, by number.
    counted: Vec<Option<Counted>>,
    rows: RowCounts,
    cards: BTreeMap<CardId, OnCard>,
    tenants: BTreeMap<TenantId, OfTenant>,
}

impl DagSums {
    /// A DAG is new or may have changed. Time O(1) where it has not, else O(log DAGs).
    pub fn note(&mut self, number: DagNumber, name: &Arc<DagName>, entry: &DagEntry) {
        if self.counted.len() <= number.index() {
            self.counted.resize(number.index() + 1, None);
        }
        if self.counted[number.index()].as_ref().is_some_and(|before| before.is_still(entry)) {
            return;
        }
        self.forget(number, name);
        let new = Counted::of(entry);
        self.add(number, name, &new);
        self.counted[number.index()] = Some(new);
    }

    /// A DAG is gone.
    pub fn forget(&mut self, number: DagNumber, name: &Arc<DagName>) {
        if let Some(before) = self.counted.get_mut(number.index()).and_then(Option::take) {
            self.take(name, &before);
        }
    }

    fn add(&mut self, number: DagNumber, name: &Arc<DagName>, new: &Counted) {
        self.rows.add(new.row);
        if !self.tenants.contains_key(&name.tenant) {
            self.tenants.insert(name.tenant.clone(), OfTenant::default());
        }
        if let Some(tenant) = self.tenants.get_mut(&name.tenant) {
            tenant.dags += 1;
            tenant.threads += u64::from(new.threads);
            tenant.configurations += new.configurations;
        }
        let Some(card) = &new.card else { return };
        let on = self.cards.entry(card.clone()).or_default();
        on.by_name.insert(Arc::clone(name), number);
        on.rows.insert(new.row);
        on.guaranteed += u128::from(new.guaranteed.get());
        if let Some(burst) = new.burst {
            on.borrowers.insert((Reverse(burst), Arc::clone(name)), number);
        }
    }

    fn take(&mut self, name: &Arc<DagName>, before: &Counted) {
        self.rows.remove(before.row);
        if let Some(tenant) = self.tenants.get_mut(&name.tenant) {
            tenant.dags -= 1;
            tenant.threads -= u64::from(before.threads);
            tenant.configurations -= before.configurations;
            if tenant.dags == 0 {
                self.tenants.remove(&name.tenant);
            }
        }
        let Some(card) = &before.card else { return };
        let Some(on) = self.cards.get_mut(card) else { return };
        on.by_name.remove(name);
        on.rows.remove(before.row);
        on.guaranteed -= u128::from(before.guaranteed.get());
        if let Some(burst) = before.burst {
            on.borrowers.remove(&(Reverse(burst), Arc::clone(name)));
        }
        if on.by_name.is_empty() {
            self.cards.remove(card);
        }
    }

    /// The DAGs on a card, by name.
    pub fn on_card(&self, card: &CardId) -> impl Iterator<Item = DagNumber> {
        self.cards.get(card).into_iter().flat_map(|on| on.by_name.values().copied())
    }

    /// Bandwidth that is guaranteed to all DAGs on a card.
    pub fn guaranteed(&self, card: &CardId) -> Bandwidth {
        let sum = self.cards.get(card).map_or(0, |on| on.guaranteed);
        Bandwidth::from_bps(u64::try_from(sum).unwrap_or(u64::MAX))
    }

    /// DAGs on a card that hold more than they were guaranteed and could be made smaller now: who holds most beyond
    /// comes first.
    pub fn borrowers(&self, card: &CardId) -> impl Iterator<Item = DagNumber> {
        self.cards.get(card).into_iter().flat_map(|on| on.borrowers.values().copied())
    }

    /// The lowest row that no DAG has anywhere, else the lowest that none has on a card; one that is not `counting`, if there is one.
    pub fn free_row(&self, card: &CardId, counting: &[u16]) -> Option<u16> {
        let without = |taken: &TakenRows| {
            let mut taken = taken.clone();
            counting.iter().for_each(|row| taken.insert(*row));
            taken.first_free()
        };
        let here = self.cards.get(card).map(|on| on.rows.clone()).unwrap_or_default();
        let clear = without(self.rows.taken()).or_else(|| without(&here));
        clear.or_else(|| self.rows.taken().first_free()).or_else(|| here.first_free())
    }

    /// Whether a DAG on a card has this row.
    pub fn is_taken(&self, card: &CardId, row: u16) -> bool {
        self.cards.get(card).is_some_and(|on| on.rows.contains(row))
    }

    /// The threads of a tenant's programs.
    pub fn threads(&self, tenant: &TenantId) -> u32 {
        let sum = self.tenants.get(tenant).map_or(0, |of| of.threads);
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// The configured NTs of a tenant's DAGs.
    pub fn configurations(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, |of| of.configurations)
    }

    /// Number of a tenant's DAGs.
    pub fn dags_of(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, |of| of.dags)
    }

    /// All of it is as if it were counted again. Time O(DAGs · log DAGs).
    pub fn check(&self, entries: &Entries) -> Result<(), String> {
        let mut again = Self::default();
        for (number, _) in entries.iter() {
            if let Some(NamedEntry { name, entry }) = entries.at(number) {
                again.note(number, name, entry);
            }
        }
        again.counted.resize(self.counted.len(), None);
        match again == *self {
            true => Ok(()),
            false => Err(format!("sums over DAGs are {self:?}, should be {again:?}")),
        }
    }
}
