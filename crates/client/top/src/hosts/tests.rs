use ratatui::crossterm::event::KeyModifiers;
use rstest::rstest;
use snic_api::fleet_v1::HostCard;

use super::*;

pub fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A host in rack r1 of zone z1 with two cards.
pub fn host(name: &str, condition: Condition) -> Host {
    let card = |card: &str, model: &str| HostCard {
        card: card.into(),
        model: model.into(),
        functions: 8,
        ..HostCard::default()
    };
    Host {
        name: format!("hosts/{name}"),
        zone: "z1".into(),
        rack: "r1".into(),
        cards: vec![card("card0", "sim-16"), card("card1", "sim-16")],
        condition: condition.into(),
        dags: 7,
        ..Host::default()
    }
}

/// One host of each kind; in the order of their names the worst are not first.
pub fn hosts() -> Vec<Host> {
    use Condition::{Behind, InStep, Lost, Suspected, Unspecified};
    let cordoned = Host { cordoned: true, ..host("e", InStep) };
    // Whatever else is said of it, a lost host comes first.
    let lost = Host { draining: true, rack: "r2".into(), dags: 1, ..host("g", Lost) };
    vec![
        host("a", InStep),
        host("b", Behind),
        host("c", Unspecified),
        Host { draining: true, cordoned: true, ..host("d", InStep) },
        cordoned,
        Host { dags: 9, ..host("f", Suspected) },
        lost,
    ]
}

pub fn rows(hosts: &[Host]) -> Vec<HostRow> {
    hosts.iter().map(|host| HostRow::of(host, true)).collect()
}

pub fn model() -> HostsModel {
    let mut model = HostsModel::default();
    let status = GetFleetResponse { hosts: 7, dags: 44, ..Default::default() };
    model.take(FleetFeed::Status(Box::new((status, None))), at(100));
    model.take(FleetFeed::Hosts(rows(&hosts())), at(100));
    model
}

pub fn press(model: &mut HostsModel, code: KeyCode) -> KeyOutcome {
    model.press(KeyEvent::new(code, KeyModifiers::NONE))
}

pub fn type_in(model: &mut HostsModel, text: &str) -> KeyOutcome {
    let keys = text.chars().map(|letter| press(model, KeyCode::Char(letter)));
    keys.last().unwrap_or(KeyOutcome::Draw)
}

fn names(model: &HostsModel) -> String {
    model.rows().iter().map(|row| &*row.host).collect()
}

#[test]
fn the_worst_come_first_and_other_orders_are_by_name_within() {
    let mut model = model();
    assert_eq!(names(&model), "gfcedba");
    press(&mut model, KeyCode::Char('r'));
    assert_eq!(names(&model), "abdecfg");
    press(&mut model, KeyCode::Char('r'));
    for order in ["abcdefg", "abcdefg", "fabcdeg", "gfcedba"] {
        press(&mut model, KeyCode::Char('s'));
        assert_eq!(names(&model), order, "{:?}", model.sort());
    }
}

#[test]
fn a_host_stays_chosen_where_its_row_moves() {
    let mut model = model();
    assert_eq!(model.chosen(), Some("g"));
    press(&mut model, KeyCode::End);
    assert_eq!((model.chosen(), model.selected()), (Some("a"), 6));
    let lost = HostRow::of(&host("a", Condition::Lost), false);
    model.take(FleetFeed::Host(EventType::Modified, lost), at(101));
    assert_eq!((model.chosen(), model.selected()), (Some("a"), 0));
    press(&mut model, KeyCode::Char('s'));
    assert_eq!((model.chosen(), model.selected()), (Some("a"), 0));
    // It goes: the one in its place is chosen.
    let gone = Host { name: "hosts/a".into(), ..Host::default() };
    model.take(FleetFeed::Host(EventType::Deleted, HostRow::of(&gone, false)), at(102));
    assert_eq!((model.chosen(), model.selected(), model.hosts()), (Some("b"), 0, 6));
    model.take(FleetFeed::Hosts(Vec::new()), at(103));
    assert_eq!((model.chosen(), model.selected()), (None, 0));
    assert_eq!(press(&mut model, KeyCode::Enter), KeyOutcome::Draw, "there is none to open");
}

#[test]
fn a_watch_changes_all_but_the_number_of_dags_which_a_list_has() {
    let mut model = model();
    let dags = |model: &HostsModel, name: &str| model.rows[name].dags;
    let changed = Host { dags: 0, ..host("a", Condition::Suspected) };
    model.take(FleetFeed::Host(EventType::Modified, HostRow::of(&changed, false)), at(101));
    assert_eq!((model.rows["a"].condition, dags(&model, "a")), (Condition::Suspected, Some(7)));
    let added = HostRow::of(&host("z", Condition::InStep), false);
    model.take(FleetFeed::Host(EventType::Added, added), at(102));
    assert_eq!(dags(&model, "z"), None);
    let mut all = hosts();
    all.push(Host { dags: 3, ..host("z", Condition::InStep) });
    model.take(FleetFeed::Hosts(rows(&all)), at(103));
    assert_eq!(dags(&model, "z"), Some(3));
    // What the watch has missed the list finds.
    model.take(FleetFeed::Hosts(rows(&hosts())), at(104));
    assert!(!model.rows.contains_key("z"));
}

#[test]
fn a_row_sums_a_hosts_cards() {
    let mut one = host("a", Condition::InStep);
    one.cards[1].cordoned = true;
    one.cards[1].model = "u250".into();
    let row = HostRow::of(&one, true);
    assert_eq!((row.cards, row.cards_cordoned, row.functions), (2, 1, 16));
    assert_eq!(row.models, "sim-16, u250");
}

#[test]
fn a_filter_finds_names_racks_states_and_uses() {
    for (text, found) in
        [("LOST", "g"), ("z1/r2", "g"), ("cordoned", "e"), ("sim-16", "gfcedba"), ("x", "")]
    {
        let mut model = model();
        type_in(&mut model, "/");
        type_in(&mut model, text);
        assert_eq!(names(&model), found, "{text}");
        press(&mut model, KeyCode::Enter);
        assert_eq!(model.chosen().unwrap_or_default(), found.get(..1).unwrap_or_default());
        press(&mut model, KeyCode::Esc);
        assert_eq!(names(&model), "gfcedba");
    }
}

#[test]
fn enter_opens_the_chosen_host() {
    let mut model = model();
    press(&mut model, KeyCode::Down);
    assert_eq!(press(&mut model, KeyCode::Enter), KeyOutcome::Open);
    assert_eq!(model.chosen(), Some("f"));
}

#[rstest]
#[case("", "oy", HostVerb::Cordon)]
#[case("cordoned", "oy", HostVerb::Uncordon)]
#[case("draining", "oy", HostVerb::Undrain)]
#[case("", "dy", HostVerb::Drain)]
#[case("", "i", HostVerb::Describe)]
fn keys_change_the_host_that_was_chosen(
    #[case] filter: &str,
    #[case] keys: &str,
    #[case] verb: HostVerb,
) {
    let mut model = HostsModel::default();
    let use_word = |of: &Host| words::use_word(of) == filter;
    let all: Vec<Host> = hosts().into_iter().filter(use_word).collect();
    model.take(FleetFeed::Hosts(rows(&all)), at(100));
    let name = format!("hosts/{}", model.chosen().expect("there is one"));
    assert_eq!(type_in(&mut model, keys), KeyOutcome::Act);
    assert_eq!(model.prompt.next, Some(KeyAction::Host(verb, name)));
}

#[test]
fn only_a_yes_changes_a_host() {
    for no in ["o", "on", "oo", "dj", "y"] {
        let mut model = model();
        assert_eq!(type_in(&mut model, no), KeyOutcome::Draw, "{no}");
        assert_eq!(model.prompt.next, None, "{no}");
    }
}

#[test]
fn a_fleet_that_is_lost_or_silent_is_said_until_it_answers() {
    let mut model = model();
    assert_eq!(model.silence(at(101)), None);
    assert_eq!(model.silence(at(104)), Some(Duration::from_secs(4)));
    model.take(FleetFeed::Alive, at(104));
    assert_eq!(model.silence(at(105)), None);
    model.take(FleetFeed::Lost("no leader".into()), at(105));
    assert_eq!((model.lost.as_deref(), model.silence(at(109))), (Some("no leader"), None));
    assert_eq!(model.hosts(), 7, "what was known is still shown");
    model.take(FleetFeed::Hosts(rows(&hosts())), at(110));
    assert_eq!(model.lost, None);
}
