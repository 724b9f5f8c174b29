//! Why a DAG sits where it does: for every virtual chain the ways that serve it with their score, and
//! for each other way the first constraint that ruled it out, or the first term of the objective in
//! which it is worse.
//!
//! All numbers are those of the ledger at the time of the plan, without what the DAG held before.

use smallvec::SmallVec;
use snic_domain::{
    ChainExplanation, Embedding, EmbeddingKind, Explanation, FormChoice, RegionId, Rejection,
    Resource, Shortage,
};

use crate::candidates::{area_of, bitstreams, classes, unused_permille};
use crate::catalogue::{Chain, NtKey};
use crate::plan::Placed;
use crate::search::Part;
use crate::view::{Path, View, fresh_capacity, from_kbps};

/// Explains `placed`. The view is the one that the search left: nothing of the plan is taken.
pub(crate) fn explain<'a>(
    view: &mut View<'a>,
    placed: &Placed<'a>,
    form: FormChoice,
) -> Explanation {
    let rejected: Vec<Vec<Rejection>> =
        (0..placed.chains.len()).map(|chain| rejections(view, placed, chain)).collect();
    for load in &placed.solution.loads {
        view.load(load.region, load.chain);
    }
    for path in placed.solution.parts.iter().flat_map(|part| &part.paths) {
        view.take(path);
    }
    let mut counted = 0u32;
    let mut chains = Vec::with_capacity(placed.solution.parts.len());
    for part in placed.passes().flatten() {
        let nodes = placed.nodes(part);
        chains.push(ChainExplanation {
            nodes: view.job.node_ids(nodes),
            nts: view.job.nt_ids(nodes),
            embeddings: part
                .paths
                .iter()
                .filter_map(|path| embedding(view, placed, part, path, &mut counted))
                .collect(),
            rejected: rejected[part.chain].clone(),
        });
    }
    Explanation { form, chains }
}

/// How a path came to be. Every part of a chain that was cut is a `Split`, whether shared or
/// loaded; the number of reconfigurations tells those apart.
fn way(placed: &Placed<'_>, part: &Part, path: &Path) -> EmbeddingKind {
    if placed.parts_of(part.chain).nth(1).is_some() {
        return EmbeddingKind::Split;
    }
    let load = placed.solution.loads.iter().find(|load| load.region == path.region);
    load.map_or(EmbeddingKind::Shared, |load| {
        if load.victim { EmbeddingKind::VictimRegion } else { EmbeddingKind::FreeRegion }
    })
}

/// `counted` has the loads that an embedding before this one was charged with.
fn embedding(
    view: &View<'_>,
    placed: &Placed<'_>,
    part: &Part,
    path: &Path,
    counted: &mut u32,
) -> Option<Embedding> {
    let region = &view.regions[usize::from(path.region)];
    let chain = region.chain?;
    let bit = 1u32 << path.region;
    let loads = u32::from(region.planned && *counted & bit == 0);
    *counted |= bit;
    let headroom = path.slots.iter().map(|slot| region.free[usize::from(*slot)]).min();
    Some(Embedding {
        way: way(placed, part, path),
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

/// The ways that were not chosen, for one chain of the staging as a whole.
fn rejections(view: &View<'_>, placed: &Placed<'_>, chain: usize) -> Vec<Rejection> {
    let chosen = placed
        .parts_of(chain)
        .flat_map(|part| part.paths.iter().map(|path| way(placed, part, path)))
        .max()
        .unwrap_or(EmbeddingKind::Shared);
    let loads = placed
        .parts_of(chain)
        .flat_map(|part| &part.paths)
        .filter(|path| placed.solution.loads.iter().any(|load| load.region == path.region))
        .fold(0u32, |set, path| set | 1 << path.region)
        .count_ones();
    let keys: SmallVec<[NtKey; 8]> =
        placed.chains[chain].iter().map(|n| view.job.keys[usize::from(*n)]).collect();
    [
        EmbeddingKind::Shared,
        EmbeddingKind::FreeRegion,
        EmbeddingKind::VictimRegion,
        EmbeddingKind::Split,
    ]
    .into_iter()
    .filter(|way| *way != chosen)
    .map(|way| {
        let (resource, required, available, detail) = match way {
            EmbeddingKind::Shared => why_not_shared(view, &keys),
            EmbeddingKind::FreeRegion | EmbeddingKind::VictimRegion => {
                why_not_loaded(view, &keys, way, loads)
            }
            EmbeddingKind::Split => why_not_cut(&keys),
        };
        let nodes = view.job.node_ids(&placed.chains[chain]);
        let shortage = Shortage { resource, required, available, nodes, detail };
        Rejection { way, shortage }
    })
    .collect()
}

type Why = (Resource, u64, u64, String);

/// What all loaded chains together carry of a sequence, in kbit/s.
fn shared_capacity(view: &View<'_>, keys: &[NtKey]) -> u64 {
    let mut paths = Vec::new();
    for region in 0..view.regions.len() {
        view.paths(region, keys, 0, &mut paths);
    }
    paths.iter().fold(0, |sum: u64, path| sum.saturating_add(path.kbps))
}

fn bps(kbps: u64) -> u64 {
    from_kbps(kbps).get()
}

fn why_not_shared(view: &View<'_>, keys: &[NtKey]) -> Why {
    let holding = view.regions.iter().filter_map(|r| r.chain).filter(|c| c.holds(keys)).count();
    if holding == 0 {
        let detail = "no loaded chain that may be shared holds this sequence of NTs";
        return (Resource::Bitstreams, 1, 0, detail.to_owned());
    }
    let (needed, left) = (view.job.kbps, shared_capacity(view, keys));
    if left < needed {
        let detail = "this is what the loaded chains that hold the sequence have left";
        return (Resource::NtBandwidth, bps(needed), bps(left), detail.to_owned());
    }
    let uses = view.job.keys.iter().filter(|key| keys.contains(key)).count() as u64;
    let total = needed.saturating_mul(uses.div_ceil(keys.len() as u64).max(1));
    if left < total {
        let detail = "other parts of the DAG need the same NTs";
        return (Resource::NtBandwidth, bps(total), bps(left), detail.to_owned());
    }
    let detail = "the NTs' memory does not fit where they would be shared";
    (Resource::Memory, view.memory.saturating_add(1), view.memory, detail.to_owned())
}

/// `loads` is how many regions the chosen embedding loads.
fn why_not_loaded(view: &View<'_>, keys: &[NtKey], way: EmbeddingKind, loads: u32) -> Why {
    let chains: SmallVec<[&Chain; 8]> = bitstreams(view.job, keys).collect();
    if chains.is_empty() {
        let detail = "no prebuilt bitstream holds this sequence of NTs";
        return (Resource::Bitstreams, 1, 0, detail.to_owned());
    }
    let victim = way == EmbeddingKind::VictimRegion;
    let fitting: u32 = classes(view)
        .iter()
        .filter(|class| class.victim == victim && chains.iter().any(|chain| class.takes(chain)))
        .map(|class| class.regions.count_ones())
        .sum();
    let needed = loads.max(1);
    if fitting < needed {
        let kind = if victim { "victim" } else { "free" };
        let detail = format!("{kind} regions that a bitstream with the sequence fits");
        return (Resource::Regions, needed.into(), fitting.into(), detail);
    }
    let best = chains.iter().map(|chain| fresh_capacity(chain, keys)).max().unwrap_or(0);
    let shared = shared_capacity(view, keys);
    let left = shared.saturating_add(best.saturating_mul(fitting.into()));
    if left < view.job.kbps {
        let detail = "this is what the sequence would have with all of these regions loaded";
        return (Resource::NtBandwidth, bps(view.job.kbps), bps(left), detail.to_owned());
    }
    let whole = view.job.kbps.saturating_sub(shared).div_ceil(best.max(1)).max(1);
    if whole > loads.into() {
        let detail = "new regions it takes, against those of what was chosen";
        return (Resource::Regions, whole, loads.into(), detail.to_owned());
    }
    if victim {
        let detail = "loaded chains that would be lost, against none for a free region";
        return (Resource::Regions, whole, 0, detail.to_owned());
    }
    let detail = "other parts of the DAG need the same regions";
    (Resource::Regions, u64::from(fitting) + 1, fitting.into(), detail.to_owned())
}

/// Where a chain is whole, a cut would only cost: it never takes fewer regions than the best.
fn why_not_cut(keys: &[NtKey]) -> Why {
    let detail = match keys.len() {
        1 => "a chain of one NT cannot be cut",
        _ => "passes with the least cut, against those of what was chosen",
    };
    (Resource::Passes, 2, 1, detail.to_owned())
}
