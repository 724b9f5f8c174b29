//! Why a request is rejected: each error names the field, the limit and what to do.
//!
//! The texts are for the caller: none holds a name that the caller may not know.

use serde::{Deserialize, Serialize};
use snic_domain::{Infeasible, InvalidDag, TenantId};

/// One wrong field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldViolation {
    /// The field, as in the API: `dag.nodes[2].nt_type`.
    pub field: String,
    /// The fault and the allowed values.
    pub description: String,
}

/// Why a request was not carried out, or an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum ControlError {
    /// Fields are wrong.
    #[error("{}: {}", .0.first().map_or("", |v| &v.field), .0.first().map_or("", |v| &v.description))]
    Invalid(Vec<FieldViolation>),
    /// It does not exist, or it is not the caller's: the caller cannot tell which.
    #[error("{resource} does not exist")]
    NotFound {
        /// Its resource name.
        resource: String,
    },
    /// It exists already.
    #[error("{resource} exists already; choose another id, or update it")]
    AlreadyExists {
        /// Its resource name.
        resource: String,
    },
    /// It changed since the caller read it.
    #[error("{resource} has changed since it was read: its etag is {etag}; read it again")]
    EtagMismatch {
        /// Its resource name.
        resource: String,
        /// Its etag now.
        etag: String,
    },
    /// The state of a resource does not allow it.
    #[error("{resource}: {description}")]
    Precondition {
        /// Its resource name.
        resource: String,
        /// The state, and what to do.
        description: String,
    },
    /// A quota of the tenant does not allow it.
    #[error("{tenant} may have {limit} ({quota}); it has {used}, and this would make it {asked}")]
    Quota {
        /// The tenant's resource name.
        tenant: String,
        /// Name of the quota.
        quota: String,
        limit: String,
        /// Current usage of the tenant.
        used: String,
        /// Quota that the request would need.
        asked: String,
    },
    /// The tenant has spent its budget of the month.
    #[error(
        "{tenant} has spent {spent} this month, and its budget is {budget}: it gets no new DAGs, machines or bandwidth until \
         {until}, or until an operator raises its month_budget; what it has stays, with its promises"
    )]
    Budget {
        /// The tenant's resource name.
        tenant: String,
        /// The budget, with its currency.
        budget: String,
        /// Money spent, with its currency.
        spent: String,
        /// Beginning of the next month.
        until: String,
    },
    /// Nobody knows what the tenant has spent of its budget.
    #[error(
        "what {tenant} has spent of its budget of {budget} this month is unknown, for this host has no prices any more: it gets no \
         new DAGs, machines or bandwidth until an operator puts prices.toml back, or takes its month_budget away; what it has stays, \
         with its promises"
    )]
    BudgetUnknown {
        /// The tenant's resource name.
        tenant: String,
        /// The budget. Its currency is that of the prices.
        budget: String,
    },
    /// The card has no room.
    #[error(transparent)]
    Refused(Infeasible),
    /// No card was ever seen.
    #[error("no card: {0}")]
    NoCard(String),
    /// Cancelled by the caller before it started.
    #[error("cancelled before it started")]
    Cancelled,
    /// A later change took its place.
    #[error("superseded by a later change of {resource}")]
    Superseded {
        /// Name of the resource.
        resource: String,
    },
    /// The request id was used for another request.
    #[error("request id {id} was used for another request; use a new one for each request")]
    RequestIdReused { id: String },
    /// A limit of the whole system.
    #[error("{what}: at most {limit}; {hint}")]
    Exhausted {
        /// Name of the limit.
        what: String,
        /// Largest allowed number.
        limit: u64,
        /// Advice to the caller.
        hint: String,
    },
    /// The store cannot be written now.
    #[error("the store cannot be written now{}{}", because(.reason), pending_text(.may_apply))]
    StoreUnavailable {
        /// Answer of the operating system or the database, such as `No space left on device`; without paths.
        reason: String,
        /// Whether the change was carried out, and takes effect once it can be stored.
        may_apply: bool,
    },
    /// A DAG of a batch cannot be created, so none is.
    #[error(
        "requests[{index}]: {error}; nothing was created, because {failed} of {total} DAGs cannot be"
    )]
    InBatch {
        /// Position of the first.
        index: usize,
        /// Number of DAGs that cannot be created.
        failed: usize,
        /// Number of DAGs in the batch.
        total: usize,
        /// Why the first one cannot.
        error: Box<ControlError>,
    },
    /// The cards have changed since the batch was planned.
    #[error(
        "the cards have changed since the batch was planned, so nothing was created; try again"
    )]
    Outdated,
    /// A search ended in a defect.
    #[error("{resource}: the search for a better arrangement failed; see the server's log")]
    SearchFailed { resource: String },
    /// New DAGs and VM bindings are rejected.
    #[error("the server is in maintenance mode: new DAGs and VM bindings are rejected{}", because(.reason))]
    Maintenance {
        /// Why; may be empty.
        reason: String,
    },
}

/// Fate of a change that could not be stored.
const fn pending_text(may_apply: &bool) -> &'static str {
    match may_apply {
        true => {
            "; the change may take effect once it can be: read before you try again, or repeat it \
             with its request id"
        }
        false => ", so nothing was changed; try again later",
    }
}

/// A reason behind what it is for.
fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

impl ControlError {
    /// One wrong field.
    pub fn invalid(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldViolation { field: field.into(), description: description.into() }])
    }

    /// Kind of the error, for counting.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::NotFound { .. } => "not_found",
            Self::AlreadyExists { .. } => "exists",
            Self::EtagMismatch { .. } => "etag",
            Self::Precondition { .. } => "precondition",
            Self::Quota { .. } => "quota",
            Self::Budget { .. } | Self::BudgetUnknown { .. } => "budget",
            Self::Refused(_) => "capacity",
            Self::NoCard(_) => "no_card",
            Self::Cancelled => "cancelled",
            Self::Superseded { .. } => "superseded",
            Self::RequestIdReused { .. } => "request_id",
            Self::Exhausted { .. } => "exhausted",
            Self::InBatch { error, .. } => error.kind(),
            Self::Outdated => "outdated",
            Self::SearchFailed { .. } => "defect",
            Self::Maintenance { .. } => "maintenance",
            Self::StoreUnavailable { .. } => "store",
        }
    }

    /// A tenant would use more of one resource than its quota.
    pub(crate) fn over_quota(
        tenant: &TenantId,
        quota: &str,
        limit: impl ToString,
        used: impl ToString,
        asked: impl ToString,
    ) -> Self {
        Self::Quota {
            tenant: format!("tenants/{tenant}"),
            quota: quota.to_owned(),
            limit: limit.to_string(),
            used: used.to_string(),
            asked: asked.to_string(),
        }
    }

    /// All texts in it, to be shortened.
    pub(crate) fn texts_mut(&mut self) -> Vec<&mut String> {
        match self {
            Self::Invalid(fields) => {
                fields.iter_mut().flat_map(|of| [&mut of.field, &mut of.description]).collect()
            }
            Self::Refused(Infeasible { shortages }) => {
                shortages.iter_mut().map(|shortage| &mut shortage.detail).collect()
            }
            Self::NotFound { resource: text }
            | Self::AlreadyExists { resource: text }
            | Self::NoCard(text)
            | Self::Superseded { resource: text }
            | Self::RequestIdReused { id: text }
            | Self::SearchFailed { resource: text }
            | Self::StoreUnavailable { reason: text, .. }
            | Self::Maintenance { reason: text } => vec![text],
            Self::EtagMismatch { resource: text, etag: other }
            | Self::Precondition { resource: text, description: other }
            | Self::Exhausted { what: text, hint: other, .. } => vec![text, other],
            Self::Quota { tenant, quota, limit, used, asked } => {
                vec![tenant, quota, limit, used, asked]
            }
            Self::Budget { tenant, budget, spent, until } => vec![tenant, budget, spent, until],
            Self::BudgetUnknown { tenant, budget } => vec![tenant, budget],
            Self::InBatch { error, .. } => error.texts_mut(),
            Self::Cancelled | Self::Outdated => Vec::new(),
        }
    }

    pub(crate) fn not_found(resource: impl ToString) -> Self {
        Self::NotFound { resource: resource.to_string() }
    }

    pub(crate) fn exists(resource: impl ToString) -> Self {
        Self::AlreadyExists { resource: resource.to_string() }
    }

    pub(crate) fn precondition(resource: impl ToString, description: impl Into<String>) -> Self {
        Self::Precondition { resource: resource.to_string(), description: description.into() }
    }
}

impl From<InvalidDag> for ControlError {
    fn from(error: InvalidDag) -> Self {
        Self::invalid(format!("dag.{}", error.field()), error.to_string())
    }
}

impl From<Infeasible> for ControlError {
    fn from(refusal: Infeasible) -> Self {
        Self::Refused(refusal)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use snic_domain::{Resource, Shortage};

    use super::*;

    fn shortage() -> Shortage {
        Shortage {
            resource: Resource::TableRows,
            required: 3,
            available: 1,
            nodes: Vec::new(),
            detail: "no run of free rows is long enough".into(),
        }
    }

    /// One of each kind, with the text that the caller reads.
    fn all() -> Vec<(ControlError, &'static str)> {
        let resource = || "tenants/acme/dags/web".to_owned();
        vec![
            (
                ControlError::invalid("dag.nodes", "at least one is needed"),
                "dag.nodes: at least one is needed",
            ),
            (ControlError::not_found(resource()), "tenants/acme/dags/web does not exist"),
            (
                ControlError::exists(resource()),
                "tenants/acme/dags/web exists already; choose another id, or update it",
            ),
            (
                ControlError::EtagMismatch { resource: resource(), etag: "0f".into() },
                "tenants/acme/dags/web has changed since it was read: its etag is 0f; read it again",
            ),
            (
                ControlError::precondition(
                    resource(),
                    "it is being deleted; wait until it is gone",
                ),
                "tenants/acme/dags/web: it is being deleted; wait until it is gone",
            ),
            (Infeasible { shortages: vec![shortage()] }.into(), ""),
            (
                ControlError::NoCard("card card0: no such device".into()),
                "no card: card card0: no such device",
            ),
            (ControlError::Cancelled, "cancelled before it started"),
            (
                ControlError::Superseded { resource: resource() },
                "superseded by a later change of tenants/acme/dags/web",
            ),
            (
                ControlError::RequestIdReused { id: "r1".into() },
                "request id r1 was used for another request; use a new one for each request",
            ),
            (
                ControlError::Exhausted {
                    what: "DAGs of this daemon".into(),
                    limit: 1_024,
                    hint: "delete one first".into(),
                },
                "DAGs of this daemon: at most 1024; delete one first",
            ),
            (
                ControlError::StoreUnavailable {
                    reason: "No space left on device".into(),
                    may_apply: false,
                },
                "the store cannot be written now (No space left on device), so nothing was changed; try again later",
            ),
            (
                ControlError::Maintenance { reason: "new racks".into() },
                "the server is in maintenance mode: new DAGs and VM bindings are rejected (new racks)",
            ),
        ]
    }

    /// The errors about limits of tenants, with the text that the caller reads.
    fn of_tenants() -> [(ControlError, &'static str); 2] {
        [
            (
                ControlError::Quota {
                    tenant: "tenants/acme".into(),
                    quota: "dags_max".into(),
                    limit: "4".into(),
                    used: "3".into(),
                    asked: "5".into(),
                },
                "tenants/acme may have 4 (dags_max); it has 3, and this would make it 5",
            ),
            (
                ControlError::Budget {
                    tenant: "tenants/acme".into(),
                    budget: "10 EUR".into(),
                    spent: "10.25 EUR".into(),
                    until: "2026-12-01T00:00:00Z".into(),
                },
                "tenants/acme has spent 10.25 EUR this month, and its budget is 10 EUR: it gets no new DAGs, machines or \
                 bandwidth until 2026-12-01T00:00:00Z, or until an operator raises its month_budget; what it has stays, with \
                 its promises",
            ),
        ]
    }

    /// The errors of batches and searches, with the text that the caller reads.
    fn of_batches() -> [(ControlError, &'static str); 3] {
        let error = Box::new(ControlError::exists("tenants/acme/dags/web"));
        [
            (
                ControlError::SearchFailed { resource: "cards/card0".into() },
                "cards/card0: the search for a better arrangement failed; see the server's log",
            ),
            (
                ControlError::InBatch { index: 2, failed: 1, total: 3, error },
                "requests[2]: tenants/acme/dags/web exists already; choose another id, or update it; \
                 nothing was created, because 1 of 3 DAGs cannot be",
            ),
            (
                ControlError::Outdated,
                "the cards have changed since the batch was planned, so nothing was created; try again",
            ),
        ]
    }

    #[test]
    fn each_says_what_is_wrong_and_what_to_do() {
        for (error, text) in all().into_iter().chain(of_tenants()).chain(of_batches()) {
            let said = error.to_string();
            match text {
                "" => assert!(said.contains("no run of free rows is long enough"), "{said}"),
                text => assert_eq!(said, text),
            }
        }
    }

    #[test]
    fn a_reason_that_is_absent_leaves_no_trace() {
        let said = ControlError::Maintenance { reason: String::new() }.to_string();
        assert!(said.ends_with("are rejected"), "{said}");
        assert_eq!(ControlError::Invalid(Vec::new()).to_string(), ": ");
    }

    #[test]
    fn a_change_that_may_yet_happen_is_not_said_to_have_failed() {
        let reason = String::new();
        let said = ControlError::StoreUnavailable { reason, may_apply: true }.to_string();
        assert!(
            said.contains("may take effect") && said.contains("repeat it with its request id"),
            "{said}"
        );
    }

    #[test]
    fn kinds_are_counted_apart() {
        let kinds: BTreeSet<&str> = all().iter().map(|(error, _)| error.kind()).collect();
        assert_eq!(kinds.len(), all().len());
        let is_word = |kind: &&str| kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        assert!(kinds.iter().all(is_word), "a label of a metric: {kinds:?}");
    }

    /// They are stored with operations: what was written must be read again.
    #[test]
    fn each_is_read_back_as_it_was_stored() {
        for (error, _) in all() {
            let json = serde_json::to_string(&error).expect("it is data");
            let again: ControlError = serde_json::from_str(&json).expect("what was written");
            assert_eq!(again, error, "{json}");
        }
    }
}
