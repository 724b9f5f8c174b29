//! Periodic work between the kubelet's calls: renews leases, unbinds devices that no pod uses, and
//! marks devices unhealthy whose binding, or whose daemon, is gone.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snic_api::v1::vm_binding::State;
use snic_cdi::uuid_of;
use tonic::transport::Endpoint;
use tonic::{Request, Status};

use crate::PluginError;
use crate::pod_resources::ListPodResourcesRequest;
use crate::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use crate::pool::DevicePool;

/// Time limit for the kubelet's list of allocated devices.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Largest list of a node's pods that is accepted, in bytes.
const LIST_BYTES_MAX: usize = 64 << 20;

/// Sends heartbeats until the program ends.
///
/// # Errors
/// None: it never returns. The type is that of the plugin's other tasks.
pub async fn run(pool: Arc<DevicePool>) -> Result<(), PluginError> {
    let never: Infallible = beat_forever(&pool).await;
    match never {}
}

async fn beat_forever(pool: &DevicePool) -> Infallible {
    let mut beats = tokio::time::interval(pool.settings.heartbeat());
    beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_up = None;
    loop {
        beats.tick().await;
        let result = beat(pool).await;
        let is_up = result.is_ok();
        if was_up != Some(is_up) {
            was_up = Some(is_up);
            let resource = &pool.resource.name;
            match result {
                Ok(()) => tracing::info!(resource, "daemon reachable"),
                Err(status) => {
                    tracing::warn!(resource, why = status.message(), "daemon unreachable")
                }
            }
        }
    }
}

/// One heartbeat.
///
/// # Errors
/// The daemon's status; all devices are unhealthy then.
pub async fn beat(pool: &DevicePool) -> Result<(), Status> {
    let all = pool.uuids();
    let began = Instant::now();
    let uuids = all.iter().map(|(_, uuid)| uuid.clone()).collect();
    let alive = match pool.daemon.heartbeat(uuids).await {
        Ok(alive) => alive,
        Err(status) => {
            pool.set_daemon_up(false);
            return Err(status);
        }
    };
    for (id, uuid) in &all {
        let is_it = |binding: &&snic_api::v1::VmBinding| uuid_of(binding) == uuid;
        let binding = alive.iter().find(is_it).filter(|b| b.state() == State::Bound);
        match binding {
            // Bound by an earlier run of this program.
            Some(binding) if !pool.is_bound(id) => {
                let recorded = pool.set_bound(id, binding);
                recorded.map_err(|error| Status::internal(error.to_string()))?;
            }
            Some(_) => {}
            // The reply may be older than a bind of this moment.
            None if pool.was_bound_at(id, began) => {
                tracing::warn!(device = id, "the device's binding is gone");
                pool.set_lost(id);
            }
            None => pool.remove_old_file(id),
        }
    }
    pool.set_daemon_up(true);
    // While the kubelet does not answer, every device counts as used.
    if let Ok(used) = used(pool).await {
        unbind_idle(pool, &used.into_iter().collect::<Vec<_>>()).await?;
    }
    Ok(())
}

async fn unbind_idle(pool: &DevicePool, used: &[String]) -> Result<(), Status> {
    for id in used {
        // The kubelet lists a device only after its allocation, so its binding has gone, perhaps
        // while this program did not run.
        if pool.uuid(id).is_some() && !pool.is_bound(id) {
            pool.set_lost(id);
        }
        pool.set_used(id);
    }
    for id in pool.idle(used) {
        let Some(uuid) = pool.uuid(&id) else { continue };
        pool.daemon.unbind(&uuid, &pool.resource.tenant).await?;
        pool.set_unbound(&id);
        tracing::info!(device = id, "unused device unbound");
    }
    Ok(())
}

/// The devices allocated to pods.
async fn used(pool: &DevicePool) -> Result<BTreeSet<String>, Status> {
    let list = list(&pool.settings.pod_resources);
    let reply = tokio::time::timeout(ANSWER_MAX, list).await;
    let reply = reply.map_err(|_| Status::deadline_exceeded("the kubelet does not answer"))??;
    let containers = reply.pod_resources.into_iter().flat_map(|pod| pod.containers);
    let devices = containers.flat_map(|container| container.devices);
    let ours = devices.filter(|devices| devices.resource_name == pool.resource.name);
    Ok(ours.flat_map(|devices| devices.device_ids).collect())
}

async fn list(socket: &Path) -> Result<crate::pod_resources::ListPodResourcesResponse, Status> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()));
    let unreachable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    let channel = endpoint.map_err(unreachable)?.connect().await.map_err(unreachable)?;
    let mut client =
        PodResourcesListerClient::new(channel).max_decoding_message_size(LIST_BYTES_MAX);
    Ok(client.list(Request::new(ListPodResourcesRequest {})).await?.into_inner())
}
