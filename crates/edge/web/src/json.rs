//! The API's messages as JSON for the page: only the fields it shows, numbers as numbers, enums by
//! name.

use prost_types::Timestamp;
use serde_json::{Value, json};
use snic_api::text::escaped;
use snic_api::v1;
use snic_api::words::EnumWord as _;

use crate::source::TenantAccount;

/// A value whose strings have no hidden characters: bidirectional controls change how a page's line is read, too. Names have
/// none, so links and keys stay what they are.
pub(crate) fn shown(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(escaped(&text).into_owned()),
        Value::Array(all) => all.into_iter().map(shown).collect(),
        Value::Object(all) => {
            let entry = |(key, value): (String, Value)| (escaped(&key).into_owned(), shown(value));
            all.into_iter().map(entry).collect()
        }
        other => other,
    }
}

/// Milliseconds since 1970, as in JavaScript.
fn millis(time: Option<&Timestamp>) -> i64 {
    time.map_or(0, |time| {
        time.seconds.saturating_mul(1_000).saturating_add(i64::from(time.nanos) / 1_000_000)
    })
}

pub(crate) fn card(card: &v1::Card) -> Value {
    let counters = card.counters.clone().unwrap_or_default();
    let drops: u64 = counters.drops.iter().map(|drop| drop.packets).sum();
    let errors = counters.errors_region_reconfiguring
        + counters.errors_missing_instance
        + counters.errors_mixed_versions;
    json!({
        "name": card.name,
        "model": card.model,
        "health": card.health().word(),
        "message": card.message,
        "driver": card.driver,
        "link": card.link,
        "clockHz": card.clock_hz,
        "configBytesPerSecond": card.config_port_bytes_per_second,
        "ingressBps": card.ingress_bps,
        "reconfigurations": card.reconfigurations,
        "packetsIn": counters.packets_in,
        "packetsOut": counters.packets_out,
        "drops": drops,
        "errors": errors,
    })
}

pub(crate) fn region(region: &v1::Region) -> Value {
    let slot = |slot: &v1::RegionSlot| json!({ "nt": slot.nt_type, "maxBps": slot.bandwidth_max_bps, "reservedBps": slot.reserved_bps });
    let user = |user: &v1::RegionUser| json!({ "dag": user.dag, "slots": user.slots, "bps": user.bandwidth_bps });
    json!({
        "name": region.name,
        "kind": region.kind().word(),
        "state": region.state().word(),
        "cordoned": region.cordoned,
        "bitstream": region.bitstream,
        "slots": region.slots.iter().map(slot).collect::<Vec<_>>(),
        "users": region.users.iter().map(user).collect::<Vec<_>>(),
        "failures": region.failures,
        "stalls": region.stalls,
        "reconfigurations": region.reconfigurations,
        "error": region.last_error,
    })
}

pub(crate) fn dag(dag: &v1::Dag) -> Value {
    let node = |node: &v1::dag::Node| json!({ "id": node.id, "nt": node.nt_type });
    let edge = |edge: &v1::dag::Edge| json!([edge.from_node, edge.to_node]);
    let holds = v1::condition::Status::True;
    let reason = dag.conditions.iter().find(|condition| condition.status() != holds);
    let mapping = dag.mapping.as_ref();
    json!({
        "name": dag.name,
        "uid": dag.uid,
        "state": dag.state().word(),
        "generation": dag.generation,
        "bps": dag.bandwidth_bps,
        "rateBps": dag.rate_limit_bps,
        "nodes": dag.nodes.iter().map(node).collect::<Vec<_>>(),
        "edges": dag.edges.iter().map(edge).collect::<Vec<_>>(),
        "reason": reason.map_or("", |reason| &*reason.message),
        "warnings": dag.warnings.iter().map(|warning| &*warning.message).collect::<Vec<_>>(),
        "form": mapping.map(|mapping| mapping.form().word()),
        "latencyCycles": mapping.map(|mapping| mapping.latency_cycles),
        "stages": mapping.map(|mapping| mapping.stages.iter().map(stage).collect::<Vec<_>>()),
    })
}

fn stage(stage: &v1::Stage) -> Value {
    let slot =
        |slot: &v1::ChainSlot| json!({ "used": slot.used, "nt": slot.nt_type, "node": slot.node });
    let instance = |instance: &v1::Instance| {
        json!({
            "region": instance.region,
            "bitstream": instance.bitstream,
            "bps": instance.bandwidth_bps,
            "slots": instance.slots.iter().map(slot).collect::<Vec<_>>(),
        })
    };
    let chain = |chain: &v1::VirtualChain| {
        let instances: Vec<Value> = chain.instances.iter().map(instance).collect();
        json!({ "nodes": chain.nodes, "instances": instances })
    };
    stage.branches.iter().map(chain).collect()
}

pub(crate) fn event(event: &v1::Event) -> Value {
    json!({
        "number": event.number,
        "at": millis(event.time.as_ref()),
        "kind": event.kind().word(),
        "severity": event.severity().word(),
        "dag": event.dag,
        "card": event.card,
        "regions": event.regions,
        "message": event.message,
    })
}

pub(crate) fn shares(shares: &v1::Fairness) -> Value {
    let dag = |dag: &v1::DagFairness| {
        json!({
            "dag": dag.dag,
            "admittedBps": dag.admitted_bps,
            "loadBps": dag.load_bps,
            "servedBps": dag.served_bps,
            "rateBps": dag.rate_bps,
            "limitedBy": dag.limited_by,
            "shortfallBps": dag.shortfall_bps,
        })
    };
    json!({
        "name": format!("{} {}", shares.tenant, shares.card),
        "tenant": shares.tenant,
        "card": shares.card,
        "weight": shares.weight,
        "areaPpm": shares.area_ppm,
        "spacePpm": shares.space_share_ppm,
        "limiter": shares.limiter().word(),
        "regionsOwn": shares.regions_own,
        "regionsSharedMillis": shares.regions_shared_millis,
        "busiest": shares.busiest,
        "busiestPpm": shares.busiest_ppm,
        "timePpm": shares.time_share_ppm,
        "dags": shares.dags.iter().map(dag).collect::<Vec<_>>(),
    })
}

/// The last hour of a tenant on a card.
pub(crate) fn history(shares: &v1::Fairness) -> Value {
    let point = |point: &v1::FairnessPoint| {
        let at = millis(point.time.as_ref());
        json!([at, point.space_share_ppm, point.busiest_ppm, point.load_bps, point.served_bps])
    };
    json!({
        "name": format!("{} {}", shares.tenant, shares.card),
        "points": shares.history.iter().map(point).collect::<Vec<_>>(),
    })
}

/// Usage of a tenant in the last day, its promises in 30 days, and its budget.
pub(crate) fn account(account: &TenantAccount) -> Value {
    let TenantAccount { day, slo, tenant } = account;
    let burn = |burn: &v1::SloBurn| json!([burn.window_seconds, burn.rate_thousandths]);
    let outage = |outage: &v1::SloOutage| {
        let times = [&outage.start_time, &outage.end_time].map(|time| millis(time.as_ref()));
        json!([outage.dag, outage.card, outage.cause, times[0], times[1]])
    };
    let budget = |spending: &v1::Spending| {
        json!({
            "spent": spending.spent,
            "currency": spending.currency,
            "level": spending.level().word(),
            "micros": tenant.quota.as_ref().and_then(|quota| quota.month_budget_micros),
        })
    };
    json!({
        "name": tenant.name,
        "promisedKbit": day.promised_kbit,
        "bytesIn": day.bytes_in,
        "bytesServed": day.bytes_served,
        "packetsDropped": day.drops.iter().map(|drops| drops.packets).sum::<u64>(),
        "regionMillis": day.region_ms,
        "gapMillis": day.gaps.iter().map(|gap| gap.millis).sum::<u64>(),
        "promiseMillis": slo.promise_ms,
        "unknownMillis": slo.unknown_ms,
        "availabilityPpm": slo.availability_ppm,
        "objectivePpm": slo.objective_ppm,
        "budgetLeftMillis": slo.budget_left_ms,
        "burns": slo.burns.iter().map(burn).collect::<Vec<_>>(),
        "outages": slo.outages.iter().map(outage).collect::<Vec<_>>(),
        "budget": tenant.spending.as_ref().map(budget),
    })
}

/// Why a DAG is mapped as it is.
pub(crate) fn explanation(why: &v1::Explanation) -> Value {
    let chosen = |embedding: &v1::Embedding| {
        let term = |term: &v1::ScoreTerm| json!([term.name, term.value, term.unit]);
        json!({
            "way": embedding.way().word(),
            "region": embedding.region,
            "bitstream": embedding.bitstream,
            "bps": embedding.bandwidth_bps,
            "score": embedding.score_terms.iter().map(term).collect::<Vec<_>>(),
        })
    };
    let rejected = |other: &v1::RejectedAlternative| json!({ "way": other.way().word(), "why": other.message });
    let chain = |chain: &v1::ChainExplanation| {
        json!({
            "nodes": chain.nodes,
            "chosen": chain.chosen.iter().map(chosen).collect::<Vec<_>>(),
            "rejected": chain.rejected.iter().map(rejected).collect::<Vec<_>>(),
        })
    };
    json!({
        "form": why.form_reason,
        "sequentialCycles": why.sequential_latency_cycles,
        "parallelCycles": why.parallel_latency_cycles,
        "chains": why.chains.iter().map(chain).collect::<Vec<_>>(),
        "lines": why.lines,
    })
}

/// Why a DAG is as fast as it is.
pub(crate) fn diagnosis(found: &v1::Diagnosis) -> Value {
    let drops = |drops: &v1::PacketDrops| json!([drops.cause, drops.packets]);
    let by_nt = |drops: &v1::NtDrops| json!([drops.nt_type, drops.reason, drops.packets]);
    let part = |part: &v1::LatencyPart| json!([part.part, part.cycles, part.nanoseconds]);
    let user = |user: &v1::LimitingResourceUser| json!([user.dag, user.used_bps]);
    let limit = found.limit.as_ref().map(|limit| {
        json!({
            "resource": limit.resource,
            "region": limit.region,
            "nt": limit.nt_type,
            "capacityBps": limit.capacity_bps,
            "usedBps": limit.used_bps,
            "limiting": limit.limiting,
        })
    });
    let windows = [&found.last_second, &found.last_ten_seconds];
    let measured = windows.into_iter().find_map(|window| window.as_ref()?.latency.as_ref());
    json!({
        "verdict": found.verdict().word(),
        "summary": found.summary,
        "promisedBps": found.promised_bps,
        "offeredBps": found.offered_bps,
        "admittedBps": found.admitted_bps,
        "servedBps": found.served_bps,
        "drops": found.recent_drops.iter().map(drops).collect::<Vec<_>>(),
        "ntDrops": found.nt_drops.iter().map(by_nt).collect::<Vec<_>>(),
        "latency": found.parts.iter().map(part).collect::<Vec<_>>(),
        "latencySummary": found.measured_summary,
        "measured": measured.map(measured_latency),
        "limit": limit,
        "users": found.users.iter().map(user).collect::<Vec<_>>(),
        "usersLeftOut": found.users_left_out,
        "remedies": found.remedies,
    })
}

/// Latencies by part: its kind, its node, then p50, p99 and the longest in nanoseconds.
fn measured_latency(measured: &v1::MeasuredLatency) -> Value {
    let part = |part: &v1::MeasuredPart| {
        let times = part.latency.unwrap_or_default();
        json!([part.kind().word(), part.node, times.p50_nanos, times.p99_nanos, times.max_nanos])
    };
    json!({
        "samples": measured.samples,
        "parts": measured.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds() {
        let at = Timestamp { seconds: 3, nanos: 250_999_999 };
        assert_eq!((millis(Some(&at)), millis(None)), (3_250, 0));
    }

    #[test]
    fn an_account_has_sums_outages_and_the_budget() {
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let outage = v1::SloOutage {
            dag: "tenants/acme/dags/web".into(),
            card: "cards/card0".into(),
            cause: "CARD_LOST".into(),
            start_time: at(3),
            end_time: at(5),
        };
        let drops = |packets| v1::UsageDrops { cause: "FIFO_FULL".into(), packets };
        let day = v1::UsageEntry { drops: vec![drops(3), drops(4)], ..Default::default() };
        let slo = v1::GetSloResponse {
            availability_ppm: 999_500,
            budget_left_ms: -7,
            outages: vec![outage],
            burns: vec![v1::SloBurn { window_seconds: 300, rate_thousandths: 1_500 }],
            ..Default::default()
        };
        let level = v1::spending::Level::Warned.into();
        let spending = v1::Spending { spent: "8.5".into(), level, ..Default::default() };
        let quota = v1::Quota { month_budget_micros: Some(10_000_000), ..Default::default() };
        let tenant =
            v1::Tenant { quota: Some(quota), spending: Some(spending), ..Default::default() };
        let shown = account(&TenantAccount { day, slo, tenant });
        assert_eq!((&shown["packetsDropped"], &shown["budgetLeftMillis"]), (&json!(7), &json!(-7)));
        let outages = json!([["tenants/acme/dags/web", "cards/card0", "CARD_LOST", 3_000, 5_000]]);
        assert_eq!((&shown["outages"], &shown["burns"]), (&outages, &json!([[300, 1_500]])));
        let budget =
            json!({ "spent": "8.5", "currency": "", "level": "WARNED", "micros": 10_000_000 });
        assert_eq!(shown["budget"], budget);
        assert_eq!(account(&TenantAccount::default())["budget"], Value::Null);
    }

    #[test]
    fn a_diagnosis_says_why_tasks_dropped_packets() {
        let drops = v1::NtDrops {
            nt_type: "ntTypes/firewall".into(),
            reason: "no_connection".into(),
            packets: 7,
        };
        let found = diagnosis(&v1::Diagnosis { nt_drops: vec![drops], ..Default::default() });
        assert_eq!(found["ntDrops"], json!([["ntTypes/firewall", "no_connection", 7]]));
        assert_eq!(diagnosis(&v1::Diagnosis::default())["ntDrops"], json!([]));
    }

    #[test]
    fn a_diagnosis_has_the_latencies_that_were_measured() {
        let times = v1::LatencyQuantiles { p50_nanos: 1, p99_nanos: 2, max_nanos: 3 };
        let part = v1::MeasuredPart {
            kind: v1::measured_part::Kind::Task.into(),
            node: "aes".into(),
            latency: Some(times),
        };
        let latency = v1::MeasuredLatency { samples: 9, total: None, parts: vec![part] };
        let ten = v1::TrafficWindow { latency: Some(latency), ..Default::default() };
        let found = diagnosis(&v1::Diagnosis { last_ten_seconds: Some(ten), ..Default::default() });
        let expected = json!({ "samples": 9, "parts": [["TASK", "aes", 1, 2, 3]] });
        assert_eq!(found["measured"], expected);
        assert_eq!(diagnosis(&v1::Diagnosis::default())["measured"], Value::Null);
    }

    #[test]
    fn a_dag_shows_the_first_condition_that_does_not_hold() {
        use v1::condition::Status;
        let condition = |status: Status, message: &str| v1::Condition {
            status: status.into(),
            message: message.into(),
            ..Default::default()
        };
        let conditions = vec![
            condition(Status::True, "mapped"),
            condition(Status::False, "region 3 is loading"),
        ];
        let waiting = dag(&v1::Dag { conditions, ..Default::default() });
        assert_eq!(waiting["reason"], "region 3 is loading");
        assert_eq!(waiting["stages"], Value::Null, "not mapped");
        assert_eq!(dag(&v1::Dag::default())["reason"], "");
        let warning = v1::Warning { message: "aes passes".into(), ..Default::default() };
        let idle = dag(&v1::Dag { warnings: vec![warning], ..Default::default() });
        assert_eq!(idle["warnings"], json!(["aes passes"]));
    }

    #[test]
    fn drops_and_errors_of_a_card_are_summed() {
        let counters = v1::CardCounters {
            drops: vec![v1::PacketDrops { packets: 3, ..Default::default() }; 2],
            errors_missing_instance: 1,
            errors_mixed_versions: 1,
            ..Default::default()
        };
        let shown = card(&v1::Card { counters: Some(counters), ..Default::default() });
        assert_eq!((&shown["drops"], &shown["errors"]), (&json!(6), &json!(2)));
    }
}
