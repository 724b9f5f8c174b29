//! An authority in a folder: `ca.pem` with `ca.key`, `crl.pem`, a pair of files for each certificate, and
//! `issued.toml`, the record of what was issued. The record is written before the files, so that every
//! certificate that exists can be revoked.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use serde::{Deserialize, Serialize};
use snic_front::identity::TrustDomain;
use snic_front::identity::of_certificate;

use crate::secrets::{hex, random, write};

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Clocks differ: certificates are valid since yesterday.
const CLOCK_MARGIN: Duration = DAY;
/// The names of a daemon's certificate where none are given.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Subject of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSubject {
    /// The daemon, under these host names and addresses; those of the loopback where there are none.
    Server(Vec<String>),
    /// A replica of a fleet, `replica/<name>`: a server under these host names and addresses, and a caller.
    Replica(String, Vec<String>),
    /// A caller: `operator/<name>`, `tenant/<id>`, `tenant/<id>/<member>`, `orchestrator/<name>` or `host/<name>`.
    Client(String),
}

impl CertificateSubject {
    /// `server`, or the caller.
    pub fn name(&self) -> &str {
        match self {
            Self::Server(_) => "server",
            Self::Replica(name, _) | Self::Client(name) => name,
        }
    }

    /// The same with these host names and addresses, where it has any.
    pub fn at(self, hosts: Vec<String>) -> Self {
        match self {
            Self::Server(_) => Self::Server(hosts),
            Self::Replica(name, _) => Self::Replica(name, hosts),
            client @ Self::Client(_) => client,
        }
    }

    /// Whether a service reads its key, as a member of the folder's group.
    fn is_for_a_service(&self) -> bool {
        match self {
            Self::Server(_) | Self::Replica(..) => true,
            Self::Client(name) => name.starts_with("host/"),
        }
    }
}

impl FromStr for CertificateSubject {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "server" => Self::Server(Vec::new()),
            replica if replica.starts_with("replica/") => {
                Self::Replica(replica.to_owned(), Vec::new())
            }
            client => Self::Client(client.to_owned()),
        })
    }
}

/// A certificate with its key, as PEM files.
#[derive(Debug, Clone)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuedCertificate {
    /// `server`, or the caller.
    pub name: String,
    /// Host names and addresses of a daemon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Serial number in hexadecimal digits.
    serial: String,
    /// When it ends, in seconds since 1970.
    ends: u64,
    /// When it was revoked, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked: Option<u64>,
}

/// Whether a certificate may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateStatus {
    /// Until it ends.
    Valid,
    /// It has ended.
    Ended,
    /// It is on the list of revoked certificates.
    Revoked,
}

impl fmt::Display for CertificateStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Valid => "VALID",
            Self::Ended => "ENDED",
            Self::Revoked => "REVOKED",
        })
    }
}

impl IssuedCertificate {
    /// When it ends.
    pub fn ends(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.ends)
    }

    /// Whether it may be used at a time.
    pub fn standing(&self, now: SystemTime) -> CertificateStatus {
        match self.revoked {
            Some(_) => CertificateStatus::Revoked,
            None if self.ends() <= now => CertificateStatus::Ended,
            None => CertificateStatus::Valid,
        }
    }
}

/// Content of the folder's record.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    trust_domain: String,
    /// When the authority's own certificate ends, in seconds since 1970.
    ends: u64,
    /// Number of the last list of revoked certificates.
    crl_number: u64,
    #[serde(default)]
    issued: Vec<IssuedCertificate>,
}

/// The authority of a folder. Nobody else changes the folder while it exists.
pub struct Authority {
    folder: PathBuf,
    record: Record,
    issuer: Issuer<'static, KeyPair>,
    _lock: File,
}

/// Where an authority keeps its record.
fn record_path(folder: &Path) -> PathBuf {
    folder.join("issued.toml")
}

/// Waits until nobody else changes the folder.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(".lock");
    let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    file.lock().with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

impl Authority {
    /// Creates an authority with a new key in a folder, in place of one that is there.
    ///
    /// # Errors
    /// The trust domain is not valid, or a file cannot be written.
    pub fn create(folder: &Path, trust_domain: &str, valid: Duration) -> Result<Self> {
        TrustDomain::new(trust_domain)?;
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let lock = lock(folder)?;
        let ends = SystemTime::now() + valid;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, format!("snic CA of {trust_domain}"));
        params.not_before = (SystemTime::now() - CLOCK_MARGIN).into();
        params.not_after = ends.into();
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let (key, certificate) = (issuer.key().serialize_pem(), issuer.pem());
        write(&folder.join("ca.key"), key.as_bytes(), 0o600)?;
        write(&folder.join("ca.pem"), certificate.as_bytes(), 0o644)?;
        let record = Record {
            trust_domain: trust_domain.to_owned(),
            ends: seconds(ends),
            crl_number: 0,
            issued: Vec::new(),
        };
        let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(&key)?)?;
        let mut authority = Self { folder: folder.to_owned(), record, issuer, _lock: lock };
        authority.store()?;
        authority.write_crl()?;
        Ok(authority)
    }

    /// The authority of a folder.
    ///
    /// # Errors
    /// There is none, or a file of it cannot be read.
    pub fn open(folder: &Path) -> Result<Self> {
        let record = record_path(folder);
        if !record.exists() {
            bail!("there is no authority in {}; make one with `snicd pki init`", folder.display());
        }
        let lock = lock(folder)?;
        let read = |path: &Path| {
            std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
        };
        let parsed = toml::from_str(&read(&record)?);
        let parsed: Record = parsed.with_context(|| format!("read {}", record.display()))?;
        let key = KeyPair::from_pem(&read(&folder.join("ca.key"))?).context("read ca.key")?;
        let certificate = read(&folder.join("ca.pem"))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, key).context("read ca.pem")?;
        Ok(Self { folder: folder.to_owned(), record: parsed, issuer, _lock: lock })
    }

    /// The certificate of the authority.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The list of revoked certificates.
    pub fn crl(&self) -> PathBuf {
        self.folder.join("crl.pem")
    }

    /// The trust domain of all identities.
    pub fn trust_domain(&self) -> &str {
        &self.record.trust_domain
    }

    /// When the authority's own certificate ends.
    pub fn ends(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.record.ends)
    }

    /// All that was issued, oldest first.
    pub fn issued(&self) -> &[IssuedCertificate] {
        &self.record.issued
    }

    /// The newest certificate of a name that is valid at a time.
    pub fn valid(&self, name: &str, now: SystemTime) -> Option<&IssuedCertificate> {
        let mut newest_first = self.record.issued.iter().rev();
        newest_first.find(|one| one.name == name && one.standing(now) == CertificateStatus::Valid)
    }

    /// Where the files of a name are.
    pub fn pair(&self, name: &str) -> Pair {
        // No id has a point: a member's files are not those of a tenant with a dash in its name.
        let name = name.replacen('/', "-", 1).replace('/', ".");
        Pair {
            certificate: self.folder.join(format!("{name}.pem")),
            key: self.folder.join(format!("{name}.key")),
        }
    }

    /// Issues a certificate with a new key. It does not outlive the authority's own.
    ///
    /// # Errors
    /// The subject is not valid, or a file cannot be written.
    pub fn issue(&mut self, subject: &CertificateSubject, valid: Duration) -> Result<Pair> {
        let now = SystemTime::now();
        ensure!(self.ends() > now, "the authority in {} has ended", self.folder.display());
        let ends = self.ends().min(now + valid);
        let serial = new_serial()?;
        let (mut params, hosts) = self.params(subject)?;
        params.distinguished_name.push(DnType::CommonName, subject.name());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.not_before = (now - CLOCK_MARGIN).into();
        params.not_after = ends.into();
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        if let CertificateSubject::Client(name) | CertificateSubject::Replica(name, _) = subject {
            // What the daemon would make of it.
            let domain = TrustDomain::new(&self.record.trust_domain)?;
            of_certificate(certificate.der(), &domain).map_err(|_| not_a_caller(name))?;
        }
        self.record.issued.push(IssuedCertificate {
            name: subject.name().to_owned(),
            hosts,
            serial: hex(&serial),
            ends: seconds(ends),
            revoked: None,
        });
        self.store()?;
        let pair = self.pair(subject.name());
        // The daemon runs as a separate user, and reads its keys as a member of the folder's group.
        let mode = if subject.is_for_a_service() { 0o640 } else { 0o600 };
        write(&pair.key, key.serialize_pem().as_bytes(), mode)?;
        write(&pair.certificate, certificate.pem().as_bytes(), 0o644)?;
        Ok(pair)
    }

    fn params(&self, subject: &CertificateSubject) -> Result<(CertificateParams, Vec<String>)> {
        let uri = |name: &str| {
            let uri = format!("spiffe://{}/{name}", self.record.trust_domain).try_into();
            Ok::<_, anyhow::Error>(SanType::URI(uri.map_err(|_| not_a_caller(name))?))
        };
        match subject {
            CertificateSubject::Server(hosts) => {
                let (mut params, hosts) = at_hosts(hosts)?;
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                Ok((params, hosts))
            }
            CertificateSubject::Replica(name, hosts) => {
                let (mut params, hosts) = at_hosts(hosts)?;
                params.subject_alt_names.push(uri(name)?);
                params.extended_key_usages =
                    vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
                Ok((params, hosts))
            }
            CertificateSubject::Client(name) => {
                let mut params = CertificateParams::new(Vec::new())?;
                params.subject_alt_names = vec![uri(name)?];
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                Ok((params, Vec::new()))
            }
        }
    }

    /// Revokes all valid certificates of a name but the newest `keep`. Returns how many there were.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn revoke(&mut self, name: &str, keep: usize) -> Result<usize> {
        let now = SystemTime::now();
        let mut count = 0;
        let valid = |one: &&mut IssuedCertificate| {
            one.name == name && one.standing(now) == CertificateStatus::Valid
        };
        for one in self.record.issued.iter_mut().rev().filter(valid).skip(keep) {
            one.revoked = Some(seconds(now));
            count += 1;
        }
        if count > 0 {
            self.store()?;
            self.write_crl()?;
        }
        Ok(count)
    }

    /// Writes the list of revoked certificates. Those that have ended by themselves are not on it.
    fn write_crl(&mut self) -> Result<()> {
        let now = SystemTime::now();
        let listed = self.record.issued.iter().filter(|one| one.ends() > now);
        let revoked = listed.filter_map(|one| {
            let serial = SerialNumber::from_slice(&from_hex(&one.serial)?);
            Some(RevokedCertParams {
                serial_number: serial,
                revocation_time: (UNIX_EPOCH + Duration::from_secs(one.revoked?)).into(),
                reason_code: None,
                invalidity_date: None,
            })
        });
        let revoked_certs = revoked.collect();
        self.record.crl_number += 1;
        self.store()?;
        let params = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: self.ends().into(),
            crl_number: SerialNumber::from(self.record.crl_number),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer)?;
        write(&self.crl(), list.pem()?.as_bytes(), 0o644)
    }

    fn store(&self) -> Result<()> {
        let text = toml::to_string(&self.record).context("write the record of certificates")?;
        write(&record_path(&self.folder), text.as_bytes(), 0o600)
    }
}

/// For these host names and addresses, each once; those of the loopback where there are none.
fn at_hosts(hosts: &[String]) -> Result<(CertificateParams, Vec<String>)> {
    let given: BTreeSet<&str> = hosts.iter().map(String::as_str).collect();
    let hosts: Vec<String> = match hosts.is_empty() {
        true => LOOPBACK.map(str::to_owned).to_vec(),
        false => given.into_iter().map(str::to_owned).collect(),
    };
    let params = CertificateParams::new(hosts.clone())
        .with_context(|| format!("the hosts {}", hosts.join(", ")))?;
    Ok((params, hosts))
}

fn not_a_caller(name: &str) -> anyhow::Error {
    let name: String = name.chars().take(160).collect();
    anyhow::anyhow!(
        "{name:?} is not a caller; use server, operator/<name>, tenant/<id>, tenant/<id>/<member>, \
         orchestrator/<name>, host/<name> or replica/<name>"
    )
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// 126 random bits, as a positive number of 16 bytes (RFC 5280, 4.1.2.2: at most 20).
fn new_serial() -> Result<[u8; 16]> {
    let mut serial = random()?;
    serial[0] = serial[0] & 0x7F | 0x40;
    Ok(serial)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

    fn authority() -> (tempfile::TempDir, Authority) {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::create(folder.path(), "snic.local", YEAR).expect("a CA");
        (folder, authority)
    }

    fn client(name: &str) -> CertificateSubject {
        CertificateSubject::Client(name.to_owned())
    }

    #[test]
    fn keys_are_for_their_owner_alone() {
        let (_folder, mut authority) = authority();
        let mode =
            |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
        let pair = authority.issue(&client("tenant/acme"), YEAR).expect("a pair");
        assert!(pair.certificate.ends_with("tenant-acme.pem"));
        let member = authority.issue(&client("tenant/acme/bob"), YEAR).expect("a pair");
        assert!(member.certificate.ends_with("tenant-acme.bob.pem"));
        assert_eq!((mode(&pair.key), mode(&authority.folder.join("ca.key"))), (0o600, 0o600));
        let text = std::fs::read_to_string(&pair.key).expect("the key");
        assert!(text.starts_with("-----BEGIN PRIVATE KEY-----"));
        let server =
            authority.issue(&CertificateSubject::Server(Vec::new()), YEAR).expect("a pair");
        assert_eq!(mode(&server.key), 0o640, "the folder's group is the daemon's");
        for service in ["host/nic1", "replica/r0"] {
            let pair = authority.issue(&service.parse().expect("any"), YEAR).expect("a pair");
            assert_eq!(mode(&pair.key), 0o640, "{service}: a service reads it");
        }
    }

    #[test]
    fn a_replica_serves_under_its_names_and_calls_as_itself() {
        let (_folder, mut authority) = authority();
        let replica: CertificateSubject = "replica/r0".parse().expect("any");
        let hosts = vec!["fleet-0.example.org".to_owned(), "10.0.0.7".to_owned()];
        let (params, _) = authority.params(&replica.clone().at(hosts)).expect("valid");
        assert!(matches!(
            &params.subject_alt_names[..],
            [SanType::IpAddress(_), SanType::DnsName(_), SanType::URI(_)]
        ));
        assert_eq!(params.extended_key_usages.len(), 2, "for servers and for clients");
        authority.issue(&replica, YEAR).expect("a pair");
        assert_eq!(authority.issued()[0].hosts, LOOPBACK);
        let error = authority.issue(&"replica/Ü".parse().expect("any"), YEAR).expect_err("a name");
        assert!(error.to_string().contains("replica/<name>"), "{error:#}");
    }

    #[test]
    fn a_caller_that_the_daemon_would_not_know_gets_nothing() {
        let (_folder, mut authority) = authority();
        for name in ["acme", "tenant/", "tenant/Acme", "tenant/a/b/c", "root/x", "tenant/ü", ""] {
            let error = authority.issue(&client(name), YEAR).expect_err(name);
            assert!(error.to_string().contains("operator/<name>"), "{error:#}");
        }
        assert_eq!(authority.issued(), []);
    }

    #[test]
    fn a_record_outlives_its_program_and_what_is_revoked_stays_revoked() {
        let (folder, mut authority) = authority();
        authority.issue(&client("tenant/acme"), YEAR).expect("a pair");
        authority.issue(&client("tenant/acme"), YEAR).expect("another");
        authority.issue(&client("tenant/other"), YEAR).expect("another");
        assert_eq!(authority.revoke("tenant/acme", 1).expect("written"), 1);
        drop(authority);
        let mut authority = Authority::open(folder.path()).expect("it is there");
        let now = SystemTime::now();
        let standings: Vec<_> = authority.issued().iter().map(|one| one.standing(now)).collect();
        assert_eq!(
            standings,
            [CertificateStatus::Revoked, CertificateStatus::Valid, CertificateStatus::Valid]
        );
        assert_eq!(authority.revoke("tenant/acme", 0).expect("written"), 1);
        assert_eq!(authority.revoke("tenant/acme", 0).expect("written"), 0);
        assert!(authority.valid("tenant/acme", now).is_none());
    }

    #[test]
    fn a_certificate_does_not_outlive_the_authority() {
        let (_folder, mut authority) = authority();
        authority.issue(&client("operator/admin"), 10 * YEAR).expect("a pair");
        assert_eq!(authority.issued()[0].ends(), authority.ends());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = Authority::create(Path::new("/proc/pki"), "x", YEAR).err().expect("no folder");
        assert!(format!("{error:#}").contains("/proc/pki"), "{error:#}");
        let error = Authority::open(Path::new("/nowhere")).err().expect("no authority");
        assert!(error.to_string().contains("snicd pki init"), "{error:#}");
    }
}
