//! Decisions of the control plane itself, with their reasons.

use snic_domain::{CardId, DagName, RegionId, TenantId, Timestamp};

use snic_domain::Caller;

/// Kind of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogKind {
    /// A DAG gets more instances: it is overloaded.
    ScaleOut,
    /// A DAG gets more instances ahead of need.
    PreLaunch,
    /// A DAG gives instances back.
    ScaleIn,
    /// A DAG gives instances up for another one below its fair share.
    ContextSwitch,
    /// A DAG gives instances up that it was not promised, for one that asks for a promise.
    Preemption,
    /// More instances serve a DAG now.
    Scaled,
    /// No place was found for more instances.
    NoPlace,
    /// The state that a chain keeps for a DAG is saved: its region is needed, or the DAG serves from another.
    StateSaved,
    /// Saved state is in a region again, before a packet came there.
    StateRestored,
    /// The state that a chain kept for a DAG is lost: it begins empty.
    StateLost,
    /// A region is not switched: what is kept in it cannot be saved.
    StateKept,
    /// A promise to a DAG is not served, or not known to be.
    PromiseBroken,
    /// A promise to a DAG is served again.
    PromiseKept,
    /// A card does not answer any more.
    CardLost,
    /// A card that was lost answers again.
    CardBack,
    /// An operator removed a card.
    CardRemoved,
    /// An operator gave a lost card's place to another device.
    CardReplaced,
    /// A card was seen for the first time, or for the first time since it was removed.
    CardAdded,
    /// A card's device is not as it should be: too hot, blocked by its firewall, or its link degraded.
    CardUnhealthy,
    /// That is over.
    CardHealthy,
    /// A card's driver reported an error by itself.
    CardError,
    /// An epoch was skipped.
    Overrun,
    /// A card's counters made no sense.
    OddCounters,
    /// NTs reached beyond the pages of their tenants; the packets were dropped.
    MemoryFault,
    /// Other policies are in force.
    PoliciesApplied,
    /// Policy files were refused; what was in force stays.
    PoliciesRefused,
    /// An operator has nothing new placed in regions.
    Cordoned,
    /// New DAGs may be placed there again.
    Uncordoned,
    /// An operator has DAGs leave regions.
    DrainStarted,
    /// No DAG is there any more, or the drain was given up.
    DrainEnded,
    /// A tenant has spent most of its budget of the month.
    BudgetWarning,
    /// A tenant has spent its budget of the month.
    BudgetReached,
    /// A tenant has spent less than it is warned of again: the month or its budget is another one.
    BudgetFreed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Rises by one; unique since the daemon started.
    pub number: u64,
    pub at: Timestamp,
    pub kind: LogKind,
    /// DAG that it is about, if any.
    pub dag: Option<DagName>,
    /// Tenant that it is about, where it is about none of its DAGs.
    pub account: Option<TenantId>,
    /// Card that it is about, if any.
    pub card: Option<CardId>,
    /// Regions that it is about.
    pub regions: Vec<RegionId>,
    /// Decision and reason, for people.
    pub text: String,
    /// Common cause of several entries of one moment: operators get one entry for all of these.
    pub cause: Option<String>,
    /// Whether it is one of several with one cause, so that only its tenant sees it.
    pub is_detail: bool,
}

impl LogEntry {
    /// Whether `caller` may see it: operators see all but details, tenants what is about them or their DAGs.
    pub fn is_visible_to(&self, caller: &Caller) -> bool {
        let is_left_out = self.is_detail && matches!(caller, Caller::Operator(_));
        !is_left_out && caller.may_change(self.tenant())
    }

    /// The tenant it is about, if one.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.dag.as_ref().map(|dag| &dag.tenant).or(self.account.as_ref())
    }
}
