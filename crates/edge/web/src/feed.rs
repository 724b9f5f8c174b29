//! The feed: one watch of everything, rendered once for all browsers.
//!
//! ```text
//!  watch (regions, DAGs, events) ─┐
//!                                 ├─► batch, every 100 ms ─► frames by resource ─► new browsers
//!  cards and shares, twice a second ┘          └──────────► channel ──────► connected browsers
//! ```
//!
//! Frames are shared, not copied per browser. A browser that falls behind by more than the channel
//! holds is told so and disconnected; the page then reconnects and starts over.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use crate::json;
use crate::source::{Changes, PageChange, PageResource, PageSource};

/// Time that changes are gathered: a burst becomes one frame per resource.
pub(crate) const GATHER: Duration = Duration::from_millis(100);
/// Interval of heartbeats to browsers.
pub(crate) const BEAT: Duration = Duration::from_secs(5);
/// Pause before an ended watch is restarted.
pub(crate) const WATCH_RETRY: Duration = Duration::from_millis(100);
/// Pause before a watch is tried again that could not be begun.
pub(crate) const BEGIN_RETRY: Duration = Duration::from_secs(1);
/// Batches that a browser may lag behind: a few seconds' worth, shared by all.
const BATCHES_KEPT: usize = 64;
/// Events that a new browser gets.
const EVENTS_KEPT: usize = 200;
/// First frame: how long the browser waits before it reconnects.
const RETRY: &[u8] = b"retry: 1000\n\n";
/// Last frame of a browser that fell behind.
const BEHIND: &[u8] = b"event: behind\ndata: {}\n\n";
/// Discards all earlier frames.
const RESET: &[u8] = b"event: reset\ndata: {}\n\n";

/// The subject of a frame; also the order in which a new browser gets them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Why nothing can be read at the moment.
    Trouble,
    Fleet,
    Host(String),
    Card(String),
    Region(String),
    Dag(String),
    Shares(String),
    Event(u64),
    /// The initial state is complete.
    Ready,
}

impl Key {
    /// The frame with this content.
    pub fn frame(&self, value: &Value) -> Bytes {
        let name = match self {
            Self::Trouble => "trouble",
            Self::Fleet => "fleet",
            Self::Host(_) => "host",
            Self::Card(_) => "card",
            Self::Region(_) => "region",
            Self::Dag(_) => "dag",
            Self::Shares(_) => "shares",
            Self::Event(_) => "event",
            Self::Ready => "ready",
        };
        frame(name, value)
    }

    /// The frame that removes the subject.
    fn gone(&self) -> Option<Bytes> {
        let (kind, name) = match self {
            Self::Host(name) => ("host", name),
            Self::Card(name) => ("card", name),
            Self::Region(name) => ("region", name),
            Self::Dag(name) => ("dag", name),
            Self::Shares(name) => ("shares", name),
            Self::Event(_) | Self::Ready | Self::Fleet => return None,
            Self::Trouble => return Some(frame("trouble", &json!({ "message": "" }))),
        };
        Some(frame("gone", &json!({ "kind": kind, "name": name })))
    }
}

/// A server-sent event. JSON has no line breaks.
fn frame(name: &str, value: &Value) -> Bytes {
    format!("event: {name}\ndata: {}\n\n", json::shown(value.clone())).into()
}

/// Changes: a new frame, or `None` where the subject is gone.
pub(crate) type Batch = BTreeMap<Key, Option<Bytes>>;

/// The current frame of each subject, and the channel for changes.
pub(crate) struct Feed(Mutex<State>);

struct State {
    frames: BTreeMap<Key, Bytes>,
    sender: broadcast::Sender<Bytes>,
}

impl Feed {
    /// A feed that tells nothing yet.
    pub fn new() -> Arc<Self> {
        let sender = broadcast::Sender::new(BATCHES_KEPT);
        Arc::new(Self(Mutex::new(State { frames: BTreeMap::new(), sender })))
    }

    /// A feed that runs until the last browser drops it.
    pub fn start<S: PageSource>(source: S) -> Arc<Self> {
        let feed = Self::new();
        tokio::spawn(run(Arc::downgrade(&feed), source));
        feed
    }

    /// The current frames, then the changes.
    pub fn page(self: &Arc<Self>) -> BrowserStream {
        let state = self.0.lock();
        let all = std::iter::once(Bytes::from_static(RETRY)).chain(state.frames.values().cloned());
        let first = all.collect::<Vec<_>>().into_iter();
        let live = BroadcastStream::new(state.sender.subscribe());
        BrowserStream { first, live, is_behind: false, _feed: Arc::clone(self) }
    }

    pub fn publish(&self, batch: Batch) {
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
        state.drop_old_events();
        state.send(news.into());
    }

    /// Sends a heartbeat with the daemon's time.
    pub fn beat(&self) {
        // A clock before 1970 is shown as 1970.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.0.lock().send(frame("beat", &json!({ "now": now })));
    }

    /// Says why nothing can be read at the moment.
    pub fn trouble(&self, status: &Status) {
        let frame = Key::Trouble.frame(&json!({ "message": status.message() }));
        self.publish(Batch::from([(Key::Trouble, Some(frame))]));
        self.beat();
    }

    /// Starts over, for all browsers.
    pub fn reset(&self) {
        let mut state = self.0.lock();
        state.frames.clear();
        state.send(Bytes::from_static(RESET));
    }
}

impl State {
    fn send(&self, news: Bytes) {
        if !news.is_empty() {
            // Without browsers there is no receiver.
            let _ = self.sender.send(news);
        }
    }

    fn drop_old_events(&mut self) {
        let is_event = |key: &&Key| matches!(key, Key::Event(_));
        let events: Vec<Key> = self.frames.keys().filter(is_event).cloned().collect();
        for key in events.iter().take(events.len().saturating_sub(EVENTS_KEPT)) {
            self.frames.remove(key);
        }
    }
}

/// The frames of one browser.
pub(crate) struct BrowserStream {
    first: std::vec::IntoIter<Bytes>,
    live: BroadcastStream<Bytes>,
    is_behind: bool,
    _feed: Arc<Feed>,
}

impl Stream for BrowserStream {
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
                tracing::info!(batches, "a browser fell behind and starts over");
                self.is_behind = true;
                Some(Ok(Bytes::from_static(BEHIND)))
            }
        })
    }
}

/// Why following a watch ended.
enum FollowEnd {
    /// The watch ended: the server stops, or the feed was too slow.
    Watch,
    /// No browser is left.
    NoBrowser,
}

async fn run<S: PageSource>(feed: Weak<Feed>, source: S) {
    loop {
        let changes = match source.watch(EVENTS_KEPT).await {
            Ok(changes) => changes,
            Err(status) => {
                let Some(feed) = feed.upgrade() else { return };
                feed.trouble(&status);
                drop(feed);
                tokio::time::sleep(BEGIN_RETRY).await;
                continue;
            }
        };
        if let Some(feed) = feed.upgrade() {
            feed.publish(Batch::from([(Key::Trouble, None)]));
        }
        if let FollowEnd::NoBrowser = follow(&feed, &source, changes).await {
            return;
        }
        tokio::time::sleep(WATCH_RETRY).await;
        let Some(feed) = feed.upgrade() else { return };
        feed.reset();
    }
}

/// Ticks, the first at once.
pub(crate) fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn follow<S: PageSource>(feed: &Weak<Feed>, source: &S, mut changes: Changes) -> FollowEnd {
    let mut batch = Batch::new();
    let (mut gather, mut poll) = (every(GATHER), every(S::POLL));
    let mut beat = tokio::time::interval_at(Instant::now() + BEAT, BEAT);
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(change)) => batch.extend([sse_frame(&change)]),
                Some(Err(_)) | None => return FollowEnd::Watch,
            },
            _ = gather.tick(), if !batch.is_empty() => {
                let Some(feed) = feed.upgrade() else { return FollowEnd::NoBrowser };
                feed.publish(std::mem::take(&mut batch));
            }
            _ = poll.tick() => {
                let Some(feed) = feed.upgrade() else { return FollowEnd::NoBrowser };
                feed.poll(source, &mut batch).await;
            }
            _ = beat.tick() => {
                let Some(feed) = feed.upgrade() else { return FollowEnd::NoBrowser };
                feed.beat();
            }
        }
    }
}

impl Feed {
    /// Reads what cannot be watched. What fails now is read with the next poll.
    async fn poll<S: PageSource>(&self, source: &S, batch: &mut Batch) {
        for card in source.cards().await.unwrap_or_default() {
            let key = Key::Card(card.name.clone());
            let frame = key.frame(&json::card(&card));
            batch.insert(key, Some(frame));
        }
        if let Ok(fairness) = source.fairness().await {
            let mut gone = self.keys(|key| matches!(key, Key::Shares(_)));
            for shares in fairness {
                let key = Key::Shares(format!("{} {}", shares.tenant, shares.card));
                let frame = key.frame(&json::shares(&shares));
                gone.retain(|other| *other != key);
                batch.insert(key, Some(frame));
            }
            batch.extend(gone.into_iter().map(|key| (key, None)));
        }
    }

    fn keys(&self, filter: impl Fn(&Key) -> bool) -> Vec<Key> {
        self.0.lock().frames.keys().filter(|key| filter(key)).cloned().collect()
    }
}

/// A subject and its new frame; `None` where it is gone.
pub(crate) type SseFrame = (Key, Option<Bytes>);

fn sse_frame(change: &PageChange) -> SseFrame {
    let resource = match change {
        PageChange::Updated(resource) | PageChange::Deleted(resource) => resource,
        PageChange::InitialStateSent => return (Key::Ready, Some(Key::Ready.frame(&json!({})))),
    };
    let (key, value) = match resource {
        PageResource::Dag(dag) => (Key::Dag(dag.name.clone()), json::dag(dag)),
        PageResource::Region(region) => (Key::Region(region.name.clone()), json::region(region)),
        PageResource::Event(event) => (Key::Event(event.number), json::event(event)),
    };
    let frame = matches!(change, PageChange::Updated(_)).then(|| key.frame(&value));
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

    async fn next(page: &mut BrowserStream) -> Option<String> {
        let frame = page.next().await?.expect("infallible");
        Some(String::from_utf8(frame.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn a_new_browser_gets_the_state_and_then_the_changes() {
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
        assert_eq!(feed.page().first.len(), 1, "nothing of the earlier state is sent");
    }

    #[tokio::test]
    async fn a_browser_that_falls_behind_is_told_and_disconnected() {
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
    fn only_the_last_events_are_kept() {
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
    fn a_message_cannot_break_out_of_its_frame() {
        let text = "a\n\nevent: dag\ndata: {}";
        let frame = frame("event", &json!({ "message": text }));
        assert_eq!(frame.iter().filter(|byte| **byte == b'\n').count(), 3);
    }
}
