//! Traffic of a DAG, and the part of its promise that is missing.

use std::time::Duration;

use snic_domain::{Bandwidth, PacketSizes};
use snic_tables::DropCause;

/// Losses up to one packet in this many count as served: a token bucket and what is on its way make as much.
const TOLERATED: u64 = 50;
/// On a card that does not count drops by DAG, up to one packet in this many may be on its way.
const UNDER_WAY: u64 = 16;

/// Traffic of a DAG, in the card's clock: rates of the last second, and sums since the daemon first read its counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DagTraffic {
    /// Load of the last second, before rate limiting.
    pub offered: Bandwidth,
    /// Served part of that.
    pub served: Bandwidth,
    /// Sums since counting began.
    pub sums: TrafficWindow,
    pub last_second: TrafficWindow,
    pub last_ten_seconds: TrafficWindow,
}

/// The packets of a DAG in some time. What came in went out, was dropped for a cause, or is on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficWindow {
    /// Its length by the card's clock.
    pub span: Duration,
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
    /// Whether the card counts drops by DAG.
    pub counts_drops: bool,
}

impl TrafficWindow {
    /// Load before rate limiting.
    pub fn offered(&self) -> Bandwidth {
        rate(self.bytes_in, self.span)
    }

    /// Served load of that time.
    pub fn served(&self) -> Bandwidth {
        rate(self.bytes_out, self.span)
    }

    /// Packets dropped for one cause.
    pub const fn dropped(&self, cause: DropCause) -> u64 {
        self.drops[cause as usize]
    }

    /// Packets that neither went out nor were dropped: they are on their way, or the card does not say why they were
    /// dropped.
    pub fn under_way(&self) -> u64 {
        let ended = self.drops.iter().fold(self.packets_out, |sum, n| sum.saturating_add(*n));
        self.packets_in.saturating_sub(ended)
    }

    /// Packets that were dropped, without those that the DAG's own tasks dropped or consumed. Where the card does not
    /// count drops: what came in and did not go out, if that is more than what may be on its way.
    pub fn lost(&self) -> u64 {
        let meant = self.dropped(DropCause::ByNt).saturating_add(self.dropped(DropCause::UsedUp));
        if self.counts_drops {
            let all = self.drops.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
            return all.saturating_sub(meant);
        }
        let missing = self.under_way();
        if missing > self.packets_in / UNDER_WAY { missing } else { 0 }
    }

    /// Bytes of a packet on average; `None` without packets.
    pub fn mean_bytes(&self) -> Option<u64> {
        self.bytes_in.checked_div(self.packets_in)
    }

    /// Whether more packets are lost than count as served.
    pub fn loses(&self) -> bool {
        self.lost() > self.packets_in / TOLERATED
    }

    /// Whether a packet came, went or was dropped since `before`.
    pub fn has_moved(&self, before: &Self) -> bool {
        let counts = |of: &Self| (of.packets_in, of.packets_out, of.bytes_in, of.bytes_out);
        counts(self) != counts(before) || self.drops != before.drops
    }

    /// Difference of these sums to those of `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut added = Self {
            span: self.span.saturating_sub(before.span),
            packets_in: self.packets_in.saturating_sub(before.packets_in),
            packets_out: self.packets_out.saturating_sub(before.packets_out),
            bytes_in: self.bytes_in.saturating_sub(before.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(before.bytes_out),
            ..*self
        };
        for (drops, before) in added.drops.iter_mut().zip(before.drops) {
            *drops = drops.saturating_sub(before);
        }
        added
    }
}

impl DagTraffic {
    /// Shortfall against the smaller of promise and load in the last second: packets lost, as a part of
    /// the load. Zero where a fiftieth or less is missing. Who sends smaller packets than stated is promised the
    /// stated number of them.
    pub fn shortfall(&self, promised: Bandwidth, sizes: &PacketSizes) -> Bandwidth {
        self.missing(promised, sizes, 0)
    }

    /// Shortfall as objectives count it. What the DAG's token bucket refused was beyond the promise, for its rate is never less than
    /// that: else a burst above the promise would break it, where the whole second has less than promised.
    pub fn shortfall_within_promise(&self, promised: Bandwidth, sizes: &PacketSizes) -> Bandwidth {
        let last = &self.last_second;
        let refused = if last.counts_drops { last.dropped(DropCause::RateLimited) } else { 0 };
        self.missing(promised, sizes, refused)
    }

    /// Shortfall, where `beyond` of the packets that came in and were lost do not count.
    fn missing(&self, promised: Bandwidth, sizes: &PacketSizes, beyond: u64) -> Bandwidth {
        let last = &self.last_second;
        let lost = last.lost().saturating_sub(beyond);
        let within = last.packets_in.saturating_sub(beyond);
        if lost <= within / TOLERATED {
            return Bandwidth::ZERO;
        }
        let offered = part_of(self.offered, within, last.packets_in);
        let served = part_of(offered, within.saturating_sub(lost), within);
        let stated = u64::from(sizes.mean_bytes());
        let mean = last.mean_bytes().unwrap_or(stated).min(stated);
        let due = part_of(promised, mean, stated).min(offered);
        let missing = due.saturating_sub(served);
        if missing.get() <= due.get() / TOLERATED { Bandwidth::ZERO } else { missing }
    }
}

/// Bytes in a time, as bits per second; a time of zero counts as a nanosecond.
pub(crate) fn rate(bytes: u64, span: Duration) -> Bandwidth {
    let bits = u128::from(bytes) * 8 * 1_000_000_000 / span.as_nanos().max(1);
    Bandwidth::from_bps(u64::try_from(bits).unwrap_or(u64::MAX))
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
        let last_second = TrafficWindow {
            packets_in: 100,
            packets_out: 100 - lost,
            bytes_in: 100 * bytes,
            ..TrafficWindow::default()
        };
        DagTraffic { offered: Bandwidth::from_gbps(gbps), last_second, ..DagTraffic::default() }
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
        let mut window = TrafficWindow { packets_in: 100, packets_out: 40, ..Default::default() };
        assert_eq!(window.lost(), 60);
        window.drops[DropCause::ByNt as usize] = 30;
        window.drops[DropCause::UsedUp as usize] = 20;
        window.drops[DropCause::RateLimited as usize] = 10;
        window.counts_drops = true;
        assert_eq!((window.lost(), window.loses(), window.under_way()), (10, true, 0));
        window.packets_out = 90;
        assert_eq!(window.lost(), 10, "a task that sends more than it takes hides no loss");
    }

    #[test]
    fn a_loss_of_five_in_a_hundred_is_one_and_packets_on_their_way_are_none() {
        let mut window =
            TrafficWindow { packets_in: 1_000, packets_out: 951, ..Default::default() };
        window.counts_drops = true;
        assert!(!window.loses(), "49 wait in a queue");
        (window.drops[DropCause::StoreFull as usize], window.bytes_in) = (49, 1_000_000);
        assert!(window.loses() && window.under_way() == 0);
        let traffic = DagTraffic {
            offered: Bandwidth::from_gbps(40),
            last_second: window,
            ..DagTraffic::default()
        };
        let missing =
            |gbps| traffic.shortfall(Bandwidth::from_gbps(gbps), &PacketSizes::only(1_000)).get();
        assert_eq!(missing(40), 1_960_000_000, "of 40 that were promised 38 are served");
        assert_eq!(missing(20), 0, "the promise is kept");
    }

    #[test]
    fn parts_of_nothing_and_of_much_are_no_panic() {
        assert_eq!(part_of(GBIT, 5, 0), GBIT);
        assert_eq!(part_of(Bandwidth::from_bps(u64::MAX), u64::MAX, 1).get(), u64::MAX);
    }
}
