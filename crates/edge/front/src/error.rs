//! Errors that every server gives, whatever its services are.

use std::time::Duration;

use http::HeaderMap;
use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use tonic::Status;

/// Retry delay after a temporary failure.
pub const RETRY_SOON: Duration = Duration::from_secs(1);

/// The server is stopping.
pub fn shutting_down() -> ApiError {
    let text = "the server is shutting down; try again later";
    ApiError::new(ErrorReason::ShuttingDown, text).retry_after(RETRY_SOON)
}

/// The end of a reply whose body has begun.
pub fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // It fails only for texts that no header can hold.
    let _ = status.add_header(&mut trailers);
    trailers
}

/// The caller may not call this method.
pub(crate) fn denied(path: &str, who: &str) -> ApiError {
    let method = path.rsplit('/').next().unwrap_or(path);
    let text = format!("{method} is restricted to {who}");
    ApiError::new(ErrorReason::PermissionDenied, text)
}

/// The caller has its share.
pub fn overloaded(text: impl Into<String>, limit: usize) -> ApiError {
    ApiError::new(ErrorReason::Overloaded, text.into())
        .retry_after(RETRY_SOON)
        .metadata("limit", limit)
}

/// Kind of a resource, from its name.
pub fn kind_of(resource: &str) -> &'static str {
    match resource.split('/').collect::<Vec<_>>()[..] {
        ["tenants", _, "dags", _] => "DAG",
        ["tenants", _] => "tenant",
        ["ntTypes", _] => "network task type",
        ["bitstreams", _] => "bitstream",
        ["cards", _, "regions", _] => "region",
        ["cards", _] => "card",
        ["classificationRules", _] => "classification rule",
        ["operations", _] => "operation",
        ["vmBindings", _] => "binding",
        ["hosts", _] => "host",
        ["policies"] => "policies",
        ["projects", _] => "project",
        ["tenants", _, "reservations", _] => "reservation",
        _ => "resource",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("tenants/a/dags/b", "DAG")]
    #[case("tenants/a", "tenant")]
    #[case("tenants/a/reservations/0", "reservation")]
    #[case("hosts/h", "host")]
    #[case("projects/p", "project")]
    #[case("ntTypes/a.b", "network task type")]
    #[case("bitstreams/x", "bitstream")]
    #[case("cards/c/regions/1", "region")]
    #[case("cards/c", "card")]
    #[case("classificationRules/r", "classification rule")]
    #[case("operations/o", "operation")]
    #[case("what this request made before", "resource")]
    fn the_kind_follows_from_the_name(#[case] name: &str, #[case] kind: &str) {
        assert_eq!(kind_of(name), kind);
    }
}
