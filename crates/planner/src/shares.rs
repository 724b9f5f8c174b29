//! Spreads the bandwidth of a part over loaded chains: one instance if one suffices, otherwise the fewest,
//! with equal headroom on the tightest NT of each.

use std::cmp::Reverse;

use smallvec::SmallVec;
use snic_domain::limits::REGIONS_MAX;

use crate::view::{NtSequence, RegionPath, View};

/// Regions with a single path of at least `kbps`, with its width, the widest first. With forced regions,
/// only a single forced region qualifies. A thrifty plan prefers regions that take the least memory.
pub(crate) fn single(
    view: &View<'_>,
    of: NtSequence<'_>,
    kbps: u64,
    forced: u32,
) -> SmallVec<[(u8, u64); 8]> {
    let mut found: SmallVec<[(u8, u64); 8]> = SmallVec::new();
    if forced.count_ones() > 1 {
        return found;
    }
    for region in (0..REGIONS_MAX).filter(|r| forced == 0 || forced >> r & 1 == 1) {
        let widest = view.widest(region, of);
        if widest >= kbps {
            found.push((region as u8, widest));
        }
    }
    let memory = |region: u8, widest| {
        let path = view.path(usize::from(region), of, widest);
        path.map_or(0, |path| view.memory_cost(region, &path.slots))
    };
    match view.job.is_thrifty {
        true => found.sort_by_key(|(r, widest)| (memory(*r, *widest), Reverse(*widest), *r)),
        false => found.sort_by_key(|(region, widest)| (Reverse(*widest), *region)),
    }
    found
}

/// Sets of paths that together carry `kbps`: the fewest paths; if that uses victims, the fewest that avoid
/// victims; if it takes memory, the fewest that take the least. Every forced region is used.
pub(crate) fn several(
    view: &View<'_>,
    of: NtSequence<'_>,
    kbps: u64,
    forced: u32,
) -> SmallVec<[SmallVec<[RegionPath; 2]>; 3]> {
    let mut all = Vec::new();
    for region in 0..REGIONS_MAX {
        view.paths(region, of, &mut all);
    }
    let is_forced = |path: &RegionPath| forced >> path.region & 1 == 1;
    let is_spared =
        |path: &RegionPath| view.loadable >> path.region & 1 == 1 && forced >> path.region & 1 == 0;
    let memory = |path: &RegionPath| view.memory_cost(path.region, &path.slots);
    all.sort_by_key(|path| (Reverse(is_forced(path)), Reverse(path.kbps), path.region));
    let mut found: SmallVec<[SmallVec<[RegionPath; 2]>; 3]> = SmallVec::new();
    if !view.job.is_thrifty {
        found.extend(fewest(&all, kbps, forced));
    }
    if !view.job.is_thrifty && all.iter().any(is_spared) {
        all.sort_by_key(|path| (Reverse(is_forced(path)), is_spared(path), Reverse(path.kbps)));
        found.extend(fewest(&all, kbps, forced).filter(|other| !found.contains(other)));
    }
    if view.job.is_thrifty || all.iter().any(|path| memory(path) > 0) {
        all.sort_by_key(|path| (Reverse(is_forced(path)), memory(path), Reverse(path.kbps)));
        found.extend(fewest(&all, kbps, forced).filter(|other| !found.contains(other)));
    }
    found
}

/// The first of `all` that together carry `kbps`, if every forced region is needed among them.
fn fewest(all: &[RegionPath], kbps: u64, forced: u32) -> Option<SmallVec<[RegionPath; 2]>> {
    let mut sum = 0u64;
    let mut chosen: SmallVec<[RegionPath; 2]> = SmallVec::new();
    for path in all {
        if sum >= kbps {
            break;
        }
        sum = sum.saturating_add(path.kbps);
        chosen.push(path.clone());
    }
    if sum < kbps {
        return None;
    }
    // A larger path that came later may have made a smaller one unnecessary.
    while let Some(at) = (0..chosen.len()).rev().find(|i| sum - chosen[*i].kbps >= kbps) {
        sum -= chosen.remove(at).kbps;
    }
    let used = chosen.iter().fold(0u32, |set, path| set | 1 << path.region);
    if forced & !used != 0 {
        return None;
    }
    level(&mut chosen, sum - kbps);
    chosen.sort_by(|a, b| (a.region, &a.slots).cmp(&(b.region, &b.slots)));
    Some(chosen)
}

/// Lowers the paths by `surplus` in all, so that their headroom is equal. None drops to zero: each is
/// needed, so the surplus is less than the smallest.
fn level(chosen: &mut [RegionPath], surplus: u64) {
    let count = chosen.len() as u64;
    let (each, mut rest) = (surplus / count, surplus % count);
    chosen.sort_by_key(|path| (Reverse(path.kbps), path.region));
    for path in chosen.iter_mut() {
        path.kbps -= each;
    }
    // The remainder: one for each path, and more only if other paths are down to one.
    for most in [1, u64::MAX] {
        for path in chosen.iter_mut() {
            let more = rest.min(most).min(path.kbps - 1);
            path.kbps -= more;
            rest -= more;
        }
    }
    debug_assert_eq!(rest, 0, "each path keeps at least one kbit/s");
}
