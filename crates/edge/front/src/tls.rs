//! Certificates: the server's, and those against which clients' are verified. Both can be replaced
//! while the server runs.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use snic_api::certificates::{UnusableFile, check_pair};
use tokio::sync::watch;

use crate::revocation::{RevocationStatus, newest};
use crate::settings::TlsSettings;

/// Certificates, key or revocation lists cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part} cannot be used: {cause}")]
pub struct InvalidTls {
    /// The file, with the setting that names it; the part that it is, where it is in no file.
    pub part: String,
    /// The fault, and what to do.
    pub cause: String,
}

/// An error of a file; one without a name is called by its part.
fn invalid(part: &str, error: UnusableFile) -> InvalidTls {
    let part = if error.file.is_empty() { part.to_owned() } else { error.file };
    InvalidTls { part, cause: error.cause }
}

const CERTIFICATE: &str = "the server's certificate";
const PAIR: &str = "the server's certificate or key";
const AUTHORITY: &str = "the authority of clients";
const REVOKED: &str = "the list of revoked certificates";

/// TLS configurations from certificates that were read and checked.
pub(crate) struct Credentials {
    /// Configuration of the API: HTTP/2.
    pub api: Arc<ServerConfig>,
    /// Configuration of the page for browsers: HTTP/1.1.
    pub page: Arc<ServerConfig>,
    /// The lists of revoked certificates in force.
    pub lists: Vec<RevocationStatus>,
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
        let (verifier, lists) = verifier(settings)?;
        let chain =
            settings.certificate.certificates().map_err(|error| invalid(CERTIFICATE, error))?;
        let key = settings.key.private_key().map_err(|error| invalid(PAIR, error))?;
        check_pair(&settings.certificate, &settings.key).map_err(|error| invalid(PAIR, error))?;
        let mut config = ServerConfig::builder()
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(chain, key)
            .map_err(|error| invalid(PAIR, settings.certificate.unusable(error.to_string())))?;
        // A resumed session is not verified again, so an expired certificate could live on in it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let with_protocol = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Ok(Self { api: with_protocol(b"h2"), page: with_protocol(b"http/1.1"), lists, verifier })
    }

    /// Whether a client's certificates, its own first, are valid now.
    pub fn accept(&self, certificates: &[CertificateDer<'static>]) -> bool {
        certificates.split_first().is_some_and(|(own, others)| {
            self.verifier.verify_client_cert(own, others, UnixTime::now()).is_ok()
        })
    }
}

impl TlsSettings {
    /// Whether a server could start with these; no socket is opened. Returns the lists of revoked certificates that
    /// count.
    ///
    /// # Errors
    /// [`InvalidTls`], as the server would give.
    pub fn check(&self) -> Result<Vec<RevocationStatus>, InvalidTls> {
        // The only linked provider; another part of the program may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Credentials::new(self).map(|credentials| credentials.lists)
    }
}

type Verifier = (Arc<dyn ClientCertVerifier>, Vec<RevocationStatus>);

fn verifier(settings: &TlsSettings) -> Result<Verifier, InvalidTls> {
    let authority = &settings.client_authority;
    let wrong = |error| invalid(AUTHORITY, error);
    let mut roots = RootCertStore::empty();
    let certificates = authority.certificates().map_err(wrong)?;
    authority.check_authority().map_err(wrong)?;
    for certificate in &certificates {
        let added = roots.add(certificate.clone());
        added.map_err(|error| wrong(authority.unusable(error.to_string())))?;
    }
    let mut verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated();
    let mut statuses = Vec::new();
    if let Some(file) = &settings.revoked {
        let (lists, found) =
            newest(file, &certificates).map_err(|error| invalid(REVOKED, error))?;
        verifier = verifier.with_crls(lists);
        statuses = found;
    }
    let built = verifier.build().map_err(|error| wrong(authority.unusable(error.to_string())))?;
    Ok((built, statuses))
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
