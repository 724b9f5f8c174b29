//! Errors of the API: gRPC statuses with google.rpc details.
//!
//! A [`ApiError`] has an [`ErrorReason`], which determines the gRPC code, and the details that the reason
//! promises. It becomes the [`Status`] of a request or the [`OperationError`] of an operation, so clients
//! read both the same way.
//!
//! All details together stay below the 16 KiB of headers that HTTP/2 clients accept by default: a larger
//! status would reach the caller as a broken stream without an explanation.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::text::escaped_lines;
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt as _, pb};

use crate::names::InvalidName;
use crate::page::InvalidPage;
use crate::v1::shortage::Resource;
use crate::v1::{ErrorReason, OperationError, Shortage};
use crate::words::EnumWord as _;

/// The `domain` of every `google.rpc.ErrorInfo`.
pub const ERROR_DOMAIN: &str = "snic";
/// Most bytes of a message: on the wire it takes up to three times as much in a header, and appears
/// once more in the details.
pub const MESSAGE_BYTES_MAX: usize = 1_024;
/// Most bytes of all violations and metadata; the rest is left out, as a caller fixes the first few and
/// retries. On the wire they take a third more.
pub const DETAILS_BYTES_MAX: usize = 6_144;
/// Overhead of a violation or metadata entry beside its texts, in bytes, at most.
const ENTRY_BYTES: usize = 16;
/// Most bytes of a text in a detail: the longest DAG name fits.
const TEXT_BYTES_MAX: usize = 256;

/// An error on its way to a caller.
#[derive(Debug, Clone)]
pub struct ApiError {
    reason: ErrorReason,
    message: String,
    metadata: HashMap<String, String>,
    details: Box<ErrorDetails>,
    bytes_left: usize,
}

/// The gRPC code of a reason, as the comments of `error_reason.proto` say.
pub const fn code_of(reason: ErrorReason) -> Code {
    use ErrorReason as R;
    match reason {
        R::InvalidName
        | R::InvalidField
        | R::FieldRequired
        | R::FieldImmutable
        | R::InvalidUpdateMask
        | R::InvalidPageToken
        | R::InvalidGraph
        | R::UnknownNtType
        | R::DigestMismatch
        | R::SizeMismatch
        | R::ManifestMismatch
        | R::InvalidStream => Code::InvalidArgument,
        R::ResourceNotFound => Code::NotFound,
        R::ResourceExists | R::RequestIdReused => Code::AlreadyExists,
        R::EtagMismatch
        | R::ChangeInProgress
        | R::ReconfigurationFailed
        | R::Superseded
        | R::PlanOutdated
        | R::BindFailed => Code::Aborted,
        R::ResourceInUse
        | R::InvalidState
        | R::NoBitstream
        | R::NotCancellable
        | R::StoreRefuses
        | R::UnderMaintenance => Code::FailedPrecondition,
        R::QuotaExceeded | R::InsufficientCapacity | R::LimitExceeded | R::Overloaded => {
            Code::ResourceExhausted
        }
        R::RevisionExpired => Code::OutOfRange,
        R::IdentityMissing => Code::Unauthenticated,
        R::PermissionDenied => Code::PermissionDenied,
        R::CardUnavailable | R::StoreUnavailable | R::ShuttingDown | R::WatcherTooSlow => {
            Code::Unavailable
        }
        R::DeadlineExceeded => Code::DeadlineExceeded,
        R::NotAtFleet => Code::Unimplemented,
        R::OperationCancelled => Code::Cancelled,
        R::Internal | R::Unspecified => Code::Internal,
    }
}

impl ApiError {
    /// A failure without details. The message says what is wrong and what to do.
    pub fn new(reason: ErrorReason, message: impl fmt::Display) -> Self {
        Self {
            reason,
            message: clip(&message, MESSAGE_BYTES_MAX),
            metadata: HashMap::new(),
            details: Box::default(),
            bytes_left: DETAILS_BYTES_MAX,
        }
    }

    /// One invalid field; the description is also the message. Add further fields with
    /// [`ApiError::field`].
    pub fn in_field(reason: ErrorReason, field: &str, description: impl fmt::Display) -> Self {
        Self::new(reason, format_args!("{field}: {description}")).field(field, description)
    }

    /// A required field is missing.
    pub fn required(field: &str) -> Self {
        Self::in_field(ErrorReason::FieldRequired, field, "required, but missing or empty")
    }

    /// The text in `field` is not a valid name.
    pub fn invalid_name(field: &str, error: &InvalidName) -> Self {
        Self::in_field(ErrorReason::InvalidName, field, error)
    }

    /// `page_size` or `page_token` is invalid.
    pub fn invalid_page(error: &InvalidPage) -> Self {
        let reason = match error {
            InvalidPage::NegativeSize(_) => ErrorReason::InvalidField,
            InvalidPage::Token => ErrorReason::InvalidPageToken,
        };
        Self::in_field(reason, error.field(), error)
    }

    /// The resource does not exist, or is not visible to the caller: one error for both, so that nobody
    /// learns other tenants' names.
    pub fn not_found(kind: &str, name: impl fmt::Display) -> Self {
        let message = format!("{kind} {name} does not exist, or is not visible to you");
        Self::new(ErrorReason::ResourceNotFound, &message).resource(kind, name, message)
    }

    /// A resource of this name exists already.
    pub fn exists(kind: &str, name: impl fmt::Display) -> Self {
        let message = format!("{kind} {name} already exists; choose another id");
        Self::new(ErrorReason::ResourceExists, &message).resource(kind, name, message)
    }

    /// The etag of a guarded change is not current.
    pub fn etag_mismatch(kind: &str, name: impl fmt::Display) -> Self {
        let message =
            format!("{kind} {name} has changed since its etag was read; read it again and retry");
        Self::new(ErrorReason::EtagMismatch, &message).resource(kind, name, message)
    }

    /// The resource is still used by `user`, which the caller may see.
    pub fn in_use(name: impl fmt::Display, user: impl fmt::Display) -> Self {
        let message = format!("{name} is used by {user}; delete or change that first");
        let reason = ErrorReason::ResourceInUse;
        Self::new(reason, &message).precondition("IN_USE", name, message)
    }

    /// The tenant's quota `bound` (a field of `Quota`) allows `limit`, but `wanted` is needed.
    pub fn quota(tenant: impl fmt::Display, bound: &str, limit: u64, wanted: u64) -> Self {
        let message =
            format!("{tenant} exceeds its quota {bound}: {wanted} needed, {limit} allowed");
        Self::new(ErrorReason::QuotaExceeded, &message)
            .violation(tenant, message)
            .metadata("quota", bound)
            .metadata("limit", limit)
            .metadata("required", wanted)
    }

    /// The card lacks capacity: all shortages, the most severe first. The metadata describe the first.
    pub fn insufficient(subject: impl fmt::Display, shortages: &[Shortage]) -> Self {
        let reason = ErrorReason::InsufficientCapacity;
        let Some(first) = shortages.first() else {
            return Self::new(reason, format_args!("insufficient capacity for {subject}"));
        };
        let resource = Resource::try_from(first.resource).unwrap_or(Resource::Unspecified);
        let message = format!("insufficient capacity for {subject}: {}", first.message);
        let failure = Self::new(reason, message)
            .metadata("resource", resource.word())
            .metadata("required", first.required)
            .metadata("available", first.available)
            .metadata("unit", &first.unit);
        shortages.iter().fold(failure, |failure, short| failure.violation(&subject, &short.message))
    }

    /// A defect of this server. The details are in the log and not in the reply; `trace` identifies them
    /// there.
    pub fn internal(trace: impl fmt::Display) -> Self {
        let message = "internal error; see the server's log";
        Self::new(ErrorReason::Internal, message).metadata("trace", trace)
    }

    /// Adds an invalid field (`BadRequest`). The path is like `dag.nodes[2].nt_type`.
    #[must_use]
    pub fn field(mut self, path: &str, description: impl fmt::Display) -> Self {
        if let Some([path, description]) = self.fit([cut(path), cut(description)]) {
            self.details.add_bad_request_violation(path, description);
        }
        self
    }

    /// Adds an exceeded limit (`QuotaFailure`): its subject and description.
    #[must_use]
    pub fn violation(mut self, subject: impl fmt::Display, what: impl fmt::Display) -> Self {
        if let Some([subject, what]) = self.fit([cut(subject), cut(what)]) {
            self.details.add_quota_failure_violation(subject, what);
        }
        self
    }

    /// Adds a failed precondition (`PreconditionFailure`). The kind is UPPER_SNAKE_CASE.
    #[must_use]
    pub fn precondition(
        mut self,
        kind: &str,
        subject: impl fmt::Display,
        what: impl fmt::Display,
    ) -> Self {
        if let Some([kind, subject, what]) = self.fit([cut(kind), cut(subject), cut(what)]) {
            self.details.add_precondition_failure_violation(kind, subject, what);
        }
        self
    }

    /// Sets the resource concerned (`ResourceInfo`). The owner stays empty: the name contains it, or it
    /// must not be revealed.
    #[must_use]
    pub fn resource(
        mut self,
        kind: &str,
        name: impl fmt::Display,
        what: impl fmt::Display,
    ) -> Self {
        self.details.set_resource_info(cut(kind), cut(name), String::new(), cut(what));
        self
    }

    /// Adds a value for programs (`ErrorInfo.metadata`). The key is in snake_case.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: impl fmt::Display) -> Self {
        if let Some([key, value]) = self.fit([cut(key), cut(value)]) {
            self.metadata.insert(key, value);
        }
        self
    }

    /// Sets when to retry (`RetryInfo`).
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.details.set_retry_info(Some(delay));
        self
    }

    /// The same error of a part of a request: `path` comes before the message and the fields.
    #[must_use]
    pub fn within(mut self, path: &str) -> Self {
        self.message = clip(&format_args!("{path}: {}", self.message), MESSAGE_BYTES_MAX);
        if let Some(bad) = self.details.bad_request().cloned() {
            let field = |of: FieldViolation| {
                FieldViolation::new(cut(format_args!("{path}.{}", of.field)), of.description)
            };
            self.details
                .set_bad_request(bad.field_violations.into_iter().map(field).collect::<Vec<_>>());
        }
        self
    }

    /// The same error, of which the message says more.
    #[must_use]
    pub fn adding(mut self, text: impl fmt::Display) -> Self {
        let left = MESSAGE_BYTES_MAX.saturating_sub(text.to_string().len());
        self.message = format!("{}{text}", clip(&self.message, left));
        self
    }

    /// The reason, for programs.
    pub const fn reason(&self) -> ErrorReason {
        self.reason
    }

    /// The message, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The gRPC code.
    pub const fn code(&self) -> Code {
        code_of(self.reason)
    }

    /// The texts, if they fit; once some did not, no later ones do.
    fn fit<const N: usize>(&mut self, texts: [String; N]) -> Option<[String; N]> {
        let bytes = texts.iter().map(String::len).sum::<usize>() + ENTRY_BYTES;
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.unwrap_or(0);
        left.map(|_| texts)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.word(), self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<ApiError> for Status {
    fn from(failure: ApiError) -> Self {
        let code = failure.code();
        let mut details = *failure.details;
        details.set_error_info(failure.reason.word(), ERROR_DOMAIN, failure.metadata);
        Self::with_error_details(code, failure.message, details)
    }
}

impl From<ApiError> for OperationError {
    fn from(failure: ApiError) -> Self {
        Self::from(&Status::from(failure))
    }
}

impl From<&Status> for OperationError {
    fn from(status: &Status) -> Self {
        // Details that are no google.rpc.Status came from another server, and are left out.
        let details = pb::Status::decode(status.details()).map(|whole| whole.details);
        Self {
            code: status.code() as i32,
            message: status.message().to_owned(),
            details: details.unwrap_or_default(),
        }
    }
}

impl From<OperationError> for Status {
    fn from(error: OperationError) -> Self {
        let OperationError { code, message, details } = error;
        let whole = pb::Status { code, message: message.clone(), details };
        Self::with_details(Code::from_i32(code), message, whole.encode_to_vec().into())
    }
}

/// The reason of an error sent by this API's server; `None` for errors of others, such as a proxy or
/// tonic itself.
pub fn reason_of(status: &Status) -> Option<ErrorReason> {
    let info = status.get_details_error_info()?;
    if info.domain != ERROR_DOMAIN {
        return None;
    }
    ErrorReason::from_word(&info.reason)
}

fn cut(text: impl fmt::Display) -> String {
    clip(&text, TEXT_BYTES_MAX)
}

/// The text, cut to `bytes` with an ellipsis if it is longer. Names that were refused are in it as they came, so what a
/// terminal would obey is escaped; line breaks stay, for some messages have several lines.
fn clip(text: &impl fmt::Display, bytes: usize) -> String {
    const ELLIPSIS: &str = "…";
    let mut text = escaped_lines(&text.to_string()).into_owned();
    if text.len() > bytes {
        let end = text.floor_char_boundary(bytes.saturating_sub(ELLIPSIS.len()));
        text.truncate(end);
        text.push_str(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::names::{DagName, ResourceName as _};

    fn every_reason() -> impl Iterator<Item = ErrorReason> {
        (1..).map_while(|number| ErrorReason::try_from(number).ok())
    }

    #[test]
    fn every_reason_has_the_code_that_its_comment_says() {
        let text = include_str!("../../../../proto/snic/control/v1/error_reason.proto");
        let mut count = 0;
        for reason in every_reason() {
            let line = format!("  {} = {};", reason.as_str_name(), reason as i32);
            let before = &text[..text.find(&line).expect("a value of the enum")];
            let comment = before.rsplit("\n\n").next().expect("a comment before it");
            let (_, code) = comment.rsplit_once('(').expect("the code in parentheses");
            let code = code.split([';', ')']).next().expect("a code").replace('_', "");
            assert_eq!(format!("{:?}", code_of(reason)).to_uppercase(), code, "{line}");
            count += 1;
        }
        let values = text.lines().filter(|line| line.starts_with("  ") && line.contains(" = "));
        assert_eq!(values.count(), count + 1, "numbers without a gap");
    }

    #[test]
    fn every_reason_is_found_again_in_the_status() {
        for reason in every_reason() {
            let status = Status::from(ApiError::new(reason, "no"));
            assert_eq!(reason_of(&status), Some(reason));
            assert_eq!((status.code(), status.message()), (code_of(reason), "no"));
        }
    }

    #[test]
    fn errors_of_others_have_no_reason() {
        assert_eq!(reason_of(&Status::internal("a proxy says")), None);
        let mut details = ErrorDetails::new();
        details.set_error_info("INTERNAL", "example.com", HashMap::new());
        let status = Status::with_error_details(Code::Internal, "no", details);
        assert_eq!(reason_of(&status), None);
    }

    #[test]
    fn a_bad_request_names_its_fields() {
        let failure = ApiError::in_field(ErrorReason::InvalidField, "dag.bandwidth_bps", "it is 0")
            .field("dag.nodes", "there are none");
        assert_eq!(failure.to_string(), "INVALID_FIELD: dag.bandwidth_bps: it is 0");
        let status = Status::from(failure);
        let bad = status.get_details_bad_request().expect("a BadRequest");
        let fields: Vec<_> =
            bad.field_violations.iter().map(|v| (&*v.field, &*v.description)).collect();
        assert_eq!(fields, [("dag.bandwidth_bps", "it is 0"), ("dag.nodes", "there are none")]);
    }

    #[test]
    fn a_part_of_a_request_is_named_before_its_fields() {
        let failure = ApiError::in_field(ErrorReason::InvalidField, "dag.bandwidth_bps", "it is 0")
            .field("dag.nodes", "there are none")
            .within("requests[3]")
            .adding("; nothing was created");
        let text = "INVALID_FIELD: requests[3]: dag.bandwidth_bps: it is 0; nothing was created";
        assert_eq!(failure.to_string(), text);
        let bad = Status::from(failure).get_details_bad_request().expect("a BadRequest");
        let fields: Vec<_> = bad.field_violations.iter().map(|v| &*v.field).collect();
        assert_eq!(fields, ["requests[3].dag.bandwidth_bps", "requests[3].dag.nodes"]);
        let long = ApiError::new(ErrorReason::Internal, "x".repeat(MESSAGE_BYTES_MAX));
        let long = long.within("requests[0]").adding("; the end");
        assert!(long.message().len() <= MESSAGE_BYTES_MAX && long.message().ends_with("; the end"));
    }

    #[test]
    fn names_and_pages_become_bad_requests() {
        let error = DagName::parse("tenants/a").expect_err("no DAG");
        let failure = ApiError::invalid_name("name", &error);
        assert_eq!(failure.reason(), ErrorReason::InvalidName);
        assert!(failure.message().starts_with("name: \"tenants/a\" is not a valid DAG name"));
        assert_eq!(
            ApiError::invalid_page(&InvalidPage::NegativeSize(-1)).reason(),
            ErrorReason::InvalidField
        );
        let status = Status::from(ApiError::invalid_page(&InvalidPage::Token));
        assert_eq!(reason_of(&status), Some(ErrorReason::InvalidPageToken));
        let bad = status.get_details_bad_request().expect("a BadRequest");
        assert_eq!(bad.field_violations[0].field, "page_token");
        let bad = Status::from(ApiError::required("parent")).get_details_bad_request();
        assert_eq!(bad.expect("a BadRequest").field_violations[0].field, "parent");
    }

    #[rstest]
    #[case(ApiError::not_found("DAG", "tenants/a/dags/x"), Code::NotFound)]
    #[case(ApiError::exists("DAG", "tenants/a/dags/x"), Code::AlreadyExists)]
    #[case(ApiError::etag_mismatch("DAG", "tenants/a/dags/x"), Code::Aborted)]
    fn a_resource_is_named_and_its_owner_is_not(#[case] failure: ApiError, #[case] code: Code) {
        let status = Status::from(failure);
        assert_eq!(status.code(), code);
        let info = status.get_details_resource_info().expect("a ResourceInfo");
        assert_eq!((&*info.resource_type, &*info.resource_name), ("DAG", "tenants/a/dags/x"));
        assert_eq!(info.owner, "");
        assert_eq!(info.description, status.message());
    }

    #[test]
    fn in_use_errors_name_the_users() {
        let status = Status::from(ApiError::in_use("ntTypes/nat", "bitstreams/nat-fw"));
        assert_eq!(status.code(), Code::FailedPrecondition);
        let failure = status.get_details_precondition_failure().expect("a PreconditionFailure");
        assert_eq!(failure.violations[0].subject, "ntTypes/nat");
        assert!(failure.violations[0].description.contains("bitstreams/nat-fw"));
    }

    #[test]
    fn a_quota_says_which_and_how_much() {
        let status = Status::from(ApiError::quota("tenants/a", "dags_max", 2, 3));
        assert_eq!(status.message(), "tenants/a exceeds its quota dags_max: 3 needed, 2 allowed");
        let violations = status.get_details_quota_failure().expect("a QuotaFailure").violations;
        assert_eq!((violations.len(), &*violations[0].subject), (1, "tenants/a"));
        let metadata = status.get_details_error_info().expect("an ErrorInfo").metadata;
        let value = |key: &str| metadata.get(key).map(String::as_str);
        assert_eq!(
            (value("quota"), value("limit"), value("required")),
            (Some("dags_max"), Some("2"), Some("3"))
        );
    }

    #[test]
    fn a_full_card_says_what_is_missing() {
        let short = |resource: Resource, message: &str| Shortage {
            resource: resource.into(),
            required: 2,
            available: 1,
            unit: "regions".into(),
            nodes: vec![],
            message: message.into(),
        };
        let shortages =
            [short(Resource::Regions, "2 regions needed"), short(Resource::Memory, "and memory")];
        let status = Status::from(ApiError::insufficient("tenants/a/dags/x", &shortages));
        assert_eq!(
            status.message(),
            "insufficient capacity for tenants/a/dags/x: 2 regions needed"
        );
        let violations = status.get_details_quota_failure().expect("a QuotaFailure").violations;
        let texts: Vec<_> = violations.iter().map(|v| v.description.as_str()).collect();
        assert_eq!(texts, ["2 regions needed", "and memory"]);
        let info = status.get_details_error_info().expect("an ErrorInfo");
        assert_eq!(info.metadata["resource"], "REGIONS");
        assert_eq!((&*info.metadata["required"], &*info.metadata["available"]), ("2", "1"));
        let bare = ApiError::insufficient("tenants/a/dags/x", &[]);
        assert_eq!(bare.message(), "insufficient capacity for tenants/a/dags/x");
    }

    #[test]
    fn a_retry_has_its_delay() {
        let delay = Duration::from_millis(250);
        let failure = ApiError::new(ErrorReason::Overloaded, "too much").retry_after(delay);
        let info = Status::from(failure).get_details_retry_info().expect("a RetryInfo");
        assert_eq!(info.retry_delay, Some(delay));
    }

    #[test]
    fn a_defect_tells_the_caller_nothing_but_where_to_look() {
        let status = Status::from(ApiError::internal("req-7"));
        assert_eq!(status.code(), Code::Internal);
        let info = status.get_details_error_info().expect("an ErrorInfo");
        assert_eq!(info.metadata, HashMap::from([("trace".into(), "req-7".into())]));
    }

    #[test]
    fn an_operation_carries_the_same_error_as_a_status() {
        let failure = ApiError::quota("tenants/a", "dags_max", 2, 3);
        let status = Status::from(failure.clone());
        let error = OperationError::from(failure);
        assert_eq!((error.code, &*error.message), (8, status.message()));
        let types: Vec<_> = error.details.iter().map(|any| any.type_url.as_str()).collect();
        assert!(types.contains(&"type.googleapis.com/google.rpc.QuotaFailure"), "{types:?}");
        let back = Status::from(error);
        assert_eq!((back.code(), back.message()), (status.code(), status.message()));
        assert_eq!(back.details(), status.details());
    }

    #[test]
    fn details_of_another_kind_are_left_out_of_an_operation() {
        let status = Status::with_details(Code::Unknown, "odd", vec![0xff; 4].into());
        let error = OperationError::from(&status);
        assert_eq!((error.code, error.details.len()), (2, 0));
    }

    #[test]
    fn only_so_many_details_are_taken_the_first_ones() {
        let long = "long ".repeat(40);
        let failure = (0..100).fold(ApiError::new(ErrorReason::InvalidGraph, "bad"), |f, i| {
            f.field(&format!("dag.nodes[{i}]"), if i < 99 { &long } else { "" })
        });
        let bad = Status::from(failure).get_details_bad_request().expect("a BadRequest");
        let fields = bad.field_violations.iter().map(|v| v.field.clone());
        let first: Vec<_> = (0..26).map(|i| format!("dag.nodes[{i}]")).collect();
        assert_eq!(fields.collect::<Vec<_>>(), first);
    }

    proptest! {
        #[test]
        fn a_text_is_cut_between_characters(text in "[a-zé€😀]{0,60}", bytes in 3..80_usize) {
            let clipped = clip(&text, bytes);
            prop_assert!(clipped.len() <= bytes);
            match clipped.strip_suffix('…') {
                Some(start) => prop_assert!(text.starts_with(start) && text.len() > bytes),
                None => prop_assert_eq!(clipped, text),
            }
        }
    }
}
