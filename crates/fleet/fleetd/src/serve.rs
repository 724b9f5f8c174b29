//! Starts a replica: its task, its services before its front.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use snic_api::fleet_v1::fleet_service_server::FleetServiceServer;
use snic_api::fleet_v1::host_link_service_server::HostLinkServiceServer;
use snic_api::fleet_v1::policy_service_server::PolicyServiceServer;
use snic_api::fleet_v1::project_service_server::ProjectServiceServer;
use snic_api::fleet_v1::replica_service_server::ReplicaServiceServer;
use snic_api::v1::bitstream_service_server::BitstreamServiceServer;
use snic_api::v1::classification_service_server::ClassificationServiceServer;
use snic_api::v1::dag_service_server::DagServiceServer;
use snic_api::v1::event_service_server::EventServiceServer;
use snic_api::v1::fairness_service_server::FairnessServiceServer;
use snic_api::v1::network_task_service_server::NetworkTaskServiceServer;
use snic_api::v1::operation_service_server::OperationServiceServer;
use snic_api::v1::orchestration_service_server::OrchestrationServiceServer;
use snic_api::v1::tenant_service_server::TenantServiceServer;
use snic_api::v1::usage_service_server::UsageServiceServer;
use snic_api::{ERROR_DETAILS_DESCRIPTOR_SET, FILE_DESCRIPTOR_SET, FLEET_DESCRIPTOR_SET};
use snic_fleet::call_ledger::CallAges;
use snic_front::page::operators_only;
use snic_front::settings::FrontSettings;
use snic_front::uploads::{CHUNK_BYTES_MAX, UploadCheck};
use snic_front::{Front, ListenError, ServeError, TlsReloader, watch_health};
use snic_store_etcd::{Blobs, EtcdConnection};
use snic_web::PageLimits;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::transport::ClientTlsConfig;
use tonic_health::server::HealthReporter;

use crate::METHODS;
use crate::asking::LeaderClient;
use crate::budget_looks;
use crate::budgets::{BudgetSettings, ReplicaPrices};
use crate::call_counting::CallCounting;
use crate::call_upkeep;
use crate::history::History;
use crate::links::HostLinks;
use crate::metrics::MetricsPage;
use crate::passing::RequestForwarder;
use crate::runner::{Leadership, Runner, RunnerHandle, RunnerSettings};
use crate::services::page::FleetPage;
use crate::services::{Parts, Services, not_here};
use crate::sweeper::{self, KeptImages};

/// Largest report of a host, and request of a replica.
const INNER_BYTES_MAX: usize = 4 << 20;
/// Encoding overhead of an upload's chunk.
const CHUNK_OVERHEAD_BYTES: usize = 64;

/// Settings of a replica.
#[derive(Debug)]
pub struct FleetServerSettings {
    /// Listeners, identities, limits, policies; its methods are [`crate::METHODS`].
    pub front: FrontSettings,
    /// The election, and the fleet.
    pub runner: RunnerSettings,
    /// The certificate that this replica shows as a client, and the authority that it trusts.
    pub peers: ClientTlsConfig,
    /// Where images are.
    pub images: Blobs,
    /// Time that images are kept that no bitstream names. At least some minutes: an image is stored before its bitstream
    /// is registered. Clocks of replicas and object store may differ by less than half of it.
    pub unnamed_images_kept: Duration,
    pub upload_check: UploadCheck,
    pub budgets: BudgetSettings,
    /// Ages up to which calls at replicas are kept, the same on all of them.
    pub call_ages: CallAges,
    /// Where the page for browsers is served, if it is.
    pub web: Option<SocketAddr>,
    /// Where metrics are served, if they are.
    pub metrics: Option<MetricsPage>,
}

/// A replica with bound listeners.
#[derive(Debug)]
pub struct FleetBound {
    front: Front,
    settings: FleetServerSettings,
    peers: watch::Sender<ClientTlsConfig>,
    web: Option<snic_web::Listening>,
}

/// Binds the listeners.
///
/// # Errors
/// As [`snic_front::bind`], also for the page.
pub async fn bind(mut settings: FleetServerSettings) -> Result<FleetBound, ServeError> {
    settings.front.calls.get_or_insert_default();
    let front = snic_front::bind(settings.front.clone()).await?;
    let peers = watch::Sender::new(settings.peers.clone());
    let web = settings.web.map(|at| bind_page(at, &front)).transpose()?;
    Ok(FleetBound { front, settings, peers, web })
}

fn bind_page(at: SocketAddr, front: &Front) -> Result<snic_web::Listening, ServeError> {
    let plain = || ListenError::PlainText { at: at.to_string() };
    let current = front.page_tls().ok_or_else(plain)?;
    let tls = snic_web::PageTls { current, rejected: Arc::new(front.report_rejection()) };
    let access = snic_web::PageAccess::Tls(tls);
    snic_web::bind(at, access).map_err(|error| match error {
        snic_web::BindError::Listen { at, source } => {
            ListenError::Bind { at: at.to_string(), source }.into()
        }
        // Not over TLS.
        snic_web::BindError::PlainText(_) | snic_web::BindError::NotLoopback(_) => plain().into(),
    })
}

/// Methods whose replies the page for browsers shows: all of it is for those who may call all of these.
const PAGE_METHODS: [&str; 9] = [
    "GetFleet",
    "GetRebalance",
    "ListHosts",
    "WatchHosts",
    "ListDags",
    "ListCards",
    "ListRegions",
    "ListFairness",
    "ListEvents",
];

impl FleetBound {
    /// The TCP address, with the assigned port.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.front.tcp_address()
    }

    /// The address of the page for browsers, with the assigned port.
    pub fn web_address(&self) -> Option<SocketAddr> {
        self.web.as_ref().and_then(snic_web::Listening::address)
    }

    /// Replaces the certificates while the replica runs.
    pub fn tls_reloader(&self) -> Option<TlsReloader> {
        self.front.tls_reloader()
    }

    /// Replaces what this replica shows other replicas as a client, and the authority that it trusts, while it runs: its
    /// next request to each of them is made over a new connection.
    pub fn peers_reloader(&self) -> watch::Sender<ClientTlsConfig> {
        self.peers.clone()
    }

    /// Serves until `shutdown`; then it gives up its election key, so that another replica leads at once, and waits for
    /// running calls.
    ///
    /// # Errors
    /// [`ServeError`].
    ///
    /// # Panics
    /// If the replica's task has: without it nothing is right.
    pub async fn serve(
        self,
        etcd: EtcdConnection,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let Self { front, settings, peers, web } = self;
        let links = Arc::new(HostLinks::default());
        let address = settings.runner.elections.address.clone();
        let history = Arc::new(History::default());
        let owned = (Arc::clone(&links), Arc::clone(&history));
        let (runner, handle) = Runner::new(settings.runner, etcd.clone(), owned);
        let stopping = front.stopping();
        let running = tokio::spawn(runner.run(stopping.clone()));
        let (images, kept) = (settings.images, settings.unnamed_images_kept);
        let images = Arc::new(KeptImages { images, kept });
        let sweeping =
            tokio::spawn(sweeper::run(Arc::clone(&images), handle.clone(), stopping.clone()));
        let calls = settings.front.calls.clone().unwrap_or_default();
        let counting = CallCounting::start(etcd.clone(), calls, &address);
        let call_ages = settings.call_ages;
        let upkeep = call_upkeep::run(etcd.clone(), call_ages, handle.clone(), stopping.clone());
        let upkeep = tokio::spawn(upkeep);
        let metrics =
            settings.metrics.map(|page| tokio::spawn(page.serve(handle.clone(), stopping.clone())));
        let parts = Parts {
            asking: LeaderClient::new(handle.clone(), peers.subscribe()),
            links,
            calls: Arc::default(),
            call_ages,
            images,
            prices: ReplicaPrices::new(settings.budgets.prices),
            upload_check: settings.upload_check,
            address,
            etcd,
            history,
            stopping: stopping.clone(),
        };
        let services = Services::new(parts, &settings.front.limits);
        let period = settings.budgets.period;
        let spending =
            budget_looks::run(services.clone(), period, handle.clone(), stopping.clone());
        let spending = tokio::spawn(spending);
        let passing =
            RequestForwarder::new(services.clone(), settings.front.limits.message_bytes_max);
        let source = FleetPage::new(services.clone());
        let page = web.map(|page| serve_page(page, source, &settings.front, stopping.clone()));
        let (health, routes) = routes(services, passing, settings.front.limits.message_bytes_max)?;
        let watched = tokio::spawn(async move {
            watch_health(&SERVICES, || knows_a_leader(&handle), health, stopping).await;
        });
        let served = front.serve(routes, shutdown);
        tokio::pin!(served);
        tokio::pin!(running);
        let result = tokio::select! {
            result = &mut served => {
                if let Err(error) = running.await && error.is_panic() {
                    std::panic::resume_unwind(error.into_panic());
                }
                result
            }
            ended = &mut running => {
                // It ends by itself only with the server, or by a panic.
                if let Err(error) = ended && error.is_panic() {
                    std::panic::resume_unwind(error.into_panic());
                }
                served.await
            }
        };
        // They end by themselves; a panic has printed its own message.
        for task in [watched, sweeping, spending, upkeep].into_iter().chain(page).chain(metrics) {
            let _ = task.await;
        }
        // No call is admitted any more.
        counting.end().await;
        result
    }
}

/// Serves the page for browsers.
fn serve_page(
    page: snic_web::Listening,
    source: FleetPage,
    front: &FrontSettings,
    stopping: watch::Receiver<bool>,
) -> tokio::task::JoinHandle<()> {
    let FrontSettings { limits, trust_domain, authorization, .. } = front;
    let (domain, authorization) = (trust_domain.clone(), authorization.clone());
    let authorize = operators_only(domain, authorization, METHODS, &PAGE_METHODS);
    let limits = PageLimits {
        browsers_max: limits.browsers_max,
        connections_max: limits.connections_max,
        unread_max: limits.unread_max,
        age_max: limits.connection_age_max,
    };
    tokio::spawn(page.serve_fleet(source, Arc::new(authorize), limits, stopping))
}

/// A replica is of use while somebody leads.
async fn knows_a_leader(handle: &RunnerHandle) -> bool {
    *handle.leadership().borrow() != Leadership::Nobody
}

/// Names of the services, for health checks.
const SERVICES: [&str; 16] = [
    "",
    "snic.control.v1.BitstreamService",
    "snic.control.v1.ClassificationService",
    "snic.control.v1.DagService",
    "snic.control.v1.EventService",
    "snic.control.v1.FairnessService",
    "snic.control.v1.NetworkTaskService",
    "snic.control.v1.OperationService",
    "snic.control.v1.OrchestrationService",
    "snic.control.v1.TenantService",
    "snic.control.v1.UsageService",
    "snic.fleet.v1.FleetService",
    "snic.fleet.v1.HostLinkService",
    "snic.fleet.v1.PolicyService",
    "snic.fleet.v1.ProjectService",
    "snic.fleet.v1.ReplicaService",
];

fn routes(
    services: Services,
    passing: RequestForwarder,
    most: usize,
) -> Result<(HealthReporter, Routes), ServeError> {
    let (health, mut routes) = snic_front::routes(&[
        FILE_DESCRIPTOR_SET,
        FLEET_DESCRIPTOR_SET,
        ERROR_DETAILS_DESCRIPTOR_SET,
    ])?;
    let uploads = BitstreamServiceServer::new(services.clone())
        .max_decoding_message_size(CHUNK_BYTES_MAX + CHUNK_OVERHEAD_BYTES);
    let links = HostLinkServiceServer::new(services.clone())
        .max_decoding_message_size(INNER_BYTES_MAX)
        .max_encoding_message_size(INNER_BYTES_MAX);
    let replicas = ReplicaServiceServer::new(services.clone())
        .max_decoding_message_size(INNER_BYTES_MAX)
        .max_encoding_message_size(2 * INNER_BYTES_MAX);
    routes
        .add_service(uploads)
        .add_service(links)
        .add_service(replicas)
        .add_service(
            ClassificationServiceServer::new(services.clone()).max_decoding_message_size(most),
        )
        .add_service(DagServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(EventServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(FairnessServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(
            OrchestrationServiceServer::new(services.clone()).max_decoding_message_size(most),
        )
        .add_service(
            NetworkTaskServiceServer::new(services.clone()).max_decoding_message_size(most),
        )
        .add_service(OperationServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(TenantServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(UsageServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(PolicyServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(ProjectServiceServer::new(services.clone()).max_decoding_message_size(most))
        .add_service(FleetServiceServer::new(services).max_decoding_message_size(most));
    let elsewhere = async |uri: Uri| not_here(uri.path()).into_http::<tonic::body::Body>();
    let router = routes.routes().into_axum_router().fallback(elsewhere);
    Ok((health, Routes::from(router.layer(passing))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_decide_about_all_that_the_page_shows() {
        for method in PAGE_METHODS {
            assert!(METHODS.named(method).is_some(), "{method}");
        }
    }
}
