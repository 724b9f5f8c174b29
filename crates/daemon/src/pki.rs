//! A development certificate authority for the quick start and for tests. Not for production.
//!
//! One folder with `ca.pem`, `server.pem` with its key, and a pair for each identity. They are kept until
//! they end; the authority's own key is not kept, so all are issued together.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

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

/// How long certificates must still be valid to be used again: longer than a quick start runs.
const VALID_LEFT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The files of an authority.
pub struct Issued {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// The daemon's.
    pub server: Pair,
    /// The clients', in the order of their names.
    pub clients: Vec<Pair>,
}

/// The certificates of a folder for these clients (`operator/<name>`, `tenant/<id>`): those that are there,
/// or new ones where one is missing or ends soon.
pub fn issue(folder: &Path, trust_domain: &str, clients: &[String]) -> Result<Issued> {
    let ca = folder.join("ca.pem");
    let server = pair(folder, "server");
    let pairs: Vec<Pair> = clients.iter().map(|name| pair(folder, &file_name(name))).collect();
    let all = || pairs.iter().chain([&server]);
    let is_usable =
        ends_late(&ca) && all().all(|pair| ends_late(&pair.certificate) && pair.key.exists());
    if !is_usable {
        let new = DevelopmentCa::create(folder, trust_domain)?;
        new.issue_server()?;
        clients.iter().try_for_each(|name| new.issue_client(name).map(|_| ()))?;
    }
    Ok(Issued { ca, server, clients: pairs })
}

/// Whether a certificate is there and does not end soon.
fn ends_late(path: &Path) -> bool {
    let certificate = CertificateDer::from_pem_file(path).ok();
    let end = certificate.and_then(|der| snic_server::identity::end_of_certificate(&der));
    end.is_some_and(|end| end > std::time::SystemTime::now() + VALID_LEFT)
}

fn file_name(identity: &str) -> String {
    identity.replace('/', "-")
}

fn pair(folder: &Path, name: &str) -> Pair {
    Pair {
        certificate: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}.key")),
    }
}

/// The authority.
struct DevelopmentCa {
    folder: PathBuf,
    trust_domain: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl DevelopmentCa {
    /// Creates an authority with new keys in a folder.
    fn create(folder: &Path, trust_domain: &str) -> Result<Self> {
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

    /// The daemon's certificate, for `localhost` and the loopback addresses.
    fn issue_server(&self) -> Result<Pair> {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut params = CertificateParams::new(names)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue("server", params)
    }

    /// A client's certificate: `identity` is `operator/<name>` or `tenant/<id>`.
    fn issue_client(&self, identity: &str) -> Result<Pair> {
        let mut params = CertificateParams::new(Vec::new())?;
        let uri = format!("spiffe://{}/{identity}", self.trust_domain);
        params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&file_name(identity), params)
    }

    fn issue(&self, name: &str, mut params: CertificateParams) -> Result<Pair> {
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        valid_for_a_year(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let pair = pair(&self.folder, name);
        write(&pair.certificate, certificate.pem().as_bytes(), 0o644)?;
        write(&pair.key, key.serialize_pem().as_bytes(), 0o600)?;
        Ok(pair)
    }
}

fn valid_for_a_year(params: &mut CertificateParams) {
    let now = std::time::SystemTime::now();
    let day = Duration::from_secs(24 * 3_600);
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
    fn what_is_there_is_used_again_until_something_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let clients = ["tenant/acme".to_owned(), "operator/admin".to_owned()];
        let read = || {
            let issued = issue(folder.path(), "snic.local", &clients).expect("issued");
            let all = issued.clients.iter().chain([&issued.server]);
            let files = all.flat_map(|pair| [pair.certificate.clone(), pair.key.clone()]);
            let files = files.chain([issued.ca.clone()]);
            files.map(|file| std::fs::read(file).expect("there")).collect::<Vec<_>>()
        };
        let first = read();
        assert_eq!(read(), first);
        std::fs::remove_file(folder.path().join("operator-admin.key")).expect("removed");
        let other = read();
        assert!(first.iter().zip(&other).all(|(first, other)| first != other), "all are new");
        assert_eq!(read(), other);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = DevelopmentCa::create(Path::new("/proc/pki"), "x").err().expect("no folder");
        assert!(format!("{error:#}").contains("/proc/pki"), "{error:#}");
    }
}
