//! Fairness and events as text.

use snic_api::v1::fairness::Limiter;
use snic_api::v1::{DagFairness, Event, Fairness, FairnessPoint, WatchEventsResponse};
use snic_api::words::EnumWord as _;

use super::Style;
use super::table::{properties, section, table};
use super::text::{self, id, rate, size};

/// Interval of recent points of a history in a table, in seconds.
const RECENT_STEP: i64 = 30;
/// Age up to which a point is recent, and the interval of older ones, in seconds.
const OLD_STEP: i64 = 300;

/// Millionths as percent.
fn percent(ppm: u32) -> String {
    format!("{}.{:02} %", ppm / 10_000, ppm % 10_000 / 100)
}

fn millis(millis: u64) -> String {
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}

const fn word(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::Unspecified => "",
        Limiter::Demand => "its demand",
        Limiter::Area => "area",
        Limiter::Memory => "memory",
        Limiter::MemoryQuota => "its memory quota",
        Limiter::Nothing => "no request",
    }
}

/// Tenants, one row per card.
pub fn tenants(all: &[Fairness], style: Style) -> String {
    let rows = all.iter().map(|of| {
        let sum = |field: fn(&DagFairness) -> u64| rate(of.dags.iter().map(field).sum());
        vec![
            id(&of.tenant).to_owned(),
            text::card(&of.card),
            of.weight.to_string(),
            word(of.dominant()).to_owned(),
            percent(of.space_share_ppm),
            word(of.limiter()).to_owned(),
            sum(|dag| dag.load_bps.unwrap_or(0)),
            sum(|dag| dag.served_bps),
        ]
    });
    let heading = ["TENANT", "CARD", "WEIGHT", "DOMINANT", "SHARE", "LIMITED BY", "LOAD", "SERVED"];
    table(style, &heading, rows.collect())
}

/// One tenant on each of its cards, with DAGs and history.
pub fn tenant(all: &[Fairness], style: Style) -> String {
    let cards: Vec<String> = all.iter().map(|of| on_card(of, style)).collect();
    if cards.is_empty() { "no DAG on any card\n".to_owned() } else { cards.join("\n") }
}

fn on_card(of: &Fairness, style: Style) -> String {
    let regions =
        format!("{} own, {} shared", of.regions_own, millis(of.regions_shared_millis.into()));
    let busiest = if of.busiest.is_empty() {
        String::new()
    } else {
        format!("{} of {}", percent(of.busiest_ppm), of.busiest)
    };
    let head = properties(
        style,
        &[
            ("Tenant", id(&of.tenant).to_owned()),
            ("Card", text::card(&of.card)),
            ("Weight", of.weight.to_string()),
            (
                "Requests",
                format!("{} of the area, {}", percent(of.area_ppm), size(of.memory_bytes)),
            ),
            ("Dominant", word(of.dominant()).to_owned()),
            ("Share", share(of)),
            ("Limited by", word(of.limiter()).to_owned()),
            ("In time", format!("{} of all instances", percent(of.time_share_ppm))),
            ("Regions", regions),
            ("Busiest", busiest),
        ],
    );
    head + &section("DAGs, rates in Gbit/s", &dags(&of.dags, style))
        + &section("Area of NTs", &areas(&of.dags, style))
        + &section("History", &history(of, style))
}

/// Its share of the card, of all cards of the host, and of those of the fleet.
fn share(of: &Fairness) -> String {
    let (card, host) = (percent(of.space_share_ppm), percent(of.daemon_share_ppm));
    match of.fleet_share_ppm {
        0 => format!("{card} of the card, {host} of all cards"),
        fleet => {
            format!("{card} of the card, {host} of its host's, {} of the fleet's", percent(fleet))
        }
    }
}

/// A rate without a unit, so that several fit on a line.
fn gbps(bps: u64) -> String {
    format!("{:.2}", bps as f64 / 1e9)
}

fn dags(dags: &[DagFairness], style: Style) -> String {
    let rows = dags.iter().map(|dag| {
        vec![
            text::dag(&dag.dag),
            gbps(dag.admitted_bps),
            dag.load_bps.map_or_else(|| "?".to_owned(), gbps),
            gbps(dag.served_bps),
            gbps(dag.rate_bps),
            gbps(dag.holds_bps),
            millis(dag.target_instances_millis),
            dag.limited_by.clone(),
        ]
    });
    let heading = ["DAG", "COMMITTED", "LOAD", "SERVED", "RATE", "HOLDS", "COPIES", "LIMITED BY"];
    table(style, &heading, rows.collect())
}

/// Area of each NT: all of it at the NT's maximum.
fn areas(dags: &[DagFairness], style: Style) -> String {
    let uses = dags.iter().flat_map(|dag| dag.area_uses.iter().map(move |of| (dag, of)));
    let rows = uses.map(|(dag, of)| {
        vec![
            text::dag(&dag.dag),
            id(&of.nt_type).to_owned(),
            of.region.to_string(),
            of.slot.to_string(),
            percent(u32::try_from(of.area / 1_000).unwrap_or(u32::MAX)),
            gbps(of.bandwidth_max_bps),
            gbps(of.instance_bps),
        ]
    });
    table(style, &["DAG", "NT", "REGION", "SLOT", "AREA", "MAXIMUM", "INSTANCE"], rows.collect())
}

fn history(of: &Fairness, style: Style) -> String {
    if of.history.is_empty() {
        return String::new();
    }
    let seconds = |point: &FairnessPoint| point.time.map_or(0, |time| time.seconds);
    let latest = of.history.last().map(seconds).unwrap_or_default();
    // The latest point is always shown.
    let mut next = latest;
    let points = of.history.iter().rev().filter(|point| {
        let at = seconds(point);
        let is_shown = at <= next;
        if is_shown {
            next = at - if latest - at < OLD_STEP { RECENT_STEP } else { OLD_STEP };
        }
        is_shown
    });
    let mut rows: Vec<Vec<String>> = points
        .map(|point| {
            vec![
                text::time(point.time.as_ref()),
                percent(point.space_share_ppm),
                percent(point.busiest_ppm),
                rate(point.load_bps),
                rate(point.served_bps),
            ]
        })
        .collect();
    rows.reverse();
    table(style, &["TIME", "SPACE", "BUSIEST", "LOAD", "SERVED"], rows)
}

/// Events, one per line, oldest first.
pub fn events(events: &[Event], _: Style) -> String {
    if events.is_empty() {
        return "no events\n".to_owned();
    }
    events.iter().map(|event| line(event) + "\n").collect()
}

/// One event of a watch.
pub fn event_change(change: &WatchEventsResponse, _: Style) -> Option<String> {
    change.event.as_ref().map(line)
}

fn line(event: &Event) -> String {
    let regions: Vec<String> = event.regions.iter().map(ToString::to_string).collect();
    let regions = match regions.len() {
        0 => String::new(),
        1 => format!(" (region {})", regions[0]),
        _ => format!(" (regions {})", regions.join(", ")),
    };
    let about = if event.dag.is_empty() { text::card(&event.card) } else { text::dag(&event.dag) };
    let time = text::time(event.time.as_ref());
    format!("{time} {:<16} {about}: {}{regions}", event.kind().word(), event.message)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use snic_api::v1::AreaUse;

    use super::*;

    const STYLE: Style = Style { is_colour: false, width: crate::output::WIDTH, now: UNIX_EPOCH };

    #[test]
    fn no_events_are_said_to_be_none() {
        assert_eq!(events(&[], STYLE), "no events\n");
    }

    fn fairness() -> Fairness {
        Fairness {
            tenant: "tenants/acme".into(),
            card: "cards/card0".into(),
            weight: 2,
            area_ppm: 125_000,
            memory_bytes: 2 << 20,
            dominant: Limiter::Area.into(),
            space_share_ppm: 125_000,
            limiter: Limiter::Demand.into(),
            regions_own: 2,
            regions_shared_millis: 0,
            busiest: "slot 0 of region 1".into(),
            busiest_ppm: 995_000,
            time_share_ppm: 331_600,
            dags: vec![DagFairness {
                dag: "tenants/acme/dags/web".into(),
                admitted_bps: 20_000_000_000,
                load_bps: Some(30_000_000_000),
                served_bps: 19_900_000_000,
                rate_bps: 20_000_000_000,
                holds_bps: 20_000_000_000,
                fair_bps: 100_000_000_000,
                target_instances_millis: 3_000,
                limited_by: "slot 0 of region 1".into(),
                area_uses: vec![AreaUse {
                    nt_type: "ntTypes/aes".into(),
                    region: 1,
                    slot: 0,
                    area: 62_500_000,
                    bandwidth_max_bps: 10_000_000_000,
                    instance_bps: 10_000_000_000,
                    chain_bps: 20_000_000_000,
                }],
                ..DagFairness::default()
            }],
            daemon_share_ppm: 31_250,
            ..Fairness::default()
        }
    }

    #[test]
    fn at_a_fleet_the_share_of_all_its_cards_is_shown() {
        let text = tenant(
            &[Fairness {
                fleet_share_ppm: 4_200,
                card: "hosts/h1/cards/card0".into(),
                ..fairness()
            }],
            STYLE,
        );
        assert!(text.contains("3.12 % of its host's, 0.42 % of the fleet's"), "{text}");
        assert!(text.contains("h1/card0"), "{text}");
    }

    #[test]
    fn a_tenant_is_shown_with_its_numbers() {
        let text = tenant(&[fairness()], STYLE);
        for says in [
            "12.50 % of the area, 2 MiB",
            "3.12 % of all cards",
            "6.25 %",
            "99.50 % of slot 0",
            "33.16 % of all instances",
            "30.00",
            "3.000",
        ] {
            assert!(text.contains(says), "{says}: {text}");
        }
        let list = tenants(&[fairness()], STYLE);
        assert!(list.contains("acme") && list.contains("its demand"), "{list}");
        assert_eq!(tenant(&[], STYLE), "no DAG on any card\n");
    }

    #[test]
    fn a_history_has_the_last_minutes_in_steps_of_half_a_minute() {
        let point = |seconds: i64| FairnessPoint {
            time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
            ..FairnessPoint::default()
        };
        let of = Fairness { history: (0..3_600).map(point).collect(), ..fairness() };
        let text = history(&of, STYLE);
        let times: Vec<&str> =
            text.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(times.last(), Some(&"1970-01-01T00:59:59Z"));
        assert_eq!(times[times.len() - 2], "1970-01-01T00:59:29Z");
        assert_eq!(times.len(), 1 + 10 + 10, "older ones in steps of five minutes: {times:?}");
    }

    #[test]
    fn an_event_is_a_line_with_what_it_is_about() {
        let event = Event {
            number: 7,
            time: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
            kind: snic_api::v1::event::Kind::PreLaunch.into(),
            dag: "tenants/acme/dags/web".into(),
            card: "cards/card0".into(),
            regions: vec![2],
            message: "it is to hold 30 Gbit/s".into(),
            ..Event::default()
        };
        let text = events(&[event], STYLE);
        assert!(text.contains("PRE_LAUNCH"), "{text}");
        assert!(text.ends_with("acme/web: it is to hold 30 Gbit/s (region 2)\n"), "{text}");
    }
}
