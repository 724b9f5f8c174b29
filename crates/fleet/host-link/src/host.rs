//! Requests of the link to its host.

use std::collections::BTreeMap;

use http::Response;
use snic_api::fleet_v1::AnswerResponse;
use snic_controller::{AssignedDag, FleetChange, ProvisionName};
use snic_domain::{Bitstream, BitstreamId, CardId, DagName, FunctionUse};
use snic_fleet::protocol::{Attachments, CardFaults, Epoch, HostPolicies, Numbered, PolicyFiles};
use tonic::Status;
use tonic::body::Body;

use crate::tls::LinkTls;

/// Why the host did not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostFailure {
    /// The controller refuses it, with the reason.
    #[error("{0}")]
    Refused(String),
    /// It can be tried again later.
    #[error("{0}")]
    Unavailable(String),
}

/// The host, as the link needs it. What it says is durable.
#[tonic::async_trait]
pub trait LinkedHost: Send + Sync + 'static {
    /// The certificates of a new link; read again for each.
    ///
    /// # Errors
    /// They cannot be read.
    async fn tls(&self) -> Result<LinkTls, HostFailure>;

    /// The highest epoch that was remembered; the lowest one at first.
    ///
    /// # Errors
    /// It cannot be read.
    async fn epoch(&self) -> Result<Epoch, HostFailure>;

    /// Remembers an epoch.
    ///
    /// # Errors
    /// It may or may not be stored.
    async fn remember(&self, epoch: Epoch) -> Result<(), HostFailure>;

    /// All DAGs that the fleet assigned.
    ///
    /// # Errors
    /// The controller does not answer.
    async fn assigned(&self) -> Result<Vec<(DagName, AssignedDag)>, HostFailure>;

    /// Progress of these DAGs; `None` where there is no such DAG of the fleet.
    ///
    /// # Errors
    /// The controller does not answer.
    async fn progress(
        &self,
        names: Vec<DagName>,
    ) -> Result<Vec<(DagName, Option<AssignedDag>)>, HostFailure>;

    /// Provisions of the fleet, with their numbers.
    ///
    /// # Errors
    /// The controller does not answer.
    async fn provisions(&self) -> Result<Vec<(ProvisionName, u64)>, HostFailure>;

    /// Asks the controller for a change. The same one again is as good as once.
    ///
    /// # Errors
    /// The controller refuses it or does not answer.
    async fn change(&self, change: FleetChange) -> Result<(), HostFailure>;

    /// A bitstream, whoever registered it.
    ///
    /// # Errors
    /// The controller does not answer.
    async fn bitstream(&self, id: BitstreamId) -> Result<Option<Bitstream>, HostFailure>;

    /// Checks the bytes of one of a bitstream's images as an upload is checked, keeps them and registers the bitstream
    /// under the fleet's number. The host has the bytes of all its other images.
    ///
    /// # Errors
    /// The image is not what the bitstream says, or as for [`LinkedHost::change`].
    async fn register(
        &self,
        bitstream: Bitstream,
        number: u64,
        image: Vec<u8>,
    ) -> Result<(), HostFailure>;

    /// The fleet's policies that it looked at, and whether they are in force.
    ///
    /// # Errors
    /// They cannot be read.
    async fn policies(&self) -> Result<HostPolicies, HostFailure>;

    /// Checks policies, stores them and puts them in force, or refuses them in what it returns. The same ones again are as
    /// good as once.
    ///
    /// # Errors
    /// They cannot be stored; those before are still in force.
    async fn set_policies(&self, files: Numbered<PolicyFiles>)
    -> Result<HostPolicies, HostFailure>;

    /// Whatever leads packets to DAGs of the fleet.
    ///
    /// # Errors
    /// The controller does not answer.
    async fn attachments(&self) -> Result<Attachments, HostFailure>;

    /// Functions that machines have, and reservations that its controller keeps.
    ///
    /// # Errors
    /// The controller does not answer.
    async fn functions(&self) -> Result<FunctionUse, HostFailure>;

    /// Faults that keep its cards from taking anything; cards without a fault are left out.
    ///
    /// # Errors
    /// The controller does not answer.
    async fn faults(&self) -> Result<BTreeMap<CardId, CardFaults>, HostFailure>;

    /// Carries out a call of the host's API that the fleet passes on, as if its caller had called the host. Dropping the
    /// reply ends it. A host without an API says so.
    async fn answer(&self, call: AnswerResponse) -> Response<Body> {
        let text = format!("{:.200}: this host answers no calls", call.path);
        Status::unimplemented(text).into_http()
    }
}
