//! Every method with every wrong identity.

use std::collections::BTreeSet;

use prost::Message as _;
use rcgen::SanType;
use snic_api::FILE_DESCRIPTOR_SET;
use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::{self, ErrorReason};
use snic_front::access::{CONTROL, FOREIGN, TABLE};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::matrix::{Expected, KINDS, Kind, MATRIX};
use crate::raw::call;
use crate::rig::{Client, DOMAIN, Rig, chain, header, image, in_time};
use crate::rules::{bind, rule_of_function_0};

fn methods(descriptors: &[u8]) -> Vec<String> {
    let set = prost_types::FileDescriptorSet::decode(descriptors).expect("descriptors");
    let mut methods = Vec::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let (package, service) = (file.package(), service.name());
                methods.push(format!("/{package}.{service}/{}", method.name()));
            }
        }
    }
    methods
}

#[test]
fn every_method_has_a_row_and_every_row_a_method() {
    let mut methods: BTreeSet<String> = methods(FILE_DESCRIPTOR_SET).into_iter().collect();
    assert!(methods.len() >= 37, "{methods:?}");
    methods.extend(self::methods(tonic_health::pb::FILE_DESCRIPTOR_SET));
    methods.extend(["v1", "v1alpha"].map(|version| {
        format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
    }));
    let rows = || TABLE.iter().chain(FOREIGN);
    let paths: BTreeSet<String> = rows().map(|row| row.path.to_owned()).collect();
    assert_eq!(paths, methods);
    for table in [TABLE, FOREIGN] {
        assert!(table.is_sorted_by_key(|row| row.path), "rows are found by bisection");
    }
    assert!(rows().all(|row| CONTROL.find(row.path) == Some(*row)));
    let expected: BTreeSet<String> = MATRIX.iter().map(|row| row.path.to_owned()).collect();
    assert_eq!(expected, methods, "the tests' own matrix");
    assert_eq!(MATRIX.len(), methods.len(), "no method twice");
}

fn reason(status: &Status) -> Option<ErrorReason> {
    reason_of(status)
}

/// Certificates without a valid identity for this server, and the words that the error contains.
const NOBODY: [(&str, &[&str], &str); 8] = [
    ("another trust domain", &["spiffe://other.test/operator/root"], "other.test"),
    ("a domain that begins like it", &["spiffe://snic.test.evil/operator/root"], "is not"),
    ("two URIs", &["spiffe://snic.test/tenant/acme", "spiffe://snic.test/operator/root"], "2 URIs"),
    ("no URI", &[], "0 URIs"),
    ("no such kind", &["spiffe://snic.test/admin/root"], "is not"),
    ("an id that is none", &["spiffe://snic.test/tenant/ACME"], "is not"),
    ("more path", &["spiffe://snic.test/tenant/acme/x/y"], "is not"),
    ("another scheme", &["https://snic.test/operator/root"], "is not"),
];

#[tokio::test]
async fn no_method_is_for_nobody() {
    let rig = Rig::start().await;
    let mut nobody: Vec<(&str, Channel, &str)> = Vec::new();
    for (what, uris, says) in NOBODY {
        let channel = rig.connect(Some(rig.authority.client(uris))).await;
        nobody.push((what, channel, says));
    }
    nobody.push(("no certificate", rig.connect(None).await, "no client certificate"));
    for (what, channel, says) in &nobody {
        for row in MATRIX {
            let answer = in_time(call(channel, row.path, vec![Vec::new()])).await;
            if row.allows(Kind::Nobody) {
                assert!(answer.is_ok(), "{what}, {}: {answer:?}", row.path);
                continue;
            }
            let status = answer.expect_err(what);
            assert_eq!(status.code(), Code::Unauthenticated, "{what}, {}: {status:?}", row.path);
            assert_eq!(reason(&status), Some(ErrorReason::IdentityMissing), "{what}");
            assert!(status.message().contains(says), "{what}: {}", status.message());
            let expected = format!("spiffe://{DOMAIN}/tenant/<id>");
            assert!(status.message().contains(&expected), "{what}: {}", status.message());
        }
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_does_not_connect() {
    let rig = Rig::start().await;
    let stranger = crate::rig::Authority::new();
    let identity = stranger.client(&[&format!("spiffe://{DOMAIN}/operator/root")]);
    // With TLS 1.3 the client learns of a rejected certificate only with its first call.
    let answer = match rig.try_connect(Some(identity)).await {
        Ok(channel) => call(&channel, "/snic.control.v1.TenantService/ListTenants", vec![vec![]])
            .await
            .map_err(|status| status.code()),
        Err(_) => Err(Code::Unavailable),
    };
    assert!(matches!(answer, Err(Code::Unavailable | Code::Unknown)), "{answer:?}");
    rig.stop().await;
}

#[tokio::test]
async fn each_kind_of_caller_may_call_what_the_matrix_says_and_nothing_else() {
    let rig = Rig::start().await;
    for kind in KINDS {
        let channel = match kind {
            Kind::Nobody => rig.connect(None).await,
            Kind::Tenant => rig.client("tenant/acme").await.channel,
            Kind::Orchestrator => rig.client("orchestrator/libvirt").await.channel,
            Kind::Operator => rig.client("operator/root").await.channel,
        };
        for row in MATRIX {
            let answer = in_time(call(&channel, row.path, vec![Vec::new()])).await;
            let expected = match kind {
                _ if row.allows(kind) => None,
                Kind::Nobody => Some(Code::Unauthenticated),
                _ => Some(Code::PermissionDenied),
            };
            let refusal = answer.as_ref().err().map(Status::code);
            let refusal = refusal.filter(|code| {
                [Code::Unauthenticated, Code::PermissionDenied, Code::Unimplemented].contains(code)
            });
            assert_eq!(refusal, expected, "{kind:?} {}: {answer:?}", row.path);
        }
    }
    rig.stop().await;
}

/// Names that look like an identity but are in the wrong place of a certificate.
fn misplaced() -> Vec<(&'static str, Vec<SanType>, String)> {
    let operator = format!("spiffe://{DOMAIN}/operator/root");
    let text = |text: &str| text.try_into().expect("ASCII");
    let mut all =
        vec![("an e-mail address", vec![SanType::Rfc822Name(text(&operator))], String::new())];
    for name in [&operator, "operator/root", "operator.snic.test", "root"] {
        all.push(("a common name", vec![], name.to_owned()));
        all.push(("a DNS name", vec![SanType::DnsName(text(name))], String::new()));
    }
    all
}

#[tokio::test]
async fn only_the_uri_of_a_certificate_is_an_identity() {
    let rig = Rig::start().await;
    let path = "/snic.control.v1.TenantService/ListTenants";
    for (what, names, common_name) in misplaced() {
        let alone = rig.authority.client_named(names.clone(), &common_name);
        let channel = rig.connect(Some(alone)).await;
        let status = in_time(call(&channel, path, vec![vec![]])).await.expect_err(what);
        assert_eq!(reason(&status), Some(ErrorReason::IdentityMissing), "{what}: {status:?}");
        // Beside the URI other names are ignored: this is acme, not an operator.
        let uri = format!("spiffe://{DOMAIN}/tenant/acme");
        let uri = SanType::URI(uri.as_str().try_into().expect("a URI"));
        for names in [
            [&names[..], std::slice::from_ref(&uri)].concat(),
            [std::slice::from_ref(&uri), &names[..]].concat(),
        ] {
            let identity = rig.authority.client_named(names, &common_name);
            let channel = rig.connect(Some(identity)).await;
            let status = in_time(call(&channel, path, vec![vec![]])).await.expect_err(what);
            let denied = Some(ErrorReason::PermissionDenied);
            assert_eq!(reason(&status), denied, "{what}: {status:?}");
            assert_eq!(own_dags(channel).await, Ok(()), "{what}");
        }
    }
    rig.stop().await;
}

/// Whether the caller may list DAGs, as tenants may.
async fn own_dags(channel: Channel) -> Result<(), Code> {
    let request = v1::ListDagsRequest { parent: "tenants/-".into(), ..Default::default() };
    let listed = in_time(Client::new(channel).dags.list_dags(request)).await;
    listed.map(drop).map_err(|status| status.code())
}

#[tokio::test]
async fn a_method_that_does_not_exist_is_unimplemented() {
    let rig = Rig::start().await;
    let operator = rig.client("operator/root").await;
    for path in ["/snic.control.v1.DagService/DropAll", "/x.Y/Z"] {
        let status = call(&operator.channel, path, vec![Vec::new()]).await.expect_err(path);
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains(path), "{}", status.message());
    }
    rig.stop().await;
}

/// Resources of acme, and names of the same length that nobody has.
struct Secrets {
    operation: String,
}

/// acme's private NT type, bitstream, DAG and rule, each called `secret`.
async fn secrets(rig: &Rig) -> Secrets {
    let mut operator = rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    acme.create_nt("acme.secret", false).await.expect("an NT type");
    let (mut declared, bytes) = image("acme.secret", &["acme.secret"]);
    declared.shareable = false;
    acme.send(crate::rig::upload(declared, &bytes, 8_192)).await.expect("a bitstream");
    let dag = v1::Dag { bandwidth_bps: 2_000_000_000, ..chain(&["acme.secret"]) };
    let operation = acme.create_dag("tenants/acme/dags/secret", dag).await.expect("a DAG");
    operator.wait(&operation.name).await;
    bind(rig, "tenants/acme", DAG.0, 1).await;
    let request = v1::CreateRuleRequest {
        rule_id: OWNED.0.into(),
        rule: Some(v1::Rule { dag: DAG.0.into(), ..rule_of_function_0() }),
        request_id: String::new(),
        validate_only: false,
    };
    acme.rules.create_rule(request).await.expect("a rule for its own function");
    Secrets { operation: operation.name }
}

/// A request about a resource of acme's. `name` is replaced by an absent name.
struct Probe {
    name: &'static str,
    absent: &'static str,
    messages: Vec<Vec<u8>>,
}

fn probe(name: &'static str, absent: &'static str, message: impl prost::Message) -> Probe {
    assert_eq!(name.len(), absent.len());
    Probe { name, absent, messages: vec![message.encode_to_vec()] }
}

const DAG: (&str, &str) = ("tenants/acme/dags/secret", "tenants/acme/dags/absent");
const TENANT: (&str, &str) = ("tenants/acme", "tenants/none");
const OWNED: (&str, &str) = ("acme.secret", "acme.absent");

/// Questions of globex about acme's secrets with each method that tenants may call.
fn probes(method: &str, secrets: &Secrets) -> Vec<Probe> {
    let probes = of_dags(method)
        .or_else(|| of_authorization(method))
        .or_else(|| of_bitstreams(method))
        .or_else(|| of_nt_types(method))
        .or_else(|| of_rules(method))
        .or_else(|| of_the_rest(method, &secrets.operation));
    probes.unwrap_or_else(|| {
        panic!("{method} is for tenants: say here how one could ask after another's")
    })
}

fn of_authorization(method: &str) -> Option<Vec<Probe>> {
    let of = |method: &str, resource: &str| v1::CheckAccessRequest {
        method: method.into(),
        resource: resource.into(),
        ..Default::default()
    };
    Some(match method {
        "CheckAccess" => vec![
            probe(DAG.0, DAG.1, of("GetDag", DAG.0)),
            probe(TENANT.0, TENANT.1, of("GetTenant", TENANT.0)),
            probe(OWNED.0, OWNED.1, of("GetNtType", &format!("ntTypes/{}", OWNED.0))),
            probe(OWNED.0, OWNED.1, of("DeleteBitstream", &format!("bitstreams/{}", OWNED.0))),
        ],
        "WhoAmI" => vec![probe("", "", v1::WhoAmIRequest {})],
        _ => return None,
    })
}

fn of_dags(method: &str) -> Option<Vec<Probe>> {
    let name = || DAG.0.to_owned();
    let parent = || TENANT.0.to_owned();
    let probe_dag =
        |message: Vec<u8>| Probe { name: DAG.0, absent: DAG.1, messages: vec![message] };
    Some(match method {
        "CreateDag" => {
            let of = |parent: &str, dag| v1::CreateDagRequest {
                parent: parent.into(),
                dag_id: "secret".into(),
                dag: Some(dag),
                ..Default::default()
            };
            vec![
                probe(TENANT.0, TENANT.1, of(TENANT.0, chain(&["nat"]))),
                probe(OWNED.0, OWNED.1, of("tenants/globex", chain(&["acme.secret"]))),
            ]
        }
        "BatchCreateDags" => {
            let of = |parent: &str, dag, allow_partial| v1::BatchCreateDagsRequest {
                parent: parent.into(),
                requests: vec![v1::CreateDagRequest {
                    dag_id: "secret".into(),
                    dag: Some(dag),
                    ..Default::default()
                }],
                allow_partial,
                ..Default::default()
            };
            vec![
                probe(TENANT.0, TENANT.1, of(TENANT.0, chain(&["nat"]), false)),
                probe(TENANT.0, TENANT.1, of(TENANT.0, v1::Dag::default(), true)),
                probe(OWNED.0, OWNED.1, of("tenants/globex", chain(&["acme.secret"]), false)),
            ]
        }
        "UpdateDag" => {
            let of = |etag: &str, validate_only| {
                let dag = v1::Dag { name: name(), etag: etag.into(), ..chain(&["nat"]) };
                let dag = Some(dag);
                v1::UpdateDagRequest { dag, validate_only, ..Default::default() }.encode_to_vec()
            };
            [of("", false), of("x", false), of("", true)].map(probe_dag).into()
        }
        "DeleteDag" => {
            let request = v1::DeleteDagRequest { name: name(), ..Default::default() };
            vec![probe_dag(request.encode_to_vec())]
        }
        "ExplainDag" => vec![probe_dag(v1::ExplainDagRequest { name: name() }.encode_to_vec())],
        "DiagnoseDag" => vec![probe_dag(v1::DiagnoseDagRequest { name: name() }.encode_to_vec())],
        "GetDag" => vec![probe_dag(v1::GetDagRequest { name: name() }.encode_to_vec())],
        "ListDags" => {
            let request = v1::ListDagsRequest { parent: parent(), ..Default::default() };
            vec![probe(TENANT.0, TENANT.1, request)]
        }
        "WatchPackets" => {
            let request = v1::WatchPacketsRequest { name: name(), ..Default::default() };
            vec![probe_dag(request.encode_to_vec())]
        }
        "RunTraffic" => {
            let request =
                v1::RunTrafficRequest { name: name(), rate_bps: 1_000_000, ..Default::default() };
            vec![probe_dag(request.encode_to_vec())]
        }
        "WatchDags" => {
            let request = v1::WatchDagsRequest { parent: parent(), ..Default::default() };
            vec![probe(TENANT.0, TENANT.1, request)]
        }
        _ => return None,
    })
}

fn of_bitstreams(method: &str) -> Option<Vec<Probe>> {
    let name = format!("bitstreams/{}", OWNED.0);
    Some(match method {
        "DeleteBitstream" => {
            let request = v1::DeleteBitstreamRequest { name, ..Default::default() };
            vec![probe(OWNED.0, OWNED.1, request)]
        }
        "RetryBitstream" => {
            let request = v1::RetryBitstreamRequest { name, ..Default::default() };
            vec![probe(OWNED.0, OWNED.1, request)]
        }
        "GetBitstream" => vec![probe(OWNED.0, OWNED.1, v1::GetBitstreamRequest { name })],
        "UploadBitstream" => {
            let named = header(image(OWNED.0, &["nat"]).0);
            // A header is rejected before any byte is read.
            let using = header(image("globex.x", &["acme.secret"]).0);
            vec![probe(OWNED.0, OWNED.1, named), probe(OWNED.0, OWNED.1, using)]
        }
        // It names no resource: the reply is searched.
        "ListBitstreams" => vec![probe("", "", v1::ListBitstreamsRequest::default())],
        _ => return None,
    })
}

fn of_nt_types(method: &str) -> Option<Vec<Probe>> {
    let name = format!("ntTypes/{}", OWNED.0);
    Some(match method {
        "CreateNtType" => {
            let nt_type = Some(v1::NtType {
                bandwidth_max_bps: 1_000_000,
                latency_cycles: 1,
                area: Some(v1::Area { lut: 1, ..Default::default() }),
                traffic: v1::nt_type::Traffic::Payload.into(),
                ..Default::default()
            });
            let nt_type_id = OWNED.0.into();
            let request = v1::CreateNtTypeRequest { nt_type_id, nt_type, ..Default::default() };
            vec![probe(OWNED.0, OWNED.1, request)]
        }
        "DeleteNtType" => {
            let request = v1::DeleteNtTypeRequest { name, ..Default::default() };
            vec![probe(OWNED.0, OWNED.1, request)]
        }
        "GetNtType" => vec![probe(OWNED.0, OWNED.1, v1::GetNtTypeRequest { name })],
        "ListNtTypes" => vec![probe("", "", v1::ListNtTypesRequest::default())],
        _ => return None,
    })
}

fn of_rules(method: &str) -> Option<Vec<Probe>> {
    let name = format!("classificationRules/{}", OWNED.0);
    let rule = |dag: &str| v1::Rule { name: name.clone(), dag: dag.into(), ..rule_of_function_0() };
    Some(match method {
        "CreateRule" => {
            let of = |rule_id: &str, dag: &str| v1::CreateRuleRequest {
                rule_id: rule_id.into(),
                rule: Some(rule(dag)),
                request_id: String::new(),
                validate_only: false,
            };
            vec![
                probe(OWNED.0, OWNED.1, of(OWNED.0, "tenants/globex/dags/x")),
                // A rule of the tenant that leads to another tenant's DAG.
                probe(DAG.0, DAG.1, of("globex.mine", DAG.0)),
            ]
        }
        "UpdateRule" => {
            let of =
                |dag: &str| v1::UpdateRuleRequest { rule: Some(rule(dag)), ..Default::default() };
            vec![
                probe(OWNED.0, OWNED.1, of("tenants/globex/dags/x")),
                probe(OWNED.0, OWNED.1, of(DAG.0)),
            ]
        }
        "DeleteRule" => {
            let request = v1::DeleteRuleRequest { name, ..Default::default() };
            vec![probe(OWNED.0, OWNED.1, request)]
        }
        "GetRule" => vec![probe(OWNED.0, OWNED.1, v1::GetRuleRequest { name })],
        "ListRules" => {
            let of = |dag: &str| v1::ListRulesRequest { dag: dag.into(), ..Default::default() };
            vec![probe("", "", of("")), probe(DAG.0, DAG.1, of(DAG.0))]
        }
        _ => return None,
    })
}

fn of_the_rest(method: &str, operation: &str) -> Option<Vec<Probe>> {
    let name = operation.to_owned();
    let message = match method {
        "CancelOperation" => {
            v1::CancelOperationRequest { name, ..Default::default() }.encode_to_vec()
        }
        "DeleteOperation" => {
            v1::DeleteOperationRequest { name, ..Default::default() }.encode_to_vec()
        }
        "GetOperation" => v1::GetOperationRequest { name }.encode_to_vec(),
        "WaitOperation" => v1::WaitOperationRequest { name, timeout: None }.encode_to_vec(),
        "ListOperations" => {
            let target = DAG.0.into();
            let request = v1::ListOperationsRequest { target, ..Default::default() };
            return Some(vec![probe(DAG.0, DAG.1, request)]);
        }
        "GetFairness" => {
            let request = v1::GetFairnessRequest { name: TENANT.0.into() };
            return Some(vec![probe(TENANT.0, TENANT.1, request)]);
        }
        // They name no resource: the replies are searched.
        "ListAuditEntries" => {
            let ask = |tenant: &str| v1::ListAuditEntriesRequest {
                tenant: tenant.into(),
                ..Default::default()
            };
            return Some(vec![probe("", "", ask("")), probe(TENANT.0, TENANT.1, ask(TENANT.0))]);
        }
        "ListUsage" => {
            let ask =
                |tenant: &str| v1::ListUsageRequest { tenant: tenant.into(), ..Default::default() };
            return Some(vec![probe("", "", ask("")), probe(TENANT.0, TENANT.1, ask(TENANT.0))]);
        }
        // Both requests have the name alone, and in the same field.
        "GetUsage" | "GetSlo" => {
            let ask = |name: &str| v1::GetUsageRequest { name: name.into(), ..Default::default() };
            let probes = [TENANT, DAG].map(|(own, foreign)| probe(own, foreign, ask(own)));
            return Some(probes.into());
        }
        "ListFairness" => return Some(vec![probe("", "", v1::ListFairnessRequest::default())]),
        "ListEvents" => return Some(vec![probe("", "", v1::ListEventsRequest::default())]),
        // They name no resource, and so old a revision is rejected for every caller.
        "WatchEvents" | "WatchNtTypes" | "WatchBitstreams" | "WatchRules" | "WatchOperations" => {
            // All these requests have one form.
            let request = v1::WatchEventsRequest { resume_revision: 1 };
            return Some(vec![probe("", "", request)]);
        }
        "GetTenant" => {
            let request = v1::GetTenantRequest { name: TENANT.0.into() };
            return Some(vec![probe(TENANT.0, TENANT.1, request)]);
        }
        _ => return None,
    };
    let (name, absent) = (operation.to_owned().leak(), "operations/op-ffffffffffffffff");
    assert_eq!(name.len(), absent.len());
    Some(vec![Probe { name, absent, messages: vec![message] }])
}

/// The bytes with the name replaced by one of the same length.
fn replaced(bytes: &[u8], name: &str, by: &str) -> Vec<u8> {
    let (name, by) = (name.as_bytes(), by.as_bytes());
    let mut bytes = bytes.to_vec();
    if name.is_empty() {
        return bytes;
    }
    for at in 0..bytes.len().saturating_sub(name.len() - 1) {
        if bytes[at..].starts_with(name) {
            bytes[at..at + name.len()].copy_from_slice(by);
        }
    }
    bytes
}

/// A list without its revision, which is the time: field 3, a number, of all lists of resources.
fn without_revision(list: &[u8]) -> Vec<u8> {
    let (mut rest, mut kept) = (list, Vec::new());
    while let Ok((tag, kind)) = prost::encoding::decode_key(&mut rest) {
        let begin = rest;
        prost::encoding::skip_field(kind, tag, &mut rest, Default::default()).expect("a message");
        if (tag, kind) != (3, prost::encoding::WireType::Varint) {
            prost::encoding::encode_key(tag, kind, &mut kept);
            kept.extend_from_slice(&begin[..begin.len() - rest.len()]);
        }
    }
    kept
}

/// An answer as bytes, with what the caller itself sent made equal.
fn shape(answer: &Result<Vec<u8>, Status>, name: &str, absent: &str) -> (Code, Vec<u8>, Vec<u8>) {
    match answer {
        Ok(message) => (Code::Ok, replaced(message, name, absent), Vec::new()),
        Err(status) => (
            status.code(),
            replaced(status.message().as_bytes(), name, absent),
            replaced(status.details(), name, absent),
        ),
    }
}

/// Methods by path: the audit log is read before the other calls leave entries in it.
fn for_tenants() -> Vec<&'static Expected> {
    let api = MATRIX.iter().filter(|row| row.path.starts_with("/snic."));
    let mut rows: Vec<_> = api.filter(|row| row.allows(Kind::Tenant)).collect();
    rows.sort_by_key(|row| row.path);
    rows
}

#[tokio::test]
async fn absent_and_not_yours_are_the_same() {
    let rig = Rig::start().await;
    let secrets = secrets(&rig).await;
    let globex = rig.client("tenant/globex").await;
    for row in for_tenants() {
        let method = row.method();
        for probe in probes(method, &secrets) {
            let Probe { name, absent, messages } = probe;
            let others: Vec<Vec<u8>> =
                messages.iter().map(|message| replaced(message, name, absent)).collect();
            let foreign = in_time(call(&globex.channel, row.path, messages)).await;
            let nothing = in_time(call(&globex.channel, row.path, others)).await;
            let [foreign, nothing] = [foreign, nothing].map(|answer| match answer {
                Ok(list) if method.starts_with("List") => Ok(without_revision(&list)),
                other => other,
            });
            assert_eq!(
                shape(&foreign, name, absent),
                shape(&nothing, name, absent),
                "{method}: {foreign:?} is not {nothing:?}"
            );
            let lists = [
                "AuditEntries",
                "Bitstreams",
                "NtTypes",
                "Operations",
                "Events",
                "Fairness",
                "Rules",
                "Usage",
            ];
            let is_list = method.strip_prefix("List").is_some_and(|what| lists.contains(&what));
            // It says no, in both cases.
            let is_answered = is_list || ["CheckAccess", "WhoAmI"].contains(&method);
            assert_eq!(foreign.is_ok(), is_answered, "{method}: {foreign:?}");
            if let Ok(message) = foreign {
                let text = String::from_utf8_lossy(&message).into_owned();
                assert!(!text.contains("secret") && !text.contains("acme"), "{method}: {text}");
            }
        }
    }
    still_there(&rig).await;
    rig.stop().await;
}

async fn still_there(rig: &Rig) {
    let mut acme = rig.client("tenant/acme").await;
    let dag = acme.get_dag("tenants/acme/dags/secret").await.expect("still there");
    assert_eq!(dag.generation, 1, "nothing that globex tried had an effect");
    let name = "bitstreams/acme.secret".to_owned();
    let request = v1::GetBitstreamRequest { name };
    assert!(acme.bitstreams.get_bitstream(request).await.is_ok());
    let name = "classificationRules/acme.secret".to_owned();
    let rule = acme.rules.get_rule(v1::GetRuleRequest { name }).await.item().expect("still there");
    assert_eq!((&*rule.dag, rule.update_time), (DAG.0, rule.create_time));
    assert_eq!(rule.binding, "", "machines are not for tenants");
}

#[tokio::test]
async fn a_wildcard_means_what_is_yours() {
    let rig = Rig::start().await;
    secrets(&rig).await;
    let list = |mut client: Client| async move {
        let request = v1::ListDagsRequest { parent: "tenants/-".into(), ..Default::default() };
        let dags = client.dags.list_dags(request).await.expect("a list").into_inner().dags;
        dags.into_iter().map(|dag| dag.name).collect::<Vec<_>>()
    };
    assert_eq!(list(rig.client("tenant/globex").await).await, [""; 0]);
    assert_eq!(list(rig.client("tenant/acme").await).await, ["tenants/acme/dags/secret"]);
    assert_eq!(list(rig.client("operator/x").await).await, ["tenants/acme/dags/secret"]);
    rig.stop().await;
}

#[tokio::test]
async fn published_bitstreams_are_readable_but_not_writable() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut globex = rig.client("tenant/globex").await;
    let name = "ntTypes/nat".to_owned();
    let nt = globex.nts.get_nt_type(v1::GetNtTypeRequest { name: name.clone() }).await.item();
    assert_eq!(nt.expect("published").name, name);
    let request = v1::DeleteNtTypeRequest { name, ..Default::default() };
    let status = globex.nts.delete_nt_type(request).await.expect_err("the provider's");
    assert_eq!(reason(&status), Some(ErrorReason::PermissionDenied));
    let name = "bitstreams/aes".to_owned();
    let bitstream = globex.bitstreams.get_bitstream(v1::GetBitstreamRequest { name: name.clone() });
    assert!(bitstream.await.item().expect("the provider's").loaded_regions.is_empty());
    let request = v1::DeleteBitstreamRequest { name, ..Default::default() };
    let status = globex.bitstreams.delete_bitstream(request).await.expect_err("the provider's");
    assert_eq!(reason(&status), Some(ErrorReason::PermissionDenied));
    rig.stop().await;
}

/// Two tenants in one region: neither learns of the other.
#[tokio::test]
async fn tenants_sharing_a_region_learn_nothing_of_each_other() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let (mut acme, mut globex) =
        (rig.client("tenant/acme").await, rig.client("tenant/globex").await);
    acme.create_nt("acme.secret", false).await.expect("an NT type");
    // acme's bitstream may be shared; its second NT must not be shown to others.
    acme.upload("acme.secret", &["kv-cache", "acme.secret"]).await.expect_err("not registered");
    operator.create_nt("kv-cache", true).await.expect("an NT type");
    acme.upload("acme.secret", &["kv-cache", "acme.secret"]).await.expect("a bitstream");
    acme.ready_dag("tenants/acme/dags/secret", chain(&["kv-cache", "acme.secret"])).await;
    let name = "tenants/globex/dags/mine";
    let refused = globex.create_dag(name, chain(&["kv-cache"])).await.expect_err("no trust");
    assert!(!refused.message().contains("acme"), "{refused}");
    let trusted_tenants = vec!["tenants/acme".to_owned()];
    let trusting = v1::Dag { trusted_tenants: trusted_tenants.clone(), ..chain(&["kv-cache"]) };
    let mut dag = globex.ready_dag(name, trusting).await;
    assert_eq!(std::mem::take(&mut dag.trusted_tenants), trusted_tenants, "as it said itself");
    assert_eq!(dag.state(), v1::dag::State::Ready);
    let instance = &dag.mapping.as_ref().expect("mapped").stages[0].branches[0].instances[0];
    let shown: Vec<(bool, &str)> =
        instance.slots.iter().map(|slot| (slot.used, &*slot.nt_type)).collect();
    assert_eq!(shown, [(true, "ntTypes/kv-cache"), (false, "")]);
    assert_eq!(instance.bitstream, "");
    let request = v1::ExplainDagRequest { name: dag.name.clone() };
    let mut explanation = globex.dags.explain_dag(request).await.item().expect("explained");
    explanation.dag.iter_mut().for_each(|dag| dag.trusted_tenants.clear());
    let text = format!("{dag:?} {explanation:?}");
    assert!(!text.contains("acme") && !text.contains("secret"), "{text}");
    let terms = &explanation.chains[0].chosen[0].score_terms;
    assert!(terms.iter().all(|term| term.name != "headroom"), "{terms:?}");
    let seen = operator.get_dag(&dag.name).await.expect("an operator sees all");
    let instance = &seen.mapping.as_ref().expect("mapped").stages[0].branches[0].instances[0];
    assert_eq!(instance.bitstream, "bitstreams/acme.secret");
    assert_eq!(instance.slots[1].nt_type, "ntTypes/acme.secret");
    rig.stop().await;
}
