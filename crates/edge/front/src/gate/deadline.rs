//! Deadlines: the caller's, or the server's default.

use std::time::{Duration, Instant};

use http::HeaderMap;
use snic_api::error::ApiError;
use snic_api::names::excerpt;
use snic_api::v1::ErrorReason;

/// Time before the caller's deadline at which the server replies, so that its error, which says more
/// than the client's own timeout, still arrives.
const REPLY_MARGIN_MAX: Duration = Duration::from_millis(20);

/// When the caller must have a reply.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(pub Instant);

impl Deadline {
    /// A little before this time has passed.
    pub fn after(limit: Duration) -> Self {
        let margin = REPLY_MARGIN_MAX.min(limit / 10);
        Self(Instant::now() + limit.saturating_sub(margin))
    }
}

/// The caller's timeout, from the header `grpc-timeout`: up to eight digits and a unit.
pub(super) fn requested(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let invalid = || {
        let given = excerpt(&String::from_utf8_lossy(value.as_bytes()));
        let rule = format_args!(
            "{given:?} is not a timeout (expected 1 to 8 digits and one of H, M, S, m, u, n)"
        );
        ApiError::in_field(ErrorReason::InvalidField, "grpc-timeout", rule)
    };
    let text = value.to_str().map_err(|_| invalid())?;
    let (digits, unit) = text.split_at_checked(text.len().wrapping_sub(1)).ok_or_else(invalid)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid());
    }
    let number: u64 = digits.parse().map_err(|_| invalid())?;
    let duration = match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return Err(invalid()),
    };
    Ok(Some(duration))
}

/// The deadline has passed.
pub fn exceeded(waited: Duration) -> ApiError {
    let text = format!(
        "deadline exceeded after {waited:.0?}; the request may still take effect: check the \
         resource, or retry with the same request_id"
    );
    ApiError::new(ErrorReason::DeadlineExceeded, text)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use rstest::rstest;

    use super::*;

    fn headers(value: &str) -> HeaderMap {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header value");
        [(http::HeaderName::from_static("grpc-timeout"), value)].into_iter().collect()
    }

    #[rstest]
    #[case("1H", Duration::from_secs(3_600))]
    #[case("2M", Duration::from_secs(120))]
    #[case("3S", Duration::from_secs(3))]
    #[case("400m", Duration::from_millis(400))]
    #[case("99999999u", Duration::from_micros(99_999_999))]
    #[case("0n", Duration::ZERO)]
    fn a_timeout_has_a_number_and_a_unit(#[case] text: &str, #[case] expected: Duration) {
        assert_eq!(requested(&headers(text)).expect(text), Some(expected));
    }

    #[rstest]
    #[case("")]
    #[case("S")]
    #[case("1")]
    #[case("1s")]
    #[case("-1S")]
    #[case("+1S")]
    #[case("1.5S")]
    #[case("123456789S")]
    #[case("1é")]
    fn anything_else_is_an_error(#[case] text: &str) {
        let failure = requested(&headers(text)).expect_err(text);
        assert_eq!(failure.reason(), ErrorReason::InvalidField);
    }

    #[test]
    fn without_a_header_there_is_no_timeout() {
        assert_eq!(requested(&HeaderMap::new()).expect("nothing wrong"), None);
    }
}
