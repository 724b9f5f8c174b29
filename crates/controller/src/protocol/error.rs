//! What can be wrong with a request: each names the culprit, the limit and what to do.
//!
//! The texts are for the caller: none holds a name that the caller may not know.

use serde::{Deserialize, Serialize};
use snic_domain::{Infeasible, InvalidDag};

/// One wrong field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldViolation {
    /// The field, as in the API: `dag.nodes[2].nt_type`.
    pub field: String,
    /// What is wrong with it and what is allowed.
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
        /// Which state, and what to do.
        description: String,
    },
    /// A quota of the tenant does not allow it.
    #[error("{tenant} may have {limit} ({quota}); this would make it {asked}")]
    Quota {
        /// The tenant's resource name.
        tenant: String,
        /// Which quota.
        quota: String,
        /// Its value.
        limit: String,
        /// What it would have to be.
        asked: String,
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
        /// Of what.
        resource: String,
    },
    /// The request id was used for another request.
    #[error("request id {id} was used for another request; use a new one for each request")]
    RequestIdReused {
        /// The id.
        id: String,
    },
    /// A limit of the whole system.
    #[error("{what}: at most {limit}; {hint}")]
    Exhausted {
        /// Of what.
        what: String,
        /// How many.
        limit: u64,
        /// What to do.
        hint: String,
    },
    /// The store cannot be written now.
    #[error("the store cannot be written now{}", pending_text(.may_apply))]
    StoreUnavailable {
        /// Whether the change was carried out, and takes effect once it can be stored.
        may_apply: bool,
    },
    /// Nothing new is taken in.
    #[error("the server is under maintenance and takes in nothing new{}", because(.reason))]
    Maintenance {
        /// Why; may be empty.
        reason: String,
    },
}

/// What became of a change that could not be stored.
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
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl ControlError {
    /// One wrong field.
    pub fn invalid(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldViolation { field: field.into(), description: description.into() }])
    }

    /// What kind of error it is, for counting.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::NotFound { .. } => "not_found",
            Self::AlreadyExists { .. } => "exists",
            Self::EtagMismatch { .. } => "etag",
            Self::Precondition { .. } => "precondition",
            Self::Quota { .. } => "quota",
            Self::Refused(_) => "capacity",
            Self::NoCard(_) => "no_card",
            Self::Cancelled => "cancelled",
            Self::Superseded { .. } => "superseded",
            Self::RequestIdReused { .. } => "request_id",
            Self::Exhausted { .. } => "exhausted",
            Self::Maintenance { .. } => "maintenance",
            Self::StoreUnavailable { .. } => "store",
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
