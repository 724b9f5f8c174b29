//! The members of an etcd, asked one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use parking_lot::Mutex;
use snic_etcd::{Answer, Failed, Request, Revision};

use crate::failures::failed;
use crate::member::Member;

/// Interval at which a connection with open requests is tried (HTTP/2 pings). etcd closes those that are tried more often
/// than every 5 s, or while nothing is open.
const PING_INTERVAL: Duration = Duration::from_secs(6);

/// Longest time for an answer to a ping. A watch on a member that is gone ends after both.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Certificates in PEM.
#[derive(Clone)]
pub struct TlsFiles {
    /// Authority that signs the members' certificates.
    pub authority: Vec<u8>,
    /// Our certificate, for etcd's `--client-cert-auth`.
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl std::fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsFiles").finish_non_exhaustive() // the key is nobody's business
    }
}

/// Where etcd is.
#[derive(Debug, Clone)]
pub struct EtcdSettings {
    /// URLs of members (`https://host:2379`), 1 or more.
    pub endpoints: Vec<String>,
    /// Certificates, for URLs with `https`.
    pub tls: Option<TlsFiles>,
    /// Longest time for an answer. After it the request's outcome is open.
    pub request_timeout: Duration,
    /// Longest time to make a connection.
    pub connect_timeout: Duration,
}

impl EtcdSettings {
    /// Members without TLS; 5 s for an answer, 1 s for a connection.
    pub fn plain(endpoints: Vec<String>) -> Self {
        let (request_timeout, connect_timeout) = (Duration::from_secs(5), Duration::from_secs(1));
        Self { endpoints, tls: None, request_timeout, connect_timeout }
    }

    fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.connect_timeout)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true);
        if let Some(tls) = &self.tls {
            let tls = TlsOptions::new()
                .ca_certificate(Certificate::from_pem(&tls.authority))
                .identity(Identity::from_pem(&tls.certificate, &tls.key));
            options = options.with_tls(tls);
        }
        options
    }
}

/// One member of the cluster, as the cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberInfo {
    pub name: String,
    /// Where clients reach it.
    pub urls: Vec<String>,
    /// Whether it does not vote.
    pub is_learner: bool,
}

/// A connection to etcd. Clones share it.
///
/// Requests go to one member until that fails, then to the next. A request that reached nobody is tried once with
/// each member, and so are failed reads and signs of life, which may be repeated; a change whose outcome is open is not
/// tried again.
#[derive(Clone)]
pub struct EtcdConnection {
    shared: Arc<Shared>,
}

struct Shared {
    settings: EtcdSettings,
    members: Vec<Mutex<Arc<Member>>>,
    current: AtomicUsize,
}

impl std::fmt::Debug for EtcdConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdConnection").field("settings", &self.shared.settings).finish()
    }
}

impl EtcdConnection {
    /// Prepares the connection; the first request makes it. Runs within a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`Failed::Invalid`] without endpoints, or if one is no URL or the certificates are none.
    pub async fn new(settings: EtcdSettings) -> Result<Self, Failed> {
        if settings.endpoints.is_empty() {
            return Err(Failed::Invalid("no endpoints; name 1 or more".to_owned()));
        }
        let mut members = Vec::new();
        for endpoint in &settings.endpoints {
            members.push(Mutex::new(Arc::new(connect(endpoint, &settings).await?)));
        }
        let current = AtomicUsize::new(0);
        Ok(Self { shared: Arc::new(Shared { settings, members, current }) })
    }

    /// Carries out a request.
    ///
    /// # Errors
    ///
    /// [`Failed`]: whether it was carried out is certain but for [`Failed::Unknown`].
    pub async fn ask(&self, request: &Request) -> Result<Answer, Failed> {
        self.ask_within(request, self.timeout()).await
    }

    /// Carries out a request; no member may take longer than `limit` for an answer.
    ///
    /// # Errors
    ///
    /// As [`EtcdConnection::ask`].
    pub async fn ask_within(&self, request: &Request, limit: Duration) -> Result<Answer, Failed> {
        request.check()?;
        let is_read = matches!(request, Request::Range { .. });
        let may_be_repeated = is_read || matches!(request, Request::KeepAlive(_));
        let mut tries = self.member_count();
        loop {
            tries -= 1;
            let (at, member) = self.member();
            let asked = member.ask(request);
            let failed = match tokio::time::timeout(limit, asked).await {
                Ok(Err(failed @ (Failed::Unreachable(_) | Failed::Unknown(_)))) => failed,
                Ok(outcome) => return outcome,
                Err(_) => {
                    self.renew(at, &member).await;
                    Failed::Unknown(format!("no answer within {limit:?}"))
                }
            };
            self.leave(at);
            let was_sent = matches!(failed, Failed::Unknown(_));
            if tries == 0 || (was_sent && !may_be_repeated) {
                // A read that failed changed nothing.
                return Err(match failed {
                    Failed::Unknown(reason) if is_read => Failed::Unreachable(reason),
                    failed => failed,
                });
            }
        }
    }

    /// The members of the cluster, as one of them knows it.
    ///
    /// # Errors
    ///
    /// [`Failed::Unreachable`]: it changes nothing.
    pub async fn members(&self) -> Result<Vec<MemberInfo>, Failed> {
        let (at, member) = self.member();
        let mut cluster = member.client().cluster_client();
        let listed = match tokio::time::timeout(self.timeout(), cluster.member_list()).await {
            Ok(listed) => listed.map_err(|error| failed(error, Revision(0))),
            Err(_) => Err(Failed::Unreachable(format!("no answer within {:?}", self.timeout()))),
        };
        let listed = listed.inspect_err(|_| self.leave(at))?;
        let info = |member: &etcd_client::Member| MemberInfo {
            name: member.name().to_owned(),
            urls: member.client_urls().to_vec(),
            is_learner: member.is_learner(),
        };
        Ok(listed.members().iter().map(info).collect())
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.shared.settings.request_timeout
    }

    /// Number of members to try.
    pub(crate) fn member_count(&self) -> usize {
        self.shared.members.len()
    }

    /// The member that is asked now, and its place.
    pub(crate) fn member(&self) -> (usize, Arc<Member>) {
        let at = self.shared.current.load(Ordering::Relaxed);
        (at, Arc::clone(&self.shared.members[at].lock()))
    }

    /// Asks the next member from now on, unless somebody else left this one before.
    pub(crate) fn leave(&self, at: usize) {
        let next = (at + 1) % self.shared.members.len();
        let current = &self.shared.current;
        // It failed: another request has left the member already.
        let _ = current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Gives up the connection to a member that does not answer: its socket may be dead without anybody knowing, for
    /// pings are only sent while a request is open. Once for all requests that wait for it.
    pub(crate) async fn renew(&self, at: usize, member: &Arc<Member>) {
        let endpoint = &self.shared.settings.endpoints[at];
        match connect(endpoint, &self.shared.settings).await {
            Ok(new) => {
                let mut slot = self.shared.members[at].lock();
                if Arc::ptr_eq(&slot, member) {
                    *slot = Arc::new(new);
                }
            }
            // The same settings were good before.
            Err(failed) => tracing::error!(%endpoint, %failed, "no new connection to etcd"),
        }
    }
}

async fn connect(endpoint: &str, settings: &EtcdSettings) -> Result<Member, Failed> {
    let connected = Client::connect([endpoint], Some(settings.options())).await;
    let client = connected.map_err(|error| {
        Failed::Invalid(format!("the endpoint {endpoint} cannot be used: {error}"))
    })?;
    Ok(Member::new(client))
}
