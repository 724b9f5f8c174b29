//! Listeners, and what the server knows about a connection.
//!
//! In plain text the caller's identity is a header that anybody can write. It is therefore allowed only
//! where every peer is trusted anyway, on loopback addresses and Unix sockets, and only if the settings
//! say so.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use snic_controller::Caller;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::CertificateDer;
use tonic::transport::server::{Connected, TlsConnectInfo};

use crate::gate::{CallSlots, call_slots};
use crate::identity::NoIdentity;
use crate::settings::{Limits, ServerSettings};

/// Accepted connections that wait to be served: few are enough, as the kernel queues more.
const ACCEPTED_MAX: usize = 16;
/// Permissions of a Unix socket: owner only.
const SOCKET_MODE: u32 = 0o600;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The settings name no address.
    #[error("no listener configured; set a TCP address or a Unix socket")]
    Nowhere,
    /// Plain text without the flag.
    #[error(
        "{at} would be served in plain text; configure certificates, or allow plain text explicitly"
    )]
    PlainText {
        /// The address or socket.
        at: String,
    },
    /// Plain text where other machines can reach it.
    #[error(
        "{at} is not a loopback address: plain text is allowed only on loopback and Unix sockets; \
         configure certificates"
    )]
    NotLoopback {
        /// The address.
        at: SocketAddr,
    },
    /// Another server uses the socket.
    #[error("the socket {} is in use by another server", .path.display())]
    SocketInUse {
        /// The socket.
        path: PathBuf,
    },
    /// The address cannot be bound.
    #[error("cannot listen on {at}")]
    Bind {
        /// The address or socket.
        at: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Refuses settings that would serve in plain text where that is not allowed.
pub(crate) fn check(settings: &ServerSettings) -> Result<(), ListenError> {
    if settings.tcp.is_none() && settings.unix.is_none() {
        return Err(ListenError::Nowhere);
    }
    if let Some(at) = settings.tcp.filter(|_| settings.tls.is_none()) {
        if !settings.plain_text {
            return Err(ListenError::PlainText { at: at.to_string() });
        }
        if !at.ip().is_loopback() {
            return Err(ListenError::NotLoopback { at });
        }
    }
    match &settings.unix {
        Some(path) if !settings.plain_text => {
            Err(ListenError::PlainText { at: path.display().to_string() })
        }
        _ => Ok(()),
    }
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

pub(crate) async fn bind(settings: &ServerSettings) -> Result<Listeners, ListenError> {
    check(settings)?;
    let tcp = match settings.tcp {
        None => None,
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

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Whether a header may state its identity.
    pub plain_text: bool,
    /// Permits for its calls.
    pub call_slots: CallSlots,
    /// The identity in its certificate, once parsed.
    pub identity: Arc<OnceLock<Result<Caller, NoIdentity>>>,
}

/// The client's certificates, its own first; empty if it sent none.
pub(crate) type Certificates = Arc<Vec<CertificateDer<'static>>>;

/// The peer of a request; `None` for the certificates means plain text.
pub(crate) fn peer_of(extensions: &http::Extensions) -> Option<(&Peer, Option<Certificates>)> {
    if let Some(info) = extensions.get::<TlsConnectInfo<Peer>>() {
        return Some((info.get_ref(), info.peer_certs()));
    }
    extensions.get::<Peer>().map(|peer| (peer, None))
}

#[derive(Debug)]
enum Io {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection of either kind, with its permit.
#[derive(Debug)]
pub(crate) struct Connection {
    io: Io,
    peer: Peer,
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

macro_rules! on_io {
    ($self:ident, $io:ident => $call:expr) => {
        match &mut $self.get_mut().io {
            Io::Tcp($io) => $call,
            Io::Unix($io) => $call,
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_io!(self, io => Pin::new(io).poll_read(cx, buf))
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
        true
    }
}

/// Accepts connections until the stream is dropped. Connections over the limit are closed at once, so
/// that the client sees an error instead of a hang; a failed accept (too many open files) is retried.
pub(crate) fn accept(
    listener: Listener,
    plain_text: bool,
    places: Arc<Semaphore>,
    limits: &Limits,
) -> ReceiverStream<io::Result<Connection>> {
    let (accepted, stream) = mpsc::channel(ACCEPTED_MAX);
    let limits = limits.clone();
    tokio::spawn(async move {
        loop {
            let io = tokio::select! {
                () = accepted.closed() => return,
                io = listener.accept() => io,
            };
            let io = match io {
                Ok(io) => io,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                tracing::warn!(
                    limit = limits.connections_max,
                    "connection closed: too many connections"
                );
                continue;
            };
            let peer =
                Peer { plain_text, call_slots: call_slots(&limits), identity: Arc::default() };
            if accepted.send(Ok(Connection { io, peer, _place: place })).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(stream)
}

/// One listener of either kind.
pub(crate) enum Listener {
    Tcp(TcpListener),
    /// With its file, removed with the listener.
    Unix(UnixListener, #[expect(dead_code, reason = "held only to be dropped")] SocketFile),
}

impl Listener {
    async fn accept(&self) -> io::Result<Io> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // A reply is one small write that must not wait for another.
                stream.set_nodelay(true)?;
                Ok(Io::Tcp(stream))
            }
            Self::Unix(listener, _) => Ok(Io::Unix(listener.accept().await?.0)),
        }
    }
}
