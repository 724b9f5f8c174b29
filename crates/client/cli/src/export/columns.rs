//! All meters of usage as columns.

use snic_api::v1::{GetSloResponse, UsageEntry};

use super::period::time;
use super::values;

/// Reasons of gaps, in the order of columns.
const GAPS: [&str; 6] =
    ["LATE", "CARD_RESTARTED", "COUNTERS_BACK", "COUNTERS_JUMPED", "FIRST_READING", "ROW_REUSED"];

/// Causes of broken promises, in the order of columns.
const BREAKS: [&str; 7] = [
    "CARD_LOST",
    "NO_PLACE",
    "REGION_NOT_LOADED",
    "NOT_PROGRAMMED",
    "CONFIGURATION_REFUSED",
    "STOPPED",
    "BELOW_PROMISE",
];
/// A cause that came later: its columns are at the end.
const LATE: &str = "LATENCY_ABOVE_BOUND";

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

/// Causes of drops that came later: their columns are at the end.
const LATE_CAUSES: [&str; 3] = ["LINK_FULL", "LINK_LOST", "NO_GUEST"];

/// Values of a column, one from each entry.
pub enum Values {
    /// Resource names, such as `tenants/acme`; empty where an entry is of several.
    Text(fn(&UsageEntry) -> &str),
    /// Seconds since 1970.
    Time(fn(&UsageEntry) -> u64),
    /// Amounts.
    Amount(fn(&UsageEntry) -> u64),
    /// Packets that were dropped for a cause.
    Drops(&'static str),
    /// Milliseconds of a gap with a reason.
    Gap(&'static str),
    /// Milliseconds in which the promise was broken for a cause.
    Broken(&'static str),
    /// Time of all instances by NT type, as one text: type and milliseconds, such as `nat=60000 vpn=1200`. Types that an account does not
    /// count by themselves are `*`.
    Nts,
}

fn nts(entry: &UsageEntry) -> String {
    let name = |of: &str| match of.rsplit('/').next() {
        Some(id) if !id.is_empty() => id.to_owned(),
        _ => "*".to_owned(),
    };
    let each = entry.nts.iter().map(|of| format!("{}={}", name(&of.nt_type), of.instance_ms));
    each.collect::<Vec<_>>().join(" ")
}

impl Values {
    /// The amount of an entry; 0 of a column that has none.
    pub fn amount(&self, entry: &UsageEntry) -> u64 {
        match *self {
            Self::Text(_) | Self::Nts => 0,
            Self::Time(of) | Self::Amount(of) => of(entry),
            Self::Drops(cause) => {
                let drops = entry.drops.iter().find(|drops| drops.cause == cause);
                drops.map_or(0, |drops| drops.packets)
            }
            Self::Broken(cause) => {
                let broken = entry.broken.iter().find(|broken| broken.cause == cause);
                broken.map_or(0, |broken| broken.millis)
            }
            Self::Gap(reason) => {
                let gap = entry.gaps.iter().find(|gap| gap.reason == reason);
                gap.map_or(0, |gap| gap.millis)
            }
        }
    }

    /// Whether it is a text, and no amount or time.
    #[cfg(feature = "parquet")]
    pub const fn is_text(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Nts)
    }

    /// The value of an entry as text.
    pub fn text(&self, entry: &UsageEntry) -> String {
        match *self {
            Self::Text(of) => of(entry).to_owned(),
            Self::Nts => nts(entry),
            Self::Time(of) => time(of(entry)),
            _ => self.amount(entry).to_string(),
        }
    }
}

fn seconds(at: Option<prost_types::Timestamp>) -> u64 {
    at.map_or(0, |at| u64::try_from(at.seconds).unwrap_or_default())
}

/// Names and values of all columns, in their order.
pub fn columns() -> Vec<(String, Values)> {
    use Values::{Amount, Broken, Drops, Gap, Nts, Text, Time};
    let first: [(&str, Values); 13] = [
        ("tenant", Text(|entry| &entry.tenant)),
        ("dag", Text(|entry| &entry.dag)),
        ("uid", Amount(|entry| entry.uid.into())),
        ("card", Text(|entry| &entry.card)),
        ("start_time", Time(|entry| seconds(entry.start_time))),
        ("end_time", Time(|entry| seconds(entry.end_time))),
        ("life_ms", Amount(|entry| entry.life_ms)),
        ("promised_kbit", Amount(|entry| entry.promised_kbit)),
        ("region_ms", Amount(|entry| entry.region_ms)),
        ("bytes_in", Amount(|entry| entry.bytes_in)),
        ("bytes_served", Amount(|entry| entry.bytes_served)),
        ("packets_in", Amount(|entry| entry.packets_in)),
        ("packets_served", Amount(|entry| entry.packets_served)),
    ];
    let drops = CAUSES.map(|cause| (format!("dropped_{}", cause.to_lowercase()), Drops(cause)));
    let gaps = GAPS.map(|gap| (format!("gap_{}_ms", gap.to_lowercase()), Gap(gap)));
    // Programs read columns by their place, too: new ones are at the end.
    let last: [(&str, Values); 7] = [
        ("area_ppm_seconds", Amount(|entry| entry.area_ppm_seconds)),
        ("memory_mib_ms", Amount(|entry| entry.memory_mib_ms)),
        ("loads", Amount(|entry| entry.loads)),
        ("function_ms", Amount(|entry| entry.function_ms)),
        ("nt_instance_ms", Nts),
        ("promise_ms", Amount(|entry| entry.promise_ms)),
        ("promise_unknown_ms", Amount(|entry| entry.promise_unknown_ms)),
    ];
    let breaks = BREAKS.map(|cause| (format!("broken_{}_ms", cause.to_lowercase()), Broken(cause)));
    let [first, last] = [Vec::from(first), Vec::from(last)]
        .map(|some| some.into_iter().map(|(name, values)| (name.to_owned(), values)));
    let newest: [(&str, Values); 8] = [
        ("api_calls", Amount(|entry| entry.api_calls)),
        ("stored_byte_seconds", Amount(|entry| entry.stored_byte_seconds)),
        ("gap_not_running_ms", Gap("NOT_RUNNING")),
        ("gap_host_unreachable_ms", Gap("HOST_UNREACHABLE")),
        ("project", Text(|entry| &entry.project)),
        ("bytes_beyond_promise", Amount(|entry| entry.bytes_beyond_promise)),
        ("packets_beyond_promise", Amount(|entry| entry.packets_beyond_promise)),
        ("broken_latency_above_bound_ms", Broken(LATE)),
    ];
    let newest = newest.map(|(name, values)| (name.to_owned(), values));
    let late = LATE_CAUSES.map(|cause| (format!("dropped_{}", cause.to_lowercase()), Drops(cause)));
    first.chain(drops).chain(gaps).chain(last).chain(breaks).chain(newest).chain(late).collect()
}

/// All meters of all entries as comma-separated values, with a heading.
pub fn csv(usage: &[UsageEntry]) -> String {
    let columns = columns();
    let mut text = values::line(columns.iter().map(|(name, _)| name.clone()));
    for entry in usage {
        text += &values::line(columns.iter().map(|(_, values)| values.text(entry)));
    }
    text
}

/// Promises, and how far they were kept, as comma-separated values, with a heading. Without an objective, what follows from one is empty.
pub fn promises_csv(promises: &[GetSloResponse]) -> String {
    let names = ["name", "start_time", "end_time", "promise_ms", "unknown_ms", "broken_ms"];
    let judged = ["availability_ppm", "objective_ppm", "budget_ms", "budget_left_ms"];
    let causes = || BREAKS.into_iter().chain([LATE]);
    let breaks = causes().map(|cause| format!("broken_{}_ms", cause.to_lowercase()));
    let heading = names.into_iter().chain(judged).map(str::to_owned).chain(breaks);
    let mut text = values::line(heading);
    for of in promises {
        let has_objective = of.objective_ppm > 0;
        let judged = |value: String| if has_objective { value } else { String::new() };
        let cells = [
            of.name.clone(),
            time(seconds(of.start_time)),
            time(seconds(of.end_time)),
            of.promise_ms.to_string(),
            of.unknown_ms.to_string(),
            of.broken_ms.to_string(),
            of.availability_ppm.to_string(),
            judged(of.objective_ppm.to_string()),
            judged(of.budget_ms.to_string()),
            judged(of.budget_left_ms.to_string()),
        ];
        let breaks = causes().map(|cause| {
            let broken = of.broken.iter().find(|broken| broken.cause == cause);
            broken.map_or(0, |broken| broken.millis).to_string()
        });
        text += &values::line(cells.into_iter().chain(breaks));
    }
    text
}

#[cfg(test)]
mod tests {
    use snic_api::v1::{UsageBreak, UsageDrops, UsageGap, UsageNtTime};

    use super::*;

    #[test]
    fn promises_have_a_line_each_and_no_verdict_without_an_objective() {
        let broken = vec![UsageBreak { cause: "CARD_LOST".into(), millis: 30 }];
        let of = GetSloResponse {
            name: "tenants/acme".into(),
            promise_ms: 1_000,
            broken_ms: 30,
            broken,
            availability_ppm: 970_000,
            budget_left_ms: -29,
            budget_ms: 1,
            ..GetSloResponse::default()
        };
        let text = promises_csv(&[GetSloResponse { objective_ppm: 999_000, ..of.clone() }, of]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("name,start_time,end_time,promise_ms,"), "{text}");
        let zero = "1970-01-01T00:00:00Z";
        let first =
            format!("tenants/acme,{zero},{zero},1000,0,30,970000,999000,1,-29,30,0,0,0,0,0,0,0");
        assert_eq!(lines[1], first);
        assert_eq!(lines[2], first.replace("999000,1,-29", ",,"));
    }

    #[test]
    fn each_meter_has_a_column() {
        let entry = UsageEntry {
            tenant: "tenants/acme".into(),
            start_time: Some(prost_types::Timestamp { seconds: 60, nanos: 0 }),
            life_ms: 7,
            packets_served: 9,
            drops: vec![UsageDrops { cause: "USED_UP".into(), packets: 3 }],
            gaps: [("ROW_REUSED", 1), ("NOT_RUNNING", 5), ("HOST_UNREACHABLE", 6)]
                .map(|(reason, millis)| UsageGap { reason: reason.into(), millis })
                .into(),
            memory_mib_ms: 14,
            loads: 2,
            api_calls: 17,
            stored_byte_seconds: 19,
            project: "projects/p".into(),
            bytes_beyond_promise: 21,
            packets_beyond_promise: 22,
            promise_ms: 90,
            broken: vec![UsageBreak { cause: "BELOW_PROMISE".into(), millis: 30 }],
            nts: [("ntTypes/nat", 8), ("", 3)]
                .map(|(nt, instance_ms)| UsageNtTime { nt_type: nt.into(), instance_ms })
                .into(),
            ..UsageEntry::default()
        };
        let text = csv(&[entry]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((lines.len(), lines[0].len()), (2, lines[1].len()));
        let of = |column: &str| {
            let at = lines[0].iter().position(|name| *name == column).expect("a column");
            lines[1][at]
        };
        assert_eq!(
            ["tenant", "start_time", "life_ms", "packets_served"].map(of),
            ["tenants/acme", "1970-01-01T00:01:00Z", "7", "9"]
        );
        assert_eq!(
            ["promise_ms", "broken_below_promise_ms", "broken_card_lost_ms"].map(of),
            ["90", "30", "0"]
        );
        assert_eq!(
            ["dropped_used_up", "gap_row_reused_ms", "dropped_by_nt"].map(of),
            ["3", "1", "0"]
        );
        assert_eq!(
            ["api_calls", "stored_byte_seconds", "gap_not_running_ms"].map(of),
            ["17", "19", "5"]
        );
        assert_eq!(["gap_host_unreachable_ms", "project"].map(of), ["6", "projects/p"]);
        assert_eq!(["bytes_beyond_promise", "packets_beyond_promise"].map(of), ["21", "22"]);
        let last = Some(&"dropped_no_guest");
        assert_eq!(lines[0].last(), last, "new columns are behind the others");
        assert_eq!(
            ["memory_mib_ms", "loads", "function_ms", "nt_instance_ms"].map(of),
            ["14", "2", "0", "nat=8 *=3"]
        );
    }
}
