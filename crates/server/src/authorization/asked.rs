//! What each request is about.

use snic_api::v1;

use super::Resource;

/// What policies are asked about before a request is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// These resources; the request is allowed if all are.
    These(Vec<Resource>),
    /// The same of a request that is only to be checked.
    Check(Vec<Resource>),
    /// What the service finds: it asks itself. See [`crate::gate::Passage::decide`].
    Found,
    /// Nothing: every identity may call the method.
    Nothing,
}

/// A request that says what it is about.
pub(crate) trait Asks {
    fn asked(&self) -> Asked;
}

fn these(resource: Resource) -> Asked {
    Asked::These(vec![resource])
}

fn checked(validate_only: bool, resources: Vec<Resource>) -> Asked {
    if validate_only { Asked::Check(resources) } else { Asked::These(resources) }
}

macro_rules! asks {
    ($($field:ident => $of:path: $($request:ident),+;)+) => {
        $($(impl Asks for v1::$request {
            fn asked(&self) -> Asked {
                these($of(&self.$field))
            }
        })+)+
    };
}
asks! {
    name => Resource::named: CancelOperationRequest, CordonCardRequest, CordonRegionRequest,
        DeleteBitstreamRequest, DeleteDagRequest, DeleteNtTypeRequest, DeleteOperationRequest,
        DeleteRuleRequest, DeleteTenantRequest, DrainCardRequest, DrainRegionRequest,
        ExplainDagRequest, GetBitstreamRequest, GetCardRequest, GetDagRequest, GetFairnessRequest,
        GetNtTypeRequest, GetOperationRequest, GetRegionRequest, GetRuleRequest, GetTenantRequest,
        LoadRoleRequest, RemoveCardRequest, ReplaceCardRequest, ResetRegionRequest,
        RetryBitstreamRequest, UncordonCardRequest, UndrainRegionRequest, WaitOperationRequest,
        WatchPacketsRequest;
    card => Resource::named: RecommendBitstreamsRequest;
    parent => Resource::below: ListBindingsRequest, ListDagsRequest, ListRegionsRequest,
        WatchBindingsRequest, WatchDagsRequest, WatchRegionsRequest;
    // Filters by a resource: without one, all.
    dag => Resource::below: ListRulesRequest;
    target => Resource::below: ListOperationsRequest;
    tenant => Resource::below: ListAuditEntriesRequest;
}

macro_rules! about_everything {
    ($($request:ident),+ $(,)?) => {
        $(impl Asks for v1::$request {
            fn asked(&self) -> Asked {
                these(Resource::everything())
            }
        })+
    };
}
about_everything! {
    DownloadBackupRequest, GetDiagnosticsRequest, GetMaintenanceRequest, ListBitstreamsRequest,
    ListCardsRequest, ListEventsRequest, ListFairnessRequest, ListNtTypesRequest,
    ListTenantsRequest, SetMaintenanceRequest, WatchBitstreamsRequest, WatchCardsRequest,
    WatchEventsRequest, WatchNtTypesRequest, WatchOperationsRequest, WatchRulesRequest,
    WatchTenantsRequest,
}

macro_rules! asks_later {
    ($what:ident: $($request:ty),+) => {
        $(impl Asks for $request {
            fn asked(&self) -> Asked {
                Asked::$what
            }
        })+
    };
}
// Whose a binding is stands in its record only.
asks_later!(Found: v1::GetBindingRequest, v1::HeartbeatRequest, v1::UnbindVmRequest);
// The header is the first message of the stream.
asks_later!(Found: tonic::Streaming<v1::UploadBitstreamRequest>);
asks_later!(Nothing: v1::CheckAccessRequest, v1::WhoAmIRequest);

impl Asks for v1::CreateDagRequest {
    fn asked(&self) -> Asked {
        checked(self.validate_only, vec![dag(&self.parent, &self.dag_id)])
    }
}

impl Asks for v1::BatchCreateDagsRequest {
    fn asked(&self) -> Asked {
        let of = |one: &v1::CreateDagRequest| match one.parent.as_str() {
            "" => dag(&self.parent, &one.dag_id),
            parent => dag(parent, &one.dag_id),
        };
        // The parent too: a batch may be empty.
        let all = std::iter::once(Resource::named(&self.parent));
        checked(self.validate_only, all.chain(self.requests.iter().map(of)).collect())
    }
}

impl Asks for v1::UpdateDagRequest {
    fn asked(&self) -> Asked {
        let name = self.dag.as_ref().map_or("", |dag| &dag.name);
        checked(self.validate_only, vec![Resource::named(name)])
    }
}

impl Asks for v1::OptimizeCardRequest {
    fn asked(&self) -> Asked {
        checked(self.validate_only, vec![Resource::named(&self.name)])
    }
}

impl Asks for v1::CreateTenantRequest {
    fn asked(&self) -> Asked {
        these(Resource::named(&format!("tenants/{}", self.tenant_id)))
    }
}

impl Asks for v1::UpdateTenantRequest {
    fn asked(&self) -> Asked {
        these(Resource::named(self.tenant.as_ref().map_or("", |tenant| &tenant.name)))
    }
}

impl Asks for v1::CreateNtTypeRequest {
    fn asked(&self) -> Asked {
        these(Resource::named(&format!("ntTypes/{}", self.nt_type_id)))
    }
}

impl Asks for v1::BitstreamHeader {
    fn asked(&self) -> Asked {
        these(Resource::named(&format!("bitstreams/{}", self.bitstream_id)))
    }
}

impl Asks for v1::CreateRuleRequest {
    fn asked(&self) -> Asked {
        let rule = Resource::named(&format!("classificationRules/{}", self.rule_id));
        Asked::These(with_dag(rule, self.rule.as_ref()))
    }
}

impl Asks for v1::UpdateRuleRequest {
    fn asked(&self) -> Asked {
        let name = self.rule.as_ref().map_or("", |rule| &rule.name);
        Asked::These(with_dag(Resource::named(name), self.rule.as_ref()))
    }
}

impl Asks for v1::BindVmRequest {
    fn asked(&self) -> Asked {
        let binding = Resource::named(&format!("vmBindings/{}", self.vm));
        these(match Resource::named(&self.tenant).tenant {
            Some(tenant) => binding.owned_by(&tenant),
            None => binding,
        })
    }
}

fn dag(parent: &str, id: &str) -> Resource {
    Resource::named(&format!("{parent}/dags/{id}"))
}

/// A rule, and the DAG to which it leads packets. An operator's rule has no tenant in its name, but its DAG has.
fn with_dag(rule: Resource, content: Option<&v1::Rule>) -> Vec<Resource> {
    match content.map(|content| Resource::named(&content.dag)) {
        Some(dag) if dag.tenant.is_some() => {
            let owner = dag.tenant.clone().unwrap_or_default();
            let rule = if rule.tenant.is_none() { rule.owned_by(&owner) } else { rule };
            vec![rule, dag]
        }
        _ => vec![rule],
    }
}
