//! From what the control plane said to what the caller is told.
//!
//! The controller's texts name no resource but the caller's own. What a tenant is still not told
//! is why a card is missing: that may name devices and paths of the host.

use std::time::Duration;

use snic_api::convert::explanation::shortage_to_wire;
use snic_api::error::Failure;
use snic_api::v1::ErrorReason;
use snic_controller::{Caller, ControlError, FieldViolation, Work};
use snic_domain::{Refusal, Resource};

use crate::shell::ShellError;

/// When to try again what failed because something is not there at the moment.
pub(crate) const RETRY_SOON: Duration = Duration::from_secs(1);

/// What was being done: it decides what a state that stands against it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Something is created, changed or read.
    Change,
    /// A bitstream is uploaded: fields are those of its header.
    Upload,
    /// Something is deleted, or a region reset: users stand against it.
    Delete,
    /// An operation is cancelled.
    Cancel,
}

/// What a caller is told.
pub(crate) fn failure(error: ShellError, doing: Doing, caller: &Caller) -> Failure {
    match error {
        ShellError::Control(error) => of_control(error, doing, caller),
        ShellError::Store(error) => {
            tracing::error!(%error, "the store failed");
            let text = "the store cannot be written; nothing has changed";
            Failure::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON)
        }
        ShellError::Stopped => shutting_down(),
    }
}

/// The server is stopping.
pub(crate) fn shutting_down() -> Failure {
    let text = "the server is stopping; try again when it is back";
    Failure::new(ErrorReason::ShuttingDown, text).retry_after(RETRY_SOON)
}

/// A method that this caller may not call, or a resource that it may see but not change.
pub(crate) fn denied(what: &str, who: &str) -> Failure {
    let text = format!("{what} is for {who}");
    Failure::new(ErrorReason::PermissionDenied, text)
}

/// Why an operation failed.
pub(crate) fn of_operation(error: &ControlError, work: &Work, caller: &Caller) -> Failure {
    let doing = match work {
        Work::DeleteDag(..) | Work::ResetRegion(..) => Doing::Delete,
        _ => Doing::Change,
    };
    of_control(error.clone(), doing, caller)
}

/// What a caller is told of the controller's error.
pub(crate) fn of_control(error: ControlError, doing: Doing, caller: &Caller) -> Failure {
    let text = error.to_string();
    match error {
        ControlError::Invalid(violations) => invalid(&violations, doing),
        ControlError::NotFound { resource } => Failure::not_found(kind_of(&resource), resource),
        ControlError::AlreadyExists { resource } => Failure::exists(kind_of(&resource), resource),
        ControlError::EtagMismatch { resource, .. } => {
            Failure::etag_mismatch(kind_of(&resource), resource)
        }
        ControlError::Precondition { resource, description } => {
            let (reason, kind) = match doing {
                Doing::Delete => (ErrorReason::ResourceInUse, "IN_USE"),
                Doing::Cancel => (ErrorReason::NotCancellable, "NOT_CANCELLABLE"),
                Doing::Change | Doing::Upload => (ErrorReason::InvalidState, "STATE"),
            };
            Failure::new(reason, text).precondition(kind, resource, description)
        }
        ControlError::Quota { tenant, quota, limit, asked } => {
            Failure::new(ErrorReason::QuotaExceeded, &text)
                .violation(tenant, &text)
                .metadata("quota", quota)
                .metadata("limit", limit)
                .metadata("required", asked)
        }
        ControlError::Refused(refusal) => refused(&refusal),
        ControlError::NoCard(reason) => {
            let text = match caller {
                Caller::Operator(_) => format!("no card can be used: {reason}"),
                Caller::Tenant(_) => "no card can be used at the moment".to_owned(),
            };
            Failure::new(ErrorReason::CardUnavailable, text).retry_after(RETRY_SOON)
        }
        ControlError::Cancelled => Failure::new(ErrorReason::OperationCancelled, text),
        ControlError::Superseded { resource } => Failure::new(ErrorReason::Superseded, &text)
            .resource(kind_of(&resource), resource, text),
        ControlError::RequestIdReused { .. } => {
            Failure::in_field(ErrorReason::RequestIdReused, "request_id", text)
        }
        ControlError::Exhausted { what, limit, .. } => {
            Failure::new(ErrorReason::InsufficientCapacity, &text)
                .violation(&what, text)
                .metadata("resource", what)
                .metadata("available", limit)
        }
    }
}

/// Every wrong field; the first says the reason.
fn invalid(violations: &[FieldViolation], doing: Doing) -> Failure {
    let path = |violation: &FieldViolation| match doing {
        Doing::Upload if violation.field != "request_id" => format!("header.{}", violation.field),
        _ => violation.field.clone(),
    };
    let Some((first, rest)) = violations.split_first() else {
        return Failure::new(ErrorReason::InvalidField, "the request is not valid");
    };
    let failure = Failure::in_field(reason_of(first, doing), &path(first), &first.description);
    rest.iter().fold(failure, |failure, next| failure.field(&path(next), &next.description))
}

fn reason_of(violation: &FieldViolation, doing: Doing) -> ErrorReason {
    let field = violation.field.as_str();
    let nt = field.ends_with(".nt_type") || (doing == Doing::Upload && field.starts_with("nts["));
    if nt {
        ErrorReason::UnknownNtType
    } else if field.starts_with("dag.nodes") || field.starts_with("dag.edges") {
        ErrorReason::InvalidGraph
    } else {
        ErrorReason::InvalidField
    }
}

/// Without a bitstream it is of no use to wait for room.
fn refused(refusal: &Refusal) -> Failure {
    let first = refusal.shortages.first();
    if let Some(short) = first.filter(|short| short.resource == Resource::Bitstreams) {
        let text = refusal.to_string();
        let nodes = short.nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let failure = Failure::new(ErrorReason::NoBitstream, &text);
        return failure.precondition("NO_BITSTREAM", nodes, &short.detail);
    }
    let shortages: Vec<_> = refusal.shortages.iter().map(shortage_to_wire).collect();
    Failure::insufficient("the DAG", &shortages)
}

/// What a resource name names, for people.
pub(crate) fn kind_of(resource: &str) -> &'static str {
    match resource.split('/').collect::<Vec<_>>()[..] {
        ["tenants", _, "dags", _] => "DAG",
        ["tenants", _] => "tenant",
        ["ntTypes", _] => "network task type",
        ["bitstreams", _] => "bitstream",
        ["cards", _, "regions", _] => "region",
        ["cards", _] => "card",
        ["classificationRules", _] => "classification rule",
        ["operations", _] => "operation",
        _ => "resource",
    }
}
