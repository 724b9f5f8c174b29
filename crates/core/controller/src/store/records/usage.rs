//! Records of usage: their values, and their tenants.

use snic_domain::TenantId;
use snic_usage::{UsageKey, UsageRecord};

use super::{InvalidRecord, read};

/// The bytes of a record's value.
pub(super) fn encode(record: &UsageRecord) -> serde_json::Result<Vec<u8>> {
    match record {
        UsageRecord::Closed(second) => serde_json::to_vec(second),
        UsageRecord::Kept(kept) => serde_json::to_vec(kept),
        UsageRecord::Card(_, saved) => serde_json::to_vec(saved),
        UsageRecord::Row(_, saved) => serde_json::to_vec(saved),
        UsageRecord::Account(_, saved) => serde_json::to_vec(saved),
        UsageRecord::OpenPage(_, _, page) | UsageRecord::FullPage(_, _, page) => {
            serde_json::to_vec(page)
        }
        UsageRecord::Month(_, usage) => serde_json::to_vec(usage),
    }
}

/// The tenant whose reads a record shows in.
pub(super) fn owner(record: &UsageRecord) -> Option<&TenantId> {
    match record {
        UsageRecord::Account(_, saved) => Some(&saved.tenant),
        _ => None,
    }
}

/// Reads a record back.
///
/// # Errors
/// No record of usage has such a key, or such a value.
pub(super) fn parse(key: &str, value: &[u8]) -> Result<UsageRecord, InvalidRecord> {
    let wrong = || InvalidRecord::contradiction(key, "no record of usage has such a key");
    Ok(match UsageKey::parse(key).ok_or_else(wrong)? {
        UsageKey::Closed => UsageRecord::Closed(read(key, value)?),
        UsageKey::Kept => UsageRecord::Kept(read(key, value)?),
        UsageKey::Card(card) => UsageRecord::Card(card, read(key, value)?),
        UsageKey::Row(card, _) => UsageRecord::Row(card, read(key, value)?),
        UsageKey::Account(account) => UsageRecord::Account(account, read(key, value)?),
        UsageKey::OpenPage(account, level) => {
            UsageRecord::OpenPage(account, level, read(key, value)?)
        }
        UsageKey::Month(account) => UsageRecord::Month(account, read(key, value)?),
        UsageKey::FullPage(account, level, _) => {
            UsageRecord::FullPage(account, level, read(key, value)?)
        }
    })
}
