//! A connection to the daemon for programs that act by themselves: hooks, plug-ins, agents.
//!
//! Such a program is told once, in its settings, where the daemon is and who it is there.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

/// How long it may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How often the connection is tried while a call waits.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Where the daemon is, and who the program is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Target {
    /// `https://host:port` or `unix:/path`.
    pub endpoint: String,
    /// Over a unix socket: who the program is, such as `orchestrator/libvirt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Over TLS, all three PEM files: who signed the daemon's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The program's own certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            endpoint: "unix:/run/snic/snicd.sock".into(),
            identity: Some("orchestrator/host".into()),
            ca: None,
            certificate: None,
            key: None,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The settings do not go together.
    #[error("endpoint {endpoint:?}: {rule}")]
    Settings {
        /// What was to be connected to.
        endpoint: String,
        /// What is needed.
        rule: &'static str,
    },
    /// A certificate or key cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Nobody answers, or with another certificate.
    #[error("{endpoint} does not answer: {cause}")]
    Unreachable {
        /// What was to be connected to.
        endpoint: String,
        /// The last cause.
        cause: String,
    },
}

/// Says who the program is, where the connection does not, and which trace its calls are of.
#[derive(Debug, Clone)]
pub struct Sender(Option<MetadataValue<Ascii>>);

impl Sender {
    /// In plain text, who the program is; `None` over TLS, where its certificate says it.
    pub const fn new(identity: Option<MetadataValue<Ascii>>) -> Self {
        Self(identity)
    }
}

impl Interceptor for Sender {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(identity) = &self.0 {
            request.metadata_mut().insert("snic-identity", identity.clone());
        }
        crate::trace_parent::add(request.metadata_mut());
        Ok(request)
    }
}

/// What clients are made of.
pub type Connection = InterceptedService<Channel, Sender>;

impl Target {
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
            return Err(self.settings("https:// needs ca, certificate and key"));
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

    /// Connects now.
    ///
    /// # Errors
    /// [`ConnectError`] where the settings do not go together or nobody answers.
    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        let form = "use https://host:port or unix:/path";
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
            let rule = "unix: needs an identity such as orchestrator/host";
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
    async fn what_is_missing_is_named() {
        let at = |endpoint: &str| Target { endpoint: endpoint.into(), ..Target::default() };
        assert!(error(at("http://example.org")).await.contains("https://host:port"));
        assert!(error(at("https://localhost:1")).await.contains("ca, certificate and key"));
        let nobody = Target { identity: None, ..Target::default() };
        assert!(error(nobody).await.contains("identity"));
        let unread = "/nonexistent/x.pem".into();
        let tls = Target {
            ca: Some(PathBuf::from("/nonexistent/ca.pem")),
            certificate: Some(unread),
            key: Some("/nonexistent/x.key".into()),
            ..at("https://localhost:1")
        };
        assert!(error(tls).await.contains("/nonexistent/x.pem"));
        let absent = error(at("unix:/nonexistent/snicd.sock")).await;
        assert!(absent.contains("unix:/nonexistent/snicd.sock does not answer"), "{absent}");
    }
}
