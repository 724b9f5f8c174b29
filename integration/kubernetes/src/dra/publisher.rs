//! Keeps the node's `ResourceSlice` as its cards are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use snic_api::connect::Connection;
use snic_api::v1::card_service_client::CardServiceClient;
use snic_api::v1::network_task_service_client::NetworkTaskServiceClient;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::vm_binding::State;
use snic_api::v1::{ListBindingsRequest, ListCardsRequest, ListNtTypesRequest, VmBinding};
use tokio::sync::{Notify, watch};
use tonic::{Request, Status};

use crate::dra::records::RecordFolder;
use crate::dra::settings::DraSettings;
use crate::dra::slices::{BoundCount, NodeInventory, slice};
use crate::dra::{DRIVER, DraError};

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
    /// Notes of claims, by which their functions are told from those of others.
    records: RecordFolder,
    /// Whether each namespace has its quota.
    are_bounded: watch::Receiver<bool>,
    /// Wakes it when the kubelet has registered the driver: a kubelet that starts may delete the slices of before.
    pub wake: Arc<Notify>,
}

/// All bindings of the daemon.
async fn bindings(connection: Connection) -> Result<Vec<VmBinding>, Status> {
    let mut client = OrchestrationServiceClient::new(connection);
    let (mut bindings, mut page_token) = (Vec::new(), String::new());
    loop {
        let mut request = Request::new(ListBindingsRequest {
            parent: "tenants/-".to_owned(),
            page_size: PAGE_SIZE,
            page_token: std::mem::take(&mut page_token),
            ..Default::default()
        });
        request.set_timeout(ANSWER_MAX);
        let reply = client.list_bindings(request).await?.into_inner();
        bindings.extend(reply.bindings);
        page_token = reply.next_page_token;
        if page_token.is_empty() {
            return Ok(bindings);
        }
    }
}

/// Bound functions of each card; those of claims have one of these UUIDs.
fn counted(bindings: &[VmBinding], claims: &BTreeSet<String>) -> BTreeMap<String, BoundCount> {
    let mut counts = BTreeMap::<String, BoundCount>::new();
    let holds =
        |binding: &&VmBinding| !matches!(binding.state(), State::Unbound | State::BindFailed);
    for binding in bindings.iter().filter(holds) {
        let uuid = binding.name.strip_prefix("vmBindings/").unwrap_or(&binding.name);
        let is_others = !claims.contains(uuid);
        for function in &binding.functions {
            let card = function.card.strip_prefix("cards/").unwrap_or(&function.card);
            let count = counts.entry(card.to_owned()).or_default();
            count.all += 1;
            count.others += u32::from(is_others);
        }
    }
    counts
}

/// Reads what the daemon has.
async fn read(settings: &DraSettings, records: &RecordFolder) -> Result<NodeInventory, Status> {
    let connected = settings.inventory.connect().await;
    let connection = connected.map_err(|e| Status::unavailable(e.to_string()))?;
    // Claims come and go meanwhile: what was one before or after is one.
    let mut claims = records.functions();
    let bindings = bindings(connection.clone()).await?;
    claims.append(&mut records.functions());
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
    Ok(NodeInventory {
        cards: cards.cards,
        nt_types: nt_types.collect(),
        bound: counted(&bindings, &claims),
        is_reachable: true,
    })
}

impl Publisher {
    /// Publishes with the first run, once each namespace has its quota.
    ///
    /// # Errors
    /// [`DraError::Records`].
    pub fn new(
        settings: &Arc<DraSettings>,
        api: kube::Client,
        are_bounded: watch::Receiver<bool>,
    ) -> Result<Self, DraError> {
        let records = RecordFolder::open(&settings.state_dir).map_err(DraError::Records)?;
        Ok(Self { settings: Arc::clone(settings), api, records, are_bounded, wake: Arc::default() })
    }

    /// Publishes until the program ends. Before the daemon has answered once, the node offers nothing new.
    pub async fn run(self) {
        let mut inventory = NodeInventory::default();
        let mut published: Option<(ResourceSliceSpec, Instant)> = None;
        loop {
            match read(&self.settings, &self.records).await {
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
            // Nothing is offered before each namespace has its bound.
            if is_due && *self.are_bounded.borrow() && !inventory.cards.is_empty() {
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

#[cfg(test)]
mod tests {
    use snic_api::v1::BoundFunction;

    use super::*;

    #[test]
    fn functions_of_claims_are_told_from_those_of_others() {
        let binding = |uuid: &str, state: State, cards: &[&str]| {
            let function =
                |card: &&str| BoundFunction { card: (*card).into(), ..Default::default() };
            let mut binding = VmBinding {
                name: format!("vmBindings/{uuid}"),
                functions: cards.iter().map(function).collect(),
                ..VmBinding::default()
            };
            binding.set_state(state);
            binding
        };
        let all = [
            binding("claim", State::Bound, &["cards/card0"]),
            binding("machine", State::BindStarted, &["cards/card0", "cards/card1"]),
            binding("gone", State::Unbound, &["cards/card0"]),
        ];
        let counts = counted(&all, &BTreeSet::from(["claim".to_owned()]));
        assert_eq!(counts["card0"], BoundCount { all: 2, others: 1 });
        assert_eq!(counts["card1"], BoundCount { all: 1, others: 1 });
    }
}
