//! Events of hosts: decisions of their control planes.

use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::event_service_client::EventServiceClient;
use snic_api::v1::event_service_server::EventService;
use snic_fleet::HostId;
use snic_front::gate::{caller, passage};
use snic_front::listing;
use tonic::{Request, Response, Status};

use super::gathering::{HostList, HostPage, HostScope, on_host};
use super::watching::Events;
use super::{RpcResult, Services, no_watch};
use crate::passing::HostTransport;

/// Order in which hosts list them: their clocks may have been set back, so it is not always that of the numbers.
const LATEST_FIRST: &str = "time desc, number desc";

/// The events of hosts, latest first.
struct EventList {
    /// The reader may know which hosts there are.
    is_told: bool,
}

/// Nanoseconds since 1970.
fn nanos(event: &v1::Event) -> u64 {
    let nanos = |at: prost_types::Timestamp| {
        u64::try_from(i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos)).ok()
    };
    event.time.and_then(nanos).unwrap_or_default()
}

#[tonic::async_trait]
impl HostList for EventList {
    type Item = v1::Event;

    async fn page(
        &self,
        host: HostTransport,
        page: HostPage,
    ) -> Result<(Vec<v1::Event>, String), Status> {
        let request = v1::ListEventsRequest {
            page_size: page.size,
            page_token: page.token,
            filter: page.filter,
            order_by: LATEST_FIRST.to_owned(),
        };
        let reply = EventServiceClient::new(host).list_events(request).await?.into_inner();
        Ok((reply.events, reply.next_page_token))
    }

    fn named(&self, host: &HostId, event: v1::Event) -> v1::Event {
        v1::Event { card: on_host(self.is_told, host, event.card), ..event }
    }

    fn key(&self, _: &HostId, event: &v1::Event) -> String {
        // Later ones first. Of two hosts at the same nanosecond, another card or DAG tells them apart.
        let v1::Event { number, dag, card, .. } = event;
        format!("{:020} {:020} {dag} {card}", u64::MAX - nanos(event), u64::MAX - number)
    }

    fn not_before(&self, key: &str) -> Option<String> {
        let nanos = u64::MAX - key.split(' ').next()?.parse::<u64>().ok()?;
        let seconds = i64::try_from(nanos / 1_000_000_000).ok()?;
        let nanos = i32::try_from(nanos % 1_000_000_000).ok()?;
        Some(format!("time <= \"{}\"", prost_types::Timestamp { seconds, nanos }))
    }
}

#[tonic::async_trait]
impl EventService for Services {
    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> RpcResult<v1::ListEventsResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let listing = listing!(v1::Event, Query::of("ListEvents"), request)?;
        let question = self.question_of(&passage)?;
        // A host keeps the events of a DAG that it serves no more.
        let hosts = self.hosts_in(&caller, HostScope::All).await?;
        let list = EventList { is_told: caller.tenant().is_none() };
        let (page, missing) = self.gathered_page(&question, &listing, (list, hosts)).await?;
        Ok(Response::new(v1::ListEventsResponse {
            events: page.items,
            next_page_token: page.next_page_token,
            unreachable_hosts: missing.to_wire(&caller),
        }))
    }

    type WatchEventsStream = Events<v1::WatchEventsResponse>;

    async fn watch_events(
        &self,
        request: Request<v1::WatchEventsRequest>,
    ) -> RpcResult<Self::WatchEventsStream> {
        caller(&request)?;
        Err(no_watch("events", "`snicctl events --since 5m`"))
    }
}

#[cfg(test)]
mod tests {
    use snic_api::error::ApiError;
    use snic_api::list::ListSelection;

    use super::*;

    fn event(nanos: u64, number: u64) -> v1::Event {
        let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let time = prost_types::Timestamp { seconds: seconds as i64, nanos: nanos as i32 };
        v1::Event { number, time: Some(time), ..v1::Event::default() }
    }

    #[test]
    fn later_events_come_first_and_a_page_begins_with_those_of_its_key() -> Result<(), ApiError> {
        let list = EventList { is_told: false };
        let host = HostId::new("h1").expect("a name");
        let key = |event: &v1::Event| list.key(&host, event);
        let at = 1_700_000_000_123_456_789;
        let (late, same, early) = (event(at + 1, 3), event(at, 12), event(at, 9));
        assert!(key(&late) < key(&same) && key(&same) < key(&early));
        let filter = list.not_before(&key(&same)).expect("a key");
        let selection = ListSelection::parse::<v1::Event>(&filter, LATEST_FIRST)?;
        let is_listed = [&late, &same, &early].map(|event| selection.key_of(event).is_some());
        assert_eq!(is_listed, [false, true, true], "{filter}");
        assert_eq!(list.not_before("no key"), None);
        Ok(())
    }
}
