//! Places in the save area: first fit, in whole units.

use std::collections::BTreeMap;

use snic_domain::SaveArea;
use snic_domain::limits::SAVE_UNIT;

use super::StateRecord;

/// What a context of so many bytes takes.
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

/// Where so many contexts of so many bytes have room, one place each; `None` where not all have.
/// Time O(records · contexts).
pub(super) fn places(
    records: &BTreeMap<u32, StateRecord>,
    area: SaveArea,
    lengths: impl IntoIterator<Item = u32>,
) -> Option<Vec<u32>> {
    let mut taken: Vec<(u64, u64)> =
        records.values().map(|r| (r.offset.into(), whole(r.length))).collect();
    let mut offsets = Vec::new();
    for length in lengths {
        let (mut at, mut index) = (0, taken.len());
        for (i, (offset, length_taken)) in taken.iter().enumerate() {
            if offset - at >= whole(length) {
                index = i;
                break;
            }
            at = offset + length_taken;
        }
        if at + whole(length) > area.bytes.get() {
            return None;
        }
        taken.insert(index, (at, whole(length)));
        offsets.push(u32::try_from(at).ok()?);
    }
    Some(offsets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::{ByteSize, DagId, DagName, Digest, TenantId, Timestamp};

    use super::*;
    use crate::states::Phase;

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

    proptest! {
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
