//! The page that operators open in a browser: the state of the control plane, kept up to date.
//!
//! ```text
//!  Source ──watch, read──► feed (one for all browsers) ──frames──► each browser, at its own pace
//!  browser ──TLS, certificate──► connection ──► routes (operator? key?) ──► assets, stream
//! ```
//!
//! The page is read-only, and sees only what its [`Source`] provides. One feed serves all browsers
//! and runs only while there is one, so many browsers cost little more than one, and none cost
//! nothing. A browser that does not read is disconnected (`connection`); one that falls behind starts
//! over (`feed`). Neither delays anybody else.

mod connection;
mod feed;
mod json;
mod key;
mod routes;
mod source;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use feed::Feed;
pub use key::PageKey;
pub use source::{Change, Changes, Resource, Source};

/// Kernel send buffer of a connection, in bytes: a browser that does not read is noticed soon.
const SEND_BUFFER_BYTES: u32 = 64 << 10;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 128;

/// PEM texts of the page's TLS.
#[derive(Clone, Copy)]
pub struct TlsPem<'a> {
    /// The server's certificate chain, its own first.
    pub certificate: &'a str,
    /// Its private key.
    pub key: &'a str,
    /// The authority that signs clients' certificates.
    pub client_authority: &'a str,
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
        /// The address.
        at: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Certificates or key are unusable.
    #[error("certificates or key cannot be used: {0}; all three must be PEM")]
    Tls(String),
}

/// Decides from a client's certificate (DER), if it has one, whether it may see the page.
///
/// The error is the text that the browser shows.
pub type Authorize = Arc<dyn Fn(Option<&[u8]>) -> Result<(), String> + Send + Sync>;

/// Limits of the page.
#[derive(Debug, Clone, Copy)]
pub struct PageLimits {
    /// Browsers that may watch at once.
    pub browsers_max: usize,
    /// Connections at once.
    pub connections_max: usize,
    /// How long a browser may read nothing while data waits for it.
    pub unread_max: Duration,
}

/// The bound listener of the page.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    key: Option<PageKey>,
}

/// Binds the page's address: over TLS, or in plain text on a loopback address for holders of the key.
///
/// # Errors
/// [`BindError`]; nothing is bound then.
pub fn bind(
    at: SocketAddr,
    tls: Option<TlsPem<'_>>,
    key: Option<PageKey>,
) -> Result<Listening, BindError> {
    if tls.is_none() {
        if !key.as_ref().is_some_and(PageKey::is_strong) {
            return Err(BindError::PlainText(at));
        }
        if !at.ip().is_loopback() {
            return Err(BindError::NotLoopback(at));
        }
    }
    let tls = tls.map(connection::tls).transpose()?;
    let listener = listen(at).map_err(|source| BindError::Listen { at, source })?;
    Ok(Listening { listener, key: key.filter(|_| tls.is_none()), tls })
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

    /// Serves until `stopping`.
    pub async fn serve<S: Source>(
        self,
        source: S,
        authorize: Authorize,
        limits: PageLimits,
        stopping: watch::Receiver<bool>,
    ) {
        let web = Arc::new(Web {
            source,
            authorize,
            limits,
            feed: Mutex::default(),
            browsers: Arc::new(Semaphore::new(limits.browsers_max)),
            key: self.key,
        });
        let tls = self.tls.map(TlsAcceptor::from);
        connection::accept(self.listener, tls, web, stopping).await;
    }
}

/// Whether the client of a connection may see the page; otherwise, what it is told.
type Admission = Result<(), String>;

/// State that all connections share.
struct Web<S> {
    source: S,
    authorize: Authorize,
    limits: PageLimits,
    /// The feed, while a browser reads it.
    feed: Mutex<Weak<Feed>>,
    browsers: Arc<Semaphore>,
    /// Opens the page where there is no TLS.
    key: Option<PageKey>,
}

impl<S: Source> Web<S> {
    /// The frames for one more browser, from the beginning; `None` where there are too many.
    fn follow(&self) -> Option<(feed::BrowserStream, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.browsers).try_acquire_owned().ok()?;
        let mut current = self.feed.lock();
        let feed = current.upgrade().unwrap_or_else(|| {
            let feed = Feed::start(self.source.clone());
            *current = Arc::downgrade(&feed);
            feed
        });
        Some((feed.page(), permit))
    }
}
