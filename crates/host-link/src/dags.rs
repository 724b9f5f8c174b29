//! Carries out what is ordered of DAGs, in the order of the orders, and says when each is served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use snic_controller::{AssignedCard, AssignedDag, AssignmentProgress, DagAssignment, FleetChange};
use snic_domain::{CardId, DagName, DagSpec, Tenant};
use snic_fleet::protocol::{HostChoice, Numbered};
use snic_fleet::{AgentEvent, ServeRefused};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::host::{HostFailure, LinkedHost};

/// How often DAGs that are on their way are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// DAGs that are looked at together: a read on the controller's thread has a bound.
const LOOKED_AT_MAX: usize = 256;
/// Pause after the controller did not answer.
const RETRY: Duration = Duration::from_millis(200);

/// What is to be done with a DAG.
#[derive(Debug)]
pub(crate) enum DagJob {
    Serve(Box<ServedDag>),
    Stop { name: DagName, card: CardId },
}

/// A DAG that is to be served.
#[derive(Debug)]
pub(crate) struct ServedDag {
    pub name: DagName,
    pub spec: DagSpec,
    pub to: AssignedCard,
    pub tenant: Numbered<Tenant>,
    /// Whether the card serves it already, another way.
    pub is_change: bool,
}

/// A DAG that the controller accepted and the card does not serve yet.
#[derive(Debug)]
struct PendingDag {
    to: AssignedCard,
    is_change: bool,
}

/// What a worker finds when it begins.
#[derive(Debug, Default)]
pub(crate) struct Resumed {
    /// DAGs that are on their way to their card.
    pub pending: Vec<(DagName, AssignedCard)>,
    /// DAGs without a place.
    pub failed: Vec<(DagName, CardId)>,
}

/// The worker.
pub(crate) struct DagWorker {
    host: Arc<dyn LinkedHost>,
    outcomes: mpsc::Sender<AgentEvent>,
    pending: BTreeMap<DagName, PendingDag>,
    failed: Vec<(DagName, CardId)>,
    /// The last one that was looked at.
    looked_at: Option<DagName>,
    count: watch::Sender<usize>,
}

impl DagWorker {
    pub fn new(
        host: Arc<dyn LinkedHost>,
        outcomes: mpsc::Sender<AgentEvent>,
        count: watch::Sender<usize>,
        resumed: Resumed,
    ) -> Self {
        let pending = resumed.pending.into_iter();
        let pending = pending.map(|(name, to)| (name, PendingDag { to, is_change: false }));
        let (pending, failed) = (pending.collect(), resumed.failed);
        Self { host, outcomes, pending, failed, looked_at: None, count }
    }

    /// Works until there are no more jobs to come.
    pub async fn run(mut self, mut jobs: mpsc::Receiver<DagJob>) {
        for (name, card) in std::mem::take(&mut self.failed) {
            self.stop(name, card).await;
        }
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(DagJob::Serve(dag)) => self.serve(*dag).await,
                    Some(DagJob::Stop { name, card }) => self.stop(name, card).await,
                    None => return,
                },
                _ = looks.tick(), if !self.pending.is_empty() => self.look().await,
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
        let ServedDag { name, spec, to, tenant, is_change } = dag;
        let assignment = DagAssignment {
            name: name.clone(),
            tenant: tenant.of,
            tenant_number: tenant.number,
            spec,
            to: to.clone(),
        };
        match self.change(FleetChange::Assign(Box::new(assignment))).await {
            Ok(()) => drop(self.pending.insert(name, PendingDag { to, is_change })),
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
        if let Err(reason) = self.change(FleetChange::Withdraw { name: name.clone(), card }).await {
            tracing::error!(%name, reason, "a DAG of the fleet cannot be withdrawn");
        }
    }

    /// Looks at some of those that are pending, each in its turn.
    async fn look(&mut self) {
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
        let Some(pending) = self.pending.get(&name) else { return };
        let to = pending.to.clone();
        match found.filter(|found| found.to == to).map(|found| found.progress) {
            Some(AssignmentProgress::Pending) => {}
            Some(AssignmentProgress::Applied(place)) => {
                self.pending.remove(&name);
                let mapping = place.mapping;
                let choice = |reservation| Box::new(HostChoice { mapping, reservation });
                let result = Ok(place.reservation.map(choice));
                self.tell(name, to, result).await;
            }
            // What served it before is gone as well: it waits for a place here until the fleet has another one.
            Some(AssignmentProgress::Failed(_)) if pending.is_change => {}
            Some(AssignmentProgress::Failed(why)) => {
                self.pending.remove(&name);
                let (name_of, card) = (name.clone(), to.card.clone());
                let _ = self.change(FleetChange::Withdraw { name: name_of, card }).await;
                let why = why.map(|why| why.to_string());
                let why = why.unwrap_or_else(|| "its card cannot serve it any more".to_owned());
                self.refused(name, to, why).await;
            }
            None => {
                self.pending.remove(&name);
                self.refused(name, to, "it was removed on the host".to_owned()).await;
            }
        }
    }

    async fn refused(&self, name: DagName, to: AssignedCard, reason: String) {
        let faulty = self.host.faulty(to.card.clone()).await;
        self.tell(name, to, Err(ServeRefused { reason, faulty })).await;
    }

    async fn tell(
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
