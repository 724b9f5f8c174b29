//! Claims with binding conditions: what they were allocated is bound before the scheduler assigns their pod to the node.
//!
//! The kubelet knows nothing of such a claim yet, so it would give nothing back either: a claim that loses its allocation, or is
//! deleted, before a kubelet has asked for it is released here.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use parking_lot::Mutex;
use tokio_stream::StreamExt as _;

use crate::dra::driver::{ClaimDriver, PrepareCause};
use crate::dra::plan::is_ours;
use crate::dra::settings::DraSettings;
use crate::dra::status::SERVED;
use crate::dra_v1::Claim;

/// Pause before another attempt: of a claim that the card does not serve yet, and of a watch that ended.
const RETRY: Duration = Duration::from_secs(3);
/// Longest time of a watch, in seconds: the API server ends it then, and what was missed is found by the list.
const WATCH_SECONDS: u32 = 240;

/// Whether a claim waits for this driver: allocated here with our condition, which is not true yet.
fn waits(claim: &ResourceClaim, settings: &DraSettings) -> bool {
    let Some(status) = &claim.status else { return false };
    let allocation = status.allocation.as_ref().and_then(|allocation| allocation.devices.as_ref());
    let results = allocation.and_then(|devices| devices.results.as_ref()).into_iter().flatten();
    let ours = results.filter(|result| is_ours(result, settings));
    let mut conditional = ours.filter(|result| {
        result.binding_conditions.iter().flatten().any(|condition| condition == SERVED)
    });
    let is_served = |device: &AllocatedDeviceStatus| {
        let mut conditions = device.conditions.iter().flatten();
        conditions.any(|condition| condition.type_ == SERVED && condition.status == "True")
    };
    conditional.any(|result| {
        let same = |device: &&AllocatedDeviceStatus| {
            device.driver == result.driver
                && device.pool == result.pool
                && device.device == result.device
                && device.share_id == result.share_id
        };
        !status.devices.iter().flatten().find(same).is_some_and(is_served)
    })
}

fn identity(claim: &ResourceClaim) -> Claim {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let data = &claim.metadata;
    Claim { namespace: text(&data.namespace), uid: text(&data.uid), name: text(&data.name) }
}

fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

/// The watch of a driver.
struct Watch {
    driver: Arc<ClaimDriver>,
    api: kube::Client,
    settings: Arc<DraSettings>,
    /// Claims that are being worked on.
    busy: Mutex<BTreeSet<String>>,
}

/// Watches claims until the program ends.
pub async fn run(driver: Arc<ClaimDriver>, api: kube::Client, settings: Arc<DraSettings>) {
    let watch = Arc::new(Watch { driver, api, settings, busy: Mutex::default() });
    let mut was_well = true;
    loop {
        let ended = watch.follow().await;
        if let Err(error) = &ended
            && was_well
        {
            tracing::warn!(%error, "claims cannot be watched");
        }
        was_well = ended.is_ok();
        tokio::time::sleep(RETRY).await;
    }
}

impl Watch {
    async fn follow(self: &Arc<Self>) -> Result<(), kube::Error> {
        let api: Api<ResourceClaim> = Api::all(self.api.clone());
        let list = api.list(&ListParams::default()).await?;
        let version = list.metadata.resource_version.clone().unwrap_or_default();
        let allocated = list.items.iter().filter(|claim| is_allocated(claim));
        let allocated = allocated.map(|claim| identity(claim).uid).collect();
        self.driver.release_others(&allocated).await;
        for claim in &list.items {
            self.consider(claim);
        }
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let mut events = pin!(api.watch(&params, &version).await?);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(claim) | WatchEvent::Modified(claim) if is_allocated(&claim) => {
                    self.consider(&claim);
                }
                WatchEvent::Added(claim)
                | WatchEvent::Modified(claim)
                | WatchEvent::Deleted(claim) => {
                    self.driver.release_unasked(&identity(&claim).uid).await;
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(error) => return Err(kube::Error::Api(error)),
            }
        }
        Ok(())
    }

    /// Begins to serve a claim that waits for it, unless that is under way.
    fn consider(self: &Arc<Self>, claim: &ResourceClaim) {
        if !waits(claim, &self.settings) {
            return;
        }
        let claim = identity(claim);
        if !self.busy.lock().insert(claim.uid.clone()) {
            return;
        }
        let watch = Arc::clone(self);
        tokio::spawn(async move {
            watch.serve(&claim).await;
            watch.busy.lock().remove(&claim.uid);
        });
    }

    /// Tries until the card serves the claim, or the claim waits no more.
    async fn serve(&self, claim: &Claim) {
        let api: Api<ResourceClaim> = Api::namespaced(self.api.clone(), &claim.namespace);
        while self.driver.prepare(claim, PrepareCause::Scheduler).await.is_err() {
            tokio::time::sleep(RETRY).await;
            match api.get_opt(&claim.name).await {
                Ok(Some(now)) if identity(&now) == *claim && waits(&now, &self.settings) => {}
                Ok(_) => return,
                // Unknown is not gone: the next attempt finds out.
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_waits_until_each_of_its_devices_here_is_served() {
        let settings = DraSettings { node: "n1".into(), ..DraSettings::default() };
        let result = |share: &str, pool: &str, conditions: &[&str]| {
            json!({"request": "nic", "driver": "snic.dev", "pool": pool, "device": "card0",
                   "shareID": share, "bindingConditions": conditions})
        };
        let device = |share: &str, status: &str| {
            json!({"driver": "snic.dev", "pool": "n1", "device": "card0", "shareID": share,
                   "conditions": [{"type": SERVED, "status": status, "reason": "R", "message": "",
                                   "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        let is_waiting = |results: &[serde_json::Value], devices: &[serde_json::Value]| {
            let claim = json!({"metadata": {}, "spec": {}, "status": {
                "allocation": {"devices": {"results": results}}, "devices": devices}});
            waits(&serde_json::from_value(claim).expect("a claim"), &settings)
        };
        let (a, b) = (result("a", "n1", &[SERVED]), result("b", "n1", &[SERVED]));
        assert!(is_waiting(std::slice::from_ref(&a), &[]));
        assert!(is_waiting(std::slice::from_ref(&a), &[device("a", "False")]));
        assert!(is_waiting(&[a.clone(), b.clone()], &[device("a", "True")]));
        assert!(!is_waiting(&[a, b], &[device("a", "True"), device("b", "True")]));
        assert!(
            !is_waiting(&[result("a", "n1", &[])], &[]),
            "without the feature, the kubelet asks"
        );
        assert!(!is_waiting(&[result("a", "n2", &[SERVED])], &[]), "another node's");
        assert!(!waits(&ResourceClaim::default(), &settings));
    }
}
