//! A control plane with a server before it, and clients with all kinds of certificates.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SanType, SerialNumber,
};
use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_api::v1::bitstream_service_client::BitstreamServiceClient;
use snic_api::v1::card_service_client::CardServiceClient;
use snic_api::v1::classification_service_client::ClassificationServiceClient;
use snic_api::v1::dag_service_client::DagServiceClient;
use snic_api::v1::network_task_service_client::NetworkTaskServiceClient;
use snic_api::v1::operation_service_client::OperationServiceClient;
use snic_api::v1::tenant_service_client::TenantServiceClient;
use snic_api::v1::upload_bitstream_request::Part;
use snic_bitstream::catalogue::{Catalogue, builtin};
use snic_bitstream::{build_test, check_upload};
use snic_card_sim::{SharedSimCard, SimCard};
use snic_controller::{Controller, ControllerSettings};
use snic_domain::{
    ByteSize, CardId, CardModel, CardProfile, Digest, NtType, NtTypeId, VirtualFunctions,
};
use snic_front::identity::TrustDomain;
use snic_front::settings::{Limits, TlsSettings};
use snic_front::uploads::{Upload, UploadCheck, UploadFindings, UploadProblem};
use snic_front::{ServeError, TlsReloader};
use snic_ports::card::Card as _;
use snic_ports::store::Store;
use snic_ports::store::memory::MemoryStore;
use snic_server::shell::{
    self, CardBackend, CardSlot, ControlPlane, ControlPlaneThreads, OpenedCard,
};
use snic_server::{AuditLog, AuditSettings, PageKey, ServerSettings, WebSettings};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

pub const DOMAIN: &str = "snic.test";
/// Time limit of every wait before a test fails.
const TEST_STEP_MAX: Duration = Duration::from_secs(60);

/// The result of a future that must not take forever.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(TEST_STEP_MAX, future).await;
    ended.unwrap_or_else(|_| panic!("no result within {TEST_STEP_MAX:?}"))
}

/// Large enough for every chain here; small, so that loads take no time.
pub const IMAGE_BYTES: u64 = 16_384;

pub static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| builtin().expect("the built-in catalogue is valid"));

pub fn profile() -> CardProfile {
    let model = CardModel::new("sim-16").expect("valid");
    CATALOGUE.card(&model).expect("in the catalogue").clone()
}

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    fn issue(&self, names: Vec<SanType>, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        self.issue_named(names, "", usage)
    }

    fn issue_named(
        &self,
        names: Vec<SanType>,
        common_name: &str,
        usage: ExtendedKeyUsagePurpose,
    ) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names = names;
        params.extended_key_usages = vec![usage];
        if !common_name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    pub fn server(&self) -> TlsSettings {
        let name = SanType::DnsName("localhost".try_into().expect("a name"));
        let (certificate, key) = self.issue(vec![name], ExtendedKeyUsagePurpose::ServerAuth);
        TlsSettings {
            certificate: certificate.into(),
            key: key.into(),
            client_authority: self.pem().into(),
            revoked: None,
        }
    }

    /// A client's certificate with these URIs.
    pub fn client(&self, uris: &[&str]) -> Identity {
        let (certificate, key) = self.client_pem(uris);
        Identity::from_pem(certificate, key)
    }

    /// A client's certificate with these alternative names and this common name.
    pub fn client_named(&self, names: Vec<SanType>, common_name: &str) -> Identity {
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let (certificate, key) = self.issue_named(names, common_name, usage);
        Identity::from_pem(certificate, key)
    }

    /// A client's certificate that ends at this time.
    pub fn client_until(&self, uri: &str, end: SystemTime) -> Identity {
        self.client_with(uri, |params| params.not_after = end.into())
    }

    /// A client's certificate with its serial number.
    pub fn client_with_serial(&self, uri: &str) -> (Identity, SerialNumber) {
        let serial = SerialNumber::from(4_711_u64);
        (self.client_with(uri, |params| params.serial_number = Some(serial.clone())), serial)
    }

    fn client_with(&self, uri: &str, adjust: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("a URI"))];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        adjust(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Identity::from_pem(certificate.pem(), key.serialize_pem())
    }

    /// A list that revokes one certificate, as PEM.
    pub fn revoke(&self, serial: &SerialNumber) -> String {
        let now = SystemTime::now();
        let revoked = RevokedCertParams {
            serial_number: serial.clone(),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: (now + Duration::from_secs(3_600)).into(),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).expect("a list").pem().expect("PEM")
    }

    /// The same as PEM texts, the key second.
    pub fn client_pem(&self, uris: &[&str]) -> (String, String) {
        let uri = |uri: &&str| SanType::URI((*uri).try_into().expect("a URI"));
        let names = uris.iter().map(uri).collect();
        self.issue(names, ExtendedKeyUsagePurpose::ClientAuth)
    }
}

/// Validates uploads, as the daemon does.
pub fn upload_check() -> UploadCheck {
    UploadCheck::new(|upload: Upload<'_>| {
        let nt = |id: &NtTypeId| upload.nts.iter().find(|nt| nt.id == *id);
        check_upload(upload.bytes, upload.declared, &CATALOGUE.cards, nt)
            .map(|_| UploadFindings::default())
            .map_err(|error| UploadProblem { field: error.field(), what: error.to_string() })
    })
}

pub fn settings(limits: Limits) -> ServerSettings {
    let domain = TrustDomain::new(DOMAIN).expect("valid");
    let mut settings = ServerSettings::new(domain, upload_check());
    settings.front.limits = limits;
    settings
}

/// A running control plane with this card, and with what is in the store.
fn plane_of(card: SharedSimCard, store: &Arc<dyn Store>) -> (ControlPlane, ControlPlaneThreads) {
    let records = store.scan("").expect("records");
    let mut controller =
        Controller::recover(ControllerSettings::default(), records, 7, snic_front::wall_clock())
            .expect("its own records");
    let card_id = CardId::new("card0").expect("valid");
    let physical_function = "0000:3b:00.0".parse().expect("an address");
    let functions = VirtualFunctions { physical_function, count: 8, first_offset: 1, stride: 1 };
    controller.declare_functions(card_id, functions);
    let id = CardId::new("card0").expect("valid");
    let slot = CardSlot { id, backend: Box::new(ResettableCard(card)) };
    shell::start(controller, Arc::clone(store), vec![slot]).expect("threads")
}

/// A simulated card that can be reset.
struct ResettableCard(SharedSimCard);

impl CardBackend for ResettableCard {
    fn open(&mut self) -> OpenedCard {
        let mut card = self.0.clone();
        card.poll(snic_front::wall_clock()).map_err(|error| error.to_string())?;
        Ok((Box::new(card), profile()))
    }

    fn reset(&mut self) -> Result<(), String> {
        self.0.with(SimCard::power_cycle);
        Ok(())
    }
}

/// A server and what its clients need.
pub struct Rig {
    pub authority: Authority,
    pub card: SharedSimCard,
    pub store: Arc<dyn Store>,
    pub port: u16,
    /// Address of the page for browsers.
    pub web: SocketAddr,
    audit_folder: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ServeError>>,
    running: Option<ControlPlaneThreads>,
}

/// The key of the page if it has no TLS.
pub const PAGE_KEY: &str = "0123456789abcdef0123456789abcdef";

pub fn page_key() -> PageKey {
    PageKey::new(PAGE_KEY.into())
}

impl Rig {
    pub async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Self {
        Self::adjusted(|settings| settings.front.limits = limits).await
    }

    /// With the page for browsers over TLS or in plain text.
    pub async fn with_page(limits: Limits, is_page_tls: bool) -> Self {
        Self::adjusted(|settings| {
            settings.front.limits = limits;
            if let Some(web) = settings.web.as_mut().filter(|_| !is_page_tls) {
                web.plain_text = Some(page_key());
            }
        })
        .await
    }

    /// Also returns the handle that replaces the certificates.
    pub async fn reloadable() -> (Self, TlsReloader) {
        let (rig, reloader) = Self::build(|_| {}).await;
        (rig, reloader.expect("it has certificates"))
    }

    /// With other settings.
    pub async fn adjusted(adjust: impl FnOnce(&mut ServerSettings)) -> Self {
        Self::build(adjust).await.0
    }

    /// Stops the server, and starts another over its store and its card.
    pub async fn restarted(self) -> Self {
        self.restarted_with(|_| {}).await
    }

    /// The same with a store that is changed between them.
    pub async fn restarted_with(mut self, change: impl FnOnce(&dyn Store)) -> Self {
        let authority = std::mem::replace(&mut self.authority, Authority::new());
        let (card, store) = (self.card.clone(), Arc::clone(&self.store));
        self.stop().await;
        change(&*store);
        Self::over(authority, card, store, |_| {}).await.0
    }

    async fn build(adjust: impl FnOnce(&mut ServerSettings)) -> (Self, Option<TlsReloader>) {
        let card = SharedSimCard::new(SimCard::new(profile(), 1).expect("a valid profile"));
        Self::over(Authority::new(), card, Arc::new(MemoryStore::new()), adjust).await
    }

    async fn over(
        authority: Authority,
        card: SharedSimCard,
        store: Arc<dyn Store>,
        adjust: impl FnOnce(&mut ServerSettings),
    ) -> (Self, Option<TlsReloader>) {
        let web =
            WebSettings { address: "127.0.0.1:0".parse().expect("an address"), plain_text: None };
        let mut settings = ServerSettings { web: Some(web), ..settings(Limits::default()) };
        settings.front.tcp = Some("127.0.0.1:0".parse().expect("an address"));
        settings.front.tls = Some(authority.server());
        let audit_folder = tempfile::tempdir().expect("a folder");
        let audit = AuditSettings {
            folder: audit_folder.path().into(),
            file_bytes_max: 1 << 20,
            files_max: 4,
        };
        settings.front.audit = Some(AuditLog::open(audit).expect("a log"));
        adjust(&mut settings);
        let (plane, running) = plane_of(card.clone(), &store);
        let bound = snic_server::bind(settings).await.expect("bound");
        let port = bound.tcp_address().expect("an address").port();
        let web = bound.web_address().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move { drop(stopped.await) };
        let reloader = bound.tls_reloader();
        let task = tokio::spawn(bound.serve(plane, shutdown));
        let rig = Self {
            authority,
            card,
            store,
            port,
            web,
            audit_folder,
            stop: Some(stop),
            task,
            running: Some(running),
        };
        (rig, reloader)
    }

    /// A connection with this certificate, or with none.
    pub async fn connect(&self, identity: Option<Identity>) -> Channel {
        self.try_connect(identity).await.expect("a connection")
    }

    pub async fn try_connect(
        &self,
        identity: Option<Identity>,
    ) -> Result<Channel, tonic::transport::Error> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.authority.pem()))
            .domain_name("localhost");
        if let Some(identity) = identity {
            tls = tls.identity(identity);
        }
        let address = format!("https://127.0.0.1:{}", self.port);
        Endpoint::from_shared(address)?.tls_config(tls)?.connect().await
    }

    /// A connection whose reader buffers next to nothing.
    pub async fn connect_narrow(&self, identity: Identity) -> Channel {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.authority.pem()))
            .domain_name("localhost")
            .identity(identity);
        let address = format!("https://127.0.0.1:{}", self.port);
        let endpoint = Endpoint::from_shared(address).expect("an address");
        let endpoint = endpoint.tls_config(tls).expect("certificates");
        endpoint.initial_stream_window_size(1_024).connect().await.expect("a connection")
    }

    /// A client with the proper certificate: `operator/root`, `tenant/acme`.
    pub async fn client(&self, who: &str) -> Client {
        let uri = format!("spiffe://{DOMAIN}/{who}");
        Client::new(self.connect(Some(self.authority.client(&[&uri]))).await)
    }

    /// An operator's client of a server with NT types, bitstreams and two tenants.
    pub async fn furnished(&self) -> Client {
        let mut operator = self.client("operator/root").await;
        for tenant in ["acme", "globex"] {
            operator.create_tenant(tenant).await.expect("a tenant");
        }
        for nt in ["nat", "firewall", "aes"] {
            operator.create_nt(nt, true).await.expect("an NT type");
        }
        for chain in [&["nat", "firewall"][..], &["aes"]] {
            let id = chain.join("-");
            operator.upload(&id, chain).await.expect("a bitstream");
        }
        operator
    }

    /// Where the audit log has its files.
    pub fn audit_folder(&self) -> &std::path::Path {
        self.audit_folder.path()
    }

    /// Stops the server, and waits until it has.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        in_time(&mut self.task).await.expect("no panic").expect("a clean stop");
        let running = self.running.take().expect("not stopped before");
        let stopped = in_time(tokio::task::spawn_blocking(|| running.stop())).await;
        stopped.expect("no panic").expect("stopped");
    }
}

/// All services on one connection.
#[derive(Clone)]
pub struct Client {
    pub channel: Channel,
    pub tenants: TenantServiceClient<Channel>,
    pub nts: NetworkTaskServiceClient<Channel>,
    pub bitstreams: BitstreamServiceClient<Channel>,
    pub dags: DagServiceClient<Channel>,
    pub operations: OperationServiceClient<Channel>,
    pub cards: CardServiceClient<Channel>,
    pub rules: ClassificationServiceClient<Channel>,
}

impl Client {
    pub fn new(channel: Channel) -> Self {
        Self {
            tenants: TenantServiceClient::new(channel.clone()),
            nts: NetworkTaskServiceClient::new(channel.clone()),
            bitstreams: BitstreamServiceClient::new(channel.clone()),
            dags: DagServiceClient::new(channel.clone()),
            operations: OperationServiceClient::new(channel.clone()),
            cards: CardServiceClient::new(channel.clone()),
            rules: ClassificationServiceClient::new(channel.clone()),
            channel,
        }
    }

    pub async fn create_tenant(&mut self, id: &str) -> Result<v1::Tenant, Status> {
        let request = v1::CreateTenantRequest { tenant_id: id.into(), ..Default::default() };
        self.tenants.create_tenant(request).await.item()
    }

    /// Registers an NT type; `acme.x` has the properties of `nat`.
    pub async fn create_nt(&mut self, id: &str, shareable: bool) -> Result<v1::NtType, Status> {
        let nt = nt(id);
        let request = v1::CreateNtTypeRequest {
            nt_type_id: id.into(),
            nt_type: Some(v1::NtType {
                shareable,
                ..snic_api::convert::nt_type::nt_type_to_wire(&nt)
            }),
            ..Default::default()
        };
        self.nts.create_nt_type(request).await.item()
    }

    pub async fn upload(&mut self, id: &str, nts: &[&str]) -> Result<v1::Bitstream, Status> {
        let (header, bytes) = image(id, nts);
        self.send(upload(header, &bytes, 4_096)).await
    }

    pub async fn send(
        &mut self,
        messages: Vec<v1::UploadBitstreamRequest>,
    ) -> Result<v1::Bitstream, Status> {
        let stream = tokio_stream::iter(messages);
        self.bitstreams.upload_bitstream(stream).await.item()
    }

    pub async fn create_dag(&mut self, name: &str, dag: v1::Dag) -> Result<v1::Operation, Status> {
        let (parent, dag_id) = name.split_once("/dags/").expect("the name of a DAG");
        let (parent, dag_id) = (parent.into(), dag_id.into());
        let request = v1::CreateDagRequest { parent, dag_id, dag: Some(dag), ..Default::default() };
        self.dags.create_dag(request).await.item()
    }

    /// Creates a DAG and waits until it is ready.
    pub async fn ready_dag(&mut self, name: &str, dag: v1::Dag) -> v1::Dag {
        let operation = self.create_dag(name, dag).await.expect("accepted");
        self.wait(&operation.name).await;
        self.get_dag(name).await.expect("the DAG")
    }

    pub async fn get_dag(&mut self, name: &str) -> Result<v1::Dag, Status> {
        let request = v1::GetDagRequest { name: name.into() };
        self.dags.get_dag(request).await.item()
    }

    /// Waits until an operation has ended.
    pub async fn wait(&mut self, name: &str) -> v1::Operation {
        let request = v1::WaitOperationRequest { name: name.into(), timeout: None };
        let waited = in_time(self.operations.wait_operation(request)).await.item();
        let operation = waited.expect("waited");
        assert!(operation.done, "{operation:?}");
        operation
    }
}

/// An NT type of the catalogue; one of a tenant is like `nat`.
pub fn nt(id: &str) -> NtType {
    let id = NtTypeId::new(id).expect("valid");
    let like = NtTypeId::new("nat").expect("valid");
    let nt = CATALOGUE.nt_type(&id).or_else(|| CATALOGUE.nt_type(&like)).expect("one of them");
    NtType { id, ..nt.clone() }
}

/// A bitstream with its header.
pub fn image(id: &str, nts: &[&str]) -> (v1::BitstreamHeader, Vec<u8>) {
    let chain: Vec<NtType> = nts.iter().map(|id| nt(id)).collect();
    image_of(id, &chain.iter().collect::<Vec<_>>())
}

/// A bitstream of NT types that are not in the catalogue.
pub fn image_of(id: &str, chain: &[&NtType]) -> (v1::BitstreamHeader, Vec<u8>) {
    let bytes = build_test(&profile(), chain, ByteSize::from_bytes(IMAGE_BYTES)).expect("fits");
    let header = v1::BitstreamHeader {
        bitstream_id: id.into(),
        digest: Digest::of(&bytes).to_string(),
        size_bytes: IMAGE_BYTES,
        nts: chain.iter().map(|nt| format!("ntTypes/{}", nt.id)).collect(),
        region_kind: v1::RegionKind::KnownNt.into(),
        card_model: "sim-16".into(),
        shareable: true,
        ..Default::default()
    };
    (header, bytes)
}

pub fn header(header: v1::BitstreamHeader) -> v1::UploadBitstreamRequest {
    v1::UploadBitstreamRequest { part: Some(Part::Header(header)) }
}

pub fn chunk(bytes: &[u8]) -> v1::UploadBitstreamRequest {
    v1::UploadBitstreamRequest { part: Some(Part::Chunk(bytes.to_vec().into())) }
}

pub fn upload(
    declared: v1::BitstreamHeader,
    bytes: &[u8],
    chunk_bytes: usize,
) -> Vec<v1::UploadBitstreamRequest> {
    [header(declared)].into_iter().chain(bytes.chunks(chunk_bytes).map(chunk)).collect()
}

/// A DAG of these nodes, each named like its NT type, and edges; 1 Gbit/s.
pub fn dag(nodes: &[&str], edges: &[(&str, &str)]) -> v1::Dag {
    let node = |id: &&str| v1::dag::Node {
        id: id.replace('.', "-"),
        nt_type: format!("ntTypes/{}", id.trim_end_matches(|c: char| c.is_ascii_digit())),
        configuration: None,
    };
    let edge = |(from, to): &(&str, &str)| v1::dag::Edge {
        from_node: from.replace('.', "-"),
        to_node: to.replace('.', "-"),
    };
    v1::Dag {
        nodes: nodes.iter().map(node).collect(),
        edges: edges.iter().map(edge).collect(),
        bandwidth_bps: 1_000_000_000,
        ..Default::default()
    }
}

pub fn chain(nodes: &[&str]) -> v1::Dag {
    let edges: Vec<(&str, &str)> = nodes.windows(2).map(|pair| (pair[0], pair[1])).collect();
    dag(nodes, &edges)
}
