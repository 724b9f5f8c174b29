//! Tenants.

use snic_api::convert::{id, name, tenant};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::tenant_service_server::TenantService;
use snic_controller::{Command, Controller, Reply, ResourceKind, TenantView};
use snic_domain::{Caller, TenantId};
use snic_front::gate::caller;
use tonic::{Request, Response};

use super::watching::{Event, Events, WatchSpec};
use super::{MissingPolicy, RpcResult, Services, absent, etag, listing, repeat_of, reply_as};
use crate::error::OperationKind;
use crate::hub::Topic;
use crate::wire;

#[tonic::async_trait]
impl TenantService for Services {
    async fn create_tenant(
        &self,
        request: Request<v1::CreateTenantRequest>,
    ) -> RpcResult<v1::CreateTenantResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = id("tenant_id", &request.tenant_id).map_err(ApiError::from)?;
        let tenant = tenant::tenant(id, request.tenant.as_ref())?;
        if request.validate_only {
            self.check(&caller, Command::CreateTenant(tenant)).await?;
            return Ok(Response::new(Default::default()));
        }
        let repeat = repeat_of(&request.request_id)?;
        let reply =
            self.ask(&caller, repeat, Command::CreateTenant(tenant), OperationKind::Change).await?;
        reply_as!(reply, Reply::Tenant(view) => Response::new(wire::tenant(&view).into()))
    }

    async fn get_tenant(
        &self,
        request: Request<v1::GetTenantRequest>,
    ) -> RpcResult<v1::GetTenantResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let id = name::tenant("name", &name).map_err(ApiError::from)?;
        let view = self.tenant(&caller, id).await?;
        Ok(Response::new(wire::tenant(&view).into()))
    }

    async fn list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> RpcResult<v1::ListTenantsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let listing = listing!(v1::Tenant, Query::of("ListTenants"), request)?;
        let (page, revision) = self
            .page(
                &caller,
                &listing,
                move |controller, _, after, limit| {
                    let after = after.and_then(|key| TenantId::new(key).ok());
                    controller.tenants_after(after.as_ref()).take(limit).collect()
                },
                |view: &TenantView| (view.tenant.id.to_string(), wire::tenant(view)),
            )
            .await?;
        Ok(Response::new(v1::ListTenantsResponse {
            tenants: page.items,
            next_page_token: page.next_page_token,
            revision,
        }))
    }

    async fn update_tenant(
        &self,
        request: Request<v1::UpdateTenantRequest>,
    ) -> RpcResult<v1::UpdateTenantResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let tenant = request.tenant.ok_or_else(|| ApiError::required("tenant"))?;
        let id = name::tenant("tenant.name", &tenant.name).map_err(ApiError::from)?;
        let patch = tenant::patch(&tenant, request.update_mask.as_ref())?;
        let command = Command::UpdateTenant { id, patch, etag: etag(&tenant.etag) };
        if request.validate_only {
            self.check(&caller, command).await?;
            return Ok(Response::new(Default::default()));
        }
        let repeat = repeat_of(&request.request_id)?;
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await?;
        reply_as!(reply, Reply::Tenant(view) => Response::new(wire::tenant(&view).into()))
    }

    async fn delete_tenant(
        &self,
        request: Request<v1::DeleteTenantRequest>,
    ) -> RpcResult<v1::DeleteTenantResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = name::tenant("name", &request.name).map_err(ApiError::from)?;
        let etag = etag(&request.etag);
        let repeat = repeat_of(&request.request_id)?;
        let command = Command::DeleteTenant { id, force: request.force, etag };
        let reply = self.ask(&caller, repeat, command, OperationKind::Delete).await;
        let operation = MissingPolicy::from(request.allow_missing).or_begun(reply, &caller)?;
        Ok(Response::new(v1::DeleteTenantResponse { operation }))
    }

    type WatchTenantsStream = Events<v1::WatchTenantsResponse>;

    async fn watch_tenants(
        &self,
        request: Request<v1::WatchTenantsRequest>,
    ) -> RpcResult<Self::WatchTenantsStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let topic = Topic::Resources(ResourceKind::Tenant, None);
        let piece = |controller: &Controller, _: &Caller, after: Option<&TenantView>, most| {
            controller.tenants_after(after.map(|view| &view.tenant.id)).take(most).collect()
        };
        let event = move |event: Event<'_, TenantView>| v1::WatchTenantsResponse {
            r#type: event.kind().into(),
            tenant: event.message(wire::tenant, |name| v1::Tenant { name, ..Default::default() }),
            revision: event.revision,
        };
        let subject = WatchSpec { topic, caller, piece, event };
        Ok(Response::new(self.watch(subject, resume).await?))
    }
}

impl Services {
    /// One tenant that the caller may see.
    pub(super) async fn tenant(
        &self,
        caller: &Caller,
        id: TenantId,
    ) -> Result<TenantView, ApiError> {
        let name = name::of_tenant(&id);
        let visible = caller.may_change(Some(&id));
        let view = self.read(caller, move |controller, _| controller.tenant_view(&id)).await?;
        view.filter(|_| visible).ok_or_else(|| absent(&name))
    }
}
