//! Rows with any columns that a row can have.

use proptest::prelude::*;
use snic_tables::{
    ChainRow, ClassifierRow, CreditReservation, CreditRow, DagRow, GuardRow, Guest, InstanceRow,
    PageRow, RateLimiterRow, RegionRow, StageRow, Steering,
};

type Masked = (u32, u32);

type Fields = (Option<u16>, (Option<u32>, Option<u16>), Option<u8>, Option<u16>);

fn fields() -> impl Strategy<Value = Fields> {
    let (vni, vlan) = (proptest::option::of(0..1u32 << 24), proptest::option::of(0..1u16 << 12));
    (any::<Option<u16>>(), (vni, vlan), any::<Option<u8>>(), any::<Option<u16>>())
}

pub fn classifier() -> impl Strategy<Value = ClassifierRow> {
    let addresses = any::<(Masked, Masked)>();
    (any::<(u32, u16, Option<u16>)>(), fields(), addresses).prop_map(
        |((dag_uid, priority, destination_port), fields, (source, destination))| {
            let (virtual_function, (vni, vlan), protocol, source_port) = fields;
            ClassifierRow {
                dag_uid,
                priority,
                virtual_function,
                vni,
                source,
                destination,
                protocol,
                source_port,
                destination_port,
                vlan,
            }
        },
    )
}

pub fn guard() -> impl Strategy<Value = GuardRow> {
    let vlans = proptest::option::of(proptest::array::uniform12(0..1u16 << 12));
    (any::<[Option<[u8; 6]>; 4]>(), vlans, any::<Option<u32>>()).prop_map(
        |(macs, vlans, group_frames_per_second)| GuardRow { macs, vlans, group_frames_per_second },
    )
}

pub fn dag() -> impl Strategy<Value = DagRow> {
    let columns = any::<(u16, u32, u16, u16, u16, bool, u32)>();
    let guest = proptest::option::of(any::<(u8, u32)>());
    (columns, guest).prop_map(
        |((tenant, uid, first_stage, stages, rate_limiter, payload, configuration), guest)| {
            DagRow {
                tenant,
                uid,
                first_stage,
                stages,
                rate_limiter,
                payload,
                configuration,
                guest: guest.map(|(link, home_uid)| Guest { link, home_uid }),
            }
        },
    )
}

pub fn stage() -> impl Strategy<Value = StageRow> {
    (any::<([u16; 4], u16, bool)>(), 0..16u8)
        .prop_map(|((chains, next, last), join_mask)| StageRow { chains, join_mask, next, last })
}

pub fn chain() -> impl Strategy<Value = ChainRow> {
    const ALL: &[Steering] = &[Steering::RoundRobin, Steering::LeastLoaded, Steering::ByFlow];
    (any::<(u16, u16)>(), proptest::sample::select(ALL)).prop_map(
        |((first_instance, instances), steering)| ChainRow { first_instance, instances, steering },
    )
}

pub fn instance() -> impl Strategy<Value = InstanceRow> {
    (any::<bool>(), any::<(u8, u8, u32)>(), 0..1_024u16).prop_map(
        |(is_here, (number, used_mask, weight_kbps), entry)| match is_here {
            true => InstanceRow::in_region(number, used_mask, weight_kbps),
            false => InstanceRow::on_link(number, entry, weight_kbps),
        },
    )
}

pub fn region() -> impl Strategy<Value = RegionRow> {
    any::<(bool, u32, [u32; 8])>().prop_map(|(user_nt, bitstream_tag, nts)| RegionRow {
        user_nt,
        bitstream_tag,
        nts,
    })
}

pub fn credit() -> impl Strategy<Value = CreditRow> {
    (proptest::array::uniform8(0..128u8), any::<bool>()).prop_map(|(initial, prefix)| {
        let reservation = if prefix { CreditReservation::Prefix } else { CreditReservation::Chain };
        CreditRow { initial, reservation }
    })
}

pub fn rate_limiter() -> impl Strategy<Value = RateLimiterRow> {
    let words = any::<(u32, u32, u32)>();
    (words, 0..1_u16 << 14, any::<u16>()).prop_map(|(words, packet_bytes, weight)| {
        let (rate_kbps, burst_bytes, promised_kbps) = words;
        RateLimiterRow { rate_kbps, burst_bytes, promised_kbps, packet_bytes, weight }
    })
}

pub fn page() -> impl Strategy<Value = PageRow> {
    (any::<(u16, u32, u16, u16)>(), 0..8u8).prop_map(
        |((tenant, nt, virtual_page, physical_page), rwx)| PageRow {
            tenant,
            nt,
            virtual_page,
            physical_page,
            rwx,
        },
    )
}
