//! Errors of the program, for people and for scripts.
//!
//! Every failure ends the program with one of these exit codes:
//!
//! | Code | Meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | any other error |
//! | 2 | usage error or invalid input |
//! | 3 | not found |
//! | 4 | conflict: exists already, changed meanwhile, still in use, wrong state |
//! | 5 | rejected for lack of capacity or by a quota |
//! | 6 | not authenticated or not permitted |
//! | 7 | unavailable or timed out; may be tried again |
//!
//! With `-o json` or `-o yaml` the failure is printed in that format on standard error.

use std::io;
use std::path::PathBuf;

use snic_api::error::reason_of;
use snic_api::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::contexts::ContextsError;
use snic_dagfile::InvalidFile;

/// Any failure of the program.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server returned an error or did not answer.
    #[error("{}", .0.message())]
    Api(Box<Status>),
    /// A DAG file is not valid.
    #[error(transparent)]
    File(#[from] Box<InvalidFile>),
    /// Contexts cannot be read or written.
    #[error(transparent)]
    Contexts(#[from] ContextsError),
    /// A usage error.
    #[error("{message}")]
    Usage { message: String, hint: String },
    /// Only a part of it could be done.
    #[error("{message}")]
    Incomplete { message: String, hint: String },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The connection failed.
    #[error("cannot connect to {endpoint}: {message}")]
    Connect { endpoint: String, message: String },
    /// The server is silent, so whether the request took effect is not known.
    #[error("no reply from {endpoint} within {limit}")]
    NoReply {
        endpoint: String,
        /// The time limit.
        limit: humantime::Duration,
    },
    /// Waiting timed out.
    #[error("{operation} has not ended within {limit}; it is still running")]
    StillRunning { operation: String, limit: humantime::Duration },
    /// The server refused what a file says.
    #[error("{}", status.message())]
    InFile {
        status: Box<Status>,
        /// The place in the file.
        place: Box<InvalidFile>,
    },
    /// The server refused the request, and the client has a better hint.
    #[error("{}", status.message())]
    Hinted { status: Box<Status>, hint: String },
    /// The user stopped waiting.
    #[error("stopped waiting; {operation} goes on")]
    Interrupted { operation: String },
    /// The server's reply is not valid.
    #[error("invalid reply from the server: {0}")]
    Reply(String),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Api(Box::new(status))
    }
}

impl Failure {
    /// A usage error: what is wrong, and what to do.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: hint.into() }
    }

    /// The reply lacks what it is there for.
    pub fn without(field: &str) -> Self {
        Self::Reply(format!("the server's reply has no {field}"))
    }

    /// The same refusal with the place in a file, if one of the fields that it names has one there: `place` gets
    /// the field's path and what is wrong.
    #[must_use]
    pub fn in_file(self, place: impl Fn(&str, &str) -> Option<InvalidFile>) -> Self {
        let Self::Api(status) = self else { return self };
        let details = status.get_error_details();
        let mut fields = details.bad_request().into_iter().flat_map(|bad| &bad.field_violations);
        match fields.find_map(|field| place(&field.field, &field.description)) {
            Some(place) => Self::InFile { status, place: Box::new(place) },
            None => Self::Api(status),
        }
    }

    /// Why the server refused the request, if it did.
    pub fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::Api(status) => reason_of(status),
            _ => None,
        }
    }

    /// The name of the resource that does not exist, if that is what the server says.
    pub fn missing(&self) -> Option<String> {
        let Self::Api(status) = self else { return None };
        let details = status.get_error_details();
        let found = details.resource_info().map(|info| info.resource_name.clone());
        found.filter(|_| reason_of(status) == Some(ErrorReason::ResourceNotFound))
    }

    /// The same refusal with another hint.
    #[must_use]
    pub fn hinted(self, hint: String) -> Self {
        match self {
            Self::Api(status) => Self::Hinted { status, hint },
            other => other,
        }
    }

    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Api(status) | Self::InFile { status, .. } | Self::Hinted { status, .. } => {
                exit_code_of(status)
            }
            Self::File(_)
            | Self::Contexts(_)
            | Self::Usage { .. }
            | Self::Read { .. }
            | Self::Write { .. } => 2,
            Self::Connect { .. } | Self::NoReply { .. } | Self::StillRunning { .. } => 7,
            Self::Reply(_) | Self::Output(_) | Self::Incomplete { .. } => 1,
            // As shells say of a program that Ctrl-C ended.
            Self::Interrupted { .. } => 130,
        }
    }

    /// Whether nobody answered: there is no connection, or the server is silent.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::NoReply { .. })
    }

    /// Whether the reader closed the pipe, which is no failure: `snicctl … | head`.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

fn exit_code_of(status: &Status) -> u8 {
    if reason_of(status) == Some(ErrorReason::Overloaded) {
        return 7;
    }
    match status.code() {
        Code::Ok => 0,
        Code::InvalidArgument | Code::OutOfRange => 2,
        Code::NotFound => 3,
        Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition => 4,
        Code::ResourceExhausted => 5,
        Code::Unauthenticated | Code::PermissionDenied => 6,
        Code::Unavailable | Code::DeadlineExceeded => 7,
        _ => 1,
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
