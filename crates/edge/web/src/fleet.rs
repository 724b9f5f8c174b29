//! The page of a fleet: its hosts, and from each to the page of that host, which is read through the fleet.
//!
//! One feed has the hosts, a row for each whatever its cards are; a host has a feed of its own while a browser looks at it.
//! DAGs of the whole fleet are read page by page when somebody asks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use parking_lot::Mutex;
use serde_json::{Value, json};
use snic_api::fleet_v1::host::Condition;
use snic_api::fleet_v1::rebalance::State as RebalanceState;
use snic_api::fleet_v1::{GetFleetResponse, Host, Rebalance};
use snic_api::v1;
use snic_api::words::EnumWord as _;
use tokio_stream::StreamExt as _;
use tonic::Status;

use crate::feed::{
    BEAT, BEGIN_RETRY, BrowserStream, Feed, GATHER, Key, SseFrame, WATCH_RETRY, every,
};
use crate::routes::{self, HTML, SCRIPT};
use crate::source::{Changes, PageSource};
use crate::{Door, Site};

/// Interval between questions to the fleet about its state.
const STATUS_POLL: Duration = Duration::from_secs(2);
/// The list of hosts is read for at most one of this many parts of the time, however many there are.
const LIST_SHARE: u32 = 10;
/// DAGs that are read at once.
const DAGS_PAGE: i32 = 100;

/// The files of the list of hosts: path, content type, text.
pub(crate) const ASSETS: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("assets/hosts.html")),
    ("/hosts.js", SCRIPT, include_str!("assets/hosts.js")),
];

/// One step of a watch of hosts.
#[derive(Debug, Clone, PartialEq)]
pub enum HostChange {
    /// The host exists, and is like this. The number of its DAGs is not known.
    Updated(Box<Host>),
    /// The host of this name is gone.
    Deleted(String),
    /// All hosts that there were have been sent.
    InitialStateSent,
}

/// A watch of hosts: what exists, then each change.
pub type HostChanges = Changes<HostChange>;

/// A page's view of a fleet, with the rights of an operator.
pub trait FleetSource: Clone + Send + Sync + 'static {
    /// Source of one host.
    type Host: PageSource;

    /// Watches all hosts.
    ///
    /// # Errors
    /// Nobody leads, or the server stops.
    fn hosts(&self) -> impl Future<Output = Result<HostChanges, Status>> + Send;

    /// Number of DAGs of each host, by the host's name.
    ///
    /// # Errors
    /// Nobody leads.
    fn dag_counts(&self) -> impl Future<Output = Result<Vec<(String, u64)>, Status>> + Send;

    /// State of the fleet, with the rebalance that goes on or was the last.
    ///
    /// # Errors
    /// Nobody leads.
    fn status(
        &self,
    ) -> impl Future<Output = Result<(GetFleetResponse, Option<Rebalance>), Status>> + Send;

    /// A page of DAGs, and the token of the next one.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a filter or token that is not valid.
    fn dags(
        &self,
        request: v1::ListDagsRequest,
    ) -> impl Future<Output = Result<v1::ListDagsResponse, Status>> + Send;

    /// Source of a host in the name of an operator; `None` where the name is not valid.
    fn host(&self, host: &str, who: &str) -> Option<Self::Host>;
}

/// State that all connections share.
pub(crate) struct FleetWeb<S: FleetSource> {
    door: Door,
    source: S,
    /// The feed of hosts, while a browser reads it.
    feed: Mutex<Weak<Feed>>,
    /// The feeds of hosts, by host and operator, while browsers read them.
    hosts: Mutex<BTreeMap<(String, String), Weak<Feed>>>,
}

impl<S: FleetSource> FleetWeb<S> {
    pub fn new(door: Door, source: S) -> Self {
        Self { door, source, feed: Mutex::default(), hosts: Mutex::default() }
    }

    fn follow(&self) -> BrowserStream {
        let mut current = self.feed.lock();
        let feed = current.upgrade().unwrap_or_else(|| {
            let feed = Feed::new();
            tokio::spawn(run(Arc::downgrade(&feed), self.source.clone()));
            *current = Arc::downgrade(&feed);
            feed
        });
        feed.page()
    }

    fn follow_host(&self, host: String, who: &str) -> Option<BrowserStream> {
        let source = self.source.host(&host, who)?;
        let mut hosts = self.hosts.lock();
        // At most as many stay as there are browsers.
        hosts.retain(|_, feed| feed.strong_count() > 0);
        let key = (host, who.to_owned());
        let feed = hosts.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let feed = Feed::start(source);
            hosts.insert(key, Arc::downgrade(&feed));
            feed
        });
        Some(feed.page())
    }
}

/// Viewer, and the host that is looked at.
type ViewerState<S> = State<(Arc<FleetWeb<S>>, Arc<str>)>;

impl<S: FleetSource> Site for FleetWeb<S> {
    fn door(&self) -> &Door {
        &self.door
    }

    fn routes(self: Arc<Self>, who: &str) -> Router {
        let mut router = Router::new();
        // What is at a daemon's root is here in each host's folder.
        let of_host = routes::ASSETS.iter().map(|(path, kind, text)| match *path {
            "/" => ("/hosts/{host}/", kind, text),
            path => (path, kind, text),
        });
        let of_list = ASSETS.iter().map(|(path, kind, text)| (*path, kind, text));
        for (path, kind, text) in of_list.chain(of_host) {
            router = router.route(path, get(|| async { ([(CONTENT_TYPE, *kind)], *text) }));
        }
        router
            .route("/stream", get(stream::<S>))
            .route("/dags/{tenant}", get(dags::<S>))
            .route("/dags/{tenant}/{page}", get(more_dags::<S>))
            .route("/hosts/{host}", get(to_folder))
            .route("/hosts/{host}/stream", get(host_stream::<S>))
            .route("/hosts/{host}/explanation/{*dag}", get(explanation::<S>))
            .route("/hosts/{host}/diagnosis/{*dag}", get(diagnosis::<S>))
            .route("/hosts/{host}/history/{*tenant}", get(history::<S>))
            .route("/hosts/{host}/account/{*tenant}", get(account::<S>))
            .with_state((self, Arc::from(who)))
    }
}

/// The scripts of a host's page ask beside it.
async fn to_folder(Path(host): Path<String>) -> Response {
    match host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)) {
        true => Redirect::to(&format!("/hosts/{host}/")).into_response(),
        false => no_host(&host),
    }
}

fn no_host(host: &str) -> Response {
    routes::refused(&Status::invalid_argument(format!("{host:.80?} is no name of a host")))
}

async fn stream<S: FleetSource>(State((web, _)): ViewerState<S>) -> Response {
    routes::stream(&web.door, || Some(web.follow()))
}

async fn host_stream<S: FleetSource>(
    State((web, who)): ViewerState<S>,
    Path(host): Path<String>,
) -> Response {
    if web.source.host(&host, &who).is_none() {
        return no_host(&host);
    }
    routes::stream(&web.door, || web.follow_host(host, &who))
}

type OfHost = Path<(String, String)>;

async fn explanation<S: FleetSource>(
    State((web, who)): ViewerState<S>,
    Path((host, dag)): OfHost,
) -> Response {
    match web.source.host(&host, &who) {
        Some(source) => routes::explanation(&source, dag).await,
        None => no_host(&host),
    }
}

async fn diagnosis<S: FleetSource>(
    State((web, who)): ViewerState<S>,
    Path((host, dag)): OfHost,
) -> Response {
    match web.source.host(&host, &who) {
        Some(source) => routes::diagnosis(&source, dag).await,
        None => no_host(&host),
    }
}

async fn history<S: FleetSource>(
    State((web, who)): ViewerState<S>,
    Path((host, tenant)): OfHost,
) -> Response {
    match web.source.host(&host, &who) {
        Some(source) => routes::history(&source, tenant).await,
        None => no_host(&host),
    }
}

async fn account<S: FleetSource>(
    State((web, who)): ViewerState<S>,
    Path((host, tenant)): OfHost,
) -> Response {
    match web.source.host(&host, &who) {
        Some(source) => routes::account(&source, tenant).await,
        None => no_host(&host),
    }
}

/// The first page of a tenant's DAGs, or of all with `-`.
async fn dags<S: FleetSource>(looking: ViewerState<S>, Path(tenant): Path<String>) -> Response {
    more_dags(looking, Path((tenant, String::new()))).await
}

async fn more_dags<S: FleetSource>(
    State((web, _)): ViewerState<S>,
    Path((tenant, page_token)): Path<(String, String)>,
) -> Response {
    let parent = format!("tenants/{tenant}");
    let request =
        v1::ListDagsRequest { parent, page_size: DAGS_PAGE, page_token, ..Default::default() };
    let found = web.source.dags(request).await.map(|reply| {
        let dags: Vec<Value> = reply.dags.iter().map(dag).collect();
        json!({ "dags": dags, "next": reply.next_page_token })
    });
    routes::respond(found)
}

/// A DAG of the fleet, with its place.
fn dag(of: &v1::Dag) -> Value {
    let mapped = of.conditions.iter().find(|condition| condition.r#type == "Mapped");
    // Operators are told the place in full.
    let place = mapped.and_then(|mapped| mapped.message.strip_prefix("on hosts/"));
    let (host, card) = place.and_then(|place| place.split_once("/cards/")).unwrap_or_default();
    let why = if place.is_none() { mapped.map_or("", |mapped| &*mapped.message) } else { "" };
    json!({
        "name": of.name,
        "state": of.state().word(),
        "bps": of.bandwidth_bps,
        "host": host,
        "card": card,
        "why": why,
    })
}

/// Row of a host.
fn host(of: &Host, dags: Option<u64>) -> Value {
    let models: BTreeSet<&str> = of.cards.iter().map(|card| card.model.as_str()).collect();
    let condition = match of.condition() {
        Condition::Unspecified => "UNKNOWN",
        Condition::InStep => "IN_STEP",
        Condition::Behind => "BEHIND",
        Condition::Suspected => "SUSPECTED",
        Condition::Lost => "LOST",
    };
    json!({
        "name": of.name,
        "zone": of.zone,
        "rack": of.rack,
        "condition": condition,
        "cordoned": of.cordoned,
        "draining": of.draining,
        "cards": of.cards.len(),
        "cardsCordoned": of.cards.iter().filter(|card| card.cordoned).count(),
        "models": models,
        "dags": dags,
    })
}

fn status((of, rebalance): &(GetFleetResponse, Option<Rebalance>)) -> Value {
    let running = rebalance.as_ref().filter(|of| of.state() == RebalanceState::Running);
    json!({
        "leader": of.leader,
        "dags": of.dags,
        "unplaced": of.dags_unplaced,
        "cards": of.cards,
        "tenants": of.tenants,
        "drains": of.drains,
        "rebalance": running.map(|of| json!({
            "zone": of.zone, "moved": of.dags_moved, "moving": of.dags_moving,
        })),
    })
}

/// The rows that were told, for numbers of DAGs that come later.
#[derive(Default)]
struct Rows(BTreeMap<String, (Value, Option<u64>)>);

impl Rows {
    fn change(&mut self, change: HostChange) -> SseFrame {
        match change {
            HostChange::Updated(of) => {
                let dags = self.0.get(&of.name).and_then(|(_, dags)| *dags);
                let row = host(&of, dags);
                let key = Key::Host(of.name.clone());
                let frame = key.frame(&row);
                self.0.insert(of.name, (row, dags));
                (key, Some(frame))
            }
            HostChange::Deleted(name) => {
                self.0.remove(&name);
                (Key::Host(name), None)
            }
            HostChange::InitialStateSent => (Key::Ready, Some(Key::Ready.frame(&json!({})))),
        }
    }

    /// The rows whose number of DAGs is another one now.
    fn counted(&mut self, counts: Vec<(String, u64)>) -> Vec<SseFrame> {
        let mut changed = Vec::new();
        for (name, count) in counts {
            let Some((row, dags)) = self.0.get_mut(&name) else { continue };
            if *dags != Some(count) {
                *dags = Some(count);
                row["dags"] = json!(count);
                let key = Key::Host(name);
                let frame = key.frame(row);
                changed.push((key, Some(frame)));
            }
        }
        changed
    }
}

async fn run<S: FleetSource>(feed: Weak<Feed>, source: S) {
    loop {
        match source.hosts().await {
            Ok(changes) => {
                if follow(&feed, &source, changes).await.is_none() {
                    return;
                }
            }
            Err(status) => {
                let Some(current) = feed.upgrade() else { return };
                current.trouble(&status);
                drop(current);
                tokio::time::sleep(BEGIN_RETRY).await;
                continue;
            }
        }
        tokio::time::sleep(WATCH_RETRY).await;
        let Some(feed) = feed.upgrade() else { return };
        feed.reset();
    }
}

/// Tells changes until the watch ends; `None` where no browser is left.
async fn follow<S: FleetSource>(
    feed: &Weak<Feed>,
    source: &S,
    mut changes: HostChanges,
) -> Option<()> {
    let (mut rows, mut batch) = (Rows::default(), BTreeMap::new());
    let (mut gather, mut beat, mut poll) = (every(GATHER), every(BEAT), every(STATUS_POLL));
    let mut counts = Box::pin(counts(source.clone(), Duration::ZERO));
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(change)) => batch.extend([rows.change(change)]),
                Some(Err(_)) | None => return Some(()),
            },
            _ = gather.tick(), if !batch.is_empty() => {
                feed.upgrade()?.publish(std::mem::take(&mut batch));
            }
            (counted, took) = &mut counts => {
                batch.extend(rows.counted(counted));
                counts.set(self::counts(source.clone(), STATUS_POLL.max(took * LIST_SHARE)));
            }
            _ = poll.tick() => {
                feed.upgrade()?;
                if let Ok(found) = source.status().await {
                    batch.insert(Key::Fleet, Some(Key::Fleet.frame(&status(&found))));
                }
            }
            _ = beat.tick() => feed.upgrade()?.beat(),
        }
    }
}

/// The numbers of DAGs after a pause, and how long it took to read them; none where nobody leads.
async fn counts<S: FleetSource>(source: S, pause: Duration) -> (Vec<(String, u64)>, Duration) {
    tokio::time::sleep(pause).await;
    let begun = Instant::now();
    let counts = source.dag_counts().await.unwrap_or_default();
    (counts, begun.elapsed())
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
