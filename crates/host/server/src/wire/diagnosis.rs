//! Why a DAG is as fast as it is, on the wire.

use snic_api::convert::name;
use snic_api::v1;
use snic_api::v1::diagnosis::Verdict as Word;
use snic_controller::{
    DagVerdict, Diagnosis, LatencyPart, LimitingResource, PacketPart, ResourceUser,
};
use snic_domain::CardId;

use super::{drops, window};

const fn verdict(verdict: DagVerdict) -> Word {
    match verdict {
        DagVerdict::NotPlaced => Word::NotPlaced,
        DagVerdict::Unserved => Word::Unserved,
        DagVerdict::NotMeasured => Word::NotMeasured,
        DagVerdict::Idle => Word::Idle,
        DagVerdict::KeepsUp => Word::KeepsUp,
        DagVerdict::BeyondPromise => Word::BeyondPromise,
        DagVerdict::BelowPromise => Word::BelowPromise,
    }
}

/// A diagnosis; the clock is its card's.
pub(crate) fn diagnosis(found: &Diagnosis) -> v1::Diagnosis {
    let recent = &found.last_ten_seconds;
    v1::Diagnosis {
        dag: found.dag.to_string(),
        card: found.card.as_ref().map(name::of_card).unwrap_or_default(),
        verdict: verdict(found.verdict).into(),
        summary: found.summary.clone(),
        promised_bps: found.promised.get(),
        offered_bps: found.offered.get(),
        admitted_bps: found.admitted.get(),
        rate_limit_bps: found.rate.get(),
        served_bps: found.served.get(),
        shortfall_bps: found.shortfall.get(),
        recent_packets_in: recent.packets_in,
        recent_packets_out: recent.packets_out,
        recent_drops: drops(&recent.drops),
        parts: found.latency.iter().map(|part| latency(part, found.clock_hz)).collect(),
        limit: found.limit.as_ref().map(|limit| resource(limit, found.card.as_ref())),
        users: found.users.iter().map(user).collect(),
        users_left_out: u32::try_from(found.users_left_out).unwrap_or(u32::MAX),
        remedies: found.remedies.iter().map(ToString::to_string).collect(),
        nt_drops: Vec::new(),
        last_second: Some(window(&found.last_second, Some(&found.measured.last_second))),
        last_ten_seconds: Some(window(recent, Some(&found.measured.last_ten_seconds))),
        measured_summary: found.latency_summary.clone(),
    }
}

fn latency(part: &LatencyPart, clock_hz: u64) -> v1::LatencyPart {
    let nanoseconds = part.cycles.duration(clock_hz).as_nanos();
    v1::LatencyPart {
        part: match &part.part {
            PacketPart::Core => "core".to_owned(),
            PacketPart::Pass(number) => format!("pass {number}"),
            PacketPart::Node(node) => node.to_string(),
        },
        cycles: part.cycles.get(),
        nanoseconds: u64::try_from(nanoseconds).unwrap_or(u64::MAX),
    }
}

fn resource(limit: &LimitingResource, card: Option<&CardId>) -> v1::LimitingResource {
    let region = card.zip(limit.region).map(|(card, region)| name::of_region(card, region));
    v1::LimitingResource {
        resource: limit.resource.to_string(),
        region: region.unwrap_or_default(),
        nt_type: limit.nt.as_ref().map(name::of_nt_type).unwrap_or_default(),
        capacity_bps: limit.capacity.get(),
        used_bps: limit.used.map(|used| used.get()),
        limiting: limit.is_limiting,
    }
}

fn user(user: &ResourceUser) -> v1::LimitingResourceUser {
    v1::LimitingResourceUser { dag: user.dag.to_string(), used_bps: user.used.get() }
}
