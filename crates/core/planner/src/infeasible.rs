//! Why a DAG has no feasible placement: every shortage, with numbers and without names of other tenants.

use smallvec::SmallVec;
use snic_domain::{Infeasible, NodeId, RegionId, Resource, Shortage, region_numbers};

use crate::candidates::bitstreams;
use crate::catalogue::PhysicalChain;
use crate::classes::{fits_region, regions_in};
use crate::effort::Effort;
use crate::fewest::{FurtherRegions, further_regions};
use crate::job::{Job, NtTotal, from_kbps};
use crate::nt_key::NtKey;
use crate::region::RegionCondition;
use crate::request::Plan;
use crate::reservation::Reservation;
use crate::search::Obstacles;
use crate::stay::PacketOccupancy;
use crate::view::{View, fresh_bandwidth};
use crate::work;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The card as a whole is short, or these NTs are: nothing was searched.
    BeforeSearch(SmallVec<[NtShort; 2]>),
    /// The search found no placement.
    Search(Obstacles),
}

fn whole_dag_shortage(
    resource: Resource,
    required: u64,
    available: u64,
    detail: &str,
) -> Option<Shortage> {
    (required > available).then(|| {
        let (nodes, detail) = (Vec::new(), detail.to_owned());
        Shortage { resource, required, available, nodes, detail }
    })
}

/// Shortages of the card that no mapping avoids: ingress, egress, memory and its bandwidth, a row of the DAG table.
fn card_shortages(job: &Job<'_>) -> impl Iterator<Item = Shortage> {
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
        whole_dag_shortage(
            Resource::Memory,
            job.memory,
            job.ledger.memory_residual().get(),
            "memory left for the state of NTs, in whole pages",
        ),
        whole_dag_shortage(
            Resource::MemoryBandwidth,
            job.memory_rate,
            job.ledger.memory_rate_left(job.held.map_or(0, Reservation::memory_rate)),
            "bandwidth left of the on-board memory, which all NTs of the card share",
        ),
        whole_dag_shortage(Resource::TableRows, 1, rows, "rows left in the DAG table"),
    ]
    .into_iter()
    .flatten()
}

/// Checks what is necessary for any mapping, before a search: capacity of the card, and of each NT by
/// itself. `is_short` says whether an NT has too little on what the view has loaded.
///
/// # Errors
///
/// The NTs that are short, if any: otherwise it is the card.
pub(crate) fn check_before_search(
    view: &View<'_>,
    is_short: bool,
) -> Result<(), SmallVec<[NtShort; 2]>> {
    let nts = if is_short { nts_short(view) } else { SmallVec::new() };
    let is_possible = nts.is_empty() && card_shortages(view.job).next().is_none();
    if is_possible { Ok(()) } else { Err(nts) }
}

/// Every shortage behind a failure. `unlimited` makes a plan that counts no passes, where there is one.
pub(crate) fn explain(
    view: &View<'_>,
    failure: Failure,
    unlimited: impl FnOnce() -> Option<Plan>,
) -> Infeasible {
    let mut found = match failure {
        Failure::BeforeSearch(nts) => {
            let mut shortages: Vec<Shortage> = card_shortages(view.job).collect();
            shortages.extend(nt_shortages(view, &nts));
            hardest_first(shortages)
        }
        Failure::Search(blocked) => after_search(view, blocked, unlimited().as_ref()),
    };
    report_cordoned(view.job, &mut found);
    found
}

/// Regions that nobody may place anything in are why others are short: says so where it is about regions or what is
/// loaded in them.
fn report_cordoned(job: &Job<'_>, found: &mut Infeasible) {
    let is_cordoned = |id: RegionId| job.ledger.condition(id) == RegionCondition::Cordoned;
    let cordoned = job.ledger.profile().regions().filter(|(id, _)| is_cordoned(*id)).count();
    if cordoned == 0 {
        return;
    }
    let all = job.ledger.profile().regions.len();
    for shortage in &mut found.shortages {
        let is_of_regions = matches!(
            shortage.resource,
            Resource::Regions | Resource::NtBandwidth | Resource::NtPackets
        );
        if is_of_regions {
            shortage.detail += &format!(
                "; {cordoned} of the card's {all} regions are cordoned, so that nothing new is placed there"
            );
        }
    }
}

/// The shortages after a search that found no placement. `nts_only` is a plan that counts
/// only what NTs serve, if there is one.
fn after_search(view: &View<'_>, blocked: Obstacles, nts_only: Option<&Plan>) -> Infeasible {
    let mut shortages = nts_only.map_or_else(Vec::new, |plan| pass_shortages(view.job, plan));
    if let Some(stay) = blocked.stay {
        shortages.extend(stay_shortages(view.job, stay));
    }
    if let Some(rows) = blocked.rows.or(blocked.rows_min) {
        let least = if blocked.rows.is_some() { "" } else { "; the number is a lower bound" };
        for (table, needed, left) in rows.beside(view.job.rows_left) {
            let detail = format!("rows left in the {table} table{least}");
            shortages.extend(whole_dag_shortage(
                Resource::TableRows,
                needed.into(),
                left.into(),
                &detail,
            ));
        }
    }
    if shortages.is_empty() {
        shortages.extend(regions_shortage(view, &[], Vec::new));
        shortages.extend(view.job.totals.iter().filter_map(|total| image_shortage(view, total)));
    }
    if shortages.is_empty() {
        shortages.push(search_shortage(view.job.effort));
    }
    hardest_first(shortages)
}

/// The worst port and the worst slot of a plan that counted only what NTs serve.
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

/// Shortages of what packets take of the card while they are on it.
fn stay_shortages(job: &Job<'_>, stay: PacketOccupancy) -> impl Iterator<Item = Shortage> {
    let (sizes, left) = (&job.dag().spec().packet_sizes, job.stay_left());
    let store = format!(
        "left in the card's packet store for promises; packets of sizes {sizes} are in it as long as their \
         way over the card takes"
    );
    let reads = format!(
        "beats of the card's packet store left for promises; packets of sizes {sizes} are read once for each \
         branch of each pass, and when they go out"
    );
    let sync = format!(
        "left in the card's synchronization buffer for promises; packets of sizes {sizes} wait in it for the \
         branches of a fork"
    );
    let lookups = format!(
        "look-ups left of the scheduler for promises; packets of sizes {sizes} take one for each branch of each pass"
    );
    [
        whole_dag_shortage(Resource::SchedulerLookups, stay.lookups, left.lookups, &lookups),
        whole_dag_shortage(Resource::StoreReads, stay.reads, left.reads, &reads),
        whole_dag_shortage(Resource::PacketStore, stay.store, left.store, &store),
        whole_dag_shortage(Resource::SyncEntries, stay.sync, left.sync, &sync),
    ]
    .into_iter()
    .flatten()
}

/// Sorts shortages: first those that waiting does not resolve, then those that other DAGs may resolve.
fn hardest_first(mut shortages: Vec<Shortage>) -> Infeasible {
    shortages.sort_by_key(|shortage| match shortage.resource {
        Resource::Bitstreams => 0,
        Resource::IngressBandwidth | Resource::EgressBandwidth => 1,
        Resource::PacketStore | Resource::SyncEntries | Resource::SchedulerLookups => 1,
        Resource::MemoryBandwidth | Resource::StoreReads => 1,
        Resource::NtBandwidth | Resource::NtPackets => 2,
        Resource::RegionPort | Resource::Credits => 2,
        Resource::Threads | Resource::ReceiveBandwidth => 3,
        Resource::Regions => 3,
        Resource::Memory | Resource::ProgramMemory => 4,
        Resource::TableRows | Resource::Passes => 5,
        Resource::SearchSteps | Resource::Cards => 6,
    });
    Infeasible { shortages }
}

/// The regions that the DAG is short of, if more of them would help; `nodes` gives those of `nts`,
/// the NTs that have too little bandwidth by themselves.
fn regions_shortage(
    view: &View<'_>,
    nts: &[NtShort],
    nodes: impl FnOnce() -> Vec<NodeId>,
) -> Option<Shortage> {
    let left = |total: &NtTotal| {
        let known = nts.iter().find(|short| short.total.key == total.key);
        known.map_or_else(|| view.left_of_all(total.key), |short| short.left)
    };
    let FurtherRegions { available, more, is_exact } = further_regions(view, left)?;
    let what = "free or victim regions that fit a bitstream with NTs of the DAG";
    let least = if is_exact { "" } else { "; the number is a lower bound" };
    (more > 0).then(|| Shortage {
        resource: Resource::Regions,
        required: available + more,
        available,
        nodes: nodes(),
        detail: format!("{what}{least}"),
    })
}

/// There was no effort left for a search.
pub(crate) fn out_of_effort(job: &Job<'_>) -> Infeasible {
    out_of_looks(job.effort)
}

/// The same where no search is needed.
pub(crate) fn out_of_looks(effort: &Effort) -> Infeasible {
    Infeasible { shortages: vec![search_shortage(effort)] }
}

/// The search ended without an answer.
fn search_shortage(effort: &Effort) -> Shortage {
    let made = effort.spent().into();
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

/// An NT that has too little on loaded instances and on whatever could be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NtShort {
    total: NtTotal,
    /// Bandwidth left on loaded instances, in kbit/s.
    left: u64,
    /// Whether an instance is loaded.
    is_held: bool,
    loads: LoadGain,
}

/// The NTs that are short by themselves. If there are any, no mapping exists, because every mapping sends the
/// whole bandwidth through each node.
fn nts_short(view: &View<'_>) -> SmallVec<[NtShort; 2]> {
    let short = |total: &NtTotal| {
        let left = view.left_of_all(total.key);
        if left >= total.kbps {
            return None;
        }
        let mut held = view.regions.iter().filter_map(|region| region.chain);
        let is_held = held.any(|chain| chain.holds(&[total.key]));
        let loads = LoadGain::of(view, total.key);
        let is_short = !loads.any && !is_held || left.saturating_add(loads.gain) < total.kbps;
        is_short.then_some(NtShort { total: *total, left, is_held, loads })
    };
    view.job.totals.iter().filter_map(short).collect()
}

/// Their shortages: bandwidth of loaded instances, and regions for more instances.
fn nt_shortages(view: &View<'_>, nts: &[NtShort]) -> Vec<Shortage> {
    let mut shortages = Vec::with_capacity(nts.len() + 1);
    let of_packets = keys_short_of_packets(view, nts);
    for short in nts {
        let resource = match of_packets.contains(&short.total.key) {
            true => Resource::NtPackets,
            false => Resource::NtBandwidth,
        };
        push_shortages_of_nt(view.job, short, resource, &mut shortages);
    }
    let is_loadable = shortages.iter().all(|s| s.resource != Resource::Bitstreams);
    if !nts.is_empty() && is_loadable {
        let nodes = || shortages.iter().flat_map(|s| s.nodes.iter().cloned()).collect();
        let regions = regions_shortage(view, nts, nodes);
        shortages.extend(regions);
    }
    shortages.extend(nts.iter().filter_map(|short| image_shortage(view, &short.total)));
    shortages
}

/// An NT that has too little on loaded instances, where a region could be loaded with it if a bitstream had an image
/// for that region: the first such bitstream, by id.
fn image_shortage(view: &View<'_>, total: &NtTotal) -> Option<Shortage> {
    if view.left_of_all(total.key) >= total.kbps {
        return None;
    }
    let lacking = |chain: &PhysicalChain| {
        let classes = view.classes.iter().filter(|class| class.lacks_image_of(chain));
        classes.fold(0, |set, class| set | class.regions)
    };
    let keys = [total.key];
    let mut all = bitstreams(view.job, &keys).map(|of| (of, lacking(of)));
    let (of, lacking) = all.find(|(_, set)| *set != 0)?;
    let numbers = |set: u32| {
        let regions: Vec<_> = regions_in(set).map(|region| RegionId(region as u8)).collect();
        region_numbers(&regions)
    };
    let detail = format!(
        "no image of {} for a region that is free: images are there for regions {}; upload one for one of the regions \
         {}",
        of.bitstream.id,
        region_numbers(&of.bitstream.images.regions()),
        numbers(lacking)
    );
    let nodes = nodes_of(view.job, total);
    Some(Shortage { resource: Resource::Bitstreams, required: 1, available: 0, nodes, detail })
}

/// The nodes that run an NT.
fn nodes_of(job: &Job<'_>, total: &NtTotal) -> Vec<NodeId> {
    let alike = job.dag().nodes().iter().zip(&job.keys).filter(|(_, k)| **k == total.key);
    alike.map(|(n, _)| n.id.clone()).collect()
}

fn push_shortages_of_nt(
    job: &Job<'_>,
    short: &NtShort,
    resource: Resource,
    shortages: &mut Vec<Shortage>,
) {
    let NtShort { total, left, is_held, loads } = *short;
    let nt = &job.dag().nodes()[total.first].nt;
    let nodes = || nodes_of(job, &total);
    let none = |detail: String| Shortage {
        resource: Resource::Bitstreams,
        required: 1,
        available: 0,
        nodes: nodes(),
        detail,
    };
    if !loads.any && !is_held {
        shortages.push(none(format!("no bitstream that the tenant may use contains {nt}")));
        return;
    }
    let sizes = &job.dag().spec().packet_sizes;
    let (needed, left) = (from_kbps(total.kbps), from_kbps(left));
    let (required, available, detail) = match resource {
        Resource::NtPackets => (
            sizes.packets_per_second(needed),
            job.work.packets(left),
            format!("packets that the loaded instances of {nt} still take, of sizes {sizes}"),
        ),
        _ => {
            let detail = format!("bandwidth left on the loaded instances of {nt}");
            (needed.get(), left.get(), detail)
        }
    };
    shortages.push(Shortage { resource, required, available, nodes: nodes(), detail });
    if !loads.any {
        shortages.push(none(format!("no bitstream that the tenant may load contains {nt}")));
    } else if !loads.fits {
        shortages.push(none(format!("no bitstream that fits a region of the card contains {nt}")));
    }
}

/// Those of the NTs that would not be short if their instances took any number of packets.
fn keys_short_of_packets(view: &View<'_>, nts: &[NtShort]) -> SmallVec<[NtKey; 2]> {
    let has_limit = |short: &&NtShort| {
        let nt = view.job.catalogue.nt(&view.job.dag().nodes()[short.total.first].nt);
        nt.is_some_and(|nt| nt.packets_per_second_max.is_some())
    };
    let mut keys: SmallVec<[NtKey; 2]> =
        nts.iter().filter(has_limit).map(|short| short.total.key).collect();
    if !keys.is_empty() {
        let job = view.job.bits_only();
        let of_bits = nts_short(&View::new(&job));
        keys.retain(|key| of_bits.iter().all(|short| short.total.key != *key));
    }
    keys
}

/// Bandwidth of one NT gained by loading every region that can be loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LoadGain {
    /// Whether any bitstream contains it.
    any: bool,
    /// Whether one of these fits a region of the card, whatever that holds now.
    fits: bool,
    /// Further bandwidth that all of them would serve together, in kbit/s.
    gain: u64,
}

impl LoadGain {
    fn of(view: &View<'_>, key: NtKey) -> Self {
        let mut loads = Self::default();
        // By class.
        let mut most: SmallVec<[u64; 4]> = SmallVec::from_elem(0, view.classes.len());
        let card = view.job.ledger.profile();
        for chain in bitstreams(view.job, &[key]) {
            loads.any = true;
            loads.fits |= card.regions().any(|(id, region)| fits_region(id, region, chain));
            let capacity = fresh_bandwidth(chain, key, &view.job.work);
            for (class, most) in view.classes.iter().zip(&mut most) {
                if capacity > *most && class.takes(chain) {
                    *most = capacity;
                }
            }
        }
        for (class, most) in view.classes.iter().zip(most) {
            for region in regions_in(class.regions) {
                let gain = most.saturating_sub(view.left_of(region, key));
                loads.gain = loads.gain.saturating_add(gain);
            }
        }
        loads
    }
}
