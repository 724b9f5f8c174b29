//! History of tenants on one card: shares, load and served rate, a point a second.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use snic_domain::{Bandwidth, TenantId, Timestamp};

use super::card_engine::LastStep;
use super::shares::{busiest, dominant, flows_of, time_share};
use crate::state::dags::Dags;

/// Distance of two recent points of a history.
pub const HISTORY_STEP: Duration = Duration::from_secs(1);
/// Recent points: two minutes.
const HISTORY_RECENT: usize = 120;
/// Distance of two older points.
const HISTORY_OLD_STEP: Duration = Duration::from_secs(15);
/// Points kept: an hour of older ones and the recent ones. About 15 KiB a tenant and card.
pub const HISTORY_KEPT: usize = 240 + HISTORY_RECENT;

/// A tenant at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FairnessPoint {
    pub at: Timestamp,
    /// Its share of its dominant resource in space, in millionths.
    pub space_ppm: u32,
    /// Its share of its dominant resource in time, in millionths.
    pub time_ppm: u32,
    /// Its use of the single resource that it uses most, in millionths.
    pub busiest_ppm: u32,
    /// Load of its DAGs.
    pub load: Bandwidth,
    pub served: Bandwidth,
}

/// Points of each tenant of a card, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Time of the last point.
    written: Timestamp,
    points: BTreeMap<TenantId, VecDeque<FairnessPoint>>,
}

impl History {
    /// The points of a tenant.
    pub fn of(&self, tenant: &TenantId) -> impl DoubleEndedIterator<Item = &FairnessPoint> {
        self.points.get(tenant).into_iter().flatten()
    }

    /// Adds a point for every tenant of the card, when it is time; forgets those of tenants that are gone.
    pub fn write(
        &mut self,
        now: Timestamp,
        step: LastStep<'_>,
        dags: &Dags,
        is_tenant: impl Fn(&TenantId) -> bool,
    ) {
        if now.since(self.written) < HISTORY_STEP {
            return;
        }
        self.written = now;
        self.points.retain(|tenant, _| is_tenant(tenant));
        let LastStep { engine, names, .. } = step;
        for (at, tenant) in names.tenants.iter().enumerate() {
            let outcome = &engine.outcome().tenants[at];
            let mut point = FairnessPoint {
                at: now,
                space_ppm: dominant(outcome, engine.topology().memory).map_or(0, |(_, ppm)| ppm),
                time_ppm: time_share(engine, flows_of(engine, at)),
                busiest_ppm: busiest(engine, flows_of(engine, at)).map_or(0, |(_, ppm)| ppm),
                load: Bandwidth::ZERO,
                served: Bandwidth::ZERO,
            };
            let dags_of_tenant = &names.dags[flows_of(engine, at)];
            for entry in dags_of_tenant.iter().filter_map(|name| dags.get(name)) {
                let traffic = entry.meter().traffic().unwrap_or_default();
                point.load += traffic.offered;
                point.served += traffic.served;
            }
            add_point(self.points.entry(tenant.clone()).or_default(), point);
        }
    }
}

/// Adds a point. One that is not recent any more stays where the older one before it is far enough away.
fn add_point(history: &mut VecDeque<FairnessPoint>, point: FairnessPoint) {
    history.push_back(point);
    let Some(ages) = history.len().checked_sub(HISTORY_RECENT + 1) else { return };
    let before = ages.checked_sub(1).map(|before| history[before].at);
    if before.is_some_and(|before| history[ages].at.since(before) < HISTORY_OLD_STEP) {
        history.remove(ages);
    }
    if history.len() > HISTORY_KEPT {
        history.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_has_each_second_of_two_minutes_and_an_hour_of_older_ones() {
        let mut history = VecDeque::new();
        let at = |second: u64| Timestamp::from_nanos(second * 1_000_000_000);
        for second in 0..2 * 3_600 {
            let at = at(second);
            let none = Bandwidth::ZERO;
            let point = FairnessPoint {
                at,
                space_ppm: 0,
                time_ppm: 0,
                busiest_ppm: 0,
                load: none,
                served: none,
            };
            add_point(&mut history, point);
        }
        let seconds: Vec<u64> =
            history.iter().map(|point| point.at.as_nanos() / 1_000_000_000).collect();
        assert_eq!(seconds.len(), HISTORY_KEPT);
        let (old, recent) = seconds.split_at(240);
        assert!(recent.iter().copied().eq(7_200 - 120..7_200), "{recent:?}");
        assert!(old.windows(2).all(|pair| pair[1] - pair[0] == 15), "{old:?}");
        assert!(recent[0] - old[0] >= 3_585, "an hour");
    }
}
