//! Requests of the simulation, drawn at random: quotas, names, DAGs, batches of DAGs.

use rand::Rng;
use rand::seq::IndexedRandom;
use snic_controller::{DagBatch, NewDag};
use snic_domain::{
    Bandwidth, ByteSize, DagId, DagName, DagSpec, Edge, FormPreference, MonthBudget, Node, NodeId,
    NtConfiguration, NtTypeId, Quota, TenantId,
};

use crate::world::{CATALOGUE, TENANTS, World, tenant};

pub fn random_tenant(world: &mut World) -> TenantId {
    tenant(world.rng.random_range(0..TENANTS))
}

/// Large, or so small that it is met.
pub fn random_quota(world: &mut World) -> Quota {
    let mut either = |small: std::ops::RangeInclusive<u64>, large: u64| {
        if world.rng.random_bool(0.5) { world.rng.random_range(small) } else { large }
    };
    let dags_max = either(1..=4, 64) as u32;
    let budget = if dags_max == 64 { u64::MAX } else { 1_000_000 * u64::from(dags_max - 1) };
    Quota {
        dags_max,
        month_budget: MonthBudget::from_micros(budget),
        bandwidth_max: Bandwidth::from_gbps(either(4..=30, 1_000)),
        memory_max: ByteSize::from_mib(either(2..=9, 4_096)),
        rules_max: either(1..=6, 256) as u32,
        machines_max: either(1..=2, 256) as u32,
        operations_max: either(1..=3, 256) as u32,
        threads_max: 128,
        ..Quota::default()
    }
}

pub fn random_name(world: &mut World) -> DagName {
    let tenant = random_tenant(world);
    let dag = DagId::new(&format!("d{}", world.rng.random_range(0..4))).expect("a label");
    DagName { tenant, dag }
}

/// Some DAGs of one tenant; some may be there already.
pub fn random_batch(world: &mut World) -> DagBatch {
    let tenant = random_tenant(world);
    let mut dags = Vec::new();
    for number in 0..4 {
        if number == 0 || world.chance(50) {
            let id = DagId::new(&format!("d{number}")).expect("a label");
            dags.push(NewDag { id, spec: random_spec(world, &tenant) });
        }
    }
    let (allow_partial, validate_only) = (world.chance(50), world.chance(10));
    DagBatch { tenant, dags, allow_partial, validate_only }
}

/// A chain, or a diamond; now and then with an NT that somebody shares with nobody. Some nodes have configurations.
pub fn random_spec(world: &mut World, of: &TenantId) -> DagSpec {
    let mut spec = random_plain_spec(world, of);
    // Another bandwidth makes another configuration, or none; nothing is drawn for it.
    let number = spec.bandwidth.get() / 100_000_000;
    let nts: Vec<NtTypeId> = spec.nodes.iter().map(|node| node.nt.clone()).collect();
    for (at, node) in (number..).zip(&mut spec.nodes) {
        // A type that has a configuration is there once.
        let is_only = nts.iter().filter(|nt| **nt == node.nt).count() == 1;
        if at % 3 == 0 && is_only {
            let json = format!("{{\"number\":{number}}}");
            node.configuration = Some(NtConfiguration::new(&json));
        }
    }
    spec
}

fn random_plain_spec(world: &mut World, of: &TenantId) -> DagSpec {
    let bandwidth = Bandwidth::from_mbps(world.rng.random_range(1..=120) * 100);
    let nts: Vec<NtTypeId> = CATALOGUE.nts.iter().map(|nt| nt.id.clone()).collect();
    let length = world.rng.random_range(1..=4);
    let mut chosen: Vec<NtTypeId> =
        (0..length).map(|_| nts.choose(&mut world.rng).expect("there are NTs").clone()).collect();
    if world.chance(8) {
        let owner = if world.chance(70) { of.clone() } else { random_tenant(world) };
        chosen[0] = NtTypeId::new(&format!("{owner}.own")).expect("an owner and a label");
    }
    if length < 4 || world.chance(50) {
        return DagSpec::chain(&chosen, bandwidth);
    }
    let id = |i: usize| NodeId::new(&format!("n{i}")).expect("a label");
    let nodes = chosen.into_iter().enumerate().map(|(i, nt)| Node::new(id(i), nt)).collect();
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3)];
    let edges = edges.map(|(from, to)| Edge { from: id(from), to: id(to) }).to_vec();
    let forms = [FormPreference::Auto, FormPreference::Parallel, FormPreference::Sequential];
    let form = *forms.choose(&mut world.rng).expect("three forms");
    DagSpec { nodes, edges, form, ..DagSpec::chain(&[], bandwidth) }
}
