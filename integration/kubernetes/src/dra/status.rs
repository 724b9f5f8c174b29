//! The status of a claim, as the driver writes it: a condition for each device, and the pod's interface.

use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::dra::DRIVER;
use crate::dra::interface::PodInterface;
use crate::dra::plan::{PlannedFunction, is_ours};
use crate::dra::settings::DraSettings;

/// Owner of the fields that the driver applies.
const FIELD_MANAGER: &str = "snic-dra";
/// The condition of a device: the card serves it.
pub const SERVED: &str = "snic.dev/Served";
/// The condition of a device whose claim will never be served as it is.
pub const REFUSED: &str = "snic.dev/Refused";
/// Longest message that the API server takes, in bytes.
const MESSAGE_BYTES_MAX: usize = 32_768;

/// A function that the card serves.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedFunction {
    /// The function of the claim.
    pub planned: PlannedFunction,
    /// The pod's interface: `None` for a device of VFIO.
    pub interface: Option<PodInterface>,
    /// MAC address of the function.
    pub mac: String,
    /// Name of its binding.
    pub binding: String,
}

fn condition(kind: &str, is_true: bool, message: &str, now: Timestamp) -> Value {
    let name = kind.rsplit('/').next().unwrap_or(kind);
    let reason = if is_true { name.to_owned() } else { format!("Not{name}") };
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    json!({
        "type": kind,
        "status": if is_true { "True" } else { "False" },
        "reason": reason,
        "message": &message[..end],
        "lastTransitionTime": now.to_string(),
    })
}

fn device(name: &str, share: Option<&str>, pool: &str, conditions: Value) -> Value {
    let mut device =
        json!({"driver": DRIVER, "pool": pool, "device": name, "conditions": conditions});
    if let Some(share) = share {
        device["shareID"] = json!(share);
    }
    device
}

fn served_device(served: &ServedFunction, pool: &str, now: Timestamp) -> Value {
    let PlannedFunction { device: card, share, tenant, parameters, .. } = &served.planned;
    let message = format!("the card serves {}", served.binding);
    let conditions = json!([condition(SERVED, true, &message, now)]);
    let mut device = device(card, share.as_deref(), pool, conditions);
    device["networkData"] = json!({"hardwareAddress": served.mac});
    if let Some(interface) = &served.interface {
        device["networkData"]["interfaceName"] = json!(interface.name);
        device["networkData"]["ips"] = json!(interface.addresses);
    }
    device["data"] = json!({
        "binding": served.binding,
        "tenant": tenant,
        "dag": served.planned.chains().dags.first().or(parameters.template.as_ref()),
    });
    device
}

/// Reports that the card serves a claim.
pub async fn report(
    api: &Api<ResourceClaim>,
    claim: &ResourceClaim,
    settings: &DraSettings,
    served: &[ServedFunction],
) {
    let now = Timestamp::now();
    let devices = served.iter().map(|served| served_device(served, &settings.node, now));
    apply(api, claim, devices.collect()).await;
}

/// Why a claim is not served.
#[derive(Debug, Clone, Copy)]
pub enum NotServed<'a> {
    /// It may be later.
    Yet(&'a str),
    /// It never will, as it is.
    Refused(&'a str),
}

/// Reports why a claim is not served, at each of its devices on this node.
pub async fn report_failure(
    api: &Api<ResourceClaim>,
    claim: &ResourceClaim,
    settings: &DraSettings,
    why: NotServed<'_>,
) {
    let now = Timestamp::now();
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
    let ours = results.into_iter().flatten().filter(|result| is_ours(result, settings));
    let devices = ours.map(|result| {
        let conditions = match why {
            NotServed::Yet(why) => json!([condition(SERVED, false, why, now)]),
            NotServed::Refused(why) => {
                json!([condition(SERVED, false, why, now), condition(REFUSED, true, why, now)])
            }
        };
        device(&result.device, result.share_id.as_deref(), &settings.node, conditions)
    });
    apply(api, claim, devices.collect()).await;
}

/// Applies the state of devices. The pod's events say the same, so a claim that cannot be written keeps no pod waiting.
async fn apply(api: &Api<ResourceClaim>, claim: &ResourceClaim, devices: Vec<Value>) {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if devices.is_empty() {
        return;
    }
    let patch = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        // With the UID, a claim that was replaced is not written to.
        "metadata": {"name": name, "uid": claim.metadata.uid},
        "status": {"devices": devices},
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    if let Err(error) = api.patch_status(name, &parameters, &Patch::Apply(&patch)).await {
        tracing::warn!(claim = name, %error, "the claim's status cannot be written");
    }
}
