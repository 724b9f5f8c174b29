//! Replies to commands.

use snic_domain::VmId;

use super::ControlError;
use super::binding::BindingView;
use super::view::{
    BitstreamView, DagView, NtView, OperationView, RegionView, RuleView, TenantView,
};

/// What a request led to.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A tenant, as it is now.
    Tenant(TenantView),
    /// An NT type.
    NtType(NtView),
    /// A bitstream.
    Bitstream(BitstreamView),
    /// A rule.
    Rule(RuleView),
    /// An operation; poll it, or wait for it.
    Operation(OperationView),
    /// A region, as it is now.
    Region(RegionView),
    /// A binding, as it is now.
    Binding(Box<BindingView>),
    /// What was heard of machines.
    Heartbeat {
        /// Those that are bound, or about to be.
        alive: Vec<BindingView>,
        /// Those that have nothing.
        missing: Vec<VmId>,
    },
    /// What a DAG would be.
    WouldBe(Box<DagView>),
    /// What became of each DAG of a batch, in order: [`Reply::Operation`] or [`Reply::WouldBe`], or why it was
    /// not created.
    Batch(Vec<Result<Reply, ControlError>>),
    /// It is done, and there is nothing to say.
    Done,
}
