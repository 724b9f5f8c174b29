//! What the server is told: where to listen, whom to believe, how much to take.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use snic_api::v1;
use snic_domain::{Bitstream, NtType};

use crate::audit::AuditLog;
use crate::identity::TrustDomain;
use crate::links::CardLinks;
use crate::web::PageKey;

/// Longest wait of `WaitOperation`, whatever the caller asks for.
pub const WAIT_MAX: Duration = Duration::from_secs(600);

/// Where and how to serve.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The address to listen on; port 0 takes any that is free. With [`ServerSettings::tls`] over
    /// mutual TLS, without it in plain text.
    pub tcp: Option<SocketAddr>,
    /// Certificates of the TCP listener.
    pub tls: Option<TlsSettings>,
    /// A Unix socket to listen on, in plain text.
    pub unix: Option<PathBuf>,
    /// Allows plain text, on loopback addresses and the Unix socket only. Whoever reaches these
    /// may then call itself anyone.
    pub plain_text: bool,
    /// Where the page for browsers is served; nowhere without it.
    pub web: Option<WebSettings>,
    /// The domain that identities belong to.
    pub trust_domain: TrustDomain,
    /// How much to take.
    pub limits: Limits,
    /// Looks into the bytes of uploads.
    pub upload_check: UploadCheck,
    /// How cards are reached.
    pub card_links: CardLinks,
    /// Where it is written down who changed what; without it nowhere.
    pub audit: Option<AuditLog>,
    /// What support bundles have of the server.
    pub diagnostics: DiagnosticsSource,
}

impl ServerSettings {
    /// Settings that listen nowhere yet.
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

/// Where the page for browsers is served.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// The address to listen on; port 0 takes any that is free.
    pub address: SocketAddr,
    /// Certificates. Operators are who their client certificates say.
    pub tls: Option<TlsSettings>,
    /// Allows to do without, on loopback addresses only, for whoever has this key. One that is easy
    /// to guess is as good as none.
    pub plain_text: Option<PageKey>,
}

/// The server's certificate, and the authority that clients' certificates come from; all PEM.
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

/// How much the server takes before it says so. Each bounds memory or time that a client could
/// otherwise make the server spend without end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; further ones are closed.
    pub connections_max: usize,
    /// Calls at once on one connection, streams included.
    pub calls_per_connection_max: usize,
    /// Calls that answer at once, in all.
    pub calls_max: usize,
    /// Watches and waits, in all.
    pub streams_max: usize,
    /// Watches and waits of one caller.
    pub streams_per_caller_max: usize,
    /// Browsers at once that watch the page.
    pub browsers_max: usize,
    /// How long a browser may read nothing while something waits for it.
    pub unread_max: Duration,
    /// Uploads at once; each holds up to 16 MiB.
    pub uploads_max: usize,
    /// Largest message, in bytes; chunks of uploads have a limit of their own.
    pub message_bytes_max: usize,
    /// How long a call may take that does not say.
    pub deadline: Duration,
    /// How long a call may take, whatever it says. Waits may take longer.
    pub deadline_max: Duration,
    /// After how long a silent connection is asked whether it is still there.
    pub keep_alive: Duration,
    /// How long it may take to answer that.
    pub keep_alive_timeout: Duration,
    /// Changes that are kept for watches: one that falls behind by more has to begin anew. Each
    /// has some kilobytes at most.
    pub changes_kept: usize,
    /// How often an idle watch is told a revision to resume from.
    pub bookmark: Duration,
    /// How long calls may go on once the server stops.
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

/// The function of a [`DiagnosticsSource`].
type Diagnose = dyn Fn() -> v1::Diagnostics + Send + Sync;

/// Says what support bundles have of the server: the daemon knows its settings and its log. Without
/// a function there is nothing to say.
#[derive(Clone, Default)]
pub struct DiagnosticsSource(Option<Arc<Diagnose>>);

impl DiagnosticsSource {
    /// From a function, which must not block for long and tells no secrets.
    pub fn new(look: impl Fn() -> v1::Diagnostics + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look)))
    }

    pub(crate) fn look(&self) -> v1::Diagnostics {
        self.0.as_ref().map_or_else(v1::Diagnostics::default, |look| look())
    }
}

impl fmt::Debug for DiagnosticsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiagnosticsSource")
    }
}

/// An upload whose size, digest and NT types are right already.
#[derive(Debug, Clone, Copy)]
pub struct Upload<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// What they are declared to be.
    pub declared: &'a Bitstream,
    /// The declared NT types, in their order.
    pub nts: &'a [NtType],
    /// The signature that came with it; may be empty.
    pub signature: &'a [u8],
}

/// What is wrong with an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadProblem {
    /// The field of the header that does not fit the bytes, such as `nts[1]`; `chunk` where the
    /// bytes are wrong whatever is declared.
    pub field: String,
    /// What is wrong with it and what to do.
    pub what: String,
}

/// The function of an [`UploadCheck`].
type Look = dyn Fn(Upload<'_>) -> Result<Option<Box<str>>, UploadProblem> + Send + Sync;

/// Says whether an upload's bytes are what they are declared to be, from what is in them, and which
/// trusted key has signed them, if one has. The
/// server knows no format of bitstreams; the daemon passes one in.
#[derive(Clone)]
pub struct UploadCheck(Arc<Look>);

impl UploadCheck {
    /// From a function. It may take long: it is called on a thread for that.
    pub fn new(
        look: impl Fn(Upload<'_>) -> Result<Option<Box<str>>, UploadProblem> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(look))
    }

    pub(crate) fn look(&self, upload: Upload<'_>) -> Result<Option<Box<str>>, UploadProblem> {
        (self.0)(upload)
    }
}

impl fmt::Debug for UploadCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UploadCheck")
    }
}
