//! Why a DAG is as fast as it is, as text.

use snic_api::v1::{Diagnosis, LimitingResource, TrafficWindow};
use snic_api::words::EnumWord as _;

use super::Style;
use super::dag_views::nt_drops;
use super::explain::push;
use super::latency_views;
use super::table::{properties, section, table};
use super::text::{self, id, rate};

/// The answer, then what it follows from, then what would help.
pub fn diagnosis(found: &Diagnosis, style: Style) -> String {
    let mut lines = vec![format!("{}: {}", text::dag(&found.dag), found.verdict().word())];
    push(&mut lines, (0, style.width), &found.summary);
    if !found.measured_summary.is_empty() {
        push(&mut lines, (0, style.width), &found.measured_summary);
    }
    lines.push(String::new());
    let head: String = lines.into_iter().map(|line| line + "\n").collect();
    head + &rates(found, style)
        + &section("Latency of a packet that waits nowhere", &latency(found, style))
        + &section("Measured latency", &latency_views::parts(found, style))
        + &section("Limit", &limit(found, style))
        + &section("What would help", &remedies(found, style))
}

fn rates(found: &Diagnosis, style: Style) -> String {
    let missing = match found.shortfall_bps {
        0 => String::new(),
        bps => rate(bps),
    };
    let admitted = format!("{} (limit {})", rate(found.admitted_bps), rate(found.rate_limit_bps));
    let second = found.last_second.as_ref().map(packets).unwrap_or_default();
    let ten = found.last_ten_seconds.as_ref();
    let mean = ten
        .map(|ten| format!("{} offered, {} served", rate(ten.offered_bps), rate(ten.served_bps)));
    properties(
        style,
        &[
            ("Card", id(&found.card).to_owned()),
            ("Promised", rate(found.promised_bps)),
            ("Offered", rate(found.offered_bps)),
            ("Admitted", admitted),
            ("Served", rate(found.served_bps)),
            ("Below promise by", missing),
            ("Last second", second),
            ("Last ten seconds", ten.map(packets).unwrap_or_default()),
            ("Mean of ten", mean.unwrap_or_default()),
            ("Task drops", nt_drops(&found.nt_drops)),
        ],
    )
}

/// Packets that came in, and their ends.
fn packets(window: &TrafficWindow) -> String {
    let drops = window.drops.iter().map(|drops| format!(", {} {}", drops.packets, drops.cause));
    let drops: String = drops.collect();
    let under_way = match window.packets_under_way {
        0 => String::new(),
        packets => format!(", {packets} on their way"),
    };
    format!("{} in: {} out{drops}{under_way}", window.packets_in, window.packets_out)
}

fn latency(found: &Diagnosis, style: Style) -> String {
    if found.parts.is_empty() {
        return String::new();
    }
    let row = |part: &str, cycles: u64, nanoseconds: u64| {
        vec![part.to_owned(), cycles.to_string(), format!("{nanoseconds} ns")]
    };
    let parts = found.parts.iter().map(|part| row(&part.part, part.cycles, part.nanoseconds));
    let mut rows: Vec<Vec<String>> = parts.collect();
    let sum = |of: fn(&snic_api::v1::LatencyPart) -> u64| found.parts.iter().map(of).sum();
    rows.push(row("together", sum(|part| part.cycles), sum(|part| part.nanoseconds)));
    table(style, &["PART", "CYCLES", "TIME"], rows)
}

fn limit(found: &Diagnosis, style: Style) -> String {
    let Some(limit) = &found.limit else { return String::new() };
    let mut lines = Vec::new();
    push(&mut lines, (0, style.width), &resource(limit));
    let users = found.users.iter().filter(|user| user.used_bps > 0); // most that may use it are idle
    let rows = users.map(|user| vec![text::dag(&user.dag), rate(user.used_bps)]);
    let rows: Vec<Vec<String>> = rows.collect();
    let users = if rows.is_empty() { String::new() } else { table(style, &["DAG", "USES"], rows) };
    if found.users_left_out > 0 {
        lines.push(format!("the largest users; {} more use it:", found.users_left_out));
    }
    lines.into_iter().map(|line| line + "\n").collect::<String>() + &users
}

/// The resource in a sentence.
fn resource(limit: &LimitingResource) -> String {
    let is = if limit.limiting { "limited by" } else { "nothing limits it now; the fullest is" };
    let what = match (id(&limit.nt_type), &*limit.region) {
        ("", _) => limit.resource.clone(),
        (nt, region) => format!("{nt} in region {}", text::region(region)),
    };
    let used = limit.used_bps.map(|used| format!("{} of ", rate(used))).unwrap_or_default();
    format!("{is} {what}: {used}{}", rate(limit.capacity_bps))
}

fn remedies(found: &Diagnosis, style: Style) -> String {
    let mut lines = Vec::new();
    for remedy in &found.remedies {
        push(&mut lines, (0, style.width), &format!("- {remedy}"));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::fixtures;
    use super::*;

    #[test]
    fn the_answer_comes_first_and_everything_fits() {
        let style =
            Style { is_colour: false, width: crate::output::WIDTH, now: SystemTime::UNIX_EPOCH };
        insta::assert_snapshot!(diagnosis(&fixtures::diagnosis(), style));
        let empty = diagnosis(&Diagnosis::default(), style);
        assert!(!empty.contains("Latency") && !empty.contains("help"), "{empty}");
    }
}
