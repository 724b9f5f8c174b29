//! Authorization policies in [Cedar](https://www.cedarpolicy.com).
//!
//! A folder has policy files, `*.cedar`. Each is parsed and validated alone, so that one that is wrong keeps no
//! other from taking effect, and the policies of all are decided about together: something is allowed if a policy
//! permits it and none forbids it. [`DEFAULT`] equals the server's built-in rules.
//!
//! Entities of a decision are at most seven: caller, method, resource and what these lie in. They come from names
//! alone, so a decision takes no look at the control plane's state. It is made once for all questions that no policy can
//! tell apart, and kept as long as the policies are in force.

mod cases;
mod folder;
mod schema;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::LazyLock;

use cedar_policy::{
    AuthorizationError, Authorizer as Engine, Context, Decision as CedarDecision, Entities, Entity,
    EntityId, EntityTypeName, EntityUid, Policy, PolicyId, PolicySet, Request,
    RestrictedExpression, Schema, ValidationMode, Validator,
};
use miette::Diagnostic;
use snic_front::access::Row;
use snic_front::authorization::{
    AccessDecision, Authorizer, NamedResource, Question, ResourceType,
};
use snic_front::identity::CallerIdentity;

use crate::cases::{DecidedCases, Literals};

pub use folder::{FILES_MAX, FolderReading, PolicyFolder};

/// The policies that apply without a file of this name: name and text.
pub const DEFAULT: (&str, &str) =
    ("default.cedar", include_str!("../../../../policies/authorization/default.cedar"));
/// Longest file in bytes.
pub const FILE_BYTES_MAX: usize = 256 << 10;
/// Most policies of a file. A decision looks at all of them.
pub const POLICIES_MAX: usize = 200;

/// Why a policy file is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct InvalidPolicies {
    pub file: String,
    pub line: usize,
    pub message: String,
}

/// The policies of one file, parsed and validated.
#[derive(Debug, Clone)]
pub struct PolicyFile(Vec<Policy>);

impl PolicyFile {
    /// Parses and validates the text of a file, whose name becomes part of the policies' ids.
    ///
    /// # Errors
    /// [`InvalidPolicies`] names the first line that is not Cedar, or that names a type, action or attribute that
    /// is not in the schema; or the file has more than [`FILE_BYTES_MAX`] bytes or [`POLICIES_MAX`] policies.
    pub fn parse(name: &str, text: &str) -> Result<Self, InvalidPolicies> {
        let wrong =
            |line: usize, message: String| InvalidPolicies { file: name.to_owned(), line, message };
        if text.len() > FILE_BYTES_MAX {
            let message = format!("{} bytes are too many (limit {FILE_BYTES_MAX})", text.len());
            return Err(wrong(1, message));
        }
        let set: PolicySet = text.parse().map_err(|error: cedar_policy::ParseErrors| {
            let first = error.iter().next();
            let line = first.map_or(1, |first| line_of(text, first));
            wrong(line, first.map_or_else(|| error.to_string(), explained))
        })?;
        if let Some(template) = set.templates().next() {
            let message = format!("{} is a template; write each policy out", template.id());
            return Err(wrong(1, message));
        }
        let validated = VALIDATOR.validate(&set, ValidationMode::Strict);
        if let Some(error) = validated.validation_errors().next() {
            return Err(wrong(line_of(text, error), explained(error)));
        }
        let mut policies: Vec<&Policy> = set.policies().collect();
        if policies.len() > POLICIES_MAX {
            let message =
                format!("{} policies are too many (limit {POLICIES_MAX})", policies.len());
            return Err(wrong(1, message));
        }
        // Cedar numbers them: policy0, policy1, ...
        policies.sort_by_key(|policy| (policy.id().to_string().len(), policy.id().to_string()));
        let mut ids = HashSet::new();
        let mut named = Vec::new();
        for (index, policy) in policies.into_iter().enumerate() {
            let id = match policy.annotation("id") {
                Some(id) if !id.is_empty() => format!("{name}:{id}"),
                _ => format!("{name}:{}", index + 1),
            };
            if !ids.insert(id.clone()) {
                return Err(wrong(1, format!("two policies have the id {id}; choose another @id")));
            }
            named.push(policy.new_id(PolicyId::new(id)));
        }
        Ok(Self(named))
    }

    /// Number of policies.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The line of the first place that a diagnostic shows.
fn line_of(text: &str, diagnostic: &dyn Diagnostic) -> usize {
    let first = diagnostic.labels().and_then(|mut labels| labels.next());
    let offset = first.map_or(0, |label| label.offset()).min(text.len());
    1 + text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
}

/// The message of a diagnostic, in one line, with what it expects.
fn explained(diagnostic: &(impl Diagnostic + fmt::Display)) -> String {
    let label = diagnostic.labels().and_then(|mut labels| labels.next());
    let expected = label.and_then(|label| label.label().map(str::to_owned));
    let help = diagnostic.help().map(|help| help.to_string());
    let parts = [Some(diagnostic.to_string()), expected, help];
    let text = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
    let text = schema::text();
    let (schema, _) = Schema::from_cedarschema_str(&text).expect("tested: the schema is valid");
    Validator::new(schema)
});

/// Policies in force.
pub struct CedarPolicies {
    engine: Engine,
    policies: PolicySet,
    names: Names,
    literals: Literals,
    decided: DecidedCases,
}

impl fmt::Debug for CedarPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CedarPolicies").field("policies", &self.policies.num_of_policies()).finish()
    }
}

impl CedarPolicies {
    /// The policies of these files; each name once.
    pub fn new<'a>(files: impl IntoIterator<Item = &'a PolicyFile>) -> Self {
        let mut policies = PolicySet::new();
        for policy in files.into_iter().flat_map(|file| &file.0) {
            // Ids have the names of their files, so no two are the same.
            if let Err(error) = policies.add(policy.clone()) {
                debug_assert!(false, "{error}");
            }
        }
        let literals = Literals::of(&policies);
        let decided = DecidedCases::default();
        Self { engine: Engine::new(), policies, names: Names::new(), literals, decided }
    }

    /// The answer of all policies, without a look at what was decided before.
    fn evaluate(&self, question: &Question<'_>) -> AccessDecision {
        let Some((request, entities)) = self.names.request(question) else {
            // A method that no policy can speak of.
            return AccessDecision::default();
        };
        let answer = self.engine.is_authorized(&request, &self.policies, &entities);
        let mut policies: Vec<String> =
            answer.diagnostics().reason().map(ToString::to_string).collect();
        policies.sort_unstable();
        // Validated policies do not fail; a forbidding one that did must not be passed over.
        let failed = answer.diagnostics().errors().map(|error| match error {
            AuthorizationError::PolicyEvaluationError(error) => error.policy_id().to_string(),
        });
        let failed: Vec<String> = failed.collect();
        if !failed.is_empty() {
            return AccessDecision { allowed: false, policies: failed };
        }
        AccessDecision { allowed: answer.decision() == CedarDecision::Allow, policies }
    }
}

impl Authorizer for CedarPolicies {
    fn decide(&self, question: &Question<'_>) -> AccessDecision {
        match self.literals.case(question) {
            Some(case) => self.decided.decide(case, || self.evaluate(question)),
            None => AccessDecision::default(), // Policies are not asked about hosts and replicas.
        }
    }
}

/// Names of types and actions, parsed once.
struct Names {
    types: HashMap<&'static str, EntityTypeName>,
    actions: HashMap<&'static str, Entity>,
    everything: EntityUid,
}

const TYPES: [&str; 14] = [
    "Operator",
    "Orchestrator",
    "Member",
    "Everything",
    "Tenant",
    "Dag",
    "NtType",
    "Bitstream",
    "Rule",
    "Operation",
    "Binding",
    "Card",
    "Region",
    "Unknown",
];

impl Names {
    fn new() -> Self {
        let typed = |name: &str| name.parse::<EntityTypeName>().expect("an identifier");
        let types: HashMap<_, _> = TYPES.iter().map(|name| (*name, typed(name))).collect();
        let of_action = typed("Action");
        let action =
            |name: &str| EntityUid::from_type_name_and_id(of_action.clone(), EntityId::new(name));
        let entity = |row: Row| {
            let groups = schema::groups(row).into_iter().map(action).collect();
            (row.method(), Entity::new_no_attrs(action(row.method()), groups))
        };
        let actions = schema::methods().map(entity).collect();
        let everything =
            EntityUid::from_type_name_and_id(types["Everything"].clone(), EntityId::new("all"));
        Self { types, actions, everything }
    }

    fn uid(&self, kind: &'static str, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(self.types[kind].clone(), EntityId::new(id))
    }

    /// Question to Cedar, with everything that it may look at.
    fn request(&self, question: &Question<'_>) -> Option<(Request, Entities)> {
        let action = self.actions.get(question.row.method())?;
        let mut entities: HashMap<EntityUid, Entity> = HashMap::new();
        let principal = self.principal(question.identity, &mut entities);
        let resource = self.resource(question.resource, &mut entities);
        entities.insert(action.uid(), action.clone());
        let validate_only = RestrictedExpression::new_bool(question.validate_only);
        let context = Context::from_pairs([("validate_only".to_owned(), validate_only)]).ok()?;
        let request = Request::new(principal, action.uid(), resource, context, None).ok()?;
        Some((request, Entities::from_entities(entities.into_values(), None).ok()?))
    }

    fn tenant(&self, id: &str, entities: &mut HashMap<EntityUid, Entity>) -> EntityUid {
        let uid = self.uid("Tenant", id);
        let all = HashSet::from([self.everything.clone()]);
        entities.insert(uid.clone(), Entity::new_no_attrs(uid.clone(), all));
        uid
    }

    fn principal(
        &self,
        identity: &CallerIdentity,
        entities: &mut HashMap<EntityUid, Entity>,
    ) -> EntityUid {
        use snic_domain::Caller;
        use snic_front::identity::Party;
        let bare = |uid: EntityUid| Entity::new_no_attrs(uid, HashSet::new());
        let entity = match (identity.party(), identity.member()) {
            // Policies are not asked about hosts and replicas: no method that they decide about is open to these.
            (Party::Host(name), _) => bare(self.uid("Host", name)),
            (Party::Replica(name), _) => bare(self.uid("Replica", name)),
            (Party::Caller(Caller::Operator(name)), _) => bare(self.uid("Operator", name)),
            (Party::Caller(Caller::Orchestrator(name)), _) => bare(self.uid("Orchestrator", name)),
            (Party::Caller(Caller::Tenant(id)), None) => return self.tenant(id.as_str(), entities),
            (Party::Caller(Caller::Tenant(id)), Some(member)) => {
                let tenant = self.tenant(id.as_str(), entities);
                let uid = self.uid("Member", &format!("{id}/{member}"));
                let attribute = RestrictedExpression::new_entity_uid(tenant.clone());
                let attributes = HashMap::from([("tenant".to_owned(), attribute)]);
                let parents = HashSet::from([tenant]);
                // It fails only for expressions that cannot be evaluated; then it is nobody's member.
                Entity::new(uid.clone(), attributes, parents).unwrap_or_else(|_| bare(uid))
            }
        };
        let uid = entity.uid();
        entities.insert(uid.clone(), entity);
        uid
    }

    fn resource(
        &self,
        resource: &NamedResource,
        entities: &mut HashMap<EntityUid, Entity>,
    ) -> EntityUid {
        let kind = match resource.kind {
            ResourceType::Everything => return self.everything.clone(),
            ResourceType::Tenant => {
                return self.tenant(resource.tenant.as_deref().unwrap_or_default(), entities);
            }
            kind => resource_type(kind),
        };
        let mut parents = HashSet::from([self.everything.clone()]);
        if let Some(tenant) = &resource.tenant {
            parents.insert(self.tenant(tenant, entities));
        }
        if let (ResourceType::Region, Some(card)) = (resource.kind, &resource.card) {
            let card = self.uid("Card", card);
            let all = HashSet::from([self.everything.clone()]);
            entities.insert(card.clone(), Entity::new_no_attrs(card.clone(), all));
            parents.insert(card);
        }
        let uid = self.uid(kind, &id_of(&resource.name));
        entities.insert(uid.clone(), Entity::new_no_attrs(uid.clone(), parents));
        uid
    }
}

/// Name of a resource's type in policies.
const fn resource_type(kind: ResourceType) -> &'static str {
    match kind {
        ResourceType::Everything => "Everything",
        ResourceType::Tenant => "Tenant",
        ResourceType::Dag => "Dag",
        ResourceType::NtType => "NtType",
        ResourceType::Bitstream => "Bitstream",
        ResourceType::Rule => "Rule",
        ResourceType::Operation => "Operation",
        ResourceType::Binding => "Binding",
        ResourceType::Card => "Card",
        ResourceType::Region => "Region",
        ResourceType::Unknown => "Unknown",
    }
}

/// `tenants/acme/dags/web` is `acme/web`.
fn id_of(name: &str) -> String {
    let ids: Vec<&str> = name.split('/').skip(1).step_by(2).collect();
    ids.join("/")
}

#[cfg(test)]
mod tests;
