//! Files with certificates and keys, looked at before any connection is made: an error names the file, what is wrong with it
//! and what to do. TLS would refuse the same files later, with an alert that names neither.

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::text::shortened;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate, X509Name};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Longest distinguished name in an error, in characters.
const NAME_CHARS_MAX: usize = 160;
/// Lengths of RSA keys that signatures are verified with, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;
/// Keys that work.
const SUPPORTED: &str = "supported: ECDSA with P-256 or P-384, RSA with 2048 to 8192 bits, Ed25519";

/// A file with certificates, a key or revocation lists cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} cannot be used: {cause}")]
pub struct UnusableFile {
    /// The file, with the setting that names it.
    pub file: String,
    /// The fault, and what to do.
    pub cause: String,
}

/// The text of a PEM file, with its name for errors.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    name: String,
    text: String,
}

impl fmt::Debug for PemFile {
    /// Without the text, which may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemFile").field("name", &self.name).finish_non_exhaustive()
    }
}

impl From<String> for PemFile {
    /// A text that is in no file.
    fn from(text: String) -> Self {
        Self { name: String::new(), text }
    }
}

impl PemFile {
    /// Reads a file. `setting` names it, such as `tls.ca`.
    ///
    /// # Errors
    /// [`UnusableFile`] if it cannot be read or is not PEM.
    pub fn read(setting: &str, path: &Path) -> Result<Self, UnusableFile> {
        let name = format!("{setting}: {}", path.display());
        match std::fs::read(path) {
            Ok(bytes) => Self::of_bytes(name, bytes),
            Err(error) => Err(UnusableFile { file: name, cause: error.to_string() }),
        }
    }

    /// The content of a file.
    ///
    /// # Errors
    /// [`UnusableFile`] if it is not PEM but DER, UTF-16, text with a byte order mark, or empty.
    pub fn of_bytes(name: String, bytes: Vec<u8>) -> Result<Self, UnusableFile> {
        let cause = match bytes.as_slice() {
            [0xef, 0xbb, 0xbf, ..] => {
                "it begins with a byte order mark (BOM); save it as UTF-8 without BOM"
            }
            [0xfe, 0xff, ..] | [0xff, 0xfe, ..] | [0, b'-', ..] | [b'-', 0, ..] => {
                "it is UTF-16; save it as ASCII or UTF-8"
            }
            // The tag of a SEQUENCE with a length of more than 127 bytes.
            [0x30, 0x81..=0x84, ..] => {
                "it is DER or PKCS #12, not PEM; convert it with `openssl x509`, `openssl pkey` or `openssl crl` \
                 (-inform DER), or `openssl pkcs12`"
            }
            blank if blank.trim_ascii().is_empty() => "it is empty",
            _ => match String::from_utf8(bytes) {
                Ok(text) => return Ok(Self { name, text }),
                Err(_) => "it is not text; use PEM (-----BEGIN …)",
            },
        };
        Err(UnusableFile { file: name, cause: cause.to_owned() })
    }

    /// The name for errors; empty for a text that is in no file.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The error of this file.
    pub fn unusable(&self, cause: impl Into<String>) -> UnusableFile {
        UnusableFile { file: self.name.clone(), cause: cause.into() }
    }

    /// The kinds of its sections, such as `CERTIFICATE`.
    fn labels(&self) -> impl Iterator<Item = &str> {
        let begins = self.text.lines().filter_map(|line| line.strip_prefix("-----BEGIN "));
        begins.filter_map(|rest| rest.trim_end().strip_suffix("-----"))
    }

    /// A sentence on what is there in place of `wanted`.
    fn lacks(&self, wanted: &str) -> UnusableFile {
        let found: Vec<String> = self.labels().map(|label| shortened(label, 40)).collect();
        self.unusable(match found.is_empty() {
            true => format!("there is no {wanted} in it (expected PEM)"),
            false => format!("there is no {wanted} in it, but: {}", found.join(", ")),
        })
    }

    /// Its certificates, at least one.
    ///
    /// # Errors
    /// [`UnusableFile`] if there is none, or a section is damaged.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, UnusableFile> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.text.as_bytes()).collect();
        match all {
            Ok(all) if all.is_empty() => Err(self.lacks("certificate")),
            Ok(all) => Ok(all),
            Err(error) => Err(self.unusable(pem_cause(&error))),
        }
    }

    /// Its private key.
    ///
    /// # Errors
    /// [`UnusableFile`] if there is none, or it is encrypted or damaged.
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>, UnusableFile> {
        let is_encrypted = self.labels().any(|label| label == "ENCRYPTED PRIVATE KEY")
            || self
                .text
                .lines()
                .any(|line| line.starts_with("Proc-Type:") && line.contains("ENCRYPTED"));
        if is_encrypted {
            let cause = "the key is encrypted, and nobody is asked for its passphrase; decrypt it with `openssl pkey -in \
                         FILE -out FILE`, and let only its owner read it";
            return Err(self.unusable(cause));
        }
        PrivateKeyDer::from_pem_slice(self.text.as_bytes()).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => self.lacks("private key"),
            error => self.unusable(pem_cause(&error)),
        })
    }

    /// Checks that its first certificate is valid at a time.
    ///
    /// # Errors
    /// [`UnusableFile`] if it has expired or is not valid yet.
    pub fn check_dates(&self, now: SystemTime) -> Result<(), UnusableFile> {
        let all = self.certificates()?;
        let own = self.parsed(&all, 0)?;
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let validity = own.validity();
        if validity.not_after.timestamp() < seconds {
            let end = date(validity.not_after.timestamp());
            return Err(self.unusable(format!("the certificate expired at {end}; renew it")));
        }
        if validity.not_before.timestamp() > seconds {
            let (begin, now) = (date(validity.not_before.timestamp()), date(seconds));
            return Err(self.unusable(format!(
                "the certificate is not valid before {begin}, and it is {now}; check the clock"
            )));
        }
        Ok(())
    }

    /// Checks that at least one of its certificates can verify others: an authority's key that is not supported would
    /// reject everyone.
    ///
    /// # Errors
    /// [`UnusableFile`] if there is no certificate, one cannot be parsed, or no key is supported.
    pub fn check_authority(&self) -> Result<(), UnusableFile> {
        let all = self.certificates()?;
        let mut unsupported = None;
        let mut supported = 0;
        for number in 0..all.len() {
            let certificate = self.parsed(&all, number)?;
            match unsupported_key(certificate.public_key()) {
                Some(key) => unsupported = Some(key),
                None => supported += 1,
            }
        }
        match unsupported {
            Some(key) if supported == 0 => Err(self.unusable(format!(
                "the authority's key is {key}, which is not supported ({SUPPORTED})"
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that its first certificate, a client's, has one URI, by which a server identifies its caller.
    ///
    /// # Errors
    /// [`UnusableFile`] if it has none, several, or one of another scheme.
    pub fn check_uri(&self) -> Result<(), UnusableFile> {
        let all = self.certificates()?;
        let own = self.parsed(&all, 0)?;
        let names =
            own.subject_alternative_name().map_err(|error| self.unusable(error.to_string()))?;
        let uris =
            names.iter().flat_map(|names| &names.value.general_names).filter_map(
                |name| match name {
                    GeneralName::URI(uri) => Some(*uri),
                    _ => None,
                },
            );
        match uris.collect::<Vec<_>>()[..] {
            [uri] if uri.starts_with("spiffe://") => Ok(()),
            [uri] => Err(self.unusable(format!(
                "the certificate's URI {} is no identity (expected spiffe://<trust domain>/<kind>/<name>, such as \
                 spiffe://snic.local/tenant/acme)",
                shortened(uri, NAME_CHARS_MAX)
            ))),
            ref uris => Err(self.unusable(format!(
                "the certificate has {} URIs among its subject alternative names; exactly one is required: \
                 spiffe://<trust domain>/<kind>/<name>, such as spiffe://snic.local/tenant/acme",
                uris.len()
            ))),
        }
    }

    fn parsed<'a>(
        &self,
        all: &'a [CertificateDer<'static>],
        number: usize,
    ) -> Result<X509Certificate<'a>, UnusableFile> {
        match X509Certificate::from_der(&all[number]) {
            Ok(([], certificate)) => Ok(certificate),
            Ok(_) => {
                Err(self.unusable(format!("certificate {} is followed by other bytes", number + 1)))
            }
            Err(error) => {
                Err(self.unusable(format!("certificate {} cannot be parsed: {error}", number + 1)))
            }
        }
    }
}

/// Checks a certificate with its key: both can be read, their kind is supported, the key belongs to the first certificate,
/// and each further certificate issued the one before it. Dates are not looked at.
///
/// # Errors
/// [`UnusableFile`], which names the one that is wrong.
pub fn check_pair(certificate: &PemFile, key: &PemFile) -> Result<(), UnusableFile> {
    let all = certificate.certificates()?;
    let own = certificate.parsed(&all, 0)?;
    let private = key.private_key()?;
    if let Some(kind) = unsupported_key(own.public_key()) {
        return Err(certificate
            .unusable(format!("its key is {kind}, which is not supported ({SUPPORTED})")));
    }
    let signer = any_supported_type(&private).map_err(|_| {
        key.unusable(format!("the key is damaged or of a kind that is not supported ({SUPPORTED})"))
    })?;
    if let Some(public) = signer.public_key() {
        let is_of =
            |certificate: &X509Certificate<'_>| certificate.public_key().raw == public.as_ref();
        if !is_of(&own) {
            let others = (1..all.len())
                .find(|number| certificate.parsed(&all, *number).is_ok_and(|other| is_of(&other)));
            return Err(match others {
                Some(number) => certificate.unusable(format!(
                    "the key's certificate is number {} in it; put it first, then the one that issued it, and so on",
                    number + 1
                )),
                None => key.unusable(format!(
                    "the key does not belong to the certificate ({})",
                    file_or(certificate, "beside it")
                )),
            });
        }
    }
    for number in 1..all.len() {
        let (child, issuer) =
            (certificate.parsed(&all, number - 1)?, certificate.parsed(&all, number)?);
        if child.issuer().as_raw() != issuer.subject().as_raw() {
            return Err(certificate.unusable(format!(
                "certificate {} in it was issued by {}, but certificate {} is {}; put them in order, each after the one \
                 that it issued",
                number, named(child.issuer()), number + 1, named(issuer.subject())
            )));
        }
        if is_forged(&child, &issuer) {
            return Err(certificate.unusable(format!(
                "certificate {} in it does not have the signature of certificate {} ({}): another key has the same name",
                number, number + 1, named(issuer.subject())
            )));
        }
    }
    Ok(())
}

/// Checks that a lone certificate is issued by an authority of `authority`: otherwise the intermediate one is missing. A
/// file with several certificates, or one that issued itself, says by itself where it leads.
///
/// # Errors
/// [`UnusableFile`] of the certificate.
pub fn check_issuer(certificate: &PemFile, authority: &PemFile) -> Result<(), UnusableFile> {
    let all = certificate.certificates()?;
    let own = certificate.parsed(&all, 0)?;
    if all.len() > 1 || own.issuer().as_raw() == own.subject().as_raw() {
        return Ok(());
    }
    let roots = authority.certificates()?;
    let (mut has_name, mut has_signed) = (false, false);
    for number in 0..roots.len() {
        let root = authority.parsed(&roots, number)?;
        if root.subject().as_raw() == own.issuer().as_raw() {
            has_name = true;
            has_signed |= !is_forged(&own, &root);
        }
    }
    match (has_name, has_signed) {
        (_, true) => Ok(()),
        (true, false) => Err(certificate.unusable(format!(
            "its issuer {} is in {}, but with another key, which did not sign it",
            named(own.issuer()),
            file_or(authority, "the authorities")
        ))),
        (false, _) => Err(certificate.unusable(format!(
            "its issuer {} is neither in it nor in {}: append the certificate of that intermediate authority",
            named(own.issuer()),
            file_or(authority, "the authorities")
        ))),
    }
}

/// Whether a signature is wrong. One of an algorithm that cannot be verified here is left to TLS.
fn is_forged(child: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    use x509_parser::error::X509Error;
    matches!(
        child.verify_signature(Some(issuer.public_key())),
        Err(X509Error::SignatureVerificationError)
    )
}

fn file_or<'a>(file: &'a PemFile, other: &'a str) -> &'a str {
    if file.name.is_empty() { other } else { &file.name }
}

/// A distinguished name as text for an error.
pub fn named(name: &X509Name<'_>) -> String {
    match name.to_string() {
        empty if empty.is_empty() => "(no name)".to_owned(),
        name => shortened(&name, NAME_CHARS_MAX),
    }
}

/// A time as in RFC 3339.
pub fn date(seconds: i64) -> String {
    prost_types::Timestamp { seconds, nanos: 0 }.to_string()
}

/// The kind of a public key that TLS cannot use here, in words.
fn unsupported_key(key: &SubjectPublicKeyInfo<'_>) -> Option<String> {
    // The names of curves: RFC 5480, 2.1.1.1.
    let curve = key.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
    let curve = curve.map(|curve| curve.to_id_string());
    let algorithm = key.algorithm.algorithm.to_id_string();
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) if RSA_BITS.contains(&rsa.key_size()) => None,
        Ok(PublicKey::RSA(rsa)) => Some(format!("RSA with {} bits", rsa.key_size())),
        Ok(PublicKey::EC(_)) => match curve.as_deref() {
            Some("1.2.840.10045.3.1.7" | "1.3.132.0.34") => None,
            Some("1.3.132.0.35") => Some("ECDSA with P-521".to_owned()),
            Some(curve) => Some(format!("ECDSA with the curve {curve}")),
            None => Some("ECDSA with a curve of its own".to_owned()),
        },
        _ if algorithm == "1.3.101.112" => None,
        _ => Some(format!("of the algorithm {algorithm}")),
    }
}

/// The reason why a PEM section cannot be read.
fn pem_cause(error: &rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::MissingSectionEnd { .. } => {
            "a section has no -----END line: it is cut off".to_owned()
        }
        Error::IllegalSectionStart { line } => {
            format!("{} does not begin a section", shortened(&String::from_utf8_lossy(line), 60))
        }
        error => error.to_string(),
    }
}

/// When a certificate (DER) ends; `None` where it cannot be parsed.
pub fn end_of_certificate(der: &[u8]) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
