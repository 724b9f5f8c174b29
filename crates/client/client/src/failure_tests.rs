use std::time::Duration;

use rstest::rstest;
use snic_api::error::{ApiError as ApiFailure, code_of};
use snic_api::v1::Shortage;
use snic_api::v1::shortage::Resource as Short;

use super::*;
use crate::failure_report::{code_name, noun_of};
use crate::output::Format;

fn api(failure: ApiFailure) -> Failure {
    Status::from(failure).into()
}

fn every_reason() -> impl Iterator<Item = ErrorReason> {
    (1..).map_while(|number| ErrorReason::try_from(number).ok())
}

#[test]
fn every_reason_has_an_exit_code_as_documented() {
    use ErrorReason as R;
    for reason in every_reason() {
        let code = api(ApiFailure::new(reason, "no")).exit_code();
        let expected = match reason {
            R::Overloaded => 7,
            R::RevisionExpired => 2,
            R::OperationCancelled | R::Internal | R::NotAtFleet => 1,
            R::ResourceNotFound => 3,
            R::QuotaExceeded | R::InsufficientCapacity | R::LimitExceeded => 5,
            R::IdentityMissing | R::PermissionDenied => 6,
            _ => match code_of(reason) {
                Code::InvalidArgument => 2,
                Code::Unavailable | Code::DeadlineExceeded => 7,
                _ => 4,
            },
        };
        assert_eq!(code, expected, "{reason:?}");
    }
}

#[test]
fn every_refusal_that_a_user_can_mend_says_how() {
    for reason in every_reason() {
        let failure = api(ApiFailure::new(reason, "no").resource("DAG", "tenants/a/dags/b", "no"));
        let says = failure.render(Format::Table, false);
        let is_clear_already = matches!(code_of(reason), Code::InvalidArgument | Code::Cancelled);
        let has_no_more = matches!(
            reason,
            ErrorReason::RequestIdReused
                | ErrorReason::InvalidState
                | ErrorReason::NotCancellable
                | ErrorReason::LimitExceeded
                | ErrorReason::NotAtFleet
                | ErrorReason::Overloaded
                | ErrorReason::ReconfigurationFailed
                | ErrorReason::Superseded
        );
        assert!(says.contains("next:") || is_clear_already || has_no_more, "{says}");
    }
}

#[rstest]
#[case(Code::Ok, 0)]
#[case(Code::Unimplemented, 1)]
#[case(Code::NotFound, 3)]
#[case(Code::Aborted, 4)]
#[case(Code::Unauthenticated, 6)]
#[case(Code::DeadlineExceeded, 7)]
fn errors_of_other_servers_have_exit_codes_too(#[case] code: Code, #[case] exit: u8) {
    assert_eq!(Failure::from(Status::new(code, "no")).exit_code(), exit);
}

#[test]
fn a_bad_request_names_its_fields() {
    let failure = ApiFailure::in_field(
        ErrorReason::InvalidField,
        "dag.bandwidth_bps",
        "0 is less than 1 Mbit/s",
    )
    .field("dag.nodes[2].nt_type", "unknown NT type frewall");
    insta::assert_snapshot!(api(failure).render(Format::Table, false));
}

#[test]
fn a_shortage_says_what_is_missing() {
    let shortage = Shortage {
        resource: Short::NtBandwidth.into(),
        required: 40_000_000_000,
        available: 12_500_000_000,
        unit: "bit/s".into(),
        nodes: vec!["aes".into()],
        message: "node aes needs 40 Gbit/s; 12.5 Gbit/s is free in loaded regions".into(),
    };
    let failure = ApiFailure::insufficient("tenants/acme/dags/web", &[shortage]);
    insta::assert_snapshot!(api(failure).render(Format::Table, false));
}

#[test]
fn a_quota_says_whose_and_which() {
    let failure = ApiFailure::quota("tenants/acme", "dags_max", 64, 65);
    insta::assert_snapshot!(api(failure).render(Format::Table, false));
}

#[test]
fn blocking_resources_are_named() {
    let failure = ApiFailure::in_use("ntTypes/nat", "bitstreams/nat-sim-16").precondition(
        "IN_USE",
        "ntTypes/nat",
        "tenants/acme/dags/web uses it too",
    );
    insta::assert_snapshot!(api(failure).render(Format::Table, false));
}

#[test]
fn programs_get_json() {
    let failure = ApiFailure::not_found("DAG", "tenants/acme/dags/web")
        .metadata("b", 1)
        .metadata("a", 2)
        .retry_after(Duration::from_millis(1_500));
    let text = api(failure).render(Format::Json, true);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["error"]["code"], "NOT_FOUND");
    assert_eq!(value["error"]["exit_code"], 3);
    assert_eq!(value["error"]["retry_after_seconds"], 1.5);
    insta::assert_snapshot!(text);
}

#[test]
fn a_wrong_file_has_its_place_in_yaml() {
    let error = snic_dagfile::parse("web.yaml", "bandwidth: 1Gbps\nchain: a ->\n").unwrap_err();
    let text = Failure::from(error).render(Format::Yaml, false);
    let value: serde_json::Value = serde_yaml_ng::from_str(&text).unwrap();
    assert_eq!(value["error"]["position"]["file"], "web.yaml");
    assert_eq!(value["error"]["position"]["line"], 2);
    assert_eq!(value["error"]["exit_code"], 2);
}

#[test]
fn failures_of_this_program_say_what_to_do_next() {
    let connect = Failure::Connect { endpoint: "unix:/x".into(), message: "no such file".into() };
    assert!(connect.render(Format::Table, false).contains("next:     check that snicd runs"));
    let running = Failure::StillRunning {
        operation: "operations/o1".into(),
        limit: Duration::from_secs(60).into(),
    };
    let text = running.render(Format::Table, false);
    assert!(
        text.starts_with("error: operations/o1 has not ended within 1m; it is still running"),
        "{text}"
    );
    assert!(text.contains("snicctl operation wait o1"), "{text}");
    assert_eq!((connect.exit_code(), running.exit_code()), (7, 7));
    let limit = Duration::from_secs(30).into();
    let silent = Failure::NoReply { endpoint: "unix:/x".into(), limit };
    let text = silent.render(Format::Table, false);
    assert!(text.starts_with("error: no reply from unix:/x within 30s"), "{text}");
    assert!(text.contains("next:     it may still have taken effect"), "{text}");
    assert!(silent.render(Format::Json, false).contains("DEADLINE_EXCEEDED"));
    assert_eq!(silent.exit_code(), 7);
    let pipe = Failure::Output(io::ErrorKind::BrokenPipe.into());
    assert!(pipe.is_closed_pipe() && !connect.is_closed_pipe());
}

#[test]
fn a_server_that_refuses_has_answered() {
    let limit = Duration::from_secs(30).into();
    assert!(Failure::NoReply { endpoint: "unix:/x".into(), limit }.is_unanswered());
    for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Internal] {
        assert!(!Failure::from(Status::new(code, "not now")).is_unanswered(), "{code:?}");
    }
}

#[test]
fn an_error_without_a_message_has_its_code() {
    let text = Failure::from(Status::new(Code::DataLoss, "")).render(Format::Table, false);
    assert!(text.starts_with("error: Unrecoverable data loss"), "{text}");
}

#[test]
fn colours_come_only_where_they_are_wanted() {
    let failure = Failure::usage("no", "yes");
    assert!(failure.render(Format::Table, true).contains("\x1b[1;31m"));
    assert!(!failure.render(Format::Table, false).contains('\x1b'));
    assert!(!failure.render(Format::Json, true).contains('\x1b'));
}

#[rstest]
#[case("tenants/a", "tenant")]
#[case("tenants/a/dags/b", "dag")]
#[case("cards/c/regions/1", "region")]
#[case("classificationRules/r", "rule")]
#[case("operations/o", "operation")]
#[case("x/y/z", "")]
fn the_next_command_has_the_right_noun(#[case] name: &str, #[case] noun: &str) {
    assert_eq!(noun_of(name), noun);
}

#[test]
fn codes_are_written_as_grpc_does() {
    assert_eq!(code_name(Code::InvalidArgument), "INVALID_ARGUMENT");
    assert_eq!(code_name(Code::Ok), "OK");
    assert_eq!(code_name(Code::NotFound), "NOT_FOUND");
}
