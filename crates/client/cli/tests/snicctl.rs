//! `snicctl` as users and scripts meet it: the program itself, against a server on loopback.

#![allow(clippy::unwrap_used)] // the helpers here are tests too

mod apply;
#[cfg(feature = "parquet")]
mod archive;
mod fleet;
mod hints;
mod images;
mod models;
mod policies;
mod reservations;
mod shared;
mod usage;

use std::time::Duration;

use crate::support::fake::{Fake, Tls};
use crate::support::{ended, run, snicctl, with_input};
use prost_types::Any;
use rstest::rstest;
use snic_api::error::ApiError;
use snic_api::v1::batch_create_dags_result::Result as Created;
use snic_api::v1::operation::Result as Ended;
use snic_api::v1::upload_bitstream_request::Part;
use snic_api::v1::*;
use snic_api::words::EnumWord as _;
use snic_bitstream::xclbin::{ExpectedRole, TestRole, check_role};
use snic_client::output::fixtures;
use snic_domain::Digest;
use tonic::{Code, Status};

const WEB: &str = "name: web\nbandwidth: 10Gbps\nchain: nat -> [firewall, kv-cache] -> aes\n";

fn any(name: &str, message: &impl prost::Message) -> Any {
    let type_url = format!("type.googleapis.com/{name}");
    Any { type_url, value: message.encode_to_vec() }
}

fn done(message: Any) -> Operation {
    Operation { done: true, result: Some(Ended::Response(message)), ..fixtures::running() }
}

fn failed(failure: ApiError) -> Operation {
    let result = Some(Ended::Error(failure.into()));
    Operation { done: true, result, ..fixtures::running() }
}

#[test]
fn a_dag_is_created_from_the_standard_input() {
    let fake = Fake::start();
    fake.answer("CreateDag", &fixtures::running());
    let run = with_input(fake.endpoint(), "dag create -f - --tenant acme", WEB);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("snicctl operation wait 0198c0de"), "{}", run.stdout);
    assert_eq!(run.stderr, "", "no progress where nobody watches");
    let asked: Vec<CreateDagRequest> = fake.asked("CreateDag");
    let dag = asked[0].dag.clone().unwrap();
    assert_eq!((asked[0].parent.as_str(), asked[0].dag_id.as_str()), ("tenants/acme", "web"));
    assert_eq!((dag.nodes, dag.edges), (fixtures::web().nodes, fixtures::web().edges));
    assert_eq!(asked[0].request_id.len(), 36, "a UUID");
}

/// Two files with a DAG each, in a folder of their own.
fn two_files() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["web", "db"] {
        let text = WEB.replace("name: web", &format!("name: {name}"));
        std::fs::write(folder.path().join(format!("{name}.yaml")), text).unwrap();
    }
    let path = |name: &str| folder.path().join(name).display().to_string();
    let files = format!("-f {} -f {}", path("web.yaml"), path("db.yaml"));
    (folder, files)
}

fn batch_results(results: Vec<Created>) -> BatchCreateDagsResponse {
    let result = |result| BatchCreateDagsResult { result: Some(result) };
    BatchCreateDagsResponse { results: results.into_iter().map(result).collect() }
}

#[test]
fn several_files_are_one_request() {
    let fake = Fake::start();
    let running = || Created::Operation(fixtures::running());
    fake.answer("BatchCreateDags", &batch_results(vec![running(), running()]));
    let (_folder, files) = two_files();
    let run = run(fake.endpoint(), &format!("dag create {files} --tenant acme"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout.matches("0198c0de").count(), 2, "{}", run.stdout);
    let asked: Vec<BatchCreateDagsRequest> = fake.asked("BatchCreateDags");
    let ids: Vec<&str> = asked[0].requests.iter().map(|one| one.dag_id.as_str()).collect();
    assert_eq!((asked[0].parent.as_str(), ids), ("tenants/acme", vec!["web", "db"]));
    assert!(!asked[0].allow_partial && asked[0].request_id.len() == 36, "{asked:?}");
}

#[test]
fn the_command_fails_if_any_of_several_dags_is_not_created() {
    let fake = Fake::start();
    let shortage = Shortage { message: "no AES is free".into(), ..Shortage::default() };
    let failed = ApiError::insufficient("the DAG", &[shortage]);
    let created = done(any("snic.control.v1.Dag", &fixtures::web()));
    let results = vec![Created::Operation(created), Created::Error(failed.into())];
    fake.answer("BatchCreateDags", &batch_results(results));
    let (_folder, files) = two_files();
    let line = format!("dag create {files} --tenant acme --allow-partial --wait");
    let run = run(fake.endpoint(), &line);
    assert_eq!(run.code, 5, "{}", run.stderr);
    assert!(run.stdout.contains("acme/web") && !run.stdout.contains("acme/db"), "{}", run.stdout);
    assert!(run.stderr.contains("tenants/acme/dags/db: "), "{}", run.stderr);
    assert!(run.stderr.contains("no AES is free"), "{}", run.stderr);
    assert!(fake.asked::<BatchCreateDagsRequest>("BatchCreateDags")[0].allow_partial);
}

#[test]
fn one_name_is_not_for_several_files() {
    let fake = Fake::start();
    let (_folder, files) = two_files();
    let run = run(fake.endpoint(), &format!("dag create acme/web {files}"));
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("one name for 2 files"), "{}", run.stderr);
}

#[test]
fn waiting_follows_the_operation_to_its_end() {
    let fake = Fake::start();
    fake.answer("CreateDag", &fixtures::running())
        .answer("WaitOperation", &fixtures::running())
        .answer("WaitOperation", &done(any("snic.control.v1.Dag", &fixtures::web())));
    let run = with_input(fake.endpoint(), "dag create -f - --tenant acme --wait -o json", WEB);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.json()["state"], "STATE_READY");
    assert_eq!(run.json()["bandwidth_bps"], 10_000_000_000_u64);
    assert_eq!(fake.asked::<WaitOperationRequest>("WaitOperation").len(), 2);
}

#[test]
fn an_operation_that_fails_fails_the_command() {
    let fake = Fake::start();
    let reason = ErrorReason::ReconfigurationFailed;
    let failure = ApiError::new(reason, "region 3 could not be loaded, three times");
    fake.answer("GetOperation", &failed(failure));
    let run = run(fake.endpoint(), "operation wait o1");
    assert_eq!(run.code, 4);
    assert!(run.stderr.contains("RECONFIGURATION_FAILED"), "{}", run.stderr);
    assert_eq!(run.stdout, "");
}

#[test]
fn waiting_ends_with_its_limit_and_says_how_to_go_on() {
    let fake = Fake::start();
    fake.answer("GetOperation", &fixtures::running());
    let run = run(fake.endpoint(), "operation wait o1 --timeout 0s");
    assert_eq!(run.code, 7);
    assert!(run.stderr.contains("next:"), "{}", run.stderr);
}

#[test]
fn a_trial_run_prints_what_would_be() {
    let fake = Fake::start();
    let response = done(any("snic.control.v1.Dag", &fixtures::web()));
    fake.answer("CreateDag", &response);
    let line = "dag create acme/web -f - --validate-only";
    let run = with_input(fake.endpoint(), line, WEB);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with("Validated:  acme/web\n"), "{}", run.stdout);
    assert!(fake.asked::<CreateDagRequest>("CreateDag")[0].validate_only);

    let shortage = Shortage { message: "no AES is free".into(), ..Shortage::default() };
    fake.refuse("CreateDag", ApiError::insufficient("tenants/acme/dags/web", &[shortage]));
    let run = with_input(fake.endpoint(), line, WEB);
    assert_eq!((run.code, run.stdout.as_str()), (5, ""));
}

#[test]
fn a_wrong_file_never_reaches_the_server() {
    let fake = Fake::start();
    let run = with_input(
        fake.endpoint(),
        "dag create -f - --tenant a",
        "bandwidth: 1Gbps\nchain: [a] -> b\n",
    );
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("<standard input>:2:8"), "{}", run.stderr);
    assert!(fake.asked::<CreateDagRequest>("CreateDag").is_empty());
}

#[test]
fn an_update_names_what_it_changes() {
    let fake = Fake::start();
    fake.answer("UpdateDag", &fixtures::running()).answer("UpdateDag", &fixtures::running());
    let line = "dag update acme/web --bandwidth 20Gbps --etag e1";
    assert_eq!(run(fake.endpoint(), line).code, 0);
    assert_eq!(with_input(fake.endpoint(), "dag update -f - --tenant acme", WEB).code, 0);
    let asked: Vec<UpdateDagRequest> = fake.asked("UpdateDag");
    let dag = asked[0].dag.clone().unwrap();
    assert_eq!((dag.bandwidth_bps, dag.etag.as_str()), (20_000_000_000, "e1"));
    assert_eq!(asked[0].update_mask.clone().unwrap().paths, ["bandwidth_bps"]);
    let paths = asked[1].update_mask.clone().unwrap().paths;
    let in_files = ["nodes", "edges", "bandwidth_bps", "form"];
    assert_eq!(paths[..4], in_files);
    let rest = [
        "packet_sizes",
        "trusted_tenants",
        "card_affinity",
        "latency_sensitive",
        "refuse_idle_tasks",
        "latency_bound_nanos",
        "labels",
        "description",
    ];
    assert_eq!(paths[4..], rest);
}

#[test]
fn update_accepts_the_output_of_get() {
    let fake = Fake::start();
    fake.answer("GetDag", &fixtures::web()).answer("UpdateDag", &fixtures::running());
    let printed = run(fake.endpoint(), "dag get acme/web -o yaml");
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let updated = with_input(fake.endpoint(), "dag update -f -", &printed.stdout);
    assert_eq!(updated.code, 0, "{}", updated.stderr);
    let dag = fake.asked::<UpdateDagRequest>("UpdateDag")[0].dag.clone().unwrap();
    let web = fixtures::web();
    assert_eq!((dag.name, dag.nodes, dag.edges), (web.name, web.nodes, web.edges));
    assert_eq!((dag.bandwidth_bps, dag.etag), (web.bandwidth_bps, web.etag));
}

#[test]
fn lists_are_read_to_their_last_page() {
    let fake = Fake::start();
    let page = |dag: Dag, token: &str| ListDagsResponse {
        dags: vec![dag],
        next_page_token: token.into(),
        revision: 1,
    };
    fake.answer("ListDags", &page(fixtures::web(), "t1"))
        .answer("ListDags", &page(fixtures::stuck(), ""));
    let run = run(fake.endpoint(), "dag list -A -o json");
    let names: Vec<_> =
        run.json().as_array().unwrap().iter().map(|dag| dag["name"].clone()).collect();
    assert_eq!(names, [fixtures::web().name, fixtures::stuck().name]);
    let asked: Vec<ListDagsRequest> = fake.asked("ListDags");
    assert_eq!((asked[0].parent.as_str(), asked[1].page_token.as_str()), ("tenants/-", "t1"));
}

#[test]
fn an_empty_list_is_an_empty_array() {
    let fake = Fake::start();
    fake.answer("ListTenants", &ListTenantsResponse::default());
    assert_eq!(run(fake.endpoint(), "tenant list -o json").json(), serde_json::json!([]));
}

#[rstest]
#[case(ApiError::required("dag.nodes"), 2)]
#[case(ApiError::not_found("DAG", "tenants/acme/dags/web"), 3)]
#[case(ApiError::exists("DAG", "tenants/acme/dags/web"), 4)]
#[case(ApiError::etag_mismatch("DAG", "tenants/acme/dags/web"), 4)]
#[case(ApiError::in_use("tenants/acme/dags/web", "classificationRules/r"), 4)]
#[case(ApiError::quota("tenants/acme", "dags_max", 1, 2), 5)]
#[case(ApiError::new(ErrorReason::IdentityMissing, "who are you?"), 6)]
#[case(ApiError::new(ErrorReason::PermissionDenied, "not you"), 6)]
#[case(ApiError::internal("7f"), 1)]
fn refusals_have_exit_codes_and_json(#[case] failure: ApiError, #[case] code: i32) {
    let fake = Fake::start();
    fake.refuse("GetDag", failure.clone()).refuse("GetDag", failure.clone());
    let people = run(fake.endpoint(), "dag get acme/web");
    assert_eq!((people.code, people.stdout.as_str()), (code, ""));
    assert!(people.stderr.starts_with("error: "), "{}", people.stderr);
    let programs = run(fake.endpoint(), "dag get acme/web -o json");
    let value: serde_json::Value = serde_json::from_str(&programs.stderr).unwrap();
    assert_eq!(value["error"]["reason"], failure.reason().word());
    assert_eq!((programs.code, value["error"]["exit_code"].as_i64()), (code, Some(code.into())));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for line in ["dag", "dag create", "dag frob", "dag get", "card get --timeout soon"] {
        assert_eq!(run("unix:/nowhere", line).code, 2, "{line}");
    }
}

#[test]
fn a_server_that_is_not_there_is_exit_code_7() {
    let run = run("unix:/nonexistent/snicd.sock", "tenant list");
    assert_eq!(run.code, 7);
    assert!(
        run.stderr.contains("cannot connect to unix:/nonexistent/snicd.sock"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("check that snicd runs"), "{}", run.stderr);
}

#[test]
fn without_a_server_there_is_no_support_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle.tar.gz");
    let words = format!("support-bundle -f {}", path.display());
    let absent = run("unix:/nonexistent/snicd.sock", &words);
    assert_eq!(absent.code, 7);
    assert!(absent.stderr.contains("cannot connect to unix:/nonexistent"), "{}", absent.stderr);
    assert!(!path.exists());
    let silent = Fake::start();
    silent.ignore("GetDiagnostics");
    silent.ignore("GetMaintenance");
    let run_out = run(silent.endpoint(), &format!("{words} --timeout 200ms"));
    assert_eq!(run_out.code, 7);
    assert!(run_out.stderr.contains("no reply from"), "{}", run_out.stderr);
    assert!(!path.exists());
}

/// A bundle is for when things are broken: it has what went wrong.
#[test]
fn a_server_that_only_refuses_has_a_support_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle.tar.gz");
    let fake = Fake::start();
    for _ in 0..10 {
        // More often than a call is tried again.
        fake.refuse("GetDiagnostics", unavailable());
        fake.refuse("GetMaintenance", unavailable());
    }
    let words = format!("support-bundle -f {}", path.display());
    assert_eq!(run(fake.endpoint(), &words).code, 0);
    assert!(path.exists());
}

#[test]
fn a_server_that_does_not_answer_is_exit_code_7() {
    let fake = Fake::start();
    fake.ignore("ListTenants");
    let run = run(fake.endpoint(), "tenant list --timeout 200ms");
    assert_eq!(run.code, 7);
    assert!(run.stderr.contains("it may still have taken effect"), "{}", run.stderr);
}

fn unavailable() -> ApiError {
    ApiError::new(ErrorReason::StoreUnavailable, "not now").retry_after(Duration::from_millis(1))
}

#[test]
fn a_create_is_sent_again_with_the_same_request_id() {
    let fake = Fake::start();
    fake.refuse("CreateTenant", unavailable())
        .refuse("CreateTenant", unavailable())
        .answer("CreateTenant", &fixtures::tenant());
    let run = run(fake.endpoint(), "tenant create acme --weight 2 --bandwidth-max 50Gbps");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let asked: Vec<CreateTenantRequest> = fake.asked("CreateTenant");
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|request| *request == asked[0]), "{asked:?}");
    let tenant = asked[0].tenant.clone().unwrap();
    assert_eq!((tenant.weight, tenant.quota.unwrap().bandwidth_max_bps), (2, Some(50_000_000_000)));
}

#[test]
fn every_change_is_sent_again_with_the_same_request_id() {
    macro_rules! check {
        ($($line:literal $method:literal $request:ty;)+) => {$(
            let fake = Fake::start();
            fake.refuse($method, unavailable()).refuse($method, unavailable());
            // What the third call is answered does not matter here.
            run(fake.endpoint(), $line);
            let asked: Vec<$request> = fake.asked($method);
            assert_eq!(asked.len(), 3, "{}", $line);
            assert!(asked.iter().all(|request| *request == asked[0]), "{}: {asked:?}", $line);
            assert_eq!(asked[0].request_id.len(), 36, "{}: a UUID", $line);
        )+};
    }
    check! {
        "dag delete acme/web" "DeleteDag" DeleteDagRequest;
        "tenant update acme --weight 2" "UpdateTenant" UpdateTenantRequest;
        "tenant delete acme" "DeleteTenant" DeleteTenantRequest;
        "nt delete nat" "DeleteNtType" DeleteNtTypeRequest;
        "bitstream delete nat" "DeleteBitstream" DeleteBitstreamRequest;
        "bitstream retry nat" "RetryBitstream" RetryBitstreamRequest;
        "rule delete r1" "DeleteRule" DeleteRuleRequest;
        "operation cancel x" "CancelOperation" CancelOperationRequest;
        "operation delete x" "DeleteOperation" DeleteOperationRequest;
        "region drain card0/3" "DrainRegion" DrainRegionRequest;
        "region cordon card0/3" "CordonRegion" CordonRegionRequest;
        "region undrain card0/3" "UndrainRegion" UndrainRegionRequest;
        "region reset card0/3" "ResetRegion" ResetRegionRequest;
        "card drain card0" "DrainCard" DrainCardRequest;
        "card cordon card0" "CordonCard" CordonCardRequest;
        "card uncordon card0" "UncordonCard" UncordonCardRequest;
        "card remove card0" "RemoveCard" RemoveCardRequest;
        "card replace card0" "ReplaceCard" ReplaceCardRequest;
        "card optimize card0" "OptimizeCard" OptimizeCardRequest;
        "card load-role card0" "LoadRole" LoadRoleRequest;
        "card reset card0" "ResetCard" ResetCardRequest;
    }
}

#[test]
fn nothing_to_delete_is_fine_where_the_caller_says_so() {
    let fake = Fake::start();
    fake.answer("DeleteTenant", &());
    assert_eq!(run(fake.endpoint(), "tenant delete acme --allow-missing").code, 0);
    assert!(fake.asked::<DeleteTenantRequest>("DeleteTenant")[0].allow_missing);
    let nothing = Operation { name: String::new(), ..done(any("google.protobuf.Empty", &())) };
    fake.answer("DeleteDag", &nothing);
    assert!(fine(&fake, "dag delete acme/web --allow-missing").starts_with("done: "));
}

#[test]
fn repetition_has_an_end() {
    let fake = Fake::start();
    for _ in 0..20 {
        fake.refuse("ListTenants", unavailable());
    }
    assert_eq!(run(fake.endpoint(), "tenant list").code, 7);
    assert_eq!(fake.asked::<ListTenantsRequest>("ListTenants").len(), 5);
}

#[test]
fn a_bitstream_is_uploaded_in_chunks_with_its_digest() {
    let fake = Fake::start();
    fake.answer("UploadBitstream", &fixtures::bitstream());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nat.bit");
    let bytes: Vec<u8> = (0..600_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    std::fs::write(&path, &bytes).unwrap();
    let line = format!(
        "bitstream upload acme.nat -f {} --nts nat,ntTypes/aes --model sim-16",
        path.display()
    );
    let run = run(fake.endpoint(), &line);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let parts: Vec<UploadBitstreamRequest> = fake.asked("UploadBitstream/part");
    let mut received = Vec::new();
    for part in &parts[1..] {
        let Some(Part::Chunk(chunk)) = &part.part else { panic!("{part:?}") };
        assert!((1..=1 << 20).contains(&chunk.len()));
        received.extend_from_slice(chunk);
    }
    assert!(received == bytes);
    let Some(Part::Header(header)) = &parts[0].part else { panic!("{:?}", parts[0]) };
    assert_eq!(header.digest, Digest::of(&bytes).to_string());
    assert_eq!(header.nts, ["ntTypes/nat", "ntTypes/aes"]);
    assert_eq!((header.bitstream_id.as_str(), header.size_bytes), ("acme.nat", 600_000));
}

#[test]
fn files_that_cannot_be_sent_are_refused_here() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let line = |path: &std::path::Path| {
        format!("bitstream upload b -f {} --nts nat --model m", path.display())
    };
    let found = run("unix:/nowhere", &line(&empty));
    assert!(found.code == 2 && found.stderr.contains("is empty"), "{}", found.stderr);
    let found = run("unix:/nowhere", &line(&folder.path().join("none")));
    assert!(found.code == 2 && found.stderr.contains("cannot read"), "{}", found.stderr);
}

fn dag_event(kind: EventType, dag: Option<Dag>, revision: u64) -> WatchDagsResponse {
    WatchDagsResponse { r#type: kind.into(), dag, revision }
}

#[test]
fn a_watch_goes_on_where_it_broke_off() {
    let fake = Fake::start();
    let other = Dag { name: "tenants/acme/dags/other".into(), ..fixtures::web() };
    fake.answer("WatchDags", &dag_event(EventType::Added, Some(fixtures::web()), 7))
        .refuse("WatchDags", ApiError::new(ErrorReason::WatcherTooSlow, "too slow"))
        .answer("WatchDags", &dag_event(EventType::Added, Some(other), 8))
        .answer("WatchDags", &dag_event(EventType::Deleted, Some(fixtures::web()), 9))
        .answer("WatchDags", &dag_event(EventType::Bookmark, None, 10));
    let run = run(fake.endpoint(), "dag watch acme/web");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", run.stdout);
    assert!(lines[0].starts_with("ADDED") && lines[1].starts_with("DELETED"), "{}", run.stdout);
    let asked: Vec<WatchDagsRequest> = fake.asked("WatchDags");
    let revisions: Vec<u64> = asked.iter().map(|request| request.resume_revision).collect();
    assert_eq!(revisions, [0, 7]);
}

#[test]
fn a_watch_in_json_is_a_line_an_event() {
    let fake = Fake::start();
    let region = fixtures::regions().swap_remove(2);
    let event = WatchRegionsResponse {
        r#type: EventType::Modified.into(),
        region: Some(region),
        revision: 3,
    };
    fake.answer("WatchRegions", &event).answer("WatchRegions", &event);
    let run = run(fake.endpoint(), "region watch -o json");
    let lines: Vec<serde_json::Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["region"]["state"], "STATE_FAULTY");
    assert_eq!(lines[0]["revision"], 3);
    assert_eq!(fake.asked::<WatchRegionsRequest>("WatchRegions")[0].parent, "cards/-");
}

/// A role with that many bytes of registers.
fn role_of(card: &snic_domain::CardProfile, registers_bytes: u64) -> Vec<u8> {
    let role = TestRole {
        uuid: uuid::Uuid::from_u128(9),
        interface: uuid::Uuid::nil(),
        platform: "sim-16",
        control: "snic_control:control_0",
        registers_bytes,
        memory_kibibytes: 1 << 20,
    };
    role.build(card).expect("a role")
}

#[test]
fn test_images_are_built_without_a_server_and_pass_the_daemons_own_checks() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let built = |line: &str| run("http://127.0.0.1:9", &format!("bitstream build-test {line}"));
    let catalogue = snic_bitstream::catalogue::builtin().expect("valid");
    let card = catalogue.cards.iter().find(|c| c.model.as_str() == "sim-16").expect("there");

    let chain = file("chain.bit");
    let found = built(&format!("--model sim-16 --nts nat,firewall --size 100000 {chain}"));
    assert_eq!(found.code, 0, "{}", found.stderr);
    let bytes = std::fs::read(&chain).expect("written");
    assert_eq!(bytes.len(), 100_000);
    assert!(found.stdout.starts_with(&Digest::of(&bytes).to_string()), "{}", found.stdout);
    let parsed = snic_bitstream::parse(&bytes).expect("a bitstream");
    parsed.check_card(card).expect("it is for this card");

    let role = file("role.xclbin");
    let uuid = uuid::Uuid::from_u128(9);
    let found = built(&format!("--model sim-16 --role {uuid} {role}"));
    assert_eq!(found.code, 0, "{}", found.stderr);
    let (control, registers_bytes) = ("snic_control:control_0", 1 << 20);
    let expected =
        ExpectedRole { control, registers_bytes, first_register: 0x40, interface: None, card };
    let role = std::fs::read(&role).expect("written");
    check_role(&role, &expected).expect("a role that the daemon takes");

    // Its statement is printed for a card that it is for.
    let stated = |line: &str| {
        run("http://127.0.0.1:9", &format!("bitstream statement -f {} {line}", file("role.xclbin")))
    };
    let found = stated("--role sim-16");
    let statement = snic_bitstream::signature::statement(Digest::of(&role));
    assert_eq!((found.code, found.stdout), (0, statement), "{}", found.stderr);
    for (line, says) in [
        ("--role u280", "role.xclbin is no role for u280: "),
        ("--role u9", "unknown card model u9"),
        ("--role sim-16 --control snic_control:control_1", "no kernel snic_control:control_1"),
        ("--role sim-16 --manifest x.toml", "--manifest"),
        ("", "--manifest"),
    ] {
        let found = stated(line);
        assert!(found.code != 0 && found.stdout.is_empty(), "{line}: {}", found.stdout);
        assert!(found.stderr.contains(says), "{line}: {}", found.stderr);
    }
    // The map's end decides: a range that the test role above would have passed is too small.
    std::fs::write(file("role.xclbin"), role_of(card, 1 << 20)).expect("a writable folder");
    let found = stated("--role sim-16");
    assert!(
        found.code != 0 && found.stderr.contains("1048576 bytes of registers"),
        "{}",
        found.stderr
    );

    for (line, says) in [
        ("--model u9 --nts nat x.bit", "unknown card model u9"),
        ("--model sim-16 --nts nat,frob x.bit", "unknown NT type frob"),
        ("--model sim-16 --nts nat --size 9 x.bit", "9"),
        ("--model sim-16 x.bit", "--nts"),
        ("--model sim-16 --nts nat /nonexistent/x.bit", "/nonexistent/x.bit"),
    ] {
        let found = built(line);
        assert!(found.code != 0 && found.stderr.contains(says), "{line}: {}", found.stderr);
    }
}

#[test]
fn the_only_card_need_not_be_named() {
    let fake = Fake::start();
    let cards = ListCardsResponse { cards: vec![fixtures::card()], ..ListCardsResponse::default() };
    let regions =
        ListRegionsResponse { regions: fixtures::regions(), ..ListRegionsResponse::default() };
    fake.answer("ListCards", &cards)
        .answer("GetCard", &fixtures::card())
        .answer("ListRegions", &regions);
    let map = run(fake.endpoint(), "card get");
    assert!(
        map.stdout.contains("0     ACTIVE    25%  dag-d-sim-16"),
        "{}{}",
        map.stdout,
        map.stderr
    );
    assert!(map.stdout.lines().count() < 24);

    let region = fixtures::regions().swap_remove(3);
    let drained = done(any("snic.control.v1.Region", &region));
    fake.answer("ListCards", &cards).answer("DrainRegion", &drained);
    let drain = run(fake.endpoint(), "region drain 3 --wait -o yaml");
    assert!(
        drain.stdout.contains("state: STATE_RECONFIGURING"),
        "{}{}",
        drain.stdout,
        drain.stderr
    );
    assert_eq!(fake.asked::<DrainRegionRequest>("DrainRegion")[0].name, "cards/card0/regions/3");

    let two = ListCardsResponse { cards: vec![fixtures::card(), fixtures::card()], ..cards };
    fake.answer("ListCards", &two);
    assert_eq!(run(fake.endpoint(), "region get 3").code, 2);
}

/// A command that ends well and prints something.
fn fine(fake: &Fake, line: &str) -> String {
    let found = run(fake.endpoint(), line);
    assert_eq!(found.code, 0, "{line}: {}", found.stderr);
    assert!(!found.stdout.is_empty(), "{line}");
    found.stdout
}

#[test]
fn moves_and_recommendations_are_shown_and_written() {
    use snic_api::v1::operation_metadata::Verb;
    use snic_api::v1::optimize_card_response::Move;
    use snic_api::v1::recommend_bitstreams_response::Recommendation;
    let fake = Fake::start();
    let region = |n: u8| format!("cards/card0/regions/{n}");
    let step = Move {
        dag: "tenants/acme/dags/web".into(),
        from_regions: vec![region(1)],
        to_regions: vec![region(0)],
        loaded_regions: Vec::new(),
    };
    let would_be = OptimizeCardResponse {
        moves: vec![step],
        freed_regions: vec![region(1)],
        passes_before: 3,
        passes_after: 2,
        ..Default::default()
    };
    fake.answer("OptimizeCard", &would_be);
    let text = fine(&fake, "card optimize card0 --dry-run");
    assert!(text.contains("acme/web") && text.contains("frees 1 regions"), "{text}");
    assert!(fake.asked::<OptimizeCardRequest>("OptimizeCard")[0].validate_only);
    fake.answer("OptimizeCard", &OptimizeCardResponse::default());
    assert_eq!(fine(&fake, "card optimize card0 --dry-run"), "no worthwhile move found\n");
    let mut operation = done(any("google.protobuf.Empty", &()));
    let of = operation.metadata.as_mut().expect("always there");
    of.set_verb(Verb::Optimize);
    let of = of.progress.as_mut().expect("it has some");
    (of.dags_moved, of.moves_left) = (18, 2);
    let reply = OptimizeCardResponse { operation: Some(operation), ..Default::default() };
    fake.answer("OptimizeCard", &reply);
    let text = fine(&fake, "card optimize card0 --wait");
    assert!(text.starts_with("done: OPTIMIZE "), "{text}");
    assert!(text.ends_with("; DAGs moved: 18; without room for a move: 2\n"), "{text}");
    fake.answer("OptimizeCard", &reply);
    let text = fine(&fake, "card optimize card0 --wait -o json");
    let counts: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(counts, serde_json::json!({ "dags_moved": 18, "moves_left": 2 }));
    fake.answer("LoadRole", &done(any("google.protobuf.Empty", &())));
    assert!(fine(&fake, "card load-role card0 --force --wait").starts_with("done: "));
    let asked: Vec<LoadRoleRequest> = fake.asked("LoadRole");
    assert_eq!((asked.len(), &*asked[0].name, asked[0].force), (1, "cards/card0", true));
    for _ in 0..2 {
        fake.answer("ResetCard", &done(any("google.protobuf.Empty", &())));
    }
    assert!(fine(&fake, "card reset card0 --wait").starts_with("done: "));
    assert!(fine(&fake, "card reset card0 --force --wait").starts_with("done: "));
    let asked: Vec<ResetCardRequest> = fake.asked("ResetCard");
    assert_eq!(asked.iter().map(|asked| asked.force).collect::<Vec<_>>(), [false, true]);

    let found = Recommendation {
        nts: vec!["ntTypes/nat".into(), "ntTypes/aes".into()],
        freed_regions: 2,
        manifest: "part = \"x\"\n".into(),
        ..Default::default()
    };
    let told = RecommendBitstreamsResponse { recommendations: vec![found], ..Default::default() };
    fake.answer("RecommendBitstreams", &told);
    let folder = tempfile::tempdir().expect("a folder");
    let line = format!("bitstream recommend card0 --manifests {}", folder.path().display());
    assert!(fine(&fake, &line).contains("nat -> aes"));
    let written = std::fs::read_to_string(folder.path().join("nat+aes.toml")).expect("written");
    assert_eq!(written, "part = \"x\"\n");
}

#[test]
fn every_verb_of_dags_and_tenants_reaches_its_method() {
    let fake = Fake::start();
    fake.answer("ExplainDag", &fixtures::explanation());
    assert!(fine(&fake, "dag explain acme/web").contains("chosen: shared region"));
    fake.answer("DiagnoseDag", &fixtures::diagnosis());
    assert!(fine(&fake, "dag diagnose acme/web").contains("What would help"));
    fake.answer("DeleteDag", &done(any("google.protobuf.Empty", &())));
    assert_eq!(fine(&fake, "dag delete acme/web --wait"), "done: CREATE acme/web\n");
    fake.answer(
        "ListTenants",
        &ListTenantsResponse { tenants: vec![fixtures::tenant()], ..Default::default() },
    );
    fine(&fake, "tenant list");
    fake.answer("GetTenant", &fixtures::tenant());
    fine(&fake, "tenant get --tenant acme");
    fake.answer("UpdateTenant", &fixtures::tenant());
    fine(&fake, "tenant update acme --dags-max 0 --memory-max 1GiB");
    let update = fake.asked::<UpdateTenantRequest>("UpdateTenant").remove(0);
    assert_eq!(update.update_mask.unwrap().paths, ["quota.dags_max", "quota.memory_max_bytes"]);
    assert_eq!(update.tenant.unwrap().quota.unwrap().dags_max, Some(0));
    fake.answer("DeleteTenant", &());
    assert_eq!(fine(&fake, "tenant delete acme --force"), "deleted tenants/acme\n");
}

#[test]
fn every_verb_of_types_bitstreams_cards_and_regions_reaches_its_method() {
    let fake = Fake::start();
    fake.answer("CreateNtType", &fixtures::nt_type());
    fine(
        &fake,
        "nt create acme.x --bandwidth-max 100Gbps --latency-cycles 3 --lut 10 --traffic header \
         --packets-per-second-max 20000000 --memory-bytes-per-packet 64 --memory-bytes-per-packet-byte 2",
    );
    let created = &fake.asked::<CreateNtTypeRequest>("CreateNtType")[0];
    assert_eq!(created.nt_type_id, "acme.x");
    let nt = created.nt_type.as_ref().unwrap();
    let memory = (nt.memory_bytes_per_packet, nt.memory_bytes_per_packet_byte);
    assert_eq!((nt.packets_per_second_max, memory), (20_000_000, (64, 2)));
    fake.answer(
        "ListNtTypes",
        &ListNtTypesResponse { nt_types: vec![fixtures::nt_type()], ..Default::default() },
    );
    fine(&fake, "nt list");
    fake.answer("GetNtType", &fixtures::nt_type()).answer("DeleteNtType", &());
    fine(&fake, "nt get firewall");
    fine(&fake, "nt delete firewall --etag e2");
    let bitstreams = vec![fixtures::bitstream()];
    fake.answer("ListBitstreams", &ListBitstreamsResponse { bitstreams, ..Default::default() });
    fine(&fake, "bitstream list");
    fake.answer("GetBitstream", &fixtures::bitstream()).answer("DeleteBitstream", &());
    fine(&fake, "bitstream get dag-d-sim-16 -o yaml");
    fine(&fake, "bitstream delete dag-d-sim-16");
    let operation = Some(fixtures::running());
    fake.answer("DeleteBitstream", &DeleteBitstreamResponse { operation: operation.clone() });
    let begun = fine(&fake, "bitstream delete dag-d-sim-16");
    assert!(begun.contains("snicctl operation wait"), "DAGs move first: {begun}");
    fake.answer("DeleteTenant", &DeleteTenantResponse { operation });
    let begun = fine(&fake, "tenant delete acme --force");
    assert!(begun.contains("snicctl operation wait"), "DAGs of others move first: {begun}");
    fake.answer(
        "ListCards",
        &ListCardsResponse { cards: vec![fixtures::card()], ..Default::default() },
    );
    fine(&fake, "card list");
    fake.answer(
        "ListRegions",
        &ListRegionsResponse { regions: fixtures::regions(), ..Default::default() },
    );
    fine(&fake, "region list card0");
    fake.answer("GetRegion", &fixtures::regions()[0])
        .answer("UndrainRegion", &fixtures::regions()[0]);
    fine(&fake, "region get card0/0");
    fine(&fake, "region undrain card0/0");
    fake.answer("ResetRegion", &fixtures::running());
    fine(&fake, "region reset card0/2");
}

#[test]
fn every_verb_of_rules_and_operations_reaches_its_method() {
    let fake = Fake::start();
    fake.answer("CreateRule", &fixtures::rule());
    fine(
        &fake,
        "rule create web-http --dag acme/web --priority 10 --vf 3 --protocol tcp --destination-port 80 --source 10.1.0.0/16",
    );
    let rule = fake.asked::<CreateRuleRequest>("CreateRule").remove(0).rule.unwrap();
    assert_eq!((rule.r#match, rule.dag), (fixtures::rule().r#match, fixtures::rule().dag));
    fake.answer(
        "ListRules",
        &ListRulesResponse { rules: vec![fixtures::rule()], ..Default::default() },
    );
    fine(&fake, "rule list --dag acme/web");
    fake.answer("GetRule", &fixtures::rule()).answer("DeleteRule", &());
    fine(&fake, "rule get web-http");
    fine(&fake, "rule delete web-http");
    let operations = vec![fixtures::running()];
    fake.answer("ListOperations", &ListOperationsResponse { operations, ..Default::default() });
    fine(&fake, "operation list --running");
    fake.answer("GetOperation", &fixtures::running());
    fine(&fake, "operation get o1");
    fake.answer("CancelOperation", &()).answer("DeleteOperation", &());
    assert_eq!(fine(&fake, "operation cancel o1"), "cancelled operations/o1\n");
    fine(&fake, "operation delete o1 -o json");
    assert!(fine(&fake, "version -o json").contains("\"version\""));
}

#[test]
fn contexts_are_kept_and_used() {
    let fake = Fake::on_socket();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("snic/config.toml");
    let go = |line: &str| ended(snicctl(&config).args(line.split_whitespace()).assert());
    let endpoint = fake.endpoint();
    assert_eq!(go("tenant list").code, 2, "no context yet");
    assert_eq!(
        go(&format!("context set alice --endpoint {endpoint} --identity operator/alice")).code,
        0
    );
    let set = format!("context set acme --endpoint {endpoint} --identity tenant/acme");
    assert_eq!(go(&set).code, 0);
    assert!(go("context list").stdout.contains("*  alice"), "{}", go("context list").stdout);
    fake.answer("ListTenants", &ListTenantsResponse::default());
    assert_eq!(go("tenant list").code, 0);
    assert_eq!(go("context use acme").code, 0);
    fake.answer("GetDag", &fixtures::web()).answer("GetDag", &fixtures::web());
    assert_eq!(go("dag get web").code, 0);
    assert_eq!(go("dag get web --context alice").code, 2, "alice is no tenant");
    assert_eq!(go("dag get web --context alice --tenant acme").code, 0);
    assert_eq!(fake.headers("snic-identity"), ["operator/alice", "tenant/acme", "operator/alice"]);
    let asked: Vec<GetDagRequest> = fake.asked("GetDag");
    assert!(asked.iter().all(|request| request.name == "tenants/acme/dags/web"));
    assert_eq!(go("context show -o json").json()["identity"], "tenant/acme");
    assert_eq!(go("context use bob").code, 2);
    assert_eq!(go("context delete acme").code, 0);
    assert_eq!(go("context show").code, 2, "the current one is gone");
}

#[test]
fn a_damaged_file_of_contexts_is_shown_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "current = \"a\"\n[contexts.a]\nendpont = \"x\"\n").unwrap();
    let run = ended(snicctl(&config).args(["tenant", "list"]).assert());
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("line 3") && run.stderr.contains("endpont"), "{}", run.stderr);
}

#[test]
fn plain_text_to_another_machine_is_refused() {
    let run = run("http://192.0.2.1:7443", "tenant list");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("plain text is allowed on loopback"), "{}", run.stderr);
}

/// An authority, with what it signs.
struct Authority(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        Self(rcgen::CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn issue(&self, name: &str) -> (String, String) {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let uri = "spiffe://snic.local/operator/root".try_into().unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI(uri));
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

#[test]
fn certificates_identify_both_sides() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("snicd.example");
    let ca = authority.0.pem();
    let fake = Fake::with_tls(Tls { ca: ca.clone(), certificate, key });
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let (certificate, key) = authority.issue("client.example");
    write("ca.pem", &ca);
    write("other.pem", &Authority::new().0.pem());
    write("client.pem", &certificate);
    write("client.key", &key);
    let endpoint = fake.endpoint();
    let context = |name: &str, ca: &str, rest: &str| {
        format!("[contexts.{name}]\nendpoint = \"{endpoint}\"\nca = \"{ca}\"\n{rest}")
    };
    let pair = "certificate = \"client.pem\"\nkey = \"client.key\"\n";
    let named = format!("{pair}server_name = \"snicd.example\"\n");
    let config = [
        context("good", "ca.pem", &named),
        context("othername", "ca.pem", pair),
        context("otherca", "other.pem", &named),
        context("nobody", "ca.pem", "server_name = \"snicd.example\"\n"),
        context("nofile", "none.pem", &named),
    ];
    write("config.toml", &config.concat());
    let go = |name: &str| {
        let mut command = snicctl(&folder.path().join("config.toml"));
        ended(command.args(["tenant", "list", "--timeout", "10s", "--context", name]).assert())
    };
    fake.answer("ListTenants", &ListTenantsResponse::default());
    let good = go("good");
    assert_eq!(good.code, 0, "{}", good.stderr);
    for (name, code) in [("othername", 7), ("otherca", 7), ("nobody", 7), ("nofile", 2)] {
        let run = go(name);
        assert_eq!(run.code, code, "{name}: {}", run.stderr);
    }
    assert_eq!(fake.asked::<ListTenantsRequest>("ListTenants").len(), 1);
}

#[rstest]
#[case("bash", "complete -F _snicctl")]
#[case("zsh", "#compdef snicctl")]
#[case("fish", "complete -c snicctl")]
fn completions_are_made_for_shells(#[case] shell: &str, #[case] part: &str) {
    let run = run("unix:/nowhere", &format!("completions {shell}"));
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains(part), "{}", &run.stdout[..200.min(run.stdout.len())]);
    assert!(run.stdout.contains("validate-only"), "options are completed too");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_snicctl"))
        .args(["completions", "bash"])
        .stdout(writer)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn an_error_of_something_in_between_is_shown_as_it_is() {
    let fake = Fake::start();
    fake.refuse("ListTenants", Status::unimplemented("no such method"));
    let run = run(fake.endpoint(), "tenant list");
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("no such method") && run.stderr.contains("older"),
        "{}",
        run.stderr
    );
}

#[test]
fn one_screen_of_top_shows_the_map_and_the_dags() {
    // A daemon has no fleet to show, and a tenant of a fleet may not see it. Of a host that was named it is not asked.
    let refused = |code| Some(Status::new(code, "it is refused"));
    for (words, fleet) in [
        ("top --once", refused(Code::Unimplemented)),
        ("top --once", refused(Code::PermissionDenied)),
        ("--host h1 top --once", None),
    ] {
        let fake = Fake::start();
        if let Some(refused) = fleet {
            fake.refuse("GetFleet", refused);
        }
        shows_the_map_and_the_dags(&fake, words);
    }
}

fn shows_the_map_and_the_dags(fake: &Fake, words: &str) {
    let page = String::new;
    fake.answer(
        "ListDags",
        &ListDagsResponse { dags: vec![fixtures::web()], next_page_token: page(), revision: 1 },
    )
    .answer(
        "ListBitstreams",
        &ListBitstreamsResponse {
            bitstreams: vec![fixtures::bitstream()],
            next_page_token: page(),
            ..Default::default()
        },
    )
    .answer(
        "ListCards",
        &ListCardsResponse {
            cards: vec![fixtures::card()],
            next_page_token: page(),
            ..Default::default()
        },
    )
    .answer(
        "ListRegions",
        &ListRegionsResponse { regions: fixtures::regions(), next_page_token: page(), revision: 1 },
    );
    let run = run(fake.endpoint(), words);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout.lines().count(), 24);
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{}", run.stdout);
    for text in ["3 LOADING", "acme/web", "READY"] {
        assert!(run.stdout.contains(text), "{text}: {}", run.stdout);
    }
}

#[test]
fn top_says_that_it_needs_a_terminal() {
    let fake = Fake::start();
    let run = run(fake.endpoint(), "top");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("snicctl top --once"), "{}", run.stderr);
}
