//! Why a DAG is placed where it is: for every virtual chain, the embeddings that serve it with their
//! scores, and for each other kind of embedding why it was not chosen: what it is short of, or what it
//! costs more.
//!
//! All numbers are those of the ledger at the time of the plan, without what the DAG held before. Those of
//! the kinds that were not chosen are of the whole chain beside what the rest of the DAG takes of loaded
//! told.

use std::borrow::Cow;
use std::cmp::Reverse;

use smallvec::SmallVec;
use snic_domain::limits::REGIONS_MAX;
use snic_domain::{
    ChainExplanation, CostsMore, Cycles, Embedding, EmbeddingCost, EmbeddingKind, Explanation,
    Form, FormChoice, FormPreference, RegionId, Rejection, RejectionReason, Resource, Shortage,
};

use crate::candidates::{area_of, bitstreams, unused_permille};
use crate::catalogue::PhysicalChain;
use crate::classes::regions_in;
use crate::job::from_kbps;
use crate::nt_key::NtKey;
use crate::order::Order;
use crate::placed::PlacedStaging;
use crate::search::{ChainPart, PlannedLoad};
use crate::view::{NtSequence, RegionPath, View};

/// Why a DAG has the form that was chosen.
pub(crate) fn form_reason(
    chosen: &PlacedStaging<'_>,
    preference: FormPreference,
    [sequential, parallel]: [Cycles; 2],
    placed_both: bool,
) -> String {
    match (chosen.form, preference) {
        (Form::Sequential, FormPreference::Sequential)
        | (Form::Parallel, FormPreference::Parallel) => "as the DAG requests".to_owned(),
        (Form::Sequential, FormPreference::Parallel) => {
            "the DAG requests the parallel form, but only the sequential one is feasible".to_owned()
        }
        (Form::Sequential, FormPreference::Auto) if parallel >= sequential => {
            format!(
                "parallel branches would take {parallel} with their passes, the sequence {sequential}"
            )
        }
        (Form::Sequential, FormPreference::Auto) => {
            "only the sequential form is feasible".to_owned()
        }
        (Form::Parallel, FormPreference::Auto) if placed_both || parallel < sequential => {
            let saved = sequential.saturating_sub(parallel);
            format!("parallel branches save {saved} over the sequence, their passes included")
        }
        (Form::Parallel, _) => "only the parallel form is feasible".to_owned(),
    }
}

/// Explains `placed`. The view is as the search left it: without the plan's loads and bandwidths.
pub(crate) fn explain<'a>(
    view: &mut View<'a>,
    placed: &PlacedStaging<'a>,
    form: FormChoice,
) -> Explanation {
    let mut rejected: Vec<Vec<Rejection>> =
        (0..placed.chains.len()).map(|chain| rejections(view, placed, chain)).collect();
    for load in &placed.solution.loads {
        view.load(load.region, load.chain);
    }
    for part in &placed.solution.parts {
        let keys: SmallVec<[NtKey; 8]> =
            placed.nodes(part).iter().map(|node| view.job.keys[usize::from(*node)]).collect();
        let of = view.sequence(&keys);
        for path in &part.paths {
            view.take(path, of);
        }
    }
    let mut counted_loads = 0u32;
    let mut chains = Vec::with_capacity(placed.solution.parts.len());
    for part in placed.passes().flatten() {
        let nodes = placed.nodes(part);
        chains.push(ChainExplanation {
            nodes: view.job.node_ids(nodes),
            nts: view.job.nt_ids(nodes),
            embeddings: part
                .paths
                .iter()
                .filter_map(|path| embedding(view, placed, part, path, &mut counted_loads))
                .collect(),
            rejected: match part.end == placed.chains[part.chain].len() {
                true => std::mem::take(&mut rejected[part.chain]),
                false => rejected[part.chain].clone(),
            },
        });
    }
    Explanation { form, chains, programs: Vec::new(), other_cards: Vec::new() }
}

/// The kind of embedding of a path. Every part of a chain that was cut is a `Split`, whether shared or
/// loaded; the number of reconfigurations tells these apart.
fn kind_of(placed: &PlacedStaging<'_>, part: &ChainPart, path: &RegionPath) -> EmbeddingKind {
    if placed.parts_of(part.chain).nth(1).is_some() {
        return EmbeddingKind::Split;
    }
    let load = placed.solution.loads.iter().find(|load| load.region == path.region);
    match load {
        None => EmbeddingKind::Shared,
        Some(load) if load.victim => EmbeddingKind::VictimRegion,
        Some(_) => EmbeddingKind::FreeRegion,
    }
}

/// `counted_loads` is the set of loads that an earlier embedding already counts.
fn embedding(
    view: &View<'_>,
    placed: &PlacedStaging<'_>,
    part: &ChainPart,
    path: &RegionPath,
    counted_loads: &mut u32,
) -> Option<Embedding> {
    let region = &view.regions[usize::from(path.region)];
    let chain = region.chain?;
    let bit = 1u32 << path.region;
    let loads = u32::from(region.planned && *counted_loads & bit == 0);
    *counted_loads |= bit;
    let headroom = path.slots.iter().map(|slot| region.free[usize::from(*slot)]).min();
    Some(Embedding {
        kind: kind_of(placed, part, path),
        region: RegionId(path.region),
        bitstream: chain.bitstream.id.clone(),
        bandwidth: from_kbps(path.kbps),
        skipped: u8::try_from(chain.bitstream.nts.len() - path.slots.len()).unwrap_or(u8::MAX),
        interruptions: 0,
        reconfigurations: loads,
        new_regions: loads,
        passes: u32::try_from(placed.parts_of(part.chain).count()).unwrap_or(u32::MAX),
        unused_permille: unused_permille(area_of(view.job, RegionId(path.region)), chain),
        headroom: from_kbps(headroom.unwrap_or(0)),
    })
}

/// The kinds of embedding that were not chosen, for one chain of the staging as a whole.
fn rejections<'a>(view: &View<'a>, placed: &PlacedStaging<'a>, chain: usize) -> Vec<Rejection> {
    let kinds = placed
        .parts_of(chain)
        .flat_map(|part| part.paths.iter().map(|path| kind_of(placed, part, path)));
    let chosen_kind = kinds.max().unwrap_or(EmbeddingKind::Shared);
    let chosen = cost_of(placed, chain);
    let keys: Keys = placed.chains[chain].iter().map(|n| view.job.keys[usize::from(*n)]).collect();
    let view = beside(view, placed, chain);
    let beside = Alternatives::new(&view, &keys, chosen);
    [
        EmbeddingKind::Shared,
        EmbeddingKind::FreeRegion,
        EmbeddingKind::VictimRegion,
        EmbeddingKind::Split,
    ]
    .into_iter()
    .filter(|kind| *kind != chosen_kind)
    .filter_map(|kind| {
        let nodes = view.job.node_ids(&placed.chains[chain]);
        let reason = match beside.cost(kind) {
            Err(shortage) => RejectionReason::Shortage(Shortage { nodes, ..shortage }),
            Ok(cost) if view.job.order.is_less(chosen, cost) => {
                RejectionReason::CostsMore(CostsMore { nodes, least: cost, chosen })
            }
            // It is no worse: the search ended before it was found.
            Ok(_) => return None,
        };
        Some(Rejection { kind, reason })
    })
    .collect()
}

type Keys = SmallVec<[NtKey; 8]>;

fn uses(part: &ChainPart, region: u8) -> bool {
    part.paths.iter().any(|path| path.region == region)
}

/// The loads that serve a chain, perhaps together with others.
fn loads_of<'p, 'a>(
    placed: &'p PlacedStaging<'a>,
    chain: usize,
) -> impl Iterator<Item = &'p PlannedLoad<'a>> {
    let serves =
        move |load: &&PlannedLoad<'_>| placed.parts_of(chain).any(|part| uses(part, load.region));
    placed.solution.loads.iter().filter(serves)
}

fn cost_of(placed: &PlacedStaging<'_>, chain: usize) -> EmbeddingCost {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    EmbeddingCost {
        regions: count(loads_of(placed, chain).count()),
        victims: count(loads_of(placed, chain).filter(|load| load.victim).count()),
        passes: count(placed.parts_of(chain).count()),
    }
}

/// The view with what the other chains take of loaded regions, and without what they replace.
fn beside<'v, 'a>(
    view: &'v View<'a>,
    placed: &PlacedStaging<'a>,
    chain: usize,
) -> Cow<'v, View<'a>> {
    if placed.chains.len() == 1 {
        return Cow::Borrowed(view);
    }
    let mut view = view.clone();
    let parts = || placed.solution.parts.iter().filter(|part| part.chain != chain);
    let mut loaded = 0u32;
    for load in &placed.solution.loads {
        loaded |= 1 << load.region;
        if parts().any(|part| uses(part, load.region)) {
            view.regions[usize::from(load.region)].chain = None;
        }
    }
    for part in parts() {
        let keys: Keys =
            placed.nodes(part).iter().map(|node| view.job.keys[usize::from(*node)]).collect();
        let of = view.sequence(&keys);
        for path in part.paths.iter().filter(|path| loaded >> path.region & 1 == 0) {
            view.take(path, of);
        }
    }
    Cow::Owned(view)
}

/// A shortage whose nodes the caller adds.
fn shortage(resource: Resource, required: u64, available: u64, detail: &str) -> Shortage {
    Shortage { resource, required, available, nodes: Vec::new(), detail: detail.to_owned() }
}

fn bps(kbps: u64) -> u64 {
    from_kbps(kbps).get()
}

/// Costs of other kinds of embedding of one chain.
struct Alternatives<'v, 'a> {
    /// Without this chain.
    view: &'v View<'a>,
    of: NtSequence<'v>,
    chosen: EmbeddingCost,
    /// Part of the chain that each region carries, in kbit/s.
    carried: [u64; REGIONS_MAX],
    /// The bitstreams that contain the chain.
    bitstreams: SmallVec<[&'a PhysicalChain; 8]>,
}

impl<'v, 'a> Alternatives<'v, 'a> {
    fn new(view: &'v View<'a>, keys: &'v [NtKey], chosen: EmbeddingCost) -> Self {
        let of = view.sequence(keys);
        let carried = std::array::from_fn(|region| view.carried(region, of));
        let bitstreams = bitstreams(view.job, keys).collect();
        Self { view, of, chosen, carried, bitstreams }
    }

    /// The least that a kind of embedding costs, or what it is short of.
    fn cost(&self, kind: EmbeddingKind) -> Result<EmbeddingCost, Shortage> {
        match kind {
            EmbeddingKind::Shared => self.shared(),
            EmbeddingKind::FreeRegion => self.loaded(false),
            EmbeddingKind::VictimRegion => self.loaded(true),
            EmbeddingKind::Split => self.split(),
        }
    }

    fn shared(&self) -> Result<EmbeddingCost, Shortage> {
        let chains = self.view.regions.iter().filter_map(|region| region.chain);
        if !chains.into_iter().any(|chain| chain.holds(self.of.keys)) {
            let detail = "no loaded chain that the tenant may share contains this sequence of NTs";
            return Err(shortage(Resource::Bitstreams, 1, 0, detail));
        }
        let needed = self.view.job.kbps;
        let left = self.carried.iter().sum();
        if left < needed {
            let detail = "bandwidth left on the loaded chains that contain the sequence";
            return Err(shortage(Resource::NtBandwidth, bps(needed), bps(left), detail));
        }
        Ok(EmbeddingCost { regions: 0, victims: 0, passes: 1 })
    }

    /// The fewest loads of free regions, or of victims, beside the chains that are loaded.
    fn loaded(&self, victim: bool) -> Result<EmbeddingCost, Shortage> {
        let Gains { regions, mut gains } = self.gains(victim);
        if self.bitstreams.is_empty() {
            let detail = "no prebuilt bitstream contains this sequence of NTs";
            return Err(shortage(Resource::Bitstreams, 1, 0, detail));
        }
        if regions == 0 {
            let kind = if victim { "victim" } else { "free" };
            let detail = format!("{kind} regions that fit a bitstream with the sequence");
            return Err(shortage(Resource::Regions, 1, 0, &detail));
        }
        let needed = self.view.job.kbps;
        let shared = self.carried.iter().sum::<u64>();
        let most = shared.saturating_add(gains.iter().sum());
        if most < needed {
            let detail = "bandwidth of the sequence with all of these regions loaded";
            return Err(shortage(Resource::NtBandwidth, bps(needed), bps(most), detail));
        }
        gains.sort_by_key(|gain| Reverse(*gain));
        let (mut carried, mut loads) = (shared, 0);
        while loads == 0 || carried < needed {
            carried = carried.saturating_add(gains[loads]);
            loads += 1;
        }
        let loads = u32::try_from(loads).unwrap_or(u32::MAX);
        Ok(EmbeddingCost { regions: loads, victims: if victim { loads } else { 0 }, passes: 1 })
    }

    /// Gains of loads into free regions, or in place of victims.
    fn gains(&self, victim: bool) -> Gains {
        let view = self.view;
        let mut fitting = 0u32;
        let mut most = [0u64; REGIONS_MAX];
        let loadable = view.loadable_now();
        for chain in &self.bitstreams {
            let carried = view.carried_fresh(chain, self.of);
            for class in view.classes.iter().filter(|c| c.victim == victim && c.takes(chain)) {
                let regions = class.regions & loadable;
                if regions != 0 {
                    fitting |= regions;
                }
                for region in regions_in(regions) {
                    most[region] = most[region].max(carried);
                }
            }
        }
        let gain = |region: usize| most[region].saturating_sub(self.carried[region]);
        let gains: SmallVec<[u64; 8]> = regions_in(fitting).map(gain).collect();
        Gains { regions: gains.len(), gains }
    }

    /// One more cut costs one more pass. Where regions come first it saves no region, or it would
    /// have been chosen.
    fn split(&self) -> Result<EmbeddingCost, Shortage> {
        if self.of.keys.len() < 2 {
            let detail = "a chain of one NT cannot be cut";
            return Err(shortage(Resource::Passes, 2, 1, detail));
        }
        let least = match self.view.job.order {
            Order::Regions => self.chosen,
            Order::Passes => EmbeddingCost { regions: 0, victims: 0, passes: 0 },
        };
        Ok(EmbeddingCost { passes: self.chosen.passes + 1, ..least })
    }
}

/// Gains of loads of one kind over what a chain has.
struct Gains {
    /// Regions that fit one.
    regions: usize,
    /// Gain of each region, in kbit/s.
    gains: SmallVec<[u64; 8]>,
}
