//! Connections of browsers: TLS, who is there, and an end for those that do not read.
//!
//! HTTP/1.1 only: there a browser that does not read holds its connection's writes, and that is what
//! is watched. A page that nobody sees closes its stream, so that the few connections that browsers
//! make to one server are not used up by tabs.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use snic_controller::Caller;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

use super::{Web, Who, routes};
use crate::identity::{self, NoIdentity};
use crate::serve::{HANDSHAKE_MAX, ServeError};
use crate::settings::TlsSettings;

/// How long a request's head may take to arrive.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// Bytes of a request's head: nobody has longer cookies here.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after connections could not be accepted, for want of files.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes the same certificates as the services: one that comes is verified, and who comes without
/// is told what is needed.
pub(super) fn tls(tls: &TlsSettings) -> Result<Arc<rustls::ServerConfig>, ServeError> {
    let wrong = |error: &dyn std::error::Error| ServeError::WebTls(error.to_string());
    let read = |pem: &str| {
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
        certificates.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(&error))
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in read(&tls.client_authority)? {
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated();
    let verifier = verifier.build().map_err(|error| wrong(&error))?;
    let key = PrivateKeyDer::from_pem_slice(tls.key.as_bytes()).map_err(|error| wrong(&error))?;
    let mut config = rustls::ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(read(&tls.certificate)?, key)
        .map_err(|error| wrong(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Accepts and serves until `stopping`.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    web: Arc<Web>,
    limit: usize,
    mut stopping: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(limit));
    loop {
        let accepted = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            accepted = listener.accept() => accepted,
        };
        let io = match accepted {
            Ok((io, _)) => io,
            Err(error) => {
                tracing::warn!(%error, "a browser could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(limit, "a browser's connection over the limit");
            continue;
        };
        let (tls, web, mut stopping) = (tls.clone(), Arc::clone(&web), stopping.clone());
        tokio::spawn(async move {
            tokio::select! {
                // It only reads: there is nothing to be finished.
                _ = stopping.wait_for(|stopping| *stopping) => {}
                result = serve(io, tls, &web) => if let Err(error) = result {
                    tracing::info!(error = &*error, "a browser's connection ended");
                }
            }
            drop(place);
        });
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

async fn serve(io: TcpStream, tls: Option<TlsAcceptor>, web: &Arc<Web>) -> Result<(), Failed> {
    io.set_nodelay(true)?;
    let io = Patient::new(io, web.unread_max);
    let Some(tls) = tls else {
        return http(io, web, Ok(Caller::Operator("web-page".into()))).await;
    };
    let io = tokio::time::timeout(HANDSHAKE_MAX, tls.accept(io)).await??;
    let who = match io.get_ref().1.peer_certificates() {
        Some([own, ..]) => identity::of_certificate(own, &web.domain),
        _ => Err(NoIdentity::NoCertificate(web.domain.clone())),
    };
    http(io, web, who).await
}

async fn http<T>(io: T, web: &Arc<Web>, who: Who) -> Result<(), Failed>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = TowerToHyperService::new(routes::router(web, who));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX);
    Ok(server.serve_connection(TokioIo::new(io), service).await?)
}

/// A connection that fails where what is written is not taken for too long.
struct Patient<T> {
    io: T,
    patience: Duration,
    /// Until when the write that waits may wait.
    until: Option<Pin<Box<Sleep>>>,
}

impl<T> Patient<T> {
    const fn new(io: T, patience: Duration) -> Self {
        Self { io, patience, until: None }
    }

    /// What a write came to; an error where it has waited for too long.
    fn waited<R>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if result.is_ready() {
            self.until = None;
            return result;
        }
        let patience = self.patience;
        let until = self
            .until
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        ready!(until.as_mut().poll(cx));
        let text = format!("it has read nothing for {patience:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
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

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_is_waited_for_and_then_given_up() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Patient::new(near, PATIENCE);
        near.write_all(b"four").await.expect("there is room");
        let began = Instant::now();
        let error = near.write_all(b"more").await.expect_err("nobody reads");
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
        // Who reads now and then may go on.
        let reader = tokio::spawn(async move {
            let mut four = [0; 4];
            for _ in 0..4 {
                tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
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
