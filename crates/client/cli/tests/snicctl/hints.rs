//! Hints: the line of the file, what was probably meant, how to go on; and the versions.

use std::process::Stdio;
use std::time::{Duration, Instant};

use snic_api::v1::{
    CreateDagRequest, Diagnostics, ListDagsResponse, ListNtTypesResponse, NtType,
    WaitOperationRequest,
};

use super::*;

const MISTYPED: &str = "name: web\nbandwidth: 10Gbps\nchain: nat -> fierwall\n";

fn unknown_type(path: &str) -> ApiError {
    ApiError::in_field(ErrorReason::UnknownNtType, path, "no NT type ntTypes/fierwall")
}

fn types() -> ListNtTypesResponse {
    let nt_type = |name: &str| NtType { name: format!("ntTypes/{name}"), ..NtType::default() };
    let nt_types = ["aes", "firewall", "nat"].map(nt_type).to_vec();
    ListNtTypesResponse { nt_types, ..Default::default() }
}

#[test]
fn a_refused_field_is_shown_at_its_line_with_what_was_meant() {
    let fake = Fake::start();
    for _ in 0..2 {
        fake.refuse("CreateDag", unknown_type("dag.nodes[1].nt_type"));
        fake.answer("ListNtTypes", &types());
    }
    let run = with_input(fake.endpoint(), "dag create -f - --tenant acme", MISTYPED);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("<standard input>:3:15"), "{}", run.stderr);
    assert!(run.stderr.contains("no NT type ntTypes/fierwall"), "{}", run.stderr);
    assert_eq!(run.stderr.matches("did you mean `firewall`?").count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("reason:   UNKNOWN_NT_TYPE"), "{}", run.stderr);
    let line = "dag create -f - --tenant acme -o json";
    let run = with_input(fake.endpoint(), line, MISTYPED);
    let value: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(value["error"]["position"]["line"], 3);
    assert_eq!(value["error"]["field_violations"][0]["subject"], "dag.nodes[1].nt_type");
}

#[test]
fn a_refused_field_of_one_of_several_files_is_shown_in_that_file() {
    let fake = Fake::start();
    fake.refuse("BatchCreateDags", unknown_type("requests[1].dag.nodes[0].nt_type"));
    fake.answer("ListNtTypes", &types());
    let folder = tempfile::tempdir().unwrap();
    for (name, chain) in [("a", "nat"), ("b", "fierwall")] {
        let text = format!("name: {name}\ntenant: acme\nbandwidth: 1Gbps\nchain: {chain}\n");
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let at = folder.path().display();
    let run = run(fake.endpoint(), &format!("dag create -f {at}/a -f {at}/b"));
    assert!(run.stderr.contains("/b:4:8"), "{}", run.stderr);
    assert!(run.stderr.contains("did you mean `firewall`?"), "{}", run.stderr);
}

#[test]
fn a_refusal_that_is_not_about_the_file_stays_as_it_is() {
    let fake = Fake::start();
    fake.refuse("CreateDag", ApiError::quota("tenants/acme", "dags_max", 1, 2));
    let run = with_input(fake.endpoint(), "dag create -f - --tenant acme", MISTYPED);
    assert!(run.stderr.starts_with("error: "), "{}", run.stderr);
    assert_eq!(run.code, 5);
}

#[test]
fn a_missing_dag_is_answered_with_the_name_most_like_it() {
    let fake = Fake::start();
    let dags = ListDagsResponse { dags: vec![fixtures::web()], ..Default::default() };
    fake.refuse("GetDag", ApiError::not_found("DAG", "tenants/acme/dags/wbe"));
    fake.answer("ListDags", &dags);
    let similar = run(fake.endpoint(), "dag get acme/wbe");
    assert!(similar.stderr.contains("did you mean `web`?"), "{}", similar.stderr);
    assert_eq!(similar.code, 3);
    fake.refuse("DeleteDag", ApiError::not_found("DAG", "tenants/acme/dags/mail"));
    fake.answer("ListDags", &dags);
    let other = run(fake.endpoint(), "dag delete acme/mail");
    assert!(!other.stderr.contains("did you mean"), "{}", other.stderr);
    assert_eq!(other.code, 3);
}

#[test]
fn an_interrupted_wait_says_how_to_go_on() {
    let fake = Fake::start();
    fake.answer("CreateDag", &fixtures::running());
    fake.ignore("WaitOperation");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yaml");
    std::fs::write(&file, WEB).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_snicctl"));
    command.env_clear().env("SNICCTL_CONFIG", folder.path().join("config.toml"));
    command.env("SNICCTL_ENDPOINT", fake.endpoint()).args(["dag", "create", "--wait", "-f"]);
    command.arg(&file).args(["--tenant", "acme"]);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while fake.asked::<WaitOperationRequest>("WaitOperation").is_empty() {
        assert!(Instant::now() < until, "it does not wait");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("stopped waiting; operations/0198c0de-"), "{stderr}");
    assert!(stderr.contains("snicctl operation wait 0198c0de-"), "{stderr}");
    assert_eq!(fake.asked::<CreateDagRequest>("CreateDag").len(), 1);
}

#[test]
fn the_versions_of_program_and_server_are_shown() {
    let fake = Fake::start();
    let server =
        Diagnostics { version: "7.8.9".into(), commit: "0123abcd".into(), ..Default::default() };
    fake.answer("GetDiagnostics", &server).answer("GetDiagnostics", &server);
    let text = run(fake.endpoint(), "version").stdout;
    assert!(text.starts_with("snicctl ") && text.ends_with("\nsnicd 7.8.9 (0123abcd)\n"), "{text}");
    let json = run(fake.endpoint(), "version -o json").json();
    assert_eq!(json["server"], serde_json::json!({"version": "7.8.9", "commit": "0123abcd"}));
    fake.refuse(
        "GetDiagnostics",
        ApiError::new(ErrorReason::PermissionDenied, "for operators only"),
    );
    let denied = run(fake.endpoint(), "version");
    assert_eq!(denied.code, 0, "{}", denied.stderr);
    assert!(
        denied.stdout.ends_with("snicd: not known (for operators only)\n"),
        "{}",
        denied.stdout
    );
    let gone = run("unix:/nonexistent/snicd.sock", "version");
    assert_eq!(gone.code, 0, "{}", gone.stderr);
    assert!(
        gone.stdout.contains("cannot connect to unix:/nonexistent/snicd.sock"),
        "{}",
        gone.stdout
    );
}
