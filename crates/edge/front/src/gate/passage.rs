//! The way of a call from the gate to its service: who calls, and what was decided about it.

use std::sync::Arc;

use parking_lot::Mutex;
use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use snic_domain::Caller;
use tonic::Status;

use crate::access::Row;
use crate::authorization::{
    AccessDecision, AccessSubject, Asks, Authorization, Authorizer, NamedResource, Question,
    decide_all,
};
use crate::identity::CallerIdentity;

/// A decision, and what it was about.
#[derive(Debug)]
struct RecordedDecision {
    decision: AccessDecision,
    resources: Vec<NamedResource>,
    validate_only: bool,
}

/// Decision about a call, shared with its audit entry and its stream. Empty before it is decided.
#[derive(Debug, Clone, Default)]
pub(crate) struct DecisionSlot(Arc<Mutex<Option<RecordedDecision>>>);

impl DecisionSlot {
    pub fn decision(&self) -> Option<AccessDecision> {
        self.0.lock().as_ref().map(|verdict| verdict.decision.clone())
    }

    pub fn set(
        &self,
        decision: AccessDecision,
        resources: Vec<NamedResource>,
        validate_only: bool,
    ) {
        *self.0.lock() = Some(RecordedDecision { decision, resources, validate_only });
    }
}

/// A call that passed the gate. Its service asks whether the caller may do this with these resources.
#[derive(Debug, Clone)]
pub struct CallAuthorizer {
    identity: CallerIdentity,
    /// The operator that acts for the caller, if one does: policies have to allow both.
    agent: Option<CallerIdentity>,
    row: Row,
    authorization: Authorization,
    settled: DecisionSlot,
}

impl CallAuthorizer {
    pub(super) const fn new(
        identity: CallerIdentity,
        row: Row,
        authorization: Authorization,
        settled: DecisionSlot,
    ) -> Self {
        Self { identity, agent: None, row, authorization, settled }
    }

    /// The same for a call that this operator makes for the caller.
    pub(super) fn by(self, agent: Option<CallerIdentity>) -> Self {
        Self { agent, ..self }
    }

    pub const fn identity(&self) -> &CallerIdentity {
        &self.identity
    }

    /// Decides about all resources of the request, and keeps the decision for the audit log.
    ///
    /// # Errors
    /// PERMISSION_DENIED where the policies refuse one of them. It tells nothing about what exists.
    pub fn decide(
        &self,
        resources: Vec<NamedResource>,
        validate_only: bool,
    ) -> Result<(), ApiError> {
        let authorizer = self.authorization.current();
        let (decision, of) = self.decision(&*authorizer, &resources, validate_only);
        let allowed = decision.allowed;
        self.settled.set(decision, resources, validate_only);
        if allowed { Ok(()) } else { Err(self.refused_to(of)) }
    }

    /// The decision, and whose it is: the caller's, or that of the operator that acts for it.
    fn decision(
        &self,
        authorizer: &dyn Authorizer,
        resources: &[NamedResource],
        validate_only: bool,
    ) -> (AccessDecision, &CallerIdentity) {
        let decide = |of| decide_all(authorizer, of, self.row, resources, validate_only);
        let decision = decide(&self.identity);
        match &self.agent {
            Some(agent) if decision.allowed => {
                let of_agent = decide(agent);
                if !of_agent.allowed {
                    return (of_agent, agent);
                }
                let mut policies = decision.policies;
                policies.extend(of_agent.policies);
                policies.sort_unstable();
                policies.dedup();
                (AccessDecision { allowed: true, policies }, &self.identity)
            }
            _ => (decision, &self.identity),
        }
    }

    /// Decides what a request asks.
    ///
    /// # Errors
    /// As [`CallAuthorizer::decide`].
    pub fn decide_asked(&self, request: &impl Asks) -> Result<(), ApiError> {
        match request.asked() {
            AccessSubject::These(resources) => self.decide(resources, false),
            AccessSubject::Check(resources) => self.decide(resources, true),
            AccessSubject::Found | AccessSubject::Nothing => Ok(()),
        }
    }

    /// Whether the caller may do this with the resource; not kept.
    pub fn may(&self, resource: &NamedResource) -> bool {
        let authorizer = self.authorization.current();
        let mut all = std::iter::once(&self.identity).chain(&self.agent);
        all.all(|identity| {
            let resource = &resource.seen_by(identity);
            let question = Question { identity, row: self.row, resource, validate_only: false };
            authorizer.decide(&question).allowed
        })
    }

    /// Whether a stream may go on by this authorizer.
    pub fn may_go_on(&self, authorizer: &dyn Authorizer) -> bool {
        match &*self.settled.0.lock() {
            Some(RecordedDecision { resources, validate_only, .. }) => {
                self.decision(authorizer, resources, *validate_only).0.allowed
            }
            None => true,
        }
    }

    /// The policies that decide.
    pub const fn authorization(&self) -> &Authorization {
        &self.authorization
    }

    pub fn refused(&self) -> ApiError {
        self.refused_to(&self.identity)
    }

    fn refused_to(&self, identity: &CallerIdentity) -> ApiError {
        let method = self.row.method();
        let of_members = match identity.member() {
            Some(_) => "; members of a tenant may do only what a policy allows",
            None => "",
        };
        let text = format!(
            "the server's authorization policies do not allow {identity} this {method}{of_members}; ask an \
             operator, and see `snicctl auth can-i`"
        );
        ApiError::new(ErrorReason::PermissionDenied, text)
    }
}

/// A caller of the server's own, which needs no decision: the page for browsers, whose readers were
/// authorized as a whole.
#[derive(Debug, Clone)]
pub struct OwnCaller(pub Caller);

/// The passage of a request, for services that find what it is about.
///
/// # Errors
/// INTERNAL for a request that did not pass the gate.
pub fn passage<T>(request: &tonic::Request<T>) -> Result<CallAuthorizer, Status> {
    let missing = || ApiError::internal("no caller behind the gate").into();
    request.extensions().get().cloned().ok_or_else(missing)
}

/// The caller that the gate identified; every method but the open ones has one. Asks first whether it
/// may do what the request says.
///
/// # Errors
/// As [`CallAuthorizer::decide`].
pub fn caller<T: Asks>(request: &tonic::Request<T>) -> Result<Caller, Status> {
    if let Some(OwnCaller(own)) = request.extensions().get() {
        return Ok(own.clone());
    }
    let passage = passage(request)?;
    passage.decide_asked(request.get_ref())?;
    // Methods that ask for a caller are open to callers only.
    let missing = || passage.refused().into();
    passage.identity.caller().cloned().ok_or_else(missing)
}
