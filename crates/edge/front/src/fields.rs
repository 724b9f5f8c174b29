//! Fields that many requests have.

use snic_api::convert::FieldProblem;
use snic_api::error::ApiError;
use snic_api::names::excerpt;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// Parses the fields that list requests have in common.
#[macro_export]
macro_rules! listing {
    ($resource:ty, $query:expr, $request:expr) => {
        $crate::fields::api_list::Listing::parse::<$resource>(
            $query,
            $crate::fields::api_list::ListFields {
                page_size: $request.page_size,
                page_token: &$request.page_token,
                filter: &$request.filter,
                order_by: &$request.order_by,
            },
        )
    };
}
/// The module that [`listing!`](crate::listing) expands to, so that its callers need no dependency on `snic-api`.
#[doc(hidden)]
pub use snic_api::list as api_list;

/// The etag, if there is one.
pub fn etag(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A request's `request_id`.
///
/// # Errors
/// It is not a UUID.
pub fn repeat_of(text: &str) -> Result<Option<String>, ApiError> {
    request_id("request_id", text).map_err(ApiError::from)
}

/// The request id in canonical form, if there is one.
///
/// # Errors
/// The field, where it is not a UUID.
pub fn request_id(field: &str, text: &str) -> Result<Option<String>, FieldProblem> {
    if text.is_empty() {
        return Ok(None);
    }
    // Only the hyphenated form: one id must not have several spellings.
    let uuid = Uuid::try_parse(text).ok().filter(|_| text.len() == Hyphenated::LENGTH);
    uuid.map(|uuid| Some(uuid.hyphenated().to_string())).ok_or_else(|| {
        let rule = format_args!(
            "{:?} is not a valid UUID (expected e.g. 123e4567-e89b-42d3-a456-426614174000)",
            excerpt(text)
        );
        FieldProblem::invalid(field, rule)
    })
}
