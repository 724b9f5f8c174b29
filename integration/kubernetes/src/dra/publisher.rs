//! Keeps the node's `ResourceSlice` as its cards are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use snic_api::connect::Target;
use snic_api::v1::card_service_client::CardServiceClient;
use snic_api::v1::network_task_service_client::NetworkTaskServiceClient;
use snic_api::v1::{ListCardsRequest, ListNtTypesRequest};
use tokio::sync::Notify;
use tonic::{Request, Status};

use crate::dra::DRIVER;
use crate::dra::settings::DraSettings;
use crate::dra::slices::{NodeInventory, slice};

/// Time limit of a call to the daemon.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Interval of writing a slice that has not changed: somebody may have deleted it.
const REPEAT: Duration = Duration::from_secs(60);
/// Owner of the fields that the driver applies.
const FIELD_MANAGER: &str = "snic-dra";
/// Most cards and types of network tasks that are read.
const PAGE_SIZE: i32 = 1_000;

/// Writes the node's slice.
pub struct Publisher {
    settings: Arc<DraSettings>,
    api: kube::Client,
    /// Wakes it when the kubelet has registered the driver: a kubelet that starts may delete the slices of before.
    pub wake: Arc<Notify>,
}

async fn read(target: &Target) -> Result<NodeInventory, Status> {
    let connection = target.connect().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let mut request = Request::new(ListCardsRequest { page_size: PAGE_SIZE, ..Default::default() });
    request.set_timeout(ANSWER_MAX);
    let cards = CardServiceClient::new(connection.clone()).list_cards(request).await?.into_inner();
    let mut request =
        Request::new(ListNtTypesRequest { page_size: PAGE_SIZE, ..Default::default() });
    request.set_timeout(ANSWER_MAX);
    let types =
        NetworkTaskServiceClient::new(connection).list_nt_types(request).await?.into_inner();
    // Types of tenants are no business of others.
    let of_provider = types.nt_types.into_iter().filter(|nt_type| nt_type.owner.is_empty());
    let nt_types = of_provider
        .map(|nt_type| nt_type.name.strip_prefix("ntTypes/").unwrap_or(&nt_type.name).to_owned());
    Ok(NodeInventory { cards: cards.cards, nt_types: nt_types.collect(), is_reachable: true })
}

impl Publisher {
    /// Publishes with the first run.
    pub fn new(settings: &Arc<DraSettings>, api: kube::Client) -> Self {
        Self { settings: Arc::clone(settings), api, wake: Arc::default() }
    }

    /// Publishes until the program ends. Before the daemon has answered once, the node offers nothing new.
    pub async fn run(self) {
        let mut inventory = NodeInventory::default();
        let mut published: Option<(ResourceSliceSpec, Instant)> = None;
        loop {
            match read(&self.settings.inventory).await {
                Ok(now) => inventory = now,
                Err(status) => {
                    if inventory.is_reachable {
                        tracing::warn!(
                            why = status.message(),
                            "the SmartNIC daemon does not answer"
                        );
                    }
                    inventory.is_reachable = false;
                }
            }
            let spec = slice(&self.settings, &inventory);
            let is_due = published
                .as_ref()
                .is_none_or(|(before, at)| *before != spec || at.elapsed() >= REPEAT);
            if is_due && !inventory.cards.is_empty() {
                match self.write(&spec).await {
                    Ok(()) => published = Some((spec, Instant::now())),
                    Err(error) => tracing::warn!(%error, "the ResourceSlice cannot be written"),
                }
            }
            let pause = Duration::from_secs(self.settings.interval_seconds);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wake.notified() => published = None,
            }
        }
    }

    async fn write(&self, spec: &ResourceSliceSpec) -> Result<(), kube::Error> {
        let node: Node = Api::<Node>::all(self.api.clone()).get(&self.settings.node).await?;
        let name = format!("{}-{DRIVER}", self.settings.node);
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": name,
                // It goes with its node.
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "controller": true,
                    "name": self.settings.node, "uid": node.metadata.uid,
                }],
            },
            "spec": spec,
        });
        let slices: Api<ResourceSlice> = Api::all(self.api.clone());
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        slices.patch(&name, &parameters, &Patch::Apply(&slice)).await?;
        Ok(())
    }
}
