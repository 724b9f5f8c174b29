//! Usage as a table and as comma-separated values.

use snic_api::v1::UsageEntry;

use super::Style;
use super::table;
use super::text;

/// Reasons of gaps, in the order of columns.
const GAPS: [&str; 6] =
    ["LATE", "CARD_RESTARTED", "COUNTERS_BACK", "COUNTERS_JUMPED", "FIRST_READING", "ROW_REUSED"];

/// Causes of drops, in the order of columns.
const CAUSES: [&str; 10] = [
    "UNCLASSIFIED",
    "STALE_UID",
    "RATE_LIMITED",
    "STORE_FULL",
    "REGION_UNAVAILABLE",
    "NO_INSTANCE",
    "MIXED_VERSIONS",
    "MEMORY_FAULT",
    "BY_NT",
    "USED_UP",
];

/// Entries, one a row, with what most people look for.
pub fn table(usage: &[UsageEntry], style: Style) -> String {
    let heading = [
        "TENANT",
        "DAG",
        "CARD",
        "FROM",
        "HOURS",
        "GBIT PROMISED",
        "BYTES IN",
        "BYTES SERVED",
        "DROPPED",
        "GAPS",
    ];
    let rows = usage.iter().map(|entry| {
        let dropped: u64 = entry.drops.iter().map(|drops| drops.packets).sum();
        vec![
            short(&entry.tenant),
            short(&entry.dag),
            short(&entry.card),
            text::time(entry.start_time.as_ref()),
            thousandths(entry.life_ms / 3_600),
            thousandths(entry.promised_kbit / 1_000),
            entry.bytes_in.to_string(),
            entry.bytes_served.to_string(),
            dropped.to_string(),
            gaps(entry),
        ]
    });
    table::table(style, &heading, rows.collect())
}

fn short(name: &str) -> String {
    match name.rsplit('/').next() {
        Some(last) if !last.is_empty() => last.to_owned(),
        _ => "-".to_owned(),
    }
}

fn thousandths(amount: u64) -> String {
    format!("{}.{:03}", amount / 1_000, amount % 1_000)
}

fn gaps(entry: &UsageEntry) -> String {
    if entry.gaps.is_empty() {
        return "-".to_owned();
    }
    let gap = |gap: &snic_api::v1::UsageGap| format!("{} {} ms", gap.reason, gap.millis);
    entry.gaps.iter().map(gap).collect::<Vec<_>>().join(", ")
}

/// All meters of all entries, with a heading, for programs: names have no character that needs quotes.
pub fn csv(usage: &[UsageEntry]) -> String {
    let mut heading: Vec<String> = [
        "tenant",
        "dag",
        "uid",
        "card",
        "start_time",
        "end_time",
        "life_ms",
        "promised_kbit",
        "region_ms",
        "bytes_in",
        "bytes_served",
        "packets_in",
        "packets_served",
    ]
    .map(str::to_owned)
    .into();
    heading.extend(CAUSES.map(|cause| format!("dropped_{}", cause.to_lowercase())));
    heading.extend(GAPS.map(|gap| format!("gap_{}_ms", gap.to_lowercase())));
    let mut lines = heading.join(",") + "\n";
    for entry in usage {
        lines += &(line(entry).join(",") + "\n");
    }
    lines
}

fn line(entry: &UsageEntry) -> Vec<String> {
    let time = |time: &Option<prost_types::Timestamp>| time.map_or(0, |time| time.seconds);
    let numbers = [
        entry.life_ms,
        entry.promised_kbit,
        entry.region_ms,
        entry.bytes_in,
        entry.bytes_served,
        entry.packets_in,
        entry.packets_served,
    ];
    let mut line = vec![
        entry.tenant.clone(),
        entry.dag.clone(),
        entry.uid.to_string(),
        entry.card.clone(),
        time(&entry.start_time).to_string(),
        time(&entry.end_time).to_string(),
    ];
    line.extend(numbers.map(|number| number.to_string()));
    line.extend(CAUSES.map(|cause| {
        let drops = entry.drops.iter().find(|drops| drops.cause == cause);
        drops.map_or(0, |drops| drops.packets).to_string()
    }));
    line.extend(GAPS.map(|reason| {
        let gap = entry.gaps.iter().find(|gap| gap.reason == reason);
        gap.map_or(0, |gap| gap.millis).to_string()
    }));
    line
}

#[cfg(test)]
mod tests {
    use snic_api::v1::{UsageDrops, UsageGap};

    use super::*;

    #[test]
    fn each_meter_has_a_column() {
        let entry = UsageEntry {
            tenant: "tenants/acme".into(),
            life_ms: 7,
            packets_served: 9,
            drops: vec![UsageDrops { cause: "USED_UP".into(), packets: 3 }],
            gaps: vec![UsageGap { reason: "ROW_REUSED".into(), millis: 1 }],
            ..UsageEntry::default()
        };
        let text = csv(&[entry]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), lines[1].len());
        let of = |column: &str| {
            let at = lines[0].iter().position(|name| *name == column).expect("a column");
            lines[1][at]
        };
        assert_eq!(
            ["tenant", "life_ms", "packets_served", "dropped_used_up", "gap_row_reused_ms"].map(of),
            ["tenants/acme", "7", "9", "3", "1"]
        );
    }
}
