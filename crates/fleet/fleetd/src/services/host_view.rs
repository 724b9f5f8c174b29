//! Facts about a DAG that only its host knows: how it is mapped there, what it may send, and its traffic.

use std::time::Duration;

use snic_api::v1;
use snic_api::v1::dag_service_client::DagServiceClient;
use snic_domain::Caller;
use snic_fleet::protocol::FleetDag;
use snic_front::gate::CallAuthorizer;

use super::{Services, serving_host};
use crate::passing::HostTransport;

/// Time that a read of a DAG waits for its host.
const HOST_MAX: Duration = Duration::from_secs(1);

impl Services {
    /// Adds what a DAG's host says of it. Without an answer soon, or with too many calls of this caller under way, the DAG
    /// is as the fleet knows it.
    pub(super) async fn seen_by_its_host(
        &self,
        passage: &CallAuthorizer,
        (of, caller): (&FleetDag, &Caller),
        dag: v1::Dag,
    ) -> v1::Dag {
        let asked = tokio::time::timeout(HOST_MAX, self.host_view(passage, of, caller)).await;
        match asked.ok().flatten() {
            Some(seen) => v1::Dag {
                mapping: seen.mapping,
                rate_limit_bps: seen.rate_limit_bps,
                states: seen.states,
                traffic: seen.traffic,
                unserved_bps: seen.unserved_bps,
                shortfall_bps: seen.shortfall_bps,
                warnings: seen.warnings,
                ..dag
            },
            None => dag,
        }
    }

    async fn host_view(
        &self,
        passage: &CallAuthorizer,
        of: &FleetDag,
        caller: &Caller,
    ) -> Option<v1::Dag> {
        let (host, identity) = (serving_host(of)?.clone(), passage.identity().to_string());
        let transport = HostTransport::new(self.clone(), host, caller.clone(), identity);
        let request = v1::GetDagRequest { name: of.name.to_string() };
        DagServiceClient::new(transport).get_dag(request).await.ok()?.into_inner().dag
    }
}
