//! Binding, serving, stopping.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::server::ServerConfig;
use snic_telemetry::metrics::RevocationReading;
use tokio::sync::watch;
use tonic::service::{Routes, RoutesBuilder};
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::gate::Gate;
use crate::handshakes::{self, Rejections};
use crate::listen::{self, ConnectionContext, ListenError, Listener, Listeners};
use crate::revocation::{RevocationReports, RevocationStatus};
use crate::settings::FrontSettings;
use crate::steps::FairScheduler;
use crate::tls::{Credentials, InvalidTls, TlsReloader};

/// Interval of health checks.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Certificates, key or revocation lists are invalid.
    #[error(transparent)]
    Tls(#[from] InvalidTls),
    /// The API's descriptors are invalid.
    #[error("the API's descriptors are invalid")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The part behind the services has ended.
    #[error(transparent)]
    Services(Box<dyn std::error::Error + Send + Sync>),
    /// The transport failed.
    #[error("the transport failed")]
    Transport(#[source] tonic::transport::Error),
}

/// Bound listeners: clients can connect, and wait until they are served.
#[derive(Debug)]
pub struct Front {
    settings: FrontSettings,
    listeners: Listeners,
    tls: Option<watch::Sender<Arc<Credentials>>>,
    rejections: Arc<Rejections>,
    stop: watch::Sender<bool>,
}

/// Binds the listeners of the settings.
///
/// # Errors
/// [`ListenError`] where an address is taken or may not be served, [`ServeError::Tls`] where the
/// certificates cannot be used.
pub async fn bind(settings: FrontSettings) -> Result<Front, ServeError> {
    // The only linked provider; another part of the program may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = settings.tls.as_ref().map(Credentials::new).transpose()?;
    let tls = tls.map(|credentials| watch::Sender::new(Arc::new(credentials)));
    let listeners = listen::bind(&settings).await?;
    let rejections = Arc::default();
    Ok(Front { settings, listeners, tls, rejections, stop: watch::Sender::new(false) })
}

impl Front {
    /// The TCP address, with the assigned port.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.listeners.tcp.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Replaces the certificates while the server runs; `None` where it has none.
    pub fn tls_reloader(&self) -> Option<TlsReloader> {
        self.tls.clone().map(TlsReloader)
    }

    /// TLS of HTTP/1.1 with the certificates in force, for a page beside the services; `None` where there are
    /// none.
    pub fn page_tls(&self) -> Option<Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>> {
        let tls = self.tls.as_ref()?.subscribe();
        Some(Arc::new(move || Arc::clone(&tls.borrow().page)))
    }

    /// Reports handshakes that failed at the page.
    pub fn report_rejection(&self) -> impl Fn(SocketAddr, &io::Error) + Send + Sync + use<> {
        let rejections = Arc::clone(&self.rejections);
        move |peer: SocketAddr, error: &io::Error| rejections.failed(peer, error, Instant::now())
    }

    /// Turns true once the server stops.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Serves until `shutdown`; then ends streams, waits for running calls for the configured time, and
    /// returns.
    ///
    /// # Errors
    /// [`ServeError::Transport`].
    pub async fn serve(
        self,
        routes: Routes,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (address, unix) = (self.tcp_address(), self.settings.unix.clone());
        tracing::info!(tcp = ?address, unix = ?unix, mutual_tls = self.tls.is_some(), "serving");
        let (grace, stop) = (self.settings.limits.grace, self.stop.clone());
        let result = run_until(self.run(routes), shutdown, &stop, grace).await;
        // If the server ended by itself, what follows it must still be stopped.
        stop.send_replace(true);
        result
    }

    /// Serves on all listeners until it is stopped.
    fn run(self, routes: Routes) -> impl Future<Output = Result<(), ServeError>> {
        let Self { settings, listeners, tls, rejections, stop } = self;
        let stopping = stop.subscribe();
        let steps =
            FairScheduler::of_threads(tokio::runtime::Handle::current().metrics().num_workers());
        let arrivals = ConnectionContext::new(&settings, steps.clone(), Arc::clone(&rejections));
        let reports = tls.as_ref().map(|tls| report_lists(tls.subscribe(), rejections));
        let gate = Gate::new(&settings, steps, stopping.clone());
        let tcp = listeners.tcp.zip(tls.as_ref());
        let tcp = tcp.map(|(listener, tls)| Listener::Tcp(listener, tls.subscribe()));
        let peers = Arc::new(settings.unix_peers.clone());
        let unix = listeners.unix.map(|(listener, file)| Listener::Unix(listener, peers, file));
        let servers = [tcp, unix].map(|listener| {
            let (gate, routes, arrivals) = (gate.clone(), routes.clone(), arrivals.clone());
            let (settings, mut stopping) = (settings.clone(), stopping.clone());
            async move {
                let Some(listener) = listener else { return Ok(()) };
                let stopped = async move {
                    // Without a sender the server has stopped.
                    let _ = stopping.wait_for(|stopping| *stopping).await;
                };
                let connections = arrivals.accept(listener);
                let router = builder(&settings).layer(gate).add_routes(routes);
                let served = router.serve_with_incoming_shutdown(connections, stopped).await;
                served.map_err(ServeError::Transport)
            }
        });
        let [tcp, unix] = servers;
        async move {
            // Connections follow it to notice that their certificates end.
            let _current = tls;
            let reports = async move {
                match reports {
                    Some(reports) => reports.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = reports => Ok(()),
                served = async { tokio::try_join!(tcp, unix) } => served.map(|_| ()),
            }
        }
    }
}

/// Keeps the metrics of the lists of revoked certificates up to date, and reports lists that are not current and rejected
/// handshakes without a line. Reports once before it returns its future, so that a start has its warnings.
fn report_lists(
    mut credentials: watch::Receiver<Arc<Credentials>>,
    rejections: Arc<Rejections>,
) -> impl Future<Output = ()> {
    let mut reports = RevocationReports::default();
    report(&credentials.borrow_and_update().lists, &mut reports);
    async move {
        loop {
            tokio::select! {
                changed = credentials.changed() => match changed {
                    Ok(()) => reports.forget(),
                    // The server keeps the sender until it has stopped.
                    Err(_) => return std::future::pending().await,
                },
                () = tokio::time::sleep(handshakes::WINDOW) => {}
            }
            report(&credentials.borrow_and_update().lists, &mut reports);
            rejections.report(Instant::now());
        }
    }
}

fn report(lists: &[RevocationStatus], reports: &mut RevocationReports) {
    snic_telemetry::metrics::set_revocation_lists(readings(lists));
    for problem in reports.due(lists, SystemTime::now()) {
        tracing::warn!("{problem}");
    }
}

fn readings(lists: &[RevocationStatus]) -> Vec<RevocationReading> {
    let reading = |list: &RevocationStatus| RevocationReading {
        issuer: list.issuer.clone(),
        this_update: list.this_update,
        next_update: list.next_update,
    };
    lists.iter().map(reading).collect()
}

fn builder(settings: &FrontSettings) -> Server {
    let limits = &settings.limits;
    // More streams than calls, so that an excess call is rejected instead of waiting in the client.
    let streams = u32::try_from(limits.calls_per_connection_max.saturating_mul(2));
    Server::builder()
        .max_concurrent_streams(streams.unwrap_or(u32::MAX))
        .http2_keepalive_interval(Some(limits.keep_alive))
        .http2_keepalive_timeout(Some(limits.keep_alive_timeout))
        .max_connection_age(limits.connection_age_max)
        .max_connection_age_grace(limits.grace)
}

/// Runs until the end, or until `shutdown` and the grace period after it.
async fn run_until(
    running: impl Future<Output = Result<(), ServeError>>,
    shutdown: impl Future<Output = ()>,
    stop: &watch::Sender<bool>,
    grace: Duration,
) -> Result<(), ServeError> {
    tokio::pin!(running);
    tokio::select! {
        result = &mut running => return result,
        () = shutdown => {}
    }
    tracing::info!("stopping: ending streams, waiting for running calls");
    stop.send_replace(true);
    match tokio::time::timeout(grace, running).await {
        Ok(result) => result,
        Err(_) => {
            tracing::warn!(?grace, "running calls were cut off");
            Ok(())
        }
    }
}

/// Routes with health and with reflection of these descriptor sets; the services are added by the server.
///
/// # Errors
/// [`ServeError::Reflection`].
pub fn routes(
    descriptors: &[&'static [u8]],
) -> Result<(HealthReporter, RoutesBuilder), ServeError> {
    let reflection = || {
        descriptors.iter().fold(
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET),
            |builder, set| builder.register_encoded_file_descriptor_set(set),
        )
    };
    let (health, health_server) = tonic_health::server::health_reporter();
    let mut routes = Routes::builder();
    routes
        .add_service(health_server)
        .add_service(reflection().build_v1().map_err(ServeError::Reflection)?)
        .add_service(reflection().build_v1alpha().map_err(ServeError::Reflection)?);
    Ok((health, routes))
}

/// Reports these services as SERVING while what stands behind them answers and the server is not stopping.
pub async fn watch_health<F: Future<Output = bool>>(
    services: &[&str],
    answers: impl Fn() -> F,
    health: HealthReporter,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let answers = answers().await;
        let stopped = *stopping.borrow_and_update();
        let status =
            if answers && !stopped { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in services {
            health.set_service_status(*service, status).await;
        }
        if stopped {
            return;
        }
        tokio::select! {
            changed = stopping.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(HEALTH_INTERVAL) => {}
        }
    }
}
