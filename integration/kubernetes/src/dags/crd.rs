//! The custom resource definition of `Dag`: its schema follows from the API's fields, words and limits.

use serde_json::{Value, json};
use snic_api::v1::dag::Form;
use snic_api::v1::placement::Order;
use snic_domain::ID_CHARS_MAX;
use snic_domain::limits::{
    AFFINITY_DAGS_MAX, DAG_BANDWIDTH_MAX, DAG_BANDWIDTH_MIN, DAG_LATENCY_BOUND_MAX, DAG_NODES_MAX,
    DESCRIPTION_BYTES_MAX, FORK_BRANCHES_MAX, LABEL_CHARS_MAX, LABELS_MAX, PACKET_BYTES_MAX,
    PACKET_BYTES_MIN, PACKET_SIZES_MAX, PACKET_WEIGHT_MAX, TRUSTED_TENANTS_MAX,
};

use super::object::{GROUP, KIND, PLURAL, VERSION};
use super::spec::{LABEL_PREFIX, LABELS};

/// Ids of tenants, DAGs, nodes, zones and so on, as `snic_domain` checks them.
const ID: &str = "^[a-z]([a-z0-9-]*[a-z0-9])?$";
/// Ids of network task types: the provider's, or a tenant's with its id first; full names too.
const NT_TYPE: &str = "^(ntTypes/)?([a-z]([a-z0-9-]*[a-z0-9])?\\.)?[a-z]([a-z0-9-]*[a-z0-9])?$";
/// Rates as DAG files have them.
const TIME: &str = "^[0-9][0-9_]*(\\.[0-9]+)? ?(ns|us|ms|s)?$";
const RATE: &str = "^[0-9][0-9_]*(\\.[0-9]+)? ?(([kKmMgGtT]?bps)|([kKmMgGtT]?bit/s))?$";
/// Keys of labels.
const LABEL_KEY: &str = "^[a-z0-9]([a-z0-9./_-]*[a-z0-9])?$";
/// Longest chain: for each task an id, a type, and the signs between.
const CHAIN_CHARS_MAX: usize = DAG_NODES_MAX * 3 * ID_CHARS_MAX;
/// Most edges: each fork has at most so many branches.
const EDGES_MAX: usize = DAG_NODES_MAX * FORK_BRANCHES_MAX;
/// Most entries in each list of a placement.
const PLACEMENT_ENTRIES_MAX: usize = 64;

/// Words of an enum of the API: `sequential` for `FORM_SEQUENTIAL`.
fn words<E: TryFrom<i32>>(prefix: &str, name: impl Fn(E) -> &'static str) -> Vec<String> {
    let values = (0..).map_while(|number| E::try_from(number).ok());
    let words = values.map(|value| name(value).trim_start_matches(prefix).to_lowercase());
    words.filter(|word| word != "unspecified").collect()
}

fn text(description: &str, chars_max: usize) -> Value {
    json!({"type": "string", "description": description, "maxLength": chars_max})
}

fn id(description: &str) -> Value {
    json!({"type": "string", "description": description, "pattern": ID, "maxLength": ID_CHARS_MAX})
}

/// A list in which each value is once.
fn set(description: &str, item: Value, items_max: usize) -> Value {
    json!({
        "type": "array", "description": description, "items": item, "maxItems": items_max,
        "x-kubernetes-list-type": "set",
    })
}

/// An object whose content only the network task's own schema knows.
fn opaque(description: &str) -> Value {
    json!({"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true})
}

fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

fn labels(description: &str, labels_max: usize) -> Value {
    json!({
        "type": "object", "description": description, "maxProperties": labels_max,
        "additionalProperties": {
            "type": "string", "maxLength": LABEL_CHARS_MAX, "pattern": "^[A-Za-z0-9._-]*$",
        },
        "x-kubernetes-validations": [rule(
            &format!("self.all(key, size(key) <= {LABEL_CHARS_MAX} && key.matches('{LABEL_KEY}'))"),
            "keys have lower-case letters, digits, '-', '_', '.' and '/', and begin and end with a letter or digit",
        )],
    })
}

fn nodes() -> Value {
    json!({
        "type": "array", "maxItems": DAG_NODES_MAX, "minItems": 1,
        "description": "The network tasks, in place of a chain.",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
        "items": {
            "type": "object", "required": ["id", "type"],
            "properties": {
                "id": id("Unique in the DAG."),
                "type": {
                    "type": "string", "pattern": NT_TYPE, "maxLength": 2 * ID_CHARS_MAX + 9,
                    "description": "Type of the network task: the provider's, or one of the tenant's own.",
                },
                "configuration": opaque("Configuration of the task, by the schema of its type; without one, packets pass unchanged."),
            },
        },
    })
}

fn edges() -> Value {
    json!({
        "type": "array", "maxItems": EDGES_MAX, "description": "Order of the nodes.",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["from", "to"],
        "items": {
            "type": "object", "required": ["from", "to"],
            "properties": {"from": id("Id of the earlier node."), "to": id("Id of the later node.")},
            "x-kubernetes-validations": [rule("self.from != self.to", "an edge joins two nodes")],
        },
    })
}

fn packet_sizes() -> Value {
    json!({
        "type": "array", "maxItems": PACKET_SIZES_MAX, "minItems": 1,
        "description": "Sizes of the packets, for which the bandwidth is promised; without them the simple IMIX.",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["bytes"],
        "items": {
            "type": "object", "required": ["bytes"],
            "properties": {
                "bytes": {
                    "type": "integer", "minimum": PACKET_BYTES_MIN, "maximum": PACKET_BYTES_MAX,
                    "description": "Bytes of the packet.",
                },
                "weight": {
                    "type": "integer", "minimum": 1, "maximum": PACKET_WEIGHT_MAX,
                    "description": "Number of packets of this size beside those of the others; 1 if nothing is said.",
                },
            },
        },
    })
}

fn dags(description: &str) -> Value {
    set(description, id("Name of a DAG of the namespace."), AFFINITY_DAGS_MAX)
}

fn card_affinity() -> Value {
    json!({
        "type": "object", "description": "Other DAGs of the namespace on the same card, or on others.",
        "properties": {
            "with": dags("On the card of these."),
            "apart_from": dags("On the card of none of these."),
            "preferred": {"type": "boolean", "description": "Another card will do if there is no such one."},
        },
        "x-kubernetes-validations": [rule(
            "!has(self.with) || !has(self.apart_from) || !self.with.exists(name, name in self.apart_from)",
            "no DAG is in both lists",
        )],
    })
}

fn placement() -> Value {
    let list = |description: &str| {
        set(description, text("An id.", LABEL_CHARS_MAX + 6), PLACEMENT_ENTRIES_MAX)
    };
    let orders = words("ORDER_", |order: Order| order.as_str_name());
    json!({
        "type": "object", "description": "Where in a fleet it may go. It never changes.",
        "properties": {
            "zones": list("Zones."), "racks": list("Racks."), "hosts": list("Only these hosts."),
            "apart_from_hosts": list("None of these hosts."), "card_models": list("Models of cards."),
            "host_labels": labels("Labels that the host has.", PLACEMENT_ENTRIES_MAX),
            "order": {"type": "string", "enum": orders, "description": "Which card comes first."},
            "hosts_without_dags": dags("On no host that serves one of these."),
            "racks_without_dags": dags("In no rack with a host that serves one of these."),
        },
        "x-kubernetes-validations": [rule("self == oldSelf", "the placement never changes; delete the object first")],
    })
}

/// Rules over several fields.
fn rules() -> Value {
    json!([
        rule("has(self.chain) != has(self.nodes)", "either a chain, or nodes and edges"),
        rule("!has(self.edges) || has(self.nodes)", "edges are for nodes; a chain has its own"),
        rule(
            "!has(self.edges) || !has(self.nodes) || self.edges.all(edge, self.nodes.exists(node, node.id == edge.from) \
             && self.nodes.exists(node, node.id == edge.to))",
            "an edge names two of the nodes",
        ),
        rule(
            "!has(self.configuration) || !has(self.nodes) || self.configuration.all(id, self.nodes.exists(node, node.id == id))",
            "configuration is by the ids of nodes",
        ),
        rule(
            "has(self.placement) == has(oldSelf.placement)",
            "the placement never changes; delete the object first",
        ),
        rule(
            &format!(
                "!has(self.labels) || self.labels.all(key, !key.startsWith('{LABEL_PREFIX}'))"
            ),
            &format!("labels that begin with {LABEL_PREFIX} are the controller's"),
        ),
    ])
}

fn spec() -> Value {
    let mut forms = words("FORM_", |form: Form| form.as_str_name());
    forms.insert(0, "auto".to_owned());
    let (least, most) = (DAG_BANDWIDTH_MIN.get(), DAG_BANDWIDTH_MAX.get());
    json!({
        "type": "object", "required": ["bandwidth"],
        "description": "The DAG, with the keys and units of a DAG file. The tenant follows from the namespace.",
        "properties": {
            "bandwidth": {
                "anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true,
                "pattern": RATE, "minimum": least, "maximum": most, "maxLength": 40,
                "description": "Bandwidth to reserve at every task, such as 10Gbps; a plain number is bit/s.",
            },
            "form": {"type": "string", "enum": forms, "description": "Branches in sequence or in parallel."},
            "chain": text("The network tasks in order, such as `nat -> [firewall, kv-cache] -> aes`.", CHAIN_CHARS_MAX),
            "nodes": nodes(),
            "edges": edges(),
            "configuration": {
                "type": "object", "maxProperties": DAG_NODES_MAX,
                "description": "Configurations by the ids of tasks; for a chain, whose tasks have no other place for them.",
                "additionalProperties": opaque("Configuration of the task, by the schema of its type."),
            },
            "packet_sizes": packet_sizes(),
            "trusted_tenants": set(
                "Tenants through whose own images the packets may pass, of those that the operator's settings name.",
                id("Id of a tenant."), TRUSTED_TENANTS_MAX,
            ),
            "card_affinity": card_affinity(),
            "placement": placement(),
            "latency_sensitive": {"type": "boolean", "description": "Low latency matters more than threads."},
            "refuse_idle_tasks": {
                "type": "boolean", "description": "Refused where a task would pass packets on unchanged.",
            },
            "latency_bound": {
                "anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true,
                "pattern": TIME, "minimum": 0, "maximum": DAG_LATENCY_BOUND_MAX.get(), "maxLength": 40,
                "description": "Time in which 99 of 100 packets are to pass the card, such as 50us; a plain number is nanoseconds.",
            },
            "labels": labels("Labels of the DAG on the server.", LABELS_MAX - LABELS),
            "description": text("A sentence for people.", DESCRIPTION_BYTES_MAX),
        },
        "x-kubernetes-validations": rules(),
    })
}

fn status() -> Value {
    let rate = |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "type": "object", "description": "State of the DAG, as the server reports it.",
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64", "description": "Generation that the rest is about."},
            "dag": text("Name of the DAG on the server."),
            "state": text("Its state on the server."),
            "promisedBps": rate("Bandwidth that is reserved, in bits per second."),
            "promised": text("The same for people."),
            "servedBps": rate("What went through in the last second, in bits per second, in two digits."),
            "served": text("The same for people."),
            "card": text("Cards that it is on."),
            "why": text("Why it is not as it should be."),
            "conditions": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                "description": "Those of the API, and Accepted: the server has the specification.",
                "items": {
                    "type": "object",
                    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
                    "properties": {
                        "type": text("The aspect."),
                        "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it holds."},
                        "reason": text("Why, in one word."),
                        "message": text("Why, for people."),
                        "observedGeneration": {"type": "integer", "format": "int64", "description": "Generation that it is about."},
                        "lastTransitionTime": {"type": "string", "format": "date-time", "description": "Since when it has this status."},
                    },
                },
            },
        },
    })
}

fn column(name: &str, path: &str, kind: &str, priority: u32) -> Value {
    json!({"name": name, "jsonPath": path, "type": kind, "priority": priority})
}

/// Custom resource definition, as the manifest has it.
pub fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{PLURAL}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": KIND, "listKind": format!("{KIND}List"), "plural": PLURAL, "singular": "dag"},
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Ready", ".status.conditions[?(@.type==\"Ready\")].status", "string", 0),
                    column("Promised", ".status.promised", "string", 0),
                    column("Served", ".status.served", "string", 0),
                    column("Card", ".status.card", "string", 0),
                    column("Age", ".metadata.creationTimestamp", "date", 0),
                    column("DAG", ".status.dag", "string", 1),
                    column("Why not", ".status.why", "string", 1),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object", "required": ["spec"],
                    "description": "A DAG of network tasks of the SmartNIC, with a guaranteed bandwidth.",
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec(),
                        "status": status(),
                    },
                    "x-kubernetes-validations": [rule(
                        &format!("size(self.metadata.name) <= {ID_CHARS_MAX} && self.metadata.name.matches('{ID}')"),
                        "the name is that of the DAG: 1 to 63 of a-z, 0-9 and '-', a letter first, no '-' last",
                    )],
                }},
            }],
        },
    })
}

/// Comment before the definition in the manifest.
const HEAD: &str = "# Written by `snic-dag-controller --print-crd`; change src/dags/crd.rs.\n";

/// The definition as a manifest.
///
/// # Errors
/// It cannot be written as YAML: never, for it is JSON.
pub fn manifest() -> Result<String, serde_yaml_ng::Error> {
    // JSON first, so that keys are in the order of their letters whatever keeps JSON's maps.
    serde_yaml_ng::to_string(&sorted(definition())).map(|yaml| format!("{HEAD}{yaml}"))
}

/// The same value with the keys of each object in order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: std::collections::BTreeMap<String, Value> =
                map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(ordered.into_iter().collect())
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost_reflect::{DescriptorPool, FieldDescriptor};

    use super::*;

    /// Fields of the API's DAG whose keys in a DAG file, and here, are others.
    const RENAMED: [(&str, &str); 2] =
        [("bandwidth_bps", "bandwidth"), ("latency_bound_nanos", "latency_bound")];
    /// Keys for which the API has none: `nodes` and `edges` in other words.
    const FILE_ONLY: [&str; 2] = ["chain", "configuration"];

    /// Whether a request may set a field, by its annotation in the proto file.
    fn is_settable(field: &FieldDescriptor) -> bool {
        let pool = field.parent_pool();
        let behaviour = pool.get_extension_by_name("google.api.field_behavior").expect("imported");
        let options = field.options();
        let values = options.get_extension(&behaviour);
        // 1: OPTIONAL, 2: REQUIRED.
        values
            .as_list()
            .expect("a list")
            .iter()
            .any(|value| matches!(value.as_enum_number(), Some(1 | 2)))
    }

    /// A field that is added to the API is missed here.
    #[test]
    fn the_schema_has_each_field_that_a_request_may_set() {
        let pool = DescriptorPool::decode(snic_api::FILE_DESCRIPTOR_SET).expect("descriptors");
        for (message, own, not_here) in
            [("Dag", &spec(), &["etag"][..]), ("Placement", &placement(), &[])]
        {
            let message =
                pool.get_message_by_name(&format!("snic.control.v1.{message}")).expect("there");
            let settable = message.fields().filter(is_settable);
            let mut names: BTreeSet<String> = settable
                .map(|field| field.name().to_owned())
                .filter(|name| !not_here.contains(&name.as_str()))
                .map(|name| {
                    RENAMED
                        .iter()
                        .find(|(api, _)| *api == name)
                        .map_or(name, |(_, file)| (*file).to_owned())
                })
                .collect();
            if own["properties"].get("chain").is_some() {
                names.extend(FILE_ONLY.map(str::to_owned));
            }
            let keys = own["properties"].as_object().expect("an object").keys().cloned();
            assert_eq!(keys.collect::<BTreeSet<_>>(), names);
        }
    }

    #[test]
    fn a_dag_file_takes_each_key_of_the_schema() {
        let example = json!({
            "bandwidth": "1Gbps", "form": "parallel", "packet_sizes": [{"bytes": 64, "weight": 2}],
            "nodes": [{"id": "a", "type": "nat", "configuration": {}}, {"id": "b", "type": "aes"}],
            "edges": [{"from": "a", "to": "b"}], "configuration": {"b": {"k": 1}}, "trusted_tenants": ["acme"],
            "card_affinity": {"with": ["x"], "apart_from": ["y"], "preferred": true},
            "placement": {"zones": ["z"], "racks": ["r"], "hosts": ["h"], "apart_from_hosts": ["g"],
                          "card_models": ["m"], "host_labels": {"a": "b"}, "order": "spread",
                          "hosts_without_dags": ["x"], "racks_without_dags": ["y"]},
            "latency_sensitive": true, "refuse_idle_tasks": true, "latency_bound": "50us", "labels": {"a": "b"}, "description": "d",
        });
        let schema = spec();
        for key in schema["properties"].as_object().expect("an object").keys() {
            assert!(key == "chain" || example.get(key).is_some(), "{key} is not tried");
        }
        snic_dagfile::parse("spec", &example.to_string()).expect("a DAG file");
        for word in schema["properties"]["form"]["enum"].as_array().expect("words") {
            let text = json!({"bandwidth": 1_000_000, "chain": "nat", "form": word}).to_string();
            snic_dagfile::parse("spec", &text).expect("a DAG file");
        }
        for word in placement()["properties"]["order"]["enum"].as_array().expect("words") {
            let text =
                json!({"bandwidth": 1_000_000, "chain": "nat", "placement": {"order": word}})
                    .to_string();
            snic_dagfile::parse("spec", &text).expect("a DAG file");
        }
    }
}
