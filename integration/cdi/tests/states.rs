//! A file exists exactly while a binding is bound: against a scripted daemon.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rstest::rstest;
use snic_api::connect::Target;
use snic_api::v1::vm_binding::State;
use snic_api::v1::{EventType, WatchBindingsResponse};
use snic_cdi::sync::follow;
use snic_cdi::{Host, SpecFolder};
use snic_integration::fake_daemon::{FakeDaemon, binding};

/// Every state that the API has, and whether a container may use a binding in it.
const STATES: [(State, bool); 6] = [
    (State::Unspecified, false),
    (State::Initial, false),
    (State::BindStarted, false),
    (State::Bound, true),
    (State::BindFailed, false),
    (State::Unbound, false),
];

fn uuid(number: usize) -> String {
    format!("123e4567-e89b-42d3-a456-{number:012}")
}

fn event(kind: EventType, number: usize, state: State) -> WatchBindingsResponse {
    let binding = Some(binding(&uuid(number), state));
    WatchBindingsResponse { r#type: kind.into(), binding, revision: 0 }
}

fn bookmark() -> WatchBindingsResponse {
    WatchBindingsResponse { r#type: EventType::Bookmark.into(), binding: None, revision: 1 }
}

fn target(socket: &Path) -> Target {
    Target { endpoint: format!("unix:{}", socket.display()), ..Target::default() }
        .for_program("orchestrator/cdi")
}

/// The files after the daemon has sent these events; the last one is a new binding of its own, so
/// that its file says when the others are done.
async fn files_after(mut events: Vec<WatchBindingsResponse>, stale: &[usize]) -> BTreeSet<String> {
    const LAST: usize = 99;
    let home = tempfile::tempdir().expect("a folder");
    let socket = home.path().join("snicd.sock");
    let daemon = FakeDaemon::start(&socket);
    let folder =
        SpecFolder::open(&home.path().join("cdi"), Host::new(home.path())).expect("created");
    for number in stale {
        folder.put(&binding(&uuid(*number), State::Bound)).expect("valid");
    }
    events.push(event(EventType::Added, LAST, State::Bound));
    daemon.script(|script| script.events = events).await;
    let following = async {
        let end = follow(&target(&socket), &folder, false).await;
        panic!("the watch ended: {end:?}");
    };
    let done = async {
        while !folder.uuids().expect("readable").contains(&uuid(LAST)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = following => {}
        waited = tokio::time::timeout(Duration::from_secs(60), done) => waited.expect("in time"),
    }
    let mut files = folder.uuids().expect("readable");
    files.remove(&uuid(LAST));
    files
}

#[rstest]
#[case::in_the_initial_list(false)]
#[case::as_a_change(true)]
#[tokio::test]
async fn only_bound_bindings_have_a_file(#[case] as_change: bool) {
    let mut events: Vec<_> = (STATES.iter().enumerate())
        .map(|(number, (state, _))| event(EventType::Added, number, *state))
        .collect();
    events.insert(if as_change { 0 } else { events.len() }, bookmark());
    let usable = STATES.iter().enumerate().filter(|(_, (_, is_usable))| *is_usable);
    let expected: BTreeSet<String> = usable.map(|(number, _)| uuid(number)).collect();
    assert_eq!(files_after(events, &[]).await, expected);
}

#[tokio::test]
async fn a_binding_that_is_no_longer_bound_loses_its_file() {
    for (number, (state, is_usable)) in STATES.into_iter().enumerate() {
        let before = event(EventType::Added, number, State::Bound);
        let after = event(EventType::Modified, number, state);
        let files = files_after(vec![before, bookmark(), after], &[]).await;
        assert_eq!(files.contains(&uuid(number)), is_usable, "{state:?}");
    }
    let deleted = event(EventType::Deleted, 1, State::Bound);
    let events = vec![event(EventType::Added, 1, State::Bound), bookmark(), deleted];
    assert_eq!(files_after(events, &[]).await, BTreeSet::new());
}

#[tokio::test]
async fn files_of_an_earlier_run_go_unless_their_binding_is_still_bound() {
    let events = vec![
        event(EventType::Added, 1, State::Bound),
        event(EventType::Added, 2, State::BindStarted),
        bookmark(),
    ];
    assert_eq!(files_after(events, &[1, 2, 3]).await, BTreeSet::from([uuid(1)]));
}
