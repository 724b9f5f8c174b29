//! Sample messages for tests, as a server sends them: a card with a shared chain, a fork, a failure.

use prost_types::Timestamp;
use snic_api::v1::diagnosis::Verdict;
use snic_api::v1::measured_part::Kind;
use snic_api::v1::operation_metadata::{Progress, Verb};
use snic_api::v1::shortage::Resource;
use snic_api::v1::{
    Area, Bitstream, Card, CardCounters, ChainExplanation, ChainSlot, Condition, Dag, DagTraffic,
    Diagnosis, Embedding, EmbeddingWay, Explanation, FlowRules, Headroom, Instance, LatencyPart,
    LatencyQuantiles, LimitingResource, LimitingResourceUser, Mapping, MeasuredLatency,
    MeasuredPart, NtDrops, NtType, Operation, OperationMetadata, PacketDrops, PacketMatch, Quota,
    Region, RegionKind, RegionSlot, RegionUser, RejectedAlternative, Rule, ScoreTerm, Shortage,
    Stage, Tenant, TrafficWindow, Usage, VirtualChain, bitstream, card, condition, dag, nt_type,
    region,
};

/// Bits per second of a Gbit/s.
pub const GBPS: u64 = 1_000_000_000;
/// When everything was made: 2026-01-02 03:04:05 UTC.
pub const MADE: i64 = 1_767_323_045;

/// When everything was created.
pub fn made() -> Option<Timestamp> {
    Some(Timestamp { seconds: MADE, nanos: 0 })
}

fn nodes(ids: &[&str]) -> Vec<dag::Node> {
    let node = |id: &&str| dag::Node {
        id: (*id).to_owned(),
        nt_type: format!("ntTypes/{}", id.trim_end_matches("-2")),
        configuration: None,
    };
    ids.iter().map(node).collect()
}

fn edges(pairs: &[(&str, &str)]) -> Vec<dag::Edge> {
    let edge =
        |(from, to): &(&str, &str)| dag::Edge { from_node: (*from).into(), to_node: (*to).into() };
    pairs.iter().map(edge).collect()
}

fn condition(name: &str, holds: bool, reason: &str, message: &str) -> Condition {
    let status = if holds { condition::Status::True } else { condition::Status::False };
    Condition {
        r#type: name.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: made(),
        observed_generation: 1,
    }
}

fn slot(nt: &str, node: &str) -> ChainSlot {
    let name = |text: &str| if text.is_empty() { String::new() } else { format!("ntTypes/{text}") };
    ChainSlot { used: !node.is_empty(), nt_type: name(nt), node: node.into() }
}

fn instance(region: u32, bitstream: &str, slots: &[(&str, &str)]) -> Instance {
    Instance {
        card: "cards/card0".into(),
        region: format!("cards/card0/regions/{region}"),
        bitstream: format!("bitstreams/{bitstream}"),
        slots: slots.iter().map(|(nt, node)| slot(nt, node)).collect(),
        bandwidth_bps: 10 * GBPS,
    }
}

fn chain(nodes: &[&str], instance: Instance) -> VirtualChain {
    let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
    VirtualChain { nodes, instances: vec![instance] }
}

fn internet_mix() -> Vec<dag::PacketSize> {
    let sizes = [(64, 7), (594, 4), (1_518, 1)];
    sizes.map(|(bytes, weight)| dag::PacketSize { bytes, weight }).to_vec()
}

/// A DAG with a fork, ready.
pub fn web() -> Dag {
    let nat = chain(&["nat"], instance(0, "dag-d-sim-16", &[("nat", "nat"), ("firewall", "")]));
    let branches = vec![
        chain(
            &["firewall"],
            instance(1, "firewall-aes-sim-16", &[("firewall", "firewall"), ("", "")]),
        ),
        chain(&["kv-cache"], instance(2, "kv-cache-sim-16", &[("kv-cache", "kv-cache")])),
    ];
    let aes = chain(&["aes"], instance(1, "firewall-aes-sim-16", &[("", ""), ("aes", "aes")]));
    let stages =
        vec![Stage { branches: vec![nat] }, Stage { branches }, Stage { branches: vec![aes] }];
    Dag {
        name: "tenants/acme/dags/web".into(),
        uid: 0x0000_0401,
        nodes: nodes(&["nat", "firewall", "kv-cache", "aes"]),
        edges: edges(&[
            ("nat", "firewall"),
            ("nat", "kv-cache"),
            ("firewall", "aes"),
            ("kv-cache", "aes"),
        ]),
        states: Vec::new(),
        bandwidth_bps: 10 * GBPS,
        packet_sizes: internet_mix(),
        trusted_tenants: Vec::new(),
        card_affinity: None,
        placement: None,
        placement_defaults: None,
        latency_sensitive: false,
        refuse_idle_tasks: false,
        latency_bound_nanos: 50_000,
        labels: Default::default(),
        description: String::new(),
        form: dag::Form::Unspecified.into(),
        state: dag::State::Ready.into(),
        generation: 1,
        observed_generation: 1,
        conditions: vec![
            condition("Mapped", true, "PLACED", "It has a place."),
            condition("RegionsLoaded", true, "LOADED", "All regions hold what it needs."),
            condition(
                "TablesProgrammed",
                true,
                "READ_BACK",
                "The card, read back, holds its rows.",
            ),
            condition("PromiseKept", true, "CARRIED", "The card carries what was promised."),
            condition("Ready", true, "READY", "Packets pass."),
        ],
        mapping: Some(Mapping {
            form: dag::Form::Parallel.into(),
            stages,
            latency_cycles: 155,
            reconfigurations: 2,
            programs: vec![],
        }),
        rate_limit_bps: 10 * GBPS,
        unserved_bps: 0,
        shortfall_bps: 0,
        fleet_managed: false,
        fleet_card: String::new(),
        traffic: Some(web_traffic()),
        etag: "e1".into(),
        create_time: made(),
        update_time: made(),
        warnings: Vec::new(),
    }
}

fn nt_drops(reason: &str, packets: u64) -> NtDrops {
    NtDrops { nt_type: "ntTypes/firewall".into(), reason: reason.into(), packets }
}

/// Packets of a DAG that gets 9 Gbit/s and serves 6.
fn window(packets_in: u64, packets_out: u64, dropped: u64) -> TrafficWindow {
    TrafficWindow {
        duration_nanos: 1_000_000 * packets_in,
        offered_bps: 9 * GBPS,
        served_bps: 6 * GBPS,
        packets_in,
        packets_out,
        drops: vec![PacketDrops { cause: "RATE_LIMITED".into(), packets: dropped }],
        packets_under_way: packets_in - packets_out - dropped,
        latency: Some(latency()),
    }
}

/// Latencies of a DAG that waits for its credits.
fn latency() -> MeasuredLatency {
    let times =
        |p50_nanos, p99_nanos, max_nanos| LatencyQuantiles { p50_nanos, p99_nanos, max_nanos };
    let part = |kind: Kind, node: &str, latency| MeasuredPart {
        kind: kind.into(),
        node: node.into(),
        latency: Some(latency),
    };
    MeasuredLatency {
        samples: 900,
        total: Some(times(612, 45_300, 2_000_000)),
        parts: vec![
            part(Kind::Ingress, "", times(0, 0, 60)),
            part(Kind::Shell, "", times(300, 300, 300)),
            part(Kind::SyncEntry, "", times(0, 0, 0)),
            part(Kind::Credits, "", times(100, 44_000, 1_999_000)),
            part(Kind::Port, "", times(8, 40, 88)),
            part(Kind::Egress, "", times(0, 0, 4)),
            part(Kind::Task, "aes", times(160, 160, 160)),
            part(Kind::Task, "nat", times(44, 60, 64)),
        ],
    }
}

fn web_traffic() -> DagTraffic {
    DagTraffic {
        offered_bps: 4 * GBPS,
        served_bps: 3 * GBPS,
        packets_in: 40_000,
        packets_out: 30_000,
        bytes_in: 40_000_000,
        bytes_out: 30_000_000,
        drops: vec![PacketDrops { cause: "BY_NT".into(), packets: 10_000 }],
        nt_drops: vec![nt_drops("rule", 9_990), nt_drops("no_connection", 10)],
        flow_rules: Some(FlowRules { flows: 1_204, fast_flows: 1_100, evicted_flows: 3 }),
        last_second: Some(window(900, 600, 299)),
        ..DagTraffic::default()
    }
}

/// A DAG without a place, with the longest names there are.
pub fn stuck() -> Dag {
    let long = "a".repeat(63);
    Dag {
        name: format!("tenants/{long}/dags/{}", "b".repeat(63)),
        nodes: nodes(&["aes", "aes-2"]),
        edges: edges(&[("aes", "aes-2")]),
        bandwidth_bps: 123_456_789_000,
        form: dag::Form::Sequential.into(),
        state: dag::State::Failed.into(),
        generation: 3,
        observed_generation: 2,
        conditions: vec![condition(
            "Mapped",
            false,
            "INSUFFICIENT_CAPACITY",
            "Nodes aes and aes-2 need 123.456 Gbit/s each; 30 Gbit/s is free in loaded regions.",
        )],
        create_time: made(),
        ..Dag::default()
    }
}

/// The tenant acme.
pub fn tenant() -> Tenant {
    Tenant {
        name: "tenants/acme".into(),
        uid: "0198c0de-0000-7000-8000-000000000001".into(),
        weight: 2,
        quota: Some(Quota {
            dags_max: Some(64),
            bandwidth_max_bps: Some(100 * GBPS),
            bitstreams_max: Some(32),
            bitstream_bytes_max: Some(256 << 20),
            memory_max_bytes: Some(4 << 30),
            nt_types_max: Some(64),
            rules_max: Some(256),
            machines_max: Some(256),
            operations_max: Some(256),
            threads_max: Some(128),
            month_budget_micros: None,
        }),
        usage: Some(Usage { dags: 2, bandwidth_bps: 12_500_000_000, ..Usage::default() }),
        etag: "e7".into(),
        create_time: made(),
        update_time: made(),
        fleet_managed: false,
        labels: Default::default(),
        description: String::new(),
        spending: None,
        project: String::new(),
    }
}

/// A shareable NT type of the provider.
pub fn nt_type() -> NtType {
    NtType {
        name: "ntTypes/firewall".into(),
        shareable: true,
        bandwidth_max_bps: 100 * GBPS,
        latency_cycles: 12,
        area: Some(Area { lut: 468, ramb36: 4, dsp: 0 }),
        traffic: nt_type::Traffic::HeaderOnly.into(),
        description: "Drops packets by address and port.".into(),
        code: 0x12ab_34cd,
        configurable: true,
        etag: "e2".into(),
        create_time: made(),
        ..NtType::default()
    }
}

/// A bitstream that is loaded.
pub fn bitstream() -> Bitstream {
    let nts = ["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];
    Bitstream {
        state: bitstream::State::Available.into(),
        name: "bitstreams/dag-d-sim-16".into(),
        digest: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
        identity: "b98e5f164eda0dc84bf1e369296d29de".into(),
        size_bytes: 4 << 20,
        nts: nts.iter().map(|nt| format!("ntTypes/{nt}")).collect(),
        region_kind: RegionKind::KnownNt.into(),
        card_model: "sim-16".into(),
        shareable: true,
        area: Some(Area { lut: 12_000, ramb36: 40, dsp: 8 }),
        loaded_regions: vec!["cards/card0/regions/0".into()],
        signature_state: bitstream::SignatureState::Unsigned.into(),
        etag: "e3".into(),
        create_time: made(),
        ..Bitstream::default()
    }
}

/// A card that is impaired.
pub fn card() -> Card {
    Card {
        name: "cards/card0".into(),
        model: "sim-16".into(),
        part: "xcu280-fsvh2892-2L-e".into(),
        health: card::Health::Impaired.into(),
        message: "region 2 is out of use".into(),
        table_version: 12,
        reconfigurations: 5,
        regions: 16,
        counters: Some(CardCounters {
            packets_in: 1_000_000,
            packets_out: 999_990,
            drops: vec![PacketDrops { cause: "RATE_LIMITED".into(), packets: 10 }],
            ..CardCounters::default()
        }),
        ..Card::default()
    }
}

fn used(nt: &str, gbps: u64) -> RegionSlot {
    RegionSlot {
        nt_type: format!("ntTypes/{nt}"),
        bandwidth_max_bps: 100 * GBPS,
        reserved_bps: gbps * GBPS,
    }
}

fn user(dag: &str, slots: &[u32]) -> RegionUser {
    RegionUser { dag: dag.into(), slots: slots.to_vec(), bandwidth_bps: 10 * GBPS }
}

/// The sixteen regions of the card: a shared chain, a victim, a faulty one, one being loaded.
pub fn regions() -> Vec<Region> {
    let plain = |number: u32| Region {
        name: format!("cards/card0/regions/{number}"),
        kind: RegionKind::KnownNt.into(),
        state: region::State::Free.into(),
        area: Some(Area { lut: 20_000, ramb36: 60, dsp: 60 }),
        ..Region::default()
    };
    let mut regions: Vec<Region> = (0..16).map(plain).collect();
    let shared = &mut regions[0];
    shared.set_state(region::State::Active);
    shared.bitstream = "bitstreams/dag-d-sim-16".into();
    let nts = ["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];
    shared.slots =
        nts.iter().zip([25, 15, 25, 15, 15, 15]).map(|(nt, gbps)| used(nt, gbps)).collect();
    shared.users = vec![
        user("tenants/acme/dags/dag-d", &[0, 1, 2, 3, 4, 5]),
        user("tenants/acme/dags/dag-b", &[0, 2]),
        user("tenants/globex/dags/dag-a", &[1, 5]),
    ];
    regions[1].set_state(region::State::Victim);
    regions[1].bitstream = "bitstreams/nat-sim-16".into();
    regions[1].slots = vec![used("nat", 0)];
    regions[2].set_state(region::State::Faulty);
    regions[2].cordoned = true;
    regions[2].failures = 3;
    regions[2].last_error = "the configuration port reports a CRC error".into();
    regions[2].last_error_time = made();
    regions[3].set_state(region::State::Reconfiguring);
    regions[3].bitstream = "bitstreams/aes-sim-16".into();
    regions
}

/// A classification rule.
pub fn rule() -> Rule {
    Rule {
        labels: Default::default(),
        description: String::new(),
        name: "classificationRules/web-http".into(),
        priority: 10,
        r#match: Some(PacketMatch {
            virtual_function: Some(3),
            source_prefix: "10.1.0.0/16".into(),
            protocol: Some(6),
            destination_port: Some(80),
            ..PacketMatch::default()
        }),
        dag: "tenants/acme/dags/web".into(),
        etag: "e4".into(),
        create_time: made(),
        update_time: None,
        binding: String::new(),
    }
}

/// An operation that creates [`web`] and has loaded one of two regions.
pub fn running() -> Operation {
    let metadata = OperationMetadata {
        target: "tenants/acme/dags/web".into(),
        verb: Verb::Create.into(),
        create_time: made(),
        start_time: made(),
        stage: "loading regions".into(),
        progress: Some(Progress { regions_total: 2, regions_done: 1, ..Progress::default() }),
        ..OperationMetadata::default()
    };
    let name = "operations/0198c0de-0000-7000-8000-00000000000a".into();
    Operation { name, metadata: Some(metadata), ..Operation::default() }
}

fn headroom() -> Vec<Headroom> {
    let left = |resource: Resource, message: &str| Headroom {
        resource: resource.into(),
        message: message.into(),
        ..Headroom::default()
    };
    vec![
        left(Resource::NtBandwidth, "NT bandwidth: 10 Gbit/s held, 0 bit/s left (aes in region 1)"),
        left(Resource::PacketStore, "packet store: 831 bytes held, 146.4 KiB left"),
    ]
}

/// Why a DAG beyond its promise is not faster.
pub fn diagnosis() -> Diagnosis {
    let part =
        |part: &str, cycles| LatencyPart { part: part.into(), cycles, nanoseconds: cycles * 4 };
    let user = |dag: &str, used_bps| LimitingResourceUser { dag: dag.into(), used_bps };
    Diagnosis {
        dag: "tenants/acme/dags/web".into(),
        card: "cards/card0".into(),
        verdict: Verdict::BeyondPromise.into(),
        summary: "the promise of 5 Gbit/s is kept; 9 Gbit/s come in and 6 Gbit/s are served; \
                  limited by nat in region 3"
            .into(),
        promised_bps: 5 * GBPS,
        offered_bps: 9 * GBPS,
        admitted_bps: 6 * GBPS,
        rate_limit_bps: 6 * GBPS,
        served_bps: 6 * GBPS,
        shortfall_bps: 0,
        recent_packets_in: 9_000,
        recent_packets_out: 6_000,
        recent_drops: vec![PacketDrops { cause: "RATE_LIMITED".into(), packets: 2_990 }],
        last_second: Some(window(900, 600, 299)),
        last_ten_seconds: Some(window(9_000, 6_000, 2_990)),
        parts: vec![part("core", 49), part("nat", 11), part("pass 2", 26), part("aes", 40)],
        limit: Some(LimitingResource {
            resource: "slot 0 of region 3".into(),
            region: "cards/card0/regions/3".into(),
            nt_type: "ntTypes/nat".into(),
            capacity_bps: 10 * GBPS,
            used_bps: Some(10 * GBPS),
            limiting: true,
        }),
        users: vec![
            user("tenants/acme/dags/web", 6 * GBPS),
            user("tenants/globex/dags/a", 4 * GBPS),
        ],
        users_left_out: 3,
        remedies: vec!["promise it more: 9 Gbit/s come in, and 7 Gbit/s fit where it is".into()],
        nt_drops: vec![nt_drops("rule", 10)],
        measured_summary:
            "99 % of its packets take 45.3 µs or less, half of them 612 ns, the longest \
                          2000.0 µs; 504 ns without waiting; longer is mostly waiting for credits: \
                          44.0 µs at p99"
                .into(),
    }
}

/// The explanation of a DAG with a shared chain and rejected alternatives.
pub fn explanation() -> Explanation {
    let term = |name: &str, value, unit: &str, more_is_better| ScoreTerm {
        name: name.into(),
        value,
        unit: unit.into(),
        more_is_better,
    };
    let shortage = Shortage {
        resource: Resource::NtBandwidth.into(),
        required: 10 * GBPS,
        available: 0,
        unit: "bit/s".into(),
        nodes: vec!["aes".into()],
        message: "node aes needs 10 Gbit/s; no loaded region has an AES with bandwidth to spare"
            .into(),
    };
    let first = ChainExplanation {
        nodes: vec!["nat".into()],
        nt_types: vec!["ntTypes/nat".into()],
        chosen: vec![Embedding {
            way: EmbeddingWay::Shared.into(),
            region: "cards/card0/regions/0".into(),
            bitstream: "bitstreams/dag-d-sim-16".into(),
            bandwidth_bps: 10 * GBPS,
            score_terms: vec![
                term("new_regions", 0, "regions", false),
                term("residual_bandwidth", 65 * GBPS, "bit/s", true),
            ],
        }],
        rejected: vec![],
    };
    let second = ChainExplanation {
        nodes: vec!["firewall".into(), "aes-2".into()],
        nt_types: vec!["ntTypes/firewall".into(), "ntTypes/aes".into()],
        chosen: vec![Embedding {
            way: EmbeddingWay::FreeRegion.into(),
            region: "cards/card0/regions/1".into(),
            bitstream: String::new(),
            bandwidth_bps: 10 * GBPS,
            score_terms: vec![term("unused_area", 140, "permille", false)],
        }],
        rejected: vec![
            RejectedAlternative {
                way: EmbeddingWay::Shared.into(),
                message: shortage.message.clone(),
                shortage: Some(shortage),
                ..RejectedAlternative::default()
            },
            RejectedAlternative {
                way: EmbeddingWay::VictimRegion.into(),
                message: "possible, but costs more: at least 1 new region, 1 cached chain \
                          replaced, 1 pass; chosen: 1 new region, 0 cached chains replaced, 1 pass"
                    .into(),
                ..RejectedAlternative::default()
            },
        ],
    };
    Explanation {
        dag: Some(web()),
        form: dag::Form::Parallel.into(),
        sequential_latency_cycles: 161,
        parallel_latency_cycles: Some(155),
        form_reason:
            "Side by side saves 6 cycles, after the 16 of the second pass through the scheduler."
                .into(),
        chains: vec![first, second],
        headroom: headroom(),
        ..Explanation::default()
    }
}
