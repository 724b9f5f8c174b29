//! Why a DAG has no feasible placement: every shortage, with numbers and without names of other tenants.

use snic_domain::limits::REGIONS_MAX;
use snic_domain::{Infeasible, Node, NodeId, RegionId, Resource, Shortage};

use crate::candidates::{bitstreams, classes, fits_region};
use crate::catalogue::NtKey;
use crate::fewest::{FurtherRegions, further_regions};
use crate::plan::{Job, Plan};
use crate::search::Blocked;
use crate::view::{View, fresh_capacity, from_kbps};
use crate::work;

/// An NT that the tenant may not use. The text is the same whether it exists or not.
pub(crate) fn unknown_nt(node: &Node) -> Shortage {
    Shortage {
        resource: Resource::Bitstreams,
        required: 1,
        available: 0,
        nodes: vec![node.id.clone()],
        detail: format!("NT type {} does not exist or is not visible to the tenant", node.nt),
    }
}

fn whole_dag_shortage(
    resource: Resource,
    required: u64,
    available: u64,
    detail: &str,
) -> Option<Shortage> {
    let detail = detail.to_owned();
    let short = Shortage { resource, required, available, nodes: Vec::new(), detail };
    (required > available).then_some(short)
}

/// Shortages of the card that no mapping avoids: ingress, egress, a row of the DAG table.
fn card_shortages(job: &Job<'_>) -> Vec<Shortage> {
    let bandwidth = job.dag().bandwidth();
    let ingress = job.ledger.ingress_residual() + job.own_ingress();
    let egress = job.ledger.egress_residual() + job.own_egress();
    let rows = job.rows_left.dags.into();
    [
        whole_dag_shortage(
            Resource::IngressBandwidth,
            job.work.ingress(bandwidth).get(),
            ingress.get(),
            "bandwidth left at the ingress",
        ),
        whole_dag_shortage(
            Resource::EgressBandwidth,
            job.work.egress(bandwidth).get(),
            egress.get(),
            "bandwidth left at the egress",
        ),
        whole_dag_shortage(Resource::TableRows, 1, rows, "rows left in the DAG table"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Checks what is necessary for any mapping, before a search: capacity of the card, and of each NT by
/// itself.
pub(crate) fn check_before_search(view: &View<'_>) -> Result<(), Infeasible> {
    let mut shortages = card_shortages(view.job);
    shortages.extend(nt_shortages(view));
    if shortages.is_empty() { Ok(()) } else { Err(hardest_first(shortages)) }
}

/// The shortages after a search that found no placement.
/// `bandwidth_only` is the plan that counts no packets, where there is one.
pub(crate) fn after_search(
    view: &View<'_>,
    blocked: Blocked,
    bandwidth_only: Option<&Plan>,
) -> Infeasible {
    let mut shortages = bandwidth_only.map_or_else(Vec::new, |plan| pass_shortages(view.job, plan));
    if let Some(needed) = blocked.memory {
        let left = view.memory;
        let detail = "memory left for the state of NTs, in whole pages";
        shortages.extend(whole_dag_shortage(Resource::Memory, needed, left, detail));
    }
    if let Some(rows) = blocked.rows {
        for (table, needed, left) in rows.beside(view.job.rows_left) {
            let detail = format!("rows left in the {table} table");
            shortages.extend(whole_dag_shortage(
                Resource::TableRows,
                needed.into(),
                left.into(),
                &detail,
            ));
        }
    }
    if shortages.is_empty() {
        shortages.extend(regions_shortage(view, &[]));
    }
    if shortages.is_empty() {
        shortages.push(search_shortage(view.job));
    }
    hardest_first(shortages)
}

/// What a plan that counts bandwidth only is short of, the worst port and the worst slot.
fn pass_shortages(job: &Job<'_>, plan: &Plan) -> Vec<Shortage> {
    let profile = job.ledger.profile();
    let is_new = |region: RegionId| plan.loads.iter().any(|load| load.region == region);
    let short = |resource, required, available, detail: String| Shortage {
        resource,
        required,
        available,
        nodes: Vec::new(),
        detail,
    };
    let sizes = &job.dag().spec().packet_sizes;
    let ports = plan.reservation.ports.iter().map(|port| {
        let region = port.region;
        let held = job.ledger.port_left(region, job.own_port(region));
        let left = if is_new(region) { work::port_max(profile) } else { held };
        let passes = plan.mapping.instances().filter(|i| i.region == region).count();
        let detail = format!(
            "{passes} passes through region {region} with packet sizes {sizes}; smaller packets \
             and more passes take more of a region's port"
        );
        short(Resource::RegionPort, port.cycles, left, detail)
    });
    let credits = plan.reservation.shares.iter().map(|share| {
        let (region, slot) = (share.region, share.slot);
        let held = job.ledger.credits_left(region, slot, job.own_credits(region, slot));
        let left = if is_new(region) { work::credits_max(profile) } else { held };
        let detail = format!(
            "packets of sizes {sizes} on their way through region {region}, slot {}",
            slot.0
        );
        short(Resource::Credits, share.credits, left, detail)
    });
    let excess = |s: &Shortage| s.required.saturating_sub(s.available);
    let worst = |all: &mut dyn Iterator<Item = Shortage>| {
        all.filter(|s| s.required > s.available).max_by_key(excess)
    };
    let found = [worst(&mut ports.into_iter()), worst(&mut credits.into_iter())];
    found.into_iter().flatten().collect()
}

/// Sorts shortages: first those that waiting does not resolve, then those that other DAGs may resolve.
fn hardest_first(mut shortages: Vec<Shortage>) -> Infeasible {
    shortages.sort_by_key(|shortage| match shortage.resource {
        Resource::Bitstreams => 0,
        Resource::IngressBandwidth | Resource::EgressBandwidth => 1,
        Resource::NtBandwidth | Resource::RegionPort | Resource::Credits => 2,
        Resource::Regions => 3,
        Resource::Memory => 4,
        Resource::TableRows | Resource::Passes => 5,
        Resource::SearchSteps => 6,
    });
    Infeasible { shortages }
}

/// Regions that are missing for the whole DAG, if more of them would do; `nodes` are those whose NTs have too
/// little by themselves.
fn regions_shortage(view: &View<'_>, nodes: &[NodeId]) -> Option<Shortage> {
    let FurtherRegions { available, more, is_exact } = further_regions(view)?;
    let what = "free or victim regions that fit a bitstream with NTs of the DAG";
    let least = if is_exact { "" } else { "; the number is a lower bound" };
    (more > 0).then(|| Shortage {
        resource: Resource::Regions,
        required: available + more,
        available,
        nodes: nodes.to_vec(),
        detail: format!("{what}{least}"),
    })
}

/// There was no effort left for a search.
pub(crate) fn out_of_effort(job: &Job<'_>) -> Infeasible {
    Infeasible { shortages: vec![search_shortage(job)] }
}

/// The search ended without an answer.
fn search_shortage(job: &Job<'_>) -> Shortage {
    let made = job.effort.spent().into();
    let detail = "the search for a placement ended without one; a DAG with fewer NTs or forks takes \
                  fewer steps";
    Shortage {
        resource: Resource::SearchSteps,
        required: made + 1,
        available: made,
        nodes: Vec::new(),
        detail: detail.to_owned(),
    }
}

/// Shortages of each NT by itself: bandwidth of loaded instances, and regions for more instances. If there
/// are any, no mapping exists, because every mapping sends the whole bandwidth through each node.
fn nt_shortages(view: &View<'_>) -> Vec<Shortage> {
    let keys = &view.job.keys;
    let mut shortages: Vec<Shortage> = (0..keys.len())
        .filter(|node| !keys[..*node].contains(&keys[*node]))
        .flat_map(|node| shortages_of_nt(view, node))
        .collect();
    let short = |resource| shortages.iter().filter(move |s| s.resource == resource);
    if short(Resource::Bitstreams).next().is_none() {
        let nodes: Vec<NodeId> =
            short(Resource::NtBandwidth).flat_map(|s| s.nodes.iter().cloned()).collect();
        if !nodes.is_empty() {
            shortages.extend(regions_shortage(view, &nodes));
        }
    }
    shortages
}

/// The same for the NT of `node` and all other nodes of the same type.
fn shortages_of_nt(view: &View<'_>, node: usize) -> Vec<Shortage> {
    let job = view.job;
    let (key, node) = (job.keys[node], &job.dag().nodes()[node]);
    let alike = || job.dag().nodes().iter().zip(&job.keys).filter(|(_, k)| **k == key);
    let demand = job.kbps.saturating_mul(alike().count() as u64);
    let left = (0..view.regions.len()).map(|region| view.left_of(region, key)).sum::<u64>();
    if left >= demand {
        return Vec::new();
    }
    let held = view.regions.iter().filter_map(|r| r.chain).any(|chain| chain.holds(&[key]));
    let nodes: Vec<NodeId> = alike().map(|(n, _)| n.id.clone()).collect();
    let short = |resource, required, available, detail: String| Shortage {
        resource,
        required,
        available,
        nodes: nodes.clone(),
        detail,
    };
    let loads = LoadGain::of(view, key);
    if !loads.any && !held {
        let detail = format!("no bitstream that the tenant may use contains {}", node.nt);
        return vec![short(Resource::Bitstreams, 1, 0, detail)];
    }
    if left.saturating_add(loads.gain) >= demand {
        return Vec::new();
    }
    let (required, available) = (from_kbps(demand).get(), from_kbps(left).get());
    let detail = format!("bandwidth left on the loaded instances of {}", node.nt);
    let mut shortages = vec![short(Resource::NtBandwidth, required, available, detail)];
    if !loads.any {
        let detail = format!("no bitstream that the tenant may load contains {}", node.nt);
        shortages.push(short(Resource::Bitstreams, 1, 0, detail));
    } else if !loads.fits {
        let detail = format!("no bitstream that fits a region of the card contains {}", node.nt);
        shortages.push(short(Resource::Bitstreams, 1, 0, detail));
    }
    shortages
}

/// Bandwidth of one NT gained by loading every region that can be loaded.
#[derive(Debug, Default)]
struct LoadGain {
    /// Whether any bitstream contains it.
    any: bool,
    /// Whether one of these fits a region of the card, whatever that holds now.
    fits: bool,
    /// How much more all of them would serve together, in kbit/s.
    gain: u64,
}

impl LoadGain {
    fn of(view: &View<'_>, key: NtKey) -> Self {
        let mut loads = Self::default();
        let mut most = [0u64; REGIONS_MAX];
        let classes = classes(view);
        let card = view.job.ledger.profile();
        for chain in bitstreams(view.job, &[key]) {
            loads.any = true;
            loads.fits |= card.regions().any(|(_, region)| fits_region(region, chain));
            let capacity = fresh_capacity(chain, &[key]);
            for class in classes.iter().filter(|class| class.takes(chain)) {
                let fitting = (0..REGIONS_MAX).filter(|r| class.regions >> r & 1 == 1);
                fitting.for_each(|region| most[region] = most[region].max(capacity));
            }
        }
        for (region, capacity) in most.into_iter().enumerate() {
            let gain = capacity.saturating_sub(view.left_of(region, key));
            loads.gain = loads.gain.saturating_add(gain);
        }
        loads
    }
}
