//! Reads the content of the screen from the server: periodic snapshots, and changes as they happen.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_api::v1::{ListBitstreamsRequest, ListDagsRequest, WatchDagsRequest, WatchRegionsRequest};
use tokio::sync::mpsc;
use tonic::Code;

use super::model::{Feed, PolledState};
use snic_client::lists::{self, PAGE_SIZE, pages};
use snic_client::{Client, Failure, call, follow};

/// Pause before a watch that has ended is restarted.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Reads until the receiver is dropped.
pub async fn read(client: &Client, interval: Duration, feeds: mpsc::Sender<Feed>) {
    tokio::join!(poll(client, interval, &feeds), regions(client, &feeds), dags(client, &feeds));
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
        Err(Failure::Api(status)) if status.code() == Code::PermissionDenied => Default::default(),
        Err(error) => return Err(error),
    };
    Ok(PolledState { cards, regions, dags, bitstream_bytes })
}

async fn poll(client: &Client, interval: Duration, feeds: &mpsc::Sender<Feed>) {
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        let feed = match snapshot(client).await {
            Ok(snapshot) => Feed::Snapshot(Box::new(snapshot)),
            Err(error) => Feed::Lost(error.to_string()),
        };
        if feeds.send(feed).await.is_err() {
            return;
        }
    }
}

async fn regions(client: &Client, feeds: &mpsc::Sender<Feed>) {
    let open = async |resume_revision| {
        let request = WatchRegionsRequest { parent: "cards/-".into(), resume_revision };
        Ok(client.cards().watch_regions(request).await?.into_inner())
    };
    while !feeds.is_closed() {
        let take = |event: snic_api::v1::WatchRegionsResponse| {
            let kind = event.r#type();
            if let Some(region) = event.region {
                // If the channel is full, the change arrives with the next snapshot.
                let _ = feeds.try_send(Feed::Region(kind, Box::new(region)));
            }
            Ok(event.revision)
        };
        match follow(client, open, take).await {
            Err(Failure::Api(status)) if status.code() == Code::PermissionDenied => return,
            // The poll reports that the server does not answer.
            Ok(()) | Err(_) => tokio::time::sleep(RESTART_PAUSE).await,
        }
    }
}

async fn dags(client: &Client, feeds: &mpsc::Sender<Feed>) {
    let open = async |resume_revision| {
        let request = WatchDagsRequest { parent: "tenants/-".into(), resume_revision };
        Ok(client.dags().watch_dags(request).await?.into_inner())
    };
    while !feeds.is_closed() {
        let take = |event: snic_api::v1::WatchDagsResponse| {
            let kind = event.r#type();
            if let Some(dag) = event.dag {
                // As above.
                let _ = feeds.try_send(Feed::Dag(kind, Box::new(dag)));
            }
            Ok(event.revision)
        };
        // The poll reports that the server does not answer.
        let _ = follow(client, open, take).await;
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}
