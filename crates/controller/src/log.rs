//! The log: what the control plane decided by itself, kept for a while.

use std::collections::VecDeque;

use crate::protocol::{Caller, LogEntry};
use crate::tx::Tx;

/// Entries kept; the oldest go first. A few hundred bytes each: about a megabyte.
pub const LOG_KEPT: usize = 4_096;

/// The last entries.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<LogEntry>,
    last_number: u64,
}

impl Log {
    /// Numbers and keeps what an event noted.
    pub fn keep(&mut self, tx: &mut Tx) {
        for entry in tx.noted() {
            self.last_number += 1;
            entry.number = self.last_number;
            self.entries.push_back(entry.clone());
            if self.entries.len() > LOG_KEPT {
                self.entries.pop_front();
            }
        }
    }

    /// The entries that `caller` may see with a number under `before`, the last first.
    pub fn before(&self, caller: &Caller, before: Option<u64>) -> impl Iterator<Item = &LogEntry> {
        let end = before.map_or(self.entries.len(), |before| {
            self.entries.partition_point(|entry| entry.number < before)
        });
        self.entries.range(..end).rev().filter(move |entry| entry.is_visible_to(caller))
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{DagName, Timestamp};

    use super::*;
    use crate::protocol::LogKind;
    use crate::tx::About;

    fn dag(name: &str) -> DagName {
        let (tenant, dag) = name.split_once('/').expect("TENANT/DAG");
        let (tenant, dag) = (tenant.parse().expect("a label"), dag.parse().expect("a label"));
        DagName { tenant, dag }
    }

    fn numbers<'a>(entries: impl Iterator<Item = &'a LogEntry>) -> Vec<u64> {
        entries.map(|entry| entry.number).collect()
    }

    #[test]
    fn entries_are_numbered_over_events_and_read_backwards() {
        let (acme, beta) = (dag("acme/web"), dag("beta/web"));
        let mut log = Log::default();
        for dags in [&[&acme, &beta][..], &[], &[&acme]] {
            let mut tx = Tx::at(Timestamp::from_nanos(7));
            for dag in dags {
                let about = About { dag: Some(dag), ..About::default() };
                tx.note(LogKind::ScaleOut, about, "overloaded".into());
            }
            log.keep(&mut tx);
            assert!(tx.noted().all(|entry| entry.number > 0 && entry.at.as_nanos() == 7));
        }
        let operator = Caller::Operator("ada".into());
        assert_eq!(numbers(log.before(&operator, None)), [3, 2, 1]);
        assert_eq!(numbers(log.before(&operator, Some(3))), [2, 1]);
        assert_eq!(numbers(log.before(&Caller::Tenant(acme.tenant.clone()), None)), [3, 1]);
        assert_eq!(numbers(log.before(&Caller::Orchestrator("vmd".into()), None)), [0; 0]);
    }

    #[test]
    fn the_oldest_entries_go_first() {
        let mut log = Log::default();
        for _ in 0..=LOG_KEPT {
            let mut tx = Tx::default();
            tx.note(LogKind::Overrun, About::default(), String::new());
            log.keep(&mut tx);
        }
        let operator = Caller::Operator("ada".into());
        let kept = numbers(log.before(&operator, None));
        assert_eq!((kept.len(), kept.first(), kept.last()), (LOG_KEPT, Some(&4_097), Some(&2)));
    }
}
