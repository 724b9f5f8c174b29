//! Certificates of a host's link.

use snic_api::certificates::PemFile;

/// Certificate, key and authority of the host, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkTls {
    /// Certificate of the authority that issued the replicas' certificates.
    pub authority: PemFile,
    /// The host's certificate.
    pub certificate: PemFile,
    pub key: PemFile,
}

impl std::fmt::Debug for LinkTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkTls").finish_non_exhaustive() // the key is nobody's business
    }
}
