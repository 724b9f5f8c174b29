//! Settings of the server: listeners, trust domain, limits, and what the daemon plugs in.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use snic_api::v1;
use snic_audit::AuditLog;
use snic_domain::{Bitstream, NtType};
use snic_web::PageKey;

use crate::identity::TrustDomain;
use crate::links::CardLinks;

/// Longest wait of `WaitOperation`, whatever the caller asks for.
pub const WAIT_MAX: Duration = Duration::from_secs(600);

/// Settings of the server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The TCP address to listen on; port 0 picks a free port. With [`ServerSettings::tls`] over mutual
    /// TLS, otherwise in plain text.
    pub tcp: Option<SocketAddr>,
    /// Certificates of the TCP listener.
    pub tls: Option<TlsSettings>,
    /// A Unix socket to listen on, in plain text.
    pub unix: Option<PathBuf>,
    /// Allows plain text on loopback addresses and the Unix socket. Every peer there may then claim any
    /// identity.
    pub plain_text: bool,
    /// The page for browsers; not served if `None`.
    pub web: Option<WebSettings>,
    /// The domain that identities belong to.
    pub trust_domain: TrustDomain,
    /// Limits.
    pub limits: Limits,
    /// Validates uploads.
    pub upload_check: UploadCheck,
    /// How cards are reached.
    pub card_links: CardLinks,
    /// The audit log; not kept if `None`.
    pub audit: Option<AuditLog>,
    /// The server's part of support bundles.
    pub diagnostics: DiagnosticsSource,
}

impl ServerSettings {
    /// Default settings without listeners.
    pub fn new(trust_domain: TrustDomain, upload_check: UploadCheck) -> Self {
        Self {
            tcp: None,
            tls: None,
            unix: None,
            plain_text: false,
            web: None,
            trust_domain,
            limits: Limits::default(),
            upload_check,
            card_links: CardLinks::default(),
            audit: None,
            diagnostics: DiagnosticsSource::default(),
        }
    }
}

/// Settings of the page for browsers.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// The address to listen on; port 0 picks a free port.
    pub address: SocketAddr,
    /// Certificates. Browsers need an operator's client certificate.
    pub tls: Option<TlsSettings>,
    /// Allows plain text on a loopback address to browsers with this key. A weak key is rejected.
    pub plain_text: Option<PageKey>,
}

/// The server's certificate, and the authority of its clients; all PEM.
#[derive(Clone)]
pub struct TlsSettings {
    /// The server's certificate chain, its own first.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// The authority that signs clients' certificates.
    pub client_authority: String,
}

impl fmt::Debug for TlsSettings {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings").finish_non_exhaustive()
    }
}

/// Limits of the server. Each bounds memory or time that a client could otherwise consume without end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; further ones are closed.
    pub connections_max: usize,
    /// Calls at once on one connection, streams included.
    pub calls_per_connection_max: usize,
    /// Short calls at once, in total.
    pub calls_max: usize,
    /// Watches and waits, in total.
    pub streams_max: usize,
    /// Watches and waits of one caller.
    pub streams_per_caller_max: usize,
    /// Browsers that may watch the page at once.
    pub browsers_max: usize,
    /// How long a browser may read nothing while data waits for it.
    pub unread_max: Duration,
    /// Uploads at once; each holds up to 16 MiB.
    pub uploads_max: usize,
    /// Largest message, in bytes; chunks of uploads have a limit of their own.
    pub message_bytes_max: usize,
    /// Deadline of a call without one.
    pub deadline: Duration,
    /// Longest deadline of a call. Waits may take longer.
    pub deadline_max: Duration,
    /// Idle time after which a connection is pinged.
    pub keep_alive: Duration,
    /// Time limit for the reply to the ping.
    pub keep_alive_timeout: Duration,
    /// Changes kept for watches: a watch that falls behind by more must start over. Each has a few
    /// kilobytes at most.
    pub changes_kept: usize,
    /// Interval of bookmarks on an idle watch.
    pub bookmark: Duration,
    /// How long running calls may continue once the server stops.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1_024,
            calls_per_connection_max: 256,
            calls_max: 1_024,
            streams_max: 1_024,
            streams_per_caller_max: 64,
            browsers_max: 64,
            unread_max: Duration::from_secs(10),
            uploads_max: 4,
            message_bytes_max: 1 << 20,
            deadline: Duration::from_secs(30),
            deadline_max: Duration::from_secs(300),
            keep_alive: Duration::from_secs(20),
            keep_alive_timeout: Duration::from_secs(10),
            changes_kept: 8_192,
            bookmark: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// Function of a [`DiagnosticsSource`].
type Diagnose = dyn Fn() -> v1::Diagnostics + Send + Sync;

/// Collects the server's part of support bundles: the daemon knows its settings and log. Empty by
/// default.
#[derive(Clone, Default)]
pub struct DiagnosticsSource(Option<Arc<Diagnose>>);

impl DiagnosticsSource {
    /// From a function, which must not block for long and must not reveal secrets.
    pub fn new(collect: impl Fn() -> v1::Diagnostics + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(collect)))
    }

    pub(crate) fn collect(&self) -> v1::Diagnostics {
        self.0.as_ref().map_or_else(v1::Diagnostics::default, |collect| collect())
    }
}

impl fmt::Debug for DiagnosticsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiagnosticsSource")
    }
}

/// An upload whose size, digest and NT types have been checked.
#[derive(Debug, Clone, Copy)]
pub struct Upload<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The declaration.
    pub declared: &'a Bitstream,
    /// The declared NT types, in order.
    pub nts: &'a [NtType],
    /// The signature; may be empty.
    pub signature: &'a [u8],
}

/// Why an upload is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadProblem {
    /// The header field that contradicts the bytes, such as `nts[1]`; `chunk` where the bytes themselves
    /// are invalid.
    pub field: String,
    /// What is wrong, and what to do.
    pub what: String,
}

/// Function of an [`UploadCheck`].
type UploadValidator = dyn Fn(Upload<'_>) -> Result<Option<Box<str>>, UploadProblem> + Send + Sync;

/// Validates an upload's bytes against their declaration, and returns the name of the trusted key that
/// signed them, if one did. The server knows no bitstream format; the daemon passes the function in.
#[derive(Clone)]
pub struct UploadCheck(Arc<UploadValidator>);

impl UploadCheck {
    /// From a function. It may block: it runs on a blocking thread.
    pub fn new(
        validate: impl Fn(Upload<'_>) -> Result<Option<Box<str>>, UploadProblem> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(validate))
    }

    /// Validates an upload.
    pub(crate) fn validate(&self, upload: Upload<'_>) -> Result<Option<Box<str>>, UploadProblem> {
        (self.0)(upload)
    }
}

impl fmt::Debug for UploadCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UploadCheck")
    }
}
