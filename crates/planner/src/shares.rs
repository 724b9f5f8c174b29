//! How a part's bandwidth is spread over what is loaded: one instance where one suffices, else the
//! fewest, each with as much left on its tightest NT as the others.

use std::cmp::Reverse;

use smallvec::SmallVec;
use snic_domain::limits::REGIONS_MAX;

use crate::catalogue::NtKey;
use crate::view::{Path, View};

fn mask_of(keys: &[NtKey]) -> u64 {
    keys.iter().fold(0, |mask, key| mask | key.bit())
}

/// Regions through which all of `kbps` fits one way, with what fits, the widest first. Where
/// regions are forced, only one of them could do, and only if it is the only one. A thrifty plan
/// has those first that take the least memory.
pub(crate) fn single(
    view: &View<'_>,
    keys: &[NtKey],
    kbps: u64,
    forced: u32,
) -> SmallVec<[(u8, u64); 8]> {
    let mut found: SmallVec<[(u8, u64); 8]> = SmallVec::new();
    if forced.count_ones() > 1 {
        return found;
    }
    let mask = mask_of(keys);
    for region in (0..REGIONS_MAX).filter(|r| forced == 0 || forced >> r & 1 == 1) {
        let widest = view.widest(region, keys, mask);
        if widest >= kbps {
            found.push((region as u8, widest));
        }
    }
    let memory = |region: u8, widest| {
        let path = view.path(usize::from(region), keys, widest);
        path.map_or(0, |path| view.memory_cost(region, &path.slots))
    };
    match view.job.is_thrifty {
        true => found.sort_by_key(|(r, widest)| (memory(*r, *widest), Reverse(*widest), *r)),
        false => found.sort_by_key(|(region, widest)| (Reverse(*widest), *region)),
    }
    found
}

/// Sets of ways that together carry `kbps`: the fewest ways; where that uses victims, the fewest
/// that leave victims alone; where it takes memory, the fewest that take the least of it. Every
/// forced region is in.
pub(crate) fn several(
    view: &View<'_>,
    keys: &[NtKey],
    kbps: u64,
    forced: u32,
) -> SmallVec<[SmallVec<[Path; 2]>; 3]> {
    let mut all = Vec::new();
    let mask = mask_of(keys);
    for region in 0..REGIONS_MAX {
        view.paths(region, keys, mask, &mut all);
    }
    let is_forced = |path: &Path| forced >> path.region & 1 == 1;
    let is_spared =
        |path: &Path| view.loadable >> path.region & 1 == 1 && forced >> path.region & 1 == 0;
    let memory = |path: &Path| view.memory_cost(path.region, &path.slots);
    all.sort_by_key(|path| (Reverse(is_forced(path)), Reverse(path.kbps), path.region));
    let mut found: SmallVec<[SmallVec<[Path; 2]>; 3]> = SmallVec::new();
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

/// The first of `all` that carry `kbps`, if every forced region is needed among them.
fn fewest(all: &[Path], kbps: u64, forced: u32) -> Option<SmallVec<[Path; 2]>> {
    let mut sum = 0u64;
    let mut chosen: SmallVec<[Path; 2]> = SmallVec::new();
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
    // Something larger that came later may have made a smaller one unnecessary.
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

/// Lowers the ways by `surplus` in all, so that each keeps as much headroom as the others. None is
/// lowered to nothing: each is needed, so the surplus is less than the smallest.
fn level(chosen: &mut [Path], surplus: u64) {
    let count = chosen.len() as u64;
    let (each, mut rest) = (surplus / count, surplus % count);
    chosen.sort_by_key(|path| (Reverse(path.kbps), path.region));
    for path in chosen.iter_mut() {
        path.kbps -= each;
    }
    // What does not divide evenly: one each, and more only where others are down to one.
    for most in [1, u64::MAX] {
        for path in chosen.iter_mut() {
            let more = rest.min(most).min(path.kbps - 1);
            path.kbps -= more;
            rest -= more;
        }
    }
    debug_assert_eq!(rest, 0, "at least one kbit/s for each way was asked for");
}
