//! Reads the content of the screen from the server: periodic snapshots, and changes as they happen.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_api::v1::{
    DiagnoseDagRequest, Event, ListBitstreamsRequest, ListDagsRequest, ListEventsRequest,
    WatchDagsRequest, WatchRegionsRequest,
};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;
use tonic::Code;

use super::hosts::feed::is_fleet;
use super::model::{Feed, PolledState};
use super::pace::{PROBE, RESTART_PAUSE};
use snic_client::lists::{self, PAGE_SIZE, pages};
use snic_client::output::visible::shown;
use snic_client::{Client, Failure, call, follow};

/// Events that are read at once: what a screen shows, and some to scroll.
const EVENTS_READ: i32 = 200;
/// Reads until the receiver is dropped; of the `opened` DAG its diagnosis too. Ends at once where a fleet answers that the
/// caller may look at, unless one of its hosts is asked.
pub async fn read(
    client: &Client,
    interval: Duration,
    opened: watch::Receiver<Option<String>>,
    feeds: mpsc::Sender<Feed>,
) {
    while client.host().is_none() {
        match is_fleet(client).await {
            Ok(true) => return,
            Ok(false) => break,
            Err(error) => {
                if feeds.send(Feed::lost(&error)).await.is_err() {
                    return;
                }
                tokio::time::sleep(interval).await;
            }
        }
    }
    tokio::join!(
        poll(client, interval, &feeds),
        regions(client, &feeds),
        dags(client, &feeds),
        events(client, interval, &feeds),
        probe(client, &feeds),
        diagnosis(client, interval, opened, &feeds)
    );
}

/// Asks for little, and often: a server that hangs answers nothing. The answer comes from the controller, as all that
/// the screen shows.
async fn probe(client: &Client, feeds: &mpsc::Sender<Feed>) {
    let mut ticks = tokio::time::interval(PROBE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !feeds.is_closed() {
        ticks.tick().await;
        let parent = "tenants/-".to_owned();
        let request = ListDagsRequest { parent, page_size: 1, ..ListDagsRequest::default() };
        // The poll reports errors.
        if call!(client, dags.list_dags, request).is_ok() {
            let _ = feeds.try_send(Feed::Alive);
        }
    }
}

/// Reads the last events that the server keeps, then those that are new since.
async fn events(client: &Client, interval: Duration, feeds: &mpsc::Sender<Feed>) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    while !feeds.is_closed() {
        ticks.tick().await;
        let request = ListEventsRequest { page_size: EVENTS_READ, ..Default::default() };
        // The poll reports errors.
        let Ok(reply) = call!(client, events.list_events, request) else { continue };
        for event in new_events(reply.events, &mut last) {
            if feeds.send(Feed::Event(Box::new(shown(event)))).await.is_err() {
                return;
            }
        }
    }
}

/// The events behind the `last` number, the oldest first. A server that was restarted counts from the beginning.
fn new_events(latest_first: Vec<Event>, last: &mut Option<u64>) -> Vec<Event> {
    let newest = latest_first.first().map(|event| event.number);
    let before = last.filter(|last| newest.is_some_and(|newest| newest >= *last));
    *last = newest.or(*last);
    let is_new = |event: &Event| before.is_none_or(|before| event.number > before);
    let mut new: Vec<Event> = latest_first.into_iter().filter(is_new).collect();
    new.reverse();
    new
}

/// Reads the diagnosis of the opened DAG when it is opened, and again after each interval.
async fn diagnosis(
    client: &Client,
    interval: Duration,
    mut opened: watch::Receiver<Option<String>>,
    feeds: &mpsc::Sender<Feed>,
) {
    while !feeds.is_closed() {
        let name = opened.borrow_and_update().clone();
        if let Some(name) = name {
            let request = DiagnoseDagRequest { name };
            // The poll reports that the server does not answer; older servers have no diagnosis.
            if let Ok(found) = call!(client, dags.diagnose_dag => diagnosis, request) {
                let _ = feeds.try_send(Feed::Diagnosis(Box::new(shown(found))));
            }
        }
        // Whichever comes first: another DAG is opened, or it is time to read again.
        if let Ok(Err(_)) = tokio::time::timeout(interval, opened.changed()).await {
            return; // The screen is gone.
        }
    }
}

/// Reads everything once.
///
/// # Errors
/// [`Failure`] of a request. A caller without access to cards gets a snapshot without them.
pub async fn snapshot(client: &Client) -> Result<PolledState, Failure> {
    let all = pages(async |page_token| {
        let parent = "tenants/-".to_owned();
        let request = ListDagsRequest {
            parent,
            page_size: PAGE_SIZE,
            page_token,
            ..ListDagsRequest::default()
        };
        let reply = call!(client, dags.list_dags, request)?;
        Ok((reply.dags, reply.next_page_token))
    });
    let dags = all.await?;
    let bitstreams = pages(async |page_token| {
        let request = ListBitstreamsRequest {
            page_size: PAGE_SIZE,
            page_token,
            ..ListBitstreamsRequest::default()
        };
        let reply = call!(client, bitstreams.list_bitstreams, request)?;
        Ok((reply.bitstreams, reply.next_page_token))
    });
    let sizes = bitstreams.await?.into_iter().map(|b| (b.name, b.size_bytes));
    let bitstream_bytes: BTreeMap<String, u64> = sizes.collect();
    let (cards, regions) = match lists::cards(client).await {
        Ok(cards) => (cards, lists::regions(client, "cards/-").await?),
        // Tenants see their DAGs but no map.
        Err(Failure::Api(status)) if has_no_map(&status) => Default::default(),
        Err(error) => return Err(error),
    };
    Ok(PolledState {
        cards: cards.into_iter().map(shown).collect(),
        regions: regions.into_iter().map(shown).collect(),
        dags: dags.into_iter().map(shown).collect(),
        bitstream_bytes,
    })
}

/// Whether the caller has no access to cards, or a fleet answers, which has none.
fn has_no_map(status: &tonic::Status) -> bool {
    matches!(status.code(), Code::PermissionDenied | Code::Unimplemented)
}

async fn poll(client: &Client, interval: Duration, feeds: &mpsc::Sender<Feed>) {
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        let feed = match snapshot(client).await {
            Ok(snapshot) => Feed::Snapshot(Box::new(snapshot)),
            Err(error) => Feed::lost(&error),
        };
        if feeds.send(feed).await.is_err() {
            return;
        }
    }
}

async fn regions(client: &Client, feeds: &mpsc::Sender<Feed>) {
    let open = async |resume_revision| {
        let request = WatchRegionsRequest { parent: "cards/-".into(), resume_revision };
        snic_client::open!(client, cards.watch_regions, request)
    };
    while !feeds.is_closed() {
        let take = |event: snic_api::v1::WatchRegionsResponse| {
            let kind = event.r#type();
            if let Some(region) = event.region {
                // If the channel is full, the change arrives with the next snapshot.
                let _ = feeds.try_send(Feed::Region(kind, Box::new(shown(region))));
            }
            Ok(event.revision)
        };
        match follow(client, open, take).await {
            Err(Failure::Api(status)) if has_no_map(&status) => return,
            // The poll reports that the server does not answer.
            Ok(()) | Err(_) => tokio::time::sleep(RESTART_PAUSE).await,
        }
    }
}

async fn dags(client: &Client, feeds: &mpsc::Sender<Feed>) {
    let open = async |resume_revision| {
        let request = WatchDagsRequest { parent: "tenants/-".into(), resume_revision };
        snic_client::open!(client, dags.watch_dags, request)
    };
    while !feeds.is_closed() {
        let take = |event: snic_api::v1::WatchDagsResponse| {
            let kind = event.r#type();
            if let Some(dag) = event.dag {
                // As above.
                let _ = feeds.try_send(Feed::Dag(kind, Box::new(shown(dag))));
            }
            Ok(event.revision)
        };
        // The poll reports that the server does not answer.
        let _ = follow(client, open, take).await;
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_new_once_and_a_restarted_server_counts_again() {
        let events = |numbers: &[u64]| -> Vec<Event> {
            numbers.iter().map(|number| Event { number: *number, ..Event::default() }).collect()
        };
        let mut last = None;
        let mut new = |latest_first: &[u64]| -> Vec<u64> {
            let new = new_events(events(latest_first), &mut last);
            new.iter().map(|event| event.number).collect()
        };
        assert_eq!(new(&[]), [0; 0]);
        assert_eq!(new(&[3, 2, 1]), [1, 2, 3]);
        assert_eq!(new(&[3, 2, 1]), [0; 0]);
        assert_eq!(new(&[5, 4, 3]), [4, 5]);
        assert_eq!(new(&[2, 1]), [1, 2], "restarted");
        assert_eq!(new(&[3, 2, 1]), [3]);
    }
}
