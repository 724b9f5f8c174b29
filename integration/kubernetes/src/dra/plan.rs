//! Functions that an allocated claim stands for: the pure part of preparing it.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim,
};

use serde_json::Value;
use snic_api::v1::Dag;
use snic_domain::{DagId, DagName, TenantId};

use crate::daemon::TenantChains;
use crate::dags::object::{ObjectHead, ObjectKey};
use crate::dags::spec::{SpecRefusal, wanted_dag};
use crate::dra::DRIVER;
use crate::dra::parameters::{FunctionParameters, InvalidParameters};
use crate::dra::settings::DraSettings;
use crate::pool::derived_uuid;

/// Most functions of a claim: as many results as the API server lets an allocation have.
const FUNCTIONS_MAX: usize = 32;

/// A virtual function that a claim was allocated.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedFunction {
    /// UUID of its binding. It follows from the claim and the allocation: asked again, it is the same binding.
    pub uuid: String,
    /// The request of the claim that it is for, as the kubelet knows it.
    pub request: String,
    /// The device: the id of a card.
    pub device: String,
    /// Tells allocations of one device apart.
    pub share: Option<String>,
    /// The tenant of the claim's namespace.
    pub tenant: String,
    /// Parameters of the claim or of its class.
    pub parameters: FunctionParameters,
    /// The DAG that is made for it alone, where the parameters have a specification.
    pub own_dag: Option<Box<Dag>>,
    /// Id of the DAG that its packets go through, unless it is a copy of a template.
    dag: Option<String>,
}

/// A claim that the driver refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The scheduler has not allocated it.
    #[error("the claim is not allocated")]
    NotAllocated,
    /// It has no device of this driver on this node.
    #[error("the claim has no device of {DRIVER} on node {0}")]
    NotHere(String),
    /// No tenant may be used from its namespace.
    #[error(
        "namespace {0} has no tenant: an operator has to add it under [namespaces] in the driver's \
         settings"
    )]
    Namespace(String),
    /// More functions than a claim may have.
    #[error("the claim has {0} functions (at most {FUNCTIONS_MAX})")]
    TooMany(usize),
    /// Nothing says which DAG a function's packets go through.
    #[error("request {request}: no parameters for driver {DRIVER} in the claim or its class")]
    NoParameters { request: String },
    /// Two parameters for one function.
    #[error("request {request}: the claim has more than one set of parameters for it")]
    Ambiguous { request: String },
    /// Parameters that are not as the schema says.
    #[error("request {request}: {source}")]
    Parameters {
        request: String,
        #[source]
        source: InvalidParameters,
    },
    /// A card that is another tenant's alone.
    #[error("request {request}: card {card} is not for the tenant of this namespace")]
    Card { request: String, card: String },
    /// A specification that no DAG can have.
    #[error("request {request}: {reason}: {message}")]
    Dag { request: String, reason: String, message: String },
    /// Two functions that would be one interface.
    #[error("request {request}: another function of the claim has the interface {interface:?} too")]
    Interface { request: String, interface: String },
}

impl PlannedFunction {
    /// Chains that its packets go through.
    pub fn chains(&self) -> TenantChains<'_> {
        TenantChains {
            tenant: &self.tenant,
            dags: self.dag.as_slice(),
            template: self.parameters.template.as_deref(),
        }
    }
}

/// The functions that a claim was allocated on this node.
///
/// # Errors
/// [`ClaimError`] where it cannot be prepared as it is.
pub fn plan(
    claim: &ResourceClaim,
    settings: &DraSettings,
) -> Result<Vec<PlannedFunction>, ClaimError> {
    let status = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = status.and_then(|allocation| allocation.devices.as_ref());
    let devices = devices.ok_or(ClaimError::NotAllocated)?;
    let ours: Vec<_> = devices.results.iter().flatten().filter(|r| is_ours(r, settings)).collect();
    if ours.is_empty() {
        return Err(ClaimError::NotHere(settings.node.clone()));
    }
    if ours.len() > FUNCTIONS_MAX {
        return Err(ClaimError::TooMany(ours.len()));
    }
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let tenant = settings.namespaces.get(namespace);
    let tenant = tenant.ok_or_else(|| ClaimError::Namespace(namespace.to_owned()))?;
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let mut interfaces = BTreeSet::new();
    let mut functions = Vec::new();
    for result in ours {
        let parameters =
            parameters(devices.config.as_deref().unwrap_or_default(), &result.request)?;
        let request = || result.request.clone();
        if settings.owner(&result.device).is_some_and(|owner| owner != tenant) {
            return Err(ClaimError::Card { request: request(), card: result.device.clone() });
        }
        let interface = parameters.interface.clone();
        if !interfaces.insert(interface.clone()) {
            return Err(ClaimError::Interface { request: request(), interface });
        }
        let uuid = uuid(uid, result);
        let own_dag = own_dag(claim, tenant, &uuid, &parameters);
        let own_dag = own_dag.map_err(|refusal| ClaimError::Dag {
            request: request(),
            reason: refusal.reason,
            message: refusal.message,
        })?;
        functions.push(PlannedFunction {
            request: request(),
            device: result.device.clone(),
            share: result.share_id.clone(),
            tenant: tenant.clone(),
            dag: own_dag.as_ref().map(|_| own_id(&uuid)).or_else(|| parameters.dag.clone()),
            parameters,
            own_dag: own_dag.map(Box::new),
            uuid,
        });
    }
    Ok(functions)
}

/// Id of the DAG that is made for a function.
fn own_id(uuid: &str) -> String {
    format!("claim-{uuid}")
}

/// The DAG that the parameters of a function carry; its labels say that it was made for the claim.
fn own_dag(
    claim: &ResourceClaim,
    tenant: &str,
    uuid: &str,
    parameters: &FunctionParameters,
) -> Result<Option<Dag>, SpecRefusal> {
    let Some(spec) = &parameters.spec else { return Ok(None) };
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let data = &claim.metadata;
    let head = ObjectHead {
        key: ObjectKey { namespace: text(&data.namespace), name: text(&data.name) },
        uid: text(&data.uid),
        generation: 1,
        is_deleting: false,
        has_finalizer: false,
    };
    let invalid = |error: String| SpecRefusal::lasting("INVALID_NAME", error);
    let name = DagName {
        tenant: TenantId::new(tenant).map_err(|error| invalid(error.to_string()))?,
        dag: DagId::new(&own_id(uuid)).map_err(|error| invalid(error.to_string()))?,
    };
    let wanted = wanted_dag(&head, &Value::Object(spec.clone()), &name, &BTreeSet::new())?;
    Ok(Some(wanted.dag))
}

/// Whether a result of an allocation is a device of this driver on this node.
pub fn is_ours(result: &DeviceRequestAllocationResult, settings: &DraSettings) -> bool {
    result.driver == DRIVER && result.pool == settings.node
}

fn uuid(claim: &str, result: &DeviceRequestAllocationResult) -> String {
    let share = result.share_id.as_deref().unwrap_or_default();
    let (request, device) = (&result.request, &result.device);
    derived_uuid(&format!("snic-claim-v1\n{claim}\n{request}\n{device}\n{share}"))
}

/// Parameters of a request: those of the claim, else those of its class.
fn parameters(
    configs: &[DeviceAllocationConfiguration],
    request: &str,
) -> Result<FunctionParameters, ClaimError> {
    // A request with alternatives is called `request/alternative` in results, and either in configurations.
    let parent = request.split('/').next().unwrap_or(request);
    let is_for = |config: &&DeviceAllocationConfiguration| {
        let requests = config.requests.as_deref().unwrap_or_default();
        requests.is_empty() || requests.iter().any(|name| name == request || name == parent)
    };
    let of = |source: &str| {
        let configs = configs.iter().filter(|config| config.source == source).filter(is_for);
        let opaque = configs.filter_map(|config| config.opaque.as_ref());
        opaque.filter(|opaque| opaque.driver == DRIVER).collect::<Vec<_>>()
    };
    let (of_claim, of_class) = (of("FromClaim"), of("FromClass"));
    let request = || request.to_owned();
    let chosen = match (&of_claim[..], &of_class[..]) {
        ([one], _) | ([], [one]) => one,
        ([], []) => return Err(ClaimError::NoParameters { request: request() }),
        _ => return Err(ClaimError::Ambiguous { request: request() }),
    };
    FunctionParameters::parse(&chosen.parameters)
        .map_err(|source| ClaimError::Parameters { request: request(), source })
}

#[cfg(test)]
mod tests {
    use std::slice;

    use serde_json::json;

    use super::*;
    use crate::dra::settings::OfferedCard;

    fn settings() -> DraSettings {
        let namespaces = [("shop", "acme"), ("bank", "globex")];
        DraSettings {
            node: "n1".into(),
            namespaces: namespaces.map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
            ..DraSettings::default()
        }
    }

    fn result(request: &str, share: &str) -> Value {
        json!({"request": request, "driver": DRIVER, "pool": "n1", "device": "card0", "shareID": share})
    }

    fn config(source: &str, requests: &[&str], dag: &str, interface: &str) -> Value {
        let parameters = json!({
            "apiVersion": "snic.dev/v1alpha1", "kind": "FunctionParameters", "dag": dag, "interface": interface
        });
        json!({"source": source, "requests": requests, "opaque": {"driver": DRIVER, "parameters": parameters}})
    }

    fn planned(
        namespace: &str,
        results: &[Value],
        configs: &[Value],
    ) -> Result<Vec<PlannedFunction>, ClaimError> {
        let claim = json!({
            "metadata": {"name": "web", "namespace": namespace, "uid": "u-1"},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results, "config": configs}}},
        });
        let claim = serde_json::from_value(claim).expect("a claim");
        plan(&claim, &settings())
    }

    #[test]
    fn a_claim_of_a_namespace_names_dags_of_its_tenant_alone() {
        let configs = [config("FromClaim", &[], "web", "net1")];
        for (namespace, tenant) in [("shop", "acme"), ("bank", "globex")] {
            let functions = planned(namespace, &[result("nic", "s-1")], &configs).expect("valid");
            assert_eq!(functions[0].chains().tenant, tenant);
            assert_eq!(functions[0].chains().dags, ["web"]);
        }
        let error = planned("other", &[result("nic", "s-1")], &configs).expect_err("no tenant");
        assert_eq!(error, ClaimError::Namespace("other".into()));
    }

    #[test]
    fn a_binding_follows_from_the_claim_and_the_allocation() {
        let configs =
            [config("FromClass", &["a"], "web", "a0"), config("FromClass", &["b"], "web", "b0")];
        let functions = planned("shop", &[result("a", "1"), result("b", "2")], &configs);
        let functions = functions.expect("valid");
        assert_ne!(functions[0].uuid, functions[1].uuid);
        let again =
            planned("shop", &[result("b", "2"), result("a", "1")], &configs).expect("valid");
        assert_eq!(functions[0], again[1], "in another order, it is the same");
        let other = planned("shop", &[result("a", "9")], &configs).expect("valid");
        assert_ne!(functions[0].uuid, other[0].uuid, "another allocation is another binding");
    }

    #[test]
    fn the_claim_overrides_its_class_and_contradicts_itself_never() {
        let class = config("FromClass", &[], "class", "net1");
        let claim = config("FromClaim", &["nic"], "claim", "net1");
        let one = [result("nic", "1")];
        let functions = planned("shop", &one, &[class.clone(), claim.clone()]).expect("valid");
        assert_eq!(functions[0].parameters.dag.as_deref(), Some("claim"));
        let alternative = planned("shop", &[result("nic/big", "1")], slice::from_ref(&claim));
        assert_eq!(alternative.expect("valid")[0].parameters.dag.as_deref(), Some("claim"));
        let twice = planned("shop", &one, &[claim.clone(), claim.clone()]).expect_err("two");
        assert_eq!(twice, ClaimError::Ambiguous { request: "nic".into() });
        let none = planned("shop", &one, &[config("FromClaim", &["b"], "claim", "n")]);
        assert_eq!(none, Err(ClaimError::NoParameters { request: "nic".into() }));
        let both = planned("shop", &[result("nic", "1"), result("nic", "2")], &[class]);
        assert!(matches!(both, Err(ClaimError::Interface { .. })), "{both:?}");
    }

    #[test]
    fn a_claim_carries_a_dag_of_its_own() {
        let mut carried = config("FromClaim", &[], "web", "net1");
        let parameters = &mut carried["opaque"]["parameters"];
        parameters.as_object_mut().expect("an object").remove("dag");
        parameters["spec"] = json!({"chain": "nat -> firewall", "bandwidth": "1Gbps"});
        let one = [result("nic", "1")];
        let function = planned("shop", &one, slice::from_ref(&carried)).expect("valid").remove(0);
        let dag = function.own_dag.as_ref().expect("a DAG");
        assert_eq!(dag.name, format!("tenants/acme/dags/claim-{}", function.uuid));
        assert_eq!((dag.nodes.len(), dag.bandwidth_bps), (2, 1_000_000_000));
        assert_eq!(dag.labels["kubernetes.snic.dev/uid"], "u-1");
        assert_eq!(function.chains().dags, [format!("claim-{}", function.uuid)]);
        let again = planned("shop", &one, slice::from_ref(&carried)).expect("valid").remove(0);
        assert_eq!(again, function, "asked again, it is the same");
        for (key, value, said) in [
            ("bandwidth", json!("much"), "spec.bandwidth"),
            ("tenant", json!("globex"), "the tenant follows from the namespace"),
            ("card_affinity", json!({"with": ["tenants/globex/dags/web"]}), "spec.card_affinity"),
        ] {
            let mut wrong = carried.clone();
            wrong["opaque"]["parameters"]["spec"][key] = value;
            let error = planned("shop", &one, &[wrong]).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_card_of_one_tenant_is_for_its_namespaces_alone() {
        let card = OfferedCard {
            id: "card0".into(),
            functions: 2,
            tenant: Some("acme".into()),
            ..OfferedCard::default()
        };
        let settings = DraSettings { cards: vec![card], ..settings() };
        for (namespace, is_taken) in [("shop", true), ("bank", false)] {
            let claim = json!({
                "metadata": {"name": "web", "namespace": namespace, "uid": "u-1"}, "spec": {},
                "status": {"allocation": {"devices": {
                    "results": [result("nic", "1")],
                    "config": [config("FromClaim", &[], "web", "net1")],
                }}},
            });
            let claim = serde_json::from_value(claim).expect("a claim");
            let error = plan(&claim, &settings).err();
            assert_eq!(error.is_none(), is_taken, "{namespace}: {error:?}");
        }
    }

    #[test]
    fn what_is_not_ours_is_left_alone_and_too_much_is_refused() {
        let mut other = result("nic", "1");
        other["driver"] = json!("gpu.example");
        let configs = [config("FromClaim", &[], "web", "net1")];
        assert_eq!(planned("shop", &[other], &configs), Err(ClaimError::NotHere("n1".into())));
        let many: Vec<_> = (0..10_000).map(|n| result("nic", &n.to_string())).collect();
        assert_eq!(planned("shop", &many, &configs), Err(ClaimError::TooMany(10_000)));
        let bare = ResourceClaim::default();
        assert_eq!(plan(&bare, &settings()), Err(ClaimError::NotAllocated));
    }
}
