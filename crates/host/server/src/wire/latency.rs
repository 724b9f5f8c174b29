//! Measured latencies on the wire.

use snic_api::v1;
use snic_api::v1::measured_part::Kind;
use snic_controller::{LatencyQuantiles, MeasuredLatency, MeasuredPart, PathPart};

pub(super) fn measured(latency: &MeasuredLatency) -> v1::MeasuredLatency {
    let part = |(part, times): &(MeasuredPart, LatencyQuantiles)| v1::MeasuredPart {
        kind: kind(part).into(),
        node: match part {
            MeasuredPart::Task(node) => node.to_string(),
            MeasuredPart::Path(_) | MeasuredPart::FormerTask => String::new(),
        },
        latency: Some(quantiles(times)),
    };
    v1::MeasuredLatency {
        samples: latency.samples,
        total: Some(quantiles(&latency.total)),
        parts: latency.parts.iter().map(part).collect(),
    }
}

fn quantiles(times: &LatencyQuantiles) -> v1::LatencyQuantiles {
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    v1::LatencyQuantiles {
        p50_nanos: nanos(times.p50),
        p99_nanos: nanos(times.p99),
        max_nanos: nanos(times.max),
    }
}

/// Kind of a part, also for labels of metrics.
pub(crate) const fn kind(part: &MeasuredPart) -> Kind {
    match part {
        MeasuredPart::Path(PathPart::Ingress) => Kind::Ingress,
        MeasuredPart::Path(PathPart::Pipeline) => Kind::Shell,
        MeasuredPart::Path(PathPart::SyncEntry) => Kind::SyncEntry,
        MeasuredPart::Path(PathPart::Credits) => Kind::Credits,
        MeasuredPart::Path(PathPart::Port) => Kind::Port,
        MeasuredPart::Path(PathPart::Egress) => Kind::Egress,
        MeasuredPart::Task(_) => Kind::Task,
        MeasuredPart::FormerTask => Kind::FormerTask,
    }
}
