//! Accounts: what one DAG has used of one card, or what is left of a tenant's many.

use snic_domain::{DagId, NtTypeId, TenantId};

use crate::key::{Remainders, UsageRates};
use crate::meter::{ACCOUNT_NTS_MAX, Gap, Meter, UsageAmounts};
use crate::month_usage::MonthUsage;
use crate::pages::{IntervalLevel, UsageInterval, UsagePage};
use crate::promise::{Outage, PromiseState, add_outage};
use crate::saved::SavedAccount;

/// Adds to a remainder; returns the whole units.
fn carry(rest: &mut u64, more: u128, unit: u64) -> u64 {
    let sum = u128::from(*rest) + more;
    *rest = (sum % u128::from(unit)) as u64;
    u64::try_from(sum / u128::from(unit)).unwrap_or(u64::MAX)
}

/// Whether an account that began and ended in these seconds is of a tenant that was created in this one, not of an earlier tenant with its
/// name.
pub fn is_account_since((begun, ended): (u64, Option<u64>), born: u64) -> bool {
    begun > born || begun == born && ended.is_none_or(|ended| ended > born)
}

/// Usage of one user of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    saved: SavedAccount,
    minute: UsagePage,
    hour: UsagePage,
    /// Usage in the days of the month that are over.
    month: Option<Box<MonthUsage>>,
}

impl Account {
    /// An account that begins in this second.
    pub(crate) fn new(tenant: TenantId, dag: Option<DagId>, second: u64) -> Self {
        Self {
            saved: SavedAccount {
                tenant,
                dag,
                begun: second,
                first: None,
                ended: None,
                remainders: Remainders::default(),
                nts: Vec::new(),
                promised_ms: None,
                outages: Vec::new(),
                open: UsageAmounts::default(),
                fine: UsagePage::default(),
            },
            minute: UsagePage::default(),
            hour: UsagePage::default(),
            month: None,
        }
    }

    pub(crate) fn restore(saved: SavedAccount) -> Self {
        Self { saved, minute: UsagePage::default(), hour: UsagePage::default(), month: None }
    }

    pub(crate) fn restore_page(&mut self, level: IntervalLevel, page: UsagePage) {
        *self.page_mut(level) = page;
    }

    /// Usage in the days of a month that are over; of an earlier month where nothing was used since.
    pub(crate) fn month(&self) -> Option<&MonthUsage> {
        self.month.as_deref()
    }

    pub(crate) fn month_mut(&mut self) -> &mut MonthUsage {
        self.month.get_or_insert_default()
    }

    /// Whether it is of the tenant of its name that was created in this second, not of an earlier one.
    pub fn is_since(&self, born: u64) -> bool {
        is_account_since((self.begun(), self.ended()), born)
    }

    /// Its own record.
    pub(crate) const fn saved(&self) -> &SavedAccount {
        &self.saved
    }

    /// Owner of the DAG.
    pub const fn tenant(&self) -> &TenantId {
        &self.saved.tenant
    }

    /// Name of the DAG; `None` for those without accounts of their own.
    pub const fn dag(&self) -> Option<&DagId> {
        self.saved.dag.as_ref()
    }

    /// NT types that it counts by themselves, in the order of [`Meter::Nt`]. The meter behind the last one is of all others.
    pub fn nts(&self) -> &[NtTypeId] {
        &self.saved.nts
    }

    /// Second in which it began, since 1970.
    pub const fn begun(&self) -> u64 {
        self.saved.begun
    }

    /// Second with which its first interval began, where that is long before [`Self::begun`].
    pub const fn first(&self) -> Option<u64> {
        self.saved.first
    }

    /// The open interval began with this second.
    pub(crate) const fn set_first(&mut self, second: u64) {
        self.saved.first = Some(second);
    }

    /// Second in which the DAG left the card, if it did, or the end of a later interval with something of it.
    pub const fn ended(&self) -> Option<u64> {
        self.saved.ended
    }

    /// The page that is being filled.
    pub const fn page(&self, level: IntervalLevel) -> &UsagePage {
        match level {
            IntervalLevel::Fine => &self.saved.fine,
            IntervalLevel::Minute => &self.minute,
            IntervalLevel::Hour => &self.hour,
        }
    }

    const fn page_mut(&mut self, level: IntervalLevel) -> &mut UsagePage {
        match level {
            IntervalLevel::Fine => &mut self.saved.fine,
            IntervalLevel::Minute => &mut self.minute,
            IntervalLevel::Hour => &mut self.hour,
        }
    }

    /// UsageAmounts since the last interval was closed.
    pub const fn open(&self) -> &UsageAmounts {
        &self.saved.open
    }

    /// Adds to a meter.
    const fn add(&mut self, meter: Meter, amount: u64) {
        self.saved.open.add(meter, amount);
    }

    /// Adds what rows have counted.
    pub(crate) const fn add_all(&mut self, amounts: &UsageAmounts) {
        self.saved.open.add_all(amounts);
    }

    /// A DAG has used the card for so many nanoseconds at these rates.
    pub(crate) fn add_time(&mut self, nanos: u64, rates: &UsageRates) {
        if nanos == 0 {
            return;
        }
        let (rest, time) = (&mut self.saved.remainders, u128::from(nanos));
        let life = carry(&mut rest.life, time, 1_000_000);
        let promised =
            carry(&mut rest.promised, time * u128::from(rates.promised), 1_000_000_000_000);
        let regions = carry(&mut rest.regions, time * u128::from(rates.regions), 1_000_000);
        let area = carry(&mut rest.area, time * u128::from(rates.area), 1_000_000_000_000);
        let memory = carry(&mut rest.memory, time * u128::from(rates.memory), 1_000_000);
        let functions = carry(&mut rest.functions, time * u128::from(rates.functions), 1_000_000);
        self.add(Meter::Life, life);
        self.add(Meter::Promised, promised);
        self.add(Meter::Regions, regions);
        self.add(Meter::Area, area);
        self.add(Meter::Memory, memory);
        self.add(Meter::Functions, functions);
        for (nt, instances) in rates.nts.iter() {
            self.add_nt_time(nt, time * u128::from(instances));
        }
    }

    /// A promise was in a state from one millisecond to another.
    pub(crate) fn add_promise(&mut self, state: PromiseState, from: u64, to: u64) {
        let millis = to.saturating_sub(from);
        if millis == 0 {
            return;
        }
        self.add(Meter::PromiseTime, millis);
        match state {
            PromiseState::Kept => {}
            PromiseState::Unknown => self.add(Meter::PromiseUnknown, millis),
            PromiseState::Broken(cause) => {
                self.add(Meter::PromiseBroken(cause), millis);
                let outage = Outage { start_ms: from, end_ms: to, cause };
                add_outage(&mut self.saved.outages, outage);
            }
        }
    }

    /// A tenant has stored so many bytes for so many milliseconds.
    pub(crate) fn add_stored(&mut self, bytes: u64, millis: u64) {
        let more = u128::from(bytes) * u128::from(millis);
        let whole = carry(&mut self.saved.remainders.stored, more, 1_000);
        self.add(Meter::Stored, whole);
    }

    /// Calls of a tenant were admitted.
    pub(crate) const fn add_calls(&mut self, calls: u64) {
        self.add(Meter::ApiCalls, calls);
    }

    /// Nobody counted for so many milliseconds.
    pub(crate) fn add_silence(&mut self, millis: u64) {
        self.add(Meter::Gap(Gap::NotRunning), millis.max(1));
    }

    /// Millisecond up to which the promise of its DAG, or what its tenant stores, is charged, while there is one.
    pub(crate) const fn promised_ms(&self) -> Option<u64> {
        self.saved.promised_ms
    }

    pub(crate) const fn set_promised_ms(&mut self, until: Option<u64>) {
        self.saved.promised_ms = until;
    }

    /// The latest outages, the last one last.
    pub fn outages(&self) -> &[Outage] {
        &self.saved.outages
    }

    /// Instances × nanoseconds of an NT type.
    fn add_nt_time(&mut self, nt: &NtTypeId, more: u128) {
        let place = self.nt_place(nt);
        let rest = &mut self.saved.remainders.nts;
        if rest.len() <= place {
            rest.resize(place + 1, 0);
        }
        let whole = carry(&mut rest[place], more, 1_000_000);
        self.add(Meter::Nt(place as u8), whole);
    }

    /// Place of an NT type in the account's list. An account that has used more types than it has room for counts the others together.
    fn nt_place(&mut self, nt: &NtTypeId) -> usize {
        let nts = &mut self.saved.nts;
        let known = nts.iter().position(|known| known == nt);
        known.unwrap_or_else(|| {
            if nts.len() < ACCOUNT_NTS_MAX {
                nts.push(nt.clone());
                nts.len() - 1
            } else {
                ACCOUNT_NTS_MAX
            }
        })
    }

    /// The DAG is on the card, again or still.
    pub(crate) const fn reopen(&mut self) {
        self.saved.ended = None;
    }

    /// The DAG has left the card.
    pub(crate) const fn end(&mut self, second: u64) {
        self.saved.ended = Some(second);
    }

    /// Closes the interval from `start` to `end`; returns whether there was anything in it.
    pub(crate) fn close(&mut self, start: u64, end: u64) -> bool {
        let amounts = std::mem::take(&mut self.saved.open);
        if amounts.is_zero() {
            return false;
        }
        self.saved.fine.push(UsageInterval { start, end, amounts });
        self.saved.ended = self.saved.ended.map(|ended| ended.max(end));
        true
    }

    /// Takes out the page of this length if time has come to a later one, and adds its sum to the next length.
    pub(crate) fn turn(&mut self, level: IntervalLevel, second: u64) -> Option<UsagePage> {
        let is_full = self.page(level).start(level)? + level.page() <= second;
        if !is_full {
            return None;
        }
        let page = std::mem::take(self.page_mut(level));
        if let (Some(next), Some(sum)) = (level.next(), page.sum()) {
            self.page_mut(next).push(sum);
        }
        Some(page)
    }

    /// Second at which one of its pages is full.
    pub(crate) fn turn_due(&self) -> Option<u64> {
        let ends = |level: IntervalLevel| Some(self.page(level).start(level)? + level.page());
        IntervalLevel::ALL.into_iter().filter_map(ends).min()
    }

    /// Whether its last interval is closed and all its pages are full.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.saved.open.is_zero()
            && IntervalLevel::ALL.iter().all(|level| self.page(*level).is_empty())
    }
}
