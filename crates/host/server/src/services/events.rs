//! Events: decisions of the control plane.

use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::event_service_server::EventService;
use snic_controller::{Controller, LogEntry};
use snic_domain::Caller;
use snic_front::gate::caller;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::watching::{Event, WatchSpec};
use super::{RpcResult, Services, listing};
use crate::hub::Topic;
use crate::wire;

#[tonic::async_trait]
impl EventService for Services {
    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> RpcResult<v1::ListEventsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let listing = listing!(v1::Event, Query::of("ListEvents"), request)?;
        let (page, _) = self
            .page(
                &caller,
                &listing,
                move |controller, caller, after, limit| {
                    let before = after.and_then(|key| key.parse().ok());
                    controller.log_before(caller, before).take(limit).cloned().collect()
                },
                |entry: &LogEntry| (entry.number.to_string(), wire::event(entry)),
            )
            .await?;
        Ok(Response::new(v1::ListEventsResponse {
            events: page.items,
            next_page_token: page.next_page_token,
            unreachable_hosts: Vec::new(),
        }))
    }

    type WatchEventsStream = ReceiverStream<Result<v1::WatchEventsResponse, Status>>;

    async fn watch_events(
        &self,
        request: Request<v1::WatchEventsRequest>,
    ) -> RpcResult<Self::WatchEventsStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let topic = Topic::Events(caller.tenant().cloned());
        // All at once: what is read later may have pushed out what was not.
        let piece = |controller: &Controller, caller: &Caller, after: Option<&LogEntry>, _| {
            let mut all = Vec::new();
            if after.is_none() {
                all.extend(controller.log_before(caller, None).cloned());
                all.reverse();
            }
            all
        };
        let event = |event: Event<'_, LogEntry>| v1::WatchEventsResponse {
            r#type: event.kind().into(),
            // An event is never deleted.
            event: event.message(wire::event, |_| v1::Event::default()),
            revision: event.revision,
        };
        Ok(Response::new(self.watch(WatchSpec { topic, caller, piece, event }, resume).await?))
    }
}
