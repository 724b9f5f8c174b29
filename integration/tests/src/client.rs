//! A client of the API over a unix socket in plain text, as one identity.

use std::path::Path;

use hyper_util::rt::TokioIo;
use snic_api::convert;
use snic_api::fleet_v1::fleet_service_client::FleetServiceClient;
use snic_api::replies::ItemOf as _;
use snic_api::v1::audit_service_client::AuditServiceClient;
use snic_api::v1::bitstream_service_client::BitstreamServiceClient;
use snic_api::v1::card_service_client::CardServiceClient;
use snic_api::v1::classification_service_client::ClassificationServiceClient;
use snic_api::v1::dag_service_client::DagServiceClient;
use snic_api::v1::event_service_client::EventServiceClient;
use snic_api::v1::fairness_service_client::FairnessServiceClient;
use snic_api::v1::network_task_service_client::NetworkTaskServiceClient;
use snic_api::v1::operation_service_client::OperationServiceClient;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::system_service_client::SystemServiceClient;
use snic_api::v1::tenant_service_client::TenantServiceClient;
use snic_api::v1::traffic_service_client::TrafficServiceClient;
use snic_api::v1::upload_bitstream_request::Part;
use snic_api::v1::usage_service_client::UsageServiceClient;
use snic_api::v1::{self, Dag, Operation, operation};
use snic_bitstream::catalogue::Catalogue;
use snic_domain::{Bandwidth, DagName, DagSpec};
use tokio::net::UnixStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

/// Adds the caller's identity where no certificate tells it, but no trace: a test adds one if it needs it.
#[derive(Clone)]
pub struct Identity(Option<AsciiMetadataValue>);

impl Interceptor for Identity {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(identity) = &self.0 {
            request.metadata_mut().insert("snic-identity", identity.clone());
        }
        Ok(request)
    }
}

/// A connection that sends its identity.
type Transport = InterceptedService<Channel, Identity>;

/// A connection as one identity.
#[derive(Clone)]
pub struct TestClient {
    transport: Transport,
}

impl TestClient {
    /// Connects, if someone listens.
    pub async fn connect(socket: &Path, identity: &str) -> Option<Self> {
        let socket = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        // The address is not used: the connector knows where to go.
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await.ok()?;
        let identity = Identity(Some(identity.parse().expect("an identity is plain text")));
        Some(Self { transport: InterceptedService::new(channel, identity) })
    }

    /// Connects by TLS when the first request is sent; the certificate tells who calls.
    ///
    /// # Panics
    /// The address or the certificate is not valid.
    pub fn by_tls(address: &str, tls: ClientTlsConfig) -> Self {
        let endpoint = Endpoint::from_shared(address.to_owned()).expect("an address");
        let channel = endpoint.tls_config(tls).expect("a certificate").connect_lazy();
        Self { transport: InterceptedService::new(channel, Identity(None)) }
    }

    /// Hosts, and how the fleet is.
    pub fn fleet(&self) -> FleetServiceClient<Transport> {
        FleetServiceClient::new(self.transport.clone())
    }

    pub fn dags(&self) -> DagServiceClient<Transport> {
        DagServiceClient::new(self.transport.clone())
    }

    /// Cards and regions.
    pub fn cards(&self) -> CardServiceClient<Transport> {
        CardServiceClient::new(self.transport.clone())
    }

    /// Packets of DAGs.
    pub fn traffic(&self) -> TrafficServiceClient<Transport> {
        TrafficServiceClient::new(self.transport.clone())
    }

    pub fn network_tasks(&self) -> NetworkTaskServiceClient<Transport> {
        NetworkTaskServiceClient::new(self.transport.clone())
    }

    pub fn tenants(&self) -> TenantServiceClient<Transport> {
        TenantServiceClient::new(self.transport.clone())
    }

    pub fn rules(&self) -> ClassificationServiceClient<Transport> {
        ClassificationServiceClient::new(self.transport.clone())
    }

    pub fn machines(&self) -> OrchestrationServiceClient<Transport> {
        OrchestrationServiceClient::new(self.transport.clone())
    }

    pub fn bitstreams(&self) -> BitstreamServiceClient<Transport> {
        BitstreamServiceClient::new(self.transport.clone())
    }

    pub fn events(&self) -> EventServiceClient<Transport> {
        EventServiceClient::new(self.transport.clone())
    }

    pub fn fairness(&self) -> FairnessServiceClient<Transport> {
        FairnessServiceClient::new(self.transport.clone())
    }

    /// Usage and promises.
    pub fn usage(&self) -> UsageServiceClient<Transport> {
        UsageServiceClient::new(self.transport.clone())
    }

    /// The server itself.
    pub fn system(&self) -> SystemServiceClient<Transport> {
        SystemServiceClient::new(self.transport.clone())
    }

    /// The audit log.
    pub fn audit(&self) -> AuditServiceClient<Transport> {
        AuditServiceClient::new(self.transport.clone())
    }

    /// Makes a tenant with large quotas.
    ///
    /// # Errors
    /// The server refuses the call or cannot be reached.
    pub async fn create_tenant(&self, id: &str) -> Result<(), Status> {
        let quota = v1::Quota {
            dags_max: Some(1_024),
            bandwidth_max_bps: Some(1_000_000_000_000),
            // Deletions overlap: many clients at once have more under way than the default allows.
            operations_max: Some(4_096),
            threads_max: Some(4_096),
            ..Default::default()
        };
        let tenant = v1::Tenant { weight: 1, quota: Some(quota), ..Default::default() };
        let request = v1::CreateTenantRequest {
            tenant_id: id.to_owned(),
            tenant: Some(tenant),
            request_id: String::new(),
            validate_only: false,
        };
        self.tenants().create_tenant(request).await.map(|_| ())
    }

    /// Registers the NT types of a catalogue, and uploads its bitstreams for `sim-16`.
    pub async fn register(&self, catalogue: &Catalogue) {
        self.register_nt_types(catalogue).await;
        let model = "sim-16".parse().expect("a label");
        let profile = catalogue.card(&model).expect("the catalogue has it");
        for chain in catalogue.chains_for(&model) {
            let (bitstream, bytes) =
                catalogue.test_bitstream(chain, profile).expect("a chain of the catalogue");
            self.upload(&bitstream, bytes).await.expect("a bitstream of the catalogue");
        }
    }

    /// Registers the NT types of a catalogue.
    pub async fn register_nt_types(&self, catalogue: &Catalogue) {
        for nt in &catalogue.nt_types {
            let request = v1::CreateNtTypeRequest {
                nt_type_id: nt.id.to_string(),
                nt_type: Some(convert::nt_type::nt_type_to_wire(nt)),
                request_id: String::new(),
                validate_only: false,
            };
            self.network_tasks()
                .create_nt_type(request)
                .await
                .expect("an NT type of the catalogue");
        }
    }

    /// Uploads a bitstream.
    ///
    /// # Errors
    /// The server refuses the call or cannot be reached.
    pub async fn upload(
        &self,
        bitstream: &snic_domain::Bitstream,
        bytes: Vec<u8>,
    ) -> Result<v1::Bitstream, Status> {
        self.upload_signed(bitstream, bytes, Vec::new()).await
    }

    /// Uploads a bitstream with a signature.
    ///
    /// # Errors
    /// The server refuses the call or cannot be reached.
    pub async fn upload_signed(
        &self,
        bitstream: &snic_domain::Bitstream,
        bytes: Vec<u8>,
        signature: Vec<u8>,
    ) -> Result<v1::Bitstream, Status> {
        let wire = convert::bitstream::bitstream_to_wire(bitstream);
        let header = v1::BitstreamHeader {
            description: Default::default(),
            labels: Default::default(),
            bitstream_id: bitstream.id.to_string(),
            digest: wire.digest,
            size_bytes: wire.size_bytes,
            nts: wire.nts,
            region_kind: wire.region_kind,
            card_model: wire.card_model,
            shareable: wire.shareable,
            request_id: String::new(),
            signature,
            // What its NTs alone give need not be declared.
            identity: wire.identity,
            regions: wire.regions,
            validate_only: false,
        };
        let bytes = bytes::Bytes::from(bytes);
        let chunks = (0..bytes.len())
            .step_by(1 << 20)
            .map(|at| Part::Chunk(bytes.slice(at..bytes.len().min(at + (1 << 20)))));
        let parts: Vec<_> = std::iter::once(Part::Header(header))
            .chain(chunks)
            .map(|part| v1::UploadBitstreamRequest { part: Some(part) })
            .collect();
        let mut client = self.bitstreams();
        client.upload_bitstream(tokio_stream::iter(parts)).await.item()
    }

    /// Submits a DAG.
    ///
    /// # Errors
    /// The server refuses the call or cannot be reached.
    pub async fn create_dag(&self, name: &DagName, spec: &DagSpec) -> Result<Operation, Status> {
        self.create_placed_dag(name, spec, None).await
    }

    /// Submits a DAG that may go to these hosts of a fleet.
    ///
    /// # Errors
    /// As [`Self::create_dag`].
    pub async fn create_placed_dag(
        &self,
        name: &DagName,
        spec: &DagSpec,
        placement: Option<v1::Placement>,
    ) -> Result<Operation, Status> {
        let request = v1::CreateDagRequest {
            parent: format!("tenants/{}", name.tenant),
            dag_id: name.dag.to_string(),
            dag: Some(Dag { placement, ..dag(spec) }),
            validate_only: false,
            request_id: String::new(),
        };
        self.dags().create_dag(request).await.item()
    }

    /// Changes the nodes, edges and bandwidth of a DAG.
    ///
    /// # Errors
    /// The server refuses the call or cannot be reached.
    pub async fn update_dag(&self, name: &DagName, spec: &DagSpec) -> Result<Operation, Status> {
        let paths = ["nodes", "edges", "bandwidth_bps"].map(str::to_owned).to_vec();
        let request = v1::UpdateDagRequest {
            dag: Some(Dag { name: name.to_string(), ..dag(spec) }),
            update_mask: Some(prost_types::FieldMask { paths }),
            ..Default::default()
        };
        self.dags().update_dag(request).await.item()
    }

    /// The first region of a DAG, by its name in the API.
    ///
    /// # Panics
    /// Where it is mapped to none.
    pub async fn region_of(&self, name: &DagName) -> String {
        let request = v1::GetDagRequest { name: name.to_string() };
        let dag = self.dags().get_dag(request).await.item().expect("it is there");
        let stages = dag.mapping.into_iter().flat_map(|mapping| mapping.stages);
        let chains = stages.flat_map(|stage| stage.branches);
        let mut instances = chains.flat_map(|chain| chain.instances);
        instances.next().expect("it is mapped").region
    }

    /// Drains a region, and waits until nothing is in it.
    ///
    /// # Panics
    /// Where it cannot be drained.
    pub async fn drain(&self, region: &str) {
        let request = v1::DrainRegionRequest { name: region.to_owned(), ..Default::default() };
        let operation = self.cards().drain_region(request).await.item().expect("a region");
        self.wait(&operation).await.expect("it is drained");
    }

    /// Sends the packets of a virtual function through a DAG.
    ///
    /// # Errors
    /// The server refuses the call or cannot be reached.
    pub async fn lead_function(&self, function: u32, dag: &DagName) -> Result<(), Status> {
        let matches =
            v1::PacketMatch { virtual_function: Some(function), ..v1::PacketMatch::default() };
        let rule = v1::Rule { r#match: Some(matches), dag: dag.to_string(), ..v1::Rule::default() };
        let request = v1::CreateRuleRequest {
            rule_id: format!("function-{function}"),
            rule: Some(rule),
            request_id: String::new(),
            validate_only: false,
        };
        let mut client = self.rules();
        client.create_rule(request).await.map(|_| ())
    }

    /// Deletes a DAG.
    ///
    /// # Errors
    /// The server refuses the call or cannot be reached.
    pub async fn delete_dag(&self, name: &DagName) -> Result<Operation, Status> {
        let request = v1::DeleteDagRequest {
            name: name.to_string(),
            etag: String::new(),
            ..Default::default()
        };
        self.dags().delete_dag(request).await.item()
    }

    /// Every DAG that this identity may see.
    pub async fn list_dags(&self) -> Vec<Dag> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = v1::ListDagsRequest {
                parent: "tenants/-".into(),
                page_size: 100,
                page_token: page_token.clone(),
                ..Default::default()
            };
            let reply = self.dags().list_dags(request).await.expect("a list").into_inner();
            all.extend(reply.dags);
            if reply.next_page_token.is_empty() {
                return all;
            }
            page_token = reply.next_page_token;
        }
    }

    /// Waits until an operation has ended well.
    ///
    /// # Errors
    /// The operation failed, has not ended, or the server cannot be asked.
    pub async fn wait(&self, operation: &Operation) -> Result<(), String> {
        let request = v1::WaitOperationRequest { name: operation.name.clone(), timeout: None };
        let mut client = OperationServiceClient::new(self.transport.clone());
        let ended = client.wait_operation(request).await.item();
        match ended.map_err(|status| status.to_string())?.result {
            Some(operation::Result::Response(_)) => Ok(()),
            Some(operation::Result::Error(error)) => Err(error.message),
            None => Err("it has not ended".into()),
        }
    }
}

/// The trace and the span of [`create_in_trace`]'s request.
pub const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// Span of the client in [`TRACE`], which the daemon's spans have as their parent.
pub const PARENT: &str = "00f067aa0ba902b7";

/// Creates a DAG of acme that needs a load, in the client's trace.
///
/// # Panics
/// The daemon rejects it.
pub async fn create_in_trace(client: &TestClient) {
    let spec = DagSpec::chain(&["nat".parse().expect("an NT type")], Bandwidth::from_gbps(1));
    let mut request = Request::new(v1::CreateDagRequest {
        parent: "tenants/acme".into(),
        dag_id: "web".into(),
        dag: Some(dag(&spec)),
        ..Default::default()
    });
    let header = format!("00-{TRACE}-{PARENT}-01").parse().expect("a header");
    request.metadata_mut().insert("traceparent", header);
    let operation = client.dags().create_dag(request).await.item().expect("there is room");
    client.wait(&operation).await.expect("it is ready");
}

/// A spec as the API has it.
fn dag(spec: &DagSpec) -> Dag {
    Dag {
        nodes: convert::dag::nodes_to_wire(spec, convert::dag::whole),
        edges: convert::dag::edges_to_wire(spec),
        bandwidth_bps: spec.bandwidth.get(),
        ..Default::default()
    }
}
