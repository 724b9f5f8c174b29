//! Metrics of a replica of the fleet.

use super::{Metric, Reading};

/// State of a replica of the fleet, as readings.
pub fn replica_readings(refusal: Option<&str>, leads: bool) -> [Reading; 2] {
    let reason = refusal.unwrap_or("NONE").to_owned();
    let is = |it: bool| f64::from(u8::from(it));
    [
        Reading::new(Metric::FleetStoreRefused, is(refusal.is_some()), [("reason", reason)]),
        Reading::new(Metric::FleetLeader, is(leads), []),
    ]
}

/// Gauges that only the leader of a fleet has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaderGauges {
    /// Number of hosts in each condition, such as `LOST`.
    pub hosts: [(&'static str, usize); 4],
    /// Whether no DAG of a lost host is moved.
    pub is_evacuation_held: bool,
    /// DAGs that wait for a place, and DAGs that were refused too often.
    pub waiting: usize,
    pub failed: usize,
    /// DAGs that are served by their old place until the new one does.
    pub moving: usize,
    /// Calls that wait for an answer, and steps that wait for etcd.
    pub calls: usize,
    pub steps: usize,
    pub reservations: usize,
    /// Number of budgets at each level from which on somebody has to know of it, such as `REACHED`.
    pub budgets: [(&'static str, usize); 3],
}

impl LeaderGauges {
    /// The same as readings.
    pub fn readings(&self) -> Vec<Reading> {
        let count = |of, value: usize| Reading::new(of, value as f64, []);
        let by = |of, key, (word, value): (&str, usize)| {
            Reading::new(of, value as f64, [(key, word.to_owned())])
        };
        let hosts = self.hosts.iter().map(|of| by(Metric::FleetHosts, "condition", *of));
        let unplaced = [("WAITING", self.waiting), ("FAILED", self.failed)];
        let unplaced = unplaced.map(|of| by(Metric::FleetUnplaced, "state", of));
        let queue = [("calls", self.calls), ("steps", self.steps)];
        let queue = queue.map(|of| by(Metric::FleetQueue, "kind", of));
        let others = [
            count(Metric::FleetEvacuationHeld, self.is_evacuation_held.into()),
            count(Metric::FleetReservations, self.reservations),
            count(Metric::FleetMoving, self.moving),
        ];
        let budgets = self.budgets.iter().map(|of| by(Metric::FleetBudgets, "level", *of));
        hosts.chain(budgets).chain(unplaced).chain(queue).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_of_hosts_is_a_reading_of_its_own() {
        let hosts = [("IN_STEP", 7), ("BEHIND", 1), ("SUSPECTED", 0), ("LOST", 2)];
        let budgets = [("WARNED", 3), ("REACHED", 1), ("UNKNOWN", 0)];
        let gauges =
            LeaderGauges { hosts, is_evacuation_held: true, budgets, ..Default::default() };
        let readings = gauges.readings();
        let of = |metric| -> Vec<f64> {
            let those = readings.iter().filter(|reading| reading.of == metric);
            those.map(|reading| reading.value).collect()
        };
        assert_eq!(of(Metric::FleetHosts), [7.0, 1.0, 0.0, 2.0]);
        assert_eq!(of(Metric::FleetBudgets), [3.0, 1.0, 0.0]);
        assert_eq!(of(Metric::FleetEvacuationHeld), [1.0]);
        assert_eq!(
            (of(Metric::FleetUnplaced), of(Metric::FleetQueue)),
            (vec![0.0; 2], vec![0.0; 2])
        );
    }
}
