//! Visibility of resources, packets that a prefix covers, and what errors tell a user.

use std::net::Ipv4Addr;
use std::time::Duration;

use proptest::prelude::*;
use rstest::rstest;
use snic_domain::{
    Area, Bandwidth, BindingSpec, BindingState, BindingTarget, Bitstream, BitstreamId, ByteSize,
    CardId, CardModel, ChainIdentity, ChainMismatch, Cycles, Dag, DagId, DagName, DagSpec, Digest,
    InvalidDag, NtType, NtTypeId, PciAddress, Prefix, RegionId, RegionImages, RegionKind, TenantId,
    VmId,
};

fn tenant(id: &str) -> TenantId {
    TenantId::new(id).expect("a label")
}

fn nt_type(id: &str, shareable: bool) -> NtType {
    NtType {
        shareable,
        ..NtType::new(
            NtTypeId::new(id).expect("an id"),
            Bandwidth::from_gbps(10),
            Cycles::new(10),
            Area::default(),
        )
    }
}

fn bitstream(id: &str, shareable: bool) -> Bitstream {
    Bitstream {
        id: BitstreamId::new(id).expect("an id"),
        images: RegionImages::for_all(Digest::of(b""), ByteSize::ZERO),
        nts: Vec::new(),
        region_kind: RegionKind::UserNt,
        card_model: CardModel::new("sim").expect("a label"),
        shareable,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: None,
    }
}

/// For the owner, for another tenant, and for a tenant whose name begins like the owner's.
#[rstest]
#[case::providers("nat", true, [true, true, true])]
#[case::shared("acme.nat", true, [true, true, true])]
#[case::private("acme.nat", false, [true, false, false])]
fn nt_types_are_visible(#[case] id: &str, #[case] shareable: bool, #[case] visible: [bool; 3]) {
    let nt = nt_type(id, shareable);
    let seen = ["acme", "globex", "acme-2"].map(|id| nt.is_visible_to(&tenant(id)));
    assert_eq!(seen, visible);
}

/// Only the owner loads a tenant's bitstream, and what all load is the provider's.
#[rstest]
#[case::providers("nat", true, [true, true, true], true)]
#[case::shared("acme.nat", true, [true, false, false], false)]
#[case::private("acme.nat", false, [true, false, false], false)]
fn bitstreams_are_loaded_by_their_owner(
    #[case] id: &str,
    #[case] shareable: bool,
    #[case] loadable: [bool; 3],
    #[case] is_approved: bool,
) {
    let bitstream = bitstream(id, shareable);
    let tenants = ["acme", "globex", "acme-2"].map(tenant);
    assert_eq!(tenants.each_ref().map(|tenant| bitstream.is_loadable_by(tenant)), loadable);
    assert_eq!(bitstream.is_approved_by_provider(), is_approved);
}

proptest! {
    /// A prefix covers an address exactly if their first bits are equal, one bit at a time.
    #[test]
    fn a_mask_has_as_many_leading_ones_as_the_prefix_is_long(length in 0u8..=32, address: u32) {
        let mask = Prefix { address: Ipv4Addr::UNSPECIFIED, length }.mask();
        for bit in 0..32 {
            let covered = mask >> (31 - bit) & 1 == 1;
            prop_assert_eq!(covered, bit < length, "bit {} of /{}", bit, length);
        }
        let flipped = address ^ if length < 32 { 1 << (31 - length) } else { 0 };
        prop_assert_eq!(address & mask, flipped & mask, "bits behind the prefix do not count");
    }

    /// Every node of a chain has its own valid id, and each edge leads to the next node.
    #[test]
    fn a_chain_of_any_nts_is_a_valid_dag(picks in prop::collection::vec(0usize..3, 1..30)) {
        let nts: Vec<NtTypeId> = picks
            .iter()
            .map(|pick| NtTypeId::new(["nat", "acme.nat", "aes"][*pick]).expect("an id"))
            .collect();
        let spec = DagSpec::chain(&nts, Bandwidth::from_gbps(1));
        prop_assert_eq!(spec.nodes.len(), nts.len());
        prop_assert!(spec.nodes.iter().map(|node| &node.nt).eq(&nts));
        let pairs = spec.nodes.windows(2).zip(&spec.edges);
        prop_assert!(pairs.clone().count() == nts.len() - 1);
        for (pair, edge) in pairs {
            prop_assert_eq!((&pair[0].id, &pair[1].id), (&edge.from, &edge.to));
        }
        prop_assert!(Dag::new(spec).is_ok());
    }
}

#[test]
fn a_repeated_binding_may_change_deadline_and_lease_only() {
    let dag = |id: &str| DagName { tenant: tenant("acme"), dag: DagId::new(id).expect("a label") };
    let spec = BindingSpec {
        vm: VmId::new("123e4567-e89b-42d3-a456-426614174000").expect("a UUID"),
        tenant: tenant("acme"),
        chains: BindingTarget::Dags(vec![dag("web")]),
        functions: 1,
        ready_within: Duration::from_secs(1),
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    };
    let later = Duration::from_secs(9);
    let retry = BindingSpec { ready_within: later, lease: Some(later), ..spec.clone() };
    assert!(spec.is_same(&retry));
    let other_vm = VmId::new("00000000-0000-0000-0000-000000000000").expect("a UUID");
    let others = [
        BindingSpec { vm: other_vm, ..spec.clone() },
        BindingSpec { tenant: tenant("globex"), ..spec.clone() },
        BindingSpec { chains: BindingTarget::Dags(vec![dag("db")]), ..spec.clone() },
        BindingSpec { chains: BindingTarget::Template(dag("web")), ..spec.clone() },
        BindingSpec { functions: 2, ..spec.clone() },
    ];
    for other in others {
        assert!(!spec.is_same(&other), "{other:?}");
    }
}

#[test]
fn only_failed_and_unbound_bindings_have_ended() {
    use BindingState::{BindFailed, BindStarted, Bound, Initial, Unbound};
    let ended = [Initial, BindStarted, Bound, BindFailed, Unbound].map(BindingState::has_ended);
    assert_eq!(ended, [false, false, false, true, true]);
}

/// An error names the value and what is allowed.
#[rstest]
#[case(TenantId::new("Acme").expect_err("capital").to_string(),
    "\"Acme\" is not a tenant id: 1 to 63 of a-z, 0-9 and '-', a letter first, no '-' last")]
#[case(CardId::new("").expect_err("empty").to_string(),
    "\"\" is not a card id: 1 to 63 of a-z, 0-9 and '-', a letter first, no '-' last")]
#[case("3b:00.0".parse::<PciAddress>().expect_err("no domain").to_string(),
    "\"3b:00.0\" is not a PCI address: expected domain:bus:device.function in hexadecimal, device \
     at most 1f and function at most 7, e.g. 0000:3b:00.0")]
#[case(VmId::new("vm1").expect_err("no UUID").to_string(),
    "\"vm1\" is not a valid UUID (expected e.g. 123e4567-e89b-42d3-a456-426614174000)")]
#[case(InvalidDag::Empty.to_string(), "the DAG has no nodes; give at least one NT")]
fn errors_name_the_value_and_the_rule(#[case] text: String, #[case] expected: &str) {
    assert_eq!(text, expected);
}

/// A text of a megabyte must not end up in a log line.
#[test]
fn errors_quote_at_most_80_characters() {
    let long = "ä".repeat(1_000);
    let quoted = "ä".repeat(80);
    assert_eq!(TenantId::new(&long).expect_err("too long").text, quoted);
    assert_eq!(VmId::new(&long).expect_err("no UUID").0, quoted);
    assert_eq!(long.parse::<PciAddress>().expect_err("no address").0, quoted);
}

#[test]
fn resource_names_are_those_of_the_api() {
    let name = DagName { tenant: tenant("acme"), dag: DagId::new("web").expect("a label") };
    assert_eq!(name.to_string(), "tenants/acme/dags/web");
    assert_eq!(format!("[{:>6}]", tenant("acme")), "[  acme]", "ids align in tables");
    assert_eq!(format!("{:?}", tenant("acme")), "TenantId(acme)");
}

#[test]
fn a_bitstream_fits_the_regions_that_it_was_built_for() {
    let mut of = bitstream("nat", true);
    for number in [0, 7, 31] {
        assert!(of.fits_region(RegionId(number)), "it is relocated to any of them");
    }
    of.images.first_mut().regions = vec![RegionId(0), RegionId(7)];
    let fits: Vec<u8> = (0..32).filter(|number| of.fits_region(RegionId(*number))).collect();
    assert_eq!(fits, [0, 7]);
}

#[test]
fn a_region_has_to_report_what_is_declared() {
    let ids = ["firewall", "aes"].map(|id| NtTypeId::new(id).expect("a label"));
    let of = Bitstream { nts: ids.to_vec(), ..bitstream("chain", true) };
    let reported = of.reported_chain();
    // Without a flow that says more, the NTs alone make the identity.
    assert_eq!(reported.identity, ChainIdentity::of_nts(&ids));
    assert_eq!(reported.nts[..2], ids.each_ref().map(NtTypeId::code));
    assert!(reported.nts[2..].iter().all(|code| code.0 == 0));
    let mut built = of.clone();
    built.identity = Some(ChainIdentity::from_words([1, 2, 3, 4]));
    assert_eq!(built.reported_chain().nts, reported.nts);
    assert_eq!(built.reported_chain().identity.words(), [1, 2, 3, 4]);
    assert_eq!(reported.check(&built.reported_chain()), Err(ChainMismatch::Identity));
    let reversed = Bitstream { nts: ids.into_iter().rev().collect(), ..of };
    let mismatch = reversed.reported_chain().check(&reported);
    assert_eq!(mismatch, Err(ChainMismatch::Nt { slot: 0 }));
}
