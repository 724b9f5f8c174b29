//! Measured latencies, as text.

use snic_api::v1::measured_part::Kind;
use snic_api::v1::{DagTraffic, Diagnosis, LatencyQuantiles, MeasuredLatency, MeasuredPart};

use super::Style;
use super::table::table;

/// Latencies of the last second, or of the last ten where no packet was sampled in that.
pub fn lately(traffic: &DagTraffic) -> Option<&MeasuredLatency> {
    let windows = [&traffic.last_second, &traffic.last_ten_seconds];
    windows.into_iter().find_map(|window| window.as_ref()?.latency.as_ref())
}

/// Quantiles of the whole time, in a line.
pub(super) fn line(traffic: &DagTraffic) -> String {
    let Some(lately) = lately(traffic) else { return String::new() };
    let total = lately.total.unwrap_or_default();
    format!(
        "p50 {}, p99 {}, longest {} ({} sampled)",
        time(total.p50_nanos),
        time(total.p99_nanos),
        time(total.max_nanos),
        packets(lately.samples)
    )
}

fn packets(number: u64) -> String {
    if number == 1 { "1 packet".to_owned() } else { format!("{number} packets") }
}

/// Latencies by part beside what was planned for each.
pub(super) fn parts(found: &Diagnosis, style: Style) -> String {
    let windows = [&found.last_second, &found.last_ten_seconds];
    let lately = windows.into_iter().find_map(|window| window.as_ref()?.latency.as_ref());
    let Some(lately) = lately else { return String::new() };
    let row = |part: String, times: LatencyQuantiles, planned: u64| {
        let times = [times.p50_nanos, times.p99_nanos, times.max_nanos, planned];
        let mut row = vec![part];
        row.extend(times.map(time));
        row
    };
    let of_part = |part: &MeasuredPart| {
        row(name(part), part.latency.unwrap_or_default(), planned(found, part))
    };
    let mut rows: Vec<Vec<String>> = lately.parts.iter().map(of_part).collect();
    let planned = found.parts.iter().map(|part| part.nanoseconds).sum();
    rows.push(row("the whole".to_owned(), lately.total.unwrap_or_default(), planned));
    table(style, &["PART", "P50", "P99", "LONGEST", "PLANNED"], rows)
}

/// Planned time of a part, in nanoseconds; none for waiting.
fn planned(found: &Diagnosis, part: &MeasuredPart) -> u64 {
    let is_shell = |name: &str| name == "core" || name.starts_with("pass ");
    let is_it = |name: &str| match part.kind() {
        Kind::Shell => is_shell(name),
        Kind::Task => name == part.node,
        _ => false,
    };
    found.parts.iter().filter(|of| is_it(&of.part)).map(|of| of.nanoseconds).sum()
}

fn name(part: &MeasuredPart) -> String {
    match part.kind() {
        Kind::Unspecified => "other",
        Kind::Ingress => "wait at ingress",
        Kind::Shell => "shell",
        Kind::SyncEntry => "wait for synchronisation",
        Kind::Credits => "wait for credits",
        Kind::Port => "wait for port",
        Kind::Egress => "wait at egress",
        Kind::Task => return format!("task {}", part.node),
        Kind::FormerTask => "tasks before a move",
    }
    .to_owned()
}

/// A time with three or four digits.
pub fn time(nanos: u64) -> String {
    match nanos {
        0..10_000 => format!("{nanos} ns"),
        10_000..10_000_000 => format!("{}.{} µs", nanos / 1_000, nanos / 100 % 10),
        10_000_000..10_000_000_000 => format!("{}.{} ms", nanos / 1_000_000, nanos / 100_000 % 10),
        _ => format!("{} s", nanos / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use snic_api::v1::TrafficWindow;

    use super::*;

    #[test]
    fn times_are_short() {
        let times = [0, 9_999, 10_000, 9_999_999, 10_000_000, 9_999_999_999, 10_000_000_000];
        let shown = ["0 ns", "9999 ns", "10.0 µs", "9999.9 µs", "10.0 ms", "9999.9 ms", "10 s"];
        assert_eq!(times.map(time), shown);
    }

    #[test]
    fn a_second_without_samples_shows_the_last_ten() {
        let total = LatencyQuantiles { p50_nanos: 1, p99_nanos: 2, max_nanos: 3 };
        let latency = MeasuredLatency { samples: 1, total: Some(total), parts: Vec::new() };
        let ten = TrafficWindow { latency: Some(latency), ..Default::default() };
        let traffic = DagTraffic {
            last_second: Some(TrafficWindow::default()),
            last_ten_seconds: Some(ten),
            ..Default::default()
        };
        assert_eq!(line(&traffic), "p50 1 ns, p99 2 ns, longest 3 ns (1 packet sampled)");
        assert_eq!(line(&DagTraffic::default()), "");
    }
}
