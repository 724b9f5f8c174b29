//! All cards and accounts.

mod promises;
mod spending;
mod tenants;
mod upkeep;
mod writes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use snic_domain::{CardId, DagId, DagUid, TenantId, Timestamp};

use self::tenants::TenantAccount;
use crate::account::Account;
use crate::calendar::month;
use crate::card::{CardBook, Charged, Tick};
use crate::due::DueAccounts;
use crate::key::{AccountKey, AccountPart, UsageRates};
use crate::pages::IntervalLevel;
use crate::promise::{PromiseState, PromiseTimes, TrackedPromise};
use crate::reading::UsageReading;
use crate::retention::Retention;
use crate::saved::{UsageKey, UsageRecord, UsageWrite};
use crate::spending::Spending;
use crate::sweep::Sweeper;

/// Accounts of DAGs that left that are kept apart, by tenant. Beyond, a tenant's next DAGs are counted together, so that one that creates
/// and deletes them without end fills its own account and no disk.
pub const ENDED_ACCOUNTS_MAX: usize = 256;

/// Seconds by which a close is later while intervals are ahead of the host's clock, for it was set back: they are as long, and in ten
/// times as long as it was set back by they are where they belong again.
const CATCH_UP: u64 = 1;

/// Seconds after the beginning of the open interval from which on an account that begins remembers it.
const FIRST_AFTER: u64 = 2 * IntervalLevel::Fine.interval();

/// Changes on a card that wait for its first reading; with more it is said to have had no time in between.
const WAITING_MAX: usize = 4_096;

const NANOS: u64 = 1_000_000_000;

/// A DAG on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DagOnCard {
    tenant: TenantId,
    dag: DagId,
    uid: DagUid,
}

/// A change of where a DAG is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PlaceChange {
    Placed(DagOnCard, UsageRates),
    Left(DagUid),
    Loaded(DagUid, u32),
}

impl PlaceChange {
    const fn uid(&self) -> DagUid {
        match self {
            Self::Placed(DagOnCard { uid, .. }, _) | Self::Left(uid) | Self::Loaded(uid, _) => *uid,
        }
    }
}

/// Usage of all cards by all DAGs.
#[derive(Debug, Default)]
pub struct Book {
    cards: BTreeMap<CardId, CardBook>,
    accounts: BTreeMap<AccountKey, Account>,
    /// Changes on cards that were not read since the start.
    waiting: BTreeMap<CardId, Vec<(Timestamp, PlaceChange)>>,
    /// Keys of accounts, by tenant.
    tenants: BTreeMap<TenantId, BTreeSet<AccountKey>>,
    /// Accounts that ended, by tenant.
    ended: BTreeMap<TenantId, usize>,
    /// Accounts with something since the last close.
    opened: BTreeSet<AccountKey>,
    /// Accounts by the second at which a page of theirs turns.
    turns: DueAccounts,
    /// Pages that are kept, and accounts by the oldest one of theirs.
    sweeps: Sweeper,
    /// Second up to which intervals are closed; the open one begins with it.
    closed: Option<u64>,
    /// Second of the next close.
    due: u64,
    /// Accounts whose records differ from what they are.
    dirty: BTreeSet<AccountKey>,
    dirty_cards: BTreeSet<CardId>,
    writes: VecDeque<UsageWrite>,
    /// Promises by the DAGs that have them.
    pub(crate) promises: BTreeMap<DagUid, TrackedPromise>,
    /// Times of promises by tenant, since the start.
    promise_times: BTreeMap<TenantId, PromiseTimes>,
    /// Time of the last event.
    ticked_ms: u64,
    /// Time of each card's last reading.
    read_ms: BTreeMap<CardId, u64>,
    /// Money that tenants with a budget have spent this month.
    spending: Spending,
    /// Accounts of tenants that have something without a card.
    tenant_accounts: BTreeMap<TenantId, TenantAccount>,
}

fn open_page(key: &AccountKey, account: &Account, level: IntervalLevel) -> UsageWrite {
    let page = account.page(level);
    match page.is_empty() {
        true => UsageWrite::Remove(UsageKey::OpenPage(key.clone(), level)),
        false => UsageWrite::Put(UsageRecord::OpenPage(key.clone(), level, page.clone())),
    }
}

const fn second(now: Timestamp) -> u64 {
    now.as_nanos() / NANOS
}

impl Book {
    /// The book that wrote these records, in any order.
    pub fn restore(records: impl IntoIterator<Item = UsageRecord>) -> Self {
        let mut book = Self::default();
        let (mut pages, mut months, mut kept) = (Vec::new(), Vec::new(), None);
        for record in records {
            match record {
                UsageRecord::Closed(second) => {
                    book.closed = Some(second);
                    book.spending.closed(second);
                }
                UsageRecord::Kept(saved) => kept = Some(saved),
                UsageRecord::Card(card, saved) => book.card(&card).restore(saved),
                UsageRecord::Row(card, saved) => book.card(&card).restore_row(*saved),
                UsageRecord::Account(key, saved) => {
                    book.count_ended(&saved.tenant, saved.ended.is_some(), true);
                    book.insert(key, Account::restore(*saved), None);
                }
                UsageRecord::OpenPage(key, level, page) => pages.push((key, level, page)),
                UsageRecord::Month(key, usage) => months.push((key, usage)),
                UsageRecord::FullPage(..) => {}
            }
        }
        for (key, level, page) in pages {
            if let Some(account) = book.accounts.get_mut(&key) {
                account.restore_page(level, page);
            }
        }
        for (key, usage) in months {
            if let Some(account) = book.accounts.get_mut(&key) {
                *account.month_mut() = usage;
            }
        }
        book.sweeps.restore(kept, book.closed);
        for (key, account) in &book.accounts {
            book.sweeps.add_restored(key, account);
            book.turns.set(key, account.turn_due());
            // What was of it since then nobody saw. Of a tenant's DAGs that have no accounts of their own it is not counted.
            if let (AccountPart::Dag(uid), Some(since_ms)) = (&key.part, account.promised_ms()) {
                let (key, state) = (key.clone(), PromiseState::Unknown);
                book.promises.insert(*uid, TrackedPromise { key, state, since_ms });
            }
            if let (AccountPart::Tenant(tenant, _), None) = (&key.part, account.ended()) {
                let of = TenantAccount { key: key.clone(), bytes: 0 };
                book.tenant_accounts.insert(tenant.clone(), of);
            }
            if !account.open().is_zero() {
                book.opened.insert(key.clone());
            }
        }
        book
    }

    /// Adds an account; a new one is swept from its first second on.
    fn insert(&mut self, key: AccountKey, mut account: Account, begun: Option<u64>) {
        if let Some(second) = begun {
            // The open interval may have begun long before, where the daemon did not run.
            let first = self.closed.map_or(second, |closed| closed.min(second));
            if first + FIRST_AFTER < second {
                account.set_first(first);
            }
            self.sweeps.add(&key, &account, first);
        }
        self.tenants.entry(account.tenant().clone()).or_default().insert(key.clone());
        self.accounts.insert(key, account);
    }

    fn remove(&mut self, key: &AccountKey) {
        let Some(account) = self.accounts.remove(key) else { return };
        self.count_ended(account.tenant(), account.ended().is_some(), false);
        if let Some(own) = self.tenants.get_mut(account.tenant()) {
            own.remove(key);
            if own.is_empty() {
                self.tenants.remove(account.tenant());
                self.promise_times.remove(account.tenant());
            }
        }
        self.turns.set(key, None);
        self.sweeps.forget(key);
        self.dirty.remove(key);
    }

    fn card(&mut self, card: &CardId) -> &mut CardBook {
        self.cards.entry(card.clone()).or_default()
    }

    fn count_ended(&mut self, tenant: &TenantId, is_ended: bool, more: bool) {
        if !is_ended {
            return;
        }
        let count = self.ended.entry(tenant.clone()).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.ended.remove(tenant);
        }
    }

    /// Whether a DAG that gets this row of a card is charged for its own packets alone.
    pub fn is_clear(&self, card: &CardId, row: u16) -> bool {
        let waits = self
            .waiting
            .get(card)
            .is_some_and(|waiting| waiting.iter().any(|(_, change)| change.uid().row() == row));
        !waits && self.cards.get(card).is_none_or(|card| card.is_clear(row))
    }

    /// A DAG is on a card and uses it at these rates from now on; nothing changes where it is and does.
    pub fn place(
        &mut self,
        now: Timestamp,
        card: &CardId,
        (tenant, dag, uid): (&TenantId, &DagId, DagUid),
        rates: UsageRates,
    ) {
        let is_noted = self.waiting.contains_key(card);
        let held = self.card(card).held(uid);
        if !is_noted && held.is_some_and(|(_, before)| *before == rates) {
            return;
        }
        let dag = DagOnCard { tenant: tenant.clone(), dag: dag.clone(), uid };
        self.change(now, card, PlaceChange::Placed(dag, rates));
    }

    /// A DAG is not on a card any more. Its packets that are still counted are its own.
    pub fn leave(&mut self, now: Timestamp, card: &CardId, uid: DagUid) {
        let is_noted = self.waiting.contains_key(card);
        if is_noted || self.card(card).held(uid).is_some() {
            self.change(now, card, PlaceChange::Left(uid));
        }
    }

    /// Regions of a card were told to load something for a DAG that is there.
    pub fn loaded(&mut self, now: Timestamp, card: &CardId, uid: DagUid, loads: u32) {
        self.change(now, card, PlaceChange::Loaded(uid, loads));
    }

    /// The rates at which a DAG on a card is charged from now on; `None` if the book does not have it there.
    pub fn rates(&self, card: &CardId, uid: DagUid) -> Option<UsageRates> {
        let waiting = self.waiting.get(card).into_iter().flatten().rev();
        for (_, change) in waiting.filter(|(_, change)| change.uid() == uid) {
            match change {
                PlaceChange::Placed(_, rates) => return Some(rates.clone()),
                PlaceChange::Left(_) => return None,
                PlaceChange::Loaded(..) => {}
            }
        }
        Some(self.cards.get(card)?.held(uid)?.1.clone())
    }

    /// After a start only the card knows how much time has passed: a change waits for its first reading.
    fn change(&mut self, now: Timestamp, card: &CardId, change: PlaceChange) {
        if !self.card(card).is_unread() {
            let time = self.card(card).time(now);
            return self.apply(now, time, card, change);
        }
        let waiting = self.waiting.entry(card.clone()).or_default();
        waiting.push((now, change));
        if waiting.len() >= WAITING_MAX {
            self.apply_waiting(card);
        }
    }

    /// Makes changes that waited, each at the time of the card that it then had.
    fn apply_waiting(&mut self, card: &CardId) {
        for (now, change) in self.waiting.remove(card).unwrap_or_default() {
            let time = self.card(card).time(now);
            self.apply(now, time, card, change);
        }
    }

    fn apply(&mut self, now: Timestamp, time: u64, card: &CardId, change: PlaceChange) {
        match change {
            PlaceChange::Placed(dag, rates) => match self.card(card).held(dag.uid) {
                Some((_, before)) if *before == rates => {}
                Some(_) => {
                    let charged = self.card(card).charge(time, dag.uid, Some(rates));
                    self.charge(card, charged);
                }
                None => self.begin(second(now), time, card, (dag, rates)),
            },
            PlaceChange::Left(uid) => self.end(second(now), time, card, uid),
            PlaceChange::Loaded(uid, loads) => {
                if let Some(part) = self.card(card).count_loads(uid, loads) {
                    self.dirty.insert(AccountKey::on(card, part));
                }
            }
        }
    }

    fn begin(
        &mut self,
        second: u64,
        time: u64,
        card: &CardId,
        (name, rates): (DagOnCard, UsageRates),
    ) {
        let DagOnCard { tenant, dag, uid } = name;
        let own = AccountKey::on(card, AccountPart::Dag(uid));
        let has_room = self.ended.get(&tenant).is_none_or(|ended| *ended < ENDED_ACCOUNTS_MAX);
        let is_own = has_room || self.accounts.contains_key(&own);
        let (part, dag) = match is_own {
            true => (own.part, Some(dag)),
            false => (AccountPart::Rest(tenant.clone()), None),
        };
        let key = AccountKey::on(card, part.clone());
        let was_ended = self.accounts.get(&key).is_some_and(|account| account.ended().is_some());
        self.count_ended(&tenant, was_ended, false);
        match self.accounts.get_mut(&key) {
            Some(account) => {
                account.reopen();
                self.sweeps.follow(&key, account);
            }
            None => self.insert(key.clone(), Account::new(tenant, dag, second), Some(second)),
        }
        let before = self.card(card).take(time, uid, part, rates);
        self.dirty.insert(key);
        // The row's record is the next owner's: what the one before has used must be stored with it.
        self.charge(card, before);
    }

    fn end(&mut self, second: u64, time: u64, card: &CardId, uid: DagUid) {
        let charged = self.card(card).charge(time, uid, None);
        let Some(part) = charged.as_ref().map(|charged| charged.account.clone()) else { return };
        self.charge(card, charged);
        let key = AccountKey::on(card, part);
        if let (AccountPart::Dag(_), Some(account)) = (&key.part, self.accounts.get_mut(&key)) {
            account.end(second);
            self.sweeps.follow(&key, account);
            let tenant = account.tenant().clone();
            self.count_ended(&tenant, true, true);
        }
    }

    /// The account of a DAG that the book has on a card.
    fn held_account(&self, card: &CardId, uid: DagUid) -> Option<AccountPart> {
        Some(self.cards.get(card)?.held(uid)?.0.clone())
    }

    fn has_account(&self, key: &AccountKey) -> bool {
        self.accounts.contains_key(key)
    }

    /// Charges time of a promise: from `since` to `seen` in a state, and from there to `now` as unknown. It is stored with the next close,
    /// or whatever else is stored of the account before: what was not is unknown after a crash.
    fn charge_account_promise(
        &mut self,
        key: &AccountKey,
        state: PromiseState,
        (since, seen, now): (u64, u64, u64),
    ) {
        if let Some(account) = self.accounts.get_mut(key) {
            account.add_promise(state, since, seen);
            account.add_promise(PromiseState::Unknown, seen, now);
            account.set_promised_ms(Some(now));
            let tenant = account.tenant();
            if !self.promise_times.contains_key(tenant) {
                self.promise_times.insert(tenant.clone(), PromiseTimes::default());
            }
            if let Some(times) = self.promise_times.get_mut(tenant) {
                times.add(state, seen.saturating_sub(since));
                times.add(PromiseState::Unknown, now.saturating_sub(seen));
            }
            self.opened.insert(key.clone());
        }
    }

    /// Promises of an account are charged up to a time, or it has none.
    fn note_promised(&mut self, key: &AccountKey, until: Option<u64>) {
        if let Some(account) = self.accounts.get_mut(key) {
            account.set_promised_ms(until);
        }
    }

    /// Rows of a card that are held, or may still count packets of DAGs that have left.
    pub fn counting(&self, card: &CardId) -> Vec<u16> {
        let waiting = self.waiting.get(card).into_iter().flatten();
        let waiting = waiting.map(|(_, change)| change.uid().row());
        let known = self.cards.get(card).map(CardBook::counting).unwrap_or_default();
        known.into_iter().chain(waiting).collect()
    }

    /// Whether a DAG that gets its row of a card is charged for its own packets alone: the row is clear, or was its own.
    pub fn may_take(&self, card: &CardId, uid: DagUid) -> bool {
        let owner = self.cards.get(card).and_then(|card| card.owner(uid.row()));
        owner == Some(uid) || self.is_clear(card, uid.row())
    }

    /// The cards that the book has.
    pub fn cards(&self) -> Vec<CardId> {
        self.cards.keys().cloned().collect()
    }

    /// UIDs of the DAGs that the book has on a card.
    pub fn held(&self, card: &CardId) -> Vec<DagUid> {
        self.cards.get(card).map(CardBook::all_held).unwrap_or_default()
    }

    /// A card was read back, and has this boot id.
    pub fn booted(&mut self, now: Timestamp, card: &CardId, boot: u32) {
        if !self.card(card).has_boot(boot) {
            // Their time is lost with the card's clock, and the gap is theirs, too.
            self.apply_waiting(card);
        }
        let closed = Timestamp::from_nanos(self.closed.unwrap_or_default().saturating_mul(NANOS));
        let stored = self.closed.map_or(Duration::ZERO, |_| now.since(closed));
        if self.card(card).booted(now, boot, stored) {
            self.write_all(card);
        }
    }

    /// Another device is in the place of a card, or the card was removed.
    pub fn replaced(&mut self, card: &CardId) {
        // Those that came since the start were on it, too, and the gap is theirs.
        self.apply_waiting(card);
        self.card(card).replaced();
        self.write_all(card);
    }

    /// Takes in the counters of a card. `is_active` says whether a row is in the card's tables, or is about to be. They are stored with
    /// the next close: until then the card has them. Time O(rows of the reading).
    pub fn read(
        &mut self,
        card: &CardId,
        reading: &UsageReading<'_>,
        is_active: impl Fn(u16) -> bool,
    ) {
        let tick = match self.cards.get_mut(card) {
            Some(known) => known.tick(reading),
            None => self.card(card).tick(reading),
        };
        let Tick::Passed { bytes_most, span, is_news } = tick else { return };
        self.note_reading(card, reading.now);
        if !self.waiting.is_empty() {
            self.apply_waiting(card);
        }
        if let Some(known) = self.cards.get_mut(card) {
            known.count(reading.counters, (bytes_most, span), is_active);
        }
        if is_news {
            self.write_all(card);
        }
    }

    fn charge(&mut self, card: &CardId, charged: impl IntoIterator<Item = Charged>) {
        for Charged { account, amounts, nanos, rates } in charged {
            let key = AccountKey::on(card, account);
            if let Some(account) = self.accounts.get_mut(&key) {
                account.add_all(&amounts);
                account.add_time(nanos, &rates);
                if !account.open().is_zero() {
                    self.opened.insert(key.clone());
                }
            }
            self.dirty.insert(key);
        }
    }

    /// Stores a card with all its rows: their counters begin elsewhere.
    fn write_all(&mut self, card: &CardId) {
        self.dirty_cards.insert(card.clone());
        let parts = self.card(card).accounts().cloned().collect::<Vec<_>>();
        let keys = parts.into_iter().map(|part| AccountKey::on(card, part));
        self.dirty.extend(keys);
    }

    /// Second up to which intervals are closed.
    pub const fn closed(&self) -> Option<u64> {
        self.closed
    }

    /// Closes the interval if it is over: amounts of all accounts, and the counters that they are of. Time O(rows of all cards +
    /// accounts with something in the interval, or in a page that is over), once in ten seconds.
    pub fn close(&mut self, now: Timestamp, retention: &Retention) {
        let (second, interval) = (second(now), IntervalLevel::Fine.interval());
        let Some(start) = self.closed else {
            self.closed = Some(second / interval * interval);
            self.spending.closed(second / interval * interval);
            self.due = second / interval * interval + interval;
            return;
        };
        if self.due == 0 {
            // After a start: where the clock was set back meanwhile, an interval from now.
            self.due = (start + interval).min(second + interval + CATCH_UP);
        }
        if second < self.due {
            return;
        }
        let end = (second / interval * interval).max(start + interval);
        self.closed = Some(end);
        let is_ahead = end > second;
        self.due = if is_ahead { second + interval + CATCH_UP } else { end + interval };
        self.writes.push_back(UsageWrite::Put(UsageRecord::Closed(end)));
        self.charge_promises(now);
        self.charge_all_stored(now);
        let cards: Vec<CardId> = self.cards.keys().cloned().collect();
        for card in &cards {
            let charged = self.card(card).charge_all(now);
            self.charge(card, charged);
            self.dirty_cards.insert(card.clone());
        }
        let mut keys = std::mem::take(&mut self.opened);
        keys.append(&mut self.turns.take_until(end));
        for key in &keys {
            let Some(account) = self.accounts.get_mut(key) else { continue };
            if !self.spending.is_empty() && !account.open().is_zero() {
                self.spending.charge(account, start);
            }
            if account.close(start, end) {
                self.dirty.insert(key.clone());
                if account.ended().is_some() {
                    self.sweeps.follow(key, account);
                }
            }
            for level in IntervalLevel::ALL {
                let Some(page) = account.turn(level, end) else { continue };
                self.dirty.insert(key.clone());
                if let (IntervalLevel::Hour, Some(day)) = (level, page.start(level)) {
                    let prices = self.spending.prices().map(Arc::as_ref);
                    account.month_mut().add_day(month(day).0, &page, prices);
                    let usage = account.month().cloned().unwrap_or_default();
                    let usage = UsageRecord::Month(key.clone(), usage);
                    self.writes.push_back(UsageWrite::Put(usage));
                }
                let full = UsageRecord::FullPage(key.clone(), level, page);
                self.writes.push_back(UsageWrite::Put(full));
                let changed = [Some(level), level.next()].into_iter().flatten();
                let changed = changed.filter(|level| *level != IntervalLevel::Fine);
                self.writes.extend(changed.map(|level| open_page(key, account, level)));
            }
            self.turns.set(key, account.turn_due());
        }
        self.spending.closed(end);
        self.sweep(end, retention);
    }

    /// All accounts, by key.
    pub fn accounts(&self) -> impl Iterator<Item = (&AccountKey, &Account)> {
        self.accounts.iter()
    }

    /// Accounts of a tenant, by key. Time O(those).
    pub fn accounts_of(&self, tenant: &TenantId) -> impl Iterator<Item = (&AccountKey, &Account)> {
        let own = self.tenants.get(tenant).into_iter().flatten();
        own.filter_map(|key| self.accounts.get_key_value(key))
    }
}
