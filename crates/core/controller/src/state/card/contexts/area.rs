//! Places in the save area: first fit, in whole units.

use std::collections::BTreeMap;

use snic_domain::SaveArea;
use snic_domain::limits::SAVE_UNIT;

use crate::store::records::StateRecord;

/// Space that a context of this many bytes takes.
fn whole(length: u32) -> u64 {
    u64::from(length).next_multiple_of(SAVE_UNIT.get())
}

/// Whether nothing stands in a part of the area.
pub(super) fn is_free(records: &BTreeMap<u32, StateRecord>, offset: u32, length: u32) -> bool {
    let before = records.range(..offset).next_back();
    let after = records.range(offset..).next();
    before
        .is_none_or(|(_, record)| u64::from(record.offset) + whole(record.length) <= offset.into())
        && after.is_none_or(|(at, _)| u64::from(offset) + whole(length) <= u64::from(*at))
}

/// Places for this many contexts of this many bytes, one each; `None` where there is no room for all.
/// Time O(states + contexts) where none is shorter than the one before it, as contexts of one chain
/// are; else O(states · contexts).
pub(super) fn places(
    records: &BTreeMap<u32, StateRecord>,
    area: SaveArea,
    lengths: impl IntoIterator<Item = u32>,
) -> Option<Vec<u32>> {
    let mut taken: Vec<(u64, u64)> =
        records.values().map(|r| (r.offset.into(), whole(r.length))).collect();
    let mut offsets = Vec::new();
    // Where the last one was placed: what is not shorter has no room before.
    let (mut index, mut at, mut last) = (0, 0, 0);
    for length in lengths.into_iter().map(whole) {
        if length < last {
            (index, at) = (0, 0);
        }
        while let Some((offset, length_taken)) = taken.get(index)
            && offset - at < length
        {
            at = offset + length_taken;
            index += 1;
        }
        if at + length > area.bytes.get() {
            return None;
        }
        offsets.push(u32::try_from(at).ok()?);
        taken.insert(index, (at, length));
        (index, at, last) = (index + 1, at + length, length);
    }
    Some(offsets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::{ByteSize, DagId, DagName, Digest, TenantId, Timestamp};

    use super::*;
    use crate::store::records::Phase;

    fn record(offset: u32, length: u32) -> StateRecord {
        StateRecord {
            dag: DagName {
                tenant: TenantId::new("acme").expect("a label"),
                dag: DagId::new("web").expect("a label"),
            },
            uid: snic_domain::DagUid::new(1, 1).expect("a row"),
            bitstream: snic_domain::BitstreamId::new("kv").expect("a label"),
            digest: Digest::of(b"kv"),
            offset,
            length,
            boot_id: 1,
            phase: Phase::Erasing,
            since: Timestamp::ZERO,
            attempts: 0,
        }
    }

    fn area(units: u64) -> SaveArea {
        SaveArea { bytes: ByteSize::from_bytes(units * 4_096), bytes_per_second: 1 }
    }

    #[test]
    fn the_first_gap_that_is_large_enough_is_taken() {
        let records = [record(0, 100), record(8_192, 4_097)];
        let records: BTreeMap<_, _> = records.into_iter().map(|r| (r.offset, r)).collect();
        assert_eq!(places(&records, area(8), [4_096, 4_097, 1]), Some(vec![4_096, 16_384, 24_576]));
        assert_eq!(places(&records, area(8), [5_000, 5_000, 5_000]), None);
        assert_eq!(places(&records, area(0), [1]), None);
        assert_eq!(places(&records, area(0), []), Some(Vec::new()));
    }

    /// Each one alone, from the beginning of the area.
    fn one_by_one(taken: &[(u64, u64)], area: SaveArea, lengths: &[u32]) -> Option<Vec<u32>> {
        let mut taken = taken.to_vec();
        let place = |length: &u32| {
            let length = whole(*length);
            let is_free = |at: u64| taken.iter().all(|(o, l)| at + length <= *o || o + l <= at);
            let at =
                (0..=area.bytes.get() / 4_096).map(|unit| unit * 4_096).find(|at| is_free(*at))?;
            taken.push((at, length));
            (at + length <= area.bytes.get()).then(|| u32::try_from(at).expect("a small area"))
        };
        lengths.iter().map(place).collect()
    }

    proptest! {
        /// Many at once get the places that they would get one by one.
        #[test]
        fn places_are_the_first_that_are_free(
            taken in prop::collection::btree_set(0u64..30, 0..12),
            lengths in prop::collection::vec(1u32..12_000, 0..12),
            units in 1u64..40,
        ) {
            let taken: Vec<(u64, u64)> = taken.into_iter().map(|at| (at * 4_096, 4_096)).collect();
            let offsets = taken.iter().map(|(at, _)| u32::try_from(*at).expect("a small area"));
            let records = offsets.map(|at| (at, record(at, 4_096))).collect();
            let found = places(&records, area(units), lengths.iter().copied());
            prop_assert_eq!(found, one_by_one(&taken, area(units), &lengths));
        }

        /// Places given out never overlap, and a gap that is large enough is found.
        #[test]
        fn places_are_free(lengths in prop::collection::vec(1u32..20_000, 1..20), units in 1u64..40) {
            let mut records = BTreeMap::new();
            for length in lengths {
                let Some(found) = places(&records, area(units), [length]) else {
                    let sum: u64 = records.values().map(|r: &StateRecord| whole(r.length)).sum();
                    prop_assert!(sum + whole(length) > units * 4_096, "nothing was freed: no gaps");
                    break;
                };
                prop_assert!(is_free(&records, found[0], length));
                prop_assert!(u64::from(found[0]) + whole(length) <= units * 4_096);
                records.insert(found[0], record(found[0], length));
            }
        }
    }
}
