//! Reads a fleet's hosts: periodic lists, and changes as they happen.

use std::time::{Duration, Instant};

use snic_api::fleet_v1::{
    GetFleetRequest, GetFleetResponse, HostView, ListHostsRequest, Rebalance, WatchHostsRequest,
    WatchHostsResponse,
};
use snic_api::text::escaped;
use snic_client::lists::{self, PAGE_SIZE, pages};
use snic_client::output::visible::shown;
use snic_client::{Client, Failure, call, follow};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tonic::Code;

use super::{FleetFeed, HostRow};
use crate::pace::{PROBE, RESTART_PAUSE};

/// The list is read for at most one of this many parts of the time, however many hosts there are.
const LIST_SHARE: u32 = 10;

/// Whether a fleet answers, and lets the caller look at it. Tenants of a fleet see their DAGs as at a daemon.
///
/// # Errors
/// [`Failure`]: nobody answers.
pub async fn is_fleet(client: &Client) -> Result<bool, Failure> {
    match call!(client, fleet.get_fleet, GetFleetRequest {}) {
        Ok(_) => Ok(true),
        Err(Failure::Api(status))
            if matches!(status.code(), Code::Unimplemented | Code::PermissionDenied) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Reads the state of the fleet.
///
/// # Errors
/// [`Failure`] of a request.
pub async fn status(client: &Client) -> Result<(GetFleetResponse, Option<Rebalance>), Failure> {
    let fleet = call!(client, fleet.get_fleet, GetFleetRequest {})?;
    Ok((shown(fleet), lists::rebalance(client).await?.map(shown)))
}

/// All hosts.
///
/// # Errors
/// [`Failure`] of a request.
pub async fn hosts(client: &Client) -> Result<Vec<HostRow>, Failure> {
    pages(async |page_token| {
        let view = HostView::Basic.into();
        let request = ListHostsRequest { page_size: PAGE_SIZE, page_token, view };
        let reply = call!(client, fleet.list_hosts, request)?;
        let rows = reply.hosts.iter().map(|host| HostRow::of(host, true));
        Ok((rows.collect(), reply.next_page_token))
    })
    .await
}

/// Reads until the receiver is dropped.
pub async fn read(client: &Client, interval: Duration, feeds: mpsc::Sender<FleetFeed>) {
    tokio::join!(
        poll(client, interval, &feeds),
        changes(client, &feeds),
        statuses(client, interval, &feeds),
        probe(client, &feeds),
    );
}

/// Reads all hosts again and again: only the list has the number of their DAGs.
async fn poll(client: &Client, interval: Duration, feeds: &mpsc::Sender<FleetFeed>) {
    loop {
        let begun = Instant::now();
        let feed = match hosts(client).await {
            Ok(hosts) => FleetFeed::Hosts(hosts),
            Err(error) => FleetFeed::Lost(escaped(&error.to_string()).into_owned()),
        };
        let took = begun.elapsed();
        if feeds.send(feed).await.is_err() {
            return;
        }
        tokio::time::sleep(interval.max(took * LIST_SHARE)).await;
    }
}

async fn changes(client: &Client, feeds: &mpsc::Sender<FleetFeed>) {
    let open = async |resume_revision| {
        let request = WatchHostsRequest { resume_revision, view: HostView::Basic.into() };
        snic_client::open!(client, fleet.watch_hosts, request)
    };
    while !feeds.is_closed() {
        let take = |event: WatchHostsResponse| {
            if let Some(host) = &event.host {
                // If the channel is full, the change arrives with the next list.
                let _ = feeds.try_send(FleetFeed::Host(event.r#type(), HostRow::of(host, false)));
            }
            Ok(event.revision)
        };
        // The poll reports that the fleet does not answer.
        let _ = follow(client, open, take).await;
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

async fn statuses(client: &Client, interval: Duration, feeds: &mpsc::Sender<FleetFeed>) {
    while !feeds.is_closed() {
        // The poll reports errors.
        if let Ok(status) = status(client).await {
            let _ = feeds.try_send(FleetFeed::Status(Box::new(status)));
        }
        tokio::time::sleep(interval).await;
    }
}

/// Asks for little, and often: the leader answers, as for all that the screen shows.
async fn probe(client: &Client, feeds: &mpsc::Sender<FleetFeed>) {
    let mut ticks = tokio::time::interval(PROBE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !feeds.is_closed() {
        ticks.tick().await;
        if call!(client, fleet.get_fleet, GetFleetRequest {}).is_ok() {
            let _ = feeds.try_send(FleetFeed::Alive);
        }
    }
}
