//! Promises of every method, tried with every method: required fields, fields of the server's own,
//! repeated requests, dry runs. The methods and their fields are those of the published descriptors; only
//! the values of valid requests are written here.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage as _,
    Value,
};
use serde_json::{Value as Json, json};
use snic_api::FILE_DESCRIPTOR_SET;
use snic_api::error::reason_of;
use snic_api::v1::{self, ErrorReason};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::matrix::MATRIX;
use crate::raw;
use crate::rig::{Client, Rig, chain, image, in_time};

const WEB: &str = "tenants/acme/dags/web";
const VM: &str = "123e4567-e89b-42d3-a456-426614174000";
/// Text that no field of a reply may have: it was sent in fields that are the server's to fill.
const FOREIGN_TEXT: &str = "foreign";
const FOREIGN_NUMBER: u32 = 777_777_777;

/// A request that succeeds if those before it did.
struct Step {
    method: &'static str,
    request: Json,
    /// Fields that make another request of it.
    other: Json,
    end: End,
}

/// End of the operation that a step begins.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Success,
    /// A success or a failure: the simulated card has one role.
    Either,
    /// It waits for steps that follow.
    Later,
}

fn step(method: &'static str, request: Json, other: Json) -> Step {
    Step { method, request, other, end: End::Success }
}

fn node(id: &str) -> Json {
    json!({"id": id, "nt_type": format!("ntTypes/{id}")})
}

fn dag() -> Json {
    json!({
        "nodes": [node("nat"), node("firewall")],
        "edges": [{"from_node": "nat", "to_node": "firewall"}],
        "bandwidth_bps": 1_000_000_000_u64,
        "packet_sizes": [{"bytes": 1_500, "weight": 1}],
        "labels": {"app": "web"},
        "description": "for the shop",
    })
}

/// Every method that changes something, in an order in which each succeeds. `operations/begun` stands
/// for the operation that was begun last.
fn steps() -> Vec<Step> {
    makings().into_iter().chain(of_cards()).chain(endings()).collect()
}

fn named(name: &str) -> Json {
    json!({"name": name})
}

fn other_etag() -> Json {
    json!({"etag": "other"})
}

fn card() -> Json {
    named("cards/card0")
}

/// A step whose operation waits for other steps.
fn begun(method: &'static str, request: Json, other: Json) -> Step {
    Step { end: End::Later, ..step(method, request, other) }
}

/// Steps that make and change resources.
fn makings() -> Vec<Step> {
    let notes = json!({"app": "web"});
    let of_tenant = |name: &str, weight: u32| json!({"tenant": {"name": name, "weight": weight}});
    let nt = json!({
        "bandwidth_max_bps": 1_000_000_000_u64, "latency_cycles": 3, "area": {"lut": 10},
        "traffic": "TRAFFIC_PAYLOAD", "labels": notes, "description": "mine",
    });
    let rule = json!({
        "match": {"vni": 7}, "dag": WEB, "labels": notes, "description": "by network",
    });
    vec![
        step(
            "CreateTenant",
            json!({"tenant_id": "umbrella", "tenant": {"weight": 2, "labels": notes}}),
            json!({"tenant_id": "initech"}),
        ),
        step("UpdateTenant", of_tenant("tenants/umbrella", 3), of_tenant("tenants/umbrella", 4)),
        step(
            "CreateNtType",
            json!({"nt_type_id": "own", "nt_type": nt}),
            json!({"nt_type_id": "other"}),
        ),
        step("UploadBitstream", json!({}), json!({"shareable": false})),
        step(
            "CreateDag",
            json!({"parent": "tenants/acme", "dag_id": "web", "dag": dag()}),
            json!({"dag_id": "mail"}),
        ),
        step(
            "BatchCreateDags",
            json!({
                "parent": "tenants/acme",
                "requests": [{"parent": "tenants/acme", "dag_id": "a", "dag": dag()}],
            }),
            json!({"allow_partial": true}),
        ),
        step(
            "UpdateDag",
            json!({"dag": {"name": WEB, "bandwidth_bps": 2_000_000_000_u64}}),
            json!({"dag": {"name": WEB, "bandwidth_bps": 3_000_000_000_u64}}),
        ),
        step("CreateRule", json!({"rule_id": "r", "rule": rule}), json!({"rule_id": "s"})),
        step(
            "UpdateRule",
            json!({"rule": {"name": "classificationRules/r", "priority": 4}}),
            json!({"rule": {"name": "classificationRules/r", "priority": 5}}),
        ),
        step(
            "BindVm",
            json!({
                "vm": VM, "tenant": "tenants/acme", "dags": {"names": [WEB]}, "labels": notes,
                "description": "its machine",
            }),
            json!({"functions": 2}),
        ),
        step("UnbindVm", json!({"vm": VM}), other_etag()),
    ]
}

/// Steps of operators on a card.
fn of_cards() -> Vec<Step> {
    let region = || named("cards/card0/regions/15");
    vec![
        step("CordonCard", card(), other_etag()),
        step("UncordonCard", card(), other_etag()),
        step("CordonRegion", region(), other_etag()),
        step("UndrainRegion", region(), other_etag()),
        step("DrainRegion", region(), other_etag()),
        step("ResetRegion", region(), other_etag()),
        begun("DrainCard", card(), other_etag()),
        step("CancelOperation", named("operations/begun"), named("operations/other")),
        step("UncordonCard", card(), other_etag()),
        step("OptimizeCard", card(), other_etag()),
    ]
}

/// Steps that end what was made.
fn endings() -> Vec<Step> {
    vec![
        step("SetMaintenance", json!({"active": true, "reason": "x"}), json!({"reason": "y"})),
        step("DeleteRule", named("classificationRules/r"), other_etag()),
        step("DeleteDag", named(WEB), other_etag()),
        step("DeleteDag", named("tenants/acme/dags/a"), other_etag()),
        step("DeleteOperation", named("operations/begun"), named("operations/other")),
        step("DeleteBitstream", named("bitstreams/own"), other_etag()),
        step("DeleteNtType", named("ntTypes/own"), other_etag()),
        step("DeleteTenant", named("tenants/umbrella"), other_etag()),
        Step { end: End::Either, ..step("LoadRole", card(), json!({"force": true})) },
        begun("ResetCard", card(), json!({"force": true})),
        step("RemoveCard", card(), other_etag()),
    ]
}

/// Methods that need what the simulated card of these tests never has: a rejected bitstream, a lost card
/// with another device in its place. They fail, and fail again in the same way.
fn refused() -> Vec<Step> {
    vec![
        step("RetryBitstream", json!({"name": "bitstreams/aes"}), json!({})),
        step("ReplaceCard", json!({"name": "cards/card0"}), json!({})),
    ]
}

/// Requests of methods that only read, and have required fields.
fn reads() -> Vec<(&'static str, Json)> {
    let named = |name: &str| json!({"name": name});
    let parent = |name: &str| json!({"parent": name});
    vec![
        ("GetTenant", named("tenants/acme")),
        ("GetNtType", named("ntTypes/nat")),
        ("GetBitstream", named("bitstreams/aes")),
        ("GetDag", named(WEB)),
        ("ExplainDag", named(WEB)),
        ("DiagnoseDag", named(WEB)),
        ("GetRule", named("classificationRules/r")),
        ("GetOperation", named("operations/o")),
        ("WaitOperation", named("operations/o")),
        ("GetCard", named("cards/card0")),
        ("GetRegion", named("cards/card0/regions/0")),
        ("GetFairness", named("tenants/acme")),
        ("GetUsage", named(WEB)),
        ("GetSlo", named(WEB)),
        ("GetBinding", named(&format!("vmBindings/{VM}"))),
        ("ListDags", parent("tenants/acme")),
        ("WatchDags", parent("tenants/acme")),
        ("ListRegions", parent("cards/card0")),
        ("WatchRegions", parent("cards/card0")),
        ("ListBindings", parent("tenants/acme")),
        ("WatchBindings", parent("tenants/acme")),
        ("RecommendBitstreams", json!({"card": "cards/card0"})),
        ("RunTraffic", json!({"name": WEB, "rate_bps": "1"})),
        ("WatchPackets", named(WEB)),
        ("CheckAccess", json!({"method": "CreateDag"})),
    ]
}

/// A method of the API.
struct Method {
    path: String,
    input: MessageDescriptor,
    output: MessageDescriptor,
}

fn pool() -> DescriptorPool {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("descriptors")
}

/// All methods, by name.
fn methods() -> BTreeMap<String, Method> {
    let pool = pool();
    let all = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let one = |method: prost_reflect::MethodDescriptor| {
        let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
        let (input, output) = (method.input(), method.output());
        (method.name().to_owned(), Method { path, input, output })
    };
    all.map(one).collect()
}

/// Behaviour of a field by google.api.field_behavior.
fn behaves(field: &FieldDescriptor, wanted: &str) -> bool {
    let extension = field.parent_pool().get_extension_by_name("google.api.field_behavior");
    let extension = extension.expect("it is imported");
    let Kind::Enum(names) = extension.kind() else { panic!("it is an enum") };
    let wanted = names.get_value_by_name(wanted).expect("a behaviour").number();
    let options = field.options();
    let values = options.get_extension(&extension);
    values.as_list().expect("a list").iter().any(|value| value.as_enum_number() == Some(wanted))
}

fn message(descriptor: &MessageDescriptor, json: &Json) -> DynamicMessage {
    DynamicMessage::deserialize(descriptor.clone(), json)
        .unwrap_or_else(|error| panic!("{}: {error}: {json}", descriptor.name()))
}

/// An upload's header with its image.
fn upload() -> (v1::BitstreamHeader, Vec<u8>) {
    let (header, bytes) = image("own", &["nat"]);
    let labels = [("app".to_owned(), "web".to_owned())].into();
    (v1::BitstreamHeader { labels, description: "an image".into(), ..header }, bytes)
}

/// The messages that make a call: one, or those of an upload.
fn messages(method: &Method, request: &Json) -> Vec<Vec<u8>> {
    if !method.path.ends_with("/UploadBitstream") {
        return vec![message(&method.input, request).encode_to_vec()];
    }
    let (mut header, bytes) = upload();
    header.request_id = request["request_id"].as_str().unwrap_or_default().to_owned();
    header.shareable = request["shareable"].as_bool().unwrap_or(true);
    header.validate_only = request["validate_only"].as_bool().unwrap_or(false);
    if let Some(id) = request["bitstream_id"].as_str() {
        header.bitstream_id = id.to_owned();
    }
    if let Some(model) = request["card_model"].as_str() {
        header.card_model = model.to_owned();
    }
    crate::rig::upload(header, &bytes, 4_096).iter().map(prost::Message::encode_to_vec).collect()
}

async fn call(
    channel: &Channel,
    method: &Method,
    request: &Json,
) -> Result<DynamicMessage, Status> {
    let bytes = in_time(raw::call(channel, &method.path, messages(method, request))).await?;
    Ok(DynamicMessage::decode(method.output.clone(), bytes.as_slice()).expect("its reply"))
}

fn with(mut request: Json, more: &Json) -> Json {
    for (key, value) in more.as_object().expect("an object") {
        request[key] = value.clone();
    }
    request
}

/// The names of the operations in a reply, and of the resource that it carries.
fn names(reply: &DynamicMessage) -> Vec<String> {
    let mut names = Vec::new();
    for (field, value) in reply.fields() {
        let inner: Vec<&Value> = match value {
            Value::List(values) => values.iter().collect(),
            value => vec![value],
        };
        for message in inner.iter().filter_map(|value| value.as_message()) {
            match message.get_field_by_name("name") {
                Some(name) => names.push(name.as_str().unwrap_or_default().to_owned()),
                None if field.name() == "results" => names.extend(self::names(message)),
                None => {}
            }
        }
    }
    names
}

/// Fills what is the server's to fill with something else.
fn meddle(message: &mut DynamicMessage, is_new: bool) {
    for field in message.descriptor().fields().collect::<Vec<_>>() {
        let is_servers = behaves(&field, "OUTPUT_ONLY");
        // A new resource's name is in the request beside it.
        let is_name = is_new && behaves(&field, "IDENTIFIER");
        if is_servers || is_name {
            if let Some(value) = foreign(&field) {
                message.set_field(&field, value);
            }
        } else if message.has_field(&field) {
            match message.get_field_mut(&field) {
                Value::Message(inner) => meddle(inner, is_new),
                Value::List(values) => values.iter_mut().for_each(|value| {
                    if let Value::Message(inner) = value {
                        meddle(inner, is_new);
                    }
                }),
                _ => {}
            }
        }
    }
}

fn foreign(field: &FieldDescriptor) -> Option<Value> {
    let one = match field.kind() {
        Kind::String => Value::String(FOREIGN_TEXT.into()),
        Kind::Uint32 => Value::U32(FOREIGN_NUMBER),
        Kind::Uint64 => Value::U64(FOREIGN_NUMBER.into()),
        Kind::Bool => Value::Bool(true),
        Kind::Enum(names) => Value::EnumNumber(names.values().last()?.number()),
        Kind::Message(inner) => Value::Message(DynamicMessage::new(inner)),
        _ => return None,
    };
    let is_single = !(field.is_list() || field.is_map());
    is_single.then_some(one).or_else(|| field.is_list().then(|| Value::List(vec![])))
}

fn request_id(number: usize) -> String {
    format!("123e4567-e89b-42d3-a456-{number:012}")
}

#[test]
fn every_change_and_every_required_field_is_tried() {
    let changes: BTreeSet<&str> =
        MATRIX.iter().filter(|row| row.is_audited).map(|row| row.method()).collect();
    let mut tried: BTreeSet<&str> = steps().iter().chain(&refused()).map(|s| s.method).collect();
    // They are audited, but change nothing.
    tried.extend(["RunTraffic", "WatchPackets"]);
    assert_eq!(tried, changes);
    let reads: BTreeSet<&str> = reads().iter().map(|(method, _)| *method).collect();
    for (name, method) in methods() {
        let requires = method.input.fields().any(|field| behaves(&field, "REQUIRED"));
        let is_tried = tried.contains(&*name) || reads.contains(&*name);
        assert!(!requires || is_tried, "{name} has required fields; add a request to this test");
    }
}

/// Sends requests, and what it sent again.
struct Sender {
    client: Client,
    methods: BTreeMap<String, Method>,
    /// The operation that was begun last.
    operation: String,
    sent: Vec<(&'static str, Vec<Vec<u8>>)>,
}

impl Sender {
    async fn send(&self, name: &str, wire: Vec<Vec<u8>>) -> Result<DynamicMessage, Status> {
        let method = &self.methods[name];
        let bytes = in_time(raw::call(&self.client.channel, &method.path, wire)).await?;
        Ok(DynamicMessage::decode(method.output.clone(), &*bytes).expect("a reply"))
    }

    /// The step with a request id, the same again, and another with the same id.
    async fn carry_out(&mut self, step: Step) {
        let Step { method: name, request, other, end } = step;
        let method = &self.methods[name];
        let text = request.to_string().replace("operations/begun", &self.operation);
        let id = json!({"request_id": request_id(self.sent.len())});
        let request = with(text.parse().expect("JSON"), &id);
        let wire = match name {
            "UploadBitstream" => messages(method, &request),
            _ => {
                let mut message = message(&method.input, &request);
                meddle(&mut message, name.contains("Create"));
                vec![message.encode_to_vec()]
            }
        };
        let first = self.send(name, wire.clone()).await;
        let first = first.unwrap_or_else(|status| panic!("{name}: {status:?}"));
        let shown = serde_json::to_string(&first).expect("JSON");
        let foreign = [FOREIGN_TEXT.to_owned(), FOREIGN_NUMBER.to_string()];
        let is_foreign = foreign.iter().any(|value| shown.contains(value));
        assert!(!is_foreign, "{name} took what is not the caller's: {shown}");
        for begun in names(&first).into_iter().filter(|name| name.starts_with("operations/")) {
            if end != End::Later {
                let ended = self.client.wait(&begun).await;
                let failed = matches!(ended.result, Some(v1::operation::Result::Error(_)));
                assert!(!failed || end == End::Either, "{name}: {ended:?}");
            }
            self.operation = begun;
        }
        let again = self.send(name, wire.clone()).await;
        let again = again.unwrap_or_else(|status| panic!("{name} again: {status:?}"));
        assert_eq!(names(&again), names(&first), "{name}");
        let another = messages(&self.methods[name], &with(request, &other));
        let status = self.send(name, another).await.expect_err("the id is of another request");
        assert_eq!(reason_of(&status), Some(ErrorReason::RequestIdReused), "{name}: {status:?}");
        self.sent.push((name, wire));
    }

    /// Answers to all of them now: names, or why not.
    async fn answers(&self) -> Vec<Result<Vec<String>, (&'static str, Option<ErrorReason>)>> {
        let mut answers = Vec::new();
        for (name, wire) in &self.sent {
            let reply = self.send(name, wire.clone()).await;
            let answer = reply.map(|reply| names(&reply));
            answers.push(answer.map_err(|status| (*name, reason_of(&status))));
        }
        answers
    }
}

/// The first reply comes again, also where the change itself could not be made again and after a restart;
/// another request with the same id is refused; and what belongs to the server is ignored in requests.
#[tokio::test]
async fn a_request_that_comes_again_is_answered_as_before() {
    let rig = Rig::start().await;
    let client = rig.furnished().await;
    let (operation, sent) = (String::new(), Vec::new());
    let mut sender = Sender { client, methods: methods(), operation, sent };
    let mut steps = steps();
    // After that there is no card.
    let last = steps.pop().expect("there are some");
    for step in steps {
        sender.carry_out(step).await;
    }
    // By now some of what was made is gone, and the same requests say so. A restart changes nothing of that.
    let before = sender.answers().await;
    assert!(before.iter().filter(|answer| answer.is_ok()).count() > before.len() / 2);
    let rig = rig.restarted().await;
    sender.client = rig.client("operator/root").await;
    assert_eq!(sender.answers().await, before);

    for Step { method: name, request, .. } in refused() {
        let request = with(request, &json!({"request_id": request_id(900)}));
        let wire = messages(&sender.methods[name], &request);
        let mut answers = Vec::new();
        for _ in 0..2 {
            let status = sender.send(name, wire.clone()).await.expect_err("it cannot be done");
            answers.push(reason_of(&status));
        }
        assert!(answers[0].is_some() && answers[0] == answers[1], "{name}: {answers:?}");
    }
    sender.carry_out(last).await;
    rig.stop().await;
}

fn violations(status: &Status) -> Vec<String> {
    let bad = status.get_details_bad_request();
    bad.map(|bad| bad.field_violations).unwrap_or_default().into_iter().map(|v| v.field).collect()
}

#[tokio::test]
async fn a_request_id_is_a_uuid() {
    let rig = Rig::start().await;
    let operator = rig.furnished().await;
    let methods = methods();
    for Step { method: name, request, .. } in steps().into_iter().chain(refused()) {
        let request = with(request, &json!({"request_id": "no UUID"}));
        let status = call(&operator.channel, &methods[name], &request).await.expect_err(name);
        assert_eq!(status.code(), Code::InvalidArgument, "{name}: {status:?}");
        let is_it = |field: &String| field == "request_id" || field == "header.request_id";
        assert!(violations(&status).iter().any(is_it), "{name}: {status:?}");
    }
    rig.stop().await;
}

/// A request without one required field, by the field's path.
fn without_each(
    message: &DynamicMessage,
    path: &str,
    is_update: bool,
) -> Vec<(String, DynamicMessage)> {
    let mut all = Vec::new();
    for field in message.descriptor().fields() {
        let here = if path.is_empty() {
            field.name().to_owned()
        } else {
            format!("{path}.{}", field.name())
        };
        // An update says what it sets; only the name of what it changes must be there.
        let is_named = is_update && !path.is_empty() && behaves(&field, "IDENTIFIER");
        let is_required = behaves(&field, "REQUIRED") && (!is_update || path.is_empty());
        if is_named || is_required {
            assert!(message.has_field(&field), "the request of this test has no {here}");
            let mut without = message.clone();
            without.clear_field(&field);
            all.push((here.clone(), without));
        }
        if !message.has_field(&field) || field.is_map() {
            continue;
        }
        match message.get_field(&field).into_owned() {
            Value::Message(inner) => {
                for (at, changed) in without_each(&inner, &here, is_update) {
                    let mut whole = message.clone();
                    whole.set_field(&field, Value::Message(changed));
                    all.push((at, whole));
                }
            }
            Value::List(values) => {
                for (index, value) in values.iter().enumerate() {
                    let Value::Message(inner) = value else { continue };
                    for (at, changed) in without_each(inner, &format!("{here}[{index}]"), is_update)
                    {
                        let mut values = values.clone();
                        values[index] = Value::Message(changed);
                        let mut whole = message.clone();
                        whole.set_field(&field, Value::List(values));
                        all.push((at, whole));
                    }
                }
            }
            _ => {}
        }
    }
    all
}

#[tokio::test]
async fn a_missing_field_is_named() {
    let rig = Rig::start().await;
    let operator = rig.furnished().await;
    let methods = methods();
    let changes = steps().into_iter().chain(refused()).map(|step| (step.method, step.request));
    let mut count = 0;
    for (name, request) in changes.chain(reads()) {
        let method = &methods[name];
        let whole = match name {
            "UploadBitstream" => {
                let header = v1::UploadBitstreamRequest {
                    part: Some(v1::upload_bitstream_request::Part::Header(upload().0)),
                };
                let bytes = header.encode_to_vec();
                DynamicMessage::decode(method.input.clone(), &*bytes).expect("a header")
            }
            _ => message(&method.input, &request),
        };
        for (path, message) in without_each(&whole, "", name.starts_with("Update")) {
            // The parent of the whole batch counts.
            if name == "BatchCreateDags" && path == "requests[0].parent" {
                continue;
            }
            let answer = raw::call(&operator.channel, &method.path, vec![message.encode_to_vec()]);
            let status = in_time(answer).await.expect_err(&format!("{name} without {path}"));
            assert_eq!(status.code(), Code::InvalidArgument, "{name} without {path}: {status:?}");
            let found = violations(&status);
            assert!(found.contains(&path), "{name} without {path}: {found:?}");
            count += 1;
        }
    }
    assert!(count > 70, "{count} fields");
    rig.stop().await;
}

/// The rule that invalid requests find.
const RULE: &str = "classificationRules/r";

/// Invalid requests of the methods that have dry runs and no operation, by what is wrong with them.
fn invalid_resources() -> Vec<(&'static str, Json, ErrorReason)> {
    use ErrorReason as Is;
    let tenant = |change: Json| json!({"tenant": with(json!({"name": "tenants/acme"}), &change)});
    let nt = |change: Json| {
        let own = json!({"bandwidth_max_bps": 10_000_000_000_u64, "latency_cycles": 4,
            "area": {"lut": 100}, "traffic": "TRAFFIC_PAYLOAD"});
        json!({"nt_type_id": "own", "nt_type": with(own, &change)})
    };
    let rule = |change: Json| {
        let own = json!({"dag": WEB, "match": {"vni": 8}});
        json!({"rule_id": "new", "rule": with(own, &change)})
    };
    let rule_update = |change: Json| json!({"rule": with(json!({"name": RULE}), &change)});
    vec![
        ("CreateTenant", json!({"tenant_id": "acme"}), Is::ResourceExists),
        ("CreateTenant", json!({"tenant_id": "x", "tenant": {"weight": 2000}}), Is::InvalidField),
        ("UpdateTenant", tenant(json!({"weight": 2000})), Is::InvalidField),
        (
            "UpdateTenant",
            tenant(json!({"quota": {"month_budget_micros": 1}})), // There are no prices.
            Is::InvalidField,
        ),
        ("UpdateTenant", tenant(json!({"weight": 2, "etag": "stale"})), Is::EtagMismatch),
        (
            "UpdateTenant",
            tenant(json!({"name": "tenants/none", "weight": 2})),
            Is::ResourceNotFound,
        ),
        ("CreateNtType", with(nt(json!({})), &json!({"nt_type_id": "nat"})), Is::ResourceExists),
        ("CreateNtType", nt(json!({"area": {}})), Is::FieldRequired),
        ("UploadBitstream", json!({"bitstream_id": "Own!"}), Is::InvalidField),
        ("UploadBitstream", json!({"card_model": "none"}), Is::ManifestMismatch),
        ("CreateRule", with(rule(json!({})), &json!({"rule_id": "r"})), Is::ResourceExists),
        ("CreateRule", rule(json!({"dag": "tenants/acme/dags/none"})), Is::InvalidField),
        ("CreateRule", rule(json!({"priority": 70_000})), Is::InvalidField),
        ("UpdateRule", rule_update(json!({"priority": 5, "etag": "stale"})), Is::EtagMismatch),
        ("UpdateRule", rule_update(json!({"dag": "tenants/acme/dags/none"})), Is::InvalidField),
        (
            "UpdateRule",
            rule_update(json!({"name": "classificationRules/none", "priority": 5})),
            Is::ResourceNotFound,
        ),
    ]
}

/// Invalid requests of the methods that have dry runs and an operation, by what is wrong with them.
fn invalid_dags() -> Vec<(&'static str, Json, ErrorReason)> {
    let create = |id: &str, dag: Json| json!({"parent": "tenants/acme", "dag_id": id, "dag": dag});
    let batch =
        |dag: Json| json!({"parent": "tenants/acme", "requests": [{"dag_id": "new", "dag": dag}]});
    let update = |change: Json| json!({"dag": with(json!({"name": WEB}), &change)});
    let other_nt = || with(dag(), &json!({"nodes": [node("none")], "edges": []}));
    let cyclic = json!([
        {"from_node": "nat", "to_node": "firewall"}, {"from_node": "firewall", "to_node": "nat"},
    ]);
    let too_much = || with(dag(), &json!({"bandwidth_bps": 99_000_000_000_u64}));
    let placed = json!({"placement": {"zones": ["z1"]}});
    let over_quota = || with(dag(), &json!({"bandwidth_bps": 1_000_000_000_000_u64}));
    use ErrorReason as Is;
    vec![
        ("CreateDag", create("web", dag()), Is::ResourceExists),
        ("CreateDag", create("new", other_nt()), Is::UnknownNtType),
        ("CreateDag", create("new", with(dag(), &json!({"edges": cyclic}))), Is::InvalidGraph),
        ("CreateDag", create("new", with(dag(), &json!({"bandwidth_bps": 1}))), Is::InvalidField),
        ("CreateDag", create("new", over_quota()), Is::QuotaExceeded),
        ("CreateDag", create("new", too_much()), Is::InsufficientCapacity),
        ("CreateDag", create("New!", dag()), Is::InvalidField),
        ("CreateDag", create("new", with(dag(), &placed)), Is::InvalidField),
        ("BatchCreateDags", batch(with(dag(), &placed)), Is::InvalidField),
        ("UpdateDag", update(placed), Is::InvalidField),
        (
            "CreateDag",
            json!({"parent": "tenants/none", "dag_id": "x", "dag": dag()}),
            Is::ResourceNotFound,
        ),
        ("BatchCreateDags", batch(other_nt()), Is::UnknownNtType),
        ("BatchCreateDags", batch(over_quota()), Is::QuotaExceeded),
        ("BatchCreateDags", batch(too_much()), Is::InsufficientCapacity),
        (
            "UpdateDag",
            update(json!({"etag": "stale", "bandwidth_bps": 2_000_000_000_u64})),
            Is::EtagMismatch,
        ),
        ("UpdateDag", update(json!({"bandwidth_bps": 1_000_000_000_000_u64})), Is::QuotaExceeded),
        (
            "UpdateDag",
            update(json!({"bandwidth_bps": 99_000_000_000_u64})),
            Is::InsufficientCapacity,
        ),
        (
            "UpdateDag",
            json!({"dag": {"name": "tenants/acme/dags/none", "bandwidth_bps": 1_000_000_000_u64}}),
            Is::ResourceNotFound,
        ),
        (
            "UpdateDag",
            with(update(json!({})), &json!({"update_mask": "state"})),
            Is::InvalidUpdateMask,
        ),
        ("OptimizeCard", json!({"name": "cards/none"}), Is::ResourceNotFound),
        ("OptimizeCard", json!({"name": "cards/card0", "etag": "stale"}), Is::EtagMismatch),
        ("OptimizeCard", json!({"name": "card0"}), Is::InvalidName),
    ]
}

/// A dry run is refused with the status and the details of the change itself; nothing of it is in an OK.
#[tokio::test]
async fn a_dry_run_fails_as_the_change_would() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let methods = methods();
    let rule = json!({"rule_id": "r", "rule": {"dag": WEB, "match": {"vni": 7}}});
    call(&operator.channel, &methods["CreateRule"], &rule).await.expect("a rule");
    let (mut tried, mut wrong) = (BTreeSet::new(), Vec::new());
    for (name, request, reason) in invalid_resources().into_iter().chain(invalid_dags()) {
        let dry = with(request.clone(), &json!({"validate_only": true}));
        let dry = call(&operator.channel, &methods[name], &dry).await;
        let dry = dry.expect_err(&format!("{name}: {request}"));
        let real = call(&operator.channel, &methods[name], &request).await.expect_err(name);
        if reason_of(&real) != Some(reason) {
            wrong.push(format!("{name}: {request}: not {reason:?}: {real:?}"));
        }
        let parts = |status: &Status| {
            let metadata = status.get_details_error_info().map(|info| info.metadata);
            let text = status.message().to_owned();
            (status.code(), text, reason_of(status), metadata, violations(status))
        };
        if parts(&dry) != parts(&real) {
            wrong.push(format!("{name}: {request}: {dry:?}, but {real:?}"));
        }
        tried.insert(name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // An upload says so in its header.
    let has = |(_, method): &(&String, &Method)| {
        let header = method.input.get_field_by_name("header").map(|header| header.kind());
        let header = header.as_ref().and_then(Kind::as_message);
        [Some(&method.input), header]
            .into_iter()
            .flatten()
            .any(|message| message.get_field_by_name("validate_only").is_some())
    };
    let dry: BTreeSet<&str> = methods.iter().filter(has).map(|(name, _)| name.as_str()).collect();
    assert_eq!(tried, dry);
    rig.stop().await;
}
