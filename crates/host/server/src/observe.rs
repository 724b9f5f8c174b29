//! Metrics read from the control plane.

use std::collections::BTreeMap;

use snic_api::convert::{card as wire_card, dag as wire_dag};
use snic_api::words::EnumWord as _;
use snic_controller::{
    CardHealth, CardView, Controller, DagView, DeviceView, DropCause, MeasuredLatencies,
};
use snic_domain::{Bandwidth, CardId, SensorKind};
use snic_front::share::{CallerFlow, CallerLevel};
use snic_ports::packets::NtDrops;
use snic_telemetry::metrics::{
    Metric as M, QUEUES, Reading, audit_reading, fleet_readings, publish, revocation_readings,
    store_readings,
};
use snic_telemetry::process_readings;
use snic_usage::BreakCause;

use crate::links::CardLinks;
use crate::shell::{ControlPlane, ShellError};
use crate::wire::cause_word;
use crate::wire::device::{aspect_word, status_of, units};
use crate::wire::latency;

/// Updates the metrics that are read from the control plane and from cards' ports.
///
/// # Errors
/// The control plane has ended.
pub async fn refresh(plane: &ControlPlane, links: &CardLinks) -> Result<(), ShellError> {
    let nt_drops = links.all_nt_drops();
    let read = move |controller: &Controller| readings(controller, &nt_drops);
    let mut all = plane.read(CallerLevel::Health, CallerFlow::Server, read).await?;
    all.extend(QUEUES.readings());
    all.extend(store_readings());
    all.push(audit_reading());
    all.extend(fleet_readings());
    all.extend(revocation_readings());
    all.extend(links.readings());
    all.extend(process_readings());
    publish(all);
    Ok(())
}

fn readings(controller: &Controller, nt_drops: &BTreeMap<u32, Vec<NtDrops>>) -> Vec<Reading> {
    let mut all = Vec::new();
    let mut dags: BTreeMap<&'static str, u32> = BTreeMap::new();
    for dag in controller.dags_after(None, None) {
        let of = || [("tenant", dag.name.tenant.to_string()), ("dag", dag.name.dag.to_string())];
        let bytes = |of: Bandwidth| of.get() as f64 / 8.0;
        all.push(Reading::new(M::DagRateLimit, bytes(dag.rate), of()));
        all.push(Reading::new(M::DagUnserved, bytes(dag.unserved), of()));
        all.push(Reading::new(M::DagShortfall, bytes(dag.shortfall), of()));
        let traffic = dag.traffic.as_deref().copied().unwrap_or_default();
        if dag.traffic.is_some() {
            all.push(Reading::new(M::DagLoad, bytes(traffic.offered), of()));
            all.push(Reading::new(M::DagThroughput, bytes(traffic.served), of()));
            all.push(Reading::new(M::DagIntended, traffic.sums.bytes_in as f64, of()));
            all.push(Reading::new(M::DagServed, traffic.sums.bytes_out as f64, of()));
        }
        of_latency(&mut all, &dag);
        let drops = traffic.sums.drops;
        for (cause, packets) in DropCause::ALL.iter().zip(drops).filter(|(_, n)| *n > 0) {
            let [tenant, name] = of();
            let of = [tenant, name, ("cause", cause_word(*cause).to_owned())];
            all.push(Reading::new(M::DagDrops, packets as f64, of));
        }
        for drops in nt_drops.get(&dag.uid.raw()).into_iter().flatten() {
            let [tenant, name] = of();
            let (nt, reason) = (drops.nt_type.to_string(), drops.reason.clone());
            let of = [tenant, name, ("nt", nt), ("reason", reason)];
            all.push(Reading::new(M::DagNtDrops, drops.packets as f64, of));
        }
        *dags.entry(wire_dag::state_to_wire(dag.state).word()).or_default() += 1;
    }
    let maintenance = f64::from(u8::from(controller.maintenance().is_some()));
    all.push(Reading::new(M::Maintenance, maintenance, []));
    let mut ingress = 0;
    for card in controller.cards() {
        ingress += card.profile.ingress.get();
        of_card(&mut all, &card);
        of_loop(&mut all, controller, &card.card);
    }
    for (state, count) in dags {
        all.push(Reading::new(M::Dags, count.into(), [("state", state.to_owned())]));
    }
    for tenant in controller.tenants() {
        let (spent, budget) = (tenant.spending.as_ref(), tenant.tenant.quota.month_budget);
        let spent = spent.and_then(|spending| spending.spent);
        if let Some((spent, micros)) = spent.zip(budget.micros()) {
            let of = || [("tenant", tenant.tenant.id.to_string())];
            all.push(Reading::new(M::BudgetSpent, spent.to_f64(), of()));
            all.push(Reading::new(M::BudgetLimit, micros as f64 / 1e6, of()));
        }
        if tenant.usage.dags == 0 {
            continue;
        }
        let share = tenant.usage.bandwidth.get() as f64 / (ingress.max(1) as f64);
        let of = [("tenant", tenant.tenant.id.to_string())];
        all.push(Reading::new(M::TenantShare, share, of));
    }
    of_promises(&mut all, controller);
    let mut bindings: BTreeMap<&'static str, u32> = BTreeMap::new();
    for view in controller.bindings_after(None, None) {
        let state = snic_api::convert::binding::state_to_wire(view.record.state);
        *bindings.entry(state.word()).or_default() += 1;
    }
    for (state, count) in bindings {
        all.push(Reading::new(M::Bindings, count.into(), [("state", state.to_owned())]));
    }
    all
}

/// Times of promises. All causes of a tenant are there from the first one on, so that a rate sees the first second of each.
fn of_promises(all: &mut Vec<Reading>, controller: &Controller) {
    let objective = f64::from(controller.availability_ppm()) / 1e6;
    all.push(Reading::new(M::PromiseObjective, objective, []));
    let seconds = |millis: u64| millis as f64 / 1e3;
    for (tenant, times) in controller.promise_times() {
        let of = || ("tenant", tenant.to_string());
        all.push(Reading::new(M::PromiseKnown, seconds(times.known_ms), [of()]));
        all.push(Reading::new(M::PromiseUnknown, seconds(times.unknown_ms), [of()]));
        for cause in BreakCause::ALL {
            let broken = seconds(times.broken_ms(cause));
            let of = [of(), ("cause", cause.word().to_owned())];
            all.push(Reading::new(M::PromiseBroken, broken, of));
        }
    }
}

/// Latencies of a DAG, if packets of it were sampled lately. A DAG has twelve series of them at most, whatever tasks it has.
fn of_latency(all: &mut Vec<Reading>, dag: &DagView) {
    let Some(MeasuredLatencies { planned, last_ten_seconds: measured, .. }) =
        dag.measured.as_deref()
    else {
        return;
    };
    let of = || [("tenant", dag.name.tenant.to_string()), ("dag", dag.name.dag.to_string())];
    all.push(Reading::new(M::DagLatencyPlanned, planned.as_secs_f64(), of()));
    let total = &measured.total;
    for (statistic, time) in [("p50", total.p50), ("p99", total.p99), ("max", total.max)] {
        let [tenant, name] = of();
        let of = [tenant, name, ("statistic", statistic.to_owned())];
        all.push(Reading::new(M::DagLatency, time.as_secs_f64(), of));
    }
    let mut parts: BTreeMap<&'static str, f64> = BTreeMap::new();
    for (part, times) in &measured.parts {
        let largest = parts.entry(latency::kind(part).word()).or_default();
        *largest = largest.max(times.p99.as_secs_f64());
    }
    for (part, time) in parts {
        let [tenant, name] = of();
        let of = [tenant, name, ("part", part.to_owned())];
        all.push(Reading::new(M::DagLatencyPart, time, of));
    }
}

fn of_loop(all: &mut Vec<Reading>, controller: &Controller, id: &CardId) {
    let card = || ("card", id.to_string());
    let shares = controller.dominant_shares(id);
    for (tenant, space, time) in shares {
        for (of, ppm) in [("space", space), ("time", time)] {
            let of = [card(), ("tenant", tenant.to_string()), ("of", of.to_owned())];
            all.push(Reading::new(M::DominantShare, f64::from(ppm) / 1e6, of));
        }
    }
    if let Some(figures) = controller.state_figures(id) {
        let moves =
            [("saved", figures.saved), ("restored", figures.restored), ("lost", figures.lost)];
        for (result, count) in moves {
            let of = [card(), ("result", result.to_owned())];
            all.push(Reading::new(M::StateMoves, count as f64, of));
        }
        all.push(Reading::new(M::SaveArea, figures.bytes as f64, [card()]));
    }
    let Some(figures) = controller.loop_figures(id) else { return };
    all.push(Reading::new(M::Epochs, figures.epochs as f64, [card()]));
    all.push(Reading::new(M::Overruns, figures.overruns as f64, [card()]));
    let waited = figures.scale_outs.saturating_sub(figures.scale_outs_hidden);
    for (hidden, count) in [("true", figures.scale_outs_hidden), ("false", waited)] {
        let of = [card(), ("hidden", hidden.to_owned())];
        all.push(Reading::new(M::ScaleOuts, count as f64, of));
    }
}

fn of_card(all: &mut Vec<Reading>, card: &CardView) {
    let id = || ("card", card.card.to_string());
    let mut put = |of, value: u64| all.push(Reading::new(of, value as f64, [id()]));
    put(M::CardUp, u64::from(card.health == CardHealth::Ok));
    put(M::RegionStalls, card.stalls);
    put(M::TableWords, card.words_written);
    put(M::TableCommits, card.commits);
    put(M::PacketsIn, card.counters.packets_in);
    put(M::PacketsOut, card.counters.packets_out);
    for (cause, packets) in DropCause::ALL.iter().zip(card.counters.drops) {
        let of = [id(), ("cause", cause_word(*cause).to_owned())];
        all.push(Reading::new(M::PacketsDropped, packets as f64, of));
    }
    if let Some(device) = &card.device {
        of_device(all, &card.card, device);
    }
    for (region, state) in &card.regions {
        let state = wire_card::region_state_to_wire(*state).word().to_owned();
        let of = [id(), ("region", region.to_string()), ("state", state)];
        all.push(Reading::new(M::RegionState, 1.0, of));
    }
}

/// Adds readings of a device. What is not known has no reading.
fn of_device(all: &mut Vec<Reading>, card: &CardId, device: &DeviceView) {
    let id = || ("card", card.to_string());
    for sensor in &device.reading.sensors {
        let of = match sensor.kind {
            SensorKind::Temperature => M::CardTemperature,
            SensorKind::Power => M::CardPower,
        };
        let names = [id(), ("sensor", sensor.name.clone())];
        all.extend(sensor.milli.map(|milli| Reading::new(of, units(milli), names)));
    }
    let link = device.reading.link.unwrap_or_default();
    let speed = link.speed_mts.map(|speed| f64::from(speed) * 1e6);
    all.extend(speed.map(|speed| Reading::new(M::CardLinkSpeed, speed, [id()])));
    let lanes = link.lanes.map(f64::from);
    all.extend(lanes.map(|lanes| Reading::new(M::CardLinkLanes, lanes, [id()])));
    all.push(Reading::new(M::CardDriverErrors, device.errors_seen as f64, [id()]));
    for condition in &device.conditions {
        let of = [
            id(),
            ("condition", aspect_word(condition.aspect).to_owned()),
            ("status", status_of(condition.status).1.to_owned()),
        ];
        all.push(Reading::new(M::CardCondition, 1.0, of));
    }
}
