//! `snicctl fleet find` and `snicctl fleet reservation`.

use std::time::Duration;

use snic_api::fleet_v1::{
    CreateReservationRequest, DeleteReservationRequest, FindHostsRequest, GetReservationRequest,
    ListReservationsRequest, Policy, RenewReservationRequest, Reservation, Selector,
};
use snic_api::v1::Dag;
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::lists::{PAGE_SIZE, pages};
use snic_client::names;
use snic_client::output::fleet_machines as views;

use super::{CliSession, dag, request_id};
use crate::args::{AllowedPlaces, HostRanking, HostSearch, ReservationCommand};

impl AllowedPlaces {
    fn selector(&self) -> Result<Selector, Failure> {
        let hosts = |of: &[String]| of.iter().map(|host| names::host(host)).collect();
        let label = |text: &String| match text.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(Failure::usage(format!("{text:?} is no label"), "write NAME=VALUE")),
        };
        Ok(Selector {
            models: self.models.clone(),
            zones: self.zones.clone(),
            racks: self.racks.clone(),
            labels: self.labels.iter().map(label).collect::<Result<_, _>>()?,
            hosts: hosts(&self.hosts),
            apart_from_hosts: hosts(&self.apart_from_hosts),
            functions: self.functions,
        })
    }

    fn bandwidth_bps(&self) -> u64 {
        self.bandwidth.map_or(0, |of| of.get())
    }

    fn policy(&self) -> i32 {
        let policy = match self.order {
            HostRanking::Pack => Policy::Pack,
            HostRanking::Spread => Policy::Spread,
            HostRanking::Headroom => Policy::Headroom,
        };
        policy.into()
    }
}

/// The tenant that something is for.
fn parent(session: &CliSession) -> Result<String, Failure> {
    match session.tenant()? {
        Some(tenant) => names::tenant(&tenant),
        None => {
            let hint = "set it with --tenant, SNICCTL_TENANT or the context";
            Err(Failure::usage("the tenant of the reservation is missing", hint))
        }
    }
}

/// Prints which hosts have room for a machine, and why the others have none.
pub(super) async fn find(
    session: &mut CliSession,
    client: &Client,
    search: HostSearch,
) -> Result<(), Failure> {
    let HostSearch { places, dags, files, max } = search;
    let mut parent = session.tenant()?.map(|tenant| names::tenant(&tenant)).transpose()?;
    let named = dags.iter().map(|dag| session.dag_name(dag));
    let dags = named.collect::<Result<Vec<_>, _>>()?;
    let mut new_dags = Vec::with_capacity(files.len());
    for file in &files {
        let file = dag::read(file)?;
        let name = session.file_name(None, &file)?;
        let (tenant, _) = name.split_once("/dags/").unwrap_or((&name, ""));
        let resource = file.resource_of(tenant);
        new_dags.push(Dag { name: name.clone(), etag: String::new(), ..resource });
    }
    // All of them are of one tenant, which the server checks.
    let first = dags.first().or(new_dags.first().map(|dag| &dag.name));
    if let Some((tenant, _)) = first.and_then(|name| name.split_once("/dags/")) {
        parent = Some(tenant.to_owned());
    }
    let request = FindHostsRequest {
        selector: Some(places.selector()?),
        policy: places.policy(),
        hosts_max: max,
        parent: parent.unwrap_or_default(),
        dags,
        new_dags,
        bandwidth_bps: places.bandwidth_bps(),
        vm: places.vm.unwrap_or_default(),
    };
    let found = call!(client, fleet.find_hosts, request)?;
    session.output.one(&found, views::found)
}

pub(super) async fn run(
    session: &mut CliSession,
    client: &Client,
    command: ReservationCommand,
) -> Result<(), Failure> {
    let reservation: Reservation = match command {
        ReservationCommand::Create { places, ttl, id } => {
            let ttl = Duration::from(ttl);
            let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
            let nanos = i32::try_from(ttl.subsec_nanos()).unwrap_or(0);
            let request = CreateReservationRequest {
                parent: parent(session)?,
                reservation_id: id.unwrap_or_else(request_id),
                selector: Some(places.selector()?),
                policy: places.policy(),
                ttl: Some(prost_types::Duration { seconds, nanos }),
                bandwidth_bps: places.bandwidth_bps(),
                vm: places.vm.unwrap_or_default(),
            };
            call!(client, fleet.create_reservation => reservation, request)?
        }
        ReservationCommand::List { all_tenants } => {
            let parent = if all_tenants { "tenants/-".to_owned() } else { parent(session)? };
            let reservations = pages(async |page_token| {
                let parent = parent.clone();
                let request = ListReservationsRequest { parent, page_size: PAGE_SIZE, page_token };
                let reply = call!(client, fleet.list_reservations, request)?;
                Ok((reply.reservations, reply.next_page_token))
            });
            return session.output.many(&reservations.await?, views::reservations);
        }
        ReservationCommand::Get { name } => {
            let request = GetReservationRequest { name: full_name(session, &name)? };
            call!(client, fleet.get_reservation => reservation, request)?
        }
        ReservationCommand::Renew { name } => {
            let (parent, reservation_id) = parts(session, &name)?;
            let request = RenewReservationRequest { parent, reservation_id };
            call!(client, fleet.renew_reservation => reservation, request)?
        }
        ReservationCommand::Release { name } => {
            let (parent, reservation_id) = parts(session, &name)?;
            let request = DeleteReservationRequest { parent, reservation_id };
            let _ = call!(client, fleet.delete_reservation, request)?;
            return session.deleted(&full_name(session, &name)?);
        }
    };
    session.output.one(&reservation, views::reservation)
}

/// `UUID` of the tenant, `acme/UUID` or `tenants/acme/reservations/UUID`.
fn full_name(session: &CliSession, text: &str) -> Result<String, Failure> {
    Ok(match text.split('/').collect::<Vec<_>>().as_slice() {
        [uuid] => format!("{}/reservations/{uuid}", parent(session)?),
        [tenant, uuid] => format!("{}/reservations/{uuid}", names::tenant(tenant)?),
        _ => text.to_owned(),
    })
}

fn parts(session: &CliSession, text: &str) -> Result<(String, String), Failure> {
    let name = full_name(session, text)?;
    let Some((parent, uuid)) = name.split_once("/reservations/") else {
        let hint = "write the UUID, acme/UUID or tenants/acme/reservations/UUID";
        return Err(Failure::usage(format!("{text:?} is no reservation"), hint));
    };
    Ok((parent.to_owned(), uuid.to_owned()))
}
