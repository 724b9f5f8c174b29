//! Actions for resources of each kind.

use prost_types::FieldMask;
use snic_api::v1::{
    CreateDagRequest, CreateNtTypeRequest, CreateRuleRequest, CreateTenantRequest, Dag,
    DeleteBitstreamRequest, DeleteDagRequest, DeleteNtTypeRequest, DeleteRuleRequest,
    DeleteTenantRequest, GetDagRequest, GetNtTypeRequest, GetRuleRequest, GetTenantRequest,
    ListBitstreamsRequest, ListDagsRequest, ListNtTypesRequest, ListRulesRequest,
    ListTenantsRequest, NtType, Operation, Rule, Tenant, UpdateDagRequest, UpdateRuleRequest,
    UpdateTenantRequest,
};
use snic_client::lists::{PAGE_SIZE, pages};
use snic_client::output::message::PrintedMessage;
use snic_client::output::text;
use snic_client::{Client, Failure, call};
use snic_dagfile::DocumentKind;

use super::super::request_id;

/// Operation that a change or a deletion began, if it takes longer than the call.
pub type BegunOperation = Option<Operation>;

/// A resource that files describe.
pub trait FileResource: PrintedMessage + Default {
    /// Name in the server's errors about a request's fields.
    const FIELD: &'static str;

    fn etag(&self) -> &str;
    fn set(&mut self, name: String, etag: String);
    async fn get(client: &Client, name: String) -> Result<Self, Failure>;
    async fn create(
        self,
        client: &Client,
        name: &str,
        dry: bool,
    ) -> Result<BegunOperation, Failure>;
    /// Changes these fields; `None` where such a resource never changes.
    async fn update(
        self,
        client: &Client,
        paths: Vec<String>,
        dry: bool,
    ) -> Option<Result<BegunOperation, Failure>>;
}

macro_rules! basics {
    ($service:ident.$get:ident($request:ident) => $field:ident) => {
        const FIELD: &'static str = stringify!($field);

        fn etag(&self) -> &str {
            &self.etag
        }

        fn set(&mut self, name: String, etag: String) {
            (self.name, self.etag) = (name, etag);
        }

        async fn get(client: &Client, name: String) -> Result<Self, Failure> {
            call!(client, $service.$get => $field, $request { name })
        }
    };
}

fn mask(paths: Vec<String>) -> Option<FieldMask> {
    Some(FieldMask { paths })
}

impl FileResource for Tenant {
    basics!(tenants.get_tenant(GetTenantRequest) => tenant);

    async fn create(
        self,
        client: &Client,
        name: &str,
        dry: bool,
    ) -> Result<BegunOperation, Failure> {
        let request = CreateTenantRequest {
            tenant_id: text::id(name).to_owned(),
            tenant: Some(self),
            request_id: request_id(),
            validate_only: dry,
        };
        call!(client, tenants.create_tenant, request).map(|_| None)
    }

    async fn update(
        self,
        client: &Client,
        paths: Vec<String>,
        dry: bool,
    ) -> Option<Result<BegunOperation, Failure>> {
        let request = UpdateTenantRequest {
            tenant: Some(self),
            update_mask: mask(paths),
            request_id: request_id(),
            validate_only: dry,
        };
        Some(call!(client, tenants.update_tenant, request).map(|_| None))
    }
}

impl FileResource for NtType {
    basics!(nts.get_nt_type(GetNtTypeRequest) => nt_type);

    async fn create(
        self,
        client: &Client,
        name: &str,
        dry: bool,
    ) -> Result<BegunOperation, Failure> {
        let request = CreateNtTypeRequest {
            nt_type_id: text::id(name).to_owned(),
            nt_type: Some(self),
            request_id: request_id(),
            validate_only: dry,
        };
        call!(client, nts.create_nt_type, request).map(|_| None)
    }

    async fn update(
        self,
        _: &Client,
        _: Vec<String>,
        _: bool,
    ) -> Option<Result<BegunOperation, Failure>> {
        None
    }
}

impl FileResource for Rule {
    basics!(rules.get_rule(GetRuleRequest) => rule);

    async fn create(
        self,
        client: &Client,
        name: &str,
        dry: bool,
    ) -> Result<BegunOperation, Failure> {
        let request = CreateRuleRequest {
            rule_id: text::id(name).to_owned(),
            rule: Some(self),
            request_id: request_id(),
            validate_only: dry,
        };
        call!(client, rules.create_rule, request).map(|_| None)
    }

    async fn update(
        self,
        client: &Client,
        paths: Vec<String>,
        dry: bool,
    ) -> Option<Result<BegunOperation, Failure>> {
        // A match is changed as a whole.
        let mut paths: Vec<String> =
            paths.iter().map(|path| path.split('.').next().unwrap_or(path).to_owned()).collect();
        paths.dedup();
        let (rule, update_mask) = (Some(self), mask(paths));
        let (request_id, validate_only) = (request_id(), dry);
        let request = UpdateRuleRequest { rule, update_mask, request_id, validate_only };
        Some(call!(client, rules.update_rule, request).map(|_| None))
    }
}

impl FileResource for Dag {
    basics!(dags.get_dag(GetDagRequest) => dag);

    async fn create(
        self,
        client: &Client,
        name: &str,
        dry: bool,
    ) -> Result<BegunOperation, Failure> {
        let (parent, dag_id) = name.split_once("/dags/").unwrap_or((name, ""));
        let request = CreateDagRequest {
            parent: parent.to_owned(),
            dag_id: dag_id.to_owned(),
            dag: Some(self),
            validate_only: dry,
            request_id: request_id(),
        };
        call!(client, dags.create_dag => operation, request).map(Some)
    }

    async fn update(
        self,
        client: &Client,
        paths: Vec<String>,
        dry: bool,
    ) -> Option<Result<BegunOperation, Failure>> {
        let request = UpdateDagRequest {
            dag: Some(self),
            update_mask: mask(paths),
            validate_only: dry,
            request_id: request_id(),
        };
        Some(call!(client, dags.update_dag => operation, request).map(Some))
    }
}

/// One of the server's, or `None` where there is none of this name.
pub async fn present<R: FileResource>(client: &Client, name: &str) -> Result<Option<R>, Failure> {
    or_missing(R::get(client, name.to_owned()).await)
}

fn or_missing<R>(found: Result<R, Failure>) -> Result<Option<R>, Failure> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.missing().is_some() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The names of all resources of a kind for which a filter holds. DAGs are those of `parent`.
pub async fn names(
    client: &Client,
    kind: DocumentKind,
    parent: &str,
    filter: &str,
) -> Result<Vec<String>, Failure> {
    macro_rules! list {
        ($service:ident.$method:ident($request:ident { $($field:ident: $value:expr),* }) => $items:ident) => {
            pages(async |page_token| {
                let request = $request {
                    $($field: $value,)*
                    page_size: PAGE_SIZE,
                    page_token,
                    filter: filter.to_owned(),
                    order_by: String::new(),
                };
                let reply = call!(client, $service.$method, request)?;
                let names = reply.$items.into_iter().map(|item| item.name).collect();
                Ok((names, reply.next_page_token))
            })
            .await
        };
    }
    match kind {
        DocumentKind::Tenant => list!(tenants.list_tenants(ListTenantsRequest {}) => tenants),
        DocumentKind::NtType => list!(nts.list_nt_types(ListNtTypesRequest {}) => nt_types),
        DocumentKind::Bitstream => {
            list!(bitstreams.list_bitstreams(ListBitstreamsRequest {}) => bitstreams)
        }
        DocumentKind::Dag => {
            list!(dags.list_dags(ListDagsRequest { parent: parent.to_owned() }) => dags)
        }
        DocumentKind::Rule => {
            list!(rules.list_rules(ListRulesRequest { dag: String::new() }) => rules)
        }
    }
}

/// Deletes one; that it is gone already is no error.
pub async fn delete(
    client: &Client,
    kind: DocumentKind,
    name: String,
) -> Result<BegunOperation, Failure> {
    let (allow_missing, request_id, etag) = (true, request_id(), String::new());
    match kind {
        DocumentKind::Tenant => {
            let force = false;
            let request = DeleteTenantRequest { name, allow_missing, request_id, etag, force };
            call!(client, tenants.delete_tenant, request).map(|reply| reply.operation)
        }
        DocumentKind::NtType => {
            let request = DeleteNtTypeRequest { name, allow_missing, request_id, etag };
            call!(client, nts.delete_nt_type, request).map(|_| None)
        }
        DocumentKind::Bitstream => {
            let image_digest = String::new();
            let request =
                DeleteBitstreamRequest { name, allow_missing, request_id, etag, image_digest };
            call!(client, bitstreams.delete_bitstream, request).map(|reply| reply.operation)
        }
        DocumentKind::Dag => {
            let request = DeleteDagRequest { name, allow_missing, request_id, etag };
            call!(client, dags.delete_dag => operation, request).map(Some)
        }
        DocumentKind::Rule => {
            let request = DeleteRuleRequest { name, allow_missing, request_id, etag };
            call!(client, rules.delete_rule, request).map(|_| None)
        }
    }
}
