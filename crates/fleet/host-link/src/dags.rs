//! Carries out what is ordered of DAGs, in the order of the orders, and says when each is served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use snic_controller::{AssignedCard, AssignedDag, AssignmentProgress, DagAssignment, FleetChange};
use snic_domain::{CardId, DagName, DagSpec, RegionId, Tenant};
use snic_fleet::protocol::{HostChoice, Numbered};
use snic_fleet::{AgentEvent, KeptDag, ServeRefused};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic::transport::Channel;

use crate::host::{HostFailure, LinkedHost};
use crate::places::{choice_of, reason_of};
use crate::served::{DagNews, DagOnCard, LOOK_SERVED_INTERVAL, ServedDags};

/// Interval between looks at DAGs that are on their way.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// DAGs that are looked at together: a read on the controller's thread has a bound.
const LOOKED_AT_MAX: usize = 256;
/// Looks after which a DAG that was served, and has lost its place while it is changed, counts as lost.
const FAILED_LOOKS_MAX: u32 = 20;
/// Pause after the controller did not answer.
const RETRY: Duration = Duration::from_millis(200);

/// Work on a DAG.
#[derive(Debug)]
pub(crate) enum DagJob {
    Serve(Box<ServedDag>),
    Stop {
        name: DagName,
        card: CardId,
        serial: u64,
        /// Only if nothing leads packets to it.
        if_detached: bool,
    },
}

/// A DAG that is to be served.
#[derive(Debug)]
pub(crate) struct ServedDag {
    pub name: DagName,
    pub spec: DagSpec,
    pub to: AssignedCard,
    /// Where the fleet has it on the card.
    pub ordered: HostChoice,
    pub tenant: Numbered<Tenant>,
    /// Whether the card serves it already, another way.
    pub is_change: bool,
}

/// A DAG that the controller accepted and the card does not serve yet.
#[derive(Debug)]
struct PendingDag {
    to: AssignedCard,
    ordered: Option<HostChoice>,
    is_change: bool,
    /// Looks in a row that found it without a place.
    failed: u32,
}

/// State that a worker finds when it begins.
#[derive(Debug, Default)]
pub(crate) struct ResumedDags {
    /// DAGs that are on their way to their card.
    pub pending: Vec<(DagName, AssignedCard)>,
    /// DAGs that their card has.
    pub served: Vec<(DagName, AssignedCard)>,
    /// DAGs without a place.
    pub failed: Vec<(DagName, CardId)>,
}

pub(crate) struct DagWorker {
    host: Arc<dyn LinkedHost>,
    outcomes: mpsc::Sender<AgentEvent>,
    pending: BTreeMap<DagName, PendingDag>,
    served: ServedDags,
    /// The link, while it is open.
    links: watch::Receiver<Option<Channel>>,
    failed: Vec<(DagName, CardId)>,
    /// The last one that was looked at.
    looked_at: Option<DagName>,
    count: watch::Sender<usize>,
}

impl DagWorker {
    pub fn new(
        host: Arc<dyn LinkedHost>,
        outcomes: mpsc::Sender<AgentEvent>,
        (links, count): (watch::Receiver<Option<Channel>>, watch::Sender<usize>),
        resumed: ResumedDags,
    ) -> Self {
        let pending =
            |(name, to)| (name, PendingDag { to, ordered: None, is_change: false, failed: 0 });
        let pending = resumed.pending.into_iter().map(pending).collect();
        let (served, failed) = (ServedDags::new(resumed.served), resumed.failed);
        Self { host, outcomes, pending, served, links, failed, looked_at: None, count }
    }

    /// Works until there are no more jobs to come.
    pub async fn run(mut self, mut jobs: mpsc::Receiver<DagJob>) {
        for (name, card) in std::mem::take(&mut self.failed) {
            if self.withdraw_if_detached(&name, &card).await.is_err() {
                tracing::warn!(%name, "a DAG of the fleet has no place, and waits");
            }
        }
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut later_looks = interval(LOOK_SERVED_INTERVAL);
        later_looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(DagJob::Serve(dag)) => self.serve(*dag).await,
                    Some(DagJob::Stop { name, card, if_detached: false, .. }) => {
                        self.stop(name, card).await;
                    }
                    Some(DagJob::Stop { name, card, serial, if_detached: true }) => {
                        self.release(name, AssignedCard { card, serial }).await;
                    }
                    None => return,
                },
                _ = looks.tick(), if !self.pending.is_empty() => self.poll_pending().await,
                _ = later_looks.tick() => self.poll_served().await,
            }
            self.count.send_replace(self.pending.len());
        }
    }

    /// A change, tried until the controller answers.
    async fn change(&self, change: FleetChange) -> Result<(), String> {
        loop {
            match self.host.change(change.clone()).await {
                Ok(()) => return Ok(()),
                Err(HostFailure::Refused(reason)) => return Err(reason),
                Err(HostFailure::Unavailable(reason)) => {
                    tracing::warn!(reason, "the controller does not carry out an order yet");
                    sleep(RETRY).await;
                }
            }
        }
    }

    async fn serve(&mut self, dag: ServedDag) {
        let ServedDag { name, spec, to, ordered, tenant, is_change } = dag;
        self.served.forget(&name);
        let assignment = DagAssignment {
            name: name.clone(),
            tenant: tenant.of,
            tenant_number: tenant.number,
            spec,
            to: to.clone(),
        };
        match self.change(FleetChange::Assign(Box::new(assignment))).await {
            Ok(()) => {
                let ordered = Some(ordered);
                self.pending.insert(name, PendingDag { to, ordered, is_change, failed: 0 });
            }
            Err(reason) => {
                self.pending.remove(&name);
                self.refused(name, to, reason).await;
            }
        }
    }

    async fn stop(&mut self, name: DagName, card: CardId) {
        if self.pending.get(&name).is_some_and(|pending| pending.to.card == card) {
            self.pending.remove(&name);
        }
        self.served.forget_on(&name, &card);
        self.withdraw(&name, &card).await;
    }

    /// Stops a DAG unless something leads packets to it, which the controller decides in one step with its removal.
    async fn release(&mut self, name: DagName, at: AssignedCard) {
        let result = match self.withdraw_if_detached(&name, &at.card).await {
            Ok(()) => {
                if self.pending.get(&name).is_some_and(|pending| pending.to == at) {
                    self.pending.remove(&name);
                }
                self.served.forget_on(&name, &at.card);
                Ok(())
            }
            Err(reason) => {
                tracing::info!(%name, reason, "a DAG that the fleet has moved is served on");
                let attachments = self.host.attachments().await.unwrap_or_default();
                let attachments = attachments.get(&name).copied().unwrap_or_default();
                Err(KeptDag { choice: self.choice(&name, &at).await, attachments })
            }
        };
        let AssignedCard { card, serial } = at;
        // Nobody listens any more where the link was stopped.
        let _ = self.outcomes.send(AgentEvent::Stopped { name, card, serial, result }).await;
    }

    /// Where the controller has a DAG, if it has it there as it was assigned.
    async fn choice(&self, name: &DagName, at: &AssignedCard) -> Option<Box<HostChoice>> {
        let found = self.host.progress(vec![name.clone()]).await.ok()?;
        let found = found.into_iter().find_map(|(_, found)| found).filter(|of| of.to == *at)?;
        match found.progress {
            AssignmentProgress::Applied(place) => choice_of(*place).map(Box::new),
            AssignmentProgress::Pending | AssignmentProgress::Failed(_) => None,
        }
    }

    async fn withdraw_if_detached(&self, name: &DagName, card: &CardId) -> Result<(), String> {
        let (name, card, if_detached) = (name.clone(), card.clone(), true);
        self.change(FleetChange::Withdraw { name, card, if_detached }).await
    }

    /// Looks at some of those that are pending, each in its turn.
    async fn poll_pending(&mut self) {
        let after = self.looked_at.take();
        let is_next = |name: &&DagName| after.as_ref().is_none_or(|after| *name > after);
        let names = self.pending.keys().filter(is_next).take(LOOKED_AT_MAX);
        let names: Vec<DagName> = names.cloned().collect();
        // The next look begins where this one ends, or at the first.
        self.looked_at = names.last().cloned();
        // What is not told now is told with a later look.
        for (name, found) in self.host.progress(names).await.unwrap_or_default() {
            self.found(name, found).await;
        }
    }

    async fn found(&mut self, name: DagName, found: Option<AssignedDag>) {
        let Some(pending) = self.pending.get_mut(&name) else { return };
        let to = pending.to.clone();
        match found.filter(|found| found.to == to).map(|found| found.progress) {
            Some(AssignmentProgress::Pending) => pending.failed = 0,
            Some(AssignmentProgress::Applied(place)) => {
                let ordered = self.pending.remove(&name).and_then(|of| of.ordered);
                let choice = choice_of(*place);
                self.served.begin(&name, DagOnCard::new(to.clone(), ordered, choice.clone()));
                self.report_outcome(name, to, Ok(choice.map(Box::new))).await;
            }
            // What served it before is gone as well: it may find another place here.
            Some(AssignmentProgress::Failed(why)) if pending.is_change => {
                pending.failed += 1;
                if pending.failed >= FAILED_LOOKS_MAX {
                    self.pending.remove(&name);
                    self.lost(name, to, reason_of(why)).await;
                }
            }
            Some(AssignmentProgress::Failed(why)) => {
                self.pending.remove(&name);
                if self.is_withdrawn(&name, &to).await {
                    self.refused(name, to, reason_of(why)).await;
                }
            }
            None => {
                self.pending.remove(&name);
                self.refused(name, to, "it was removed on the host".to_owned()).await;
            }
        }
    }

    /// Looks at cards, and at some of the DAGs that are served, each in its turn.
    async fn poll_served(&mut self) {
        if self.links.has_changed().unwrap_or(false) {
            let is_open = self.links.borrow_and_update().is_some();
            self.served.link_changed(is_open);
        }
        let Ok(faults) = self.host.faults().await else { return };
        if self.served.cards_are(&faults) {
            // Nobody listens any more where the link was stopped.
            let _ = self.outcomes.send(AgentEvent::Faults(faults)).await;
        }
        if let Ok(attachments) = self.host.attachments().await {
            let _ = self.outcomes.send(AgentEvent::Attachments(attachments)).await;
        }
        if let Ok(functions) = self.host.functions().await {
            let _ = self.outcomes.send(AgentEvent::Functions(functions)).await;
        }
        let names = self.served.next_names();
        for (name, found) in self.host.progress(names).await.unwrap_or_default() {
            match self.served.found(&name, found) {
                None => {}
                Some(DagNews::Rearranged(to, choice)) => {
                    let card = to.card;
                    let _ = self.outcomes.send(AgentEvent::Rearranged { name, card, choice }).await;
                }
                Some(DagNews::Lost(to, reason)) => self.lost(name, to, reason).await,
            }
        }
    }

    /// The fleet places it elsewhere: the controller forgets it. A DAG to which something leads stays, for nothing of that goes
    /// with it: it waits here until its card can serve it again, or nothing leads to it.
    async fn lost(&mut self, name: DagName, to: AssignedCard, reason: String) {
        if !self.is_withdrawn(&name, &to).await {
            return;
        }
        tracing::warn!(%name, reason, "a DAG of the fleet has lost its place");
        let why = ServeRefused { reason, faulty: self.faulty(&to.card).await };
        let AssignedCard { card, serial } = to;
        let _ = self.outcomes.send(AgentEvent::Lost { name, card, serial, why }).await;
    }

    /// Withdraws a DAG without a place. One to which something leads waits for its card, and is looked at again.
    async fn is_withdrawn(&mut self, name: &DagName, to: &AssignedCard) -> bool {
        let kept = self.withdraw_if_detached(name, &to.card).await.err();
        if let Some(why) = &kept {
            tracing::debug!(%name, why, "a DAG of the fleet has no place, and waits for one");
            self.served.begin(name, DagOnCard::new(to.clone(), None, None));
        }
        kept.is_none()
    }

    async fn withdraw(&self, name: &DagName, card: &CardId) {
        let change =
            FleetChange::Withdraw { name: name.clone(), card: card.clone(), if_detached: false };
        if let Err(reason) = self.change(change).await {
            tracing::error!(%name, reason, "a DAG of the fleet cannot be withdrawn");
        }
    }

    async fn faulty(&self, card: &CardId) -> Vec<RegionId> {
        let mut faults = self.host.faults().await.unwrap_or_default();
        faults.remove(card).unwrap_or_default().regions.into_iter().collect()
    }

    async fn refused(&self, name: DagName, to: AssignedCard, reason: String) {
        let faulty = self.faulty(&to.card).await;
        self.report_outcome(name, to, Err(ServeRefused { reason, faulty })).await;
    }

    async fn report_outcome(
        &self,
        name: DagName,
        to: AssignedCard,
        result: Result<Option<Box<HostChoice>>, ServeRefused>,
    ) {
        let AssignedCard { card, serial } = to;
        // Nobody listens any more where the link was stopped.
        let _ = self.outcomes.send(AgentEvent::Served { name, card, serial, result }).await;
    }
}
