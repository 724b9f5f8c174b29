//! Calls that another server has authenticated and passes on: a fleet's replica, to a host's services. They do not come
//! through the gate, for their connection is the other server's; access and policies are decided here as for the host's
//! own callers. Calls of tenants are counted where they arrive, so not here.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::service::Routes;
use tower::Service as _;

use super::passage::{CallAuthorizer, DecisionSlot};
use super::{Deadline, admit_kind, out_of_time, reply, standing};
use crate::access::{Methods, Row, Span};
use crate::authorization::Authorization;
use crate::error::RETRY_SOON;
use crate::identity::CallerIdentity;
use crate::settings::{FrontSettings, WAIT_MAX};
use crate::share::{CallerFlow, CallerLevel, PermitPool};

/// Calls of others at once. They are few: people who look at a host.
const CALLS_MAX: usize = 64;
/// Number of calls of one caller at a time.
const CALLS_PER_CALLER_MAX: usize = 12;

/// A call that another server passes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedCall {
    /// Path of the method.
    pub path: String,
    /// Caller, as in a certificate's path, such as `tenant/acme`. The other server has authenticated it.
    pub caller: String,
    /// The request's body, as it is on the wire of gRPC.
    pub message: Bytes,
    /// Time that the caller waits.
    pub timeout: Duration,
}

#[derive(Debug)]
struct Ready {
    routes: Routes,
    methods: Methods,
    authorization: Authorization,
    message_bytes_max: usize,
    places: PermitPool,
}

/// The way of such calls to a server's services, once it serves. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct PassedCalls(Arc<OnceLock<Ready>>);

impl PassedCalls {
    /// The server serves these from now on.
    pub fn serve(&self, routes: Routes, settings: &FrontSettings) {
        let ready = Ready {
            routes,
            methods: settings.methods,
            authorization: settings.authorization.clone(),
            message_bytes_max: settings.limits.message_bytes_max,
            places: PermitPool::passed_calls(CALLS_MAX, CALLS_PER_CALLER_MAX),
        };
        // A server is started once.
        let _ = self.0.set(ready);
    }

    /// Carries a call out, as if its caller had called here. Few things but reads are passed on.
    pub async fn call(&self, call: PassedCall) -> Response<Body> {
        let Some(ready) = self.0.get() else {
            let text = "the server does not serve yet; try again later";
            let early = ApiError::new(ErrorReason::ShuttingDown, text).retry_after(RETRY_SOON);
            return reply::of_status(early.into());
        };
        match ready.call(call).await {
            Ok(reply) => reply,
            Err(error) => reply::of_status(error.into()),
        }
    }
}

impl Ready {
    async fn call(&self, call: PassedCall) -> Result<Response<Body>, ApiError> {
        let row = self.methods.find(&call.path).filter(|row| row.may_be_passed_on());
        let row = row.ok_or_else(|| never_passed_on(&call.path))?;
        let identity = CallerIdentity::parse(&call.caller).ok_or_else(|| {
            ApiError::new(
                ErrorReason::IdentityMissing,
                "the call that is passed on names no caller",
            )
        })?;
        let settled = DecisionSlot::default();
        admit_kind(row, Some(&identity), &settled)?;
        let level = CallerLevel::of_identity(&identity);
        let place = self.places.enter(level, CallerFlow::from(&identity))?;
        let passage = CallAuthorizer::new(identity, row, self.authorization.clone(), settled);
        let reply = self.run(row, &call, passage.clone()).await;
        let reply = reply::complete(reply, self.message_bytes_max);
        let reply = if row.span == Span::Stream && row.is_decided() {
            reply.map(|body| standing::while_allowed(body, passage))
        } else {
            reply
        };
        // The place is held until the body ends or is dropped.
        Ok(reply.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _held = &place;
                frame
            }))
        }))
    }

    async fn run(&self, row: Row, call: &PassedCall, passage: CallAuthorizer) -> Response<Body> {
        let timeout = call.timeout.min(WAIT_MAX);
        let body = http_body_util::Full::new(call.message.clone());
        let mut request = Request::new(Body::new(body));
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        *request.uri_mut() = http::Uri::from_static(row.path);
        let headers = request.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        headers.insert("te", HeaderValue::from_static("trailers"));
        request.extensions_mut().insert(passage);
        request.extensions_mut().insert(Deadline::after(timeout));
        let mut routes = self.routes.clone();
        let answered = routes.call(request);
        let ended = match row.span {
            Span::Short => tokio::time::timeout(timeout, answered).await,
            _ => Ok(answered.await),
        };
        match ended {
            Ok(Ok(reply)) => reply,
            Ok(Err(never)) => match never {},
            Err(_) => reply::of_status(Status::from(out_of_time(timeout))),
        }
    }
}

/// Most of what changes something is not passed on: that is asked of the server itself.
pub fn never_passed_on(path: &str) -> ApiError {
    let method: String = path.rsplit('/').next().unwrap_or_default().chars().take(80).collect();
    let text = format!(
        "{method} is not passed on to hosts, only what reads, changes of rules and bindings, and cordons and drains \
         of cards and regions; call the daemon of the host (`snicd`) itself"
    );
    ApiError::new(ErrorReason::InvalidState, text)
}
