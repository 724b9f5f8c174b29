//! Certificates: the server's, and those against which clients' are verified. Both can be replaced
//! while the server runs.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use tokio::sync::watch;

use crate::settings::TlsSettings;

/// Certificates, key or revocation lists cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part} cannot be used: {cause}")]
pub struct InvalidTls {
    /// Which of them.
    pub part: &'static str,
    /// Why.
    pub cause: String,
}

/// Usable certificates.
pub(crate) struct Credentials {
    /// Of the API: HTTP/2.
    pub api: Arc<ServerConfig>,
    /// Of the page for browsers: HTTP/1.1.
    pub page: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for Credentials {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Client certificates are optional, so that health checks need none and other callers get a helpful
    /// error; a certificate that is sent is always verified.
    pub fn new(settings: &TlsSettings) -> Result<Self, InvalidTls> {
        let verifier = verifier(settings)?;
        let part = "the server's certificate or key";
        let wrong = |error: &dyn fmt::Display| InvalidTls { part, cause: error.to_string() };
        let chain = certificates(part, &settings.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(settings.key.as_bytes());
        let mut config = ServerConfig::builder()
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(chain, key.map_err(|error| wrong(&error))?)
            .map_err(|error| wrong(&error))?;
        // A resumed session is not verified again, so an expired certificate could live on in it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let with_protocol = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Ok(Self { api: with_protocol(b"h2"), page: with_protocol(b"http/1.1"), verifier })
    }

    /// Whether a client's certificates, its own first, are valid now.
    pub fn accept(&self, certificates: &[CertificateDer<'static>]) -> bool {
        certificates.split_first().is_some_and(|(own, others)| {
            self.verifier.verify_client_cert(own, others, UnixTime::now()).is_ok()
        })
    }
}

impl TlsSettings {
    /// Whether a server could start with these; no socket is opened.
    ///
    /// # Errors
    /// [`InvalidTls`], as the server would give.
    pub fn check(&self) -> Result<(), InvalidTls> {
        Credentials::new(self).map(|_| ())
    }
}

fn certificates(part: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, InvalidTls> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match all {
        Ok(all) if all.is_empty() => {
            Err(InvalidTls { part, cause: "there is no certificate in it (expected PEM)".into() })
        }
        Ok(all) => Ok(all),
        Err(error) => Err(InvalidTls { part, cause: error.to_string() }),
    }
}

fn verifier(settings: &TlsSettings) -> Result<Arc<dyn ClientCertVerifier>, InvalidTls> {
    let part = "the authority of clients";
    let wrong = |error: &dyn fmt::Display| InvalidTls { part, cause: error.to_string() };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(part, &settings.client_authority)? {
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    let mut verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated();
    if let Some(pem) = &settings.revoked {
        let part = "the list of revoked certificates";
        let wrong = |cause: String| InvalidTls { part, cause };
        let lists = CertificateRevocationListDer::pem_slice_iter(pem.as_bytes());
        let lists: Vec<_> =
            lists.collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
        if lists.is_empty() {
            return Err(wrong("there is no list in it (expected PEM)".into()));
        }
        verifier = verifier.with_crls(lists);
    }
    verifier.build().map_err(|error| wrong(&error))
}

/// Replaces the certificates of a running server.
#[derive(Debug, Clone)]
pub struct TlsReloader(pub(crate) watch::Sender<Arc<Credentials>>);

impl TlsReloader {
    /// From now on, connections are accepted with these; open ones whose certificate these do not accept
    /// are closed.
    ///
    /// # Errors
    /// [`InvalidTls`]; then the current ones stay.
    pub fn reload(&self, settings: &TlsSettings) -> Result<(), InvalidTls> {
        self.0.send_replace(Arc::new(Credentials::new(settings)?));
        Ok(())
    }
}
