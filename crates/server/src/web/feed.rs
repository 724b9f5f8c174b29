//! What browsers are told: one watch of everything, rendered once, for all of them.
//!
//! ```text
//!  watch (regions, DAGs, events) ─┐
//!                                 ├─► batch, every 100 ms ─► frames by resource ─► new browsers
//!  cards and shares, twice a second ┘          └──────────► channel ───────────► those there
//! ```
//!
//! Frames are shared, never copied for a browser. One that falls behind by more than the channel
//! holds is told so and ends; the page connects again and begins with all there is.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use snic_api::convert::dag::Reader;
use snic_api::v1;
use snic_api::v1::card_service_server::CardService as _;
use snic_api::v1::fairness_service_server::FairnessService as _;
use snic_controller::{Caller, Controller};
use tokio::sync::broadcast;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Request;

use super::json;
use crate::hub::{Happening, Seen, Topic};
use crate::services::Services;
use crate::services::cards::regions;
use crate::services::watching::{Event, Events, Subject};
use crate::shell::wall_clock;
use crate::wire;

/// How long changes are gathered: a burst is one frame a resource, and eyes are no faster.
const GATHER: Duration = Duration::from_millis(100);
/// How often cards and shares are read, of which no watch tells.
const READ: Duration = Duration::from_millis(500);
/// How often browsers hear something, whatever happens.
const BEAT: Duration = Duration::from_secs(5);
/// Pause before a watch that has ended is begun again.
const AGAIN: Duration = Duration::from_millis(100);
/// Batches that a browser may be behind: some seconds, and shared by all.
const BATCHES_KEPT: usize = 64;
/// Events that a new browser is told.
const EVENTS_KEPT: usize = 200;
/// Largest page of a list.
const PAGE_SIZE: i32 = 1_000;
/// Told first: how long the browser waits before it connects again.
const RETRY: &[u8] = b"retry: 1000\n\n";
/// Told to one that fell behind, before it is closed.
const BEHIND: &[u8] = b"event: behind\ndata: {}\n\n";
/// What was told before does not count any more.
const RESET: &[u8] = b"event: reset\ndata: {}\n\n";

/// What a frame is about; the order in which a new browser is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Card(String),
    Region(String),
    Dag(String),
    Shares(String),
    Event(u64),
    /// All that was there has been told.
    Ready,
}

impl Key {
    /// The frame of what this key names.
    fn frame(&self, value: &Value) -> Bytes {
        let name = match self {
            Self::Card(_) => "card",
            Self::Region(_) => "region",
            Self::Dag(_) => "dag",
            Self::Shares(_) => "shares",
            Self::Event(_) => "event",
            Self::Ready => "ready",
        };
        frame(name, value)
    }

    /// The frame that says it is gone.
    fn gone(&self) -> Option<Bytes> {
        let (kind, name) = match self {
            Self::Card(name) => ("card", name),
            Self::Region(name) => ("region", name),
            Self::Dag(name) => ("dag", name),
            Self::Shares(name) => ("shares", name),
            Self::Event(_) | Self::Ready => return None,
        };
        Some(frame("gone", &json!({ "kind": kind, "name": name })))
    }
}

/// A server-sent event. JSON has no line breaks.
fn frame(name: &str, value: &Value) -> Bytes {
    format!("event: {name}\ndata: {value}\n\n").into()
}

/// What changed: a frame, or that it is gone.
type Batch = BTreeMap<Key, Option<Bytes>>;

/// The frames of everything, and who is told when they change.
pub(super) struct Feed(Mutex<State>);

struct State {
    frames: BTreeMap<Key, Bytes>,
    sender: broadcast::Sender<Bytes>,
}

impl Feed {
    fn new() -> Arc<Self> {
        let sender = broadcast::Sender::new(BATCHES_KEPT);
        Arc::new(Self(Mutex::new(State { frames: BTreeMap::new(), sender })))
    }

    /// A feed that runs until nobody holds it.
    pub fn start(services: Services) -> Arc<Self> {
        let feed = Self::new();
        tokio::spawn(run(Arc::downgrade(&feed), services));
        feed
    }

    /// All there is, and then what changes.
    pub fn page(self: &Arc<Self>) -> Page {
        let state = self.0.lock();
        let all = std::iter::once(Bytes::from_static(RETRY)).chain(state.frames.values().cloned());
        let first = all.collect::<Vec<_>>().into_iter();
        let live = BroadcastStream::new(state.sender.subscribe());
        Page { first, live, is_behind: false, _feed: Arc::clone(self) }
    }

    fn publish(&self, batch: Batch) {
        let mut state = self.0.lock();
        let mut news = Vec::new();
        for (key, frame) in batch {
            match frame {
                Some(frame) if state.frames.get(&key) == Some(&frame) => {}
                Some(frame) => {
                    news.extend_from_slice(&frame);
                    state.frames.insert(key, frame);
                }
                None if state.frames.remove(&key).is_some() => {
                    news.extend(key.gone().into_iter().flatten());
                }
                None => {}
            }
        }
        state.forget_events();
        state.tell(news.into());
    }

    /// Says again that the daemon is there, and what time it is.
    fn beat(&self) {
        let now = wall_clock().as_nanos() / 1_000_000;
        self.0.lock().tell(frame("beat", &json!({ "now": now })));
    }

    /// Begins anew, for all.
    fn reset(&self) {
        let mut state = self.0.lock();
        state.frames.clear();
        state.tell(Bytes::from_static(RESET));
    }
}

impl State {
    fn tell(&self, news: Bytes) {
        if !news.is_empty() {
            // That nobody listens is fine.
            let _ = self.sender.send(news);
        }
    }

    fn forget_events(&mut self) {
        let is_event = |key: &&Key| matches!(key, Key::Event(_));
        let events: Vec<Key> = self.frames.keys().filter(is_event).cloned().collect();
        for key in events.iter().take(events.len().saturating_sub(EVENTS_KEPT)) {
            self.frames.remove(key);
        }
    }
}

/// What one browser is told.
pub(super) struct Page {
    first: std::vec::IntoIter<Bytes>,
    live: BroadcastStream<Bytes>,
    is_behind: bool,
    _feed: Arc<Feed>,
}

impl Stream for Page {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(frame) = self.first.next() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if self.is_behind {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(Pin::new(&mut self.live).poll_next(cx)) {
            None => None,
            Some(Ok(news)) => Some(Ok(news)),
            Some(Err(BroadcastStreamRecvError::Lagged(batches))) => {
                tracing::info!(batches, "a browser read too slowly; it begins anew");
                self.is_behind = true;
                Some(Ok(Bytes::from_static(BEHIND)))
            }
        })
    }
}

/// Why a watch is followed no longer.
enum End {
    /// It ended: the server stops, or it was too slow.
    Watch,
    /// No browser is left.
    Unread,
}

async fn run(feed: Weak<Feed>, services: Services) {
    loop {
        // Where the control plane has ended there is nothing to tell.
        let (topic, caller) = (Topic::Page, operator());
        let subject = Subject { topic, caller, all: everything, event: told };
        let Ok(changes) = services.watch(subject, 0).await else { return };
        if let End::Unread = follow(&feed, &services, changes).await {
            return;
        }
        tokio::time::sleep(AGAIN).await;
        let Some(feed) = feed.upgrade() else { return };
        feed.reset();
    }
}

async fn follow(feed: &Weak<Feed>, services: &Services, mut changes: Events<Told>) -> End {
    let mut batch = Batch::new();
    let every = |period| {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let (mut gather, mut read) = (every(GATHER), every(READ));
    let mut beat = tokio::time::interval_at(Instant::now() + BEAT, BEAT);
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(change)) => batch.extend([change]),
                Some(Err(_)) | None => return End::Watch,
            },
            _ = gather.tick(), if !batch.is_empty() => {
                let Some(feed) = feed.upgrade() else { return End::Unread };
                feed.publish(std::mem::take(&mut batch));
            }
            _ = read.tick() => {
                let Some(feed) = feed.upgrade() else { return End::Unread };
                feed.absorb(services, &mut batch).await;
            }
            _ = beat.tick() => {
                let Some(feed) = feed.upgrade() else { return End::Unread };
                feed.beat();
            }
        }
    }
}

impl Feed {
    /// Reads what no watch tells of. What cannot be read now is read the next time.
    async fn absorb(&self, services: &Services, batch: &mut Batch) {
        let page_size = PAGE_SIZE;
        let request = v1::ListCardsRequest { page_size, ..Default::default() };
        if let Ok(reply) = services.list_cards(asked(request, operator())).await {
            for card in reply.into_inner().cards {
                let key = Key::Card(card.name.clone());
                let frame = key.frame(&json::card(&card));
                batch.insert(key, Some(frame));
            }
        }
        let request = v1::ListFairnessRequest { page_size, ..Default::default() };
        if let Ok(reply) = services.list_fairness(asked(request, operator())).await {
            let mut gone = self.keys(|key| matches!(key, Key::Shares(_)));
            for shares in reply.into_inner().fairness {
                let key = Key::Shares(format!("{} {}", shares.tenant, shares.card));
                let frame = key.frame(&json::shares(&shares));
                gone.retain(|other| *other != key);
                batch.insert(key, Some(frame));
            }
            batch.extend(gone.into_iter().map(|key| (key, None)));
        }
    }

    fn keys(&self, wanted: impl Fn(&Key) -> bool) -> Vec<Key> {
        self.0.lock().frames.keys().filter(|key| wanted(key)).cloned().collect()
    }
}

/// Who the feed reads as: what operators may see is what the page is for.
fn operator() -> Caller {
    Caller::Operator("web-page".into())
}

/// A request as it comes from behind the gate.
pub(super) fn asked<T>(message: T, caller: Caller) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(caller);
    request
}

/// What a browser is told: nothing but the key where it is gone.
type Told = (Key, Option<Bytes>);

/// Regions, DAGs and events, all of them.
fn everything(controller: &Controller) -> Vec<Seen> {
    let reader = operator();
    let regions = regions(controller, None, None, usize::MAX).into_iter().map(Seen::Region);
    let dags = controller.dags_after(None, None).map(Seen::Dag);
    let entries = controller.log_before(&reader, None).take(EVENTS_KEPT).cloned();
    regions.chain(dags).chain(entries.map(Seen::Entry)).collect()
}

fn told(event: Event<'_, Seen>) -> Told {
    let (key, value) = match event.view {
        Some(Seen::Dag(view)) => {
            let dag = wire::dag(view, Reader::Operator);
            (Key::Dag(dag.name.clone()), json::dag(&dag))
        }
        Some(Seen::Region(view)) => {
            let region = wire::region(view);
            (Key::Region(region.name.clone()), json::region(&region))
        }
        Some(Seen::Entry(entry)) => (Key::Event(entry.number), json::event(&wire::event(entry))),
        // All was told, or there is nothing of this kind to tell.
        Some(Seen::Binding(_)) | None => (Key::Ready, json!({})),
    };
    let is_gone = event.happening == Happening::Deleted;
    let frame = (!is_gone).then(|| key.frame(&value));
    (key, frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(dags: &[(&str, Option<u32>)]) -> Batch {
        let entry = |(name, state): &(&str, Option<u32>)| {
            let key = Key::Dag((*name).into());
            let frame = state.map(|state| key.frame(&json!({ "name": name, "state": state })));
            (key, frame)
        };
        dags.iter().map(entry).collect()
    }

    async fn next(page: &mut Page) -> Option<String> {
        let frame = page.next().await?.expect("infallible");
        Some(String::from_utf8(frame.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn a_new_browser_is_told_all_and_then_what_differs() {
        let feed = Feed::new();
        feed.publish(batch(&[("b", Some(1)), ("a", Some(1))]));
        let mut page = feed.page();
        assert_eq!(next(&mut page).await.expect("frame"), "retry: 1000\n\n");
        let first = next(&mut page).await.expect("frame");
        assert_eq!(first, "event: dag\ndata: {\"name\":\"a\",\"state\":1}\n\n");
        assert!(next(&mut page).await.expect("frame").contains("\"b\""));
        feed.publish(batch(&[("a", Some(1)), ("b", None), ("c", None)]));
        let news = next(&mut page).await.expect("frame");
        assert_eq!(news, "event: gone\ndata: {\"kind\":\"dag\",\"name\":\"b\"}\n\n");
        feed.reset();
        assert!(next(&mut page).await.expect("frame").starts_with("event: reset\n"));
        assert_eq!(feed.page().first.len(), 1, "nothing is told of what was before");
    }

    #[tokio::test]
    async fn a_browser_that_is_too_slow_is_told_so_and_ends() {
        let feed = Feed::new();
        let (mut slow, mut quick) = (feed.page(), feed.page());
        for state in 0..=BATCHES_KEPT {
            feed.publish(batch(&[("a", Some(u32::try_from(state).expect("small")))]));
            if state == 0 {
                next(&mut quick).await;
            }
            assert!(next(&mut quick).await.expect("frame").contains("\"a\""));
        }
        next(&mut slow).await;
        assert!(next(&mut slow).await.expect("frame").starts_with("event: behind\n"));
        assert_eq!(next(&mut slow).await, None);
    }

    #[test]
    fn of_events_only_the_last_are_kept() {
        let feed = Feed::new();
        for number in 0..EVENTS_KEPT as u64 + 7 {
            let key = Key::Event(number);
            let frame = key.frame(&json!({ "number": number }));
            feed.publish(Batch::from([(key, Some(frame))]));
        }
        let kept = feed.keys(|_| true);
        assert_eq!((kept.len(), &kept[0]), (EVENTS_KEPT, &Key::Event(7)));
    }

    #[test]
    fn what_people_wrote_cannot_leave_its_frame() {
        let text = "a\n\nevent: dag\ndata: {}";
        let frame = frame("event", &json!({ "message": text }));
        assert_eq!(frame.iter().filter(|byte| **byte == b'\n').count(), 3);
    }
}
