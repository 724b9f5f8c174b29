//! `snicctl events`.

use std::time::SystemTime;

use snic_api::list::ListSelection;
use snic_api::v1::event::Severity;
use snic_api::v1::{Event, ListEventsRequest, WatchEventsRequest};

use super::CliSession;
use super::missing::MissingHosts;
use crate::args::{EventQuery, EventSeverity, Selected};
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::follow;
use snic_client::lists::{PAGE_SIZE, pages};
use snic_client::output::fairness as views;

/// The events that are kept, oldest first unless another order is asked for; with `watch`, what happens from
/// then on, too. With `since`, those that are not older.
pub async fn run(session: &mut CliSession, query: EventQuery) -> Result<(), Failure> {
    let EventQuery { watch, since, severity, selected } = query;
    let client = session.client()?;
    let first = since.and_then(|since| SystemTime::now().checked_sub(since));
    let is_late = |event: &Event| is_after(event, first) && is_severe(event, severity);
    if !watch {
        let mut events = all(&client, &selected).await?;
        events.retain(is_late);
        if selected.order_by.trim().is_empty() {
            events.reverse();
        }
        return session.output.many(&events, views::events);
    }
    // A watch has all events; which of them are shown is decided here, by the same rules as in a list.
    let filter = ListSelection::parse::<Event>(&selected.filter, "").map_err(|problem| {
        Failure::usage(
            format!("invalid --filter: {}", problem.what),
            "`snicctl events --help` has an example",
        )
    })?;
    let open = async |resume_revision| {
        let request = WatchEventsRequest { resume_revision };
        snic_client::open!(client, events.watch_events, request)
    };
    follow(&client, open, |change| {
        let is_shown = |event: &Event| is_late(event) && filter.key_of(event).is_some();
        if change.event.as_ref().is_none_or(is_shown) {
            session.output.event(&change, views::event_change)?;
        }
        Ok(change.revision)
    })
    .await
}

/// Whether an event is as severe as was asked for. Older servers do not say.
fn is_severe(event: &Event, least: EventSeverity) -> bool {
    let least = match least {
        EventSeverity::Info => Severity::Info,
        EventSeverity::Warning => Severity::Warning,
        EventSeverity::Error => Severity::Error,
    };
    event.severity() == Severity::Unspecified || event.severity() >= least
}

/// Whether an event is not older than `first`; one without a time is not.
fn is_after(event: &Event, first: Option<SystemTime>) -> bool {
    let at = event.time.and_then(|time| SystemTime::try_from(time).ok());
    first.is_none_or(|first| at.is_none_or(|at| at >= first))
}

async fn all(client: &Client, selected: &Selected) -> Result<Vec<Event>, Failure> {
    let missing = MissingHosts::default();
    let events = pages(async |page_token| {
        let request = ListEventsRequest {
            page_size: PAGE_SIZE,
            page_token,
            filter: selected.filter.clone(),
            order_by: selected.order_by.clone(),
        };
        let reply = call!(client, events.list_events, request)?;
        missing.add(reply.unreachable_hosts);
        Ok((reply.events, reply.next_page_token))
    });
    let events = events.await?;
    missing.complain();
    Ok(events)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn events_of_a_higher_severity_pass_too() {
        let of = |severity: Severity| Event { severity: severity.into(), ..Event::default() };
        let passed = |least| {
            [Severity::Unspecified, Severity::Info, Severity::Warning, Severity::Error]
                .map(|severity| is_severe(&of(severity), least))
        };
        assert_eq!(passed(EventSeverity::Info), [true; 4]);
        assert_eq!(passed(EventSeverity::Warning), [true, false, true, true]);
        assert_eq!(passed(EventSeverity::Error), [true, false, false, true]);
    }
}
