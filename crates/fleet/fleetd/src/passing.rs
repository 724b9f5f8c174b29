//! Hands calls about what only a host knows to that host: what is asked of a DAG's packets to the host that serves it, and
//! whatever operators read of a host that they name in the header `snic-host`. The host's own services answer, in the
//! caller's name; its access table and policies decide there. Services send what they found the host of in the same way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Body as RouterBody;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Limited};
use prost::Message as _;
use snic_api::connect::HOST_HEADER;
use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::fleet_v1::call_host_response::Part;
use snic_api::fleet_v1::{AnswerResponse, CallEnd};
use snic_api::v1::ErrorReason;
use snic_domain::Caller;
use snic_fleet::HostId;
use snic_front::error::trailers;
use snic_front::gate::{CallAuthorizer, Deadline, never_passed_on};
use snic_front::settings::WAIT_MAX;
use snic_front::share::{CallerFlow, CallerLevel, Permit};
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::METHODS;
use crate::calls::Parts;
use crate::services::Services;

/// Length of the head of a message on the wire of gRPC: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
#[derive(Clone)]
pub(crate) struct RequestForwarder {
    services: Services,
    message_bytes_max: usize,
}

impl RequestForwarder {
    pub const fn new(services: Services, message_bytes_max: usize) -> Self {
        Self { services, message_bytes_max }
    }
}

impl<S> Layer<S> for RequestForwarder {
    type Service = PassingService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PassingService { passing: self.clone(), inner }
    }
}

/// A service behind the layer.
#[derive(Clone)]
pub(crate) struct PassingService<S> {
    passing: RequestForwarder,
    inner: S,
}

impl<S> Service<Request<RouterBody>> for PassingService<S>
where
    S: Service<Request<RouterBody>, Response = Response<RouterBody>>,
    S::Future: Send + 'static,
{
    type Response = Response<RouterBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<RouterBody>) -> Self::Future {
        if !is_of_host(&request) {
            return Box::pin(self.inner.call(request));
        }
        let passing = self.passing.clone();
        Box::pin(async move {
            let reply = passing.pass(request).await;
            let reply = reply.unwrap_or_else(|status| status.into_http::<Body>());
            Ok(reply.map(RouterBody::new))
        })
    }
}

fn is_of_host<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    let is_control = path.starts_with("/snic.control.v1.");
    let is_of_dag = || METHODS.find(path).is_some_and(|row| row.of_host);
    is_control && (request.headers().contains_key(HOST_HEADER) || is_of_dag())
}

/// Name in a request about a DAG.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct DagRequest {
    #[prost(string, tag = "1")]
    name: String,
}

impl RequestForwarder {
    async fn pass(&self, request: Request<RouterBody>) -> Result<Response<Body>, Status> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let missing = || ApiError::internal("no caller behind the gate");
        let passage = head.extensions.get::<CallAuthorizer>().ok_or_else(missing)?;
        let identity = passage.identity();
        // Hosts and replicas have no business here.
        let caller = identity.caller().ok_or_else(|| passage.refused())?;
        if !METHODS.find(&path).is_some_and(|row| row.may_be_passed_on()) {
            return Err(never_passed_on(&path).into());
        }
        let place =
            self.services.passed().enter(CallerLevel::of(caller), CallerFlow::from(caller))?;
        let message = self.message(&head.headers, body).await?;
        let host = match head.headers.get(HOST_HEADER) {
            Some(name) => named_host(name, caller)?,
            None => self.host_of_dag(caller, &message).await?,
        };
        let until = head.extensions.get::<Deadline>().map(|deadline| deadline.0);
        let timeout = until.map_or(WAIT_MAX, |until| until.duration_since(Instant::now()));
        let call = AnswerResponse {
            path,
            caller: identity.to_string(),
            message: message.to_vec(),
            timeout_ms: millis(timeout),
        };
        Ok(answer(self.services.call_host(&host, call).await?, place))
    }

    /// The request's body, one message as it is on the wire.
    async fn message(&self, headers: &HeaderMap, body: RouterBody) -> Result<Bytes, Status> {
        let encoding = headers.get("grpc-encoding").map(http::HeaderValue::as_bytes);
        if encoding.is_some_and(|encoding| encoding != b"identity") {
            return Err(Status::unimplemented("compressed messages are not understood"));
        }
        let most = self.message_bytes_max;
        let read = Limited::new(body, most + PREFIX_BYTES).collect().await.map_err(|error| {
            tracing::debug!(error, "a message that is to be passed on cannot be read");
            let text = format!("the message is larger than {most} bytes, or broke off");
            ApiError::new(ErrorReason::LimitExceeded, text)
        })?;
        Ok(read.to_bytes())
    }

    async fn host_of_dag(&self, caller: &Caller, message: &Bytes) -> Result<HostId, Status> {
        let named =
            message.get(PREFIX_BYTES..).and_then(|message| DagRequest::decode(message).ok());
        let named = named.ok_or_else(|| {
            let text = "the message cannot be decoded; client and server have different API files";
            ApiError::new(ErrorReason::InvalidField, text)
        })?;
        let name = name::dag("name", &named.name).map_err(ApiError::from)?;
        Ok(self.services.host_of(caller, name).await?)
    }
}

/// The way to a host's own services in a caller's name, for clients in this process: the page for browsers, and services that know
/// the host.
#[derive(Clone)]
pub(crate) struct HostTransport {
    services: Services,
    host: HostId,
    caller: Caller,
    identity: String,
    /// Time that the caller waits.
    timeout: Duration,
}

impl HostTransport {
    /// To a host, for a caller with this identity.
    pub const fn new(services: Services, host: HostId, caller: Caller, identity: String) -> Self {
        Self { services, host, caller, identity, timeout: WAIT_MAX }
    }

    /// The same for a caller that waits until then.
    pub fn until(self, deadline: Option<Deadline>) -> Self {
        let left = |deadline: Deadline| deadline.0.saturating_duration_since(Instant::now());
        Self { timeout: deadline.map_or(WAIT_MAX, left), ..self }
    }

    async fn pass(self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let Self { services, host, caller, identity, timeout } = self;
        let place = services.passed().enter(CallerLevel::of(&caller), CallerFlow::from(&caller))?;
        let (head, body) = request.into_parts();
        let message = body.collect().await?.to_bytes().to_vec();
        let (path, timeout_ms) = (head.uri.path().to_owned(), millis(timeout));
        let call = AnswerResponse { path, caller: identity, message, timeout_ms };
        Ok(answer(services.call_host(&host, call).await?, place))
    }
}

impl Service<Request<Body>> for HostTransport {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let passed = self.clone().pass(request);
        Box::pin(async move { Ok(passed.await.unwrap_or_else(Status::into_http)) })
    }
}

/// The reply with a host's answer.
fn answer(parts: Parts, place: Permit) -> Response<Body> {
    let mut reply = Response::new(Body::new(Answer { parts, has_ended: false, _place: place }));
    let kind = http::HeaderValue::from_static("application/grpc");
    reply.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    reply
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The host that an operator names.
fn named_host(name: &http::HeaderValue, caller: &Caller) -> Result<HostId, ApiError> {
    if !matches!(caller, Caller::Operator(_)) {
        let text = "only operators name a host; leave `snic-host` (`--host`) out";
        return Err(ApiError::new(ErrorReason::PermissionDenied, text));
    }
    let name = String::from_utf8_lossy(name.as_bytes());
    HostId::new(&name)
        .map_err(|error| ApiError::in_field(ErrorReason::InvalidField, HOST_HEADER, error))
}

/// The body of a reply: what the host answers.
struct Answer {
    parts: Parts,
    has_ended: bool,
    _place: Permit,
}

fn status_of(end: &CallEnd) -> Status {
    Status::with_details(Code::from_i32(end.code), end.message.clone(), end.details.clone().into())
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let part = ready!(self.parts.as_mut().poll_next(cx));
        let last = match part {
            Some(Ok(reply)) => match reply.part {
                Some(Part::Data(data)) => {
                    return Poll::Ready(Some(Ok(Frame::data(data.into()))));
                }
                Some(Part::End(end)) => status_of(&end),
                None => Status::internal("the host's answer has a part of an unknown kind"),
            },
            Some(Err(status)) => status,
            None => Status::unavailable("the host's answer broke off; try again later"),
        };
        self.has_ended = true;
        Poll::Ready(Some(Ok(Frame::trailers(trailers(&last)))))
    }
}
