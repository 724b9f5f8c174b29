//! A server that answers what a test tells it to, and keeps what it was asked.
//!
//! It speaks gRPC over a real socket, so that headers, deadlines, TLS and the framing of streams are those of the real
//! thing; only what stands behind them is a script. Methods and their replies are known from the descriptors, so a new
//! method needs nothing here.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DescriptorPool, Kind, MethodDescriptor};
use snic_api::fleet_v1::fleet_service_server::FleetServiceServer;
use snic_api::fleet_v1::policy_service_server::PolicyServiceServer;
use snic_api::fleet_v1::project_service_server::ProjectServiceServer;
use snic_api::v1::bitstream_service_server::BitstreamServiceServer;
use snic_api::v1::card_service_server::CardServiceServer;
use snic_api::v1::classification_service_server::ClassificationServiceServer;
use snic_api::v1::dag_service_server::DagServiceServer;
use snic_api::v1::network_task_service_server::NetworkTaskServiceServer;
use snic_api::v1::operation_service_server::OperationServiceServer;
use snic_api::v1::system_service_server::SystemServiceServer;
use snic_api::v1::tenant_service_server::TenantServiceServer;
use snic_api::v1::usage_service_server::UsageServiceServer;
use snic_api::{FILE_DESCRIPTOR_SET, FLEET_DESCRIPTOR_SET};
use tokio_stream::Stream;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::server::{Grpc, NamedService, StreamingService};
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
    requests: Vec<(String, Vec<u8>)>,
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

    /// The next call of `method` gets this message, or the one that carries it; of a stream, one element.
    pub fn answer<M: Message>(&self, method: &'static str, message: &M) -> &Self {
        let name = std::any::type_name::<M>().rsplit("::").next().unwrap();
        self.push(method, Reply::Message(carried(method, name, message.encode_to_vec())))
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

/// The method of this name, of either package.
fn method(name: &str) -> MethodDescriptor {
    static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
        let mut pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        pool.decode_file_descriptor_set(FLEET_DESCRIPTOR_SET).unwrap();
        pool
    });
    let mut methods = POOL.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods.find(|method| method.name() == name).unwrap_or_else(|| panic!("no method {name}"))
}

/// The bytes of a method's reply, from those of a message that is it or is in its one field.
fn carried(name: &str, message: &str, bytes: Vec<u8>) -> Vec<u8> {
    let reply = method(name).output();
    let has_it = |kind: Kind| kind.as_message().is_some_and(|of| of.name() == message);
    let mut fields = reply.fields().filter(|field| has_it(field.kind()) && !field.is_list());
    match fields.next() {
        Some(field) if reply.name() != message => {
            let mut all = Vec::new();
            encode_key(field.number(), WireType::LengthDelimited, &mut all);
            encode_varint(bytes.len() as u64, &mut all);
            [all, bytes].concat()
        }
        _ => bytes,
    }
}

/// Messages as their bytes.
#[derive(Clone, Copy)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}

type Elements = std::pin::Pin<Box<dyn Stream<Item = Result<Vec<u8>, Status>> + Send>>;

/// All methods of the service that `S` serves.
struct Scripted<S>(Services, PhantomData<fn() -> S>);

impl<S> Clone for Scripted<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<S: NamedService> NamedService for Scripted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Scripted<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let name = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let call = Call { services: self.0.clone(), name };
        Box::pin(async move { Ok(Grpc::new(RawCodec).streaming(call, request).await) })
    }
}

/// One call of a method.
struct Call {
    services: Services,
    name: String,
}

impl StreamingService<Vec<u8>> for Call {
    type Response = Vec<u8>;
    type ResponseStream = Elements;
    type Future = BoxFuture<Response<Elements>, Status>;

    fn call(&mut self, request: Request<Streaming<Vec<u8>>>) -> Self::Future {
        let (services, name) = (self.services.clone(), self.name.clone());
        Box::pin(async move { services.serve(&name, request).await })
    }
}

impl Services {
    fn of<S>(&self) -> Scripted<S> {
        Scripted(self.clone(), PhantomData)
    }

    fn router(self, mut server: Server) -> tonic::transport::server::Router {
        server
            .add_service(self.of::<BitstreamServiceServer<()>>())
            .add_service(self.of::<CardServiceServer<()>>())
            .add_service(self.of::<ClassificationServiceServer<()>>())
            .add_service(self.of::<DagServiceServer<()>>())
            .add_service(self.of::<NetworkTaskServiceServer<()>>())
            .add_service(self.of::<OperationServiceServer<()>>())
            .add_service(self.of::<SystemServiceServer<()>>())
            .add_service(self.of::<FleetServiceServer<()>>())
            .add_service(self.of::<PolicyServiceServer<()>>())
            .add_service(self.of::<ProjectServiceServer<()>>())
            .add_service(self.of::<TenantServiceServer<()>>())
            .add_service(self.of::<UsageServiceServer<()>>())
    }

    fn note(&self, name: &str, headers: &tonic::metadata::MetadataMap, bytes: Vec<u8>) {
        let mut script = self.0.lock().unwrap();
        script.headers.push(headers.clone());
        script.requests.push((name.to_owned(), bytes));
    }

    fn next(&self, name: &str) -> Option<Reply> {
        self.0.lock().unwrap().replies.get_mut(name)?.pop_front()
    }

    async fn serve(
        &self,
        name: &str,
        request: Request<Streaming<Vec<u8>>>,
    ) -> Result<Response<Elements>, Status> {
        let (headers, _, mut messages) = request.into_parts();
        let of = method(name);
        if of.is_client_streaming() {
            self.note(name, &headers, Vec::new());
            while let Some(part) = messages.message().await? {
                self.note(&format!("{name}/part"), &Default::default(), part);
            }
        } else if let Some(message) = messages.message().await? {
            self.note(name, &headers, message);
        }
        let elements = match of.is_server_streaming() {
            true => self.stream(name),
            false => vec![Ok(self.reply(name).await?)],
        };
        Ok(Response::new(Box::pin(tokio_stream::iter(elements))))
    }

    async fn reply(&self, name: &str) -> Result<Vec<u8>, Status> {
        match self.next(name) {
            Some(Reply::Message(bytes)) => Ok(bytes),
            Some(Reply::Refusal(status)) => Err(status),
            Some(Reply::Silence) => {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                Err(Status::internal("nobody waits that long"))
            }
            None => Err(Status::internal(format!("the test has no answer for {name}"))),
        }
    }

    /// All that is left for a method: elements, and how the stream ends.
    fn stream(&self, name: &str) -> Vec<Result<Vec<u8>, Status>> {
        let mut elements = Vec::new();
        while let Some(reply) = self.next(name) {
            match reply {
                Reply::Message(bytes) => elements.push(Ok(bytes)),
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
