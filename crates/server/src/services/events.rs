//! Events: what the control plane decided by itself.

use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::event_service_server::EventService;
use snic_controller::{Caller, Change, Controller, LogEntry};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::watching::{Event, Subject};
use super::{Answer, Services, page};
use crate::gate::caller;
use crate::hub::Seen;
use crate::wire;

#[tonic::async_trait]
impl EventService for Services {
    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Answer<v1::ListEventsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let page = page(Query::of("ListEvents"), request.page_size, &request.page_token)?;
        let before = page.after().and_then(|key| key.parse().ok());
        let page = self
            .page(
                &caller,
                &page,
                move |controller, caller, limit| {
                    controller.log_before(caller, before).take(limit).cloned().collect()
                },
                |entry: &LogEntry| (entry.number.to_string(), wire::event(entry)),
            )
            .await?;
        Ok(Response::new(v1::ListEventsResponse {
            events: page.items,
            next_page_token: page.next_page_token,
        }))
    }

    type WatchEventsStream = ReceiverStream<Result<v1::EventChange, Status>>;

    async fn watch_events(
        &self,
        request: Request<v1::WatchEventsRequest>,
    ) -> Answer<Self::WatchEventsStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        Ok(Response::new(self.watch(OfEvents { caller }, resume).await?))
    }
}

/// The events that a caller may see.
struct OfEvents {
    caller: Caller,
}

impl Subject for OfEvents {
    type View = LogEntry;
    type Event = v1::EventChange;

    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn all(&self) -> impl FnOnce(&Controller) -> Vec<LogEntry> + Send + 'static {
        let caller = self.caller.clone();
        move |controller| {
            let mut all: Vec<LogEntry> = controller.log_before(&caller, None).cloned().collect();
            all.reverse();
            all
        }
    }

    fn concerns(&self, change: &Change) -> bool {
        matches!(change, Change::Logged(entry) if entry.is_visible_to(&self.caller))
    }

    fn view(seen: &Seen) -> Option<&LogEntry> {
        if let Seen::Entry(entry) = seen { Some(entry) } else { None }
    }

    fn event(&self, event: Event<'_, LogEntry>) -> v1::EventChange {
        v1::EventChange {
            r#type: event.kind().into(),
            event: event.view.map(wire::event),
            revision: event.revision,
        }
    }
}
