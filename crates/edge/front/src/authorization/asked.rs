//! Subject of each request.

use snic_api::methods::{AskedResource, DescribedRequest};
use snic_api::v1;
use snic_domain::limits::DAG_BATCH_MAX;

use super::NamedResource;

/// Subject that policies are asked about before a request is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessSubject {
    /// These resources; the request is allowed if all are.
    These(Vec<NamedResource>),
    /// The same of a request that is only to be checked.
    Check(Vec<NamedResource>),
    /// Subjects that the service finds: it asks itself. See [`crate::gate::CallAuthorizer::decide`].
    Found,
    /// Nothing: every identity may call the method.
    Nothing,
}

/// A request that says what it is about.
pub trait Asks {
    /// Subject that this request asks policies about.
    fn asked(&self) -> AccessSubject;
}

fn these(resource: NamedResource) -> AccessSubject {
    AccessSubject::These(vec![resource])
}

fn checked(validate_only: bool, resources: Vec<NamedResource>) -> AccessSubject {
    if validate_only { AccessSubject::Check(resources) } else { AccessSubject::These(resources) }
}

/// The subject that the facts of the request's method name.
fn described(request: &impl DescribedRequest) -> AccessSubject {
    let resource = match request.resource() {
        AskedResource::Everything => NamedResource::everything(),
        AskedResource::Named(name) => NamedResource::named(&name),
        AskedResource::Below(parent) => NamedResource::below(&parent),
        AskedResource::Nothing => return AccessSubject::Nothing,
    };
    checked(request.validate_only(), vec![resource])
}

macro_rules! asks {
    ($($request:path),+ $(,)?) => {
        $(impl Asks for $request {
            fn asked(&self) -> AccessSubject {
                described(self)
            }
        })+
    };
}
snic_api::described_requests!(asks);

macro_rules! asks_later {
    ($($request:ty),+) => {
        $(impl Asks for $request {
            fn asked(&self) -> AccessSubject {
                AccessSubject::Found
            }
        })+
    };
}
// Whose a binding is stands in its record only.
asks_later!(v1::GetBindingRequest, v1::HeartbeatRequest, v1::UnbindVmRequest);
// The header is the first message of the stream.
asks_later!(tonic::Streaming<v1::UploadBitstreamRequest>);

impl Asks for v1::BatchCreateDagsRequest {
    fn asked(&self) -> AccessSubject {
        let of = |one: &v1::CreateDagRequest| match one.parent.as_str() {
            "" => dag(&self.parent, &one.dag_id),
            parent => dag(parent, &one.dag_id),
        };
        // The parent too: a batch may be empty. The service rejects one that is longer.
        let all = std::iter::once(NamedResource::named(&self.parent));
        let dags = self.requests.iter().take(DAG_BATCH_MAX).map(of);
        checked(self.validate_only, all.chain(dags).collect())
    }
}

impl Asks for v1::BitstreamHeader {
    fn asked(&self) -> AccessSubject {
        these(NamedResource::named(&format!("bitstreams/{}", self.bitstream_id)))
    }
}

impl Asks for v1::CreateRuleRequest {
    fn asked(&self) -> AccessSubject {
        let rule = NamedResource::named(&format!("classificationRules/{}", self.rule_id));
        let dag = NamedResource::named(self.rule.as_ref().map_or("", |rule| &rule.dag));
        // The name of an operator's rule has no tenant, but its DAG has.
        let owner = rule.tenant.clone().or_else(|| dag.tenant.clone());
        let rule = owner.map_or_else(|| rule.clone(), |owner| rule.clone().owned_by(&owner));
        AccessSubject::These(vec![rule, dag])
    }
}

impl Asks for v1::UpdateRuleRequest {
    fn asked(&self) -> AccessSubject {
        let rule = self.rule.as_ref();
        // Where it leads packets now is not known here, only where it is to: without a DAG that stays.
        let dag =
            rule.filter(|rule| !rule.dag.is_empty()).map(|rule| NamedResource::named(&rule.dag));
        let named = NamedResource::named(rule.map_or("", |rule| &rule.name));
        AccessSubject::These([named].into_iter().chain(dag).collect())
    }
}

impl Asks for v1::BindVmRequest {
    fn asked(&self) -> AccessSubject {
        let binding = NamedResource::named(&format!("vmBindings/{}", self.vm));
        these(match NamedResource::named(&self.tenant).tenant {
            Some(tenant) => binding.owned_by(&tenant),
            None => binding,
        })
    }
}

fn dag(parent: &str, id: &str) -> NamedResource {
    NamedResource::named(&format!("{parent}/dags/{id}"))
}

#[cfg(test)]
mod tests {
    use super::super::ResourceType;
    use super::*;

    fn asked(request: &impl Asks) -> Vec<(ResourceType, String, Option<String>)> {
        match request.asked() {
            AccessSubject::These(all) | AccessSubject::Check(all) => {
                all.into_iter().map(|one| (one.kind, one.name, one.tenant)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn of(kind: ResourceType, name: &str, tenant: &str) -> (ResourceType, String, Option<String>) {
        (kind, name.to_owned(), (!tenant.is_empty()).then(|| tenant.to_owned()))
    }

    #[test]
    fn a_rule_is_also_about_the_dag_to_which_it_is_to_lead() {
        use ResourceType::{Dag, Rule};
        let web = "tenants/acme/dags/web";
        let rule = |name: &str, dag: &str| {
            Some(v1::Rule { name: name.into(), dag: dag.into(), ..Default::default() })
        };
        let create = |rule_id: &str| v1::CreateRuleRequest {
            rule_id: rule_id.into(),
            rule: rule("", web),
            ..Default::default()
        };
        let dag = || of(Dag, web, "acme");
        let named = |tenant| of(Rule, "classificationRules/r", tenant);
        assert_eq!(asked(&create("r")), [named("acme"), dag()]);
        let of_globex = of(Rule, "classificationRules/globex.r", "globex");
        assert_eq!(asked(&create("globex.r")), [of_globex, dag()]);
        // A rule that is there may lead another tenant's packets: the new DAG does not make it acme's.
        let update = |dag: &str| v1::UpdateRuleRequest {
            rule: rule("classificationRules/r", dag),
            ..Default::default()
        };
        assert_eq!(asked(&update(web)), [named(""), dag()]);
        assert_eq!(asked(&update("")), [named("")]);
    }

    #[test]
    fn a_batch_is_about_its_parent_and_each_dag_as_far_as_the_service_takes_them() {
        let one = |parent: &str, id: &str| v1::CreateDagRequest {
            parent: parent.into(),
            dag_id: id.into(),
            ..Default::default()
        };
        let request = v1::BatchCreateDagsRequest {
            parent: "tenants/acme".into(),
            requests: vec![one("", "a"), one("tenants/globex", "b")],
            ..Default::default()
        };
        let expected = [
            of(ResourceType::Tenant, "tenants/acme", "acme"),
            of(ResourceType::Dag, "tenants/acme/dags/a", "acme"),
            of(ResourceType::Dag, "tenants/globex/dags/b", "globex"),
        ];
        assert_eq!(asked(&request), expected);
        let many = v1::BatchCreateDagsRequest {
            requests: vec![one("", "a"); 10 * DAG_BATCH_MAX],
            ..request
        };
        assert_eq!(asked(&many).len(), 1 + DAG_BATCH_MAX);
    }

    #[test]
    fn a_long_name_is_none() {
        let request = v1::GetDagRequest { name: format!("tenants/acme/dags/{}", "x".repeat(300)) };
        assert_eq!(asked(&request), [of(ResourceType::Unknown, "", "")]);
    }
}
