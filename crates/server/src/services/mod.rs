//! The services of the API on top of the control plane.
//!
//! Each method reads its request (`snic_api::convert`), asks the controller, and puts what it says
//! on the wire. Nothing is decided here but what is the API's own business: pages, masks, names.

mod audit;
mod bitstreams;
pub(crate) mod cards;
mod consolidation;
mod dags;
mod events;
mod fairness;
mod nt_types;
mod operations;
mod orchestration;
mod rules;
mod system;
mod tenants;
pub(crate) mod watching;

use std::sync::Arc;

use prost::Message;
use snic_api::convert::FieldProblem;
use snic_api::error::Failure;
use snic_api::page::{Page, PageRequest, Query};
use snic_api::v1::ErrorReason;
use snic_controller::{Caller, Command, Controller, Reply, Request};
use snic_domain::TenantId;
use tokio::sync::{Semaphore, watch};
use tonic::Status;

pub(crate) use bitstreams::CHUNK_BYTES_MAX;

use crate::audit::AuditLog;
use crate::error::{Doing, failure};
use crate::hub::Hub;
use crate::links::CardLinks;
use crate::settings::{DiagnosticsSource, Limits, ServerSettings, UploadCheck};
use crate::shell::ControlPlane;

/// Most bytes of a list's items in one reply: clients accept messages of 4 MiB.
const PAGE_BYTES_MAX: usize = 2 << 20;

/// What all services share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Services(Arc<Shared>);

struct Shared {
    plane: ControlPlane,
    hub: Arc<Hub>,
    limits: Limits,
    uploads: Arc<Semaphore>,
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
            limits: settings.limits.clone(),
            uploads: Arc::new(Semaphore::new(settings.limits.uploads_max)),
            upload_check: settings.upload_check.clone(),
            card_links: settings.card_links.clone(),
            audit: settings.audit.clone(),
            diagnostics: settings.diagnostics.clone(),
            stopping,
        }))
    }

    /// Asks for a change.
    async fn ask(
        &self,
        caller: &Caller,
        request_id: Option<String>,
        command: Command,
        doing: Doing,
    ) -> Result<Reply, Failure> {
        let request = Request { caller: caller.clone(), request_id, command };
        self.0.plane.request(request).await.map_err(|error| failure(error, doing, caller))
    }

    /// Reads the state.
    async fn read<T, F>(&self, caller: &Caller, query: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: FnOnce(&Controller, &Caller) -> T + Send + 'static,
    {
        let reader = caller.clone();
        let read = self.0.plane.read(move |controller| query(controller, &reader));
        read.await.map_err(|error| failure(error, Doing::Change, caller))
    }

    /// The items of a page: `query` gives at most as many as are asked of it, with a key and the
    /// message of each.
    async fn page<T, M, F>(
        &self,
        caller: &Caller,
        page: &PageRequest,
        query: F,
        item: impl Fn(&T) -> (String, M),
    ) -> Result<Page<M>, Failure>
    where
        T: Send + 'static,
        M: Message,
        F: FnOnce(&Controller, &Caller, usize) -> Vec<T> + Send + 'static,
    {
        // One more says whether there is another page.
        let wanted = page.limit() + 1;
        let items =
            self.read(caller, move |controller, caller| query(controller, caller, wanted)).await?;
        let items = items.iter().map(item);
        let page = page.take_within(
            items,
            |(key, _)| key.clone(),
            |(_, message)| message.encoded_len(),
            PAGE_BYTES_MAX,
        );
        let items = page.items.into_iter().map(|(_, message)| message).collect();
        Ok(Page { items, next_page_token: page.next_page_token })
    }
}

/// The page that a list was asked for.
fn page(query: Query, size: i32, token: &str) -> Result<PageRequest, Failure> {
    PageRequest::parse(query, size, token).map_err(|error| Failure::invalid_page(&error))
}

/// Waits until the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // Where the sender is gone the server has stopped.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// An etag or nothing.
fn etag(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A UUID or nothing, in lower case.
fn request_id(field: &str, text: &str) -> Result<Option<String>, FieldProblem> {
    if text.is_empty() {
        return Ok(None);
    }
    let parts: Vec<&str> = text.split('-').collect();
    let lengths = parts.iter().map(|part| part.len());
    let hexadecimal = parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit()));
    if lengths.eq([8, 4, 4, 4, 12]) && hexadecimal {
        return Ok(Some(text.to_ascii_lowercase()));
    }
    let rule = format_args!("{text:.80?} is no UUID such as 123e4567-e89b-42d3-a456-426614174000");
    Err(FieldProblem::invalid(field, rule))
}

/// The controller replied with something else than it does to this command.
fn unexpected(reply: &Reply) -> Failure {
    tracing::error!(?reply, "the controller's reply does not belong to the command");
    Failure::internal("reply")
}

/// Absent, or not for this caller.
fn absent(name: &str) -> Failure {
    Failure::not_found(crate::error::kind_of(name), name)
}

/// Refuses a tenant that changes what another owns: it exists for the tenant only if it may be
/// read.
fn check_owner(
    caller: &Caller,
    owner: Option<&TenantId>,
    name: &str,
    readable: bool,
) -> Result<(), Failure> {
    if caller.may_change(owner) {
        return Ok(());
    }
    if readable {
        let text = format!("{name} is not yours to change");
        return Err(Failure::new(ErrorReason::PermissionDenied, text));
    }
    Err(absent(name))
}

/// The reply that a conversion is for, or the defect.
macro_rules! answer {
    ($reply:expr, $pattern:pat => $value:expr) => {
        match $reply {
            $pattern => Ok($value),
            other => Err(tonic::Status::from($crate::services::unexpected(&other))),
        }
    };
}
use answer;

/// What a method answers.
type Answer<T> = Result<tonic::Response<T>, Status>;
