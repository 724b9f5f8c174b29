//! Connections to the daemon for unattended programs: hooks, plug-ins, agents. Their settings contain the
//! daemon's address and their identity.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::ID_CHARS_MAX;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

/// Time limit for connecting.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Interval and time limit of keep-alive pings.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The daemon's address, and the program's identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Target {
    /// `https://host:port` or `unix:/path`.
    pub endpoint: String,
    /// Over a unix socket: the program's identity, such as `orchestrator/libvirt`; see [`Target::for_program`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Over TLS (all three are PEM files): the authority of the daemon's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Over TLS: the program's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Over TLS: its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            endpoint: "unix:/run/snic/snicd.sock".into(),
            identity: None,
            ca: None,
            certificate: None,
            key: None,
        }
    }
}

/// Why connecting failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The settings are inconsistent.
    #[error("endpoint {endpoint:?}: {rule}")]
    Settings { endpoint: String, rule: &'static str },
    /// A certificate or key cannot be read.
    #[error("{path}: {source}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// Nobody answers, or the TLS handshake failed.
    #[error("{endpoint} does not answer: {cause}")]
    Unreachable {
        endpoint: String,
        /// The root cause.
        cause: String,
    },
}

/// The header with the host that an operator asks, of a call at a fleet's endpoint.
pub const HOST_HEADER: &str = "snic-host";

/// The header with the tenant, such as `tenant/acme`, that an operator acts for: quotas, shares and policies of the tenant
/// hold for the call, and the policies about the operator as well.
pub const ACTING_FOR_HEADER: &str = "snic-acting-for";

/// The header of a host's link to a fleet with the epoch of the leader that the host has just lost: a replica that knows no
/// later leader has the host wait for one.
pub const LOST_EPOCH_HEADER: &str = "snic-lost-epoch";

/// Adds the program's identity, where the connection has none, and the trace context to each call.
#[derive(Debug, Clone)]
pub struct Sender {
    identity: Option<MetadataValue<Ascii>>,
    host: Option<MetadataValue<Ascii>>,
    acting_for: Option<MetadataValue<Ascii>>,
}

impl Sender {
    /// With the identity in plain text; `None` over TLS, where the certificate has it.
    pub const fn new(identity: Option<MetadataValue<Ascii>>) -> Self {
        Self { identity, host: None, acting_for: None }
    }

    /// With the host of a fleet that is asked.
    #[must_use]
    pub fn for_host(self, host: Option<MetadataValue<Ascii>>) -> Self {
        Self { host, ..self }
    }

    /// With the tenant that an operator acts for, such as `tenant/acme`.
    #[must_use]
    pub fn acting_for(self, acting_for: Option<MetadataValue<Ascii>>) -> Self {
        Self { acting_for, ..self }
    }

    /// The host of a fleet that is asked, if one was named.
    pub fn host(&self) -> Option<&str> {
        self.host.as_ref()?.to_str().ok()
    }
}

impl Interceptor for Sender {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let all = [
            ("snic-identity", &self.identity),
            (HOST_HEADER, &self.host),
            (ACTING_FOR_HEADER, &self.acting_for),
        ];
        for (key, value) in all {
            if let Some(value) = value {
                request.metadata_mut().insert(key, value.clone());
            }
        }
        crate::trace_parent::add(request.metadata_mut());
        Ok(request)
    }
}

/// The host's name, as the kernel has it; empty where it has none.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()
}

/// Identity of a program on a host: the first label of the host's name, as far as an id may have its characters.
fn program_on(program: &str, host: &str) -> String {
    let label = host.trim().split('.').next().unwrap_or_default().to_ascii_lowercase();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let label: String = label.chars().map(plain).collect();
    let kind_chars = program.find('/').map_or(0, |at| at + 1);
    let all: String =
        format!("{program}-{label}").chars().take(kind_chars + ID_CHARS_MAX).collect();
    all.trim_end_matches('-').to_owned()
}

/// The transport of generated clients.
pub type Connection = InterceptedService<Channel, Sender>;

impl Target {
    /// With an identity of a program that names its host too, such as `orchestrator/libvirt-node1` for `orchestrator/libvirt`,
    /// where the settings name none: so an audit log says who called, though many hosts have the same settings.
    #[must_use]
    pub fn for_program(self, program: &str) -> Self {
        self.for_program_on(program, &host_name())
    }

    /// The same for a program that knows its host by another name than the kernel's, which in a container is the container's.
    #[must_use]
    pub fn for_program_on(mut self, program: &str, host: &str) -> Self {
        if self.identity.is_none() && self.endpoint.starts_with("unix:") {
            self.identity = Some(program_on(program, host));
        }
        self
    }

    fn settings(&self, rule: &'static str) -> ConnectError {
        ConnectError::Settings { endpoint: self.endpoint.clone(), rule }
    }

    fn read(path: &PathBuf) -> Result<Vec<u8>, ConnectError> {
        let path_text = || path.display().to_string();
        std::fs::read(path).map_err(|source| ConnectError::Read { path: path_text(), source })
    }

    fn tls(&self) -> Result<ClientTlsConfig, ConnectError> {
        let (Some(ca), Some(certificate), Some(key)) = (&self.ca, &self.certificate, &self.key)
        else {
            return Err(self.settings("https:// requires ca, certificate and key"));
        };
        let identity = Identity::from_pem(Self::read(certificate)?, Self::read(key)?);
        let ca = Certificate::from_pem(Self::read(ca)?);
        Ok(ClientTlsConfig::new().ca_certificate(ca).identity(identity))
    }

    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> ConnectError {
        let mut cause = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        ConnectError::Unreachable { endpoint: self.endpoint.clone(), cause: cause.to_string() }
    }

    /// Connects.
    ///
    /// # Errors
    /// [`ConnectError`] if the settings are inconsistent or nobody answers.
    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        let form = "unsupported endpoint (expected https://host:port or unix:/path)";
        let endpoint = Endpoint::from_shared(self.endpoint.clone());
        let endpoint = endpoint
            .map_err(|_| self.settings(form))?
            .connect_timeout(CONNECT_MAX)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE);
        let (endpoint, identity) = if self.endpoint.starts_with("https://") {
            (endpoint.tls_config(self.tls()?).map_err(|e| self.unreachable(&e))?, None)
        } else if self.endpoint.starts_with("unix:/") {
            let identity = self.identity.as_ref().and_then(|text| text.parse().ok());
            let rule = "unix: requires an identity, e.g. orchestrator/libvirt";
            (endpoint, Some(identity.ok_or_else(|| self.settings(rule))?))
        } else {
            return Err(self.settings(form));
        };
        let channel = endpoint.connect().await.map_err(|error| self.unreachable(&error))?;
        Ok(InterceptedService::new(channel, Sender::new(identity)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn error(target: Target) -> String {
        target.connect().await.expect_err("no daemon").to_string()
    }

    #[tokio::test]
    async fn errors_name_what_is_missing() {
        let at = |endpoint: &str| Target { endpoint: endpoint.into(), ..Target::default() };
        assert!(error(at("http://example.org")).await.contains("https://host:port"));
        assert!(error(at("https://localhost:1")).await.contains("ca, certificate and key"));
        assert!(error(Target::default()).await.contains("identity"));
        let unread = "/nonexistent/x.pem".into();
        let tls = Target {
            ca: Some(PathBuf::from("/nonexistent/ca.pem")),
            certificate: Some(unread),
            key: Some("/nonexistent/x.key".into()),
            ..at("https://localhost:1")
        };
        assert!(error(tls).await.contains("/nonexistent/x.pem"));
        let absent =
            error(at("unix:/nonexistent/snicd.sock").for_program("orchestrator/test")).await;
        assert!(absent.contains("unix:/nonexistent/snicd.sock does not answer"), "{absent}");
    }

    #[test]
    fn a_program_names_itself_and_its_host_unless_the_settings_name_another() {
        for (host, identity) in [
            ("node1.example.org\n", "orchestrator/libvirt-node1"),
            ("Rack_2-Node.3", "orchestrator/libvirt-rack-2-node"),
            ("", "orchestrator/libvirt"),
            ("-", "orchestrator/libvirt"),
        ] {
            assert_eq!(program_on("orchestrator/libvirt", host), identity, "{host:?}");
        }
        let long = program_on("orchestrator/libvirt", &"n".repeat(64));
        assert_eq!(long.len(), "orchestrator/".len() + ID_CHARS_MAX);
        let named = Target::default().for_program("orchestrator/libvirt").identity;
        let kernel = std::process::Command::new("uname").arg("-n").output().expect("uname runs");
        let host = String::from_utf8_lossy(&kernel.stdout).into_owned();
        assert_eq!(named, Some(program_on("orchestrator/libvirt", &host)));
        let node = Target::default().for_program_on("operator/dra", "node1.example.org");
        assert_eq!(node.identity.as_deref(), Some("operator/dra-node1"));
        let stated = Target { identity: Some("orchestrator/h1".into()), ..Target::default() };
        assert_eq!(
            stated.for_program("orchestrator/libvirt").identity.as_deref(),
            Some("orchestrator/h1")
        );
        let tls = Target { endpoint: "https://localhost:1".into(), ..Target::default() };
        assert_eq!(
            tls.for_program("orchestrator/libvirt").identity,
            None,
            "the certificate says who it is"
        );
    }
}
