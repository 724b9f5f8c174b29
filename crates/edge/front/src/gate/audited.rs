//! The audit entry of a call: its subject is captured from the request, its result from the reply, also
//! if the caller disconnects in between.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use snic_api::error::reason_of;
use snic_api::words::EnumWord as _;
use snic_audit::{ALLOW, AuditLog, DENY, Entry, NOBODY, PROVEN, STATED, subject};
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::{Code, Status};

use super::body::Call;
use super::passage::DecisionSlot;
use crate::clock::wall_clock;

/// Most bytes captured: the first message of a request is enough.
const CAPTURED_BYTES_MAX: usize = 1 << 20;
/// Most policies named in an entry, and longest id in characters: the log must not be filled by a
/// policy file.
const POLICIES_MAX: usize = 16;
const POLICY_CHARS_MAX: usize = 100;
/// Time to wait for the request of a call that is rejected anyway.
const REJECTED_WAIT: Duration = Duration::from_secs(1);

/// The captured part of a request.
type CapturedBody = Arc<Mutex<Vec<Bytes>>>;

/// Captures the request's body as it passes.
fn capturing(body: Body, captured: CapturedBody) -> Body {
    let mut bytes = 0;
    Body::new(body.inspect_frame(move |frame| {
        if let Some(data) = frame.data_ref()
            && bytes < CAPTURED_BYTES_MAX
        {
            bytes += data.len();
            // Shares the bytes instead of copying them.
            captured.lock().push(data.clone());
        }
    }))
}

/// Origin of a call.
pub(super) struct CallOrigin {
    /// As in [`Entry::peer`].
    pub peer: String,
    /// Whether the caller's identity is proven; `None` without one.
    pub is_proven: Option<bool>,
    /// Empty if it is not traced.
    pub trace_id: String,
}

/// The entry of a running call. Dropped early, it records that the caller disconnected.
pub(super) struct PendingEntry {
    log: AuditLog,
    captured: CapturedBody,
    settled: DecisionSlot,
    entry: Option<Entry>,
}

impl PendingEntry {
    /// Begins the entry of a call.
    pub fn begin(
        log: &AuditLog,
        path: &str,
        call: &Call,
        CallOrigin { peer, is_proven, trace_id }: CallOrigin,
        body: Body,
    ) -> (Self, Body) {
        let captured = CapturedBody::default();
        let body = capturing(body, Arc::clone(&captured));
        let entry = Entry {
            caller: call.identity.as_ref().map_or_else(|| NOBODY.to_owned(), ToString::to_string),
            agent: call.agent.as_ref().map_or_else(String::new, ToString::to_string),
            method: path.rsplit_once('.').map_or(path, |(_, method)| method).to_owned(),
            identity: match is_proven {
                Some(true) => PROVEN.to_owned(),
                Some(false) => STATED.to_owned(),
                None => String::new(),
            },
            peer,
            trace_id,
            ..Entry::default()
        };
        (
            Self { log: log.clone(), captured, settled: call.settled.clone(), entry: Some(entry) },
            body,
        )
    }

    /// Records the call's end with this reply.
    pub fn end(mut self, reply: &Response<Body>) {
        // Without a status in the headers a message follows, and the status comes after it.
        let status = Status::from_header_map(reply.headers());
        let reason = status.as_ref().and_then(reason_of);
        let reason = reason.map_or(String::new(), |reason| reason.word().to_owned());
        self.record(status.map_or(Code::Ok, |status| status.code()), reason);
    }

    /// Captures the request of a rejected call, which nobody else reads.
    pub async fn capture(&self, mut body: Body) {
        let is_known = self.entry.as_ref().is_some_and(|entry| entry.caller != NOBODY);
        let read = async {
            let mut bytes = 0;
            while bytes < CAPTURED_BYTES_MAX {
                let Some(Ok(frame)) = body.frame().await else { return };
                bytes += frame.data_ref().map_or(0, Bytes::len);
            }
        };
        if is_known {
            // What has not arrived by then is not captured.
            let _ = tokio::time::timeout(REJECTED_WAIT, read).await;
        }
    }

    fn record(&mut self, code: Code, reason: String) {
        let Some(mut entry) = self.entry.take() else { return };
        let subject = subject(&entry.method, &self.captured.lock().concat());
        entry.resource = subject.resource;
        entry.tenant = subject.tenant;
        entry.request_id = subject.request_id;
        entry.validate_only = subject.validate_only;
        entry.code = code_name(code).to_owned();
        entry.reason = reason;
        if let Some(decision) = self.settled.decision() {
            entry.decision = if decision.allowed { ALLOW } else { DENY }.to_owned();
            let ids = decision.policies.iter().take(POLICIES_MAX);
            entry.policies = ids.map(|id| id.chars().take(POLICY_CHARS_MAX).collect()).collect();
        }
        self.log.record(entry, wall_clock());
    }
}

impl Drop for PendingEntry {
    fn drop(&mut self) {
        self.record(Code::Cancelled, String::new());
    }
}

/// The code's name in the protocol.
const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use prost::Message as _;
    use snic_api::list::ListSelection;
    use snic_api::v1;
    use snic_audit::{AuditSettings, Filter};
    use snic_domain::Caller;

    use super::*;

    #[tokio::test]
    async fn a_caller_that_disconnects_leaves_an_entry() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings =
            AuditSettings { folder: folder.path().into(), file_bytes_max: 1 << 20, files_max: 1 };
        let log = AuditLog::open(settings).expect("a log");
        let request = v1::DeleteTenantRequest { name: "tenants/acme".into(), ..Default::default() };
        let request = request.encode_to_vec();
        let length = u32::try_from(request.len()).expect("short").to_be_bytes();
        let body = Body::new(Full::<Bytes>::from([&[0][..], &length, &request].concat()));
        let operator = Caller::Operator("root".into());
        let path = "/snic.control.v1.TenantService/DeleteTenant";
        let mut call = Call::begin(path, &http::HeaderMap::new(), &Arc::default());
        call.identity = Some(operator.clone().into());
        let origin =
            CallOrigin { peer: "192.0.2.7:1".into(), is_proven: Some(true), trace_id: "t".into() };
        let (pending, mut body) = PendingEntry::begin(&log, path, &call, origin, body);
        assert!(body.frame().await.is_some());
        drop(pending);
        let all = Filter {
            reader: operator,
            tenant: String::new(),
            caller: String::new(),
            method: String::new(),
            times: (0, u64::MAX),
            selection: ListSelection::parse::<v1::AuditEntry>("", "").expect("all entries"),
        };
        let (entries, _) = log.read(&all, None, 9).expect("readable");
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!(
            (entry.method.as_str(), entry.code.as_str()),
            ("TenantService/DeleteTenant", "CANCELLED")
        );
        assert_eq!((entry.resource.as_str(), entry.trace_id.as_str()), ("tenants/acme", "t"));
        assert_eq!((&*entry.peer, &*entry.identity), ("192.0.2.7:1", "PROVEN"));
    }
}
