//! Replies to commands.

use snic_domain::VmId;

use super::ControlError;
use super::batch::RoomWait;
use super::binding::BindingView;
use super::view::{
    BitstreamView, DagView, NtView, OperationView, RegionView, RuleView, TenantView,
};

/// Result of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A tenant, as it is now.
    Tenant(TenantView),
    /// An NT type.
    NtType(NtView),
    Bitstream(BitstreamView),
    Rule(RuleView),
    /// An operation; poll it, or wait for it.
    Operation(OperationView),
    /// A region, as it is now.
    Region(RegionView),
    /// A binding, as it is now.
    Binding(Box<BindingView>),
    /// Result of heartbeats of machines.
    Heartbeat {
        /// Those that are bound, or about to be.
        alive: Vec<BindingView>,
        /// Those that have nothing.
        missing: Vec<VmId>,
    },
    /// The DAG as it would be.
    WouldBe(Box<DagView>),
    /// Result for each DAG of a batch, in order: [`Reply::Operation`] or [`Reply::WouldBe`], or why it was
    /// not created.
    Batch(Vec<Result<Reply, ControlError>>),
    /// The batch found no room, and may by now: plan it again, with the wait that it has had.
    PlanAgain(RoomWait),
    /// It is done, and there is nothing to say.
    Done,
}
