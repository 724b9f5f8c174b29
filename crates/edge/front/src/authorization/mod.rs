//! Authorization: who may do what.
//!
//! ```text
//!  method × kind of caller ─► names in the request ─► policies ─► service: does the caller own it?
//!  (`access`, a ceiling)      (`asked`)              (`Authorizer`)
//! ```
//!
//! [`access`](crate::access) and ownership are a ceiling that no policy can raise: policies only decide who of
//! those that could may. They are asked in the service's own thread, with the names in the decoded request,
//! before anything is looked up; `crate::gate::caller` is the only way for a service to learn its caller,
//! and asks first.
//!
//! A request about another tenant's resource is decided as one about the caller's own tenant. If policies allow that,
//! the service answers as for a resource that does not exist; if not, the answer is the same for all names.

mod asked;
mod resource;

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::access::{Access, Row};
use crate::identity::{CallerIdentity, Party};
use snic_domain::Caller;

pub use asked::{AccessSubject, Asks};
pub use resource::{NamedResource, ResourceType};

/// Name of the rules that apply without policy files, in the audit log.
pub const BUILT_IN: &str = "built-in";
/// Name of the table of methods and kinds of callers, in the audit log.
pub const ACCESS_TABLE: &str = "access-table";

/// Question that a policy decides.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    pub identity: &'a CallerIdentity,
    pub row: Row,
    /// Resource; see [`NamedResource::seen_by`].
    pub resource: &'a NamedResource,
    /// Whether the request is only to be checked.
    pub validate_only: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessDecision {
    /// Whether the caller may.
    pub allowed: bool,
    /// Ids of the policies that decided, sorted. None where no policy speaks of it, which is a refusal.
    pub policies: Vec<String>,
}

/// Decides within the ceiling. Called on the threads of the services: it must not block.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// The answer to a question.
    fn decide(&self, question: &Question<'_>) -> AccessDecision;
}

/// The rules without policies: whatever the table allows, and nothing for members of tenants.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltIn;

impl Authorizer for BuiltIn {
    fn decide(&self, question: &Question<'_>) -> AccessDecision {
        let Question { identity, row, resource, .. } = question;
        let allowed = identity.member().is_none()
            && is_within(*row, identity)
            && !resource.is_foreign_to(identity);
        AccessDecision { allowed, policies: vec![BUILT_IN.to_owned()] }
    }
}

/// Whether this kind of caller could ever call the method.
pub fn is_within(row: Row, identity: &CallerIdentity) -> bool {
    use Caller::{Operator, Orchestrator, Tenant};
    match (row.access, identity.party()) {
        (Access::Open | Access::Identified, _) => true,
        // Not even operators speak for a host or a replica.
        (Access::Host, party) => matches!(party, Party::Host(_)),
        (Access::Replica, party) => matches!(party, Party::Replica(_)),
        (_, Party::Host(_) | Party::Replica(_)) => false,
        (_, Party::Caller(Operator(_))) => true,
        (Access::Anyone, Party::Caller(Tenant(_))) => true,
        (Access::Orchestrator, Party::Caller(Orchestrator(_))) => true,
        (Access::Anyone | Access::Orchestrator | Access::Operator, _) => false,
    }
}

/// The authorizer in force. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Authorization(watch::Sender<Arc<dyn Authorizer>>);

impl Default for Authorization {
    fn default() -> Self {
        Self::new(Arc::new(BuiltIn))
    }
}

impl Authorization {
    /// With this authorizer.
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self(watch::Sender::new(authorizer))
    }

    /// Replaces the authorizer: it decides from now on, also whether streams that run may go on.
    pub fn replace(&self, authorizer: Arc<dyn Authorizer>) {
        self.0.send_replace(authorizer);
    }

    /// The authorizer in force; told of each replacement.
    pub fn current(&self) -> Arc<dyn Authorizer> {
        Arc::clone(&self.0.borrow())
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<dyn Authorizer>> {
        self.0.subscribe()
    }
}

/// Asks for all resources of a request: it is allowed if all are.
pub fn decide_all(
    authorizer: &dyn Authorizer,
    identity: &CallerIdentity,
    row: Row,
    asked: &[NamedResource],
    validate_only: bool,
) -> AccessDecision {
    let mut all = AccessDecision { allowed: true, policies: Vec::new() };
    for resource in asked {
        let resource = &resource.seen_by(identity);
        let question = Question { identity, row, resource, validate_only };
        let one = authorizer.decide(&question);
        if !one.allowed {
            return one;
        }
        all.policies.extend(one.policies);
        all.policies.sort_unstable();
        all.policies.dedup();
    }
    all
}
