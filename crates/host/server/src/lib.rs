//! The gRPC services of a host, and the shell around the controller.
//!
//! ```text
//!  client ──TLS──► snic_front (identity, access, limits) ──► services ──► shell ──► controller
//!                                                             ▲ hub ◄── changes ──┘
//! ```
//!
//! The front, the audit log and the page for browsers are separate crates.
//!
//! One crate, because each call passes services, hub and shell: a border would make their common types
//! (deferred replies, revisions, control plane) public.

mod error;
mod hub;
mod links;
pub mod observe;
mod serve;
mod services;
pub mod settings;
pub mod shell;
mod wire;

pub use links::{CardLink, CardLinks};
pub use serve::{Bound, bind, serve};
pub use settings::{DiagnosticsSource, ServerSettings, WebSettings};
pub use snic_audit::{AuditLog, AuditSettings};
pub use snic_web::PageKey;
