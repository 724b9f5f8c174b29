//! `snicctl fleet`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use snic_api::fleet_v1::{
    CordonHostRequest, CreateHostRequest, CreateProjectRequest, DeleteHostRequest,
    DeleteProjectRequest, DrainAreaRequest, DrainHostRequest, GetAreaDrainRequest, GetFleetRequest,
    GetFleetResponse, GetHostRequest, GetProjectRequest, GetRebalanceRequest, Host, HostCard,
    HostView, ListHostsRequest, ListProjectsRequest, Project, SetTenantProjectRequest,
    StartRebalanceRequest, StopRebalanceRequest, UncordonHostRequest, UndrainAreaRequest,
    UndrainHostRequest, UpdateProjectRequest, WatchHostsRequest, WatchHostsResponse, rebalance,
};
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::lists::{self, PAGE_SIZE, pages};
use snic_client::names;
use snic_client::output::visible::shown;
use snic_client::output::{Style, fleet_views as views};
use snic_domain::MonthBudget;

use super::{CliSession, policy, request_id, reservation};
use crate::args::{FleetCommands, HostCommand, ProjectCommand, ProjectLimits};

/// Interval between looks at the rebalance that is waited for.
const REBALANCE_POLL: Duration = Duration::from_millis(500);
/// Largest file of a host: it has some cards, with a profile each.
const HOST_BYTES_MAX: u64 = 4 << 20;

pub async fn run(session: &mut CliSession, command: FleetCommands) -> Result<(), Failure> {
    let client = session.client()?;
    match command {
        FleetCommands::Status => {
            let status = call!(client, fleet.get_fleet, GetFleetRequest {})?;
            let rebalance = lists::rebalance(&client).await?.map(shown);
            let view = |of: &GetFleetResponse, style| views::status(of, rebalance.as_ref(), style);
            session.output.one(&status, view)
        }
        FleetCommands::Host(command) => host(session, &client, command).await,
        FleetCommands::Find(search) => reservation::find(session, &client, search).await,
        FleetCommands::Reservation(command) => reservation::run(session, &client, command).await,
        FleetCommands::Drain { area, moves_max } => {
            let request = DrainAreaRequest { area: names::area(&area), moves_max };
            let drain = call!(client, fleet.drain_area => drain, request)?;
            session.output.one(&drain, views::drain)
        }
        FleetCommands::DrainStatus { area } => {
            let request = GetAreaDrainRequest { area: names::area(&area) };
            let drain = call!(client, fleet.get_area_drain => drain, request)?;
            session.output.one(&drain, views::drain)
        }
        FleetCommands::Undrain { area } => {
            let area = names::area(&area);
            let request = UndrainAreaRequest { area: area.clone() };
            let _ = call!(client, fleet.undrain_area, request)?;
            session.deleted(&format!("the drain of {area}"))
        }
        FleetCommands::Rebalance { zone, moves_max, tolerance, dry_run, wait } => {
            let request = StartRebalanceRequest {
                zone: zone.map(|zone| names::area(&zone)).unwrap_or_default(),
                moves_max,
                tolerance_percent: tolerance,
                validate_only: dry_run,
                request_id: request_id(),
            };
            let mut rebalance = call!(client, fleet.start_rebalance => rebalance, request)?;
            while wait && rebalance.state() == rebalance::State::Running {
                tokio::time::sleep(REBALANCE_POLL).await;
                let request = GetRebalanceRequest {};
                rebalance = call!(client, fleet.get_rebalance => rebalance, request)?;
            }
            session.output.one(&rebalance, views::rebalance)
        }
        FleetCommands::RebalanceStatus => {
            let request = GetRebalanceRequest {};
            let rebalance = call!(client, fleet.get_rebalance => rebalance, request)?;
            session.output.one(&rebalance, views::rebalance)
        }
        FleetCommands::RebalanceStop => {
            let request = StopRebalanceRequest { request_id: request_id() };
            let rebalance = call!(client, fleet.stop_rebalance => rebalance, request)?;
            session.output.one(&rebalance, views::rebalance)
        }
        FleetCommands::Project(command) => project(session, &client, command).await,
        FleetCommands::Policy(command) => policy::run(session, &client, command).await,
    }
}

async fn host(
    session: &mut CliSession,
    client: &Client,
    command: HostCommand,
) -> Result<(), Failure> {
    let host = match command {
        HostCommand::List => {
            let hosts = pages(async |page_token| {
                let view = HostView::Basic.into();
                let request = ListHostsRequest { page_size: PAGE_SIZE, page_token, view };
                let reply = call!(client, fleet.list_hosts, request)?;
                Ok((reply.hosts, reply.next_page_token))
            });
            return session.output.many(&hosts.await?, views::hosts);
        }
        HostCommand::Get { name } => {
            let request = GetHostRequest { name: names::host(&name) };
            let host = call!(client, fleet.get_host => host, request)?;
            return session.output.one(&host, views::host);
        }
        HostCommand::Watch => return watch_hosts(session, client).await,
        HostCommand::Delete { name } => {
            let name = names::host(&name);
            let request = DeleteHostRequest { name: name.clone(), request_id: request_id() };
            let _ = call!(client, fleet.delete_host, request)?;
            return session.deleted(&name);
        }
        HostCommand::Create { name, from } => {
            let name = names::host(&name);
            let request = CreateHostRequest {
                host_id: name.trim_start_matches("hosts/").to_owned(),
                host: Some(read(&from)?),
                request_id: request_id(),
            };
            call!(client, fleet.create_host => host, request)?
        }
        HostCommand::Cordon { name } => {
            let request = CordonHostRequest { name: names::host(&name) };
            call!(client, fleet.cordon_host => host, request)?
        }
        HostCommand::Uncordon { name } => {
            let request = UncordonHostRequest { name: names::host(&name) };
            call!(client, fleet.uncordon_host => host, request)?
        }
        HostCommand::Drain { name } => {
            let request = DrainHostRequest { name: names::host(&name) };
            call!(client, fleet.drain_host => host, request)?
        }
        HostCommand::Undrain { name } => {
            let request = UndrainHostRequest { name: names::host(&name) };
            call!(client, fleet.undrain_host => host, request)?
        }
    };
    session.output.one(&host, views::host)
}

async fn watch_hosts(session: &mut CliSession, client: &Client) -> Result<(), Failure> {
    let open = async |resume_revision| {
        let request = WatchHostsRequest { resume_revision, view: HostView::Basic.into() };
        snic_client::open!(client, fleet.watch_hosts, request)
    };
    let print = |event: WatchHostsResponse| {
        session.output.event(&event, views::host_event)?;
        Ok(event.revision)
    };
    snic_client::follow(client, open, print).await
}

async fn project(
    session: &mut CliSession,
    client: &Client,
    command: ProjectCommand,
) -> Result<(), Failure> {
    let project = match command {
        ProjectCommand::List => {
            let projects = pages(async |page_token| {
                let request = ListProjectsRequest { page_size: PAGE_SIZE, page_token };
                let reply = call!(client, projects.list_projects, request)?;
                Ok((reply.projects, reply.next_page_token))
            });
            return session.output.many(&projects.await?, views::projects);
        }
        ProjectCommand::Get { name } => {
            let request = GetProjectRequest { name: names::project(&name) };
            call!(client, projects.get_project => project, request)?
        }
        ProjectCommand::Create { name, limits } => {
            let request = CreateProjectRequest {
                project_id: names::project(&name).trim_start_matches("projects/").to_owned(),
                project: Some(limits.project(String::new(), String::new())),
                request_id: request_id(),
            };
            call!(client, projects.create_project => project, request)?
        }
        ProjectCommand::Update { name, limits, guard } => {
            if limits.is_empty() {
                let hint = "add --dags-max, --bandwidth-max or --month-budget";
                return Err(Failure::usage("nothing to change", hint));
            }
            let project = Some(limits.project(names::project(&name), guard.into_etag()));
            let request = UpdateProjectRequest { project, request_id: request_id() };
            call!(client, projects.update_project => project, request)?
        }
        ProjectCommand::Delete { name, guard } => {
            let name = names::project(&name);
            let request = DeleteProjectRequest {
                name: name.clone(),
                request_id: request_id(),
                etag: guard.guard.into_etag(),
                allow_missing: guard.allow_missing,
            };
            let _ = call!(client, projects.delete_project, request)?;
            return session.deleted(&name);
        }
        ProjectCommand::Add { name, tenant } => {
            let project = names::project(&name);
            return assign(session, client, &tenant, project).await;
        }
        ProjectCommand::Remove { tenant } => {
            return assign(session, client, &tenant, String::new()).await;
        }
    };
    let row = |of: &Project, style: Style| views::projects(std::slice::from_ref(of), style);
    session.output.one(&project, row)
}

/// Puts a tenant in a project; an empty one is none.
async fn assign(
    session: &mut CliSession,
    client: &Client,
    tenant: &str,
    project: String,
) -> Result<(), Failure> {
    let (tenant, request_id) = (names::tenant(tenant)?, request_id());
    let text = match project.as_str() {
        "" => format!("{tenant} is in no project\n"),
        project => format!("{tenant} is in {project}\n"),
    };
    let data = serde_json::json!({ "tenant": tenant, "project": project });
    let request = SetTenantProjectRequest { tenant, project, request_id };
    let _ = call!(client, projects.set_tenant_project, request)?;
    session.output.plain(&data, &text)
}

impl ProjectLimits {
    fn is_empty(&self) -> bool {
        let Self { dags_max, bandwidth_max, month_budget } = self;
        dags_max.is_none() && bandwidth_max.is_none() && month_budget.is_none()
    }

    fn project(&self, name: String, etag: String) -> Project {
        // A project's update has no mask, so that there is none is a number.
        let micros = |budget: MonthBudget| budget.micros().unwrap_or(u64::MAX);
        Project {
            name,
            etag,
            dags_max: self.dags_max,
            bandwidth_max_bps: self.bandwidth_max.map(|limit| limit.get()),
            month_budget_micros: self.month_budget.map(micros),
            ..Project::default()
        }
    }
}

/// Output of `snicd host-spec`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostFile {
    zone: String,
    rack: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    is_cordoned: bool,
    #[serde(default)]
    cards: BTreeMap<String, CardFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CardFile {
    profile: serde_json::Value,
    #[serde(default)]
    functions: u32,
    #[serde(default)]
    is_cordoned: bool,
}

/// Reads a host, from standard input for `-`.
fn read(path: &Path) -> Result<Host, Failure> {
    let failed = |source: io::Error| Failure::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().take(HOST_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        let file = File::open(path).map_err(failed)?;
        file.take(HOST_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    }
    let file: HostFile = serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("{} is not a host: {error}", path.display());
        Failure::usage(message, "write it with `snicd host-spec` on the host")
    })?;
    let HostFile { zone, rack, labels, is_cordoned: cordoned, cards } = file;
    let cards = cards.into_iter().map(|(card, of)| HostCard {
        card,
        profile: of.profile.to_string(),
        functions: of.functions,
        cordoned: of.is_cordoned,
        ..HostCard::default()
    });
    Ok(Host { zone, rack, labels, cordoned, cards: cards.collect(), ..Host::default() })
}
