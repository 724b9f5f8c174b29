//! The gRPC services with identity, authorization and limits, and the shell around the controller.
//!
//! ```text
//!  client ──TLS──► listen ──► gate (identity, access, limits) ──► services ──► shell ──► controller
//!                                                                       ▲ hub ◄── changes ──┘
//! ```
//!
//! The audit log and the page for browsers are separate crates.
//!
//! One crate, because each call passes gate, services and hub: a border would make their common types
//! (caller, deadline, limits, control plane) public.

pub mod access;
pub mod authorization;
mod configurations;
mod error;
mod gate;
mod hub;
pub mod identity;
mod links;
mod listen;
pub mod observe;
mod serve;
mod services;
pub mod settings;
mod share;
pub mod shell;
mod tls;
mod wire;

pub use identity::{InvalidIdentity, InvalidTrustDomain, TrustDomain, UnixPeers};
pub use links::{CardLink, CardLinks};
pub use listen::ListenError;
pub use serve::{Bound, ServeError, bind, serve};
pub use settings::{
    DiagnosticsSource, Limits, ServerSettings, TlsSettings, Upload, UploadCheck, UploadProblem,
    WebSettings,
};
pub use snic_audit::{AuditLog, AuditSettings};
pub use snic_web::PageKey;
pub use tls::{InvalidTls, TlsReloader};
