//! Reads and changes of the link to a fleet.

use std::collections::BTreeMap;

use snic_controller::{
    AssignedDag, CardHealth, CardView, Command, Controller, FleetChange, Provision, ProvisionName,
    Reply, Request,
};
use snic_domain::{
    Bitstream, BitstreamId, Caller, CardId, DagAttachments, DagName, Digest, FunctionUse, NtType,
    NtTypeId, RegionId, RegionState,
};
use snic_front::share::{CallerFlow, CallerLevel};

use super::{ControlPlane, ShellError};

/// DAGs that are read together: a read on the controller's thread has a bound.
const DAGS_READ_MAX: usize = 256;

/// Faults that keep a card from taking anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutOfUse {
    /// The card does not answer.
    pub is_lost: bool,
    /// Regions that failed.
    pub faulty: Vec<RegionId>,
    /// Regions that an operator keeps new DAGs off.
    pub cordoned: Vec<RegionId>,
}

impl ControlPlane {
    /// All DAGs that the fleet assigned.
    ///
    /// # Errors
    /// The control plane has ended, or too many calls wait.
    pub async fn assigned_dags(&self) -> Result<Vec<(DagName, AssignedDag)>, ShellError> {
        let mut all: Vec<(DagName, AssignedDag)> = Vec::new();
        loop {
            let after = all.last().map(|(name, _)| name.clone());
            let piece = move |controller: &Controller| -> Vec<_> {
                controller.assigned_after(after.as_ref()).take(DAGS_READ_MAX).collect()
            };
            let piece = self.read_for_fleet(piece).await?;
            let is_last = piece.len() < DAGS_READ_MAX;
            all.extend(piece);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// These DAGs, as far as the fleet assigned them.
    ///
    /// # Errors
    /// The control plane has ended, or too many calls wait.
    pub async fn assigned(
        &self,
        names: Vec<DagName>,
    ) -> Result<Vec<(DagName, Option<AssignedDag>)>, ShellError> {
        self.read_for_fleet(move |controller| {
            let of = |name: DagName| (name.clone(), controller.assigned(&name));
            names.into_iter().map(of).collect()
        })
        .await
    }

    /// Whatever leads packets to DAGs that the fleet assigned.
    ///
    /// # Errors
    /// The control plane has ended, or too many calls wait.
    pub async fn attachments(&self) -> Result<BTreeMap<DagName, DagAttachments>, ShellError> {
        self.read_for_fleet(Controller::attachments).await
    }

    /// Use of the host's functions by machines and reservations of the fleet.
    ///
    /// # Errors
    /// The control plane has ended, or too many calls wait.
    pub async fn function_use(&self) -> Result<FunctionUse, ShellError> {
        self.read_for_fleet(Controller::function_use).await
    }

    /// Provisions of the fleet, with their numbers.
    ///
    /// # Errors
    /// The control plane has ended, or too many calls wait.
    pub async fn provisions(&self) -> Result<Vec<(ProvisionName, u64)>, ShellError> {
        self.read_for_fleet(Controller::provisions).await
    }

    /// The NT types of a bitstream, in order; without those that are not registered.
    ///
    /// # Errors
    /// The control plane has ended, or too many calls wait.
    pub async fn nt_types_of(&self, nts: Vec<NtTypeId>) -> Result<Vec<NtType>, ShellError> {
        self.read_for_fleet(move |controller| {
            let of = |id: &NtTypeId| controller.nt_type(&fleet(), id).map(|view| view.nt);
            nts.iter().filter_map(of).collect()
        })
        .await
    }

    /// Faults of all cards that were ever seen.
    ///
    /// # Errors
    /// The control plane has ended, or too many calls wait.
    pub async fn out_of_use(&self) -> Result<BTreeMap<CardId, OutOfUse>, ShellError> {
        self.read_for_fleet(|controller| {
            let of = |view: CardView| {
                let is_lost = matches!(view.health, CardHealth::Lost(_));
                let is_faulty = |(_, state): &(_, RegionState)| *state == RegionState::Faulty;
                let faulty = view.regions.into_iter().filter(is_faulty);
                let faulty = faulty.map(|(region, _)| region).collect();
                (view.card, OutOfUse { is_lost, faulty, cordoned: view.cordoned })
            };
            controller.cards().map(of).collect()
        })
        .await
    }

    /// Carries out a change that the fleet asks for.
    ///
    /// # Errors
    /// As [`ControlPlane::request`].
    pub async fn change_for_fleet(&self, change: FleetChange) -> Result<Reply, ShellError> {
        self.request(request(change)).await
    }

    /// A bitstream, whoever registered it.
    ///
    /// # Errors
    /// As [`ControlPlane::request`].
    pub async fn bitstream_of(&self, id: BitstreamId) -> Result<Option<Bitstream>, ShellError> {
        self.read_for_fleet(move |controller| {
            controller.bitstream(&fleet(), &id).map(|view| view.bitstream)
        })
        .await
    }

    /// Stores an image of a bitstream of the fleet, which was checked, and registers the bitstream.
    ///
    /// # Errors
    /// As [`ControlPlane::register_bitstream`].
    pub async fn provide_bitstream(
        &self,
        bitstream: Bitstream,
        number: u64,
        (digest, image): (Digest, Vec<u8>),
    ) -> Result<Reply, ShellError> {
        let what = Box::new(Provision::Bitstream(bitstream));
        self.keep_bytes(digest, image, request(FleetChange::Provide { what, number })).await
    }

    async fn read_for_fleet<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Controller) -> T + Send + 'static,
    ) -> Result<T, ShellError> {
        self.read(CallerLevel::Operators, CallerFlow::from(&fleet()), query).await
    }
}

/// Caller of the fleet; its share of the controller's time is that of an operator.
fn fleet() -> Caller {
    Caller::Operator("fleet".to_owned())
}

fn request(change: FleetChange) -> Request {
    Request { caller: fleet(), request_id: None, command: Command::Fleet(change) }
}
