//! `snicctl events`.

use std::time::{Duration, SystemTime};

use snic_api::v1::{Event, ListEventsRequest, WatchEventsRequest};

use super::CliSession;
use crate::args::Selected;
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::follow;
use snic_client::lists::{PAGE_SIZE, pages};
use snic_client::output::fairness as views;

/// The events that are kept, oldest first unless another order is asked for; with `go_on`, what happens from
/// then on, too. With `since`, those that are not older.
pub async fn run(
    session: &mut CliSession,
    go_on: bool,
    since: Option<Duration>,
    selected: Selected,
) -> Result<(), Failure> {
    let client = session.client()?;
    let first = since.and_then(|since| SystemTime::now().checked_sub(since));
    let is_late = |event: &Event| is_after(event, first);
    if !go_on {
        let mut events = all(&client, &selected).await?;
        events.retain(is_late);
        if selected.order_by.trim().is_empty() {
            events.reverse();
        }
        return session.output.many(&events, views::events);
    }
    let open = async |resume_revision| {
        let request = WatchEventsRequest { resume_revision };
        Ok(client.events().watch_events(request).await?.into_inner())
    };
    follow(&client, open, |change| {
        if change.event.as_ref().is_none_or(is_late) {
            session.output.event(&change, views::event_change)?;
        }
        Ok(change.revision)
    })
    .await
}

/// Whether an event is not older than `first`; one without a time is not.
fn is_after(event: &Event, first: Option<SystemTime>) -> bool {
    let at = event.time.and_then(|time| SystemTime::try_from(time).ok());
    first.is_none_or(|first| at.is_none_or(|at| at >= first))
}

async fn all(client: &Client, selected: &Selected) -> Result<Vec<Event>, Failure> {
    pages(async |page_token| {
        let request = ListEventsRequest {
            page_size: PAGE_SIZE,
            page_token,
            filter: selected.filter.clone(),
            order_by: selected.order_by.clone(),
        };
        let reply = call!(client, events.list_events, request)?;
        Ok((reply.events, reply.next_page_token))
    })
    .await
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    #[test]
    fn only_events_that_are_not_older_pass() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let event = Event { time: Some(Timestamp { seconds: 100, nanos: 0 }), ..Event::default() };
        let passed =
            [None, Some(at(99)), Some(at(100)), Some(at(101))].map(|first| is_after(&event, first));
        assert_eq!(passed, [true, true, true, false]);
        assert!(is_after(&Event::default(), Some(at(101))), "without a time");
    }
}
