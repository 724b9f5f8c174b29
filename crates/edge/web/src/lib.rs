//! The page that operators open in a browser: the state of the control plane, kept up to date.
//!
//! ```text
//!  Source ──watch, read──► feed (one for all browsers) ──frames──► each browser, at its own pace
//!  browser ──TLS, certificate──► connection ──► routes (operator? key?) ──► assets, stream
//! ```
//!
//! A daemon has one page ([`PageSource`]). A fleet's has its hosts, and for each the page of that host ([`FleetSource`]).
//!
//! The page is read-only, and sees only what its [`PageSource`] provides. One feed serves all browsers
//! and runs only while there is one, so many browsers cost little more than one, and none cost
//! nothing. A browser that does not read is disconnected (`connection`); one that falls behind starts
//! over (`feed`). Neither delays anybody else.

mod connection;
mod feed;
mod fleet;
mod json;
mod key;
mod routes;
mod source;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, watch};

use feed::Feed;
use fleet::FleetWeb;
pub use fleet::{FleetSource, HostChange, HostChanges};
pub use key::PageKey;
pub use source::{Changes, PageChange, PageResource, PageSource, TenantAccount};

/// Kernel send buffer of a connection, in bytes: a browser that does not read is noticed soon.
const SEND_BUFFER_BYTES: u32 = 64 << 10;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 128;

/// The current certificates of the page, for each new connection: client certificates must be optional, so
/// that browsers without one are told what they need.
pub type CurrentTls = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// Reports a browser's handshake that failed.
pub type ReportRejection = Arc<dyn Fn(SocketAddr, &std::io::Error) + Send + Sync>;

/// The certificates of the page, and what is done about handshakes that fail.
#[derive(Clone)]
pub struct PageTls {
    /// The current certificates.
    pub current: CurrentTls,
    /// Called for each handshake that failed.
    pub rejected: ReportRejection,
}

/// Protection of the page.
pub enum PageAccess {
    /// Over TLS, for browsers whose certificate is authorized.
    Tls(PageTls),
    /// In plain text on a loopback address, for holders of the key.
    Key(PageKey),
}

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Plain text without a strong key.
    #[error("{0} would be served in plain text without a strong page key")]
    PlainText(SocketAddr),
    /// Plain text where other machines can reach it.
    #[error("{0} is not a loopback address: plain text is allowed only there")]
    NotLoopback(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {at}")]
    Listen {
        at: SocketAddr,
        #[source]
        source: std::io::Error,
    },
}

/// Decides from a client's certificate (DER), if it has one, whether it may see the page.
///
/// It gives the identity that the certificate has, such as `operator/alice`. The error is the text that the browser shows.
pub type Authorize = Arc<dyn Fn(Option<&[u8]>) -> Result<String, String> + Send + Sync>;

/// Limits of the page.
#[derive(Debug, Clone, Copy)]
pub struct PageLimits {
    /// Browsers that may watch at once.
    pub browsers_max: usize,
    /// Connections at once.
    pub connections_max: usize,
    /// Time that a browser may read nothing while data waits for it.
    pub unread_max: Duration,
    /// Age at which a connection is closed. Browsers connect again, and are authorized again.
    pub age_max: Duration,
}

/// The bound listener of the page.
pub struct Listening {
    listener: TcpListener,
    access: PageAccess,
}

impl fmt::Debug for Listening {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// Binds the page's address.
///
/// # Errors
/// [`BindError`]; nothing is bound then.
pub fn bind(at: SocketAddr, access: PageAccess) -> Result<Listening, BindError> {
    if let PageAccess::Key(key) = &access {
        if !key.is_strong() {
            return Err(BindError::PlainText(at));
        }
        if !at.ip().is_loopback() {
            return Err(BindError::NotLoopback(at));
        }
    }
    let listener = listen(at).map_err(|source| BindError::Listen { at, source })?;
    Ok(Listening { listener, access })
}

fn listen(at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

impl Listening {
    /// The address, with the port that was assigned.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves the page of a daemon until `stopping`.
    pub async fn serve<S: PageSource>(
        self,
        source: S,
        authorize: Authorize,
        limits: PageLimits,
        stopping: watch::Receiver<bool>,
    ) {
        let site = |door| Web { door, source, feed: Mutex::default() };
        self.serve_site(site, authorize, limits, stopping).await;
    }

    /// Serves the page of a fleet until `stopping`.
    pub async fn serve_fleet<S: FleetSource>(
        self,
        source: S,
        authorize: Authorize,
        limits: PageLimits,
        stopping: watch::Receiver<bool>,
    ) {
        let site = |door| FleetWeb::new(door, source);
        self.serve_site(site, authorize, limits, stopping).await;
    }

    async fn serve_site<W: Site>(
        self,
        site: impl FnOnce(Door) -> W,
        authorize: Authorize,
        limits: PageLimits,
        stopping: watch::Receiver<bool>,
    ) {
        let (tls, key) = match self.access {
            PageAccess::Tls(tls) => (Some(tls), None),
            PageAccess::Key(key) => (None, Some(key)),
        };
        let browsers = Arc::new(Semaphore::new(limits.browsers_max));
        let site = Arc::new(site(Door { authorize, limits, browsers, key }));
        connection::accept(self.listener, tls, site, stopping).await;
    }
}

/// Whether the client of a connection may see the page, and who it is; otherwise, what it is told.
type Admission = Result<String, String>;

/// Pages behind the door: those of a daemon or of a fleet.
trait Site: Send + Sync + 'static {
    /// Door of the site.
    fn door(&self) -> &Door;

    /// Its routes, for a client who may enter.
    fn routes(self: Arc<Self>, who: &str) -> axum::Router;
}

/// Access to a page, and number of viewers at once.
struct Door {
    authorize: Authorize,
    limits: PageLimits,
    browsers: Arc<Semaphore>,
    /// Opens the page where there is no TLS.
    key: Option<PageKey>,
}

/// The page of a daemon.
struct Web<S> {
    door: Door,
    source: S,
    /// The feed, while a browser reads it.
    feed: Mutex<Weak<Feed>>,
}

impl<S: PageSource> Web<S> {
    /// The frames for one more browser, from the beginning.
    fn follow(&self) -> feed::BrowserStream {
        let mut current = self.feed.lock();
        let feed = current.upgrade().unwrap_or_else(|| {
            let feed = Feed::start(self.source.clone());
            *current = Arc::downgrade(&feed);
            feed
        });
        feed.page()
    }
}
