//! The time of a card.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

/// Longest time between two readings in which the host's clock counts where the card's does not, and for which time goes on after the
/// last one. Cards with DAGs are read at least once in this time.
pub(crate) const COAST_MAX: Duration = Duration::from_secs(2);

/// Nanoseconds that a card has run, as far as it was read: by cycles of its own clock where it counts them, else by the host's.
///
/// Between two readings the host's clock says how far time has come, so that a promise that begins between them is charged from then
/// on; the next reading corrects it, and time never goes back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardClock {
    /// Time at the last reading.
    nanos: u64,
    /// Latest time that was given out.
    floor: u64,
    /// Cycles at the last reading, and billionths of a nanosecond that are left of them.
    cycles: Option<u64>,
    rest: u64,
    /// Host's time at the last reading, or at the start of the daemon; none of it counts until then.
    #[serde(skip)]
    host: Option<Timestamp>,
    /// Host's time when the card was found, since the start.
    #[serde(skip)]
    found: Option<Timestamp>,
    /// Latest time that was given out before the start.
    #[serde(skip)]
    restored: u64,
}

/// Consequence of a reading for the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// So many nanoseconds have passed since the reading before.
    Nanos(u64),
    /// Its clock went back: it restarted, and its boot id is still to be read.
    Restarted,
}

impl CardClock {
    /// Time at a moment of the host, no earlier than those that were given out for later ones.
    pub(crate) fn now(&mut self, host: Timestamp) -> u64 {
        let Some(read) = self.host else { return self.floor };
        if host < read {
            // Before the first reading, which said what time it was.
            let ago = read.since(host).as_nanos() as u64;
            return self.nanos.saturating_sub(ago).max(self.restored);
        }
        let coasted = host.since(read).min(COAST_MAX).as_nanos() as u64;
        self.floor = self.floor.max(self.nanos.saturating_add(coasted));
        self.floor
    }

    /// Continues from a record.
    pub(crate) fn restore(&mut self, saved: Self) {
        let floor = self.floor.max(saved.floor);
        *self = Self { floor, ..saved };
        self.restored = self.floor;
    }

    /// Time since the last reading, by the host's clock; `None` if there was none since the start.
    pub(crate) fn unread(&self, host: Timestamp) -> Option<Duration> {
        self.host.map(|read| host.since(read))
    }

    /// The card was found, and is read from now on.
    pub(crate) fn find(&mut self, host: Timestamp) {
        self.found.get_or_insert(host);
    }

    /// Whether the card's cycles were read since it booted.
    pub(crate) const fn has_cycles(&self) -> bool {
        self.cycles.is_some()
    }

    /// Time has come this far, as a record says that was stored after the card's.
    pub(crate) fn advance(&mut self, nanos: u64) {
        self.floor = self.floor.max(nanos);
    }

    /// Time at the last reading.
    pub(crate) const fn read_at(&self) -> u64 {
        self.nanos
    }

    /// Latest time that was given out.
    pub(crate) const fn latest(&self) -> u64 {
        self.floor
    }

    /// The card restarted: its cycles count from zero, and how long it was off is not known.
    pub(crate) const fn restart(&mut self, host: Timestamp) {
        self.cycles = None;
        self.rest = 0;
        self.host = Some(host);
    }

    /// The card was read. `hz` is the frequency of its clock.
    pub(crate) fn read(&mut self, host: Timestamp, cycles: Option<u64>, hz: u64) -> Passed {
        let before = self.cycles;
        self.cycles = cycles;
        let by_host = self.host.or(self.found).map_or(Duration::ZERO, |read| host.since(read));
        self.host = Some(host);
        let passed = match before.zip(cycles) {
            Some((before, now)) if now < before => return Passed::Restarted,
            Some((before, now)) => {
                let hz = u128::from(hz.max(1));
                let parts = u128::from(now - before) * 1_000_000_000 + u128::from(self.rest);
                self.rest = (parts % hz) as u64;
                u64::try_from(parts / hz).unwrap_or(u64::MAX)
            }
            None if by_host <= COAST_MAX => by_host.as_nanos() as u64,
            None => 0,
        };
        self.nanos = self.nanos.saturating_add(passed);
        self.floor = self.floor.max(self.nanos);
        Passed::Nanos(passed)
    }
}
