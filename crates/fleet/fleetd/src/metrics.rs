//! The metrics page for Prometheus. It needs no identity; it has no names of tenants, and is off by default.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::routing::get;
use snic_fleet::protocol::{FleetGauges, HostCondition};
use snic_telemetry::metrics::{
    LeaderGauges, audit_reading, publish, replica_readings, revocation_readings,
};
use snic_telemetry::{Telemetry, process_readings};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::runner::{Leadership, RunnerHandle};

/// Gauges of the leader, in the words of metrics.
fn gauges(of: &FleetGauges) -> LeaderGauges {
    let count = |condition| of.hosts.get(&condition).copied().unwrap_or_default();
    LeaderGauges {
        hosts: [
            ("IN_STEP", count(HostCondition::InStep)),
            ("BEHIND", count(HostCondition::Behind)),
            ("SUSPECTED", count(HostCondition::Suspected)),
            ("LOST", count(HostCondition::Lost)),
        ],
        is_evacuation_held: of.is_evacuation_held,
        waiting: of.waiting,
        failed: of.failed,
        moving: of.moving,
        calls: of.calls,
        steps: of.steps,
        reservations: of.reservations,
        budgets: [
            ("WARNED", of.budgets_warned),
            ("REACHED", of.budgets_reached),
            ("UNKNOWN", of.budgets_unknown),
        ],
    }
}

/// Where the page is served, and what is on it.
#[derive(Debug)]
pub struct MetricsPage {
    /// The bound listener.
    pub listener: TcpListener,
    /// The exporters of this process.
    pub telemetry: Arc<Telemetry>,
}

impl MetricsPage {
    /// Serves `/metrics` until `stopping`.
    pub(crate) async fn serve(self, replica: RunnerHandle, mut stopping: watch::Receiver<bool>) {
        let Self { listener, telemetry } = self;
        let page = move |headers: HeaderMap| {
            let refusal = replica.refusal();
            let leads = *replica.leadership().borrow() == Leadership::Own;
            let reason = refusal.as_ref().map(|of| of.reason.as_str());
            let mut readings = process_readings();
            readings.extend(replica_readings(reason, leads));
            readings.extend(replica.gauges().iter().flat_map(|of| gauges(of).readings()));
            readings.extend(revocation_readings());
            readings.push(audit_reading());
            publish(readings);
            let accept = headers.get("accept").and_then(|accept| accept.to_str().ok());
            let (format, text) = telemetry.exposition(accept);
            std::future::ready(([("content-type", format)], text))
        };
        let router = axum::Router::new().route("/metrics", get(page));
        let stopped = async move {
            // Its sender goes with the server.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        };
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
            tracing::error!(%error, "the metrics server stopped");
        }
    }
}
