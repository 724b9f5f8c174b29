//! Tenants.

use snic_api::convert::tenant::TenantPatch;
use snic_api::convert::{id, name, tenant};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::tenant_service_server::TenantService;
use snic_controller::{Caller, Command, ControlError, Reply, TenantView};
use snic_domain::TenantId;
use tonic::{Request, Response};

use super::{RpcResult, Services, absent, etag, page, reply_as, request_id};
use crate::error::{OperationKind, failure};
use crate::gate::caller;
use crate::shell::ShellError;
use crate::wire;

/// Attempts of an update while others change the same tenant.
const UPDATE_TRIES: usize = 8;

#[tonic::async_trait]
impl TenantService for Services {
    async fn create_tenant(
        &self,
        request: Request<v1::CreateTenantRequest>,
    ) -> RpcResult<v1::Tenant> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = id("tenant_id", &request.tenant_id).map_err(ApiError::from)?;
        let tenant = tenant::tenant(id, request.tenant.as_ref())?;
        let repeat = request_id("request_id", &request.request_id).map_err(ApiError::from)?;
        let reply =
            self.ask(&caller, repeat, Command::CreateTenant(tenant), OperationKind::Change).await?;
        reply_as!(reply, Reply::Tenant(view) => Response::new(wire::tenant(&view)))
    }

    async fn get_tenant(&self, request: Request<v1::GetTenantRequest>) -> RpcResult<v1::Tenant> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let id = name::tenant("name", &name).map_err(ApiError::from)?;
        let view = self.tenant(&caller, id).await?;
        Ok(Response::new(wire::tenant(&view)))
    }

    async fn list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> RpcResult<v1::ListTenantsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let page = page(Query::of("ListTenants"), request.page_size, &request.page_token)?;
        let after = page.after().and_then(|key| TenantId::new(key).ok());
        let page = self
            .page(
                &caller,
                &page,
                move |controller, _, limit| {
                    controller.tenants_after(after.as_ref()).take(limit).collect()
                },
                |view: &TenantView| (view.tenant.id.to_string(), wire::tenant(view)),
            )
            .await?;
        Ok(Response::new(v1::ListTenantsResponse {
            tenants: page.items,
            next_page_token: page.next_page_token,
        }))
    }

    async fn update_tenant(
        &self,
        request: Request<v1::UpdateTenantRequest>,
    ) -> RpcResult<v1::Tenant> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let tenant = request.tenant.ok_or_else(|| ApiError::required("tenant"))?;
        let id = name::tenant("tenant.name", &tenant.name).map_err(ApiError::from)?;
        let patch = TenantPatch::read(&tenant, request.update_mask.as_ref())?;
        let guard = etag(&tenant.etag);
        let view = self.update(&caller, &id, &patch, guard).await?;
        Ok(Response::new(wire::tenant(&view)))
    }

    async fn delete_tenant(&self, request: Request<v1::DeleteTenantRequest>) -> RpcResult<()> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = name::tenant("name", &request.name).map_err(ApiError::from)?;
        let (deleted, etag) = (id.clone(), etag(&request.etag));
        let command = Command::DeleteTenant { id, force: request.force, etag };
        let reply = self.ask(&caller, None, command, OperationKind::Delete).await?;
        self.0.hub.end_tenant(deleted);
        reply_as!(reply, Reply::Done => Response::new(()))
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

    /// Updates some fields. The controller sets a quota as a whole, so it is read, changed, and written
    /// back only if the tenant has not changed meanwhile.
    async fn update(
        &self,
        caller: &Caller,
        id: &TenantId,
        patch: &TenantPatch,
        guard: Option<String>,
    ) -> Result<TenantView, ApiError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let now = self.tenant(caller, id.clone()).await?;
            let command = Command::UpdateTenant {
                id: id.clone(),
                weight: patch.weight,
                quota: patch.quota(now.tenant.quota),
                etag: guard.clone().or(Some(now.etag)),
            };
            let request =
                snic_controller::Request { caller: caller.clone(), request_id: None, command };
            match self.0.plane.request(request).await {
                Ok(Reply::Tenant(view)) => return Ok(view),
                Ok(other) => return Err(super::unexpected(&other)),
                Err(ShellError::Control(ControlError::EtagMismatch { .. }))
                    if guard.is_none() && tries < UPDATE_TRIES => {}
                Err(error) => return Err(failure(error, OperationKind::Change, caller)),
            }
        }
    }
}
