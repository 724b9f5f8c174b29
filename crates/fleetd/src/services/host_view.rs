//! What only its host knows of a DAG: how it is mapped there, what it may send, and its traffic.

use std::time::Duration;

use prost::Message as _;
use snic_api::fleet_v1::AnswerResponse;
use snic_api::fleet_v1::call_host_response::Part;
use snic_api::v1;
use snic_controller::Caller;
use snic_fleet::protocol::FleetDag;
use snic_front::gate::Passage;
use snic_front::share::{CallerFlow, CallerLevel};
use tokio_stream::StreamExt as _;

use super::{Services, serving_host};
use crate::passing::{PREFIX_BYTES, millis};

const GET_DAG: &str = "/snic.control.v1.DagService/GetDag";
/// How long a read of a DAG waits for its host.
const HOST_MAX: Duration = Duration::from_secs(1);

impl Services {
    /// Adds what a DAG's host says of it. Without an answer soon, or with too many calls of this caller under way, the DAG
    /// is as the fleet knows it.
    pub(super) async fn seen_by_its_host(
        &self,
        passage: &Passage,
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
                ..dag
            },
            None => dag,
        }
    }

    async fn host_view(
        &self,
        passage: &Passage,
        of: &FleetDag,
        caller: &Caller,
    ) -> Option<v1::Dag> {
        let host = serving_host(of)?;
        let places = &self.0.passed;
        let _place = places.enter(CallerLevel::of(caller), CallerFlow::from(caller)).ok()?;
        let asked = v1::GetDagRequest { name: of.name.to_string() }.encode_to_vec();
        let mut message = vec![0];
        message.extend(u32::try_from(asked.len()).ok()?.to_be_bytes());
        message.extend(asked);
        let (path, caller) = (GET_DAG.to_owned(), passage.identity().to_string());
        let call = AnswerResponse { path, caller, message, timeout_ms: millis(HOST_MAX) };
        let mut parts = self.call_host(host, call).await.ok()?;
        let mut reply = Vec::new();
        while let Some(Ok(part)) = parts.next().await {
            match part.part? {
                Part::Data(data) => reply.extend(data),
                Part::End(end) => {
                    let whole = reply.get(PREFIX_BYTES..).filter(|_| end.code == 0)?;
                    return v1::GetDagResponse::decode(whole).ok()?.dag;
                }
            }
        }
        None
    }
}
