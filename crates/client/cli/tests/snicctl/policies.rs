//! `snicctl fleet policy` against a fleet's service.

use std::collections::BTreeMap;
use std::fs;

use snic_api::error::ApiError;
use snic_api::fleet_v1::policies::Refusal;
use snic_api::fleet_v1::*;
use snic_api::v1::ErrorReason;

use crate::support::fake::Fake;
use crate::support::run;

fn files(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn registered() -> Policies {
    Policies {
        files: files(&[("fairness.toml", "[epoch]\nlength_ms = 40\n"), ("admission.toml", "")]),
        etag: "0011".into(),
        update_time: Some(prost_types::Timestamp { seconds: 1_767_323_045, nanos: 0 }),
        hosts_in_force: 3,
        hosts_pending: 1,
        pending_hosts: vec!["hosts/h4".into()],
        hosts_refusing: 1,
        refusals: vec![Refusal {
            host: "hosts/h5".into(),
            reason: "the fleet's fairness.toml:2: no".into(),
        }],
    }
}

fn read(policies: &Policies) -> GetPoliciesResponse {
    GetPoliciesResponse { policies: Some(policies.clone()) }
}

#[test]
fn policies_are_shown_with_the_hosts_that_have_them() {
    let fake = Fake::start();
    for _ in 0..5 {
        fake.answer("GetPolicies", &read(&registered()));
    }
    let list = run(fake.endpoint(), "fleet policy list");
    assert_eq!(list.code, 0, "{}", list.stderr);
    for part in [
        "in force on 3, pending on 1, refused by 1",
        "admission.toml",
        "fairness.toml",
        "h4",
        "h5",
        "fairness.toml:2: no",
    ] {
        assert!(list.stdout.contains(part), "{part}: {}", list.stdout);
    }
    let json = run(fake.endpoint(), "fleet policy list -o json").json();
    assert_eq!(json["files"]["fairness.toml"], "[epoch]\nlength_ms = 40\n");
    let text = run(fake.endpoint(), "fleet policy get fairness.toml");
    assert_eq!((text.code, text.stdout.as_str()), (0, "[epoch]\nlength_ms = 40\n"));
    let absent = run(fake.endpoint(), "fleet policy get fairnes.toml");
    assert_eq!(absent.code, 2);
    assert!(absent.stderr.contains("admission.toml, fairness.toml"), "{}", absent.stderr);
    let none = Fake::start();
    none.answer("GetPolicies", &read(&Policies::default()));
    let list = run(none.endpoint(), "fleet policy list").stdout;
    assert!(list.contains("each host uses its own files"), "{list}");
}

#[test]
fn files_are_added_to_those_that_were_read_or_taken_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().display();
    fs::write(folder.path().join("placement.toml"), "a").expect("written");
    fs::write(folder.path().join("fairness.toml"), "b").expect("written");
    fs::write(folder.path().join("README.md"), "c").expect("written");
    let fake = Fake::start();
    let updated = UpdatePoliciesResponse { policies: Some(registered()) };
    for _ in 0..3 {
        fake.answer("GetPolicies", &read(&registered())).answer("UpdatePolicies", &updated);
    }
    let set = run(fake.endpoint(), &format!("fleet policy set {at}"));
    assert_eq!(set.code, 0, "{}", set.stderr);
    assert!(set.stdout.contains("pending on 1"), "{}", set.stdout);
    let checked = run(fake.endpoint(), &format!("fleet policy set {at}/fairness.toml --dry-run"));
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    assert!(checked.stdout.contains("nothing was changed"), "{}", checked.stdout);
    let deleted = run(fake.endpoint(), "fleet policy delete fairness.toml");
    assert_eq!(deleted.code, 0, "{}", deleted.stderr);
    let asked = fake.asked::<UpdatePoliciesRequest>("UpdatePolicies");
    let sent: Vec<_> = asked
        .iter()
        .map(|request| {
            let of = request.policies.clone().expect("policies");
            (of.files, of.etag, request.validate_only)
        })
        .collect();
    let all = files(&[("admission.toml", ""), ("fairness.toml", "b"), ("placement.toml", "a")]);
    let checked = files(&[("admission.toml", ""), ("fairness.toml", "b")]);
    let left = files(&[("admission.toml", "")]);
    let etag = || "0011".to_owned();
    assert_eq!(sent, [(all, etag(), false), (checked, etag(), true), (left, etag(), false)]);
}

#[test]
fn what_is_wrong_with_files_is_said_before_or_by_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().display();
    let fake = Fake::start();
    let rule = "fairness.toml:2: epoch.length_ms = 0 is not allowed: 1 to 10000";
    let refused = ApiError::in_field(ErrorReason::InvalidField, "policies.files", rule);
    for _ in 0..4 {
        fake.answer("GetPolicies", &read(&registered()));
    }
    fake.refuse("UpdatePolicies", refused);
    let empty = run(fake.endpoint(), &format!("fleet policy set {at}"));
    assert_eq!(empty.code, 2);
    assert!(empty.stderr.contains("has no TOML file"), "{}", empty.stderr);
    let absent = run(fake.endpoint(), &format!("fleet policy set {at}/fairness.toml"));
    assert_ne!(absent.code, 0);
    assert!(absent.stderr.contains("fairness.toml"), "{}", absent.stderr);
    let delete = run(fake.endpoint(), "fleet policy delete placement.toml");
    assert_eq!(delete.code, 2);
    fs::write(folder.path().join("fairness.toml"), "[epoch]\nlength_ms = 0").expect("written");
    let wrong = run(fake.endpoint(), &format!("fleet policy set {at}"));
    assert_ne!(wrong.code, 0);
    assert!(wrong.stderr.contains(rule), "{}", wrong.stderr);
}

#[test]
fn prices_in_a_folder_of_policies_are_not_registered() {
    let fake = Fake::start();
    fake.answer("GetPolicies", &read(&registered()));
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str| fs::write(folder.path().join(name), "").expect("it is written");
    ["prices.toml", "admission.toml"].into_iter().for_each(write);
    let line = format!("fleet policy set {}", folder.path().display());
    run(fake.endpoint(), &line);
    let asked: Vec<UpdatePoliciesRequest> = fake.asked("UpdatePolicies");
    let files: Vec<&String> =
        asked[0].policies.iter().flat_map(|policies| policies.files.keys()).collect();
    assert_eq!(files, ["admission.toml", "fairness.toml"]);
}
