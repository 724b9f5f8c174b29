//! Files as the vendor's tools write them.

mod differential;
mod image;
mod import;
mod interpreter;
mod reports;
mod streams;
