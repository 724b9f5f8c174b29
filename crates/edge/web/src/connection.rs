//! Browsers' connections: TLS, the client's certificate, and a timeout for browsers that do not read.
//!
//! HTTP/1.1 only: there a browser that does not read blocks its connection's writes, which is what the
//! timeout observes. A hidden page closes its stream, so that background tabs do not use up the few
//! connections that a browser makes to one server.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

use crate::{Admission, PageTls, Site, routes};

/// Time limit of a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Time limit for a request's head to arrive.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// Largest request head in bytes: far more than this page's cookie needs.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after a failed accept, such as with too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Accepts and serves until `stopping`.
pub(crate) async fn accept<S: Site>(
    listener: TcpListener,
    tls: Option<PageTls>,
    web: Arc<S>,
    mut stopping: watch::Receiver<bool>,
) {
    let limit = web.door().limits.connections_max;
    let permits = Arc::new(Semaphore::new(limit));
    loop {
        let accepted = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            accepted = listener.accept() => accepted,
        };
        let (io, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a browser's connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::warn!(limit, "browser connection closed: too many connections");
            continue;
        };
        let (tls, web, mut stopping) = (tls.clone(), Arc::clone(&web), stopping.clone());
        tokio::spawn(async move {
            tokio::select! {
                // The page only reads, so nothing needs to be finished.
                _ = stopping.wait_for(|stopping| *stopping) => {}
                () = tokio::time::sleep(web.door().limits.age_max) => {}
                result = serve(io, tls.map(|tls| (tls, peer)), &web) => if let Err(error) = result {
                    tracing::info!(error = &*error, "browser connection ended");
                }
            }
            drop(permit);
        });
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn serve<S: Site>(
    io: TcpStream,
    tls: Option<(PageTls, SocketAddr)>,
    web: &Arc<S>,
) -> Result<(), ConnectionError> {
    io.set_nodelay(true)?;
    let io = WriteTimeout::new(io, web.door().limits.unread_max);
    let Some((tls, peer)) = tls else {
        // The page's key decides.
        return http(io, web, Ok(String::new())).await;
    };
    let acceptor = TlsAcceptor::from((tls.current)());
    let io = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(io)).await?;
    let io = match io {
        Ok(io) => io,
        Err(error) => {
            (tls.rejected)(peer, &error);
            return Ok(());
        }
    };
    let certificates = io.get_ref().1.peer_certificates();
    let own = certificates.and_then(|all| all.first()).map(|own| own.as_ref());
    let admission = (web.door().authorize)(own);
    http(io, web, admission).await
}

async fn http<S: Site, T>(io: T, web: &Arc<S>, admission: Admission) -> Result<(), ConnectionError>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = TowerToHyperService::new(routes::router(web, admission));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX);
    Ok(server.serve_connection(TokioIo::new(io), service).await?)
}

/// A connection whose writes fail after waiting too long for the reader.
struct WriteTimeout<T> {
    io: T,
    limit: Duration,
    /// When the pending write fails.
    until: Option<Pin<Box<Sleep>>>,
}

impl<T> WriteTimeout<T> {
    const fn new(io: T, limit: Duration) -> Self {
        Self { io, limit, until: None }
    }

    /// The result of a write, or an error where it has waited for too long.
    fn waited<R>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if result.is_ready() {
            self.until = None;
            return result;
        }
        let limit = self.limit;
        let until = self
            .until
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        ready!(until.as_mut().poll(cx));
        let text = format!("the browser has read nothing for {limit:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write(cx, buf);
        self.waited(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_flush(cx);
        self.waited(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_shutdown(cx);
        self.waited(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_write_times_out_only_if_nobody_reads() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = WriteTimeout::new(near, LIMIT);
        near.write_all(b"four").await.expect("there is room");
        let began = Instant::now();
        let error = near.write_all(b"more").await.expect_err("nobody reads");
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, LIMIT));
        // A slow reader keeps its connection.
        let reader = tokio::spawn(async move {
            let mut four = [0; 4];
            for _ in 0..4 {
                tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
                far.read_exact(&mut four).await.expect("it is written");
            }
        });
        near.until = None;
        for _ in 0..3 {
            near.write_all(b"more").await.expect("it is read in time");
        }
        reader.await.expect("no panic");
    }
}
