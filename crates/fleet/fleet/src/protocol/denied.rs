//! Why something is not done.

use serde::{Deserialize, Serialize};
use snic_domain::{DagName, TenantId, Timestamp};
use snic_etcd::Refusal;

use super::RequestId;
use crate::ProjectId;
use crate::placement::PlacementRefused;

/// A limit of a quota that would be exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{limit} is {max}; {used} are used and {asked} would be")]
pub struct OverQuota {
    /// The limit's name in a quota, such as `dags_max`.
    pub limit: String,
    /// Allowed amount, with its unit.
    pub max: String,
    pub used: String,
    /// Amount that there would be.
    pub asked: String,
}

impl OverQuota {
    pub(crate) fn check<T: Ord + ToString>(
        limit: &'static str,
        (max, used, asked): (T, T, T),
    ) -> Result<(), Self> {
        if asked <= max {
            return Ok(());
        }
        let (max, used, asked) = (max.to_string(), used.to_string(), asked.to_string());
        Err(Self { limit: limit.to_owned(), max, used, asked })
    }
}

impl Denied {
    /// Why there was no place, if that is the cause.
    pub(crate) fn no_place(&self) -> Option<&PlacementRefused> {
        match self {
            Self::NoPlace(refused) => Some(refused),
            Self::OfBatch { why, .. } => why.no_place(),
            _ => None,
        }
    }
}

/// A refusal of etcd that lasts until somebody changes something there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(
    "etcd, the fleet's store, refuses writes ({reason}: {said}), so nothing was done; what there is goes on and can be \
     read. Whoever operates etcd: {remedy}"
)]
pub struct StoreRefusal {
    /// The class, as one word such as `NOSPACE`.
    pub reason: String,
    /// Text of etcd.
    pub said: String,
    /// The remedy, for the operator of etcd.
    pub remedy: String,
    /// When it began.
    pub since: Timestamp,
}

impl StoreRefusal {
    /// A refusal that begins now.
    pub fn new((why, said): (Refusal, String), since: Timestamp) -> Self {
        Self { reason: why.word().to_owned(), said, remedy: why.remedy().to_owned(), since }
    }
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum Denied {
    /// This replica does not lead. Nothing was done.
    #[error("this replica does not lead; ask the leader")]
    NotLeader,
    /// Nobody knows whether it was done. The same request with the same number finds out.
    #[error("the leader changed meanwhile; send the same request again to learn the outcome")]
    Open,
    /// etcd refuses to store anything. Nothing was done.
    #[error("{0}")]
    StoreRefuses(StoreRefusal),
    /// Too much waits for etcd or for images. Nothing was done.
    #[error("{waiting} requests wait already; try again later")]
    Busy { waiting: usize },
    /// There is no such thing, or it is not the caller's.
    #[error("{0} does not exist")]
    NotFound(String),
    /// There is one already.
    #[error("{0} exists already")]
    Exists(String),
    /// The caller may see it and not change it.
    #[error("{0} is not yours: only its owner can change it")]
    NotOwner(String),
    /// It has changed since it was read.
    #[error("{what} has changed since it was read; its etag is {etag} now")]
    Stale {
        what: String,
        /// Its etag now.
        etag: String,
    },
    /// Something still uses it.
    #[error("{what} is in use by {users}; these must go first")]
    InUse {
        what: String,
        /// Users; others' things have no names and no numbers here.
        users: String,
    },
    /// The tenant is being deleted with all that it owns.
    #[error("tenants/{0} is being deleted; nothing new can be made for it")]
    Leaving(TenantId),
    /// The number was used for another request.
    #[error("request {0} was another request before; use a new number")]
    RequestReused(RequestId),
    /// A value is not allowed.
    #[error("{0}")]
    Invalid(String),
    /// It does not go with what there is.
    #[error("{what}: {why}")]
    Conflict {
        what: String,
        /// Why, and what to do.
        why: String,
    },
    /// There are as many as the fleet keeps.
    #[error("there are {max} {what}, the most that the fleet keeps; delete one first")]
    Full {
        what: String,
        /// Number of waiting calls.
        max: usize,
    },
    /// The tenant's quota.
    #[error("tenant {0}: {1}")]
    TenantQuota(TenantId, OverQuota),
    /// The project's quota.
    #[error("project {0}: {1}")]
    ProjectQuota(ProjectId, OverQuota),
    /// The tenant has spent its budget of the month.
    #[error(
        "tenants/{tenant} has spent {spent} this month, and its budget is {budget}: it gets no new DAGs, machines or \
         bandwidth until the next month (UTC), or until an operator raises its month_budget; what it has stays, with its \
         promises"
    )]
    TenantBudget {
        tenant: TenantId,
        /// The budget, with its currency.
        budget: String,
        /// Money spent, with its currency.
        spent: String,
        /// First second of the next month since 1970; 0 where that is not known.
        until: u64,
    },
    /// The tenants of the project have spent its budget of the month. How much that is, is not every tenant's business.
    #[error(
        "projects/{project} has spent its budget of this month: its tenants get no new DAGs, machines or bandwidth until the \
         next month (UTC), or until an operator raises its month_budget; what they have stays, with its promises"
    )]
    ProjectBudget {
        project: ProjectId,
        /// First second of the next month since 1970; 0 where that is not known.
        until: u64,
    },
    /// Nobody knows what was spent of a budget.
    #[error(
        "what {0} has spent of its budget this month is unknown, for the fleet's leader has no prices any more: there are no new \
         DAGs, machines or bandwidth until an operator puts its prices.toml back, or takes the month_budget away; what there \
         is stays, with its promises"
    )]
    BudgetUnknown(String),
    /// No card has room.
    #[error("{0}")]
    NoPlace(Box<PlacementRefused>),
    /// One DAG of several cannot be placed. None of them was.
    #[error("{name}: {why}; none of the request's DAGs was created")]
    OfBatch { name: DagName, why: Box<Denied> },
}
