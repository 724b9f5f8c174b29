//! From the specification of an object to a DAG of the API: it is a DAG file, and read by what reads those.

use std::collections::BTreeSet;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use snic_api::error::reason_of;
use snic_api::v1::Dag;
use snic_api::words::EnumWord as _;
use snic_dagfile::InvalidFile;
use snic_domain::limits::DAG_CONFIGURATION_BYTES_MAX;
use snic_domain::{DagId, DagName, NtTypeId, TenantId};
use tonic::Status;
use tonic_types::StatusExt as _;

use super::object::ObjectHead;

/// Label of a DAG with the UID of its object: by it the controller knows the DAGs that it has made.
pub const UID_LABEL: &str = "kubernetes.snic.dev/uid";
/// Label of a DAG with the namespace of its object, for people.
pub const NAMESPACE_LABEL: &str = "kubernetes.snic.dev/namespace";
/// Label of a DAG with the digest of the specification that it was last given: configurations have secrets, which the server
/// does not show.
pub const SPEC_LABEL: &str = "kubernetes.snic.dev/spec";
/// Beginning of all labels of the controller.
pub const LABEL_PREFIX: &str = "kubernetes.snic.dev/";
/// Number of labels of the controller.
pub const LABELS: usize = 3;
/// Largest specification, in bytes of JSON: the configurations, and as much for everything else.
pub const SPEC_BYTES_MAX: usize = 2 * DAG_CONFIGURATION_BYTES_MAX;
/// Bytes of the digest in the label.
const DIGEST_BYTES: usize = 16;
/// Keys of a DAG file that an object has elsewhere.
const ELSEWHERE: [(&str, &str); 3] = [
    ("name", "metadata.name is the name"),
    ("tenant", "the tenant follows from the namespace, by the operator's settings"),
    ("etag", "the controller guards its changes itself"),
];

/// Why the specification of an object is not what the server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecRefusal {
    /// One word of the form of the API's reasons.
    pub reason: String,
    pub message: String,
    /// Whether it may be accepted later as it is.
    pub may_pass: bool,
}

impl SpecRefusal {
    /// A refusal that only a change of the object, or of the settings, ends.
    pub fn lasting(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into(), may_pass: false }
    }

    /// A refusal that another may end.
    pub fn passing(reason: &str, message: impl Into<String>) -> Self {
        Self { may_pass: true, ..Self::lasting(reason, message) }
    }

    fn field(path: &str, message: impl std::fmt::Display) -> Self {
        let place = if path.is_empty() { "spec".to_owned() } else { format!("spec.{path}") };
        Self::lasting("INVALID_FIELD", format!("{place}: {message}"))
    }

    fn file(error: &InvalidFile) -> Self {
        let problem = error.problem();
        let label = Some(&problem.label).filter(|label| *label != "here");
        let parts = [Some(&problem.message), label, problem.help.as_ref()];
        let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        Self::field(&error.field(), parts.join("; "))
    }

    /// A refusal by the server, with paths of the specification in place of those of the request.
    pub fn server(status: &Status, has_chain: bool) -> Self {
        let reason = reason_of(status).map_or("REFUSED", |reason| reason.word());
        let details = status.get_error_details();
        let violation = details.bad_request().and_then(|bad| bad.field_violations.first().cloned());
        let field = violation.and_then(|one| {
            Some((field_of_spec(one.field.strip_prefix("dag.")?, has_chain), one.description))
        });
        let message = match field {
            Some((path, description)) => format!("spec.{path}: {description}"),
            None => status.message().to_owned(),
        };
        Self::passing(reason, message)
    }
}

/// The path in a specification of a field of the API's DAG.
fn field_of_spec(path: &str, has_chain: bool) -> String {
    if has_chain && (path.starts_with("nodes") || path.starts_with("edges")) {
        let is_configuration = path.contains("].configuration");
        return if is_configuration { "configuration" } else { "chain" }.to_owned();
    }
    let renamed = |part: &str| match part {
        "bandwidth_bps" => "bandwidth".to_owned(),
        "nt_type" => "type".to_owned(),
        "from_node" => "from".to_owned(),
        "to_node" => "to".to_owned(),
        other => other.replace("together_with", "with"),
    };
    path.split('.').map(renamed).collect::<Vec<_>>().join(".")
}

/// A DAG that an object asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedDag {
    /// The DAG, with the labels of the controller.
    pub dag: Dag,
    /// Whether the specification has a chain, in place of nodes and edges.
    pub has_chain: bool,
}

/// The name of an object's DAG.
///
/// # Errors
/// [`SpecRefusal`] where no DAG can have the name of the object.
pub fn dag_name(head: &ObjectHead, tenant: &TenantId) -> Result<DagName, SpecRefusal> {
    let dag = DagId::new(&head.key.name)
        .map_err(|error| SpecRefusal::lasting("INVALID_NAME", format!("metadata.name: {error}")))?;
    Ok(DagName { tenant: tenant.clone(), dag })
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the specification of an object whose DAG has this name.
///
/// # Errors
/// [`SpecRefusal`] with the path of the field: what a DAG file may not have, and what would name another tenant's.
pub fn wanted_dag(
    head: &ObjectHead,
    spec: &Value,
    name: &DagName,
    trusted: &BTreeSet<String>,
) -> Result<WantedDag, SpecRefusal> {
    let text = spec.to_string();
    if text.len() > SPEC_BYTES_MAX {
        let message = format!("spec: {} bytes; at most {SPEC_BYTES_MAX} are allowed", text.len());
        return Err(SpecRefusal::lasting("LIMIT_EXCEEDED", message));
    }
    if let Some((key, why)) = ELSEWHERE.iter().find(|(key, _)| spec.get(key).is_some()) {
        return Err(SpecRefusal::field(key, format!("not allowed: {why}")));
    }
    let file = snic_dagfile::parse("spec", &text).map_err(|error| SpecRefusal::file(&error))?;
    let has_chain = spec.get("chain").is_some();
    let mut dag = file.resource_of(&format!("tenants/{}", name.tenant));
    check_names(&dag, name, trusted, has_chain)?;
    // A DAG trusts its own tenant whatever it says.
    dag.trusted_tenants.retain(|tenant| *tenant != format!("tenants/{}", name.tenant));
    if let Some(key) = dag.labels.keys().find(|key| key.starts_with(LABEL_PREFIX)) {
        let message = format!("{LABEL_PREFIX}… is the controller's");
        return Err(SpecRefusal::field(&format!("labels.{key}"), message));
    }
    for (key, value) in [
        (UID_LABEL, head.uid.clone()),
        (NAMESPACE_LABEL, head.key.namespace.clone()),
        (SPEC_LABEL, digest(&text)),
    ] {
        dag.labels.insert(key.to_owned(), value);
    }
    dag.name = name.to_string();
    Ok(WantedDag { dag, has_chain })
}

/// Refuses names of what other tenants have: the server takes the controller for an operator, who may see all of it.
fn check_names(
    dag: &Dag,
    name: &DagName,
    trusted: &BTreeSet<String>,
    has_chain: bool,
) -> Result<(), SpecRefusal> {
    for (number, node) in dag.nodes.iter().enumerate() {
        let id = node.nt_type.strip_prefix("ntTypes/").unwrap_or(&node.nt_type);
        let owner = NtTypeId::new(id).ok().and_then(|id| id.owner());
        if owner.is_some_and(|owner| owner != name.tenant) {
            let path = field_of_spec(&format!("nodes[{number}].nt_type"), has_chain);
            // The words say nothing about whether it exists.
            let message =
                format!("network task type {id:?} is neither the provider's nor the tenant's");
            return Err(SpecRefusal {
                reason: "UNKNOWN_NT_TYPE".to_owned(),
                ..SpecRefusal::field(&path, message)
            });
        }
    }
    let own = format!("tenants/{}/dags/", name.tenant);
    for (list, names) in named_dags(dag) {
        if let Some(number) = names.iter().position(|other| !other.starts_with(&own)) {
            let path = format!("{list}[{number}]");
            return Err(SpecRefusal::field(
                &path,
                "write the bare name of a DAG in the same namespace",
            ));
        }
    }
    for (number, tenant) in dag.trusted_tenants.iter().enumerate() {
        let id = tenant.strip_prefix("tenants/").unwrap_or(tenant);
        if id != name.tenant.as_str() && !trusted.contains(id) {
            let message = format!("{id:?} is not in trusted_tenants of the operator's settings");
            return Err(SpecRefusal::field(&format!("trusted_tenants[{number}]"), message));
        }
    }
    Ok(())
}

/// Lists of other DAGs, each with its path.
fn named_dags(dag: &Dag) -> impl Iterator<Item = (&'static str, &Vec<String>)> {
    let affinity = dag.card_affinity.as_ref().map(|of| {
        [("card_affinity.with", &of.together_with), ("card_affinity.apart_from", &of.apart_from)]
    });
    let placement = dag.placement.as_ref().map(|of| {
        [
            ("placement.hosts_without_dags", &of.hosts_without_dags),
            ("placement.racks_without_dags", &of.racks_without_dags),
        ]
    });
    affinity.into_iter().chain(placement).flatten()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::dags::object::ObjectKey;

    fn head() -> ObjectHead {
        ObjectHead {
            key: ObjectKey { namespace: "shop".to_owned(), name: "web".to_owned() },
            uid: "0c5f4b9e-0d4c-4b3e-9a55-6f1f5f0f2f11".to_owned(),
            generation: 1,
            is_deleting: false,
            has_finalizer: true,
        }
    }

    fn read(spec: &Value) -> Result<WantedDag, SpecRefusal> {
        let tenant = TenantId::new("acme").expect("an id");
        let name = dag_name(&head(), &tenant)?;
        wanted_dag(&head(), spec, &name, &BTreeSet::from(["vendor".to_owned()]))
    }

    #[test]
    fn a_specification_is_a_dag_file_and_its_dag_says_whose_it_is() {
        let spec = json!({
            "bandwidth": "1.5Gbps", "chain": "nat -> acme.filter", "labels": {"app": "web"},
            "card_affinity": {"with": ["db"]}, "trusted_tenants": ["vendor", "acme"],
            "configuration": {"nat": {"secret": "x"}},
        });
        let dag = read(&spec).expect("valid").dag;
        assert_eq!(
            (dag.name.as_str(), dag.bandwidth_bps),
            ("tenants/acme/dags/web", 1_500_000_000)
        );
        assert_eq!(dag.nodes[1].nt_type, "ntTypes/acme.filter");
        assert!(dag.nodes[0].configuration.is_some());
        assert_eq!(dag.card_affinity.expect("set").together_with, ["tenants/acme/dags/db"]);
        assert_eq!(dag.trusted_tenants, ["tenants/vendor"]);
        assert_eq!((dag.labels["app"].as_str(), &dag.labels[UID_LABEL]), ("web", &head().uid));
        assert_eq!((dag.labels[NAMESPACE_LABEL].as_str(), dag.labels.len()), ("shop", LABELS + 1));
        let mut other = spec.clone();
        other["configuration"]["nat"]["secret"] = "y".into();
        let other = read(&other).expect("valid").dag;
        assert_ne!(dag.labels[SPEC_LABEL], other.labels[SPEC_LABEL]);
    }

    #[rstest]
    #[case(json!({"bandwidth": "10GBps", "chain": "nat"}), "spec.bandwidth: unknown unit")]
    #[case(json!({"bandwidth": 1000, "chain": "nat"}), "spec.bandwidth: ")]
    #[case(json!({"bandwidth": "1Gbps", "chain": "nat -> Aes"}), "spec.chain: ")]
    #[case(json!({"bandwidth": "1Gbps", "nodes": [{"id": "a", "type": "nat"}, {"id": "a", "type": "nat"}]}), "spec.nodes[1].id: ")]
    #[case(json!({"bandwidth": "1Gbps", "chain": "nat", "colour": 1}), "spec.colour: unknown key `colour`")]
    #[case(json!({"chain": "nat"}), "spec: missing key `bandwidth`")]
    #[case(json!({"bandwidth": "1Gbps", "chain": "nat", "tenant": "globex"}), "spec.tenant: not allowed")]
    #[case(json!({"bandwidth": "1Gbps", "chain": "nat", "labels": {"kubernetes.snic.dev/uid": "a"}}), "spec.labels.kubernetes.snic.dev/uid: ")]
    #[case(json!({"bandwidth": "1Gbps", "chain": "globex.filter"}), "spec.chain: network task type \"globex.filter\" is neither")]
    #[case(json!({"bandwidth": "1Gbps", "nodes": [{"id": "a", "type": "globex.filter"}]}), "spec.nodes[0].type: network task type")]
    #[case(json!({"bandwidth": "1Gbps", "chain": "nat", "card_affinity": {"apart_from": ["db", "tenants/globex/dags/web"]}}), "spec.card_affinity.apart_from[1]: write the bare name")]
    #[case(json!({"bandwidth": "1Gbps", "chain": "nat", "placement": {"racks_without_dags": ["db", "tenants/globex/dags/web"]}}), "spec.placement.racks_without_dags[1]: write the bare name")]
    #[case(json!({"bandwidth": "1Gbps", "chain": "nat", "trusted_tenants": ["globex"]}), "spec.trusted_tenants[0]: \"globex\"")]
    fn a_refusal_names_the_field(#[case] spec: Value, #[case] said: &str) {
        let refusal = read(&spec).expect_err(said);
        assert!(refusal.message.starts_with(said), "{refusal:?}");
        assert!(!refusal.may_pass);
    }

    #[test]
    fn a_configuration_of_a_mebibyte_is_refused_before_it_is_read() {
        let spec = json!({"bandwidth": "1Gbps", "chain": "nat", "configuration": {"nat": {"x": "y".repeat(1 << 20)}}});
        let refusal = read(&spec).expect_err("too large");
        assert_eq!(refusal.reason, "LIMIT_EXCEEDED");
        assert!(refusal.message.len() < 100, "{}", refusal.message);
    }

    #[rstest]
    #[case("nodes[1].nt_type", false, "nodes[1].type")]
    #[case("nodes[1].nt_type", true, "chain")]
    #[case(
        "nodes[0].configuration.rules[2].action",
        false,
        "nodes[0].configuration.rules[2].action"
    )]
    #[case("nodes[0].configuration.rules[2].action", true, "configuration")]
    #[case("edges[0].to_node", false, "edges[0].to")]
    #[case("bandwidth_bps", true, "bandwidth")]
    #[case("card_affinity.together_with[0]", true, "card_affinity.with[0]")]
    #[case("placement", true, "placement")]
    fn fields_of_the_api_have_their_place(
        #[case] path: &str,
        #[case] has_chain: bool,
        #[case] place: &str,
    ) {
        assert_eq!(field_of_spec(path, has_chain), place);
    }

    #[test]
    fn a_name_that_no_dag_has_is_refused() {
        let mut head = head();
        head.key.name = "web.v2".to_owned();
        let refusal = dag_name(&head, &TenantId::new("acme").expect("an id")).expect_err("a dot");
        assert!(refusal.message.starts_with("metadata.name: \"web.v2\""), "{refusal:?}");
    }
}
