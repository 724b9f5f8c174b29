//! Resources as tables.

use snic_api::render::{HEIGHT, cut, load_percent, region_map_within, state_word};
use snic_api::v1::operation::Result as Ended;
use snic_api::v1::{
    Bitstream, Card, CardProcessor, Condition, Dag, EventType, Instance, Mapping, NtType,
    Operation, Region, RegionKind, Tenant, Warning, WatchDagsResponse, WatchRegionsResponse,
    condition, nt_type,
};
use snic_api::words::EnumWord as _;

use super::Style;
pub use super::card_views::cards;
use super::card_views::{device_rows, port_rows, programs};
use super::dag_views::{
    affinity, configurations, drops, flow_rules, packet_sizes, placement, task_drops, traffic,
};
use super::explain::push;
use super::images;
use super::latency_views;
use super::limit_views;
use super::state_views::{self, states};
use super::table::{properties, section, table};
use super::text::{self, age, form_word, id, labels, rate, size, yes};

pub use super::rule_views::{rule, rules};

/// DAGs, one per row: those below their promise first.
pub fn dags_below_promise_first(found: &[Dag], style: Style) -> String {
    let mut sorted = found.to_vec();
    // The sort is stable: the others stay in their order.
    sorted.sort_by_key(|dag| std::cmp::Reverse(dag.shortfall_bps));
    dags(&sorted, style)
}

/// DAGs, one per row, in their order. What is missing of promises is a column where anything is.
pub fn dags(dags: &[Dag], style: Style) -> String {
    let is_short = dags.iter().any(|dag| dag.shortfall_bps > 0);
    let mut heading = vec!["DAG", "STATE", "BANDWIDTH", "TASKS", "FORM", "AGE"];
    heading.extend(is_short.then_some("MISSING"));
    let rows = dags.iter().map(|dag| {
        let missing = match dag.shortfall_bps {
            0 => String::new(),
            bps => rate(bps),
        };
        let mut row = vec![
            text::dag(&dag.name),
            dag.state().word().to_owned(),
            rate(dag.bandwidth_bps),
            dag.nodes.len().to_string(),
            form_word(dag.mapping.as_ref().map_or(dag.form(), Mapping::form)).to_owned(),
            age(dag.create_time.as_ref(), style.now),
        ];
        row.extend(is_short.then_some(missing));
        row
    });
    table(style, &heading, rows.collect())
}

/// One DAG: its request, conditions and mapping.
pub fn dag(dag: &Dag, style: Style) -> String {
    let mapping = dag.mapping.as_ref();
    let chosen = mapping.map(|mapping| format!(" (chosen: {})", form_word(mapping.form())));
    let generation = if dag.generation == dag.observed_generation {
        dag.generation.to_string()
    } else {
        format!("{} (the state is of generation {})", dag.generation, dag.observed_generation)
    };
    let uid = if dag.uid == 0 { String::new() } else { format!("{:#010x}", dag.uid) };
    let head = properties(
        style,
        &[
            ("Name", dag.name.clone()),
            ("State", dag.state().word().to_owned()),
            ("UID", uid),
            ("Bandwidth", rate(dag.bandwidth_bps)),
            ("Packets", packet_sizes(dag)),
            (
                "Trusts",
                dag.trusted_tenants.iter().map(|name| id(name)).collect::<Vec<_>>().join(", "),
            ),
            ("Affinity", dag.card_affinity.as_ref().map(affinity).unwrap_or_default()),
            ("May go to", dag.placement.as_ref().map(placement).unwrap_or_default()),
            ("By policy", dag.placement_defaults.as_ref().map(placement).unwrap_or_default()),
            (
                "Latency bound",
                match dag.latency_bound_nanos {
                    0 => String::new(),
                    nanos => format!("{} for 99 of 100 packets", latency_views::time(nanos)),
                },
            ),
            ("Prefers", if dag.latency_sensitive { "low latency" } else { "" }.to_owned()),
            ("Refuses", if dag.refuse_idle_tasks { "idle tasks" } else { "" }.to_owned()),
            (
                "Current rate",
                if dag.rate_limit_bps == 0 { String::new() } else { rate(dag.rate_limit_bps) },
            ),
            (
                "Not served",
                if dag.unserved_bps == 0 { String::new() } else { rate(dag.unserved_bps) },
            ),
            ("Traffic", dag.traffic.as_ref().map(traffic).unwrap_or_default()),
            ("Drops", dag.traffic.as_ref().map(drops).unwrap_or_default()),
            ("Task drops", dag.traffic.as_ref().map(task_drops).unwrap_or_default()),
            ("Flow rules", dag.traffic.as_ref().map(flow_rules).unwrap_or_default()),
            ("Form", form_word(dag.form()).to_owned() + &chosen.unwrap_or_default()),
            ("Tasks", tasks(dag)),
            ("Order", order(dag)),
            (
                "Latency",
                mapping.map(|m| format!("{} cycles", m.latency_cycles)).unwrap_or_default(),
            ),
            ("Measured", dag.traffic.as_ref().map(latency_views::line).unwrap_or_default()),
            ("Generation", generation),
            ("Labels", labels(&dag.labels)),
            ("Description", dag.description.clone()),
            ("Etag", dag.etag.clone()),
            ("Created", text::time(dag.create_time.as_ref())),
        ],
    );
    let places = mapping.map(|mapping| places(mapping, style)).unwrap_or_default();
    head + &section("Warnings", &warnings(&dag.warnings, style))
        + &section("Conditions", &conditions(&dag.conditions, style))
        + &section("Configuration", &configurations(dag, style))
        + &section("Mapping", &places)
        + &states("State", &dag.states, style)
}

/// Warnings, one after the other.
fn warnings(warnings: &[Warning], style: Style) -> String {
    let mut lines = Vec::new();
    warnings.iter().for_each(|warning| push(&mut lines, (0, style.width), &warning.message));
    lines.into_iter().map(|line| line + "\n").collect()
}

fn tasks(dag: &Dag) -> String {
    let nodes = dag.nodes.iter().map(|node| match id(&node.nt_type) {
        nt if nt == node.id => nt.to_owned(),
        nt => format!("{}: {nt}", node.id),
    });
    nodes.collect::<Vec<_>>().join(", ")
}

fn order(dag: &Dag) -> String {
    let edges = dag.edges.iter().map(|edge| format!("{} -> {}", edge.from_node, edge.to_node));
    edges.collect::<Vec<_>>().join(", ")
}

fn conditions(conditions: &[Condition], style: Style) -> String {
    if conditions.is_empty() {
        return String::new();
    }
    let rows = conditions.iter().map(|condition| {
        let status = match condition.status() {
            condition::Status::Unspecified => "",
            other => other.word(),
        };
        vec![
            condition.r#type.clone(),
            status.to_owned(),
            condition.reason.clone(),
            condition.message.clone(),
        ]
    });
    table(style, &["TYPE", "STATUS", "REASON", "MESSAGE"], rows.collect())
}

fn places(mapping: &Mapping, style: Style) -> String {
    let mut rows = Vec::new();
    for (number, stage) in mapping.stages.iter().enumerate() {
        for branch in &stage.branches {
            for instance in &branch.instances {
                rows.push(vec![
                    (number + 1).to_string(),
                    branch.nodes.join(" "),
                    text::region(&instance.region),
                    id(&instance.bitstream).to_owned(),
                    slots(instance),
                    rate(instance.bandwidth_bps),
                ]);
            }
        }
    }
    if !mapping.programs.is_empty() {
        return programs(mapping, style);
    }
    let heading = ["PASS", "NODES", "REGION", "BITSTREAM", "TASKS (SKIPPED)", "RESERVED"];
    if rows.is_empty() { String::new() } else { table(style, &heading, rows) }
}

/// The tasks of a region as one chain uses them; skipped ones in parentheses.
fn slots(instance: &Instance) -> String {
    let slots = instance.slots.iter().map(|slot| match (slot.used, id(&slot.nt_type)) {
        (true, nt) => nt.to_owned(),
        (false, "") => "(-)".to_owned(),
        (false, nt) => format!("({nt})"),
    });
    slots.collect::<Vec<_>>().join(" ")
}

/// A change of a DAG, on one line; `None` for a bookmark.
pub fn dag_event(event: &WatchDagsResponse, _: Style) -> Option<String> {
    let dag = event.dag.as_ref()?;
    let unmet = dag.conditions.iter().find(|found| found.status() == condition::Status::False);
    let why = unmet.map(|found| format!("  {}: {}", found.r#type, found.reason));
    Some(format!(
        "{:<8} {:<12} {} ({}){}",
        event_word(event.r#type()),
        if event.r#type() == EventType::Deleted { "" } else { dag.state().word() },
        text::dag(&dag.name),
        rate(dag.bandwidth_bps),
        why.unwrap_or_default(),
    ))
}

/// A change of a region, on one line; `None` for a bookmark.
pub fn region_event(event: &WatchRegionsResponse, _: Style) -> Option<String> {
    let region = event.region.as_ref()?;
    let line = format!(
        "{:<8} {:<8} {} {} {}",
        event_word(event.r#type()),
        state_word(region.state()),
        text::region(&region.name),
        id(&region.bitstream),
        region.last_error,
    );
    Some(line.trim_end().to_owned())
}

/// The type of an event, in one word.
pub const fn event_word(event: EventType) -> &'static str {
    match event {
        EventType::Added => "ADDED",
        EventType::Modified => "MODIFIED",
        EventType::Deleted => "DELETED",
        EventType::Bookmark => "BOOKMARK",
        EventType::Unspecified => "?",
    }
}

/// Tenants, one per row: usage and quota.
pub fn tenants(tenants: &[Tenant], style: Style) -> String {
    let rows = tenants.iter().map(|tenant| {
        let (usage, quota) = (tenant.usage.unwrap_or_default(), tenant.quota.unwrap_or_default());
        vec![
            id(&tenant.name).to_owned(),
            tenant.weight.max(1).to_string(),
            format!("{} of {}", usage.dags, quota.dags_max()),
            format!("{} of {}", rate(usage.bandwidth_bps), rate(quota.bandwidth_max_bps())),
            age(tenant.create_time.as_ref(), style.now),
        ]
    });
    table(style, &["TENANT", "WEIGHT", "DAGS", "BANDWIDTH", "AGE"], rows.collect())
}

pub fn tenant(tenant: &Tenant, style: Style) -> String {
    let (usage, quota) = (tenant.usage.unwrap_or_default(), tenant.quota.unwrap_or_default());
    let of = |used: String, most: String| format!("{used} of {most}");
    properties(
        style,
        &[
            ("Name", tenant.name.clone()),
            ("UID", tenant.uid.clone()),
            ("Weight", tenant.weight.max(1).to_string()),
            ("DAGs", of(usage.dags.to_string(), quota.dags_max().to_string())),
            ("Bandwidth", of(rate(usage.bandwidth_bps), rate(quota.bandwidth_max_bps()))),
            ("Bitstreams", of(usage.bitstreams.to_string(), quota.bitstreams_max().to_string())),
            ("Bitstream size", of(size(usage.bitstream_bytes), size(quota.bitstream_bytes_max()))),
            ("Memory", of(size(usage.memory_bytes), size(quota.memory_max_bytes()))),
            ("NT types", of(usage.nt_types.to_string(), quota.nt_types_max().to_string())),
            ("Rules", of(usage.rules.to_string(), quota.rules_max().to_string())),
            ("Machines", of(usage.machines.to_string(), quota.machines_max().to_string())),
            ("Operations", of(usage.operations.to_string(), quota.operations_max().to_string())),
            ("Threads", of(usage.threads.to_string(), quota.threads_max().to_string())),
            ("Project", id(&tenant.project).to_owned()),
            ("Spent", super::usage::spent(tenant)),
            ("Labels", labels(&tenant.labels)),
            ("Description", tenant.description.clone()),
            ("Etag", tenant.etag.clone()),
            ("Created", text::time(tenant.create_time.as_ref())),
        ],
    )
}

fn owner(name: &str) -> String {
    if name.is_empty() { "provider".to_owned() } else { id(name).to_owned() }
}

const fn traffic_word(traffic: nt_type::Traffic) -> &'static str {
    match traffic {
        nt_type::Traffic::Unspecified => "",
        nt_type::Traffic::HeaderOnly => "header",
        nt_type::Traffic::Payload => "payload",
    }
}

/// Network task types, one per row.
pub fn nt_types(types: &[NtType], style: Style) -> String {
    let rows = types.iter().map(|nt| {
        vec![
            id(&nt.name).to_owned(),
            owner(&nt.owner),
            yes(nt.shareable).to_owned(),
            rate(nt.bandwidth_max_bps),
            nt.latency_cycles.to_string(),
            nt.area.unwrap_or_default().lut.to_string(),
            traffic_word(nt.traffic()).to_owned(),
        ]
    });
    let heading = ["TYPE", "OWNER", "SHARED", "MAXIMUM", "CYCLES", "LUT", "TRAFFIC"];
    table(style, &heading, rows.collect())
}

/// One network task type.
pub fn nt_type(nt: &NtType, style: Style) -> String {
    properties(
        style,
        &[
            ("Name", nt.name.clone()),
            ("Description", nt.description.clone()),
            ("Owner", owner(&nt.owner)),
            ("Shareable", yes(nt.shareable).to_owned()),
            ("In software", in_software(nt).to_owned()),
            ("Maximum", rate(nt.bandwidth_max_bps)),
            ("Packets", limit_views::packets(nt)),
            ("Latency", format!("{} cycles", nt.latency_cycles)),
            ("Area", area(nt.area)),
            ("Memory", size(nt.memory_bytes)),
            ("Memory traffic", limit_views::memory_traffic(nt)),
            ("State", size(nt.state_bytes)),
            ("Traffic", traffic_word(nt.traffic()).to_owned()),
            ("Code", format!("{:#010x}", nt.code)),
            ("Labels", labels(&nt.labels)),
            ("Etag", nt.etag.clone()),
            ("Created", text::time(nt.create_time.as_ref())),
        ],
    )
}

/// Treatment of packets for nodes of a type on a software card.
const fn in_software(nt: &NtType) -> &'static str {
    match (nt.configurable, nt.owner.is_empty()) {
        (true, _) => "works as the node's configuration says",
        (false, true) => "passes packets on unchanged",
        (false, false) => "runs the bitstream's module; without one, passes packets on unchanged",
    }
}

fn area(area: Option<snic_api::v1::Area>) -> String {
    let area = area.unwrap_or_default();
    snic_domain::Area { lut: area.lut, ramb36: area.ramb36, dsp: area.dsp }.to_string()
}

const fn kind_word(kind: RegionKind) -> &'static str {
    match kind {
        RegionKind::Unspecified => "",
        RegionKind::KnownNt => "known-nt",
        RegionKind::UserNt => "user-nt",
    }
}

/// The tasks of a bitstream in the order packets pass them.
fn sequence(nts: &[String]) -> String {
    nts.iter().map(|nt| id(nt)).collect::<Vec<_>>().join(" -> ")
}

/// Bitstreams, one per row.
pub fn bitstreams(bitstreams: &[Bitstream], style: Style) -> String {
    let rows = bitstreams.iter().map(|bitstream| {
        vec![
            id(&bitstream.name).to_owned(),
            size(bitstream.size_bytes),
            bitstream.card_model.clone(),
            images::regions(bitstream),
            sequence(&bitstream.nts),
            state_views::signer(bitstream),
            bitstream.state().word().to_owned(),
        ]
    });
    let columns = ["BITSTREAM", "SIZE", "MODEL", "REGIONS", "TASKS", "SIGNED BY", "STATE"];
    table(style, &columns, rows.collect())
}

pub fn bitstream(bitstream: &Bitstream, style: Style) -> String {
    let regions = bitstream.loaded_regions.iter().map(|name| text::region(name));
    let shown = properties(
        style,
        &[
            ("Name", bitstream.name.clone()),
            ("Owner", owner(&bitstream.owner)),
            ("Tasks", sequence(&bitstream.nts)),
            ("Size", size(bitstream.size_bytes)),
            ("Digest", bitstream.digest.clone()),
            ("Identity", bitstream.identity.clone()),
            ("Model", bitstream.card_model.clone()),
            ("Region kind", kind_word(bitstream.region_kind()).to_owned()),
            ("Built for", images::built_for(bitstream)),
            ("Without image", images::missing(bitstream)),
            ("Shareable", yes(bitstream.shareable).to_owned()),
            ("Area", area(bitstream.area)),
            ("Signed by", state_views::signer(bitstream)),
            ("State", bitstream.state().word().to_owned()),
            ("Rejected", state_views::rejected(bitstream)),
            ("Loaded in", regions.collect::<Vec<_>>().join(", ")),
            ("Labels", labels(&bitstream.labels)),
            ("Description", bitstream.description.clone()),
            ("Etag", bitstream.etag.clone()),
            ("Created", text::time(bitstream.create_time.as_ref())),
        ],
    );
    shown + &images::section(bitstream, style)
}

/// One card and the map of its regions, in the height of a terminal.
pub fn card_map(card: &Card, regions: &[Region], style: Style) -> String {
    let counters = card.counters.clone().unwrap_or_default();
    let defects = counters.errors_region_reconfiguring
        + counters.errors_missing_instance
        + counters.errors_mixed_versions;
    let mut packets = vec![
        format!("{} in", counters.packets_in),
        format!("{} out", counters.packets_out),
        format!("{defects} misrouted"),
    ];
    packets.extend(counters.drops.iter().map(|drop| format!("{} {}", drop.packets, drop.cause)));
    let room = style.width - 13;
    let through = [&card.driver, &card.link, &card.shell_uuid].map(String::as_str);
    let through: Vec<&str> = through.into_iter().filter(|text| !text.is_empty()).collect();
    let of = |one: &CardProcessor| {
        format!("{} of {} {}", one.threads_used, one.threads, one.kind().word())
    };
    let threads = card.processors.iter().map(of).collect::<Vec<_>>().join(", ");
    let rows = [
        ("Message", cut(&card.message, room)),
        ("Connection", cut(&through.join(", "), room)),
        ("Packets", cut(&packets.join(", "), room)),
        ("Limits", cut(&limit_views::card(card), room)),
        ("Threads", cut(&threads, room)),
        ("Etag", card.etag.clone()),
    ];
    let more = device_rows(card, room).into_iter().chain(port_rows(card, room));
    let rows: Vec<_> = rows.into_iter().chain(more).collect();
    let head = properties(style, &rows);
    let left = (HEIGHT - 1).saturating_sub(head.lines().count());
    head + &region_map_within(card, regions, (style.width, left))
}

/// Regions, one per row.
pub fn regions(regions: &[Region], style: Style) -> String {
    let rows = regions.iter().map(|region| {
        let mut dags: Vec<String> = region.users.iter().map(|user| text::dag(&user.dag)).collect();
        dags.sort();
        dags.dedup();
        let mark = if region.cordoned { " (cordoned)" } else { "" };
        vec![
            text::region(&region.name) + mark,
            state_word(region.state()).to_owned(),
            load_percent(region).map(|load| format!("{load}%")).unwrap_or_default(),
            id(&region.bitstream).to_owned(),
            dags.join(" "),
            if region.failures == 0 { String::new() } else { region.failures.to_string() },
        ]
    });
    table(style, &["REGION", "STATE", "LOAD", "BITSTREAM", "DAGS", "FAILED"], rows.collect())
}

pub fn region(region: &Region, style: Style) -> String {
    let head = properties(
        style,
        &[
            ("Name", region.name.clone()),
            ("State", state_word(region.state()).to_owned()),
            ("Cordoned", yes(region.cordoned).to_owned()),
            ("Kind", kind_word(region.kind()).to_owned()),
            ("Bitstream", id(&region.bitstream).to_owned()),
            ("Area", area(region.area)),
            ("Loads", region.reconfigurations.to_string()),
            ("Failures", region.failures.to_string()),
            ("Stalls", region.stalls.to_string()),
            ("Last error", region.last_error.clone()),
            ("Error time", text::time(region.last_error_time.as_ref())),
            ("Etag", region.etag.clone()),
        ],
    );
    let slots = region.slots.iter().enumerate().map(|(index, slot)| {
        let takes = |slots: &[u32]| slots.iter().any(|taken| *taken as usize == index);
        let users = region.users.iter().filter(|user| takes(&user.slots));
        vec![
            index.to_string(),
            id(&slot.nt_type).to_owned(),
            format!("{} of {}", rate(slot.reserved_bps), rate(slot.bandwidth_max_bps)),
            users.map(|user| text::dag(&user.dag)).collect::<Vec<_>>().join(" "),
        ]
    });
    let slots: Vec<_> = slots.collect();
    let kept = states("State", &region.states, style);
    if slots.is_empty() {
        return head + &kept;
    }
    let heading = ["SLOT", "TASK", "RESERVED", "USED BY"];
    head + &section("Slots", &table(style, &heading, slots)) + &kept
}

fn operation_state(operation: &Operation) -> &'static str {
    match (&operation.result, operation.done) {
        (Some(Ended::Error(_)), _) => "FAILED",
        (_, true) => "DONE",
        _ if operation.metadata.as_ref().is_some_and(|meta| meta.start_time.is_none()) => "PENDING",
        _ => "RUNNING",
    }
}

/// The work of an operation: `CREATE acme/web`.
pub fn operation_work(operation: &Operation) -> String {
    let metadata = operation.metadata.clone().unwrap_or_default();
    format!("{} {}", metadata.verb().word(), text::name(&metadata.target))
}

fn progress(operation: &Operation) -> String {
    let metadata = operation.metadata.clone().unwrap_or_default();
    let progress = metadata.progress.unwrap_or_default();
    if progress.regions_total == 0 {
        String::new()
    } else {
        format!("{} of {}", progress.regions_done, progress.regions_total)
    }
}

/// Operations, one per row.
pub fn operations(operations: &[Operation], style: Style) -> String {
    let rows = operations.iter().map(|operation| {
        let metadata = operation.metadata.clone().unwrap_or_default();
        vec![
            id(&operation.name).to_owned(),
            operation_work(operation),
            operation_state(operation).to_owned(),
            progress(operation),
            metadata.stage,
            age(metadata.create_time.as_ref(), style.now),
        ]
    });
    table(style, &["OPERATION", "WORK", "STATE", "REGIONS", "STAGE", "AGE"], rows.collect())
}

pub fn operation(operation: &Operation, style: Style) -> String {
    let metadata = operation.metadata.clone().unwrap_or_default();
    let error = match &operation.result {
        Some(Ended::Error(error)) => error.message.clone(),
        _ => String::new(),
    };
    properties(
        style,
        &[
            ("Name", operation.name.clone()),
            ("Work", format!("{} {}", metadata.verb().word(), metadata.target)),
            ("State", operation_state(operation).to_owned()),
            ("Stage", metadata.stage.clone()),
            ("Regions", progress(operation)),
            ("Cancellable", yes(metadata.cancellable).to_owned()),
            ("Error", error),
            ("Created", text::time(metadata.create_time.as_ref())),
            ("Started", text::time(metadata.start_time.as_ref())),
            ("Ended", text::time(metadata.end_time.as_ref())),
        ],
    )
}

/// The result of `--validate-only`.
pub fn trial(found: &Dag, style: Style) -> String {
    let mapping = found.mapping.clone().unwrap_or_default();
    let loads = mapping.reconfigurations;
    let regions = if loads == 1 { "region" } else { "regions" };
    let cost = if loads == 0 { "none".to_owned() } else { format!("{loads} {regions}") };
    let head = properties(
        style,
        &[
            ("Validated", text::dag(&found.name)),
            ("Bandwidth", rate(found.bandwidth_bps)),
            ("Form", form_word(mapping.form()).to_owned()),
            ("Latency", format!("{} cycles", mapping.latency_cycles)),
            ("Loads", cost),
        ],
    );
    head + &section("Warnings", &warnings(&found.warnings, style))
        + &section("Mapping", &places(&mapping, style))
}

#[cfg(test)]
#[path = "views_tests.rs"]
mod tests;
