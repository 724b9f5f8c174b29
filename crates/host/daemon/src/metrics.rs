//! The metrics page for Prometheus. It needs no identity and contains names of tenants and DAGs, so it is
//! off by default.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use snic_server::CardLinks;
use snic_server::shell::ControlPlane;
use snic_telemetry::{METRICS_INTERVAL, Telemetry};
use tokio::task::JoinHandle;

/// Refreshes the metrics that are pushed, until the task is aborted: twice per push interval, so that
/// no value is pushed twice.
pub fn keep_fresh(plane: ControlPlane, links: CardLinks) -> JoinHandle<()> {
    tokio::spawn(async move {
        while snic_server::observe::refresh(&plane, &links).await.is_ok() {
            tokio::time::sleep(METRICS_INTERVAL / 2).await;
        }
    })
}

/// Serves `/metrics` until the task is aborted.
pub async fn start(
    address: SocketAddr,
    telemetry: Arc<Telemetry>,
    plane: ControlPlane,
    links: CardLinks,
) -> Result<JoinHandle<()>> {
    let listener = tokio::net::TcpListener::bind(address);
    let listener = listener.await.with_context(|| format!("telemetry.prometheus: {address}"))?;
    let page = move |headers: HeaderMap| async move {
        match snic_server::observe::refresh(&plane, &links).await {
            Ok(()) => {
                let accept = headers.get("accept").and_then(|accept| accept.to_str().ok());
                let (format, text) = telemetry.exposition(accept);
                Ok(([("content-type", format)], text))
            }
            Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
        }
    };
    let router = axum::Router::new().route("/metrics", get(page));
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the metrics server stopped");
        }
    }))
}
