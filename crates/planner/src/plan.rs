//! One DAG against one card: the request, the plan as a value, and the way from one to the other.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use snic_domain::{
    Bandwidth, BitstreamId, Cycles, Dag, DagName, Form, FormChoice, FormPreference, Infeasible,
    Instance, Mapping, NodeId, NtTypeId, RegionId, Slot, Stage, TenantId, VirtualChain,
};

use crate::candidates::{bitstreams, classes};
use crate::catalogue::{Catalogue, Chain, NtKey};
use crate::form::{Graph, Nodes, PassCost, Staging};
use crate::search::{Blocked, Part, Search, Solution};
use crate::view::{View, from_kbps, kbps};
use crate::{Ledger, Reservation, TableRows, explain, infeasible};

/// A DAG that wants a place.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Its name. What the ledger holds under it counts as released.
    pub name: &'a DagName,
    /// What it wants.
    pub dag: &'a Dag,
    /// The mapping on the card that an update replaces. The regions it uses keep their content
    /// until the tables flip, so this plan does not load them.
    pub previous: Option<&'a Mapping>,
}

/// A region to be loaded before the plan can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The region; nobody uses it.
    pub region: RegionId,
    /// What it is to hold.
    pub bitstream: BitstreamId,
    /// The victim that it holds now.
    pub replaces: Option<BitstreamId>,
}

/// A place for a DAG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Where it sits.
    pub mapping: Mapping,
    /// What has to be loaded first, by region.
    pub loads: Vec<Load>,
    /// What it takes, to be held in the ledger once the loads are set as contents. With a previous
    /// mapping, the elementwise maximum with what that one holds fits, too.
    pub reservation: Reservation,
    /// Why it sits there.
    pub explanation: snic_domain::Explanation,
}

/// A request with what planning asks of it again and again.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) request: &'a Request<'a>,
    /// The NT of each node.
    pub(crate) keys: SmallVec<[NtKey; 8]>,
    /// The bits of all keys.
    pub(crate) mask: u64,
    pub(crate) kbps: u64,
    /// Memory is short: what takes less of it comes before what leaves more headroom.
    pub(crate) is_thrifty: bool,
    /// Rows of the tables without what the DAG holds.
    pub(crate) rows_left: TableRows,
    held: Option<&'a Reservation>,
}

impl<'a> Job<'a> {
    /// Refuses NTs that the tenant does not see; whether they exist is not told.
    fn new(
        ledger: &'a Ledger,
        catalogue: &'a Catalogue,
        request: &'a Request<'a>,
    ) -> Result<Self, Infeasible> {
        let tenant = &request.name.tenant;
        let mut keys = SmallVec::new();
        let mut unknown = Vec::new();
        for node in request.dag.nodes() {
            match catalogue.usable_nt(&node.nt, tenant) {
                Some(known) => keys.push(known.key),
                None => unknown.push(infeasible::unknown_nt(node)),
            }
        }
        if !unknown.is_empty() {
            return Err(Infeasible { shortages: unknown });
        }
        let held = ledger.held(request.name);
        let own = held.map(Reservation::rows).unwrap_or_default();
        let rows_left = ledger.rows_residual().zip(own, u32::saturating_add);
        let mask = keys.iter().fold(0, |mask, key: &NtKey| mask | key.bit());
        let kbps = kbps(request.dag.bandwidth());
        let is_thrifty = false;
        Ok(Self { ledger, catalogue, request, keys, mask, kbps, is_thrifty, rows_left, held })
    }

    pub(crate) const fn tenant(&self) -> &'a TenantId {
        &self.request.name.tenant
    }

    pub(crate) const fn dag(&self) -> &'a Dag {
        self.request.dag
    }

    /// What the DAG itself holds of an NT instance.
    pub(crate) fn own(&self, region: RegionId, slot: Slot) -> Bandwidth {
        let Some(held) = self.held else { return Bandwidth::ZERO };
        held.shares
            .binary_search_by_key(&(region, slot), |share| (share.region, share.slot))
            .map_or(Bandwidth::ZERO, |at| held.shares[at].bandwidth)
    }

    pub(crate) fn own_ingress(&self) -> Bandwidth {
        self.held.map(Reservation::ingress).unwrap_or_default()
    }

    pub(crate) fn own_egress(&self) -> Bandwidth {
        self.held.map(Reservation::egress).unwrap_or_default()
    }

    pub(crate) fn previous_uses(&self, region: RegionId) -> bool {
        self.request.previous.is_some_and(|mapping| mapping.uses(region))
    }

    pub(crate) fn node_ids(&self, nodes: &[u8]) -> Vec<NodeId> {
        nodes.iter().map(|n| self.dag().nodes()[usize::from(*n)].id.clone()).collect()
    }

    pub(crate) fn nt_ids(&self, nodes: &[u8]) -> Vec<NtTypeId> {
        nodes.iter().map(|n| self.dag().nodes()[usize::from(*n)].nt.clone()).collect()
    }

    fn latency(&self, node: usize) -> Cycles {
        let nt = self.catalogue.known(&self.dag().nodes()[node].nt);
        nt.map_or(Cycles::ZERO, |known| known.latency())
    }

    fn cost(&self) -> PassCost {
        let profile = self.ledger.profile();
        PassCost { core: profile.core.get(), pass: profile.scheduler_pass.get() }
    }
}

/// Finds a place for one DAG, changing nothing. The same ledger, catalogue and request give the
/// same plan on every machine.
///
/// Time: O(regions × slots) for each step of a search whose steps are bounded (see `search`); no
/// allocation grows with the DAGs on the card.
///
/// # Errors
///
/// [`Infeasible`] with every shortage that was found, the hardest first.
pub fn plan(
    ledger: &Ledger,
    catalogue: &Catalogue,
    request: &Request<'_>,
) -> Result<Plan, Infeasible> {
    let job = Job::new(ledger, catalogue, request)?;
    let mut view = View::new(&job);
    infeasible::beforehand(&view)?;
    let graph = Graph::new(request.dag, |node| job.latency(node));
    let mut blocked = Blocked::default();
    match choose(&graph, &mut view, None, &mut blocked) {
        Some((placed, form)) => Ok(finish(view, placed, form)),
        None => Err(infeasible::of_the_search(&view, blocked)),
    }
}

/// The same with no other loads than these.
pub(crate) fn plan_on(
    ledger: &Ledger,
    catalogue: &Catalogue,
    request: &Request<'_>,
    loads: &[(RegionId, &Chain)],
    is_thrifty: bool,
) -> Option<Plan> {
    let job = Job { is_thrifty, ..Job::new(ledger, catalogue, request).ok()? };
    let mut view = View::new(&job);
    let before: Vec<_> =
        loads.iter().map(|(region, chain)| (*region, view.load(region.0, chain))).collect();
    infeasible::beforehand(&view).ok()?;
    let graph = Graph::new(request.dag, |node| job.latency(node));
    let mut blocked = Blocked::default();
    let (placed, form) = choose(&graph, &mut view, Some(loads), &mut blocked)?;
    before.into_iter().for_each(|(region, old)| view.regions[region.index()] = old);
    Some(finish(view, placed, form))
}

/// A staging with a place for all of it.
pub(crate) struct Placed<'a> {
    pub(crate) form: Form,
    /// The staging's chains, stage by stage.
    pub(crate) chains: Vec<Nodes>,
    /// Which chains each stage has.
    pub(crate) stages: Vec<std::ops::Range<usize>>,
    pub(crate) solution: Solution<'a>,
    /// With the cuts that the solution makes.
    pub(crate) latency: Cycles,
}

impl Placed<'_> {
    pub(crate) fn parts_of(&self, chain: usize) -> impl Iterator<Item = &Part> {
        self.solution.parts.iter().filter(move |part| part.chain == chain)
    }

    pub(crate) fn nodes(&self, part: &Part) -> &[u8] {
        &self.chains[part.chain][part.start..part.end]
    }

    /// The stages of the mapping: the n-th parts of a stage's branches side by side.
    pub(crate) fn passes(&self) -> impl Iterator<Item = SmallVec<[&Part; 4]>> {
        self.stages.iter().flat_map(move |chains| {
            let longest = chains.clone().map(|c| self.parts_of(c).count()).max().unwrap_or(0);
            (0..longest).map(move |n| {
                chains.clone().filter_map(|chain| self.parts_of(chain).nth(n)).collect()
            })
        })
    }
}

/// `loads` are those that the view has already; where they are given there are no others.
fn place<'a>(
    graph: &Graph,
    view: &mut View<'a>,
    (form, staging): (Form, &Staging),
    loads: Option<&[(RegionId, &'a Chain)]>,
    blocked: &mut Blocked,
) -> Option<Placed<'a>> {
    let staging = follow_what_is_there(graph, view, staging.clone());
    let search = Search::new(view, &staging);
    let (solution, why) = match loads {
        Some(loads) => search.run_on(loads),
        None => search.run(),
    };
    blocked.memory = blocked.memory.or(why.memory);
    blocked.rows = blocked.rows.or(why.rows);
    let mut chains = Vec::new();
    let mut stages = Vec::new();
    for branches in staging.stages {
        stages.push(chains.len()..chains.len() + branches.len());
        chains.extend(branches);
    }
    let mut placed =
        Placed { form, chains, stages, solution: solution?, latency: Cycles::default() };
    let cost = view.job.cost();
    let mut latency = cost.core.saturating_sub(cost.pass);
    for pass in placed.passes() {
        let longest = pass.iter().map(|part| graph.latency_of(placed.nodes(part))).max();
        latency = latency.saturating_add(cost.pass).saturating_add(longest.unwrap_or(0));
    }
    placed.latency = Cycles::new(latency);
    Some(placed)
}

/// A flattened branch may have several orders. The one that a loaded chain with enough bandwidth,
/// or else a loadable bitstream, serves whole is better than the first one.
fn follow_what_is_there(graph: &Graph, view: &View<'_>, mut staging: Staging) -> Staging {
    let job = view.job;
    for branch in staging.stages.iter_mut().flatten() {
        let key = |n: u8| job.keys[usize::from(n)];
        if graph.is_linear(branch) {
            continue;
        }
        let keys: SmallVec<[NtKey; 8]> = branch.iter().map(|n| key(*n)).collect();
        let along = |chain: &Chain| {
            graph.order_along(branch, &chain.slots, |node, slot| key(node) == slot.key)
        };
        let shared = (0..view.regions.len()).find_map(|region| {
            let order = along(view.regions[region].chain?)?;
            let keys: SmallVec<[NtKey; 8]> = order.iter().map(|n| key(*n)).collect();
            (view.widest(region, &keys, 0) >= job.kbps).then_some(order)
        });
        let fitting = || {
            let classes = classes(view);
            bitstreams(job, &keys[..1])
                .filter(|chain| classes.iter().any(|class| class.takes(chain)))
                .find_map(along)
        };
        if let Some(order) = shared.or_else(fitting) {
            *branch = order;
        }
    }
    staging
}

/// Sequential or parallel, with the better of the two placed.
fn choose<'a>(
    graph: &Graph,
    view: &mut View<'a>,
    loads: Option<&[(RegionId, &'a Chain)]>,
    blocked: &mut Blocked,
) -> Option<(Placed<'a>, FormChoice)> {
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
    // Without a cut the parallel form is at its fastest: no need to place one that loses already.
    let is_hopeless = |s1: &Placed<'_>| {
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
    let reason = form_reason(&chosen, preference, latencies, placed_both);
    let form = FormChoice {
        chosen: chosen.form,
        sequential: latencies[0],
        parallel: Some(latencies[1]),
        reason,
    };
    Some((chosen, form))
}

fn form_reason(
    chosen: &Placed<'_>,
    preference: FormPreference,
    [sequential, parallel]: [Cycles; 2],
    placed_both: bool,
) -> String {
    match (chosen.form, preference) {
        (Form::Sequential, FormPreference::Sequential)
        | (Form::Parallel, FormPreference::Parallel) => "as the DAG asks for".to_owned(),
        (Form::Sequential, FormPreference::Parallel) => {
            "the DAG asks for the parallel form, but only the sequential one has a place".to_owned()
        }
        (Form::Sequential, FormPreference::Auto) if parallel >= sequential => {
            format!("side by side would take {parallel} with its passes, in sequence {sequential}")
        }
        (Form::Sequential, FormPreference::Auto) => {
            "only the sequential form has a place".to_owned()
        }
        (Form::Parallel, FormPreference::Auto) if placed_both || parallel < sequential => {
            let saved = sequential.saturating_sub(parallel);
            format!("side by side saves {saved} over the sequence, its passes included")
        }
        (Form::Parallel, _) => "only the parallel form has a place".to_owned(),
    }
}

/// The plan as a value.
fn finish<'a>(mut view: View<'a>, placed: Placed<'a>, form: FormChoice) -> Plan {
    let job = view.job;
    let bitstream = |region: u8| {
        let planned = placed.solution.loads.iter().find(|load| load.region == region);
        let chain = planned.map(|load| load.chain).or_else(|| job.ledger.chain(RegionId(region)));
        chain.map(|chain| chain.bitstream.id.clone())
    };
    let virtual_chain = |part: &Part| VirtualChain {
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
    let mapping = Mapping { card: job.ledger.card().clone(), form: placed.form, stages };
    let mut loads: Vec<Load> = placed
        .solution
        .loads
        .iter()
        .map(|load| Load {
            region: RegionId(load.region),
            bitstream: load.chain.bitstream.id.clone(),
            replaces: job.ledger.content(RegionId(load.region)).map(|old| old.id.clone()),
        })
        .collect();
    loads.sort_by_key(|load| load.region);
    let reservation = Reservation::of(&mapping, job.dag(), job.catalogue);
    let explanation = explain::explain(&mut view, &placed, form);
    Plan { mapping, loads, reservation, explanation }
}
