//! Decisions that were made, each kept for all questions that no policy can tell apart.
//!
//! A policy compares entities, asks whether one lies in another, and reads an attribute that is an entity too; it never
//! sees the text of a name. Where no policy writes a name out, all names are alike to it: what was decided about one
//! tenant's own DAG is decided about every tenant's own DAG. So a question is reduced to its case: method and kinds, the
//! names that some policy writes out, by number, and whether the resource is in the caller's own tenant. The names that
//! strangers choose are in no case, so there are few, and they are the same however many callers there are.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use cedar_policy::{EntityUid, PolicySet};
use snic_domain::Caller;
use snic_front::authorization::{AccessDecision, NamedResource, Question, ResourceType};
use snic_front::identity::{CallerIdentity, Party};

use crate::{id_of, resource_type};

/// Most cases that are kept. Only files that write out thousands of names reach it; then all are dropped and decided again.
const CASES_MAX: usize = 16_384;

/// Number of a name that a policy writes out.
type Literal = u32;

/// The parts of a caller that a policy can tell from another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CallerCase {
    Operator(Option<Literal>),
    Orchestrator(Option<Literal>),
    Tenant(Option<Literal>),
    Member { name: Option<Literal>, tenant: Option<Literal> },
}

/// Tenant of a resource, as far as a policy can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OwnerCase {
    None,
    /// One that a policy writes out; perhaps the caller's own, whose number is then the same.
    Named(Literal),
    /// The caller's own.
    Own,
    Other,
}

/// All that policies can tell of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Case {
    caller: CallerCase,
    method: &'static str,
    kind: ResourceType,
    name: Option<Literal>,
    owner: OwnerCase,
    /// Card of a region; `None` inside where no policy writes it out.
    card: Option<Option<Literal>>,
    validate_only: bool,
}

/// Names that the policies of a set write out, by type.
#[derive(Debug, Default)]
pub(crate) struct Literals(HashMap<String, HashMap<String, Literal>>);

impl Literals {
    /// The names in these policies.
    pub fn of(policies: &PolicySet) -> Self {
        let mut literals = Self::default();
        for (number, uid) in (0..).zip(policies.policies().flat_map(|one| one.entity_literals())) {
            literals.add(&uid, number);
        }
        literals
    }

    fn add(&mut self, uid: &EntityUid, number: Literal) {
        let of_type = self.0.entry(uid.type_name().to_string()).or_default();
        of_type.entry(uid.id().unescaped().to_owned()).or_insert(number);
    }

    /// The number of a name, which is made only where a policy writes out one of this type.
    fn number<T: AsRef<str>>(&self, kind: &str, name: impl FnOnce() -> T) -> Option<Literal> {
        self.0.get(kind)?.get(name().as_ref()).copied()
    }

    /// The case of a question. `None` for callers that no policy is asked about.
    pub fn case(&self, question: &Question<'_>) -> Option<Case> {
        let Question { identity, row, resource, validate_only } = *question;
        let card = resource.card.as_deref().filter(|_| resource.kind == ResourceType::Region);
        Some(Case {
            caller: self.caller(identity)?,
            method: row.method(),
            kind: resource.kind,
            name: self.resource(resource),
            owner: self.owner(resource, identity),
            card: card.map(|card| self.number("Card", || card)),
            validate_only,
        })
    }

    fn caller(&self, identity: &CallerIdentity) -> Option<CallerCase> {
        Some(match (identity.party(), identity.member()) {
            (Party::Host(_) | Party::Replica(_), _) => return None,
            (Party::Caller(Caller::Operator(name)), _) => {
                CallerCase::Operator(self.number("Operator", || name))
            }
            (Party::Caller(Caller::Orchestrator(name)), _) => {
                CallerCase::Orchestrator(self.number("Orchestrator", || name))
            }
            (Party::Caller(Caller::Tenant(id)), None) => {
                CallerCase::Tenant(self.number("Tenant", || id.as_str()))
            }
            (Party::Caller(Caller::Tenant(id)), Some(member)) => CallerCase::Member {
                name: self.number("Member", || format!("{id}/{member}")),
                tenant: self.number("Tenant", || id.as_str()),
            },
        })
    }

    /// A resource's own name; that of a tenant is its owner.
    fn resource(&self, resource: &NamedResource) -> Option<Literal> {
        match resource.kind {
            ResourceType::Everything | ResourceType::Tenant => None,
            kind => self.number(resource_type(kind), || id_of(&resource.name)),
        }
    }

    fn owner(&self, resource: &NamedResource, identity: &CallerIdentity) -> OwnerCase {
        if resource.kind == ResourceType::Everything {
            return OwnerCase::None;
        }
        // A tenant without a name is one with an empty name, as it is to the policies.
        let id = match (&resource.tenant, resource.kind) {
            (Some(id), _) => id.as_str(),
            (None, ResourceType::Tenant) => "",
            (None, _) => return OwnerCase::None,
        };
        let is_own = || identity.tenant().is_some_and(|own| own.as_str() == id);
        match self.number("Tenant", || id) {
            Some(named) => OwnerCase::Named(named),
            None if is_own() => OwnerCase::Own,
            None => OwnerCase::Other,
        }
    }
}

/// The decisions of one set of policies, by case.
#[derive(Debug, Default)]
pub(crate) struct DecidedCases(RwLock<HashMap<Case, Arc<AccessDecision>>>);

impl DecidedCases {
    /// The decision about a case; made at its first question.
    pub fn decide(&self, case: Case, make: impl FnOnce() -> AccessDecision) -> AccessDecision {
        let decided = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&case).cloned();
        if let Some(decision) = decided {
            return AccessDecision::clone(&decision);
        }
        let decision = make();
        let mut decided = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if decided.len() >= CASES_MAX {
            decided.clear();
        }
        decided.insert(case, Arc::new(decision.clone()));
        decision
    }

    /// Number of cases that are kept.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
