//! The services. They hold no state: they convert, ask the leader, and convert back.

mod bindings;
mod bitstreams;
mod dags;
mod events;
mod fleet;
mod gathering;
mod host_view;
mod host_watching;
mod hosts;
mod nt_types;
mod operations;
pub(crate) mod page;
mod policies;
mod projects;
mod question_room;
mod replica;
mod reservations;
mod rules;
mod shares;
mod tenants;
pub(crate) mod usage;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use snic_api::error::ApiError;
use snic_api::fleet_v1::AnswerResponse;
use snic_api::list::{Keyed, Listed, Listing};
use snic_api::page::Page;
use snic_api::v1::ErrorReason;
use snic_domain::{Caller, DagName, TenantId};
use snic_fleet::HostId;
use snic_fleet::call_ledger::CallAges;
use snic_fleet::protocol::{
    FleetAsk, FleetCommand, FleetDag, FleetItem, FleetList, FleetName, FleetReply, LIST_MAX,
    RequestId,
};
use snic_front::settings::Limits;
use snic_front::share::PermitPool;
use snic_front::uploads::UploadCheck;
use snic_front::workshop::Workshop;
use snic_store_etcd::EtcdConnection;
use tokio::sync::watch;
use tonic::Status;

use crate::asking::LeaderClient;
use crate::budgets::ReplicaPrices;
use crate::calls::{HostCalls, Parts as Answer};
use crate::error::of_denied;
use crate::history::History;
use crate::links::HostLinks;
use crate::sweeper::KeptImages;

/// Most bytes of a list's items in one reply: well below the 4 MiB that clients accept.
const PAGE_BYTES_MAX: usize = 2 << 20;

/// Calls that a replica passes on at once. Another replica gives it 64 streams.
const CALLS_MAX: usize = 48;
/// Number of calls of one caller at a time.
const CALLS_PER_CALLER_MAX: usize = 12;
/// Threads for checks of configurations and uploads.
const WORKSHOP_THREADS: usize = 2;

/// Result of an RPC method.
type RpcResult<T> = Result<tonic::Response<T>, Status>;

/// Parts that the services need.
#[derive(Debug)]
pub(crate) struct Parts {
    pub asking: LeaderClient,
    pub links: Arc<HostLinks>,
    pub calls: Arc<HostCalls>,
    pub images: Arc<KeptImages>,
    /// Prices of what budgets are spent on.
    pub prices: ReplicaPrices,
    /// Ages up to which calls at replicas are kept.
    pub call_ages: CallAges,
    pub upload_check: UploadCheck,
    pub address: String,
    /// Source of what watches begin with.
    pub etcd: EtcdConnection,
    /// Source of what they go on with.
    pub history: Arc<History>,
    pub stopping: watch::Receiver<bool>,
}

/// State that all services share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Services(Arc<Shared>);

struct Shared {
    parts: Parts,
    uploads: PermitPool,
    /// For calls that are passed on to hosts.
    passed: PermitPool,
    /// Thread for work that takes more than a moment.
    workshop: Workshop,
    /// Interval of bookmarks on an idle watch.
    bookmark: Duration,
    host_states: host_watching::HostStates,
    /// Room for questions about usage.
    usage: question_room::QuestionRoom,
    /// Room for questions about what hosts have.
    gathering: question_room::QuestionRoom,
}

impl Services {
    pub fn new(parts: Parts, limits: &Limits) -> Self {
        let uploads = PermitPool::uploads(limits.uploads_max, limits.uploads_per_caller_max);
        let passed = PermitPool::passed_calls(CALLS_MAX, CALLS_PER_CALLER_MAX);
        let (workshop, bookmark) = (Workshop::new(WORKSHOP_THREADS), limits.bookmark);
        let host_states = host_watching::HostStates::default();
        let (usage, gathering) = Default::default();
        Self(Arc::new(Shared {
            parts,
            uploads,
            passed,
            workshop,
            bookmark,
            host_states,
            usage,
            gathering,
        }))
    }

    /// The room for calls that are passed on to hosts.
    pub fn passed(&self) -> &PermitPool {
        &self.0.passed
    }

    /// Asks for a change or reads.
    async fn ask(
        &self,
        caller: &Caller,
        repeat: Option<String>,
        command: FleetCommand,
    ) -> Result<FleetReply, ApiError> {
        self.send(ask_of(caller, repeat.as_deref(), command)).await
    }

    /// Asks for a change, or only for what would be answered.
    async fn propose(
        &self,
        caller: &Caller,
        repeat: Option<String>,
        validate_only: bool,
        command: FleetCommand,
    ) -> Result<FleetReply, ApiError> {
        self.send(FleetAsk { validate_only, ..ask_of(caller, repeat.as_deref(), command) }).await
    }

    async fn send(&self, ask: FleetAsk) -> Result<FleetReply, ApiError> {
        // On a task of its own: whoever leaves in the middle must not cut off what is being forwarded.
        let services = self.clone();
        let asked = tokio::spawn(async move { services.0.parts.asking.ask(ask).await }).await;
        asked.map_err(|_| ApiError::internal("fleet"))?.map_err(of_denied)
    }

    /// The host that serves a DAG now.
    ///
    /// # Errors
    /// The caller has no such DAG, or it has no place.
    pub async fn host_of(&self, caller: &Caller, name: DagName) -> Result<HostId, ApiError> {
        let FleetItem::Dag(dag) = self.item(caller, FleetName::Dag(name.clone())).await? else {
            return Err(ApiError::internal("item"));
        };
        serving_host(&dag).cloned().ok_or_else(|| {
            let text = format!(
                "{name} has no place at the moment, so no host knows more of it; see its condition \
                 Mapped, and `snicctl dag explain`"
            );
            ApiError::new(ErrorReason::InvalidState, text)
        })
    }

    /// Passes a call on to a host.
    ///
    /// # Errors
    /// The host does not answer, or nobody leads.
    pub async fn call_host(&self, host: &HostId, call: AnswerResponse) -> Result<Answer, Status> {
        let parts = &self.0.parts;
        parts.asking.call_host((&parts.calls, &parts.links), host, call).await
    }

    /// Reads a record.
    async fn item(&self, caller: &Caller, name: FleetName) -> Result<FleetItem, ApiError> {
        match self.ask(caller, None, FleetCommand::Get(name)).await? {
            FleetReply::Item(item) => Ok(*item),
            other => Err(unexpected(&other)),
        }
    }

    /// The record that a change has made or changed, as it is now.
    async fn made(
        &self,
        caller: &Caller,
        repeat: Option<String>,
        name: FleetName,
        command: FleetCommand,
    ) -> Result<FleetItem, ApiError> {
        match self.ask(caller, repeat, command).await? {
            FleetReply::Item(item) => Ok(*item),
            FleetReply::Done => self.item(caller, name).await,
            other => Err(unexpected(&other)),
        }
    }

    /// Deletes a record.
    async fn delete(
        &self,
        caller: &Caller,
        repeat: Option<String>,
        allow_missing: bool,
        command: FleetCommand,
    ) -> Result<(), ApiError> {
        match self.ask(caller, repeat, command).await {
            Ok(_) => Ok(()),
            Err(error) if allow_missing && error.reason() == ErrorReason::ResourceNotFound => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// One page of a list, and the revision that it includes: a watch from there misses no change. `name` gives the record behind which a piece begins, `item` the key and the message.
    async fn page<M: Listed>(
        &self,
        caller: &Caller,
        (listing, of): (&Listing, FleetList),
        name: impl Fn(&str) -> Option<FleetName> + Send,
        item: impl Fn(FleetItem) -> Option<Keyed<M>> + Send,
    ) -> Result<(Page<M>, u64), ApiError> {
        let mut pieces = listing.begin::<M>(PAGE_BYTES_MAX)?;
        let mut begun = None;
        loop {
            let (after, most) = pieces.next();
            let (piece, revision) = self.piece(caller, &of, after.and_then(&name), most).await?;
            let revision = *begun.get_or_insert(revision);
            let piece = piece.into_iter().filter_map(&item).collect();
            if let Some(page) = pieces.add(piece)? {
                return Ok((page, revision));
            }
        }
    }

    /// So many items, fewer only at the end of the list: what the leader gives at once has an end in bytes.
    async fn piece(
        &self,
        caller: &Caller,
        of: &FleetList,
        after: Option<FleetName>,
        most: usize,
    ) -> Result<(Vec<FleetItem>, u64), ApiError> {
        let (mut found, mut after) = (Vec::new(), after);
        let mut begun = None;
        loop {
            let wanted = (most - found.len()).min(LIST_MAX);
            let command = FleetCommand::List { of: of.clone(), after, most: wanted };
            match self.ask(caller, None, command).await? {
                FleetReply::Items { items, next, revision } => {
                    let revision = *begun.get_or_insert(revision);
                    found.extend(items);
                    if next.is_none() || found.len() >= most {
                        return Ok((found, revision));
                    }
                    after = next;
                }
                other => return Err(unexpected(&other)),
            }
        }
    }
}

/// The host that serves a DAG now.
fn serving_host(of: &FleetDag) -> Option<&HostId> {
    let before = of.served_by.as_ref().filter(|_| !of.is_ready);
    before.or(of.card.as_ref()).map(|card| &card.host)
}

fn ask_of(caller: &Caller, repeat: Option<&str>, command: FleetCommand) -> FleetAsk {
    FleetAsk {
        tenant: caller.tenant().cloned(),
        id: repeat.map(number),
        validate_only: false,
        command,
    }
}

/// The number of a request by its UUID, in canonical form: its last 64 bits, of which 62 are random.
fn number(uuid: &str) -> RequestId {
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    let tail = digits.get(digits.len().saturating_sub(16)..).unwrap_or_default();
    RequestId(u64::from_str_radix(tail, 16).unwrap_or_default())
}

/// The tenant for whom a list is: tenants see what is theirs.
fn tenant_of_list(caller: &Caller, parent: Option<TenantId>) -> Option<TenantId> {
    parent.or_else(|| caller.tenant().cloned())
}

/// The leader's reply does not belong to the command.
fn unexpected(reply: &FleetReply) -> ApiError {
    tracing::error!(?reply, "the leader's reply does not belong to the command");
    ApiError::internal("reply")
}

/// Advice on asking for what only a host knows.
const ASK_A_HOST: &str = "operators name a host with `--host NAME` (header `snic-host`), or ask its daemon (`snicd`); \
                          tenants ask their operator";

/// The fleet's service does not have this.
fn elsewhere(what: &str) -> Status {
    let text = format!(
        "the fleet's service has no {what}; ask the daemon of the host (`snicd`), whose name operators \
         find in the DAG's condition Mapped"
    );
    ApiError::new(ErrorReason::NotAtFleet, text).into()
}

/// The fleet's service does not watch this, of which it gathers lists.
fn no_watch(what: &str, list: &str) -> Status {
    let text = format!(
        "the fleet's service has no watch of {what}, which are on its hosts; list them again ({list}), or watch those of one \
         host: {ASK_A_HOST}"
    );
    ApiError::new(ErrorReason::NotAtFleet, text).into()
}

/// The fleet's service does not have what this path asks for.
pub(crate) fn not_here(path: &str) -> Status {
    let method = path.trim_start_matches('/');
    let (service, method) = method.split_once('/').unwrap_or((method, ""));
    let (what, hint) = match service.strip_prefix("snic.control.v1.") {
        Some("CardService") => ("cards and regions of its own", ""),
        Some("AuditService") => (
            "audit log to read",
            "each replica writes the calls that it answered to `audit_dir` of its settings, and each host has a log of \
             what its own daemon was asked: ",
        ),
        Some("AuthorizationService") => ("authorization policies", ""),
        Some("SystemService") => ("maintenance mode and backups", "back up etcd and the images; "),
        _ => {
            let asked = format!("{service:.80}/{method:.80}");
            return Status::unimplemented(format!("the fleet's service has no method {asked}"));
        }
    };
    let text = format!("the fleet's service has no {what}; {hint}{ASK_A_HOST}");
    ApiError::new(ErrorReason::NotAtFleet, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_is_not_here_is_named_whatever_its_path() {
        for path in ["", "/", "//", "/a", "/snic.control.v1.Foo/Bar"] {
            assert!(not_here(path).message().contains("no method"), "{path}");
        }
    }

    #[test]
    fn a_request_has_the_same_number_at_every_replica() {
        let uuid = "123e4567-e89b-42d3-a456-426614174000";
        assert_eq!(number(uuid), RequestId(0xa456_4266_1417_4000));
    }
}
