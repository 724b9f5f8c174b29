//! What is stored, and under which keys.
//!
//! Desired state only: what tenants and operators asked for, where it was decided to go, and what
//! was promised in replies. What the card holds is never stored; the card is asked.
//!
//! | key | record |
//! |---|---|
//! | `meta` | [`Meta`] |
//! | `maintenance` | [`Maintenance`], while nothing new is taken in |
//! | `tenants/T` | [`TenantRecord`] |
//! | `nt-types/N` | [`NtRecord`] |
//! | `bitstreams/B` | [`BitstreamRecord`] |
//! | `dags/T/D` | [`DagRecord`] |
//! | `explanations/T/D` | [`Explanation`] of the current placement |
//! | `cards/C` | [`CardRecord`] |
//! | `regions/C/NN` | [`RegionRecord`] |
//! | `guests/C/NN/T/D/B` | [`ResidentContext`] of a region |
//! | `departed/C/NN/U` | [`crate::PendingErase`]: a DAG that is gone, in a region |
//! | `states/C/OOOOOOOOOO` | [`crate::StateRecord`], by its offset in the save area |
//! | `bindings/V` | [`crate::BindingRecord`] |
//! | `rules/R` | [`RuleRecord`] |
//! | `operations/O` | [`OperationRecord`] |
//! | `requests/CALLER/ID` | [`RequestRecord`] |
//! | `refused/T/D` | [`crate::RefusedRecord`] |
//! | `uids/ROW` | incarnation last given out for that row |

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, CardId, CardProfile, DagName, DagSpec, DagUid, Explanation,
    Mapping, NtType, NtTypeId, OperationId, RegionId, Rule, RuleId, Tenant, TenantId, Timestamp,
    VmId,
};

use crate::states::ResidentContext;

/// The layout of the records; a store with another one is refused.
pub(crate) const SCHEMA: u32 = 1;

/// One of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Layout of the records.
    pub schema: u32,
    /// Drawn when the store was made: operation ids are derived from it, so that a tenant cannot
    /// count another's operations by its own.
    pub secret: u64,
    /// Operations made so far.
    pub operations: u64,
}

/// Nothing new is taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    /// Why, for people; tenants are told.
    pub reason: String,
    /// Who began it, for operators.
    pub by: String,
    /// Since when.
    pub since: Timestamp,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    /// The tenant.
    pub tenant: Tenant,
    /// Its number on cards: rows carry it, so that counters and pages are kept apart.
    pub number: u16,
    /// Counts changes.
    pub generation: u64,
    /// When it was made.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
}

/// An NT type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtRecord {
    /// The NT type.
    pub nt: NtType,
    /// When it was registered.
    pub created: Timestamp,
}

/// A bitstream; its bytes are a blob of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitstreamRecord {
    /// The bitstream.
    pub bitstream: Bitstream,
    /// Why it is not used any more, if loading it failed wherever it was tried.
    #[serde(default)]
    pub rejected: Option<String>,
    /// When it was uploaded.
    pub created: Timestamp,
}

/// A DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagRecord {
    /// Its name.
    pub name: DagName,
    /// What packets carry.
    pub uid: DagUid,
    /// What is asked for now.
    pub spec: DagSpec,
    /// Counts changes of `spec`.
    pub generation: u64,
    /// Where it is to be; `None` while no place can be found.
    pub placement: Option<Placement>,
    /// Where it was before the update under way; serves until the new placement is on the card.
    pub previous: Option<Placement>,
    /// When it was made.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
}

/// A DAG's place, with the rows that lead there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Numbers the placements of a DAG.
    pub serial: u64,
    /// The generation it is for.
    pub generation: u64,
    /// The spec it is for.
    pub spec: DagSpec,
    /// What is held for it, where that is more than the spec promises.
    #[serde(default, rename = "lent", skip_serializing_if = "Option::is_none")]
    pub burst: Option<Bandwidth>,
    /// Where.
    pub mapping: Mapping,
    /// First of its stage rows.
    pub stage_row: u16,
    /// First of its virtual-chain rows.
    pub chain_row: u16,
    /// First of its instance rows.
    pub instance_row: u16,
}

impl Placement {
    /// What is held for it: what was promised, and the burst capacity that it borrows.
    pub fn holds(&self) -> Bandwidth {
        self.burst.unwrap_or(self.spec.bandwidth).max(self.spec.bandwidth)
    }
}

/// A card that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardRecord {
    /// What it offers.
    pub profile: CardProfile,
}

/// What a region is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionRecord {
    /// What it is to hold.
    pub bitstream: Option<BitstreamId>,
    /// Whether nothing new may be placed in it.
    pub cordoned: bool,
    /// Why it is given up, if it is.
    pub faulty: Option<String>,
}

/// A classification rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRecord {
    /// The rule.
    pub rule: Rule,
    /// The card of its DAG.
    pub card: CardId,
    /// Its row in the classifier.
    pub row: u16,
    /// The machine that it is of; `None` where an operator made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<VmId>,
    /// When it was made.
    pub created: Timestamp,
}

/// A request that was carried out, so that its repetition is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Digest of the command.
    pub command: String,
    /// What it made.
    pub made: Made,
    /// When.
    pub at: Timestamp,
}

/// What a create made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Made {
    /// A tenant.
    Tenant(TenantId),
    /// An NT type.
    NtType(NtTypeId),
    /// A bitstream.
    Bitstream(BitstreamId),
    /// A rule.
    Rule(RuleId),
    /// An operation.
    Operation(OperationId),
}

/// Keys of records.
pub(crate) mod key {
    use super::{
        BitstreamId, CardId, DagName, DagUid, NtTypeId, OperationId, RegionId, ResidentContext,
        RuleId, TenantId, VmId,
    };

    pub(crate) const META: &str = "meta";
    pub(crate) const MAINTENANCE: &str = "maintenance";

    pub(crate) fn tenant(id: &TenantId) -> String {
        format!("tenants/{id}")
    }
    pub(crate) fn nt(id: &NtTypeId) -> String {
        format!("nt-types/{id}")
    }
    pub(crate) fn bitstream(id: &BitstreamId) -> String {
        format!("bitstreams/{id}")
    }
    pub(crate) fn dag(name: &DagName) -> String {
        format!("dags/{}/{}", name.tenant, name.dag)
    }
    pub(crate) fn explanation(name: &DagName) -> String {
        format!("explanations/{}/{}", name.tenant, name.dag)
    }
    pub(crate) fn card(id: &CardId) -> String {
        format!("cards/{id}")
    }
    pub(crate) fn region(card: &CardId, region: RegionId) -> String {
        format!("regions/{card}/{:02}", region.0)
    }
    pub(crate) fn guest(card: &CardId, region: RegionId, guest: &ResidentContext) -> String {
        let ResidentContext { bitstream, dag: DagName { tenant, dag } } = guest;
        format!("guests/{card}/{:02}/{tenant}/{dag}/{bitstream}", region.0)
    }
    pub(crate) fn departed(card: &CardId, region: RegionId, uid: DagUid) -> String {
        format!("departed/{card}/{:02}/{:08x}", region.0, uid.raw())
    }
    pub(crate) fn state(card: &CardId, offset: u32) -> String {
        format!("states/{card}/{offset:010}")
    }
    pub(crate) fn rule(id: &RuleId) -> String {
        format!("rules/{id}")
    }
    pub(crate) fn binding(vm: &VmId) -> String {
        format!("bindings/{vm}")
    }
    pub(crate) fn operation(id: &OperationId) -> String {
        format!("operations/{id}")
    }
    pub(crate) fn request(caller: &str, id: &str) -> String {
        format!("requests/{caller}/{id}")
    }
    pub(crate) fn refused(name: &DagName) -> String {
        format!("refused/{}/{}", name.tenant, name.dag)
    }
    pub(crate) fn uid(row: u16) -> String {
        format!("uids/{row:04}")
    }
}

/// A change of the store: a key and its new value, or `None` to remove it.
pub type RecordWrite = (String, Option<Vec<u8>>);

pub(crate) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("records have text keys and no type that JSON cannot say")
}

/// A record that cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRecord {
    /// It is not what its key says.
    #[error("record {key} of the store is not readable: {source}")]
    Unreadable {
        /// Which.
        key: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The store was written by another version.
    #[error("the store has layout {found}; this daemon reads layout {SCHEMA}")]
    Schema {
        /// What was found.
        found: u32,
    },
    /// Two records contradict each other.
    #[error("record {key} of the store contradicts the others: {reason}")]
    Contradiction {
        /// Which.
        key: String,
        /// How.
        reason: String,
    },
}

pub(crate) fn read<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, InvalidRecord> {
    serde_json::from_slice(value)
        .map_err(|source| InvalidRecord::Unreadable { key: key.to_owned(), source })
}

/// The explanation as it is stored: without the ways ruled out where it would be too large for a
/// record.
pub(crate) fn storable(explanation: &Explanation, bytes_max: usize) -> Explanation {
    let mut explanation = explanation.clone();
    if serde_json::to_vec(&explanation).map_or(0, |json| json.len()) > bytes_max {
        explanation.chains.iter_mut().for_each(|chain| chain.rejected.clear());
    }
    explanation
}
