//! Files as the vendor's tools write them.

mod differential;
pub mod image;
mod import;
pub mod interpreter;
pub mod reports;
mod streams;
