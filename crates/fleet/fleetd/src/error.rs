//! Converts what the fleet denies to errors of the API.

use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use snic_fleet::protocol::{Denied, OverQuota};
use snic_front::error::{RETRY_SOON, kind_of, overloaded};

/// The API's error. Its texts name only what is the caller's.
pub(crate) fn of_denied(denied: Denied) -> ApiError {
    let text = denied.to_string();
    match denied {
        Denied::NotLeader => {
            let text = "no replica of the fleet leads at the moment, so nothing was done; try again \
                        later";
            ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON)
        }
        Denied::Open => {
            let text = "the fleet's leader changed meanwhile, and nobody knows whether this was \
                        done; send it again with the same request_id, or look at the resource";
            ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON)
        }
        // No hint when to send it again: that depends on whoever operates etcd.
        Denied::StoreRefuses(refusal) => {
            ApiError::new(ErrorReason::StoreRefuses, text).metadata("store", refusal.reason)
        }
        Denied::Busy { waiting } => overloaded(text, waiting),
        Denied::NotFound(name) => ApiError::not_found(kind_of(&name), name),
        Denied::Exists(name) => ApiError::exists(kind_of(&name), name),
        Denied::NotOwner(_) => ApiError::new(ErrorReason::PermissionDenied, text),
        Denied::Stale { what, .. } => ApiError::etag_mismatch(kind_of(&what), what),
        Denied::InUse { what, users } => {
            ApiError::new(ErrorReason::ResourceInUse, text).precondition("IN_USE", what, users)
        }
        Denied::Leaving(tenant) => ApiError::new(ErrorReason::InvalidState, &text).precondition(
            "STATE",
            format_args!("tenants/{tenant}"),
            text,
        ),
        Denied::RequestReused(_) => {
            ApiError::in_field(ErrorReason::RequestIdReused, "request_id", text)
        }
        Denied::Invalid(text) => ApiError::new(ErrorReason::InvalidField, text),
        Denied::Conflict { what, why } => {
            ApiError::new(ErrorReason::InvalidState, text).precondition("STATE", what, why)
        }
        Denied::Full { max, .. } => {
            ApiError::new(ErrorReason::LimitExceeded, text).metadata("limit", max)
        }
        Denied::TenantQuota(tenant, over) => over_quota(&format!("tenants/{tenant}"), &over, &text),
        Denied::ProjectQuota(project, over) => {
            over_quota(&format!("projects/{project}"), &over, &text)
        }
        Denied::TenantBudget { tenant, budget, spent, until } => {
            over_budget(&text, &format!("tenants/{tenant}"), until)
                .metadata("limit", budget)
                .metadata("used", spent)
        }
        Denied::ProjectBudget { project, until } => {
            over_budget(&text, &format!("projects/{project}"), until)
        }
        Denied::BudgetUnknown(of) => over_budget(&text, &of, 0),
        Denied::NoPlace(_) => ApiError::new(ErrorReason::InsufficientCapacity, text),
        Denied::OfBatch { name, why } => of_denied(*why)
            .adding(format_args!(" (of {name}; nothing was created, because this DAG cannot be)")),
    }
}

fn over_budget(text: &str, whose: &str, until: u64) -> ApiError {
    let error = ApiError::new(ErrorReason::QuotaExceeded, text).violation(whose, text);
    let error = error.metadata("quota", "month_budget");
    match until {
        0 => error,
        until => error.metadata("until", snic_usage::utc(until)),
    }
}

fn over_quota(whose: &str, over: &OverQuota, text: &str) -> ApiError {
    ApiError::new(ErrorReason::QuotaExceeded, text)
        .violation(whose, text)
        .metadata("quota", &over.limit)
        .metadata("limit", &over.max)
        .metadata("used", &over.used)
        .metadata("required", &over.asked)
}

#[cfg(test)]
mod tests {
    use snic_domain::Timestamp;
    use snic_etcd::Refusal;
    use snic_fleet::protocol::StoreRefusal;
    use tonic::{Code, Status};

    use super::*;

    #[test]
    fn what_is_open_and_what_was_not_done_are_both_unavailable_and_say_which() {
        let of = |denied| Status::from(of_denied(denied));
        let (open, not_done) = (of(Denied::Open), of(Denied::NotLeader));
        assert_eq!((open.code(), not_done.code()), (Code::Unavailable, Code::Unavailable));
        assert!(open.message().contains("same request_id"), "{}", open.message());
        assert!(not_done.message().contains("nothing was done"), "{}", not_done.message());
    }

    /// Clients send UNAVAILABLE again by themselves, and must not send this.
    #[test]
    fn what_etcd_refuses_is_no_outage() {
        let why = (Refusal::NoSpace, "etcdserver: mvcc: database space exceeded".to_owned());
        let refusal = StoreRefusal::new(why, Timestamp::ZERO);
        let status = Status::from(of_denied(Denied::StoreRefuses(refusal)));
        assert_eq!(status.code(), Code::FailedPrecondition);
        for part in ["NOSPACE", "space exceeded", "nothing was done", "compact and defragment"] {
            assert!(status.message().contains(part), "{part}: {}", status.message());
        }
    }

    #[test]
    fn what_is_absent_has_the_kind_of_its_name() {
        let status = Status::from(of_denied(Denied::NotFound("hosts/h1".into())));
        assert_eq!(status.code(), Code::NotFound);
        assert!(status.message().contains("host"), "{}", status.message());
    }
}
