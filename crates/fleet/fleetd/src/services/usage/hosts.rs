//! Questions about usage to hosts.

use std::time::Duration;

use snic_api::error::ApiError;
use snic_api::usage::OUTAGES_MAX;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::usage_service_client::UsageServiceClient;
use snic_domain::Caller;
use snic_fleet::HostId;
use snic_fleet::protocol::{FleetItem, FleetList};
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::merge::MergedUsage;
use super::{Services, UsageQuestion};
use crate::passing::HostTransport;

/// Identity that hosts are asked by: their policies see it, and their audit logs have it.
const IDENTITY: &str = "operator/fleet";
/// Longest time of a host's answer, which reads its store.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Entries of a host's page.
const PAGE_SIZE: i32 = 1_000;
/// Most entries that hosts say for one sum: a tenant's whole day in minutes on dozens of hosts.
pub(super) const ENTRIES_MAX: usize = 100_000;

/// The fleet itself, as a caller.
pub(super) fn fleet() -> Caller {
    Caller::Operator("fleet".into())
}

/// Outages that hosts tell of, and the highest of their objectives.
#[derive(Debug, Default)]
pub(super) struct FoundOutages {
    pub outages: Vec<v1::SloOutage>,
    pub objective_ppm: Option<u32>,
}

impl Services {
    /// Hosts that a question is about, by name.
    async fn hosts_of(&self, question: &UsageQuestion) -> Result<Vec<HostId>, ApiError> {
        let (items, _) = self.piece(&fleet(), &FleetList::Hosts, None, usize::MAX).await?;
        let ids = items.into_iter().filter_map(|item| match item {
            FleetItem::Host(of) => Some(of.host),
            _ => None,
        });
        let only = question.host.as_ref();
        let mut ids: Vec<HostId> = ids.filter(|id| only.is_none_or(|only| only == id)).collect();
        ids.sort();
        if let Some(only) = only.filter(|_| ids.is_empty()) {
            return Err(ApiError::not_found("host", only));
        }
        Ok(ids)
    }

    fn usage_at(&self, host: &HostId) -> UsageServiceClient<HostTransport> {
        let (services, identity) = (self.clone(), IDENTITY.to_owned());
        let transport = HostTransport::new(services, host.clone(), fleet(), identity);
        UsageServiceClient::new(transport).max_decoding_message_size(16 << 20)
    }

    /// A host's page.
    async fn page_of_host(
        &self,
        host: &HostId,
        request: v1::ListUsageRequest,
    ) -> Result<v1::ListUsageResponse, Status> {
        let closed = |_| Status::unavailable("the replica stops");
        let _turn = self.0.usage.hosts.acquire().await.map_err(closed)?;
        let mut client = self.usage_at(host);
        let answer = tokio::time::timeout(ANSWER_MAX, client.list_usage(request)).await;
        let late = |_| Status::deadline_exceeded("the host did not answer in time");
        Ok(answer.map_err(late)??.into_inner())
    }

    /// All entries of a host.
    async fn all_of_host(
        &self,
        host: &HostId,
        request: v1::ListUsageRequest,
    ) -> Result<Vec<v1::UsageEntry>, Status> {
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let request =
                v1::ListUsageRequest { page_size: PAGE_SIZE, page_token, ..request.clone() };
            let reply = self.page_of_host(host, request).await?;
            all.extend(reply.usage);
            page_token = reply.next_page_token;
            if page_token.is_empty() || all.len() > ENTRIES_MAX {
                return Ok(all);
            }
        }
    }

    /// Answers of all hosts, merged.
    ///
    /// # Errors
    /// The question is wrong, or its answer too long.
    pub(super) async fn merged(&self, question: &UsageQuestion) -> Result<MergedUsage, Status> {
        let mut answers = JoinSet::new();
        for host in self.hosts_of(question).await? {
            let (services, request) = (self.clone(), question.to_hosts.clone());
            answers.spawn(async move {
                let all = services.all_of_host(&host, request).await;
                (host, all)
            });
        }
        let (mut merged, mut count) = (MergedUsage::default(), 0);
        while let Some(answer) = answers.join_next().await {
            let (host, all) = answer.map_err(|_| ApiError::internal("usage of a host"))?;
            match all.map_err(host_error) {
                Ok(all) => {
                    count += all.len();
                    all.into_iter().for_each(|entry| merged.add(question, entry));
                }
                Err(HostError::Question(status)) => return Err(status),
                Err(HostError::Unanswered(reason)) => merged.miss(host, reason),
            }
            if count > ENTRIES_MAX {
                let text = format!(
                    "hosts have more than {ENTRIES_MAX} entries; use a longer step, a shorter range or one tenant"
                );
                return Err(ApiError::new(ErrorReason::LimitExceeded, text).into());
            }
        }
        Ok(merged)
    }

    /// A page of entries by host, and the key of the next one. Nothing of different hosts is added up. Calls that replicas have counted
    /// come first.
    ///
    /// # Errors
    /// The question is wrong.
    pub(super) async fn host_by_host(
        &self,
        question: &UsageQuestion,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(v1::ListUsageResponse, Option<String>), Status> {
        let hosts = self.hosts_of(question).await?;
        let (first, mut page_token) = match after.and_then(|after| after.split_once(' ')) {
            Some((host, token)) => (host.to_owned(), token.to_owned()),
            None => (String::new(), String::new()),
        };
        let mut reply = v1::ListUsageResponse::default();
        if first.is_empty() {
            let (mut calls, counted) =
                (MergedUsage::default(), self.counted_calls(question).await?);
            calls.add_calls(question, counted.entries);
            calls.add_gaps(counted.gaps);
            let behind = Some(page_token.as_str()).filter(|key| !key.is_empty());
            let (page, next) = calls.page(question, behind, limit);
            if let Some(key) = next {
                return Ok((page, Some(format!(" {key}"))));
            }
            reply = page;
        }
        for host in hosts.iter().filter(|host| host.as_str() >= first.as_str()) {
            if host.as_str() != first {
                page_token.clear();
            }
            loop {
                let left = limit.saturating_sub(reply.usage.len());
                if left == 0 {
                    return Ok((reply, Some(format!("{host} {page_token}"))));
                }
                let page_size = i32::try_from(left).unwrap_or(PAGE_SIZE);
                let request = question.to_hosts.clone();
                let request = v1::ListUsageRequest { page_size, page_token, ..request };
                match self.page_of_host(host, request).await.map_err(host_error) {
                    Ok(page) => {
                        let own = page.usage.into_iter().filter(|entry| question.selects(entry));
                        reply.usage.extend(own.map(|entry| named(host, entry)));
                        page_token = page.next_page_token;
                    }
                    Err(HostError::Question(status)) => return Err(status),
                    Err(HostError::Unanswered(reason)) => {
                        reply.usage.push(question.gap(host));
                        reply.unreachable_hosts.push(question.unreachable(host, reason));
                        page_token = String::new();
                    }
                }
                if page_token.is_empty() {
                    break;
                }
            }
        }
        Ok((reply, None))
    }

    /// Outages of an account on all hosts. A host that has forgotten the tenant tells of none.
    pub(super) async fn outages(
        &self,
        question: &UsageQuestion,
        request: &v1::GetSloRequest,
    ) -> FoundOutages {
        let mut found = FoundOutages::default();
        let (from, _) = question.own_range();
        let request =
            v1::GetSloRequest { start_time: Some(super::timestamp(from)), ..request.clone() };
        let mut answers = JoinSet::new();
        for host in self.hosts_of(question).await.unwrap_or_default() {
            let (services, request) = (self.clone(), request.clone());
            answers.spawn(async move {
                let _turn = services.0.usage.hosts.acquire().await.ok()?;
                let mut client = services.usage_at(&host);
                let answer = tokio::time::timeout(ANSWER_MAX, client.get_slo(request)).await;
                Some((host, answer.ok()?.ok()?.into_inner()))
            });
        }
        while let Some(answer) = answers.join_next().await {
            let Ok(Some((host, slo))) = answer else { continue };
            found.objective_ppm = found.objective_ppm.max(Some(slo.objective_ppm));
            found.outages.extend(slo.outages.into_iter().map(|outage| {
                let is_operators = question.own.is_none() && !outage.card.is_empty();
                let card = if is_operators {
                    format!("hosts/{host}/{}", outage.card)
                } else {
                    String::new()
                };
                v1::SloOutage { card, ..outage }
            }));
        }
        let start = |of: &v1::SloOutage| of.start_time.map(|at| (at.seconds, at.nanos));
        found.outages.sort_by_key(|of| std::cmp::Reverse(start(of)));
        found.outages.truncate(OUTAGES_MAX);
        found
    }
}

/// Error of a question to a host.
enum HostError {
    /// The question is wrong: an error for whoever asks.
    Question(Status),
    /// The host did not answer, and why not.
    Unanswered(String),
}

fn host_error(status: Status) -> HostError {
    match status.code() {
        Code::InvalidArgument | Code::OutOfRange => HostError::Question(status),
        _ => HostError::Unanswered(status.message().to_owned()),
    }
}

/// An entry with the names that the fleet has for the cards of a host.
fn named(host: &HostId, entry: v1::UsageEntry) -> v1::UsageEntry {
    let card = match entry.card.as_str() {
        "" => format!("hosts/{host}"),
        card => format!("hosts/{host}/{card}"),
    };
    v1::UsageEntry { card, ..entry }
}
