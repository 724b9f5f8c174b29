//! Parameters of a claim: the opaque configuration by which its owner names a DAG.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde::Deserialize;
use serde_json::{Map, Value};
use snic_domain::DagId;

use crate::dra::settings::is_interface;

/// Largest parameters, in bytes of JSON: what they say fits easily, and each is parsed for each call of the kubelet.
const BYTES_MAX: usize = 4_096;
/// Most addresses of an interface.
const ADDRESSES_MAX: usize = 8;
/// Version of the parameters.
const API_VERSION: &str = "snic.dev/v1alpha1";
/// Their kind.
const KIND: &str = "FunctionParameters";

/// Parameters of a virtual function.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FunctionParameters {
    /// Always `snic.dev/v1alpha1`.
    api_version: String,
    /// Always `FunctionParameters`.
    kind: String,
    /// The DAG of the namespace's tenant that the function's packets go through.
    #[serde(default)]
    pub dag: Option<String>,
    /// Instead of `dag`: the function gets a private copy of this DAG.
    #[serde(default)]
    pub template: Option<String>,
    /// Instead of both: the function gets a DAG of its own, with this specification, as an object of the kind `Dag` has it.
    #[serde(default)]
    pub spec: Option<Map<String, Value>>,
    /// Name of the interface in the pod.
    #[serde(default = "default_interface")]
    pub interface: String,
    /// Addresses of the interface with the lengths of their prefixes, such as `10.77.0.1/24`.
    #[serde(default)]
    pub addresses: Vec<String>,
}

fn default_interface() -> String {
    "snic0".to_owned()
}

/// Parameters that the driver refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidParameters {
    /// Too long to be read.
    #[error("the parameters have {0} bytes of JSON (at most {BYTES_MAX})")]
    TooLong(usize),
    /// Not JSON of this form: an unknown field, a missing one, a wrong type.
    #[error("{0}")]
    Form(String),
    /// Another version or kind.
    #[error("apiVersion {version:?} and kind {kind:?}: expected {API_VERSION:?} and {KIND:?}")]
    Kind { version: String, kind: String },
    /// None of a DAG, a template and a specification, or several.
    #[error("exactly one of dag, template and spec is required")]
    Chain,
    /// Not the id of a DAG. It names none of another tenant: a tenant's DAGs are named within the tenant.
    #[error("dag or template: {0}")]
    Dag(String),
    /// Not the name of a network interface.
    #[error("interface {0:?}: expected 1 to 15 letters, digits, '-', '_' and '.', no '-' first")]
    Interface(String),
    /// Not an address with the length of its prefix.
    #[error("address {0:?}: expected an address and a prefix length, such as 10.77.0.1/24")]
    Address(String),
    /// More addresses than an interface may have.
    #[error("{0} addresses (at most {ADDRESSES_MAX})")]
    Addresses(usize),
}

fn is_prefixed_address(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let longest = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.bytes().all(|b| b.is_ascii_digit()) && length.parse::<u8>().is_ok_and(|n| n <= longest)
}

impl FunctionParameters {
    /// Reads the opaque parameters of a claim.
    ///
    /// # Errors
    /// [`InvalidParameters`] with the first rule that they break.
    pub fn parse(raw: &RawExtension) -> Result<Self, InvalidParameters> {
        let bytes = raw.0.to_string().len();
        if bytes > BYTES_MAX {
            return Err(InvalidParameters::TooLong(bytes));
        }
        let parameters = Self::deserialize(&raw.0)
            .map_err(|error| InvalidParameters::Form(error.to_string()))?;
        parameters.check()?;
        Ok(parameters)
    }

    fn check(&self) -> Result<(), InvalidParameters> {
        if self.api_version != API_VERSION || self.kind != KIND {
            let (version, kind) = (self.api_version.clone(), self.kind.clone());
            return Err(InvalidParameters::Kind { version, kind });
        }
        match (&self.dag, &self.template, &self.spec) {
            (Some(dag), None, None) | (None, Some(dag), None) => {
                DagId::new(dag).map_err(|error| InvalidParameters::Dag(error.to_string()))?;
            }
            // Whoever makes the DAG reads it.
            (None, None, Some(_)) => {}
            _ => return Err(InvalidParameters::Chain),
        }
        if !is_interface(&self.interface) {
            return Err(InvalidParameters::Interface(self.interface.clone()));
        }
        if self.addresses.len() > ADDRESSES_MAX {
            return Err(InvalidParameters::Addresses(self.addresses.len()));
        }
        match self.addresses.iter().find(|text| !is_prefixed_address(text)) {
            Some(text) => Err(InvalidParameters::Address(text.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn parse(change: &Value) -> Result<FunctionParameters, InvalidParameters> {
        let mut value = json!({
            "apiVersion": API_VERSION, "kind": KIND, "dag": "web", "addresses": ["10.77.0.1/24", "fd00::1/64"]
        });
        let fields = value.as_object_mut().expect("an object");
        for (name, new) in change.as_object().expect("an object") {
            fields.insert(name.clone(), new.clone());
        }
        fields.retain(|_, value| !value.is_null());
        FunctionParameters::parse(&RawExtension(value))
    }

    #[test]
    fn a_dag_is_enough() {
        let parameters = parse(&json!({"addresses": null})).expect("valid");
        assert_eq!(parameters.dag.as_deref(), Some("web"));
        assert_eq!(parameters.interface, "snic0");
        assert!(parse(&json!({"dag": null, "template": "web", "interface": "net1"})).is_ok());
        let inline = json!({"dag": null, "spec": {"chain": "nat", "bandwidth": "1Gbps"}});
        assert_eq!(parse(&inline).expect("valid").spec.expect("a DAG")["chain"], "nat");
    }

    #[rstest]
    #[case(json!({"colour": 1}), "unknown field `colour`")]
    #[case(json!({"tenant": "other"}), "unknown field `tenant`")]
    #[case(json!({"dag": 7}), "expected a string")]
    #[case(json!({"kind": "Dag"}), "kind \"Dag\"")]
    #[case(json!({"apiVersion": null}), "missing field `apiVersion`")]
    #[case(json!({"dag": null}), "exactly one of dag, template and spec")]
    #[case(json!({"template": "web"}), "exactly one of dag, template and spec")]
    #[case(json!({"spec": {}}), "exactly one of dag, template and spec")]
    #[case(json!({"dag": null, "spec": "nat"}), "expected a map")]
    #[case(json!({"dag": "tenants/other/dags/web"}), "dag or template")]
    #[case(json!({"dag": "../web"}), "dag or template")]
    #[case(json!({"interface": "-all"}), "interface")]
    #[case(json!({"interface": "a/b"}), "interface")]
    #[case(json!({"interface": "sixteen-letters-"}), "interface")]
    #[case(json!({"addresses": ["10.77.0.1"]}), "prefix length")]
    #[case(json!({"addresses": ["10.77.0.1/33"]}), "prefix length")]
    #[case(json!({"addresses": ["10.77.0.1/+8"]}), "prefix length")]
    #[case(json!({"addresses": ["dev/1"]}), "prefix length")]
    #[case(json!({"addresses": vec!["10.77.0.1/24"; 9]}), "at most 8")]
    #[case(json!({"dag": "w".repeat(1 << 20)}), "bytes of JSON")]
    fn what_the_schema_does_not_have_is_refused(#[case] change: Value, #[case] said: &str) {
        let error = parse(&change).expect_err(said).to_string();
        assert!(error.contains(said) && error.len() < 1_000, "{error}");
    }
}
