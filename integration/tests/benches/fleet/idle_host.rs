//! A host without cards that says at once that it serves what it was told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use snic_controller::{
    AppliedPlace, AssignedCard, AssignedDag, AssignmentProgress, FleetChange, Provision,
    ProvisionName,
};
use snic_domain::{
    Bitstream, BitstreamId, CardId, DagName, Form, FunctionUse, KeptForTenant, KeptState, Mapping,
};
use snic_fleet::protocol::{Attachments, CardFaults, Epoch, HostPolicies, Numbered, PolicyFiles};
use snic_host_link::{HostFailure, LinkTls, LinkedHost};

#[derive(Default)]
struct Stored {
    epoch: Epoch,
    dags: BTreeMap<DagName, AssignedCard>,
    provisions: BTreeMap<ProvisionName, u64>,
    policies: HostPolicies,
    kept: BTreeMap<u64, KeptState>,
}

/// In memory.
pub struct IdleHost {
    tls: LinkTls,
    stored: Mutex<Stored>,
}

impl IdleHost {
    pub fn new(tls: LinkTls) -> Arc<Self> {
        Arc::new(Self { tls, stored: Mutex::default() })
    }
}

fn served(to: &AssignedCard) -> AssignedDag {
    let mapping = Mapping {
        card: to.card.clone(),
        form: Form::Sequential,
        stages: Vec::new(),
        programs: Vec::new(),
    };
    let place = AppliedPlace { mapping, reservation: None };
    AssignedDag { to: to.clone(), progress: AssignmentProgress::Applied(Box::new(place)) }
}

#[tonic::async_trait]
impl LinkedHost for IdleHost {
    async fn tls(&self) -> Result<LinkTls, HostFailure> {
        Ok(self.tls.clone())
    }

    async fn epoch(&self) -> Result<Epoch, HostFailure> {
        Ok(self.stored.lock().unwrap().epoch)
    }

    async fn remember(&self, epoch: Epoch) -> Result<(), HostFailure> {
        self.stored.lock().unwrap().epoch = epoch;
        Ok(())
    }

    async fn bitstream(&self, _: BitstreamId) -> Result<Option<Bitstream>, HostFailure> {
        Ok(None)
    }

    async fn assigned(&self) -> Result<Vec<(DagName, AssignedDag)>, HostFailure> {
        let stored = self.stored.lock().unwrap();
        Ok(stored.dags.iter().map(|(name, to)| (name.clone(), served(to))).collect())
    }

    async fn progress(
        &self,
        names: Vec<DagName>,
    ) -> Result<Vec<(DagName, Option<AssignedDag>)>, HostFailure> {
        let stored = self.stored.lock().unwrap();
        let found = |name: DagName| {
            let dag = stored.dags.get(&name).map(served);
            (name, dag)
        };
        Ok(names.into_iter().map(found).collect())
    }

    async fn policies(&self) -> Result<HostPolicies, HostFailure> {
        Ok(self.stored.lock().unwrap().policies.clone())
    }

    async fn set_policies(
        &self,
        files: Numbered<PolicyFiles>,
    ) -> Result<HostPolicies, HostFailure> {
        let said = HostPolicies { number: files.number, refused: None };
        self.stored.lock().unwrap().policies = said.clone();
        Ok(said)
    }

    async fn provisions(&self) -> Result<Vec<(ProvisionName, u64)>, HostFailure> {
        Ok(self.stored.lock().unwrap().provisions.clone().into_iter().collect())
    }

    async fn change(&self, change: FleetChange) -> Result<(), HostFailure> {
        let mut stored = self.stored.lock().unwrap();
        match change {
            FleetChange::Assign(assignment) => {
                stored.dags.insert(assignment.name, assignment.to);
            }
            FleetChange::Withdraw { name, .. } => {
                stored.dags.remove(&name);
            }
            FleetChange::Provide { what, number } => {
                let name = match *what {
                    Provision::Tenant(tenant) => ProvisionName::Tenant(tenant.id),
                    Provision::NtType(nt) => ProvisionName::NtType(nt.id),
                    Provision::Bitstream(bitstream) => ProvisionName::Bitstream(bitstream.id),
                };
                stored.provisions.insert(name, number);
            }
            FleetChange::Retire { name, .. } => drop(stored.provisions.remove(&name)),
            FleetChange::Keep(all) => {
                let state = |of: KeptForTenant| {
                    let KeptForTenant { number, revision, used, .. } = of;
                    (number, KeptState { revision, used, is_over: false })
                };
                stored.kept = all.into_iter().map(state).collect();
            }
        }
        Ok(())
    }

    async fn register(
        &self,
        bitstream: Bitstream,
        number: u64,
        _image: Vec<u8>,
    ) -> Result<(), HostFailure> {
        let name = ProvisionName::Bitstream(bitstream.id);
        self.stored.lock().unwrap().provisions.insert(name, number);
        Ok(())
    }

    async fn attachments(&self) -> Result<Attachments, HostFailure> {
        Ok(Attachments::new())
    }

    async fn functions(&self) -> Result<FunctionUse, HostFailure> {
        let kept = self.stored.lock().unwrap().kept.clone();
        Ok(FunctionUse { bound: BTreeMap::new(), kept })
    }

    async fn faults(&self) -> Result<BTreeMap<CardId, CardFaults>, HostFailure> {
        Ok(BTreeMap::new())
    }
}
