//! What an error of etcd's client means for the request: certainly not done, or open.

use std::error::Error as _;

use etcd_client::Error;
use snic_etcd::{Failed, Revision};
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

/// The texts are etcd's own (`api/v3rpc/rpctypes/error.go`); only those are named here after which it is certain
/// that nothing was done. Whatever is not known is open.
fn of_status(status: &Status, behind: Revision) -> Failed {
    let message = status.message();
    let says = |text: &str| message.contains(text);
    if was_never_connected(status) {
        return Failed::Unreachable(described(status));
    }
    match status.code() {
        Code::NotFound if says("requested lease not found") => Failed::LeaseEnded,
        Code::OutOfRange if says("required revision has been compacted") => {
            Failed::Compacted(behind)
        }
        Code::InvalidArgument
        | Code::OutOfRange
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => Failed::Invalid(message.to_owned()),
        Code::ResourceExhausted
            if says("database space exceeded") || says("message larger than max") =>
        {
            Failed::Invalid(message.to_owned())
        }
        Code::ResourceExhausted if says("too many requests") => {
            Failed::Unreachable(message.to_owned())
        }
        // Members without a leader refuse before they propose anything.
        Code::Unavailable if says("etcdserver: no leader") => {
            Failed::Unreachable(message.to_owned())
        }
        _ => Failed::Unknown(described(status)),
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
        ];
        for (code, message) in open {
            assert!(matches!(of(code, message), Failed::Unknown(_)), "{message}");
        }
        let invalid = [
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn request"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
        ];
        for (code, message) in invalid {
            assert_eq!(of(code, message), Failed::Invalid(message.to_owned()));
        }
        let unreached = [
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
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
