//! Replicas in this process, and clients with all kinds of certificates.

use std::sync::LazyLock;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use snic_api::fleet_v1;
use snic_api::fleet_v1::fleet_service_client::FleetServiceClient;
use snic_api::v1;
use snic_api::v1::bitstream_service_client::BitstreamServiceClient;
use snic_api::v1::dag_service_client::DagServiceClient;
use snic_api::v1::network_task_service_client::NetworkTaskServiceClient;
use snic_api::v1::operation_service_client::OperationServiceClient;
use snic_api::v1::tenant_service_client::TenantServiceClient;
use snic_api::v1::upload_bitstream_request::Part;
use snic_bitstream::catalogue::{Catalogue, builtin};
use snic_bitstream::{build_test, check_upload};
use snic_domain::{ByteSize, CardModel, CardProfile, Digest, NtType, NtTypeId};
use snic_fleet::FleetSettings;
use snic_fleetd::{BudgetSettings, Elections, FleetServerSettings, METHODS, RunnerSettings, bind};
use snic_front::identity::TrustDomain;
use snic_front::settings::{FrontSettings, TlsSettings};
use snic_front::uploads::{Upload, UploadCheck, UploadFindings, UploadProblem};
use snic_store_etcd::{Blobs, folder_of_blobs};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::cluster::{Cluster, eventually, free_ports};

const DOMAIN: &str = "snic.test";
const IMAGE_BYTES: u64 = 16_384;

pub static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| builtin().unwrap());

pub fn profile() -> CardProfile {
    CATALOGUE.card(&CardModel::new("sim-16").unwrap()).unwrap().clone()
}

struct Replica {
    address: String,
    stop: Option<oneshot::Sender<()>>,
    peers: watch::Sender<ClientTlsConfig>,
    task: JoinHandle<()>,
}

/// Replicas of one fleet.
pub struct Rig {
    pub cluster: Cluster,
    authority: CertifiedIssuer<'static, KeyPair>,
    replicas: Vec<Replica>,
    folder: tempfile::TempDir,
    /// Where images are, and how long those without a bitstream are kept.
    images: (Blobs, Duration),
    /// Settings of budgets of replicas that are started later.
    pub budgets: BudgetSettings,
}

const KEPT: Duration = Duration::from_secs(3_600);

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn upload_check() -> UploadCheck {
    UploadCheck::new(|upload: Upload<'_>| {
        let nt = |id: &NtTypeId| upload.nts.iter().find(|nt| nt.id == *id);
        check_upload(upload.bytes, upload.declared, &CATALOGUE.cards, nt)
            .map(|_| UploadFindings::default())
            .map_err(|error| UploadProblem { field: error.field(), what: error.to_string() })
    })
}

impl Rig {
    /// So many replicas; `None` if there is no etcd.
    pub async fn start(cluster: Cluster, count: usize) -> Self {
        Self::with_images_kept(cluster, count, KEPT).await
    }

    /// So many replicas with images in this store.
    #[cfg(feature = "s3")]
    pub async fn with_images_in(cluster: Cluster, count: usize, images: Blobs) -> Self {
        Self::start_with(cluster, count, (images, KEPT)).await
    }

    /// So many replicas that keep images without a bitstream for this long.
    pub async fn with_images_kept(cluster: Cluster, count: usize, kept: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let images = Blobs::new(folder_of_blobs(folder.path()).unwrap());
        Self { folder, ..Self::start_with(cluster, count, (images, kept)).await }
    }

    /// The same with images in this store.
    pub async fn start_with(cluster: Cluster, count: usize, images: (Blobs, Duration)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (authority, replicas) = (authority(), Vec::new());
        let budgets = BudgetSettings::default();
        let mut rig = Self { cluster, authority, replicas, folder, images, budgets };
        for number in 0..count {
            rig.add(number).await;
        }
        rig
    }

    async fn add(&mut self, number: usize) {
        let port = free_ports(1)[0];
        let address = format!("https://localhost:{port}");
        let names = vec![
            SanType::DnsName("localhost".try_into().unwrap()),
            SanType::URI(format!("spiffe://{DOMAIN}/replica/r{number}").try_into().unwrap()),
        ];
        let (certificate, key) = self.issue(names);
        let authority = self.authority.pem();
        let peers = self.tls(Some(Identity::from_pem(&certificate, &key)));
        let tls = TlsSettings {
            certificate: certificate.into(),
            key: key.into(),
            client_authority: authority.into(),
            revoked: None,
        };
        let settings = FleetServerSettings {
            front: FrontSettings {
                tcp: Some(([127, 0, 0, 1], port).into()),
                tls: Some(tls),
                ..FrontSettings::new(TrustDomain::new(DOMAIN).unwrap(), METHODS)
            },
            runner: RunnerSettings {
                elections: Elections { address: address.clone(), lease_seconds: 2 },
                fleet: FleetSettings::default(),
            },
            peers,
            images: self.images.0.clone(),
            unnamed_images_kept: self.images.1,
            upload_check: upload_check(),
            budgets: self.budgets.clone(),
            call_ages: Default::default(),
            web: None,
            metrics: None,
        };
        let bound = bind(settings).await.unwrap();
        let etcd = self.cluster.connect().await;
        let peers = bound.peers_reloader();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let shutdown = async move { drop(stopped.await) };
            bound.serve(etcd, shutdown).await.unwrap();
        });
        self.replicas.push(Replica { address, stop: Some(stop), peers, task });
    }

    /// Files of the images, by digest.
    pub fn images(&self) -> std::path::PathBuf {
        self.folder.path().join("bitstreams")
    }

    fn issue(&self, names: Vec<SanType>) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn tls(&self, identity: Option<Identity>) -> ClientTlsConfig {
        let tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.authority.pem()));
        match identity {
            Some(identity) => tls.identity(identity),
            None => tls,
        }
    }

    /// A replica shows others another certificate from now on.
    pub fn show(&self, replica: usize, who: &str) {
        let uri = SanType::URI(format!("spiffe://{DOMAIN}/{who}").try_into().unwrap());
        let (certificate, key) = self.issue(vec![uri]);
        let tls = self.tls(Some(Identity::from_pem(certificate, key)));
        self.replicas[replica].peers.send_replace(tls);
    }

    /// Where a replica is.
    pub fn address(&self, replica: usize) -> &str {
        &self.replicas[replica].address
    }

    /// A connection to a replica as somebody, such as `tenant/acme`.
    pub async fn connect(&self, replica: usize, who: &str) -> Channel {
        let uri = SanType::URI(format!("spiffe://{DOMAIN}/{who}").try_into().unwrap());
        let (certificate, key) = self.issue(vec![uri]);
        let tls = self.tls(Some(Identity::from_pem(certificate, key)));
        let address = self.replicas[replica].address.clone();
        let endpoint = Endpoint::from_shared(address).unwrap().tls_config(tls).unwrap();
        endpoint.connect().await.unwrap()
    }

    pub async fn client(&self, replica: usize, who: &str) -> Client {
        Client(self.connect(replica, who).await)
    }

    /// The number of the replica that leads, once one does.
    pub async fn leader(&self) -> usize {
        let alive = || self.replicas.iter().position(|replica| replica.stop.is_some()).unwrap();
        eventually(async || self.client(alive(), "operator/root").await.fleet().await.is_ok())
            .await;
        let told = self.client(alive(), "operator/root").await.fleet().await.unwrap();
        self.replicas.iter().position(|replica| replica.address == told.leader).unwrap()
    }

    /// Stops a replica as SIGTERM does, and waits until it has.
    pub async fn stop(&mut self, replica: usize) {
        drop(self.replicas[replica].stop.take());
        (&mut self.replicas[replica].task).await.unwrap();
    }

    /// Cuts a replica off in the middle, as a crash does: its key stays until its lease ends.
    pub fn abort(&mut self, replica: usize) {
        self.replicas[replica].task.abort();
        self.replicas[replica].stop.take();
    }
}

/// Somebody at one replica.
#[derive(Clone)]
pub struct Client(pub Channel);

pub fn nt(id: &str) -> NtType {
    CATALOGUE.nt_type(&NtTypeId::new(id).unwrap()).unwrap().clone()
}

impl Client {
    pub async fn fleet(&self) -> Result<fleet_v1::GetFleetResponse, Status> {
        let mut client = FleetServiceClient::new(self.0.clone());
        Ok(client.get_fleet(fleet_v1::GetFleetRequest {}).await?.into_inner())
    }

    pub async fn create_tenant(&self, id: &str, request_id: &str) -> Result<v1::Tenant, Status> {
        let request = v1::CreateTenantRequest {
            tenant_id: id.into(),
            request_id: request_id.into(),
            ..Default::default()
        };
        let mut client = TenantServiceClient::new(self.0.clone());
        Ok(client.create_tenant(request).await?.into_inner().tenant.unwrap())
    }

    pub async fn tenant(&self, id: &str) -> Result<v1::Tenant, Status> {
        let request = v1::GetTenantRequest { name: format!("tenants/{id}") };
        let mut client = TenantServiceClient::new(self.0.clone());
        Ok(client.get_tenant(request).await?.into_inner().tenant.unwrap())
    }

    /// Registers NT types, uploads an image of their chain, and registers a host with a card.
    pub async fn provide(&self, host: &str, nts: &[&str]) {
        for id in nts {
            let request = v1::CreateNtTypeRequest {
                nt_type_id: (*id).into(),
                nt_type: Some(snic_api::convert::nt_type::nt_type_to_wire(&nt(id))),
                ..Default::default()
            };
            let mut client = NetworkTaskServiceClient::new(self.0.clone());
            client.create_nt_type(request).await.unwrap();
        }
        self.upload("chain", nts, IMAGE_BYTES, "").await.unwrap();
        self.create_host(host).await.unwrap();
    }

    /// Uploads an image of a chain, and returns its digest.
    pub async fn upload(
        &self,
        id: &str,
        nts: &[&str],
        size_bytes: u64,
        request_id: &str,
    ) -> Result<String, Status> {
        let chain: Vec<NtType> = nts.iter().map(|id| nt(id)).collect();
        let chain: Vec<&NtType> = chain.iter().collect();
        let bytes = build_test(&profile(), &chain, ByteSize::from_bytes(size_bytes)).unwrap();
        let header = v1::BitstreamHeader {
            bitstream_id: id.into(),
            digest: Digest::of(&bytes).to_string(),
            size_bytes,
            nts: nts.iter().map(|id| format!("ntTypes/{id}")).collect(),
            region_kind: v1::RegionKind::KnownNt.into(),
            card_model: "sim-16".into(),
            shareable: true,
            request_id: request_id.into(),
            ..Default::default()
        };
        let parts = [Part::Header(header), Part::Chunk(bytes.into())]
            .map(|part| v1::UploadBitstreamRequest { part: Some(part) });
        let mut client = BitstreamServiceClient::new(self.0.clone());
        let reply = client.upload_bitstream(tokio_stream::iter(parts)).await?;
        Ok(reply.into_inner().bitstream.unwrap().digest)
    }

    pub async fn create_host(&self, host: &str) -> Result<fleet_v1::Host, Status> {
        let card = fleet_v1::HostCard {
            card: "card0".into(),
            profile: serde_json::to_string(&profile()).unwrap(),
            functions: 8,
            ..Default::default()
        };
        let request = fleet_v1::CreateHostRequest {
            host_id: host.into(),
            host: Some(fleet_v1::Host {
                zone: "z1".into(),
                rack: "r1".into(),
                cards: vec![card],
                ..Default::default()
            }),
            request_id: String::new(),
        };
        let mut client = FleetServiceClient::new(self.0.clone());
        Ok(client.create_host(request).await?.into_inner().host.unwrap())
    }

    pub async fn host(&self, host: &str) -> Result<fleet_v1::Host, Status> {
        let request = fleet_v1::GetHostRequest { name: format!("hosts/{host}") };
        let mut client = FleetServiceClient::new(self.0.clone());
        Ok(client.get_host(request).await?.into_inner().host.unwrap())
    }

    pub async fn create_dag(
        &self,
        (tenant, dag): (&str, &str),
        nts: &[&str],
        request_id: &str,
    ) -> Result<v1::Operation, Status> {
        let node = |id: &&str| v1::dag::Node {
            id: (*id).into(),
            nt_type: format!("ntTypes/{id}"),
            configuration: None,
        };
        let edges = nts
            .windows(2)
            .map(|pair| v1::dag::Edge { from_node: pair[0].into(), to_node: pair[1].into() });
        let request = v1::CreateDagRequest {
            parent: format!("tenants/{tenant}"),
            dag_id: dag.into(),
            dag: Some(v1::Dag {
                nodes: nts.iter().map(node).collect(),
                edges: edges.collect(),
                bandwidth_bps: 1_000_000_000,
                ..Default::default()
            }),
            request_id: request_id.into(),
            ..Default::default()
        };
        let mut client = DagServiceClient::new(self.0.clone());
        Ok(client.create_dag(request).await?.into_inner().operation.unwrap())
    }

    pub async fn dag(&self, tenant: &str, dag: &str) -> Result<v1::Dag, Status> {
        let request = v1::GetDagRequest { name: format!("tenants/{tenant}/dags/{dag}") };
        let mut client = DagServiceClient::new(self.0.clone());
        Ok(client.get_dag(request).await?.into_inner().dag.unwrap())
    }

    pub async fn wait(&self, operation: &str) -> Result<v1::Operation, Status> {
        let timeout = Some(Duration::from_secs(30).try_into().unwrap());
        let request = v1::WaitOperationRequest { name: operation.into(), timeout };
        let mut client = OperationServiceClient::new(self.0.clone());
        Ok(client.wait_operation(request).await?.into_inner().operation.unwrap())
    }
}
