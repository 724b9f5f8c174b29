//! The page that operators open in a browser: what the services tell, kept up to date.
//!
//! ```text
//!  services ──watch, read──► feed (one for all browsers) ──frames──► each browser, as it reads
//!  browser ──TLS, certificate──► connection ──► routes (operator? key?) ──► assets, stream
//! ```
//!
//! The page reads and changes nothing. It is told nothing that the services do not tell an operator:
//! the feed is a watch like any other, and what is asked for now and then goes through the methods.
//! One feed runs for all browsers, and only while there is one, so that many cost little more than
//! one and none cost nothing. A browser that does not read is closed (`connection`), one that is
//! behind begins anew (`feed`); neither holds up anybody.

mod connection;
mod feed;
mod json;
mod key;
mod routes;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use snic_controller::Caller;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::identity::{NoIdentity, TrustDomain};
use crate::listen::ListenError;
use crate::serve::ServeError;
use crate::services::Services;
use crate::settings::{ServerSettings, WebSettings};
use feed::Feed;
pub use key::PageKey;

/// What the kernel keeps for a browser that does not read, bytes: it is to be noticed soon.
const SEND_BUFFER_BYTES: u32 = 64 << 10;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;

/// The listener of the page.
#[derive(Debug)]
pub(crate) struct Listening {
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    key: Option<PageKey>,
}

/// Binds the page's address.
pub(crate) fn bind(settings: &WebSettings) -> Result<Listening, ServeError> {
    let at = settings.address;
    match &settings.tls {
        None if !settings.plain_text.as_ref().is_some_and(PageKey::is_strong) => {
            Err(ListenError::PlainText { at: at.to_string() })?
        }
        None if !at.ip().is_loopback() => Err(ListenError::NotLoopback { at })?,
        _ => {}
    }
    let tls = settings.tls.as_ref().map(connection::tls).transpose()?;
    let listener = listen(at).map_err(|source| ListenError::Bind { at: at.to_string(), source })?;
    let key = settings.plain_text.clone().filter(|_| tls.is_none());
    Ok(Listening { listener, tls, key })
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
    /// The address, with the port that was taken.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves until `stopping`.
    pub async fn serve(
        self,
        services: Services,
        settings: &ServerSettings,
        stopping: watch::Receiver<bool>,
    ) {
        let browsers_max = settings.limits.browsers_max;
        let web = Arc::new(Web {
            services,
            feed: Mutex::default(),
            browsers: Arc::new(Semaphore::new(browsers_max)),
            browsers_max,
            unread_max: settings.limits.unread_max,
            domain: settings.trust_domain.clone(),
            key: self.key,
        });
        let limit = settings.limits.connections_max;
        let tls = self.tls.map(TlsAcceptor::from);
        connection::accept(self.listener, tls, web, limit, stopping).await;
    }
}

/// Who is at the other end.
type Who = Result<Caller, NoIdentity>;

/// What all connections share.
struct Web {
    services: Services,
    /// The feed, while a browser reads it.
    feed: Mutex<Weak<Feed>>,
    browsers: Arc<Semaphore>,
    browsers_max: usize,
    unread_max: Duration,
    domain: TrustDomain,
    /// What opens the page where there is no TLS.
    key: Option<PageKey>,
}

impl Web {
    /// What is told to one more browser, from the beginning; `None` where there are too many.
    fn follow(&self) -> Option<(feed::Page, OwnedSemaphorePermit)> {
        let place = Arc::clone(&self.browsers).try_acquire_owned().ok()?;
        let mut current = self.feed.lock();
        let feed = current.upgrade().unwrap_or_else(|| {
            let feed = Feed::start(self.services.clone());
            *current = Arc::downgrade(&feed);
            feed
        });
        Some((feed.page(), place))
    }
}
