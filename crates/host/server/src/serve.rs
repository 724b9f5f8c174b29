//! Binding, serving, stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use snic_api::v1;
use snic_api::{ERROR_DETAILS_DESCRIPTOR_SET, FILE_DESCRIPTOR_SET};
use snic_front::access::CONTROL;
use snic_front::call_counts::CallCounts;
use snic_front::page::operators_only;
use snic_front::settings::{FrontSettings, Limits};
use snic_front::uploads::CHUNK_BYTES_MAX;
use snic_front::{Front, ListenError, ServeError, TlsReloader, watch_health};
use snic_web::PageLimits;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

use crate::hub::{Hub, RetainedChanges};
use crate::services::Services;
use crate::settings::{ServerSettings, WebSettings};
use crate::shell::ControlPlane;

/// Interval at which calls are counted: those of so long are lost with the daemon.
const CALLS_EVERY: Duration = Duration::from_secs(1);
/// Encoding overhead of an upload's chunk.
const CHUNK_OVERHEAD_BYTES: usize = 64;

/// A server with bound listeners: clients can connect, and wait until it serves.
#[derive(Debug)]
pub struct Bound {
    front: Front,
    settings: ServerSettings,
    web: Option<snic_web::Listening>,
}

/// Binds the listeners of the settings.
///
/// # Errors
/// [`ServeError::Listen`] where an address is taken or may not be served, [`ServeError::Tls`] where the
/// certificates cannot be used.
pub async fn bind(settings: ServerSettings) -> Result<Bound, ServeError> {
    let front = snic_front::bind(settings.front.clone()).await?;
    let web = settings.web.as_ref().map(|web| bind_page(web, &front)).transpose()?;
    Ok(Bound { front, settings, web })
}

fn bind_page(settings: &WebSettings, front: &Front) -> Result<snic_web::Listening, ServeError> {
    let access = match (&settings.plain_text, front.page_tls()) {
        (Some(key), _) => snic_web::PageAccess::Key(key.clone()),
        (None, Some(current)) => {
            let rejected = Arc::new(front.report_rejection());
            snic_web::PageAccess::Tls(snic_web::PageTls { current, rejected })
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

/// Methods whose replies the page for browsers shows: all of it is for those who may call all of these.
const PAGE_METHODS: [&str; 5] =
    ["ListCards", "ListRegions", "ListDags", "ListFairness", "ListEvents"];

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
        self.front.tcp_address()
    }

    /// The address of the page for browsers, with the assigned port.
    pub fn web_address(&self) -> Option<SocketAddr> {
        self.web.as_ref().and_then(snic_web::Listening::address)
    }

    /// Replaces the certificates while the server runs; `None` where it has none.
    pub fn tls_reloader(&self) -> Option<TlsReloader> {
        self.front.tls_reloader()
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
        let stopping = self.front.stopping();
        let Limits { changes_kept, changes_kept_total, .. } = self.settings.front.limits;
        let kept = RetainedChanges { each: changes_kept, total: changes_kept_total };
        let hub = Hub::start(&plane, kept).await;
        let hub = hub.map_err(|error| ServeError::Services(Box::new(error)))?;
        let services = Services::new(plane.clone(), hub, &self.settings, stopping.clone());
        let page = self.page(&services, &stopping);
        let (health, routes) = routes(services, &self.settings)?;
        self.settings.passed_calls.serve(routes.clone(), &self.settings.front);
        let checked = plane.clone();
        let watched = tokio::spawn(async move {
            watch_health(&SERVICES, || checked.answers(), health, stopping).await;
        });
        let counting = self.settings.front.calls.clone().unwrap_or_default();
        let counted = tokio::spawn(count_calls(plane.clone(), counting.clone()));
        let result = self.front.serve(routes, shutdown).await;
        counted.abort();
        plane.count_calls(counting.take(), true);
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
        let FrontSettings { limits, trust_domain, authorization, .. } = &self.settings.front;
        let limits = PageLimits {
            browsers_max: limits.browsers_max,
            connections_max: limits.connections_max,
            unread_max: limits.unread_max,
            age_max: limits.connection_age_max,
        };
        let (domain, authorization) = (trust_domain.clone(), authorization.clone());
        let authorize = operators_only(domain, authorization, CONTROL, &PAGE_METHODS);
        let (services, stopping) = (services.clone(), stopping.clone());
        Some(tokio::spawn(page.serve(services, Arc::new(authorize), limits, stopping)))
    }
}

/// Hands the numbers of admitted calls to the controller, once a second, which stores them with the next close of usage.
async fn count_calls(plane: ControlPlane, calls: CallCounts) {
    let mut ticks = tokio::time::interval(CALLS_EVERY);
    loop {
        ticks.tick().await;
        plane.count_calls(calls.take(), false);
    }
}

/// Names of the services, for health checks.
const SERVICES: [&str; 16] = [
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
    "snic.control.v1.UsageService",
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
    use v1::usage_service_server::UsageServiceServer;
    let most = settings.front.limits.message_bytes_max;
    let (health, mut routes) =
        snic_front::routes(&[FILE_DESCRIPTOR_SET, ERROR_DETAILS_DESCRIPTOR_SET])?;
    let uploads = BitstreamServiceServer::new(services.clone())
        .max_decoding_message_size(CHUNK_BYTES_MAX + CHUNK_OVERHEAD_BYTES);
    routes
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
        .add_service(TrafficServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(UsageServiceServer::new(services).max_decoding_message_size(most));
    Ok((health, routes.routes()))
}
