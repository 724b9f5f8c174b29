//! A controller of the custom resource `Dag`: `kubectl apply` creates a DAG on the server, and its status says how that is.
//!
//! ```text
//!  API server ── heads of objects: list, watch ──► registry ◄── DAGs that changed: watch ── server (snicd, or a fleet)
//!                                                     │ one worker for an object, namespaces in turn
//!                                                     ▼
//!             ┌── object ──► worker: plan::next_step ◄── DAG ──┐
//!  API server ┤                    │                            ├ server
//!             └◄─ finalizer, status ┴─ create, update, delete ─►┘
//! ```
//!
//! The controller keeps nothing that a restart loses: whose a DAG is its labels say, what is left to do follows from object
//! and DAG. Of several replicas the one that holds the lease works.

pub mod crd;
pub mod lease;
pub mod object;
pub mod objects;
pub mod plan;
pub mod queue;
pub mod registry;
pub mod server;
pub mod settings;
pub mod spec;
pub mod status;
pub mod worker;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Api;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};

use crate::dra;
use crate::settings_file::InvalidSettings;
use object::ObjectKey;
use objects::{ObjectNews, ObjectStore};
use queue::WorkResult;
use registry::Registry;
use server::{DagServer, ServerNews};
use settings::DagControllerSettings;
use worker::DagWorker;

/// News that wait to be taken in.
const NEWS_MAX: usize = 64;
/// Interval in which what is kept of former objects is dropped.
const CLEAN_EVERY: Duration = Duration::from_secs(60);

/// Why the controller stopped.
#[derive(Debug, thiserror::Error)]
pub enum DagControllerError {
    #[error(transparent)]
    Settings(#[from] InvalidSettings),
    /// No credentials for the API server.
    #[error(transparent)]
    Credentials(#[from] dra::DraError),
    #[error(transparent)]
    Lease(#[from] lease::LeaseLost),
    /// A feed that the controller depends on has ended; another replica, or the next start, opens it again.
    #[error("{0} are no longer read")]
    Feed(&'static str),
}

/// Runs until an error that retrying cannot cure, or until the lease is lost.
///
/// # Errors
/// [`DagControllerError`]; it never returns `Ok`.
pub async fn run(settings: DagControllerSettings) -> Result<(), DagControllerError> {
    settings.check()?;
    let client = dra::client(settings.kubeconfig.as_deref()).await?;
    let leases = Api::namespaced(client.clone(), &settings.lease_namespace);
    let held = lease::acquire(&leases, &settings.replica).await;
    let worker = Arc::new(DagWorker {
        objects: ObjectStore::new(client),
        server: DagServer::new(&settings.server),
        rule: settings.tenant_rule()?,
        trusted: settings.trusted_tenants.clone(),
    });
    // Work that is under way ends with the future that is dropped.
    tokio::select! {
        lost = lease::hold(&leases, held) => Err(lost.into()),
        never = control(worker, &settings) => never,
    }
}

/// Workers at work, and on what.
#[derive(Debug, Default)]
struct Crew {
    tasks: JoinSet<(ObjectKey, WorkResult)>,
    objects: HashMap<Id, ObjectKey>,
}

impl Crew {
    fn begin(&mut self, worker: &Arc<DagWorker>, key: ObjectKey) {
        let (worker, object) = (Arc::clone(worker), key.clone());
        let task = async move {
            let result = worker.work(&object).await;
            (object, result)
        };
        let handle = self.tasks.spawn(task);
        self.objects.insert(handle.id(), key);
    }

    /// Waits for the next worker that ends; for ever while none works.
    async fn next(&mut self) -> (ObjectKey, WorkResult) {
        loop {
            match self.tasks.join_next_with_id().await {
                None => std::future::pending().await,
                Some(Ok((id, ended))) => {
                    self.objects.remove(&id);
                    return ended;
                }
                // A defect that one object meets does not stop the work on the others.
                Some(Err(error)) => {
                    let key = self.objects.remove(&error.id());
                    tracing::error!(%error, object = ?key, "a worker failed");
                    if let Some(key) = key {
                        return (key, WorkResult::Retry);
                    }
                }
            }
        }
    }
}

/// Tasks that bring news for as long as the controller works.
#[derive(Debug, Default)]
struct Feeds(JoinSet<&'static str>);

impl Feeds {
    fn begin(&mut self, what: &'static str, feed: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(async move {
            feed.await;
            what
        });
    }

    /// Waits until one ends, which none should: a controller without it would look well, and see nothing.
    async fn ended(&mut self) -> DagControllerError {
        match self.0.join_next().await {
            None => std::future::pending().await,
            Some(Ok(what)) => DagControllerError::Feed(what),
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

async fn control(
    worker: Arc<DagWorker>,
    settings: &DagControllerSettings,
) -> Result<(), DagControllerError> {
    let (object_sender, mut objects) = mpsc::channel(NEWS_MAX);
    let (server_sender, mut dags) = mpsc::channel(NEWS_MAX);
    let mut feeds = Feeds::default();
    feeds.begin("objects", worker.objects.clone().watch(object_sender));
    let (watcher, sender) = (Arc::clone(&worker), server_sender.clone());
    feeds.begin("changes of DAGs", async move { watcher.server.watch(sender).await });
    let (reader, every) = (Arc::clone(&worker), settings.served_interval());
    feeds
        .begin("served rates", async move { reader.server.read_rates(every, server_sender).await });
    let mut registry = Registry::new(worker.rule.clone());
    let mut crew = Crew::default();
    let mut clean_at = Instant::now() + CLEAN_EVERY;
    loop {
        let now = Instant::now();
        if now >= clean_at {
            registry.clean(now);
            clean_at = now + CLEAN_EVERY;
        }
        while let Some(key) = registry.next(now) {
            crew.begin(&worker, key);
        }
        let wake = registry.next_time().unwrap_or(clean_at).min(clean_at);
        tokio::select! {
            Some(news) = objects.recv() => take_object(&mut registry, news),
            Some(news) = dags.recv() => take_dag(&mut registry, news),
            (key, result) = crew.next() => registry.done(&key, result, Instant::now()),
            () = tokio::time::sleep_until(wake.into()) => {}
            ended = feeds.ended() => return Err(ended),
        }
    }
}

fn take_object(registry: &mut Registry, news: ObjectNews) {
    let now = Instant::now();
    match news {
        ObjectNews::Listed(heads) => registry.listed(heads, now),
        ObjectNews::Seen(head) => registry.seen(head, now),
        ObjectNews::Gone(key) => registry.gone(&key, now),
    }
}

fn take_dag(registry: &mut Registry, news: ServerNews) {
    let now = Instant::now();
    match news {
        ServerNews::Changed(name) => registry.dag_changed(&name, now),
        ServerNews::Gap => registry.dags_unknown(now),
        ServerNews::Served(rates) => registry.dags_served(rates, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_feed_that_ends_ends_the_controller() {
        let mut feeds = Feeds::default();
        feeds.begin("objects", std::future::pending());
        feeds.begin("served rates", async {});
        let ended = tokio::time::timeout(Duration::from_secs(10), feeds.ended()).await;
        assert_eq!(ended.expect("at once").to_string(), "served rates are no longer read");
    }

    #[tokio::test]
    #[should_panic(expected = "a defect")]
    async fn a_feed_that_panics_is_not_hidden() {
        let mut feeds = Feeds::default();
        feeds.begin("objects", async { panic!("a defect") });
        feeds.ended().await;
    }
}
