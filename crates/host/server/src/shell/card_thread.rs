//! A card's thread: opens the card, runs its driver session, reports; opens it again when it was
//! lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use snic_controller::{CardCommand, CardReport, Event, Ticket};
use snic_domain::{CardId, Digest, Timestamp};
use snic_front::{configurations, wall_clock};
use snic_ports::card::Card;
use snic_ports::card::image::with_known_control;
use snic_ports::driver::{Session, text_words};
use snic_ports::store::Store;

use super::CardSlot;
use super::inbox::Inbox;
use super::measured_card::MeasuredCard;
use super::message::Message;
use super::monitor_thread::{self, MonitorThread};

/// Commands that may wait for a card. The controller has at most one commit, one load and one
/// read-back under way, so a full channel means that the thread is stuck.
const COMMANDS_MAX: usize = 64;
/// Between two polls while something is under way: long against a register access, short against
/// a load.
const POLL_BUSY: Duration = Duration::from_micros(50);
/// Between two polls while nothing is.
const POLL_IDLE: Duration = Duration::from_millis(100);
/// Between two tries to open a card, at first and at most: a worker that dies at once is not started over
/// and over.
const REOPEN_MIN: Duration = Duration::from_secs(1);
const REOPEN_MAX: Duration = Duration::from_secs(30);

/// Between two looks whether the device of a closed card is there.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(500);

/// Wait before a card is opened again.
struct Backoff {
    next: Duration,
}

impl Backoff {
    const fn new() -> Self {
        Self { next: REOPEN_MIN }
    }

    /// The pause after a card that was open for so long, or could not be opened: twice the one before, unless
    /// it was open for longer than the longest pause.
    fn after(&mut self, open: Duration) -> Duration {
        if open > REOPEN_MAX {
            self.next = REOPEN_MIN;
        }
        let pause = self.next;
        self.next = (pause * 2).min(REOPEN_MAX);
        pause
    }
}

/// Longest time that counts for a card between two polls. If the process stood still for longer
/// (stopped or suspended, or its machine was), the card was not polled, so its deadlines stop too.
const POLL_GAP_MAX: Duration = Duration::from_millis(500);

/// The time that counts for a card: wall time without the gaps in which it was not polled.
struct CardClock {
    now: Timestamp,
    wall: Timestamp,
}

impl CardClock {
    const fn new(wall: Timestamp) -> Self {
        Self { now: wall, wall }
    }

    /// The card's time at this wall time.
    fn at(&mut self, wall: Timestamp) -> Timestamp {
        self.now = self.now + wall.since(self.wall).min(POLL_GAP_MAX);
        self.wall = wall;
        self.now
    }
}

/// A command, and the span that it is a step of as the header `traceparent`.
pub(super) type Order = (CardCommand, Option<String>);

/// The controller's end of a card's thread.
pub(super) struct CardThread {
    id: CardId,
    commands: SyncSender<Order>,
    messages: Inbox,
    /// Set where the card is to be opened again.
    reopens: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    monitor: Option<MonitorThread>,
}

impl CardThread {
    /// Ends the thread; loads and commits under way on the card continue there.
    pub fn stop(self) {
        drop(self.commands);
        if let Some(monitor) = self.monitor {
            monitor.stop();
        }
        if self.thread.join().is_err() {
            tracing::error!(card = %self.id, "the card's thread panicked");
        }
    }

    /// Has the card opened again, as one that was lost.
    pub fn reopen(&self) {
        self.reopens.store(true, Ordering::Relaxed);
    }

    /// Sends a command. A card whose queue is full is reported as lost.
    pub fn send(&self, command: CardCommand, parent: Option<String>) {
        let reset = match command {
            CardCommand::Reset { ticket, .. } => Some(ticket),
            _ => None,
        };
        if self.commands.try_send((command, parent)).is_err() {
            let reason = "its thread does not take commands any more".to_owned();
            if let Some(ticket) = reset {
                let reason = reason.clone();
                report(&self.messages, &self.id, CardReport::NotReset { ticket, reason });
            }
            report(&self.messages, &self.id, CardReport::Lost { reason });
        }
    }
}

fn report(messages: &Inbox, id: &CardId, report: CardReport) {
    let event = Event::Card { card: id.clone(), report };
    messages.send(Message::Event(event));
}

#[cfg(test)]
impl CardThread {
    /// A thread that has ended already, and the commands that it would get.
    pub fn stub(id: CardId, messages: Inbox) -> (Self, Receiver<Order>) {
        let (commands, inbox) = sync_channel(COMMANDS_MAX);
        let (reopens, thread) = (Arc::default(), std::thread::spawn(|| {}));
        (Self { id, commands, messages, reopens, thread, monitor: None }, inbox)
    }
}

/// Why a card is no longer served.
enum End {
    Lost,
    /// For another role.
    Released,
    /// To be reset.
    Reset(Ticket),
    Stopped,
}

/// Starts the thread of one card.
pub(super) fn start(
    mut slot: CardSlot,
    store: Arc<dyn Store>,
    messages: Inbox,
) -> std::io::Result<CardThread> {
    let (commands, inbox) = sync_channel(COMMANDS_MAX);
    let id = slot.id.clone();
    let monitor = slot.backend.take_monitor();
    let monitor = monitor.map(|one| monitor_thread::start(id.clone(), one, messages.clone()));
    let monitor = monitor.transpose()?;
    let to_controller = messages.clone();
    let reopens = Arc::new(AtomicBool::new(false));
    let is_asked = Arc::clone(&reopens);
    let thread = std::thread::Builder::new().name(format!("card-{id}")).spawn(move || {
        CardThreadState::new(slot, store.as_ref(), &to_controller, &inbox, &is_asked).run()
    })?;
    Ok(CardThread { id, commands, messages, reopens, thread, monitor })
}

/// The state of a card's thread.
struct CardThreadState<'a> {
    slot: CardSlot,
    session: Session,
    /// The session was asked what the card holds.
    is_asked: bool,
    clock: CardClock,
    store: &'a dyn Store,
    /// To the controller.
    messages: &'a Inbox,
    /// From the controller.
    orders: &'a Receiver<Order>,
    /// Whether the card is to be opened again.
    reopens: &'a AtomicBool,
    /// The reset that the session releases the card for.
    reset: Option<Ticket>,
}

/// A session that tells network tasks in hardware their configurations in words.
fn new_session(slot: &CardSlot) -> Session {
    Session::new(slot.backend.deadlines()).encoding(configuration_words)
}

/// The words of the type's schema; the text itself for a tenant's own type, which nobody else knows.
fn configuration_words(nt_type: &str, json: &str) -> Result<Vec<u32>, String> {
    match configurations::configuration_words(nt_type, json) {
        Some(words) => words.map_err(|error| error.to_string()),
        None => text_words(nt_type, json),
    }
}

impl<'a> CardThreadState<'a> {
    fn new(
        slot: CardSlot,
        store: &'a dyn Store,
        messages: &'a Inbox,
        orders: &'a Receiver<Order>,
        reopens: &'a AtomicBool,
    ) -> Self {
        let session = new_session(&slot);
        let clock = CardClock::new(wall_clock());
        let (is_asked, reset) = (false, None);
        Self { slot, session, is_asked, clock, store, messages, orders, reopens, reset }
    }

    fn run(mut self) {
        let mut backoff = Backoff::new();
        loop {
            let mut open_for = Duration::ZERO;
            match self.slot.backend.open() {
                Ok((mut card, profile)) => {
                    let (card_id, profile) = (self.slot.id.clone(), Box::new(profile));
                    let event = Event::CardAppeared { card: card_id, profile };
                    self.messages.send(Message::Event(event));
                    let opened = Instant::now();
                    let end = self.serve(&mut MeasuredCard::new(card.as_mut()));
                    drop(card);
                    match end {
                        End::Lost => open_for = opened.elapsed(),
                        End::Released => continue,
                        End::Reset(ticket) => {
                            self.reset(ticket);
                            continue;
                        }
                        End::Stopped => return,
                    }
                }
                Err(reason) => {
                    let event = Event::CardAbsent { card: self.slot.id.clone(), reason };
                    self.messages.send(Message::Event(event));
                }
            }
            if !self.pause(backoff.after(open_for)) {
                return;
            }
        }
    }

    /// Waits before the card is opened again, or until its device comes back; says whether to go on. Commands to
    /// the lost card are of no use to the next one, but for a reset.
    fn pause(&mut self, pause: Duration) -> bool {
        let mut left = pause;
        let mut was_there = self.slot.backend.is_present();
        while !left.is_zero() {
            let piece = left.min(PRESENCE_INTERVAL);
            match self.orders.recv_timeout(piece) {
                Ok((CardCommand::Reset { ticket, at_once: true }, _)) => {
                    self.reset(ticket);
                    return true;
                }
                Ok(_) => left = left.saturating_sub(Duration::from_millis(1)),
                Err(RecvTimeoutError::Timeout) => left -= piece,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            let is_there = self.slot.backend.is_present();
            if is_there && !was_there {
                tracing::info!(card = %self.slot.id, "the card's device is back");
                return true;
            }
            was_there = is_there;
        }
        true
    }

    /// Has the closed card reset.
    fn reset(&mut self, ticket: Ticket) {
        let said = match self.slot.backend.reset() {
            Ok(()) => CardReport::Released { ticket },
            Err(reason) => CardReport::NotReset { ticket, reason },
        };
        report(self.messages, &self.slot.id, said);
    }

    fn serve(&mut self, card: &mut dyn Card) -> End {
        self.is_asked = false;
        loop {
            let sleep = match (self.session.is_ready(), self.session.is_idle()) {
                (true, _) => Duration::ZERO,
                (false, true) => POLL_IDLE,
                (false, false) => POLL_BUSY,
            };
            let mut received = self.orders.recv_timeout(sleep);
            // All waiting commands at once, so that a step can tell whether a sample follows a
            // commit.
            loop {
                match received {
                    Ok((command, parent)) => self.submit(command, parent),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return End::Stopped,
                }
                received = self.orders.recv_timeout(Duration::ZERO);
            }
            if self.reopens.swap(false, Ordering::Relaxed) {
                self.session = new_session(&self.slot);
                let reason = "it is opened again".to_owned();
                report(self.messages, &self.slot.id, CardReport::Lost { reason });
                return End::Lost;
            }
            let mut end = None;
            for said in self.session.step(card, self.clock.at(wall_clock())) {
                match said {
                    CardReport::Lost { .. } => end = Some(End::Lost),
                    // Its answer is told once it is done.
                    CardReport::Released { ticket } if self.reset.take() == Some(ticket) => {
                        return End::Reset(ticket);
                    }
                    CardReport::Released { .. } => end = Some(End::Released),
                    _ => {}
                }
                report(self.messages, &self.slot.id, said);
            }
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Submits a command. One that was decided for the session before may have waited for the store while the card was opened again,
    /// and another device may be in its place: until this one was asked what it holds, nothing is for it.
    fn submit(&mut self, command: CardCommand, parent: Option<String>) {
        self.is_asked |= command.begins_session();
        if !self.is_asked {
            tracing::debug!(card = %self.slot.id, ?command, "it was for the session before, and is dropped");
            return;
        }
        match command {
            CardCommand::LoadRole { ticket, force } => {
                match self.slot.backend.prepare_role(force) {
                    Ok(()) => self.session.submit(CardCommand::LoadRole { ticket, force }, None),
                    Err(reason) => {
                        let refused = CardReport::NotReleased { ticket, reason };
                        report(self.messages, &self.slot.id, refused);
                    }
                }
            }
            CardCommand::Reset { ticket, .. } => {
                self.reset = Some(ticket);
                self.session.submit(command, None);
            }
            command => {
                parent.into_iter().for_each(|parent| self.session.trace(command.ticket(), parent));
                let bytes = match &command {
                    CardCommand::Load { digest, .. } => region_bytes(*digest, self.store),
                    _ => None,
                };
                self.session.submit(command, bytes);
            }
        }
    }
}

/// The bytes that load a region: the stored bytes between streams that set the control registers.
fn region_bytes(digest: Digest, store: &dyn Store) -> Option<Arc<[u8]>> {
    let bytes = match store.get_blob(digest) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::error!(%digest, %error, "a bitstream's bytes could not be read");
            return None;
        }
    };
    match with_known_control(&bytes) {
        Ok(bytes) => Some(Arc::from(bytes)),
        Err(error) => {
            tracing::error!(%digest, %error, "a stored bitstream is not valid and is not loaded");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use snic_bitstream::catalogue;
    use snic_card_sim::{SharedSimCard, SimCard};
    use snic_ports::store::memory::MemoryStore;

    use super::super::OpenedCard;
    use super::*;

    #[test]
    fn each_load_begins_and_ends_with_known_control_registers() {
        let catalogue = catalogue::builtin().expect("valid");
        let (_, stored) = catalogue
            .test_bitstream(&catalogue.chains[0], &catalogue.cards[0])
            .expect("it is for the first card");
        let store = MemoryStore::new();
        let digest = Digest::of(&stored);
        store.put_blob(digest, &stored).expect("room");
        let sent = region_bytes(digest, &store).expect("it is valid");
        assert_eq!(sent[..], with_known_control(&stored).expect("valid"));
        assert!(sent.len() > stored.len());
        // Damaged bytes from the store are not sent.
        let damaged = &stored[..stored.len() / 2];
        let digest = Digest::of(damaged);
        store.put_blob(digest, damaged).expect("room");
        assert_eq!(region_bytes(digest, &store), None);
        assert_eq!(region_bytes(Digest::of(b"none"), &store), None);
    }

    /// Next words of the thread, shortened; `None` if it says nothing for so long.
    fn said(messages: &Inbox, patience: Duration) -> Option<String> {
        let (message, _) = messages.receive(patience)?;
        let Message::Event(event) = message else { panic!("the thread sends events") };
        Some(match event {
            Event::CardAppeared { .. } => "appeared".to_owned(),
            Event::Card { report: CardReport::Lost { .. }, .. } => "lost".to_owned(),
            Event::Card { report: CardReport::ReadBack { ticket, .. }, .. } => {
                format!("read back {}", ticket.0)
            }
            Event::Card { report: CardReport::Sampled { ticket, .. }, .. } => {
                format!("sampled {}", ticket.0)
            }
            other => panic!("{other:?}"),
        })
    }

    /// Another device may have been meant.
    #[test]
    fn nothing_reaches_a_card_that_was_not_asked_what_it_holds() {
        let profile = catalogue::builtin().expect("valid").cards.swap_remove(0);
        let opened = SimCard::new(profile.clone(), 7).expect("a valid profile");
        let opened = SharedSimCard::new(opened);
        let open = move || -> OpenedCard {
            let mut card = opened.clone();
            card.poll(wall_clock()).map_err(|error| error.to_string())?;
            Ok((Box::new(card), profile.clone()))
        };
        let slot = CardSlot::of_registers("card0".parse().expect("a label"), open);
        let messages = Inbox::new();
        let thread = start(slot, Arc::new(MemoryStore::new()), messages.clone()).expect("one");
        let sample = |ticket| thread.send(CardCommand::Sample { ticket: Ticket(ticket) }, None);
        let read_back = |ticket| {
            let (ticket, known) = (Ticket(ticket), Arc::from([]));
            thread.send(CardCommand::ReadBack { ticket, known }, None);
        };
        let next = || said(&messages, Duration::from_secs(60));
        let rounds = [[1, 2, 3], [4, 5, 6]];
        for [stale, asked, meant] in rounds {
            assert_eq!(next().as_deref(), Some("appeared"));
            sample(stale);
            read_back(asked);
            sample(meant);
            assert_eq!(next(), Some(format!("read back {asked}")), "the stale one has no report");
            assert_eq!(next(), Some(format!("sampled {meant}")));
            thread.reopen();
            assert_eq!(next().as_deref(), Some("lost"));
        }
        thread.stop();
    }

    #[test]
    fn a_card_that_does_not_stay_open_is_tried_less_and_less() {
        let mut backoff = Backoff::new();
        let brief = Duration::from_millis(10);
        let pauses: Vec<u64> = (0..7).map(|_| backoff.after(brief).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.after(REOPEN_MAX), REOPEN_MAX, "that is brief, too");
        assert_eq!(backoff.after(REOPEN_MAX * 2), REOPEN_MIN, "it was open for long");
        assert_eq!(backoff.after(Duration::ZERO), REOPEN_MIN * 2);
    }

    #[test]
    fn a_card_is_not_blamed_for_time_in_which_nobody_asked_it() {
        let wall = |millis| Timestamp::ZERO + Duration::from_millis(millis);
        let mut clock = CardClock::new(wall(1_000));
        assert_eq!(clock.at(wall(1_100)), wall(1_100));
        // The process was stopped for an hour.
        assert_eq!(clock.at(wall(3_601_100)), wall(1_600));
        assert_eq!(clock.at(wall(3_601_200)), wall(1_700));
        assert_eq!(clock.at(wall(0)), wall(1_700), "it never goes back");
    }
}
