//! Listeners: connections are limited and identified before they are served.
//!
//! ```text
//!  TCP  ──► place of its address ──► TLS handshake ──► place of its identity ──┐
//!                                                                              ├──► served ──► closed when its
//!  unix ──► the kernel tells the user ──► place of its identity ───────────────┘     certificate ends, or at age
//! ```
//!
//! Before its identity is known, a connection takes one of the few places for arriving ones, which
//! addresses share fairly; so a client that opens many connections cannot keep others out. If an
//! address has used up its share, its oldest handshake is aborted for the new one: those that take
//! long are the idle ones.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use snic_api::error::ApiError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::CertificateDer;
use tonic::transport::server::Connected;

use crate::call_slots::{CallSlots, call_slots};
use crate::handshakes::{Reason, Rejections};
use crate::identity::{self, CallerIdentity, NoIdentity, TrustDomain, UnixPeers, UnixUser};
use crate::pieces::FairReader;
use crate::settings::{FrontSettings, Limits};
use crate::share::{CallerFlow, CallerLevel, Permit, PermitPool};
use crate::steps::FairScheduler;
use crate::tls::Credentials;

/// Accepted connections that wait to be served: few are enough, as the kernel queues more.
const ACCEPTED_MAX: usize = 16;
/// Permissions of a Unix socket: its owner and group connect, and the kernel says who they are.
const SOCKET_MODE: u32 = 0o660;
/// Time limit of a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Pause after a failed accept, such as with too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Interval between checks of a connection's certificate: how late it is noticed that it expired.
const CERTIFICATE_CHECK: Duration = Duration::from_secs(1);

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The settings name no address.
    #[error("no listener configured; set a TCP address or a Unix socket")]
    Nowhere,
    /// TCP without certificates, or the page without certificates or a strong key.
    #[error("{at} would be served in plain text; configure certificates")]
    PlainText { at: String },
    /// The page in plain text where other machines can reach it.
    #[error(
        "{at} is not a loopback address: plain text is allowed only on loopback; configure certificates"
    )]
    NotLoopback { at: SocketAddr },
    /// Another server uses the socket.
    #[error("the socket {} is in use by another server", .path.display())]
    SocketInUse { path: PathBuf },
    /// The address cannot be bound.
    #[error("cannot listen on {at}")]
    Bind {
        /// The address or socket.
        at: String,
        #[source]
        source: io::Error,
    },
}

/// The bound listeners.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub tcp: Option<TcpListener>,
    pub unix: Option<(UnixListener, SocketFile)>,
}

/// A socket's file, removed with the server.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) async fn bind(settings: &FrontSettings) -> Result<Listeners, ListenError> {
    if settings.tcp.is_none() && settings.unix.is_none() {
        return Err(ListenError::Nowhere);
    }
    let tcp = match settings.tcp {
        None => None,
        Some(at) if settings.tls.is_none() => {
            return Err(ListenError::PlainText { at: at.to_string() });
        }
        Some(at) => {
            let bound = TcpListener::bind(at).await;
            Some(bound.map_err(|source| ListenError::Bind { at: at.to_string(), source })?)
        }
    };
    let unix = settings.unix.as_deref().map(bind_unix).transpose()?;
    Ok(Listeners { tcp, unix })
}

fn bind_unix(path: &Path) -> Result<(UnixListener, SocketFile), ListenError> {
    let failed = |source| ListenError::Bind { at: path.display().to_string(), source };
    // The file of a killed server stays: it is replaced only if nobody answers.
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(ListenError::SocketInUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)?;
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let file = SocketFile(path.to_owned());
    let rights = std::fs::Permissions::from_mode(SOCKET_MODE);
    std::fs::set_permissions(path, rights).map_err(failed)?;
    Ok((listener, file))
}

/// The peer of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    who: PeerIdentity,
    /// Where it is.
    pub place: PeerPlace,
    /// The flow that calls without an identity are charged to.
    pub flow: CallerFlow,
    /// Permits for its calls.
    pub call_slots: CallSlots,
}

/// Where the other end of a connection is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PeerPlace {
    Address(SocketAddr),
    /// On this host.
    Process {
        uid: u32,
        /// `None` where the kernel does not know it: the peer is in another namespace.
        pid: Option<i32>,
    },
}

impl fmt::Display for PeerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(at) => SocketAddr::new(at.ip().to_canonical(), at.port()).fmt(f),
            Self::Process { uid, pid: Some(pid) } => write!(f, "uid {uid}, process {pid}"),
            Self::Process { uid, pid: None } => write!(f, "uid {uid}"),
        }
    }
}

/// Source of the identity of callers on a connection.
#[derive(Debug, Clone)]
enum PeerIdentity {
    Certificate(Result<CallerIdentity, NoIdentity>),
    /// The user that opened the socket, who may choose among the identities that it has.
    User(Arc<UnixUser>),
}

impl Peer {
    /// The identity of a request.
    pub fn identity(&self, headers: &http::HeaderMap) -> Result<CallerIdentity, NoIdentity> {
        match &self.who {
            PeerIdentity::Certificate(found) => found.clone(),
            PeerIdentity::User(user) => user.identity(headers),
        }
    }

    /// Whether an identity of this connection is proven: by the certificate, or by a user to whom the settings give exactly
    /// this one. Otherwise the program that connected has stated it.
    pub fn proves(&self, identity: &CallerIdentity) -> bool {
        match &self.who {
            PeerIdentity::Certificate(_) => true,
            PeerIdentity::User(user) => user.is_named(identity),
        }
    }
}

#[derive(Debug)]
enum Io {
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// A connection of either kind, with its place.
#[derive(Debug)]
pub(crate) struct Connection {
    io: Io,
    pieces: FairReader,
    peer: Peer,
    /// Notified when its certificate is no longer valid.
    cut: Option<oneshot::Receiver<()>>,
    _place: Permit,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

macro_rules! on_io {
    ($self:ident, $io:ident => $call:expr) => {{
        let Connection { io, pieces, .. } = $self.get_mut();
        let done = match io {
            Io::Tls($io) => $call,
            Io::Unix($io) => $call,
        };
        if done.is_pending() {
            pieces.pause();
        }
        done
    }};
}

impl Connection {
    /// Fails once its certificate is no longer valid.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(cut) = &mut self.cut else { return Ok(()) };
        match Pin::new(cut).poll(cx) {
            Poll::Ready(Ok(())) => {
                let text = "the client's certificate is no longer valid";
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
            }
            // The server is stopping, which ends connections by itself.
            Poll::Ready(Err(_)) => {
                self.cut = None;
                Ok(())
            }
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The transport always reads, so this is where it learns that the connection ends.
        self.check(cx)?;
        let Self { io, pieces, .. } = self.get_mut();
        match io {
            Io::Tls(io) => pieces.read(Pin::new(io), cx, buf),
            Io::Unix(io) => pieces.read(Pin::new(io), cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_io!(self, io => Pin::new(io).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_io!(self, io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_io!(self, io => Pin::new(io).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_io!(self, io => Pin::new(io).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Tls(io) => io.is_write_vectored(),
            Io::Unix(io) => io.is_write_vectored(),
        }
    }
}

/// A connection after its TLS handshake, before its identity is known.
struct EstablishedConnection {
    place: Permit,
    at: SocketAddr,
    /// Flow of its address.
    flow: CallerFlow,
}

/// One listener of either kind.
pub(crate) enum Listener {
    Tcp(TcpListener, watch::Receiver<Arc<Credentials>>),
    /// With its file, removed with the listener.
    Unix(
        UnixListener,
        Arc<UnixPeers>,
        #[expect(dead_code, reason = "held to be dropped")] SocketFile,
    ),
}

/// A handshake under way.
struct Handshake {
    place: Permit,
    /// Dropped when it is aborted.
    _goes_on: oneshot::Sender<()>,
}

/// The handshakes under way of each address, by their number: the oldest first.
#[derive(Default)]
struct Handshakes {
    of: BTreeMap<CallerFlow, BTreeMap<u64, Handshake>>,
    next: u64,
}

impl Handshakes {
    /// Begins one, in a separate place or in that of the oldest one of this address. Returns its
    /// number, and a receiver that is notified when it is aborted.
    fn begin(
        &mut self,
        places: &PermitPool,
        flow: &CallerFlow,
    ) -> Result<(u64, oneshot::Receiver<()>), ApiError> {
        let entered = places.enter(CallerLevel::Arriving, flow.clone());
        let all = self.of.entry(flow.clone()).or_default();
        let place = match entered {
            Ok(place) => place,
            Err(over) => match all.pop_first() {
                Some((_, oldest)) => oldest.place,
                None => {
                    self.of.remove(flow);
                    return Err(over);
                }
            },
        };
        let (goes_on, given_up) = oneshot::channel();
        self.next += 1;
        all.insert(self.next, Handshake { place, _goes_on: goes_on });
        Ok((self.next, given_up))
    }

    /// Ends one. Returns its place, unless it was aborted.
    fn end(&mut self, flow: &CallerFlow, number: u64) -> Option<Permit> {
        let all = self.of.get_mut(flow)?;
        let ended = all.remove(&number);
        if all.is_empty() {
            self.of.remove(flow);
        }
        ended.map(|handshake| handshake.place)
    }
}

/// Parts that all connections need.
#[derive(Clone)]
pub(crate) struct ConnectionContext {
    places: PermitPool,
    handshakes: Arc<Mutex<Handshakes>>,
    rejections: Arc<Rejections>,
    limits: Arc<Limits>,
    domain: TrustDomain,
    /// Steps of the runtime's threads that reading connections take.
    steps: FairScheduler,
}

type Accepted = mpsc::Sender<io::Result<Connection>>;

/// A connection that has not been identified.
enum Raw {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<Raw> {
        match self {
            Self::Tcp(listener, _) => {
                let (stream, address) = listener.accept().await?;
                // A reply is one small write that must not wait for another.
                stream.set_nodelay(true)?;
                Ok(Raw::Tcp(stream, address))
            }
            Self::Unix(listener, ..) => Ok(Raw::Unix(listener.accept().await?.0)),
        }
    }
}

impl ConnectionContext {
    pub fn new(
        settings: &FrontSettings,
        steps: FairScheduler,
        rejections: Arc<Rejections>,
    ) -> Self {
        let limits = &settings.limits;
        let places =
            PermitPool::connections(limits.connections_max, limits.connections_per_caller_max);
        let domain = settings.trust_domain.clone();
        let handshakes = Arc::default();
        Self { places, handshakes, rejections, limits: Arc::new(limits.clone()), domain, steps }
    }

    /// Accepts connections until the stream is dropped. One over its share is closed at once, so that the
    /// client sees an error instead of a hang; a failed accept (too many open files) is retried.
    pub fn accept(self, listener: Listener) -> ReceiverStream<io::Result<Connection>> {
        let (accepted, stream) = mpsc::channel(ACCEPTED_MAX);
        tokio::spawn(async move {
            loop {
                let raw = tokio::select! {
                    () = accepted.closed() => return,
                    raw = listener.accept() => raw,
                };
                match raw {
                    Ok(raw) => self.arrive(raw, &listener, &accepted),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                }
            }
        });
        ReceiverStream::new(stream)
    }

    fn arrive(&self, raw: Raw, listener: &Listener, accepted: &Accepted) {
        let (arrivals, accepted) = (self.clone(), accepted.clone());
        match (raw, listener) {
            (Raw::Tcp(io, address), Listener::Tcp(_, credentials)) => {
                let flow = CallerFlow::from(address.ip());
                let begun = self.handshakes.lock().begin(&self.places, &flow);
                let (number, given_up) = match begun {
                    Ok(begun) => begun,
                    Err(over) => return self.reject(address, Reason::TooMany, over.message()),
                };
                let credentials = credentials.clone();
                tokio::spawn(async move {
                    let acceptor = TlsAcceptor::from(Arc::clone(&credentials.borrow().api));
                    let ended = tokio::select! {
                        _ = given_up => {
                            let detail = "aborted in favour of a newer connection of its address";
                            return arrivals.reject(address, Reason::TooMany, detail);
                        }
                        ended = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(io)) => ended,
                    };
                    let place = arrivals.handshakes.lock().end(&flow, number);
                    match (ended, place) {
                        (Ok(Ok(io)), Some(place)) => {
                            let arrived = EstablishedConnection { place, at: address, flow };
                            arrivals.over_tls(io, arrived, credentials, accepted).await;
                        }
                        // It was aborted at the moment at which it ended.
                        (Ok(Ok(_)), None) => {}
                        // TLS has sent the peer an alert, which says less than the log.
                        (Ok(Err(error)), _) => {
                            arrivals.rejections.failed(address, &error, Instant::now());
                        }
                        (Err(_), _) => {
                            let detail = format!("no TLS handshake within {HANDSHAKE_MAX:?}");
                            arrivals.reject(address, Reason::Timeout, &detail);
                        }
                    }
                });
            }
            (Raw::Unix(io), Listener::Unix(_, peers, _)) => {
                let peers = Arc::clone(peers);
                tokio::spawn(async move { arrivals.over_unix(io, &peers, accepted).await });
            }
            _ => {}
        }
    }

    fn reject(&self, peer: SocketAddr, reason: Reason, detail: &str) {
        self.rejections.rejected(peer, reason, detail, Instant::now());
    }

    async fn over_tls(
        self,
        io: TlsStream<TcpStream>,
        EstablishedConnection { place, at, flow: address }: EstablishedConnection,
        credentials: watch::Receiver<Arc<Credentials>>,
        accepted: Accepted,
    ) {
        let certificates = io.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let found = match certificates.first() {
            Some(own) => identity::of_certificate(own, &self.domain),
            None => Err(NoIdentity::NoCertificate(self.domain.clone())),
        };
        if let (Err(why), false) = (&found, certificates.is_empty()) {
            // Its calls are refused one by one, for health checks need no identity.
            self.reject(at, Reason::NoIdentity, &why.to_string());
        }
        let (level, flow) = match &found {
            Ok(identity) => (CallerLevel::of_identity(identity), CallerFlow::from(identity)),
            Err(_) => (CallerLevel::Unidentified, address),
        };
        let place = match place.change(level, flow.clone()) {
            Ok(place) => place,
            Err(over) => return self.reject(at, Reason::TooMany, over.message()),
        };
        let pieces = FairReader::new(self.steps.stepper(level, flow.clone()));
        let cut = (!certificates.is_empty()).then(|| watch_certificate(certificates, credentials));
        let peer = Peer {
            who: PeerIdentity::Certificate(found),
            place: PeerPlace::Address(at),
            flow,
            call_slots: call_slots(&self.limits),
        };
        let connection = Connection { pieces, io: Io::Tls(Box::new(io)), peer, cut, _place: place };
        // If the server is stopping, nobody serves the connection.
        let _ = accepted.send(Ok(connection)).await;
    }

    async fn over_unix(self, io: UnixStream, peers: &UnixPeers, accepted: Accepted) {
        let (user, pid) = match io.peer_cred() {
            // A process of another namespace has none here, or zero.
            Ok(found) => (peers.user(found.uid()), found.pid().filter(|pid| *pid > 0)),
            Err(error) => {
                tracing::warn!(%error, "the kernel does not tell a socket's peer");
                return;
            }
        };
        let level =
            user.default_identity().map_or(CallerLevel::Unidentified, CallerLevel::of_identity);
        let flow = CallerFlow::User(user.uid());
        let place = match self.places.enter(level, flow.clone()) {
            Ok(place) => place,
            Err(over) => {
                tracing::debug!(?flow, ?over, "connection closed");
                return;
            }
        };
        let pieces = FairReader::new(self.steps.stepper(level, flow.clone()));
        let peer = Peer {
            place: PeerPlace::Process { uid: user.uid(), pid },
            who: PeerIdentity::User(Arc::new(user)),
            flow,
            call_slots: call_slots(&self.limits),
        };
        let connection = Connection { pieces, io: Io::Unix(io), peer, cut: None, _place: place };
        // If the server is stopping, nobody serves the connection.
        let _ = accepted.send(Ok(connection)).await;
    }
}

/// Notifies when the certificates of a connection are no longer valid: expired, or rejected by
/// those that were loaded since. Ends with the connection.
fn watch_certificate(
    certificates: Vec<CertificateDer<'static>>,
    mut credentials: watch::Receiver<Arc<Credentials>>,
) -> oneshot::Receiver<()> {
    let (mut cut, told) = oneshot::channel();
    tokio::spawn(async move {
        let own = certificates.first();
        let end = own.and_then(|own| identity::end_of_certificate(own));
        loop {
            tokio::select! {
                () = cut.closed() => return,
                () = tokio::time::sleep(CERTIFICATE_CHECK) => {
                    if end.is_none_or(|end| end >= std::time::SystemTime::now()) {
                        continue;
                    }
                }
                changed = credentials.changed() => if changed.is_err() {
                    return;
                }
            }
            let current = Arc::clone(&credentials.borrow_and_update());
            if !current.accept(&certificates) {
                // The connection may have ended just now.
                let _ = cut.send(());
                return;
            }
        }
    });
    told
}
