//! The controller's thread: events in, effects out, in order.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use snic_controller::{
    BatchNo, CallId, CardCommand, CardReport, Change, Command, ControlError, Controller, Effect,
    Event, NumberedBatch, Outbox, Reply, Request, SetAside,
};
use snic_domain::{CardId, Digest};
use snic_front::wall_clock;
use snic_ports::store::{Batch, RECORD_BYTES_MAX, Store, StoreError, Write, check_limits};
use snic_telemetry::metrics::{QUEUES, SET_ASIDE, UNWRITABLE, instruments};
use snic_telemetry::trace::{TARGET, Trace};
use tokio::sync::{broadcast, oneshot};

use super::card_thread::CardThread;
use super::inbox::Inbox;
use super::lines::{LogLine, LogLines};
use super::message::{DeferredReply, Message};
use super::search_thread::Searches;
use super::steps::Steps;
use super::{Notice, Pins, traced};

/// The longest sleep of the thread, which bounds how late it notices that the clock was set back.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Microseconds by which a revision is later before it is said again that all up to it were told.
const COMPLETENESS_STEP: u64 = 10_000;

/// Where effects are sent.
pub(super) struct Outlets {
    pub store: Arc<dyn Store>,
    pub messages: Inbox,
    pub cards: BTreeMap<CardId, CardThread>,
    pub changes: broadcast::Sender<Notice>,
    pub pins: Arc<Pins>,
    pub searches: Searches,
}

/// Entries of the outbox.
enum OutboxEntry {
    Card(CardId, CardCommand, Trace),
    Reply(CallId, Result<Reply, ControlError>),
    /// With its revision.
    Emit(u64, Change, Option<LogLine>),
    DropBlob(Digest),
    Search(CardId, u32),
    Read(DeferredReply),
}

impl OutboxEntry {
    /// Whether it may leave before the entries ahead of it are stored, if that takes long: reads,
    /// samples, and rates, which no record holds; and answers, since all that are left answer
    /// requests that change nothing, or have no receiver.
    fn stores_nothing(&self) -> bool {
        match self {
            Self::Read(_) | Self::Reply(..) => true,
            Self::Card(_, command, _) => command.needs_no_record(),
            Self::Emit(..) | Self::DropBlob(_) | Self::Search(..) => false,
        }
    }
}

/// Innermost cause of a failure, such as `No space left on device`, that names no path, for tenants are told, too.
fn root_cause(failure: &str) -> String {
    // What is to be done stands behind it.
    let mut parts = failure.rsplit(": ").map(|part| part.split("; ").next().unwrap_or_default());
    let cause = parts.find(|part| !part.contains('/'));
    cause.unwrap_or("see the server's log").to_owned()
}

/// The answer to a request that leads to what no store takes. Nothing was changed.
fn does_not_fit() -> ControlError {
    ControlError::Exhausted {
        what: "bytes of one record of the store".to_owned(),
        limit: RECORD_BYTES_MAX as u64,
        hint: "nothing was changed; ask for less in one request".to_owned(),
    }
}

/// Takes the cause of a change that no store takes out of the records; gives what the store is to be told.
///
/// # Errors
/// The rest does not stand without it, or there is no room to keep it.
fn set_aside_cause(
    records: &mut Vec<(String, Vec<u8>)>,
    refusal: StoreError,
) -> Result<Batch, StoreError> {
    let StoreError::RecordTooLarge { key, .. } = &refusal else { return Err(refusal) };
    let taken = Controller::take_cause(records, key, &refusal.to_string());
    let set_aside = taken.map_err(|full| StoreError::Stopped(full.to_string()))?;
    if set_aside.is_empty() {
        return Err(refusal);
    }
    for record in &set_aside {
        tracing::error!(
            record = record.key,
            reason = %record.reason,
            "a record is set aside: it is kept under quarantine/, and the daemon goes on without it; see \
             `snicd store check`"
        );
    }
    SET_ASIDE.add(set_aside.len());
    let writes = set_aside.iter().flat_map(SetAside::writes);
    Ok(Batch { writes: writes.map(|(key, value)| Write { key, value }).collect() })
}

pub(super) struct Actor {
    controller: Controller,
    outlets: Outlets,
    calls: HashMap<CallId, oneshot::Sender<Result<Reply, ControlError>>>,
    next_call: u64,
    outbox: Outbox<OutboxEntry>,
    steps: Steps,
    lines: LogLines,
    /// Why the store could not be written at the last check, if so: the answer of the system, without paths.
    unwritable: Option<String>,
    /// The revisions of the changes that wait.
    untold: VecDeque<u64>,
    /// The revision up to which all were last said to be told.
    complete: u64,
}

impl Actor {
    pub fn new(controller: Controller, outlets: Outlets) -> Self {
        Self {
            lines: LogLines::of(&controller),
            controller,
            outlets,
            calls: HashMap::new(),
            next_call: 0,
            outbox: Outbox::new(),
            steps: Steps::default(),
            unwritable: None,
            untold: VecDeque::new(),
            complete: 0,
        }
    }

    /// Runs until it is stopped, or the store fails; the cards' threads end with it.
    pub fn run(mut self) -> Result<(), StoreError> {
        let inbox = self.outlets.messages.clone();
        let result = self.serve(&inbox);
        inbox.close();
        std::mem::take(&mut self.outlets.cards).into_values().for_each(CardThread::stop);
        result
    }

    /// A clean stop first waits for batches on their way to the store.
    fn serve(&mut self, inbox: &Inbox) -> Result<(), StoreError> {
        let mut stopping = false;
        loop {
            if stopping && self.outbox.is_durable() {
                return Ok(());
            }
            self.check_store();
            if stopping && self.unwritable.is_some() {
                let reason = "it was stopped while it could not be written".to_owned();
                return Err(StoreError::Stopped(reason));
            }
            if !stopping {
                self.sample_when_due()?;
            }
            let received = inbox.receive(self.sleep());
            let (message, served) = received.unwrap_or((Message::Event(Event::Tick), None));
            let begun = Instant::now();
            match message {
                Message::Stop => stopping = true,
                Message::Durable(number, result) => self.completed(number, result)?,
                _ if stopping => {}
                message => self.take(message)?,
            }
            if let Some(served) = served {
                inbox.charge(served, begun.elapsed());
            }
            self.release();
        }
    }

    /// Checks whether the store can be written. While it cannot, changes are rejected, the effects
    /// of earlier ones wait, and their callers get an error; reads and samples go on.
    fn check_store(&mut self) {
        let failure = self.outlets.store.unavailable();
        let was_writable = self.unwritable.is_none();
        if was_writable == failure.is_none() {
            return;
        }
        UNWRITABLE.set(failure.is_some());
        self.unwritable = failure.as_deref().map(root_cause);
        match failure {
            None => tracing::info!("changes are taken again"),
            Some(error) => {
                tracing::error!(error, "the store cannot be written: changes are refused");
                // Their changes may still be stored later.
                let refused = self.unavailable(true);
                for (_, answer) in self.calls.drain() {
                    // The caller may have given up.
                    let _ = answer.send(Err(refused.clone()));
                }
            }
        }
    }

    /// The answer to a change while the store cannot be written.
    fn unavailable(&self, may_apply: bool) -> ControlError {
        let reason = self.unwritable.clone().unwrap_or_default();
        ControlError::StoreUnavailable { reason, may_apply }
    }

    /// Whether a request can be carried out now: heartbeats store nothing unless a lease gets
    /// another term, and dry runs store nothing.
    fn is_taken(&self, request: &Request) -> bool {
        self.unwritable.is_none()
            || match &request.command {
                Command::Heartbeat { .. } => true,
                Command::CreateDag { validate_only, .. }
                | Command::UpdateDag { validate_only, .. } => *validate_only,
                _ => false,
            }
    }

    fn sample_when_due(&mut self) -> Result<(), StoreError> {
        if self.controller.next_sample() <= wall_clock() {
            self.handle(Event::Sample, &Trace::default())?;
            // Now, not with the next message, which may be the wake-up for the next sample.
            self.release();
        }
        Ok(())
    }

    fn sleep(&self) -> Duration {
        let wake_up = self.controller.next_wake_up();
        let next = self.controller.next_sample();
        let next = wake_up.map_or(next, |at| at.min(next));
        next.since(wall_clock()).min(SLEEP_MAX)
    }

    fn take(&mut self, message: Message) -> Result<(), StoreError> {
        match message {
            // The caller has given up, and the request has had no effect.
            Message::Request(_, answer, _) if answer.is_closed() => {}
            Message::Request(request, answer, _) if !self.is_taken(&request) => {
                // The caller may have given up.
                let _ = answer.send(Err(self.unavailable(false)));
            }
            Message::Request(request, answer, trace) => {
                self.next_call += 1;
                let call = CallId(self.next_call);
                self.calls.insert(call, answer);
                self.handle(Event::Request { call, request }, &trace)?;
            }
            Message::Event(event) => {
                let trace = match &event {
                    Event::Card { card, report } => self.steps.end(card, report),
                    _ => Trace::default(),
                };
                let is_sample =
                    matches!(&event, Event::Card { report: CardReport::Sampled { .. }, .. });
                let begun = Instant::now();
                self.handle(event, &trace)?;
                if is_sample {
                    instruments().sampled(begun.elapsed().as_secs_f64());
                }
            }
            Message::Read(query, reader) => {
                let reply = OutboxEntry::Read(query(&self.controller));
                match reader {
                    Some(tenant) => self.outbox.defer_read_of(&tenant, reply),
                    None => self.outbox.defer(reply),
                }
            }
            Message::DropIfUnused(digest) => self.outbox.defer(OutboxEntry::DropBlob(digest)),
            Message::Durable(..) | Message::Stop => {}
        }
        Ok(())
    }

    /// The effects of an event belong to its trace.
    ///
    /// # Errors
    /// A consequence of it can neither be stored nor undone.
    fn handle(&mut self, event: Event, trace: &Trace) -> Result<(), StoreError> {
        let span = trace.step(|| {
            let event = traced::word(&event);
            tracing::debug_span!(target: TARGET, parent: None, "snic.plan", snic.event = event)
        });
        let tx = span.in_scope(|| self.controller.handle(event, wall_clock()));
        drop(span);
        let mut revision = tx.revision();
        let batch = self.outbox.submit(tx, |effect| match effect {
            Effect::Card { card, command } => OutboxEntry::Card(card, command, trace.clone()),
            Effect::Reply { call, result } => OutboxEntry::Reply(call, result),
            Effect::Emit(change) => {
                let line = self.lines.line(&change, &self.controller);
                let own = revision;
                revision += 1;
                self.untold.push_back(own);
                OutboxEntry::Emit(own, change, line)
            }
            Effect::DropBlob(digest) => OutboxEntry::DropBlob(digest),
            Effect::Search { card, reconfigurations } => {
                OutboxEntry::Search(card, reconfigurations)
            }
        });
        if let Some(NumberedBatch { number, writes }) = batch {
            let writes = writes.into_iter().map(|(key, value)| Write { key, value }).collect();
            let batch = Batch { writes };
            match check_limits(std::slice::from_ref(&batch)) {
                Ok(()) => self.persist(number, batch, trace),
                Err(refusal) => return self.undo(number, refusal),
            }
        }
        Ok(())
    }

    /// Undoes a change that no store takes. Requests are checked before anything is changed, and limits leave room for
    /// what is decided later, so this is a defect; but one request is no reason to end: its caller is refused, and the
    /// controller goes on from what is stored, which has nothing of that change. What no request asked for would be decided
    /// again, so there its cause is set aside, and the rest goes on without it.
    ///
    /// # Errors
    /// Nobody asked for it, and the rest does not stand without its cause; or the store cannot be read or written.
    fn undo(&mut self, number: BatchNo, refusal: StoreError) -> Result<(), StoreError> {
        tracing::error!(error = %refusal, "a change does not fit the store, and is undone");
        let mut is_asked_for = false;
        for waiting in self.outbox.withdraw(number) {
            match waiting {
                OutboxEntry::Reply(call, _) => {
                    is_asked_for = true;
                    if let Some(answer) = self.calls.remove(&call) {
                        // The caller may have given up.
                        let _ = answer.send(Err(does_not_fit()));
                    }
                }
                OutboxEntry::Emit(..) => drop(self.untold.pop_back()),
                OutboxEntry::Card(..)
                | OutboxEntry::DropBlob(_)
                | OutboxEntry::Search(..)
                | OutboxEntry::Read(_) => {}
            }
        }
        let store = &self.outlets.store;
        // Returns once all batches before are durable.
        store.apply_all(&[])?;
        let mut records = store.scan("")?;
        if !is_asked_for {
            let set_aside = set_aside_cause(&mut records, refusal)?;
            store.apply(set_aside)?;
            // With those that were set aside, which the controller counts.
            records = store.scan("")?;
        }
        let restarted = self.controller.restarted(records, wall_clock());
        self.controller = restarted.map_err(|error| StoreError::Stopped(error.to_string()))?;
        self.lines = LogLines::of(&self.controller);
        // Commands that were under way were of the controller before: each card is read back.
        self.outlets.cards.values().for_each(CardThread::reopen);
        Ok(())
    }

    fn persist(&mut self, number: BatchNo, batch: Batch, trace: &Trace) {
        let messages = self.outlets.messages.clone();
        let count = batch.writes.len();
        let begun = Instant::now();
        let span = trace.step(|| {
            tracing::debug_span!(target: TARGET, parent: None, "snic.intent", snic.writes = count)
        });
        let done = Box::new(move |result| {
            drop(span);
            instruments().committed(begun.elapsed().as_secs_f64());
            messages.send(Message::Durable(number, result));
        });
        self.outlets.store.submit(vec![batch], done);
    }

    /// The store has completed a batch. Effects of a failed batch never leave.
    fn completed(
        &mut self,
        number: BatchNo,
        result: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match &result {
            Ok(()) => self.outbox.durable(number),
            Err(_) => self.outbox.failed(number),
        }
        result
    }

    /// Carries out the effects that no longer have to wait.
    fn release(&mut self) {
        while let Some(waiting) = self.outbox.pop_ready() {
            self.carry_out(waiting);
        }
        if self.unwritable.is_some() {
            for waiting in self.outbox.take_where(OutboxEntry::stores_nothing) {
                self.carry_out(waiting);
            }
        }
        self.report_completeness();
        QUEUES.set(self.outbox.len(), self.calls.len() + self.outlets.messages.waiting());
    }

    /// Says from time to time up to which revision all changes were told.
    fn report_completeness(&mut self) {
        let complete = match self.untold.front() {
            Some(first) => first.saturating_sub(1),
            None => self.controller.revision(wall_clock()),
        };
        if complete >= self.complete + COMPLETENESS_STEP {
            self.complete = complete;
            // Without a watch there is nobody to notify.
            let _ = self.outlets.changes.send(Notice::Complete(complete));
        }
    }

    fn carry_out(&mut self, waiting: OutboxEntry) {
        match waiting {
            OutboxEntry::Card(id, command, trace) => {
                if let Some(card) = self.outlets.cards.get(&id) {
                    let hidden = match &command {
                        CardCommand::Load { region, .. } => {
                            !self.controller.is_waited_for(&id, *region)
                        }
                        _ => false,
                    };
                    let parent = self.steps.begin(&id, &command, trace, hidden);
                    card.send(command, parent);
                }
            }
            OutboxEntry::Reply(call, result) => {
                if let Err(error) = &result {
                    instruments().refused(error.kind());
                }
                if let Some(answer) = self.calls.remove(&call) {
                    // The caller may have given up.
                    let _ = answer.send(result);
                }
            }
            OutboxEntry::Emit(revision, change, line) => {
                self.untold.pop_front();
                line.into_iter().for_each(LogLine::log);
                // Without a watch there is nobody to notify.
                let _ = self.outlets.changes.send(Notice::Change(revision, Arc::new(change)));
            }
            OutboxEntry::DropBlob(digest) => self.drop_blob(digest),
            // The thread ends with this one.
            OutboxEntry::Search(card, most) => drop(self.outlets.searches.send((card, most))),
            OutboxEntry::Read(reply) => reply(),
        }
    }

    /// Removes bytes that no record names and no upload under way needs.
    fn drop_blob(&self, digest: Digest) {
        if self.controller.uses_digest(digest) || self.outlets.pins.is_pinned(digest) {
            return;
        }
        if let Err(error) = self.outlets.store.delete_blob(digest) {
            tracing::warn!(%digest, %error, "a bitstream's bytes that nobody needs were kept");
        }
    }
}

#[cfg(test)]
mod barrier_tests;

#[cfg(test)]
mod outage_tests;

#[cfg(test)]
mod tests {
    use snic_bitstream::catalogue;
    use snic_card_sim::{SharedSimCard, SimCard};
    use snic_controller::ControllerSettings;
    use snic_ports::card::Card as _;
    use snic_ports::store::memory::MemoryStore;

    use super::super::{CardSlot, OpenedCard, card_thread, search_thread};
    use super::*;

    /// Longest time of a message that comes at once: a bound for tests that would otherwise hang.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_card_is_asked_for_a_sample_without_another_message() {
        let catalogue = catalogue::builtin().expect("valid");
        let profile = catalogue.cards[0].clone();
        let card = SharedSimCard::new(SimCard::new(profile.clone(), 1).expect("a valid profile"));
        let open = Box::new(move || -> OpenedCard {
            let mut card = card.clone();
            card.poll(wall_clock()).map_err(|error| error.to_string())?;
            Ok((Box::new(card), profile.clone()))
        });
        let id: CardId = "card0".parse().expect("a label");
        let slot = CardSlot::of_registers(id.clone(), open);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let messages = Inbox::new();
        let inbox = messages.clone();
        let thread = card_thread::start(slot, Arc::clone(&store), messages.clone()).expect("one");
        let cards = BTreeMap::from([(id, thread)]);
        let (changes, _) = broadcast::channel(16);
        let searches = search_thread::start(messages.clone()).expect("a thread");
        let pins = Arc::default();
        let outlets = Outlets { store, messages, cards, changes, pins, searches };
        let controller = Controller::recover(ControllerSettings::default(), [], 7, wall_clock());
        let mut actor = Actor::new(controller.expect("an empty store"), outlets);
        // Until the card was read back and all is durable.
        let mut is_read = false;
        while !is_read || !actor.outbox.is_durable() {
            match inbox.receive(PATIENCE).expect("the card and the store answer").0 {
                Message::Durable(number, result) => {
                    actor.completed(number, result).expect("a store in memory");
                }
                message => {
                    is_read |= matches!(
                        &message,
                        Message::Event(Event::Card { report: CardReport::ReadBack { .. }, .. })
                    );
                    actor.take(message).expect("it is stored");
                }
            }
            actor.release();
        }
        actor.sample_when_due().expect("nothing is stored");
        let answer = inbox.receive(PATIENCE).map(|(message, _)| message);
        assert!(matches!(
            answer,
            Some(Message::Event(Event::Card { report: CardReport::Sampled { .. }, .. }))
        ));
        std::mem::take(&mut actor.outlets.cards).into_values().for_each(CardThread::stop);
    }
}
