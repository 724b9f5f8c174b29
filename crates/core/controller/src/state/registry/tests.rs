//! The registry on its own: without a card, a DAG or a controller.

use proptest::prelude::*;
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, CardModel, Cycles, DagSpec, Digest, NtType,
    NtTypeId, Quota, RegionImages, RegionKind, Tenant, TenantId, TenantPatch, Timestamp, Traffic,
};

use super::*;
use crate::protocol::Effect;
use crate::store::records::Record;
use crate::store::tx::Tx;

const NOW: Timestamp = Timestamp::from_nanos(7);

fn id(id: &str) -> TenantId {
    TenantId::new(id).expect("a label")
}

fn operator() -> Caller {
    Caller::Operator("ada".into())
}

fn tenant(name: &str) -> Caller {
    Caller::Tenant(id(name))
}

fn nt(name: &str) -> NtType {
    NtType {
        shareable: false,
        memory: ByteSize::from_mib(2),
        traffic: Traffic::Payload,
        ..NtType::new(
            NtTypeId::new(name).expect("an owned label"),
            Bandwidth::from_gbps(10),
            Cycles::new(20),
            Area { lut: 1_000, ramb36: 1, dsp: 0 },
        )
    }
}

fn bitstream(name: &str, nts: &[&str], bytes: &[u8]) -> Bitstream {
    Bitstream {
        id: BitstreamId::new(name).expect("an owned label"),
        images: RegionImages::for_all(Digest::of(bytes), ByteSize::from_bytes(8_192)),
        nts: nts.iter().map(|nt| NtTypeId::new(nt).expect("an owned label")).collect(),
        region_kind: RegionKind::KnownNt,
        card_model: CardModel::new("tiny").expect("a label"),
        shareable: false,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: None,
    }
}

fn spec(nts: &[&str], gbps: u64) -> DagSpec {
    let nts: Vec<NtTypeId> = nts.iter().map(|nt| NtTypeId::new(nt).expect("a label")).collect();
    DagSpec::chain(&nts, Bandwidth::from_gbps(gbps))
}

/// Two tenants; an NT type of the provider's that is shared, and one of `acme`.
fn registry() -> Registry {
    let mut registry = Registry::default();
    let mut tx = Tx::at(NOW);
    for name in ["acme", "beta"] {
        let tenant = Tenant {
            id: id(name),
            weight: 1,
            quota: Quota::default(),
            notes: Default::default(),
            project: None,
        };
        registry.create_tenant(&mut tx, tenant).expect("a new one");
    }
    let shared = NtType { shareable: true, ..nt("nat") };
    registry.create_nt(&mut tx, &operator(), shared).expect("a new one");
    registry.create_nt(&mut tx, &tenant("acme"), nt("acme.own")).expect("its own");
    registry
}

fn check(registry: &Registry) {
    registry.check(std::iter::empty()).expect("no DAG was charged");
}

/// A registry made from all that was written.
fn restored(tx: &Tx) -> Registry {
    let (mut tenants, mut nts, mut bitstreams) = (Vec::new(), Vec::new(), Vec::new());
    let last: BTreeMap<&str, &Option<Vec<u8>>> =
        tx.writes().iter().map(|(key, value)| (key.as_str(), value)).collect();
    for (key, value) in last {
        match Record::parse(key, value.as_deref().expect("nothing was deleted")) {
            Ok(Record::Tenant(record)) => tenants.push(record),
            Ok(Record::NtType(record)) => nts.push(record),
            Ok(Record::Bitstream(record)) => bitstreams.push(record),
            other => panic!("{key}: {other:?}"),
        }
    }
    Registry::restore(0, tenants, nts, bitstreams)
}

#[test]
fn each_sees_what_is_its_own_or_shared() {
    let registry = registry();
    let seen = |caller: &Caller| -> Vec<String> {
        registry.nt_views(caller).map(|view| view.nt.id.to_string()).collect()
    };
    assert_eq!(seen(&operator()), ["acme.own", "nat"]);
    assert_eq!(seen(&tenant("acme")), ["acme.own", "nat"]);
    assert_eq!(seen(&tenant("beta")), ["nat"]);
    let own = NtTypeId::new("acme.own").expect("an owned label");
    assert!(registry.usable_nt(&id("acme"), &own).is_some());
    assert!(registry.usable_nt(&id("beta"), &own).is_none());
}

#[test]
fn nobody_registers_under_anothers_name() {
    let mut registry = registry();
    let mut tx = Tx::at(NOW);
    for (caller, name) in [("beta", "acme.new"), ("beta", "new"), ("beta", "nobody.new")] {
        let error = registry.create_nt(&mut tx, &tenant(caller), nt(name));
        let Err(ControlError::Invalid(fields)) = error else { panic!("{caller} made {name}") };
        assert_eq!(fields[0].field, "nt_type_id");
        assert!(fields[0].description.contains("\"beta.\""), "{}", fields[0].description);
    }
    let error = registry.create_nt(&mut tx, &operator(), nt("nobody.new"));
    assert!(matches!(error, Err(ControlError::Invalid(_))), "{error:?}");
    assert_eq!(tx, Tx::at(NOW));
}

#[test]
fn a_deletion_says_no_more_than_the_caller_may_know() {
    let mut registry = registry();
    let mut tx = Tx::at(NOW);
    let none = NtUsers { dags: 0 };
    let own = NtTypeId::new("acme.own").expect("an owned label");
    let shared = NtTypeId::new("nat").expect("a label");
    let deleted = |registry: &mut Registry, caller: &Caller, nt: &NtTypeId, users| {
        registry.check_nt_deletion(caller, nt, None, users)?;
        registry.remove_nt(&mut Tx::at(NOW), nt);
        Ok(())
    };
    let hidden = deleted(&mut registry, &tenant("beta"), &own, none);
    assert!(matches!(hidden, Err(ControlError::NotFound { .. })), "{hidden:?}");
    let others = deleted(&mut registry, &tenant("beta"), &shared, none);
    assert!(matches!(others, Err(ControlError::Precondition { .. })), "{others:?}");
    registry
        .create_bitstream(&mut tx, &operator(), bitstream("b", &["nat"], b"b"))
        .expect("a new one");
    let used = deleted(&mut registry, &operator(), &shared, NtUsers { dags: 3 });
    let text = used.expect_err("it is used").to_string();
    assert!(text.contains("1 bitstreams and 3 DAGs"), "{text}");
    let etag = registry.check_nt_deletion(&tenant("acme"), &own, Some("old"), none);
    assert!(matches!(etag, Err(ControlError::EtagMismatch { .. })), "{etag:?}");
    deleted(&mut registry, &tenant("acme"), &own, none).expect("nothing uses it");
    assert!(registry.nt(&own).is_none() && registry.catalogue().nt(&own).is_none());
    check(&registry);
}

#[test]
fn quotas_count_what_is_owned_and_what_is_asked_for() {
    let mut registry = registry();
    let mut tx = Tx::at(NOW);
    let quota = Quota {
        dags_max: 1,
        bandwidth_max: Bandwidth::from_gbps(5),
        memory_max: ByteSize::from_mib(3),
        bitstreams_max: 1,
        bitstream_bytes_max: ByteSize::from_bytes(8_192),
        nt_types_max: 2,
        ..Quota::default()
    };
    let patch = TenantPatch { quota: Some(quota.into()), ..TenantPatch::default() };
    let view = registry.update_tenant(&mut tx, &id("acme"), patch, None).expect("it exists");
    assert_eq!((view.tenant.weight, view.tenant.quota), (1, quota));
    let over = |error: Result<(), ControlError>| match error {
        Err(ControlError::Quota { quota, limit, asked, .. }) => (quota, limit, asked),
        other => panic!("within its quota: {other:?}"),
    };
    let acme = id("acme");
    let first = spec(&["nat"], 5);
    registry.check_dag_quota(&acme, None, &first, None).expect("as much as it may");
    let too_much = registry.check_dag_quota(&acme, None, &spec(&["nat"], 6), None);
    assert_eq!(over(too_much).0, "bandwidth_max_bps");
    let memory = registry.check_dag_quota(&acme, None, &spec(&["nat", "acme.own"], 1), None);
    assert_eq!(over(memory).0, "memory_max_bytes");
    // Instances of a tenant share the memory of an NT type.
    registry.check_dag_quota(&acme, None, &spec(&["nat", "nat"], 1), None).expect("each type once");
    registry.charge_dag(&acme, &first, None);
    let second = over(registry.check_dag_quota(&acme, None, &spec(&["nat"], 1), None));
    assert_eq!(second, ("dags_max".into(), "1".into(), "2".into()));
    registry
        .check_dag_quota(&acme, Some((&first, None)), &spec(&["acme.own"], 5), None)
        .expect("in its place");
    registry.check([(&acme, &first, None)].into_iter()).expect("it was charged");
    assert!(registry.check(std::iter::empty()).is_err(), "it is charged, and nobody is there");
    registry.discharge_dag(&acme, &first, None);
    let own = bitstream("acme.a", &["acme.own"], b"a");
    registry.create_bitstream(&mut tx, &tenant("acme"), own).expect("the first");
    let more = bitstream("acme.b", &["acme.own"], b"b");
    let error = registry.create_bitstream(&mut tx, &tenant("acme"), more).map(|_| ());
    assert_eq!(over(error).0, "bitstreams_max");
    assert_eq!(registry.usage(&acme).bitstreams, 1);
    check(&registry);
}

#[test]
fn bytes_go_with_the_last_bitstream_that_has_them() {
    let mut registry = registry();
    let mut tx = Tx::at(NOW);
    for name in ["a", "b"] {
        let same = bitstream(name, &["nat"], b"same");
        registry.create_bitstream(&mut tx, &operator(), same).expect("a new one");
    }
    let remove = |registry: &mut Registry, name: &str| {
        let mut tx = Tx::at(NOW);
        registry.remove_bitstream(&mut tx, &BitstreamId::new(name).expect("a label"));
        tx.effects().to_vec()
    };
    assert_eq!(remove(&mut registry, "a"), []);
    assert_eq!(remove(&mut registry, "b"), [Effect::DropBlob(Digest::of(b"same"))]);
    assert!(!registry.uses_digest(Digest::of(b"same")));
    check(&registry);
}

#[test]
fn a_rejected_bitstream_stays_and_is_not_planned_with() {
    let mut registry = registry();
    let mut tx = Tx::at(NOW);
    let name = BitstreamId::new("b").expect("a label");
    registry
        .create_bitstream(&mut tx, &operator(), bitstream("b", &["nat"], b"b"))
        .expect("a new one");
    registry.reject_bitstream(&mut tx, &name, "CRC".into());
    let view = registry.bitstream_view(&operator(), &name).expect("it is still there");
    assert_eq!(view.rejection.as_ref().map(|of| of.reason.as_str()), Some("CRC"));
    assert!(registry.catalogue().bitstream(&name).is_none());
    check(&registry);
    let gone = BitstreamId::new("gone").expect("a label");
    let before = tx.clone();
    registry.reject_bitstream(&mut tx, &gone, "CRC".into());
    assert_eq!(tx, before, "it was deleted while it was being loaded");
}

#[test]
fn a_deleted_tenants_number_is_given_out_again_and_no_other_twice() {
    let mut registry = registry();
    let mut tx = Tx::at(NOW);
    let number = |registry: &Registry, name: &str| registry.tenant(&id(name)).map(|t| t.number);
    assert_eq!((number(&registry, "acme"), number(&registry, "beta")), (Some(1), Some(2)));
    registry.remove_tenant(&mut tx, &id("acme"));
    for name in ["gamma", "delta"] {
        let tenant = Tenant {
            id: id(name),
            weight: 1,
            quota: Quota::default(),
            notes: Default::default(),
            project: None,
        };
        registry.create_tenant(&mut tx, tenant).expect("a new one");
    }
    assert_eq!((number(&registry, "gamma"), number(&registry, "delta")), (Some(1), Some(3)));
}

proptest! {
    /// Whatever comes and goes, the books agree with the records, and the records are enough to
    /// make the registry again.
    #[test]
    fn the_books_agree_with_the_records(
        acts in prop::collection::vec((0u8..4, 0usize..3, 0usize..4), 1..40),
    ) {
        let names = ["a", "acme.b", "beta.c"];
        let mut registry = Registry::default();
        let mut tx = Tx::at(NOW);
        for name in ["acme", "beta"] {
            let tenant = Tenant { id: id(name), weight: 1, quota: Quota::default(), notes: Default::default(), project: None };
            registry.create_tenant(&mut tx, tenant).expect("a new one");
        }
        let shared = NtType { shareable: true, ..nt("nat") };
        registry.create_nt(&mut tx, &operator(), shared).expect("a new one");
        let mut charged: Vec<(TenantId, DagSpec)> = Vec::new();
        for (act, which, size) in acts {
            let name = BitstreamId::new(names[which]).expect("an owned label");
            match act {
                0 => {
                    let new = bitstream(names[which], &["nat"], &[which as u8]);
                    // It may be there already.
                    let _ = registry.create_bitstream(&mut tx, &operator(), new);
                }
                1 => registry.reject_bitstream(&mut tx, &name, "CRC".into()),
                2 => {
                    let dag = (id(["acme", "beta", "acme"][which]), spec(&["nat"], size as u64));
                    registry.charge_dag(&dag.0, &dag.1, None);
                    charged.push(dag);
                }
                _ if !charged.is_empty() => {
                    let (tenant, spec) = charged.swap_remove(size % charged.len());
                    registry.discharge_dag(&tenant, &spec, None);
                }
                _ => {}
            }
            let dags = charged.iter().map(|(tenant, spec)| (tenant, spec, None));
            prop_assert_eq!(registry.check(dags), Ok(()));
        }
        let mut again = restored(&tx);
        charged.iter().for_each(|(tenant, spec)| again.charge_dag(tenant, spec, None));
        prop_assert_eq!(&again.usage, &registry.usage);
        prop_assert_eq!(&again.bitstreams, &registry.bitstreams);
        prop_assert_eq!(again.catalogue.bitstreams().count(), registry.catalogue.bitstreams().count());
    }
}
