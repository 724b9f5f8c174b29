//! `snicctl tenant`.

use prost_types::FieldMask;
use snic_api::v1::{
    CreateTenantRequest, DeleteTenantRequest, GetTenantRequest, Quota, Tenant, UpdateTenantRequest,
};

use super::{CliSession, list, request_id, watch};
use crate::args::{TenantCommand, TenantLimits};
use snic_client::Failure;
use snic_client::call;
use snic_client::names;
use snic_client::output::{changes, text, views};
use snic_domain::MonthBudget;

pub async fn run(session: &mut CliSession, command: TenantCommand) -> Result<(), Failure> {
    match command {
        TenantCommand::Create { name, limits, notes } => {
            let labels = notes.labels();
            let tenant = Tenant { labels, description: notes.description, ..limits.tenant() };
            let request = CreateTenantRequest {
                tenant_id: text::id(&names::tenant(&name)?).to_owned(),
                tenant: Some(tenant),
                request_id: request_id(),
                validate_only: false,
            };
            let tenant = call!(session.client()?, tenants.create_tenant => tenant, request)?;
            session.output.one(&tenant, views::tenant)
        }
        TenantCommand::List(selected) => {
            list!(
                session,
                tenants.list_tenants(ListTenantsRequest {}) => tenants,
                selected.whole(),
                views::tenants
            )
        }
        TenantCommand::Watch => {
            watch!(session, tenants.watch_tenants(WatchTenantsRequest), changes::tenant_event)
        }
        TenantCommand::Get { name } => {
            let own = || session.tenant()?.ok_or_else(no_tenant);
            let name = names::tenant(&name.map_or_else(own, Ok)?)?;
            let request = GetTenantRequest { name };
            let tenant = call!(session.client()?, tenants.get_tenant => tenant, request)?;
            session.output.one(&tenant, views::tenant)
        }
        TenantCommand::Update { name, limits, notes, guard } => {
            let mut paths = limits.paths();
            paths.extend(notes.paths());
            let (labels, description) = notes.values();
            if paths.is_empty() {
                let hint = "add an option, such as --weight or --dags-max";
                return Err(Failure::usage("nothing to change", hint));
            }
            let (name, etag) = (names::tenant(&name)?, guard.into_etag());
            let request = UpdateTenantRequest {
                tenant: Some(Tenant { name, etag, labels, description, ..limits.tenant() }),
                update_mask: Some(FieldMask { paths }),
                request_id: request_id(),
                validate_only: false,
            };
            let tenant = call!(session.client()?, tenants.update_tenant => tenant, request)?;
            session.output.one(&tenant, views::tenant)
        }
        TenantCommand::Delete { name, force, wait, guard } => {
            let name = names::tenant(&name)?;
            let request = DeleteTenantRequest {
                name: name.clone(),
                force,
                allow_missing: guard.allow_missing,
                etag: guard.guard.into_etag(),
                request_id: request_id(),
            };
            let client = session.client()?;
            match call!(client, tenants.delete_tenant, request)?.operation {
                Some(operation) => session.finish(&client, operation, wait).await,
                None => session.deleted(&name),
            }
        }
    }
}

fn no_tenant() -> Failure {
    Failure::usage("no tenant given", "add its id, or set the tenant of the context")
}

impl TenantLimits {
    /// The resource with the given limits.
    fn tenant(&self) -> Tenant {
        let quota = Quota {
            dags_max: self.dags_max,
            bandwidth_max_bps: self.bandwidth_max.map(|rate| rate.get()),
            bitstreams_max: self.bitstreams_max,
            bitstream_bytes_max: self.bitstream_bytes_max.map(|size| size.get()),
            memory_max_bytes: self.memory_max.map(|size| size.get()),
            nt_types_max: self.nt_types_max,
            rules_max: self.rules_max,
            machines_max: self.machines_max,
            operations_max: self.operations_max,
            threads_max: self.threads_max,
            month_budget_micros: self.month_budget.and_then(MonthBudget::micros),
        };
        let quota = (quota != Quota::default()).then_some(quota);
        let project = self.project.as_deref().filter(|name| *name != "none");
        let project = project.map(names::project).unwrap_or_default();
        Tenant { weight: self.weight.unwrap_or(0), quota, project, ..Tenant::default() }
    }

    /// The given fields, as paths of an update mask.
    fn paths(&self) -> Vec<String> {
        let given = [
            ("weight", self.weight.is_some()),
            ("quota.dags_max", self.dags_max.is_some()),
            ("quota.bandwidth_max_bps", self.bandwidth_max.is_some()),
            ("quota.bitstreams_max", self.bitstreams_max.is_some()),
            ("quota.bitstream_bytes_max", self.bitstream_bytes_max.is_some()),
            ("quota.memory_max_bytes", self.memory_max.is_some()),
            ("quota.nt_types_max", self.nt_types_max.is_some()),
            ("quota.rules_max", self.rules_max.is_some()),
            ("quota.machines_max", self.machines_max.is_some()),
            ("quota.operations_max", self.operations_max.is_some()),
            ("quota.threads_max", self.threads_max.is_some()),
            ("quota.month_budget_micros", self.month_budget.is_some()),
            ("project", self.project.is_some()),
        ];
        let given = given.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(path, _)| path.to_owned()).collect()
    }
}
