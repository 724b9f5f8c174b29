//! Commands, with the caller of each.

use snic_domain::{
    BindingSpec, Bitstream, BitstreamId, Caller, CardId, DagName, DagPatch, DagSpec, Digest,
    NotesPatch, NtType, NtTypeId, OperationId, QuotaPatch, RegionId, Rule, RuleId, RulePatch,
    Tenant, TenantId, VmId,
};

use super::assignment::FleetChange;
use super::batch::{BatchPlan, DagBatch};

/// Names a request in its reply; the shell's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A request for a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// Makes it idempotent; unique to the caller, 1 to 64 characters.
    pub request_id: Option<String>,
    /// For what.
    pub command: Command,
}

/// A change.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A new tenant.
    CreateTenant(Tenant),
    /// New weight or quota.
    UpdateTenant {
        /// Which.
        id: TenantId,
        /// The new weight.
        weight: Option<u32>,
        /// New bounds of its quota.
        quota: Option<QuotaPatch>,
        /// What operators note about it.
        notes: NotesPatch,
        /// What the caller read.
        etag: Option<String>,
    },
    /// Removes a tenant.
    DeleteTenant {
        /// Which.
        id: TenantId,
        /// With all that it owns.
        force: bool,
        /// What the caller read.
        etag: Option<String>,
    },
    /// Registers an NT type.
    CreateNtType(NtType),
    /// Removes an NT type that nothing uses.
    DeleteNtType {
        /// Which.
        id: NtTypeId,
        /// What the caller read.
        etag: Option<String>,
    },
    /// Registers a bitstream whose bytes are in the store, checked; or adds its image to the bitstream of its name,
    /// if it is of the same build and for other regions.
    CreateBitstream(Bitstream),
    /// Removes a bitstream that no DAG uses.
    DeleteBitstream {
        /// Which.
        id: BitstreamId,
        /// Only the image with these bytes; there has to be another one.
        image: Option<Digest>,
        /// What the caller read.
        etag: Option<String>,
    },
    /// Takes a rejected bitstream back.
    RetryBitstream {
        /// Which.
        id: BitstreamId,
        /// What the caller read.
        etag: Option<String>,
    },
    /// A new DAG.
    CreateDag {
        /// Its name.
        name: DagName,
        /// What is asked for.
        spec: DagSpec,
        /// Only says what would be.
        validate_only: bool,
    },
    /// New DAGs, in one step.
    CreateDags {
        /// Which.
        batch: DagBatch,
        /// Where they go.
        plan: BatchPlan,
    },
    /// Another bandwidth or structure: some fields, set in one step with reading the others.
    UpdateDag {
        /// Which.
        name: DagName,
        /// The new values.
        patch: DagPatch,
        /// What the caller read.
        etag: Option<String>,
        /// Only says what would be.
        validate_only: bool,
    },
    /// Removes a DAG.
    DeleteDag {
        /// Which.
        name: DagName,
        /// What the caller read.
        etag: Option<String>,
    },
    /// A new classification rule.
    CreateRule(Rule),
    /// Another priority, match or DAG of a rule.
    UpdateRule {
        /// Which.
        id: RuleId,
        /// The new values.
        patch: RulePatch,
        /// What the caller read.
        etag: Option<String>,
    },
    /// Removes a rule.
    DeleteRule {
        /// Which.
        id: RuleId,
        /// What the caller read.
        etag: Option<String>,
    },
    /// A change of a card, a region or a binding, if that is still as the caller read it.
    Guarded {
        /// What the caller read.
        etag: String,
        /// The change.
        command: Box<Self>,
    },
    /// Places nothing new in a region and moves away what is there.
    DrainRegion {
        /// Of which card.
        card: CardId,
        /// Which.
        region: RegionId,
    },
    /// The same for all regions of a card; what it serves stays.
    DrainCard {
        /// Which.
        card: CardId,
    },
    /// Places nothing new in regions, and leaves what is there; or lets them be used again, which
    /// ends drains of them.
    Cordon {
        /// Of which card.
        card: CardId,
        /// Which; without one all.
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
    UndrainRegion {
        /// Of which card.
        card: CardId,
        /// Which.
        region: RegionId,
    },
    /// Gives a faulty region another chance, and forgets what an unused one holds.
    ResetRegion {
        /// Of which card.
        card: CardId,
        /// Which.
        region: RegionId,
    },
    /// Gives a machine functions that lead to its DAGs.
    BindVm(BindingSpec),
    /// Takes back what a machine was given.
    UnbindVm {
        /// Which.
        vm: VmId,
        /// Only if it is of this tenant.
        tenant: Option<TenantId>,
    },
    /// Says that machines are alive.
    Heartbeat {
        /// Which.
        vms: Vec<VmId>,
    },
    /// Moves DAGs of a card together where that is worth it.
    OptimizeCard {
        /// Which.
        card: CardId,
    },
    /// Loads the role that is set for a card.
    LoadRole {
        /// Which.
        card: CardId,
        /// Also where the card holds it already.
        force: bool,
    },
    /// Closes a card, has it reset, and opens it again.
    ResetCard {
        /// Which.
        card: CardId,
        /// Also while DAGs are on it.
        force: bool,
    },
    /// Forgets a card that is lost, or that nothing is on.
    RemoveCard {
        /// Which.
        card: CardId,
    },
    /// Gives the place of a lost card to the device that answers in its place.
    ReplaceCard {
        /// Which.
        card: CardId,
    },
    /// Cancels an operation that has not started.
    CancelOperation {
        /// Which.
        id: OperationId,
    },
    /// Forgets an operation that has ended.
    DeleteOperation {
        /// Which.
        id: OperationId,
    },
    /// What the fleet that this host belongs to asks for. No caller of the API can.
    Fleet(FleetChange),
}
