//! Hosts as operators register them, placement for schedulers of machines, and how the fleet is.

use std::collections::BTreeMap;

use snic_api::convert::{FieldProblem, Problems, name};
use snic_api::error::ApiError;
use snic_api::fleet_v1 as wire_v1;
use snic_api::fleet_v1::fleet_service_server::FleetService;
use snic_api::page::{PageRequest, Query};
use snic_domain::{Caller, CardId};
use snic_fleet::placement::{CardSpec, HostSpec};
use snic_fleet::protocol::{
    DrainArea, FleetCommand, FleetHost, FleetItem, FleetList, FleetName, FleetReply,
};
use snic_fleet::{HostId, RackId, ZoneId};
use snic_front::fields::repeat_of;
use snic_front::gate::caller;
use tonic::{Request, Response};

use super::watching::Events;
use super::{RpcResult, Services, reservations, unexpected};
use crate::runner::Leadership;
use crate::wire;

fn of_item(item: FleetItem) -> Result<FleetHost, ApiError> {
    match item {
        FleetItem::Host(host) => Ok(host),
        other => Err(unexpected(&FleetReply::Item(Box::new(other)))),
    }
}

/// Id of a host from its name, `hosts/{host}`.
pub(super) fn host(field: &str, text: &str) -> Result<HostId, FieldProblem> {
    let id = text.strip_prefix("hosts/").ok_or_else(|| {
        FieldProblem::name(field, format_args!("{text:.80?} is not hosts/<name>"))
    })?;
    HostId::new(id).map_err(|error| FieldProblem::name(field, error))
}

/// Id of a zone from its name, `zones/{zone}`.
fn zone(field: &str, text: &str) -> Result<ZoneId, ApiError> {
    let id = text.strip_prefix("zones/").ok_or_else(|| {
        FieldProblem::name(field, format_args!("{text:.80?} is not zones/<name>"))
    })?;
    Ok(ZoneId::new(id).map_err(|error| FieldProblem::name(field, error))?)
}

fn rebalance(reply: FleetReply, is_preview: bool) -> Result<wire_v1::Rebalance, ApiError> {
    match reply {
        FleetReply::Rebalance(progress) => Ok(wire::rebalance(&progress, is_preview)),
        other => Err(unexpected(&other)),
    }
}

/// `zones/{zone}` or `zones/{zone}/racks/{rack}`.
fn area(text: &str) -> Result<DrainArea, ApiError> {
    let wrong = |why: &dyn std::fmt::Display| ApiError::from(FieldProblem::name("area", why));
    let zone = |id: &str| ZoneId::new(id).map_err(|error| wrong(&error));
    match text.split('/').collect::<Vec<_>>().as_slice() {
        ["zones", id] => Ok(DrainArea::Zone(zone(id)?)),
        ["zones", id, "racks", rack] => {
            let rack = RackId::new(rack).map_err(|error| wrong(&error))?;
            Ok(DrainArea::Rack(zone(id)?, rack))
        }
        _ => {
            let rule = "neither zones/<name> nor zones/<name>/racks/<name>";
            Err(wrong(&format_args!("{text:.80?} is {rule}")))
        }
    }
}

#[tonic::async_trait]
impl FleetService for Services {
    async fn create_host(
        &self,
        request: Request<wire_v1::CreateHostRequest>,
    ) -> RpcResult<wire_v1::CreateHostResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = HostId::new(&request.host_id)
            .map_err(|error| ApiError::from(FieldProblem::name("host_id", error)))?;
        let spec = spec(request.host.ok_or_else(|| ApiError::required("host"))?)?;
        let repeat = repeat_of(&request.request_id)?;
        let (name, command) = (FleetName::Host(id.clone()), FleetCommand::CreateHost(id, spec));
        let made = of_item(self.made(&caller, repeat, name, command).await?)?;
        let host = Some(wire::host(&made));
        Ok(Response::new(wire_v1::CreateHostResponse { host }))
    }

    async fn get_host(
        &self,
        request: Request<wire_v1::GetHostRequest>,
    ) -> RpcResult<wire_v1::GetHostResponse> {
        let caller = caller(&request)?;
        let id = host("name", &request.into_inner().name).map_err(ApiError::from)?;
        let host = Some(self.host(&caller, id).await?);
        Ok(Response::new(wire_v1::GetHostResponse { host }))
    }

    async fn list_hosts(
        &self,
        request: Request<wire_v1::ListHostsRequest>,
    ) -> RpcResult<wire_v1::ListHostsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let view = request.view();
        let wire_v1::ListHostsRequest { page_size, page_token, .. } = request;
        let page = PageRequest::parse(Query::of("ListHosts"), page_size, &page_token);
        let page = page.map_err(|error| ApiError::invalid_page(&error))?;
        let after = page.after().and_then(|key| HostId::new(key).ok()).map(FleetName::Host);
        let command = FleetCommand::List { of: FleetList::Hosts, after, most: page.limit() };
        match self.ask(&caller, None, command).await? {
            FleetReply::Items { items, next, revision } => {
                let hosts = items.into_iter().map(of_item).collect::<Result<Vec<_>, _>>()?;
                let last = hosts.last().filter(|_| next.is_some());
                let next_page_token =
                    last.map_or(String::new(), |host| page.token_after(host.host.as_str()));
                let hosts = hosts.iter().map(|host| wire::viewed(wire::host(host), view)).collect();
                let listed = wire_v1::ListHostsResponse { hosts, next_page_token, revision };
                Ok(Response::new(listed))
            }
            other => Err(unexpected(&other).into()),
        }
    }

    type WatchHostsStream = Events<wire_v1::WatchHostsResponse>;

    async fn watch_hosts(
        &self,
        request: Request<wire_v1::WatchHostsRequest>,
    ) -> RpcResult<Self::WatchHostsStream> {
        caller(&request)?;
        let request = request.into_inner();
        let hosts = self.watch_all_hosts(request.resume_revision, request.view()).await?;
        Ok(Response::new(hosts))
    }

    async fn delete_host(
        &self,
        request: Request<wire_v1::DeleteHostRequest>,
    ) -> RpcResult<wire_v1::DeleteHostResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let name = FleetName::Host(host("name", &request.name).map_err(ApiError::from)?);
        let command = FleetCommand::Delete { name, etag: None, force: false };
        let repeat = repeat_of(&request.request_id)?;
        self.delete(&caller, repeat, false, command).await?;
        Ok(Response::new(wire_v1::DeleteHostResponse {}))
    }

    async fn cordon_host(
        &self,
        request: Request<wire_v1::CordonHostRequest>,
    ) -> RpcResult<wire_v1::CordonHostResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let host = self.change(&caller, &name, |id| FleetCommand::CordonHost(id, true)).await?;
        Ok(Response::new(wire_v1::CordonHostResponse { host: Some(host) }))
    }

    async fn uncordon_host(
        &self,
        request: Request<wire_v1::UncordonHostRequest>,
    ) -> RpcResult<wire_v1::UncordonHostResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let host = self.change(&caller, &name, |id| FleetCommand::CordonHost(id, false)).await?;
        Ok(Response::new(wire_v1::UncordonHostResponse { host: Some(host) }))
    }

    async fn drain_host(
        &self,
        request: Request<wire_v1::DrainHostRequest>,
    ) -> RpcResult<wire_v1::DrainHostResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let host = self.change(&caller, &name, |id| FleetCommand::DrainHost(id, true)).await?;
        Ok(Response::new(wire_v1::DrainHostResponse { host: Some(host) }))
    }

    async fn undrain_host(
        &self,
        request: Request<wire_v1::UndrainHostRequest>,
    ) -> RpcResult<wire_v1::UndrainHostResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let host = self.change(&caller, &name, |id| FleetCommand::DrainHost(id, false)).await?;
        Ok(Response::new(wire_v1::UndrainHostResponse { host: Some(host) }))
    }

    async fn drain_area(
        &self,
        request: Request<wire_v1::DrainAreaRequest>,
    ) -> RpcResult<wire_v1::DrainAreaResponse> {
        let caller = caller(&request)?;
        let wire_v1::DrainAreaRequest { area: of, moves_max } = request.into_inner();
        let command = FleetCommand::Drain { area: area(&of)?, moves_max };
        let drain = Some(self.drain(&caller, command).await?);
        Ok(Response::new(wire_v1::DrainAreaResponse { drain }))
    }

    async fn get_area_drain(
        &self,
        request: Request<wire_v1::GetAreaDrainRequest>,
    ) -> RpcResult<wire_v1::GetAreaDrainResponse> {
        let caller = caller(&request)?;
        let command = FleetCommand::GetDrain(area(&request.into_inner().area)?);
        let drain = Some(self.drain(&caller, command).await?);
        Ok(Response::new(wire_v1::GetAreaDrainResponse { drain }))
    }

    async fn undrain_area(
        &self,
        request: Request<wire_v1::UndrainAreaRequest>,
    ) -> RpcResult<wire_v1::UndrainAreaResponse> {
        let caller = caller(&request)?;
        let command = FleetCommand::EndDrain(area(&request.into_inner().area)?);
        self.ask(&caller, None, command).await?;
        Ok(Response::new(wire_v1::UndrainAreaResponse {}))
    }

    async fn start_rebalance(
        &self,
        request: Request<wire_v1::StartRebalanceRequest>,
    ) -> RpcResult<wire_v1::StartRebalanceResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let (repeat, validate_only) = (repeat_of(&request.request_id)?, request.validate_only);
        let zone = match request.zone.as_str() {
            "" => None,
            name => Some(zone("zone", name)?),
        };
        let (moves_max, tolerance_percent) = (request.moves_max, request.tolerance_percent);
        let command = FleetCommand::Rebalance { zone, moves_max, tolerance_percent };
        let reply = self.propose(&caller, repeat, validate_only, command).await?;
        let rebalance = Some(rebalance(reply, validate_only)?);
        Ok(Response::new(wire_v1::StartRebalanceResponse { rebalance }))
    }

    async fn get_rebalance(
        &self,
        request: Request<wire_v1::GetRebalanceRequest>,
    ) -> RpcResult<wire_v1::GetRebalanceResponse> {
        let caller = caller(&request)?;
        let reply = self.ask(&caller, None, FleetCommand::GetRebalance).await?;
        let rebalance = Some(rebalance(reply, false)?);
        Ok(Response::new(wire_v1::GetRebalanceResponse { rebalance }))
    }

    async fn stop_rebalance(
        &self,
        request: Request<wire_v1::StopRebalanceRequest>,
    ) -> RpcResult<wire_v1::StopRebalanceResponse> {
        let caller = caller(&request)?;
        let repeat = repeat_of(&request.into_inner().request_id)?;
        let reply = self.ask(&caller, repeat, FleetCommand::EndRebalance).await?;
        let rebalance = Some(rebalance(reply, false)?);
        Ok(Response::new(wire_v1::StopRebalanceResponse { rebalance }))
    }

    async fn find_hosts(
        &self,
        request: Request<wire_v1::FindHostsRequest>,
    ) -> RpcResult<wire_v1::FindHostsResponse> {
        let caller = caller(&request)?;
        Ok(Response::new(self.hosts_for_machine(&caller, request.into_inner()).await?))
    }

    async fn create_reservation(
        &self,
        request: Request<wire_v1::CreateReservationRequest>,
    ) -> RpcResult<wire_v1::CreateReservationResponse> {
        let caller = caller(&request)?;
        Ok(Response::new(self.reserve(&caller, request.into_inner()).await?))
    }

    async fn get_reservation(
        &self,
        request: Request<wire_v1::GetReservationRequest>,
    ) -> RpcResult<wire_v1::GetReservationResponse> {
        let caller = caller(&request)?;
        let (tenant, id) = reservations::named("name", &request.into_inner().name)?;
        let reservation = Some(self.reservation(&caller, tenant, id).await?);
        Ok(Response::new(wire_v1::GetReservationResponse { reservation }))
    }

    async fn list_reservations(
        &self,
        request: Request<wire_v1::ListReservationsRequest>,
    ) -> RpcResult<wire_v1::ListReservationsResponse> {
        let caller = caller(&request)?;
        Ok(Response::new(self.reservations(&caller, request.into_inner()).await?))
    }

    async fn renew_reservation(
        &self,
        request: Request<wire_v1::RenewReservationRequest>,
    ) -> RpcResult<wire_v1::RenewReservationResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = reservations::number_of("reservation_id", &request.reservation_id)?;
        let tenant = name::tenant("parent", &request.parent).map_err(ApiError::from)?;
        self.for_tenant(&caller, Some(tenant.clone()), None, FleetCommand::Renew(id)).await?;
        let reservation = Some(self.reservation(&caller, tenant, id).await?);
        Ok(Response::new(wire_v1::RenewReservationResponse { reservation }))
    }

    async fn delete_reservation(
        &self,
        request: Request<wire_v1::DeleteReservationRequest>,
    ) -> RpcResult<wire_v1::DeleteReservationResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let tenant = name::tenant("parent", &request.parent).map_err(ApiError::from)?;
        let id = reservations::number_of("reservation_id", &request.reservation_id)?;
        let name = FleetName::Reservation(tenant.clone(), id);
        let command = FleetCommand::Delete { name, etag: None, force: false };
        self.for_tenant(&caller, Some(tenant), None, command).await?;
        Ok(Response::new(wire_v1::DeleteReservationResponse {}))
    }

    async fn get_fleet(
        &self,
        request: Request<wire_v1::GetFleetRequest>,
    ) -> RpcResult<wire_v1::GetFleetResponse> {
        let caller = caller(&request)?;
        let counts = match self.ask(&caller, None, FleetCommand::GetFleet).await? {
            FleetReply::Fleet(counts) => counts,
            other => return Err(unexpected(&other).into()),
        };
        let (leader, is_leader) = match self.0.parts.asking.leadership() {
            Leadership::Own => (self.0.parts.address.clone(), true),
            Leadership::Other { address, .. } => (address, false),
            Leadership::Nobody => (String::new(), false),
        };
        Ok(Response::new(wire_v1::GetFleetResponse {
            leader,
            is_leader,
            tenants: counts.tenants as u64,
            hosts: counts.hosts as u64,
            hosts_in_step: counts.hosts_in_step as u64,
            hosts_unreachable: counts.hosts_unreachable as u64,
            cards: counts.cards as u64,
            dags: counts.dags as u64,
            dags_unplaced: counts.unplaced as u64,
            reservations: counts.reservations as u64,
            drains: counts.drains.iter().map(ToString::to_string).collect(),
            conditions: vec![wire::store_condition(counts.store_refusal.as_ref())],
        }))
    }
}

impl Services {
    async fn host(&self, caller: &Caller, id: HostId) -> Result<wire_v1::Host, ApiError> {
        Ok(wire::host(&of_item(self.item(caller, FleetName::Host(id)).await?)?))
    }

    async fn change(
        &self,
        caller: &Caller,
        name: &str,
        command: impl FnOnce(HostId) -> FleetCommand + Send,
    ) -> Result<wire_v1::Host, ApiError> {
        let id = host("name", name).map_err(ApiError::from)?;
        let name = FleetName::Host(id.clone());
        Ok(wire::host(&of_item(self.made(caller, None, name, command(id)).await?)?))
    }

    async fn drain(
        &self,
        caller: &Caller,
        command: FleetCommand,
    ) -> Result<wire_v1::AreaDrain, ApiError> {
        match self.ask(caller, None, command).await? {
            FleetReply::Drain(progress) => Ok(wire::drain(&progress)),
            other => Err(unexpected(&other)),
        }
    }
}

fn spec(host: wire_v1::Host) -> Result<HostSpec, ApiError> {
    let mut problems = Problems::default();
    let zone = ZoneId::new(&host.zone).map_err(|error| FieldProblem::invalid("host.zone", error));
    let zone = problems.keep(zone);
    let rack = RackId::new(&host.rack).map_err(|error| FieldProblem::invalid("host.rack", error));
    let rack = problems.keep(rack);
    let mut cards = BTreeMap::new();
    for (index, card) in host.cards.iter().enumerate() {
        let field = format!("host.cards[{index}]");
        let Some((id, spec)) = problems.keep(one_card(&field, card)) else { continue };
        if cards.insert(id, spec).is_some() {
            let what = format!("{} is there twice", card.card);
            let _ = problems.keep::<()>(Err(FieldProblem::invalid(format!("{field}.card"), what)));
        }
    }
    problems.finish()?;
    let (Some(zone), Some(rack)) = (zone, rack) else { return Err(ApiError::required("host")) };
    let (labels, is_cordoned) = (host.labels, host.cordoned);
    Ok(HostSpec { zone, rack, labels, is_cordoned, cards })
}

fn one_card(field: &str, card: &wire_v1::HostCard) -> Result<(CardId, CardSpec), FieldProblem> {
    let id = CardId::new(&card.card);
    let id = id.map_err(|error| FieldProblem::invalid(format!("{field}.card"), error))?;
    let profile = serde_json::from_str(&card.profile);
    let profile =
        profile.map_err(|error| FieldProblem::invalid(format!("{field}.profile"), error))?;
    let (functions, is_cordoned) = (card.functions, card.cordoned);
    Ok((id, CardSpec { profile, functions, is_cordoned }))
}
