//! VM bindings: their record and their view.

use serde::{Deserialize, Serialize};
use snic_domain::{
    BindingSpec, BindingState, BindingTarget, BoundFunction, DagName, DagState, DagUid, PortLimits,
    Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingRecord {
    /// Specification as it was requested.
    pub spec: BindingSpec,
    pub state: BindingState,
    /// The functions it has.
    pub functions: Vec<BoundFunction>,
    /// The DAG that was made for it.
    pub own: Option<DagName>,
    /// When it fails, unless it is bound by then.
    pub deadline: Timestamp,
    /// Why it ended, where it was not unbound on request.
    pub reason: Option<String>,
    /// When it was asked for.
    pub created: Timestamp,
    /// When its state last changed.
    pub changed: Timestamp,
}

impl BindingRecord {
    pub(crate) const fn new(spec: BindingSpec, now: Timestamp, deadline: Timestamp) -> Self {
        Self {
            spec,
            state: BindingState::Initial,
            functions: Vec::new(),
            own: None,
            deadline,
            reason: None,
            created: now,
            changed: now,
        }
    }

    /// Limits of the port of its function of this number.
    pub fn limits_of(&self, number: usize) -> PortLimits {
        let own = self.functions[number].mac_address;
        self.spec.limits.of_function(number, self.spec.functions, own)
    }

    /// Where its packets go: what was named, or what was made for it.
    pub fn dags(&self) -> &[DagName] {
        match &self.spec.chains {
            BindingTarget::Dags(dags) => dags,
            BindingTarget::Template(_) => self.own.as_slice(),
        }
    }
}

/// A DAG that a machine uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundDag {
    pub name: DagName,
    /// UID that packets carry; `None` where the DAG is gone.
    pub uid: Option<DagUid>,
    pub state: Option<DagState>,
}

/// A binding with what is known of it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingView {
    pub record: BindingRecord,
    pub dags: Vec<BoundDag>,
    /// For each function, whether the card, read back, leads its packets to its DAG.
    pub programmed: Vec<bool>,
    /// For each function, whether the card, read back, keeps it to its limits.
    pub guarded: Vec<bool>,
    /// When it is given back unless a heartbeat comes.
    pub expires: Option<Timestamp>,
    /// The etag, for requests that are guarded by it.
    pub etag: String,
}
