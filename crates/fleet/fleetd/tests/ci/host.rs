//! A host: the agent at the end of a link, whose controller does all it is told at once.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_api::connect::LOST_EPOCH_HEADER;
use snic_api::fleet_v1::host_link_service_client::HostLinkServiceClient;
use snic_api::fleet_v1::{FetchImageRequest, LinkRequest, LinkResponse};
use snic_domain::{Bitstream, Digest, FunctionUse, KeptForTenant, KeptState};
use snic_fleet::protocol::{Epoch, HostOrder, HostPolicies, Numbered, Provisions};
use snic_fleet::{AgentEffect, AgentEvent, HostAgent};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// Begins a link.
pub async fn link(
    channel: Channel,
) -> Result<(mpsc::Sender<LinkRequest>, Streaming<LinkResponse>), Status> {
    link_after(channel, None).await
}

/// The same as a host that has just lost the leader of an epoch.
pub async fn link_after(
    channel: Channel,
    lost: Option<Epoch>,
) -> Result<(mpsc::Sender<LinkRequest>, Streaming<LinkResponse>), Status> {
    let (reports, sent) = mpsc::channel(64);
    let mut client = HostLinkServiceClient::new(channel);
    let mut request = tonic::Request::new(ReceiverStream::new(sent));
    if let Some(Epoch(epoch)) = lost {
        request.metadata_mut().insert(LOST_EPOCH_HEADER, epoch.into());
    }
    let orders = client.link(request).await?.into_inner();
    Ok((reports, orders))
}

/// The epoch of the order that a report is answered with.
pub async fn epoch(
    reports: &mpsc::Sender<LinkRequest>,
    orders: &mut Streaming<LinkResponse>,
) -> Epoch {
    let mut agent = HostAgent::new(Epoch::default(), BTreeMap::new(), Provisions::default());
    for effect in agent.handle(AgentEvent::BeatDue) {
        if let AgentEffect::Report(report) = effect {
            let report = serde_json::to_vec(&report).unwrap();
            reports.send(LinkRequest { report }).await.unwrap();
        }
    }
    let first = orders.message().await.unwrap().unwrap();
    serde_json::from_slice::<HostOrder>(&first.order).unwrap().epoch
}

/// An image, as a host fetches it.
pub async fn fetch(channel: Channel, digest: Digest) -> Result<Vec<u8>, Status> {
    let mut client = HostLinkServiceClient::new(channel);
    let request = FetchImageRequest { digest: digest.to_string() };
    let mut chunks = client.fetch_image(request).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(message) = chunks.message().await? {
        bytes.extend_from_slice(&message.chunk);
    }
    Ok(bytes)
}

/// A host that goes on from one replica to the next until the future is dropped.
pub async fn run(replicas: Vec<Channel>) {
    let served = BTreeMap::from([("card0".parse().unwrap(), BTreeMap::new())]);
    let mut agent = HostAgent::new(Epoch::default(), served, Provisions::default());
    loop {
        for channel in &replicas {
            if let Ok((reports, orders)) = link(channel.clone()).await {
                serve(&mut agent, channel, reports, orders).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Until the link ends.
async fn serve(
    agent: &mut HostAgent,
    channel: &Channel,
    reports: mpsc::Sender<LinkRequest>,
    mut orders: Streaming<LinkResponse>,
) {
    let mut beats = tokio::time::interval(Duration::from_millis(200));
    let none = HostPolicies::default(); // as after a start
    agent.handle(AgentEvent::Policies(none));
    agent.handle(AgentEvent::Functions(FunctionUse::default()));
    loop {
        let mut events = vec![tokio::select! {
            _ = beats.tick() => AgentEvent::BeatDue,
            order = orders.message() => match order {
                // A call that is passed on: this host answers none.
                Ok(Some(message)) if message.order.is_empty() => continue,
                Ok(Some(message)) => {
                    let order: HostOrder = serde_json::from_slice(&message.order).unwrap();
                    AgentEvent::Order(order)
                }
                _ => return,
            },
        }];
        while let Some(event) = events.pop() {
            for effect in agent.handle(event) {
                match effect {
                    AgentEffect::Report(report) => {
                        let report = serde_json::to_vec(&report).unwrap();
                        if reports.send(LinkRequest { report }).await.is_err() {
                            return;
                        }
                    }
                    AgentEffect::Serve { name, place, .. } => events.push(AgentEvent::Served {
                        name,
                        card: place.card.card.clone(),
                        serial: place.serial,
                        result: Ok(None),
                    }),
                    AgentEffect::Provide { nts, bitstreams, tenants } => {
                        for one in &bitstreams {
                            for image in &one.of.images {
                                let bytes = fetch(channel.clone(), image.digest).await.unwrap();
                                assert_eq!(Digest::of(&bytes), image.digest);
                            }
                        }
                        let mut there = Provisions::default();
                        let number = |of: &Numbered<Bitstream>| of.number;
                        there.bitstreams =
                            bitstreams.iter().map(|of| (of.of.id.clone(), number(of))).collect();
                        there.nts = nts.iter().map(|of| (of.of.id.clone(), of.number)).collect();
                        there.tenants =
                            tenants.iter().map(|of| (of.of.id.clone(), of.number)).collect();
                        events.push(AgentEvent::Provided(there));
                    }
                    AgentEffect::SetPolicies(files) => {
                        let said = HostPolicies { number: files.number, refused: None };
                        events.push(AgentEvent::Policies(said));
                    }
                    AgentEffect::Keep(all) => {
                        let state = |of: KeptForTenant| {
                            let KeptForTenant { number, revision, used, .. } = of;
                            (number, KeptState { revision, used, is_over: false })
                        };
                        let kept = all.into_iter().map(state).collect();
                        let said = FunctionUse { kept, ..FunctionUse::default() };
                        events.push(AgentEvent::Functions(said));
                    }
                    AgentEffect::Remember(_)
                    | AgentEffect::Stop { .. }
                    | AgentEffect::Withdraw(_) => {}
                }
            }
        }
    }
}
