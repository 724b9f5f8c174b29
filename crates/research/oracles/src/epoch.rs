//! One step of the control loop, in floats, with a look at everything at every event and new lists for
//! every step. Also the baseline of the benchmarks.

use snic_controller::{
    DagFlow, EpochOutcome, Fairness, OF_REGIONS, Scheme, TenantOutcome, TenantShape, Topology,
};
use snic_domain::Bandwidth;
use snic_fairness::drf::{self, Share, UserLimit};
use snic_fairness::fluid::{Cost, Demand, InvalidNetwork, Network, NetworkBuilder, TenantIndex};

use crate::fluid;

/// [`DagFlow::area_per_bps`] is in units of 2^-40 of an area unit.
const AREA_BITS: u32 = 40;

/// Fractions below this are noise of sums of floats.
const NEARLY: f64 = 1e-12;

/// One step of [`snic_controller::Engine`] under [`Scheme::Full`], accurate to about a millionth.
///
/// # Errors
///
/// [`InvalidNetwork`] if the topology names tenants or resources that it does not have.
///
/// # Panics
///
/// Under any other scheme.
pub fn step(
    topology: &Topology,
    rules: Fairness,
    loads: &[Bandwidth],
) -> Result<EpochOutcome, InvalidNetwork> {
    assert_eq!(rules.scheme, Scheme::Full, "the other schemes compute with other loads");
    let network = network(topology)?;
    let load = |flow: usize| loads.get(flow).copied().unwrap_or_default();
    let flows = topology.flows.iter().enumerate();
    let demands: Vec<Demand> =
        flows.map(|(at, flow)| Demand { load: load(at), admitted: flow.admitted }).collect();
    let mut outcome =
        EpochOutcome { tenants: tenants(topology, &demands), ..EpochOutcome::default() };
    outcome.fair = fair(topology, &demands, &outcome.tenants);
    let rates = fluid::solve::<f64>(&network, rules.spare, &demands);
    let rates = kept(topology, rules, &demands, rates);
    outcome.rates = rates.iter().map(|rate| Bandwidth::from_bps(*rate as u64)).collect();
    let more = left(topology, rules, &demands, &rates);
    for (at, (rate, (slots, part))) in rates.iter().zip(more).enumerate() {
        let guaranteed = topology.flows[at].admitted;
        let grows = *rate >= load(at).get() as f64 * (1.0 - 1e-9);
        let grant = if grows && part.is_finite() { rate + part } else { *rate };
        outcome.grants.push(Bandwidth::from_bps(grant as u64).max(guaranteed));
        outcome.reach.push(Bandwidth::from_bps((rate + slots) as u64));
    }
    Ok(outcome)
}

fn network(topology: &Topology) -> Result<Network, InvalidNetwork> {
    let mut builder = NetworkBuilder::new(&topology.capacities).grouped(&topology.groups);
    for tenant in &topology.tenants {
        builder.tenant(tenant.weight);
    }
    for flow in &topology.flows {
        builder.flow(TenantIndex(flow.tenant), &flow.uses);
    }
    builder.build()
}

/// Demand of each tenant, and its share by progressive filling.
fn tenants(topology: &Topology, demands: &[Demand]) -> Vec<TenantOutcome> {
    let mut wanted = vec![[0_u64; 2]; topology.tenants.len()];
    for (flow, demand) in topology.flows.iter().zip(demands) {
        let bps = demand.load.max(demand.admitted).get();
        let sum = &mut wanted[flow.tenant as usize];
        sum[0] += ((u128::from(bps) * u128::from(flow.area_per_bps)) >> AREA_BITS) as u64;
        sum[1] += flow.memory;
    }
    let shares = shares(topology, &wanted);
    let outcome =
        |(demand, (dominant, share, limit)): ([u64; 2], (Option<usize>, f64, UserLimit))| {
            let share = Share::from_raw((share * Share::ONE.raw() as f64) as u64);
            let got = dominant
                .filter(|_| limit != UserLimit::OwnCap)
                .map(|k| share.as_f64() * topology.space()[k] as f64 / demand[k].max(1) as f64);
            let part = got.unwrap_or(1.0).min(1.0);
            let allocation = demand.map(|amount| (amount as f64 * part) as u64);
            TenantOutcome { demand, allocation, space: drf::UserOutcome { dominant, share, limit } }
        };
    wanted.into_iter().zip(shares).map(outcome).collect()
}

/// A tenant of a progressive filling.
struct User {
    /// Amount of each resource that it takes for each unit of the level.
    rates: [f64; 2],
    weight: f64,
    /// The level at which it has all that it may have, and what says so.
    cap: f64,
    limit: UserLimit,
    dominant: usize,
}

impl User {
    fn new(topology: &Topology, tenant: &TenantShape, demand: &[u64; 2]) -> Self {
        let capacities = topology.space().map(|amount| amount as f64);
        let part = |k: usize| if demand[k] == 0 { 0.0 } else { demand[k] as f64 / capacities[k] };
        let parts = [part(0), part(1)];
        let (share, weight) = (parts[0].max(parts[1]), f64::from(tenant.weight.get()));
        let quota = tenant.memory_max.filter(|_| demand[1] > 0);
        let quota = quota.map_or(f64::INFINITY, |pages| pages as f64 / demand[1] as f64);
        Self {
            rates: parts.map(|part| if share > 0.0 { part / share * weight } else { 0.0 }),
            weight,
            cap: quota.min(1.0) * share / weight,
            limit: if quota < 1.0 { UserLimit::Quota(1) } else { UserLimit::OwnCap },
            dominant: usize::from(parts[1] > parts[0]),
        }
    }
}

/// Dominant resource, share and limit of each tenant. All tenants rise until a resource is full or their own
/// cap is reached, one event at a time.
fn shares(topology: &Topology, wanted: &[[u64; 2]]) -> Vec<(Option<usize>, f64, UserLimit)> {
    let users = wanted.iter().zip(&topology.tenants);
    let users: Vec<User> = users.map(|(d, tenant)| User::new(topology, tenant, d)).collect();
    let (mut free, mut level) = ([1.0_f64; 2], 0.0_f64);
    let asks = |user: &User| user.rates != [0.0; 2];
    let mut stopped: Vec<Option<(f64, UserLimit)>> = users
        .iter()
        .map(|user| if asks(user) { None } else { Some((0.0, UserLimit::AsksNothing)) })
        .collect();
    while stopped.iter().any(Option::is_none) {
        let rising = || users.iter().zip(&stopped).filter(|(_, stopped)| stopped.is_none());
        let rates = [0, 1].map(|k| rising().map(|(user, _)| user.rates[k]).sum::<f64>());
        let full = |k: usize| level + if rates[k] > 0.0 { free[k] / rates[k] } else { f64::MAX };
        let caps = rising().map(|(user, _)| user.cap);
        let next = caps.chain([full(0), full(1)]).fold(f64::INFINITY, f64::min).max(level);
        for k in 0..2 {
            free[k] -= rates[k] * (next - level);
        }
        level = next;
        for (user, stopped) in users.iter().zip(&mut stopped).filter(|(_, s)| s.is_none()) {
            let full = (0..2).find(|k| user.rates[*k] > 0.0 && free[*k] < NEARLY);
            *stopped = match full {
                _ if user.cap <= level => Some((level, user.limit)),
                Some(k) => Some((level, UserLimit::Capacity(k))),
                None => None,
            };
        }
    }
    let outcome = |(user, stopped): (&User, Option<(f64, UserLimit)>)| {
        let (level, limit) = stopped.unwrap_or((0.0, UserLimit::AsksNothing));
        let dominant = (limit != UserLimit::AsksNothing).then_some(user.dominant);
        (dominant, (level * user.weight).min(1.0), limit)
    };
    users.iter().zip(stopped).map(outcome).collect()
}

fn fair(topology: &Topology, demands: &[Demand], tenants: &[TenantOutcome]) -> Vec<Bandwidth> {
    let all = topology.capacities.get(OF_REGIONS).copied().unwrap_or(u64::MAX);
    let flows = topology.flows.iter().zip(demands);
    let fair = flows.map(|(flow, demand)| {
        let tenant = &tenants[flow.tenant as usize];
        let fair = match (tenant.space.limit, tenant.space.dominant) {
            (UserLimit::OwnCap | UserLimit::AsksNothing, _) | (_, None) => all,
            (_, Some(k)) => {
                let capacity = topology.space()[k] as f64;
                let got = tenant.space.share.as_f64() * capacity / tenant.demand[k].max(1) as f64;
                (demand.load.max(demand.admitted).get() as f64 * got.min(1.0)) as u64
            }
        };
        Bandwidth::from_bps(fair).max(flow.admitted)
    });
    fair.collect()
}

fn used(topology: &Topology, rates: &[f64]) -> Vec<f64> {
    let mut used = vec![0.0; topology.capacities.len()];
    for (flow, rate) in topology.flows.iter().zip(rates) {
        for (k, cost) in &flow.uses {
            used[*k] += rate * f64::from(cost.raw()) / f64::from(Cost::ONE.raw());
        }
    }
    used
}

fn guaranteed(demands: &[Demand], rates: &[f64]) -> Vec<f64> {
    let one = |(demand, rate): (&Demand, &f64)| {
        (demand.load.min(demand.admitted).get() as f64).min(*rate)
    };
    demands.iter().zip(rates).map(one).collect()
}

/// Up to where each resource may be filled.
fn usable(topology: &Topology, rules: Fairness, guaranteed: &[f64]) -> Vec<f64> {
    let keep = f64::from(100 - rules.headroom_percent.min(100)) / 100.0;
    let limit = |(k, (capacity, guaranteed)): (usize, (&u64, f64))| {
        let users = topology.flows.iter().filter(|flow| flow.uses.iter().any(|u| u.0 == k));
        let mut users: Vec<u32> = users.map(|flow| flow.tenant).collect();
        users.dedup();
        let all = *capacity as f64;
        if users.len() > 1 { (all * keep).max(guaranteed) } else { all }
    };
    topology.capacities.iter().zip(used(topology, guaranteed)).enumerate().map(limit).collect()
}

/// Part of the rates that is kept where a shared resource is filled into its headroom.
fn kept(topology: &Topology, rules: Fairness, demands: &[Demand], rates: Vec<f64>) -> Vec<f64> {
    let guaranteed = guaranteed(demands, &rates);
    let (used, by_guarantee) = (used(topology, &rates), used(topology, &guaranteed));
    let usable = usable(topology, rules, &guaranteed);
    let cut = |(at, rate): (usize, &f64)| {
        let over = topology.flows[at].uses.iter().filter(|(k, _)| used[*k] > usable[*k] + 1.0);
        let parts = over
            .map(|(k, _)| (usable[*k] - by_guarantee[*k]) / (used[*k] - by_guarantee[*k]).max(1.0));
        guaranteed[at] + (rate - guaranteed[at]) * parts.fold(1.0, f64::min)
    };
    rates.iter().enumerate().map(cut).collect()
}

/// Rest of each flow's narrowest slot, and of its narrowest resource for each who passes.
fn left(
    topology: &Topology,
    rules: Fairness,
    demands: &[Demand],
    rates: &[f64],
) -> Vec<(f64, f64)> {
    let usable = usable(topology, rules, &guaranteed(demands, rates));
    let used = used(topology, rates);
    let mut passing = vec![0.0; topology.capacities.len()];
    for (k, _) in topology.flows.iter().flat_map(|flow| &flow.uses) {
        passing[*k] += 1.0;
    }
    let of_flow = |flow: &DagFlow| {
        let mut least = (f64::INFINITY, f64::INFINITY);
        for (k, cost) in &flow.uses {
            let cost = f64::from(cost.raw()) / f64::from(Cost::ONE.raw());
            let left = (usable[*k] - used[*k]).max(0.0) / cost;
            least.0 = if *k < OF_REGIONS { least.0.min(left) } else { least.0 };
            least.1 = least.1.min(left / passing[*k]);
        }
        least
    };
    topology.flows.iter().map(of_flow).collect()
}
