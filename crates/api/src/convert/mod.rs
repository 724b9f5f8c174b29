//! Conversions between the wire and the domain, kept beside the generated types.
//!
//! What comes in is checked here once, as far as one message can tell: ids, ranges, required
//! fields. A refusal is a [`Failure`] with the path of the field, so that the services pass it on
//! as it is. What the state has to say (unknown NTs, quotas, a cyclic graph) is the controller's.
//! What goes out never fails.

pub mod binding;
pub mod bitstream;
pub mod card;
pub mod dag;
pub mod explanation;
pub mod mask;
pub mod name;
pub mod nt_type;
pub mod rule;
pub mod tenant;

use std::fmt::Display;
use std::str::FromStr;

use snic_domain::{InvalidId, Timestamp};

use crate::error::Failure;
use crate::v1::ErrorReason;

/// Nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// A point in time on the wire.
pub fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = (at.as_nanos() / NANOS, at.as_nanos() % NANOS);
    prost_types::Timestamp {
        // 64 bits of nanoseconds are less than 2^35 seconds.
        seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        nanos: i32::try_from(nanos).unwrap_or(i32::MAX),
    }
}

/// What is wrong with a request, gathered so that one answer names all of it. The first problem
/// says the reason.
#[derive(Debug, Default)]
pub struct Problems(Option<Failure>);

impl Problems {
    /// One more wrong field.
    pub fn add(&mut self, reason: ErrorReason, field: &str, what: impl Display) {
        self.0 = Some(match self.0.take() {
            None => Failure::in_field(reason, field, what),
            Some(failure) => failure.field(field, what),
        });
    }

    /// The value, or one more problem.
    pub fn keep<T>(&mut self, result: Result<T, FieldProblem>) -> Option<T> {
        result.map_err(|problem| self.add(problem.reason, &problem.field, problem.what)).ok()
    }

    /// Nothing was wrong, or all that was.
    pub fn finish(self) -> Result<(), Failure> {
        self.0.map_or(Ok(()), Err)
    }
}

/// One wrong field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldProblem {
    /// For programs.
    pub reason: ErrorReason,
    /// Its path, such as `dag.nodes[2].nt_type`.
    pub field: String,
    /// What is wrong with it and what is allowed.
    pub what: String,
}

impl FieldProblem {
    /// A value outside its range or form.
    pub fn invalid(field: impl Into<String>, what: impl Display) -> Self {
        Self { reason: ErrorReason::InvalidField, field: field.into(), what: what.to_string() }
    }

    /// A field that is missing.
    pub fn required(field: impl Into<String>) -> Self {
        let what = "it is required, and is missing or empty".to_owned();
        Self { reason: ErrorReason::FieldRequired, field: field.into(), what }
    }

    /// A text that is no resource name.
    pub fn name(field: impl Into<String>, what: impl Display) -> Self {
        Self { reason: ErrorReason::InvalidName, field: field.into(), what: what.to_string() }
    }
}

impl From<FieldProblem> for Failure {
    fn from(problem: FieldProblem) -> Self {
        Self::in_field(problem.reason, &problem.field, problem.what)
    }
}

/// An id that stands in a field of its own, such as `dag_id`.
pub fn id<T: FromStr<Err = InvalidId>>(field: &str, text: &str) -> Result<T, FieldProblem> {
    if text.is_empty() {
        return Err(FieldProblem::required(field));
    }
    text.parse().map_err(|error| FieldProblem::invalid(field, error))
}

/// A whole number that has to fit a smaller type.
pub fn number<T: TryFrom<u32>>(field: &str, value: u32, most: u32) -> Result<T, FieldProblem> {
    T::try_from(value)
        .ok()
        .filter(|_| value <= most)
        .ok_or_else(|| FieldProblem::invalid(field, format_args!("{value} is over {most}")))
}

#[cfg(test)]
mod tests;
