//! The services of the API on top of the control plane.
//!
//! Each method parses its request (`snic_api::convert`), asks the controller, and converts the reply.
//! The services decide only matters of the API: pages, masks, names.

mod audit;
mod authorization;
mod batches;
mod bitstreams;
mod card_work;
mod cards;
mod consolidation;
mod dags;
mod events;
mod fairness;
mod nt_types;
mod operations;
mod orchestration;
mod page_source;
mod rules;
mod system;
mod tenants;
mod traffic;
mod traffic_run;
mod usage;
mod watching;

use std::sync::Arc;

use snic_api::error::ApiError;
use snic_api::list::{Keyed, Listed, Listing};
use snic_api::page::{Page, PageRequest, Query};
use snic_api::v1::{self, ErrorReason};
use snic_audit::AuditLog;
use snic_controller::{Command, Controller, Reply, Request};
use snic_domain::{Caller, TenantId};
use snic_front::error::shutting_down;
use snic_front::fields::{etag, repeat_of, request_id};
use snic_front::listing;
use snic_front::settings::Limits;
use snic_front::share::{CallerFlow, CallerLevel, PermitPool};
use snic_front::uploads::UploadCheck;
use snic_front::workshop::Workshop;
use tokio::sync::{Semaphore, watch};
use tonic::Status;

use crate::error::{OperationKind, failure};
use crate::hub::Hub;
use crate::links::CardLinks;
use crate::settings::{DiagnosticsSource, ServerSettings};
use crate::shell::ControlPlane;
use crate::wire;

/// Most bytes of a list's items in one reply: well below the 4 MiB that clients accept.
const PAGE_BYTES_MAX: usize = 2 << 20;

/// Threads for plans of batches, checks and reading the audit log: few, for the controller and the cards need theirs.
const WORKSHOP_THREADS: usize = 2;

/// State that all services share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Services(Arc<Shared>);

struct Shared {
    plane: ControlPlane,
    hub: Arc<Hub>,
    limits: Limits,
    uploads: PermitPool,
    batches: PermitPool,
    packet_watches: PermitPool,
    traffic_runs: PermitPool,
    /// Thread for work that takes more than a moment.
    workshop: Workshop,
    /// One search of a card at a time: it takes a processor for some milliseconds.
    searches: Semaphore,
    upload_check: UploadCheck,
    card_links: CardLinks,
    audit: Option<AuditLog>,
    diagnostics: DiagnosticsSource,
    stopping: watch::Receiver<bool>,
}

impl Services {
    pub fn new(
        plane: ControlPlane,
        hub: Arc<Hub>,
        settings: &ServerSettings,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self(Arc::new(Shared {
            plane,
            hub,
            limits: settings.front.limits.clone(),
            uploads: PermitPool::uploads(
                settings.front.limits.uploads_max,
                settings.front.limits.uploads_per_caller_max,
            ),
            batches: PermitPool::batches(
                settings.front.limits.batches_max,
                settings.front.limits.batches_per_caller_max,
            ),
            packet_watches: PermitPool::packet_watches(
                settings.front.limits.packet_watches_max,
                settings.front.limits.packet_watches_per_caller_max,
            ),
            traffic_runs: PermitPool::traffic_runs(
                settings.front.limits.traffic_runs_max,
                settings.front.limits.traffic_runs_per_caller_max,
            ),
            workshop: Workshop::new(WORKSHOP_THREADS),
            searches: Semaphore::new(1),
            upload_check: settings.upload_check.clone(),
            card_links: settings.card_links.clone(),
            audit: settings.front.audit.clone(),
            diagnostics: settings.diagnostics.clone(),
            stopping,
        }))
    }

    /// Searches a picture of a card, and not on the controller's thread.
    async fn search<T: Send + 'static>(
        &self,
        search: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let _turn = self.0.searches.acquire().await.map_err(|_| shutting_down())?;
        tokio::task::spawn_blocking(search).await.map_err(|error| match error.is_panic() {
            true => ApiError::internal("the search of a card"),
            false => shutting_down(),
        })
    }

    /// Sends a command to the controller.
    async fn ask(
        &self,
        caller: &Caller,
        request_id: Option<String>,
        command: Command,
        kind: OperationKind,
    ) -> Result<Reply, ApiError> {
        let request = Request { caller: caller.clone(), request_id, command };
        self.0.plane.request(request).await.map_err(|error| failure(error, kind, caller))
    }

    /// Dry run of a change that has no operation.
    async fn check(&self, caller: &Caller, command: Command) -> Result<(), ApiError> {
        let check = move |controller: &Controller, caller: &Caller| {
            controller.check_command(caller, command)
        };
        let checked = self.read(caller, check).await?;
        checked.map_err(|error| failure(error.into(), OperationKind::Change, caller))
    }

    /// Reads the state.
    async fn read<T, F>(&self, caller: &Caller, query: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&Controller, &Caller) -> T + Send + 'static,
    {
        self.read_at(caller, query).await.map(|(value, _)| value)
    }

    /// Reads the state, with the revision of its last change or a later one.
    async fn read_at<T, F>(&self, caller: &Caller, query: F) -> Result<(T, u64), ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&Controller, &Caller) -> T + Send + 'static,
    {
        let reader = caller.clone();
        let query = move |controller: &Controller| query(controller, &reader);
        let read = self.0.plane.read_at(CallerLevel::of(caller), CallerFlow::from(caller), query);
        read.await.map_err(|error| failure(error, OperationKind::Change, caller))
    }

    /// One page: `query` returns at most the given number of items behind the one with the given key, `item`
    /// the key and message of each. Reads piece by piece, so that nobody else waits for a long list. A
    /// watch from the revision that comes with it misses no change.
    async fn page<T, M, F>(
        &self,
        caller: &Caller,
        listing: &Listing,
        query: F,
        item: impl Fn(&T) -> Keyed<M>,
    ) -> Result<(Page<M>, u64), ApiError>
    where
        T: Send + 'static,
        M: Listed,
        F: Fn(&Controller, &Caller, Option<&str>, usize) -> Vec<T> + Send + Sync + 'static,
    {
        let query = Arc::new(query);
        let mut pieces = listing.begin::<M>(PAGE_BYTES_MAX)?;
        let mut begun = None;
        loop {
            let (after, most) = pieces.next();
            let (query, after) = (Arc::clone(&query), after.map(str::to_owned));
            let (piece, revision) = self
                .read_at(caller, move |controller, caller| {
                    query(controller, caller, after.as_deref(), most)
                })
                .await?;
            let revision = *begun.get_or_insert(revision);
            if let Some(page) = pieces.add(piece.iter().map(&item).collect())? {
                return Ok((page, revision));
            }
        }
    }
}

/// Parses the paging fields of a list request.
fn page(query: Query, size: i32, token: &str) -> Result<PageRequest, ApiError> {
    PageRequest::parse(query, size, token).map_err(|error| ApiError::invalid_page(&error))
}

/// Waits until the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // Without a sender the server has stopped.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// A change that is made only if the resource has this etag; without one in any case.
fn guarded(etag: &str, command: Command) -> Command {
    match etag {
        "" => command,
        etag => Command::Guarded { etag: etag.to_owned(), command: Box::new(command) },
    }
}

/// Whether the resource that a request deletes may be missing: its `allow_missing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingPolicy {
    Allowed,
    AnError,
}

impl From<bool> for MissingPolicy {
    fn from(allow_missing: bool) -> Self {
        if allow_missing { Self::Allowed } else { Self::AnError }
    }
}

impl MissingPolicy {
    /// A reply, or `None` where there was nothing to delete and that is fine. A resource that the caller
    /// may not see is missing to it.
    fn or_deleted(self, reply: Result<Reply, ApiError>) -> Result<Option<Reply>, ApiError> {
        match reply {
            Err(failure)
                if self == Self::Allowed && failure.reason() == ErrorReason::ResourceNotFound =>
            {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// The same for requests whose reply carries nothing.
    fn or_done(self, reply: Result<Reply, ApiError>) -> Result<(), ApiError> {
        match self.or_deleted(reply)? {
            None | Some(Reply::Done) => Ok(()),
            Some(other) => Err(unexpected(&other)),
        }
    }

    /// The same for requests that may begin an operation; without one it is done.
    fn or_begun(
        self,
        reply: Result<Reply, ApiError>,
        caller: &Caller,
    ) -> Result<Option<v1::Operation>, ApiError> {
        match self.or_deleted(reply)? {
            None | Some(Reply::Done) => Ok(None),
            Some(Reply::Operation(view)) => Ok(Some(wire::operation(&view, caller))),
            Some(other) => Err(unexpected(&other)),
        }
    }
}

/// The controller's reply does not belong to the command.
fn unexpected(reply: &Reply) -> ApiError {
    tracing::error!(?reply, "the controller's reply does not belong to the command");
    ApiError::internal("reply")
}

/// The resource is absent, or not visible to this caller.
fn absent(name: &str) -> ApiError {
    ApiError::not_found(snic_front::error::kind_of(name), name)
}

/// Rejects a change of another tenant's resource. To the caller, the resource exists only if it may read
/// it.
fn check_owner(
    caller: &Caller,
    owner: Option<&TenantId>,
    name: &str,
    readable: bool,
) -> Result<(), ApiError> {
    if caller.may_change(owner) {
        return Ok(());
    }
    if readable {
        let text = format!("{name} belongs to another tenant; only its owner may change it");
        return Err(ApiError::new(ErrorReason::PermissionDenied, text));
    }
    Err(absent(name))
}

/// Converts the expected kind of reply; any other is a defect.
macro_rules! reply_as {
    ($reply:expr, $pattern:pat => $value:expr) => {
        match $reply {
            $pattern => Ok($value),
            other => Err(tonic::Status::from($crate::services::unexpected(&other))),
        }
    };
}
use reply_as;

/// Result of an RPC method.
type RpcResult<T> = Result<tonic::Response<T>, Status>;
