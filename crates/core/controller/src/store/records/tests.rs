//! Records are read back as they were written, and the bytes of the store stay as they are.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::{
    BindingSpec, BindingTarget, DagSpec, Form, KeptForTenant, Mapping, NtTypeId, OperationId,
    Quota, Rule, RuleId, Tenant, TenantId, Timestamp, VmId,
};

use super::*;
use crate::protocol::{ControlError, DagMoves, OperationWork};

fn name() -> DagName {
    DagName { tenant: "acme".parse().expect("a label"), dag: "web".parse().expect("a label") }
}

fn spec() -> DagSpec {
    let nat = NtTypeId::new("nat").expect("a label");
    DagSpec::chain(&[nat], snic_domain::Bandwidth::from_gbps(1))
}

fn card() -> CardId {
    "card0".parse().expect("a label")
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn uid() -> snic_domain::DagUid {
    snic_domain::DagUid::new(3, 7).expect("a row")
}

fn kept() -> KeptRecord {
    let of = KeptForTenant {
        number: 7,
        revision: 2,
        tenant: name().tenant,
        vm: None,
        card: card(),
        functions: 2,
        used: 1,
        bandwidth: snic_domain::Bandwidth::from_gbps(1),
        lasts: Duration::from_secs(30),
    };
    KeptRecord { of, ends: at(9) }
}

fn context() -> ResidentContext {
    ResidentContext { bitstream: "cache".parse().expect("a label"), dag: name() }
}

fn dag() -> DagRecord {
    let mapping =
        Mapping { card: card(), form: Form::Sequential, stages: Vec::new(), programs: Vec::new() };
    let placement = Placement {
        serial: 2,
        generation: 1,
        spec: spec(),
        burst: Some(snic_domain::Bandwidth::from_gbps(2)),
        mapping,
        stage_row: 1,
        chain_row: 2,
        instance_row: 3,
    };
    DagRecord {
        name: name(),
        uid: uid(),
        spec: spec(),
        generation: 1,
        placement: Some(placement),
        previous: None,
        created: at(1),
        updated: at(2),
        assigned: None,
        unconfigured_nts: Some(UnconfiguredNts { card: card(), at: [(3, 1)].into() }),
    }
}

fn binding() -> BindingRecord {
    let vm: VmId = "123e4567-e89b-12d3-a456-426614174000".parse().expect("a UUID");
    let spec = BindingSpec {
        vm,
        tenant: name().tenant,
        chains: BindingTarget::Dags(vec![name()]),
        functions: 1,
        ready_within: Duration::from_secs(5),
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    };
    BindingRecord::new(spec, at(1), at(9))
}

fn acme() -> Tenant {
    Tenant {
        id: name().tenant,
        weight: 2,
        quota: Quota::default(),
        notes: Default::default(),
        project: None,
    }
}

/// One of each kind that can be made without a catalogue.
fn all() -> Vec<Record> {
    let (created, updated, rejections, fleet_number) = (at(1), at(2), Vec::new(), None);
    let (number, generation) = (1, 1);
    let tenant = acme();
    let tenant =
        TenantRecord { tenant, number, generation, created, updated, rejections, fleet_number };
    let id = RuleId::new("first").expect("a label");
    let rule = Rule {
        id,
        priority: 3,
        matches: Default::default(),
        dag: name(),
        notes: Default::default(),
    };
    let rule = RuleRecord {
        rule,
        card: card(),
        row: 4,
        binding: None,
        created: at(1),
        updates: 0,
        updated: None,
    };
    let operation = OperationRecord {
        id: OperationId::new("op-1").expect("a label"),
        work: OperationWork::DeleteDag(name(), Some(card())),
        created: at(1),
        started: None,
        ended: Some((at(2), Err(ControlError::Cancelled))),
        regions: Some((2, 1)),
        moves: Some(DagMoves { made: 2, left: 1 }),
    };
    let request = RequestKey { caller: "operator:ada".into(), id: "r-1".into() };
    let made = CreatedResource::Tenant(TenantId::new("acme").expect("a label"));
    let saved = StateRecord {
        dag: name(),
        uid: uid(),
        bitstream: context().bitstream,
        digest: snic_domain::Digest::of(b"cache"),
        offset: 4_096,
        length: 512,
        boot_id: 1,
        phase: Phase::Saving(RegionId(2)),
        since: at(1),
        attempts: 0,
    };
    let erase = PendingErase { uid: uid(), digest: snic_domain::Digest::of(b"cache") };
    let region = RegionRecord { bitstream: None, cordoned: true, faulty: None };
    let maintenance = Maintenance { reason: "disks".into(), by: "ada".into(), since: at(1) };
    let mut records = vec![
        Record::Meta(Meta { schema: LAYOUT, secret: 7, operations: 2 }),
        Record::Maintenance(maintenance),
        Record::Kept(vec![kept()]),
        Record::Tenant(tenant),
        Record::Dag(Box::new(dag())),
        Record::Region(card(), RegionId(5), region),
        Record::ResidentContext(card(), RegionId(5), context()),
        Record::PendingErase(card(), RegionId(11), erase),
        Record::SavedContext(card(), saved),
        Record::Rule(rule),
        Record::Binding(binding()),
        Record::Operation(operation),
        Record::Request(request, RequestRecord { command: "c0".into(), made, at: at(1) }),
        Record::Refused(RefusedRecord { name: name(), spec: spec(), at: at(1) }),
        Record::Uid(12, 9),
    ];
    records.extend(of_usage());
    records
}

fn of_usage() -> [Record; 7] {
    [
        usage("usage-open/closed", "1700000000"),
        usage(
            "usage-open/cards/card0",
            r#"{"boot":7,"is_read":true,"strangers":[[3,[1,2,3,4]]],"clock":{"nanos":9,"floor":9,"cycles":5,"rest":1}}"#,
        ),
        usage(
            "usage-open/rows/card0/0003",
            r#"{"uid":7171,"account":{"dag":7171},"is_held":true,"seen":[1,2,3,4],"drops":null,"rates":{"promised":5,"regions":1},"since":9}"#,
        ),
        usage(
            "usage-open/accounts/card0/dag/00001c03",
            r#"{"tenant":"acme","dag":"web","begun":1700000000,"remainders":{"life":1,"promised":2,"regions":3},"open":[0,5,32,6],"fine":[]}"#,
        ),
        usage(
            "usage-open/months/card0/dag/00001c03",
            r#"{"month":1698796800,"parts":[[1698796800,[0,5,4,6]]]}"#,
        ),
        usage("usage-open/pages/card0/rest/acme/m", "[60,60,8,500]"),
        usage("usage/card0/dag/00001c03/f/001700000040", "[1700000040,10,8,500]"),
    ]
}

/// A record of usage, as stores that exist have it.
fn usage(key: &str, value: &str) -> Record {
    let record = Record::parse(key, value.as_bytes()).expect("a record of usage");
    assert_eq!(record.encode(), value.as_bytes(), "{key}");
    record
}

#[test]
fn written_records_are_read_back() {
    for record in all() {
        let key = record.key().to_string();
        let again = Record::parse(&key, &record.encode()).expect("our own record");
        assert_eq!(again, record, "{key}");
    }
}

/// Stores that exist have these keys.
#[test]
fn keys_stay_as_they_are() {
    let keys: Vec<String> = all().iter().map(|record| record.key().to_string()).collect();
    assert_eq!(
        keys,
        [
            "meta",
            "maintenance",
            "kept",
            "tenants/acme",
            "dags/acme/web",
            "regions/card0/05",
            "guests/card0/05/acme/web/cache",
            "departed/card0/11/00000000",
            "states/card0/0000004096",
            "rules/first",
            "bindings/123e4567-e89b-12d3-a456-426614174000",
            "operations/op-1",
            "requests/operator:ada/r-1",
            "refused/acme/web",
            "uids/0012",
            "usage-open/closed",
            "usage-open/cards/card0",
            "usage-open/rows/card0/0003",
            "usage-open/accounts/card0/dag/00001c03",
            "usage-open/months/card0/dag/00001c03",
            "usage-open/pages/card0/rest/acme/m",
            "usage/card0/dag/00001c03/f/001700000040",
        ]
        .map(|key| key.replace("00000000", &format!("{:08x}", uid().raw())))
    );
}

/// Stores that exist have these fields.
#[test]
fn values_stay_as_they_are() {
    let values: BTreeMap<String, serde_json::Value> = all()
        .iter()
        .map(|record| {
            let mut value: serde_json::Value =
                serde_json::from_slice(&record.encode()).expect("JSON");
            value.sort_all_objects();
            (record.key().to_string(), value)
        })
        .collect();
    let fields = |key: &str| -> Vec<&str> {
        values[key].as_object().expect("an object").keys().map(String::as_str).collect()
    };
    assert_eq!(fields("meta"), ["operations", "schema", "secret"]);
    assert_eq!(fields("tenants/acme"), ["created", "generation", "number", "tenant", "updated"]);
    assert_eq!(
        fields("dags/acme/web"),
        [
            "created",
            "generation",
            "name",
            "placement",
            "previous",
            "spec",
            "uid",
            "unconfigured_nts",
            "updated"
        ]
    );
    let placement = values["dags/acme/web"]["placement"].as_object().expect("an object");
    let placement: Vec<&str> = placement.keys().map(String::as_str).collect();
    assert_eq!(
        placement,
        [
            "chain_row",
            "generation",
            "instance_row",
            "lent",
            "mapping",
            "serial",
            "spec",
            "stage_row"
        ]
    );
    assert_eq!(values["uids/0012"], 9);
    assert_eq!(values["operations/op-1"]["work"]["delete-dag"][1], "card0");
    assert_eq!(values["states/card0/0000004096"]["phase"]["saving"], 2);
}

#[test]
fn a_record_under_another_key_is_rejected_by_it() {
    let kinds = ["tenants/x", "dags/acme/x", "rules/x", "bindings/x", "operations/x", "uids/12"];
    for record in all() {
        let own = record.key().to_string();
        let (kind, _) = own.split_once('/').unwrap_or((&own, ""));
        for key in kinds.iter().filter(|key| key.starts_with(&format!("{kind}/"))) {
            match Record::parse(key, &record.encode()) {
                Err(InvalidRecord::Contradiction { key: named, reason }) => {
                    assert_eq!(named, *key);
                    assert!(reason.contains(&own), "{reason}");
                }
                other => panic!("{key}: {other:?}"),
            }
        }
    }
    let unpadded =
        Record::parse("regions/card0/5", b"{\"bitstream\":null,\"cordoned\":true,\"faulty\":null}");
    assert!(matches!(unpadded, Err(InvalidRecord::Contradiction { .. })), "{unpadded:?}");
}
