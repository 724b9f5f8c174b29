//! Usage as a table.

use snic_api::v1::spending::Level;
use snic_api::v1::{GetUsageResponse, Spending, Tenant, UsageEntry};
use snic_api::words::EnumWord as _;
use snic_domain::MonthBudget;

use super::Style;
use super::table;
use super::text;

/// Entries, one a row, with what most people look for. A column that says nothing of any of them is left out.
pub fn table(usage: &[UsageEntry], style: Style) -> String {
    let start = |entry: &UsageEntry| text::time(entry.start_time.as_ref());
    let first = usage.first().map(start).unwrap_or_default();
    let has_steps = usage.iter().any(|entry| start(entry) != first);
    let columns: [Column<'_>; 10] = [
        ("OF", &of),
        ("CARD", &|entry| short(&entry.card)),
        ("FROM", &|entry| if has_steps { start(entry) } else { NOTHING.to_owned() }),
        ("HOURS", &|entry| thousandths(entry.life_ms / 3_600)),
        ("GBIT PROMISED", &|entry| thousandths(entry.promised_kbit / 1_000)),
        ("BYTES IN", &|entry| entry.bytes_in.to_string()),
        ("BYTES SERVED", &|entry| entry.bytes_served.to_string()),
        ("DROPPED", &dropped),
        ("API CALLS", &|entry| some(entry.api_calls)),
        ("GAPS", &gaps),
    ];
    let says = |(_, of): &Column<'_>| usage.iter().any(|entry| of(entry) != NOTHING);
    let columns: Vec<Column<'_>> = columns.into_iter().filter(says).collect();
    let heading: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let rows = usage.iter().map(|entry| columns.iter().map(|(_, of)| of(entry)).collect());
    table::table(style, &heading, rows.collect())
}

/// Money spent of the budget of this month; empty without a budget.
pub fn spent(tenant: &Tenant) -> String {
    let micros = tenant.quota.and_then(|quota| quota.month_budget_micros);
    spent_of(micros, tenant.spending.as_ref())
}

/// Money spent of a budget in millionths; empty without a budget.
pub fn spent_of(micros: Option<u64>, spending: Option<&Spending>) -> String {
    let Some(micros) = micros else { return String::new() };
    let budget = MonthBudget::from_micros(micros);
    // A fleet's leader has not looked yet, or the server is older.
    let Some(spending) = spending else { return format!("not known yet, of {budget}") };
    let month = text::time(spending.month_start_time.as_ref());
    let month = month.get(..7).unwrap_or_default();
    let at_limit = spending.at_limit.as_str();
    match spending.level() {
        Level::Unknown => format!("unknown of {budget}: the operator has no prices"),
        Level::Unspecified | Level::Within => {
            format!("{} of {budget} {} in {month}", spending.spent, spending.currency)
        }
        level => {
            let (spent, currency) = (&spending.spent, &spending.currency);
            format!(
                "{spent} of {budget} {currency} in {month} ({}, {at_limit})",
                level.word().to_lowercase()
            )
        }
    }
}

/// One account: its steps, and all meters of their sum.
pub fn account(usage: &GetUsageResponse, style: Style) -> String {
    let Some(total) = &usage.total else { return String::new() };
    let has_steps = usage.steps.len() > 1;
    let steps = if has_steps { table(&usage.steps, style) + "\n" } else { String::new() };
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, amount: u64, unit: &str| {
        rows.push(vec![name.to_owned(), amount.to_string(), unit.to_owned()]);
    };
    row("time on cards", total.life_ms, "ms");
    row("promised", total.promised_kbit, "kbit");
    row("regions", total.region_ms, "ms");
    row("area", total.area_ppm_seconds, "ppm of a card × s");
    row("memory", total.memory_mib_ms, "MiB × ms");
    row("loads", total.loads, "");
    row("functions", total.function_ms, "ms");
    row("bytes in", total.bytes_in, "");
    row("bytes served", total.bytes_served, "");
    row("packets in", total.packets_in, "");
    row("packets served", total.packets_served, "");
    row("bytes beyond the promise", total.bytes_beyond_promise, "");
    row("packets beyond the promise", total.packets_beyond_promise, "");
    row("API calls", total.api_calls, "");
    row("bitstreams stored", total.stored_byte_seconds, "bytes × s");
    for time in &total.nts {
        let name = match time.nt_type.as_str() {
            "" => "instances of other types".to_owned(),
            of => format!("instances of {}", short(of)),
        };
        row(&name, time.instance_ms, "ms");
    }
    row("with a promise", total.promise_ms, "ms");
    row("promise unknown", total.promise_unknown_ms, "ms");
    for broken in &total.broken {
        row(&format!("promise broken, {}", broken.cause), broken.millis, "ms");
    }
    for drops in &total.drops {
        row(&format!("dropped, {}", drops.cause), drops.packets, "packets");
    }
    for gap in &total.gaps {
        row(&format!("gap, {}", gap.reason), gap.millis, "ms");
    }
    let [from, to] = [&total.start_time, &total.end_time].map(|at| text::time(at.as_ref()));
    let heading = format!("{} from {from} to {to}\n", of(total));
    heading + &steps + &table::table(style, &["METER", "AMOUNT", "UNIT"], rows)
}

/// A column: its heading, and its text for an entry.
type Column<'a> = (&'static str, &'a dyn Fn(&UsageEntry) -> String);

/// Text where there is nothing to say.
const NOTHING: &str = "-";

/// The tenant, or the DAG with its tenant.
fn of(entry: &UsageEntry) -> String {
    match entry.dag.as_str() {
        "" if entry.tenant.is_empty() => short(&entry.project),
        "" => short(&entry.tenant),
        dag => format!("{}/{}", short(&entry.tenant), short(dag)),
    }
}

fn dropped(entry: &UsageEntry) -> String {
    some(entry.drops.iter().map(|drops| drops.packets).sum())
}

fn some(amount: u64) -> String {
    match amount {
        0 => NOTHING.to_owned(),
        some => some.to_string(),
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

    use snic_api::v1::{UsageDrops, UsageNtTime};

    use super::*;

    #[test]
    fn an_account_shows_each_meter_of_its_sum() {
        let times = [("ntTypes/nat", 8), ("", 3)];
        let nts = times.map(|(nt, instance_ms)| UsageNtTime { nt_type: nt.into(), instance_ms });
        let step = UsageEntry {
            tenant: "tenants/acme".into(),
            memory_mib_ms: 14,
            api_calls: 77,
            nts: nts.into(),
            ..UsageEntry::default()
        };
        let style = Style { is_colour: false, width: crate::output::WIDTH, now: UNIX_EPOCH };
        let total = Some(step.clone());
        let one = GetUsageResponse {
            steps: vec![step.clone()],
            total: total.clone(),
            ..Default::default()
        };
        let plain = account(&one, style);
        for part in [
            "acme from",
            "API calls",
            "77",
            "memory",
            "14",
            "instances of nat",
            "instances of other types",
        ] {
            assert!(plain.contains(part), "{part}: {plain}");
        }
        assert!(!plain.contains("HOURS"), "one step is its sum: {plain}");
        let two = GetUsageResponse { steps: vec![step.clone(), step], total, ..Default::default() };
        assert!(account(&two, style).contains("HOURS"));
    }

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

    #[test]
    fn money_is_shown_beside_the_budget() {
        let of = |level: Level, amount: &str| {
            let spending = Spending {
                // 2026-11-01T00:00:00Z
                month_start_time: Some(prost_types::Timestamp { seconds: 1_793_491_200, nanos: 0 }),
                spent: amount.to_owned(),
                currency: "EUR".to_owned(),
                level: level.into(),
                at_limit: "no-new-dags".to_owned(),
                ..Default::default()
            };
            let quota =
                snic_api::v1::Quota { month_budget_micros: Some(10_500_000), ..Default::default() };
            spent(&Tenant { quota: Some(quota), spending: Some(spending), ..Default::default() })
        };
        assert_eq!(of(Level::Within, "7.25"), "7.25 of 10.5 EUR in 2026-11");
        let reached = "10.5 of 10.5 EUR in 2026-11 (reached, no-new-dags)";
        assert_eq!(of(Level::Reached, "10.5"), reached);
        assert_eq!(of(Level::Unknown, ""), "unknown of 10.5: the operator has no prices");
        assert_eq!(spent(&Tenant::default()), "");
    }
}
