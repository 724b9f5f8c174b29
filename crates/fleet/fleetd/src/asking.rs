//! Asks whoever leads: this replica, or another one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use snic_api::error::reason_of;
use snic_api::fleet_v1::replica_service_client::ReplicaServiceClient;
use snic_api::fleet_v1::{AnswerResponse, AskRequest, CallHostRequest};
use snic_fleet::HostId;
use snic_fleet::protocol::{Denied, Epoch, FleetAsk, FleetReply};
use tokio::sync::watch;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

use crate::METHODS;
use crate::calls::{HostCalls, Parts};
use crate::error::of_denied;
use crate::links::HostLinks;
use crate::runner::{Leadership, RunnerHandle};

/// Time that a request waits for a leader: longer than an election takes.
const LEADER_WAIT: Duration = Duration::from_secs(5);
/// Interval between looks for a leader.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Longest time to make a connection to another replica.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Longest time for an answer of another replica, beside the caller's own deadline.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Longest time until a host that is linked to another replica has begun its answer: longer than that replica waits
/// for the host.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Largest answer of another replica: a page of records has about one MiB.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The way to the leader.
#[derive(Debug)]
pub(crate) struct LeaderClient {
    own: RunnerHandle,
    channels: Mutex<Channels>,
}

/// Connections to other replicas.
#[derive(Debug)]
struct Channels {
    /// Certificate that this replica presents to them; it may be replaced.
    tls: watch::Receiver<ClientTlsConfig>,
    /// Channels by address. An election has few candidates, and those that are gone leave no more than a name.
    by_address: BTreeMap<String, Channel>,
}

impl LeaderClient {
    pub fn new(own: RunnerHandle, tls: watch::Receiver<ClientTlsConfig>) -> Self {
        let channels = Channels { tls, by_address: BTreeMap::new() };
        Self { own, channels: Mutex::new(channels) }
    }

    /// Leader, if one is known.
    pub fn leadership(&self) -> Leadership {
        self.own.leadership().borrow().clone()
    }

    /// The replica here.
    pub const fn own(&self) -> &RunnerHandle {
        &self.own
    }

    /// Leader. Where there is none, or it is the leader of an epoch that a host has lost, waits for the next one for a while.
    pub async fn leadership_after(&self, lost: Option<Epoch>) -> Leadership {
        let mut told = self.own.leadership();
        let is_next = |now: &Leadership| match now {
            Leadership::Own => true,
            Leadership::Nobody => false,
            Leadership::Other { epoch, .. } => Some(*epoch) != lost,
        };
        // Without a next one the last one is told; its sender lives as long as this replica.
        let _ = tokio::time::timeout(LEADER_WAIT, told.wait_for(is_next)).await;
        self.leadership()
    }

    /// Asks the leader. Where nobody leads, or the leader was lost and the request may be sent again, it waits for one for
    /// a while.
    ///
    /// # Errors
    /// [`Denied`].
    pub async fn ask(&self, ask: FleetAsk) -> Result<FleetReply, Denied> {
        let until = Instant::now() + LEADER_WAIT;
        loop {
            let asked = match self.leadership() {
                Leadership::Own => self.own.ask(ask.clone()).await,
                Leadership::Other { address, .. } => self.ask_at(&address, &ask).await,
                Leadership::Nobody => Err(Denied::NotLeader),
            };
            // Nobody can be elected while etcd refuses to write, and a read waits for whoever stood before.
            let refusal = self.own.refusal().filter(|_| asked == Err(Denied::NotLeader));
            if let Some(refusal) = refusal
                && (!ask.changes_nothing() || Instant::now() >= until)
            {
                return Err(Denied::StoreRefuses(refusal));
            }
            let may_be_sent_again = match &asked {
                Err(Denied::NotLeader) => true,
                // A number makes sure that it is carried out once.
                Err(Denied::Open) => ask.id.is_some() || ask.command.only_reads(),
                _ => false,
            };
            if !may_be_sent_again || Instant::now() >= until {
                return asked;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn ask_at(&self, address: &str, ask: &FleetAsk) -> Result<FleetReply, Denied> {
        let channel = self.channel(address)?;
        let body = serde_json::to_vec(ask).map_err(|error| Denied::Invalid(error.to_string()))?;
        let mut client =
            ReplicaServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        let mut request = tonic::Request::new(AskRequest { ask: body });
        request.set_timeout(ANSWER_MAX);
        match client.ask(request).await {
            Ok(reply) => {
                let outcome = &reply.get_ref().outcome;
                serde_json::from_slice(outcome).unwrap_or_else(|error| {
                    tracing::error!(address, %error, "the leader's answer cannot be read");
                    Err(Denied::Open)
                })
            }
            Err(status) => {
                tracing::debug!(address, %status, "the leader did not answer");
                Err(failed(&status))
            }
        }
    }

    /// Passes a call on to a host that is linked to whoever leads: to this replica, over `own`, or to another one.
    ///
    /// # Errors
    /// The host does not answer, or nobody leads.
    pub async fn call_host(
        &self,
        (calls, links): (&HostCalls, &HostLinks),
        host: &HostId,
        call: AnswerResponse,
    ) -> Result<Parts, Status> {
        let address = match self.leadership() {
            Leadership::Own => return Ok(calls.call(links, host, call).await?),
            Leadership::Nobody => return Err(of_denied(Denied::NotLeader).into()),
            Leadership::Other { address, .. } => address,
        };
        let channel = self.channel(&address).map_err(of_denied)?;
        let mut client = ReplicaServiceClient::new(channel)
            .max_decoding_message_size(ANSWER_BYTES_MAX)
            .max_encoding_message_size(ANSWER_BYTES_MAX);
        // A change may have been made where the answer is lost on the way.
        let changes = METHODS.find(&call.path).is_some_and(|row| row.changes());
        let lost = if changes { Denied::Open } else { Denied::NotLeader };
        let request = CallHostRequest { host: host.to_string(), call: Some(call) };
        let called = tokio::time::timeout(CALL_MAX, client.call_host(request)).await;
        let silent = || Status::unavailable("the leader is silent");
        match called.unwrap_or_else(|_| Err(silent())) {
            Ok(parts) => Ok(Box::pin(parts.into_inner())),
            // What the leader says of the host is for the caller; what is between replicas is not.
            Err(status) if reason_of(&status).is_some() => Err(status),
            Err(status) => {
                tracing::debug!(address, %status, "the leader did not pass a call on");
                Err(of_denied(lost).into())
            }
        }
    }

    fn channel(&self, address: &str) -> Result<Channel, Denied> {
        let mut channels = self.channels.lock();
        // Without a sender nothing is replaced any more.
        if channels.tls.has_changed().unwrap_or(false) {
            channels.by_address.clear();
        }
        let tls = channels.tls.borrow_and_update().clone();
        if let Some(channel) = channels.by_address.get(address) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(address.to_owned());
        let endpoint = endpoint.and_then(|endpoint| endpoint.tls_config(tls));
        let endpoint = endpoint.map_err(|error| {
            tracing::error!(address, %error, "the leader's address cannot be used");
            Denied::NotLeader
        })?;
        let channel = endpoint.connect_timeout(CONNECT_MAX).connect_lazy();
        channels.by_address.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// Meaning of a failed call for the request: certainly not done, or open.
fn failed(status: &Status) -> Denied {
    use std::error::Error as _;
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return Denied::NotLeader;
        }
        cause = error.source();
    }
    match status.code() {
        // The other replica's front refused it before anybody read it.
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::Unimplemented
        | Code::ResourceExhausted => Denied::NotLeader,
        _ => Denied::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_may_have_arrived_is_open() {
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled, Code::Unknown] {
            assert_eq!(failed(&Status::new(code, "")), Denied::Open, "{code:?}");
        }
        assert_eq!(failed(&Status::new(Code::PermissionDenied, "")), Denied::NotLeader);
    }
}
