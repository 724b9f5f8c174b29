//! Latency of a DAG's packets, as its card measured it.

use std::fmt;
use std::time::Duration;

use snic_domain::NodeId;
use snic_tables::PathPart;

/// Latencies of a DAG lately; nothing where no packet was sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredLatencies {
    /// Latency of a packet that waits nowhere, as planned.
    pub planned: Duration,
    pub last_second: MeasuredLatency,
    pub last_ten_seconds: MeasuredLatency,
}

/// Latencies of the sampled packets of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredLatency {
    /// Number of sampled packets.
    pub samples: u64,
    /// All of a packet's time on the card. Its largest is of all packets, sampled or not.
    pub total: LatencyQuantiles,
    /// Parts of it: those outside of tasks, then each task of the DAG.
    pub parts: Vec<(MeasuredPart, LatencyQuantiles)>,
}

/// Quantiles of the time that packets took, to one part in 16.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencyQuantiles {
    pub p50: Duration,
    pub p99: Duration,
    pub max: Duration,
}

/// A part of a packet's way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MeasuredPart {
    Path(PathPart),
    /// One of the DAG's tasks, in all of its instances.
    Task(NodeId),
    /// Tasks in places where the DAG is no longer mapped.
    FormerTask,
}

impl fmt::Display for MeasuredPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Path(PathPart::Ingress) => "waiting at the ingress",
            Self::Path(PathPart::Pipeline) => "the shell",
            Self::Path(PathPart::SyncEntry) => "waiting for the synchronisation buffer",
            Self::Path(PathPart::Credits) => "waiting for credits",
            Self::Path(PathPart::Port) => "waiting for the port of a region",
            Self::Path(PathPart::Egress) => "waiting at the egress",
            Self::Task(node) => return write!(f, "task {node}"),
            Self::FormerTask => "tasks where it was before",
        })
    }
}

impl MeasuredLatency {
    /// A part by which packets have to wait or work longer than planned, with the p99 of its excess: the part with the
    /// largest. `None` where nothing takes longer than planned.
    pub fn slowest(
        &self,
        planned: impl Fn(&MeasuredPart) -> Duration,
    ) -> Option<(&MeasuredPart, Duration)> {
        let excess = |(part, times): &(MeasuredPart, LatencyQuantiles)| {
            times.p99.saturating_sub(planned(part))
        };
        let slowest = self.parts.iter().max_by_key(|part| excess(part))?;
        Some((&slowest.0, excess(slowest))).filter(|(_, excess)| !excess.is_zero())
    }
}
