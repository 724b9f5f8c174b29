//! The connection to the server: identity, deadlines, and safe retries.
//!
//! A request that failed with UNAVAILABLE may or may not have taken effect. It is retried a few times with
//! backoff, but only if it is idempotent: reads, and changes that carry a request id.

use std::fs;
use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use backon::{ExponentialBuilder, Retryable as _};
use snic_api::certificates::{PemFile, UnusableFile, check_issuer, check_pair};
use snic_api::connect::{Connection, Sender};
use snic_api::fleet_v1::fleet_service_client::FleetServiceClient;
use snic_api::fleet_v1::policy_service_client::PolicyServiceClient;
use snic_api::fleet_v1::project_service_client::ProjectServiceClient;
use snic_api::trace_parent;
use snic_api::v1::audit_service_client::AuditServiceClient;
use snic_api::v1::authorization_service_client::AuthorizationServiceClient;
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
use snic_api::v1::usage_service_client::UsageServiceClient;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::StatusExt as _;

use crate::contexts::{ClientContext, ContextsFile};
use crate::failure::Failure;
use crate::spans::CallSpan;

/// Time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that the server may be silent before a keep-alive ping. Without it, a watch would never notice that
/// the network is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Maximum number of retries.
const RETRIES: usize = 4;
/// Longest pause before a retry, even if the server asks for a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A connection. It is established with the first request.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    sender: Sender,
    endpoint: String,
    deadline: Duration,
}

macro_rules! services {
    ($($(#[$doc:meta])* $name:ident: $client:ident),+ $(,)?) => {
        impl Client {
            $($(#[$doc])*
            pub fn $name(&self) -> $client<Connection> {
                $client::with_interceptor(self.channel.clone(), self.sender.clone())
            })+
        }
    };
}
services! {
    dags: DagServiceClient,
    tenants: TenantServiceClient,
    /// Network task types.
    nts: NetworkTaskServiceClient,
    bitstreams: BitstreamServiceClient,
    /// Cards and regions.
    cards: CardServiceClient,
    rules: ClassificationServiceClient,
    machines: OrchestrationServiceClient,
    operations: OperationServiceClient,
    fairness: FairnessServiceClient,
    /// The audit log.
    audit: AuditServiceClient,
    /// Service that tells the caller its identity and rights.
    authorization: AuthorizationServiceClient,
    /// The server itself.
    system: SystemServiceClient,
    events: EventServiceClient,
    traffic: TrafficServiceClient,
    /// Usage of DAGs.
    usage: UsageServiceClient,
    /// A fleet's hosts, and how it is.
    fleet: FleetServiceClient,
    /// Policies of a fleet.
    policies: PolicyServiceClient,
    /// Projects of a fleet.
    projects: ProjectServiceClient,
}

impl Client {
    /// A connection for a context; its relative paths start from the folder of `file`. `deadline` is the
    /// time limit of a request with all retries.
    ///
    /// # Errors
    /// [`Failure`] if the context is not valid or its files cannot be read.
    pub fn new(
        context: &ClientContext,
        file: &ContextsFile,
        deadline: Duration,
    ) -> Result<Self, Failure> {
        let address = context.endpoint.as_str();
        check_endpoint(context)?;
        let invalid = |error: tonic::transport::Error| Failure::Connect {
            endpoint: address.to_owned(),
            message: root_cause(&error),
        };
        let mut endpoint = Endpoint::from_shared(address.to_owned())
            .map_err(invalid)?
            .user_agent(concat!("snicctl/", env!("CARGO_PKG_VERSION")))
            .map_err(invalid)?
            .connect_timeout(CONNECT_TIMEOUT.min(deadline))
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        if address.starts_with("https://") {
            endpoint =
                endpoint.tls_config(tls(context, file, SystemTime::now())?).map_err(invalid)?;
        }
        let sender = Sender::new(context.identity.as_deref().map(identity_header).transpose()?);
        let channel = endpoint.connect_lazy();
        Ok(Self { channel, sender, endpoint: address.to_owned(), deadline })
    }

    /// The same connection, asking this host of a fleet; its operators may.
    ///
    /// # Errors
    /// [`Failure`] where this is no name of a host.
    pub fn for_host(self, host: &str) -> Result<Self, Failure> {
        let name = host.parse().ok().filter(|_| !host.is_empty()).ok_or_else(|| {
            let hint = "use a name of `snicctl fleet host list`";
            Failure::usage(format!("{host:?} is no name of a host"), hint)
        })?;
        let sender = self.sender.for_host(Some(name));
        Ok(Self { sender, ..self })
    }

    /// The same connection, acting for a tenant such as `tenant/acme`, or a member of it; operators may.
    ///
    /// # Errors
    /// [`Failure`] where this is no name of a caller.
    pub fn acting_for(self, tenant: &str) -> Result<Self, Failure> {
        let is_tenant = tenant.strip_prefix("tenant/").is_some_and(|name| !name.is_empty());
        let name = tenant.parse().ok().filter(|_| is_tenant).ok_or_else(|| {
            let hint = "use tenant/ID or tenant/ID/MEMBER";
            Failure::usage(format!("{tenant:?} names no tenant that one acts for"), hint)
        })?;
        let sender = self.sender.acting_for(Some(name));
        Ok(Self { sender, ..self })
    }

    /// The host of a fleet that is asked, if one was named.
    pub fn host(&self) -> Option<&str> {
        self.sender.host()
    }

    /// The same connection with another time limit for requests.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sends a request and waits for its reply within the time limit. While the server cannot be
    /// reached the request is sent again: one that changes something must carry a request id.
    ///
    /// # Errors
    /// [`Failure`]: the server's error, or why it did not answer.
    pub async fn call<Q, R, F>(
        &self,
        message: Q,
        send: impl Fn(Self, Request<Q>) -> F,
    ) -> Result<R, Failure>
    where
        Q: Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let end = Instant::now() + self.deadline;
        let span = CallSpan::begin::<Q>();
        let header = span.as_ref().and_then(CallSpan::header);
        let attempt = || {
            let mut request = traced(message.clone(), header.clone());
            request.set_timeout(end.saturating_duration_since(Instant::now()));
            send(self.clone(), request)
        };
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(PAUSE_MAX)
            .with_max_times(RETRIES)
            .with_jitter();
        let calls = attempt
            .retry(pauses)
            .when(|status: &Status| status.code() == Code::Unavailable)
            .adjust(|status, pause| pause.map(|pause| requested_pause(status).unwrap_or(pause)));
        let ended = tokio::time::timeout_at(end, calls).await;
        if let Some(span) = span {
            span.end(match &ended {
                Ok(Ok(_)) => Code::Ok,
                Ok(Err(status)) => status.code(),
                Err(_) => Code::DeadlineExceeded,
            })
            .await;
        }
        match ended {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => Err(self.failure(status)),
            Err(_) => Err(self.timed_out()),
        }
    }

    /// Opens a stream, with one attempt. Its span ends when it is open: a watch lasts as long as its reader wants.
    ///
    /// # Errors
    /// The status that the server refused it with, or of the connection; [`Client::failure`] tells them apart.
    pub async fn open<Q, T, F>(
        &self,
        message: Q,
        send: impl FnOnce(Self, Request<Q>) -> F,
    ) -> Result<Streaming<T>, Status>
    where
        F: Future<Output = Result<Response<Streaming<T>>, Status>>,
    {
        let span = CallSpan::begin::<Q>();
        let request = traced(message, span.as_ref().and_then(CallSpan::header));
        let opened = send(self.clone(), request).await;
        if let Some(span) = span {
            span.end(opened.as_ref().map_or_else(Status::code, |_| Code::Ok)).await;
        }
        opened.map(Response::into_inner)
    }

    fn timed_out(&self) -> Failure {
        Failure::NoReply { endpoint: self.endpoint.clone(), limit: self.deadline.into() }
    }

    /// The failure for a status. A status that the server did not send means that there was no connection.
    pub fn failure(&self, status: Status) -> Failure {
        let transport = std::error::Error::source(&status)
            .filter(|source| source.is::<tonic::transport::Error>() || is_connect(*source));
        match transport {
            Some(error) if is_timeout(error) => self.timed_out(),
            Some(error) => {
                Failure::Connect { endpoint: self.endpoint.clone(), message: root_cause(error) }
            }
            None => status.into(),
        }
    }
}

/// A request that tells the server which span it belongs to, if any.
fn traced<Q>(message: Q, span: Option<MetadataValue<Ascii>>) -> Request<Q> {
    let mut request = Request::new(message);
    if let Some(span) = span {
        request.metadata_mut().insert(trace_parent::NAME, span);
    }
    request
}

/// Whether the deadline passed on this side.
fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .any(|error| error.is::<tonic::TimeoutExpired>())
}

fn is_connect(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<tonic::ConnectError>()
}

/// The retry delay that the server asks for, up to [`PAUSE_MAX`].
fn requested_pause(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay.map(|delay| delay.min(PAUSE_MAX))
}

/// The root cause of a chain of errors.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Checks the endpoint and the options that go with it.
fn check_endpoint(context: &ClientContext) -> Result<(), Failure> {
    let endpoint = context.endpoint.as_str();
    let is_tls = endpoint.starts_with("https://");
    if let Some(rest) = endpoint.strip_prefix("http://") {
        if !is_loopback(rest) {
            return Err(Failure::usage(
                format!("{endpoint}: plain text is allowed on loopback and unix sockets only"),
                "use https://, and set ca, certificate and key of the context",
            ));
        }
    } else if !is_tls && !endpoint.strip_prefix("unix:").is_some_and(|path| path.starts_with('/')) {
        return Err(Failure::usage(
            format!("{endpoint:?} is not a valid endpoint"),
            "use https://host:port, unix:/path, or http://host:port on loopback",
        ));
    }
    if is_tls && context.ca.is_none() {
        return Err(Failure::usage(
            format!("the context for {endpoint} has no `ca`"),
            "set the PEM file of the CA that signed the server's certificate: `snicctl context set NAME --ca FILE`",
        ));
    }
    if is_tls && context.identity.is_some() {
        return Err(Failure::usage(
            format!("the context for {endpoint} has an `identity`, which is for plain text only"),
            "with https:// the client certificate is the identity: set certificate and key",
        ));
    }
    if context.certificate.is_some() != context.key.is_some() {
        return Err(Failure::usage(
            "the context has only one of `certificate` and `key`",
            "set both: `snicctl context set NAME --certificate FILE --key FILE`",
        ));
    }
    Ok(())
}

fn is_loopback(authority: &str) -> bool {
    let authority = authority.split('/').next().unwrap_or(authority);
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Reads and checks the files of a context: the server's answer to a certificate that it cannot use would be an alert
/// without a file name and a reason.
fn tls(
    context: &ClientContext,
    file: &ContextsFile,
    now: SystemTime,
) -> Result<ClientTlsConfig, Failure> {
    let read = |setting: &str, path: &Path| {
        let path = file.resolve(path);
        let bytes =
            fs::read(&path).map_err(|source| Failure::Read { path: path.clone(), source })?;
        PemFile::of_bytes(format!("{setting}: {}", path.display()), bytes).map_err(unusable)
    };
    let mut config = ClientTlsConfig::new();
    let ca = context.ca.as_ref().map(|ca| read("ca", ca)).transpose()?;
    if let Some(ca) = &ca {
        ca.check_authority().map_err(unusable)?;
        config = config.ca_certificate(Certificate::from_pem(ca.text()));
    }
    if let (Some(certificate), Some(key)) = (&context.certificate, &context.key) {
        let (certificate, key) = (read("certificate", certificate)?, read("key", key)?);
        check_pair(&certificate, &key).map_err(unusable)?;
        certificate.check_dates(now).map_err(unusable)?;
        certificate.check_uri().map_err(unusable)?;
        if let Some(ca) = &ca {
            check_issuer(&certificate, ca).map_err(unusable)?;
        }
        config = config.identity(Identity::from_pem(certificate.text(), key.text()));
    }
    if let Some(name) = &context.server_name {
        config = config.domain_name(name);
    }
    Ok(config)
}

fn unusable(error: UnusableFile) -> Failure {
    Failure::usage(
        error.to_string(),
        "correct the file, or name another one: `snicctl context set`",
    )
}

fn identity_header(identity: &str) -> Result<MetadataValue<Ascii>, Failure> {
    let kinds = ["operator/", "tenant/", "orchestrator/"];
    let is_known = kinds.iter().any(|kind| identity.starts_with(kind));
    identity.parse().ok().filter(|_| is_known).ok_or_else(|| {
        let hint = "use operator/NAME, tenant/ID or orchestrator/NAME";
        Failure::usage(format!("{identity:?} is not a valid identity"), hint)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn context(endpoint: &str) -> ClientContext {
        ClientContext { endpoint: endpoint.into(), ..ClientContext::default() }
    }

    #[rstest]
    #[case("http://127.0.0.1:7443", true)]
    #[case("http://127.9.9.9:1", true)]
    #[case("http://[::1]:7443", true)]
    #[case("http://localhost:7443/x", true)]
    #[case("unix:/run/snicd.sock", true)]
    #[case("unix:///run/snicd.sock", true)]
    #[case("http://10.0.0.1:7443", false)]
    #[case("http://127.0.0.1.example.com:1", false)]
    #[case("http://localhost@example.com:1", false)]
    #[case("https://127.0.0.1:7443", false)]
    #[case("unix:run/snicd.sock", false)]
    #[case("127.0.0.1:7443", false)]
    #[case("", false)]
    fn plain_text_stays_on_this_machine(#[case] endpoint: &str, #[case] is_fine: bool) {
        assert_eq!(check_endpoint(&context(endpoint)).is_ok(), is_fine, "{endpoint}");
    }

    #[test]
    fn a_context_is_complete_or_refused() {
        let whole = ClientContext {
            ca: Some("ca.pem".into()),
            certificate: Some("a.pem".into()),
            key: Some("a.key".into()),
            ..context("https://snic.example:7443")
        };
        assert!(check_endpoint(&whole).is_ok());
        let without_key = ClientContext { key: None, ..whole.clone() };
        let with_identity = ClientContext { identity: Some("operator/a".into()), ..whole };
        for wrong in [without_key, with_identity] {
            assert_eq!(check_endpoint(&wrong).unwrap_err().exit_code(), 2);
        }
    }

    #[test]
    fn an_identity_is_an_operator_or_a_tenant() {
        assert!(identity_header("operator/alice").is_ok());
        for wrong in ["alice", "", "operator/a\nb", "root/x"] {
            assert!(identity_header(wrong).is_err(), "{wrong:?}");
        }
    }

    fn client() -> Client {
        let folder = tempfile::tempdir().expect("a folder");
        let file = ContextsFile { path: folder.path().into(), contexts: Default::default() };
        let minute = Duration::from_secs(60);
        Client::new(&context("http://127.0.0.1:1"), &file, minute).expect("it is lazy")
    }

    /// Calls something that fails with one status after the other before it succeeds: how often it
    /// was sent, how long that took, and what came of it.
    async fn call(failures: Vec<Status>) -> (usize, Duration, Result<&'static str, Failure>) {
        let begun = Instant::now();
        let answers = std::sync::Mutex::new(failures.into_iter());
        let sent = std::sync::atomic::AtomicUsize::new(0);
        let send = |_: Client, request: Request<()>| {
            assert!(
                request.metadata().contains_key("grpc-timeout"),
                "the server knows the deadline"
            );
            sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let failure = answers.lock().expect("no panic while it is held").next();
            async { failure.map_or(Ok(Response::new("done")), Err) }
        };
        let result = client().call((), send).await;
        (sent.into_inner(), begun.elapsed(), result)
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_did_not_arrive_is_sent_again() {
        let away = || Status::unavailable("away");
        let (sent, took, result) = call(vec![away(), away()]).await;
        assert_eq!((sent, result.expect("it succeeds in the end")), (3, "done"));
        assert!(took >= Duration::from_millis(200), "{took:?}: not without a pause");
        let (sent, _, result) = call(vec![Status::not_found("none")]).await;
        assert_eq!((sent, result.expect_err("it will not appear").exit_code()), (1, 3));
        let (sent, _, result) = call(vec![away(); 100]).await;
        assert_eq!((sent, result.expect_err("too often").exit_code()), (RETRIES + 1, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_says_when_to_ask_again_within_limits() {
        for (asked, waited) in [(2, 2), (3_600, PAUSE_MAX.as_secs())] {
            let details =
                tonic_types::ErrorDetails::with_retry_info(Some(Duration::from_secs(asked)));
            let busy = Status::with_error_details(Code::Unavailable, "busy", details);
            let (sent, took, result) = call(vec![busy]).await;
            assert_eq!((sent, result.expect("it succeeds in the end")), (2, "done"));
            assert_eq!(took.as_secs(), waited, "asked for {asked} s");
        }
    }
}
