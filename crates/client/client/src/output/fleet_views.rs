//! A fleet as tables: how it is, its hosts, drains and projects.

use snic_api::fleet_v1::host::Condition;
use snic_api::fleet_v1::rebalance::{State, StayReason};
use snic_api::fleet_v1::{
    AreaDrain, GetFleetResponse, Host, LoadRange, Policies, Project, Rebalance, WatchHostsResponse,
};
use snic_api::v1::condition::Status as Holds;
use snic_api::words::EnumWord as _;

use super::Style;
use super::changes::changed;
use super::table::{properties, section, table};
use super::text::{age, dag, id, labels, rate, yes};

/// The word for a condition; empty where none is known.
pub const fn condition(of: Condition) -> &'static str {
    match of {
        Condition::Unspecified => "",
        Condition::InStep => "IN_STEP",
        Condition::Behind => "BEHIND",
        Condition::Suspected => "SUSPECTED",
        Condition::Lost => "LOST",
    }
}

/// Whether new DAGs go there.
pub const fn use_word(of: &Host) -> &'static str {
    match (of.draining, of.cordoned) {
        (true, _) => "draining",
        (false, true) => "cordoned",
        (false, false) => "",
    }
}

/// An area in the form that commands accept: `z1`, or `z1/r1`.
pub fn area(name: &str) -> String {
    name.strip_prefix("zones/").map_or_else(|| name.into(), |rest| rest.replacen("/racks/", "/", 1))
}

/// State of the fleet, with its rebalance that goes on or was the last.
pub fn status(fleet: &GetFleetResponse, rebalance: Option<&Rebalance>, style: Style) -> String {
    let hosts = format!(
        "{} ({} in step, {} unreachable)",
        fleet.hosts, fleet.hosts_in_step, fleet.hosts_unreachable
    );
    let drains: Vec<String> = fleet.drains.iter().map(|name| area(name)).collect();
    let rows = [
        ("Leader", fleet.leader.clone()),
        ("Answered by it", yes(fleet.is_leader).to_owned()),
        ("Hosts", hosts),
        ("Cards", fleet.cards.to_string()),
        ("Tenants", fleet.tenants.to_string()),
        ("DAGs", format!("{} ({} without a place)", fleet.dags, fleet.dags_unplaced)),
        ("Reservations", fleet.reservations.to_string()),
        ("Drained", drains.join(", ")),
        ("Rebalance", rebalance.map(|of| rebalance_brief(of, style)).unwrap_or_default()),
    ];
    let wrong = fleet.conditions.iter().filter(|of| of.status() != Holds::True);
    let wrong = wrong.map(|of| {
        let since = age(of.last_transition_time.as_ref(), style.now);
        let word = of.status().word();
        format!("{} is {word} since {since} ago: {}: {}", of.r#type, of.reason, of.message)
    });
    let wrong: Vec<String> = wrong.collect();
    match wrong.is_empty() {
        true => properties(style, &rows),
        // First, before what is as usual.
        false => format!("{}\n\n{}", wrong.join("\n"), properties(style, &rows)),
    }
}

/// Progress of a rebalance, or how it ended and when.
fn rebalance_brief(of: &Rebalance, style: Style) -> String {
    let moved = format!("{} moved", of.dags_moved);
    match of.state() {
        State::Running => format!("RUNNING: {moved}, {} moving", of.dags_moving),
        ended => {
            let age = age(of.end_time.as_ref(), style.now);
            format!("{} ({moved}, ended {age} ago)", rebalance_state(ended))
        }
    }
}

/// Hosts, one per row.
pub fn hosts(hosts: &[Host], style: Style) -> String {
    let rows = hosts.iter().map(|host| {
        vec![
            id(&host.name).to_owned(),
            host.zone.clone(),
            host.rack.clone(),
            condition(host.condition()).to_owned(),
            use_word(host).to_owned(),
            host.cards.len().to_string(),
            host.dags.to_string(),
        ]
    });
    table(style, &["HOST", "ZONE", "RACK", "CONDITION", "USE", "CARDS", "DAGS"], rows.collect())
}

/// A change of a host, on one line; `None` for a bookmark.
pub fn host_event(event: &WatchHostsResponse, _: Style) -> Option<String> {
    let host = event.host.as_ref()?;
    let how = format!("{} {}", condition(host.condition()), use_word(host));
    Some(changed(event.r#type(), id(&host.name), how.trim()))
}

/// One host with its cards, and the DAGs that stay where it is drained.
pub fn host(host: &Host, style: Style) -> String {
    let rows = [
        ("Host", id(&host.name).to_owned()),
        ("Zone", host.zone.clone()),
        ("Rack", host.rack.clone()),
        ("Condition", condition(host.condition()).to_owned()),
        ("Use", use_word(host).to_owned()),
        ("Labels", labels(&host.labels)),
        ("DAGs", host.dags.to_string()),
        ("Age", age(host.create_time.as_ref(), style.now)),
        ("Etag", host.etag.clone()),
    ];
    let cards = host.cards.iter().map(|card| {
        let word = if card.cordoned { "cordoned" } else { "" };
        vec![card.card.clone(), card.model.clone(), card.functions.to_string(), word.to_owned()]
    });
    let cards = table(style, &["CARD", "MODEL", "FUNCTIONS", "USE"], cards.collect());
    properties(style, &rows) + &section("Cards", &cards) + &bound(&host.bound_dags)
}

fn bound(dags: &[String]) -> String {
    let names: String = dags.iter().map(|name| format!("  {}\n", dag(name))).collect();
    section("DAGs that stay, since their machines are there", &names)
}

/// Progress of a drain of a rack or zone.
pub fn drain(of: &AreaDrain, style: Style) -> String {
    let rows = [
        ("Area", area(&of.area)),
        ("Hosts", of.hosts.to_string()),
        ("DAGs to move", of.dags_left.to_string()),
        ("Moving", format!("{} (at most {} at a time)", of.dags_moving, of.moves_max)),
        ("Staying", of.bound_dags_count.to_string()),
    ];
    properties(style, &rows) + &bound(&of.bound_dags)
}

const fn rebalance_state(of: State) -> &'static str {
    match of {
        State::Unspecified => "",
        State::Running => "RUNNING",
        State::Level => "LEVEL",
        State::NothingHelps => "NOTHING_HELPS",
        State::Stopped => "STOPPED",
        State::Preview => "PREVIEW",
    }
}

/// Progress of a rebalance, how it ended, or what it would move first.
pub fn rebalance(of: &Rebalance, style: Style) -> String {
    let loads = |of: Option<&LoadRange>| loads(&of.copied().unwrap_or_default());
    let between = if of.zone.is_empty() { "the fleet".to_owned() } else { area(&of.zone) };
    let rows = [
        ("Cards of", between),
        ("State", rebalance_state(of.state()).to_owned()),
        ("Moved", of.dags_moved.to_string()),
        ("Moving", format!("{} (at most {} at a time)", of.dags_moving, of.moves_max)),
        ("Tolerance", format!("{} %", of.tolerance_percent)),
        ("Loads before", loads(of.before.as_ref())),
        (if of.planned.is_empty() { "Loads" } else { "Loads after" }, loads(of.after.as_ref())),
        ("Began", age(of.start_time.as_ref(), style.now)),
        ("Ended", age(of.end_time.as_ref(), style.now)),
    ];
    let card = |name: &str| name.trim_start_matches("hosts/").replacen("/cards/", "/", 1);
    let planned = of.planned.iter().map(|one| vec![dag(&one.dag), card(&one.from), card(&one.to)]);
    let planned = table(style, &["DAG", "FROM", "TO"], planned.collect());
    let stays = of.stays.iter();
    let stays = stays.map(|stay| vec![stay.dags.to_string(), reason(stay.reason()).to_owned()]);
    let stays = table(style, &["DAGS", "WHY THEY STAY"], stays.collect());
    let mut text = properties(style, &rows);
    if !of.planned.is_empty() {
        text += &section("Would move first", &planned);
    }
    if !of.stays.is_empty() {
        text += &section("DAGs that were to move", &stays);
    }
    text + &bound(&of.bound_dags)
}

/// Progress of a rebalance that goes on, on one line.
pub fn rebalance_line(of: &Rebalance) -> String {
    let between =
        if of.zone.is_empty() { String::new() } else { format!(" of {}", area(&of.zone)) };
    let loads = of.after.as_ref().map(loads);
    let loads = loads.map(|loads| format!(", loads {loads}")).unwrap_or_default();
    format!("rebalance{between}: {} moved, {} moving{loads}", of.dags_moved, of.dags_moving)
}

/// Loads of cards: the emptiest and the fullest, and the mean.
fn loads(of: &LoadRange) -> String {
    let LoadRange { smallest_percent, mean_percent, largest_percent } = of;
    format!("{smallest_percent:.1} to {largest_percent:.1} %, mean {mean_percent:.1} %")
}

const fn reason(of: StayReason) -> &'static str {
    match of {
        StayReason::Unspecified => "",
        StayReason::Bound => "their machines are on their host",
        StayReason::Recent => "moved, created or changed since it began",
        StayReason::NotServed => "not served at the moment, or moving",
        StayReason::NoEmptier => "any other card would become about as full",
        StayReason::NoRoom => "no emptier card has what they need",
        StayReason::Policy => "emptier cards are not what their policy prefers",
        StayReason::Image => "hosts of emptier cards lack an image",
    }
}

/// Policy files, and on which hosts they are in force.
pub fn policies(of: &Policies, style: Style) -> String {
    let rows = of.files.iter().map(|(name, text)| {
        vec![name.clone(), text.lines().count().to_string(), text.len().to_string()]
    });
    let hosts = format!(
        "in force on {}, pending on {}, refused by {}",
        of.hosts_in_force, of.hosts_pending, of.hosts_refusing
    );
    let changed = match &of.update_time {
        Some(time) => format!("{} ago", age(Some(time), style.now)),
        None => "never: each host uses its own files, or what ships".to_owned(),
    };
    let files = table(style, &["FILE", "LINES", "BYTES"], rows.collect());
    let refusals = of.refusals.iter().map(|of| vec![id(&of.host).to_owned(), of.reason.clone()]);
    let refusals = table(style, &["HOST", "REASON"], refusals.collect());
    let pending: String = of.pending_hosts.iter().map(|host| format!("  {}\n", id(host))).collect();
    let part =
        |title, is_any: bool, text| if is_any { section(title, text) } else { String::new() };
    properties(style, &[("Changed", changed), ("Hosts", hosts), ("Etag", of.etag.clone())])
        + &part("Files", !of.files.is_empty(), &files)
        + &part("Refused by", !of.refusals.is_empty(), &refusals)
        + &part("Pending on", !of.pending_hosts.is_empty(), &pending)
}

/// Projects, one per row.
pub fn projects(projects: &[Project], style: Style) -> String {
    let rows = projects.iter().map(|of| {
        let limit = |limit: Option<String>| limit.unwrap_or_else(|| "no limit".to_owned());
        vec![
            id(&of.name).to_owned(),
            of.dags.to_string(),
            limit(of.dags_max.map(|most| most.to_string())),
            rate(of.bandwidth_bps),
            limit(of.bandwidth_max_bps.map(rate)),
            limit(
                of.month_budget_micros
                    .map(|micros| super::usage::spent_of(Some(micros), of.spending.as_ref())),
            ),
            of.etag.clone(),
        ]
    });
    let columns = ["PROJECT", "DAGS", "MAX", "BANDWIDTH", "MAX", "BUDGET", "ETAG"];
    table(style, &columns, rows.collect())
}
