//! Usage as a table.

use snic_api::v1::UsageEntry;

use super::Style;
use super::table;
use super::text;

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
