//! Adds details to errors that come from below the services.

use http::{HeaderMap, Response};
use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use tonic::body::Body;
use tonic::{Code, Status};

/// A reply that is only an error.
pub(super) fn of_status(status: Status) -> Response<Body> {
    status.into_http()
}

/// The reply; a transport error, which has no details, becomes one that says what is wrong with the
/// message.
pub(super) fn complete(reply: Response<Body>, message_bytes_max: usize) -> Response<Body> {
    match Status::from_header_map(reply.headers()) {
        Some(status) if status.code() != Code::Ok && status.details().is_empty() => {
            match of_transport(&status, message_bytes_max) {
                Some(failure) => of_status(failure.into()),
                None => reply,
            }
        }
        _ => reply,
    }
}

/// Translates transport errors: tonic reports a message that is too large as OUT_OF_RANGE and one that
/// cannot be decoded as INTERNAL, though both are the client's fault.
pub fn of_transport(status: &Status, message_bytes_max: usize) -> Option<ApiError> {
    match status.code() {
        Code::OutOfRange | Code::ResourceExhausted => {
            let text =
                format!("message too large (limit {message_bytes_max} bytes); split the request");
            let failure = ApiError::new(ErrorReason::LimitExceeded, &text);
            Some(failure.violation("message", text).metadata("limit", message_bytes_max))
        }
        Code::Internal => {
            let text = "the message cannot be decoded; client and server have different API files";
            Some(ApiError::new(ErrorReason::InvalidField, text))
        }
        _ => None,
    }
}

/// The status in a reply's headers, if it is known already.
pub(super) fn code_in(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|code| Code::from_bytes(code.as_bytes()))
}
