//! A bound for each namespace with a tenant: a `ResourceQuota` of functions, so that one tenant's claims, served or not, leave
//! functions to others.
//!
//! It is created where it is missing, and never changed: its number is the operator's from then on.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::dra::DRIVER;
use crate::dra::settings::DraSettings;

/// Name of the quota in each namespace.
pub const NAME: &str = "snic-functions";
/// Status of the API server where an object of the name exists.
const CONFLICT: u16 = 409;
/// Its status where the namespace does not exist, and so has no claims.
const NOT_FOUND: u16 = 404;

/// The quota of a namespace: devices of our class.
fn quota(namespace: &str, functions: u32) -> ResourceQuota {
    let resource = format!("{DRIVER}.deviceclass.resource.k8s.io/devices");
    let object = json!({
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {"hard": {resource: functions.to_string()}},
    });
    serde_json::from_value(object).unwrap_or_default()
}

/// Creates what is missing in namespaces that exist.
///
/// # Errors
/// The API server does not say which there are, or takes no other.
pub async fn ensure(api: &kube::Client, settings: &DraSettings) -> Result<(), kube::Error> {
    let all: Api<ResourceQuota> = Api::all(api.clone());
    let named = ListParams::default().fields(&format!("metadata.name={NAME}"));
    let there = all.list_metadata(&named).await?.items.into_iter();
    let there: BTreeSet<String> = there.filter_map(|one| one.metadata.namespace).collect();
    for namespace in settings.namespaces.keys().filter(|name| !there.contains(*name)) {
        let quotas: Api<ResourceQuota> = Api::namespaced(api.clone(), namespace);
        let functions = settings.quota();
        match quotas.create(&PostParams::default(), &quota(namespace, functions)).await {
            Ok(_) => tracing::info!(namespace, functions, "quota created"),
            // The driver of another node was faster; or it has no claims either.
            Err(kube::Error::Api(status)) if [CONFLICT, NOT_FOUND].contains(&status.code) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_counts_devices_of_the_class() {
        let quota = quota("shop", 4);
        assert_eq!(quota.metadata.namespace.as_deref(), Some("shop"));
        let hard = quota.spec.and_then(|spec| spec.hard).expect("numbers");
        assert_eq!(hard["snic.dev.deviceclass.resource.k8s.io/devices"].0, "4");
        assert_eq!(hard.len(), 1);
    }
}
