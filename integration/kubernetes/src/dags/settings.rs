//! Settings of the controller of `Dag` objects: `/etc/snic/dag-controller.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use snic_api::connect::Target;
use snic_domain::TenantId;

use crate::settings_file::{self, InvalidSettings, key};

/// Path of the settings where the command line names none.
pub const DEFAULT_PATH: &str = "/etc/snic/dag-controller.toml";
/// Identity of calls, where the settings name none: it manages DAGs of several tenants.
const IDENTITY: &str = "operator/kubernetes-dags";
/// Part of the template that the name of the namespace replaces.
const NAMESPACE: &str = "{namespace}";

/// Settings of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DagControllerSettings {
    /// The daemon of a host, or the endpoint of a fleet.
    pub server: Target,
    /// Credentials for the API server; those of the pod where nothing is said.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the lease; `POD_NAMESPACE` of the environment where nothing is said.
    pub lease_namespace: String,
    /// Name of this replica in the lease; `POD_NAME` of the environment, or the host's name, where nothing is said.
    pub replica: String,
    /// Tenants by namespace.
    pub namespaces: BTreeMap<String, String>,
    /// Tenant of each other namespace, such as `k8s-{namespace}`.
    pub tenant_template: Option<String>,
    /// Tenants that DAGs of any namespace may name in `trusted_tenants`.
    pub trusted_tenants: BTreeSet<String>,
    /// Interval in which served rates are read, in seconds.
    pub served_seconds: u64,
}

/// A namespace whose objects are not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the operator's settings give the namespace {namespace} no tenant{why}")]
pub struct NamespaceWithoutTenant {
    namespace: String,
    why: String,
}

/// The operator's rule from namespaces to tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantRule {
    namespaces: BTreeMap<String, TenantId>,
    template: Option<String>,
}

impl TenantRule {
    /// The tenant of a namespace.
    ///
    /// # Errors
    /// [`NamespaceWithoutTenant`]: no rule is about it, what the template makes of its name is no tenant, or the tenant is
    /// that of a listed namespace. Else anybody who may choose the name of a namespace would get that tenant's DAGs.
    pub fn tenant_of(&self, namespace: &str) -> Result<TenantId, NamespaceWithoutTenant> {
        let none = |why: &str| NamespaceWithoutTenant {
            namespace: namespace.to_owned(),
            why: why.to_owned(),
        };
        if let Some(listed) = self.namespaces.get(namespace) {
            return Ok(listed.clone());
        }
        let template = self.template.as_ref().ok_or_else(|| none(""))?;
        let tenant = TenantId::new(&template.replace(NAMESPACE, namespace))
            .map_err(|error| none(&format!(": {error}")))?;
        if self.namespaces.values().any(|listed| *listed == tenant) {
            return Err(none(": the tenant of that name is another namespace's"));
        }
        Ok(tenant)
    }
}

impl Default for DagControllerSettings {
    fn default() -> Self {
        Self {
            server: Target::default(),
            kubeconfig: None,
            lease_namespace: String::new(),
            replica: String::new(),
            namespaces: BTreeMap::new(),
            tenant_template: None,
            trusted_tenants: BTreeSet::new(),
            served_seconds: 10,
        }
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

impl DagControllerSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`InvalidSettings`] with the file or the key.
    pub fn read(path: &Path) -> Result<Self, InvalidSettings> {
        let mut settings: Self = settings_file::read(path)?;
        if settings.lease_namespace.is_empty() {
            settings.lease_namespace = environment("POD_NAMESPACE").unwrap_or_default();
        }
        if settings.replica.is_empty() {
            settings.replica = environment("POD_NAME").unwrap_or_else(host_name);
        }
        if settings.server.identity.is_none() && settings.server.endpoint.starts_with("unix:") {
            settings.server.identity = Some(IDENTITY.to_owned());
        }
        settings.check()?;
        Ok(settings)
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`InvalidSettings`] with the key.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        if self.lease_namespace.is_empty() {
            let rule = "required where POD_NAMESPACE is not in the environment";
            return Err(key("lease_namespace", rule));
        }
        if self.replica.is_empty() {
            return Err(key("replica", "required where neither POD_NAME nor a host name is there"));
        }
        if !(1..=3_600).contains(&self.served_seconds) {
            return Err(key("served_seconds", format!("{} (1 to 3600)", self.served_seconds)));
        }
        for tenant in &self.trusted_tenants {
            TenantId::new(tenant).map_err(|error| key("trusted_tenants", error.to_string()))?;
        }
        let rule = self.tenant_rule()?;
        if rule.namespaces.is_empty() && rule.template.is_none() {
            let rule = "without them no namespace has a tenant; set one of them";
            return Err(key("namespaces, tenant_template", rule));
        }
        Ok(())
    }

    /// The rule from namespaces to tenants.
    ///
    /// # Errors
    /// [`InvalidSettings`] with the key.
    pub fn tenant_rule(&self) -> Result<TenantRule, InvalidSettings> {
        let mut namespaces = BTreeMap::new();
        for (namespace, tenant) in &self.namespaces {
            let tenant = TenantId::new(tenant)
                .map_err(|error| key(format!("namespaces.{namespace}"), error.to_string()))?;
            namespaces.insert(namespace.clone(), tenant);
        }
        let template = self.tenant_template.clone();
        if let Some(text) = &template {
            // With the place of the name left out, all namespaces would have one tenant.
            let is_valid = text.matches(NAMESPACE).count() == 1
                && TenantId::new(&text.replace(NAMESPACE, "a")).is_ok();
            if !is_valid {
                let rule = format!(
                    "{text:?} is not allowed; write a template such as \"k8s-{NAMESPACE}\""
                );
                return Err(key("tenant_template", rule));
            }
        }
        Ok(TenantRule { namespaces, template })
    }

    /// Interval in which served rates are read.
    pub const fn served_interval(&self) -> Duration {
        Duration::from_secs(self.served_seconds)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GOOD: &str = "lease_namespace = \"snic\"\nreplica = \"a\"\ntenant_template = \"k8s-{namespace}\"\n\
                        [namespaces]\nshop = \"acme\"\nspare = \"k8s-bank\"\n";

    fn read(text: &str) -> Result<DagControllerSettings, InvalidSettings> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dag-controller.toml");
        std::fs::write(&file, text).expect("a file");
        DagControllerSettings::read(&file)
    }

    #[rstest]
    #[case("replica = \"a\"", "replica = \"a\"\ncolour = 1", "colour")]
    #[case("lease_namespace = \"snic\"\n", "", "lease_namespace")]
    #[case("replica = \"a\"", "replica = \"a\"\nserved_seconds = 0", "served_seconds")]
    #[case("k8s-{namespace}", "k8s", "tenant_template")]
    #[case("k8s-{namespace}", "{namespace}-{namespace}", "tenant_template")]
    #[case("k8s-{namespace}", "K8s-{namespace}", "tenant_template")]
    #[case("\"acme\"", "\"Acme\"", "namespaces.shop")]
    #[case("replica = \"a\"", "replica = \"a\"\ntrusted_tenants = [\"A\"]", "trusted_tenants")]
    fn an_error_names_the_key(#[case] good: &str, #[case] bad: &str, #[case] said: &str) {
        assert!(read(GOOD).is_ok());
        let error = read(&GOOD.replace(good, bad)).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }

    #[test]
    fn some_rule_from_namespaces_to_tenants_is_required() {
        let error = read("lease_namespace = \"snic\"\nreplica = \"a\"\n").expect_err("no rule");
        assert!(error.to_string().starts_with("namespaces, tenant_template"), "{error}");
    }

    #[rstest]
    #[case("shop", Some("acme"))]
    #[case("dev", Some("k8s-dev"))]
    #[case("spare", Some("k8s-bank"))]
    // The template's tenant is that of the listed namespace `spare`.
    #[case("bank", None)]
    fn a_namespace_has_its_own_tenant(#[case] namespace: &str, #[case] tenant: Option<&str>) {
        let rule = read(GOOD).expect("valid").tenant_rule().expect("valid");
        let found = rule.tenant_of(namespace).ok();
        assert_eq!(found.as_ref().map(TenantId::as_str), tenant);
    }

    #[test]
    fn a_namespace_without_a_rule_has_no_tenant() {
        let text = GOOD.replace("tenant_template = \"k8s-{namespace}\"\n", "");
        let rule = read(&text).expect("valid").tenant_rule().expect("valid");
        let error = rule.tenant_of("dev").expect_err("no rule").to_string();
        assert_eq!(error, "the operator's settings give the namespace dev no tenant");
        // What a name of a namespace may be and an id of a tenant may not.
        let rule = TenantRule { template: Some(NAMESPACE.into()), ..TenantRule::default() };
        assert!(rule.tenant_of("1st").expect_err("a digit first").to_string().contains("1st"));
    }

    #[test]
    fn calls_have_an_identity_of_an_operator_unless_the_settings_say_another() {
        let identity = |text: &str| read(text).expect("valid").server.identity;
        assert_eq!(identity(GOOD).as_deref(), Some(IDENTITY));
        let other = format!("{GOOD}[server]\nidentity = \"operator/o\"\n");
        assert_eq!(identity(&other).as_deref(), Some("operator/o"));
        let tls = format!("{GOOD}[server]\nendpoint = \"https://fleet:7443\"\n");
        assert_eq!(identity(&tls), None);
    }
}
