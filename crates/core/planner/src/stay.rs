//! Part of a card that packets take while they are on it, whichever regions they pass.

use crate::form::PassCost;

/// Time that a packet that never waits is on the card, in cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transit {
    /// From ingress to egress.
    pub(crate) latency: u64,
    /// Part of it in stages that have branches.
    pub(crate) forked: u64,
    /// Look-ups of the scheduler: one for each branch of each stage.
    pub(crate) lookups: u64,
    /// One pass of the scheduler.
    pass: u64,
}

impl Transit {
    /// Transit of this latency and so many look-ups, whatever is a branch in it.
    pub(crate) const fn straight(latency: u64, lookups: u64) -> Self {
        Self { latency, forked: 0, lookups, pass: 0 }
    }

    /// Without any stage.
    pub(crate) const fn new(cost: PassCost) -> Self {
        let PassCost { core, pass } = cost;
        Self { latency: core.saturating_sub(pass), forked: 0, lookups: 0, pass }
    }

    /// Adds a stage with branches of these latencies.
    pub(crate) fn stage(&mut self, branches: impl Iterator<Item = u64>) {
        let (count, longest) = branches.fold((0, 0), |(n, longest), b| (n + 1, b.max(longest)));
        let stage = self.pass.saturating_add(longest);
        self.latency = self.latency.saturating_add(stage);
        self.lookups = self.lookups.saturating_add(count);
        if count > 1 {
            self.forked = self.forked.saturating_add(stage);
        }
    }
}

/// Part of the card that a DAG's packets take while they are on it, whichever regions they pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PacketOccupancy {
    /// Bytes of the packet store.
    pub(crate) store: u64,
    /// Reads of the packet store, in beats per second.
    pub(crate) reads: u64,
    /// Thousandths of an entry of the synchronisation buffer.
    pub(crate) sync: u64,
    /// Look-ups of the scheduler, in look-ups per second.
    pub(crate) lookups: u64,
}

impl PacketOccupancy {
    /// Whether each part is within that of `left`.
    pub(crate) const fn fits(self, left: Self) -> bool {
        self.store <= left.store
            && self.reads <= left.reads
            && self.sync <= left.sync
            && self.lookups <= left.lookups
    }
}
