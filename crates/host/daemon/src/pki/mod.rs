//! `snicd pki`: certificates for those who have no authority of their own.
//!
//! One folder holds the authority and everything that it issues; the quick start has one too.

mod authority;
mod command;

pub use authority::{Authority, CertificateSubject, Pair};
pub use command::{PkiOptions, run};
