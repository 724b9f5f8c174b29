//! The records of the store and their keys.
//!
//! Desired state only: what tenants and operators asked for, where it was placed, and what
//! was promised in replies. The observed state is never stored: the card is read back.
//!
//! | key | record |
//! |---|---|
//! | `meta` | [`Meta`] |
//! | `maintenance` | [`Maintenance`], in maintenance mode |
//! | `tenants/T` | [`TenantRecord`] |
//! | `nt-types/N` | [`NtRecord`] |
//! | `bitstreams/B` | [`BitstreamRecord`] |
//! | `dags/T/D` | [`DagRecord`] |
//! | `explanations/T/D` | [`Explanation`] of the current placement |
//! | `cards/C` | [`CardRecord`] |
//! | `regions/C/NN` | [`RegionRecord`] |
//! | `guests/C/NN/T/D/B` | [`ResidentContext`] of a region |
//! | `departed/C/NN/U` | [`PendingErase`]: a deleted DAG's context in a region |
//! | `states/C/OOOOOOOOOO` | [`StateRecord`], by its offset in the save area |
//! | `bindings/V` | [`BindingRecord`] |
//! | `rules/R` | [`RuleRecord`] |
//! | `operations/O` | [`OperationRecord`] |
//! | `requests/CALLER/ID` | [`RequestRecord`] |
//! | `refused/T/D` | [`RefusedRecord`] |
//! | `uids/ROW` | incarnation last given out for that row |
//! | `revisions` | the revision since which changes are known |
//! | `usage-open/…` | what the book of usage continues from: [`UsageRecord`] |
//! | `usage/…` | full pages of usage, which a start does not read |
//! | `deleted/KEY` | [`DeletionRecord`], by the key of the record that was there |
//!
//! Records of what can be watched have a [`Stamp`] beside their fields: `revisions`.
//!
//! [`Record`] and [`RecordKey`] are the one place where records and keys are written and read.

mod key;
mod kinds;
mod usage;

#[cfg(test)]
#[path = "longest/tests.rs"]
mod longest;
#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snic_domain::{CardId, DagName, DagSpec, Explanation, Infeasible, RegionId, TenantId};

use snic_usage::UsageRecord;

pub(crate) use key::{Audience, RecordKey, RequestKey};
pub(crate) use kinds::{
    BitstreamRecord, CardRecord, CreatedResource, DagRecord, DeletionRecord, Meta, NtRecord,
    PastRejection, Placement, RegionRecord, RequestRecord, RuleRecord, TenantRecord,
    UnconfiguredNts, regions_of,
};
pub use kinds::{
    KeptRecord, Maintenance, PendingErase, Phase, RefusedRecord, ResidentContext, Stamp,
    StateRecord,
};

use crate::protocol::{BindingRecord, ControlError, OperationRecord, ResourceKey};

/// The layout of the records. A store with another one is refused, and left as it is.
pub const LAYOUT: u32 = 1;

/// Key of the record that says since when changes are known. A store in which something is changed
/// without the controller goes without it: then watches from before start over.
pub const REVISIONS_KEY: &str = "revisions";

/// Most bytes of a DAG's spec as records hold it. The record of a DAG that is being updated holds a spec three times
/// (what is wanted, what is to be served, what is served) and two mappings, and the Store port takes records of 1 MiB.
/// The longest spec within the other limits has 200 KiB, most of it its configurations: in JSON inside JSON each quote
/// takes two bytes. The mappings are bounded by the most instances of one DAG, whatever the autoscaler, an epoch or a
/// search decides later; so no change that nobody asked for makes a record too long.
pub const DAG_SPEC_BYTES_MAX: usize = 224 << 10;

/// A change of the store: a key and its new value, or `None` to remove it.
pub type RecordWrite = (String, Option<Vec<u8>>);

/// A record, with what its key says beside it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    Meta(Meta),
    Maintenance(Maintenance),
    Tenant(TenantRecord),
    NtType(NtRecord),
    Bitstream(BitstreamRecord),
    Dag(Box<DagRecord>),
    Explanation(DagName, Explanation),
    Card(CardId, CardRecord),
    Region(CardId, RegionId, RegionRecord),
    ResidentContext(CardId, RegionId, ResidentContext),
    PendingErase(CardId, RegionId, PendingErase),
    SavedContext(CardId, StateRecord),
    Rule(RuleRecord),
    Binding(BindingRecord),
    /// Reservations of the fleet.
    Kept(Vec<KeptRecord>),
    Operation(OperationRecord),
    Request(RequestKey, RequestRecord),
    Refused(RefusedRecord),
    /// The incarnation that was last given out for a row.
    Uid(u16, u32),
    /// The revision since which changes are known.
    Revisions(u64),
    Deletion(ResourceKey, DeletionRecord),
    Usage(Box<UsageRecord>),
}

impl Record {
    pub fn key(&self) -> RecordKey {
        match self {
            Self::Meta(_) => RecordKey::Meta,
            Self::Maintenance(_) => RecordKey::Maintenance,
            Self::Tenant(record) => RecordKey::Tenant(record.tenant.id.clone()),
            Self::NtType(record) => RecordKey::NtType(record.nt.id.clone()),
            Self::Bitstream(record) => RecordKey::Bitstream(record.bitstream.id.clone()),
            Self::Dag(record) => RecordKey::Dag(record.name.clone()),
            Self::Explanation(name, _) => RecordKey::Explanation(name.clone()),
            Self::Card(card, _) => RecordKey::Card(card.clone()),
            Self::Region(card, region, _) => RecordKey::Region(card.clone(), *region),
            Self::ResidentContext(card, region, context) => {
                RecordKey::ResidentContext(card.clone(), *region, context.clone())
            }
            Self::PendingErase(card, region, erase) => {
                RecordKey::PendingErase(card.clone(), *region, erase.uid)
            }
            Self::SavedContext(card, context) => {
                RecordKey::SavedContext(card.clone(), context.offset)
            }
            Self::Rule(record) => RecordKey::Rule(record.rule.id.clone()),
            Self::Binding(record) => RecordKey::Binding(record.spec.vm.clone()),
            Self::Kept(_) => RecordKey::Kept,
            Self::Operation(record) => RecordKey::Operation(record.id.clone()),
            Self::Request(key, _) => RecordKey::Request(key.clone()),
            Self::Refused(record) => RecordKey::Refused(record.name.clone()),
            Self::Uid(row, _) => RecordKey::Uid(*row),
            Self::Revisions(_) => RecordKey::Revisions,
            Self::Deletion(name, _) => RecordKey::Deletion(name.clone()),
            Self::Usage(record) => RecordKey::Usage(Box::new(record.key())),
        }
    }

    /// Callers whose reads it shows in.
    pub fn audience(&self) -> Audience {
        match self {
            Self::Operation(record) => Audience::of_owner(record.tenant()),
            Self::Usage(record) => Audience::of_owner(usage::owner(record)),
            record => record.key().audience(),
        }
    }

    /// The resource that it is of, if it can be watched, and its owner; `None` is the provider, or
    /// operators.
    pub fn resource(&self) -> Option<(ResourceKey, Option<TenantId>)> {
        let name = self.key().resource()?;
        let owner = match self {
            Self::NtType(record) => record.nt.id.owner(),
            Self::Bitstream(record) => record.bitstream.id.owner(),
            Self::Dag(record) => Some(record.name.tenant.clone()),
            Self::Rule(record) => record.rule.id.owner(),
            Self::Binding(record) => Some(record.spec.tenant.clone()),
            Self::Operation(record) => record.tenant().cloned(),
            _ => None,
        };
        Some((name, owner))
    }

    /// The bytes of its value.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = match self {
            Self::Meta(record) => serde_json::to_vec(record),
            Self::Maintenance(record) => serde_json::to_vec(record),
            Self::Tenant(record) => serde_json::to_vec(record),
            Self::NtType(record) => serde_json::to_vec(record),
            Self::Bitstream(record) => serde_json::to_vec(record),
            Self::Dag(record) => serde_json::to_vec(record),
            Self::Explanation(_, record) => serde_json::to_vec(record),
            Self::Card(_, record) => serde_json::to_vec(record),
            Self::Region(_, _, record) => serde_json::to_vec(record),
            Self::ResidentContext(_, _, record) => serde_json::to_vec(record),
            Self::PendingErase(_, _, record) => serde_json::to_vec(record),
            Self::SavedContext(_, record) => serde_json::to_vec(record),
            Self::Rule(record) => serde_json::to_vec(record),
            Self::Binding(record) => serde_json::to_vec(record),
            Self::Kept(records) => serde_json::to_vec(records),
            Self::Operation(record) => serde_json::to_vec(record),
            Self::Request(_, record) => serde_json::to_vec(record),
            Self::Refused(record) => serde_json::to_vec(record),
            Self::Uid(_, incarnation) => serde_json::to_vec(incarnation),
            Self::Revisions(floor) => serde_json::to_vec(floor),
            Self::Deletion(_, record) => serde_json::to_vec(record),
            Self::Usage(record) => usage::encode(record),
        };
        bytes.expect("records have text keys and no type that JSON cannot say")
    }

    /// Reads a record back.
    ///
    /// # Errors
    /// No record has such a key, or such a value, or what the value says belongs under another key.
    pub fn parse(key: &str, value: &[u8]) -> Result<Self, InvalidRecord> {
        let (kind, rest) = key.split_once('/').unwrap_or((key, ""));
        let path = key::Path { key, rest };
        let record = match kind {
            "meta" => Self::Meta(read(key, value)?),
            "maintenance" => Self::Maintenance(read(key, value)?),
            "tenants" => Self::Tenant(read(key, value)?),
            "nt-types" => Self::NtType(read(key, value)?),
            "bitstreams" => Self::Bitstream(read(key, value)?),
            "dags" => Self::Dag(Box::new(read(key, value)?)),
            "explanations" => Self::Explanation(path.dag()?, read(key, value)?),
            "cards" => Self::Card(path.card()?.0, read(key, value)?),
            "regions" => {
                let (card, region) = path.region()?;
                Self::Region(card, region, read(key, value)?)
            }
            "guests" => {
                let (card, region) = path.region()?;
                Self::ResidentContext(card, region, read(key, value)?)
            }
            "departed" => {
                let (card, region) = path.region()?;
                Self::PendingErase(card, region, read(key, value)?)
            }
            "states" => Self::SavedContext(path.card()?.0, read(key, value)?),
            "rules" => Self::Rule(read(key, value)?),
            "bindings" => Self::Binding(read(key, value)?),
            "kept" => Self::Kept(read(key, value)?),
            "operations" => Self::Operation(read(key, value)?),
            "requests" => Self::Request(path.request()?, read(key, value)?),
            "refused" => Self::Refused(read(key, value)?),
            "uids" => Self::Uid(path.row()?, read(key, value)?),
            REVISIONS_KEY => Self::Revisions(read(key, value)?),
            "deleted" => Self::Deletion(path.resource()?, read(key, value)?),
            "usage-open" | "usage" => Self::Usage(Box::new(usage::parse(key, value)?)),
            _ => return Err(InvalidRecord::contradiction(key, "no record has such a key")),
        };
        let own = record.key();
        if own.to_string() == key {
            return Ok(record);
        }
        let reason = format!("what it holds belongs under {own}");
        Err(InvalidRecord::contradiction(key, reason))
    }
}

/// Adds a stamp to the value of a record that is a JSON object.
pub(crate) fn stamp(value: &mut Vec<u8>, Stamp { created, changed }: Stamp) {
    if value.last() == Some(&b'}') && value.len() > 2 {
        value.pop();
        value.extend_from_slice(format!(",\"revisions\":[{created},{changed}]}}").as_bytes());
    }
}

/// The stamp of a record's value; zeros where it has none.
pub(crate) fn stamp_of(value: &[u8]) -> Stamp {
    #[derive(Deserialize)]
    struct StampedRecord {
        revisions: (u64, u64),
    }
    let stamped = serde_json::from_slice(value);
    stamped.map_or_else(
        |_| Stamp::default(),
        |StampedRecord { revisions: (created, changed) }| Stamp { created, changed },
    )
}

fn read<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, InvalidRecord> {
    serde_json::from_slice(value)
        .map_err(|source| InvalidRecord::Unreadable { key: key.to_owned(), source })
}

/// Checks the layout that the head of a store names. A store without a head is a new one.
///
/// # Errors
/// The head cannot be read, or names a layout other than [`LAYOUT`].
pub(crate) fn check_layout(records: &[(String, Vec<u8>)]) -> Result<(), InvalidRecord> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let key = RecordKey::Meta.to_string();
    let Some((_, head)) = records.iter().find(|(other, _)| *other == key) else {
        return Ok(());
    };
    // By way of an object: a list would do for a struct.
    let fields: serde_json::Map<_, _> = read(&key, head)?;
    match Head::deserialize(serde_json::Value::Object(fields)) {
        Ok(Head { schema: LAYOUT }) => Ok(()),
        Ok(Head { schema: found }) => Err(InvalidRecord::Schema { found }),
        Err(source) => Err(InvalidRecord::Unreadable { key, source }),
    }
}

/// Before the key of a record that was set aside.
const QUARANTINE: &str = "quarantine/";

/// Most records that are kept after they were set aside. One DAG that cannot be read takes thousands of rules with it.
pub const SET_ASIDE_MAX: usize = 16_384;

/// Most bytes of the keys and values of all these records.
pub const SET_ASIDE_BYTES_MAX: usize = 128 << 20;

/// Where a record is kept that was set aside: one of the same key that was set aside before keeps its place, so the
/// second is under `quarantine/2/`.
pub(crate) fn set_aside_key(key: &str, number: usize) -> String {
    match number {
        0 | 1 => format!("{QUARANTINE}{key}"),
        number => format!("{QUARANTINE}{number}/{key}"),
    }
}

/// The key that a record had before it was set aside, if it was.
pub(crate) fn key_before(key: &str) -> Option<&str> {
    let kept = key.strip_prefix(QUARANTINE)?;
    // No kind of records is a number.
    let numbered = kept.split_once('/').filter(|(number, _)| number.parse::<usize>().is_ok());
    Some(numbered.map_or(kept, |(_, key)| key))
}

/// Whether a key is of a record that was set aside, now or at an earlier start.
pub fn is_set_aside(key: &str) -> bool {
    key.starts_with(QUARANTINE)
}

/// A record that cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRecord {
    /// It is not what its key says.
    #[error("record {key} of the store is not readable: {source}")]
    Unreadable {
        key: String,
        #[source]
        source: serde_json::Error,
    },
    /// The layout is none that this version knows.
    #[error(
        "the store has layout {found}, and this snicd reads layout {LAYOUT} only: another version of snicd wrote it; \
         run that one, or restore a backup of layout {LAYOUT}"
    )]
    Schema {
        /// Layout that was found.
        found: u32,
    },
    /// So many are set aside that no more can be kept.
    #[error(
        "records that cannot be used are kept under quarantine/, at most {SET_ASIDE_MAX} of {SET_ASIDE_BYTES_MAX} bytes; \
         with {key} there would be {records} of {bytes} bytes, so nothing was changed: `snicd store take-out FILE` moves \
         those that are kept to a file"
    )]
    Full {
        /// A record for which there is no room.
        key: String,
        /// Records that there would be.
        records: usize,
        /// Bytes that they would have.
        bytes: usize,
    },
    /// Two records contradict each other.
    #[error("record {key} of the store contradicts the others: {reason}")]
    Contradiction { key: String, reason: String },
}

impl InvalidRecord {
    /// Key of the record, if it is known.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Unreadable { key, .. } | Self::Contradiction { key, .. } => Some(key),
            Self::Schema { .. } | Self::Full { .. } => None,
        }
    }

    /// The record under `key` contradicts others, or its own key.
    pub(crate) fn contradiction(key: impl ToString, reason: impl Into<String>) -> Self {
        Self::Contradiction { key: key.to_string(), reason: reason.into() }
    }
}

/// Bytes of a DAG's spec as records hold it: a configuration is JSON inside JSON there.
pub(crate) fn spec_bytes(spec: &DagSpec) -> usize {
    json_bytes(spec)
}

fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

/// Most bytes of an error in a record: the record of a batch may hold one for each of its 32 DAGs.
const ERROR_BYTES_MAX: usize = 16 << 10;

/// Longest text of an error that would be too large for a record, in bytes: an error has up to five, and in JSON a
/// control character takes six bytes.
const ERROR_TEXT_BYTES_MAX: usize = 512;

/// Longest reason in a record, in bytes: cards, drivers and the operating system give reasons of any length.
const REASON_BYTES_MAX: usize = 1_024;

/// The reason as it is stored: its beginning, where it is too long for a record.
pub(crate) fn storable_reason(mut reason: String) -> String {
    cut(&mut reason, REASON_BYTES_MAX);
    reason
}

/// Cuts a text to a length in bytes; an ellipsis stands for the rest.
fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max - '…'.len_utf8()));
        text.push('…');
    }
}

/// The error as it is stored: where it would be too large for a record, it names only the first of what is wrong, and
/// texts are cut.
pub(crate) fn storable_error(error: &ControlError) -> ControlError {
    let mut error = error.clone();
    while json_bytes(&error) > ERROR_BYTES_MAX && shorten(&mut error) {}
    if json_bytes(&error) > ERROR_BYTES_MAX {
        error.texts_mut().into_iter().for_each(|text| cut(text, ERROR_TEXT_BYTES_MAX));
    }
    error
}

/// Halves the longest list of an error; returns whether there was one.
fn shorten(error: &mut ControlError) -> bool {
    match error {
        ControlError::Invalid(fields) if fields.len() > 1 => fields.truncate(fields.len() / 2),
        ControlError::Refused(Infeasible { shortages }) if shortages.len() > 1 => {
            shortages.truncate(shortages.len() / 2);
        }
        ControlError::Refused(Infeasible { shortages }) => {
            let Some(only) = shortages.first_mut().filter(|only| !only.nodes.is_empty()) else {
                return false;
            };
            only.nodes.clear();
        }
        ControlError::InBatch { error, .. } => return shorten(error),
        _ => return false,
    }
    true
}

/// The explanation as it is stored: without the ways ruled out where it would be too large for a
/// record.
pub(crate) fn storable(explanation: &Explanation, bytes_max: usize) -> Explanation {
    let mut explanation = explanation.clone();
    if json_bytes(&explanation) > bytes_max {
        explanation.chains.iter_mut().for_each(|chain| chain.rejected.clear());
    }
    explanation
}
