//! Projects: tenants that share limits.

use snic_api::convert::{FieldProblem, name};
use snic_api::error::ApiError;
use snic_api::fleet_v1 as wire_v1;
use snic_api::fleet_v1::project_service_server::ProjectService;
use snic_api::page::{PageRequest, Query};
use snic_api::v1::ErrorReason;
use snic_domain::{Bandwidth, MonthBudget, Quota, QuotaPatch, TenantPatch};
use snic_fleet::protocol::{
    FleetCommand, FleetItem, FleetList, FleetName, FleetProject, FleetReply,
};
use snic_fleet::{ProjectChange, ProjectId};
use snic_front::fields::{etag, repeat_of};
use snic_front::gate::caller;
use tonic::{Request, Response};

use super::{RpcResult, Services, unexpected};
use crate::wire;

fn of_item(item: FleetItem) -> Result<FleetProject, ApiError> {
    match item {
        FleetItem::Project(project) => Ok(project),
        other => Err(unexpected(&FleetReply::Item(Box::new(other)))),
    }
}

/// The limits that are set.
fn limits(of: &wire_v1::Project) -> Result<QuotaPatch, ApiError> {
    let bandwidth_max = of.bandwidth_max_bps.map(Bandwidth::from_bps);
    let most = Quota::UNLIMITED.bandwidth_max;
    if let Some(wrong) = bandwidth_max.filter(|limit| *limit > most) {
        let rule = format!("{} is not allowed (allowed: 0 to {})", wrong.get(), most.get());
        let field = "project.bandwidth_max_bps";
        return Err(ApiError::in_field(ErrorReason::InvalidField, field, rule));
    }
    let (dags_max, month_budget) = (of.dags_max, of.month_budget_micros);
    let month_budget = month_budget.map(MonthBudget::from_micros);
    Ok(QuotaPatch { dags_max, bandwidth_max, month_budget, ..QuotaPatch::default() })
}

#[tonic::async_trait]
impl ProjectService for Services {
    async fn create_project(
        &self,
        request: Request<wire_v1::CreateProjectRequest>,
    ) -> RpcResult<wire_v1::CreateProjectResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = ProjectId::new(&request.project_id)
            .map_err(|error| ApiError::from(FieldProblem::name("project_id", error)))?;
        let quota = limits(&request.project.unwrap_or_default())?.apply(Quota::UNLIMITED);
        self.check_budget("project", quota.month_budget)?;
        let repeat = repeat_of(&request.request_id)?;
        let name = FleetName::Project(id.clone());
        let command = FleetCommand::CreateProject { project: id, quota };
        let made = of_item(self.made(&caller, repeat, name, command).await?)?;
        let project = Some(wire::project(&made));
        Ok(Response::new(wire_v1::CreateProjectResponse { project }))
    }

    async fn get_project(
        &self,
        request: Request<wire_v1::GetProjectRequest>,
    ) -> RpcResult<wire_v1::GetProjectResponse> {
        let caller = caller(&request)?;
        let name = FleetName::Project(
            name::project("name", &request.into_inner().name).map_err(ApiError::from)?,
        );
        let found = of_item(self.item(&caller, name).await?)?;
        let project = Some(wire::project(&found));
        Ok(Response::new(wire_v1::GetProjectResponse { project }))
    }

    async fn list_projects(
        &self,
        request: Request<wire_v1::ListProjectsRequest>,
    ) -> RpcResult<wire_v1::ListProjectsResponse> {
        let caller = caller(&request)?;
        let wire_v1::ListProjectsRequest { page_size, page_token } = request.into_inner();
        let page = PageRequest::parse(Query::of("ListProjects"), page_size, &page_token);
        let page = page.map_err(|error| ApiError::invalid_page(&error))?;
        let after = page.after().and_then(|key| ProjectId::new(key).ok()).map(FleetName::Project);
        let command = FleetCommand::List { of: FleetList::Projects, after, most: page.limit() };
        match self.ask(&caller, None, command).await? {
            FleetReply::Items { items, next, .. } => {
                let found = items.into_iter().map(of_item).collect::<Result<Vec<_>, _>>()?;
                let last = found.last().filter(|_| next.is_some());
                let next_page_token =
                    last.map_or(String::new(), |last| page.token_after(last.project.as_str()));
                let projects = found.iter().map(wire::project).collect();
                Ok(Response::new(wire_v1::ListProjectsResponse { projects, next_page_token }))
            }
            other => Err(unexpected(&other).into()),
        }
    }

    async fn update_project(
        &self,
        request: Request<wire_v1::UpdateProjectRequest>,
    ) -> RpcResult<wire_v1::UpdateProjectResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let wanted = request.project.ok_or_else(|| ApiError::required("project"))?;
        let id = name::project("project.name", &wanted.name).map_err(ApiError::from)?;
        let (quota, etag) = (limits(&wanted)?, etag(&wanted.etag));
        self.check_budget("project", quota.month_budget.unwrap_or_default())?;
        let repeat = repeat_of(&request.request_id)?;
        let name = FleetName::Project(id.clone());
        let command = FleetCommand::UpdateProject { project: id, quota, etag };
        let changed = of_item(self.made(&caller, repeat, name, command).await?)?;
        let project = Some(wire::project(&changed));
        Ok(Response::new(wire_v1::UpdateProjectResponse { project }))
    }

    async fn delete_project(
        &self,
        request: Request<wire_v1::DeleteProjectRequest>,
    ) -> RpcResult<wire_v1::DeleteProjectResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let name =
            FleetName::Project(name::project("name", &request.name).map_err(ApiError::from)?);
        let command = FleetCommand::Delete { name, etag: etag(&request.etag), force: false };
        let repeat = repeat_of(&request.request_id)?;
        self.delete(&caller, repeat, request.allow_missing, command).await?;
        Ok(Response::new(wire_v1::DeleteProjectResponse {}))
    }

    async fn set_tenant_project(
        &self,
        request: Request<wire_v1::SetTenantProjectRequest>,
    ) -> RpcResult<wire_v1::SetTenantProjectResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let tenant = name::tenant("tenant", &request.tenant).map_err(ApiError::from)?;
        let change = match request.project.as_str() {
            "" => ProjectChange::Leave,
            text => ProjectChange::Join(name::project("project", text).map_err(ApiError::from)?),
        };
        let repeat = repeat_of(&request.request_id)?;
        let (patch, etag) = (TenantPatch::default(), None);
        let command = FleetCommand::UpdateTenant { tenant, patch, project: change, etag };
        self.ask(&caller, repeat, command).await?;
        let project = request.project;
        Ok(Response::new(wire_v1::SetTenantProjectResponse { project }))
    }
}
