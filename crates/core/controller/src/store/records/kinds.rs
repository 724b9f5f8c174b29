//! The contents of records. Their JSON is the format of the store: a field that is renamed here keeps
//! its name there.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, CardId, CardProfile, DagName, DagSpec, DagUid, Digest,
    KeptForTenant, Mapping, NtNumber, NtType, NtTypeId, OperationId, RegionId, Rule, RuleId,
    Tenant, TenantId, Timestamp, VmId,
};

use crate::protocol::{AssignedCard, ControlError};

/// Facts that a store has once.
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
    /// Operator who began it.
    pub by: String,
    pub since: Timestamp,
}

/// A reservation of the fleet, and its end by this host's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRecord {
    pub of: KeptForTenant,
    pub ends: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    pub tenant: Tenant,
    /// Its number on cards: rows carry it, so that counters and pages are kept apart.
    pub number: u16,
    pub generation: u64,
    /// When it was made.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
    /// Rejections of deleted bitstreams of it that are remembered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejections: Vec<PastRejection>,
    /// The number that it has at the fleet, if the fleet manages it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_number: Option<u64>,
}

/// A bitstream that was rejected, by its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastRejection {
    /// Digest of the bytes.
    pub digest: Digest,
    /// Why it was not used any more, if it was not when it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When that was last found, or when it was deleted.
    pub at: Timestamp,
    /// Number of rejections.
    pub times: u32,
}

/// An NT type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtRecord {
    /// The NT type.
    pub nt: NtType,
    /// Its number on cards.
    pub number: NtNumber,
    /// When it was registered.
    pub created: Timestamp,
    /// The number that it has at the fleet, if the fleet manages it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_number: Option<u64>,
}

/// A bitstream; its bytes are a blob of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitstreamRecord {
    pub bitstream: Bitstream,
    /// Why it is not used any more, if loading it failed wherever it was tried.
    pub rejected: Option<String>,
    /// When that was last found, if it ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_at: Option<Timestamp>,
    /// Number of rejections.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rejections: u32,
    /// When it was uploaded.
    pub created: Timestamp,
    /// The number that it has at the fleet, if the fleet manages it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_number: Option<u64>,
}

const fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagRecord {
    pub name: DagName,
    /// UID that packets carry.
    pub uid: DagUid,
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
    /// The card that the fleet assigned it to; `None`: it was created on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned: Option<AssignedCard>,
    /// NTs that did not take its configuration, and drop its packets; `None`: all took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfigured_nts: Option<UnconfiguredNts>,
}

/// NTs of a card that did not take a DAG's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnconfiguredNts {
    pub card: CardId,
    /// Regions and slots, never none.
    pub at: BTreeSet<(u8, u8)>,
}

impl UnconfiguredNts {
    /// NTs of a card; `None` where there are none.
    pub fn of(card: &CardId, at: BTreeSet<(u8, u8)>) -> Option<Self> {
        (!at.is_empty()).then(|| Self { card: card.clone(), at })
    }
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
    /// Bandwidth that is held for it, where that is more than the spec promises.
    #[serde(default, rename = "lent", skip_serializing_if = "Option::is_none")]
    pub burst: Option<Bandwidth>,
    pub mapping: Mapping,
    /// First of its stage rows.
    pub stage_row: u16,
    /// First of its virtual-chain rows.
    pub chain_row: u16,
    /// First of its instance rows.
    pub instance_row: u16,
}

impl Placement {
    /// Bandwidth that is held for it: promised, and the burst capacity that it borrows.
    pub fn holds(&self) -> Bandwidth {
        self.burst.unwrap_or(self.spec.bandwidth).max(self.spec.bandwidth)
    }
}

/// A card that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardRecord {
    /// Profile that it reported.
    pub profile: CardProfile,
}

/// Desired content of a region.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionRecord {
    pub bitstream: Option<BitstreamId>,
    /// Whether nothing new may be placed in it.
    pub cordoned: bool,
    /// Why it is given up, if it is.
    pub faulty: Option<String>,
}

/// A classification rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRecord {
    pub rule: Rule,
    /// The card of its DAG.
    pub card: CardId,
    /// Its row in the classifier.
    pub row: u16,
    /// The machine with which it ends: it made the rule, or its tenant made it for a function of the machine.
    /// `None` where an operator made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<VmId>,
    /// When it was made.
    pub created: Timestamp,
    /// Number of changes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub updates: u32,
    /// When it was last changed, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<Timestamp>,
}

impl RuleRecord {
    /// Whether a machine's binding made it, which alone changes and removes it.
    pub fn is_of_machine(&self) -> bool {
        self.binding.is_some() && self.rule.id.owner().is_none()
    }
}

/// A request that was carried out, so that its repetition is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Digest of the command.
    pub command: String,
    /// Result of the request.
    pub made: CreatedResource,
    pub at: Timestamp,
}

/// Resource that a request made or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreatedResource {
    Tenant(TenantId),
    /// An NT type.
    NtType(NtTypeId),
    Bitstream(BitstreamId),
    Rule(RuleId),
    Operation(OperationId),
    Region(CardId, RegionId),
    /// A machine's binding.
    Binding(VmId),
    /// For each DAG of a batch its operation, or why it was not created.
    Batch(Vec<Result<OperationId, ControlError>>),
    /// Nothing that a reply would carry.
    Done,
}

/// A DAG that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRecord {
    pub name: DagName,
    pub spec: DagSpec,
    pub at: Timestamp,
}

/// A DAG that may have a context in a region, by the bitstream that keeps it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResidentContext {
    /// Bitstream that the region held.
    pub bitstream: BitstreamId,
    /// Owner of the state.
    pub dag: DagName,
}

/// Progress of a context in the save area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It is to be copied from this region; as long as it is not, the region keeps it.
    Saving(RegionId),
    /// It is there, with this CRC.
    Saved(u32),
    /// It is needed no more: its bytes are written over, then the place is free.
    Erasing,
}

/// A context in the save area of a card, or on its way to or out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRecord {
    /// Owner of the state.
    pub dag: DagName,
    /// UID that the DAG's packets carry.
    pub uid: DagUid,
    /// Bitstream that kept it.
    pub bitstream: BitstreamId,
    /// The digest of that bitstream.
    pub digest: Digest,
    /// Where it stands, in bytes from the beginning of the save area.
    pub offset: u32,
    /// Number of bytes, the head included.
    pub length: u32,
    /// The card's boot id: when it is another one, the memory is empty.
    pub boot_id: u32,
    pub phase: Phase,
    /// When it was begun or saved.
    pub since: Timestamp,
    /// Steps that failed in a row since the daemon started.
    #[serde(skip)]
    pub attempts: u32,
}

/// A DAG that is gone, and what may have kept something for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingErase {
    /// UID that its packets carried.
    pub uid: DagUid,
    /// The digest of what its region held.
    pub digest: Digest,
}

/// The regions of a placement, each once.
pub(crate) fn regions_of(placement: &Placement) -> Vec<RegionId> {
    let mut regions: Vec<_> = placement.mapping.instances().map(|i| i.region).collect();
    regions.sort_unstable();
    regions.dedup();
    regions
}

/// The revisions of a resource's first and last change; 0 where it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the first.
    pub created: u64,
    /// Number of the last.
    pub changed: u64,
}

/// A resource was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionRecord {
    /// Owner; `None`: the provider or operators.
    pub tenant: Option<TenantId>,
    /// The revision of the deletion.
    pub revision: u64,
    /// That of the last deletion of the same owner that is not kept any more; 0 if none.
    pub lost: u64,
}
