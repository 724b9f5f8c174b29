//! A bound for each namespace with a tenant: a `ResourceQuota` of functions, so that one tenant's claims, served or not, leave
//! functions to others.
//!
//! It is created where it is missing, and never changed: its number is the operator's from then on. Those that exist are listed once,
//! from the API server's cache, and then watched: drivers of many nodes are no load while nothing changes.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::{ListParams, PartialObjectMeta, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio_stream::StreamExt as _;

use crate::dra::DRIVER;
use crate::dra::settings::DraSettings;

/// Name of the quota in each namespace.
pub const NAME: &str = "snic-functions";
/// Status of the API server where an object of the name exists.
const CONFLICT: u16 = 409;
/// Its status where the namespace does not exist, and so has no claims.
const NOT_FOUND: u16 = 404;
/// Interval of looking for namespaces that are new.
const LOOK: Duration = Duration::from_secs(10);
/// Pause after a watch that ended.
const RETRY: Duration = Duration::from_secs(3);
/// Longest time of a watch, in seconds.
const WATCH_SECONDS: u32 = 290;

/// The quota of a namespace: devices of our class.
fn quota(namespace: &str, functions: u32) -> ResourceQuota {
    let resource = format!("{DRIVER}.deviceclass.resource.k8s.io/devices");
    let object = json!({
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {"hard": {resource: functions.to_string()}},
    });
    serde_json::from_value(object).unwrap_or_default()
}

fn named() -> String {
    format!("metadata.name={NAME}")
}

/// Keeps a quota in each namespace of the settings.
pub struct QuotaKeeper {
    settings: Arc<DraSettings>,
    api: kube::Client,
    /// Turns true once all namespaces that exist have one.
    are_bounded: watch::Sender<bool>,
}

impl QuotaKeeper {
    /// With the receiver of whether all namespaces that exist have their quota; that stays true.
    pub fn new(settings: &Arc<DraSettings>, api: kube::Client) -> (Self, watch::Receiver<bool>) {
        let are_bounded = watch::Sender::new(false);
        let bounded = are_bounded.subscribe();
        (Self { settings: Arc::clone(settings), api, are_bounded }, bounded)
    }

    /// Keeps them until the program ends.
    pub async fn run(self) {
        loop {
            if let Err(error) = self.follow().await {
                tracing::warn!(%error, "namespaces may lack their quotas");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Keeps them until the watch ends.
    async fn follow(&self) -> Result<(), kube::Error> {
        let all: Api<ResourceQuota> = Api::all(self.api.clone());
        let list = all.list_metadata(&ListParams::default().fields(&named()).match_any()).await?;
        let version = list.metadata.resource_version.clone().unwrap_or_default();
        let mut there: BTreeSet<String> =
            list.items.into_iter().filter_map(|one| one.metadata.namespace).collect();
        self.complete(&mut there).await?;
        self.are_bounded.send_replace(true);
        let parameters = WatchParams::default().fields(&named()).timeout(WATCH_SECONDS);
        let mut events = pin!(all.watch_metadata(&parameters, &version).await?);
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                event = events.next() => match event.transpose()? {
                    None => return Ok(()),
                    Some(event) => take_in(event, &mut there)?,
                },
                _ = look.tick() => self.complete(&mut there).await?,
            }
        }
    }

    /// Creates what is missing in namespaces that exist.
    async fn complete(&self, there: &mut BTreeSet<String>) -> Result<(), kube::Error> {
        for namespace in self.settings.namespaces.keys() {
            if there.contains(namespace) {
                continue;
            }
            let quotas: Api<ResourceQuota> = Api::namespaced(self.api.clone(), namespace);
            let functions = self.settings.quota();
            match quotas.create(&PostParams::default(), &quota(namespace, functions)).await {
                Ok(_) => tracing::info!(namespace, functions, "quota created"),
                // The driver of another node was faster.
                Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
                // It has no claims either.
                Err(kube::Error::Api(status)) if status.code == NOT_FOUND => continue,
                Err(error) => return Err(error),
            }
            there.insert(namespace.clone());
        }
        Ok(())
    }
}

/// Takes in that a quota has come or gone.
fn take_in(
    event: WatchEvent<PartialObjectMeta<ResourceQuota>>,
    there: &mut BTreeSet<String>,
) -> Result<(), kube::Error> {
    match event {
        WatchEvent::Added(one) | WatchEvent::Modified(one) => there.extend(one.metadata.namespace),
        WatchEvent::Deleted(one) => {
            if let Some(namespace) = one.metadata.namespace {
                there.remove(&namespace);
            }
        }
        WatchEvent::Bookmark(_) => {}
        WatchEvent::Error(error) => return Err(kube::Error::Api(error)),
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
