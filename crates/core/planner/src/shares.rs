//! Spreads the bandwidth of a part over loaded chains: one instance if one suffices, otherwise the fewest,
//! with equal headroom on the tightest NT of each.

use std::cmp::Reverse;

use smallvec::SmallVec;
use snic_domain::limits::REGIONS_MAX;

use crate::view::{NtSequence, RegionPath, View};

/// Regions with a single path of at least `kbps`, with its width, the widest first. With forced regions,
/// only a single forced region qualifies.
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
    found.sort_by_key(|(region, widest)| (Reverse(*widest), *region));
    found
}

/// Sets of paths that together carry `kbps`: the fewest paths; if that uses victims, the fewest that avoid
/// victims. Where regions `may_load` and victims are not interchangeable for that, also the fewest that avoid each kind of
/// them: another part may need a load into one of that kind. Every forced region is used.
pub(crate) fn several(
    view: &View<'_>,
    of: NtSequence<'_>,
    kbps: u64,
    forced: u32,
    may_load: bool,
) -> SmallVec<[SmallVec<[RegionPath; 2]>; 2]> {
    let mut all = Vec::new();
    for region in 0..REGIONS_MAX {
        view.paths(region, of, &mut all);
    }
    let is_forced = |path: &RegionPath| forced >> path.region & 1 == 1;
    let is_spared =
        |path: &RegionPath| view.loadable >> path.region & 1 == 1 && forced >> path.region & 1 == 0;
    all.sort_by_key(|path| (Reverse(is_forced(path)), Reverse(path.kbps), path.region));
    let mut found: SmallVec<[SmallVec<[RegionPath; 2]>; 2]> = SmallVec::new();
    found.extend(fewest(&all, kbps, forced));
    if all.iter().any(is_spared) {
        all.sort_by_key(|path| (Reverse(is_forced(path)), is_spared(path), Reverse(path.kbps)));
        found.extend(fewest(&all, kbps, forced).filter(|other| !found.contains(other)));
    }
    let Some(widest) = found.first().filter(|_| may_load).cloned() else { return found };
    for (at, victim) in widest.iter().enumerate().filter(|(_, path)| is_spared(path)) {
        let is_alike = |path: &RegionPath| view.load_alike(path.region, victim.region);
        let is_done = widest[..at].iter().any(|path| is_spared(path) && is_alike(path));
        if is_done || all.iter().filter(|path| is_spared(path)).all(is_alike) {
            continue;
        }
        all.sort_by_key(|path| {
            let is_avoided = is_spared(path) && is_alike(path);
            (Reverse(is_forced(path)), is_avoided, Reverse(path.kbps), path.region)
        });
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smallvec::smallvec;

    use super::*;

    fn path(region: u8, kbps: u64) -> RegionPath {
        RegionPath { region, slots: smallvec![0], kbps }
    }

    fn shown(chosen: Option<SmallVec<[RegionPath; 2]>>) -> Option<Vec<(u8, u64)>> {
        chosen.map(|paths| paths.iter().map(|path| (path.region, path.kbps)).collect())
    }

    #[test]
    fn the_widest_are_taken_until_they_suffice() {
        let all = [path(2, 10), path(0, 6), path(1, 4)];
        assert_eq!(shown(fewest(&all, 10, 0)), Some(vec![(2, 10)]));
        assert_eq!(shown(fewest(&all, 11, 0)), Some(vec![(0, 4), (2, 7)]), "5 left of both");
        assert_eq!(shown(fewest(&all, 20, 0)), Some(vec![(0, 6), (1, 4), (2, 10)]));
        assert_eq!(shown(fewest(&all, 21, 0)), None, "one more than there is");
        assert_eq!(shown(fewest(&[], 1, 0)), None);
    }

    /// A load that a later path made unnecessary goes; a region that was loaded for the part may not be it.
    #[test]
    fn every_forced_region_is_used_or_there_is_no_such_set() {
        let all = [path(1, 4), path(0, 10)];
        assert_eq!(shown(fewest(&all, 10, 0)), Some(vec![(0, 10)]));
        assert_eq!(shown(fewest(&all, 10, 1 << 1)), None, "region 0 alone would do");
        assert_eq!(shown(fewest(&all, 11, 1 << 1)), Some(vec![(0, 8), (1, 3)]));
        assert_eq!(shown(fewest(&all, 14, 0b11)), Some(vec![(0, 10), (1, 4)]));
        assert_eq!(shown(fewest(&all, 11, 0b111)), None, "region 2 has no path");
    }

    #[test]
    fn no_path_is_levelled_to_nothing() {
        let levelled = |kbps: &[u64], surplus| {
            let mut paths: Vec<RegionPath> = (0u8..).zip(kbps).map(|(r, k)| path(r, *k)).collect();
            level(&mut paths, surplus);
            paths.sort_by_key(|path| path.region);
            paths.iter().map(|path| path.kbps).collect::<Vec<_>>()
        };
        assert_eq!(levelled(&[10, 10, 10], 0), [10, 10, 10]);
        assert_eq!(levelled(&[10, 10, 10], 6), [8, 8, 8]);
        assert_eq!(levelled(&[10, 10, 10], 7), [7, 8, 8], "the rest from the first");
        assert_eq!(levelled(&[10, 12, 10], 8), [7, 9, 8], "then from the widest and the first");
        assert_eq!(levelled(&[2, 2, 2], 1), [1, 2, 2]);
        assert_eq!(levelled(&[9, 3, 3], 2), [8, 2, 3]);
    }

    proptest! {
        /// Beside all subsets: as few paths as can carry it, no more in all than asked for, none above its width
        /// or empty, and equal headroom but for the remainder.
        #[test]
        fn no_smaller_set_of_paths_suffices(
            mut widths in prop::collection::vec(1u64..30, 1..8), kbps in 1u64..150,
        ) {
            widths.sort_by_key(|width| Reverse(*width));
            let all: Vec<RegionPath> = (0u8..).zip(&widths).map(|(r, k)| path(r, *k)).collect();
            let carries = |set: &u32| {
                let within = widths.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
                within.map(|(_, width)| width).sum::<u64>() >= kbps
            };
            let least = (0..1u32 << widths.len()).filter(carries).map(u32::count_ones).min();
            let found = fewest(&all, kbps, 0);
            prop_assert_eq!(found.as_ref().map(|paths| paths.len() as u32), least);
            let Some(found) = found else { return Ok(()) };
            prop_assert_eq!(found.iter().map(|path| path.kbps).sum::<u64>(), kbps);
            prop_assert!(found.windows(2).all(|two| two[0].region < two[1].region));
            let left = |path: &RegionPath| widths[usize::from(path.region)] - path.kbps;
            prop_assert!(found.iter().all(|path| path.kbps > 0), "{:?}", found);
            let (least, most) = (found.iter().map(left).min(), found.iter().map(left).max());
            let apart = most.zip(least).map_or(0, |(most, least)| most - least);
            let is_down_to_one = found.iter().any(|path| path.kbps == 1);
            prop_assert!(apart <= 1 || is_down_to_one, "{:?} of {:?}", found, widths);
        }
    }
}
