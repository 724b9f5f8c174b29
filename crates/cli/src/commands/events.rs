//! `snicctl events`.

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
/// then on, too.
pub async fn run(session: &mut CliSession, go_on: bool, selected: Selected) -> Result<(), Failure> {
    let client = session.client()?;
    if !go_on {
        let mut events = all(&client, &selected).await?;
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
        session.output.event(&change, views::event_change)?;
        Ok(change.revision)
    })
    .await
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
