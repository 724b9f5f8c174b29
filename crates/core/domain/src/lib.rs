//! Tenants, network tasks, DAGs, regions: the values everything else speaks in.
//!
//! Pure: no I/O, no clock. Ids and units are types, so that a bandwidth is never added to a size
//! and a region is never taken for a card.

#![warn(clippy::missing_errors_doc)]

mod affinity;
mod attachments;
mod binding;
mod budget;
mod build;
mod caller;
mod card;
mod chain_identity;
mod condition;
mod configuration;
mod dag;
mod device;
mod digest;
mod explanation;
mod function;
mod ids;
mod image;
mod kept;
pub mod limits;
mod mapping;
mod memory_traffic;
mod notes;
mod nt;
mod packets;
mod program;
mod rule;
mod tenant;
mod units;

pub use affinity::CardAffinity;
pub use attachments::DagAttachments;
pub use binding::{
    BindingSpec, BindingState, BindingTarget, BoundFunction, InvalidLimits, InvalidVmId,
    PortLimits, VmId,
};
pub use budget::{BudgetAction, BudgetLevel, BudgetPolicy, MonthBudget};
pub use build::UnfitImage;
pub use caller::Caller;
pub use card::{CardProfile, LinkProfile, RegionPass, RegionProfile, RegionState, SaveArea};
pub use chain_identity::{ChainIdentity, ChainMismatch, InvalidChainIdentity, ReportedChain};
pub use condition::{Condition, ConditionStatus, ConditionType, DagState};
pub use configuration::{IdleTask, NtConfiguration};
pub use dag::{Dag, DagPatch, DagSpec, Edge, FormPreference, InvalidDag, Node};
pub use device::{
    AxiFirewall, DeviceReading, DriverError, PcieLink, SENSORS_MAX, Sensor, SensorKind,
};
pub use digest::{Digest, InvalidDigest};
pub use explanation::{
    ChainExplanation, CostsMore, Embedding, EmbeddingCost, EmbeddingKind, Explanation, FormChoice,
    Headroom, Infeasible, Rejection, RejectionReason, Resource, Shortage,
};
pub use function::{
    InvalidMacAddress, InvalidPciAddress, MacAddress, PciAddress, VirtualFunctions,
};
pub use ids::{
    BitstreamId, CardId, CardModel, DagId, DagName, DagUid, ID_CHARS_MAX, InvalidId,
    NAME_CHARS_MAX, NAME_RULE, NodeId, NtCode, NtNumber, NtTypeId, OperationId, ProjectId,
    RegionId, RuleId, Slot, TenantId, is_name,
};
pub use image::{
    ImageConflict, ImageSignature, RegionImage, RegionImages, numbers as region_numbers,
};
pub use kept::{FunctionUse, KeptForTenant, KeptState};
pub use mapping::{Form, Instance, Mapping, Stage, VirtualChain};
pub use memory_traffic::MemoryTraffic;
pub use notes::{Description, InvalidDescription, InvalidLabels, Labels, Notes, NotesPatch};
pub use nt::{Bitstream, BuildClaims, NtType, RegionKind, Signer, Traffic};
pub use packets::{InvalidPacketSizes, PacketSize, PacketSizes};
pub use program::{
    MemoryKind, NtProgram, OtherCard, ProcessorKind, ProcessorProfile, ProgramExplanation,
    ReachedMemory,
};
pub use rule::{Match, Prefix, Rule, RulePatch};
pub use tenant::{ProjectChange, Quota, QuotaPatch, Tenant, TenantPatch};
pub use units::{Area, Bandwidth, ByteSize, Cycles, LatencyBound, Timestamp};
