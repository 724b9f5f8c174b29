//! Names, units and kinds of all metrics that are read from time to time.

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
    /// Times that network tasks let no packet go and were reset, since the daemon started. By card.
    RegionStalls,
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
    /// Seconds in which DAGs had a promise that was known to be kept or broken, since the daemon started. By tenant.
    PromiseKnown,
    /// Seconds in which nobody could see whether it was. By tenant.
    PromiseUnknown,
    /// Seconds in which promises were broken. By tenant and cause.
    PromiseBroken,
    /// Part of the time in which promises are to be kept, 0 to 1.
    PromiseObjective,
    /// Money that a tenant with a budget has spent this month, in the currency of the prices. By tenant.
    BudgetSpent,
    /// Money that a tenant may spend in a month. By tenant.
    BudgetLimit,
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
    /// Hosts of the fleet, at its leader. By condition.
    FleetHosts,
    /// 1 while so many hosts do not answer that no DAG of a lost host is moved, at the leader.
    FleetEvacuationHeld,
    /// DAGs of the fleet without a place, at its leader. By state.
    FleetUnplaced,
    /// Requests and steps that wait, at the leader. By kind.
    FleetQueue,
    /// Reservations, at the leader.
    FleetReservations,
    /// Budgets of tenants and projects that are spent for the most part, or of which it is not known, at the leader. By level.
    FleetBudgets,
    /// DAGs that are on their way from one place to another, at the leader.
    FleetMoving,
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
pub(super) type Row = (Metric, &'static str, &'static str, &'static str, bool);

/// All of [`Metric`].
pub(super) const TABLE: [Row; 67] = [
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
    (
        Metric::RegionStalls,
        "snic.region.stalls",
        "{stall}",
        "Times that network tasks let no packet go and were reset",
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
    (Metric::PromiseKnown, "snic.promise.known", "s", "Time with a known promise", true),
    (Metric::PromiseUnknown, "snic.promise.unknown", "s", "Time with an unknown promise", true),
    (Metric::PromiseBroken, "snic.promise.broken", "s", "Time with a broken promise", true),
    (Metric::PromiseObjective, "snic.promise.objective", "1", "Objective of promises", false),
    (Metric::BudgetSpent, "snic.budget.spent", "{currency}", "Money spent this month", false),
    (Metric::BudgetLimit, "snic.budget.limit", "{currency}", "Budget of a month", false),
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
    (Metric::FleetHosts, "snic.fleet.hosts", "{host}", "Hosts by condition", false),
    (
        Metric::FleetEvacuationHeld,
        "snic.fleet.evacuation.held",
        "1",
        "1 while DAGs of lost hosts are not moved",
        false,
    ),
    (Metric::FleetUnplaced, "snic.fleet.dags.unplaced", "{dag}", "DAGs without a place", false),
    (Metric::FleetQueue, "snic.fleet.queue", "{request}", "Requests and steps that wait", false),
    (Metric::FleetReservations, "snic.fleet.reservations", "{reservation}", "Reservations", false),
    (Metric::FleetBudgets, "snic.fleet.budgets", "{budget}", "Budgets that are spent", false),
    (Metric::FleetMoving, "snic.fleet.dags.moving", "{dag}", "DAGs on their way", false),
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
