//! `snicctl fleet` against a fleet's service.

use snic_api::error::ApiError;
use snic_api::fleet_v1::host::Condition;
use snic_api::fleet_v1::*;
use snic_api::v1::{ErrorReason, EventType, condition};

use crate::support::fake::Fake;
use crate::support::{run, with_input};

fn h1() -> Host {
    let profile = r#"{"model":"sim-16"}"#.to_owned();
    let (card, model) = ("card0".into(), "sim-16".into());
    let card = HostCard { card, profile, functions: 8, cordoned: false, model };
    Host {
        name: "hosts/h1".into(),
        zone: "z1".into(),
        rack: "r1".into(),
        cards: vec![card],
        condition: Condition::Behind.into(),
        dags: 7,
        bound_dags: vec!["tenants/acme/dags/web".into()],
        ..Host::default()
    }
}

fn running() -> Rebalance {
    let state = rebalance::State::Running.into();
    Rebalance { state, dags_moved: 31, dags_moving: 4, ..Rebalance::default() }
}

fn level() -> Rebalance {
    let end_time = Some(prost_types::Timestamp { seconds: 1_767_323_045, nanos: 0 });
    let state = rebalance::State::Level.into();
    Rebalance { state, dags_moving: 0, end_time, ..running() }
}

#[test]
fn the_fleet_is_shown() {
    let fake = Fake::start();
    let fleet = GetFleetResponse {
        leader: "https://r2:7443".into(),
        hosts: 5,
        hosts_in_step: 4,
        hosts_unreachable: 1,
        dags: 90,
        dags_unplaced: 2,
        drains: vec!["zones/z1/racks/r1".into(), "zones/z2".into()],
        ..GetFleetResponse::default()
    };
    let none = ApiError::not_found("rebalance", "of the fleet");
    fake.answer("GetFleet", &fleet)
        .answer("GetFleet", &fleet)
        .answer("GetFleet", &fleet)
        .answer("GetRebalance", &GetRebalanceResponse { rebalance: Some(running()) })
        .answer("GetRebalance", &GetRebalanceResponse { rebalance: Some(level()) })
        .refuse("GetRebalance", none);
    let text = run(fake.endpoint(), "fleet status");
    for part in ["https://r2:7443", "5 (4 in step, 1 unreachable)", "90 (2 without", "z1/r1, z2"] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    assert!(text.stdout.contains("RUNNING: 31 moved, 4 moving"), "{}", text.stdout);
    let text = run(fake.endpoint(), "fleet status");
    assert!(text.stdout.contains("LEVEL (31 moved, ended "), "{}", text.stdout);
    let json = run(fake.endpoint(), "fleet status -o json").json();
    assert_eq!((json["dags_unplaced"].as_u64(), json["hosts"].as_u64()), (Some(2), Some(5)));
}

#[test]
fn a_store_that_refuses_writes_comes_first() {
    let fake = Fake::start();
    let condition = snic_api::v1::Condition {
        r#type: "StoreWritable".into(),
        status: condition::Status::False.into(),
        reason: "NOSPACE".into(),
        message: "etcd refuses writes (database space exceeded); do: compact and defragment".into(),
        last_transition_time: Some(prost_types::Timestamp { seconds: 1_767_323_045, nanos: 0 }),
        ..snic_api::v1::Condition::default()
    };
    let fleet = GetFleetResponse {
        leader: "https://r2:7443".into(),
        conditions: vec![condition],
        ..GetFleetResponse::default()
    };
    fake.answer("GetFleet", &fleet).answer("GetFleet", &fleet);
    let none = || ApiError::not_found("rebalance", "of the fleet");
    fake.refuse("GetRebalance", none()).refuse("GetRebalance", none());
    let text = run(fake.endpoint(), "fleet status");
    let first = text.stdout.lines().next().expect("a line");
    for part in ["StoreWritable is FALSE since ", "NOSPACE", "do: compact and defragment"] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let json = run(fake.endpoint(), "fleet status -o json").json();
    assert_eq!(json["conditions"][0]["reason"], "NOSPACE", "{json}");
}

#[test]
fn all_hosts_are_listed_and_one_is_shown_with_its_cards() {
    let fake = Fake::start();
    let (hosts, next_page_token) = (vec![h1()], "more".to_owned());
    fake.answer("ListHosts", &ListHostsResponse { hosts, next_page_token, revision: 7 });
    let hosts = vec![Host { name: "hosts/h2".into(), cordoned: true, ..h1() }];
    fake.answer("ListHosts", &ListHostsResponse { hosts, ..Default::default() })
        .answer("GetHost", &GetHostResponse { host: Some(h1()) })
        .answer("GetHost", &GetHostResponse { host: Some(h1()) });
    let list = run(fake.endpoint(), "fleet host list");
    let lines: Vec<&str> = list.stdout.lines().collect();
    assert!(lines[1].starts_with("h1") && lines[1].contains("BEHIND"), "{}", list.stdout);
    assert!(lines[2].starts_with("h2") && lines[2].contains("cordoned"), "{}", list.stdout);
    assert_eq!(fake.asked::<ListHostsRequest>("ListHosts")[1].page_token, "more");
    let text = run(fake.endpoint(), "fleet host get h1").stdout;
    assert!(text.contains("sim-16") && text.contains("acme/web"), "{text}");
    let json = run(fake.endpoint(), "fleet host get hosts/h1 -o json").json();
    assert_eq!(json["condition"], "CONDITION_BEHIND");
    let asked = fake.asked::<GetHostRequest>("GetHost");
    assert!(asked.iter().all(|request| request.name == "hosts/h1"), "{asked:?}");
}

#[test]
fn changes_of_hosts_are_a_line_each() {
    let fake = Fake::start();
    let event = |kind: EventType, host, revision| WatchHostsResponse {
        r#type: kind.into(),
        host,
        revision,
    };
    let lost = Host { condition: Condition::Lost.into(), cordoned: true, ..h1() };
    let gone = Host { name: "hosts/h1".into(), ..Host::default() };
    fake.answer("WatchHosts", &event(EventType::Added, Some(h1()), 0))
        .answer("WatchHosts", &event(EventType::Bookmark, None, 7))
        .answer("WatchHosts", &event(EventType::Modified, Some(lost), 7))
        .refuse("WatchHosts", ApiError::new(ErrorReason::WatcherTooSlow, "too slow"))
        .answer("WatchHosts", &event(EventType::Deleted, Some(gone), 9));
    let run = run(fake.endpoint(), "fleet host watch");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines, ["ADDED    h1  BEHIND", "MODIFIED h1  LOST cordoned", "DELETED  h1"]);
    let asked = fake.asked::<WatchHostsRequest>("WatchHosts");
    let revisions: Vec<u64> = asked.iter().map(|request| request.resume_revision).collect();
    assert_eq!(revisions, [0, 7]);
}

#[test]
fn one_screen_of_top_shows_the_hosts_of_a_fleet_the_worst_first() {
    let fake = Fake::start();
    let fleet = GetFleetResponse { hosts: 2, dags: 8, ..GetFleetResponse::default() };
    let (hosts, next_page_token) = (vec![h1()], "more".to_owned());
    let lost = Host { name: "hosts/h2".into(), condition: Condition::Lost.into(), dags: 1, ..h1() };
    fake.answer("GetFleet", &fleet)
        .answer("GetFleet", &fleet)
        .answer("GetRebalance", &GetRebalanceResponse { rebalance: Some(running()) })
        .answer("ListHosts", &ListHostsResponse { hosts, next_page_token, revision: 7 })
        .answer("ListHosts", &ListHostsResponse { hosts: vec![lost], ..Default::default() });
    let run = run(fake.endpoint(), "top --once");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines[0].starts_with("fleet of 2 hosts, 1 LOST  8 DAGs"), "{}", run.stdout);
    assert!(lines[1].starts_with("rebalance: 31 moved, 4 moving"), "{}", run.stdout);
    assert!(lines[4].contains("h2") && lines[4].contains("LOST"), "{}", run.stdout);
    assert!(lines[5].contains("h1") && lines[5].contains("BEHIND"), "{}", run.stdout);
}

#[test]
fn a_host_is_registered_from_what_its_daemon_printed() {
    let fake = Fake::start();
    fake.answer("CreateHost", &CreateHostResponse { host: Some(h1()) });
    let spec = r#"{"zone": "z1", "rack": "r1", "labels": {"a": "b"}, "is_cordoned": true,
        "cards": {"card0": {"profile": {"model": "sim-16"}, "functions": 8, "is_cordoned": false}}}"#;
    let made = with_input(fake.endpoint(), "fleet host create h1 --from -", spec);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let asked = &fake.asked::<CreateHostRequest>("CreateHost")[0];
    assert_eq!(asked.host_id, "h1");
    assert!(!asked.request_id.is_empty());
    let host = asked.host.as_ref().unwrap();
    assert!(host.cordoned && host.labels["a"] == "b", "{host:?}");
    let mut cards = h1().cards;
    cards[0].model.clear(); // it is in the profile
    assert_eq!(host.cards, cards);
    for wrong in ["", "{}", r#"{"zone": "z1", "rack": "r1", "crads": {}}"#] {
        let refused = with_input(fake.endpoint(), "fleet host create h1 --from -", wrong);
        assert_eq!(refused.code, 2, "{wrong}");
        assert!(refused.stderr.contains("host-spec"), "{}", refused.stderr);
    }
}

#[test]
fn hosts_are_taken_out_of_use_and_put_back() {
    let fake = Fake::start();
    let host = Some(h1());
    fake.answer("CordonHost", &CordonHostResponse { host: host.clone() })
        .answer("UncordonHost", &UncordonHostResponse { host: host.clone() })
        .answer("DrainHost", &DrainHostResponse { host: host.clone() })
        .answer("UndrainHost", &UndrainHostResponse { host })
        .answer("DeleteHost", &DeleteHostResponse {});
    for verb in ["cordon", "uncordon", "drain", "undrain", "delete"] {
        let run = run(fake.endpoint(), &format!("fleet host {verb} h1"));
        assert_eq!(run.code, 0, "{verb}: {}", run.stderr);
        assert!(run.stdout.contains("h1"), "{verb}: {}", run.stdout);
    }
    assert_eq!(fake.asked::<CordonHostRequest>("CordonHost")[0].name, "hosts/h1");
    assert_eq!(fake.asked::<UncordonHostRequest>("UncordonHost")[0].name, "hosts/h1");
    assert_eq!(fake.asked::<DrainHostRequest>("DrainHost")[0].name, "hosts/h1");
    assert_eq!(fake.asked::<UndrainHostRequest>("UndrainHost")[0].name, "hosts/h1");
    assert_eq!(fake.asked::<DeleteHostRequest>("DeleteHost")[0].name, "hosts/h1");
}

#[test]
fn racks_and_zones_are_drained() {
    let fake = Fake::start();
    let drain = AreaDrain {
        area: "zones/z1/racks/r1".into(),
        moves_max: 4,
        dags_left: 31,
        bound_dags: vec!["tenants/acme/dags/web".into()],
        bound_dags_count: 1,
        ..AreaDrain::default()
    };
    let drain = Some(drain);
    fake.answer("DrainArea", &DrainAreaResponse { drain: drain.clone() })
        .answer("DrainArea", &DrainAreaResponse { drain: drain.clone() })
        .answer("GetAreaDrain", &GetAreaDrainResponse { drain })
        .answer("UndrainArea", &UndrainAreaResponse {});
    let text = run(fake.endpoint(), "fleet drain z1/r1 --moves-max 4").stdout;
    assert!(text.contains("31") && text.contains("acme/web"), "{text}");
    for line in ["fleet drain z2", "fleet drain-status zones/z1/racks/r1", "fleet undrain z1/r1"] {
        let run = run(fake.endpoint(), line);
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
    }
    let asked = fake.asked::<DrainAreaRequest>("DrainArea");
    assert_eq!((&*asked[0].area, asked[0].moves_max), ("zones/z1/racks/r1", 4));
    assert_eq!((&*asked[1].area, asked[1].moves_max), ("zones/z2", 10));
    let rack = "zones/z1/racks/r1";
    assert_eq!(fake.asked::<GetAreaDrainRequest>("GetAreaDrain")[0].area, rack);
    assert_eq!(fake.asked::<UndrainAreaRequest>("UndrainArea")[0].area, rack);
}

#[test]
fn a_fleet_is_leveled() {
    use rebalance::{PlannedMove, State, Stay, StayReason};
    let fake = Fake::start();
    let range = |smallest_percent, largest_percent| {
        Some(LoadRange { smallest_percent, mean_percent: 45.0, largest_percent })
    };
    let planned = PlannedMove {
        dag: "tenants/acme/dags/web".into(),
        from: "hosts/h1/cards/card0".into(),
        to: "hosts/h3/cards/card1".into(),
    };
    let preview = Rebalance {
        moves_max: 10,
        tolerance_percent: 10,
        state: State::Preview.into(),
        before: range(0.0, 90.04),
        after: range(30.0, 60.0),
        planned: vec![planned],
        ..Rebalance::default()
    };
    let running = Rebalance { state: State::Running.into(), planned: vec![], ..preview.clone() };
    let stay = Stay { reason: StayReason::NoRoom.into(), dags: 17 };
    let ended = Rebalance {
        zone: "zones/z1".into(),
        state: State::NothingHelps.into(),
        dags_moved: 31,
        stays: vec![stay],
        bound_dags: vec!["tenants/acme/dags/vm".into()],
        ..running.clone()
    };
    fake.answer("StartRebalance", &StartRebalanceResponse { rebalance: Some(preview) })
        .answer("StartRebalance", &StartRebalanceResponse { rebalance: Some(running.clone()) })
        .answer("GetRebalance", &GetRebalanceResponse { rebalance: Some(running) })
        .answer("GetRebalance", &GetRebalanceResponse { rebalance: Some(ended.clone()) })
        .answer("GetRebalance", &GetRebalanceResponse { rebalance: Some(ended.clone()) })
        .answer("StopRebalance", &StopRebalanceResponse { rebalance: Some(ended) });
    let preview = run(fake.endpoint(), "fleet rebalance --dry-run").stdout;
    for part in ["PREVIEW", "0.0 to 90.0 %", "30.0 to 60.0 %", "acme/web", "h1/card0", "h3/card1"] {
        assert!(preview.contains(part), "{part}: {preview}");
    }
    let line = "fleet rebalance --zone z1 --moves-max 3 --tolerance 7 --wait";
    let ended = run(fake.endpoint(), line);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for part in ["NOTHING_HELPS", "31", "17", "no emptier card", "acme/vm"] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    for line in ["fleet rebalance-status", "fleet rebalance-stop"] {
        assert_eq!(run(fake.endpoint(), line).code, 0, "{line}");
    }
    let asked = fake.asked::<StartRebalanceRequest>("StartRebalance");
    let of = |of: &StartRebalanceRequest| {
        (of.zone.clone(), of.moves_max, of.tolerance_percent, of.validate_only)
    };
    assert_eq!(of(&asked[0]), (String::new(), 10, 10, true));
    assert_eq!(of(&asked[1]), ("zones/z1".into(), 3, 7, false));
    assert!(asked.iter().all(|of| !of.request_id.is_empty()));
    let both = run(fake.endpoint(), "fleet rebalance --dry-run --wait");
    assert_eq!(both.code, 2, "{}", both.stderr);
}

#[test]
fn projects_are_managed() {
    let fake = Fake::start();
    let shop = Project {
        name: "projects/shop".into(),
        dags_max: Some(9),
        dags: 3,
        bandwidth_bps: 2_000_000_000,
        ..Project::default()
    };
    let project = Some(shop.clone());
    fake.answer("CreateProject", &CreateProjectResponse { project: project.clone() })
        .answer("UpdateProject", &UpdateProjectResponse { project: project.clone() })
        .answer("GetProject", &GetProjectResponse { project })
        .answer(
            "ListProjects",
            &ListProjectsResponse { projects: vec![shop], ..Default::default() },
        )
        .answer("SetTenantProject", &SetTenantProjectResponse::default())
        .answer("SetTenantProject", &SetTenantProjectResponse::default())
        .answer("DeleteProject", &DeleteProjectResponse {});
    for (line, part) in [
        ("create shop --dags-max 9", "shop"),
        ("update shop --bandwidth-max 5Gbps --etag e1", "shop"),
        ("get shop", "no limit"),
        ("list", "shop"),
        ("add shop acme", "tenants/acme is in projects/shop"),
        ("remove acme", "tenants/acme is in no project"),
        ("delete projects/shop --etag e2 --allow-missing", "deleted projects/shop"),
    ] {
        let run = run(fake.endpoint(), &format!("fleet project {line}"));
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
        assert!(run.stdout.contains(part), "{line}: {}", run.stdout);
    }
    assert_eq!(run(fake.endpoint(), "fleet project update shop").code, 2, "nothing to change");
    let made = &fake.asked::<CreateProjectRequest>("CreateProject")[0];
    let limits = made.project.as_ref().unwrap();
    assert_eq!(
        (&*made.project_id, limits.dags_max, limits.bandwidth_max_bps),
        ("shop", Some(9), None)
    );
    let changed = fake.asked::<UpdateProjectRequest>("UpdateProject").remove(0).project.unwrap();
    assert_eq!((&*changed.name, &*changed.etag), ("projects/shop", "e1"));
    assert_eq!((changed.dags_max, changed.bandwidth_max_bps), (None, Some(5_000_000_000)));
    let asked = fake.asked::<SetTenantProjectRequest>("SetTenantProject");
    let asked: Vec<_> = asked.iter().map(|of| (&*of.tenant, &*of.project)).collect();
    assert_eq!(asked, [("tenants/acme", "projects/shop"), ("tenants/acme", "")]);
    let deleted = &fake.asked::<DeleteProjectRequest>("DeleteProject")[0];
    assert!(deleted.allow_missing && deleted.etag == "e2", "{deleted:?}");
}
