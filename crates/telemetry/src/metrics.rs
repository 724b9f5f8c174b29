//! Metrics: what is counted where it happens, and what is read from the control plane when somebody
//! asks. Both leave by the same readers: the Prometheus exposition, and OTLP where it is on.
//!
//! Names are those of OpenTelemetry; Prometheus sees `snic.store.commit.duration` as
//! `snic_store_commit_duration_seconds`. Values of attributes are bounded: cards and regions by the
//! hardware, tenants and DAGs by the 1,024 rows of the DAG table, all others by enumerations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use opentelemetry::metrics::{AsyncInstrument, Counter, Histogram, Meter};
use opentelemetry::{KeyValue, global};
use parking_lot::RwLock;

/// Upper bounds of the buckets of durations, in seconds: from a flush of a fast disk to a hanging
/// configuration port.
const SECONDS: [f64; 13] =
    [0.0001, 0.0003, 0.001, 0.003, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// What is read from the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// Whether a card answers: 1 or 0. By card.
    CardUp,
    /// 1 for the state that a region is in. By card, region, state.
    RegionState,
    /// Words written to tables. By card.
    TableWords,
    /// Commits of tables. By card.
    TableCommits,
    /// Packets that came in. By card.
    PacketsIn,
    /// Packets that went out. By card.
    PacketsOut,
    /// Packets dropped. By card and cause.
    PacketsDropped,
    /// DAGs. By state.
    Dags,
    /// Bytes that senders meant to send. By tenant and DAG.
    DagIntended,
    /// Bytes that were served. By tenant and DAG.
    DagServed,
    /// What is let in, in bit/s. By tenant and DAG.
    DagRateLimit,
    /// Share of all cards' ingress that a tenant's DAGs ask for, 0 to 1. By tenant.
    TenantShare,
    /// Share of what a tenant takes most of, 0 to 1. By card, tenant, and `space` or `time`.
    DominantShare,
    /// Edges of epochs at which rates were set. By card.
    Epochs,
    /// Samples of counters that were skipped. By card.
    Overruns,
    /// DAGs that got more instances. By card, and whether that was hidden from their packets.
    ScaleOuts,
    /// States of chains that were saved, restored or lost. By card and which of these.
    StateMoves,
    /// Bytes of the save area that are taken. By card.
    SaveArea,
    /// Whether nothing new is taken in: 1 or 0.
    Maintenance,
    /// Bindings of machines. By state.
    Bindings,
    /// Effects that wait for the store.
    QueueEffects,
    /// Calls that wait for an answer of the controller.
    QueueCalls,
}

/// Name, unit, description, whether it only rises.
type Row = (Measured, &'static str, &'static str, &'static str, bool);

/// All of [`Measured`].
const TABLE: [Row; 22] = [
    (Measured::CardUp, "snic.card.up", "{card}", "Whether a card answers", false),
    (
        Measured::RegionState,
        "snic.region.state",
        "{region}",
        "1 for the state a region is in",
        false,
    ),
    (Measured::TableWords, "snic.table.words", "{word}", "Words written to tables", true),
    (Measured::TableCommits, "snic.table.commits", "{commit}", "Commits of tables", true),
    (Measured::PacketsIn, "snic.card.packets.in", "{packet}", "Packets that came in", true),
    (Measured::PacketsOut, "snic.card.packets.out", "{packet}", "Packets that went out", true),
    (Measured::PacketsDropped, "snic.card.packets.dropped", "{packet}", "Packets dropped", true),
    (Measured::Dags, "snic.dags", "{dag}", "DAGs by state", false),
    (Measured::DagIntended, "snic.dag.intended", "By", "What senders meant to send", true),
    (Measured::DagServed, "snic.dag.served", "By", "What was served", true),
    (Measured::DagRateLimit, "snic.dag.rate_limit", "bit/s", "What is let in", false),
    (Measured::TenantShare, "snic.tenant.share", "1", "Share of ingress asked for", false),
    (
        Measured::DominantShare,
        "snic.tenant.dominant_share",
        "1",
        "Share of what a tenant takes most of",
        false,
    ),
    (Measured::Epochs, "snic.loop.epochs", "{epoch}", "Epochs at which rates were set", true),
    (Measured::Overruns, "snic.loop.overruns", "{sample}", "Samples that were skipped", true),
    (Measured::ScaleOuts, "snic.scale_outs", "{dag}", "DAGs that got more instances", true),
    (Measured::StateMoves, "snic.state.moves", "{state}", "States saved, restored, lost", true),
    (Measured::SaveArea, "snic.card.save_area", "By", "Bytes of the save area in use", false),
    (Measured::Maintenance, "snic.maintenance", "1", "Whether nothing new is taken in", false),
    (Measured::Bindings, "snic.vm.bindings", "{binding}", "Bindings of machines", false),
    (Measured::QueueEffects, "snic.queue.effects", "{effect}", "Effects behind the store", false),
    (Measured::QueueCalls, "snic.queue.calls", "{call}", "Calls without an answer yet", false),
];

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Of what.
    pub of: Measured,
    /// How much.
    pub value: f64,
    /// Of which, in the order of [`Measured`]'s description.
    pub attributes: Vec<KeyValue>,
}

impl Reading {
    /// A value with its attributes.
    pub fn new<const N: usize>(
        of: Measured,
        value: f64,
        attributes: [(&'static str, String); N],
    ) -> Self {
        let attributes = attributes.map(|(key, value)| KeyValue::new(key, value)).into();
        Self { of, value, attributes }
    }
}

/// What was read last, by [`Measured`]: each is asked for on its own.
static READINGS: LazyLock<Arc<RwLock<[Vec<Reading>; TABLE.len()]>>> = LazyLock::new(Arc::default);

/// Gives what was read from the control plane to the readers.
pub fn publish(readings: Vec<Reading>) {
    let mut sorted = <[Vec<Reading>; TABLE.len()]>::default();
    for reading in readings {
        sorted[reading.of as usize].push(reading);
    }
    *READINGS.write() = sorted;
}

/// How long the controller's queues are, kept by its thread.
#[derive(Debug, Default)]
pub struct Queues {
    effects: AtomicU64,
    calls: AtomicU64,
}

/// The controller's queues.
pub static QUEUES: Queues = Queues { effects: AtomicU64::new(0), calls: AtomicU64::new(0) };

impl Queues {
    /// Sets both.
    pub fn set(&self, effects: usize, calls: usize) {
        self.effects.store(effects as u64, Ordering::Relaxed);
        self.calls.store(calls as u64, Ordering::Relaxed);
    }

    /// Both, as readings.
    pub fn readings(&self) -> [Reading; 2] {
        let read =
            |of, value: &AtomicU64| Reading::new(of, value.load(Ordering::Relaxed) as f64, []);
        [read(Measured::QueueEffects, &self.effects), read(Measured::QueueCalls, &self.calls)]
    }
}

/// What is counted where it happens.
#[derive(Debug)]
pub struct Instruments {
    reconfigurations: Histogram<f64>,
    commits: Histogram<f64>,
    epochs: Histogram<f64>,
    calls: Histogram<f64>,
    refusals: Counter<u64>,
}

/// What is counted where it happens; nothing is kept where no reader was set up.
pub fn instruments() -> &'static Instruments {
    static ALL: LazyLock<Instruments> = LazyLock::new(|| Instruments::new(&global::meter("snic")));
    &ALL
}

impl Instruments {
    fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str, text: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(text);
            histogram.with_boundaries(SECONDS.to_vec()).build()
        };
        Self {
            reconfigurations: seconds("snic.reconfiguration.duration", "Loads of regions"),
            commits: seconds("snic.store.commit.duration", "Batches becoming durable"),
            epochs: seconds("snic.epoch.duration", "Working out what a sample of counters means"),
            calls: seconds("rpc.server.call.duration", "Calls, until their answer is sent"),
            refusals: meter
                .u64_counter("snic.admission.refusals")
                .with_unit("{request}")
                .with_description("Requests refused, by reason")
                .build(),
        }
    }

    /// A region was loaded, or was not.
    /// It was hidden where all DAGs that it was for were served meanwhile.
    pub fn reconfigured(&self, card: &str, well: bool, hidden: bool, seconds: f64) {
        let result = if well { "ok" } else { "failed" };
        let attributes = [
            KeyValue::new("card", card.to_owned()),
            KeyValue::new("result", result),
            KeyValue::new("hidden", if hidden { "true" } else { "false" }),
        ];
        self.reconfigurations.record(seconds, &attributes);
    }

    /// A batch became durable.
    pub fn committed(&self, seconds: f64) {
        self.commits.record(seconds, &[]);
    }

    /// A sample of a card's counters was worked into rates and instances.
    pub fn sampled(&self, seconds: f64) {
        self.epochs.record(seconds, &[]);
    }

    /// A call ended, of the method with this full name, with this code of gRPC.
    pub fn called(&self, method: &'static str, code: i32, seconds: f64) {
        let attributes = [
            KeyValue::new("rpc.method", method),
            KeyValue::new("rpc.grpc.status_code", i64::from(code)),
        ];
        self.calls.record(seconds, &attributes);
    }

    /// A request was refused.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.add(1, &[KeyValue::new("reason", reason)]);
    }
}

/// Has the readers ask for what is read.
pub(crate) fn observe(meter: &Meter) {
    for (of, name, unit, description, rises) in TABLE {
        let readings = Arc::clone(&READINGS);
        let tell = move |observer: &dyn AsyncInstrument<f64>| {
            for reading in &readings.read()[of as usize] {
                observer.observe(reading.value, &reading.attributes);
            }
        };
        // The meter keeps the callbacks.
        if rises {
            let counter = meter.f64_observable_counter(name).with_unit(unit);
            let _ = counter.with_description(description).with_callback(tell).build();
        } else {
            let gauge = meter.f64_observable_gauge(name).with_unit(unit);
            let _ = gauge.with_description(description).with_callback(tell).build();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_has_one_row() {
        for (i, (of, name, ..)) in TABLE.iter().enumerate() {
            assert_eq!(*of as usize, i, "{name} is not where it is looked for");
            assert!(name.starts_with("snic."), "{name}");
        }
    }
}
