//! Binding, serving, stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use snic_api::FILE_DESCRIPTOR_SET;
use snic_api::v1;
use tokio::sync::{Semaphore, watch};
use tonic::service::Routes;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::gate::Gate;
use crate::hub::Hub;
use crate::listen::{self, ListenError, Listener, Listeners};
use crate::services::{CHUNK_BYTES_MAX, Services};
use crate::settings::{ServerSettings, TlsSettings};
use crate::shell::{ControlPlane, ShellError};
use crate::web;

/// How long a TLS handshake may take.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How often the control plane is asked whether it still answers.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);
/// Around a chunk of an upload: tags and lengths of the message.
const CHUNK_OVERHEAD_BYTES: usize = 64;

/// Why the server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Certificates or key are not what they should be.
    #[error("the server's certificates or key cannot be used; all three are PEM files")]
    Tls(#[source] tonic::transport::Error),
    /// The same of the page for browsers.
    #[error("the page's certificates or key cannot be used: {0}; all three are PEM files")]
    WebTls(String),
    /// The API's descriptors cannot be served.
    #[error("the API's descriptors are damaged")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The control plane does not answer.
    #[error(transparent)]
    Plane(#[from] ShellError),
    /// The transport failed.
    #[error("the transport failed")]
    Transport(#[source] tonic::transport::Error),
}

/// A server whose listeners are bound; clients can connect and wait until it serves.
#[derive(Debug)]
pub struct Bound {
    settings: ServerSettings,
    listeners: Listeners,
    tls: Option<ServerTlsConfig>,
    web: Option<web::Listening>,
}

/// Binds the listeners of the settings.
///
/// # Errors
/// [`ListenError`] where an address is taken or may not be served, [`ServeError::Tls`] where the
/// certificates cannot be used.
pub async fn bind(settings: ServerSettings) -> Result<Bound, ServeError> {
    // The only provider that is linked; another part of the program may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = settings.tls.as_ref().map(tls_config);
    if let Some(tls) = &tls {
        // Only the builder reads the certificates: better now than at the first connection.
        Server::builder().tls_config(tls.clone()).map_err(ServeError::Tls)?;
    }
    let listeners = listen::bind(&settings).await?;
    let web = settings.web.as_ref().map(web::bind).transpose()?;
    Ok(Bound { settings, listeners, tls, web })
}

/// Clients may come without a certificate, so that health checks need none and others are told
/// what is expected; a certificate that comes is always verified.
fn tls_config(tls: &TlsSettings) -> ServerTlsConfig {
    ServerTlsConfig::new()
        .identity(Identity::from_pem(&tls.certificate, &tls.key))
        .client_ca_root(Certificate::from_pem(&tls.client_authority))
        .client_auth_optional(true)
        .timeout(HANDSHAKE_MAX)
}

/// Binds and serves until `shutdown`: see [`Bound::serve`].
pub async fn serve(
    plane: ControlPlane,
    settings: ServerSettings,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    bind(settings).await?.serve(plane, shutdown).await
}

impl Bound {
    /// The TCP address, with the port that was taken.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.listeners.tcp.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// The address of the page for browsers, with the port that was taken.
    pub fn web_address(&self) -> Option<SocketAddr> {
        self.web.as_ref().and_then(web::Listening::address)
    }

    /// Serves until `shutdown`, then ends streams, lets calls end for as long as the settings give
    /// them, and returns.
    pub async fn serve(
        mut self,
        plane: ControlPlane,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (stop, stopping) = watch::channel(false);
        let hub = Hub::start(&plane, self.settings.limits.changes_kept).await?;
        let services = Services::new(plane.clone(), hub, &self.settings, stopping.clone());
        let page = self.page(&services, &stopping);
        let (health, routes) = routes(services, &self.settings)?;
        let watched = tokio::spawn(watch_health(plane, health, stopping.clone()));
        let address = self.tcp_address();
        let unix = self.settings.unix.clone();
        tracing::info!(tcp = ?address, unix = ?unix, mutual_tls = self.tls.is_some(), "serving");
        let grace = self.settings.limits.grace;
        let running = self.run(routes, &stopping);
        let result = run_until(running, shutdown, &stop, grace).await;
        // Where the server ended by itself, the task still has to be told.
        stop.send_replace(true);
        // It ends by itself; that it panicked would have been logged.
        let _ = watched.await;
        if let Some(page) = page {
            let _ = page.await;
        }
        result
    }

    /// Serves the page for browsers, where the settings want one.
    fn page(
        &mut self,
        services: &Services,
        stopping: &watch::Receiver<bool>,
    ) -> Option<tokio::task::JoinHandle<()>> {
        let page = self.web.take()?;
        let (services, settings) = (services.clone(), self.settings.clone());
        let stopping = stopping.clone();
        Some(tokio::spawn(async move { page.serve(services, &settings, stopping).await }))
    }

    /// Serves on all listeners until `stopping`.
    fn run(
        self,
        routes: Routes,
        stopping: &watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), ServeError>> + use<> {
        let Self { settings, listeners, tls, .. } = self;
        let places = Arc::new(Semaphore::new(settings.limits.connections_max));
        let gate = Gate::new(&settings, stopping.clone());
        let plain_tcp = tls.is_none();
        let tcp = listeners.tcp.map(|listener| (Listener::Tcp(listener), tls, plain_tcp));
        let unix =
            listeners.unix.map(|(listener, file)| (Listener::Unix(listener, file), None, true));
        let servers = [tcp, unix].map(|listener| {
            let (gate, routes, places) = (gate.clone(), routes.clone(), Arc::clone(&places));
            let (settings, mut stopping) = (settings.clone(), stopping.clone());
            async move {
                let Some((listener, tls, plain_text)) = listener else { return Ok(()) };
                let mut server = builder(&settings);
                if let Some(tls) = tls {
                    server = server.tls_config(tls).map_err(ServeError::Tls)?;
                }
                let connections = listen::accept(listener, plain_text, places, &settings.limits);
                let stopped = async move {
                    // Where the sender is gone the server is too.
                    let _ = stopping.wait_for(|stopping| *stopping).await;
                };
                let router = server.layer(gate).add_routes(routes);
                let served = router.serve_with_incoming_shutdown(connections, stopped).await;
                served.map_err(ServeError::Transport)
            }
        });
        let [tcp, unix] = servers;
        async move {
            tokio::try_join!(tcp, unix)?;
            Ok(())
        }
    }
}

fn builder(settings: &ServerSettings) -> Server {
    let limits = &settings.limits;
    // More streams than calls, so that one too many is refused and does not wait in the client.
    let streams = u32::try_from(limits.calls_per_connection_max.saturating_mul(2));
    Server::builder()
        .max_concurrent_streams(streams.unwrap_or(u32::MAX))
        .http2_keepalive_interval(Some(limits.keep_alive))
        .http2_keepalive_timeout(Some(limits.keep_alive_timeout))
}

/// Runs until the end, or until `shutdown` and the grace after it.
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
    tracing::info!("stopping: streams are ended, calls under way may end");
    stop.send_replace(true);
    match tokio::time::timeout(grace, running).await {
        Ok(result) => result,
        Err(_) => {
            tracing::warn!(?grace, "calls that did not end in time are cut");
            Ok(())
        }
    }
}

/// The names of the services, for health.
const SERVICES: [&str; 13] = [
    "",
    "snic.control.v1.AuditService",
    "snic.control.v1.BitstreamService",
    "snic.control.v1.CardService",
    "snic.control.v1.ClassificationService",
    "snic.control.v1.DagService",
    "snic.control.v1.EventService",
    "snic.control.v1.FairnessService",
    "snic.control.v1.NetworkTaskService",
    "snic.control.v1.OperationService",
    "snic.control.v1.OrchestrationService",
    "snic.control.v1.SystemService",
    "snic.control.v1.TenantService",
];

fn routes(
    services: Services,
    settings: &ServerSettings,
) -> Result<(HealthReporter, Routes), ServeError> {
    use v1::audit_service_server::AuditServiceServer;
    use v1::bitstream_service_server::BitstreamServiceServer;
    use v1::card_service_server::CardServiceServer;
    use v1::classification_service_server::ClassificationServiceServer;
    use v1::dag_service_server::DagServiceServer;
    use v1::event_service_server::EventServiceServer;
    use v1::fairness_service_server::FairnessServiceServer;
    use v1::network_task_service_server::NetworkTaskServiceServer;
    use v1::operation_service_server::OperationServiceServer;
    use v1::orchestration_service_server::OrchestrationServiceServer;
    use v1::system_service_server::SystemServiceServer;
    use v1::tenant_service_server::TenantServiceServer;
    let most = settings.limits.message_bytes_max;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (health, health_server) = tonic_health::server::health_reporter();
    let uploads = BitstreamServiceServer::new(services.clone())
        .max_decoding_message_size(CHUNK_BYTES_MAX + CHUNK_OVERHEAD_BYTES);
    let mut routes = Routes::builder();
    routes
        .add_service(health_server)
        .add_service(reflection().build_v1().map_err(ServeError::Reflection)?)
        .add_service(reflection().build_v1alpha().map_err(ServeError::Reflection)?)
        .add_service(AuditServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(uploads)
        .add_service(CardServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(
            ClassificationServiceServer::new(services.clone()).max_decoding_message_size(most),
        )
        .add_service(DagServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(EventServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(FairnessServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(
            NetworkTaskServiceServer::new(services.clone()).max_decoding_message_size(most),
        )
        .add_service(OperationServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(
            OrchestrationServiceServer::new(services.clone()).max_decoding_message_size(most),
        )
        .add_service(SystemServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(TenantServiceServer::new(services).max_decoding_message_size(most));
    Ok((health, routes.routes()))
}

/// Serving while the control plane answers and nobody stops the server.
async fn watch_health(
    plane: ControlPlane,
    health: HealthReporter,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let answers = plane.read(|_| ()).await.is_ok();
        let stopped = *stopping.borrow_and_update();
        let status =
            if answers && !stopped { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in SERVICES {
            health.set_service_status(service, status).await;
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
