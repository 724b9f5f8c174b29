//! Meaning of an error of etcd's client for the request, decided here and nowhere else.
//!
//! ```text
//! refused      etcd did nothing, and would answer the same again: no room, no permission, too large     Failed::Refused
//! unreachable  nothing was done, and to ask again may help: never sent, no leader, too many requests   Failed::Unreachable
//! open         it may have been done, or may still be                                                  Failed::Unknown
//! ```

use std::error::Error as _;

use etcd_client::Error;
use snic_etcd::{Failed, Refusal, Revision};
use tonic::{Code, ConnectError, Status};

/// The failure for an error; `behind` is the revision behind that which was asked for, if any was.
pub(crate) fn failed(error: Error, behind: Revision) -> Failed {
    match error {
        Error::GRpcStatus(status) => of_status(&status, behind),
        Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_) => {
            Failed::Invalid(error.to_string())
        }
        error => Failed::Unknown(error.to_string()),
    }
}

/// The texts are etcd's own (`api/v3rpc/rpctypes/error.go`). Only those after which it is certain that nothing was done
/// are named here: whatever is not known is open.
fn of_status(status: &Status, behind: Revision) -> Failed {
    let message = status.message();
    let says = |text: &str| message.contains(text);
    if was_never_connected(status) {
        return Failed::Unreachable(described(status));
    }
    if let Some(why) = refusal(status) {
        return Failed::Refused { why, said: message.to_owned() };
    }
    match status.code() {
        Code::NotFound if says("requested lease not found") => Failed::LeaseEnded,
        Code::OutOfRange if says("required revision has been compacted") => {
            Failed::Compacted(behind)
        }
        // Members refuse these before they propose anything to the others: each request is refused while more than 5,000
        // proposals wait to be applied, while no member leads, and by a learner whatever it is. A write that was compared
        // with an older state of the users (`auth store is old`) is refused when it is applied. All of this passes.
        Code::ResourceExhausted if says("etcdserver: too many requests") => {
            Failed::Unreachable(message.to_owned())
        }
        Code::Unavailable if says("etcdserver: no leader") || says("not supported for learner") => {
            Failed::Unreachable(message.to_owned())
        }
        Code::InvalidArgument if says("revision of auth store is old") => {
            Failed::Unreachable(message.to_owned())
        }
        Code::InvalidArgument
        | Code::OutOfRange
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::Unimplemented => Failed::Invalid(message.to_owned()),
        // Among them `request timed out`, `leader changed` and `server stopped`: the member gave up waiting for a
        // proposal that the others may still carry out.
        _ => Failed::Unknown(described(status)),
    }
}

/// The refusal, where etcd did nothing until somebody changes something there.
///
/// Quota and permissions are checked twice: by the member that was asked, before it proposes the request, and by each
/// member when it is applied. Both give the same answer, and after both nothing was done; an alarm is raised on all
/// members, and users are the same on all, so another member would not answer otherwise.
fn refusal(status: &Status) -> Option<Refusal> {
    let says = |text: &str| status.message().contains(text);
    match status.code() {
        Code::ResourceExhausted if says("database space exceeded") => Some(Refusal::NoSpace),
        // gRPC itself, at etcd's side: it has not read the request.
        Code::ResourceExhausted if says("received message larger than max") => {
            Some(Refusal::TooLarge)
        }
        Code::InvalidArgument
            if says("request is too large") || says("too many operations in txn") =>
        {
            Some(Refusal::TooLarge)
        }
        Code::PermissionDenied | Code::Unauthenticated => Some(Refusal::NotPermitted),
        // Of a connection without certificate, or with one of nobody, once etcd asks who it is.
        Code::InvalidArgument | Code::FailedPrecondition
            if says("user name is empty")
                || says("user name not found")
                || says("authentication failed") =>
        {
            Some(Refusal::NotPermitted)
        }
        Code::DataLoss if says("corrupt cluster") => Some(Refusal::Corrupt),
        _ => None,
    }
}

/// Whether the request failed while a connection was being made: it was never sent.
fn was_never_connected(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The message with its causes, which tonic leaves out ("transport error").
fn described(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: Code, message: &str) -> Failed {
        failed(Error::GRpcStatus(Status::new(code, message)), Revision(7))
    }

    #[test]
    fn what_is_certainly_not_done_is_told_apart_from_what_is_open() {
        let open = [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: server stopped"),
            (Code::Unavailable, "transport is closing"),
            (Code::Cancelled, "timeout expired"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
            (Code::Internal, "h2 protocol error"),
            (Code::Unknown, "whatever"),
            (Code::ResourceExhausted, "whatever"),
            (Code::Unavailable, "etcdserver: unhealthy cluster"),
        ];
        for (code, message) in open {
            assert!(matches!(of(code, message), Failed::Unknown(_)), "{message}");
        }
        let invalid = [
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn request"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
        ];
        for (code, message) in invalid {
            assert_eq!(of(code, message), Failed::Invalid(message.to_owned()));
        }
        let refused = [
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                Refusal::NoSpace,
            ),
            (Code::InvalidArgument, "etcdserver: request is too large", Refusal::TooLarge),
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                Refusal::TooLarge,
            ),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (9 vs. 8)",
                Refusal::TooLarge,
            ),
            (Code::PermissionDenied, "etcdserver: permission denied", Refusal::NotPermitted),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Refusal::NotPermitted),
            (Code::InvalidArgument, "etcdserver: user name is empty", Refusal::NotPermitted),
            (Code::FailedPrecondition, "etcdserver: user name not found", Refusal::NotPermitted),
            (Code::DataLoss, "etcdserver: corrupt cluster", Refusal::Corrupt),
        ];
        for (code, message, why) in refused {
            assert_eq!(of(code, message), Failed::Refused { why, said: message.to_owned() });
        }
        let unreached = [
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
            (Code::Unavailable, "etcdserver: rpc not supported for learner"),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old"),
        ];
        for (code, message) in unreached {
            assert_eq!(of(code, message), Failed::Unreachable(message.to_owned()));
        }
        let lease = "etcdserver: requested lease not found";
        assert_eq!(of(Code::NotFound, lease), Failed::LeaseEnded);
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(of(Code::OutOfRange, compacted), Failed::Compacted(Revision(7)));
    }

    #[test]
    fn a_connection_that_was_never_made_carried_nothing() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(ConnectError(Box::new(refused))));
        let failed = failed(Error::GRpcStatus(status), Revision(1));
        let Failed::Unreachable(reason) = failed else { panic!("{failed:?}") };
        assert!(reason.contains("refused"), "{reason}");
    }
}
