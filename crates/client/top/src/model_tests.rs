use ratatui::crossterm::event::KeyModifiers;
use rstest::rstest;
use snic_api::v1::{dag, event};

use super::*;
use snic_client::output::fixtures;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

fn type_in(model: &mut Model, text: &str) {
    for letter in text.chars() {
        model.press(key(KeyCode::Char(letter)));
    }
}

fn snapshot() -> PolledState {
    let bitstream = fixtures::bitstream();
    let loading = ("bitstreams/aes-sim-16".to_owned(), 4_000_000);
    PolledState {
        cards: vec![fixtures::card()],
        regions: fixtures::regions(),
        dags: vec![fixtures::web(), fixtures::stuck()],
        bitstream_bytes: [(bitstream.name, bitstream.size_bytes), loading].into(),
    }
}

fn model() -> Model {
    let mut model = Model::default();
    model.take(Feed::Snapshot(Box::new(snapshot())), at(100));
    model
}

fn names(model: &Model) -> Vec<String> {
    let name = |row: &ScreenRow<'_>| match row {
        ScreenRow::Dag(dag) => text::dag(&dag.name),
        ScreenRow::Region(region) => text::region(&region.name),
        ScreenRow::Tenant(tenant) => tenant.tenant.clone(),
        ScreenRow::Event(event) => event.text.clone(),
    };
    model.rows().iter().map(name).collect()
}

#[test]
fn initial_state_is_no_event_and_each_change_is_one() {
    let mut model = model();
    model.press(key(KeyCode::Char('4')));
    assert_eq!(names(&model), [""; 0]);
    let mut region = fixtures::regions()[4].clone();
    region.set_state(region::State::Reconfiguring);
    region.bitstream = "bitstreams/aes-sim-16".into();
    model.take(Feed::Region(EventType::Modified, Box::new(region.clone())), at(101));
    // The same again is nothing new.
    model.take(Feed::Region(EventType::Modified, Box::new(region.clone())), at(102));
    let mut dag = fixtures::stuck();
    dag.set_state(dag::State::Ready);
    model.take(Feed::Dag(EventType::Modified, Box::new(dag.clone())), at(103));
    model.take(Feed::Dag(EventType::Deleted, Box::new(dag.clone())), at(104));
    let name = text::dag(&dag.name);
    assert_eq!(
        names(&model),
        [format!("{name} deleted"), format!("{name} READY"), "card0/4 LOADING aes-sim-16".into()]
    );
    assert_eq!(model.events.iter().map(|e| e.at).collect::<Vec<_>>(), [at(104), at(103), at(101)]);
}

#[test]
fn events_of_the_server_are_shown_by_their_time_and_once() {
    let mut model = model();
    let event = |number: u64, message: &str| Event {
        number,
        time: Some(prost_types::Timestamp { seconds: number as i64, nanos: 0 }),
        message: message.into(),
        kind: event::Kind::CardLost.into(),
        ..Default::default()
    };
    for (number, message) in [(90, "before"), (120, "after"), (100, "between"), (90, "before")] {
        model.take(Feed::Event(Box::new(event(number, message))), at(130));
    }
    model.press(key(KeyCode::Char('4')));
    assert_eq!(names(&model), ["CARD_LOST after", "CARD_LOST between", "CARD_LOST before"]);
}

#[test]
fn dags_below_their_promise_come_first() {
    let mut model = model();
    let before = names(&model);
    let mut last = fixtures::web();
    last.name = "tenants/zzz/dags/last".into();
    last.shortfall_bps = 1;
    model.take(Feed::Dag(EventType::Added, Box::new(last)), at(101));
    let after = names(&model);
    assert_eq!((&*after[0], &after[1..]), ("zzz/last", &before[..]));
}

#[test]
fn a_snapshot_finds_what_the_watches_missed() {
    let mut model = model();
    let mut later = snapshot();
    let gone = later.dags.remove(0);
    later.regions[3].set_state(region::State::Active);
    model.take(Feed::Snapshot(Box::new(later)), at(110));
    model.press(key(KeyCode::Char('4')));
    let deleted = format!("{} deleted", text::dag(&gone.name));
    assert_eq!(names(&model), ["card0/3 ACTIVE aes-sim-16".to_owned(), deleted]);
}

#[test]
fn a_server_that_is_lost_is_said_until_it_is_back() {
    let mut model = model();
    model.take(Feed::Lost("no route".into()), at(101));
    assert_eq!(model.lost.as_deref(), Some("no route"));
    assert_eq!(model.dag_counts().0, 2, "what was known is still shown");
    model.take(Feed::Snapshot(Box::new(snapshot())), at(102));
    assert_eq!(model.lost, None);
}

#[test]
fn the_time_left_is_what_the_port_needs_for_the_rest() {
    let mut model = Model::default();
    let mut first = snapshot();
    first.cards[0].config_port_bytes_per_second = 400_000;
    first.regions[4].set_state(region::State::Free);
    model.take(Feed::Snapshot(Box::new(first)), at(100));
    let mut region = fixtures::regions()[4].clone();
    region.set_state(region::State::Reconfiguring);
    region.bitstream = "bitstreams/aes-sim-16".into();
    model.take(Feed::Region(EventType::Modified, Box::new(region.clone())), at(101));
    // 4 MB at 400 kB/s: ten seconds.
    assert_eq!(model.time_left(&region, at(101)), Some(Duration::from_secs(10)));
    assert_eq!(model.time_left(&region, at(105)), Some(Duration::from_secs(6)));
    assert_eq!(model.time_left(&region, at(500)), Some(Duration::ZERO));
    // Not seen to begin, of unknown size, and over.
    assert_eq!(model.time_left(&fixtures::regions()[3], at(105)), None);
    let mut unknown = region.clone();
    unknown.bitstream = "bitstreams/other".into();
    assert_eq!(model.time_left(&unknown, at(105)), None);
    region.set_state(region::State::Active);
    model.take(Feed::Region(EventType::Modified, Box::new(region.clone())), at(106));
    assert_eq!(model.time_left(&region, at(106)), None);
}

#[test]
fn tenants_are_the_sum_of_their_dags() {
    let mut model = model();
    model.press(key(KeyCode::Char('3')));
    let rows = model.tenants();
    let all = model.dags.values();
    assert_eq!(rows.iter().map(|row| row.dags).sum::<usize>(), 2);
    let asked: u64 = all.map(|dag| dag.bandwidth_bps).sum();
    assert_eq!(rows.iter().map(|row| row.requested_bps).sum::<u64>(), asked);
    let acme = rows.iter().find(|row| row.tenant == "acme").expect("it has DAGs");
    assert_eq!(acme.regions, 1);
}

#[rstest]
#[case(KeyCode::Tab, Panel::Regions)]
#[case(KeyCode::BackTab, Panel::Events)]
#[case(KeyCode::Char('3'), Panel::Tenants)]
#[case(KeyCode::Char('x'), Panel::Dags)]
fn keys_open_panels(#[case] code: KeyCode, #[case] panel: Panel) {
    let mut model = model();
    assert_eq!(model.press(key(code)), KeyOutcome::Draw);
    assert_eq!(model.panel, panel);
}

#[test]
fn regions_are_sorted_by_number_state_or_load_and_turned_round() {
    let mut model = model();
    model.press(key(KeyCode::Char('2')));
    assert_eq!(names(&model)[..3], ["card0/0", "card0/1", "card0/2"]);
    assert_eq!(names(&model)[10], "card0/10", "as numbers, not as text");
    model.press(key(KeyCode::Char('s')));
    assert_eq!(names(&model)[0], "card0/0", "ACTIVE comes first");
    model.press(key(KeyCode::Char('r')));
    assert_eq!(names(&model)[0], "card0/1", "VICTIM comes last");
    model.press(key(KeyCode::Char('r')));
    model.press(key(KeyCode::Char('s')));
    assert_eq!(model.sort(), Sort::Load);
    assert_eq!(names(&model)[0], "card0/0", "the fullest");
    model.press(key(KeyCode::Char('s')));
    assert_eq!(model.sort(), Sort::Name);
}

#[test]
fn a_filter_takes_letters_until_it_is_kept_or_cleared() {
    let mut model = model();
    model.press(key(KeyCode::Char('2')));
    model.press(key(KeyCode::Down));
    model.press(key(KeyCode::Char('/')));
    type_in(&mut model, "FAULTq");
    assert_eq!(names(&model), [""; 0]);
    model.press(key(KeyCode::Backspace));
    assert_eq!((names(&model), model.selected), (vec!["card0/2".to_owned()], 0));
    model.press(key(KeyCode::Enter));
    assert!(!model.filter.is_editing);
    assert_eq!(names(&model).len(), 1, "it is kept");
    model.press(key(KeyCode::Esc));
    assert_eq!(names(&model).len(), 16);
    model.press(key(KeyCode::Char('/')));
    type_in(&mut model, "zz");
    model.press(key(KeyCode::Esc));
    assert_eq!((names(&model).len(), model.filter.is_editing), (16, false));
}

#[test]
fn the_choice_stays_in_the_table() {
    let mut model = model();
    model.press(key(KeyCode::Char('2')));
    for (code, selected) in [
        (KeyCode::Up, 0),
        (KeyCode::Char('j'), 1),
        (KeyCode::PageDown, 11),
        (KeyCode::PageDown, 15),
        (KeyCode::Home, 0),
        (KeyCode::End, 15),
        (KeyCode::Char('k'), 14),
    ] {
        model.press(key(code));
        assert_eq!(model.selected, selected, "{code:?}");
    }
    // Rows that go take it along.
    let mut fewer = snapshot();
    fewer.regions.truncate(4);
    model.take(Feed::Snapshot(Box::new(fewer)), at(101));
    assert_eq!(model.selected, 3);
}

#[test]
fn an_opened_panel_scrolls_and_closes() {
    let mut model = model();
    model.press(key(KeyCode::Enter));
    assert_eq!(model.detail, Some(0));
    model.press(key(KeyCode::Down));
    model.press(key(KeyCode::PageDown));
    assert_eq!((model.detail, model.selected), (Some(11), 0));
    model.press(key(KeyCode::Home));
    assert_eq!(model.detail, Some(0));
    model.press(key(KeyCode::Esc));
    assert_eq!(model.detail, None);
    // Nothing to open.
    model.press(key(KeyCode::Char('4')));
    model.press(key(KeyCode::Enter));
    assert_eq!(model.detail, None);
}

#[test]
fn it_ends_by_q_or_control_c_but_not_in_a_filter() {
    let mut model = model();
    assert_eq!(model.press(key(KeyCode::Char('q'))), KeyOutcome::Quit);
    model.press(key(KeyCode::Char('/')));
    assert_eq!(model.press(key(KeyCode::Char('q'))), KeyOutcome::Draw);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(model.press(control_c), KeyOutcome::Quit);
}

/// Presses keys; what the server is to do.
fn acted(model: &mut Model, keys: &str) -> Option<KeyAction> {
    let mut outcome = KeyOutcome::Draw;
    for letter in keys.chars() {
        outcome = model.press(key(KeyCode::Char(letter)));
    }
    (outcome == KeyOutcome::Act).then(|| model.prompt.next.take()).flatten()
}

#[test]
fn changes_wait_for_a_yes_and_are_about_what_was_chosen() {
    let of = |verb, name: &str| Some(KeyAction::Change(verb, name.to_owned()));
    // Elsewhere than among regions it is the card.
    assert_eq!(acted(&mut model(), "oy"), of(Verb::Cordon, "cards/card0"));
    assert_eq!(acted(&mut model(), "dy"), of(Verb::Drain, "cards/card0"));
    assert_eq!(acted(&mut model(), "2oy"), of(Verb::Cordon, "cards/card0/regions/0"));
    // The third region is cordoned.
    assert_eq!(acted(&mut model(), "2jjoy"), of(Verb::Uncordon, "cards/card0/regions/2"));
    for no in ["2o", "2on", "2oo", "2oj", "y", "2y", "2ojy"] {
        assert_eq!(acted(&mut model(), no), None, "{no}");
    }
    // What is chosen when the yes comes does not matter.
    let mut changing = model();
    acted(&mut changing, "2o");
    let mut fewer = snapshot();
    fewer.regions.remove(0);
    changing.take(Feed::Snapshot(Box::new(fewer)), at(101));
    assert_eq!(acted(&mut changing, "y"), of(Verb::Cordon, "cards/card0/regions/0"));
    let all = snapshot().regions.into_iter().map(|region| Region { cordoned: true, ..region });
    let mut closed = Model::default();
    let regions = all.collect();
    closed.take(Feed::Snapshot(Box::new(PolledState { regions, ..snapshot() })), at(1));
    assert_eq!(acted(&mut closed, "oy"), of(Verb::Uncordon, "cards/card0"));
}

#[test]
fn a_dag_is_explained_at_once_and_the_next_key_closes_what_was_said() {
    let mut model = model();
    let Some(KeyAction::Explain(name)) = acted(&mut model, "e") else {
        panic!("it asks for nothing")
    };
    assert!(name.starts_with("tenants/"), "{name}");
    assert_eq!(acted(&mut self::model(), "2e"), None, "only DAGs are explained");
    model.prompt.done = Some(Ok("why\nbecause\n".into()));
    assert!(model.prompt.done.is_some());
    assert_eq!(model.press(key(KeyCode::Char('q'))), KeyOutcome::Draw);
    assert_eq!(model.prompt.done, None);
    assert_eq!(model.press(key(KeyCode::Char('q'))), KeyOutcome::Quit);
    model.prompt.done = Some(Err("not permitted".into()));
    assert_eq!(model.press(key(KeyCode::Char('q'))), KeyOutcome::Quit, "a line covers nothing");
}

#[test]
fn cards_are_shown_in_turn() {
    let mut model = Model::default();
    let mut two = snapshot();
    let other = Card { name: "cards/card1".into(), ..fixtures::card() };
    two.cards.push(other);
    let region = Region { name: "cards/card1/regions/0".into(), ..Region::default() };
    two.regions.push(region);
    model.take(Feed::Snapshot(Box::new(two)), at(100));
    assert_eq!((model.card_place(), model.regions().len()), ((1, 2), 16));
    model.press(key(KeyCode::Char('c')));
    assert_eq!((model.card_place(), model.regions().len()), ((2, 2), 1));
    // The one that is shown goes.
    model.take(Feed::Snapshot(Box::new(snapshot())), at(101));
    assert_eq!((model.card_place(), model.regions().len()), ((1, 1), 16));
}

#[test]
fn escape_goes_back_to_the_hosts_once_nothing_else_is_open() {
    let mut model = Model::of(Some("h1".into()), true);
    model.take(Feed::Snapshot(Box::new(snapshot())), at(100));
    model.press(key(KeyCode::Enter));
    assert_eq!(model.press(key(KeyCode::Esc)), KeyOutcome::Draw, "it closes the row");
    model.press(key(KeyCode::Char('/')));
    type_in(&mut model, "web");
    model.press(key(KeyCode::Enter));
    assert_eq!(model.press(key(KeyCode::Esc)), KeyOutcome::Draw, "it shows all rows");
    assert_eq!(model.press(key(KeyCode::Esc)), KeyOutcome::Back);
    // At one daemon's endpoint, or one host's, there is nothing to go back to.
    for mut alone in [self::model(), Model::of(Some("h1".into()), false)] {
        assert_eq!(alone.press(key(KeyCode::Esc)), KeyOutcome::Draw);
    }
}
