//! Answers gathered from many hosts: what only hosts have, such as classification rules, events and bindings.
//!
//! ```text
//!  list ──► which hosts (all, or those of the DAGs) ──► a few entries of each ──► merged by key ──► page
//!                                                       ▲ more of the host whose entries are used up
//! ```
//!
//! The key of the last entry is the whole page token: it has the same length for one host as for a thousand, and a page goes on
//! behind it on whatever hosts there are then. Hosts answer in the caller's name, so they show what the caller may see. One that does
//! not answer is named with the page.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use snic_api::error::ApiError;
use snic_api::list::{Keyed, Listed, Listing};
use snic_api::page::{InvalidPage, Page};
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_domain::{Caller, DagName, TenantId};
use snic_fleet::HostId;
use snic_fleet::protocol::{FleetItem, FleetList, FleetName, LIST_MAX};
use snic_front::error::RETRY_SOON;
use snic_front::gate::CallAuthorizer;
use snic_front::share::{CallerLevel, Permit};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::{PAGE_BYTES_MAX, Services};
use crate::passing::HostTransport;

/// Identity that looks for the host of a resource: hosts' policies see it, and their audit logs have it.
const IDENTITY: &str = "operator/fleet";
/// Longest time of a question; hosts that have not answered by then are named.
const QUESTION_MAX: Duration = Duration::from_secs(10);
/// Longest time of a host's answer.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// Hosts that one question asks at once: others have their turns meanwhile.
const HOSTS_PER_QUESTION: usize = 4;
/// Fewest entries that a host is asked for.
const ENTRIES_MIN: usize = 8;
/// Most entries that a host is asked for.
const ENTRIES_MAX: usize = 256;

/// Hosts that may have what is asked for.
#[derive(Debug)]
pub(super) enum HostScope {
    All,
    /// Those that serve a tenant's DAGs.
    Tenant(TenantId),
    /// Those that serve a DAG: two while it moves.
    Dag(DagName),
}

/// Hosts that did not answer, and why.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MissingHosts(BTreeMap<HostId, String>);

impl MissingHosts {
    pub fn add(&mut self, host: HostId, reason: String) {
        self.0.insert(host, reason);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As a reader may know of them: tenants are not told which hosts there are.
    pub fn to_wire(&self, reader: &Caller) -> Vec<v1::UnreachableHost> {
        let shown = |(host, reason): (&HostId, &String)| match reader.tenant() {
            Some(_) => v1::UnreachableHost::default(),
            None => v1::UnreachableHost { host: format!("hosts/{host}"), reason: reason.clone() },
        };
        self.0.iter().map(shown).collect()
    }

    /// The error for something that no other host has.
    pub fn may_have(&self, what: &str, reader: &Caller) -> ApiError {
        let hosts = match (reader.tenant(), self.0.first_key_value()) {
            (None, Some((host, reason))) if self.0.len() == 1 => format!("host {host} ({reason})"),
            (None, Some((host, reason))) => {
                format!("{} hosts, among them {host} ({reason}),", self.0.len())
            }
            _ => "a host of the fleet".to_owned(),
        };
        let text = format!(
            "{hosts} did not answer and may have {what}; no other host has it. Try again when all hosts answer"
        );
        ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON)
    }
}

/// A page of a host's list.
#[derive(Debug, Clone)]
pub(super) struct HostPage {
    pub size: i32,
    pub token: String,
    /// Selects entries that are not before the page of the fleet.
    pub filter: String,
}

/// A list that hosts have, each its own part.
#[tonic::async_trait]
pub(super) trait HostList: Send + Sync + 'static {
    type Item: Listed + Send + 'static;

    /// A page of a host's part, and the token of its next one.
    async fn page(
        &self,
        host: HostTransport,
        page: HostPage,
    ) -> Result<(Vec<Self::Item>, String), Status>;

    /// An entry with the names that the fleet has for it.
    fn named(&self, host: &HostId, item: Self::Item) -> Self::Item;

    /// Key of an entry as it is named. All keys of one host grow in the order of its list, and no two hosts have the same.
    fn key(&self, host: &HostId, item: &Self::Item) -> String;

    /// Filter of a host's list that leaves out most entries before a key and none behind it; `None` for what is no key.
    fn not_before(&self, key: &str) -> Option<String>;
}

/// A question that is being asked of hosts.
pub(super) struct HostQuestion {
    services: Services,
    /// Identity in whose name hosts answer.
    identity: String,
    until: Instant,
    _place: Permit,
}

/// Answers of hosts, by name, and hosts without one.
#[derive(Debug)]
pub(super) struct HostAnswers<T> {
    pub found: Vec<(HostId, T)>,
    pub missing: MissingHosts,
}

impl HostQuestion {
    /// Asks one host, in its turn.
    async fn ask<T, F>(
        services: Services,
        transport: HostTransport,
        until: Instant,
        call: impl FnOnce(HostTransport) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let late = |_| Status::deadline_exceeded("the host did not answer in time");
        let turn = tokio::time::timeout_at(until, services.0.gathering.hosts.acquire()).await;
        let closed = |_| Status::unavailable("the replica stops");
        let _turn = turn.map_err(late)?.map_err(closed)?;
        let until = until.min(Instant::now() + ANSWER_MAX);
        tokio::time::timeout_at(until, call(transport)).await.map_err(late)?
    }

    /// Asks all of these hosts, some at a time. A host that has nothing of the kind is left out.
    pub async fn ask_all<T, F>(
        &self,
        hosts: impl IntoIterator<Item = HostId>,
        call: impl Fn(&HostId, HostTransport) -> F + Clone + Send + Sync + 'static,
    ) -> HostAnswers<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let (mut found, mut missing) = (Vec::new(), MissingHosts::default());
        let (mut waiting, mut running) = (hosts.into_iter(), JoinSet::new());
        let mut asked = HashMap::new();
        loop {
            while running.len() < HOSTS_PER_QUESTION
                && let Some(host) = waiting.next()
            {
                let services = self.services.clone();
                let transport = HostTransport::new(
                    services.clone(),
                    host.clone(),
                    Caller::Operator("fleet-lists".into()),
                    self.identity.clone(),
                );
                let (call, until, of) = (call.clone(), self.until, host.clone());
                let task = running.spawn(async move {
                    let call = |transport| call(&of, transport);
                    Self::ask(services, transport, until, call).await
                });
                asked.insert(task.id(), host);
            }
            let Some(ended) = running.join_next_with_id().await else { break };
            let (id, answer) = match ended {
                Ok((id, answer)) => (id, answer),
                Err(error) => (error.id(), Err(Status::internal("a defect of this replica"))),
            };
            let Some(host) = asked.remove(&id) else { continue };
            match answer {
                Ok(answer) => found.push((host, answer)),
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => missing.add(host, status.message().to_owned()),
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        HostAnswers { found, missing }
    }
}

/// A host's part of a list, as far as it was read.
#[derive(Debug)]
struct HostPart<M> {
    host: HostId,
    /// Entries that were read and not taken yet.
    read: VecDeque<Keyed<M>>,
    /// Token of the next page of the host.
    token: String,
    has_more: bool,
}

/// The merged parts of hosts.
struct MergedParts<L: HostList> {
    list: Arc<L>,
    parts: Vec<HostPart<L::Item>>,
    /// First keys of the parts, with their numbers.
    first: BinaryHeap<Reverse<(String, usize)>>,
    /// Key behind which the page begins.
    after: String,
    filter: String,
    /// Entries that each host is asked for next.
    size: usize,
    missing: MissingHosts,
}

impl<L: HostList> MergedParts<L> {
    /// Parts of these hosts behind a key, for a piece of so many entries.
    fn new(list: L, hosts: Vec<HostId>, after: Option<&str>, most: usize) -> Option<Self> {
        let filter = match after {
            Some(after) => list.not_before(after)?,
            None => String::new(),
        };
        // With even parts each host is asked once or twice.
        let size = (2 * most).div_ceil(hosts.len().max(1)).clamp(ENTRIES_MIN, ENTRIES_MAX);
        let part =
            |host| HostPart { host, read: VecDeque::new(), token: String::new(), has_more: true };
        Some(Self {
            list: Arc::new(list),
            parts: hosts.into_iter().map(part).collect(),
            first: BinaryHeap::new(),
            after: after.unwrap_or_default().to_owned(),
            filter,
            size,
            missing: MissingHosts::default(),
        })
    }

    /// The next entries, fewer than asked for only at the end of the list.
    async fn piece(&mut self, question: &HostQuestion, most: usize) -> Vec<Keyed<L::Item>> {
        let mut piece = Vec::new();
        while piece.len() < most {
            self.read_on(question).await;
            let Some(entry) = self.take() else { break };
            piece.push(entry);
        }
        piece
    }

    /// Takes the next entry. No host may be dry: its next one could come before.
    fn take(&mut self) -> Option<Keyed<L::Item>> {
        let Reverse((_, number)) = self.first.pop()?;
        let part = self.parts.get_mut(number)?;
        let entry = part.read.pop_front();
        if let Some((key, _)) = part.read.front() {
            self.first.push(Reverse((key.clone(), number)));
        }
        entry
    }

    /// Hosts whose entries are used up and that have more, with the tokens of their next pages.
    fn dry(&self) -> BTreeMap<HostId, String> {
        let dry = self.parts.iter().filter(|part| part.read.is_empty() && part.has_more);
        dry.map(|part| (part.host.clone(), part.token.clone())).collect()
    }

    /// Reads on at all hosts that are dry.
    async fn read_on(&mut self, question: &HostQuestion) {
        loop {
            let tokens = self.dry();
            if tokens.is_empty() {
                return;
            }
            let hosts: Vec<HostId> = tokens.keys().cloned().collect();
            let (list, filter, size) = (Arc::clone(&self.list), self.filter.clone(), self.size);
            let tokens = Arc::new(tokens);
            let asked = move |host: &HostId, transport| {
                let token = tokens.get(host).cloned().unwrap_or_default();
                let size = i32::try_from(size).unwrap_or(i32::MAX);
                let (list, page) =
                    (Arc::clone(&list), HostPage { size, token, filter: filter.clone() });
                async move { list.page(transport, page).await }
            };
            let answers = question.ask_all(hosts.clone(), asked).await;
            self.add(&hosts, answers);
            self.size = (2 * self.size).min(ENTRIES_MAX);
        }
    }

    /// Adds what hosts have answered. A host without an answer has nothing more.
    fn add(&mut self, asked: &[HostId], answers: HostAnswers<(Vec<L::Item>, String)>) {
        let asked: BTreeSet<&HostId> = asked.iter().collect();
        let mut pages: BTreeMap<HostId, _> = answers.found.into_iter().collect();
        for (number, part) in self.parts.iter_mut().enumerate() {
            if !asked.contains(&part.host) {
                continue;
            }
            let (items, token) = pages.remove(&part.host).unwrap_or_default();
            for item in items {
                let item = self.list.named(&part.host, item);
                let key = self.list.key(&part.host, &item);
                if key > self.after {
                    part.read.push_back((key, item));
                }
            }
            // A host that repeats a token would be asked for ever.
            part.has_more = !token.is_empty() && token != part.token;
            part.token = token;
            if let Some((key, _)) = part.read.front() {
                self.first.push(Reverse((key.clone(), number)));
            }
        }
        answers.missing.0.into_iter().for_each(|(host, reason)| self.missing.add(host, reason));
    }
}

impl Services {
    /// A question in a caller's name.
    ///
    /// # Errors
    /// The caller has as many questions under way as it may have.
    pub(super) fn question_of(&self, passage: &CallAuthorizer) -> Result<HostQuestion, ApiError> {
        let caller = passage.identity().caller().ok_or_else(|| passage.refused())?;
        let place = self.0.gathering.places.enter(CallerLevel::of(caller), caller.into())?;
        Ok(self.question_in(place, passage.identity().to_string()))
    }

    /// A question of the fleet's own, for a caller: where something is. It is less than a list, and a caller may have as many as
    /// calls that are passed on.
    ///
    /// # Errors
    /// As [`Self::question_of`].
    pub(super) fn question_for(&self, caller: &Caller) -> Result<HostQuestion, ApiError> {
        let place = self.0.passed.enter(CallerLevel::of(caller), caller.into())?;
        Ok(self.question_in(place, IDENTITY.to_owned()))
    }

    fn question_in(&self, place: Permit, identity: String) -> HostQuestion {
        let until = Instant::now() + QUESTION_MAX;
        HostQuestion { services: self.clone(), identity, until, _place: place }
    }

    /// Hosts that may have what a caller asks for, by name.
    ///
    /// # Errors
    /// Nobody leads, or the caller has no such DAG.
    pub(super) async fn hosts_in(
        &self,
        caller: &Caller,
        scope: HostScope,
    ) -> Result<Vec<HostId>, ApiError> {
        let of_dags = |items: Vec<FleetItem>| {
            let dags = items.into_iter().filter_map(|item| match item {
                FleetItem::Dag(dag) => Some([dag.card, dag.served_by]),
                _ => None,
            });
            let hosts: BTreeSet<HostId> = dags.flatten().flatten().map(|card| card.host).collect();
            hosts.into_iter().collect()
        };
        match scope {
            HostScope::Dag(name) => {
                Ok(of_dags(vec![self.item(caller, FleetName::Dag(name)).await?]))
            }
            HostScope::Tenant(tenant) => {
                let of = FleetList::Dags(Some(tenant));
                let (dags, _) = self.piece(caller, &of, None, LIST_MAX + 1).await?;
                // To ask all hosts is less than to read all DAGs of so large a tenant.
                if dags.len() > LIST_MAX { self.all_hosts().await } else { Ok(of_dags(dags)) }
            }
            HostScope::All => self.all_hosts().await,
        }
    }

    async fn all_hosts(&self) -> Result<Vec<HostId>, ApiError> {
        let fleet = Caller::Operator("fleet".into());
        let (items, _) = self.piece(&fleet, &FleetList::Hosts, None, usize::MAX).await?;
        let ids = items.into_iter().filter_map(|item| match item {
            FleetItem::Host(of) => Some(of.host),
            _ => None,
        });
        let ids: BTreeSet<HostId> = ids.collect();
        Ok(ids.into_iter().collect())
    }

    /// One page of a list that hosts have, and the hosts that are missing from it.
    ///
    /// # Errors
    /// The page token is of no such list, or the list is too long for its order.
    pub(super) async fn gathered_page<L: HostList>(
        &self,
        question: &HostQuestion,
        listing: &Listing,
        (list, hosts): (L, Vec<HostId>),
    ) -> Result<(Page<L::Item>, MissingHosts), ApiError> {
        let mut pieces = listing.begin::<L::Item>(PAGE_BYTES_MAX)?;
        let (after, most) = pieces.next();
        let parts = MergedParts::new(list, hosts, after, most);
        let mut parts = parts.ok_or_else(|| ApiError::invalid_page(&InvalidPage::Token))?;
        loop {
            let (_, most) = pieces.next();
            let piece = parts.piece(question, most).await;
            if let Some(page) = pieces.add(piece)? {
                return Ok((page, parts.missing));
            }
        }
    }
}

/// Name of a card, or of what else a host has, at a fleet. Tenants are not told which hosts there are.
pub(super) fn on_host(is_told: bool, host: &HostId, name: String) -> String {
    match (is_told, name.as_str()) {
        (false, _) => name,
        (true, "") => format!("hosts/{host}"),
        (true, _) => format!("hosts/{host}/{name}"),
    }
}

#[cfg(test)]
mod tests;
