//! Mixes of packet sizes, against the packets themselves: one round of a mix is laid out packet by packet.

use proptest::prelude::*;
use snic_domain::limits::{
    PACKET_BYTES_MAX, PACKET_BYTES_MIN, PACKET_SIZES_MAX, PACKET_WEIGHT_MAX,
};
use snic_domain::{Bandwidth, InvalidPacketSizes, PacketSize, PacketSizes};

fn mix(sizes: &[(u32, u32)]) -> PacketSizes {
    PacketSizes::new(sizes.iter().map(|&(bytes, weight)| PacketSize { bytes, weight }).collect())
}

/// The bytes of each packet of one round.
fn round(sizes: &[(u32, u32)]) -> Vec<u32> {
    sizes.iter().flat_map(|&(bytes, weight)| vec![bytes; weight as usize]).collect()
}

/// Distinct sizes, each with a weight.
fn sizes() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let bytes = PACKET_BYTES_MIN..=PACKET_BYTES_MAX;
    proptest::collection::btree_map(bytes, 1..60_u32, 1..8)
        .prop_map(|sizes| sizes.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

/// Anything that can be written, near the limits on both sides.
fn anything() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let bytes = prop_oneof![
        Just(0),
        Just(PACKET_BYTES_MIN - 1),
        Just(PACKET_BYTES_MIN),
        64..70_u32,
        Just(PACKET_BYTES_MAX),
        Just(PACKET_BYTES_MAX + 1),
        any::<u32>(),
    ];
    let weight = prop_oneof![
        Just(0),
        1..5_u32,
        Just(PACKET_WEIGHT_MAX),
        Just(PACKET_WEIGHT_MAX + 1),
        any::<u32>(),
    ];
    proptest::collection::vec((bytes, weight), 0..20)
}

proptest! {
    #[test]
    fn a_round_has_the_packets_and_bits_of_its_packets(sizes in sizes()) {
        let (mix, packets) = (mix(&sizes), round(&sizes));
        prop_assert_eq!(mix.check(), Ok(()));
        prop_assert_eq!(mix.packets(), packets.len() as u64);
        let bytes: u64 = packets.iter().map(|bytes| u64::from(*bytes)).sum();
        prop_assert_eq!(mix.bits(), bytes * 8);
        prop_assert_eq!(Some(mix.largest()), packets.iter().copied().max());
        let costly = |bytes: u32| u64::from(bytes.div_ceil(64)) + 3;
        let cost: u64 = packets.iter().map(|bytes| costly(*bytes)).sum();
        prop_assert_eq!(mix.sum(costly), cost);
    }

    /// So many packets carry the bandwidth, and one less a second does not.
    #[test]
    fn packets_a_second_are_as_few_as_carry_the_bandwidth(
        sizes in sizes(),
        bps in 1_000_000..4_000_000_000_000_u64,
    ) {
        let mix = mix(&sizes);
        let packets = u128::from(mix.packets_per_second(Bandwidth::from_bps(bps)));
        let carried = |packets: u128| packets * u128::from(mix.bits()) / u128::from(mix.packets());
        prop_assert!(carried(packets) >= u128::from(bps));
        prop_assert!(carried(packets - 1) < u128::from(bps));
    }

    /// All weights times the same factor are the same mix.
    #[test]
    fn only_the_ratio_of_weights_counts(sizes in sizes(), times in 1..10_u32, gbps in 1..400_u64) {
        let more: Vec<(u32, u32)> =
            sizes.iter().map(|&(bytes, weight)| (bytes, weight * times)).collect();
        let rate = Bandwidth::from_gbps(gbps);
        prop_assert_eq!(mix(&more).packets_per_second(rate), mix(&sizes).packets_per_second(rate));
    }

    /// The first rule that is broken is told, with the place where it is.
    #[test]
    fn a_mix_is_accepted_exactly_when_every_rule_holds(sizes in anything()) {
        let is_size = |bytes: u32| (PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&bytes);
        let is_weight = |weight: u32| weight > 0 && weight <= PACKET_WEIGHT_MAX;
        let is_new = |at: usize| sizes[..at].iter().all(|(bytes, _)| *bytes != sizes[at].0);
        let first = (0..sizes.len())
            .find(|&at| !is_size(sizes[at].0) || !is_weight(sizes[at].1) || !is_new(at));
        match mix(&sizes).check() {
            Ok(()) => prop_assert!(first.is_none() && (1..=PACKET_SIZES_MAX).contains(&sizes.len())),
            Err(InvalidPacketSizes::Count { sizes: told }) => {
                prop_assert_eq!(told, sizes.len());
                prop_assert!(sizes.is_empty() || sizes.len() > PACKET_SIZES_MAX);
            }
            Err(InvalidPacketSizes::Bytes { bytes, index }) => {
                prop_assert_eq!((Some(index), bytes), (first, sizes[index].0));
                prop_assert!(!is_size(bytes));
            }
            Err(InvalidPacketSizes::Weight { bytes, weight, index }) => {
                prop_assert_eq!((Some(index), (bytes, weight)), (first, sizes[index]));
                prop_assert!(is_size(bytes) && !is_weight(weight));
            }
            Err(InvalidPacketSizes::Twice { bytes, index }) => {
                prop_assert_eq!((Some(index), bytes), (first, sizes[index].0));
                prop_assert!(is_size(bytes) && !is_new(index));
            }
        }
    }

    /// The printed form is the one that DAG files take: it says all sizes and weights.
    #[test]
    fn a_mix_is_printed_whole(sizes in sizes()) {
        let text = mix(&sizes).to_string();
        let pair = |part: &str| -> (u32, u32) {
            let (bytes, weight) = part.split_once(": ").expect("a size and its weight");
            (bytes.parse().expect("a number"), weight.parse().expect("a number"))
        };
        match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(inner) => prop_assert_eq!(inner.split(", ").map(pair).collect::<Vec<_>>(), sizes),
            None => prop_assert_eq!((text, sizes.len()), (sizes[0].0.to_string(), 1)),
        }
    }
}

#[test]
fn a_mix_of_the_largest_numbers_does_not_overflow() {
    let most = mix(&[(PACKET_BYTES_MAX, PACKET_WEIGHT_MAX); PACKET_SIZES_MAX]);
    assert_eq!(most.packets(), 16_000);
    assert_eq!(most.sum(|_| u64::MAX), u64::MAX, "it saturates");
    let rate = Bandwidth::from_bps(u64::MAX);
    assert_eq!(PacketSizes::only(64).packets_per_second(rate), u64::MAX.div_ceil(512));
    assert_eq!(mix(&[]).packets_per_second(rate), 0, "no packets, whatever is asked");
}

#[test]
fn the_same_size_twice_is_told_with_what_to_do() {
    let error = mix(&[(64, 1), (594, 2), (64, 3)]).check().expect_err("64 is there already");
    assert_eq!(error.field(), "packet_sizes[2].bytes");
    assert_eq!(
        error.to_string(),
        "duplicate packet size 64 bytes; give each size once, with its total weight"
    );
}
