//! A host in memory that does what a test says.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use snic_api::fleet_v1::AnswerResponse;

use snic_controller::{
    AppliedPlace, AssignedCard, AssignedDag, AssignmentProgress, FleetChange, Provision,
    ProvisionName,
};
use snic_domain::{
    Bitstream, BitstreamId, CardId, DagAttachments, DagName, Digest, Form, FunctionUse,
    KeptForTenant, KeptState, Mapping,
};
use snic_fleet::protocol::{Attachments, CardFaults, Epoch, HostPolicies, Numbered, PolicyFiles};
use snic_host_link::{HostFailure, LinkTls, LinkedHost};
use tonic::Status;
use tonic::body::Body;

use crate::replica::Authority;

/// Requests to it, and their results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Remembered(i64),
    Assigned(DagName, u64),
    Withdrawn(DagName),
}

#[derive(Default)]
struct Memory {
    tls: Option<LinkTls>,
    epoch: Epoch,
    dags: BTreeMap<DagName, AssignedCard>,
    provisions: BTreeMap<ProvisionName, u64>,
    images: BTreeMap<String, Vec<u8>>,
    bitstreams: BTreeMap<String, Bitstream>,
    /// Provisions registered and retired, in order.
    provided: Vec<String>,
    said: Vec<Said>,
    remembers: bool,
    /// The policies in force, by file.
    policies: Numbered<PolicyFiles>,
    refuses: Option<String>,
    fails_later: bool,
    holds: bool,
    attached: Attachments,
    functions: FunctionUse,
    never_done: bool,
    /// Replies without an end that are under way.
    replies: Arc<AtomicUsize>,
}

/// The body of a reply without an end.
struct Endless(Arc<AtomicUsize>);

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Status>>> {
        Poll::Pending
    }
}

pub struct MemoryHost(Mutex<Memory>);

impl MemoryHost {
    pub fn new(authority: &Authority) -> Arc<Self> {
        let tls = Some(authority.link_tls("host/h0"));
        Arc::new(Self(Mutex::new(Memory { tls, remembers: true, ..Memory::default() })))
    }

    /// Another certificate takes the place of its own.
    pub fn set_tls(&self, tls: LinkTls) {
        self.memory().tls = Some(tls);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().expect("nobody panics with it")
    }

    /// Replies without an end that nobody has dropped.
    pub fn replies(&self) -> usize {
        self.memory().replies.load(Ordering::SeqCst)
    }

    pub fn said(&self) -> Vec<Said> {
        self.memory().said.clone()
    }

    pub async fn until(&self, wanted: Said) {
        while !self.said().contains(&wanted) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn fail_to_remember(&self, fails: bool) {
        self.memory().remembers = !fails;
    }

    pub fn refuse(&self, reason: Option<&str>) {
        self.memory().refuses = reason.map(str::to_owned);
    }

    pub fn fail_later(&self, fails: bool) {
        self.memory().fails_later = fails;
    }

    /// It has an assignment since before the test.
    pub fn has(&self, name: DagName, serial: u64) {
        let to = AssignedCard { card: crate::replica::card(), serial };
        self.memory().dags.insert(name, to);
    }

    /// Machines are bound to a DAG, or no longer.
    pub fn bind(&self, name: DagName, machines: u32) {
        let mut memory = self.memory();
        match machines {
            0 => drop(memory.attached.remove(&name)),
            _ => drop(memory.attached.insert(name, DagAttachments { machines, rules: 0 })),
        }
    }

    /// Leaves what it accepts on its way.
    pub fn never_done(&self) {
        self.memory().never_done = true;
    }

    /// Its controller does not answer for the time being.
    pub fn hold(&self, holds: bool) {
        self.memory().holds = holds;
    }

    pub fn image(&self, id: &str) -> Option<Vec<u8>> {
        self.memory().images.get(id).cloned()
    }

    pub fn policy(&self, name: &str) -> Option<String> {
        self.memory().policies.of.get(name).cloned()
    }

    pub fn provided(&self) -> Vec<String> {
        self.memory().provided.clone()
    }

    fn state(&self, name: &DagName) -> Option<AssignedDag> {
        let memory = self.memory();
        let to = memory.dags.get(name)?.clone();
        let (form, stages) = (Form::Sequential, Vec::new());
        let mapping = Mapping { card: to.card.clone(), form, stages, programs: Vec::new() };
        let progress = match (memory.fails_later, memory.never_done) {
            (true, _) => AssignmentProgress::Failed(None),
            (false, true) => AssignmentProgress::Pending,
            (false, false) => {
                AssignmentProgress::Applied(Box::new(AppliedPlace { mapping, reservation: None }))
            }
        };
        Some(AssignedDag { to, progress })
    }
}

#[tonic::async_trait]
impl LinkedHost for MemoryHost {
    /// `/a/Endless` has no end, `/a/Refused` is refused, and all else gives back what it was asked.
    async fn answer(&self, call: AnswerResponse) -> http::Response<Body> {
        match &*call.path {
            "/a/Endless" => {
                let replies = Arc::clone(&self.memory().replies);
                replies.fetch_add(1, Ordering::SeqCst);
                http::Response::new(Body::new(Endless(replies)))
            }
            "/a/Refused" => Status::permission_denied("not you").into_http(),
            _ => http::Response::new(Body::new(http_body_util::Full::new(call.message.into()))),
        }
    }

    async fn tls(&self) -> Result<LinkTls, HostFailure> {
        Ok(self.memory().tls.clone().expect("it was made with one"))
    }

    async fn epoch(&self) -> Result<Epoch, HostFailure> {
        Ok(self.memory().epoch)
    }

    async fn remember(&self, epoch: Epoch) -> Result<(), HostFailure> {
        let mut memory = self.memory();
        if !memory.remembers {
            return Err(HostFailure::Unavailable("the disk is full".to_owned()));
        }
        memory.epoch = epoch;
        memory.said.push(Said::Remembered(epoch.0));
        Ok(())
    }

    async fn policies(&self) -> Result<HostPolicies, HostFailure> {
        Ok(HostPolicies { number: self.memory().policies.number, refused: None })
    }

    async fn set_policies(
        &self,
        files: Numbered<PolicyFiles>,
    ) -> Result<HostPolicies, HostFailure> {
        let mut memory = self.memory();
        if !memory.remembers {
            return Err(HostFailure::Unavailable("the disk is full".to_owned()));
        }
        let number = files.number;
        memory.policies = files;
        Ok(HostPolicies { number, refused: None })
    }

    async fn assigned(&self) -> Result<Vec<(DagName, AssignedDag)>, HostFailure> {
        let names: Vec<DagName> = self.memory().dags.keys().cloned().collect();
        Ok(names.into_iter().filter_map(|name| Some((name.clone(), self.state(&name)?))).collect())
    }

    async fn progress(
        &self,
        names: Vec<DagName>,
    ) -> Result<Vec<(DagName, Option<AssignedDag>)>, HostFailure> {
        Ok(names.into_iter().map(|name| (name.clone(), self.state(&name))).collect())
    }

    async fn provisions(&self) -> Result<Vec<(ProvisionName, u64)>, HostFailure> {
        Ok(self.memory().provisions.clone().into_iter().collect())
    }

    async fn change(&self, change: FleetChange) -> Result<(), HostFailure> {
        while self.memory().holds {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut memory = self.memory();
        match change {
            FleetChange::Assign(assignment) => {
                if let Some(reason) = memory.refuses.clone() {
                    return Err(HostFailure::Refused(reason));
                }
                memory.said.push(Said::Assigned(assignment.name.clone(), assignment.to.serial));
                memory.dags.insert(assignment.name, assignment.to);
            }
            FleetChange::Withdraw { name, if_detached, .. } => {
                if if_detached && memory.attached.contains_key(&name) {
                    return Err(HostFailure::Refused("1 machine is bound to it".to_owned()));
                }
                memory.dags.remove(&name);
                memory.said.push(Said::Withdrawn(name));
            }
            FleetChange::Keep(all) => {
                let state = |of: KeptForTenant| {
                    let KeptForTenant { number, revision, used, .. } = of;
                    (number, KeptState { revision, used, is_over: false })
                };
                memory.functions.kept = all.into_iter().map(state).collect();
            }
            FleetChange::Provide { what, number } => {
                let name = match *what {
                    Provision::Tenant(tenant) => ProvisionName::Tenant(tenant.id),
                    Provision::NtType(nt) => ProvisionName::NtType(nt.id),
                    Provision::Bitstream(bitstream) => {
                        let id = bitstream.id.clone();
                        memory.bitstreams.insert(id.to_string(), bitstream);
                        ProvisionName::Bitstream(id)
                    }
                };
                memory.provisions.insert(name, number);
            }
            FleetChange::Retire { name, .. } => {
                memory.provisions.remove(&name);
                if let ProvisionName::Bitstream(id) = &name {
                    memory.bitstreams.remove(id.as_str());
                    memory.provided.push(format!("{id}: retired"));
                }
            }
        }
        Ok(())
    }

    async fn bitstream(&self, id: BitstreamId) -> Result<Option<Bitstream>, HostFailure> {
        Ok(self.memory().bitstreams.get(id.as_str()).cloned())
    }

    async fn register(
        &self,
        bitstream: Bitstream,
        number: u64,
        image: Vec<u8>,
    ) -> Result<(), HostFailure> {
        let mut memory = self.memory();
        let digest = Digest::of(&image);
        assert!(bitstream.images.with_digest(digest).is_some(), "an image of it");
        let images = bitstream.images.len();
        memory.provided.push(format!("{}: {images} images, number {number}", bitstream.id));
        memory.images.insert(bitstream.id.to_string(), image);
        memory.bitstreams.insert(bitstream.id.to_string(), bitstream.clone());
        memory.provisions.insert(ProvisionName::Bitstream(bitstream.id), number);
        Ok(())
    }

    async fn attachments(&self) -> Result<Attachments, HostFailure> {
        Ok(self.memory().attached.clone())
    }

    async fn functions(&self) -> Result<FunctionUse, HostFailure> {
        Ok(self.memory().functions.clone())
    }

    async fn faults(&self) -> Result<BTreeMap<CardId, CardFaults>, HostFailure> {
        Ok(BTreeMap::new())
    }
}
