//! Tenants of the fleet.

use snic_api::convert::{id, name, tenant};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::tenant_service_server::TenantService;
use snic_domain::TenantId;
use snic_fleet::protocol::{
    FleetCommand, FleetItem, FleetList, FleetName, FleetReply, FleetTenant, FleetUsage,
};
use snic_fleet::records::FleetTenantRecord;
use snic_front::fields::{etag, repeat_of};
use snic_front::gate::caller;
use snic_front::listing;
use tonic::{Request, Response};

use super::watching::{Event, Events, WatchSpec, read};
use super::{RpcResult, Services, unexpected};
use crate::wire;

fn of_item(item: FleetItem) -> Result<FleetTenant, ApiError> {
    match item {
        FleetItem::Tenant(tenant) => Ok(tenant),
        other => Err(unexpected(&FleetReply::Item(Box::new(other)))),
    }
}

#[tonic::async_trait]
impl TenantService for Services {
    async fn create_tenant(
        &self,
        request: Request<v1::CreateTenantRequest>,
    ) -> RpcResult<v1::CreateTenantResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = id("tenant_id", &request.tenant_id).map_err(ApiError::from)?;
        let mut tenant = tenant::tenant(id, request.tenant.as_ref())?;
        self.check_budget("tenant.quota", tenant.quota.month_budget)?;
        let repeat = repeat_of(&request.request_id)?;
        let name = FleetName::Tenant(tenant.id.clone());
        let project = tenant.project.take();
        let command = FleetCommand::CreateTenant { tenant, project };
        if request.validate_only {
            self.propose(&caller, None, true, command).await?;
            return Ok(Response::new(Default::default()));
        }
        let made = of_item(self.made(&caller, repeat, name, command).await?)?;
        Ok(Response::new(wire::tenant(&made).into()))
    }

    async fn get_tenant(
        &self,
        request: Request<v1::GetTenantRequest>,
    ) -> RpcResult<v1::GetTenantResponse> {
        let caller = caller(&request)?;
        let id = name::tenant("name", &request.into_inner().name).map_err(ApiError::from)?;
        let found = of_item(self.item(&caller, FleetName::Tenant(id)).await?)?;
        Ok(Response::new(wire::tenant(&found).into()))
    }

    async fn list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> RpcResult<v1::ListTenantsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let listing = listing!(v1::Tenant, Query::of("ListTenants"), request)?;
        let name = |key: &str| TenantId::new(key).ok().map(FleetName::Tenant);
        let item = |item| {
            let tenant = of_item(item).ok()?;
            Some((tenant.tenant.id.to_string(), wire::tenant(&tenant)))
        };
        let (page, revision) =
            self.page(&caller, (&listing, FleetList::Tenants), name, item).await?;
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
        let wanted = request.tenant.ok_or_else(|| ApiError::required("tenant"))?;
        let id = name::tenant("tenant.name", &wanted.name).map_err(ApiError::from)?;
        let mut patch = tenant::patch(&wanted, request.update_mask.as_ref())?;
        let budget = patch.quota.and_then(|quota| quota.month_budget).unwrap_or_default();
        self.check_budget("tenant.quota", budget)?;
        let (project, etag) = (std::mem::take(&mut patch.project), etag(&wanted.etag));
        let name = FleetName::Tenant(id.clone());
        let command = FleetCommand::UpdateTenant { tenant: id, patch, project, etag };
        if request.validate_only {
            self.propose(&caller, None, true, command).await?;
            return Ok(Response::new(Default::default()));
        }
        let repeat = repeat_of(&request.request_id)?;
        let changed = of_item(self.made(&caller, repeat, name, command).await?)?;
        Ok(Response::new(wire::tenant(&changed).into()))
    }

    async fn delete_tenant(
        &self,
        request: Request<v1::DeleteTenantRequest>,
    ) -> RpcResult<v1::DeleteTenantResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = name::tenant("name", &request.name).map_err(ApiError::from)?;
        let (name, etag) = (FleetName::Tenant(id), etag(&request.etag));
        let command = FleetCommand::Delete { name, etag, force: request.force };
        let repeat = repeat_of(&request.request_id)?;
        self.delete(&caller, repeat, request.allow_missing, command).await?;
        Ok(Response::new(v1::DeleteTenantResponse { operation: None }))
    }

    type WatchTenantsStream = Events<v1::WatchTenantsResponse>;

    /// Watches tenants. Usage is no record of a tenant, and is left out with what is spent.
    async fn watch_tenants(
        &self,
        request: Request<v1::WatchTenantsRequest>,
    ) -> RpcResult<Self::WatchTenantsStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let tenant = caller.tenant().cloned();
        let reader = tenant.clone();
        let event = move |event: Event<'_>, revision| {
            let tenant = match &event {
                Event::Bookmark => None,
                Event::Seen(_, record) => {
                    let of: FleetTenantRecord = read(record)?;
                    let is_seen = reader.as_ref().is_none_or(|reader| *reader == of.tenant.id);
                    let of = FleetTenant {
                        tenant: of.tenant,
                        project: of.project,
                        usage: FleetUsage::default(),
                        spending: None,
                        is_burst_off: of.is_burst_off,
                        dominant_share_ppb: 0,
                        is_leaving: of.is_leaving,
                        meta: of.meta,
                    };
                    let told = v1::Tenant { usage: None, ..wire::tenant(&of) };
                    Some(is_seen.then_some(told)?)
                }
                Event::Gone { name, .. } => {
                    let id = TenantId::new(name).ok()?;
                    reader.as_ref().is_none_or(|reader| *reader == id).then_some(())?;
                    Some(v1::Tenant { name: name::of_tenant(&id), ..Default::default() })
                }
            };
            Some(v1::WatchTenantsResponse { r#type: event.kind(), tenant, revision })
        };
        let spec = WatchSpec { kind: "tenants/", tenant, is_of_tenant: false, event };
        Ok(Response::new(self.watch(spec, resume).await?))
    }
}
