//! The program as the fast path of a card.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::time::Duration;

use snic_card_sim::BucketState;
use snic_card_soft::{FlowOffload, OffloadCounts, OffloadFailure, OffloadRule, OffloadUse};

use crate::layout::KEY_BYTES;
use crate::program::monotonic_nanos;
use crate::{DagProfile, Exit, FastPath, FastPathError, KernelRule};

/// The generation of all rows: a DAG's rules hold while it is handed over.
const GENERATION: u32 = 1;
/// Bytes by which a bucket is deeper here than the card's: two merged packets of 64 KiB, as hosts send a block of 128 KiB. The card would have them
/// wait at its bucket; here they pass at once, and the rate is the same.
const BURST_BYTES: u32 = 128 << 10;
/// Rules in the program's table from which on those of older versions are removed.
const RULES_MAX: usize = 24_576;

/// The fast path of a card, with the version of its rules.
#[derive(Debug)]
pub struct KernelOffload {
    path: FastPath,
    version: u32,
    /// Versions of rules in the table, by their keys.
    rules: HashMap<[u8; KEY_BYTES], u32>,
    /// Rows whose rules hold.
    rows: BTreeSet<u16>,
}

/// Makes a fast path that has no ports yet.
///
/// # Errors
/// The crate was built without clang, the process is not root, or the kernel is too old.
pub fn open() -> Result<Box<dyn FlowOffload>, OffloadFailure> {
    let path = FastPath::load().map_err(failure)?;
    Ok(Box::new(KernelOffload { path, version: 1, rules: HashMap::new(), rows: BTreeSet::new() }))
}

/// An error with its causes, in one line.
fn failure(error: FastPathError) -> OffloadFailure {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    OffloadFailure(text.replace('\n', " "))
}

impl KernelOffload {
    fn rule(&self, rule: &OffloadRule) -> KernelRule {
        KernelRule {
            headers: rule.headers,
            port: rule.port,
            exit: Exit::Device(rule.out),
            row: rule.row,
            generation: GENERATION,
            version: self.version,
            slot: rule.slot,
        }
    }

    /// Removes rules of older versions.
    fn clean_up(&mut self) -> Result<(), FastPathError> {
        let Self { path, version, rules, .. } = self;
        let old: Vec<_> =
            rules.iter().filter(|(_, of)| *of != version).map(|(key, _)| *key).collect();
        for key in old {
            path.remove_key(&key)?;
            rules.remove(&key);
        }
        Ok(())
    }
}

/// The profile of a bucket.
fn profile(bucket: &BucketState) -> DagProfile {
    match bucket.limit {
        None => DagProfile { generation: GENERATION, rate_kbps: u32::MAX, burst_bytes: u32::MAX },
        Some(limit) => DagProfile {
            generation: GENERATION,
            rate_kbps: limit.rate_kbps,
            burst_bytes: limit.burst_bytes.saturating_add(BURST_BYTES),
        },
    }
}

impl FlowOffload for KernelOffload {
    fn open_port(&mut self, port: &str, slow: &str) -> Result<u32, OffloadFailure> {
        self.path.set_version(self.version).map_err(failure)?;
        self.path.attach(port, slow).map_err(failure)
    }

    fn give(&mut self, rule: &OffloadRule) -> Result<(), OffloadFailure> {
        if self.rules.len() >= RULES_MAX {
            self.clean_up().map_err(failure)?;
        }
        let rule = self.rule(rule);
        self.path.set_rule(&rule).map_err(failure)?;
        self.rules.insert(rule.key(), self.version);
        Ok(())
    }

    fn end(&mut self, rules: &[OffloadRule]) -> Result<(), OffloadFailure> {
        for rule in rules {
            let rule = self.rule(rule);
            self.path.remove_rule(&rule).map_err(failure)?;
            self.rules.remove(&rule.key());
        }
        self.path.settle().map_err(failure)
    }

    fn end_all(&mut self) -> Result<(), OffloadFailure> {
        self.version = self.version.wrapping_add(1);
        self.path.set_version(self.version).map_err(failure)?;
        for row in std::mem::take(&mut self.rows) {
            self.path.remove_dag(row).map_err(failure)?;
        }
        self.path.settle().map_err(failure)
    }

    fn slow_packets(&mut self, row: u16) -> Result<u64, OffloadFailure> {
        self.path.slow_packets(row).map_err(failure)
    }

    fn hand_over(
        &mut self,
        row: u16,
        bucket: &BucketState,
        slow: u64,
    ) -> Result<(), OffloadFailure> {
        self.rows.insert(row);
        self.path.hand_over(row, &profile(bucket), bucket.full_in, slow).map_err(failure)
    }

    fn hold_back(&mut self, row: u16) -> Result<(), OffloadFailure> {
        self.rows.insert(row);
        self.path.hold_back(row, GENERATION).map_err(failure)
    }

    fn take_back(&mut self, row: u16) -> Result<(), OffloadFailure> {
        self.rows.remove(&row);
        self.path.remove_dag(row).map_err(failure)?;
        self.path.settle().map_err(failure)
    }

    fn passed(&mut self, row: u16) -> Result<OffloadCounts, OffloadFailure> {
        let counts = self.path.dag_counts(row).map_err(failure)?;
        let lost = counts.failed + counts.held_back;
        Ok(OffloadCounts { packets: counts.packets, bytes: counts.bytes, lost })
    }

    fn rule_use(&mut self, slot: u32) -> Result<OffloadUse, OffloadFailure> {
        let used = self.path.rule_use(slot).map_err(failure)?;
        let ago = match used.last_nanos {
            0 => Duration::ZERO,
            last => Duration::from_nanos(monotonic_nanos().saturating_sub(last)),
        };
        Ok(OffloadUse { packets: used.packets, bytes: used.bytes, ago })
    }
}
