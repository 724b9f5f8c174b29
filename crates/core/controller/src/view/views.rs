//! Makes views for callers from the state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{
    Bandwidth, BitstreamId, BoundFunction, ByteSize, CardId, Cycles, DagName, DagSpec, DagState,
    Digest, IdleTask, Instance, Mapping, NodeId, NtTypeId, RegionId, RuleId, Slot, VirtualChain,
    VmId,
};
use snic_planner::Ledger;
use snic_tables::{ClassifierRow, GuardRow};

use crate::decide::rows;
use crate::protocol::etag::etag;
use crate::protocol::{
    BindingRecord, BindingView, BoundDag, DagMoves, DagView, MeasuredLatencies, MeasuredPart,
    OperationRecord, OperationView, OperationWork, RegionUser, RegionView, RuleView, SlotView,
    StatePlace, StateView,
};
use crate::state::Core;
use crate::state::card::CardMachine;
use crate::state::dags::DagEntry;
use crate::state::rules::Rules;
use crate::store::records::{Phase, Placement, regions_of};
use crate::view::guards;
use crate::view::images;

/// DAGs that a drain names at most: an answer is read by people.
const LEFT_NAMED_MAX: usize = 8;

pub(crate) fn dag_etag(entry: &DagEntry) -> String {
    let notes = &entry.spec().notes;
    let (name, uid, generation) = (entry.name(), entry.uid(), entry.generation());
    if notes.is_empty() {
        return etag(&[name, &uid, &generation]);
    }
    let notes = serde_json::to_vec(notes).expect("they are stored as JSON");
    etag(&[name, &uid, &generation, &Digest::of(&notes)])
}

pub(crate) fn view_of(core: &Core, entry: &DagEntry) -> DagView {
    let desired = entry.desired();
    let active = entry.active().and_then(|serial| entry.placement(serial));
    DagView {
        name: entry.name().clone(),
        uid: entry.uid(),
        spec: entry.spec().clone(),
        generation: entry.generation(),
        observed_generation: entry.observed_generation(),
        state: dag_state(core, entry),
        conditions: entry.conditions().to_vec(),
        mapping: desired.map(|p| p.mapping.clone()),
        contents: desired.map(|p| contents(core, p)).unwrap_or_default(),
        latency: desired.map_or(Cycles::ZERO, |p| latency(core, &p.spec, &p.mapping)),
        explanation: entry.explanation().cloned(),
        rate: entry.rate(active.map_or(entry.spec().bandwidth, |p| p.spec.bandwidth)),
        unserved: entry.unserved(),
        shortfall: entry.shortfall(),
        states: contexts_of(core, entry.name()),
        traffic: entry.meter().traffic().map(Box::new),
        measured: measured(core, entry).map(Box::new),
        etag: dag_etag(entry),
        created: entry.created(),
        updated: entry.updated(),
        assigned: entry.assigned().cloned(),
        idle_tasks: idle_tasks_of(core, entry),
    }
}

/// The tasks of a DAG that pass packets on unchanged where it is placed. A card says of itself that it works only as
/// configurations and modules say; of a task that is in several regions each image has to have its module.
pub(crate) fn idle_tasks(core: &Core, spec: &DagSpec, mapping: &Mapping) -> Vec<IdleTask> {
    let card = core.cards.get(&mapping.card);
    if !card.is_some_and(CardMachine::passes_through) {
        return Vec::new();
    }
    let mut idle = Vec::new();
    for node in spec.nodes.iter().filter(|node| node.configuration.is_none()) {
        let has_module = |instance: &Instance, at: usize| {
            let bitstream = core.registry.bitstream(&instance.bitstream);
            bitstream.is_some_and(|of| of.modules.contains(&instance.slots[at]))
        };
        let mut chains = mapping.chains().filter_map(|chain| {
            let at = chain.nodes.iter().position(|id| *id == node.id)?;
            Some((chain, at))
        });
        let is_idle = |(chain, at): (&VirtualChain, usize)| {
            chain.instances.iter().any(|instance| !has_module(instance, at))
        };
        if chains.any(is_idle) {
            idle.push(IdleTask { node: node.id.clone(), nt: node.nt.clone() });
        }
    }
    idle
}

/// The same of a DAG, where it has a place.
fn idle_tasks_of(core: &Core, entry: &DagEntry) -> Vec<IdleTask> {
    entry.desired().map(|of| idle_tasks(core, &of.spec, &of.mapping)).unwrap_or_default()
}

/// Latency of a packet of a DAG that waits nowhere, at a place.
pub(crate) fn latency(core: &Core, spec: &DagSpec, mapping: &Mapping) -> Cycles {
    let card = core.cards.known(&mapping.card);
    let programs = &mapping.programs;
    if !programs.is_empty() {
        // Known only where all are.
        let all: Option<Duration> = programs.iter().map(|program| program.latency).sum();
        let cycles = u128::from(card.profile().clock_hz) * all.unwrap_or_default().as_nanos();
        return Cycles::new(u64::try_from(cycles / 1_000_000_000).unwrap_or(u64::MAX));
    }
    card.latency(mapping, core.registry.latency(spec, mapping))
}

/// Latencies of a DAG's packets in the last ten seconds, where any was sampled.
fn measured(core: &Core, entry: &DagEntry) -> Option<MeasuredLatencies> {
    let desired = entry.desired()?;
    let clock_hz = core.cards.get(&desired.mapping.card)?.profile().clock_hz;
    let latencies = entry.meter().latencies();
    // While it moves, packets pass the places of both.
    let active = entry.active().and_then(|serial| entry.placement(serial));
    let mappings = || [Some(desired), active].into_iter().flatten().map(|of| &of.mapping);
    let task = |region, slot| {
        let node = mappings().find_map(|mapping| task_at(mapping, region, slot));
        node.map_or(MeasuredPart::FormerTask, MeasuredPart::Task)
    };
    let last_ten_seconds = latencies.ten_seconds(clock_hz, task);
    (last_ten_seconds.samples > 0).then(|| MeasuredLatencies {
        planned: latency(core, &desired.spec, &desired.mapping).duration(clock_hz),
        last_second: latencies.second(clock_hz, task),
        last_ten_seconds,
    })
}

/// The task that a DAG has at a place of its card; a program has its number there.
fn task_at(mapping: &Mapping, region: u8, slot: u8) -> Option<NodeId> {
    let number = usize::from(region) * CHAIN_SLOTS_MAX + usize::from(slot);
    let program = mapping.programs.get(number).map(|program| &program.node);
    let of_chain = |chain: &VirtualChain| {
        let mut here = chain.instances.iter().filter(|i| i.region.index() == usize::from(region));
        let at = here.find_map(|i| i.slots.iter().position(|s| s.index() == usize::from(slot)))?;
        chain.nodes.get(at).cloned()
    };
    program.cloned().or_else(|| mapping.chains().find_map(of_chain))
}

/// NTs in each bitstream of a placement.
fn contents(core: &Core, placement: &Placement) -> BTreeMap<BitstreamId, Vec<NtTypeId>> {
    let content = |id: &BitstreamId| {
        let bitstream = core.registry.bitstream(id)?;
        Some((id.clone(), bitstream.nts.clone()))
    };
    placement.mapping.instances().filter_map(|i| content(&i.bitstream)).collect()
}

pub(crate) fn region_view(core: &Core, id: &CardId, region: RegionId) -> Option<RegionView> {
    let card = core.cards.get(id)?;
    let entry = card.region(region)?;
    let profile = card.profile().region(region)?;
    Some(RegionView {
        card: id.clone(),
        region,
        kind: profile.kind,
        area: profile.area,
        state: card.region_state(region),
        cordoned: entry.is_cordoned(),
        bitstream: entry.bitstream().cloned(),
        slots: slots(core, card.ledger(), region),
        users: users(core, card, region),
        loads: entry.loads(),
        failures: entry.failures(),
        stalls: entry.stalls(),
        last_error: entry.fault().or(entry.last_error()).map(ToOwned::to_owned),
        last_error_at: entry.last_error_at(),
        states: contexts_in(core, id, region),
        etag: guards::region_etag(core, id, region)?,
    })
}

fn slots(core: &Core, ledger: &Ledger, region: RegionId) -> Vec<SlotView> {
    let nts = ledger.content(region).map_or(&[][..], |content| &content.nts);
    (0u8..)
        .map(Slot)
        .zip(nts)
        .map(|(slot, nt)| SlotView {
            nt: nt.clone(),
            bandwidth_max: core.registry.nt(nt).map_or(Default::default(), |nt| nt.bandwidth_max),
            reserved: ledger.reserved(region, slot),
        })
        .collect()
}

fn users(core: &Core, card: &CardMachine, region: RegionId) -> Vec<RegionUser> {
    let user = |name: &DagName| {
        let entry = core.dags.get(name)?;
        let mut slots = Vec::new();
        let mut bandwidth = Bandwidth::ZERO;
        let placement = entry.placements().next()?;
        for instance in placement.mapping.instances().filter(|i| i.region == region) {
            slots.extend(instance.slots.iter().copied());
            bandwidth += instance.bandwidth;
        }
        slots.sort_unstable();
        slots.dedup();
        Some(RegionUser { dag: name.clone(), slots, bandwidth })
    };
    card.ledger().users(region).filter_map(user).collect()
}

pub(crate) fn rule_view(core: &Core, id: &RuleId) -> Option<RuleView> {
    let record = core.rules.get(id)?;
    let card = core.cards.get(&record.card);
    let uid = core.dags.get(&record.rule.dag).map(|entry| entry.uid());
    let desired = uid.map(|uid| rows::classifier(&record.rule, uid));
    let observed = card
        .filter(|card| card.is_ready())
        .and_then(|card| card.tables().active().get::<ClassifierRow>(record.row));
    Some(RuleView {
        rule: record.rule.clone(),
        programmed: observed.is_some() && observed == desired,
        etag: Rules::etag(record),
        binding: record.binding.clone(),
        created: record.created,
        updated: record.updated.unwrap_or(record.created),
    })
}

/// Number of regions in an operation's work, and number of those that are done; as it was, if it has ended.
pub(crate) fn regions_done(core: &Core, record: &OperationRecord) -> (u32, u32) {
    if record.ended.is_some() {
        return record.regions.unwrap_or_default();
    }
    let regions = match &record.work {
        OperationWork::CreateDag(name) | OperationWork::UpdateDag(name) => {
            core.dags.get(name).and_then(|entry| entry.desired()).map(|placement| {
                let loaded = core.cards.known(&placement.mapping.card).count_loaded(placement);
                (regions_of(placement).len() as u32, loaded as u32)
            })
        }
        OperationWork::DrainRegion(card, region) => drained(core, card, Some(*region)),
        OperationWork::DrainCard(card) => drained(core, card, None),
        _ => None,
    };
    regions.unwrap_or_default()
}

/// Moves of a consolidation; as they were, if it has ended.
pub(crate) fn dag_moves(core: &Core, record: &OperationRecord) -> Option<DagMoves> {
    match &record.work {
        OperationWork::OptimizeCard(_) if record.ended.is_none() => {
            Some(core.passes.moves(&record.id))
        }
        _ => record.moves,
    }
}

/// Obstacle that an operation waits for before it can end; `users` are the DAGs that still use what it deletes.
fn stage(core: &Core, record: &OperationRecord, users: Option<usize>) -> Option<String> {
    if record.ended.is_some() {
        return None;
    }
    match &record.work {
        OperationWork::CreateDag(name) | OperationWork::UpdateDag(name) => {
            Some(core.dags.get(name)?.conditions().last()?.message.clone())
        }
        OperationWork::DrainRegion(card, region) => not_drained(core, card, Some(*region)),
        OperationWork::DrainCard(card) => not_drained(core, card, None),
        _ => users.map(|users| match users {
            1 => "1 DAG still uses it".to_owned(),
            users => format!("{users} DAGs still use it"),
        }),
    }
}

/// Number of regions to be drained, and number of those that are.
fn drained(core: &Core, id: &CardId, region: Option<RegionId>) -> Option<(u32, u32)> {
    let ledger = core.cards.get(id)?.ledger();
    let all = || core.cards.regions_meant(id, region);
    let empty = all().filter(|region| ledger.is_unused(*region)).count();
    Some((u32::try_from(all().count()).ok()?, u32::try_from(empty).ok()?))
}

/// DAGs that are left in drained regions, with the reason.
fn not_drained(core: &Core, id: &CardId, region: Option<RegionId>) -> Option<String> {
    let ledger = core.cards.get(id)?.ledger();
    let left: BTreeSet<&DagName> =
        core.cards.regions_meant(id, region).flat_map(|r| ledger.users(r)).collect();
    let what = if region.is_none() {
        "packets of what it serves come in by this card: delete it, or unbind its machines and \
         bind them at another one"
    } else {
        "what finds no room in other regions stays: uncordon some, or delete DAGs"
    };
    let left = if left.is_empty() {
        "no DAG is left".to_owned()
    } else {
        let named: Vec<_> = left.iter().take(LEFT_NAMED_MAX).map(|n| n.to_string()).collect();
        let more = left.len().saturating_sub(named.len());
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let are = if left.len() == 1 { "DAG is" } else { "DAGs are" };
        format!("{} {are} left: {}{more}; {what}", left.len(), named.join(", "))
    };
    Some(left)
}

pub(crate) fn operation_view(core: &Core, record: &OperationRecord) -> OperationView {
    let entry = match &record.work {
        OperationWork::CreateDag(name) | OperationWork::UpdateDag(name) => core.dags.get(name),
        _ => None,
    };
    let users = core.operations.removal(&record.id).map(|of| images::users(core, of).len());
    let region = match &record.work {
        OperationWork::DrainRegion(card, region) | OperationWork::ResetRegion(card, region) => {
            region_view(core, card, *region).map(Box::new)
        }
        _ => None,
    };
    let started = record.started.is_some();
    let cancellable = record.ended.is_none()
        && match &record.work {
            OperationWork::CreateDag(_) => !started,
            OperationWork::UpdateDag(_) => {
                !started && entry.is_some_and(|e| e.previous().is_some())
            }
            OperationWork::DrainRegion(..)
            | OperationWork::DrainCard(_)
            | OperationWork::OptimizeCard(_) => true,
            OperationWork::DeleteBitstream(_) | OperationWork::DeleteTenant(_) => {
                users.is_some_and(|users| users > 0)
            }
            OperationWork::DeleteDag(..)
            | OperationWork::ResetRegion(..)
            | OperationWork::LoadRole { .. }
            | OperationWork::ResetCard { .. } => false,
        };
    OperationView {
        region,
        cancellable,
        record: record.clone(),
        regions: regions_done(core, record),
        moves: dag_moves(core, record),
        stage: stage(core, record, users),
        dags_left: users.unwrap_or_default() as u32,
        idle_tasks: entry.map(|entry| idle_tasks_of(core, entry)).unwrap_or_default(),
        dag: entry.filter(|_| record.ended.is_some()).map(|entry| Box::new(view_of(core, entry))),
    }
}

/// State of a DAG, in one word.
pub(crate) fn dag_state(core: &Core, entry: &DagEntry) -> DagState {
    let Some(placement) = entry.desired() else {
        return DagState::Failed; // It waits for a place.
    };
    let card = core.cards.known(&placement.mapping.card);
    let silent = !card.is_ready();
    let operation = entry.operation().and_then(|id| core.operations.get(id));
    match operation {
        None if entry.is_served() && entry.is_configured() && !silent => DagState::Ready,
        None => DagState::Degraded,
        Some(operation) if operation.started.is_some() => DagState::Provisioning,
        Some(_) if entry.previous().is_some() => DagState::Provisioning,
        Some(_) => DagState::Pending,
    }
}

pub(crate) fn view_of_binding(core: &Core, record: &BindingRecord) -> BindingView {
    let dag = |name: &DagName| {
        let entry = core.dags.get(name);
        BoundDag {
            name: name.clone(),
            uid: entry.map(|entry| entry.uid()),
            state: entry.map(|entry| dag_state(core, entry)),
        }
    };
    let programmed = |function: &BoundFunction| {
        rule_view(core, &function.rule).is_some_and(|rule| rule.programmed)
    };
    let guarded = |(number, function): (usize, &BoundFunction)| {
        let card = core.cards.get(&function.card).filter(|card| card.guards());
        let row = card.and_then(|card| card.tables().active().get::<GuardRow>(function.function));
        row == Some(rows::guard(&record.limits_of(number)))
    };
    BindingView {
        guarded: record.functions.iter().enumerate().map(guarded).collect(),
        dags: record.dags().iter().map(dag).collect(),
        programmed: record.functions.iter().map(programmed).collect(),
        expires: core.bindings.expires(&record.spec.vm),
        etag: guards::binding_etag(record),
        record: record.clone(),
    }
}

pub(crate) fn binding_view(core: &Core, vm: &VmId) -> Option<BindingView> {
    core.bindings.get(vm).map(|record| view_of_binding(core, record))
}

/// The contexts of a DAG: those in regions first.
pub(crate) fn contexts_of(core: &Core, name: &DagName) -> Vec<StateView> {
    core.cards.ids().flat_map(|id| contexts_where(core, id, |of, _| of == name)).collect()
}

/// The contexts in a region, or being saved from it.
fn contexts_in(core: &Core, id: &CardId, region: RegionId) -> Vec<StateView> {
    contexts_where(core, id, |_, place| match place {
        StatePlace::Region(of) | StatePlace::Saving(of) => of == region,
        StatePlace::Saved(_) => false,
    })
}

/// The contexts on a card that are meant: those in regions first.
pub(crate) fn contexts_where(
    core: &Core,
    id: &CardId,
    is_meant: impl Fn(&DagName, StatePlace) -> bool,
) -> Vec<StateView> {
    let Some(card) = core.cards.get(id) else {
        return Vec::new(); // A caller may name any card.
    };
    let in_regions = card.contexts().all_residents().map(|(region, resident)| {
        (&resident.dag, &resident.bitstream, StatePlace::Region(region), None)
    });
    let saved = card.contexts().records().filter_map(|record| {
        let place = match record.phase {
            Phase::Saving(region) => StatePlace::Saving(region),
            Phase::Saved(_) => StatePlace::Saved(record.offset),
            Phase::Erasing => return None,
        };
        Some((&record.dag, &record.bitstream, place, Some(record.since)))
    });
    let meant = in_regions.chain(saved).filter(|(dag, _, place, _)| is_meant(dag, *place));
    meant
        .map(|(dag, bitstream, place, since)| StateView {
            dag: dag.clone(),
            bitstream: bitstream.clone(),
            place,
            bytes: ByteSize::from_bytes(core.registry.state_bytes(bitstream).into()),
            since,
        })
        .collect()
}
