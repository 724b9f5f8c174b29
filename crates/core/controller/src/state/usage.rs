//! Usage of cards by DAGs: the book, and where each DAG was when it was last told.

mod functions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use snic_domain::{Bandwidth, CardId, DagName, DagUid, Tenant, TenantId, Timestamp, VmId};
use snic_tables::{CardCounters, DagRow, Table};
use snic_usage::{
    Account, AccountKey, Book, BreakCause, KeptPages, Money, Prices, PromiseState, PromiseTimes,
    Retention, UsageRates, UsageReading, UsageRecord, UsageWrite,
};

use crate::protocol::BindingRecord;
use crate::state::Core;
use crate::state::card::CardMachine;
use crate::state::dags::DagEntry;
use crate::store::records::TenantRecord;
use functions::FunctionsByDag;

/// Shortest time between two readings of a card that the book takes in. The loop reads a card a hundred times a second, and each reading
/// costs the book as much as all counters that have changed.
const TAKEN_EVERY: Duration = Duration::from_millis(100);

/// Readings of a card.
#[derive(Debug, Default)]
struct Readings {
    /// Time of the last one that the book took in.
    taken: Option<Timestamp>,
    /// Time of the latest one, if the book has not taken it in.
    left: Option<Timestamp>,
}

/// Usage of cards by DAGs.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    book: Book,
    readings: BTreeMap<CardId, Readings>,
    /// The card and the UID that each DAG has in the book.
    placed: BTreeMap<DagName, (CardId, DagUid)>,
    functions: FunctionsByDag,
    /// Regions that this event loads for DAGs.
    loads: BTreeMap<DagName, u32>,
    /// DAGs whose promises the book tracks.
    promised: BTreeMap<DagName, DagUid>,
    /// DAGs whose promises may be in another state at the end of this event.
    noted_promises: BTreeSet<DagName>,
}

/// Second in which a tenant was created.
const fn born(record: &TenantRecord) -> u64 {
    record.created.as_nanos() / 1_000_000_000
}

/// Rates at which a DAG uses its card: put together behind the machines.
pub(crate) type RatesOf = fn(&Core, &DagEntry) -> UsageRates;

/// State of a DAG's promise after the one that it had: put together behind the machines.
pub(crate) type PromiseOf = fn(&DagEntry, Option<PromiseState>) -> Option<PromiseState>;

impl Usage {
    /// Continues from records in a core that has all else that was stored; DAGs that came or left since the records were written do
    /// so now.
    pub fn restore(core: &mut Core, records: Vec<UsageRecord>, now: Timestamp, rates: RatesOf) {
        core.usage = Self {
            book: Book::restore(records),
            functions: FunctionsByDag::of(core.bindings.all()),
            ..Self::default()
        };
        let rated = |entry: &DagEntry| {
            let card = entry.card()?.clone();
            Some((card, entry.name().clone(), rates(core, entry)))
        };
        let on_card: Vec<(CardId, DagName, UsageRates)> =
            core.dags.iter().filter_map(rated).collect();
        let all: Vec<TenantId> =
            core.registry.tenants_after(None).map(|view| view.tenant.id).collect();
        all.iter().for_each(|tenant| Self::follow_tenant(core, tenant));
        core.usage.book.resume(now);
        let known = core.usage.book.tenants();
        known.iter().chain(&all).for_each(|tenant| Self::follow_stored(core, now, tenant));
        let Core { usage, dags, .. } = core;
        let all: BTreeSet<(&CardId, DagUid)> =
            on_card.iter().map(|(card, name, _)| (card, dags.known(name).uid())).collect();
        for card in usage.book.cards() {
            for uid in usage.book.held(&card) {
                if !all.contains(&(&card, uid)) {
                    usage.book.leave(now, &card, uid);
                }
            }
        }
        for (_, name, rates) in on_card {
            usage.place(now, dags.known(&name), rates);
        }
        let is_tracked = |entry: &&DagEntry| usage.book.promise(entry.uid()).is_some();
        let tracked =
            dags.iter().filter(is_tracked).map(|entry| (entry.name().clone(), entry.uid()));
        usage.promised = tracked.collect();
        let known: BTreeSet<DagUid> = usage.promised.values().copied().collect();
        for uid in usage.book.promised().into_iter().filter(|uid| !known.contains(uid)) {
            usage.book.set_promise(now, uid, None, None);
        }
    }

    /// A tenant is new, different or gone: what it spends is followed if it has a budget. Time O(its accounts) where it has one.
    pub fn follow_tenant(core: &mut Core, tenant: &TenantId) {
        let record = core.registry.tenant(tenant);
        let budgeted = record.filter(|record| !record.tenant.quota.month_budget.is_unlimited());
        let born = budgeted.map(born);
        core.usage.track_spending(tenant, born);
    }

    /// A tenant stores what the registry says, or is gone.
    pub fn follow_stored(core: &mut Core, now: Timestamp, tenant: &TenantId) {
        let bytes = core.registry.usage(tenant).bitstream_bytes.get();
        match core.registry.tenant(tenant).map(born) {
            Some(born) => core.usage.book.set_stored(now, (tenant, born), bytes),
            None => core.usage.book.end_tenant(now, tenant),
        }
    }

    /// Calls were admitted; those of tenants that do not exist count for nobody. Time O(tenants that called). The last ones before the
    /// daemon stops are stored with all that tenants have used until then.
    pub fn count_calls(
        core: &mut Core,
        now: Timestamp,
        (calls, is_last): (Vec<(TenantId, u64)>, bool),
    ) {
        for (tenant, calls) in calls {
            if let Some(born) = core.registry.tenant(&tenant).map(born) {
                core.usage.book.count_calls(now, (&tenant, born), calls);
            }
        }
        if is_last {
            core.usage.book.store_tenants(now);
        }
    }

    /// Times of promises since the start, by tenant.
    pub fn promise_times(&self) -> impl Iterator<Item = (&TenantId, &PromiseTimes)> {
        self.book.promise_times()
    }

    /// An event comes.
    pub fn tick(&mut self, now: Timestamp) {
        self.book.tick(now);
    }

    /// The promise of a DAG may be in another state at the end of this event.
    pub fn note_promise(&mut self, name: &DagName) {
        if !self.noted_promises.contains(name) {
            self.noted_promises.insert(name.clone());
        }
    }

    /// Takes the DAGs whose promises may be in another state now.
    pub fn take_noted_promises(&mut self) -> BTreeSet<DagName> {
        std::mem::take(&mut self.noted_promises)
    }

    /// Fault of what a DAG was served, when that was last followed.
    pub fn service_fault(&self, uid: DagUid) -> Option<BreakCause> {
        match self.book.promise(uid) {
            Some(PromiseState::Broken(cause)) if cause.is_of_service() => Some(cause),
            _ => None,
        }
    }

    /// The promise of a DAG is in the state that its entry says. One that was given is kept or broken until the DAG is gone.
    pub fn follow_promise(
        &mut self,
        now: Timestamp,
        name: &DagName,
        entry: Option<&DagEntry>,
        state_of: PromiseOf,
    ) {
        let uid = entry.map(DagEntry::uid);
        if let Some(gone) = self.promised.get(name).copied().filter(|before| Some(*before) != uid) {
            self.promised.remove(name);
            self.book.set_promise(now, gone, None, None);
        }
        let Some(entry) = entry else { return };
        let before = self.book.promise(entry.uid());
        let Some(state) = state_of(entry, before).or(before) else { return };
        let card = self.placed.get(name).map(|(card, _)| card);
        let is_there = card.is_none() || card == self.book.promise_card(entry.uid());
        if before == Some(state) && is_there {
            return;
        }
        self.book.set_promise(now, entry.uid(), card, Some(state));
        if self.book.promise(entry.uid()).is_some() {
            self.promised.insert(name.clone(), entry.uid());
        } else {
            // It has no account before its card was read for the first time since the start.
            self.noted_promises.insert(name.clone());
        }
    }

    /// Regions are told to load something for a DAG's new place.
    pub fn note_loads(&mut self, name: &DagName, loads: usize) {
        if loads > 0 {
            *self.loads.entry(name.clone()).or_default() += loads as u32;
        }
    }

    /// Functions of machines that lead to a DAG.
    pub fn functions(&self, dag: &DagName) -> u32 {
        self.functions.count(dag)
    }

    /// A machine has the functions of its binding; adds the DAGs that have more or fewer now.
    pub fn follow_binding(
        &mut self,
        vm: &VmId,
        binding: Option<&BindingRecord>,
        changed: &mut BTreeSet<DagName>,
    ) {
        self.functions.follow(vm, binding, changed);
    }

    /// Counts the loads of this event, once all DAGs are where they are now.
    pub fn count_loads(&mut self, now: Timestamp) {
        for (name, loads) in std::mem::take(&mut self.loads) {
            if let Some((card, uid)) = self.placed.get(&name) {
                self.book.loaded(now, card, *uid, loads);
            }
        }
    }

    /// A DAG is where its entry says, at these rates, and nowhere else.
    pub fn follow(
        &mut self,
        now: Timestamp,
        name: &DagName,
        entry: Option<(&DagEntry, UsageRates)>,
    ) {
        let place = entry.as_ref().and_then(|(of, _)| Some((of.card()?.clone(), of.uid())));
        if let Some((card, uid)) =
            self.placed.get(name).filter(|before| Some(*before) != place.as_ref())
        {
            self.book.leave(now, card, *uid);
            self.placed.remove(name);
        }
        if let Some((entry, rates)) = entry.filter(|_| place.is_some()) {
            self.place(now, entry, rates);
        }
    }

    fn place(&mut self, now: Timestamp, entry: &DagEntry, rates: UsageRates) {
        let (Some(card), name) = (entry.card(), entry.name()) else { return };
        self.book.place(now, card, (&name.tenant, &name.dag, entry.uid()), rates);
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
        self.readings.remove(card);
        self.book.booted(now, card, boot);
    }

    /// A card was removed, or another device takes its place.
    pub fn replaced(&mut self, card: &CardId) {
        self.readings.remove(card);
        self.book.replaced(card);
    }

    /// Takes in the counters of a card, as it has just read them, or leaves them for later.
    pub fn read(&mut self, now: Timestamp, id: &CardId, card: &CardMachine) {
        match self.readings.get_mut(id) {
            Some(readings) => {
                readings.left = Some(now);
                if readings.taken.is_some_and(|taken| now.since(taken) < TAKEN_EVERY) {
                    return;
                }
            }
            None => {
                let first = Readings { left: Some(now), taken: None };
                self.readings.insert(id.clone(), first);
            }
        }
        self.take_in(id, card);
    }

    /// Takes in the latest counters of a card, if they were left.
    pub fn take_in(&mut self, id: &CardId, card: &CardMachine) {
        let Some(readings) = self.readings.get_mut(id) else { return };
        let Some(now) = readings.left.take() else { return };
        readings.taken = Some(now);
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

    /// Has these prices be those of all that is computed from now on. Time O(accounts of tenants with a budget).
    pub fn set_prices(&mut self, prices: Option<Arc<Prices>>) {
        self.book.set_prices(prices);
    }

    /// The prices that it computes with.
    pub fn prices(&self) -> Option<&Arc<Prices>> {
        self.book.prices()
    }

    /// Follows what a tenant spends that was created in this second; with `None` it is followed no more. Time O(its accounts).
    fn track_spending(&mut self, tenant: &TenantId, born: Option<u64>) {
        if self.book.tracks_spending(tenant) != born {
            self.book.track_spending(tenant, born);
        }
        if born.is_some() {
            self.book.note_spender(tenant);
        }
    }

    /// Money that a tenant has spent this month; `None` without a budget or prices.
    pub fn spent(&self, tenant: &TenantId) -> Option<Money> {
        self.book.spent(tenant)
    }

    /// The month of what is spent: its first second, and that of the next month.
    pub const fn month(&self) -> (u64, u64) {
        self.book.month()
    }

    /// Takes the tenants whose budgets are to be looked at.
    pub fn take_spenders(&mut self) -> BTreeSet<TenantId> {
        self.book.take_spenders()
    }

    /// Has all budgets be looked at.
    pub fn note_all_spenders(&mut self) {
        self.book.note_all_spenders();
    }

    /// Whether an interval is over.
    pub const fn is_close_due(&self, now: Timestamp) -> bool {
        self.book.is_close_due(now)
    }

    /// Closes the interval if it is over; gives what is to be stored.
    pub fn close(&mut self, now: Timestamp, ages: &Retention) -> impl Iterator<Item = UsageWrite> {
        self.book.close(now, ages);
        self.book.take_writes()
    }

    /// All accounts, by key.
    pub fn accounts(&self) -> impl Iterator<Item = (&AccountKey, &Account)> {
        self.book.accounts()
    }

    /// Accounts of a tenant, by key.
    pub fn accounts_of(&self, tenant: &TenantId) -> impl Iterator<Item = (&AccountKey, &Account)> {
        self.book.accounts_of(tenant)
    }

    /// Second up to which intervals are closed.
    pub const fn closed(&self) -> Option<u64> {
        self.book.closed()
    }

    /// Pages of intervals that readers find in the store.
    pub const fn kept(&self) -> &KeptPages {
        self.book.kept()
    }

    /// Each invariant, recomputed.
    ///
    /// # Errors
    /// One is broken: which.
    pub fn check(&self, core: &Core, rates: RatesOf) -> Result<(), String> {
        self.book.check()?;
        let placed: Vec<(&DagEntry, &CardId)> =
            core.dags.iter().filter_map(|entry| Some((entry, entry.card()?))).collect();
        let told = placed.iter().find(|(entry, card)| {
            self.placed.get(entry.name()) != Some(&((*card).clone(), entry.uid()))
        });
        if let Some((entry, card)) = told {
            return Err(format!(
                "{} is on card {card}, and its usage is not counted",
                entry.name()
            ));
        }
        if placed.len() != self.placed.len() {
            return Err("usage is counted of a DAG that has no place".to_owned());
        }
        let mut tracked: Vec<DagUid> = self.promised.values().copied().collect();
        tracked.sort_unstable();
        if self.book.promised() != tracked {
            return Err("promises are tracked of other DAGs than are noted".to_owned());
        }
        let is_of = |(name, uid): &(&DagName, &DagUid)| {
            core.dags.get(name).is_some_and(|entry| entry.uid() == **uid)
        };
        if let Some((name, _)) = self.promised.iter().find(|of| !is_of(of)) {
            return Err(format!("the promise of {name} is tracked, and there is no such DAG"));
        }
        for view in core.registry.tenants_after(None) {
            let Tenant { id, quota, .. } = &view.tenant;
            let born = view.created.as_nanos() / 1_000_000_000;
            let due = (!quota.month_budget.is_unlimited()).then_some(born);
            let stored = core.registry.usage(id).bitstream_bytes.get();
            if self.book.stored(id) != stored {
                let charged = self.book.stored(id);
                return Err(format!("{id} is charged {charged} bytes and stores {stored}"));
            }
            if self.book.tracks_spending(id) != due {
                return Err(format!("{id} has a budget and is not followed, or has none and is"));
            }
        }
        let is_gone = |tenant: &TenantId| core.registry.tenant(tenant).is_none();
        if let Some(tenant) = self.book.tenants().into_iter().find(is_gone) {
            return Err(format!("{tenant} is gone, and its account is open"));
        }
        if self.functions != FunctionsByDag::of(core.bindings.all()) {
            return Err("functions are counted that no machine has".to_owned());
        }
        for (entry, card) in placed {
            let (charged, due) = (self.book.rates(card, entry.uid()), rates(core, entry));
            if charged.as_ref() != Some(&due) {
                return Err(format!("{} is charged {charged:?} and uses {due:?}", entry.name()));
            }
        }
        Ok(())
    }
}
