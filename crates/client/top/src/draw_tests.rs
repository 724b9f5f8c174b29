use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rstest::rstest;

use super::*;
use snic_client::output::fixtures;

use crate::model::{Feed, PolledState};
use crate::screen;

const PLAIN: Theme = Theme { is_colour: false, now: SystemTime::UNIX_EPOCH };

fn model() -> Model {
    let mut model = Model::default();
    let snapshot = PolledState {
        cards: vec![fixtures::card()],
        regions: fixtures::regions(),
        dags: vec![fixtures::web(), fixtures::stuck()],
        bitstream_bytes: Default::default(),
    };
    model.take(Feed::Snapshot(Box::new(snapshot)), SystemTime::UNIX_EPOCH);
    model
}

fn pressed(keys: &[KeyCode]) -> Model {
    let mut model = model();
    for key in keys {
        model.press(KeyEvent::new(*key, KeyModifiers::NONE));
    }
    model
}

/// Text of a screen of any size, with whether any cell has a colour.
fn drawn(model: &Model, theme: Theme, (width, height): (u16, u16)) -> (String, bool) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal fails");
    terminal.draw(|frame| draw(frame, model, theme)).expect("it is drawn");
    let cells = terminal.backend().buffer().content();
    let has_colour = cells.iter().any(|cell| cell.fg != Color::Reset);
    (cells.iter().map(|cell| cell.symbol()).collect(), has_colour)
}

#[test]
fn the_first_screen_has_the_map_and_the_dags() {
    insta::assert_snapshot!(screen(&model(), PLAIN));
}

#[test]
fn regions_show_their_chains() {
    insta::assert_snapshot!(screen(&pressed(&[KeyCode::Char('2')]), PLAIN));
}

#[test]
fn an_opened_dag_shows_where_it_is() {
    insta::assert_snapshot!(screen(&pressed(&[KeyCode::End, KeyCode::Enter]), PLAIN));
}

#[test]
fn an_opened_tenant_shows_its_dags() {
    insta::assert_snapshot!(screen(&pressed(&[KeyCode::Char('3'), KeyCode::Enter]), PLAIN));
}

#[test]
fn before_anything_was_read_it_says_so() {
    let text = screen(&Model::default(), PLAIN);
    assert!(text.starts_with("connecting ..."), "{text}");
}

#[test]
fn a_lost_server_is_said_on_top_of_what_was_known() {
    let mut model = model();
    model.take(Feed::Lost("connection refused".into()), SystemTime::UNIX_EPOCH);
    let text = screen(&model, PLAIN);
    assert!(text.starts_with("NOT CONNECTED, retrying: connection refused"), "{text}");
    assert!(text.contains("acme/"), "{text}");
}

#[test]
fn a_server_that_hangs_is_noticed_within_two_seconds() {
    let model = model();
    let text = |millis| {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        screen(&model, Theme { now, ..PLAIN })
    };
    assert!(!text(1_500).contains("NO ANSWER"));
    assert!(text(1_501).starts_with("NO ANSWER for 1 s: what is shown may be old"));
    let mut alive = model.clone();
    alive.take(Feed::Alive, SystemTime::UNIX_EPOCH + Duration::from_secs(3));
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(4);
    assert!(!screen(&alive, Theme { now, ..PLAIN }).contains("NO ANSWER"));
}

#[test]
fn names_of_40_letters_are_whole_on_80_columns() {
    let mut model = Model::default();
    let name = format!("tenants/acme/dags/{}", "x".repeat(35));
    let dags = vec![Dag { name, ..fixtures::web() }];
    let snapshot = PolledState { dags, ..PolledState::default() };
    model.take(Feed::Snapshot(Box::new(snapshot)), SystemTime::UNIX_EPOCH);
    assert!(screen(&model, PLAIN).contains(&format!("acme/{}", "x".repeat(34))));
}

#[rstest]
#[case(0, "0 bit/s")]
#[case(999, "999 bit/s")]
#[case(1_000, "1 kbit/s")]
#[case(10_000_000_000, "10 Gbit/s")]
#[case(9_999_999_999, "9.99 Gbit/s")]
#[case(12_340_000, "12.3 Mbit/s")]
#[case(100_000_000, "100 Mbit/s")]
#[case(123_456_789_000, "123 Gbit/s")]
fn rates_in_tables_have_three_digits(#[case] bps: u64, #[case] text: &str) {
    assert_eq!(short_rate(bps), text);
}

#[test]
fn a_wide_screen_has_what_was_served_lately() {
    let mut model = model();
    for gbps in [4, 8] {
        let mut web = fixtures::web();
        web.traffic.as_mut().expect("it has").served_bps = gbps * fixtures::GBPS;
        let snapshot = PolledState { dags: vec![web], ..PolledState::default() };
        model.take(Feed::Snapshot(Box::new(snapshot)), SystemTime::UNIX_EPOCH);
    }
    let (text, _) = drawn(&model, PLAIN, (160, 24));
    assert!(text.contains("▃▄█"), "3, 4 and 8 Gbit/s: {text}");
    assert!(!drawn(&model, PLAIN, (80, 24)).0.contains('█'));
}

#[test]
fn a_change_is_asked_for_and_told_on_the_last_line() {
    let mut model = pressed(&[KeyCode::Char('2'), KeyCode::Char('d')]);
    let last = |model: &Model| screen(model, PLAIN).lines().last().map(str::to_owned);
    let asked = "drain region card0/0: DAGs that find another place leave? y/n";
    assert_eq!(last(&model).as_deref(), Some(asked));
    model.press(KeyEvent::new(KeyCode::Char('n'), KeyModifiers::NONE));
    model.prompt.done = Some(Err("not permitted".into()));
    assert_eq!(last(&model).as_deref(), Some("not permitted"));
    model.prompt.done = Some(Ok("Form: sequential\nchosen: region 3\n".into()));
    let text = screen(&model, PLAIN);
    assert!(text.contains("chosen: region 3") && text.contains("Any key goes back"), "{text}");
}

#[test]
fn help_explains_every_key_of_the_last_line() {
    let text = screen(&pressed(&[KeyCode::Char('?')]), PLAIN);
    for key in ["Tab", "Enter", "/ ", "s, r", "c  ", "e  ", "o, d", "q, Ctrl-C"] {
        assert!(text.lines().any(|line| line.starts_with(key)), "{key}: {text}");
    }
    let back = screen(&pressed(&[KeyCode::Char('?'), KeyCode::Char('q')]), PLAIN);
    assert_eq!(back, screen(&model(), PLAIN), "any key goes back");
}

#[test]
fn an_opened_dag_says_first_why_it_is_not_faster() {
    let mut model = pressed(&[KeyCode::Char('s'), KeyCode::End, KeyCode::Enter]);
    let name = model.opened_dag().expect("a DAG is open");
    let mut found = fixtures::diagnosis();
    model.take(Feed::Diagnosis(Box::new(found.clone())), SystemTime::UNIX_EPOCH);
    let is_shown = |model: &Model| drawn(model, PLAIN, (80, 60)).0.contains("What would help");
    assert_eq!(is_shown(&model), name == found.dag, "{name}");
    found.dag = "tenants/acme/dags/other".into();
    model.take(Feed::Diagnosis(Box::new(found.clone())), SystemTime::UNIX_EPOCH);
    assert!(!is_shown(&model), "of another one");
    found.dag = name;
    model.take(Feed::Diagnosis(Box::new(found)), SystemTime::UNIX_EPOCH);
    assert!(is_shown(&model));
}

#[test]
fn without_colour_there_is_none_and_the_words_are_the_same() {
    let plain = drawn(&model(), PLAIN, (80, 24));
    let colour = drawn(&model(), Theme { is_colour: true, ..PLAIN }, (80, 24));
    assert!(!plain.1);
    assert!(colour.1);
    assert_eq!(plain.0, colour.0);
}

/// No size makes it panic, and every region is on a screen of 80 by 24.
#[rstest]
fn every_size_is_drawn(
    #[values(1, 2, 19, 40, 80, 200)] width: u16,
    #[values(1, 3, 8, 24, 60)] height: u16,
    #[values(false, true)] is_open: bool,
) {
    let keys: &[KeyCode] = if is_open { &[KeyCode::Enter] } else { &[] };
    let (text, _) = drawn(&pressed(keys), PLAIN, (width, height));
    assert_eq!(text.chars().count(), usize::from(width) * usize::from(height));
    if width >= 80 && height >= 24 {
        for word in ["LOADING", "VICTIM", "FAULTY", "15 FREE"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}

#[test]
fn a_big_card_gets_one_line_a_region() {
    let mut model = Model::default();
    let region = |number: u32| Region {
        name: format!("cards/card0/regions/{number}"),
        state: State::Active.into(),
        ..fixtures::regions()[0].clone()
    };
    let snapshot = PolledState {
        cards: vec![fixtures::card()],
        regions: (0..32).map(region).collect(),
        dags: vec![],
        bitstream_bytes: Default::default(),
    };
    model.take(Feed::Snapshot(Box::new(snapshot)), SystemTime::UNIX_EPOCH);
    let lines = map_lines(&model, PLAIN, 80, 12);
    assert_eq!(lines.len(), 8);
    assert!(lines[7].to_string().contains("31 ACTIVE"), "{}", lines[7]);
}

#[test]
fn times_left_are_short() {
    for (millis, text) in [(0, "0ms"), (999, "999ms"), (1_000, "1s"), (61_500, "61s")] {
        assert_eq!(short(Duration::from_millis(millis)), text);
    }
}

#[test]
fn a_host_of_a_fleet_is_named_and_so_is_the_way_back() {
    let mut model = Model::of(Some("h1".into()), true);
    assert!(screen(&model, PLAIN).starts_with("host h1: connecting ..."));
    model.take(Feed::Lost("host h1 is not linked".into()), SystemTime::UNIX_EPOCH);
    let text = screen(&model, PLAIN);
    assert!(text.starts_with("host h1: NOT CONNECTED, retrying: host h1 is not"), "{text}");
    assert!(text.contains("Esc hosts"), "{text}");
    let alone = screen(&Model::of(Some("h1".into()), false), PLAIN);
    assert!(!alone.contains("Esc hosts"), "{alone}");
}
