//! Metrics: instruments recorded where something happens, and readings of the control plane taken on
//! demand. Both are exported by the Prometheus page and, if configured, by OTLP.
//!
//! Names follow OpenTelemetry; Prometheus sees `snic.store.commit.duration` as
//! `snic_store_commit_duration_seconds`. The cardinality of attributes is bounded: cards and regions
//! by the hardware, tenants and DAGs by the 1,024 rows of the DAG table, all others by enumerations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use opentelemetry::metrics::{AsyncInstrument, Counter, Histogram, Meter};
use opentelemetry::{KeyValue, global};
use parking_lot::RwLock;

/// Bucket boundaries of durations, in seconds: from a fast disk's flush to a stuck configuration port.
const SECONDS: [f64; 13] =
    [0.0001, 0.0003, 0.001, 0.003, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// Bucket boundaries of accesses to a card, in seconds: from a register over PCIe to a worker's deadline.
const ACCESS_SECONDS: [f64; 12] =
    [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];

/// A metric that is read from the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// 1 if the card answers, else 0. By card.
    CardUp,
    /// 1 for the region's current state. By card, region, state.
    RegionState,
    /// Temperatures that are known, in degrees Celsius. By card and sensor.
    CardTemperature,
    /// Power that is known, in watts. By card and sensor.
    CardPower,
    /// Speed of a lane of the PCIe link, in transfers per second, where it is known. By card.
    CardLinkSpeed,
    /// Lanes of the PCIe link, where they are known. By card.
    CardLinkLanes,
    /// 1 for the current status of each condition of the card's device. By card, condition, and `TRUE`, `FALSE` or
    /// `UNKNOWN`.
    CardCondition,
    /// Errors that the card's driver reported by itself. By card.
    CardDriverErrors,
    /// Words written to tables. By card.
    TableWords,
    /// Commits of tables. By card.
    TableCommits,
    /// Packets received. By card.
    PacketsIn,
    /// Packets sent. By card.
    PacketsOut,
    /// Packets dropped. By card and cause.
    PacketsDropped,
    /// Frames that a port of a software card lost. By card, port, and `TOO_SLOW` (the machine did not keep up),
    /// `NOT_TAKEN` or `TOO_LONG`.
    PortLost,
    /// DAGs. By state.
    Dags,
    /// Bytes offered, before rate limiting. By tenant and DAG.
    DagIntended,
    /// Bytes served. By tenant and DAG.
    DagServed,
    /// Packets that did not go out, since the daemon started. By tenant, DAG and cause.
    DagDrops,
    /// Packets that network tasks dropped, since the card's process started. By tenant, DAG, type of the task and its reason.
    DagNtDrops,
    /// Rate limit, in bytes per second, as Prometheus has it. By tenant and DAG.
    DagRateLimit,
    /// Promised bandwidth that is not known to be served, in bytes per second. By tenant and DAG.
    DagUnserved,
    /// Share of all cards' ingress requested by a tenant's DAGs, 0 to 1. By tenant.
    TenantShare,
    /// Dominant share of a tenant, 0 to 1. By card, tenant, and `space` or `time`.
    DominantShare,
    /// Epochs in which rates were set. By card.
    Epochs,
    /// Counter samples that were skipped. By card.
    Overruns,
    /// Scale-outs. By card, and whether their load time was hidden.
    ScaleOuts,
    /// Chain states saved, restored or lost. By card and result.
    StateMoves,
    /// Bytes of the save area in use. By card.
    SaveArea,
    /// 1 in maintenance mode, else 0.
    Maintenance,
    /// VM bindings. By state.
    Bindings,
    /// Effects waiting for the store.
    QueueEffects,
    /// Calls waiting for the controller's reply.
    QueueCalls,
    /// 1 while linked to a replica of the fleet, else 0; none without a fleet.
    FleetLinkUp,
    /// 1 while the store cannot be written and changes are refused, else 0.
    StoreUnwritable,
    /// Records that were set aside since the daemon started.
    StoreSetAside,
    /// Entries of the audit log that could not be written since the daemon started.
    AuditLost,
    /// The highest epoch of the fleet's leaders that was seen.
    FleetEpoch,
    /// Orders of the fleet that are not done: DAGs and provisions. By kind.
    FleetPending,
    /// 1 while etcd refuses a replica of the fleet, else 0. By reason, `NONE` if it does not.
    FleetStoreRefused,
    /// 1 for the replica that leads the fleet, 0 for the others.
    FleetLeader,
    /// Shortfall against the smaller of promise and load, in bytes per second. By tenant and DAG.
    DagShortfall,
    /// Load of the last second by the card's clock, before rate limiting, in bytes per second. By tenant and DAG.
    DagLoad,
    /// Served part of that, in bytes per second. By tenant and DAG.
    DagThroughput,
    /// Latency of its packets in the last ten seconds, in seconds. By tenant, DAG and statistic: p50, p99, max.
    DagLatency,
    /// The p99 of a part of that, in seconds; of its tasks the largest. By tenant, DAG and part.
    DagLatencyPart,
    /// Planned latency of a packet that waits nowhere, in seconds. By tenant and DAG.
    DagLatencyPlanned,
    /// 1, with the version and the commit of the program.
    BuildInfo,
    /// Seconds of processor time since the process started.
    ProcessCpu,
    /// Bytes of memory that the process has resident.
    ProcessMemory,
    /// Files that the process has open.
    ProcessFiles,
    /// Seconds since the process started.
    ProcessUptime,
    /// When the list of revoked certificates was issued, in seconds since 1970. By issuer.
    RevocationThisUpdate,
    /// When the next list of revoked certificates is due, in seconds since 1970. By issuer.
    RevocationNextUpdate,
}

/// Metric, name, unit, description, and whether it is a counter.
type Row = (Metric, &'static str, &'static str, &'static str, bool);

/// All of [`Metric`].
const TABLE: [Row; 53] = [
    (Metric::CardUp, "snic.card.up", "{card}", "1 if the card answers", false),
    (
        Metric::RegionState,
        "snic.region.state",
        "{region}",
        "1 for the region's current state",
        false,
    ),
    (Metric::CardTemperature, "snic.card.temperature", "Cel", "Temperatures", false),
    (Metric::CardPower, "snic.card.power", "W", "Power", false),
    (Metric::CardLinkSpeed, "snic.card.link.speed", "{transfer}/s", "Speed of a PCIe lane", false),
    (Metric::CardLinkLanes, "snic.card.link.lanes", "{lane}", "PCIe lanes in use", false),
    (
        Metric::CardCondition,
        "snic.card.condition",
        "{card}",
        "1 for the current status of each condition",
        false,
    ),
    (
        Metric::CardDriverErrors,
        "snic.card.driver.errors",
        "{error}",
        "Errors that the driver reported by itself",
        true,
    ),
    (Metric::TableWords, "snic.table.words", "{word}", "Words written to tables", true),
    (Metric::TableCommits, "snic.table.commits", "{commit}", "Table commits", true),
    (Metric::PacketsIn, "snic.card.packets.in", "{packet}", "Packets received", true),
    (Metric::PacketsOut, "snic.card.packets.out", "{packet}", "Packets sent", true),
    (Metric::PacketsDropped, "snic.card.packets.dropped", "{packet}", "Packets dropped", true),
    (Metric::PortLost, "snic.card.port.lost", "{frame}", "Frames lost at ports", true),
    (Metric::Dags, "snic.dags", "{dag}", "DAGs by state", false),
    (Metric::DagIntended, "snic.dag.intended", "By", "Bytes offered", true),
    (Metric::DagServed, "snic.dag.served", "By", "Bytes served", true),
    (Metric::DagDrops, "snic.dag.dropped", "{packet}", "Packets dropped", true),
    (
        Metric::DagNtDrops,
        "snic.dag.nt.dropped",
        "{packet}",
        "Packets that network tasks dropped",
        true,
    ),
    (Metric::DagRateLimit, "snic.dag.rate_limit", "By/s", "Rate limit", false),
    (Metric::DagUnserved, "snic.dag.unserved", "By/s", "Promised and not served", false),
    (Metric::TenantShare, "snic.tenant.share", "1", "Requested share of ingress", false),
    (Metric::DominantShare, "snic.tenant.dominant_share", "1", "Dominant share of a tenant", false),
    (Metric::Epochs, "snic.loop.epochs", "{epoch}", "Epochs in which rates were set", true),
    (Metric::Overruns, "snic.loop.overruns", "{sample}", "Samples skipped", true),
    (Metric::ScaleOuts, "snic.scale_outs", "{dag}", "Scale-outs", true),
    (
        Metric::StateMoves,
        "snic.state.moves",
        "{state}",
        "Chain states saved, restored or lost",
        true,
    ),
    (Metric::SaveArea, "snic.card.save_area", "By", "Bytes of the save area in use", false),
    (Metric::Maintenance, "snic.maintenance", "1", "1 in maintenance mode", false),
    (Metric::Bindings, "snic.vm.bindings", "{binding}", "VM bindings", false),
    (
        Metric::QueueEffects,
        "snic.queue.effects",
        "{effect}",
        "Effects waiting for the store",
        false,
    ),
    (Metric::QueueCalls, "snic.queue.calls", "{call}", "Calls waiting for a reply", false),
    (Metric::FleetLinkUp, "snic.fleet.link.up", "1", "1 if linked to the fleet", false),
    (Metric::StoreUnwritable, "snic.store.unwritable", "1", "1 while changes are refused", false),
    (Metric::StoreSetAside, "snic.store.set_aside", "{record}", "Records set aside", true),
    (Metric::AuditLost, "snic.audit.lost", "{entry}", "Audit entries not written", true),
    (Metric::FleetEpoch, "snic.fleet.epoch", "1", "Highest epoch of the fleet's leaders", false),
    (Metric::FleetPending, "snic.fleet.pending", "{order}", "Ordered and not done", false),
    (
        Metric::FleetStoreRefused,
        "snic.fleet.store.refused",
        "1",
        "1 while etcd refuses a replica",
        false,
    ),
    (Metric::FleetLeader, "snic.fleet.leader", "1", "1 for the replica that leads", false),
    (
        Metric::DagShortfall,
        "snic.dag.shortfall",
        "By/s",
        "Served less than the smaller of promise and load",
        false,
    ),
    (Metric::DagLoad, "snic.dag.load", "By/s", "Offered in the last second", false),
    (Metric::DagThroughput, "snic.dag.throughput", "By/s", "Served in the last second", false),
    (Metric::DagLatency, "snic.dag.latency", "s", "Latency in the last ten seconds", false),
    (Metric::DagLatencyPart, "snic.dag.latency.part", "s", "The p99 of a part of it", false),
    (Metric::DagLatencyPlanned, "snic.dag.latency.planned", "s", "Latency without waiting", false),
    (Metric::BuildInfo, "snic.build.info", "{build}", "1, with version and commit", false),
    (Metric::ProcessCpu, "process.cpu.time", "s", "Processor time", true),
    (Metric::ProcessMemory, "process.memory.usage", "By", "Resident memory", false),
    (Metric::ProcessFiles, "process.open_fds", "{file_descriptor}", "Open files", false),
    (Metric::ProcessUptime, "process.uptime", "s", "Time since the process started", false),
    (
        Metric::RevocationThisUpdate,
        "snic.tls.crl.this_update",
        "s",
        "Time of issue of the list of revoked certificates in force",
        false,
    ),
    (
        Metric::RevocationNextUpdate,
        "snic.tls.crl.next_update",
        "s",
        "Time at which the next list of revoked certificates is due",
        false,
    ),
];

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

/// State of a replica of the fleet, as readings.
pub fn replica_readings(refusal: Option<&str>, leads: bool) -> [Reading; 2] {
    let reason = refusal.unwrap_or("NONE").to_owned();
    let is = |it: bool| f64::from(u8::from(it));
    [
        Reading::new(Metric::FleetStoreRefused, is(refusal.is_some()), [("reason", reason)]),
        Reading::new(Metric::FleetLeader, is(leads), []),
    ]
}

/// Metrics that are recorded where something happens.
#[derive(Debug)]
pub struct Instruments {
    reconfigurations: Histogram<f64>,
    commits: Histogram<f64>,
    epochs: Histogram<f64>,
    calls: Histogram<f64>,
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
