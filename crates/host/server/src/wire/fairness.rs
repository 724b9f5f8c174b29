//! Fairness and events on the wire.

use snic_api::convert::{name, timestamp};
use snic_api::v1;
use snic_api::v1::event::{Kind, Severity};
use snic_api::v1::fairness::Limiter as Word;
use snic_controller::{
    AreaUse, DagFairness, Fairness, FairnessPoint, FairnessView, Limiter, LogEntry, LogKind,
    ResourceUse, Scheme, SpaceView, Spare,
};

const fn limiter(limiter: Limiter) -> Word {
    match limiter {
        Limiter::Demand => Word::Demand,
        Limiter::Area => Word::Area,
        Limiter::Memory => Word::Memory,
        Limiter::MemoryQuota => Word::MemoryQuota,
        Limiter::Nothing => Word::Nothing,
    }
}

/// A tenant on a card; with its history or without.
pub(crate) fn fairness(view: &FairnessView, with_history: bool) -> v1::Fairness {
    let busiest = view.busiest.map(|(resource, _)| resource.to_string());
    let busiest_ppm = view.busiest.map_or(0, |(_, ppm)| ppm);
    let history = if with_history { &view.history[..] } else { &[] };
    v1::Fairness {
        tenant: name::of_tenant(&view.tenant),
        card: name::of_card(&view.card),
        weight: view.weight,
        area_ppm: view.area_ppm,
        memory_bytes: view.memory.get(),
        dominant: view.dominant.map_or(Word::Unspecified, limiter).into(),
        space_share_ppm: view.space_ppm,
        limiter: limiter(view.limiter).into(),
        regions_own: view.regions_own,
        regions_shared_millis: view.regions_shared_millis,
        busiest: busiest.unwrap_or_default(),
        busiest_ppm,
        dags: view.dags.iter().map(dag).collect(),
        history: history.iter().map(point).collect(),
        daemon_share_ppm: view.daemon_ppm,
        step: view.step,
        policy: Some(policy(view.rules)),
        space: Some(space(&view.space)),
        time_share_ppm: view.time_ppm,
        fleet_share_ppm: 0, // that is said by fleets
    }
}

fn dag(dag: &DagFairness) -> v1::DagFairness {
    v1::DagFairness {
        dag: dag.dag.to_string(),
        admitted_bps: dag.admitted.get(),
        load_bps: dag.load.map(|load| load.get()),
        served_bps: dag.served.get(),
        rate_bps: dag.rate.get(),
        holds_bps: dag.holds.get(),
        fair_bps: dag.fair.get(),
        target_instances_millis: dag.target_millis,
        limited_by: dag.limited_by.map(|resource| resource.to_string()).unwrap_or_default(),
        counted_load_bps: dag.counted.get(),
        allotted_bps: dag.allotted.get(),
        granted_bps: dag.granted.get(),
        area_per_bps: dag.area_per_bps,
        area_uses: dag.area_uses.iter().map(area_use).collect(),
        memory_pages: dag.memory_pages,
        resources: dag.resources.iter().map(resource).collect(),
        shortfall_bps: dag.shortfall.get(),
    }
}

fn area_use(of: &AreaUse) -> v1::AreaUse {
    v1::AreaUse {
        nt_type: name::of_nt_type(&of.nt),
        region: of.region.0.into(),
        slot: of.slot.0.into(),
        area: of.area,
        bandwidth_max_bps: of.bandwidth_max.get(),
        instance_bps: of.instance.get(),
        chain_bps: of.chain.get(),
    }
}

fn resource(of: &ResourceUse) -> v1::ResourceUse {
    v1::ResourceUse {
        resource: of.resource.to_string(),
        is_nt_slot: of.resource.is_nt_slot(),
        capacity_bps: of.capacity,
        cost: of.cost,
    }
}

fn space(space: &SpaceView) -> v1::FairnessSpace {
    let [area_demand, memory_pages_demand] = space.demand;
    let [area_capacity, memory_pages_capacity] = space.capacity;
    let [area_allocated, memory_pages_allocated] = space.allocation;
    let [area_elsewhere, memory_pages_elsewhere] = space.elsewhere;
    v1::FairnessSpace {
        area_demand,
        area_capacity,
        area_allocated,
        memory_pages_demand,
        memory_pages_capacity,
        memory_pages_allocated,
        memory_pages_quota: space.memory_quota,
        share: space.share.raw(),
        area_elsewhere,
        memory_pages_elsewhere,
    }
}

fn policy(rules: Fairness) -> v1::FairnessPolicy {
    let scheme = match rules.scheme {
        Scheme::Static => v1::fairness_policy::Scheme::Static,
        Scheme::Drf => v1::fairness_policy::Scheme::Drf,
        Scheme::Full => v1::fairness_policy::Scheme::Full,
    };
    let spare = match rules.spare {
        Spare::LevelShares => v1::fairness_policy::Spare::LevelShares,
        Spare::ByWeight => v1::fairness_policy::Spare::ByWeight,
    };
    v1::FairnessPolicy {
        scheme: scheme.into(),
        spare: spare.into(),
        headroom_percent: rules.headroom_percent,
    }
}

fn point(point: &FairnessPoint) -> v1::FairnessPoint {
    v1::FairnessPoint {
        time: Some(timestamp(point.at)),
        space_share_ppm: point.space_ppm,
        busiest_ppm: point.busiest_ppm,
        time_share_ppm: point.time_ppm,
        load_bps: point.load.get(),
        served_bps: point.served.get(),
    }
}

/// Whether somebody has to look at it.
const fn severity(kind: LogKind) -> Severity {
    match kind {
        // Something is broken, or lost.
        LogKind::CardLost
        | LogKind::CardUnhealthy
        | LogKind::CardError
        | LogKind::PromiseBroken
        | LogKind::StateLost
        | LogKind::PoliciesRefused => Severity::Error,
        // It goes on, and not as well as it could.
        LogKind::NoPlace
        | LogKind::Overrun
        | LogKind::OddCounters
        | LogKind::MemoryFault
        | LogKind::StateKept
        | LogKind::BudgetWarning
        | LogKind::BudgetReached => Severity::Warning,
        LogKind::ScaleOut
        | LogKind::PreLaunch
        | LogKind::ScaleIn
        | LogKind::ContextSwitch
        | LogKind::Preemption
        | LogKind::Scaled
        | LogKind::StateSaved
        | LogKind::StateRestored
        | LogKind::PromiseKept
        | LogKind::CardBack
        | LogKind::CardRemoved
        | LogKind::CardReplaced
        | LogKind::CardAdded
        | LogKind::CardHealthy
        | LogKind::PoliciesApplied
        | LogKind::Cordoned
        | LogKind::Uncordoned
        | LogKind::DrainStarted
        | LogKind::DrainEnded
        | LogKind::BudgetFreed => Severity::Info,
    }
}

pub(crate) fn event(entry: &LogEntry) -> v1::Event {
    let kind = match entry.kind {
        LogKind::ScaleOut => Kind::ScaleOut,
        LogKind::PreLaunch => Kind::PreLaunch,
        LogKind::ScaleIn => Kind::ScaleIn,
        LogKind::ContextSwitch => Kind::ContextSwitch,
        LogKind::Preemption => Kind::Reclaim,
        LogKind::Scaled => Kind::Scaled,
        LogKind::NoPlace => Kind::NoPlace,
        LogKind::Overrun => Kind::Overrun,
        LogKind::OddCounters => Kind::OddCounters,
        LogKind::MemoryFault => Kind::MemoryFault,
        LogKind::PoliciesApplied => Kind::PoliciesApplied,
        LogKind::PoliciesRefused => Kind::PoliciesRefused,
        LogKind::StateSaved => Kind::StateSaved,
        LogKind::StateRestored => Kind::StateRestored,
        LogKind::StateLost => Kind::StateLost,
        LogKind::StateKept => Kind::StateKept,
        LogKind::PromiseBroken => Kind::PromiseBroken,
        LogKind::PromiseKept => Kind::PromiseKept,
        LogKind::CardLost => Kind::CardLost,
        LogKind::CardBack => Kind::CardBack,
        LogKind::CardRemoved => Kind::CardRemoved,
        LogKind::CardReplaced => Kind::CardReplaced,
        LogKind::CardAdded => Kind::CardAdded,
        LogKind::CardUnhealthy => Kind::CardUnhealthy,
        LogKind::CardHealthy => Kind::CardHealthy,
        LogKind::CardError => Kind::CardError,
        LogKind::Cordoned => Kind::Cordoned,
        LogKind::Uncordoned => Kind::Uncordoned,
        LogKind::DrainStarted => Kind::DrainStarted,
        LogKind::DrainEnded => Kind::DrainEnded,
        LogKind::BudgetWarning => Kind::BudgetWarning,
        LogKind::BudgetReached => Kind::BudgetReached,
        LogKind::BudgetFreed => Kind::BudgetFreed,
    };
    v1::Event {
        number: entry.number,
        time: Some(timestamp(entry.at)),
        kind: kind.into(),
        severity: severity(entry.kind).into(),
        dag: entry.dag.as_ref().map(ToString::to_string).unwrap_or_default(),
        card: entry.card.as_ref().map(name::of_card).unwrap_or_default(),
        regions: entry.regions.iter().map(|region| region.0.into()).collect(),
        message: entry.text.clone(),
    }
}
