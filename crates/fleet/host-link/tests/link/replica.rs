//! A replica that a test plays: it sends the orders that the test says, and images.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use snic_api::connect::LOST_EPOCH_HEADER;
use snic_api::fleet_v1::answer_request::Part;
use snic_api::fleet_v1::host_link_service_server::{HostLinkService, HostLinkServiceServer};
use snic_api::fleet_v1::{
    AnswerRequest, AnswerResponse, FetchImageRequest, FetchImageResponse, LinkRequest, LinkResponse,
};
use snic_domain::{
    Bandwidth, Bitstream, ByteSize, CardId, CardModel, DagId, DagName, DagSpec, Digest, Form,
    Mapping, Quota, RegionId, RegionImage, RegionImages, RegionKind, Tenant, TenantId,
};
use snic_fleet::protocol::{Epoch, HostOrder, HostReport, Numbered, OrderKind};
use snic_fleet::records::PlaceRecord;
use snic_fleet::{FleetCard, HostId};
use snic_host_link::LinkTls;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

/// Authority that issues the certificates of a test.
pub struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test");
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { params, key, pem }
    }

    fn issue(&self, name: SanType) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names.push(name);
        let key = KeyPair::generate().expect("a key");
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    pub fn link_tls(&self, identity: &str) -> LinkTls {
        let uri = format!("spiffe://snic.local/{identity}");
        let (certificate, key) = self.issue(SanType::URI(uri.try_into().expect("ASCII")));
        LinkTls {
            authority: self.pem.clone().into(),
            certificate: certificate.into(),
            key: key.into(),
        }
    }
}

#[derive(Default)]
struct Play {
    asked: AtomicUsize,
    fetched: AtomicUsize,
    refusal: Mutex<Option<String>>,
    lost: Mutex<Vec<Option<String>>>,
    images: Mutex<VecDeque<Vec<u8>>>,
}

/// One link, seen from the replica.
pub struct Orders {
    orders: Option<mpsc::UnboundedSender<Result<LinkResponse, Status>>>,
    reports: Streaming<LinkRequest>,
}

impl Orders {
    pub fn send(&self, epoch: i64, sequence: u64, what: OrderKind) {
        let order = HostOrder { epoch: Epoch(epoch), sequence, what };
        let order = serde_json::to_vec(&order).expect("text keys");
        let orders = self.orders.as_ref().expect("it was not ended");
        orders.send(Ok(LinkResponse { order, call: 0 })).expect("the host is linked");
    }

    /// A call waits for the host.
    pub fn offer(&self, call: u64) {
        let orders = self.orders.as_ref().expect("it was not ended");
        let offer = LinkResponse { order: Vec::new(), call };
        orders.send(Ok(offer)).expect("the host is linked");
    }

    pub fn end(&mut self) {
        let status = Status::unavailable("it leads no more");
        let _ = self.orders.take().expect("it was not ended").send(Err(status));
    }

    pub async fn report(&mut self) -> Option<HostReport> {
        let request = self.reports.message().await.ok()??;
        Some(serde_json::from_slice(&request.report).expect("a report"))
    }
}

/// An answer that a host has begun. Dropping it is a caller that goes.
pub struct Answering {
    parts: Streaming<AnswerRequest>,
    asks: mpsc::UnboundedSender<Result<AnswerResponse, Status>>,
}

impl Answering {
    /// Asks for a path.
    pub fn ask(&self, path: &str) {
        let (path, message, timeout_ms) = (path.to_owned(), vec![7; 9], 5_000);
        let call = AnswerResponse { path, caller: "operator/root".into(), message, timeout_ms };
        self.asks.send(Ok(call)).expect("the host listens");
    }

    /// The next part.
    pub async fn part(&mut self) -> Option<Part> {
        self.parts.message().await.ok()??.part
    }
}

struct Service {
    play: Arc<Play>,
    links: mpsc::UnboundedSender<Orders>,
    answers: mpsc::UnboundedSender<Answering>,
}

type Sent<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl HostLinkService for Service {
    type LinkStream = Sent<LinkResponse>;
    type FetchImageStream = Sent<FetchImageResponse>;
    type AnswerStream = Sent<AnswerResponse>;

    async fn answer(
        &self,
        request: Request<Streaming<AnswerRequest>>,
    ) -> Result<Response<Self::AnswerStream>, Status> {
        let (asks, sent) = mpsc::unbounded_channel();
        let answering = Answering { parts: request.into_inner(), asks };
        self.answers.send(answering).map_err(|_| Status::internal("the test is over"))?;
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(sent))))
    }

    async fn link(
        &self,
        request: Request<Streaming<LinkRequest>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        self.play.asked.fetch_add(1, Ordering::SeqCst);
        let lost = request.metadata().get(LOST_EPOCH_HEADER);
        let lost = lost.map(|epoch| epoch.to_str().expect("a number").to_owned());
        self.play.lost.lock().expect("no panic").push(lost);
        if let Some(reason) = self.play.refusal.lock().expect("no panic").clone() {
            return Err(Status::unavailable(reason));
        }
        let (orders, sent) = mpsc::unbounded_channel();
        let link = Orders { orders: Some(orders), reports: request.into_inner() };
        self.links.send(link).map_err(|_| Status::internal("the test is over"))?;
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(sent))))
    }

    async fn fetch_image(
        &self,
        _: Request<FetchImageRequest>,
    ) -> Result<Response<Self::FetchImageStream>, Status> {
        self.play.fetched.fetch_add(1, Ordering::SeqCst);
        let next = self.play.images.lock().expect("no panic").pop_front();
        let image = next.ok_or_else(|| Status::not_found("no such image"))?;
        let chunks: Vec<Vec<u8>> = image.chunks(1_000).map(<[u8]>::to_vec).collect();
        let sent =
            tokio_stream::iter(chunks).map(|chunk| Ok(FetchImageResponse { chunk: chunk.into() }));
        Ok(Response::new(Box::pin(sent)))
    }
}

/// A replica that listens.
pub struct Replica {
    port: u16,
    play: Arc<Play>,
    links: mpsc::UnboundedReceiver<Orders>,
    answers: mpsc::UnboundedReceiver<Answering>,
    task: JoinHandle<()>,
}

impl Replica {
    pub async fn start(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let address = SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        let (certificate, key) = authority.issue(address);
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(certificate, key))
            .client_ca_root(Certificate::from_pem(&authority.pem));
        let (sender, links) = mpsc::unbounded_channel();
        let (begun, answers) = mpsc::unbounded_channel();
        let play = Arc::new(Play::default());
        let service = Service { play: Arc::clone(&play), links: sender, answers: begun };
        let mut server = Server::builder().tls_config(tls).expect("own certificates");
        let router = server.add_service(HostLinkServiceServer::new(service));
        let incoming = TcpListenerStream::new(listener);
        let task = tokio::spawn(async move {
            router.serve_with_incoming(incoming).await.expect("it serves");
        });
        Self { port, play, links, answers, task }
    }

    pub fn endpoint(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The next link of a host.
    pub async fn linked(&mut self) -> Orders {
        self.links.recv().await.expect("the replica serves")
    }

    /// The next answer that a host begins.
    #[allow(dead_code)] // for tests of the link alone
    pub async fn answered(&mut self) -> Answering {
        self.answers.recv().await.expect("the replica serves")
    }

    /// It does not lead.
    pub fn refuse(&self, reason: &str) {
        *self.play.refusal.lock().expect("no panic") = Some(reason.to_owned());
    }

    /// It leads again.
    #[allow(dead_code)] // for tests with a daemon
    pub fn accept(&self) {
        *self.play.refusal.lock().expect("no panic") = None;
    }

    pub fn stop(&self) {
        self.task.abort();
    }

    /// Links that were asked for.
    pub fn asked(&self) -> usize {
        self.play.asked.load(Ordering::SeqCst)
    }

    /// The leaders that those who asked for a link had just lost.
    #[allow(dead_code)] // for tests of the link alone
    pub fn lost(&self) -> Vec<Option<String>> {
        self.play.lost.lock().expect("no panic").clone()
    }

    /// Images that were asked for.
    pub fn fetched(&self) -> usize {
        self.play.fetched.load(Ordering::SeqCst)
    }

    /// Sets the answers to those who ask for an image, one after the other.
    pub fn sends(&self, images: Vec<Vec<u8>>) {
        *self.play.images.lock().expect("no panic") = images.into();
    }
}

pub fn card() -> CardId {
    CardId::new("card0").expect("a label")
}

fn tenant() -> TenantId {
    TenantId::new("cust").expect("a label")
}

fn named(dag: &str) -> DagName {
    DagName { tenant: tenant(), dag: DagId::new(dag).expect("a label") }
}

pub fn name() -> DagName {
    named("web")
}

pub fn put(serial: u64) -> OrderKind {
    dag("web", serial)
}

pub fn dag(id: &str, serial: u64) -> OrderKind {
    dag_of(id, serial, DagSpec::chain(&[], Bandwidth::ZERO))
}

pub fn dag_of(id: &str, serial: u64, spec: DagSpec) -> OrderKind {
    let host = HostId::new("h0").expect("a label");
    let (form, stages) = (Form::Sequential, Vec::new());
    let mapping = Mapping { card: card(), form, stages, programs: Vec::new() };
    let reservation = Default::default();
    let place =
        PlaceRecord { card: FleetCard { host, card: card() }, serial, mapping, reservation };
    let (quota, notes) = (Quota::default(), Default::default());
    let tenant =
        Numbered { number: 3, of: Tenant { id: tenant(), weight: 1, quota, notes, project: None } };
    OrderKind::Put {
        name: named(id),
        spec: Box::new(spec),
        place: Box::new(place),
        tenant: Box::new(tenant),
    }
}

pub fn removal(serial: u64) -> OrderKind {
    OrderKind::Remove { name: name(), card: card(), serial, if_detached: false }
}

pub fn image_of(id: &str) -> Vec<u8> {
    id.bytes().cycle().take(10_000).collect()
}

/// A bitstream with an image for each of these regions, whose bytes begin with the region's number.
pub fn provide_for(regions: &[u8], number: u64) -> OrderKind {
    let OrderKind::Provide { nts, mut bitstreams, tenants } = provide("nat", number) else {
        unreachable!("it was made a moment ago")
    };
    for (at, region) in regions.iter().enumerate() {
        let bytes = image_for(*region);
        let image = RegionImage {
            digest: Digest::of(&bytes),
            size: ByteSize::from_bytes(bytes.len() as u64),
            regions: vec![RegionId(*region)],
            signature: None,
        };
        match at {
            0 => bitstreams[0].of.images = image.into(),
            _ => bitstreams[0].of.images.add(image).expect("another region"),
        }
    }
    OrderKind::Provide { nts, bitstreams, tenants }
}

pub fn image_for(region: u8) -> Vec<u8> {
    image_of(&format!("{region} nat"))
}

pub fn provide(id: &str, number: u64) -> OrderKind {
    let image = image_of(id);
    let of = Bitstream {
        id: id.parse().expect("a label"),
        images: RegionImages::for_all(Digest::of(&image), ByteSize::from_bytes(image.len() as u64)),
        nts: Vec::new(),
        region_kind: RegionKind::KnownNt,
        card_model: CardModel::new("tiny").expect("a label"),
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: None,
    };
    let bitstreams = vec![Numbered { number, of }];
    OrderKind::Provide { nts: Vec::new(), bitstreams, tenants: Vec::new() }
}
