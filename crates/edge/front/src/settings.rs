//! Settings of a server's front: listeners, trust domain, limits, methods.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use snic_api::certificates::PemFile;
use snic_audit::AuditLog;

use crate::access::Methods;
use crate::authorization::Authorization;
use crate::call_counts::CallCounts;
use crate::identity::{TrustDomain, UnixPeers};

/// Longest wait of `WaitOperation`, whatever the caller asks for.
pub const WAIT_MAX: Duration = Duration::from_secs(600);

/// Settings of a server's front.
#[derive(Debug, Clone)]
pub struct FrontSettings {
    /// The TCP address to listen on, over mutual TLS; port 0 picks a free port. Needs
    /// [`FrontSettings::tls`].
    pub tcp: Option<SocketAddr>,
    /// Certificates of the TCP listener and of the page.
    pub tls: Option<TlsSettings>,
    /// A Unix socket to listen on. The kernel identifies its peers.
    pub unix: Option<PathBuf>,
    /// The identities of the Unix socket's users.
    pub unix_peers: UnixPeers,
    /// The domain that identities belong to.
    pub trust_domain: TrustDomain,
    /// The methods that can be called, and by whom.
    pub methods: Methods,
    /// Limits.
    pub limits: Limits,
    /// The audit log; not kept if `None`.
    pub audit: Option<AuditLog>,
    /// The authorization policies, which may be replaced while the server runs.
    pub authorization: Authorization,
    /// Where admitted calls of tenants are counted; nowhere if `None`.
    pub calls: Option<CallCounts>,
}

impl FrontSettings {
    /// Default settings without listeners.
    pub fn new(trust_domain: TrustDomain, methods: Methods) -> Self {
        Self {
            tcp: None,
            tls: None,
            unix: None,
            unix_peers: UnixPeers::default(),
            trust_domain,
            methods,
            limits: Limits::default(),
            audit: None,
            authorization: Authorization::default(),
            calls: None,
        }
    }
}

/// The server's certificate, and the authority of its clients; all PEM.
#[derive(Clone)]
pub struct TlsSettings {
    /// The server's certificate chain, its own first.
    pub certificate: PemFile,
    /// Its private key.
    pub key: PemFile,
    /// The authority that signs clients' certificates.
    pub client_authority: PemFile,
    /// Lists of revoked certificates, of every authority that a client's chain may contain; nothing is
    /// revoked if `None`. Of each authority the newest list counts, also after its next update is due.
    pub revoked: Option<PemFile>,
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
    /// Connections at once; who is over its share of them is disconnected.
    pub connections_max: usize,
    /// Connections of one identity, or of one address without an identity.
    pub connections_per_caller_max: usize,
    /// Age at which a connection is asked to end; calls may finish within [`Limits::grace`].
    pub connection_age_max: Duration,
    /// Calls at once on one connection, streams included.
    pub calls_per_connection_max: usize,
    /// Short calls and uploads at once, in total.
    pub calls_max: usize,
    /// Short calls that are carried out at once, in total; the others wait for their turn.
    pub turns: usize,
    /// Watches and waits, in total.
    pub streams_max: usize,
    /// Watches and waits of one caller.
    pub streams_per_caller_max: usize,
    /// Browsers that may watch the page at once.
    pub browsers_max: usize,
    /// Time that a browser may read nothing while data waits for it.
    pub unread_max: Duration,
    /// Uploads at once; each holds up to 16 MiB.
    pub uploads_max: usize,
    /// Uploads of one caller.
    pub uploads_per_caller_max: usize,
    /// Batches of DAGs that are planned at once.
    pub batches_max: usize,
    /// Batches of one caller.
    pub batches_per_caller_max: usize,
    /// Watches of packets at once.
    pub packet_watches_max: usize,
    /// Watches of packets of one caller.
    pub packet_watches_per_caller_max: usize,
    /// Runs of traffic at once.
    pub traffic_runs_max: usize,
    /// Runs of traffic of one caller.
    pub traffic_runs_per_caller_max: usize,
    /// Time that a request's message may take to arrive, in addition to the time for its bytes.
    pub message_arrival: Duration,
    /// Slowest rate of a request's message in bytes per second: after N bytes it may have taken
    /// [`Limits::message_arrival`] and N divided by this.
    pub message_bytes_per_second_min: u64,
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
    /// Changes of each tenant, and of none, that are kept for watches: a watch that falls behind by more
    /// must start over.
    pub changes_kept: usize,
    /// Changes kept of all: over it, the tenant with the most loses its oldest. Each has a few
    /// kilobytes at most, so they take about 100 MB at worst.
    pub changes_kept_total: usize,
    /// Interval of bookmarks on an idle watch.
    pub bookmark: Duration,
    /// Time that running calls may continue once the server stops.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1_024,
            connections_per_caller_max: 128,
            connection_age_max: Duration::from_secs(12 * 3_600),
            calls_per_connection_max: 256,
            calls_max: 1_024,
            turns: 192,
            streams_max: 1_024,
            streams_per_caller_max: 64,
            browsers_max: 64,
            unread_max: Duration::from_secs(10),
            uploads_max: 8,
            uploads_per_caller_max: 2,
            batches_max: 8,
            batches_per_caller_max: 1,
            packet_watches_max: 8,
            packet_watches_per_caller_max: 2,
            traffic_runs_max: 8,
            traffic_runs_per_caller_max: 2,
            message_arrival: Duration::from_secs(5),
            message_bytes_per_second_min: 256 << 10,
            message_bytes_max: 1 << 20,
            deadline: Duration::from_secs(30),
            deadline_max: Duration::from_secs(300),
            keep_alive: Duration::from_secs(20),
            keep_alive_timeout: Duration::from_secs(10),
            changes_kept: 8_192,
            changes_kept_total: 32_768,
            bookmark: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}
