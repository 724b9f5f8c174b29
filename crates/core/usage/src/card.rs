//! One card: its time, its rows, and their counters.

use std::time::Duration;

use snic_domain::{Bandwidth, DagUid, Timestamp};
use snic_tables::{CardCounters, DropCause};

use crate::clock::{COAST_MAX, CardClock, Passed};
use crate::key::{AccountPart, UsageRates};
use crate::meter::{Gap, Meter, UsageAmounts};
use crate::reading::UsageReading;
use crate::saved::{SavedCard, SavedRow, counters_of};
use crate::within::PromiseLeft;

const CAUSES: usize = DropCause::ALL.len();
/// Meters of a row's counters, in the order of [`counters_of`].
const COUNTED: [Meter; 4] =
    [Meter::PacketsIn, Meter::BytesIn, Meter::BytesServed, Meter::PacketsServed];

/// Readings in a row without a change after which a row that was left counts as clear although some of its packets neither came out
/// nor were counted as dropped: not all cards count drops, and tasks make packets.
const STABLE_READINGS: u8 = 8;

/// A counter that rises by more than this many times what the ports carry has jumped: a flipped bit, or a card that is broken. So far
/// from it that no burst and no error of a clock comes near.
const JUMP_FACTOR: u128 = 64;
/// Bytes that are never a jump.
const JUMP_BYTES_MIN: u128 = 1 << 30;

/// Owner of a row: the DAG that has it, or had it last.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RowOwner {
    uid: DagUid,
    account: AccountPart,
    /// Whether the DAG is on the card.
    is_held: bool,
    rates: UsageRates,
    /// Time up to which the rates are charged.
    since: u64,
    /// Rest of its promise.
    left: PromiseLeft,
    /// UsageAmounts that are not in the account yet.
    pending: UsageAmounts,
    /// Readings without a change since the DAG was gone from the card's tables.
    stable: u8,
    has_changed: bool,
}

/// A row of the DAG table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    /// Counters that were taken in; `None` while they are not known.
    seen: Option<[u64; 4]>,
    drops: Option<[u64; CAUSES]>,
    owner: Option<RowOwner>,
}

/// Usage of one row that its account does not have yet.
#[derive(Debug)]
pub(crate) struct Charged {
    pub account: AccountPart,
    pub amounts: UsageAmounts,
    /// Time in nanoseconds, at these rates.
    pub nanos: u64,
    pub rates: UsageRates,
}

/// Time of a card from one reading to the next, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    from: u64,
    to: u64,
}

/// Consequence of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    /// The card restarted, and its boot id is still to be read.
    Restarted,
    /// Its counters count.
    Passed {
        /// Most bytes that a counter rises by.
        bytes_most: u64,
        /// Times of the card between which they were counted, where it is known how long that was.
        span: Option<Span>,
        /// Whether something is known for the first time that a start continues from.
        is_news: bool,
    },
}

/// One card.
#[derive(Debug, Default)]
pub(crate) struct CardBook {
    boot: Option<u32>,
    clock: CardClock,
    rows: Vec<Row>,
    /// Whether all counters are known: they were read since the start, or began at zero.
    is_read: bool,
    /// Rows that were left and are not clear.
    left: usize,
    /// No reading came since the start.
    is_restored: bool,
}

impl CardBook {
    pub fn restore(&mut self, saved: SavedCard) {
        let SavedCard { boot, is_read, strangers, clock } = saved;
        self.boot = boot;
        self.clock.restore(clock);
        (self.is_read, self.is_restored) = (is_read, true);
        for (number, seen) in strangers {
            self.row_mut(number).seen = Some(seen);
        }
        if is_read {
            self.rows.iter_mut().for_each(Row::know);
        }
    }

    pub fn restore_row(&mut self, saved: SavedRow) {
        let SavedRow { uid, account, is_held, seen, drops, rates, since } = saved;
        self.left += usize::from(!is_held);
        self.clock.advance(since);
        let owner = RowOwner { is_held, ..RowOwner::new(uid, account, rates, since) };
        *self.row_mut(uid.row()) = Row { seen, drops, owner: Some(owner) };
        if self.is_read {
            // Those before it, which have no record.
            self.rows.iter_mut().for_each(Row::know);
        }
    }

    pub fn saved(&self) -> SavedCard {
        let strangers = (0..).zip(&self.rows).filter(|(_, row)| row.owner.is_none());
        let seen = strangers.filter_map(|(number, row)| Some((number, row.seen?)));
        let strangers = seen.filter(|(_, seen)| *seen != [0; 4]).collect();
        let clock = self.clock.clone();
        SavedCard { boot: self.boot, is_read: self.is_read, strangers, clock }
    }

    fn row_mut(&mut self, number: u16) -> &mut Row {
        let number = usize::from(number);
        if number >= self.rows.len() {
            let known = if self.is_read { Row::at_zero() } else { Row::default() };
            self.rows.resize(number + 1, known);
        }
        &mut self.rows[number]
    }

    /// The rows of an account, as records.
    pub fn rows_of(&self, part: &AccountPart) -> Vec<SavedRow> {
        let rows = match part {
            AccountPart::Dag(uid) => {
                let number = usize::from(uid.row());
                self.rows.get(number..=number).unwrap_or_default()
            }
            AccountPart::Rest(_) => &self.rows,
            AccountPart::Tenant(..) => &[],
        };
        rows.iter().filter_map(Row::saved).filter(|row| row.account == *part).collect()
    }

    /// Whether a DAG that gets the row is charged for its own packets alone.
    pub fn is_clear(&self, row: u16) -> bool {
        self.rows
            .get(usize::from(row))
            .is_none_or(|row| row.owner.as_ref().is_none_or(RowOwner::is_clear))
    }

    /// Rows that are held, or are not clear.
    pub fn counting(&self) -> Vec<u16> {
        let rows = (0..).zip(&self.rows);
        let counting =
            rows.filter(|(_, row)| row.owner.as_ref().is_some_and(|owner| !owner.is_clear()));
        counting.map(|(number, _)| number).collect()
    }

    /// UID of the DAG that has a row, or had it last.
    pub fn owner(&self, row: u16) -> Option<DagUid> {
        Some(self.rows.get(usize::from(row))?.owner.as_ref()?.uid)
    }

    /// The account and the rates of a DAG on the card.
    pub fn held(&self, uid: DagUid) -> Option<(&AccountPart, &UsageRates)> {
        let owner = self.rows.get(usize::from(uid.row()))?.owner.as_ref()?;
        (owner.uid == uid && owner.is_held).then_some((&owner.account, &owner.rates))
    }

    /// A DAG gets a row; returns what its owner until now has used.
    pub fn take(
        &mut self,
        time: u64,
        uid: DagUid,
        account: AccountPart,
        rates: UsageRates,
    ) -> Option<Charged> {
        let mut next = RowOwner::new(uid, account, rates, time);
        let mut before = self.row_mut(uid.row()).owner.take();
        if let Some(before) = &mut before {
            self.left -= usize::from(before.is_left());
            if !before.is_clear() && before.uid != uid {
                before.pending.add(Meter::Gap(Gap::RowReused), 1);
                next.pending.add(Meter::Gap(Gap::RowReused), 1);
            }
        }
        let charged = before.map(|mut before| before.charge(before.since));
        self.row_mut(uid.row()).owner = Some(next);
        charged
    }

    /// Whether this is the boot id that it had.
    pub fn has_boot(&self, boot: u32) -> bool {
        self.boot == Some(boot)
    }

    /// UIDs of the DAGs that are on it.
    pub fn all_held(&self) -> Vec<DagUid> {
        let owners = self.rows.iter().filter_map(|row| row.owner.as_ref());
        owners.filter(|owner| owner.is_held).map(|owner| owner.uid).collect()
    }

    /// Time of the card at this moment of the host.
    pub fn time(&mut self, at: Timestamp) -> u64 {
        self.clock.now(at)
    }

    /// Whether the card's time is not known: it was not read since the start.
    pub const fn is_unread(&self) -> bool {
        self.is_restored
    }

    /// Charges a DAG up to a time; then it has other rates, or leaves.
    pub fn charge(&mut self, time: u64, uid: DagUid, next: Option<UsageRates>) -> Option<Charged> {
        let owner = self.rows.get_mut(usize::from(uid.row()))?.owner.as_mut()?;
        if owner.uid != uid || !owner.is_held {
            return None;
        }
        let charged = owner.charge(time);
        match next {
            Some(rates) => owner.rates = rates,
            None => {
                owner.is_held = false;
                self.left += 1;
            }
        }
        Some(charged)
    }

    /// Counts loads for a DAG on the card; returns its account.
    pub fn count_loads(&mut self, uid: DagUid, loads: u32) -> Option<AccountPart> {
        let owner = self.rows.get_mut(usize::from(uid.row()))?.owner.as_mut()?;
        let owner = (owner.uid == uid && owner.is_held).then_some(owner)?;
        owner.pending.add(Meter::Loads, u64::from(loads));
        Some(owner.account.clone())
    }

    /// Charges all rows up to now. Time O(rows).
    pub fn charge_all(&mut self, now: Timestamp) -> Vec<Charged> {
        let time = self.clock.now(now);
        let charged = self.rows.iter_mut().filter_map(|row| row.owner.as_mut());
        let charged = charged.map(|owner| owner.charge(time));
        charged.filter(|charged| charged.nanos > 0 || !charged.amounts.is_zero()).collect()
    }

    /// Takes what the rows of an account have counted.
    pub fn take_pending(&mut self, part: &AccountPart) -> UsageAmounts {
        let mut sum = UsageAmounts::default();
        let rows = match part {
            AccountPart::Dag(uid) => {
                let number = usize::from(uid.row());
                self.rows.get_mut(number..=number).unwrap_or_default()
            }
            AccountPart::Rest(_) => &mut self.rows,
            AccountPart::Tenant(..) => &mut [],
        };
        let owners = rows.iter_mut().filter_map(|row| row.owner.as_mut());
        for owner in owners.filter(|owner| owner.account == *part) {
            sum.add_all(&std::mem::take(&mut owner.pending));
        }
        sum
    }

    /// All accounts of its rows.
    pub fn accounts(&self) -> impl Iterator<Item = &AccountPart> {
        self.rows.iter().filter_map(|row| Some(&row.owner.as_ref()?.account))
    }

    fn note_gap(&mut self, gap: Gap, millis: u64, concerns: fn(&RowOwner) -> bool) {
        let owners = self.rows.iter_mut().filter_map(|row| row.owner.as_mut());
        for owner in owners.filter(|owner| concerns(owner)) {
            owner.pending.add(Meter::Gap(gap), millis.max(1));
        }
    }

    /// The card was read back; its counters count from when it got this boot id. Returns whether it is another one than before. `stored` is
    /// the time since the last close, which stored what was read until then.
    pub fn booted(&mut self, now: Timestamp, boot: u32, stored: Duration) -> bool {
        let before = self.boot.replace(boot);
        if before == Some(boot) {
            self.clock.find(now);
            return false;
        }
        // What a daemon before this one read after its last close went with it.
        let unread = self.clock.unread(now).unwrap_or(stored);
        self.clock.restart(now);
        self.is_restored = false;
        if before.is_none() {
            return true; // Its counters may be of any age: the first reading is where counting begins.
        }
        // The last reading of the old boot was taken in. What was counted after it went with the card's power.
        self.note_gap(Gap::CardRestarted, unread.as_millis() as u64, |owner| !owner.is_clear());
        (self.is_read, self.left) = (true, 0);
        self.rows.iter_mut().for_each(Row::restart);
        true
    }

    /// Another device is in its place: nothing is known of its counters.
    pub fn replaced(&mut self) {
        self.note_gap(Gap::CardRestarted, 1, |owner| !owner.is_clear());
        (self.boot, self.is_read, self.left) = (None, false, 0);
        for row in &mut self.rows {
            row.restart();
            (row.seen, row.drops) = (None, None);
        }
    }

    /// Takes in the time of a reading; returns whether its counters count.
    pub fn tick(&mut self, reading: &UsageReading<'_>) -> Tick {
        let counters = reading.counters;
        let is_news = !self.is_read || !self.clock.has_cycles() && counters.cycles.is_some();
        let Passed::Nanos(passed) = self.clock.read(reading.now, counters.cycles, reading.clock_hz)
        else {
            return Tick::Restarted;
        };
        if self.is_restored || u128::from(passed) > COAST_MAX.as_nanos() {
            // Not of those that left: they use nothing, and would have a gap at each start for as long as nobody gets the row.
            self.note_gap(Gap::Late, passed / 1_000_000, |owner| owner.is_held);
        }
        // Of a card without a clock nobody knows how long it ran without the daemon.
        let has_time = counters.cycles.is_some() || !self.is_restored;
        let bytes_most = if has_time { bytes_most(reading.line, passed) } else { u64::MAX };
        self.is_restored = false;
        let to = self.clock.read_at();
        let span = (has_time && passed > 0).then(|| Span { from: to - passed, to });
        Tick::Passed { bytes_most, span, is_news }
    }

    /// Takes in counters that rise by at most so many bytes. `is_active` says whether a row is in the card's tables, or is about to be.
    pub fn count(
        &mut self,
        counters: &CardCounters,
        (most, span): (u64, Option<Span>),
        is_active: impl Fn(u16) -> bool,
    ) {
        for (row, counters) in &counters.dags {
            self.row_mut(*row).count(counters_of(counters), most, span);
        }
        for (row, drops) in &counters.dag_drops {
            self.row_mut(*row).count_drops(*drops);
        }
        if !self.is_read {
            self.is_read = true;
            self.rows.iter_mut().for_each(Row::know);
        }
        if self.left > 0 {
            self.clear_left(is_active);
        }
    }

    /// Notes which rows that were left have had their last packet counted.
    fn clear_left(&mut self, is_active: impl Fn(u16) -> bool) {
        let mut left = 0;
        for row in &mut self.rows {
            let is_complete = row.is_complete();
            let Some(owner) = row.owner.as_mut().filter(|owner| owner.is_left()) else { continue };
            let is_moving = std::mem::take(&mut owner.has_changed) || is_active(owner.uid.row());
            owner.stable = match (is_moving, owner.stable) {
                (true, _) => 0,
                // A second reading, for two counters are read at slightly different moments.
                (false, 1..) if is_complete => STABLE_READINGS,
                (false, stable) => stable + 1,
            };
            left += usize::from(owner.is_left());
        }
        self.left = left;
    }

    /// Each invariant, recomputed.
    ///
    /// # Errors
    /// One is broken: which.
    pub fn check(&self) -> Result<(), String> {
        let owners = || self.rows.iter().filter_map(|row| row.owner.as_ref());
        let left = owners().filter(|owner| owner.is_left()).count();
        if left != self.left {
            return Err(format!("{left} rows were left, {} are counted", self.left));
        }
        match owners().find(|owner| owner.since > self.clock.latest()) {
            Some(owner) => Err(format!("{} is charged ahead of time", owner.uid)),
            None => Ok(()),
        }
    }
}

/// Bytes that ports carry in a time, and far more.
fn bytes_most(line: Bandwidth, nanos: u64) -> u64 {
    let bytes = u128::from(line.get()) * u128::from(nanos) / 8_000_000_000;
    u64::try_from(JUMP_FACTOR * bytes + JUMP_BYTES_MIN).unwrap_or(u64::MAX)
}

impl RowOwner {
    const fn new(uid: DagUid, account: AccountPart, rates: UsageRates, since: u64) -> Self {
        let (is_held, stable, has_changed) = (true, 0, false);
        let (left, pending) = (PromiseLeft::new(&rates, since), UsageAmounts::ZERO);
        Self { uid, account, is_held, rates, since, left, pending, stable, has_changed }
    }

    const fn is_left(&self) -> bool {
        !self.is_held && self.stable < STABLE_READINGS
    }

    const fn is_clear(&self) -> bool {
        !self.is_held && self.stable >= STABLE_READINGS
    }

    /// Notes what was served beyond the promise. After the DAG has left the card it gets no more of it.
    fn tell_apart(&mut self, Span { from, to }: Span, bytes: u64, packets: u64) {
        if self.is_held {
            self.left.limit(&self.rates, from);
            self.left.fill(&self.rates, to);
        }
        let beyond = self.left.spend(&self.rates, bytes, packets);
        self.pending.add(Meter::BytesBeyond, beyond.bytes);
        self.pending.add(Meter::PacketsBeyond, beyond.packets);
    }

    fn charge(&mut self, time: u64) -> Charged {
        let until = if self.is_held { time } else { self.since };
        let nanos = until.saturating_sub(self.since);
        self.since = self.since.max(until);
        self.left.fill(&self.rates, until);
        let amounts = std::mem::take(&mut self.pending);
        Charged { account: self.account.clone(), amounts, nanos, rates: self.rates.clone() }
    }
}

impl Row {
    const fn at_zero() -> Self {
        Self { seen: Some([0; 4]), drops: Some([0; CAUSES]), owner: None }
    }

    fn saved(&self) -> Option<SavedRow> {
        let RowOwner { uid, account, is_held, rates, since, .. } = self.owner.clone()?;
        let (seen, drops) = (self.seen, self.drops);
        Some(SavedRow { uid, account, is_held, seen, drops, rates, since })
    }

    /// Its counters begin at zero, and packets of a DAG that was leaving are gone.
    fn restart(&mut self) {
        (self.seen, self.drops) = (Some([0; 4]), Some([0; CAUSES]));
        if let Some(owner) = self.owner.as_mut().filter(|owner| !owner.is_held) {
            owner.stable = STABLE_READINGS;
        }
    }

    /// All counters were read: this one is zero if it was not among them.
    const fn know(&mut self) {
        if self.seen.is_none() {
            (self.seen, self.drops) = (Some([0; 4]), Some([0; CAUSES]));
        }
    }

    /// Whether each packet that came in is known to have gone out or to have been dropped.
    fn is_complete(&self) -> bool {
        let (Some([packets_in, _, _, packets_out]), Some(drops)) = (self.seen, self.drops) else {
            return false;
        };
        drops.iter().fold(packets_out, |sum, drops| sum.saturating_add(*drops)) == packets_in
    }

    fn note(&mut self, meter: Meter, amount: u64) {
        if let Some(owner) = &mut self.owner {
            owner.has_changed = true;
            owner.pending.add(meter, amount);
        }
    }

    fn count(&mut self, now: [u64; 4], most: u64, span: Option<Span>) {
        if self.seen == Some(now) {
            return;
        }
        let Some(before) = self.seen.replace(now) else {
            return self.note(Meter::Gap(Gap::FirstReading), 1);
        };
        if now.iter().zip(before).any(|(now, before)| *now < before) {
            return self.note(Meter::Gap(Gap::CountersBack), 1);
        }
        let rise: [u64; 4] = std::array::from_fn(|at| now[at] - before[at]);
        if rise.iter().any(|rise| *rise > most) {
            return self.note(Meter::Gap(Gap::CountersJumped), 1);
        }
        for (meter, rise) in COUNTED.into_iter().zip(rise) {
            self.note(meter, rise);
        }
        if let (Some(span), Some(owner)) = (span, &mut self.owner) {
            let [_, _, bytes, packets] = rise;
            owner.tell_apart(span, bytes, packets);
        }
    }

    fn count_drops(&mut self, now: [u64; CAUSES]) {
        if self.drops == Some(now) {
            return;
        }
        let Some(before) = self.drops.replace(now) else { return };
        if now.iter().zip(before).any(|(now, before)| *now < before) {
            return self.note(Meter::Gap(Gap::CountersBack), 1);
        }
        for ((cause, now), before) in DropCause::ALL.into_iter().zip(now).zip(before) {
            self.note(Meter::Dropped(cause), now - before);
        }
    }
}
