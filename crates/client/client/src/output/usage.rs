//! Usage as a table.

use snic_api::v1::UsageEntry;

use super::Style;
use super::table;
use super::text;

/// Entries, one a row, with what most people look for. A column that says nothing of any of them is left out.
pub fn table(usage: &[UsageEntry], style: Style) -> String {
    let start = |entry: &UsageEntry| text::time(entry.start_time.as_ref());
    let first = usage.first().map(start).unwrap_or_default();
    let has_steps = usage.iter().any(|entry| start(entry) != first);
    let columns: [Column<'_>; 9] = [
        ("OF", &of),
        ("CARD", &|entry| short(&entry.card)),
        ("FROM", &|entry| if has_steps { start(entry) } else { NOTHING.to_owned() }),
        ("HOURS", &|entry| thousandths(entry.life_ms / 3_600)),
        ("GBIT PROMISED", &|entry| thousandths(entry.promised_kbit / 1_000)),
        ("BYTES IN", &|entry| entry.bytes_in.to_string()),
        ("BYTES SERVED", &|entry| entry.bytes_served.to_string()),
        ("DROPPED", &dropped),
        ("GAPS", &gaps),
    ];
    let says = |(_, of): &Column<'_>| usage.iter().any(|entry| of(entry) != NOTHING);
    let columns: Vec<Column<'_>> = columns.into_iter().filter(says).collect();
    let heading: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let rows = usage.iter().map(|entry| columns.iter().map(|(_, of)| of(entry)).collect());
    table::table(style, &heading, rows.collect())
}

/// A column: its heading, and its text for an entry.
type Column<'a> = (&'static str, &'a dyn Fn(&UsageEntry) -> String);

/// Text where there is nothing to say.
const NOTHING: &str = "-";

/// The tenant, or the DAG with its tenant.
fn of(entry: &UsageEntry) -> String {
    match entry.dag.as_str() {
        "" => short(&entry.tenant),
        dag => format!("{}/{}", short(&entry.tenant), short(dag)),
    }
}

fn dropped(entry: &UsageEntry) -> String {
    match entry.drops.iter().map(|drops| drops.packets).sum() {
        0_u64 => NOTHING.to_owned(),
        packets => packets.to_string(),
    }
}

fn short(name: &str) -> String {
    match name.rsplit('/').next() {
        Some(last) if !last.is_empty() => last.to_owned(),
        _ => NOTHING.to_owned(),
    }
}

fn thousandths(amount: u64) -> String {
    format!("{}.{:03}", amount / 1_000, amount % 1_000)
}

fn gaps(entry: &UsageEntry) -> String {
    if entry.gaps.is_empty() {
        return NOTHING.to_owned();
    }
    let gap = |gap: &snic_api::v1::UsageGap| format!("{} {} ms", gap.reason, gap.millis);
    entry.gaps.iter().map(gap).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use snic_api::v1::UsageDrops;

    use super::*;

    #[test]
    fn columns_that_say_nothing_are_left_out() {
        let entry = UsageEntry {
            tenant: "tenants/acme".into(),
            dag: "tenants/acme/dags/web".into(),
            life_ms: 5_400_000,
            promised_kbit: 1_234_567,
            ..UsageEntry::default()
        };
        let style = Style { is_colour: false, width: crate::output::WIDTH, now: UNIX_EPOCH };
        let plain = table(std::slice::from_ref(&entry), style);
        assert!(plain.contains("acme/web") && plain.contains("1.500"), "{plain}");
        assert!(plain.contains("1.234") && !plain.contains("DROPPED"), "{plain}");
        assert!(!plain.contains("FROM") && !plain.contains("CARD"), "{plain}");
        let later = UsageEntry {
            start_time: Some(prost_types::Timestamp { seconds: 60, nanos: 0 }),
            drops: vec![UsageDrops { cause: "BY_NT".into(), packets: 3 }],
            ..entry.clone()
        };
        let steps = table(&[entry, later], style);
        assert!(steps.contains("FROM") && steps.contains("DROPPED"), "{steps}");
    }
}
