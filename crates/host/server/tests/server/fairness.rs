//! Shares and rates, computed again from nothing but the reply of `ListFairness`, in exact fractions.

use std::collections::{BTreeMap, BTreeSet};

use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use snic_api::convert::nt_type::nt_type_to_wire;
use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_api::v1::fairness::Limiter;
use snic_api::v1::fairness_policy::{Scheme, Spare as SpareWord};
use snic_api::v1::fairness_service_client::FairnessServiceClient;
use snic_card_sim::{Sizes, TrafficSource};
use snic_domain::{Bandwidth, DagUid, NtType};
use snic_fairness::Weight;
use snic_fairness::drf::{DrfProblem, Fraction, User, UserLimit};
use snic_fairness::fluid::{Cost, Demand, NetworkBuilder, Spare};
use snic_oracles::{drf, fluid};
use tonic::transport::Channel;

use crate::rig::{self, Rig, chain, in_time};

const MBPS: u64 = 1_000_000;
/// Regions of the card, and its area in the unit of the replies.
const REGIONS: u64 = 16;
const AREA: u64 = 1_000_000_000;

fn integer(value: u64) -> BigRational {
    BigRational::from_integer(value.into())
}

fn is_near(ours: u64, exact: &BigRational) -> bool {
    let exact = exact.to_f64().expect("finite");
    (ours as f64 - exact).abs() <= 8.0 + exact * 1e-6
}

/// Area that one bit per second takes, from the uses of NTs.
fn area_per_bps(dag: &v1::DagFairness) -> u64 {
    let one = |of: &v1::AreaUse| {
        let each = (u128::from(of.area) << 40).div_ceil(of.bandwidth_max_bps.into());
        (each * u128::from(of.instance_bps)).div_ceil(of.chain_bps.into()) as u64
    };
    dag.area_uses.iter().map(one).sum()
}

fn check_demand(of: &v1::Fairness) {
    let space = of.space.as_ref().expect("it is set");
    let area = |dag: &v1::DagFairness| {
        assert_eq!(dag.area_per_bps, area_per_bps(dag), "{dag:?}");
        let wanted = dag.counted_load_bps.max(dag.admitted_bps);
        ((u128::from(wanted) * u128::from(dag.area_per_bps)) >> 40) as u64
    };
    assert_eq!(space.area_demand, of.dags.iter().map(area).sum::<u64>());
    let pages = of.dags.iter().map(|dag| dag.memory_pages).sum::<u64>();
    assert_eq!(space.memory_pages_demand, pages);
    // The NTs that a tenant uses in a region are all of the region.
    let mut regions: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
    for of in of.dags.iter().flat_map(|dag| &dag.area_uses) {
        regions.entry(of.region).or_default().insert(of.slot, of.area);
    }
    for (region, slots) in regions {
        let rounded = AREA / REGIONS - slots.values().sum::<u64>();
        assert!(rounded < slots.len() as u64, "region {region}: {slots:?}");
    }
}

/// DRF over all tenants of a card.
fn check_shares(all: &[v1::Fairness]) {
    let spaces = || all.iter().map(|of| of.space.as_ref().expect("it is set"));
    let capacities: BTreeSet<[u64; 2]> =
        spaces().map(|space| [space.area_capacity, space.memory_pages_capacity]).collect();
    assert_eq!(capacities.len(), 1, "one card has one capacity");
    let capacities = capacities.into_iter().next().expect("one");
    let user = |(of, space): (&v1::Fairness, &v1::FairnessSpace)| {
        User::new(&[space.area_demand, space.memory_pages_demand])
            .weighted(Weight::new(of.weight).expect("in range"))
            .capped(Fraction::new(1, 1).expect("one"))
            .with_quota(&[None, space.memory_pages_quota])
    };
    let problem = DrfProblem::new(&capacities, all.iter().zip(spaces()).map(user).collect());
    let exact = drf::solve(&problem.expect("valid"));
    for ((of, space), exact) in all.iter().zip(spaces()).zip(exact) {
        let share = BigRational::new(space.share.into(), (1_u64 << 54).into());
        let off = (&share - &exact.share).to_f64().expect("finite").abs();
        assert!(off < 1e-9, "{}: {share} instead of {}", of.tenant, exact.share);
        let limiter = match exact.limit {
            UserLimit::OwnCap => Limiter::Demand,
            UserLimit::Capacity(0) => Limiter::Area,
            UserLimit::Capacity(_) => Limiter::Memory,
            UserLimit::Quota(_) => Limiter::MemoryQuota,
            UserLimit::AsksNothing => Limiter::Nothing,
        };
        assert_eq!(of.limiter(), limiter, "{}", of.tenant);
        assert!(is_near(space.area_allocated, &exact.amounts[0]), "{space:?} {exact:?}");
        assert!(is_near(space.memory_pages_allocated, &exact.amounts[1]), "{space:?} {exact:?}");
        let of_card = [(space.area_allocated, AREA), (space.memory_pages_allocated, capacities[1])];
        let ppm = of_card.map(|(part, all)| u128::from(part) * 1_000_000 / u128::from(all));
        assert_eq!(u128::from(of.space_share_ppm), ppm[0].max(ppm[1]), "{}", of.tenant);
        assert_eq!((space.area_elsewhere, space.memory_pages_elsewhere), (0, 0));
        assert_eq!(of.daemon_share_ppm, of.space_share_ppm, "this daemon has one card");
    }
}

/// A resource as the flows see it.
struct Resource {
    capacity: u64,
    tenants: BTreeSet<u32>,
    /// CallerFlow and cost.
    users: Vec<(usize, u32)>,
}

impl Resource {
    /// Part of it that rates take.
    fn taken(&self, rates: &[BigRational]) -> BigRational {
        let one = |(flow, cost): &(usize, u32)| {
            &rates[*flow] * BigRational::new((*cost).into(), Cost::ONE.raw().into())
        };
        self.users.iter().map(one).fold(BigRational::zero(), |sum, part| sum + part)
    }

    /// The part that bursts may fill.
    fn usable(&self, headroom_percent: u32) -> BigRational {
        let keep = if self.tenants.len() > 1 { 100 - headroom_percent } else { 100 };
        integer(self.capacity) * BigRational::new(keep.into(), 100.into())
    }
}

/// Takes back bandwidth beyond promises that would fill a shared resource into its headroom.
fn keep_headroom(
    resources: &BTreeMap<&str, Resource>,
    headroom_percent: u32,
    promised: &[BigRational],
    rates: &mut [BigRational],
) {
    let mut kept = vec![integer(1); rates.len()];
    for resource in resources.values() {
        let (usable, taken) = (resource.usable(headroom_percent), resource.taken(rates));
        if taken > usable {
            let held = resource.taken(promised);
            let part = (&usable - &held).max(BigRational::zero()) / (&taken - &held);
            resource.users.iter().for_each(|(flow, _)| {
                kept[*flow] = kept[*flow].clone().min(part.clone());
            });
        }
    }
    for ((rate, promised), kept) in rates.iter_mut().zip(promised).zip(kept) {
        *rate = promised + (&*rate - promised) * kept;
    }
}

/// NT type and bandwidth of each instance on a card, by its name as a resource.
type Instances = BTreeMap<String, (String, u64)>;

async fn instances(operator: &mut rig::Client) -> Instances {
    let request = v1::ListRegionsRequest { parent: "cards/card0".into(), ..Default::default() };
    let regions = operator.cards.list_regions(request).await.expect("the card").into_inner();
    let of = |(region, of): (usize, v1::Region)| {
        let slots = of.slots.into_iter().enumerate();
        slots.map(move |(slot, nt)| {
            (format!("slot {slot} of region {region}"), (nt.nt_type, nt.bandwidth_max_bps))
        })
    };
    regions.regions.into_iter().enumerate().flat_map(of).collect()
}

/// For each resource the number of the first one that is an instance of the same NT.
fn groups(names: &[&str], instances: &Instances) -> Vec<u32> {
    let mut first: BTreeMap<&str, u32> = BTreeMap::new();
    (0..)
        .zip(names)
        .map(|(at, name)| {
            let group = instances.get(*name).map_or(*name, |(nt_type, _)| nt_type);
            *first.entry(group).or_insert(at)
        })
        .collect()
}

/// The fluid limit of DRFQ, less the headroom, for all DAGs of a card. Shares are of all instances of an NT together, whoever
/// uses them.
fn check_rates(all: &[v1::Fairness], instances: &Instances) {
    let policy = all[0].policy.as_ref().expect("it is set");
    assert_eq!(policy.scheme(), Scheme::Full);
    let spare = match policy.spare() {
        SpareWord::ByWeight => Spare::ByWeight,
        _ => Spare::LevelShares,
    };
    let flows: Vec<(u32, &v1::DagFairness)> =
        (0..).zip(all).flat_map(|(at, of)| of.dags.iter().map(move |dag| (at, dag))).collect();
    let mut resources: BTreeMap<&str, Resource> = BTreeMap::new();
    for (flow, (tenant, dag)) in flows.iter().enumerate() {
        for of in &dag.resources {
            let new = Resource { capacity: of.capacity_bps, tenants: [].into(), users: Vec::new() };
            let resource = resources.entry(&of.resource).or_insert(new);
            assert_eq!(resource.capacity, of.capacity_bps, "{}", of.resource);
            resource.tenants.insert(*tenant);
            resource.users.push((flow, of.cost));
        }
    }
    let unused = instances.iter().filter(|(name, _)| !resources.contains_key(name.as_str()));
    let mut all_capacities: BTreeMap<&str, u64> =
        resources.iter().map(|(name, resource)| (*name, resource.capacity)).collect();
    all_capacities.extend(unused.map(|(name, (_, capacity))| (name.as_str(), *capacity)));
    let (names, capacities): (Vec<&str>, Vec<u64>) = all_capacities.into_iter().unzip();
    let mut network = NetworkBuilder::new(&capacities).grouped(&groups(&names, instances));
    let tenants: Vec<_> =
        all.iter().map(|of| network.tenant(Weight::new(of.weight).expect("in range"))).collect();
    for (tenant, dag) in &flows {
        let at = |of: &v1::ResourceUse| names.binary_search(&&*of.resource).expect("collected");
        let costs: Vec<_> =
            dag.resources.iter().map(|of| (at(of), Cost::from_raw(of.cost))).collect();
        network.flow(tenants[*tenant as usize], &costs);
    }
    let demands: Vec<Demand> = flows
        .iter()
        .map(|(_, dag)| Demand {
            load: Bandwidth::from_bps(dag.counted_load_bps),
            admitted: Bandwidth::from_bps(dag.admitted_bps),
        })
        .collect();
    let mut rates: Vec<BigRational> =
        fluid::solve(&network.build().expect("valid"), spare, &demands);
    let promised: Vec<BigRational> = demands
        .iter()
        .zip(&rates)
        .map(|(demand, rate)| integer(demand.load.min(demand.admitted).get()).min(rate.clone()))
        .collect();
    keep_headroom(&resources, policy.headroom_percent, &promised, &mut rates);
    for ((_, dag), rate) in flows.iter().zip(&rates) {
        assert!(is_near(dag.allotted_bps, rate), "{rate}: {dag:?}");
        let left = dag.resources.iter().map(|of| {
            let resource = &resources[&*of.resource];
            let usable = resource.usable(policy.headroom_percent).max(resource.taken(&promised));
            let left = usable - resource.taken(&rates);
            let each = left / integer(resource.users.len() as u64);
            each * integer(Cost::ONE.raw().into()) / integer(of.cost.into())
        });
        let least = left.reduce(|a, b| a.min(b)).expect("every DAG uses the ingress");
        let grows = dag.limited_by.is_empty();
        let granted = if grows { rate + least } else { rate.clone() };
        let granted = granted.max(integer(dag.admitted_bps));
        assert!(is_near(dag.granted_bps, &granted), "{granted}: {dag:?}");
        assert_eq!(grows, dag.allotted_bps >= dag.counted_load_bps, "{dag:?}");
    }
}

/// For each tenant the largest part of a resource that its packets take, in millionths, all instances of an NT and all regions'
/// ports taken together.
fn time_shares(all: &[v1::Fairness], instances: &Instances) -> Vec<u128> {
    let share = |of: &v1::Fairness| {
        // What is taken, in the unit of a cost, and the capacity.
        let mut parts: BTreeMap<&str, (u128, u128)> = BTreeMap::new();
        for (dag, used) in
            of.dags.iter().flat_map(|dag| dag.resources.iter().map(move |r| (dag, r)))
        {
            let name = used.resource.as_str();
            let (group, capacity) = match instances.get(name) {
                Some((nt_type, _)) => {
                    let same = instances.values().filter(|(other, _)| other == nt_type);
                    (nt_type.as_str(), same.map(|(_, capacity)| u128::from(*capacity)).sum())
                }
                None if name.starts_with("the port of region") => {
                    ("ports", u128::from(REGIONS * used.capacity_bps))
                }
                None => (name, u128::from(used.capacity_bps)),
            };
            let part = parts.entry(group).or_insert((0, capacity));
            part.0 += u128::from(dag.allotted_bps) * u128::from(used.cost);
        }
        let one = u128::from(Cost::ONE.raw());
        let ppm = |(taken, capacity): &(u128, u128)| taken * 1_000_000 / (capacity * one);
        parts.values().map(ppm).max().unwrap_or(0)
    };
    all.iter().map(share).collect()
}

/// Whether the reply says these shares. It does as soon as the loop has counted the instances that are loaded; until then it
/// goes by those that were.
fn says_time_shares(all: &[v1::Fairness], instances: &Instances) -> bool {
    let said = all.iter().map(|of| u128::from(of.time_share_ppm));
    said.eq(time_shares(all, instances))
}

fn check_time_shares(all: &[v1::Fairness]) {
    for of in all {
        assert!(of.time_share_ppm <= of.busiest_ppm, "all together are not fuller than one");
    }
    assert!(all.iter().any(|of| of.time_share_ppm < of.busiest_ppm), "the two say the same");
}

async fn list(client: &mut FairnessServiceClient<Channel>) -> Vec<v1::Fairness> {
    let request = v1::ListFairnessRequest { page_size: 1_000, ..Default::default() };
    let reply = client.list_fairness(request).await.expect("an operator may").into_inner();
    let steps: BTreeSet<u64> = reply.fairness.iter().map(|of| of.step).collect();
    assert!(steps.len() < 2, "a page is of one moment: {steps:?}");
    reply.fairness
}

/// Three tenants of unequal weight share a card with little bandwidth, so that a slow simulation can overload
/// it: the loads of two of them are more than all regions serve.
async fn loaded() -> (Rig, FairnessServiceClient<Channel>) {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let [slow, slower] = [("slow", 10), ("slower", 6)].map(|(id, mbps)| {
        let bandwidth_max = Bandwidth::from_mbps(mbps);
        NtType { bandwidth_max, ..rig::nt(id) }
    });
    for nt in [&slow, &slower] {
        let (nt_type_id, nt_type) = (nt.id.to_string(), Some(nt_type_to_wire(nt)));
        let request = v1::CreateNtTypeRequest { nt_type_id, nt_type, ..Default::default() };
        operator.nts.create_nt_type(request).await.expect("an NT type");
    }
    for (id, chain) in [("both", &[&slow, &slower][..]), ("one", &[&slow])] {
        let (header, bytes) = rig::image_of(id, chain);
        operator.send(rig::upload(header, &bytes, 4_096)).await.expect("a bitstream");
    }
    let mut heavy = operator.create_tenant("initech").await.expect("a tenant");
    heavy.weight = 3;
    let update_mask = Some(prost_types::FieldMask { paths: vec!["weight".into()] });
    let request =
        v1::UpdateTenantRequest { tenant: Some(heavy), update_mask, ..Default::default() };
    operator.tenants.update_tenant(request).await.expect("another weight");
    let dags: [(&str, &[&str], u64, u64); 4] = [
        ("tenants/acme/dags/a", &["slow", "slower"], 3, 40),
        ("tenants/acme/dags/b", &["slow"], 2, 1),
        ("tenants/globex/dags/a", &["slow"], 4, 120),
        ("tenants/initech/dags/a", &["slow", "slower"], 2, 120),
    ];
    for (name, nts, promised, load) in dags {
        let dag = v1::Dag { bandwidth_bps: promised * MBPS, ..chain(nts) };
        let dag = operator.ready_dag(name, dag).await;
        let (uid, load) = (DagUid::from_raw(dag.uid), Bandwidth::from_mbps(load));
        let source = TrafficSource::of_dag(uid, load, Sizes::Fixed(1_500));
        rig.card.with(|card| card.attach(source)).expect("a source");
    }
    let client = FairnessServiceClient::new(operator.channel);
    (rig, client)
}

#[tokio::test]
async fn shares_and_rates_follow_from_what_the_reply_says() {
    let (rig, mut client) = loaded().await;
    let mut operator = rig.client("operator/ops").await;
    let (all, loaded) = in_time(async {
        loop {
            let before = instances(&mut operator).await;
            let all = list(&mut client).await;
            let after = instances(&mut operator).await;
            let limited = all.iter().filter(|of| of.limiter() == Limiter::Area).count();
            let waits = all.iter().flat_map(|of| &of.dags).any(|dag| !dag.limited_by.is_empty());
            let is_settled = before == after && says_time_shares(&all, &after);
            if all.len() == 3 && limited >= 2 && waits && is_settled {
                break (all, after);
            }
        }
    })
    .await;
    all.iter().for_each(check_demand);
    check_shares(&all);
    check_rates(&all, &loaded);
    check_time_shares(&all);
    let mut tenant = FairnessServiceClient::new(rig.client("tenant/acme").await.channel);
    let request = v1::GetFairnessRequest { name: "tenants/acme".into() };
    let own = tenant.get_fairness(request).await.expect("its own").into_inner().fairness;
    own.iter().for_each(check_demand);
    assert!(own.iter().all(|of| of.tenant == "tenants/acme"), "{own:?}");
    rig.stop().await;
}

/// An overloaded DAG, and one beside it that is not: the operator reads who uses what limits it, its tenant only of
/// itself.
#[tokio::test]
async fn a_diagnosis_says_what_limits_a_dag_and_to_operators_who_uses_it() {
    use v1::diagnosis::Verdict;
    const SLOW: &str = "tenants/acme/dags/a";
    let (rig, _) = loaded().await;
    let ask = async |client: &mut rig::Client, name: &str| {
        let request = v1::DiagnoseDagRequest { name: name.into() };
        client.dags.diagnose_dag(request).await.item().expect("diagnosed")
    };
    let mut operator = rig.client("operator/ops").await;
    let (found, mapping) = in_time(async {
        loop {
            let before = operator.get_dag(SLOW).await.expect("it is there").mapping;
            let found = ask(&mut operator, SLOW).await;
            let after = operator.get_dag(SLOW).await.expect("it is there").mapping;
            let is_limited = found.limit.as_ref().is_some_and(|limit| limit.limiting);
            // Loads come and go: a sample may have less than the rate limit, or none of the packets that are served,
            // one in 4 ms; and instances are added meanwhile.
            let is_loaded = found.offered_bps > found.admitted_bps && found.served_bps > 0;
            if is_limited && is_loaded && before == after {
                break (found, after.expect("it has a place"));
            }
        }
    })
    .await;
    assert_eq!(found.verdict(), Verdict::BeyondPromise, "{found:?}");
    assert_eq!(found.promised_bps, 3 * MBPS);
    assert!(found.recent_packets_in > found.recent_packets_out, "{found:?}");
    let limit = found.limit.expect("it was waited for");
    assert!(limit.nt_type.starts_with("ntTypes/slow"), "{limit:?}");
    assert!(limit.region.starts_with("cards/card0/regions/") && limit.used_bps.is_some());
    let named = |name: &str| found.users.iter().any(|user| user.dag == name);
    assert!(named(SLOW) && found.remedies.len() > 1, "{:?} {:?}", found.users, found.remedies);
    let cycles: u64 = found.parts.iter().map(|part| part.cycles).sum();
    assert_eq!(cycles, mapping.latency_cycles);
    // The other one is served, and its tenant learns of no other.
    let mut acme = rig.client("tenant/acme").await;
    in_time(async {
        while ask(&mut acme, "tenants/acme/dags/b").await.verdict() != Verdict::KeepsUp {}
    })
    .await;
    let seen = ask(&mut acme, SLOW).await;
    assert!(seen.users.iter().all(|user| user.dag.starts_with("tenants/acme/")), "{seen:?}");
    let text = format!("{seen:?}");
    assert!(!text.contains("globex") && !text.contains("initech"), "{text}");
    let request = v1::DiagnoseDagRequest { name: "tenants/globex/dags/a".into() };
    let absent = acme.dags.diagnose_dag(request).await.expect_err("another tenant's");
    assert_eq!(absent.code(), tonic::Code::NotFound);
    rig.stop().await;
}
