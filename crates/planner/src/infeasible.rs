//! Why a DAG has no place: everything that is short, with numbers, and no other tenant's names.

use snic_domain::limits::REGIONS_MAX;
use snic_domain::{Infeasible, Node, NodeId, Resource, Shortage};

use crate::candidates::{bitstreams, classes};
use crate::catalogue::NtKey;
use crate::plan::Job;
use crate::search::Blocked;
use crate::view::{View, fresh_capacity, from_kbps};

/// An NT that the tenant does not see. Absent and not visible read the same.
pub(crate) fn unknown_nt(node: &Node) -> Shortage {
    Shortage {
        resource: Resource::Bitstreams,
        required: 1,
        available: 0,
        nodes: vec![node.id.clone()],
        detail: format!("NT type {} is not one that the tenant may use", node.nt),
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

/// What is short whatever the mapping: ingress, egress, a row for the DAG.
fn of_the_card(job: &Job<'_>) -> Vec<Shortage> {
    let bandwidth = job.dag().bandwidth().get();
    let ingress = job.ledger.ingress_residual() + job.own_ingress();
    let egress = job.ledger.egress_residual() + job.own_egress();
    let rows = job.rows_left.dags.into();
    [
        whole_dag_shortage(
            Resource::IngressBandwidth,
            bandwidth,
            ingress.get(),
            "what the ingress has left",
        ),
        whole_dag_shortage(
            Resource::EgressBandwidth,
            bandwidth,
            egress.get(),
            "what the egress has left",
        ),
        whole_dag_shortage(Resource::TableRows, 1, rows, "rows of the DAG table"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Adds what is short of NTs to what is short of the card as a whole; nothing where neither is.
pub(crate) fn beforehand(view: &View<'_>) -> Result<(), Infeasible> {
    let mut shortages = of_the_card(view.job);
    shortages.extend(of_nts(view));
    if shortages.is_empty() { Ok(()) } else { Err(hardest_first(shortages)) }
}

/// After a search that found no place.
pub(crate) fn of_the_search(view: &View<'_>, blocked: Blocked) -> Infeasible {
    let mut shortages = Vec::new();
    if let Some(needed) = blocked.memory {
        let left = view.memory;
        let detail = "what is left for the NTs' memory, in whole pages";
        shortages.extend(whole_dag_shortage(Resource::Memory, needed, left, detail));
    }
    if let Some(rows) = blocked.rows {
        for (table, needed, left) in rows.beside(view.job.rows_left) {
            let detail = format!("rows of the {table} table");
            shortages.extend(whole_dag_shortage(
                Resource::TableRows,
                needed.into(),
                left.into(),
                &detail,
            ));
        }
    }
    if shortages.is_empty() {
        shortages.push(together(view));
    }
    hardest_first(shortages)
}

/// First what no waiting helps with, then what others may free.
fn hardest_first(mut shortages: Vec<Shortage>) -> Infeasible {
    shortages.sort_by_key(|shortage| match shortage.resource {
        Resource::Bitstreams => 0,
        Resource::IngressBandwidth | Resource::EgressBandwidth => 1,
        Resource::NtBandwidth => 2,
        Resource::Regions => 3,
        Resource::Memory => 4,
        Resource::TableRows | Resource::Passes => 5,
    });
    Infeasible { shortages }
}

/// Each NT would do alone; all of them together do not.
fn together(view: &View<'_>) -> Shortage {
    let available = u64::from(view.loadable_now().count_ones());
    let detail = "each NT alone has a place, all of the DAG together needs more regions";
    Shortage {
        resource: Resource::Regions,
        required: available + 1,
        available,
        nodes: Vec::new(),
        detail: detail.to_owned(),
    }
}

/// What is short of each NT by itself: of the loaded ones, and of regions for more of them. Where
/// this is not empty, no mapping exists: every mapping sends the whole bandwidth through each node.
fn of_nts(view: &View<'_>) -> Vec<Shortage> {
    let keys = &view.job.keys;
    (0..keys.len())
        .filter(|node| !keys[..*node].contains(&keys[*node]))
        .flat_map(|node| of_nt(view, node))
        .collect()
}

/// The same for the NT of one node and of all others like it.
fn of_nt(view: &View<'_>, node: usize) -> Vec<Shortage> {
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
    let loads = Loads::of(view, key);
    if !loads.any && !held {
        let detail = format!("no bitstream that the tenant may use holds {}", node.nt);
        return vec![short(Resource::Bitstreams, 1, 0, detail)];
    }
    if left.saturating_add(loads.gain) >= demand {
        return Vec::new();
    }
    let (required, available) = (from_kbps(demand).get(), from_kbps(left).get());
    let detail = format!("what the loaded instances of {} have left", node.nt);
    let mut shortages = vec![short(Resource::NtBandwidth, required, available, detail)];
    if loads.any {
        let needed = (demand - left).div_ceil(loads.best.max(1)).max(loads.regions + 1);
        let detail = format!("regions that are free or hold a victim and fit {}", node.nt);
        shortages.push(short(Resource::Regions, needed, loads.regions, detail));
    } else {
        let detail = format!("no bitstream that the tenant may load holds {}", node.nt);
        shortages.push(short(Resource::Bitstreams, 1, 0, detail));
    }
    shortages
}

/// What loading every region that can be loaded would bring of one NT.
#[derive(Debug, Default)]
struct Loads {
    /// Whether there is a bitstream for it at all.
    any: bool,
    /// Most that one region would serve, in kbit/s.
    best: u64,
    /// Regions in which a load would serve more than what is there now.
    regions: u64,
    /// How much more all of them would serve, in kbit/s.
    gain: u64,
}

impl Loads {
    fn of(view: &View<'_>, key: NtKey) -> Self {
        let mut loads = Self::default();
        let mut most = [0u64; REGIONS_MAX];
        let classes = classes(view);
        for chain in bitstreams(view.job, &[key]) {
            loads.any = true;
            let capacity = fresh_capacity(chain, &[key]);
            loads.best = loads.best.max(capacity);
            for class in classes.iter().filter(|class| class.takes(chain)) {
                let fitting = (0..REGIONS_MAX).filter(|r| class.regions >> r & 1 == 1);
                fitting.for_each(|region| most[region] = most[region].max(capacity));
            }
        }
        for (region, capacity) in most.into_iter().enumerate() {
            let gain = capacity.saturating_sub(view.left_of(region, key));
            loads.regions += u64::from(gain > 0);
            loads.gain = loads.gain.saturating_add(gain);
        }
        loads
    }
}
