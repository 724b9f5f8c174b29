//! Loads of tenants, as the card would count them: random processes, far over what was asked
//! for at times, and counters that are not to be trusted.
//!
//! The packets of the simulation are few, so that thousands of seeds can be run; the loop sees these
//! counters instead.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use snic_domain::{Bandwidth, DagUid};
use snic_tables::{CardCounters, DagCounters};

/// One DAG's sender.
#[derive(Debug, Default)]
struct Sender {
    rate: Bandwidth,
    counted: u64,
}

#[derive(Debug, Default)]
pub struct Loads {
    senders: BTreeMap<DagUid, Sender>,
    /// Last load of each row.
    shown: BTreeMap<u16, u64>,
    /// Loads of DAGs that are not drawn.
    pub fixed: BTreeMap<DagUid, Bandwidth>,
    /// Nobody sends any more.
    pub silent: bool,
}

impl Loads {
    /// Lets time pass for the DAGs that there are, and says what the card would have counted.
    pub fn count(
        &mut self,
        rng: &mut ChaCha8Rng,
        dags: &[DagUid],
        time: Duration,
        counters: &mut CardCounters,
    ) {
        self.senders.retain(|uid, _| dags.contains(uid));
        let mut rows: BTreeMap<u16, DagCounters> = counters.dags.iter().copied().collect();
        for uid in dags {
            let sender = self.senders.entry(*uid).or_default();
            if self.silent {
                sender.rate = Bandwidth::ZERO;
            } else if let Some(rate) = self.fixed.get(uid) {
                sender.rate = *rate;
            } else if rng.random_ratio(1, 6) {
                // Heavy-tailed: most are small, some are many times what any NT serves.
                let small: f64 = rng.random_range(0.01..1.0);
                sender.rate = Bandwidth::from_mbps((400.0 / small) as u64);
            }
            let bytes = u128::from(sender.rate.get()) * time.as_nanos() / 8 / 1_000_000_000;
            sender.counted = sender.counted.saturating_add(bytes as u64);
            if !self.silent && self.fixed.is_empty() && rng.random_ratio(1, 200) {
                // It began again, or jumped.
                sender.counted = if rng.random_ratio(1, 2) { 0 } else { u64::MAX - 7 };
            }
            self.shown.insert(uid.row(), sender.counted);
        }
        // All else is as the card has counted it, also of DAGs that are gone.
        for (row, bytes) in &self.shown {
            rows.entry(*row).or_default().bytes_intended = *bytes;
        }
        counters.dags = rows.into_iter().collect();
    }
}
