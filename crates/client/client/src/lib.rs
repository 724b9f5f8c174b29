//! Parts that `snicctl` and its screens share: the connection to a server with its contexts, errors for
//! people and programs, and the output.
//!
//! ```text
//!  contexts ──► connection ──► lists, watch       what is asked of the server
//!                   │
//!                failure ──► exit code, text, JSON
//!  output ──► tables for people, JSON and YAML for programs
//! ```
//!
//! One crate, for `snicctl` and `top` connect, ask and print in the same way, and half of it are views that share their tables and words.

mod connection;
mod contexts;
mod failure;
mod failure_report;
pub mod lists;
pub mod names;
pub mod output;
mod spans;
mod watch;

pub use connection::Client;
pub use contexts::{ClientContext, Contexts, ContextsError, ContextsFile};
pub use failure::Failure;
pub use watch::follow;

/// A request id, which makes it safe to send a change again.
pub fn request_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
