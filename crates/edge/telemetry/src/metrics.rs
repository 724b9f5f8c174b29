//! Metrics: instruments recorded where something happens, and readings of the control plane taken on
//! demand. Both are exported by the Prometheus page and, if configured, by OTLP.
//!
//! Names follow OpenTelemetry; Prometheus sees `snic.store.commit.duration` as
//! `snic_store_commit_duration_seconds`. The cardinality of attributes is bounded: cards and regions
//! by the hardware, tenants and DAGs by the 1,024 rows of the DAG table, all others by enumerations.

mod replica;
mod table;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use opentelemetry::metrics::{AsyncInstrument, Counter, Histogram, Meter};
use opentelemetry::{KeyValue, global};
use parking_lot::RwLock;

pub use replica::{LeaderGauges, replica_readings};
pub use table::Metric;
use table::TABLE;

/// Bucket boundaries of durations, in seconds: from a fast disk's flush to a stuck configuration port.
const SECONDS: [f64; 13] =
    [0.0001, 0.0003, 0.001, 0.003, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// Bucket boundaries of accesses to a card, in seconds: from a register over PCIe to a worker's deadline.
const ACCESS_SECONDS: [f64; 12] =
    [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];

/// One value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub of: Metric,
    pub value: f64,
    /// The attributes, in the order of [`Metric`]'s description.
    pub attributes: Vec<KeyValue>,
}

impl Reading {
    /// A value with its attributes.
    pub fn new<const N: usize>(
        of: Metric,
        value: f64,
        attributes: [(&'static str, String); N],
    ) -> Self {
        let attributes = attributes.map(|(key, value)| KeyValue::new(key, value)).into();
        Self { of, value, attributes }
    }
}

/// The latest readings, by [`Metric`]: the exporters ask for each metric separately.
static READINGS: LazyLock<Arc<RwLock<[Vec<Reading>; TABLE.len()]>>> =
    LazyLock::new(|| Arc::new(RwLock::new(no_readings())));

/// An empty list for each metric.
fn no_readings() -> [Vec<Reading>; TABLE.len()] {
    std::array::from_fn(|_| Vec::new())
}

/// Publishes new readings of the control plane to the exporters.
pub fn publish(readings: Vec<Reading>) {
    let mut sorted = no_readings();
    for reading in readings {
        sorted[reading.of as usize].push(reading);
    }
    *READINGS.write() = sorted;
}

/// Lengths of the controller's queues, updated by its thread.
#[derive(Debug, Default)]
pub struct Queues {
    effects: AtomicU64,
    calls: AtomicU64,
}

/// The controller's queues.
pub static QUEUES: Queues = Queues { effects: AtomicU64::new(0), calls: AtomicU64::new(0) };

impl Queues {
    pub fn set(&self, effects: usize, calls: usize) {
        self.effects.store(effects as u64, Ordering::Relaxed);
        self.calls.store(calls as u64, Ordering::Relaxed);
    }

    /// Both, as readings.
    pub fn readings(&self) -> [Reading; 2] {
        let read =
            |of, value: &AtomicU64| Reading::new(of, value.load(Ordering::Relaxed) as f64, []);
        [read(Metric::QueueEffects, &self.effects), read(Metric::QueueCalls, &self.calls)]
    }
}

/// A count that the thread which makes it changes, and that is read with each update of the metrics.
#[derive(Debug)]
pub struct SharedCount(AtomicU64);

/// Whether the store cannot be written, updated by the controller's thread.
pub static UNWRITABLE: SharedCount = SharedCount(AtomicU64::new(0));
/// Records that were set aside since the daemon started.
pub static SET_ASIDE: SharedCount = SharedCount(AtomicU64::new(0));
/// Entries of the audit log that could not be written since the program started.
pub static AUDIT_LOST: SharedCount = SharedCount(AtomicU64::new(0));

impl SharedCount {
    pub fn set(&self, holds: bool) {
        self.0.store(holds.into(), Ordering::Relaxed);
    }

    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// State of a daemon's store, as readings.
pub fn store_readings() -> [Reading; 2] {
    [(Metric::StoreUnwritable, &UNWRITABLE), (Metric::StoreSetAside, &SET_ASIDE)]
        .map(|(of, count)| Reading::new(of, count.0.load(Ordering::Relaxed) as f64, []))
}

/// State of the audit log, as a reading.
pub fn audit_reading() -> Reading {
    Reading::new(Metric::AuditLost, AUDIT_LOST.0.load(Ordering::Relaxed) as f64, [])
}

/// State of the link to a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetReading {
    /// Whether it is linked.
    pub is_up: bool,
    /// The highest epoch that was seen.
    pub epoch: i64,
    /// DAGs that are on their way to a card.
    pub dags: usize,
    /// Provisions that are not there yet.
    pub provisions: usize,
}

/// The link to a fleet as its task said last; `None` without a fleet.
static FLEET: RwLock<Option<FleetReading>> = RwLock::new(None);

/// Sets how the link to the fleet is.
pub fn set_fleet(reading: FleetReading) {
    *FLEET.write() = Some(reading);
}

/// State of the link to the fleet, as readings.
pub fn fleet_readings() -> Vec<Reading> {
    let Some(FleetReading { is_up, epoch, dags, provisions }) = *FLEET.read() else {
        return Vec::new();
    };
    let pending = |count: usize, kind: &str| {
        Reading::new(Metric::FleetPending, count as f64, [("kind", kind.to_owned())])
    };
    vec![
        Reading::new(Metric::FleetLinkUp, f64::from(u8::from(is_up)), []),
        Reading::new(Metric::FleetEpoch, epoch as f64, []),
        pending(dags, "dags"),
        pending(provisions, "provisions"),
    ]
}

/// A list of revoked certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationReading {
    /// Its issuer's name.
    pub issuer: String,
    /// When it was issued.
    pub this_update: SystemTime,
    /// When the next one is due.
    pub next_update: SystemTime,
}

/// Most lists that have metrics: each issuer is a label.
const LISTS_MAX: usize = 16;

/// The lists of revoked certificates in force.
static LISTS: RwLock<Vec<RevocationReading>> = RwLock::new(Vec::new());

/// Sets the lists of revoked certificates in force.
pub fn set_revocation_lists(mut lists: Vec<RevocationReading>) {
    lists.truncate(LISTS_MAX);
    *LISTS.write() = lists;
}

/// The lists of revoked certificates, as readings.
pub fn revocation_readings() -> Vec<Reading> {
    let seconds = |time: SystemTime| {
        time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    };
    let readings = |list: &RevocationReading| {
        let of = |of, time| Reading::new(of, seconds(time), [("issuer", list.issuer.clone())]);
        [
            of(Metric::RevocationThisUpdate, list.this_update),
            of(Metric::RevocationNextUpdate, list.next_update),
        ]
    };
    LISTS.read().iter().flat_map(readings).collect()
}

/// Metrics that are recorded where something happens.
#[derive(Debug)]
pub struct Instruments {
    reconfigurations: Histogram<f64>,
    commits: Histogram<f64>,
    epochs: Histogram<f64>,
    calls: Histogram<f64>,
    etcd: Histogram<f64>,
    refusals: Counter<u64>,
    failed_searches: Counter<u64>,
    accesses: Histogram<f64>,
    worker_restarts: Counter<u64>,
    rejected_handshakes: Counter<u64>,
}

/// The instruments; they record nothing before telemetry is set up.
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
        let accesses = meter
            .f64_histogram("snic.card.access.duration")
            .with_unit("s")
            .with_description("Accesses to a card through its worker")
            .with_boundaries(ACCESS_SECONDS.to_vec())
            .build();
        Self {
            accesses,
            worker_restarts: meter
                .u64_counter("snic.card.worker.restarts")
                .with_unit("{restart}")
                .with_description("Workers started in place of one that ended")
                .build(),
            rejected_handshakes: meter
                .u64_counter("snic.tls.handshakes.rejected")
                .with_unit("{connection}")
                .with_description("Connections rejected before any call, by reason")
                .build(),
            reconfigurations: seconds("snic.reconfiguration.duration", "Region loads"),
            commits: seconds("snic.store.commit.duration", "Time until a batch is durable"),
            epochs: seconds("snic.epoch.duration", "Time to process a sample of counters"),
            etcd: seconds("snic.fleet.etcd.duration", "Time until etcd answers the replica"),
            calls: seconds("rpc.server.call.duration", "Time from a call to its reply"),
            refusals: meter
                .u64_counter("snic.admission.refusals")
                .with_unit("{request}")
                .with_description("Requests rejected, by reason")
                .build(),
            failed_searches: meter
                .u64_counter("snic.searches.failed")
                .with_unit("{search}")
                .with_description("Searches for a better arrangement that ended in a defect")
                .build(),
        }
    }

    /// Records a region load and its result. It is hidden if all DAGs that it was for were served
    /// meanwhile.
    pub fn reconfigured(&self, card: &str, well: bool, hidden: bool, seconds: f64) {
        let result = if well { "ok" } else { "failed" };
        let attributes = [
            KeyValue::new("card", card.to_owned()),
            KeyValue::new("result", result),
            KeyValue::new("hidden", if hidden { "true" } else { "false" }),
        ];
        self.reconfigurations.record(seconds, &attributes);
    }

    /// Records an access to a card through its worker: what it was, in one word.
    pub fn accessed(&self, card: &str, what: &'static str, seconds: f64) {
        let attributes = [KeyValue::new("card", card.to_owned()), KeyValue::new("access", what)];
        self.accesses.record(seconds, &attributes);
    }

    /// Records that a card gets another worker.
    pub fn worker_restarted(&self, card: &str) {
        self.worker_restarts.add(1, &[KeyValue::new("card", card.to_owned())]);
    }

    /// Records that a batch became durable.
    pub fn committed(&self, seconds: f64) {
        self.commits.record(seconds, &[]);
    }

    /// Records that a sample of a card's counters was processed.
    pub fn sampled(&self, seconds: f64) {
        self.epochs.record(seconds, &[]);
    }

    /// Records the end of a call: its full method name and gRPC code.
    pub fn called(&self, full_name: &'static str, code: i32, seconds: f64) {
        // As in the call's span.
        let (service, method) = full_name.split_once('/').unwrap_or(("", full_name));
        let attributes = [
            KeyValue::new("rpc.system", "grpc"),
            KeyValue::new("rpc.service", service),
            KeyValue::new("rpc.method", method),
            KeyValue::new("rpc.grpc.status_code", i64::from(code)),
        ];
        self.calls.record(seconds, &attributes);
    }

    /// Records that etcd answered a replica of the fleet, or did not.
    pub fn etcd_answered(&self, well: bool, seconds: f64) {
        let result = if well { "ok" } else { "failed" };
        self.etcd.record(seconds, &[KeyValue::new("result", result)]);
    }

    /// Records that a search of a card ended in a defect.
    pub fn search_failed(&self, card: &str) {
        self.failed_searches.add(1, &[KeyValue::new("card", card.to_owned())]);
    }

    /// Records a connection that was rejected before any call.
    pub fn handshake_rejected(&self, reason: &'static str) {
        self.rejected_handshakes.add(1, &[KeyValue::new("reason", reason)]);
    }

    /// Records a rejected request.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.add(1, &[KeyValue::new("reason", reason)]);
    }
}

/// Registers the readings with the exporters.
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
            assert_eq!(*of as usize, i, "{name} is out of order");
            assert!(name.starts_with("snic.") || name.starts_with("process."), "{name}");
        }
    }
}
