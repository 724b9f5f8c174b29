use std::time::{Duration, SystemTime};

use snic_api::v1::chain_state::Place;
use snic_api::v1::{ChainState, OperationError, Warning};

use super::super::explain::explanation;
use super::super::fixtures;
use super::*;
use crate::output::WIDTH;

/// Three hours after the fixtures were made.
fn style() -> Style {
    let made = u64::try_from(fixtures::MADE).unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(made + 3 * 3_600);
    Style { is_colour: false, width: WIDTH, now }
}

/// The text, which fits a terminal.
fn fitting(text: String) -> String {
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line:?} is too wide:\n{text}");
        assert_eq!(line, line.trim_end(), "no space at the end");
    }
    text
}

macro_rules! shown {
    ($($name:ident: $text:expr;)+) => {
        $(#[test]
        fn $name() {
            insta::assert_snapshot!(fitting($text));
        })+
    };
}

shown! {
    a_list_of_dags: dags(&[fixtures::web(), fixtures::stuck()], style());
    an_empty_list: dags(&[], style());
    a_dag_that_is_ready: dag(&fixtures::web(), style());
    a_dag_without_a_place: dag(&fixtures::stuck(), style());
    a_trial_run: trial(&fixtures::web(), style());
    a_list_of_tenants: tenants(&[fixtures::tenant()], style());
    a_tenant: tenant(&fixtures::tenant(), style());
    a_list_of_types: nt_types(&[fixtures::nt_type()], style());
    a_type: nt_type(&fixtures::nt_type(), style());
    a_list_of_bitstreams: bitstreams(&[fixtures::bitstream()], style());
    a_bitstream: bitstream(&fixtures::bitstream(), style());
    a_list_of_cards: cards(&[fixtures::card()], style());
    a_list_of_regions: regions(&fixtures::regions()[..4], style());
    a_region_that_is_shared: region(&fixtures::regions()[0], style());
    a_region_that_is_faulty: region(&fixtures::regions()[2], style());
    a_list_of_rules: rules(&[fixtures::rule()], style());
    a_rule: rule(&fixtures::rule(), style());
    a_list_of_operations: operations(&[fixtures::running()], style());
    an_operation: operation(&fixtures::running(), style());
    an_explanation: explanation(&fixtures::explanation(), style());
}

/// A DAG with a task that does nothing, and with its signer a bitstream that is nobody else's to trust.
#[test]
fn a_task_that_does_nothing_is_named_wherever_its_dag_is_shown() {
    let message = "aes (aes) passes packets on unchanged: software cards do not implement it; use another NT type";
    let warning = Warning { message: message.into(), ..Default::default() };
    let idle = Dag { warnings: vec![warning], ..fixtures::web() };
    let explained =
        snic_api::v1::Explanation { dag: Some(idle.clone()), ..fixtures::explanation() };
    for text in [dag(&idle, style()), trial(&idle, style()), explanation(&explained, style())] {
        let text = fitting(text);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(text.contains("Warnings"), "{text}");
        assert!(words.join(" ").contains(message), "{text}");
    }
    assert!(!dag(&fixtures::web(), style()).contains("Warnings"));
    let of = |configurable, owner: &str| {
        let nt = NtType { configurable, owner: owner.into(), ..fixtures::nt_type() };
        nt_type(&nt, style())
    };
    assert!(of(false, "").contains("passes packets on unchanged"));
    assert!(of(true, "").contains("works as the node's configuration says"));
    assert!(of(false, "tenants/acme").contains("runs the bitstream's module"));
}

#[test]
fn a_signature_says_whose_key_it_is() {
    use snic_api::v1::bitstream::{SignatureState, SignerRole};
    let signed = |role: SignerRole| {
        let signed = Bitstream {
            signature_state: SignatureState::Verified.into(),
            signed_by: "release".into(),
            signer_role: role.into(),
            ..fixtures::bitstream()
        };
        bitstream(&signed, style())
    };
    assert!(signed(SignerRole::Provider).contains("release (provider)"));
    assert!(signed(SignerRole::Owner).contains("release (its owner)"));
}

#[test]
fn dags_below_their_promise_come_first() {
    let named = |name: &str, shortfall_bps| Dag {
        name: format!("tenants/acme/dags/{name}"),
        shortfall_bps,
        ..fixtures::web()
    };
    let all = [named("a", 0), named("b", 1_000_000), named("c", 0), named("d", 2_000_000)];
    let text = fitting(dags_below_promise_first(&all, style()));
    let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["acme/d", "acme/b", "acme/a", "acme/c"]);
    assert!(text.contains("MISSING") && text.contains("2 Mbit/s"), "{text}");
    assert!(!dags(&all[..1], style()).contains("MISSING"));
}

#[test]
fn a_card_with_its_map_fits_a_terminal() {
    let text = fitting(card_map(&fixtures::card(), &fixtures::regions(), style()));
    assert!(text.lines().count() < HEIGHT, "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_card_with_defects_shows_them() {
    let mut found = fixtures::card();
    found.counters.as_mut().unwrap().errors_mixed_versions = 2;
    let text = card_map(&found, &fixtures::regions(), style());
    assert!(text.contains("999990 out, 2 misrouted, 10 RATE_LIMITED"), "{text}");
}

#[test]
fn an_explanation_says_what_is_kept_and_where() {
    let mut found = fixtures::explanation();
    let kept = |place: Place, region| ChainState {
        dag: "tenants/acme/dags/web".into(),
        bitstream: "bitstreams/kv-cache".into(),
        place: place.into(),
        region,
        bytes: 196_608,
        since: None,
    };
    let dag = found.dag.get_or_insert_default();
    dag.states = vec![kept(Place::InRegion, Some(3)), kept(Place::Saved, None)];
    let text = fitting(explanation(&found, style()));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("State:"), "{text}");
    assert!(text.contains("kept by kv-cache in region 3. It is saved when"), "{text}");
    assert!(text.contains("kept by kv-cache. It was saved at"), "{text}");
}

#[test]
fn an_explanation_without_chains_shows_the_servers_lines() {
    let mut found = fixtures::explanation();
    found.chains.clear();
    found.headroom.clear();
    found.lines = vec!["It is shared.".into()];
    assert!(explanation(&found, style()).ends_with("\nIt is shared.\n"));
}

#[test]
fn a_failed_operation_shows_its_error() {
    let error =
        OperationError { code: 10, message: "three attempts failed".into(), details: vec![] };
    let result = Some(Ended::Error(error));
    let failed = Operation { done: true, result, ..fixtures::running() };
    let text = operation(&failed, style());
    assert!(text.contains("FAILED") && text.contains("three attempts failed"), "{text}");
    let done = Operation { done: true, result: None, ..fixtures::running() };
    assert!(operations(&[done], style()).contains("DONE"));
    let mut pending = fixtures::running();
    pending.metadata.as_mut().unwrap().start_time = None;
    assert!(operations(&[pending], style()).contains("PENDING"));
}

#[test]
fn events_are_lines_and_bookmarks_are_none() {
    let event = |kind: EventType, dag| WatchDagsResponse { r#type: kind.into(), dag, revision: 1 };
    let line = |found: &WatchDagsResponse| dag_event(found, style());
    let added = line(&event(EventType::Added, Some(fixtures::web())));
    assert_eq!(added.as_deref(), Some("ADDED    READY        acme/web (10 Gbit/s)"));
    let stuck = line(&event(EventType::Modified, Some(fixtures::stuck()))).unwrap();
    assert!(stuck.ends_with("Mapped: INSUFFICIENT_CAPACITY"), "{stuck}");
    assert_eq!(line(&event(EventType::Bookmark, None)), None);

    let region = fixtures::regions().swap_remove(2);
    let found = WatchRegionsResponse {
        r#type: EventType::Modified.into(),
        region: Some(region),
        revision: 2,
    };
    let line = region_event(&found, style()).unwrap();
    assert_eq!(line, "MODIFIED FAULTY   card0/2  the configuration port reports a CRC error");
}
