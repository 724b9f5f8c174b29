use std::collections::BTreeMap;

use snic_domain::{
    BitstreamId, Condition, ConditionType, DagUid, Form, Instance, Mapping, PacketSizes, Resource,
    Stage, Timestamp,
};

use super::*;
use crate::fixtures::{dag, gbps, name, nt_id, profile};
use crate::state::epoch::ResourceUse;

const SLOT: CardResource = CardResource::of_slot(RegionId(3), Slot(1));

fn other(tenant: &str, id: &str) -> DagName {
    let tenant = TenantId::new(tenant).expect("a label");
    DagName { tenant, ..name(id) }
}

fn node(id: &str) -> NodeId {
    NodeId::new(id).expect("a label")
}

fn chain(nodes: &[&str], region: u8) -> VirtualChain {
    let instance = Instance {
        region: RegionId(region),
        bitstream: BitstreamId::new("image").expect("a label"),
        slots: vec![Slot(1)],
        bandwidth: gbps(5),
    };
    VirtualChain { nodes: nodes.iter().map(|id| node(id)).collect(), instances: vec![instance] }
}

/// A DAG of 5 Gbit/s in region 3, with this traffic.
fn view(traffic: Option<DagTraffic>) -> DagView {
    let spec = dag("aes", gbps(5)).spec().clone();
    let shortfall = traffic.map_or(Bandwidth::ZERO, |t| t.shortfall(gbps(5), &spec.packet_sizes));
    let image = BitstreamId::new("image").expect("a label");
    let stages = vec![Stage { branches: vec![chain(&["aes"], 3)] }];
    DagView {
        name: name("web"),
        uid: DagUid::from_raw(0x0401),
        spec,
        generation: 1,
        observed_generation: 1,
        state: DagState::Ready,
        conditions: Vec::new(),
        mapping: Some(Mapping {
            card: card_id(),
            form: Form::Sequential,
            stages,
            programs: Vec::new(),
        }),
        contents: BTreeMap::from([(image, vec![nt_id("lb"), nt_id("aes")])]),
        latency: Cycles::ZERO,
        explanation: None,
        rate: gbps(6),
        unserved: Bandwidth::ZERO,
        shortfall,
        states: Vec::new(),
        traffic: traffic.map(Box::new),
        measured: None,
        etag: String::new(),
        created: Timestamp::from_nanos(0),
        updated: Timestamp::from_nanos(0),
        assigned: None,
        idle_tasks: Vec::new(),
    }
}

fn card_id() -> CardId {
    CardId::new("card0").expect("a label")
}

/// A load of which `lost` of 1,000 packets of IMIX are lost.
fn traffic(offered: u64, lost: u64) -> DagTraffic {
    let last_second = TrafficWindow {
        packets_in: 1_000,
        packets_out: 1_000 - lost,
        bytes_in: 362_000,
        ..TrafficWindow::default()
    };
    let (served, last_ten_seconds) = (Bandwidth::from_mbps(offered * (1_000 - lost)), last_second);
    let offered = gbps(offered);
    DagTraffic { offered, served, last_second, last_ten_seconds, ..DagTraffic::default() }
}

/// A DAG in the slot, which serves 10 Gbit/s, and at the ingress.
fn flow(dag: DagName, served: u64, limited_by: Option<CardResource>) -> DagFairness {
    let uses = |resource, capacity: u64| ResourceUse {
        resource,
        capacity: capacity * 1_000_000_000,
        cost: 1 << 20,
    };
    DagFairness {
        dag,
        admitted: gbps(5),
        load: Some(gbps(served)),
        served: gbps(served),
        rate: gbps(6),
        holds: gbps(5),
        fair: gbps(5),
        target_millis: 1_000,
        limited_by,
        counted: gbps(served),
        allotted: gbps(served),
        granted: gbps(served),
        area_per_bps: 0,
        area_uses: Vec::new(),
        memory_pages: 0,
        resources: vec![uses(SLOT, 10), uses(CardResource::INGRESS, 100)],
        shortfall: Bandwidth::ZERO,
    }
}

fn headroom(resource: Resource, held: u64, available: u64, of_others: bool) -> Headroom {
    Headroom { resource, region: None, nt: None, held, available, of_others }
}

/// Surroundings of a DAG, in the test's words.
#[derive(Default)]
struct Around {
    flows: Vec<DagFairness>,
    headroom: Vec<Headroom>,
    reader: Option<TenantId>,
}

impl Around {
    fn diagnose(&self, dag: &DagView) -> Diagnosis {
        diagnose(&DiagnosisInput {
            dag,
            card: Some(&profile(4)),
            latencies: &BTreeMap::from([(node("aes"), Cycles::new(40))]),
            flows: &self.flows,
            headroom: &self.headroom,
            free_regions: 2,
            reader: self.reader.as_ref(),
        })
    }
}

fn alone(dag: &DagView) -> Diagnosis {
    Around::default().diagnose(dag)
}

#[test]
fn each_verdict_has_its_cause() {
    let mut lost = view(Some(traffic(4, 0)));
    lost.unserved = gbps(5);
    let mut nowhere = view(Some(traffic(4, 0)));
    nowhere.mapping = None;
    let verdicts = [
        (&nowhere, DagVerdict::NotPlaced),
        (&lost, DagVerdict::Unserved),
        (&view(None), DagVerdict::NotMeasured),
        (&view(Some(traffic(0, 0))), DagVerdict::Idle),
        (&view(Some(traffic(4, 60))), DagVerdict::KeepsUp),
        (&view(Some(traffic(8, 300))), DagVerdict::BeyondPromise),
        (&view(Some(traffic(4, 500))), DagVerdict::BelowPromise),
    ];
    for (dag, verdict) in verdicts {
        let found = alone(dag);
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(!found.summary.is_empty());
    }
    let numbers = alone(&view(Some(traffic(8, 300))));
    assert_eq!(
        (numbers.promised, numbers.offered, numbers.admitted, numbers.rate),
        (gbps(5), gbps(8), gbps(6), gbps(6))
    );
    assert_eq!(numbers.served, Bandwidth::from_mbps(5_600));
    let below = alone(&view(Some(traffic(4, 500))));
    assert_eq!((below.shortfall, below.remedies), (gbps(2), vec![]));
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_its_condition() {
    let mut dag = view(None);
    dag.conditions = vec![
        condition(ConditionType::Mapped, ConditionStatus::True, "it has a place"),
        condition(ConditionType::RegionsLoaded, ConditionStatus::False, "region 3 is loading"),
    ];
    dag.state = DagState::Provisioning;
    assert_eq!(alone(&dag).summary, "it is not ready: region 3 is loading");
    dag.unserved = gbps(5);
    let found = alone(&dag);
    assert_eq!(found.summary, "5 Gbit/s of its promise are not served: region 3 is loading");
    assert_eq!(found.remedies, [Remedy::AwaitRepair]);
    dag.mapping = None;
    let found = alone(&dag);
    assert!(found.summary.ends_with("region 3 is loading") && found.latency.is_empty());
    assert_eq!((found.card, found.remedies), (None, vec![Remedy::MakeRoom]));
}

fn condition(kind: ConditionType, status: ConditionStatus, message: &str) -> Condition {
    Condition {
        kind,
        status,
        reason: String::new(),
        message: message.to_owned(),
        since: Timestamp::from_nanos(0),
        generation: 1,
    }
}

#[test]
fn the_limit_names_who_uses_it_and_only_operators_see_others() {
    let flows = vec![
        flow(name("web"), 6, Some(SLOT)),
        flow(name("small"), 1, None),
        flow(other("globex", "big"), 3, None),
    ];
    let mut around = Around { flows, ..Around::default() };
    let dag = view(Some(traffic(8, 300)));
    let seen = around.diagnose(&dag);
    let limit = seen.limit.expect("a limit");
    assert_eq!(
        (limit.resource, limit.region, limit.nt),
        (SLOT, Some(RegionId(3)), Some(nt_id("aes")))
    );
    assert_eq!((limit.capacity, limit.used, limit.is_limiting), (gbps(10), Some(gbps(10)), true));
    let users: Vec<(String, Bandwidth)> =
        seen.users.iter().map(|user| (user.dag.to_string(), user.used)).collect();
    let expected = [
        ("tenants/acme/dags/web", 6),
        ("tenants/globex/dags/big", 3),
        ("tenants/acme/dags/small", 1),
    ];
    assert_eq!(users, expected.map(|(dag, used)| (dag.to_owned(), gbps(used))));
    assert!(seen.summary.ends_with("; limited by aes in region 3"), "{}", seen.summary);
    assert!(seen.remedies.contains(&Remedy::MoreInstances(Some(2))), "{:?}", seen.remedies);

    around.reader = Some(name("web").tenant);
    let told = around.diagnose(&dag);
    assert_eq!(told.limit.as_ref().expect("a limit").used, None, "it tells of others");
    assert!(!format!("{told:?}").contains("globex"), "{told:?}");
    assert_eq!(told.users.len(), 2);
    assert!(told.remedies.contains(&Remedy::MoreInstances(None)), "{:?}", told.remedies);
    around.flows.pop();
    let told = around.diagnose(&dag);
    assert_eq!(told.limit.expect("a limit").used, Some(gbps(7)), "all of it is its own");
}

#[test]
fn without_a_loss_the_fullest_resource_is_shown_and_limits_nothing() {
    let full = flow(name("web"), 10, Some(SLOT));
    let around = Around { flows: vec![full], ..Around::default() };
    let found = around.diagnose(&view(Some(traffic(4, 0))));
    let limit = found.limit.expect("the fullest");
    assert_eq!((limit.resource, limit.is_limiting), (SLOT, false));
    assert!(found.remedies.is_empty() && !found.summary.contains("limited"), "{}", found.summary);
    // A loss at a resource that is not full has another cause.
    let half = Around { flows: vec![flow(name("web"), 5, None)], ..Around::default() };
    assert!(!half.diagnose(&view(Some(traffic(8, 300)))).limit.expect("one").is_limiting);
    let nearly = Around { flows: vec![flow(name("web"), 9, None)], ..Around::default() };
    assert!(nearly.diagnose(&view(Some(traffic(8, 300)))).limit.expect("one").is_limiting);
}

#[test]
fn many_users_are_cut_to_the_largest() {
    let many = (0..40).map(|n| flow(other("acme", &format!("d{n:02}")), n % 7, None));
    let mut flows: Vec<_> = many.collect();
    flows.push(flow(name("web"), 9, Some(SLOT)));
    let found = Around { flows, ..Around::default() }.diagnose(&view(Some(traffic(8, 300))));
    assert_eq!((found.users.len(), found.users_left_out), (USERS_MAX, 41 - USERS_MAX));
    assert_eq!(found.users[0].dag, name("web"));
    assert!(found.users.is_sorted_by(|left, right| left.used >= right.used));
}

#[test]
fn what_fits_is_the_least_that_is_left() {
    let mut around = Around {
        headroom: vec![
            headroom(Resource::NtBandwidth, 5_000_000_000, 5_000_000_000, true),
            headroom(Resource::IngressBandwidth, 5_000_000_000, 2_500_000_000, false),
            headroom(Resource::Memory, 0, 0, false),
        ],
        ..Around::default()
    };
    let dag = view(Some(traffic(8, 300)));
    let raise = |fits| vec![Remedy::RaiseBandwidth { to: gbps(8), fits }];
    let fits = Bandwidth::from_mbps(7_500);
    assert_eq!(around.diagnose(&dag).remedies, raise(Some(fits)));
    around.reader = Some(name("web").tenant);
    assert_eq!(around.diagnose(&dag).remedies, raise(None), "it would tell of others");
    around.headroom[0].of_others = false;
    assert_eq!(around.diagnose(&dag).remedies, raise(Some(fits)));
    around.headroom[1].available = 0;
    assert_eq!(around.diagnose(&dag).remedies, raise(None), "nothing more fits");
}

#[test]
fn a_loss_of_five_in_a_hundred_is_not_keeping_up_and_a_small_one_is_said() {
    let with = |offered: u64, lost: u64| {
        let mut traffic = traffic(offered, lost);
        traffic.last_second.drops[DropCause::StoreFull as usize] = lost;
        traffic.last_second.counts_drops = true;
        alone(&view(Some(traffic)))
    };
    assert_eq!(with(5, 49).verdict, DagVerdict::BelowPromise);
    assert_eq!(with(40, 49).verdict, DagVerdict::BeyondPromise);
    let kept = with(4, 20);
    assert_eq!(kept.verdict, DagVerdict::KeepsUp);
    assert!(kept.summary.ends_with("; 20 of 1000 packets were dropped"), "{}", kept.summary);
    assert!(with(4, 0).summary.starts_with("all that comes in is served"));
}

#[test]
fn drops_lead_to_what_can_be_done_about_them() {
    let dropped = |cause: DropCause| {
        let mut traffic = traffic(4, 500);
        for window in [&mut traffic.last_second, &mut traffic.last_ten_seconds] {
            window.drops[cause as usize] = 500;
            window.counts_drops = true;
        }
        alone(&view(Some(traffic)))
    };
    assert_eq!(dropped(DropCause::StoreFull).remedies, [Remedy::ShortenChain]);
    assert_eq!(dropped(DropCause::NoInstance).remedies, [Remedy::ReportFault]);
    let meant = dropped(DropCause::ByNt);
    assert_eq!(
        (meant.verdict, meant.remedies),
        (DagVerdict::KeepsUp, vec![Remedy::CheckConfiguration])
    );
    assert!(dropped(DropCause::UsedUp).remedies.is_empty());
    let mut small = traffic(4, 500);
    (small.last_second.bytes_in, small.last_ten_seconds.bytes_in) = (64_000, 64_000);
    let mut dag = view(Some(small));
    assert_eq!(alone(&dag).remedies, [Remedy::StatePacketSizes(64)]);
    dag.spec.packet_sizes = PacketSizes::only(64);
    assert_eq!(alone(&dag).remedies, []);
}

#[test]
fn a_port_or_the_store_is_relieved_by_something_else_than_instances() {
    let at = |resource| {
        let mut own = flow(name("web"), 6, Some(resource));
        own.resources[1].resource = resource;
        let around = Around { flows: vec![own], ..Around::default() };
        around.diagnose(&view(Some(traffic(8, 300)))).remedies.pop()
    };
    assert_eq!(at(CardResource::INGRESS), Some(Remedy::OtherCard));
    assert_eq!(at(CardResource::PACKET_STORE), Some(Remedy::ShortenChain));
    assert_eq!((CardResource::INGRESS.region(), CardResource::INGRESS.slot()), (None, None));
    assert_eq!((SLOT.region(), SLOT.slot()), (Some(RegionId(3)), Some(Slot(1))));
}

#[test]
fn latency_has_the_longest_branch_of_each_stage() {
    let mut dag = view(None);
    let stages = vec![
        Stage { branches: vec![chain(&["aes", "lb"], 3)] },
        Stage { branches: vec![chain(&["short"], 1), chain(&["long"], 2)] },
    ];
    dag.mapping =
        Some(Mapping { card: card_id(), form: Form::Parallel, stages, programs: Vec::new() });
    let cycles = [("aes", 40), ("lb", 5), ("short", 7), ("long", 9)];
    let latencies = cycles.map(|(id, cycles)| (node(id), Cycles::new(cycles))).into();
    let card = profile(4);
    let found = diagnose(&DiagnosisInput {
        dag: &dag,
        card: Some(&card),
        latencies: &latencies,
        flows: &[],
        headroom: &[],
        free_regions: 0,
        reader: None,
    });
    let parts: Vec<(&PacketPart, u64)> =
        found.latency.iter().map(|part| (&part.part, part.cycles.get())).collect();
    let of = |id: &str| PacketPart::Node(node(id));
    let (aes, lb, long) = (of("aes"), of("lb"), of("long"));
    let expected =
        [(&PacketPart::Core, 49), (&aes, 40), (&lb, 5), (&PacketPart::Pass(2), 16), (&long, 9)];
    assert_eq!(parts, expected);
    assert_eq!((found.clock_hz, found.limit), (card.clock_hz, None));
}

#[test]
fn every_remedy_is_a_sentence() {
    let all = [
        Remedy::MakeRoom,
        Remedy::AwaitRepair,
        Remedy::StatePacketSizes(64),
        Remedy::RaiseBandwidth { to: gbps(8), fits: Some(gbps(7)) },
        Remedy::RaiseBandwidth { to: gbps(8), fits: None },
        Remedy::MoreInstances(None),
        Remedy::MoreInstances(Some(0)),
        Remedy::MoreInstances(Some(2)),
        Remedy::OtherCard,
        Remedy::ShortenChain,
        Remedy::CheckConfiguration,
        Remedy::ReportFault,
    ];
    let texts: std::collections::BTreeSet<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), all.len(), "each says something else");
    assert!(texts.contains("promise it more: 8 Gbit/s come in, and 7 Gbit/s fit where it is"));
    assert!(texts.iter().all(|text| text.contains(' ') && !text.ends_with('.')));
}

#[test]
fn a_region_that_the_dag_has_left_limits_it_no_more() {
    let dag = view(Some(traffic(8, 300)));
    let port = |region: u8| CardResource::of_port(RegionId(region));
    let left = [CardResource::of_slot(RegionId(2), Slot(1)), port(2)];
    for left in left {
        let mut flow = flow(name("web"), 10, Some(left));
        flow.resources[0].resource = left;
        let found = Around { flows: vec![flow], ..Around::default() }.diagnose(&dag);
        let limit = found.limit.expect("it passes the ingress");
        assert_eq!((limit.resource, limit.is_limiting), (CardResource::INGRESS, false));
    }
    let mut here = flow(name("web"), 10, Some(port(3)));
    here.resources[0].resource = port(3);
    let found = Around { flows: vec![here], ..Around::default() }.diagnose(&dag);
    let limit = found.limit.expect("it is there");
    assert_eq!((limit.resource, limit.region, limit.nt), (port(3), Some(RegionId(3)), None));
}
