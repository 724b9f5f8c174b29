//! The device plugin service, called by the kubelet.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use snic_api::v1::VmBinding;
use snic_cdi::host;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use crate::pool::DevicePool;
use crate::v1beta1::device_plugin_server::DevicePlugin;
use crate::v1beta1::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, ContainerPreferredAllocationResponse, DevicePluginOptions,
    DeviceSpec, Empty, ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse,
};

/// The plugin of one resource.
#[derive(Clone)]
pub struct Plugin(Arc<DevicePool>);

/// The optional calls the plugin wants: it prefers devices that are bound already, and checks a
/// container's devices before each (re)start.
pub const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };

impl Plugin {
    /// The plugin of these devices.
    pub const fn new(pool: Arc<DevicePool>) -> Self {
        Self(pool)
    }

    fn uuid(&self, id: &str) -> Result<String, Status> {
        let resource = &self.0.resource.name;
        let unknown = || Status::not_found(format!("{resource} has no device {id:?}"));
        self.0.uuid(id).ok_or_else(unknown)
    }

    /// Binds one device.
    async fn bind(&self, id: &str) -> Result<VmBinding, Status> {
        let uuid = self.uuid(id)?;
        let bound = self.0.daemon.bind(&uuid, self.0.resource.chains()).await;
        let binding = bound.inspect_err(|status| {
            if crate::daemon::is_down(status) {
                self.0.set_daemon_up(false);
            }
            tracing::warn!(device = id, why = status.message(), "device not allocated");
        })?;
        let recorded = self.0.set_bound(id, &binding);
        recorded.map_err(|error| Status::internal(error.to_string()))?;
        tracing::info!(device = id, binding = binding.name, "device bound");
        Ok(binding)
    }

    /// Binds the devices of a request: all, or none beyond those that were bound before.
    async fn bind_all(&self, ids: Vec<String>) -> Result<HashMap<String, VmBinding>, Status> {
        let mut bound = HashMap::new();
        let mut new = Vec::new();
        for id in ids {
            let was_bound = self.0.is_bound(&id);
            match self.bind(&id).await {
                Ok(binding) => {
                    if !was_bound {
                        new.push(id.clone());
                    }
                    bound.insert(id, binding);
                }
                Err(status) => {
                    for id in new {
                        self.unbind(&id).await;
                    }
                    return Err(status);
                }
            }
        }
        Ok(bound)
    }

    async fn unbind(&self, id: &str) {
        let Some(uuid) = self.0.uuid(id) else { return };
        match self.0.daemon.unbind(&uuid, &self.0.resource.tenant).await {
            Ok(()) => self.0.set_unbound(id),
            // A later heartbeat finds it idle and unbinds it.
            Err(error) => tracing::warn!(device = id, why = error.message(), "device stays bound"),
        }
    }

    /// The edits of one container.
    fn container(&self, bindings: &[&VmBinding]) -> ContainerAllocateResponse {
        let mut reply = ContainerAllocateResponse::default();
        if self.0.folder.is_some() {
            let names = bindings.iter().flat_map(|binding| snic_cdi::names(binding));
            reply.cdi_devices = names.map(|name| CdiDevice { name }).collect();
            return reply;
        }
        for (binding, function) in
            bindings.iter().flat_map(|binding| binding.functions.iter().map(move |f| (binding, f)))
        {
            reply.envs.extend([host::env(binding, function)]);
            for node in self.0.host.nodes(&function.pci_address) {
                let device = DeviceSpec {
                    container_path: node.path.clone(),
                    host_path: node.path,
                    permissions: node.permissions,
                };
                // All groups share one node.
                if !reply.devices.contains(&device) {
                    reply.devices.push(device);
                }
            }
        }
        reply
    }

    /// Mandatory devices, then those bound already, then the lowest numbers.
    fn preferred(&self, request: &ContainerPreferredAllocationRequest) -> Vec<String> {
        let number = |id: &String| (id.len(), id.clone());
        let mut free: Vec<String> = request.available_device_i_ds.clone();
        free.sort_by_key(|id| (!self.0.is_bound(id), number(id)));
        let mut chosen: Vec<String> = request.must_include_device_i_ds.clone();
        let size = usize::try_from(request.allocation_size).unwrap_or_default();
        for id in free {
            if chosen.len() < size && !chosen.contains(&id) {
                chosen.push(id);
            }
        }
        chosen
    }
}

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists = WatchStream::new(self.0.devices());
        let replies = lists.map(|devices| Ok(ListAndWatchResponse { devices }));
        Ok(Response::new(Box::pin(replies)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let reply =
            |request| ContainerPreferredAllocationResponse { device_i_ds: self.preferred(request) };
        let container_responses = requests.iter().map(reply).collect();
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let ids = requests.iter().flat_map(|request| request.devices_ids.iter().cloned());
        let bound = self.bind_all(ids.collect()).await?;
        let container_responses = requests
            .iter()
            .map(|request| {
                let bindings: Vec<_> =
                    request.devices_ids.iter().filter_map(|id| bound.get(id)).collect();
                self.container(&bindings)
            })
            .collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        for id in request.into_inner().devices_ids {
            let uuid = self.uuid(&id)?;
            if self.0.daemon.bound(&uuid).await?.is_none() {
                // A new binding might have other functions than those in the container's environment.
                self.0.set_lost(&id);
                let text = format!("device {id} is no longer bound; recreate the pod");
                return Err(Status::failed_precondition(text));
            }
        }
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
