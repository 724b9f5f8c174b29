//! Why a DAG is placed where it is: for every virtual chain, the embeddings that serve it with their
//! scores, and for each other kind of embedding the first constraint that ruled it out, or the first term
//! of the objective in which it is worse.
//!
//! All numbers are those of the ledger at the time of the plan, without what the DAG held before.

use smallvec::SmallVec;
use snic_domain::{
    ChainExplanation, Embedding, EmbeddingKind, Explanation, FormChoice, RegionId, Rejection,
    Resource, Shortage,
};

use crate::candidates::{area_of, bitstreams, classes, unused_permille};
use crate::catalogue::{NtKey, PhysicalChain};
use crate::plan::Placed;
use crate::search::ChainPart;
use crate::view::{RegionPath, View, fresh_capacity, from_kbps};

/// Explains `placed`. The view is as the search left it: without the plan's loads and bandwidths.
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
    for part in &placed.solution.parts {
        let keys: SmallVec<[NtKey; 8]> =
            placed.nodes(part).iter().map(|node| view.job.keys[usize::from(*node)]).collect();
        for path in &part.paths {
            view.take(path, &keys);
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
            rejected: rejected[part.chain].clone(),
        });
    }
    Explanation { form, chains }
}

/// The kind of embedding of a path. Every part of a chain that was cut is a `Split`, whether shared or
/// loaded; the number of reconfigurations tells these apart.
fn kind_of(placed: &Placed<'_>, part: &ChainPart, path: &RegionPath) -> EmbeddingKind {
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
    placed: &Placed<'_>,
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
fn rejections(view: &View<'_>, placed: &Placed<'_>, chain: usize) -> Vec<Rejection> {
    let chosen = placed
        .parts_of(chain)
        .flat_map(|part| part.paths.iter().map(|path| kind_of(placed, part, path)))
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
    .filter(|kind| *kind != chosen)
    .map(|kind| {
        let shortage = match kind {
            EmbeddingKind::Shared => why_not_shared(view, &keys),
            EmbeddingKind::FreeRegion | EmbeddingKind::VictimRegion => {
                why_not_loaded(view, &keys, kind, loads)
            }
            EmbeddingKind::Split => why_not_split(&keys),
        };
        let nodes = view.job.node_ids(&placed.chains[chain]);
        Rejection { kind, shortage: Shortage { nodes, ..shortage } }
    })
    .collect()
}

/// A shortage whose nodes the caller adds.
fn shortage(resource: Resource, required: u64, available: u64, detail: &str) -> Shortage {
    Shortage { resource, required, available, nodes: Vec::new(), detail: detail.to_owned() }
}

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

fn why_not_shared(view: &View<'_>, keys: &[NtKey]) -> Shortage {
    let holding = view.regions.iter().filter_map(|r| r.chain).filter(|c| c.holds(keys)).count();
    if holding == 0 {
        let detail = "no loaded chain that the tenant may share contains this sequence of NTs";
        return shortage(Resource::Bitstreams, 1, 0, detail);
    }
    let (needed, left) = (view.job.kbps, shared_capacity(view, keys));
    if left < needed {
        let detail = "bandwidth left on the loaded chains that contain the sequence";
        return shortage(Resource::NtBandwidth, bps(needed), bps(left), detail);
    }
    let uses = view.job.keys.iter().filter(|key| keys.contains(key)).count() as u64;
    let total = needed.saturating_mul(uses.div_ceil(keys.len() as u64).max(1));
    if left < total {
        let detail = "other parts of the DAG need the same NTs";
        return shortage(Resource::NtBandwidth, bps(total), bps(left), detail);
    }
    let detail = "not enough on-board memory for the NTs of the shared chains";
    shortage(Resource::Memory, view.memory.saturating_add(1), view.memory, detail)
}

/// `loads` is the number of regions that the chosen embedding loads.
fn why_not_loaded(view: &View<'_>, keys: &[NtKey], kind: EmbeddingKind, loads: u32) -> Shortage {
    let chains: SmallVec<[&PhysicalChain; 8]> = bitstreams(view.job, keys).collect();
    if chains.is_empty() {
        let detail = "no prebuilt bitstream contains this sequence of NTs";
        return shortage(Resource::Bitstreams, 1, 0, detail);
    }
    let victim = kind == EmbeddingKind::VictimRegion;
    let fitting: u32 = classes(view)
        .iter()
        .filter(|class| class.victim == victim && chains.iter().any(|chain| class.takes(chain)))
        .map(|class| class.regions.count_ones())
        .sum();
    let needed = loads.max(1);
    if fitting < needed {
        let kind = if victim { "victim" } else { "free" };
        let detail = format!("{kind} regions that fit a bitstream with the sequence");
        return shortage(Resource::Regions, needed.into(), fitting.into(), &detail);
    }
    let best = chains.iter().map(|chain| fresh_capacity(chain, keys)).max().unwrap_or(0);
    let shared = shared_capacity(view, keys);
    let left = shared.saturating_add(best.saturating_mul(fitting.into()));
    if left < view.job.kbps {
        let detail = "bandwidth of the sequence with all of these regions loaded";
        return shortage(Resource::NtBandwidth, bps(view.job.kbps), bps(left), detail);
    }
    let new_regions = view.job.kbps.saturating_sub(shared).div_ceil(best.max(1)).max(1);
    if new_regions > loads.into() {
        let detail = "new regions that it takes, compared with the chosen embedding";
        return shortage(Resource::Regions, new_regions, loads.into(), detail);
    }
    if victim {
        let detail = "loaded chains that it replaces, compared with none for a free region";
        return shortage(Resource::Regions, new_regions, 0, detail);
    }
    let detail = "other parts of the DAG need the same regions";
    shortage(Resource::Regions, u64::from(fitting) + 1, fitting.into(), detail)
}

/// A cut of a chain that is placed as a whole only costs: it never takes fewer regions.
fn why_not_split(keys: &[NtKey]) -> Shortage {
    let detail = match keys.len() {
        1 => "a chain of one NT cannot be cut",
        _ => "scheduler passes with one cut, compared with the chosen embedding",
    };
    shortage(Resource::Passes, 2, 1, detail)
}
