//! One entry of a DAG's configurations.

use snic_domain::NtNumber;

/// The configuration of one NT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NtEntry<'a> {
    /// The NT type's number.
    pub number: NtNumber,
    /// The NT type.
    pub nt_type: &'a str,
    /// The JSON object.
    pub json: &'a str,
}
