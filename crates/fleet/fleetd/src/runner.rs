//! One task owns the replica: events come to it, and it has the effects carried out.
//!
//! ```text
//!  Campaign ── elected, deposed ──┐                    ┌── request ──► etcd ── answer ──┐
//!  Asking ─────────── ask ────────┼──► Replica::handle ┼── reply ──► who asked          │
//!  HostLinkService ── report ─────┘          ▲         └── order ──► HostLinks          │
//!                                            └──────────────────────────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snic_etcd::election::{ElectionSettings, Term};
use snic_etcd::{Answer, Failed, Revision, Watch, WatchUpdate};
use snic_fleet::protocol::{
    Denied, Epoch, FleetAsk, FleetCall, FleetEffect, FleetEvent, FleetGauges, FleetNotice,
    FleetReply, HostReport, StoreRefusal,
};
use snic_fleet::records::PREFIX;
use snic_fleet::{FleetSettings, HostId, Replica};
use snic_front::wall_clock;
use snic_store_etcd::{Campaign, EtcdConnection, EtcdWatchStream};
use snic_telemetry::metrics::instruments;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::history::{History, Piece};
use crate::links::HostLinks;

/// Events that wait for the replica's task. Each caller and each host has one at a time here.
const EVENTS_MAX: usize = 4_096;
/// Interval between ticks of the replica.
const TICK: Duration = Duration::from_millis(100);
/// So much of what was written before a replica begins to watch is read, for those who resume a watch there.
const EARLIER_REVISIONS: i64 = 10_000;
/// Interval between two looks at the fleet for metrics.
const GAUGES: Duration = Duration::from_secs(1);
/// Time that a replica that gave up its key waits before it stands for election again: others come first.
const REST: Duration = Duration::from_secs(1);

/// Settings of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elections {
    /// Address at which other replicas reach this one, as a URL: what it is called in the election.
    pub address: String,
    /// Time that it leads without a sign of life, in seconds: 2 or more.
    pub lease_seconds: u32,
}

/// Settings of the replica's task.
#[derive(Debug, Clone)]
pub struct RunnerSettings {
    /// Settings of the election.
    pub elections: Elections,
    /// Settings of the fleet.
    pub fleet: FleetSettings,
}

/// Where all election keys begin; they are no records.
pub const ELECTIONS: &str = "/snic/election/v1/";

/// Leader, as this replica knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Leadership {
    /// Nobody, or nobody knows.
    #[default]
    Nobody,
    Own,
    Other {
        /// Where it is.
        address: String,
        /// Since when it leads.
        epoch: Epoch,
    },
}

enum Message {
    Ask(Box<FleetAsk>, oneshot::Sender<Result<FleetReply, Denied>>),
    /// The sender is dropped once the report was looked at.
    Report(HostId, Box<HostReport>, oneshot::Sender<()>),
}

/// The way to the replica's task. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RunnerHandle {
    messages: mpsc::Sender<Message>,
    leadership: watch::Receiver<Leadership>,
    refusal: watch::Receiver<Option<StoreRefusal>>,
    gauges: watch::Receiver<Option<FleetGauges>>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ask(..) => "Ask",
            Self::Report(..) => "Report",
        })
    }
}

impl RunnerHandle {
    /// Leader, for those who follow it.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Why etcd refuses this replica, if it does.
    pub fn refusal(&self) -> Option<StoreRefusal> {
        self.refusal.borrow().clone()
    }

    /// State of the fleet for metrics, where this replica leads; not older than a second.
    pub fn gauges(&self) -> Option<FleetGauges> {
        self.gauges.borrow().clone()
    }

    /// Asks this replica.
    ///
    /// # Errors
    /// [`Denied`]; [`Denied::NotLeader`] also where its task has ended before it took the request.
    pub async fn ask(&self, ask: FleetAsk) -> Result<FleetReply, Denied> {
        let (answer, answered) = oneshot::channel();
        let sent = self.messages.send(Message::Ask(Box::new(ask), answer)).await;
        sent.map_err(|_| Denied::NotLeader)?;
        answered.await.unwrap_or(Err(Denied::Open))
    }

    /// Passes on a report, and waits until it was looked at, so that each host has one at a time under way. False
    /// once the replica's task has ended.
    pub async fn report(&self, host: HostId, report: HostReport) -> bool {
        let (looked_at, wait) = oneshot::channel();
        let message = Message::Report(host, Box::new(report), looked_at);
        if self.messages.send(message).await.is_err() {
            return false;
        }
        // Its sender is dropped without a value.
        let _ = wait.await;
        true
    }
}

/// The replica's task, until `stopping`: then it gives up its election key and returns.
#[derive(Debug)]
pub(crate) struct Runner {
    settings: RunnerSettings,
    etcd: EtcdConnection,
    links: Arc<HostLinks>,
    replica: Replica,
    messages: mpsc::Receiver<Message>,
    leadership: watch::Sender<Leadership>,
    refusal: watch::Sender<Option<StoreRefusal>>,
    gauges: watch::Sender<Option<FleetGauges>>,
    /// When they were taken last.
    gauged: Instant,
    calls: BTreeMap<FleetCall, oneshot::Sender<Result<FleetReply, Denied>>>,
    last_call: u64,
    asked: JoinSet<(u64, Result<Answer, Failed>)>,
    /// Watch of all records, while this replica keeps a copy.
    watching: Option<EtcdWatchStream>,
    /// News of that watch, for those who watch at this replica.
    history: Arc<History>,
    reading_earlier: JoinSet<()>,
    term: Option<Term>,
    steps_down: bool,
}

impl Runner {
    pub fn new(
        settings: RunnerSettings,
        etcd: EtcdConnection,
        (links, history): (Arc<HostLinks>, Arc<History>),
    ) -> (Self, RunnerHandle) {
        let (sender, messages) = mpsc::channel(EVENTS_MAX);
        let (leadership, told) = watch::channel(Leadership::Nobody);
        let (refusal, refused) = watch::channel(None);
        let (gauges, gauged) = watch::channel(None);
        let replica = Replica::new(settings.fleet);
        let runner = Self {
            settings,
            etcd,
            links,
            replica,
            messages,
            leadership,
            refusal,
            gauges,
            gauged: Instant::now(),
            calls: BTreeMap::new(),
            last_call: 0,
            asked: JoinSet::new(),
            watching: None,
            history,
            reading_earlier: JoinSet::new(),
            term: None,
            steps_down: false,
        };
        let handle =
            RunnerHandle { messages: sender, leadership: told, refusal: refused, gauges: gauged };
        (runner, handle)
    }

    fn campaign(&self) -> Campaign {
        let Elections { address, lease_seconds } = &self.settings.elections;
        let settings = ElectionSettings {
            prefix: ELECTIONS.to_owned(),
            name: address.clone(),
            lease_seconds: *lease_seconds,
        };
        Campaign::new(self.etcd.clone(), settings)
    }

    /// Runs until `stopping`.
    pub async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut campaign = self.campaign();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => break,
                () = campaign.next() => {}
                Some(message) = self.messages.recv() => {
                    // Whoever slept until its lease was over answers nothing from what it knew.
                    self.follow(campaign.term());
                    self.take(message);
                }
                Some(answered) = self.asked.join_next() => {
                    // A request that panicked has no answer, and without one nothing would go on.
                    let (number, result) = answered.expect("requests to etcd do not panic");
                    self.handle(FleetEvent::Etcd { number, result });
                }
                told = next_of(self.watching.as_mut()) => {
                    self.apply_update(&told);
                    self.handle(FleetEvent::Watched(told));
                }
                _ = ticks.tick() => self.handle(FleetEvent::Tick),
            }
            self.follow(campaign.term());
            if std::mem::take(&mut self.steps_down) {
                self.follow(None);
                self.leadership.send_replace(Leadership::Nobody);
                campaign.resign().await;
                tokio::time::sleep(REST).await;
                campaign = self.campaign();
            }
            self.publish(&campaign);
        }
        self.follow(None);
        self.leadership.send_replace(Leadership::Nobody);
        campaign.resign().await;
    }

    /// Follows the election.
    fn follow(&mut self, term: Option<Term>) {
        if self.term == term {
            return;
        }
        if self.term.is_some() {
            tracing::info!("this replica no longer leads");
            self.links.end_all();
            self.handle(FleetEvent::Deposed);
        }
        if let Some(Term { key, since }) = term.clone() {
            tracing::info!(epoch = since.0, "elected; reading all records");
            self.handle(FleetEvent::Elected { key, created: since });
        }
        self.term = term;
    }

    /// Tells who leads: this replica once it has read all records.
    fn publish(&mut self, campaign: &Campaign) {
        let now = match &self.term {
            Some(_) if self.replica.epoch().is_some() => Leadership::Own,
            Some(_) => Leadership::Nobody,
            None => match campaign.leader() {
                Some(leader) if leader.name != self.settings.elections.address => {
                    Leadership::Other { address: leader.name, epoch: Epoch(leader.term.since.0) }
                }
                _ => Leadership::Nobody,
            },
        };
        self.publish_refusal(campaign);
        self.publish_gauges();
        self.leadership.send_if_modified(|told| {
            let changes = *told != now;
            if changes {
                tracing::info!(leader = ?now, "who leads");
                *told = now;
            }
            changes
        });
    }

    /// Takes the state for metrics, once a second, and at once where it does not lead any more.
    fn publish_gauges(&mut self) {
        let leads = self.replica.epoch().is_some();
        let had = self.gauges.borrow().is_some();
        if leads != had || leads && self.gauged.elapsed() >= GAUGES {
            self.gauged = Instant::now();
            self.gauges.send_replace(self.replica.gauges());
        }
    }

    /// Tells why etcd refuses this replica: what it writes as the leader, what it reads, or its election key.
    fn publish_refusal(&self, campaign: &Campaign) {
        let of_campaign = || {
            let why = campaign.refusal()?;
            let told = self.refusal.borrow();
            let before = told.as_ref().filter(|told| told.reason == why.0.word());
            let since = before.map_or_else(wall_clock, |told| told.since);
            Some(StoreRefusal::new(why, since))
        };
        let now = self.replica.refusal().cloned().or_else(of_campaign);
        self.refusal.send_if_modified(|told| {
            let changes = *told != now;
            if changes {
                // A leader's own are told with its notices.
                let reason = |of: &Option<StoreRefusal>| of.as_ref().map(|of| of.reason.clone());
                match &now {
                    Some(refusal) if self.term.is_none() && reason(told) != reason(&now) => {
                        tracing::error!(
                            reason = refusal.reason,
                            said = refusal.said,
                            remedy = refusal.remedy,
                            "etcd refuses this replica"
                        );
                    }
                    None if self.term.is_none() => tracing::info!("etcd accepts this replica"),
                    _ => {}
                }
                *told = now;
            }
            changes
        });
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Ask(ask, answer) => {
                // Whoever gave up meanwhile needs no answer, and nothing was done for it.
                if answer.is_closed() {
                    return;
                }
                self.last_call += 1;
                let call = FleetCall(self.last_call);
                self.calls.insert(call, answer);
                self.handle(FleetEvent::Ask { call, ask: *ask });
            }
            Message::Report(host, report, _looked_at) => {
                self.handle(FleetEvent::Report { host, report: *report });
            }
        }
    }

    /// Watches the records from a revision on.
    fn watch(&mut self, watch: Watch) {
        match self.etcd.watch(watch.clone()) {
            Ok(watching) => self.watching = Some(watching),
            // The replica reads all records instead.
            Err(failed) => return tracing::error!(%failed, "the records cannot be watched"),
        }
        self.history.begin(watch.from);
        let (etcd, history) = (self.etcd.clone(), Arc::clone(&self.history));
        // The one before ends.
        self.reading_earlier = JoinSet::new();
        self.reading_earlier.spawn(read_earlier(etcd, watch, history));
    }

    /// The watch of the records told something. A leader needs none for itself, but others read what it tells.
    fn apply_update(&mut self, told: &Result<WatchUpdate, Failed>) {
        match told {
            Ok(told) => self.history.apply_update(told),
            Err(Failed::Compacted(begin)) => {
                self.watching = None;
                if self.replica.epoch().is_some() {
                    self.watch(Watch { prefix: PREFIX.to_owned(), from: *begin });
                }
            }
            Err(_) => {}
        }
    }

    fn handle(&mut self, event: FleetEvent) {
        for effect in self.replica.handle(wall_clock(), event) {
            match effect {
                FleetEffect::Etcd { number, request } => {
                    let etcd = self.etcd.clone();
                    self.asked.spawn(async move {
                        let asked = Instant::now();
                        let result = etcd.ask(&request).await;
                        let seconds = asked.elapsed().as_secs_f64();
                        instruments().etcd_answered(result.is_ok(), seconds);
                        (number, result)
                    });
                }
                FleetEffect::Watch(watch) => self.watch(watch),
                FleetEffect::Reply { call, result } => {
                    if let Some(answer) = self.calls.remove(&call) {
                        // Whoever asked may have left.
                        let _ = answer.send(result);
                    }
                }
                FleetEffect::Order { host, order } => self.links.send(&host, &order),
                FleetEffect::Tell(notice) => log_notice(&notice),
                FleetEffect::StepDown => self.steps_down = true,
            }
        }
    }
}

/// Records written before a watch of them began, as far as etcd keeps them.
async fn read_earlier(etcd: EtcdConnection, watch: Watch, history: Arc<History>) {
    let mut from = Revision((watch.from.0 - EARLIER_REVISIONS).max(1));
    let begins = u64::try_from(watch.from.0).unwrap_or_default().saturating_sub(1);
    // Once more, where the history begins later.
    for _ in 0..2 {
        let watch = Watch { prefix: watch.prefix.clone(), from };
        let Ok(mut earlier) = etcd.watch(watch) else { return };
        let behind = u64::try_from(from.0).unwrap_or_default().saturating_sub(1);
        let mut piece = Piece::behind(behind);
        while piece.until() < begins {
            match earlier.next().await {
                Ok(told) => piece.apply_update(&told),
                Err(Failed::Compacted(begin)) => {
                    from = begin;
                    break;
                }
                Err(Failed::Unreachable(_)) => {}
                Err(_) => return,
            }
            earlier.request_bookmark().await;
        }
        if piece.until() >= begins {
            return history.earlier(piece);
        }
    }
}

/// Next news of a watch; without one never.
async fn next_of(watching: Option<&mut EtcdWatchStream>) -> Result<WatchUpdate, Failed> {
    match watching {
        Some(watching) => watching.next().await,
        None => std::future::pending().await,
    }
}

/// Tells operators, in the log.
fn log_notice(notice: &FleetNotice) {
    match notice {
        FleetNotice::HostSuspected(host) => tracing::warn!(%host, "the host does not answer"),
        FleetNotice::HostLost(host) => tracing::warn!(%host, "the host is lost; its DAGs move"),
        FleetNotice::HostBack(host) => tracing::info!(%host, "the host answers again"),
        FleetNotice::EvacuationHeld { zone, unreachable, hosts } => {
            let zone = zone.as_ref().map(ToString::to_string);
            tracing::error!(
                zone,
                unreachable,
                hosts,
                "so many hosts are unreachable that no DAG is moved; look at the network first"
            );
        }
        FleetNotice::EvacuationResumed(zone) => {
            let zone = zone.as_ref().map(ToString::to_string);
            tracing::info!(zone, "DAGs of lost hosts are moved again");
        }
        FleetNotice::DagMoved { name, from, to } => {
            tracing::info!(dag = %name, %from, %to, "the DAG has another place");
        }
        FleetNotice::DagPlaced { name, to } => {
            tracing::info!(dag = %name, %to, "the DAG has a place again");
        }
        FleetNotice::DagUnplaced { name, why } => {
            tracing::warn!(dag = %name, ?why, "the DAG has no place");
        }
        FleetNotice::CardOverbooked { card, why } => {
            tracing::warn!(%card, why, "the card is overbooked; nothing new goes there");
        }
        FleetNotice::DagBound { name, host, why } => {
            tracing::warn!(dag = %name, %host, %why, "the DAG stays where it is");
        }
        FleetNotice::RebalanceEnded { outcome, moved, stay } => {
            tracing::info!(?outcome, moved, stay, "the rebalance has ended");
        }
        FleetNotice::StoreRefuses(StoreRefusal { reason, said, remedy, since }) => {
            tracing::error!(
                reason,
                said,
                remedy,
                seconds = wall_clock().since(*since).as_secs(),
                "etcd refuses what is to be written: nothing is created, changed or moved"
            );
        }
        FleetNotice::StoreAccepts(StoreRefusal { reason, since, .. }) => {
            let seconds = wall_clock().since(*since).as_secs();
            tracing::info!(reason, seconds, "etcd accepts writes again");
        }
        FleetNotice::CannotLead(why) => tracing::error!(why, "this replica cannot lead"),
    }
}
