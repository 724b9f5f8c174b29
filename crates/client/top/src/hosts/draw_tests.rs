use snic_api::fleet_v1::rebalance::State;
use snic_api::fleet_v1::{HostCard, LoadRange};

use super::tests::{at, host, hosts, model, press, rows, type_in};
use super::*;
use crate::draw::Theme;
use crate::screen;

const PLAIN: Theme = Theme { is_colour: false, now: SystemTime::UNIX_EPOCH };

#[test]
fn the_hosts_of_a_fleet_stand_with_the_worst_first() {
    let mut model = model();
    let status = GetFleetResponse {
        dags: 44,
        dags_unplaced: 2,
        drains: vec!["zones/z1/racks/r2".into(), "zones/z3".into()],
        ..Default::default()
    };
    let rebalance = Rebalance {
        state: State::Running.into(),
        dags_moved: 31,
        dags_moving: 4,
        after: Some(LoadRange {
            smallest_percent: 20.0,
            mean_percent: 45.0,
            largest_percent: 71.5,
        }),
        ..Default::default()
    };
    model.take(FleetFeed::Status(Box::new((status, Some(rebalance)))), at(0));
    insta::assert_snapshot!(screen(&model, PLAIN));
}

#[test]
fn an_empty_fleet_says_how_a_host_is_registered() {
    let mut model = HostsModel::default();
    assert!(screen(&model, PLAIN).starts_with("connecting ..."));
    model.take(FleetFeed::Hosts(Vec::new()), at(0));
    let text = screen(&model, PLAIN);
    assert!(
        text.contains("fleet of 0 hosts") && text.contains("snicctl fleet host create"),
        "{text}"
    );
}

#[test]
fn a_filter_that_nothing_matches_says_so() {
    let mut model = model();
    type_in(&mut model, "/nothing");
    let text = screen(&model, PLAIN);
    assert!(text.contains("No host matches") && text.contains("filter: nothing_"), "{text}");
}

#[test]
fn a_rebalance_that_has_ended_is_not_under_way() {
    let mut model = model();
    let ended = Rebalance { state: State::Level.into(), dags_moved: 31, ..Default::default() };
    model.take(FleetFeed::Status(Box::new((Default::default(), Some(ended)))), at(0));
    assert!(!screen(&model, PLAIN).contains("rebalance"));
}

#[test]
fn a_change_is_asked_for_and_told_on_the_last_line() {
    let mut model = model();
    type_in(&mut model, "d");
    let last = |model: &HostsModel| screen(model, PLAIN).lines().last().map(str::to_owned);
    let asked = "drain host g: DAGs leave whose machines are not there? y/n";
    assert_eq!(last(&model).as_deref(), Some(asked));
    type_in(&mut model, "n");
    model.prompt.done = Some(Err("not permitted".into()));
    assert_eq!(last(&model).as_deref(), Some("not permitted"));
}

#[test]
fn help_explains_every_key_of_the_last_line_and_every_state() {
    let mut model = model();
    let keys = screen(&model, PLAIN).lines().last().map(str::to_owned).expect("a last line");
    press(&mut model, KeyCode::Char('?'));
    let help = screen(&model, PLAIN);
    for key in keys.split("  ").filter_map(|part| part.split(' ').next()).filter(|key| *key != "?")
    {
        assert!(help.contains(key), "{key}: {help}");
    }
    for word in ["LOST", "SUSPECTED", "BEHIND", "UNKNOWN"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

#[test]
fn names_of_any_length_leave_the_state_in_sight() {
    let mut model = HostsModel::default();
    let mut long = host(&"x".repeat(253), Condition::Suspected);
    long.cards.push(HostCard { cordoned: true, ..long.cards[0].clone() });
    model.take(FleetFeed::Hosts(rows(&[long])), at(0));
    let text = screen(&model, PLAIN);
    let row = text.lines().find(|line| line.contains("xxx")).expect("its row");
    assert!(row.contains("SUSPECTED") && row.contains("3!"), "{row}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_thousand_hosts_are_drawn_where_the_choice_is() {
    let all: Vec<Host> =
        (0..1_000).map(|number| host(&format!("h{number:04}"), Condition::InStep)).collect();
    let mut model = HostsModel::default();
    model.take(FleetFeed::Hosts(rows(&all)), at(0));
    press(&mut model, KeyCode::End);
    let text = screen(&model, PLAIN);
    assert!(text.contains("> h0999") && text.contains("[Hosts: 1000]"), "{text}");
    let mut some = hosts();
    some.truncate(1);
    model.take(FleetFeed::Hosts(rows(&some)), at(1));
    assert!(screen(&model, PLAIN).contains("> a"));
}
