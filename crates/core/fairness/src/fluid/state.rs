//! State of tenants and resources while the level rises.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Rising,
    Done,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct TenantState {
    pub phase: Phase,
    /// Number of speed changes so far; an end that was computed before the last one is stale.
    pub version: u32,
    /// Progress at level t is `progress + (t - since) × speed`. While the tenant waits, `since` is
    /// the level at which it starts.
    pub since: f64,
    pub progress: f64,
    pub speed: f64,
}

impl TenantState {
    pub fn progress_at(&self, level: f64) -> f64 {
        (self.progress + (level - self.since) * self.speed).clamp(0.0, 1.0)
    }

    pub fn end(&self) -> f64 {
        self.since + (1.0 - self.progress) / self.speed
    }
}

/// Use of a resource as a function of the level t: `rate × t + base`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UseLine {
    pub rate: f64,
    pub base: f64,
    /// The rate if every waiting tenant had started: an upper bound of all later rates.
    pub rate_max: f64,
    /// The bound of its valid entry in the heap, as bits.
    pub bound: u64,
}

impl UseLine {
    pub fn change_rate(&mut self, rate: f64, level: f64) {
        self.rate += rate;
        self.base -= rate * level;
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ResourceState {
    /// It cannot serve everything that is wanted.
    pub contended: bool,
    pub full: bool,
    /// Its bound must be computed again.
    pub bound_is_stale: bool,
}

/// Use of a resource that is contended and not full.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ActiveUse {
    pub resource: u32,
    /// Fraction of the capacity that its missing rate takes; zero once it has stopped.
    pub fraction: f64,
}

/// A level as a sort key: levels are never negative or NaN, so their bits sort as they do.
pub(super) fn key(level: f64) -> u64 {
    level.max(0.0).to_bits()
}
