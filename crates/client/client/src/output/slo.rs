//! Promises as objectives, for people.

use snic_api::v1::{GetSloResponse, UsageBreak, UsageEntry};

use super::Style;
use super::table;
use super::text;

/// All of a time, in millionths.
const WHOLE: u64 = 1_000_000;

/// Millionths as percent: `99.9`.
fn percent(ppm: u64) -> String {
    let text = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    let text = text.trim_end_matches('0');
    format!("{} %", text.trim_end_matches('.'))
}

/// Seconds: `12.345 s`.
fn seconds(millis: u64) -> String {
    format!("{}.{:03} s", millis / 1_000, millis % 1_000)
}

fn causes(broken: &[UsageBreak]) -> String {
    let of = |broken: &UsageBreak| format!("{} {}", broken.cause, seconds(broken.millis));
    match broken {
        [] => "-".to_owned(),
        all => all.iter().map(of).collect::<Vec<_>>().join(", "),
    }
}

/// One tenant or DAG: its numbers, how fast its budget is used up, and its latest outages.
pub fn slo(slo: &GetSloResponse, style: Style) -> String {
    let [from, to] = [&slo.start_time, &slo.end_time].map(|at| text::time(at.as_ref()));
    let is_kept = slo.availability_ppm >= slo.objective_ppm;
    let verdict = match (slo.promise_ms > slo.unknown_ms, is_kept) {
        (false, _) => "nothing is known",
        (true, true) => "kept",
        (true, false) => "missed",
    };
    let left = match u64::try_from(slo.budget_left_ms) {
        Ok(left) => seconds(left),
        Err(_) => format!("-{}", seconds(slo.budget_left_ms.unsigned_abs())),
    };
    let mut rows = vec![
        vec!["availability".to_owned(), percent(slo.availability_ppm.into())],
        vec!["objective".to_owned(), format!("{}, {verdict}", percent(slo.objective_ppm.into()))],
        vec!["promised".to_owned(), seconds(slo.promise_ms)],
        vec!["unknown".to_owned(), seconds(slo.unknown_ms)],
        vec!["broken".to_owned(), seconds(slo.broken_ms)],
    ];
    let mut row = |name: String, value: String| rows.push(vec![name, value]);
    for broken in &slo.broken {
        row(format!("  {}", broken.cause), seconds(broken.millis));
    }
    row("budget".to_owned(), seconds(slo.budget_ms));
    row("budget left".to_owned(), left);
    for burn in &slo.burns {
        let window =
            humantime::format_duration(std::time::Duration::from_secs(burn.window_seconds));
        let rate = burn.rate_thousandths;
        row(format!("burn rate, {window}"), format!("{}.{:03}", rate / 1_000, rate % 1_000));
    }
    let heading = format!("{} from {from} to {to}\n", text::name(&slo.name));
    let numbers = table::table(style, &["PROMISE", "VALUE"], rows);
    if slo.outages.is_empty() {
        return heading + &numbers;
    }
    let outages = slo.outages.iter().map(|outage| {
        let [start, end] = [&outage.start_time, &outage.end_time].map(|at| at.unwrap_or_default());
        let millis = |at: &prost_types::Timestamp| {
            i128::from(at.seconds) * 1_000 + i128::from(at.nanos / 1_000_000)
        };
        let length = u64::try_from(millis(&end) - millis(&start)).unwrap_or(0);
        let dag = if outage.dag.is_empty() { "-".to_owned() } else { text::dag(&outage.dag) };
        let (cause, card) = (outage.cause.clone(), text::id(&outage.card).to_owned());
        vec![text::time(Some(&start)), seconds(length), cause, dag, card]
    });
    let outages =
        table::table(style, &["SINCE", "LENGTH", "CAUSE", "DAG", "CARD"], outages.collect());
    heading + &numbers + "\n" + &outages
}

/// A line for each entry of usage; with an objective, whether it was kept.
pub fn report(usage: &[UsageEntry], objective_ppm: Option<u32>, style: Style) -> String {
    let rows = usage.iter().filter(|entry| entry.promise_ms > 0).map(|entry| {
        let known = entry.promise_ms.saturating_sub(entry.promise_unknown_ms);
        let broken: u64 = entry.broken.iter().map(|broken| broken.millis).sum();
        let kept = u128::from(known.saturating_sub(broken)) * u128::from(WHOLE);
        let ppm = kept.checked_div(known.into()).and_then(|ppm| u64::try_from(ppm).ok());
        let verdict = match (ppm, objective_ppm) {
            (Some(ppm), Some(objective)) if ppm < objective.into() => "missed",
            (Some(_), Some(_)) => "kept",
            _ => "-",
        };
        vec![
            text::id(&entry.tenant).to_owned(),
            ppm.map_or_else(|| "-".to_owned(), percent),
            verdict.to_owned(),
            seconds(entry.promise_ms),
            seconds(entry.promise_unknown_ms),
            seconds(broken),
            causes(&entry.broken),
        ]
    });
    let heading = ["TENANT", "AVAILABLE", "OBJECTIVE", "PROMISED", "UNKNOWN", "BROKEN", "CAUSES"];
    table::table(style, &heading, rows.collect())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use snic_api::v1::{SloBurn, SloOutage};

    use super::*;

    const STYLE: Style = Style { is_colour: false, width: crate::output::WIDTH, now: UNIX_EPOCH };

    fn broken() -> Vec<UsageBreak> {
        vec![UsageBreak { cause: "CARD_LOST".into(), millis: 36_500 }]
    }

    #[test]
    fn an_objective_that_is_missed_says_by_how_much_and_why() {
        let at =
            |seconds, millis| Some(prost_types::Timestamp { seconds, nanos: millis * 1_000_000 });
        let outage = SloOutage {
            dag: "tenants/acme/dags/web".into(),
            card: "cards/card0".into(),
            cause: "CARD_LOST".into(),
            start_time: at(60, 500),
            end_time: at(97, 0),
        };
        let of = GetSloResponse {
            name: "tenants/acme/dags/web".into(),
            promise_ms: 7_300_000,
            unknown_ms: 100_000,
            broken_ms: 36_500,
            broken: broken(),
            availability_ppm: 994_930,
            objective_ppm: 999_000,
            budget_ms: 7_200,
            budget_left_ms: -29_300,
            burns: vec![SloBurn { window_seconds: 300, rate_thousandths: 121_666 }],
            outages: vec![outage],
            ..GetSloResponse::default()
        };
        let text = slo(&of, STYLE);
        for part in [
            "99.493 %",
            "99.9 %, missed",
            "-29.300 s",
            "5m",
            "121.666",
            "36.500 s",
            "CARD_LOST",
            "card0",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let kept = GetSloResponse { availability_ppm: 999_000, outages: Vec::new(), ..of.clone() };
        assert!(slo(&kept, STYLE).contains("99.9 %, kept"));
        let unknown = GetSloResponse { unknown_ms: of.promise_ms, ..kept };
        assert!(slo(&unknown, STYLE).contains("nothing is known"));
    }

    #[test]
    fn a_report_has_a_line_for_each_tenant_with_a_promise() {
        let entry = |tenant: &str, promise_ms| UsageEntry {
            tenant: format!("tenants/{tenant}"),
            promise_ms,
            broken: broken(),
            ..UsageEntry::default()
        };
        let usage = [entry("acme", 3_650_000), entry("beta", 0)];
        let text = report(&usage, Some(999_000), STYLE);
        assert!(text.contains("99 %") && text.contains("missed"), "{text}");
        assert!(!text.contains("beta"), "{text}");
        assert!(report(&usage, Some(990_000), STYLE).contains("kept"));
    }
}
