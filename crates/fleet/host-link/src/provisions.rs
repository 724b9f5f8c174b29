//! Has on the host what the fleet provides: tenants and NT types registered, images fetched, checked and registered.
//!
//! Desired provisions are kept as a set, and tried again until they are there; so are those that are to go. One is done at a time, so
//! at most one image is in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use snic_controller::{FleetChange, Provision, ProvisionName};
use snic_domain::{Bitstream, NtType, RegionImage, Tenant};
use snic_fleet::AgentEvent;
use snic_fleet::protocol::{Numbered, Provisions};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tonic::transport::Channel;

use crate::connection::fetch;
use crate::host::{HostFailure, LinkedHost};

/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The number of a bitstream of which not all images are there yet: the fleet gives it to none.
const NUMBER_OF_PART: u64 = 0;

/// A provision that is to be there, or no more.
#[derive(Debug)]
pub(crate) enum ProvisionJob {
    Provide {
        tenants: Vec<Numbered<Tenant>>,
        nts: Vec<Numbered<NtType>>,
        bitstreams: Vec<Numbered<Bitstream>>,
    },
    Withdraw(Provisions),
}

/// A step that is to be taken.
#[derive(Debug, Clone)]
enum DesiredProvision {
    There(Box<Provision>, u64),
    Gone(u64),
}

pub(crate) struct ProvisionWorker {
    host: Arc<dyn LinkedHost>,
    outcomes: mpsc::Sender<AgentEvent>,
    /// The connection to a replica, if there is one.
    channel: watch::Receiver<Option<Channel>>,
    /// In order: tenants, NT types, bitstreams. Each needs only those before it.
    aims: BTreeMap<ProvisionName, DesiredProvision>,
    due: VecDeque<ProvisionName>,
    count: watch::Sender<usize>,
}

impl ProvisionWorker {
    pub fn new(
        host: Arc<dyn LinkedHost>,
        outcomes: mpsc::Sender<AgentEvent>,
        channel: watch::Receiver<Option<Channel>>,
        count: watch::Sender<usize>,
    ) -> Self {
        let (aims, due) = (BTreeMap::new(), VecDeque::new());
        Self { host, outcomes, channel, aims, due, count }
    }

    /// Works until there are no more jobs to come.
    pub async fn run(mut self, mut jobs: mpsc::Receiver<ProvisionJob>) {
        loop {
            let is_due = !self.due.is_empty();
            tokio::select! {
                biased;
                job = jobs.recv() => match job {
                    Some(job) => self.take(job),
                    None => return,
                },
                () = std::future::ready(()), if is_due => self.step().await,
                () = sleep(RETRY), if !is_due && !self.aims.is_empty() => self.all_due(),
            }
            self.count.send_replace(self.aims.len());
        }
    }

    fn take(&mut self, job: ProvisionJob) {
        match job {
            ProvisionJob::Provide { tenants, nts, bitstreams } => {
                for Numbered { number, of } in tenants {
                    let name = ProvisionName::Tenant(of.id.clone());
                    self.aim(
                        name,
                        DesiredProvision::There(Box::new(Provision::Tenant(of)), number),
                    );
                }
                for Numbered { number, of } in nts {
                    let name = ProvisionName::NtType(of.id.clone());
                    self.aim(
                        name,
                        DesiredProvision::There(Box::new(Provision::NtType(of)), number),
                    );
                }
                for Numbered { number, of } in bitstreams {
                    let name = ProvisionName::Bitstream(of.id.clone());
                    self.aim(
                        name,
                        DesiredProvision::There(Box::new(Provision::Bitstream(of)), number),
                    );
                }
            }
            ProvisionJob::Withdraw(Provisions { nts, bitstreams, tenants }) => {
                let tenants = tenants.into_iter().map(|(id, of)| (ProvisionName::Tenant(id), of));
                let nts = nts.into_iter().map(|(id, of)| (ProvisionName::NtType(id), of));
                let bitstreams = bitstreams.into_iter();
                let bitstreams = bitstreams.map(|(id, of)| (ProvisionName::Bitstream(id), of));
                for (name, number) in tenants.chain(nts).chain(bitstreams) {
                    let aims_at_later = |aim: &DesiredProvision| matches!(aim, DesiredProvision::There(_, of) if *of > number);
                    if !self.aims.get(&name).is_some_and(aims_at_later) {
                        self.aim(name, DesiredProvision::Gone(number));
                    }
                }
            }
        }
        self.all_due();
    }

    fn aim(&mut self, name: ProvisionName, aim: DesiredProvision) {
        self.aims.insert(name, aim);
    }

    /// First what goes, the users before what they use; then what comes, the other way round.
    fn all_due(&mut self) {
        let goes = |aim: &DesiredProvision| matches!(aim, DesiredProvision::Gone(_));
        let gone = self.aims.iter().rev().filter(|(_, aim)| goes(aim));
        let there = self.aims.iter().filter(|(_, aim)| !goes(aim));
        self.due = gone.chain(there).map(|(name, _)| name.clone()).collect();
    }

    async fn step(&mut self) {
        let Some(name) = self.due.pop_front() else { return };
        let Some(aim) = self.aims.get(&name).cloned() else { return };
        let done = match aim {
            DesiredProvision::Gone(number) => self.retire(&name, number).await,
            DesiredProvision::There(what, number) => self.provide(&name, *what, number).await,
        };
        match done {
            Ok(()) => drop(self.aims.remove(&name)),
            Err(reason) => tracing::warn!(?name, %reason, "not provided yet"),
        }
    }

    async fn retire(&self, name: &ProvisionName, number: u64) -> Result<(), HostFailure> {
        self.host.change(FleetChange::Retire { name: name.clone(), number }).await
    }

    async fn provide(
        &self,
        name: &ProvisionName,
        what: Provision,
        number: u64,
    ) -> Result<(), HostFailure> {
        let mut there = Provisions::default();
        match (name, what) {
            (ProvisionName::Bitstream(id), Provision::Bitstream(bitstream)) => {
                there.bitstreams.insert(id.clone(), number);
                self.provide_image(name, bitstream, number).await?;
            }
            (_, what) => {
                match name {
                    ProvisionName::Tenant(id) => drop(there.tenants.insert(id.clone(), number)),
                    ProvisionName::NtType(id) => drop(there.nts.insert(id.clone(), number)),
                    ProvisionName::Bitstream(_) => {}
                }
                let what = Box::new(what);
                self.host.change(FleetChange::Provide { what, number }).await?;
            }
        }
        let _ = self.outcomes.send(AgentEvent::Provided(there)).await;
        Ok(())
    }

    /// Fetches what the host does not have of a bitstream's images, one after the other. Another bitstream of this
    /// name goes first; one with fewer images gets the others.
    async fn provide_image(
        &self,
        name: &ProvisionName,
        bitstream: Bitstream,
        number: u64,
    ) -> Result<(), HostFailure> {
        let held = self.host.provisions().await?;
        let held = held.into_iter().find(|(other, _)| other == name).map(|(_, held)| held);
        if held == Some(number) {
            return Ok(());
        }
        let present = self.host.bitstream(bitstream.id.clone()).await?;
        if present.as_ref() == Some(&bitstream) {
            let what = Box::new(Provision::Bitstream(bitstream));
            return self.host.change(FleetChange::Provide { what, number }).await;
        }
        let mut there = match (held, present) {
            (Some(_), Some(present)) if present.is_extended_by(&bitstream) => Some(present),
            (Some(held), _) => {
                self.retire(name, held).await?;
                None
            }
            (None, _) => None,
        };
        let has = |image: &&RegionImage| {
            there.as_ref().is_none_or(|there| there.images.with_digest(image.digest).is_none())
        };
        let missing: Vec<RegionImage> = bitstream.images.iter().filter(has).cloned().collect();
        for image in &missing {
            let alone = bitstream.with_only(image);
            let next = match &there {
                None => alone,
                Some(there) => there
                    .with_images_of(&alone)
                    .map_err(|error| HostFailure::Refused(error.to_string()))?,
            };
            let number = if next == bitstream { number } else { NUMBER_OF_PART };
            let channel = self.channel.borrow().clone();
            let none =
                || HostFailure::Unavailable("there is no link to fetch its image by".to_owned());
            let bytes = fetch(channel.ok_or_else(none)?, image).await;
            let bytes = bytes.map_err(HostFailure::Unavailable)?;
            self.host.register(next.clone(), number, bytes).await?;
            there = Some(next);
        }
        Ok(())
    }
}
