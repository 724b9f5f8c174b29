//! The task that owns the agent: orders in, effects to the workers, reports out.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use snic_controller::{AssignedCard, AssignmentProgress, FleetChange, ProvisionName};
use snic_domain::{CardId, DagName};
use snic_fleet::protocol::{Epoch, HostChoice, HostOrder, HostReport, Provisions};
use snic_fleet::records::PlaceRecord;
use snic_fleet::{AgentEffect, AgentEvent, HostAgent};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};
use tonic::transport::Channel;

use crate::answers::Answers;
use crate::connection::{OpenLink, ReplicaMessage, Replicas};
use crate::dags::{DagJob, DagWorker, ResumedDags, ServedDag};
use crate::host::{HostFailure, LinkedHost};
use crate::provisions::{ProvisionJob, ProvisionWorker};
use crate::status::LinkStatus;

/// Jobs that wait for a worker. While that many do, no order is read.
const JOBS_MAX: usize = 1_024;
/// Outcomes that wait for the agent; workers wait while that many do.
const OUTCOMES_MAX: usize = 64;
/// Pause after the host did not answer.
const RETRY: Duration = Duration::from_secs(1);
/// Time that a leader counts as just lost: longer than an election takes.
const LOST_MAX: Duration = Duration::from_secs(5);

/// The settings of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSettings {
    /// The replicas, such as `https://fleet-0:7700`.
    pub endpoints: Vec<String>,
    /// Interval between the host's signs of life.
    pub beat: Duration,
}

/// A link that runs.
#[derive(Debug)]
pub struct HostLink {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    status: watch::Receiver<LinkStatus>,
}

impl HostLink {
    /// Starts a link. It runs until it is stopped, and tries again whatever fails.
    pub fn start(settings: LinkSettings, host: Arc<dyn LinkedHost>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (told, status) = watch::channel(LinkStatus::default());
        let task = tokio::spawn(run(settings, host, stopped, told));
        Self { stop, task, status }
    }

    pub fn status(&self) -> watch::Receiver<LinkStatus> {
        self.status.clone()
    }

    /// Ends it. What was begun on the host goes on.
    pub async fn stop(self) {
        // It may have ended with the program's runtime.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

async fn run(
    settings: LinkSettings,
    host: Arc<dyn LinkedHost>,
    mut stopped: oneshot::Receiver<()>,
    status: watch::Sender<LinkStatus>,
) {
    loop {
        let session = Session::run(&settings, &host, &status);
        let failure = tokio::select! {
            _ = &mut stopped => return,
            failure = session => failure,
        };
        // The agent's memory is not the host's any more: it begins again with what is stored.
        tracing::error!(%failure, "the link to the fleet starts again");
        status.send_modify(|status| {
            status.endpoint = None;
            status.last_failure = Some(failure.to_string());
        });
        tokio::select! {
            _ = &mut stopped => return,
            () = sleep(RETRY) => {}
        }
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<OpenLink, String>> + Send>>;

/// The connection, open or about to be.
enum Connection {
    Opening(Opening),
    Open(Box<OpenLink>),
}

/// Message from the connection.
enum LinkMessage {
    Opened(OpenLink),
    Order(Box<HostOrder>),
    Call(u64),
    Ended(String),
}

impl Connection {
    /// Cancel safe: what has begun goes on with the next call.
    async fn next(&mut self) -> LinkMessage {
        match self {
            Self::Opening(opening) => match opening.await {
                Ok(live) => LinkMessage::Opened(live),
                Err(reason) => LinkMessage::Ended(reason),
            },
            Self::Open(live) => match live.next().await {
                Ok(ReplicaMessage::Order(order)) => LinkMessage::Order(order),
                Ok(ReplicaMessage::Call(number)) => LinkMessage::Call(number),
                Err(reason) => LinkMessage::Ended(reason),
            },
        }
    }
}

/// The link from one reading of the host's records on.
struct Session<'a> {
    host: &'a Arc<dyn LinkedHost>,
    status: &'a watch::Sender<LinkStatus>,
    agent: HostAgent,
    replicas: Replicas,
    /// The leader whose link was lost, and when.
    lost: Option<(Epoch, Instant)>,
    connection: Connection,
    channel: watch::Sender<Option<Channel>>,
    answers: Answers,
    dags: mpsc::Sender<DagJob>,
    provisions: mpsc::Sender<ProvisionJob>,
    workers: [JoinHandle<()>; 2],
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.workers.iter().for_each(JoinHandle::abort);
    }
}

/// Agent of a host, by its records. A DAG that is on its way counts as one that it serves, so that it can be
/// removed; one without a place is given back, and ordered again.
async fn agent_of(host: &Arc<dyn LinkedHost>) -> Result<(HostAgent, ResumedDags), HostFailure> {
    let epoch = host.epoch().await?;
    let mut served: BTreeMap<CardId, BTreeMap<DagName, u64>> = BTreeMap::new();
    let mut resumed = ResumedDags::default();
    let attached = host.attachments().await?;
    for (name, assigned) in host.assigned().await? {
        let AssignedCard { card, serial } = assigned.to.clone();
        match assigned.progress {
            AssignmentProgress::Applied(_) => resumed.served.push((name.clone(), assigned.to)),
            AssignmentProgress::Pending => {
                resumed.pending.push((name.clone(), assigned.to));
            }
            // What something leads to stays, though it has no place.
            AssignmentProgress::Failed(_) if attached.contains_key(&name) => {
                resumed.served.push((name.clone(), assigned.to));
            }
            AssignmentProgress::Failed(_) => {
                resumed.failed.push((name, card));
                continue;
            }
        }
        served.entry(card).or_default().insert(name, serial);
    }
    let mut told = Provisions::default();
    for (name, number) in host.provisions().await? {
        match name {
            ProvisionName::Tenant(id) => drop(told.tenants.insert(id, number)),
            ProvisionName::NtType(id) => drop(told.nts.insert(id, number)),
            ProvisionName::Bitstream(id) => drop(told.bitstreams.insert(id, number)),
        }
    }
    Ok((HostAgent::new(epoch, served, told), resumed))
}

fn begin_opening(
    replicas: &mut Replicas,
    host: &Arc<dyn LinkedHost>,
    lost: Option<Epoch>,
) -> Connection {
    let (endpoint, pause) = replicas.next();
    Connection::Opening(Box::pin(OpenLink::open(endpoint, Arc::clone(host), pause, lost)))
}

impl<'a> Session<'a> {
    /// Ends only with a failure of the host.
    async fn run(
        settings: &LinkSettings,
        host: &'a Arc<dyn LinkedHost>,
        status: &'a watch::Sender<LinkStatus>,
    ) -> HostFailure {
        let (agent, resumed) = match agent_of(host).await {
            Ok(found) => found,
            Err(failure) => return failure,
        };
        let (outcomes, mut events) = mpsc::channel(OUTCOMES_MAX);
        let (dags, dag_jobs) = mpsc::channel(JOBS_MAX);
        let (provisions, provision_jobs) = mpsc::channel(JOBS_MAX);
        let (channel, channels) = watch::channel(None);
        let (dag_count, mut pending_dags) = watch::channel(0);
        let (provision_count, mut pending_provisions) = watch::channel(0);
        let links = (channels.clone(), dag_count);
        let worker = DagWorker::new(Arc::clone(host), outcomes.clone(), links, resumed);
        let images = ProvisionWorker::new(Arc::clone(host), outcomes, channels, provision_count);
        let workers =
            [tokio::spawn(worker.run(dag_jobs)), tokio::spawn(images.run(provision_jobs))];
        let mut replicas = Replicas::new(settings.endpoints.clone());
        let connection = begin_opening(&mut replicas, host, None);
        let mut session = Session {
            host,
            status,
            agent,
            replicas,
            lost: None,
            connection,
            channel,
            answers: Answers::default(),
            dags,
            provisions,
            workers,
        };
        let mut beats = interval(settings.beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let step = session.step(&mut events, &mut beats).await;
            session.publish_status(
                *pending_dags.borrow_and_update(),
                *pending_provisions.borrow_and_update(),
            );
            if let Err(failure) = step {
                return failure;
            }
        }
    }

    async fn step(
        &mut self,
        events: &mut mpsc::Receiver<AgentEvent>,
        beats: &mut Interval,
    ) -> Result<(), HostFailure> {
        // Outcomes may lead to jobs as well.
        let has_room = self.dags.capacity().min(self.provisions.capacity()) > OUTCOMES_MAX;
        let is_open = matches!(self.connection, Connection::Open(_));
        tokio::select! {
            Some(event) = events.recv() => self.handle(event).await,
            _ = beats.tick(), if is_open => self.beat().await,
            arrived = self.connection.next(), if has_room || !is_open => match arrived {
                LinkMessage::Opened(live) => self.opened(live).await,
                LinkMessage::Order(order) => {
                    self.replicas.leads();
                    self.lost = None;
                    self.status.send_modify(|status| status.orders += 1);
                    self.handle(AgentEvent::Order(*order)).await
                }
                LinkMessage::Call(number) => {
                    if let Connection::Open(live) = &self.connection {
                        self.answers.begin(number, live.channel.clone(), self.host);
                    }
                    Ok(())
                }
                LinkMessage::Ended(reason) => {
                    self.ended(reason);
                    Ok(())
                }
            },
        }
    }

    async fn opened(&mut self, live: OpenLink) -> Result<(), HostFailure> {
        tracing::info!(endpoint = live.endpoint, "linked to the fleet");
        self.status.send_modify(|status| {
            status.endpoint = Some(live.endpoint.clone());
            status.since = Some(SystemTime::now());
        });
        self.channel.send_replace(Some(live.channel.clone()));
        self.connection = Connection::Open(Box::new(live));
        self.beat().await
    }

    async fn beat(&mut self) -> Result<(), HostFailure> {
        // The host's own files may have changed what it makes of the fleet's.
        self.handle(AgentEvent::Policies(self.host.policies().await?)).await?;
        self.handle(AgentEvent::BeatDue).await
    }

    fn ended(&mut self, reason: String) {
        tracing::warn!(reason, "not linked to the fleet; the host serves on");
        self.status.send_modify(|status| {
            if status.endpoint.take().is_some() {
                status.since = Some(SystemTime::now());
            }
            status.last_failure = Some(reason);
        });
        self.channel.send_replace(None);
        if let Connection::Open(_) = self.connection {
            self.lost = Some((self.agent.epoch(), Instant::now()));
        }
        let lost = self.lost.filter(|(_, since)| since.elapsed() < LOST_MAX);
        let lost = lost.map(|(epoch, _)| epoch);
        self.connection = begin_opening(&mut self.replicas, self.host, lost);
    }

    async fn handle(&mut self, event: AgentEvent) -> Result<(), HostFailure> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.agent.handle(event) {
                events.extend(self.carry_out(effect).await?);
            }
        }
        Ok(())
    }

    /// Carries an effect out; gives what follows at once, if anything.
    async fn carry_out(&mut self, effect: AgentEffect) -> Result<Option<AgentEvent>, HostFailure> {
        let full = || HostFailure::Unavailable("a worker of the link has ended".to_owned());
        match effect {
            AgentEffect::Remember(epoch) => self.host.remember(epoch).await?,
            AgentEffect::Report(report) => self.report(&report),
            AgentEffect::Serve { name, spec, place, tenant, changes } => {
                let PlaceRecord { card, serial, mapping, reservation } = *place;
                let to = AssignedCard { card: card.card, serial };
                let ordered = HostChoice { mapping, reservation };
                let (spec, tenant, is_change) = (*spec, *tenant, changes.is_some());
                let dag = Box::new(ServedDag { name, spec, to, ordered, tenant, is_change });
                self.dags.try_send(DagJob::Serve(dag)).map_err(|_| full())?;
            }
            AgentEffect::Stop { name, card, serial, if_detached } => {
                let stop = DagJob::Stop { name, card, serial, if_detached };
                self.dags.try_send(stop).map_err(|_| full())?;
            }
            AgentEffect::Provide { nts, bitstreams, tenants } => {
                let job = ProvisionJob::Provide { tenants, nts, bitstreams };
                self.provisions.try_send(job).map_err(|_| full())?;
            }
            AgentEffect::Withdraw(gone) => {
                let job = ProvisionJob::Withdraw(gone);
                self.provisions.try_send(job).map_err(|_| full())?;
            }
            AgentEffect::SetPolicies(files) => match self.host.set_policies(files).await {
                Ok(said) => return Ok(Some(AgentEvent::Policies(said))),
                // The fleet orders them again.
                Err(error) => tracing::error!(%error, "policies of the fleet are not taken yet"),
            },
            AgentEffect::Keep(all) => match self.host.change(FleetChange::Keep(all)).await {
                Ok(()) => return Ok(self.host.functions().await.ok().map(AgentEvent::Functions)),
                // The fleet orders them again.
                Err(error) => tracing::error!(%error, "reservations of the fleet are not kept yet"),
            },
        }
        Ok(None)
    }

    fn report(&self, report: &HostReport) {
        if let HostReport::Refused { name, reason, .. } = report {
            tracing::warn!(%name, reason, "a DAG that the fleet assigned is refused");
            let refusal = format!("{name}: {reason}");
            self.status.send_modify(|status| status.last_refusal = Some(refusal));
        }
        if let Connection::Open(live) = &self.connection {
            live.report(report);
        }
    }

    /// Says how it is, if that has changed.
    fn publish_status(&self, pending_dags: usize, pending_provisions: usize) {
        let (epoch, sequence) = (self.agent.epoch(), self.agent.sequence());
        self.status.send_if_modified(|status| {
            let before = status.clone();
            (status.epoch, status.sequence) = (epoch, sequence);
            (status.pending_dags, status.pending_provisions) = (pending_dags, pending_provisions);
            *status != before
        });
    }
}
