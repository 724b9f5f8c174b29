//! `snicctl vm`.

use std::time::Duration;

use snic_api::v1::bind_vm_request::Chains;
use snic_api::v1::{
    BindVmRequest, DagNames, GetBindingRequest, HeartbeatRequest, UnbindVmRequest, VlanIds,
    WatchBindingsRequest,
};

use super::missing::MissingHosts;
use super::{CliSession, gathered_list, request_id};
use crate::args::{NewBinding, VmCommand};
use snic_client::Failure;
use snic_client::call;
use snic_client::follow;
use snic_client::names;
use snic_client::output::vm_views as views;

/// Time to wait for the server's reply beyond the time that the card has.
const MARGIN: Duration = Duration::from_secs(10);

pub async fn run(session: &mut CliSession, command: VmCommand) -> Result<(), Failure> {
    match command {
        VmCommand::Bind(new) => {
            let deadline = Duration::from(new.ready_within) + MARGIN;
            let request = request(session, new)?;
            let client = session.client()?.with_deadline(deadline);
            // Binding is idempotent: a repeated request returns the same binding.
            let binding = call!(client, machines.bind_vm => binding, request)?;
            session.output.one(&binding, views::binding)
        }
        VmCommand::Unbind { vm, guard } => {
            let request = UnbindVmRequest {
                vm: vm.clone(),
                tenant: String::new(),
                request_id: request_id(),
                etag: guard.guard.into_etag(),
                allow_missing: guard.allow_missing,
            };
            match call!(session.client()?, machines.unbind_vm, request)?.binding {
                Some(binding) => session.output.one(&binding, views::binding),
                None => session.deleted(&vm),
            }
        }
        VmCommand::Get { vm } => {
            let request = GetBindingRequest { name: names::binding(&vm)? };
            let binding = call!(session.client()?, machines.get_binding => binding, request)?;
            session.output.one(&binding, views::binding)
        }
        VmCommand::List { all_tenants, selected } => {
            let parent = parent(session, all_tenants)?;
            gathered_list!(
                session,
                machines.list_bindings(ListBindingsRequest { parent }) => bindings,
                selected.whole(),
                views::bindings
            )
        }
        VmCommand::Watch { all_tenants } => {
            let parent = parent(session, all_tenants)?;
            let client = session.client()?;
            let open = async |resume_revision| {
                let request = WatchBindingsRequest { parent: parent.clone(), resume_revision };
                snic_client::open!(client, machines.watch_bindings, request)
            };
            follow(&client, open, |event| {
                session.output.event(&event, views::event)?;
                Ok(event.revision)
            })
            .await
        }
        VmCommand::Heartbeat { vms } => {
            let request = HeartbeatRequest { vms };
            let renewed = call!(session.client()?, machines.heartbeat, request)?;
            let missing = MissingHosts::default();
            missing.add(renewed.unreachable_hosts.clone());
            missing.complain();
            session.output.one(&renewed, views::heartbeat)
        }
    }
}

/// The parent for lists: the tenant, or all tenants.
fn parent(session: &CliSession, all_tenants: bool) -> Result<String, Failure> {
    match session.tenant()?.filter(|_| !all_tenants) {
        Some(tenant) => names::tenant(&tenant),
        None => Ok("tenants/-".to_owned()),
    }
}

/// Reads numbers of VLANs, or that there are none.
fn vlans(text: &str) -> Result<VlanIds, Failure> {
    if text == "none" {
        return Ok(VlanIds::default());
    }
    let ids = text.split(',').map(str::parse).collect::<Result<_, _>>();
    let ids = ids.map_err(|_| {
        let hint = "write numbers such as 5,6, or none";
        Failure::usage(format!("--vlans {text:?} is not a list of VLANs"), hint)
    })?;
    Ok(VlanIds { ids })
}

fn request(session: &CliSession, new: NewBinding) -> Result<BindVmRequest, Failure> {
    let dags: Vec<String> =
        new.dag.iter().map(|dag| session.dag_name(dag)).collect::<Result<_, _>>()?;
    let template = new.template.map(|dag| session.dag_name(&dag)).transpose()?;
    let first = template.as_ref().or(dags.first());
    let tenant = first.and_then(|dag| dag.split_once("/dags/")).map_or("", |(tenant, _)| tenant);
    let seconds = |time: humantime::Duration| prost_types::Duration::try_from(*time).ok();
    Ok(BindVmRequest {
        vm: new.vm,
        tenant: tenant.to_owned(),
        functions: new.functions.unwrap_or_default(),
        ready_within: seconds(new.ready_within),
        lease: new.lease.and_then(seconds),
        chains: Some(match template {
            Some(template) => Chains::Template(template),
            None => Chains::Dags(DagNames { names: dags }),
        }),
        request_id: request_id(),
        mac_addresses: new.macs,
        vlans: new.vlans.as_deref().map(vlans).transpose()?,
        broadcasts_per_second: new.broadcasts_per_second.unwrap_or_default(),
        labels: new.notes.labels(),
        description: new.notes.description,
    })
}
