//! Choice of the region that is switched when demand outnumbers regions.

use std::time::Duration;

use snic_domain::{Bandwidth, Timestamp};

/// A DAG that holds more than it was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder<I> {
    pub id: I,
    pub load: Bandwidth,
    /// Bandwidth that it holds.
    pub holds: Bandwidth,
    /// Bandwidth that it may hold by its fair share.
    pub fair: Bandwidth,
    /// When what it holds last changed.
    pub settled: Timestamp,
}

/// The holder that gives: the first by load in proportion to what it holds, ties by id, among those that hold
/// more than their fair share and have held it for at least `residency`. `None`: nobody has to.
pub fn pick<I: Ord + Copy>(
    holders: impl IntoIterator<Item = Holder<I>>,
    residency: Duration,
    now: Timestamp,
) -> Option<I> {
    let may =
        |holder: &Holder<I>| holder.holds > holder.fair && now.since(holder.settled) >= residency;
    let least = holders.into_iter().filter(may).min_by(|a, b| {
        let product = |x: Bandwidth, y: Bandwidth| u128::from(x.get()) * u128::from(y.get());
        product(a.load, b.holds).cmp(&product(b.load, a.holds)).then(a.id.cmp(&b.id))
    });
    least.map(|holder| holder.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(id: u32, load: u64, holds: u64, fair: u64, settled: u64) -> Holder<u32> {
        let gbps = Bandwidth::from_gbps;
        let settled = Timestamp::from_nanos(settled);
        Holder { id, load: gbps(load), holds: gbps(holds), fair: gbps(fair), settled }
    }

    #[test]
    fn the_least_loaded_above_its_share_gives() {
        let (residency, now) = (Duration::from_nanos(10), Timestamp::from_nanos(100));
        let pick = |holders: &[Holder<u32>]| pick(holders.iter().copied(), residency, now);
        assert_eq!(pick(&[holder(1, 9, 10, 5, 0), holder(2, 10, 20, 5, 0)]), Some(2), "in part");
        assert_eq!(pick(&[holder(2, 1, 10, 5, 0), holder(1, 2, 20, 5, 0)]), Some(1), "a tie");
        assert_eq!(pick(&[holder(1, 0, 10, 10, 0)]), None, "it holds no more than its share");
        assert_eq!(pick(&[holder(1, 0, 10, 5, 91)]), None, "it has not been there long enough");
        assert_eq!(pick(&[holder(1, 0, 10, 5, 90)]), Some(1));
        assert_eq!(pick(&[]), None);
    }
}
