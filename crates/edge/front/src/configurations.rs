//! Configurations of NTs: checked before the controller hears of them, and shown without secrets.

use serde_json::Value;
use snic_api::convert::{FieldProblem, Problems};
use snic_api::error::ApiError;
use snic_api::v1::{self, ErrorReason};
use snic_domain::{Caller, IdleTask, Node, NtConfiguration, NtTypeId};
use snic_nts::config::InvalidConfiguration;
pub use snic_nts::configuration_words;

use crate::workshop::Workshop;

/// Longest configuration of a tenant's own NT: the buffer of a module, which holds a frame of 9,216 bytes.
const MODULE_CONFIGURATION_BYTES_MAX: usize = 9_216;

/// Checks the configurations of nodes as the NTs will. Checking allocates an NT's tables for a
/// moment, so the workshop does it.
///
/// # Errors
/// The invalid fields, from the DAG on; or too much of this caller waits to be done.
pub async fn check(workshop: &Workshop, caller: &Caller, nodes: &[Node]) -> Result<(), ApiError> {
    if nodes.iter().all(|node| node.configuration.is_none()) {
        return Ok(());
    }
    let nodes = nodes.to_vec();
    let checked = workshop.run(caller, move || {
        let mut problems = Problems::default();
        for (index, node) in nodes.iter().enumerate() {
            let _ = problems.keep(check_node(index, node));
        }
        problems.finish()
    });
    checked.await?
}

fn check_node(index: usize, node: &Node) -> Result<(), FieldProblem> {
    let Some(configuration) = &node.configuration else { return Ok(()) };
    let nt = node.nt.as_str();
    let field = format!("dag.nodes[{index}].configuration");
    if node.nt.owner().is_some() {
        return check_of_tenant(configuration.expose())
            .map_err(|what| FieldProblem::invalid(field, what));
    }
    snic_nts::check(nt, configuration.expose()).map_err(|error| match error {
        InvalidConfiguration::Field { field: inner, value, allowed } if !inner.is_empty() => {
            let what = format!("{value} is not allowed; allowed: {allowed}");
            FieldProblem::invalid(format!("{field}.{inner}"), what)
        }
        InvalidConfiguration::Field { allowed, .. } => {
            let what =
                format!("{nt} takes no configuration; leave it out, or use one of the {allowed}");
            FieldProblem::invalid(field, what)
        }
        other => FieldProblem::invalid(field, other),
    })
}

/// Checks a configuration that only its module knows: an object, and not longer than what the module gets.
fn check_of_tenant(json: &str) -> Result<(), String> {
    if json.len() > MODULE_CONFIGURATION_BYTES_MAX {
        return Err(format!(
            "{} bytes; at most {MODULE_CONFIGURATION_BYTES_MAX} are allowed for a tenant's own NT",
            json.len()
        ));
    }
    match serde_json::from_str(json) {
        Ok(Value::Object(_)) => Ok(()),
        _ => Err("it is not a JSON object".to_owned()),
    }
}

/// A node's configuration as it may be shown. That of a tenant's own NT has no fields that are known to be secret.
pub fn shown(node: &Node) -> Option<Value> {
    let configuration = node.configuration.as_ref()?;
    if node.nt.owner().is_some() {
        return serde_json::from_str(configuration.expose()).ok();
    }
    Some(snic_nts::redacted(node.nt.as_str(), configuration.expose()).unwrap_or_default())
}

/// Whether a digest stands for a secret in a configuration of one of the provider's NT types, as where one is shown. Text of
/// a tenant's own type may look like one, and is none.
///
/// # Errors
/// One does, and the update has no etag: another update could give the DAG other secrets before it.
pub fn name_secrets(nodes: &[Node], etag: &str) -> Result<bool, ApiError> {
    let named = nodes.iter().filter(|node| node.nt.owner().is_none()).any(|node| {
        let json = node.configuration.as_ref().map(NtConfiguration::expose);
        json.is_some_and(|json| snic_nts::has_digests(node.nt.as_str(), json))
    });
    if named && etag.is_empty() {
        let what = "required with digests of secrets: give the etag of the DAG as it was read";
        return Err(ApiError::in_field(ErrorReason::FieldRequired, "dag.etag", what));
    }
    Ok(named)
}

/// Puts secrets that a DAG has into new nodes of it, where these have the digests of them as [`shown`] printed: what was
/// read can be written again. A digest of any other secret stays, and is refused as one.
pub fn keep_secrets(nodes: &mut [Node], stored: &[Node]) {
    let of_provider = |node: &&Node| node.nt.owner().is_none();
    let known: Vec<(&str, &str)> = stored
        .iter()
        .filter(of_provider)
        .filter_map(|node| Some((node.nt.as_str(), node.configuration.as_ref()?.expose())))
        .collect();
    for node in nodes.iter_mut().filter(|node| node.nt.owner().is_none()) {
        let configuration = node.configuration.as_ref().map(NtConfiguration::expose);
        let with =
            configuration.and_then(|json| snic_nts::with_secrets(node.nt.as_str(), json, &known));
        if let Some(with) = with {
            node.configuration = Some(NtConfiguration::new(&with));
        }
    }
}

/// Whether nodes of an NT type of the provider take a configuration: software cards do with packets what it says.
pub fn is_configurable(nt: &NtTypeId) -> bool {
    snic_nts::schema(nt.as_str()).is_ok()
}

/// A warning for each task that passes packets on unchanged, with the reason that its type gives.
pub fn warnings(idle: &[IdleTask]) -> Vec<v1::Warning> {
    let warning = |IdleTask { node, nt }: &IdleTask| {
        let (reason, why) = match nt.owner() {
            Some(_) => {
                ("NO_MODULE", "its bitstream has no WebAssembly module for it; upload one that has")
            }
            None if is_configurable(nt) => {
                ("NO_CONFIGURATION", "it has no configuration; add one to the node")
            }
            None => ("NOT_IMPLEMENTED", "software cards do not implement it; use another NT type"),
        };
        v1::Warning {
            reason: reason.to_owned(),
            subject: node.to_string(),
            message: format!("{node} ({nt}) passes packets on unchanged: {why}"),
        }
    };
    idle.iter().map(warning).collect()
}

#[cfg(test)]
mod tests {
    use snic_domain::{NodeId, NtTypeId};
    use tonic::Status;
    use tonic_types::StatusExt as _;

    use super::*;

    async fn checked(nodes: &[Node]) -> Result<(), ApiError> {
        check(&Workshop::new(1), &Caller::Operator("ada".into()), nodes).await
    }

    fn node(nt: &str, json: &str) -> Node {
        let nt = NtTypeId::new(nt).expect("a label");
        let id = NodeId::new("n").expect("a label");
        Node { configuration: Some(NtConfiguration::new(json)), ..Node::new(id, nt) }
    }

    #[tokio::test]
    async fn each_wrong_field_is_named_from_the_dag_on() {
        let good = node("firewall", r#"{"rules":[]}"#);
        assert!(checked(std::slice::from_ref(&good)).await.is_ok());
        let wrong = node("firewall", r#"{"rules":[{"action":"pass"}]}"#);
        let nodes = [good, wrong, node("aes", "{}"), node("nat", r#"{"inside":[],"external":[]}"#)];
        let status = Status::from(checked(&nodes).await.expect_err("three are wrong"));
        let bad = status.get_details_bad_request().expect("fields").field_violations;
        let fields: Vec<&str> = bad.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "dag.nodes[1].configuration.rules[0].action",
                "dag.nodes[2].configuration",
                "dag.nodes[3].configuration.inside"
            ]
        );
        assert!(bad[1].description.starts_with("aes takes no configuration"), "{:?}", bad[1]);
    }

    #[tokio::test]
    async fn what_a_module_is_told_is_an_object_and_short_enough_for_it() {
        let told = node("acme.filter", r#"{"any":["thing"]}"#);
        assert!(checked(std::slice::from_ref(&told)).await.is_ok());
        assert_eq!(shown(&told).expect("it is set").to_string(), r#"{"any":["thing"]}"#);
        let long = format!(r#"{{"k":"{}"}}"#, "x".repeat(9_300));
        for json in ["[]", "7", "{", &long] {
            assert!(checked(&[node("acme.filter", json)]).await.is_err(), "{json}");
        }
    }

    /// The work of each type of the catalogue on a software card is what `snic_nts` has, not a list here.
    #[test]
    fn a_task_that_does_nothing_says_why() {
        let idle = ["aes", "firewall", "acme.filter"].map(|nt| {
            let node = node(nt, "{}");
            IdleTask { node: node.id, nt: node.nt }
        });
        let found = warnings(&idle);
        let reasons: Vec<&str> = found.iter().map(|warning| &*warning.reason).collect();
        assert_eq!(reasons, ["NOT_IMPLEMENTED", "NO_CONFIGURATION", "NO_MODULE"]);
        let said = "n (aes) passes packets on unchanged: software cards do not implement it";
        assert!(found[0].message.starts_with(said), "{:?}", found[0]);
        assert!(found.iter().all(|warning| warning.subject == "n"));
    }

    #[test]
    fn a_secret_is_shown_as_its_digest() {
        let key = "ab".repeat(20);
        let json = format!(
            r#"{{"local":"192.0.2.1","remote":"192.0.2.2","local_prefixes":["10.0.0.0/8"],
               "remote_prefixes":["10.1.0.0/16"],"outbound":{{"spi":256,"key":"{key}"}},
               "inbound":[{{"spi":256,"key":"{key}"}}]}}"#
        );
        let shown = shown(&node("esp", &json)).expect("it is set").to_string();
        assert!(!shown.contains(&key) && shown.contains("sha256:"), "{shown}");
    }

    #[tokio::test]
    async fn what_is_shown_of_a_dag_can_be_changed_and_given_back_to_it_and_to_no_other() {
        let esp = |key: &str, spi: u32| {
            let json = format!(
                r#"{{"local":"192.0.2.1","remote":"192.0.2.2","local_prefixes":["10.0.0.0/8"],
                   "remote_prefixes":["10.1.0.0/16"],"outbound":{{"spi":{spi},"key":"{key}"}},
                   "inbound":[{{"spi":256,"key":"{}"}}]}}"#,
                key.replace('a', "1"),
            );
            node("esp", &json)
        };
        let stored = esp(&"ab".repeat(20), 256);
        let text = shown(&stored).expect("it is set").to_string();
        // Another field is changed, and the secrets stay what they are.
        let mut changed = [node("esp", &text.replacen("\"spi\":256", "\"spi\":300", 1))];
        keep_secrets(&mut changed, std::slice::from_ref(&stored));
        let json = |node: &Node| -> Value {
            let configuration = node.configuration.as_ref().expect("it is set");
            serde_json::from_str(configuration.expose()).expect("JSON")
        };
        let expected = [esp(&"ab".repeat(20), 300), stored.clone()].map(|node| json(&node));
        assert!(expected.contains(&json(&changed[0])), "{text}");
        assert!(checked(&changed).await.is_ok(), "{:?}", checked(&changed).await);
        // A digest is not a way to another DAG's secret.
        let mut foreign = [node("esp", &text)];
        keep_secrets(&mut foreign, &[esp(&"cd".repeat(20), 256)]);
        assert_eq!(json(&foreign[0]), json(&node("esp", &text)));
        assert!(name_secrets(&foreign, "").is_err(), "another update may be faster");
        assert!(name_secrets(&foreign, "0f").expect("guarded"));
        assert!(!name_secrets(std::slice::from_ref(&stored), "").expect("there are none"));
        let own = [node("acme.esp", &text), node("acme.hash", r#"{"of":"sha256:00"}"#)];
        assert!(!name_secrets(&own, "").expect("a tenant's own type has no secret fields"));
        let elsewhere = [node("firewall", r#"{"note":"sha256:00"}"#)];
        assert!(!name_secrets(&elsewhere, "").expect("a firewall has no secrets"));
        let refused = Status::from(checked(&foreign).await.expect_err("no such secret"));
        assert!(refused.message().contains("outbound.key"), "{refused}");
        keep_secrets(&mut foreign, &[node("aes", &text), node("acme.esp", &text)]);
        assert!(checked(&foreign).await.is_err());
    }
}
