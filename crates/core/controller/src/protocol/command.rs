//! Commands, with the caller of each.

use snic_domain::{
    BindingSpec, Bitstream, BitstreamId, Caller, CardId, DagName, DagPatch, DagSpec, Digest,
    NtType, NtTypeId, OperationId, RegionId, Rule, RuleId, RulePatch, Tenant, TenantId,
    TenantPatch, VmId,
};

use super::assignment::FleetChange;
use super::batch::{BatchPlan, DagBatch};

/// Names a request in its reply; the shell's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A request for a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub caller: Caller,
    /// Makes it idempotent; unique to the caller, 1 to 64 characters.
    pub request_id: Option<String>,
    pub command: Command,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A new tenant.
    CreateTenant(Tenant),
    /// New values of a tenant.
    UpdateTenant {
        id: TenantId,
        patch: TenantPatch,
        /// Etag that the caller read.
        etag: Option<String>,
    },
    /// Removes a tenant.
    DeleteTenant {
        id: TenantId,
        /// With all that it owns.
        force: bool,
        /// Etag that the caller read.
        etag: Option<String>,
    },
    /// Registers an NT type.
    CreateNtType(NtType),
    /// Removes an NT type that nothing uses.
    DeleteNtType {
        id: NtTypeId,
        /// Etag that the caller read.
        etag: Option<String>,
    },
    /// Registers a bitstream whose bytes are in the store, checked; or adds its image to the bitstream of its name,
    /// if it is of the same build and for other regions.
    CreateBitstream(Bitstream),
    /// Removes a bitstream that no DAG uses.
    DeleteBitstream {
        id: BitstreamId,
        /// Only the image with these bytes; there has to be another one.
        image: Option<Digest>,
        /// Etag that the caller read.
        etag: Option<String>,
    },
    /// Takes a rejected bitstream back.
    RetryBitstream {
        id: BitstreamId,
        /// Etag that the caller read.
        etag: Option<String>,
    },
    /// A new DAG.
    CreateDag {
        name: DagName,
        spec: DagSpec,
        /// Only says what would be.
        validate_only: bool,
    },
    /// New DAGs, in one step.
    CreateDags {
        batch: DagBatch,
        /// Where they go.
        plan: BatchPlan,
    },
    /// Another bandwidth or structure: some fields, set in one step with reading the others.
    UpdateDag {
        name: DagName,
        /// The new values.
        patch: DagPatch,
        /// Etag that the caller read.
        etag: Option<String>,
        /// Only says what would be.
        validate_only: bool,
    },
    /// Removes a DAG.
    DeleteDag {
        name: DagName,
        /// Etag that the caller read.
        etag: Option<String>,
    },
    /// A new classification rule.
    CreateRule(Rule),
    /// Another priority, match or DAG of a rule.
    UpdateRule {
        id: RuleId,
        /// The new values.
        patch: RulePatch,
        /// Etag that the caller read.
        etag: Option<String>,
    },
    /// Removes a rule.
    DeleteRule {
        id: RuleId,
        /// Etag that the caller read.
        etag: Option<String>,
    },
    /// A change of a card, a region or a binding, if that is still as the caller read it.
    Guarded {
        /// Etag that the caller read.
        etag: String,
        command: Box<Self>,
    },
    /// Places nothing new in a region and moves away what is there.
    DrainRegion { card: CardId, region: RegionId },
    /// The same for all regions of a card; what it serves stays.
    DrainCard { card: CardId },
    /// Places nothing new in regions, and leaves what is there; or lets them be used again, which
    /// ends drains of them.
    Cordon {
        card: CardId,
        /// One region; without it, all regions.
        region: Option<RegionId>,
        /// Whether nothing new is placed there.
        on: bool,
    },
    /// Takes in no new DAGs and machines, for a reason; or takes them in again.
    Maintain {
        /// Why nothing new is taken in.
        reason: Option<String>,
    },
    /// Ends a drain: the region may be used again.
    UndrainRegion { card: CardId, region: RegionId },
    /// Gives a faulty region another chance, and forgets what an unused one holds.
    ResetRegion { card: CardId, region: RegionId },
    /// Gives a machine functions that lead to its DAGs.
    BindVm(BindingSpec),
    /// Takes back what a machine was given.
    UnbindVm {
        vm: VmId,
        /// Only if it is of this tenant.
        tenant: Option<TenantId>,
    },
    /// Says that machines are alive.
    Heartbeat { vms: Vec<VmId> },
    /// Moves DAGs of a card together where that is worth it.
    OptimizeCard { card: CardId },
    /// Loads the role that is set for a card.
    LoadRole {
        card: CardId,
        /// Also where the card holds it already.
        force: bool,
    },
    /// Closes a card, has it reset, and opens it again.
    ResetCard {
        card: CardId,
        /// Also while DAGs are on it.
        force: bool,
    },
    /// Forgets a card that is lost, or that nothing is on.
    RemoveCard { card: CardId },
    /// Gives the place of a lost card to the device that answers in its place.
    ReplaceCard { card: CardId },
    /// Cancels an operation that has not started.
    CancelOperation { id: OperationId },
    /// Forgets an operation that has ended.
    DeleteOperation { id: OperationId },
    /// A change that this host's fleet orders. No caller of the API can send it.
    Fleet(FleetChange),
}
