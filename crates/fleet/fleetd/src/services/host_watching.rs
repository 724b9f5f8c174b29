//! Watches of hosts: their records from etcd, as in every other watch, and beside them what only the leader knows: whether
//! they answer, and whether their rack or zone is drained.
//!
//! While somebody watches hosts here, this replica asks the leader once a second. So all replicas tell the same, nothing
//! is written, and nothing is asked while nobody watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use snic_api::error::ApiError;
use snic_api::fleet_v1::{Host, HostView, WatchHostsResponse};
use snic_api::v1::EventType;
use snic_fleet::HostId;
use snic_fleet::protocol::{FleetAsk, FleetCommand, FleetHostState, FleetReply};
use snic_fleet::records::HostRecord;
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Services;
use super::watching::{Event, Events, WatchSpec, read};
use crate::wire;

/// Interval between questions to the leader.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Longest time for an answer, with an election.
const ANSWER_MAX: Duration = Duration::from_secs(6);
/// Time that a watch waits for that before it begins without.
const FIRST_MAX: Duration = Duration::from_secs(2);
/// Events queued for a reader, in addition to the transport's buffers.
const EVENTS_WAITING_MAX: usize = 16;

/// Last answer of the leader; `None`: nothing yet.
type KnownHosts = Option<Arc<BTreeMap<HostId, FleetHostState>>>;

/// States of hosts as the leader reports them, for all who watch them here. `None` while nobody does.
pub(super) type HostStates = parking_lot::Mutex<Option<watch::Sender<KnownHosts>>>;

/// A change of a record.
enum RecordEvent {
    Bookmark(u64),
    Seen(EventType, Box<HostRecord>, u64),
    Gone(HostId, u64),
}

/// A host in its key, behind the prefix of its kind.
fn host_of(name: &str) -> Option<HostId> {
    HostId::new(name.strip_suffix("/spec")?).ok()
}

fn record_event(event: Event<'_>, revision: u64) -> Option<RecordEvent> {
    match event {
        Event::Bookmark => Some(RecordEvent::Bookmark(revision)),
        Event::Seen(kind, record) if record.key.ends_with("/spec") => {
            Some(RecordEvent::Seen(kind, Box::new(read(record)?), revision))
        }
        Event::Seen(..) => None,
        Event::Gone { name, .. } => Some(RecordEvent::Gone(host_of(name)?, revision)),
    }
}

impl Services {
    /// Begins a watch of all hosts.
    pub(super) async fn watch_all_hosts(
        &self,
        resume: u64,
        view: HostView,
    ) -> Result<Events<WatchHostsResponse>, ApiError> {
        let spec =
            WatchSpec { kind: "hosts/", tenant: None, is_of_tenant: false, event: record_event };
        let mut states = self.host_states();
        let mut hosts = Hosts { view, ..Hosts::default() };
        if resume == 0 {
            // What the wait brings is not needed: without it hosts have no condition at first.
            let first = states.wait_for(Option::is_some);
            let _ = tokio::time::timeout(FIRST_MAX, first).await;
        } else {
            // Conditions have no revision: they are told once more for all hosts.
            hosts = Hosts::resumed(self.all_records("hosts/").await?, resume, view);
            states.mark_changed();
        }
        let records = self.watch(spec, resume).await?;
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        tokio::spawn(follow(hosts, records, states, sender));
        Ok(ReceiverStream::new(events))
    }

    /// Follows what the leader says; whoever is the first has it asked.
    fn host_states(&self) -> watch::Receiver<KnownHosts> {
        let mut asking = self.0.host_states.lock();
        if let Some(told) = asking.as_ref() {
            return told.subscribe();
        }
        let (told, states) = watch::channel(None);
        *asking = Some(told);
        tokio::spawn(ask_for_states(self.clone()));
        states
    }
}

/// Asks the leader again and again, until nobody watches any more.
async fn ask_for_states(services: Services) {
    let mut stopping = services.0.parts.stopping.clone();
    let mut ticks = tokio::time::interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let asked = async {
            ticks.tick().await;
            let command = FleetCommand::GetHostStates;
            let ask = FleetAsk { tenant: None, id: None, validate_only: false, command };
            tokio::time::timeout(ANSWER_MAX, services.send(ask)).await
        };
        let answer = tokio::select! {
            // Without a sender the server has stopped.
            _ = stopping.wait_for(|stopping| *stopping) => None,
            answer = asked => Some(answer),
        };
        let mut asking = services.0.host_states.lock();
        let Some(told) = asking.as_ref().filter(|told| told.receiver_count() > 0) else {
            *asking = None;
            return;
        };
        match answer {
            None => {
                *asking = None;
                return;
            }
            Some(Ok(Ok(FleetReply::HostStates(states)))) => {
                told.send_if_modified(|known| {
                    let changes = known.as_deref() != Some(&states);
                    if changes {
                        *known = Some(Arc::new(states));
                    }
                    changes
                });
            }
            // What was told stays: a new leader says more as soon as there is one.
            Some(other) => tracing::debug!(?other, "the leader does not say how hosts are"),
        }
    }
}

/// State of a watch.
#[derive(Debug, Default)]
struct Hosts {
    known: BTreeMap<HostId, (HostRecord, Option<FleetHostState>)>,
    /// Where a watch that is resumed goes on.
    at: u64,
    /// Part of each host that is sent.
    view: HostView,
}

impl Hosts {
    /// All hosts, of whose states nothing was told.
    fn resumed(records: Vec<HostRecord>, at: u64, view: HostView) -> Self {
        let known = records.into_iter().map(|record| (record.host.clone(), (record, None)));
        Self { known: known.collect(), at, view }
    }

    fn host(&self, record: &HostRecord, state: Option<FleetHostState>) -> Host {
        wire::viewed(wire::watched_host(record, state), self.view)
    }

    /// Response to a change of a record.
    fn record(&mut self, event: RecordEvent, states: &KnownHosts) -> WatchHostsResponse {
        let (kind, host, revision) = match event {
            RecordEvent::Bookmark(revision) => (EventType::Bookmark, None, revision),
            RecordEvent::Seen(kind, record, revision) => {
                let state = states.as_ref().and_then(|of| of.get(&record.host)).copied();
                let host = self.host(&record, state);
                self.known.insert(record.host.clone(), (*record, state));
                (kind, Some(host), revision)
            }
            RecordEvent::Gone(host, revision) => {
                self.known.remove(&host);
                let name = format!("hosts/{host}");
                (EventType::Deleted, Some(Host { name, ..Host::default() }), revision)
            }
        };
        self.at = revision;
        WatchHostsResponse { r#type: kind.into(), host, revision }
    }

    /// Responses about hosts whose state is another one now.
    fn changed(&mut self, states: &KnownHosts) -> Vec<WatchHostsResponse> {
        let Some(states) = states else { return Vec::new() };
        let (at, mut changed) = (self.at, Vec::new());
        let view = self.view;
        for (host, (record, told)) in &mut self.known {
            let now = states.get(host).copied();
            if now.is_some() && now != *told {
                *told = now;
                let host = Some(wire::viewed(wire::watched_host(record, now), view));
                changed.push(WatchHostsResponse {
                    r#type: EventType::Modified.into(),
                    host,
                    revision: at,
                });
            }
        }
        changed
    }
}

/// Tells changes of records and states until one of both sides ends.
async fn follow(
    mut hosts: Hosts,
    mut records: Events<RecordEvent>,
    mut states: watch::Receiver<KnownHosts>,
    sender: mpsc::Sender<Result<WatchHostsResponse, Status>>,
) {
    loop {
        let events = tokio::select! {
            event = records.next() => match event {
                Some(Ok(event)) => vec![hosts.record(event, &states.borrow())],
                Some(Err(status)) => {
                    // The task does not wait for a reader that accepts nothing.
                    let _ = sender.try_send(Err(status));
                    return;
                }
                None => return,
            },
            // Where nobody asks any more, the server stops, and the records end.
            Ok(()) = states.changed() => hosts.changed(&states.borrow_and_update()),
            () = sender.closed() => return,
        };
        for event in events {
            if sender.send(Ok(event)).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use snic_api::fleet_v1::host::Condition;
    use snic_fleet::placement::HostSpec;
    use snic_fleet::protocol::HostCondition;
    use snic_fleet::{RackId, ZoneId};

    use super::*;

    fn id(host: &str) -> HostId {
        HostId::new(host).expect("a name")
    }

    fn record(host: &str) -> HostRecord {
        let spec = HostSpec {
            zone: ZoneId::new("z1").expect("a zone"),
            rack: RackId::new("r1").expect("a rack"),
            labels: BTreeMap::new(),
            is_cordoned: false,
            cards: BTreeMap::new(),
        };
        HostRecord { host: id(host), spec, is_draining: false, meta: Default::default() }
    }

    fn seen(host: &str, revision: u64) -> RecordEvent {
        RecordEvent::Seen(EventType::Added, Box::new(record(host)), revision)
    }

    fn told(of: &[(&str, HostCondition)]) -> KnownHosts {
        let state = |condition| FleetHostState { condition, is_draining: false };
        Some(Arc::new(of.iter().map(|(host, of)| (id(host), state(*of))).collect()))
    }

    /// Type, last part of the name, condition and revision.
    fn said(event: &WatchHostsResponse) -> (EventType, String, Condition, u64) {
        let host = event.host.clone().unwrap_or_default();
        let name = host.name.trim_start_matches("hosts/").to_owned();
        (event.r#type(), name, host.condition(), event.revision)
    }

    #[test]
    fn each_change_of_a_state_is_told_once_and_resumes_where_the_records_are() {
        use HostCondition::{InStep, Lost, Suspected};
        let mut hosts = Hosts::default();
        let states = told(&[("h1", InStep)]);
        let first = hosts.record(seen("h1", 0), &states);
        assert_eq!(said(&first), (EventType::Added, "h1".into(), Condition::InStep, 0));
        // The leader has not said anything of it yet.
        let second = hosts.record(seen("h2", 0), &states);
        assert_eq!(said(&second).2, Condition::Unspecified);
        hosts.record(RecordEvent::Bookmark(7), &states);
        assert_eq!(hosts.changed(&states), [], "nothing is new");
        assert_eq!(hosts.changed(&None), [], "no leader has said anything");
        let states = told(&[("h1", Suspected), ("h2", InStep), ("h3", Lost)]);
        let changed: Vec<_> = hosts.changed(&states).iter().map(said).collect();
        let modified = |host: &str, condition| (EventType::Modified, host.to_owned(), condition, 7);
        assert_eq!(
            changed,
            [modified("h1", Condition::Suspected), modified("h2", Condition::InStep)]
        );
        assert_eq!(hosts.changed(&states), [], "and once only");
        let gone = hosts.record(RecordEvent::Gone(id("h1"), 9), &states);
        assert_eq!(said(&gone), (EventType::Deleted, "h1".into(), Condition::Unspecified, 9));
        assert_eq!(hosts.changed(&told(&[("h1", Lost), ("h2", InStep)])), [], "h1 is gone");
    }

    /// A watch that is resumed cannot know which states changed meanwhile.
    #[test]
    fn a_watch_that_is_resumed_tells_all_states() {
        let mut hosts = Hosts::resumed(vec![record("h1"), record("h2")], 5, HostView::Full);
        let states = told(&[("h1", HostCondition::Lost), ("h2", HostCondition::InStep)]);
        let changed: Vec<_> = hosts.changed(&states).iter().map(said).collect();
        let modified = |host: &str, condition| (EventType::Modified, host.to_owned(), condition, 5);
        assert_eq!(changed, [modified("h1", Condition::Lost), modified("h2", Condition::InStep)]);
    }

    #[test]
    fn only_the_spec_of_a_host_is_a_host() {
        assert_eq!(host_of("h1/spec"), Some(id("h1")));
        assert_eq!(host_of("h1/other"), None);
        assert_eq!(host_of("/spec"), None);
    }
}
