//! How tenants and resources stand while the level rises.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Rising,
    Done,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Tenant {
    pub phase: Phase,
    /// Changes of speed so far: an end computed before the last one is void.
    pub version: u32,
    /// Progress at level t is `progress + (t - since) × speed`; while it waits, `since` is its start.
    pub since: f64,
    pub progress: f64,
    pub speed: f64,
}

impl Tenant {
    pub fn progress_at(&self, level: f64) -> f64 {
        (self.progress + (level - self.since) * self.speed).clamp(0.0, 1.0)
    }

    pub fn end(&self) -> f64 {
        self.since + (1.0 - self.progress) / self.speed
    }
}

/// A resource's use is `rate × t + base`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Resource {
    pub rate: f64,
    pub base: f64,
    /// The rate when all who wait have started.
    pub all: f64,
    /// The bound of its valid entry in the heap, as bits.
    pub bound: u64,
}

impl Resource {
    pub fn change_rate(&mut self, rate: f64, level: f64) {
        self.rate += rate;
        self.base -= rate * level;
    }
}

/// How a resource stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Standing {
    /// It could not serve all that is wanted.
    pub followed: bool,
    pub full: bool,
    /// Its bound is to be found anew.
    pub touched: bool,
}

/// What a flow takes of an open resource.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Live {
    pub resource: u32,
    /// What it takes of it for all that it misses; zero once it has stopped.
    pub part: f64,
}

/// A level as a sort key: levels are never negative nor NaN, so their bits are in their order.
pub(super) fn key(level: f64) -> u64 {
    level.max(0.0).to_bits()
}
