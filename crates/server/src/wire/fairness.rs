//! Fairness and events on the wire.

use snic_api::convert::{name, timestamp};
use snic_api::v1;
use snic_api::v1::event::Kind;
use snic_api::v1::fairness::Limiter as Word;
use snic_controller::{DagFairness, FairnessPoint, FairnessView, Limiter, LogEntry, LogKind};

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
    let (busiest, busiest_ppm) = view.busiest.clone().unwrap_or_default();
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
        busiest,
        busiest_ppm,
        dags: view.dags.iter().map(dag).collect(),
        history: history.iter().map(point).collect(),
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
        limited_by: dag.limited_by.clone().unwrap_or_default(),
    }
}

fn point(point: &FairnessPoint) -> v1::FairnessPoint {
    v1::FairnessPoint {
        time: Some(timestamp(point.at)),
        space_share_ppm: point.space_ppm,
        busiest_ppm: point.time_ppm,
        load_bps: point.load.get(),
        served_bps: point.served.get(),
    }
}

/// A decision.
pub(crate) fn event(entry: &LogEntry) -> v1::Event {
    let kind = match entry.kind {
        LogKind::ScaleOut => Kind::ScaleOut,
        LogKind::PreLaunch => Kind::PreLaunch,
        LogKind::ScaleIn => Kind::ScaleIn,
        LogKind::ContextSwitch => Kind::ContextSwitch,
        LogKind::Reclaim => Kind::Reclaim,
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
    };
    v1::Event {
        number: entry.number,
        time: Some(timestamp(entry.at)),
        kind: kind.into(),
        dag: entry.dag.as_ref().map(ToString::to_string).unwrap_or_default(),
        card: entry.card.as_ref().map(name::of_card).unwrap_or_default(),
        regions: entry.regions.iter().map(|region| region.0.into()).collect(),
        message: entry.text.clone(),
    }
}
