//! Conversions between messages and domain types, beside the generated code.
//!
//! Requests are validated here once, as far as a message alone allows: ids, ranges, required fields. An
//! error is a [`ApiError`] with the field's path, which the services return unchanged. Checks against the
//! state (unknown NTs, quotas, cyclic graphs) are the controller's. Conversions to messages never fail.

pub mod binding;
pub mod bitstream;
pub mod card;
pub mod dag;
pub mod explanation;
pub mod mask;
pub mod name;
mod notes;
pub mod nt_type;
pub mod object;
pub mod rule;
pub mod tenant;

use std::fmt::Display;
use std::str::FromStr;

use snic_domain::{InvalidId, Timestamp};

use crate::error::ApiError;
use crate::v1::ErrorReason;

/// Nanoseconds per second.
const NANOS: u64 = 1_000_000_000;

/// Converts a point in time.
pub fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = (at.as_nanos() / NANOS, at.as_nanos() % NANOS);
    prost_types::Timestamp {
        // 64 bits of nanoseconds are less than 2^35 seconds.
        seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        nanos: i32::try_from(nanos).unwrap_or(i32::MAX),
    }
}

/// Collects the problems of a request, so that one error lists all of them. The first determines the
/// reason.
#[derive(Debug, Default)]
pub struct Problems(Option<ApiError>);

impl Problems {
    /// Adds an invalid field.
    pub fn add(&mut self, reason: ErrorReason, field: &str, what: impl Display) {
        self.0 = Some(match self.0.take() {
            None => ApiError::in_field(reason, field, what),
            Some(failure) => failure.field(field, what),
        });
    }

    /// The value; a problem is added instead.
    pub fn keep<T>(&mut self, result: Result<T, FieldProblem>) -> Option<T> {
        result.map_err(|problem| self.add(problem.reason, &problem.field, problem.what)).ok()
    }

    /// The collected problems, if any.
    ///
    /// # Errors
    /// A [`ApiError`] with all invalid fields.
    pub fn finish(self) -> Result<(), ApiError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldProblem {
    /// The reason, for programs.
    pub reason: ErrorReason,
    /// Its path, such as `dag.nodes[2].nt_type`.
    pub field: String,
    /// The fault, and what is allowed.
    pub what: String,
}

impl FieldProblem {
    /// A value out of range or malformed.
    pub fn invalid(field: impl Into<String>, what: impl Display) -> Self {
        Self { reason: ErrorReason::InvalidField, field: field.into(), what: what.to_string() }
    }

    /// A missing field.
    pub fn required(field: impl Into<String>) -> Self {
        let what = "required, but missing or empty".to_owned();
        Self { reason: ErrorReason::FieldRequired, field: field.into(), what }
    }

    /// An invalid resource name.
    pub fn name(field: impl Into<String>, what: impl Display) -> Self {
        Self { reason: ErrorReason::InvalidName, field: field.into(), what: what.to_string() }
    }
}

impl From<FieldProblem> for ApiError {
    fn from(problem: FieldProblem) -> Self {
        Self::in_field(problem.reason, &problem.field, problem.what)
    }
}

/// Parses an id field, such as `dag_id`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or breaks the rules for ids.
pub fn id<T: FromStr<Err = InvalidId>>(field: &str, text: &str) -> Result<T, FieldProblem> {
    if text.is_empty() {
        return Err(FieldProblem::required(field));
    }
    text.parse().map_err(|error| FieldProblem::invalid(field, error))
}

/// Converts a number to a smaller type.
///
/// # Errors
/// [`FieldProblem`] if it exceeds `most`.
pub fn number<T: TryFrom<u32>>(field: &str, value: u32, most: u32) -> Result<T, FieldProblem> {
    T::try_from(value).ok().filter(|_| value <= most).ok_or_else(|| {
        FieldProblem::invalid(field, format_args!("{value} is too large (limit {most})"))
    })
}

#[cfg(test)]
mod tests;
