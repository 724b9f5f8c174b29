//! Converts what the leader answers to messages of the API.

use snic_api::convert::{bitstream, dag, name, nt_type, tenant, timestamp};
use snic_api::v1::condition::Status as Holds;
use snic_api::v1::operation_metadata::Verb;
use snic_api::{fleet_v1, v1};
use snic_domain::{Bitstream, Caller, DagName, MonthBudget, NtType, Quota};
use snic_fleet::FleetCard;
use snic_fleet::protocol::{
    DrainProgress, FleetDag, FleetHost, FleetHostState, FleetProject, FleetSpending, FleetTenant,
    HostCondition, LoadRange, PlacedDag, RebalanceOutcome, RebalanceProgress, SpendingView,
    StayReason, StoreRefusal,
};
use snic_fleet::records::{HostRecord, RecordMeta, Unplaced};
use snic_front::configurations;

use crate::placement;

pub(crate) fn tenant(of: &FleetTenant) -> v1::Tenant {
    let usage = &of.usage;
    v1::Tenant {
        name: name::of_tenant(&of.tenant.id),
        uid: format!("{:016x}", of.meta.serial),
        weight: of.tenant.weight,
        quota: Some(tenant::quota_to_wire(&of.tenant.quota)),
        usage: Some(v1::Usage {
            dags: usage.dags,
            bandwidth_bps: usage.bandwidth.get(),
            memory_bytes: usage.memory.get(),
            bitstreams: usage.bitstreams,
            bitstream_bytes: usage.bitstream_bytes.get(),
            nt_types: usage.nt_types,
            ..v1::Usage::default()
        }),
        etag: of.meta.etag(),
        fleet_managed: false, // that is said on hosts
        create_time: Some(timestamp(of.meta.created)),
        update_time: Some(timestamp(of.meta.updated)),
        labels: of.tenant.notes.labels.as_map().clone(),
        description: of.tenant.notes.description.as_str().to_owned(),
        spending: of.spending.as_ref().map(spending),
        project: of.project.as_ref().map(name::of_project).unwrap_or_default(),
    }
}

pub(crate) fn nt_type(of: &NtType, meta: &RecordMeta) -> v1::NtType {
    v1::NtType {
        etag: meta.etag(),
        create_time: Some(timestamp(meta.created)),
        configurable: configurations::is_configurable(&of.id),
        ..nt_type::nt_type_to_wire(of)
    }
}

/// A bitstream on the wire. The regions that hold it are known to the hosts only.
pub(crate) fn bitstream(of: &Bitstream, meta: &RecordMeta) -> v1::Bitstream {
    v1::Bitstream {
        state: v1::bitstream::State::Available.into(),
        etag: meta.etag(),
        create_time: Some(timestamp(meta.created)),
        ..bitstream::bitstream_to_wire(of)
    }
}

/// A card serves it, as it is asked for, until its new place does.
fn is_served_before_it_moves(of: &FleetDag) -> bool {
    of.card.is_some() && of.served_by.is_some() && of.served_generation == of.generation
}

/// The DAG. Its mapping, rate and traffic are known to its host only; operators are told which host that is.
pub(crate) fn dag(of: &FleetDag, reader: &Caller) -> v1::Dag {
    let state = match (&of.card, &of.unplaced) {
        _ if of.is_ready || is_served_before_it_moves(of) => v1::dag::State::Ready,
        (None, Some(Unplaced::Failed(_))) => v1::dag::State::Failed,
        (None, _) => v1::dag::State::Degraded,
        (Some(_), _) => v1::dag::State::Provisioning,
    };
    v1::Dag {
        name: of.name.to_string(),
        nodes: dag::nodes_to_wire(&of.spec, configurations::shown),
        edges: dag::edges_to_wire(&of.spec),
        bandwidth_bps: of.spec.bandwidth.get(),
        form: dag::preference_to_wire(of.spec.form).into(),
        packet_sizes: dag::packet_sizes_to_wire(&of.spec.packet_sizes),
        trusted_tenants: of.spec.trusted_tenants.iter().map(name::of_tenant).collect(),
        card_affinity: dag::affinity_to_wire(&of.spec.card_affinity),
        placement: placement::to_wire(&of.constraints, of.policy),
        placement_defaults: placement::defaults_to_wire(&of.defaults),
        latency_sensitive: of.spec.latency_sensitive,
        refuse_idle_tasks: of.spec.refuse_idle_tasks,
        latency_bound_nanos: of.spec.latency_bound.get(),
        labels: of.spec.notes.labels.as_map().clone(),
        description: of.spec.notes.description.as_str().to_owned(),
        state: state.into(),
        generation: of.generation,
        observed_generation: of.served_generation,
        conditions: conditions(of, reader),
        fleet_card: fleet_card(of, reader),
        etag: of.meta.etag(),
        create_time: Some(timestamp(of.meta.created)),
        update_time: Some(timestamp(of.meta.updated)),
        ..v1::Dag::default()
    }
}

/// The card of a DAG that has a place, for operators: tenants are not told which hosts there are.
fn fleet_card(of: &FleetDag, reader: &Caller) -> String {
    let card = of.card.as_ref().filter(|_| matches!(reader, Caller::Operator(_)));
    card.map_or_else(String::new, ToString::to_string)
}

fn conditions(of: &FleetDag, reader: &Caller) -> Vec<v1::Condition> {
    let is_operator = matches!(reader, Caller::Operator(_));
    let (status, reason, message) = match (&of.card, &of.unplaced) {
        (Some(card), _) if is_operator => (Holds::True, "PLACED", format!("on {card}")),
        (Some(_), _) => (Holds::True, "PLACED", "a card of the fleet is promised".to_owned()),
        (None, Some(why)) => (Holds::False, "NO_PLACE", unplaced(why, is_operator)),
        (None, None) => (Holds::False, "NO_PLACE", "it waits for a place".to_owned()),
    };
    let ready = match of.is_ready {
        true => (Holds::True, "READY", "its host serves it".to_owned()),
        false if is_served_before_it_moves(of) => {
            (Holds::True, "MOVING", "a host serves it until its new one does".to_owned())
        }
        false if of.card.is_some() => {
            (Holds::False, "PROVISIONING", "its host has not said that it serves it".to_owned())
        }
        false => (Holds::False, "NO_PLACE", "it has no place".to_owned()),
    };
    let condition = |kind: &str, (status, reason, message): (Holds, &str, String)| v1::Condition {
        r#type: kind.to_owned(),
        status: status.into(),
        reason: reason.to_owned(),
        message,
        last_transition_time: None,
        observed_generation: of.generation,
    };
    vec![condition("Mapped", (status, reason, message)), condition("Ready", ready)]
}

/// The fleet's condition `StoreWritable`.
pub(crate) fn store_condition(refusal: Option<&StoreRefusal>) -> v1::Condition {
    let (status, reason, message) = match refusal {
        Some(StoreRefusal { reason, said, remedy, .. }) => {
            (Holds::False, reason.as_str(), format!("etcd refuses writes ({said}); do: {remedy}"))
        }
        None => (Holds::True, "ACCEPTED", "etcd accepts writes".to_owned()),
    };
    v1::Condition {
        r#type: "StoreWritable".to_owned(),
        status: status.into(),
        reason: reason.to_owned(),
        message,
        last_transition_time: refusal.map(|of| timestamp(of.since)),
        observed_generation: 0,
    }
}

/// Reasons of hosts may name devices, and cards: these are for operators.
pub(crate) fn unplaced(why: &Unplaced, is_operator: bool) -> String {
    match why {
        Unplaced::Waits(why) if is_operator => format!("it waits for room elsewhere: {why}"),
        Unplaced::Waits(_) => "it waits for room on another card".to_owned(),
        Unplaced::Failed(reasons) if is_operator => {
            format!("{} hosts refused it: {}", reasons.len(), reasons.join("; "))
        }
        Unplaced::Failed(reasons) => format!("{} hosts refused it", reasons.len()),
    }
}

pub(crate) fn host(of: &FleetHost) -> fleet_v1::Host {
    let condition = match of.condition {
        HostCondition::InStep => fleet_v1::host::Condition::InStep,
        HostCondition::Behind => fleet_v1::host::Condition::Behind,
        HostCondition::Suspected => fleet_v1::host::Condition::Suspected,
        HostCondition::Lost => fleet_v1::host::Condition::Lost,
    };
    let cards = of.spec.cards.iter().map(|(id, card)| fleet_v1::HostCard {
        card: id.to_string(),
        profile: serde_json::to_string(&card.profile).unwrap_or_default(),
        functions: card.functions,
        cordoned: card.is_cordoned,
        model: card.profile.model.to_string(),
    });
    fleet_v1::Host {
        name: format!("hosts/{}", of.host),
        zone: of.spec.zone.to_string(),
        rack: of.spec.rack.to_string(),
        labels: of.spec.labels.clone(),
        cordoned: of.spec.is_cordoned,
        cards: cards.collect(),
        draining: of.is_draining,
        condition: condition.into(),
        dags: of.dags as u64,
        bound_dags: of.bound.iter().map(ToString::to_string).collect(),
        create_time: Some(timestamp(of.meta.created)),
        etag: of.meta.etag(),
    }
}

/// A host as a watch tells it: with a condition only once the leader has said one.
/// A host as far as a caller asks for it.
pub(crate) fn viewed(mut host: fleet_v1::Host, view: fleet_v1::HostView) -> fleet_v1::Host {
    if view == fleet_v1::HostView::Basic {
        host.cards.iter_mut().for_each(|card| card.profile = String::new());
    }
    host
}

pub(crate) fn watched_host(of: &HostRecord, state: Option<FleetHostState>) -> fleet_v1::Host {
    let condition = state.map_or(HostCondition::Behind, |state| state.condition);
    let mut told = host(&FleetHost {
        host: of.host.clone(),
        spec: of.spec.clone(),
        is_draining: state.map_or(of.is_draining, |state| state.is_draining),
        condition,
        dags: 0,
        bound: Vec::new(),
        images_missing: None,
        meta: of.meta,
    });
    if state.is_none() {
        told.set_condition(fleet_v1::host::Condition::Unspecified);
    }
    told
}

pub(crate) fn drain(of: &DrainProgress) -> fleet_v1::AreaDrain {
    fleet_v1::AreaDrain {
        area: of.area.to_string(),
        moves_max: of.moves_max,
        hosts: of.hosts as u64,
        dags_left: of.left as u64,
        dags_moving: of.moving as u64,
        bound_dags: of.bound.iter().map(ToString::to_string).collect(),
        bound_dags_count: of.bound_count as u64,
    }
}

pub(crate) fn rebalance(of: &RebalanceProgress, is_preview: bool) -> fleet_v1::Rebalance {
    use fleet_v1::rebalance::{PlannedMove, State, Stay, StayReason as Wire};
    let percent = |ppb: u64| ppb as f64 / 10_000_000.0;
    let loads = |of: LoadRange| fleet_v1::LoadRange {
        smallest_percent: percent(of.smallest),
        mean_percent: percent(of.mean),
        largest_percent: percent(of.largest),
    };
    let state = match of.outcome {
        None if is_preview => State::Preview,
        None => State::Running,
        Some(RebalanceOutcome::Level) => State::Level,
        Some(RebalanceOutcome::NothingHelps) => State::NothingHelps,
        Some(RebalanceOutcome::Stopped) => State::Stopped,
    };
    let reason = |why: &StayReason| match why {
        StayReason::Bound => Wire::Bound,
        StayReason::Recent => Wire::Recent,
        StayReason::NotServed => Wire::NotServed,
        StayReason::NoEmptier => Wire::NoEmptier,
        StayReason::NoRoom => Wire::NoRoom,
        StayReason::Policy => Wire::Policy,
        StayReason::Image => Wire::Image,
    };
    let stays = of.stays.iter();
    let stays = stays.map(|(why, dags)| Stay { reason: reason(why).into(), dags: *dags });
    let card = |of: &FleetCard| format!("hosts/{}/cards/{}", of.host, of.card);
    let planned = of.planned.iter().map(|one| PlannedMove {
        dag: one.name.to_string(),
        from: card(&one.from),
        to: card(&one.to),
    });
    fleet_v1::Rebalance {
        zone: of.zone.as_ref().map(|zone| format!("zones/{zone}")).unwrap_or_default(),
        moves_max: of.moves_max,
        tolerance_percent: of.tolerance_percent,
        state: state.into(),
        dags_moved: of.moved,
        dags_moving: of.moving as u64,
        before: Some(loads(of.before)),
        after: Some(loads(of.after)),
        stays: stays.collect(),
        bound_dags: of.bound.iter().map(ToString::to_string).collect(),
        planned: planned.collect(),
        start_time: Some(timestamp(of.started)),
        end_time: of.ended.map(timestamp),
    }
}

/// A limit that is not there is not shown.
pub(crate) fn project(of: &FleetProject) -> fleet_v1::Project {
    let (limits, none) = (&of.quota, Quota::UNLIMITED);
    let bandwidth = Some(limits.bandwidth_max).filter(|limit| *limit < none.bandwidth_max);
    fleet_v1::Project {
        name: format!("projects/{}", of.project),
        dags_max: Some(limits.dags_max).filter(|limit| *limit < none.dags_max),
        bandwidth_max_bps: bandwidth.map(|limit| limit.get()),
        dags: of.usage.dags,
        bandwidth_bps: of.usage.bandwidth.get(),
        etag: of.meta.etag(),
        create_time: Some(timestamp(of.meta.created)),
        update_time: Some(timestamp(of.meta.updated)),
        month_budget_micros: limits.month_budget.micros(),
        spending: of.spending.as_ref().map(spending),
    }
}

fn spending(of: &SpendingView) -> v1::Spending {
    let FleetSpending { month, spent, currency } = &of.spending;
    let spent = spent.map(|micros| MonthBudget::from_micros(micros).to_string());
    let money = (spent.unwrap_or_default(), currency.as_str());
    tenant::spending_to_wire(*month, money, of.level, of.at_limit)
}

fn any(kind: &str, message: &impl prost::Message) -> prost_types::Any {
    prost_types::Any {
        type_url: format!("type.googleapis.com/{kind}"),
        value: message.encode_to_vec(),
    }
}

/// The response of an operation without a result.
pub(crate) fn nothing() -> prost_types::Any {
    any("google.protobuf.Empty", &())
}

/// A DAG as the response of an operation.
pub(crate) fn any_dag(dag: &v1::Dag) -> prost_types::Any {
    any("snic.control.v1.Dag", dag)
}

/// An operation that ended where it began.
pub(crate) fn decided(target: String, verb: Verb, response: prost_types::Any) -> v1::Operation {
    let metadata = v1::OperationMetadata { target, verb: verb.into(), ..Default::default() };
    v1::Operation {
        name: String::new(),
        metadata: Some(metadata),
        done: true,
        result: Some(v1::operation::Result::Response(response)),
    }
}

/// The DAG's last change. Whether it has ended is seen from the DAG itself.
pub(crate) fn operation(of: &FleetDag, reader: &Caller) -> v1::Operation {
    let verb = if of.generation <= 1 { Verb::Create } else { Verb::Update };
    let result = match &of.unplaced {
        // What became of the DAG later is no part of it.
        _ if of.served_generation >= of.generation => {
            Some(v1::operation::Result::Response(any_dag(&dag(of, reader))))
        }
        Some(why @ Unplaced::Failed(_)) => {
            let text = unplaced(why, matches!(reader, Caller::Operator(_)));
            let reason = v1::ErrorReason::InsufficientCapacity;
            let failure = snic_api::error::ApiError::new(reason, text);
            Some(v1::operation::Result::Error(failure.into()))
        }
        _ => None,
    };
    let metadata = v1::OperationMetadata {
        target: of.name.to_string(),
        verb: verb.into(),
        create_time: Some(timestamp(of.meta.updated)),
        stage: if of.card.is_some() { "waiting for the host" } else { "waiting for a place" }
            .into(),
        ..Default::default()
    };
    v1::Operation {
        name: operation_name(&of.name, of.generation),
        metadata: Some(metadata),
        done: result.is_some(),
        result,
    }
}

/// The operation of a change that was made to a DAG which cannot be read any more.
pub(crate) fn changed(dag: &DagName, placed: &PlacedDag) -> v1::Operation {
    let metadata = v1::OperationMetadata {
        target: dag.to_string(),
        verb: Verb::Update.into(),
        create_time: Some(timestamp(placed.meta.updated)),
        ..Default::default()
    };
    let name = operation_name(dag, placed.generation);
    v1::Operation { name, metadata: Some(metadata), done: false, result: None }
}

/// The operation by which a DAG got this generation. It has the same name at every replica.
fn operation_name(dag: &DagName, generation: u64) -> String {
    format!("operations/{}.{}.{generation}", dag.tenant, dag.dag)
}

/// The DAG in an operation's name. An operation of an earlier generation was superseded, and ends with the last one.
pub(crate) fn parse_operation(text: &str) -> Option<DagName> {
    let mut parts = text.strip_prefix("operations/")?.splitn(3, '.');
    let (tenant, dag, generation) = (parts.next()?, parts.next()?, parts.next()?);
    generation.parse::<u64>().ok()?;
    name::dag("name", &format!("tenants/{tenant}/dags/{dag}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A DAG may lose its place after it was served: its operation has ended long before.
    #[test]
    fn an_operation_that_has_ended_stays_so() {
        let dag = |served_generation, is_ready| FleetDag {
            name: name::dag("name", "tenants/acme/dags/web-1").expect("a name"),
            spec: snic_domain::DagSpec::chain(&[], snic_domain::Bandwidth::ZERO),
            constraints: Default::default(),
            defaults: Default::default(),
            policy: Default::default(),
            card: None,
            serial: None,
            unplaced: Some(Unplaced::Waits("no room".to_owned())),
            served_by: None,
            is_ready,
            served_generation,
            generation: 2,
            meta: Default::default(),
        };
        let operator = Caller::Operator("root".to_owned());
        let of = |served| operation(&dag(served, false), &operator).done;
        assert_eq!([of(0), of(1), of(2)], [false, false, true]);
        assert_eq!(super::dag(&dag(1, false), &operator).observed_generation, 1);
    }

    #[test]
    fn an_operation_is_found_by_its_name() {
        let dag = name::dag("name", "tenants/acme/dags/web-1").expect("a name");
        let name = operation_name(&dag, 17);
        assert_eq!(name, "operations/acme.web-1.17");
        assert_eq!(parse_operation(&name), Some(dag));
        for wrong in ["operations/acme.web", "operations/acme.web.x", "acme.web.1", "operations/"] {
            assert_eq!(parse_operation(wrong), None, "{wrong}");
        }
    }
}
