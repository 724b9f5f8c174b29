//! Lists of revoked certificates (CRLs). Of each issuer the newest list counts, whatever the order in the file.
//!
//! A list that is past its next update still counts: what it revokes stays revoked, and other clients are let in, for a
//! missed renewal must not lock out everyone who could mend it. The same holds for a list from the future, which knows at
//! least what an older one knew. Both are reported: by `doctor`, in the log at start, at each reload and once a day, and by
//! a metric.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::WebPkiClientVerifier;
use snic_api::certificates::{PemFile, UnusableFile, date, named};
use x509_parser::error::X509Error;
use x509_parser::extensions::ParsedExtension;
use x509_parser::num_bigint::BigUint;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

/// Time between two reports of the same list.
const REPORTED_AGAIN: Duration = Duration::from_secs(24 * 3_600);

/// The extension of delta lists (RFC 5280, 5.2.4).
const DELTA: &str = "2.5.29.27";

/// A list in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationStatus {
    /// The issuer's distinguished name.
    pub issuer: String,
    /// The list's number; empty if it has none.
    pub number: String,
    /// When it was issued.
    pub this_update: SystemTime,
    /// When the next one is due.
    pub next_update: SystemTime,
    /// Whether the issuer is an authority of clients, so that the signature could be verified already.
    pub is_known_issuer: bool,
    /// Older lists of the same issuer in the file, which do not count.
    pub superseded: usize,
}

impl RevocationStatus {
    /// Fault of the list at a time, if it has one.
    pub fn problem(&self, now: SystemTime) -> Option<String> {
        let Self { issuer, number, .. } = self;
        let list = match number.is_empty() {
            true => format!("the list of revoked certificates of {issuer}"),
            false => format!("the list {number} of revoked certificates of {issuer}"),
        };
        if self.this_update > now {
            return Some(format!(
                "{list} is from the future ({}): check the clock here and at the authority",
                date(seconds(self.this_update))
            ));
        }
        (self.next_update <= now).then(|| {
            format!(
                "{list} expired at {}: certificates that were revoked since are still accepted; replace it",
                date(seconds(self.next_update))
            )
        })
    }
}

impl std::fmt::Display for RevocationStatus {
    /// The list, as it is while nothing is wrong with it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let next = date(seconds(self.next_update));
        write!(f, "the list of revoked certificates of {} is current until {next}", self.issuer)?;
        if self.superseded > 0 {
            write!(f, "; older ones in the file, which do not count: {}", self.superseded)?;
        }
        if !self.is_known_issuer {
            f.write_str(
                "; its issuer is not in the file of the authority, so it counts only for clients that send their issuer's \
                 certificate",
            )?;
        }
        Ok(())
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(since).unwrap_or(i64::MAX)
}

fn time(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// A list of the file with what decides whether it counts.
struct Listed<'a> {
    der: &'a CertificateRevocationListDer<'static>,
    /// Its place in the file, from 1.
    place: usize,
    /// The issuer's name as DER, and the certificates that the list is for (its issuing distribution point).
    scope: (Vec<u8>, Vec<u8>),
    number: Option<BigUint>,
    this_update: i64,
    next_update: i64,
    issuer: String,
    /// The key of the authority that signed it, where that is known.
    signer: Option<Vec<u8>>,
}

/// The lists of a file that count, with their status; `authorities` are those of clients.
///
/// # Errors
/// [`UnusableFile`] where there is none, one cannot be used, or it cannot be told which one counts.
pub(crate) fn newest(
    file: &PemFile,
    authorities: &[CertificateDer<'static>],
) -> Result<(Vec<CertificateRevocationListDer<'static>>, Vec<RevocationStatus>), UnusableFile> {
    let all = CertificateRevocationListDer::pem_slice_iter(file.text().as_bytes());
    let all: Vec<_> = all
        .collect::<Result<_, _>>()
        .map_err(|error| file.unusable(format!("a section is damaged: {error}")))?;
    if all.is_empty() {
        return Err(
            file.unusable("there is no list in it (expected PEM: -----BEGIN X509 CRL-----)")
        );
    }
    let mut newest: BTreeMap<(Vec<u8>, Vec<u8>), (Listed<'_>, usize)> = BTreeMap::new();
    for (at, der) in all.iter().enumerate() {
        let wrong = |cause: String| file.unusable(format!("list {}: {cause}", at + 1));
        let listed = read(der, at + 1, authorities).map_err(wrong)?;
        match newest.get_mut(&listed.scope) {
            None => drop(newest.insert(listed.scope.clone(), (listed, 0))),
            Some((best, superseded)) => {
                *superseded += 1;
                if order(&listed, best).map_err(|cause| file.unusable(cause))? == Ordering::Greater
                {
                    *best = listed;
                }
            }
        }
    }
    let mut signers: BTreeMap<&[u8], BTreeSet<&[u8]>> = BTreeMap::new();
    for (listed, _) in newest.values() {
        let keys = signers.entry(&listed.scope.0).or_default();
        keys.extend(listed.signer.as_deref());
        if keys.len() > 1 {
            return Err(file.unusable(several_keys(&listed.issuer)));
        }
    }
    let status = |(listed, superseded): &(Listed<'_>, usize)| RevocationStatus {
        issuer: listed.issuer.clone(),
        number: listed.number.as_ref().map(ToString::to_string).unwrap_or_default(),
        this_update: time(listed.this_update),
        next_update: time(listed.next_update),
        is_known_issuer: listed.signer.is_some(),
        superseded: *superseded,
    };
    let statuses = newest.values().map(status).collect();
    Ok((newest.into_values().map(|(listed, _)| listed.der.clone()).collect(), statuses))
}

fn several_keys(issuer: &str) -> String {
    format!(
        "lists of {issuer} are signed with different keys, and only one key of a name can be verified; give the new \
         authority another name, or remove the list of the old key"
    )
}

/// Order of two lists of the same certificates by age. RFC 5280, 5.2.3: the number tells which list supersedes which;
/// where one has none, the time of issue does.
fn order(one: &Listed<'_>, other: &Listed<'_>) -> Result<Ordering, String> {
    let by_time = one.this_update.cmp(&other.this_update);
    let by_number =
        one.number.as_ref().zip(other.number.as_ref()).map(|(one, other)| one.cmp(other));
    if one.signer.is_some() && other.signer.is_some() && one.signer != other.signer {
        return Err(several_keys(&one.issuer));
    }
    let order = match by_number {
        Some(by_number) if by_number != Ordering::Equal => {
            // A restored authority counts from a lower number again. Whichever list were taken, the other
            // could have revoked what it does not.
            if by_time == by_number.reverse() {
                return Err(contradiction(
                    one,
                    other,
                    "the one with the higher number was issued earlier",
                ));
            }
            by_number
        }
        _ => by_time,
    };
    if order == Ordering::Equal && one.der != other.der {
        return Err(contradiction(
            one,
            other,
            "both have the same number and time, but are different",
        ));
    }
    Ok(order)
}

fn contradiction(one: &Listed<'_>, other: &Listed<'_>, how: &str) -> String {
    let (first, second) = (one.place.min(other.place), one.place.max(other.place));
    format!(
        "lists {first} and {second} in it, of {}, contradict each other: {how}; remove the one that does not count",
        one.issuer
    )
}

/// Reads a list, and verifies its signature where its issuer is known.
fn read<'a>(
    der: &'a CertificateRevocationListDer<'static>,
    place: usize,
    authorities: &[CertificateDer<'static>],
) -> Result<Listed<'a>, String> {
    let (rest, list) = CertificateRevocationList::from_der(der)
        .map_err(|error| format!("it cannot be parsed: {error}"))?;
    if !rest.is_empty() {
        return Err("it is followed by other bytes".into());
    }
    let issuer = named(list.issuer());
    let mut scope = Vec::new();
    for extension in list.extensions() {
        if extension.oid.to_id_string() == DELTA {
            return Err(format!(
                "it is a delta list of {issuer} (RFC 5280, 5.2.4), which says only what has changed; use complete lists"
            ));
        }
        if let ParsedExtension::IssuingDistributionPoint(point) = extension.parsed_extension() {
            if point.indirect_crl {
                return Err(format!(
                    "it is an indirect list of {issuer} (RFC 5280, 5.2.5), which revokes certificates of other \
                         issuers; use a list of each issuer"
                ));
            }
            if point.only_some_reasons.is_some() {
                return Err(format!(
                    "it has only some reasons of revocation of {issuer} (RFC 5280, 5.2.5); use complete lists"
                ));
            }
            scope = extension.value.to_vec();
        }
    }
    let next_update = list.next_update().ok_or_else(|| {
        format!("it is of {issuer} and does not say when the next one is due (nextUpdate, RFC 5280, 5.1.2.5)")
    })?;
    is_usable(der).map_err(|cause| format!("it is of {issuer} and cannot be used: {cause}"))?;
    Ok(Listed {
        der,
        place,
        scope: (list.issuer().as_raw().to_vec(), scope),
        number: list.crl_number().cloned(),
        this_update: list.last_update().timestamp(),
        next_update: next_update.timestamp(),
        signer: signer(&list, &issuer, authorities)?,
        issuer,
    })
}

/// The key that signed a list, of the authorities of its issuer's name; `None` if there is no such authority: it may be an
/// intermediate one, whose certificate clients send.
fn signer(
    list: &CertificateRevocationList<'_>,
    issuer: &str,
    authorities: &[CertificateDer<'static>],
) -> Result<Option<Vec<u8>>, String> {
    let mut is_forged = false;
    for der in authorities {
        let Ok((_, authority)) = X509Certificate::from_der(der) else { continue };
        if authority.subject().as_raw() != list.issuer().as_raw() {
            continue;
        }
        match list.verify_signature(authority.public_key()) {
            Ok(()) => return Ok(Some(authority.public_key().raw.to_vec())),
            // Verified at each connection instead.
            Err(X509Error::SignatureUnsupportedAlgorithm) => return Ok(None),
            Err(_) => is_forged = true,
        }
    }
    match is_forged {
        true => Err(format!(
            "it says that it is of {issuer}, but does not have the signature of that authority"
        )),
        false => Ok(None),
    }
}

/// Whether TLS takes a list; it parses lists by itself, and refuses critical extensions that it does not know.
fn is_usable(der: &CertificateRevocationListDer<'static>) -> Result<(), String> {
    let mut any = RootCertStore::empty();
    any.roots.push(rustls::pki_types::TrustAnchor {
        subject: rustls::pki_types::Der::from_slice(&[]),
        subject_public_key_info: rustls::pki_types::Der::from_slice(&[]),
        name_constraints: None,
    });
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(std::sync::Arc::new(any), provider);
    builder.with_crls([der.clone()]).build().map(drop).map_err(|error| error.to_string())
}

/// Lists that are reported, and when: at a change, and once a day.
#[derive(Debug, Default)]
pub(crate) struct RevocationReports(BTreeMap<(String, String, bool), SystemTime>);

impl RevocationReports {
    /// The problems to report at a time.
    pub fn due(&mut self, lists: &[RevocationStatus], now: SystemTime) -> Vec<String> {
        let mut reported = BTreeMap::new();
        let mut due = Vec::new();
        for list in lists {
            let Some(problem) = list.problem(now) else { continue };
            let key = (list.issuer.clone(), list.number.clone(), list.this_update > now);
            let last = self.0.get(&key).copied();
            // A clock that was set back does not silence it.
            let is_due = last.is_none_or(|last| {
                now.duration_since(last).map_or(true, |since| since >= REPORTED_AGAIN)
            });
            if is_due {
                due.push(problem);
            }
            reported.insert(key, if is_due { now } else { last.unwrap_or(now) });
        }
        self.0 = reported;
        due
    }

    /// Has all of them reported again: the certificates were reloaded.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
#[path = "revocation_tests.rs"]
mod tests;
