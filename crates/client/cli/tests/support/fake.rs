//! A server that answers what a test tells it to, and keeps what it was asked.
//!
//! It speaks through the generated services over a real socket, so that headers, deadlines, TLS and
//! the framing of streams are those of the real thing; only what stands behind them is a script.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use snic_api::fleet_v1::fleet_service_server::{FleetService, FleetServiceServer};
use snic_api::fleet_v1::policy_service_server::{PolicyService, PolicyServiceServer};
use snic_api::fleet_v1::project_service_server::{ProjectService, ProjectServiceServer};
use snic_api::fleet_v1::*;
use snic_api::v1::bitstream_service_server::{BitstreamService, BitstreamServiceServer};
use snic_api::v1::card_service_server::{CardService, CardServiceServer};
use snic_api::v1::classification_service_server::{
    ClassificationService, ClassificationServiceServer,
};
use snic_api::v1::dag_service_server::{DagService, DagServiceServer};
use snic_api::v1::network_task_service_server::{NetworkTaskService, NetworkTaskServiceServer};
use snic_api::v1::operation_service_server::{OperationService, OperationServiceServer};
use snic_api::v1::system_service_server::{SystemService, SystemServiceServer};
use snic_api::v1::tenant_service_server::{TenantService, TenantServiceServer};
use snic_api::v1::*;
use tokio_stream::Stream;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

/// Next answer of the server.
enum Reply {
    Message(Vec<u8>),
    Refusal(Status),
    Silence,
}

#[derive(Default)]
struct Script {
    replies: HashMap<&'static str, VecDeque<Reply>>,
    requests: Vec<(&'static str, Vec<u8>)>,
    headers: Vec<tonic::metadata::MetadataMap>,
}

/// The server; dropping it ends it.
pub struct Fake {
    services: Services,
    endpoint: String,
    _runtime: tokio::runtime::Runtime,
    _folder: Option<tempfile::TempDir>,
}

/// PEM texts of a server with mutual TLS.
pub struct Tls {
    pub ca: String,
    pub certificate: String,
    pub key: String,
}

#[derive(Clone, Default)]
struct Services(Arc<Mutex<Script>>);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

impl Fake {
    /// A server on a loopback port, in plain text.
    pub fn start() -> Self {
        Self::on_loopback(None)
    }

    /// A server on a loopback port that asks for certificates.
    pub fn with_tls(tls: Tls) -> Self {
        Self::on_loopback(Some(tls))
    }

    fn on_loopback(tls: Option<Tls>) -> Self {
        let (runtime, services) = (runtime(), Services::default());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut server = Server::builder();
        if let Some(tls) = tls {
            let config = ServerTlsConfig::new()
                .identity(Identity::from_pem(tls.certificate, tls.key))
                .client_ca_root(Certificate::from_pem(tls.ca));
            server = server.tls_config(config).unwrap();
        }
        let router = services.clone().router(server);
        runtime.spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
        let endpoint = format!("{scheme}://localhost:{port}");
        Self { services, endpoint, _runtime: runtime, _folder: None }
    }

    /// A server on a unix socket.
    pub fn on_socket() -> Self {
        let (runtime, services) = (runtime(), Services::default());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snicd.sock");
        let bind = async { tokio::net::UnixListener::bind(&path) };
        let listener = runtime.block_on(bind).unwrap();
        let router = services.clone().router(Server::builder());
        runtime.spawn(router.serve_with_incoming(UnixListenerStream::new(listener)));
        let endpoint = format!("unix:{}", path.display());
        Self { services, endpoint, _runtime: runtime, _folder: Some(folder) }
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The next call of `method` gets this message; of a stream, one element.
    pub fn answer(&self, method: &'static str, message: &impl Message) -> &Self {
        self.push(method, Reply::Message(message.encode_to_vec()))
    }

    /// The next call of `method` is refused.
    pub fn refuse(&self, method: &'static str, status: impl Into<Status>) -> &Self {
        self.push(method, Reply::Refusal(status.into()))
    }

    /// The next call of `method` gets no answer at all.
    pub fn ignore(&self, method: &'static str) -> &Self {
        self.push(method, Reply::Silence)
    }

    fn push(&self, method: &'static str, reply: Reply) -> &Self {
        self.services.0.lock().unwrap().replies.entry(method).or_default().push_back(reply);
        self
    }

    /// The requests of `method`, in order.
    pub fn asked<Q: Message + Default>(&self, method: &str) -> Vec<Q> {
        let script = self.services.0.lock().unwrap();
        let requests = script.requests.iter().filter(|(name, _)| *name == method);
        requests.map(|(_, bytes)| Q::decode(bytes.as_slice()).unwrap()).collect()
    }

    /// A header of every request, in order; empty where it was missing.
    pub fn headers(&self, name: &str) -> Vec<String> {
        let script = self.services.0.lock().unwrap();
        let value = |map: &tonic::metadata::MetadataMap| {
            map.get(name).map_or(String::new(), |value| value.to_str().unwrap().to_owned())
        };
        script.headers.iter().map(value).collect()
    }
}

impl Services {
    fn router(self, mut server: Server) -> tonic::transport::server::Router {
        server
            .add_service(BitstreamServiceServer::new(self.clone()))
            .add_service(CardServiceServer::new(self.clone()))
            .add_service(ClassificationServiceServer::new(self.clone()))
            .add_service(DagServiceServer::new(self.clone()))
            .add_service(NetworkTaskServiceServer::new(self.clone()))
            .add_service(OperationServiceServer::new(self.clone()))
            .add_service(SystemServiceServer::new(self.clone()))
            .add_service(FleetServiceServer::new(self.clone()))
            .add_service(PolicyServiceServer::new(self.clone()))
            .add_service(ProjectServiceServer::new(self.clone()))
            .add_service(TenantServiceServer::new(self))
    }

    fn note<Q>(&self, method: &'static str, request: &Request<Q>, bytes: Vec<u8>) {
        let mut script = self.0.lock().unwrap();
        script.headers.push(request.metadata().clone());
        script.requests.push((method, bytes));
    }

    fn next(&self, method: &str) -> Option<Reply> {
        self.0.lock().unwrap().replies.get_mut(method)?.pop_front()
    }

    async fn reply<R: Message + Default>(&self, method: &str) -> Result<Response<R>, Status> {
        match self.next(method) {
            Some(Reply::Message(bytes)) => Ok(Response::new(R::decode(bytes.as_slice()).unwrap())),
            Some(Reply::Refusal(status)) => Err(status),
            Some(Reply::Silence) => {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                Err(Status::internal("nobody waits that long"))
            }
            None => Err(Status::internal(format!("the test has no answer for {method}"))),
        }
    }

    /// All that is left for a method: elements, and how the stream ends.
    fn stream<R: Message + Default>(&self, method: &str) -> Vec<Result<R, Status>> {
        let mut elements = Vec::new();
        while let Some(reply) = self.next(method) {
            match reply {
                Reply::Message(bytes) => elements.push(Ok(R::decode(bytes.as_slice()).unwrap())),
                Reply::Refusal(status) => {
                    elements.push(Err(status));
                    break;
                }
                Reply::Silence => break,
            }
        }
        elements
    }
}

type Elements<R> = std::pin::Pin<Box<dyn Stream<Item = Result<R, Status>> + Send>>;

/// Type of an `async fn` of a service behind `#[async_trait]`, which does not look into macros.
type BoxedReply<'a, R> =
    std::pin::Pin<Box<dyn Future<Output = Result<Response<R>, Status>> + Send + 'a>>;

/// Tests say what a reply carries; `as` says in which message it does.
macro_rules! unary {
    ($($rust:ident $method:literal $request:ty => $item:ty $(as $reply:ty)?;)+) => {
        $(unary! { @one $rust $method $request => $item $(as $reply)? })+
    };
    (@one $rust:ident $method:literal $request:ty => $reply:ty) => {
        unary! { @one $rust $method $request => $reply as $reply }
    };
    (@one $rust:ident $method:literal $request:ty => $item:ty as $reply:ty) => {
        fn $rust<'s, 'a>(&'s self, request: Request<$request>) -> BoxedReply<'a, $reply>
        where
            's: 'a,
            Self: 'a,
        {
            self.note($method, &request, request.get_ref().encode_to_vec());
            Box::pin(async {
                let reply: Response<$item> = self.reply($method).await?;
                Ok(reply.map(<$reply>::from))
            })
        }
    };
}

macro_rules! streams {
    ($($rust:ident $method:literal $request:ty => $stream:ident;)+) => {
        $(fn $rust<'s, 'a>(&'s self, request: Request<$request>) -> BoxedReply<'a, Self::$stream>
        where
            's: 'a,
            Self: 'a,
        {
            self.note($method, &request, request.get_ref().encode_to_vec());
            let elements: Self::$stream = Box::pin(tokio_stream::iter(self.stream($method)));
            Box::pin(async { Ok(Response::new(elements)) })
        })+
    };
}

#[tonic::async_trait]
impl DagService for Services {
    type WatchDagsStream = Elements<WatchDagsResponse>;

    unary! {
        create_dag "CreateDag" CreateDagRequest => Operation as CreateDagResponse;
        batch_create_dags "BatchCreateDags" BatchCreateDagsRequest => BatchCreateDagsResponse;
        get_dag "GetDag" GetDagRequest => Dag as GetDagResponse;
        list_dags "ListDags" ListDagsRequest => ListDagsResponse;
        update_dag "UpdateDag" UpdateDagRequest => Operation as UpdateDagResponse;
        delete_dag "DeleteDag" DeleteDagRequest => Operation as DeleteDagResponse;
        diagnose_dag "DiagnoseDag" DiagnoseDagRequest => Diagnosis as DiagnoseDagResponse;
        explain_dag "ExplainDag" ExplainDagRequest => Explanation as ExplainDagResponse;
    }
    streams! { watch_dags "WatchDags" WatchDagsRequest => WatchDagsStream; }
}

#[tonic::async_trait]
impl CardService for Services {
    type WatchRegionsStream = Elements<WatchRegionsResponse>;
    type WatchCardsStream = Elements<WatchCardsResponse>;

    unary! {
        list_cards "ListCards" ListCardsRequest => ListCardsResponse;
        get_card "GetCard" GetCardRequest => Card as GetCardResponse;
        list_regions "ListRegions" ListRegionsRequest => ListRegionsResponse;
        get_region "GetRegion" GetRegionRequest => Region as GetRegionResponse;
        drain_region "DrainRegion" DrainRegionRequest => Operation as DrainRegionResponse;
        undrain_region "UndrainRegion" UndrainRegionRequest => Region as UndrainRegionResponse;
        reset_region "ResetRegion" ResetRegionRequest => Operation as ResetRegionResponse;
        load_role "LoadRole" LoadRoleRequest => Operation as LoadRoleResponse;
        reset_card "ResetCard" ResetCardRequest => Operation as ResetCardResponse;
        drain_card "DrainCard" DrainCardRequest => Operation as DrainCardResponse;
        cordon_region "CordonRegion" CordonRegionRequest => Region as CordonRegionResponse;
        cordon_card "CordonCard" CordonCardRequest => Card as CordonCardResponse;
        uncordon_card "UncordonCard" UncordonCardRequest => Card as UncordonCardResponse;
        remove_card "RemoveCard" RemoveCardRequest => RemoveCardResponse;
        replace_card "ReplaceCard" ReplaceCardRequest => Card as ReplaceCardResponse;
        optimize_card "OptimizeCard" OptimizeCardRequest => OptimizeCardResponse;
    }
    streams! {
        watch_regions "WatchRegions" WatchRegionsRequest => WatchRegionsStream;
        watch_cards "WatchCards" WatchCardsRequest => WatchCardsStream;
    }
}

#[tonic::async_trait]
impl SystemService for Services {
    type DownloadBackupStream = Elements<DownloadBackupResponse>;

    unary! {
        get_maintenance "GetMaintenance" GetMaintenanceRequest => Maintenance as GetMaintenanceResponse;
        set_maintenance "SetMaintenance" SetMaintenanceRequest => Maintenance as SetMaintenanceResponse;
        get_diagnostics "GetDiagnostics" GetDiagnosticsRequest => Diagnostics as GetDiagnosticsResponse;
    }
    streams! { download_backup "DownloadBackup" DownloadBackupRequest => DownloadBackupStream; }
}

#[tonic::async_trait]
impl TenantService for Services {
    type WatchTenantsStream = Elements<WatchTenantsResponse>;

    unary! {
        create_tenant "CreateTenant" CreateTenantRequest => Tenant as CreateTenantResponse;
        get_tenant "GetTenant" GetTenantRequest => Tenant as GetTenantResponse;
        list_tenants "ListTenants" ListTenantsRequest => ListTenantsResponse;
        update_tenant "UpdateTenant" UpdateTenantRequest => Tenant as UpdateTenantResponse;
        delete_tenant "DeleteTenant" DeleteTenantRequest => DeleteTenantResponse;
    }
    streams! { watch_tenants "WatchTenants" WatchTenantsRequest => WatchTenantsStream; }
}

#[tonic::async_trait]
impl NetworkTaskService for Services {
    type WatchNtTypesStream = Elements<WatchNtTypesResponse>;

    unary! {
        create_nt_type "CreateNtType" CreateNtTypeRequest => NtType as CreateNtTypeResponse;
        get_nt_type "GetNtType" GetNtTypeRequest => NtType as GetNtTypeResponse;
        list_nt_types "ListNtTypes" ListNtTypesRequest => ListNtTypesResponse;
        delete_nt_type "DeleteNtType" DeleteNtTypeRequest => DeleteNtTypeResponse;
    }
    streams! { watch_nt_types "WatchNtTypes" WatchNtTypesRequest => WatchNtTypesStream; }
}

#[tonic::async_trait]
impl ClassificationService for Services {
    type WatchRulesStream = Elements<WatchRulesResponse>;

    unary! {
        create_rule "CreateRule" CreateRuleRequest => Rule as CreateRuleResponse;
        get_rule "GetRule" GetRuleRequest => Rule as GetRuleResponse;
        list_rules "ListRules" ListRulesRequest => ListRulesResponse;
        update_rule "UpdateRule" UpdateRuleRequest => Rule as UpdateRuleResponse;
        delete_rule "DeleteRule" DeleteRuleRequest => DeleteRuleResponse;
    }
    streams! { watch_rules "WatchRules" WatchRulesRequest => WatchRulesStream; }
}

#[tonic::async_trait]
impl OperationService for Services {
    type WatchOperationsStream = Elements<WatchOperationsResponse>;

    unary! {
        get_operation "GetOperation" GetOperationRequest => Operation as GetOperationResponse;
        list_operations "ListOperations" ListOperationsRequest => ListOperationsResponse;
        wait_operation "WaitOperation" WaitOperationRequest => Operation as WaitOperationResponse;
        cancel_operation "CancelOperation" CancelOperationRequest => CancelOperationResponse;
        delete_operation "DeleteOperation" DeleteOperationRequest => DeleteOperationResponse;
    }
    streams! { watch_operations "WatchOperations" WatchOperationsRequest => WatchOperationsStream; }
}

#[tonic::async_trait]
impl BitstreamService for Services {
    type WatchBitstreamsStream = Elements<WatchBitstreamsResponse>;

    streams! { watch_bitstreams "WatchBitstreams" WatchBitstreamsRequest => WatchBitstreamsStream; }

    async fn upload_bitstream(
        &self,
        request: Request<Streaming<UploadBitstreamRequest>>,
    ) -> Result<Response<UploadBitstreamResponse>, Status> {
        let (metadata, extensions, mut parts) = request.into_parts();
        self.note("UploadBitstream", &Request::from_parts(metadata, extensions, ()), Vec::new());
        while let Some(part) = parts.message().await? {
            let note = Request::new(());
            self.note("UploadBitstream/part", &note, part.encode_to_vec());
        }
        let reply: Response<Bitstream> = self.reply("UploadBitstream").await?;
        Ok(reply.map(UploadBitstreamResponse::from))
    }

    unary! {
        get_bitstream "GetBitstream" GetBitstreamRequest => Bitstream as GetBitstreamResponse;
        list_bitstreams "ListBitstreams" ListBitstreamsRequest => ListBitstreamsResponse;
        delete_bitstream "DeleteBitstream" DeleteBitstreamRequest => DeleteBitstreamResponse;
        retry_bitstream "RetryBitstream" RetryBitstreamRequest => Bitstream as RetryBitstreamResponse;
        recommend_bitstreams "RecommendBitstreams" RecommendBitstreamsRequest => RecommendBitstreamsResponse;
    }
}

#[tonic::async_trait]
impl FleetService for Services {
    type WatchHostsStream = Elements<WatchHostsResponse>;
    streams! { watch_hosts "WatchHosts" WatchHostsRequest => WatchHostsStream; }
    unary! {
        create_host "CreateHost" CreateHostRequest => CreateHostResponse;
        get_host "GetHost" GetHostRequest => GetHostResponse;
        list_hosts "ListHosts" ListHostsRequest => ListHostsResponse;
        delete_host "DeleteHost" DeleteHostRequest => DeleteHostResponse;
        cordon_host "CordonHost" CordonHostRequest => CordonHostResponse;
        uncordon_host "UncordonHost" UncordonHostRequest => UncordonHostResponse;
        drain_host "DrainHost" DrainHostRequest => DrainHostResponse;
        undrain_host "UndrainHost" UndrainHostRequest => UndrainHostResponse;
        drain_area "DrainArea" DrainAreaRequest => DrainAreaResponse;
        get_area_drain "GetAreaDrain" GetAreaDrainRequest => GetAreaDrainResponse;
        undrain_area "UndrainArea" UndrainAreaRequest => UndrainAreaResponse;
        start_rebalance "StartRebalance" StartRebalanceRequest => StartRebalanceResponse;
        get_rebalance "GetRebalance" GetRebalanceRequest => GetRebalanceResponse;
        stop_rebalance "StopRebalance" StopRebalanceRequest => StopRebalanceResponse;
        find_hosts "FindHosts" FindHostsRequest => FindHostsResponse;
        create_reservation "CreateReservation" CreateReservationRequest => CreateReservationResponse;
        renew_reservation "RenewReservation" RenewReservationRequest => RenewReservationResponse;
        delete_reservation "DeleteReservation" DeleteReservationRequest => DeleteReservationResponse;
        get_fleet "GetFleet" GetFleetRequest => GetFleetResponse;
    }
}

#[tonic::async_trait]
impl PolicyService for Services {
    unary! {
        get_policies "GetPolicies" GetPoliciesRequest => GetPoliciesResponse;
        update_policies "UpdatePolicies" UpdatePoliciesRequest => UpdatePoliciesResponse;
    }
}

#[tonic::async_trait]
impl ProjectService for Services {
    unary! {
        create_project "CreateProject" CreateProjectRequest => CreateProjectResponse;
        get_project "GetProject" GetProjectRequest => GetProjectResponse;
        list_projects "ListProjects" ListProjectsRequest => ListProjectsResponse;
        update_project "UpdateProject" UpdateProjectRequest => UpdateProjectResponse;
        delete_project "DeleteProject" DeleteProjectRequest => DeleteProjectResponse;
        set_tenant_project "SetTenantProject" SetTenantProjectRequest => SetTenantProjectResponse;
    }
}
