//! The client of the quick start: mutual TLS and the public API, nothing else.

use anyhow::{Context as _, Result, bail};
use snic_api::convert;
use snic_api::replies::ItemOf as _;
use snic_api::v1::bitstream_service_client::BitstreamServiceClient;
use snic_api::v1::card_service_client::CardServiceClient;
use snic_api::v1::classification_service_client::ClassificationServiceClient;
use snic_api::v1::dag_service_client::DagServiceClient;
use snic_api::v1::network_task_service_client::NetworkTaskServiceClient;
use snic_api::v1::operation_service_client::OperationServiceClient;
use snic_api::v1::tenant_service_client::TenantServiceClient;
use snic_api::v1::upload_bitstream_request::Part;
use snic_api::v1::{
    self, BitstreamHeader, CreateDagRequest, CreateNtTypeRequest, CreateTenantRequest,
    UploadBitstreamRequest, operation,
};
use snic_bitstream::catalogue::SampleDag;
use snic_domain::{Bitstream, DagName, NtType, Tenant};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use crate::pki::Pair;

/// Bytes of one message of an upload.
const CHUNK_BYTES: usize = 1 << 20;

/// A connection with one identity.
#[derive(Clone)]
pub struct QuickstartClient {
    channel: Channel,
}

/// Whether the resource was created; `false` if it existed already.
fn made<T>(result: Result<T, Status>) -> Result<bool, Status> {
    match result {
        Ok(_) => Ok(true),
        Err(status) if status.code() == Code::AlreadyExists => Ok(false),
        Err(status) => Err(status),
    }
}

impl QuickstartClient {
    /// Connects to `https://localhost:<port>` with the certificate of `pair`.
    pub async fn connect(port: u16, ca: &std::path::Path, pair: &Pair) -> Result<Self> {
        let read = |path: &std::path::Path| {
            std::fs::read(path).with_context(|| format!("read {}", path.display()))
        };
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read(ca)?))
            .identity(Identity::from_pem(read(&pair.certificate)?, read(&pair.key)?))
            .domain_name("localhost");
        let channel = Endpoint::from_shared(format!("https://127.0.0.1:{port}"))?
            .tls_config(tls)?
            .connect()
            .await
            .with_context(|| format!("connect to the daemon's port {port}"))?;
        Ok(Self { channel })
    }

    /// The operator's view of cards and regions.
    pub fn cards(&self) -> CardServiceClient<Channel> {
        CardServiceClient::new(self.channel.clone())
    }

    pub fn dags(&self) -> DagServiceClient<Channel> {
        DagServiceClient::new(self.channel.clone())
    }

    /// Creates a tenant.
    pub async fn create_tenant(&self, tenant: &Tenant) -> Result<bool, Status> {
        let request = CreateTenantRequest {
            tenant_id: tenant.id.to_string(),
            tenant: Some(v1::Tenant { weight: tenant.weight, ..Default::default() }),
            request_id: String::new(),
            validate_only: false,
        };
        made(TenantServiceClient::new(self.channel.clone()).create_tenant(request).await)
    }

    /// Registers an NT type.
    pub async fn create_nt_type(&self, nt: &NtType) -> Result<bool, Status> {
        let request = CreateNtTypeRequest {
            nt_type_id: nt.id.to_string(),
            nt_type: Some(convert::nt_type::nt_type_to_wire(nt)),
            request_id: String::new(),
            validate_only: false,
        };
        made(NetworkTaskServiceClient::new(self.channel.clone()).create_nt_type(request).await)
    }

    /// Uploads a bitstream.
    pub async fn upload(&self, bitstream: &Bitstream, bytes: Vec<u8>) -> Result<bool, Status> {
        let wire = convert::bitstream::bitstream_to_wire(bitstream);
        // A test image says itself what it is.
        let header = BitstreamHeader {
            bitstream_id: bitstream.id.to_string(),
            digest: wire.digest,
            size_bytes: wire.size_bytes,
            nts: wire.nts,
            region_kind: wire.region_kind,
            card_model: wire.card_model,
            shareable: wire.shareable,
            ..Default::default()
        };
        let bytes = bytes::Bytes::from(bytes);
        let chunks = (0..bytes.len())
            .step_by(CHUNK_BYTES)
            .map(|at| Part::Chunk(bytes.slice(at..bytes.len().min(at + CHUNK_BYTES))));
        let parts: Vec<UploadBitstreamRequest> = std::iter::once(Part::Header(header))
            .chain(chunks)
            .map(|part| UploadBitstreamRequest { part: Some(part) })
            .collect();
        let mut client = BitstreamServiceClient::new(self.channel.clone());
        made(client.upload_bitstream(tokio_stream::iter(parts)).await)
    }

    /// Submits a DAG. Returns the operation, or `None` if the DAG exists already.
    pub async fn create_dag(&self, dag: &SampleDag) -> Result<Option<v1::Operation>, Status> {
        let request = CreateDagRequest {
            parent: format!("tenants/{}", dag.name.tenant),
            dag_id: dag.name.dag.to_string(),
            dag: Some(v1::Dag {
                nodes: convert::dag::nodes_to_wire(&dag.spec, convert::dag::whole),
                edges: convert::dag::edges_to_wire(&dag.spec),
                bandwidth_bps: dag.spec.bandwidth.get(),
                ..Default::default()
            }),
            validate_only: false,
            request_id: String::new(),
        };
        match self.dags().create_dag(request).await.item() {
            Ok(operation) => Ok(Some(operation)),
            Err(status) if status.code() == Code::AlreadyExists => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Leads the packets of a virtual function to a DAG.
    pub async fn lead_function(&self, function: u32, dag: &DagName) -> Result<bool, Status> {
        let matches =
            v1::PacketMatch { virtual_function: Some(function), ..v1::PacketMatch::default() };
        let rule = v1::Rule { r#match: Some(matches), dag: dag.to_string(), ..v1::Rule::default() };
        let request = v1::CreateRuleRequest {
            rule_id: format!("function-{function}"),
            rule: Some(rule),
            request_id: String::new(),
            validate_only: false,
        };
        made(ClassificationServiceClient::new(self.channel.clone()).create_rule(request).await)
    }

    /// Waits until an operation has ended. Fails if it failed or did not end in time.
    pub async fn wait(&self, name: &str, seconds: i64) -> Result<()> {
        let request = v1::WaitOperationRequest {
            name: name.to_owned(),
            timeout: Some(prost_types::Duration { seconds, nanos: 0 }),
        };
        let mut client = OperationServiceClient::new(self.channel.clone());
        let operation = client.wait_operation(request).await.item()?;
        match operation.result {
            Some(operation::Result::Error(error)) => bail!("{name} failed: {}", error.message),
            Some(operation::Result::Response(_)) => Ok(()),
            None => bail!("{name} has not ended after {seconds} s"),
        }
    }
}
