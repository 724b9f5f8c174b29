//! Binding, serving, stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use snic_api::v1;
use snic_api::{ERROR_DETAILS_DESCRIPTOR_SET, FILE_DESCRIPTOR_SET};
use snic_controller::Caller;
use snic_web::{Authorize, PageLimits};
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::access;
use crate::authorization::{Authorization, NamedResource, decide_all};
use crate::gate::Gate;
use crate::hub::{Hub, Kept};
use crate::identity::{self, TrustDomain};
use crate::listen::{self, Arrivals, ListenError, Listener, Listeners};
use crate::services::{CHUNK_BYTES_MAX, Services};
use crate::settings::{Limits, ServerSettings, WebSettings};
use crate::shell::{ControlPlane, ShellError};
use crate::tls::{Credentials, InvalidTls, TlsReloader};

/// Interval of health checks of the control plane.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);
/// Encoding overhead of an upload's chunk.
const CHUNK_OVERHEAD_BYTES: usize = 64;

/// Why the server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Listening failed.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Certificates, key or revocation lists are invalid.
    #[error(transparent)]
    Tls(#[from] InvalidTls),
    /// The API's descriptors are invalid.
    #[error("the API's descriptors are invalid")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The control plane does not answer.
    #[error(transparent)]
    Plane(#[from] ShellError),
    /// The transport failed.
    #[error("the transport failed")]
    Transport(#[source] tonic::transport::Error),
}

/// A server with bound listeners: clients can connect, and wait until it serves.
#[derive(Debug)]
pub struct Bound {
    settings: ServerSettings,
    listeners: Listeners,
    tls: Option<watch::Sender<Arc<Credentials>>>,
    web: Option<snic_web::Listening>,
}

/// Binds the listeners of the settings.
///
/// # Errors
/// [`ListenError`] where an address is taken or may not be served, [`ServeError::Tls`] where the
/// certificates cannot be used.
pub async fn bind(settings: ServerSettings) -> Result<Bound, ServeError> {
    // The only linked provider; another part of the program may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = settings.tls.as_ref().map(Credentials::new).transpose()?;
    let tls = tls.map(|credentials| watch::Sender::new(Arc::new(credentials)));
    let listeners = listen::bind(&settings).await?;
    let web = settings.web.as_ref().map(|web| bind_page(web, tls.as_ref())).transpose()?;
    Ok(Bound { settings, listeners, tls, web })
}

fn bind_page(
    settings: &WebSettings,
    tls: Option<&watch::Sender<Arc<Credentials>>>,
) -> Result<snic_web::Listening, ServeError> {
    let access = match (&settings.plain_text, tls) {
        (Some(key), _) => snic_web::PageAccess::Key(key.clone()),
        (None, Some(tls)) => {
            let tls = tls.subscribe();
            let current = move || Arc::clone(&tls.borrow().page);
            snic_web::PageAccess::Tls(Arc::new(current))
        }
        (None, None) => {
            let at = settings.address.to_string();
            return Err(ListenError::PlainText { at }.into());
        }
    };
    let bound = snic_web::bind(settings.address, access);
    bound.map_err(|error| match error {
        snic_web::BindError::PlainText(at) => ListenError::PlainText { at: at.to_string() }.into(),
        snic_web::BindError::NotLoopback(at) => ListenError::NotLoopback { at }.into(),
        snic_web::BindError::Listen { at, source } => {
            ListenError::Bind { at: at.to_string(), source }.into()
        }
    })
}

/// What the page for browsers shows: all of it is for those who may read all of this.
const PAGE_METHODS: [&str; 5] =
    ["ListCards", "ListRegions", "ListDags", "ListFairness", "ListEvents"];

/// Admits browsers whose certificate is an operator's who may read everything.
fn operators_only(domain: TrustDomain, authorization: Authorization) -> Authorize {
    let rows: Vec<_> = PAGE_METHODS.into_iter().filter_map(access::named).collect();
    Arc::new(move |certificate| {
        match certificate.map(|der| identity::of_certificate(der, &domain)) {
            Some(Ok(identity)) if matches!(identity.caller(), Caller::Operator(_)) => {
                let authorizer = authorization.current();
                let all = [NamedResource::everything()];
                let may = |row| decide_all(&*authorizer, &identity, row, &all, false).allowed;
                if rows.iter().all(|row| may(*row)) {
                    return Ok(());
                }
                Err("this page is for operators whom the authorization policies allow to read \
                     everything"
                    .to_owned())
            }
            Some(Ok(_)) => Err("this page is for operators".to_owned()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err(format!(
                "this page is for operators: import a client certificate for \
                 spiffe://{domain}/operator/<name> into the browser"
            )),
        }
    })
}

/// Binds, and serves until `shutdown`; see [`Bound::serve`].
///
/// # Errors
/// Those of [`bind`] and [`Bound::serve`].
pub async fn serve(
    plane: ControlPlane,
    settings: ServerSettings,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    bind(settings).await?.serve(plane, shutdown).await
}

impl Bound {
    /// The TCP address, with the assigned port.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.listeners.tcp.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// The address of the page for browsers, with the assigned port.
    pub fn web_address(&self) -> Option<SocketAddr> {
        self.web.as_ref().and_then(snic_web::Listening::address)
    }

    /// Replaces the certificates while the server runs; `None` where it has none.
    pub fn tls_reloader(&self) -> Option<TlsReloader> {
        self.tls.clone().map(TlsReloader)
    }

    /// Serves until `shutdown`; then ends streams, waits for running calls for the configured time, and
    /// returns.
    ///
    /// # Errors
    /// [`ServeError`] where the control plane has ended or the transport failed.
    pub async fn serve(
        mut self,
        plane: ControlPlane,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (stop, stopping) = watch::channel(false);
        let Limits { changes_kept, changes_kept_total, .. } = self.settings.limits;
        let kept = Kept { each: changes_kept, total: changes_kept_total };
        let hub = Hub::start(&plane, kept).await?;
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
        // If the server ended by itself, the task must still be stopped.
        stop.send_replace(true);
        // It ends by itself; a panic has printed its own message.
        let _ = watched.await;
        if let Some(page) = page {
            let _ = page.await;
        }
        result
    }

    /// Serves the page for browsers, if configured.
    fn page(
        &mut self,
        services: &Services,
        stopping: &watch::Receiver<bool>,
    ) -> Option<tokio::task::JoinHandle<()>> {
        let page = self.web.take()?;
        let limits = &self.settings.limits;
        let limits = PageLimits {
            browsers_max: limits.browsers_max,
            connections_max: limits.connections_max,
            unread_max: limits.unread_max,
            age_max: limits.connection_age_max,
        };
        let authorize =
            operators_only(self.settings.trust_domain.clone(), self.settings.authorization.clone());
        let (services, stopping) = (services.clone(), stopping.clone());
        Some(tokio::spawn(page.serve(services, authorize, limits, stopping)))
    }

    /// Serves on all listeners until `stopping`.
    fn run(
        self,
        routes: Routes,
        stopping: &watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), ServeError>> + use<> {
        let Self { settings, listeners, tls, .. } = self;
        let arrivals = Arrivals::new(&settings);
        let gate = Gate::new(&settings, stopping.clone());
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
            tokio::try_join!(tcp, unix)?;
            Ok(())
        }
    }
}

fn builder(settings: &ServerSettings) -> Server {
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

/// Names of the services, for health checks.
const SERVICES: [&str; 15] = [
    "",
    "snic.control.v1.AuditService",
    "snic.control.v1.AuthorizationService",
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
    "snic.control.v1.TrafficService",
];

fn routes(
    services: Services,
    settings: &ServerSettings,
) -> Result<(HealthReporter, Routes), ServeError> {
    use v1::audit_service_server::AuditServiceServer;
    use v1::authorization_service_server::AuthorizationServiceServer;
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
    use v1::traffic_service_server::TrafficServiceServer;
    let most = settings.limits.message_bytes_max;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(ERROR_DETAILS_DESCRIPTOR_SET)
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
        .add_service(
            AuthorizationServiceServer::new(services.clone()).max_decoding_message_size(most),
        )
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
        .add_service(TenantServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(TrafficServiceServer::new(services).max_decoding_message_size(most));
    Ok((health, routes.routes()))
}

/// Reports SERVING while the control plane answers and the server is not stopping.
async fn watch_health(
    plane: ControlPlane,
    health: HealthReporter,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let answers = plane.answers().await;
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
