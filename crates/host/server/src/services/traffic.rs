//! Traffic: a DAG's packets, as the card sees them.

use std::time::{Duration, Instant};

use snic_api::convert::{name, timestamp};
use snic_api::error::ApiError;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::packet_sighting::Step;
use snic_api::v1::traffic_service_server::TrafficService;
use snic_controller::DagView;
use snic_domain::{Caller, DagName, DagUid, NodeId, NtTypeId, RegionId, Slot};
use snic_front::error::shutting_down;
use snic_front::gate::caller;
use snic_front::share::{CallerFlow, CallerLevel};
use snic_ports::packets::{PacketStep, PacketWatch, SeenPacket, SeenPackets, WatchError};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::card_work::{blocking, invalid_state};
use super::traffic_run::TrafficStream;
use super::{RpcResult, Services, absent, stopped};
use crate::wire;

/// The longest frame of any card.
const PACKET_BYTES_MAX: u32 = 9_216;
/// Messages queued for a slow client; then the card counts what is lost.
const MESSAGES_WAITING: usize = 2;
/// Pause while there are no packets.
const REST: Duration = Duration::from_millis(20);
/// Interval between checks that the DAG is still there.
const CHECK: Duration = Duration::from_secs(1);

type Messages = mpsc::Sender<Result<v1::WatchPacketsResponse, Status>>;

/// A watch of a DAG's packets.
struct DagPacketWatch {
    caller: Caller,
    name: DagName,
    uid: DagUid,
    view: DagView,
    checked: Instant,
}

#[tonic::async_trait]
impl TrafficService for Services {
    type WatchPacketsStream = ReceiverStream<Result<v1::WatchPacketsResponse, Status>>;

    async fn watch_packets(
        &self,
        request: Request<v1::WatchPacketsRequest>,
    ) -> RpcResult<Self::WatchPacketsStream> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let name = name::dag("name", &request.name).map_err(ApiError::from)?;
        let bytes = packet_bytes(request.packet_bytes_max)?;
        let view = self.dag(&caller, name.clone()).await?;
        let uid = view.uid;
        let Some(card) = view.mapping.as_ref().map(|mapping| mapping.card.clone()) else {
            let text = "the DAG has no place on a card, so it has no packets; \
                        `conditions` say why";
            return Err(invalid_state(&name, text).into());
        };
        let Some(window) = self.0.card_links.window(&card) else {
            let text = format!(
                "{card} does not show packets; only cards that handle them in software do \
                 (`driver = \"soft\"`)"
            );
            return Err(invalid_state(&name, &text).into());
        };
        let place =
            self.0.packet_watches.enter(CallerLevel::of(&caller), CallerFlow::from(&caller))?;
        let watch = blocking(move || window.watch(uid, bytes)).await?;
        let watch = watch.map_err(|error| unwatchable(&error))?;
        let (sender, messages) = mpsc::channel(MESSAGES_WAITING);
        let watched = DagPacketWatch { caller, name, uid, view, checked: Instant::now() };
        let services = self.clone();
        tokio::spawn(async move {
            if let Err(error) = services.forward(watch, watched, &sender).await {
                // The task does not wait for a reader that accepts nothing.
                let _ = sender.try_send(Err(error.into()));
            }
            drop(place);
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    type RunTrafficStream = TrafficStream;

    async fn run_traffic(
        &self,
        request: Request<v1::RunTrafficRequest>,
    ) -> RpcResult<Self::RunTrafficStream> {
        let caller = caller(&request)?;
        self.start_traffic(caller, request.into_inner()).await
    }
}

impl Services {
    /// Sends packets until the reader disconnects, the DAG is deleted, or the server stops.
    async fn forward(
        &self,
        mut watch: Box<dyn PacketWatch>,
        mut watched: DagPacketWatch,
        sender: &Messages,
    ) -> Result<(), ApiError> {
        let mut stopping = self.0.stopping.clone();
        loop {
            let (back, seen) = blocking(move || {
                let seen = watch.fetch();
                (watch, seen)
            })
            .await?;
            watch = back;
            let seen = seen.map_err(|error| unwatchable(&error))?;
            if watched.checked.elapsed() >= CHECK || !watched.knows_all(&seen) {
                watched.check(self).await?;
            }
            let is_quiet = seen.seen.is_empty();
            if !is_quiet || seen.lost > 0 {
                let message = watched.message(seen);
                tokio::select! {
                    sent = sender.send(Ok(message)) => if sent.is_err() { break },
                    () = stopped(&mut stopping) => return Err(shutting_down()),
                }
            }
            if is_quiet {
                tokio::select! {
                    () = tokio::time::sleep(REST) => {}
                    () = sender.closed() => break,
                    () = stopped(&mut stopping) => return Err(shutting_down()),
                }
            }
        }
        // It notifies the card, which may take its time.
        blocking(move || drop(watch)).await
    }
}

impl DagPacketWatch {
    /// Reads the DAG again.
    async fn check(&mut self, services: &Services) -> Result<(), ApiError> {
        self.view = services.dag(&self.caller, self.name.clone()).await?;
        self.checked = Instant::now();
        // A new DAG of the same name is another DAG.
        if self.view.uid == self.uid { Ok(()) } else { Err(absent(&self.name.to_string())) }
    }

    /// The node that is served there, and its type.
    fn node(&self, region: u8, slot: u8) -> Option<(&NodeId, &NtTypeId)> {
        let (region, slot) = (RegionId(region), Slot(slot));
        let chains = self.view.mapping.iter().flat_map(|mapping| mapping.chains());
        let mut served = chains.flat_map(|chain| {
            let instances = chain.instances.iter().filter(|instance| instance.region == region);
            instances.filter_map(|instance| {
                let at = instance.slots.iter().position(|held| *held == slot)?;
                let types = self.view.contents.get(&instance.bitstream)?;
                Some((chain.nodes.get(at)?, types.get(usize::from(slot.0))?))
            })
        });
        served.next()
    }

    fn knows_all(&self, seen: &SeenPackets) -> bool {
        seen.seen.iter().all(|seen| match seen.step {
            PacketStep::Passed { region, slot } => self.node(region, slot).is_some(),
            _ => true,
        })
    }

    fn message(&self, seen: SeenPackets) -> v1::WatchPacketsResponse {
        let lost = seen.lost;
        let sightings = seen.seen.into_iter().map(|seen| self.sighting(seen)).collect();
        v1::WatchPacketsResponse { sightings, lost }
    }

    fn sighting(&self, seen: SeenPacket) -> v1::PacketSighting {
        let (step, region, slot) = match seen.step {
            PacketStep::Arrived => (Step::Arrived, None, None),
            PacketStep::Made => (Step::Made, None, None),
            PacketStep::Admitted => (Step::Admitted, None, None),
            PacketStep::Scheduled { region } => (Step::Scheduled, Some(region), None),
            PacketStep::Entered { region } => (Step::Entered, Some(region), None),
            PacketStep::Passed { region, slot } => (Step::Passed, Some(region), Some(slot)),
            PacketStep::Left => (Step::Left, None, None),
            PacketStep::Dropped(_) => (Step::Dropped, None, None),
        };
        let card = self.view.mapping.as_ref().map(|mapping| &mapping.card);
        let region_name =
            card.zip(region).map(|(card, region)| name::of_region(card, RegionId(region)));
        let node = region.zip(slot).and_then(|(region, slot)| self.node(region, slot));
        v1::PacketSighting {
            time: Some(timestamp(seen.at)),
            packet: seen.packet,
            step: step.into(),
            region: region_name.unwrap_or_default(),
            node: node.map(|(node, _)| node.to_string()).unwrap_or_default(),
            nt_type: node.map(|(_, nt_type)| name::of_nt_type(nt_type)).unwrap_or_default(),
            drop_cause: match seen.step {
                PacketStep::Dropped(cause) => wire::cause_word(cause).to_owned(),
                _ => String::new(),
            },
            length_bytes: seen.length,
            data: seen.bytes,
        }
    }
}

fn packet_bytes(asked: u32) -> Result<u32, ApiError> {
    if asked <= PACKET_BYTES_MAX {
        return Ok(asked);
    }
    let rule = format_args!("{asked} bytes of each packet; allowed: 0 to {PACKET_BYTES_MAX}");
    Err(ApiError::in_field(ErrorReason::InvalidField, "packet_bytes_max", rule))
}

fn unwatchable(error: &WatchError) -> ApiError {
    let error = match error {
        WatchError::TooMany { .. } => ApiError::new(ErrorReason::Overloaded, error),
        WatchError::Ended => ApiError::new(ErrorReason::CardUnavailable, error),
        WatchError::Lost(reason) => {
            // The reason names files and processes of this host.
            tracing::warn!(reason, "a card does not show its packets");
            let text = "the card does not answer; try again later";
            ApiError::new(ErrorReason::CardUnavailable, text)
        }
    };
    error.retry_after(snic_front::error::RETRY_SOON)
}
