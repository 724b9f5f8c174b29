//! The controller's views as messages on the wire.

use snic_api::convert::dag::{self, Content, DagReader};
use snic_api::convert::{
    binding, bitstream, card, explanation, name, nt_type, rule, tenant, timestamp,
};
use snic_api::v1;
use snic_api::v1::chain_state::Place;
use snic_api::v1::operation_metadata::{Progress, Verb};
use snic_controller::{
    BitstreamView, CardCounters, CardHealth, CardLoss, CardView, DagCounters, DagMoves, DagTraffic,
    DagView, DropCause, MeasuredLatencies, MeasuredLatency, NtView, OperationView, OperationWork,
    RegionView, ResourceKey, RuleView, StatePlace, StateView, TenantSpending, TenantView,
    TrafficWindow,
};
use snic_domain::{Caller, Headroom, ProcessorProfile, RegionState};
use snic_front::configurations;

use crate::error;

pub(crate) mod device;
mod diagnosis;
mod fairness;
pub(crate) mod latency;

pub(crate) use diagnosis::diagnosis;
pub(crate) use fairness::{event, fairness};

/// The reader, for conversions that depend on it.
pub(crate) const fn reader(caller: &Caller) -> DagReader<'_> {
    match caller {
        // Orchestrators see bindings only; no method that reads DAGs is open to them.
        Caller::Operator(_) | Caller::Orchestrator(_) => DagReader::Operator,
        Caller::Tenant(tenant) => DagReader::Tenant(tenant),
    }
}

/// The name of a resource.
pub(crate) fn name(resource: &ResourceKey) -> String {
    match resource {
        ResourceKey::Tenant(id) => name::of_tenant(id),
        ResourceKey::NtType(id) => name::of_nt_type(id),
        ResourceKey::Bitstream(id) => name::of_bitstream(id),
        ResourceKey::Dag(dag) => dag.to_string(),
        ResourceKey::Card(id) => name::of_card(id),
        ResourceKey::Region(card, region) => name::of_region(card, *region),
        ResourceKey::Rule(id) => name::of_rule(id),
        ResourceKey::Binding(vm) => binding::of_binding(vm),
        ResourceKey::Operation(id) => name::of_operation(id),
    }
}

pub(crate) fn tenant(view: &TenantView) -> v1::Tenant {
    let usage = &view.usage;
    v1::Tenant {
        name: name::of_tenant(&view.tenant.id),
        uid: view.uid.clone(),
        weight: view.tenant.weight,
        quota: Some(tenant::quota_to_wire(&view.tenant.quota)),
        usage: Some(v1::Usage {
            dags: usage.dags,
            bandwidth_bps: usage.bandwidth.get(),
            bitstreams: usage.bitstreams,
            bitstream_bytes: usage.bitstream_bytes.get(),
            memory_bytes: usage.memory.get(),
            nt_types: usage.nt_types,
            rules: usage.rules,
            machines: usage.machines,
            operations: usage.operations,
            threads: usage.threads,
        }),
        etag: view.etag.clone(),
        create_time: Some(timestamp(view.created)),
        update_time: Some(timestamp(view.updated)),
        fleet_managed: view.fleet_number.is_some(),
        labels: view.tenant.notes.labels.as_map().clone(),
        description: view.tenant.notes.description.as_str().to_owned(),
        spending: view.spending.as_ref().map(spending),
        project: view.tenant.project.as_ref().map(name::of_project).unwrap_or_default(),
    }
}

fn spending(of: &TenantSpending) -> v1::Spending {
    let spent = of.spent.map(|spent| spent.to_string()).unwrap_or_default();
    tenant::spending_to_wire(of.month, (spent, &of.currency), of.level, of.at_limit)
}

pub(crate) fn nt_type(view: &NtView) -> v1::NtType {
    v1::NtType {
        etag: view.etag.clone(),
        create_time: Some(timestamp(view.created)),
        configurable: configurations::is_configurable(&view.nt.id),
        ..nt_type::nt_type_to_wire(&view.nt)
    }
}

pub(crate) fn bitstream(view: &BitstreamView) -> v1::Bitstream {
    let region = |(card, region): &(_, _)| name::of_region(card, *region);
    v1::Bitstream {
        area: Some(card::area_to_wire(view.area)),
        loaded_regions: view.regions.iter().map(region).collect(),
        missing_regions: bitstream::regions_to_wire(&view.missing_regions),
        state: match view.rejection {
            None => v1::bitstream::State::Available.into(),
            Some(_) => v1::bitstream::State::Rejected.into(),
        },
        rejection: view.rejection.as_ref().map(|of| of.reason.clone()).unwrap_or_default(),
        reject_time: view.rejection.as_ref().map(|of| timestamp(of.since)),
        retry_time: view.rejection.as_ref().map(|of| timestamp(of.retry_from)),
        etag: view.etag.clone(),
        create_time: Some(timestamp(view.created)),
        ..bitstream::bitstream_to_wire(&view.bitstream)
    }
}

/// A rule as a reader sees it. The machine that it ends with is for operators: a tenant does not know machines by their UUIDs.
pub(crate) fn rule(view: &RuleView, reader: &Caller) -> v1::Rule {
    let binding = view.binding.as_ref().filter(|_| reader.tenant().is_none());
    v1::Rule {
        binding: binding.map(binding::of_binding).unwrap_or_default(),
        update_time: Some(timestamp(view.updated)),
        etag: view.etag.clone(),
        create_time: Some(timestamp(view.created)),
        ..rule::rule_to_wire(&view.rule)
    }
}

pub(crate) fn dag(view: &DagView, reader: DagReader<'_>) -> v1::Dag {
    v1::Dag {
        name: view.name.to_string(),
        uid: view.uid.raw(),
        nodes: dag::nodes_to_wire(&view.spec, configurations::shown),
        edges: dag::edges_to_wire(&view.spec),
        bandwidth_bps: view.spec.bandwidth.get(),
        form: dag::preference_to_wire(view.spec.form).into(),
        packet_sizes: dag::packet_sizes_to_wire(&view.spec.packet_sizes),
        trusted_tenants: view.spec.trusted_tenants.iter().map(name::of_tenant).collect(),
        card_affinity: dag::affinity_to_wire(&view.spec.card_affinity),
        placement: None, // where in a fleet it may go the fleet knows
        placement_defaults: None,
        latency_sensitive: view.spec.latency_sensitive,
        refuse_idle_tasks: view.spec.refuse_idle_tasks,
        latency_bound_nanos: view.spec.latency_bound.get(),
        labels: view.spec.notes.labels.as_map().clone(),
        description: view.spec.notes.description.as_str().to_owned(),
        state: dag::state_to_wire(view.state).into(),
        generation: view.generation,
        observed_generation: view.observed_generation,
        conditions: view.conditions.iter().map(dag::condition_to_wire).collect(),
        mapping: mapping(view, reader),
        rate_limit_bps: view.rate.get(),
        unserved_bps: view.unserved.get(),
        shortfall_bps: view.shortfall.get(),
        fleet_managed: view.assigned.is_some(),
        fleet_card: String::new(), // that is said by the fleet
        states: view.states.iter().map(|state| chain_state(state, reader)).collect(),
        traffic: view.traffic.as_deref().map(|of| traffic(of, view.measured.as_deref())),
        etag: view.etag.clone(),
        create_time: Some(timestamp(view.created)),
        update_time: Some(timestamp(view.updated)),
        warnings: configurations::warnings(&view.idle_tasks),
    }
}

fn traffic(traffic: &DagTraffic, measured: Option<&MeasuredLatencies>) -> v1::DagTraffic {
    let sums = &traffic.sums;
    v1::DagTraffic {
        offered_bps: traffic.offered.get(),
        served_bps: traffic.served.get(),
        packets_in: sums.packets_in,
        packets_out: sums.packets_out,
        bytes_in: sums.bytes_in,
        bytes_out: sums.bytes_out,
        drops: drops(&sums.drops),
        // No register has them: see `links`.
        nt_drops: Vec::new(),
        flow_rules: None,
        last_second: Some(window(&traffic.last_second, measured.map(|of| &of.last_second))),
        last_ten_seconds: Some(window(
            &traffic.last_ten_seconds,
            measured.map(|of| &of.last_ten_seconds),
        )),
    }
}

/// Drops by cause, without causes that have none.
fn drops(drops: &[u64; DropCause::ALL.len()]) -> Vec<v1::PacketDrops> {
    let some = DropCause::ALL.iter().zip(drops).filter(|(_, packets)| **packets > 0);
    some.map(|(cause, packets)| v1::PacketDrops {
        cause: cause_word(*cause).to_owned(),
        packets: *packets,
    })
    .collect()
}

fn window(window: &TrafficWindow, measured: Option<&MeasuredLatency>) -> v1::TrafficWindow {
    v1::TrafficWindow {
        duration_nanos: u64::try_from(window.span.as_nanos()).unwrap_or(u64::MAX),
        offered_bps: window.offered().get(),
        served_bps: window.served().get(),
        packets_in: window.packets_in,
        packets_out: window.packets_out,
        drops: drops(&window.drops),
        packets_under_way: window.under_way(),
        latency: measured.filter(|measured| measured.samples > 0).map(latency::measured),
    }
}

fn mapping(view: &DagView, reader: DagReader<'_>) -> Option<v1::Mapping> {
    let mapping = view.mapping.as_ref()?;
    let chains = view.explanation.iter().flat_map(|explanation| &explanation.chains);
    let loads = chains.flat_map(|chain| &chain.embeddings).map(|e| e.reconfigurations).sum();
    Some(v1::Mapping {
        form: dag::form_to_wire(mapping.form).into(),
        stages: dag::stages_to_wire(mapping, Content { nts: &view.contents, reader }),
        latency_cycles: view.latency.get(),
        reconfigurations: loads,
        programs: dag::programs_to_wire(mapping),
    })
}

/// Why a DAG is mapped as it is, and what its card has left; `None` while it is not mapped.
pub(crate) fn explanation(
    view: &DagView,
    headroom: &[Headroom],
    reader: DagReader<'_>,
) -> Option<v1::Explanation> {
    let why = view.explanation.as_ref()?;
    let card = view.mapping.as_ref().map(|mapping| &mapping.card);
    Some(v1::Explanation {
        dag: Some(dag(view, reader)),
        headroom: card
            .map(|card| explanation::headroom_to_wire(headroom, card, reader))
            .unwrap_or_default(),
        ..explanation::explanation_to_wire(why, card, reader)
    })
}

pub(crate) fn card(view: &CardView) -> v1::Card {
    let out_of_use = |state| matches!(state, RegionState::Faulty | RegionState::Unknown);
    let lame: Vec<String> = view
        .regions
        .iter()
        .filter(|(_, state)| out_of_use(*state))
        .map(|(region, _)| region.to_string())
        .collect();
    let unfit = view.device.as_ref().and_then(device::why_unfit);
    let (health, message) = match &view.health {
        CardHealth::Lost(reason) => (v1::card::Health::Lost, lost_message(reason, view.loss)),
        CardHealth::Adopting => {
            (v1::card::Health::Recovering, "it is being asked what it holds".to_owned())
        }
        CardHealth::Ok if unfit.is_some() => {
            (v1::card::Health::Impaired, unfit.unwrap_or_default())
        }
        CardHealth::Ok if lame.is_empty() => (v1::card::Health::Ok, String::new()),
        CardHealth::Ok => {
            let message = format!("regions out of use: {}; see their last_error", lame.join(", "));
            (v1::card::Health::Impaired, message)
        }
    };
    let profile = &view.profile;
    v1::Card {
        name: name::of_card(&view.card),
        model: profile.model.to_string(),
        part: profile.part.clone(),
        health: health.into(),
        message,
        table_version: view.table_version.into(),
        words_written: view.words_written,
        reconfigurations: view.loads,
        stalls: view.stalls,
        config_port_bytes_per_second: profile.configuration_bytes_per_second,
        clock_hz: profile.clock_hz,
        regions: u32::try_from(profile.regions.len()).unwrap_or(u32::MAX),
        regions_cordoned: u32::try_from(view.cordoned.len()).unwrap_or(u32::MAX),
        ingress_bps: profile.ingress.get(),
        egress_bps: profile.egress.get(),
        memory_bytes: profile.memory.get(),
        memory_bytes_per_second: profile.memory_bytes_per_second.map_or(0, |rate| rate.get()),
        scheduler_lookups_per_cycle: profile.scheduler_lookups_per_cycle.map_or(0, |n| n.get()),
        packet_store_beats_per_cycle: profile.packet_store_beats_per_cycle.map_or(0, |n| n.get()),
        counters: Some(counters(&view.counters)),
        lost_since: view.loss.map(|loss| timestamp(loss.since)),
        open_attempts: view.loss.map(|loss| loss.attempts).unwrap_or_default(),
        etag: view.etag.clone(),
        processors: processors(view),
        device: view.device.as_ref().map(device::device),
        conditions: view.device.as_ref().map(device::conditions).unwrap_or_default(),
        // How it is reached is no part of the plan: see `links`.
        ..v1::Card::default()
    }
}

fn processors(view: &CardView) -> Vec<v1::CardProcessor> {
    let all = view.profile.processors.iter().zip(&view.threads_used);
    let one = |(processor, used): (&ProcessorProfile, &u32)| v1::CardProcessor {
        kind: dag::processor_to_wire(processor.kind).into(),
        cores: processor.cores,
        threads: processor.threads,
        threads_used: *used,
    };
    all.map(one).collect()
}

/// Why it does not answer, and how often that was tried.
fn lost_message(reason: &str, loss: Option<CardLoss>) -> String {
    match loss.map(|loss| loss.attempts).unwrap_or_default() {
        0 => reason.to_owned(),
        1 => format!("{reason}; 1 attempt to open it failed"),
        attempts => format!("{reason}; {attempts} attempts to open it failed"),
    }
}

/// The card counts bytes by DAG: packets without a DAG are in none of these.
fn counters(counters: &CardCounters) -> v1::CardCounters {
    let of = |cause: DropCause| {
        let all = DropCause::ALL.iter().zip(counters.drops);
        all.filter(|(other, _)| **other == cause).map(|(_, packets)| packets).sum::<u64>()
    };
    let drops = DropCause::ALL.iter().filter(|cause| !cause.is_error() && of(**cause) > 0);
    let bytes = |of_dag: fn(&DagCounters) -> u64| -> u64 {
        counters.dags.iter().map(|(_, dag)| of_dag(dag)).fold(0, u64::saturating_add)
    };
    v1::CardCounters {
        packets_in: counters.packets_in,
        packets_out: counters.packets_out,
        bytes_in: bytes(|dag| dag.bytes_intended),
        bytes_out: bytes(|dag| dag.bytes_served),
        drops: drops
            .map(|cause| v1::PacketDrops {
                cause: cause_word(*cause).to_owned(),
                packets: of(*cause),
            })
            .collect(),
        errors_region_reconfiguring: of(DropCause::RegionUnavailable),
        errors_missing_instance: of(DropCause::NoInstance),
        errors_mixed_versions: of(DropCause::MixedVersions),
    }
}

pub(crate) const fn cause_word(cause: DropCause) -> &'static str {
    match cause {
        DropCause::Unclassified => "UNKNOWN_DAG",
        DropCause::StaleUid => "STALE_UID",
        DropCause::RateLimited => "RATE_LIMITED",
        DropCause::StoreFull => "STORE_FULL",
        DropCause::RegionUnavailable => "REGION_UNAVAILABLE",
        DropCause::NoInstance => "NO_INSTANCE",
        DropCause::MixedVersions => "MIXED_VERSIONS",
        DropCause::MemoryFault => "MEMORY_FAULT",
        DropCause::ByNt => "BY_NT",
        DropCause::UsedUp => "USED_UP",
        DropCause::LinkFull => "LINK_FULL",
        DropCause::LinkLost => "LINK_LOST",
        DropCause::NoGuest => "NO_GUEST",
    }
}

/// A card that was never opened: only the reason is known.
pub(crate) fn absent_card(card: &snic_domain::CardId, reason: &str) -> v1::Card {
    v1::Card {
        name: name::of_card(card),
        health: v1::card::Health::Lost.into(),
        message: reason.to_owned(),
        ..v1::Card::default()
    }
}

pub(crate) fn region(view: &RegionView) -> v1::Region {
    let slots = view.slots.iter().map(|slot| v1::RegionSlot {
        nt_type: name::of_nt_type(&slot.nt),
        bandwidth_max_bps: slot.bandwidth_max.get(),
        reserved_bps: slot.reserved.get(),
    });
    let users = view.users.iter().map(|user| v1::RegionUser {
        dag: user.dag.to_string(),
        slots: user.slots.iter().map(|slot| slot.0.into()).collect(),
        bandwidth_bps: user.bandwidth.get(),
    });
    let error_at = view.last_error_at.filter(|_| view.last_error.is_some());
    v1::Region {
        name: name::of_region(&view.card, view.region),
        kind: card::region_kind_to_wire(view.kind).into(),
        state: card::region_state_to_wire(view.state).into(),
        cordoned: view.cordoned,
        bitstream: view.bitstream.as_ref().map(name::of_bitstream).unwrap_or_default(),
        area: Some(card::area_to_wire(view.area)),
        slots: slots.collect(),
        users: users.collect(),
        failures: view.failures,
        reconfigurations: view.loads,
        stalls: view.stalls,
        last_error: view.last_error.clone().unwrap_or_default(),
        last_error_time: error_at.map(timestamp),
        states: view.states.iter().map(|state| chain_state(state, DagReader::Operator)).collect(),
        etag: view.etag.clone(),
    }
}

fn chain_state(view: &StateView, reader: DagReader<'_>) -> v1::ChainState {
    let (place, region) = match view.place {
        StatePlace::Region(region) => (Place::InRegion, Some(region)),
        StatePlace::Saving(region) => (Place::BeingSaved, Some(region)),
        StatePlace::Saved(_) => (Place::Saved, None),
    };
    let bitstream = reader.bitstream(&view.bitstream);
    v1::ChainState {
        dag: view.dag.to_string(),
        // The size is that of all its NTs.
        bytes: if bitstream.is_empty() { 0 } else { view.bytes.get() },
        bitstream,
        place: place.into(),
        region: region.map(|region| region.0.into()),
        since: view.since.map(timestamp),
    }
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

fn target_of(work: &OperationWork) -> (String, Verb) {
    match work {
        OperationWork::CreateDag(dag) => (dag.to_string(), Verb::Create),
        OperationWork::UpdateDag(dag) => (dag.to_string(), Verb::Update),
        OperationWork::DeleteDag(dag, _) => (dag.to_string(), Verb::Delete),
        OperationWork::DrainRegion(card, region) => (name::of_region(card, *region), Verb::Drain),
        OperationWork::ResetRegion(card, region) => (name::of_region(card, *region), Verb::Reset),
        OperationWork::DrainCard(card) => (name::of_card(card), Verb::Drain),
        OperationWork::OptimizeCard(card) => (name::of_card(card), Verb::Optimize),
        OperationWork::LoadRole { card, .. } => (name::of_card(card), Verb::LoadRole),
        OperationWork::ResetCard { card, .. } => (name::of_card(card), Verb::Reset),
        OperationWork::DeleteBitstream(id) => (name::of_bitstream(id), Verb::Delete),
        OperationWork::DeleteTenant(id) => (name::of_tenant(id), Verb::Delete),
    }
}

/// Name of the resource that an operation changes.
pub(crate) fn target(work: &OperationWork) -> String {
    target_of(work).0
}

pub(crate) fn operation(view: &OperationView, caller: &Caller) -> v1::Operation {
    let record = &view.record;
    let (target, verb) = target_of(&record.work);
    let (regions_total, regions_done) = view.regions;
    let moves = view.moves.unwrap_or_default();
    let result = record.ended.as_ref().map(|(_, result)| match result {
        Ok(()) => v1::operation::Result::Response(response(view, caller)),
        Err(why) => {
            let failure = error::of_operation(why, &record.work, caller);
            v1::operation::Result::Error(failure.into())
        }
    });
    v1::Operation {
        name: name::of_operation(&record.id),
        metadata: Some(v1::OperationMetadata {
            target,
            verb: verb.into(),
            create_time: Some(timestamp(record.created)),
            start_time: record.started.map(timestamp),
            end_time: record.ended.as_ref().map(|(at, _)| timestamp(*at)),
            stage: stage(view),
            progress: Some(Progress {
                regions_total,
                regions_done,
                dags_left: view.dags_left,
                dags_moved: moves.made,
                moves_left: moves.left,
            }),
            cancellable: view.cancellable,
            warnings: configurations::warnings(&view.idle_tasks),
        }),
        done: view.is_done(),
        result,
    }
}

/// The resource's current state; only its name if it is gone.
fn response(view: &OperationView, caller: &Caller) -> prost_types::Any {
    match &view.record.work {
        OperationWork::CreateDag(name) | OperationWork::UpdateDag(name) => {
            let gone = || v1::Dag { name: name.to_string(), ..v1::Dag::default() };
            any_dag(&view.dag.as_ref().map_or_else(gone, |view| dag(view, reader(caller))))
        }
        OperationWork::DeleteDag(..)
        | OperationWork::DrainCard(_)
        | OperationWork::OptimizeCard(_)
        | OperationWork::LoadRole { .. }
        | OperationWork::ResetCard { .. }
        | OperationWork::DeleteBitstream(_)
        | OperationWork::DeleteTenant(_) => nothing(),
        OperationWork::DrainRegion(card, number) | OperationWork::ResetRegion(card, number) => {
            let name = name::of_region(card, *number);
            let gone = || v1::Region { name, ..v1::Region::default() };
            let region = view.region.as_ref().map_or_else(gone, |view| region(view));
            any("snic.control.v1.Region", &region)
        }
    }
}

/// The current step, from the DAG's last condition.
fn stage(view: &OperationView) -> String {
    match &view.record.ended {
        Some((_, Ok(()))) => return done(view.moves),
        Some((_, Err(_))) => return "failed".to_owned(),
        None => {}
    }
    match (&view.record.work, &view.stage) {
        (OperationWork::DeleteDag(..), _) => "removing it from the card's tables".to_owned(),
        (OperationWork::OptimizeCard(_), _) => "moving DAGs together".to_owned(),
        (OperationWork::LoadRole { .. }, _) => "opening the card with its role".to_owned(),
        (OperationWork::ResetCard { .. }, _) => "resetting and opening the card".to_owned(),
        (_, Some(stage)) => stage.clone(),
        _ => "accepted".to_owned(),
    }
}

/// The last step of an operation that ended well, with the moves of a consolidation.
fn done(moves: Option<DagMoves>) -> String {
    match moves {
        None => "done".to_owned(),
        Some(DagMoves { made, left: 0 }) => format!("done: DAGs moved: {made}"),
        Some(DagMoves { made, left }) => {
            format!("done: DAGs moved: {made}; without room for a move: {left}")
        }
    }
}

/// An operation that ended where it began: a dry run, or a deletion with nothing to delete.
pub(crate) fn decided(target: String, verb: Verb, response: prost_types::Any) -> v1::Operation {
    let metadata = v1::OperationMetadata { target, verb: verb.into(), ..Default::default() };
    v1::Operation {
        name: String::new(),
        metadata: Some(metadata),
        done: true,
        result: Some(v1::operation::Result::Response(response)),
    }
}
