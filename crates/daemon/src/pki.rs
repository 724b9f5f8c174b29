//! A development certificate authority for the quick start and for tests. Not for production.
//!
//! One folder with `ca.pem`, `server.pem` with its key, and a pair for each identity, created again at
//! each start together with the contexts that name them.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

/// How long development certificates are valid, in days.
const VALID_DAYS: i64 = 365;

/// A certificate with its key, as PEM files.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The authority.
pub struct DevelopmentCa {
    folder: PathBuf,
    trust_domain: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl DevelopmentCa {
    /// Creates an authority with new keys in a folder.
    pub fn create(folder: &Path, trust_domain: &str) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "snic development CA");
        valid_for_a_year(&mut params);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        write(&folder.join("ca.pem"), issuer.pem().as_bytes(), 0o644)?;
        Ok(Self { folder: folder.to_owned(), trust_domain: trust_domain.to_owned(), issuer })
    }

    /// The authority's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The daemon's certificate, for `localhost` and the loopback addresses.
    pub fn issue_server(&self) -> Result<Pair> {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut params = CertificateParams::new(names)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue("server", params)
    }

    /// A client's certificate: `identity` is `operator/<name>` or `tenant/<id>`.
    pub fn issue_client(&self, identity: &str) -> Result<Pair> {
        let mut params = CertificateParams::new(Vec::new())?;
        let uri = format!("spiffe://{}/{identity}", self.trust_domain);
        params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&identity.replace('/', "-"), params)
    }

    fn issue(&self, name: &str, mut params: CertificateParams) -> Result<Pair> {
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        valid_for_a_year(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let pair = Pair {
            certificate: self.folder.join(format!("{name}.pem")),
            key: self.folder.join(format!("{name}.key")),
        };
        write(&pair.certificate, certificate.pem().as_bytes(), 0o644)?;
        write(&pair.key, key.serialize_pem().as_bytes(), 0o600)?;
        Ok(pair)
    }
}

fn valid_for_a_year(params: &mut CertificateParams) {
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_secs(24 * 3_600);
    // Valid since yesterday, because clocks differ.
    params.not_before = (now - day).into();
    params.not_after = (now + day * u32::try_from(VALID_DAYS).unwrap_or(1)).into();
}

/// Writes a file atomically, with exactly these permissions.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let temporary = path.with_extension("new");
    let result = (|| {
        // A file left over from an earlier run may have other permissions.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    })();
    result.with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn keys_are_for_their_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let ca = DevelopmentCa::create(folder.path(), "snic.local").expect("a CA");
        let pair = ca.issue_client("tenant/acme").expect("a pair");
        assert!(pair.certificate.ends_with("tenant-acme.pem"));
        let mode = std::fs::metadata(&pair.key).expect("the key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&pair.key).expect("the key");
        assert!(text.starts_with("-----BEGIN PRIVATE KEY-----"));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = DevelopmentCa::create(Path::new("/proc/pki"), "x").err().expect("no folder");
        assert!(format!("{error:#}").contains("/proc/pki"), "{error:#}");
    }
}
