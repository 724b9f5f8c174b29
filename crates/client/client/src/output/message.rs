//! Messages of the API as JSON and YAML, by the API's published descriptors: a new field in a proto file is
//! printed without a change here.

use std::sync::LazyLock;

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, SerializeOptions,
};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use snic_api::{fleet_v1, v1};

use super::whole_numbers::Document;
use crate::failure::Failure;

/// A message that the program prints.
pub trait PrintedMessage: prost::Message + Default {
    /// Its name in the proto files.
    const NAME: &'static str;
}

macro_rules! resources {
    ($package:literal, $module:ident: $($message:ident),+) => {
        $(impl PrintedMessage for $module::$message {
            const NAME: &'static str = concat!($package, stringify!($message));
        })+
    };
}
resources!("snic.fleet.v1.", fleet_v1: AreaDrain, FindHostsResponse, GetFleetResponse, Host, Policies, Project, Rebalance,
    Reservation, WatchHostsResponse);
resources!(
    "snic.control.v1.", v1:
    Maintenance,
    AuditEntry,
    UsageEntry,
    GetUsageResponse,
    GetSloResponse,
    CheckAccessResponse,
    Bitstream,
    BitstreamHeader,
    Card,
    Dag,
    Diagnosis,
    WatchDagsResponse,
    Event,
    WatchEventsResponse,
    Explanation,
    Fairness,
    HeartbeatResponse,
    NtType,
    Operation,
    OptimizeCardResponse,
    PacketSighting,
    RecommendBitstreamsResponse,
    Region,
    WatchRegionsResponse,
    Rule,
    Tenant,
    VmBinding,
    WhoAmIResponse,
    WatchBindingsResponse,
    WatchBitstreamsResponse,
    WatchCardsResponse,
    WatchNtTypesResponse,
    WatchOperationsResponse,
    WatchRulesResponse,
    WatchTenantsResponse
);

/// The API's descriptors, and those of the error details that operations carry.
static POOL: LazyLock<Result<DescriptorPool, String>> = LazyLock::new(|| {
    let mut pool = DescriptorPool::decode(snic_api::FILE_DESCRIPTOR_SET)
        .map_err(|error| format!("the API's descriptors: {error}"))?;
    for (of, set) in [
        ("google.rpc", snic_api::ERROR_DETAILS_DESCRIPTOR_SET),
        ("the fleet", snic_api::FLEET_DESCRIPTOR_SET),
    ] {
        let set: prost_types::FileDescriptorSet = prost::Message::decode(set)
            .map_err(|error| format!("the descriptors of {of}: {error}"))?;
        let known: Vec<String> = pool.files().map(|file| file.name().to_owned()).collect();
        let new = set.file.into_iter().filter(|file| !known.iter().any(|name| name == file.name()));
        pool.add_file_descriptor_protos(new)
            .map_err(|error| format!("the descriptors of {of}: {error}"))?;
    }
    Ok(pool)
});

/// A message that serializes with the field names of the proto files.
pub struct JsonMessage(DynamicMessage);

impl JsonMessage {
    /// Converts a message.
    ///
    /// # Errors
    /// [`Failure::Reply`] if it does not match its descriptor.
    pub fn new<R: PrintedMessage>(message: &R) -> Result<Self, Failure> {
        dynamic(message).map(Self)
    }
}

/// A message with its descriptor.
pub(super) fn dynamic<R: PrintedMessage>(message: &R) -> Result<DynamicMessage, Failure> {
    DynamicMessage::decode(descriptor::<R>()?, message.encode_to_vec().as_slice())
        .map_err(|error| Failure::Reply(error.to_string()))
}

/// The descriptor of a message.
///
/// # Errors
/// [`Failure::Reply`] if there is none.
pub fn descriptor<R: PrintedMessage>() -> Result<MessageDescriptor, Failure> {
    let pool = POOL.as_ref().map_err(|error| Failure::Reply(error.clone()))?;
    let found = pool.get_message_by_name(R::NAME);
    found.ok_or_else(|| Failure::Reply(format!("{} has no descriptor", R::NAME)))
}

/// A message from JSON with the field names of the proto files. Values of enums may be short, such as `known-nt` for
/// `REGION_KIND_KNOWN_NT`.
///
/// # Errors
/// The path of a field, such as `quota.dags_max`, and what is wrong with it.
pub fn from_json<R: PrintedMessage + Default>(
    mut json: serde_json::Value,
) -> Result<R, (String, String)> {
    let whole = |error: String| (String::new(), error);
    let descriptor = descriptor::<R>().map_err(|failure| whole(failure.to_string()))?;
    if let Some(fields) = json.as_object_mut() {
        for (key, value) in fields {
            let field = descriptor.get_field_by_name(key);
            if let (Some(Kind::Enum(names)), Some(word)) = (field.map(|f| f.kind()), value.as_str())
            {
                let end = format!("_{}", word.to_uppercase().replace('-', "_"));
                let mut long = names.values().filter(|name| name.name().ends_with(&end));
                if let (None, Some(long)) = (names.get_value_by_name(word), long.next()) {
                    *value = long.name().into();
                }
            }
        }
    }
    let message = DynamicMessage::deserialize(descriptor.clone(), json.clone());
    let message = message.map_err(|error| {
        wrong_field(&descriptor, &json).unwrap_or_else(|| whole(error.to_string()))
    })?;
    message.transcode_to().map_err(|error| whole(error.to_string()))
}

/// The first field that cannot be read by itself, and why; of a message in a field its part.
fn wrong_field(message: &MessageDescriptor, json: &serde_json::Value) -> Option<(String, String)> {
    json.as_object()?.iter().find_map(|(key, value)| {
        let alone = serde_json::json!({ key: value });
        let error = DynamicMessage::deserialize(message.clone(), alone).err()?;
        let field = message.get_field_by_name(key);
        let inner = field.as_ref().map(FieldDescriptor::kind);
        let inner = inner.as_ref().and_then(|kind| wrong_field(kind.as_message()?, value));
        Some(match inner {
            Some((path, error)) => (format!("{key}.{path}"), error),
            None => (key.clone(), format!("{value} is not a value of {key}: {error}")),
        })
    })
}

/// The names of a message's fields: those that a request may set, and those that only the server sets.
///
/// # Errors
/// [`Failure::Reply`] if it has no descriptor.
pub fn fields_of<R: PrintedMessage>() -> Result<(Vec<String>, Vec<String>), Failure> {
    let name = |field: &FieldDescriptor| field.name().to_owned();
    let fields: Vec<FieldDescriptor> = descriptor::<R>()?.fields().collect();
    let settable = |field: &&FieldDescriptor| is_settable(field);
    let others = fields.iter().filter(|field| !is_settable(field)).map(name).collect();
    Ok((fields.iter().filter(settable).map(name).collect(), others))
}

/// Whether a request may set a field, by its annotation in the proto file.
fn is_settable(field: &FieldDescriptor) -> bool {
    let behaviour = field.parent_pool().get_extension_by_name("google.api.field_behavior");
    let options = field.options();
    let values = behaviour.map(|behaviour| options.get_extension(&behaviour).into_owned());
    let values = values.as_ref().and_then(|values| values.as_list()).unwrap_or_default();
    // 1: OPTIONAL, 2: REQUIRED.
    values.iter().any(|value| matches!(value.as_enum_number(), Some(1 | 2)))
}

impl Serialize for JsonMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(&AsDescribed(&self.0)).map_err(S::Error::custom)?;
        let document: Document = serde_json::from_str(&text).map_err(S::Error::custom)?;
        document.serialize(serializer)
    }
}

/// A message as its descriptor says.
struct AsDescribed<'a>(&'a DynamicMessage);

impl Serialize for AsDescribed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let options = SerializeOptions::new()
            .use_proto_field_name(true)
            .stringify_64_bit_integers(false)
            .skip_default_fields(false);
        self.0.serialize_with_options(serializer, &options)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;
    use snic_api::error::ApiError as ApiFailure;
    use snic_api::v1::operation::Result as Ended;
    use tonic::Status;

    use super::*;

    fn value<R: PrintedMessage>(message: &R) -> serde_json::Value {
        serde_json::to_value(JsonMessage::new(message).unwrap()).unwrap()
    }

    #[test]
    fn every_resource_has_a_descriptor() {
        JsonMessage::new(&v1::Bitstream::default()).unwrap();
        JsonMessage::new(&v1::WatchDagsResponse::default()).unwrap();
        JsonMessage::new(&v1::Explanation::default()).unwrap();
        JsonMessage::new(&v1::WatchRegionsResponse::default()).unwrap();
        JsonMessage::new(&v1::Card::default()).unwrap();
        JsonMessage::new(&v1::NtType::default()).unwrap();
        JsonMessage::new(&v1::Rule::default()).unwrap();
        JsonMessage::new(&v1::Tenant::default()).unwrap();
        JsonMessage::new(&v1::Region::default()).unwrap();
    }

    #[test]
    fn what_is_printed_can_be_read_again_and_enums_may_be_short() {
        let nt = v1::NtType { latency_cycles: 12, traffic: 2, ..v1::NtType::default() };
        assert_eq!(from_json::<v1::NtType>(value(&nt)), Ok(nt));
        let header = from_json::<v1::BitstreamHeader>(json!({"region_kind": "user-nt"}));
        assert_eq!(header.map(|header| header.region_kind()), Ok(v1::RegionKind::UserNt));
    }

    #[test]
    fn a_value_that_cannot_be_read_is_named_with_its_path() {
        for (json, path) in [
            (json!({"weight": 2, "quota": {"dags_max": -1}}), "quota.dags_max"),
            (json!({"weight": "heavy"}), "weight"),
            (json!({"labels": {"a": 5}}), "labels.a"),
            (json!([]), ""),
        ] {
            let (found, _) = from_json::<v1::Tenant>(json).expect_err(path);
            assert_eq!(found, path);
        }
    }

    #[test]
    fn only_what_a_request_may_set_is_settable() {
        let (settable, others) = fields_of::<v1::Tenant>().unwrap();
        assert_eq!(settable, ["weight", "quota", "etag", "labels", "description", "project"]);
        assert!(others.contains(&"uid".to_owned()) && others.contains(&"name".to_owned()));
    }

    #[test]
    fn fields_have_the_names_of_the_proto_files_and_figures_are_numbers() {
        let dag = v1::Dag {
            name: "tenants/acme/dags/web".into(),
            bandwidth_bps: 4_000_000_000_000,
            state: v1::dag::State::Ready.into(),
            create_time: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 }),
            ..v1::Dag::default()
        };
        let value = value(&dag);
        assert_eq!(value["bandwidth_bps"], json!(4_000_000_000_000_u64));
        assert_eq!(value["state"], "STATE_READY");
        assert_eq!(value["create_time"], "2023-11-14T22:13:20Z");
        assert_eq!(value["generation"], 0, "fields of value zero are there");
        assert_eq!(value["nodes"], json!([]));
        assert_eq!(value.get("mapping"), None, "what is not set is not");
    }

    #[test]
    fn numbers_of_a_configuration_are_printed_as_they_were_written() {
        let configuration = snic_api::convert::object::of_json(&json!({"z": 4096, "a": 0.5}));
        let node = v1::dag::Node { configuration: Some(configuration), ..v1::dag::Node::default() };
        let dag = v1::Dag { nodes: vec![node], ..v1::Dag::default() };
        let yaml = serde_yaml_ng::to_string(&JsonMessage::new(&dag).unwrap()).unwrap();
        assert!(yaml.contains("z: 4096\n") && yaml.contains("a: 0.5\n"), "{yaml}");
    }

    #[test]
    fn the_end_of_an_operation_is_shown_with_its_details() {
        let failure = ApiFailure::quota("tenants/acme", "dags_max", 1, 2);
        let error = v1::OperationError::from(&Status::from(failure));
        let operation =
            v1::Operation { result: Some(Ended::Error(error)), ..v1::Operation::default() };
        let shown = value(&operation);
        let details = shown["error"]["details"].as_array().unwrap();
        let reasons: Vec<_> =
            details.iter().filter_map(|detail| detail["reason"].as_str()).collect();
        assert_eq!(reasons, ["QUOTA_EXCEEDED"]);

        let dag = v1::Dag { name: "tenants/acme/dags/web".into(), ..v1::Dag::default() };
        let type_url = format!("type.googleapis.com/{}", v1::Dag::NAME);
        let response = prost_types::Any { type_url, value: dag.encode_to_vec() };
        let result = Some(Ended::Response(response));
        let shown = value(&v1::Operation { result, ..v1::Operation::default() });
        assert_eq!(shown["response"]["name"], "tenants/acme/dags/web");

        // A deletion leaves nothing, and is shown nevertheless.
        let type_url = "type.googleapis.com/google.protobuf.Empty".to_owned();
        let result = Some(Ended::Response(prost_types::Any { type_url, value: Vec::new() }));
        let shown = value(&v1::Operation { result, ..v1::Operation::default() });
        assert_eq!(shown["response"]["@type"], "type.googleapis.com/google.protobuf.Empty");
    }
}
