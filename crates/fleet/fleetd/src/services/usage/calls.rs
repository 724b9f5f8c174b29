//! Calls that replicas have counted, read from etcd.

use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_domain::TenantId;
use snic_etcd::{Answer, Record, Request, Revision};
use snic_fleet::call_ledger::{
    CallGap, CallKey, CallRecord, CallSums, CountingRecord, REPLICAS, day_prefix,
};
use snic_fleet::records::{UnreadableRecord, Versioned};
use snic_front::error::RETRY_SOON;

use super::hosts::ENTRIES_MAX;
use super::{DAY, Services, UsageQuestion, now, timestamp};

/// Records that are read at once.
const PAGE: usize = 500;
/// Reason of the gap that a replica leaves that was killed.
const KILLED: &str = "NOT_RUNNING";

/// Calls of tenants at replicas.
#[derive(Debug, Default)]
pub(super) struct CountedCalls {
    /// An entry for each tenant and step with calls.
    pub entries: Vec<v1::UsageEntry>,
    /// An entry for each time in which a replica may have counted calls that are missing.
    pub gaps: Vec<v1::UsageEntry>,
}

impl UsageQuestion {
    /// Whether calls are a part of the answer: they are of tenants, not of DAGs or cards.
    fn has_calls(&self) -> bool {
        self.to_hosts.dag.is_empty() && self.to_hosts.card.is_empty()
    }

    fn calls_of(&self, tenant: &TenantId, from: u64, to: u64) -> v1::UsageEntry {
        v1::UsageEntry {
            tenant: name::of_tenant(tenant),
            start_time: Some(timestamp(from)),
            end_time: Some(timestamp(to)),
            ..v1::UsageEntry::default()
        }
    }

    /// The entry of a gap. Nobody knows of which tenants calls are missing, so that of a list of all tenants names none.
    fn calls_gap(&self, sums: &CallSums, gap: &CallGap) -> v1::UsageEntry {
        let step = sums.step_of(gap.from);
        v1::UsageEntry {
            tenant: self.to_hosts.tenant.clone(),
            start_time: Some(timestamp(step)),
            end_time: Some(timestamp(sums.end_of(step))),
            gaps: vec![v1::UsageGap { reason: KILLED.to_owned(), millis: gap.millis() }],
            ..v1::UsageEntry::default()
        }
    }
}

impl Services {
    /// Calls that replicas have counted and stored in the range of a question.
    ///
    /// # Errors
    /// etcd does not answer, a record cannot be read, or there are too many entries.
    pub(super) async fn counted_calls(
        &self,
        question: &UsageQuestion,
    ) -> Result<CountedCalls, ApiError> {
        if !question.has_calls() {
            return Ok(CountedCalls::default());
        }
        let tenant = match question.to_hosts.tenant.as_str() {
            "" => None,
            text => Some(name::tenant("tenant", text).map_err(ApiError::from)?),
        };
        let (from, to) = question.range;
        let mut sums = CallSums::new(from, to, question.to_hosts.step_seconds);
        let (days, today, mut at) = (sums.days(), now() / DAY, None);
        let kept = self.0.parts.call_ages.hour + 1;
        let first = (*days.start()).max(today.saturating_sub(kept));
        for day in first..=(*days.end()).min(today + 1) {
            let prefix = day_prefix(day, tenant.as_ref());
            for record in self.records_of_calls(&prefix, &mut at).await? {
                let Some(key) = CallKey::parse(&record.key) else { continue };
                // Another tenant of the name before is nobody's business but operators'.
                if question.created.is_none_or(|created| created == key.born) {
                    sums.add(&key, read::<CallRecord>(&record)?.value());
                }
            }
            if sums.len() > ENTRIES_MAX {
                let text = format!(
                    "replicas have more than {ENTRIES_MAX} entries; use a longer step, a shorter range or one tenant"
                );
                return Err(ApiError::new(ErrorReason::LimitExceeded, text));
            }
        }
        let mut gaps = Vec::new();
        for record in self.records_of_calls(REPLICAS, &mut at).await? {
            gaps.extend(read::<CountingRecord>(&record)?.value().gaps_in(from, to));
        }
        gaps.retain(|gap| question.created.is_none_or(|created| gap.to > created));
        let entry = |(tenant, from, to, api_calls)| v1::UsageEntry {
            api_calls,
            ..question.calls_of(tenant, from, to)
        };
        Ok(CountedCalls {
            entries: sums.iter().map(entry).collect(),
            gaps: gaps.iter().map(|gap| question.calls_gap(&sums, gap)).collect(),
        })
    }

    /// All records with this prefix, as of the revision of the first read.
    async fn records_of_calls(
        &self,
        prefix: &str,
        at: &mut Option<Revision>,
    ) -> Result<Vec<Record>, ApiError> {
        let (mut all, mut from) = (Vec::new(), None);
        loop {
            let request = Request::Range { prefix: prefix.to_owned(), at: *at, from, limit: PAGE };
            let (records, more) = match self.0.parts.etcd.ask(&request).await {
                Ok(Answer::Range { records, more, now }) => {
                    at.get_or_insert(now);
                    (records, more)
                }
                Ok(_) => return Err(ApiError::internal("range")),
                Err(failed) => {
                    tracing::warn!(%failed, "calls of tenants cannot be read");
                    let text = "calls of the API cannot be read from etcd; try again later";
                    let away = ApiError::new(ErrorReason::StoreUnavailable, text);
                    return Err(away.retry_after(RETRY_SOON));
                }
            };
            all.extend(records);
            match all.last().filter(|_| more) {
                // The first key behind it.
                Some(last) => from = Some(format!("{}\0", last.key)),
                None => return Ok(all),
            }
        }
    }
}

/// # Errors
/// A newer program wrote it, or nobody of this fleet.
fn read<T: serde::Serialize + serde::de::DeserializeOwned>(
    record: &Record,
) -> Result<Versioned<T>, ApiError> {
    Versioned::parse(&record.key, &record.value).map_err(|error: UnreadableRecord| {
        tracing::error!(%error, "a record of calls cannot be read");
        let text = "a record of calls in etcd cannot be read; see the replica's log for which";
        ApiError::new(ErrorReason::StoreUnavailable, text)
    })
}
