//! A card's thread: opens the card, runs its driver session, reports; opens it again when it was
//! lost.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use snic_controller::{CardCommand, CardReport, Event};
use snic_domain::{CardId, Digest};
use snic_ports::card::Card;
use snic_ports::card::image::with_known_control;
use snic_ports::driver::Session;
use snic_ports::store::Store;

use super::actor::Message;
use super::{CardSlot, wall_clock};

/// Commands that may wait for a card. The controller has at most one commit, one load and one
/// read-back under way, so a full channel means that the thread is stuck.
const COMMANDS_MAX: usize = 64;
/// Between two polls while something is under way: long against a register access, short against
/// a load.
const POLL_BUSY: Duration = Duration::from_micros(50);
/// Between two polls while nothing is.
const POLL_IDLE: Duration = Duration::from_millis(100);
/// Between two tries to open a card.
const REOPEN: Duration = Duration::from_secs(1);

/// A command, and the span that it is a step of as the header `traceparent`.
pub(super) type Order = (CardCommand, Option<String>);

/// The controller's end of a card's thread.
pub(super) struct CardThread {
    id: CardId,
    commands: SyncSender<Order>,
    messages: Sender<Message>,
    thread: JoinHandle<()>,
}

impl CardThread {
    /// Ends the thread: what is under way on the card is left to the card.
    pub fn stop(self) {
        drop(self.commands);
        if self.thread.join().is_err() {
            tracing::error!(card = %self.id, "the card's thread panicked");
        }
    }

    /// Hands a command over. A card that takes no more is reported as lost.
    pub fn send(&self, command: CardCommand, parent: Option<String>) {
        if self.commands.try_send((command, parent)).is_err() {
            let reason = "its thread does not take commands any more".to_owned();
            report(&self.messages, &self.id, CardReport::Lost { reason });
        }
    }
}

fn report(messages: &Sender<Message>, id: &CardId, report: CardReport) {
    let event = Event::Card { card: id.clone(), report };
    // Where the controller has ended nobody needs the report.
    let _ = messages.send(Message::Event(event));
}

#[cfg(test)]
impl CardThread {
    /// A thread that has ended already, and what a card would be asked.
    pub fn stub(id: CardId, messages: Sender<Message>) -> (Self, Receiver<Order>) {
        let (commands, inbox) = sync_channel(COMMANDS_MAX);
        (Self { id, commands, messages, thread: std::thread::spawn(|| {}) }, inbox)
    }
}

/// Why a card is no longer served.
enum End {
    Lost,
    /// For another role.
    Released,
    Stopped,
}

/// Starts the thread of one card.
pub(super) fn start(
    slot: CardSlot,
    store: Arc<dyn Store>,
    messages: Sender<Message>,
) -> std::io::Result<CardThread> {
    let (commands, inbox) = sync_channel(COMMANDS_MAX);
    let id = slot.id.clone();
    let to_controller = messages.clone();
    let thread = std::thread::Builder::new()
        .name(format!("card-{id}"))
        .spawn(move || run(slot, store.as_ref(), &to_controller, &inbox))?;
    Ok(CardThread { id, commands, messages, thread })
}

fn run(mut slot: CardSlot, store: &dyn Store, messages: &Sender<Message>, inbox: &Receiver<Order>) {
    let mut session = Session::new(slot.deadlines);
    loop {
        match (slot.open)() {
            Ok((mut card, profile)) => {
                let event =
                    Event::CardAppeared { card: slot.id.clone(), profile: Box::new(profile) };
                let _ = messages.send(Message::Event(event));
                match serve(&mut slot, &mut session, card.as_mut(), (store, messages, inbox)) {
                    End::Lost => {}
                    End::Released => continue,
                    End::Stopped => return,
                }
            }
            Err(reason) => {
                let event = Event::CardAbsent { card: slot.id.clone(), reason };
                let _ = messages.send(Message::Event(event));
            }
        }
        // What was asked of the lost card is of no use to the next one.
        let mut left = REOPEN;
        while !left.is_zero() {
            match inbox.recv_timeout(left) {
                Ok(_) => left = left.saturating_sub(Duration::from_millis(1)),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn serve(
    slot: &mut CardSlot,
    session: &mut Session,
    card: &mut dyn Card,
    (store, messages, inbox): (&dyn Store, &Sender<Message>, &Receiver<Order>),
) -> End {
    loop {
        let sleep = if session.is_idle() { POLL_IDLE } else { POLL_BUSY };
        match inbox.recv_timeout(sleep) {
            Ok((CardCommand::LoadRole { ticket, force }, _)) => match (slot.prepare_role)(force) {
                Ok(()) => session.submit(CardCommand::LoadRole { ticket, force }, None),
                Err(reason) => {
                    report(messages, &slot.id, CardReport::RoleRefused { ticket, reason });
                }
            },
            Ok((command, parent)) => {
                parent.into_iter().for_each(|parent| session.trace(command.ticket(), parent));
                submit(session, command, store);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return End::Stopped,
        }
        let mut end = None;
        for said in session.step(card, wall_clock()) {
            match said {
                CardReport::Lost { .. } => end = Some(End::Lost),
                CardReport::Released { .. } => end = Some(End::Released),
                _ => {}
            }
            report(messages, &slot.id, said);
        }
        if let Some(end) = end {
            return end;
        }
    }
}

/// What is sent to load a region: the stored bytes between streams that set the control registers.
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

fn submit(session: &mut Session, command: CardCommand, store: &dyn Store) {
    let bytes = match &command {
        CardCommand::Load { digest, .. } => region_bytes(*digest, store),
        _ => None,
    };
    session.submit(command, bytes);
}
