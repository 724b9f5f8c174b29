//! The shell around the controller: threads, channels and the clock, and nothing else.
//!
//! ```text
//!  services ──request, read──► controller thread ──batches──► store's committer
//!     ▲                          │   ▲   ▲                         │
//!     │ reply, changes           │   │   └──────── durable ────────┘
//!     └──────────────────────────┤   │ reports
//!                                ▼   │
//!                             card threads (one a card: the only one that touches it)
//!                             search thread (looks for better arrangements, in a card's picture)
//! ```
//!
//! The controller thread keeps the one rule of order: an effect that follows a persisted batch
//! waits until that batch is durable. Reads wait in the same line, so nobody is told of a change
//! that a crash could still undo.

mod actor;
mod card_thread;
mod fleet;
mod inbox;
mod lines;
mod measured_card;
mod message;
mod monitor_thread;
mod search_thread;
mod steps;
mod traced;

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use snic_controller::{
    Change, Command, ControlError, Controller, ControllerSettings, Event, Reply, Request, Trust,
};
use snic_domain::{Bitstream, Caller, CardId, CardProfile, Digest, TenantId};
use snic_front::share::{CallerFlow, CallerLevel};
use snic_ports::card::Card;
use snic_ports::device::DeviceMonitor;
use snic_ports::driver::Deadlines;
use snic_ports::store::{Store, StoreError};
use snic_telemetry::trace::Trace;
use snic_usage::Prices;
use tokio::sync::{broadcast, oneshot};

use actor::Actor;
use inbox::{Inbox, NotQueued};
use message::Message;

pub use fleet::OutOfUse;

/// Changes that a watcher may lag behind before it has to start again.
const CHANGES_KEPT: usize = 4_096;

/// The result of opening a card: the card and its capabilities, or why it cannot be opened.
pub type OpenedCard = Result<(Box<dyn Card>, CardProfile), String>;

/// A kind of card behind the shell. The card's own thread makes all calls, one after the other, so none of them may
/// wait for long: while one does, the card is not polled.
pub trait CardBackend: Send {
    /// Opens the card; called again, after a pause, whenever it was lost.
    ///
    /// # Errors
    /// The reason why it cannot be opened, for operators.
    fn open(&mut self) -> OpenedCard;

    /// Validates the role that the next opening loads, before the card is closed for it. With `force`, that opening
    /// loads the role even if the card has it.
    ///
    /// # Errors
    /// The reason why it cannot be loaded; the card stays open.
    fn prepare_role(&mut self, _force: bool) -> Result<(), String> {
        Err("it has no role".to_owned())
    }

    /// Resets the card while it is closed. It is opened again in any case.
    ///
    /// # Errors
    /// The reason why it was not reset.
    fn reset(&mut self) -> Result<(), String> {
        Err("it cannot be reset".to_owned())
    }

    /// Whether its device is there, where that can be told: it is opened as soon as it comes back.
    fn is_present(&self) -> bool {
        true
    }

    /// Reader of its device, where it has sensors; called once, when the thread starts.
    fn take_monitor(&mut self) -> Option<Box<dyn DeviceMonitor>> {
        None
    }

    /// Times after which its steps count as failed.
    fn deadlines(&self) -> Deadlines {
        Deadlines::default()
    }
}

/// One card of the settings.
pub struct CardSlot {
    /// Name of the card.
    pub id: CardId,
    /// The card itself.
    pub backend: Box<dyn CardBackend>,
}

impl CardSlot {
    /// A card of which only registers and buffers can be reached: it has no role, cannot be reset, and has no sensors.
    pub fn of_registers(id: CardId, open: impl FnMut() -> OpenedCard + Send + 'static) -> Self {
        Self { id, backend: Box::new(Registers(open)) }
    }
}

/// The backend of [`CardSlot::of_registers`].
struct Registers<F>(F);

impl<F: FnMut() -> OpenedCard + Send> CardBackend for Registers<F> {
    fn open(&mut self) -> OpenedCard {
        (self.0)()
    }
}

/// Why the control plane did not answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ShellError {
    /// The request was refused.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The store failed; the daemon takes no more changes.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopped,
    /// The caller has too many calls that wait.
    #[error("{limit} calls of this caller are already waiting")]
    Overloaded {
        /// Most calls of one caller that may wait.
        limit: usize,
    },
}

/// Notice of the control plane about its changes, in the order of their revisions.
#[derive(Debug, Clone)]
pub enum Notice {
    /// A change, with its revision.
    Change(u64, Arc<Change>),
    /// All changes up to this revision were told; later ones have higher ones.
    Complete(u64),
}

/// A handle on the running control plane. Cheap to clone.
#[derive(Clone)]
pub struct ControlPlane {
    messages: Inbox,
    changes: broadcast::Sender<Notice>,
    store: Arc<dyn Store>,
    pins: Arc<Pins>,
}

/// Digests of uploads under way: their bytes are not removed as unused.
#[derive(Debug, Default)]
struct Pins(Mutex<HashMap<Digest, usize>>);

impl Pins {
    fn pin(&self, digest: Digest) {
        *self.0.lock().entry(digest).or_default() += 1;
    }

    fn unpin(&self, digest: Digest) {
        let mut pins = self.0.lock();
        if let Some(count) = pins.get_mut(&digest) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&digest);
            }
        }
    }

    fn is_pinned(&self, digest: Digest) -> bool {
        self.0.lock().contains_key(&digest)
    }
}

/// The bytes of bitstreams that are kept while this guard exists.
#[derive(Debug)]
pub(crate) struct PinnedBlobs {
    pins: Arc<Pins>,
    digests: Vec<Digest>,
}

impl PinnedBlobs {
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }
}

impl Drop for PinnedBlobs {
    fn drop(&mut self) {
        self.digests.iter().for_each(|digest| self.pins.unpin(*digest));
    }
}

/// The threads of a running control plane.
pub struct ControlPlaneThreads {
    messages: Inbox,
    controller: JoinHandle<Result<(), StoreError>>,
}

impl ControlPlaneThreads {
    /// Stops all threads: changes that were acknowledged are durable, the cards stay as they are.
    /// Blocks until the threads have ended.
    ///
    /// # Errors
    /// As [`ControlPlaneThreads::wait`].
    pub fn stop(self) -> Result<(), StoreError> {
        self.messages.send(Message::Stop);
        self.wait()
    }

    /// Whether the control plane has ended, as it does by itself when its store failed.
    pub fn has_ended(&self) -> bool {
        self.controller.is_finished()
    }

    /// Blocks until the control plane has ended: after [`ControlPlaneThreads::stop`], or when its store failed.
    ///
    /// # Errors
    /// The store failed for good, or the controller's thread panicked. What was not durable was never promised.
    pub fn wait(self) -> Result<(), StoreError> {
        match self.controller.join() {
            Ok(result) => result,
            Err(_) => Err(StoreError::Stopped("the controller's thread panicked".to_owned())),
        }
    }
}

/// The level of a request: heartbeats must not fail.
fn level_of(request: &Request) -> CallerLevel {
    match request.command {
        Command::Heartbeat { .. } => CallerLevel::of_health(&request.caller),
        _ => CallerLevel::of(&request.caller),
    }
}

/// Starts the threads of a control plane.
///
/// # Errors
/// The operating system gives no thread.
pub fn start(
    controller: Controller,
    store: Arc<dyn Store>,
    cards: Vec<CardSlot>,
) -> std::io::Result<(ControlPlane, ControlPlaneThreads)> {
    let messages = Inbox::new();
    let (changes, _) = broadcast::channel(CHANGES_KEPT);
    let pins = Arc::new(Pins::default());
    let cards = cards
        .into_iter()
        .map(|slot| {
            let id = slot.id.clone();
            card_thread::start(slot, Arc::clone(&store), messages.clone()).map(|card| (id, card))
        })
        .collect::<std::io::Result<_>>()?;
    let actor = Actor::new(
        controller,
        actor::Outlets {
            store: Arc::clone(&store),
            messages: messages.clone(),
            cards,
            changes: changes.clone(),
            pins: Arc::clone(&pins),
            searches: search_thread::start(messages.clone())?,
        },
    );
    let thread =
        std::thread::Builder::new().name("controller".into()).spawn(move || actor.run())?;
    let plane = ControlPlane { messages: messages.clone(), changes, store, pins };
    Ok((plane, ControlPlaneThreads { messages, controller: thread }))
}

impl From<NotQueued> for ShellError {
    fn from(reason: NotQueued) -> Self {
        match reason {
            NotQueued::Closed => Self::Stopped,
            NotQueued::Full(overflow) => Self::Overloaded { limit: overflow.limit },
        }
    }
}

impl ControlPlane {
    /// Asks for a change. What the reply promises is durable when it arrives.
    ///
    /// # Errors
    /// The controller refused the request, the caller has its share of the waiting places, or the control plane has
    /// ended. Nothing has changed then.
    pub async fn request(&self, request: Request) -> Result<Reply, ShellError> {
        let (answer, answered) = oneshot::channel();
        let trace = Trace::current();
        let tenant = trace.is_some().then(|| traced::tenant_of(&request)).flatten();
        let trace = trace.for_tenant(tenant.map(TenantId::as_str));
        let level = level_of(&request);
        let flow = CallerFlow::from(&request.caller);
        let message = Message::Request(Box::new(request), answer, trace);
        self.messages.call(level, &flow, message)?;
        Ok(answered.await.map_err(|_| ShellError::Stopped)??)
    }

    /// Reads the state, in the time of this share. All that is read is durable when the answer arrives.
    pub(crate) async fn read<T, F>(
        &self,
        level: CallerLevel,
        flow: CallerFlow,
        query: F,
    ) -> Result<T, ShellError>
    where
        T: Send + 'static,
        F: FnOnce(&Controller) -> T + Send + 'static,
    {
        self.read_at(level, flow, query).await.map(|(value, _)| value)
    }

    /// As [`ControlPlane::read`], with a revision: what is read has all changes up to it, and none
    /// after it.
    pub(crate) async fn read_at<T, F>(
        &self,
        level: CallerLevel,
        flow: CallerFlow,
        query: F,
    ) -> Result<(T, u64), ShellError>
    where
        T: Send + 'static,
        F: FnOnce(&Controller) -> T + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let query = Box::new(move |controller: &Controller| -> message::DeferredReply {
            if answer.is_closed() {
                return Box::new(|| ());
            }
            let value = (query(controller), controller.revision(snic_front::wall_clock()));
            // If the caller has given up, nobody needs the answer.
            Box::new(move || drop(answer.send(value)))
        });
        let reader = match &flow {
            CallerFlow::Tenant(tenant) => Some(tenant.clone()),
            _ => None,
        };
        self.messages.call(level, &flow, Message::Read(query, reader))?;
        answered.await.map_err(|_| ShellError::Stopped)
    }

    /// Whether the control plane replies.
    pub async fn answers(&self) -> bool {
        self.read(CallerLevel::Health, CallerFlow::Server, |_| ()).await.is_ok()
    }

    /// Replaces the policies, or returns why they are rejected; the controller logs both.
    pub fn set_policies(&self, policies: Result<ControllerSettings, String>) {
        let event = match policies {
            Ok(settings) => Event::Settings(Box::new(settings)),
            Err(reason) => Event::SettingsRefused { reason },
        };
        self.messages.send(Message::Event(event));
    }

    /// Has these prices count for budgets from now on. `None`: there are none.
    pub fn set_prices(&self, prices: Option<Arc<Prices>>) {
        self.messages.send(Message::Event(Event::PricesChanged(prices)));
    }

    /// Counts calls of tenants that were admitted. The last ones are stored at once.
    pub fn count_calls(&self, calls: Vec<(TenantId, u64)>, is_last: bool) {
        if is_last || !calls.is_empty() {
            self.messages.send(Message::Event(Event::CallsCounted { calls, is_last }));
        }
    }

    /// Has these keys count for all bitstreams from now on. `None`: what was found at each upload does.
    pub fn set_keys(&self, trust: Option<Trust>) {
        self.messages.send(Message::Event(Event::KeysChanged(trust.map(Box::new))));
    }

    /// Notes for operators that other authorization policies are in force, and which.
    pub fn authorization_changed(&self, changes: String) {
        self.messages.send(Message::Event(Event::AuthorizationChanged { changes }));
    }

    /// The changes from now on, in order. A receiver that lags too far gets an error, and reads the
    /// state again.
    pub fn changes(&self) -> broadcast::Receiver<Notice> {
        self.changes.subscribe()
    }

    /// Stores a bitstream's bytes and registers it. If it is rejected, the bytes are removed,
    /// unless another bitstream has the same.
    ///
    /// # Errors
    /// As [`ControlPlane::request`]; or the store cannot keep the bytes.
    pub async fn register_bitstream(
        &self,
        caller: Caller,
        request_id: Option<String>,
        bitstream: Bitstream,
        bytes: Vec<u8>,
    ) -> Result<Reply, ShellError> {
        let digest = bitstream.images.first().digest;
        let command = Command::CreateBitstream(bitstream);
        self.keep_bytes(digest, bytes, Request { caller, request_id, command }).await
    }

    /// Stores bytes and sends the request that makes use of them.
    async fn keep_bytes(
        &self,
        digest: Digest,
        bytes: Vec<u8>,
        request: Request,
    ) -> Result<Reply, ShellError> {
        let store = Arc::clone(&self.store);
        self.pins.pin(digest);
        let stored = tokio::task::spawn_blocking(move || store.put_blob(digest, &bytes)).await;
        let result = match stored {
            Ok(Ok(())) => self.request(request).await,
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(ShellError::Stopped),
        };
        self.pins.unpin(digest);
        if result.is_err() {
            // Where the thread has ended, unused bytes are removed at the next start.
            self.messages.send(Message::DropIfUnused(digest));
        }
        result
    }

    /// The bytes of a bitstream.
    ///
    /// # Errors
    /// The store has no such bytes or cannot read them, or the control plane has ended.
    pub async fn bitstream_bytes(&self, digest: Digest) -> Result<Vec<u8>, ShellError> {
        let store = Arc::clone(&self.store);
        let read = tokio::task::spawn_blocking(move || store.get_blob(digest)).await;
        Ok(read.map_err(|_| ShellError::Stopped)??)
    }

    /// Keeps the bytes of bitstreams, even those that are deleted meanwhile.
    pub(crate) fn pin(&self, digests: Vec<Digest>) -> PinnedBlobs {
        digests.iter().for_each(|digest| self.pins.pin(*digest));
        PinnedBlobs { pins: Arc::clone(&self.pins), digests }
    }

    /// The store, for backup and restore.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}
