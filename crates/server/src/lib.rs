//! The gRPC services: identity, authorization, limits; and the shell around the controller.
//!
//! ```text
//!  client ──TLS──► listen ──► gate (who, may, room, deadline) ──► services ──► shell ──► controller
//!                                                                  ▲ hub ◄── changes ──┘
//! ```

pub mod access;
pub mod audit;
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
pub mod shell;
mod web;
mod wire;

pub use audit::{AuditLog, AuditSettings};
pub use identity::{InvalidTrustDomain, TrustDomain};
pub use links::{CardLink, CardLinks};
pub use listen::ListenError;
pub use serve::{Bound, ServeError, bind, serve};
pub use settings::{
    DiagnosticsSource, Limits, ServerSettings, TlsSettings, Upload, UploadCheck, UploadProblem,
    WebSettings,
};
pub use web::PageKey;
