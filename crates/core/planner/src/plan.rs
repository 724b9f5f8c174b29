//! Planning of one DAG on one card: from the request to the plan as a value.

use smallvec::SmallVec;
use snic_domain::{
    Cycles, Form, FormChoice, FormPreference, Infeasible, Instance, Mapping, RegionId, Slot, Stage,
    VirtualChain,
};

use crate::candidates::bitstreams;
use crate::catalogue::{PhysicalChain, PlanCatalogue};
use crate::effort::{Effort, LOOKS_OF_A_PLAN};
use crate::form::{Graph, Staging};
use crate::infeasible::Failure;
use crate::job::{Job, from_kbps};
use crate::nt_key::NtKey;
use crate::placed::PlacedStaging;
use crate::request::{Plan, PlanRequest, RegionLoad};
use crate::reservation::ReservationSum;
use crate::search::{ChainPart, Obstacles, Search};
use crate::stay::Transit;
use crate::view::View;
use crate::{Ledger, Reservation, TableRows, explain, infeasible, programs};

/// A bitstream that is loaded if a DAG needs it, and the region for it.
pub(crate) type PendingLoad<'a> = (RegionId, &'a PhysicalChain);

/// Plans one DAG; changes nothing. The same ledger, catalogue and request give the same plan on every
/// machine.
///
/// Time: O(regions × slots) for each step of a search with a bounded number of steps (see `search`).
/// Memory does not grow with the number of DAGs on the card.
///
/// # Errors
///
/// [`Infeasible`] with all shortages that were found, the hardest first.
pub fn plan(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
) -> Result<Plan, Infeasible> {
    plan_within(ledger, catalogue, request, &Effort::new())
}

/// [`plan()`] within what is left of `effort`, of which it uses a part.
///
/// # Errors
///
/// As [`plan()`]; also where the effort does not suffice.
pub fn plan_within(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
    effort: &Effort,
) -> Result<Plan, Infeasible> {
    if programs::runs_programs(ledger.profile()) {
        if !effort.spend(LOOKS_OF_A_PLAN) {
            return Err(infeasible::out_of_looks(effort));
        }
        return programs::plan(ledger, catalogue, request);
    }
    let job = Job::new(ledger, catalogue, request, effort)?;
    if !effort.spend(LOOKS_OF_A_PLAN) {
        return Err(infeasible::out_of_effort(&job));
    }
    let mut view = View::new(&job);
    let graph = job.graph();
    match find(&graph, &mut view, None) {
        Ok((placed, form)) => Ok(finish(view, placed, form)),
        Err(failure) => {
            let unlimited = || plan_nts_only(&job, &graph);
            Err(infeasible::explain(&view, failure, unlimited))
        }
    }
}

/// [`plan()`] without the reasons of a rejection.
pub(crate) fn plan_silently(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
) -> Option<Plan> {
    if programs::runs_programs(ledger.profile()) {
        return programs::plan(ledger, catalogue, request).ok();
    }
    let effort = Effort::elsewhere();
    let job = Job::new(ledger, catalogue, request, &effort).ok()?;
    effort.spend(LOOKS_OF_A_PLAN);
    let mut view = View::new(&job);
    let (placed, form) = find(&job.graph(), &mut view, None).ok()?;
    Some(finish(view, placed, form))
}

/// A placement. With loads, which are in the view already, no others are made. The view stays as it is.
fn find<'a>(
    graph: &Graph,
    view: &mut View<'a>,
    loads: Option<&[PendingLoad<'a>]>,
) -> Result<(PlacedStaging<'a>, FormChoice), Failure> {
    let is_short = view.is_anything_short();
    infeasible::check_before_search(view, is_short).map_err(Failure::BeforeSearch)?;
    let mut blocked = Obstacles::default();
    let loads = Loads { given: loads, are_needed: is_short };
    choose(graph, view, loads, &mut blocked).ok_or(Failure::Search(blocked))
}

/// A plan that counts only what NTs serve, with the reservation that it would need. It is never carried
/// out: it shows what else is short.
fn plan_nts_only(job: &Job<'_>, graph: &Graph) -> Option<Plan> {
    if !job.work.counts_packets() {
        return None;
    }
    let effort = job.effort.for_a_reason();
    let unlimited = job.nts_only(&effort);
    let mut view = View::new(&unlimited);
    let found = find(graph, &mut view, None).ok();
    job.effort.found_a_reason(&effort);
    let (placed, form) = found?;
    let plan = finish(view, placed, form);
    let profile = job.ledger.profile();
    let reservation = Reservation::of(&plan.mapping, job.dag(), job.catalogue, profile);
    Some(Plan { reservation, ..plan })
}

/// The same with these loads only.
pub(crate) fn plan_on(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
    loads: &[PendingLoad<'_>],
) -> Option<Plan> {
    let effort = Effort::elsewhere();
    let job = Job::new(ledger, catalogue, request, &effort).ok()?;
    let mut view = View::new(&job);
    let before: SmallVec<[_; 4]> =
        loads.iter().map(|(region, chain)| (*region, view.load(region.0, chain))).collect();
    let (placed, form) = find(&job.graph(), &mut view, Some(loads)).ok()?;
    before.into_iter().for_each(|(region, old)| view.regions[region.index()] = old);
    Some(finish(view, placed, form))
}

/// The loads that a placement may use.
#[derive(Debug, Clone, Copy)]
struct Loads<'l, 'a> {
    /// These are in the view already, and no others are made.
    given: Option<&'l [PendingLoad<'a>]>,
    /// Whether some NT has too little on what the view has loaded.
    are_needed: bool,
}

fn place<'a>(
    graph: &Graph,
    view: &mut View<'a>,
    (form, staging): (Form, &Staging),
    loads: Loads<'_, 'a>,
    blocked: &mut Obstacles,
) -> Option<PlacedStaging<'a>> {
    // Cuts only make a packet's way longer.
    let branches = staging.stages.iter().map(|branches| branches.len() as u64).sum();
    let least = view.job.stay(Transit::straight(staging.latency.get(), branches));
    if !view.job.has_room(least) {
        blocked.stay.get_or_insert(least);
        return None;
    }
    let staging = follow_available_chains(graph, view, staging.clone());
    let search = Search::new(view, &staging, loads.are_needed);
    let (solution, why) = match loads.given {
        Some(loads) => search.run_on(loads),
        None => search.run(),
    };
    blocked.rows = blocked.rows.or(why.rows);
    blocked.rows_min = blocked.rows_min.or(why.rows_min);
    blocked.stay = blocked.stay.or(why.stay);
    let mut chains = Vec::new();
    let mut stages = Vec::new();
    for branches in staging.stages {
        stages.push(chains.len()..chains.len() + branches.len());
        chains.extend(branches);
    }
    let solution = solution?;
    let latency = Cycles::new(solution.transit.latency);
    Some(PlacedStaging { form, chains, stages, solution, latency })
}

/// A flattened branch may have several orders. Prefers an order that a loaded chain with enough bandwidth
/// serves as a whole, or else a loadable bitstream.
fn follow_available_chains(graph: &Graph, view: &View<'_>, mut staging: Staging) -> Staging {
    let job = view.job;
    for branch in staging.stages.iter_mut().flatten() {
        let key = |n: u8| job.keys[usize::from(n)];
        if graph.is_linear(branch) {
            continue;
        }
        let keys: SmallVec<[NtKey; 8]> = branch.iter().map(|n| key(*n)).collect();
        let along = |chain: &PhysicalChain| {
            graph.order_along(branch, &chain.slots, |node, slot| key(node) == slot.key)
        };
        let shared = (0..view.regions.len()).find_map(|region| {
            let order = along(view.regions[region].chain?)?;
            let keys: SmallVec<[NtKey; 8]> = order.iter().map(|n| key(*n)).collect();
            (view.widest(region, view.sequence(&keys)) >= job.kbps).then_some(order)
        });
        let fitting = || {
            bitstreams(job, &keys[..1])
                .filter(|chain| view.classes.iter().any(|class| class.takes(chain)))
                .find_map(along)
        };
        if let Some(order) = shared.or_else(fitting) {
            *branch = order;
        }
    }
    staging
}

/// Places the sequential and the parallel form; returns the better one.
fn choose<'a>(
    graph: &Graph,
    view: &mut View<'a>,
    loads: Loads<'_, 'a>,
    blocked: &mut Obstacles,
) -> Option<(PlacedStaging<'a>, FormChoice)> {
    let cost = view.job.cost();
    let sequential = graph.sequential(cost);
    let Some(parallel) = graph.parallel(cost) else {
        let placed = place(graph, view, (Form::Sequential, &sequential), loads, blocked)?;
        let reason = "the DAG has no fork".to_owned();
        let form = FormChoice {
            chosen: Form::Sequential,
            sequential: placed.latency,
            parallel: None,
            reason,
        };
        return Some((placed, form));
    };
    let preference = view.job.dag().spec().form;
    let s1 = match preference {
        FormPreference::Parallel => None,
        _ => place(graph, view, (Form::Sequential, &sequential), loads, blocked),
    };
    // The parallel form is fastest without a cut: if that is slower already, it need not be placed.
    let is_hopeless = |s1: &PlacedStaging<'_>| {
        preference == FormPreference::Sequential || parallel.latency >= s1.latency
    };
    let s2 = match &s1 {
        Some(s1) if is_hopeless(s1) => None,
        _ => place(graph, view, (Form::Parallel, &parallel), loads, blocked),
    };
    let s1 = match (&s1, &s2) {
        (None, None) if preference == FormPreference::Parallel => {
            place(graph, view, (Form::Sequential, &sequential), loads, blocked)
        }
        _ => s1,
    };
    let latencies = [
        s1.as_ref().map_or(sequential.latency, |placed| placed.latency),
        s2.as_ref().map_or(parallel.latency, |placed| placed.latency),
    ];
    let placed_both = s1.is_some() && s2.is_some();
    let chosen = match (s1, s2) {
        (Some(s1), Some(s2)) => Some(if s2.latency < s1.latency { s2 } else { s1 }),
        (s1, s2) => s1.or(s2),
    }?;
    let reason = explain::form_reason(&chosen, preference, latencies, placed_both);
    let form = FormChoice {
        chosen: chosen.form,
        sequential: latencies[0],
        parallel: Some(latencies[1]),
        reason,
    };
    Some((chosen, form))
}

/// Reservation of the placement: [`Reservation::of`] its mapping, without looking up its NTs again.
fn reservation(job: &Job<'_>, placed: &PlacedStaging<'_>, mapping: &Mapping) -> Reservation {
    let mut sum = ReservationSum::new(job.work);
    for (part, chain) in placed.passes().flatten().zip(mapping.chains()) {
        let nts = placed.nodes(part).iter().map(|node| job.nts[usize::from(*node)]);
        sum.add(&chain.instances, nts);
    }
    let stay = job.stay(placed.solution.transit);
    sum.finish(job.dag().bandwidth(), stay, TableRows::of(mapping))
}

/// The plan as a value.
fn finish<'a>(mut view: View<'a>, placed: PlacedStaging<'a>, form: FormChoice) -> Plan {
    let job = view.job;
    let bitstream = |region: u8| {
        let planned = placed.solution.loads.iter().find(|load| load.region == region);
        let chain = planned.map(|load| load.chain).or_else(|| job.ledger.chain(RegionId(region)));
        chain.map(|chain| chain.bitstream.id.clone())
    };
    let virtual_chain = |part: &ChainPart| VirtualChain {
        nodes: job.node_ids(placed.nodes(part)),
        instances: part
            .paths
            .iter()
            .filter_map(|path| {
                Some(Instance {
                    region: RegionId(path.region),
                    bitstream: bitstream(path.region)?,
                    slots: path.slots.iter().map(|slot| Slot(*slot)).collect(),
                    bandwidth: from_kbps(path.kbps),
                })
            })
            .collect(),
    };
    let stages = placed
        .passes()
        .map(|pass| Stage { branches: pass.into_iter().map(virtual_chain).collect() })
        .collect();
    let mapping = Mapping {
        card: job.ledger.card().clone(),
        form: placed.form,
        stages,
        programs: Vec::new(),
    };
    let mut loads: Vec<RegionLoad> = placed
        .solution
        .loads
        .iter()
        .map(|load| RegionLoad {
            region: RegionId(load.region),
            bitstream: load.chain.bitstream.id.clone(),
            replaces: job.ledger.content(RegionId(load.region)).map(|old| old.id.clone()),
        })
        .collect();
    loads.sort_by_key(|load| load.region);
    let reservation = reservation(job, &placed, &mapping);
    let explanation = explain::explain(&mut view, &placed, form);
    Plan { mapping, loads, reservation, explanation }
}
