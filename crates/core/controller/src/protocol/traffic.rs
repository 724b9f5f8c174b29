//! Traffic of a DAG, and the part of its promise that is missing.

use snic_domain::{Bandwidth, PacketSizes};
use snic_tables::DropCause;

/// Losses up to one packet in this many are no shortfall: packets on their way are not lost.
const TOLERATED: u64 = 16;

/// Traffic of a DAG: rates of the last monitor period, and sums since the daemon first read its
/// counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DagTraffic {
    /// Arrived load, before rate limiting.
    pub offered: Bandwidth,
    pub served: Bandwidth,
    /// Packets that came in.
    pub packets_in: u64,
    /// Packets that went out.
    pub packets_out: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
    /// Packets that were dropped, in the order of [`DropCause::ALL`].
    pub drops: [u64; DropCause::ALL.len()],
    /// The part of these sums that is of the last seconds.
    pub recent: RecentPackets,
}

/// The packets of a DAG in the last five to ten seconds, or since counting began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecentPackets {
    /// Packets that came in.
    pub packets_in: u64,
    /// Packets that went out.
    pub packets_out: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
    /// Packets that were dropped, in the order of [`DropCause::ALL`].
    pub drops: [u64; DropCause::ALL.len()],
}

impl RecentPackets {
    /// Packets dropped for one cause.
    pub const fn dropped(&self, cause: DropCause) -> u64 {
        self.drops[cause as usize]
    }

    /// Packets that came in and did not go out, without those that the DAG's own tasks dropped or consumed.
    pub const fn lost(&self) -> u64 {
        let meant = self.dropped(DropCause::ByNt).saturating_add(self.dropped(DropCause::UsedUp));
        self.packets_in.saturating_sub(self.packets_out).saturating_sub(meant)
    }

    /// Bytes of a packet on average; `None` without packets.
    pub fn mean_bytes(&self) -> Option<u64> {
        self.bytes_in.checked_div(self.packets_in)
    }

    /// Whether more packets are lost than those that are on their way.
    pub const fn loses(&self) -> bool {
        self.lost() > self.packets_in / TOLERATED
    }

    /// Difference of these sums to those of `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut added = Self {
            packets_in: self.packets_in.saturating_sub(before.packets_in),
            packets_out: self.packets_out.saturating_sub(before.packets_out),
            bytes_in: self.bytes_in.saturating_sub(before.bytes_in),
            drops: self.drops,
        };
        for (drops, before) in added.drops.iter_mut().zip(before.drops) {
            *drops = drops.saturating_sub(before);
        }
        added
    }
}

impl DagTraffic {
    /// Shortfall against the smaller of promise and load: packets lost lately, as a part of
    /// the load. Zero where a sixteenth or less is missing. Who sends smaller packets than stated is promised the
    /// stated number of them.
    pub fn shortfall(&self, promised: Bandwidth, sizes: &PacketSizes) -> Bandwidth {
        let recent = &self.recent;
        if !recent.loses() {
            return Bandwidth::ZERO;
        }
        let kept = recent.packets_in.saturating_sub(recent.lost());
        let served = part_of(self.offered, kept, recent.packets_in);
        let stated = u64::from(sizes.mean_bytes());
        let mean = recent.mean_bytes().unwrap_or(stated).min(stated);
        let due = part_of(promised, mean, stated).min(self.offered);
        let missing = due.saturating_sub(served);
        if missing.get() <= due.get() / TOLERATED { Bandwidth::ZERO } else { missing }
    }
}

/// `number` of `of` parts of a bandwidth; all of it where there are no parts.
pub(crate) fn part_of(whole: Bandwidth, number: u64, of: u64) -> Bandwidth {
    let bps = u128::from(whole.get()) * u128::from(number);
    let bps = bps.checked_div(of.into()).unwrap_or(whole.get().into());
    Bandwidth::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: Bandwidth = Bandwidth::from_gbps(1);

    /// A load of `gbps`, of which `lost` of 100 packets are lost, with `bytes` each.
    fn traffic(gbps: u64, lost: u64, bytes: u64) -> DagTraffic {
        let recent = RecentPackets {
            packets_in: 100,
            packets_out: 100 - lost,
            bytes_in: 100 * bytes,
            ..RecentPackets::default()
        };
        DagTraffic { offered: Bandwidth::from_gbps(gbps), recent, ..DagTraffic::default() }
    }

    #[test]
    fn what_is_missing_is_a_part_of_the_promise_and_of_the_load() {
        let sizes = PacketSizes::only(1_000);
        let missing =
            |traffic: &DagTraffic, gbps| traffic.shortfall(Bandwidth::from_gbps(gbps), &sizes);
        assert_eq!(missing(&traffic(4, 50, 1_000), 3), GBIT, "3 are promised, 2 served");
        assert_eq!(missing(&traffic(4, 50, 1_000), 9), Bandwidth::from_gbps(2), "4 come in");
        assert_eq!(missing(&traffic(4, 50, 1_000), 2), Bandwidth::ZERO, "the promise is kept");
        assert_eq!(missing(&traffic(4, 6, 1_000), 4), Bandwidth::ZERO, "packets on their way");
        assert_eq!(missing(&traffic(4, 7, 1_000), 4), Bandwidth::from_bps(280_000_000));
    }

    #[test]
    fn smaller_packets_than_stated_are_promised_by_number() {
        let sizes = PacketSizes::only(1_000);
        let small = traffic(4, 50, 500);
        assert_eq!(small.shortfall(Bandwidth::from_gbps(4), &sizes), Bandwidth::ZERO);
        let smaller = PacketSizes::only(500);
        assert_eq!(small.shortfall(Bandwidth::from_gbps(4), &smaller), Bandwidth::from_gbps(2));
        let large = traffic(4, 50, 1_500);
        assert_eq!(large.shortfall(Bandwidth::from_gbps(4), &sizes), Bandwidth::from_gbps(2));
    }

    #[test]
    fn what_a_task_drops_or_consumes_is_not_lost() {
        let mut recent = RecentPackets { packets_in: 100, packets_out: 40, ..Default::default() };
        assert_eq!(recent.lost(), 60);
        recent.drops[DropCause::ByNt as usize] = 30;
        recent.drops[DropCause::UsedUp as usize] = 20;
        recent.drops[DropCause::RateLimited as usize] = 10;
        assert_eq!((recent.lost(), recent.loses()), (10, true));
        recent.packets_out = 90;
        assert_eq!(recent.lost(), 0, "a task that sends more than it takes");
    }

    #[test]
    fn parts_of_nothing_and_of_much_are_no_panic() {
        assert_eq!(part_of(GBIT, 5, 0), GBIT);
        assert_eq!(part_of(Bandwidth::from_bps(u64::MAX), u64::MAX, 1).get(), u64::MAX);
    }
}
