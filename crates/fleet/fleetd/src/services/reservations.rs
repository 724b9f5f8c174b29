//! Hosts for machines that are about to start, and what is reserved for these.

use snic_api::convert::{FieldProblem, Problems, binding, name, timestamp};
use snic_api::error::ApiError;
use snic_api::fleet_v1 as wire_v1;
use snic_api::page::{PageRequest, Query};
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_domain::{Bandwidth, Caller, CardModel, DagName, DagSpec, Quota, TenantId, VmId};
use snic_fleet::placement::{CardConstraints, CardPolicy, Constraint};
use snic_fleet::protocol::{
    FleetAsk, FleetCommand, FleetItem, FleetList, FleetName, FleetReply, FleetReservation,
    FoundHosts, MachineNeeds, RequestId,
};
use snic_fleet::{RackId, ZoneId};
use snic_front::fields::request_id;

use super::fleet::host;
use super::{Services, ask_of, number, tenant_of_list, unexpected};
use crate::placement::each;

/// Most hosts that FindHosts ranks.
const HOSTS_MAX: u32 = 16;

/// A DAG that would be made for a machine.
type NewDag = (DagName, Box<DagSpec>);

impl Services {
    /// Hosts for a machine.
    pub(super) async fn hosts_for_machine(
        &self,
        caller: &Caller,
        request: wire_v1::FindHostsRequest,
    ) -> Result<wire_v1::FindHostsResponse, ApiError> {
        let tenant = match request.parent.as_str() {
            "" if !request.dags.is_empty() || !request.new_dags.is_empty() => {
                return Err(ApiError::required("parent"));
            }
            "" => None,
            parent => Some(name::tenant("parent", parent).map_err(ApiError::from)?),
        };
        let mut constraints = constraints(request.selector.unwrap_or_default())?;
        let policy = policy(request.policy)?;
        let most = match request.hosts_max {
            0 => HOSTS_MAX,
            most @ 1..=HOSTS_MAX => most,
            most => {
                let rule = format!("{most} is not allowed (allowed: 1 to {HOSTS_MAX})");
                return Err(ApiError::in_field(ErrorReason::InvalidField, "hosts_max", rule));
            }
        };
        let mut dags = Vec::with_capacity(request.dags.len());
        for (index, dag) in request.dags.iter().enumerate() {
            dags.push(name::dag(&format!("dags[{index}]"), dag).map_err(ApiError::from)?);
        }
        let new = (request.parent, request.new_dags);
        let new_dags = self.new_dags(caller, new, &mut constraints).await?;
        let bandwidth = bandwidth("bandwidth_bps", request.bandwidth_bps)?;
        let vm = machine(&request.vm)?;
        let needs = Box::new(MachineNeeds { dags, new_dags, bandwidth, vm });
        let most = most as usize;
        let command = FleetCommand::FindHosts { constraints, policy, needs, most };
        match self.for_tenant(caller, tenant, None, command).await? {
            FleetReply::Hosts(found) => Ok(found_hosts(&found)),
            other => Err(unexpected(&other)),
        }
    }

    /// DAGs that would be made for a machine; where they may go holds for the machine, too.
    async fn new_dags(
        &self,
        caller: &Caller,
        (parent, dags): (String, Vec<v1::Dag>),
        constraints: &mut CardConstraints,
    ) -> Result<Vec<NewDag>, ApiError> {
        let mut new_dags = Vec::with_capacity(dags.len());
        for (index, dag) in dags.into_iter().enumerate() {
            let field = format!("new_dags[{index}]");
            let named = name::dag(&format!("{field}.name"), &dag.name).map_err(ApiError::from)?;
            let request = v1::CreateDagRequest {
                parent: name::of_tenant(&named.tenant),
                dag_id: named.dag.to_string(),
                dag: Some(dag),
                ..v1::CreateDagRequest::default()
            };
            let new = self.read(caller, &parent, request).await;
            let new = new.map_err(|error| error.within(&field))?;
            *constraints = constraints.clone().and(new.constraints).ok_or_else(|| {
                let rule = "its placement and what else is asked for allow no host together";
                ApiError::in_field(ErrorReason::InvalidField, &format!("{field}.placement"), rule)
            })?;
            new_dags.push((new.name, Box::new(new.spec)));
        }
        Ok(new_dags)
    }

    /// Keeps functions and bandwidth of a card.
    pub(super) async fn reserve(
        &self,
        caller: &Caller,
        request: wire_v1::CreateReservationRequest,
    ) -> Result<wire_v1::CreateReservationResponse, ApiError> {
        let tenant = name::tenant("parent", &request.parent).map_err(ApiError::from)?;
        let reservation = number_of("reservation_id", &request.reservation_id)?;
        let seconds = request.ttl.filter(|ttl| ttl.nanos == 0).map_or(0, |ttl| ttl.seconds);
        let seconds = u32::try_from(seconds).unwrap_or(0);
        if !(1..=86_400).contains(&seconds) {
            let rule = "expected whole seconds, 1 s to 24 h";
            return Err(ApiError::in_field(ErrorReason::InvalidField, "ttl", rule));
        }
        let constraints = constraints(request.selector.unwrap_or_default())?;
        let bandwidth = bandwidth("bandwidth_bps", request.bandwidth_bps)?;
        if constraints.functions == 0 && bandwidth == Bandwidth::ZERO {
            let rule = "reserve functions, bandwidth_bps, or both";
            let field = "selector.functions";
            return Err(ApiError::in_field(ErrorReason::InvalidField, field, rule));
        }
        let policy = policy(request.policy)?;
        let vm = machine(&request.vm)?;
        let uuid = request.reservation_id.to_ascii_lowercase();
        let command = FleetCommand::Reserve {
            reservation,
            constraints,
            policy,
            seconds,
            bandwidth,
            vm,
            uuid,
        };
        let owner = Some(tenant.clone());
        match self.for_tenant(caller, owner, Some(reservation), command).await? {
            FleetReply::Reserved(card) => {
                let host = format!("hosts/{}", card.host);
                let card = card.card.to_string();
                // One that was made by the same request before may have ended since.
                let reservation = self.reservation(caller, tenant, reservation).await.ok();
                Ok(wire_v1::CreateReservationResponse { host, card, reservation })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// A reservation by its tenant and number.
    pub(super) async fn reservation(
        &self,
        caller: &Caller,
        tenant: TenantId,
        id: RequestId,
    ) -> Result<wire_v1::Reservation, ApiError> {
        let command = FleetCommand::Get(FleetName::Reservation(tenant.clone(), id));
        match self.for_tenant(caller, Some(tenant), None, command).await? {
            FleetReply::Item(item) => of_item(*item),
            other => Err(unexpected(&other)),
        }
    }

    /// A page of the reservations of a tenant, or of all.
    pub(super) async fn reservations(
        &self,
        caller: &Caller,
        request: wire_v1::ListReservationsRequest,
    ) -> Result<wire_v1::ListReservationsResponse, ApiError> {
        let wire_v1::ListReservationsRequest { parent, page_size, page_token } = request;
        let query = Query::of("ListReservations").with("parent", &parent);
        let parent = name::tenant_or_all("parent", &parent).map_err(ApiError::from)?;
        let page = PageRequest::parse(query, page_size, &page_token);
        let page = page.map_err(|error| ApiError::invalid_page(&error))?;
        let after = page.after().and_then(|key| named("page_token", key).ok());
        let after = after.map(|(tenant, id)| FleetName::Reservation(tenant, id));
        let of = FleetList::Reservations(tenant_of_list(caller, parent));
        let command = FleetCommand::List { of, after, most: page.limit() };
        match self.ask(caller, None, command).await? {
            FleetReply::Items { items, next, .. } => {
                let reservations = items.into_iter().map(of_item).collect::<Result<Vec<_>, _>>()?;
                let last = reservations.last().filter(|_| next.is_some());
                let next_page_token =
                    last.map_or_else(String::new, |last| page.token_after(&last.name));
                Ok(wire_v1::ListReservationsResponse { reservations, next_page_token })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for something of a tenant, on whose behalf a program starts machines.
    pub(super) async fn for_tenant(
        &self,
        caller: &Caller,
        tenant: Option<TenantId>,
        id: Option<RequestId>,
        command: FleetCommand,
    ) -> Result<FleetReply, ApiError> {
        self.send(FleetAsk { tenant, id, ..ask_of(caller, None, command) }).await
    }
}

fn of_item(item: FleetItem) -> Result<wire_v1::Reservation, ApiError> {
    match item {
        FleetItem::Reservation(of) => Ok(to_wire(&of)),
        other => Err(unexpected(&FleetReply::Item(Box::new(other)))),
    }
}

fn to_wire(of: &FleetReservation) -> wire_v1::Reservation {
    let FleetReservation { of, ends, is_enforced } = of;
    wire_v1::Reservation {
        name: format!("{}/reservations/{}", name::of_tenant(&of.tenant), uuid(&of.uuid, of.id)),
        host: format!("hosts/{}", of.card.host),
        card: of.card.card.to_string(),
        functions: of.functions,
        functions_used: of.functions_used,
        bandwidth_bps: of.bandwidth.get(),
        bandwidth_used_bps: of.bandwidth_used.get(),
        vm: of.vm.as_ref().map(ToString::to_string).unwrap_or_default(),
        expire_time: Some(timestamp(*ends)),
        enforced: *is_enforced,
    }
}

/// The UUID of a reservation. An earlier version kept a part of it only: the one that has this part alone stands for it.
fn uuid(stored: &str, id: RequestId) -> String {
    if !stored.is_empty() {
        return stored.to_owned();
    }
    format!("00000000-0000-0000-{:04x}-{:012x}", id.0 >> 48, id.0 & 0xFFFF_FFFF_FFFF)
}

fn found_hosts(found: &FoundHosts) -> wire_v1::FindHostsResponse {
    let hosts = found.hosts.iter().map(|one| wire_v1::RankedHost {
        host: format!("hosts/{}", one.card.host),
        card: one.card.card.to_string(),
        ingress_left_bps: one.ingress_left.get(),
        functions_left: one.functions_left,
        preferred: one.is_preferred,
        loads: u32::try_from(one.loads).unwrap_or(u32::MAX),
    });
    let refusals = found.refused.iter().map(|(constraint, hosts)| wire_v1::HostRefusal {
        reason: reason(*constraint),
        hosts: u32::try_from(*hosts).unwrap_or(u32::MAX),
        description: constraint.to_string(),
    });
    wire_v1::FindHostsResponse {
        hosts: hosts.collect(),
        refusals: refusals.collect(),
        first_refusal: found.first.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

/// The word for a constraint, such as `functions-reserved`.
fn reason(of: Constraint) -> String {
    let word = serde_json::to_value(of).ok();
    word.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The number of a reservation by its UUID.
pub(super) fn number_of(field: &str, text: &str) -> Result<RequestId, ApiError> {
    let uuid = request_id(field, text).map_err(ApiError::from)?;
    uuid.as_deref().map(number).ok_or_else(|| ApiError::required(field))
}

/// Tenant and number of a reservation from its name, `tenants/{tenant}/reservations/{uuid}`.
pub(super) fn named(field: &str, text: &str) -> Result<(TenantId, RequestId), ApiError> {
    let Some((tenant, id)) = text.split_once("/reservations/") else {
        let rule = format_args!("{text:.80?} is not tenants/<name>/reservations/<uuid>");
        return Err(FieldProblem::name(field, rule).into());
    };
    let tenant = name::tenant(field, tenant).map_err(ApiError::from)?;
    Ok((tenant, number_of(field, id)?))
}

fn machine(text: &str) -> Result<Option<VmId>, ApiError> {
    match text {
        "" => Ok(None),
        text => Ok(Some(binding::vm("vm", text).map_err(ApiError::from)?)),
    }
}

fn bandwidth(field: &str, bps: u64) -> Result<Bandwidth, ApiError> {
    let (bandwidth, most) = (Bandwidth::from_bps(bps), Quota::UNLIMITED.bandwidth_max);
    if bandwidth > most {
        let rule = format!("{bps} is not allowed (allowed: 0 to {})", most.get());
        return Err(ApiError::in_field(ErrorReason::InvalidField, field, rule));
    }
    Ok(bandwidth)
}

fn policy(policy: i32) -> Result<CardPolicy, ApiError> {
    match wire_v1::Policy::try_from(policy) {
        Ok(wire_v1::Policy::Unspecified | wire_v1::Policy::Pack) => Ok(CardPolicy::Pack),
        Ok(wire_v1::Policy::Spread) => Ok(CardPolicy::Spread),
        Ok(wire_v1::Policy::Headroom) => Ok(CardPolicy::Headroom),
        Err(_) => {
            let rule = format!("{policy} is not a known policy");
            Err(ApiError::in_field(ErrorReason::InvalidField, "policy", rule))
        }
    }
}

/// Most values of each field of a selector: each is looked at for each host.
const SELECTOR_VALUES_MAX: usize = 1_000;

fn constraints(selector: wire_v1::Selector) -> Result<CardConstraints, ApiError> {
    let mut problems = Problems::default();
    let lists = [
        ("models", selector.models.len()),
        ("zones", selector.zones.len()),
        ("racks", selector.racks.len()),
        ("labels", selector.labels.len()),
        ("hosts", selector.hosts.len()),
        ("apart_from_hosts", selector.apart_from_hosts.len()),
    ];
    for (field, count) in lists {
        if count > SELECTOR_VALUES_MAX {
            let rule = format!("{count} values; at most {SELECTOR_VALUES_MAX} are allowed");
            let _ =
                problems.keep::<()>(Err(FieldProblem::invalid(format!("selector.{field}"), rule)));
        }
    }
    problems.finish()?;
    let mut problems = Problems::default();
    let constraints = CardConstraints {
        models: each(&mut problems, "selector.models", &selector.models, |field, text| {
            CardModel::new(text).map_err(|error| FieldProblem::invalid(field, error))
        }),
        zones: each(&mut problems, "selector.zones", &selector.zones, |field, text| {
            ZoneId::new(text).map_err(|error| FieldProblem::invalid(field, error))
        }),
        racks: each(&mut problems, "selector.racks", &selector.racks, |field, text| {
            RackId::new(text).map_err(|error| FieldProblem::invalid(field, error))
        }),
        labels: selector.labels,
        hosts: each(&mut problems, "selector.hosts", &selector.hosts, |field, text| {
            host(&field, text)
        }),
        apart_from_hosts: each(
            &mut problems,
            "selector.apart_from_hosts",
            &selector.apart_from_hosts,
            |field, text| host(&field, text),
        ),
        functions: selector.functions,
        ..CardConstraints::default()
    };
    problems.finish().map(|()| constraints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_named_by_its_uuid() {
        let text = "tenants/acme/reservations/123e4567-e89b-42d3-a456-426614174000";
        let (tenant, id) = named("name", text).expect("it is a name");
        assert_eq!((tenant.as_str(), id), ("acme", RequestId(0xA456_4266_1417_4000)));
        let stands_for = uuid("", id);
        assert_eq!(number_of("reservation_id", &stands_for).expect("a UUID"), id, "{stands_for}");
        for wrong in ["tenants/acme", "acme/reservations/7", "tenants/acme/reservations/7"] {
            assert!(named("name", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_reason_has_a_word() {
        assert_eq!(reason(Constraint::FunctionsReserved), "functions-reserved");
        assert_eq!(reason(Constraint::NotTried), "not-tried");
    }
}
