//! A fleet as tables: how it is, its hosts, drains and projects.

use snic_api::fleet_v1::host::Condition;
use snic_api::fleet_v1::{AreaDrain, GetFleetResponse, Host, Project};

use super::Style;
use super::table::{properties, section, table};
use super::text::{age, dag, id, labels, rate, yes};

const fn condition(of: Condition) -> &'static str {
    match of {
        Condition::Unspecified => "",
        Condition::InStep => "IN_STEP",
        Condition::Behind => "BEHIND",
        Condition::Suspected => "SUSPECTED",
        Condition::Lost => "LOST",
    }
}

/// Whether new DAGs go there.
const fn use_word(of: &Host) -> &'static str {
    match (of.draining, of.cordoned) {
        (true, _) => "draining",
        (false, true) => "cordoned",
        (false, false) => "",
    }
}

/// An area in the form that commands accept: `z1`, or `z1/r1`.
fn area(name: &str) -> String {
    name.strip_prefix("zones/").map_or_else(|| name.into(), |rest| rest.replacen("/racks/", "/", 1))
}

/// How the fleet is.
pub fn status(fleet: &GetFleetResponse, style: Style) -> String {
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
    ];
    properties(style, &rows)
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

/// The model in a card's profile.
fn model(profile: &str) -> String {
    let profile: serde_json::Value = serde_json::from_str(profile).unwrap_or_default();
    profile["model"].as_str().unwrap_or_default().to_owned()
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
        vec![card.card.clone(), model(&card.profile), card.functions.to_string(), word.to_owned()]
    });
    let cards = table(style, &["CARD", "MODEL", "FUNCTIONS", "USE"], cards.collect());
    properties(style, &rows) + &section("Cards", &cards) + &bound(&host.bound_dags)
}

fn bound(dags: &[String]) -> String {
    let names: String = dags.iter().map(|name| format!("  {}\n", dag(name))).collect();
    section("DAGs that stay, since their machines are there", &names)
}

/// How far a drain of a rack or zone is.
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
            of.etag.clone(),
        ]
    });
    let columns = ["PROJECT", "DAGS", "MAX", "BANDWIDTH", "MAX", "ETAG"];
    table(style, &columns, rows.collect())
}
