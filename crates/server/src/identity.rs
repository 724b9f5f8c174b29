//! The caller's identity: from the client's certificate, or, where plain text is allowed, from a header.
//!
//! A certificate must have exactly one URI among its subject alternative names, in this server's trust
//! domain: `spiffe://<trust domain>/` followed by `tenant/<id>`, `operator/<name>` or
//! `orchestrator/<name>`. Common names, DNS names and e-mail addresses are no identities. Two URIs would
//! be two identities, so they are rejected.

use std::fmt;

use snic_controller::Caller;
use snic_domain::TenantId;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The header with the caller's identity where plain text is allowed.
pub const IDENTITY_HEADER: &str = "snic-identity";
/// Longest trust domain, in characters: SPIFFE's limit.
const TRUST_DOMAIN_CHARS_MAX: usize = 255;

/// The domain that identities belong to, such as `snic.example.org`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustDomain(String);

/// An invalid trust domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid trust domain (expected 1 to {TRUST_DOMAIN_CHARS_MAX} characters of a-z, \
     0-9, '.', '-' and '_')"
)]
pub struct InvalidTrustDomain(String);

impl TrustDomain {
    /// Validates the text by SPIFFE's rules.
    ///
    /// # Errors
    /// [`InvalidTrustDomain`] for an empty or long text, and for other characters.
    pub fn new(text: &str) -> Result<Self, InvalidTrustDomain> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b);
        if (1..=TRUST_DOMAIN_CHARS_MAX).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidTrustDomain(text.chars().take(80).collect()))
        }
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a connection has no identity. The text says what is expected, and repeats only what the client
/// itself sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    /// The client sent no certificate.
    #[error("no client certificate; one with the URI {} is required", forms(.0))]
    NoCertificate(TrustDomain),
    /// The certificate cannot be parsed.
    #[error("the client certificate cannot be parsed: {0}")]
    Unreadable(String),
    /// There is not exactly one URI.
    #[error("the client certificate has {found} URIs; exactly one is required: {}", forms(.domain))]
    NotOneUri {
        /// Number of URIs.
        found: usize,
        /// This server's domain.
        domain: TrustDomain,
    },
    /// The URI has another form or domain.
    #[error("the client certificate's URI {uri:?} is not {}", forms(.domain))]
    WrongUri {
        /// The URI, cut to 160 characters.
        uri: String,
        /// This server's domain.
        domain: TrustDomain,
    },
    /// The header is missing, malformed or repeated.
    #[error(
        "header {IDENTITY_HEADER} is missing, malformed or repeated (expected once over plain text: \
         tenant/<id>, operator/<name> or orchestrator/<name>)"
    )]
    Header,
}

fn forms(domain: &TrustDomain) -> String {
    format!(
        "spiffe://{domain}/tenant/<id>, spiffe://{domain}/operator/<name> or \
         spiffe://{domain}/orchestrator/<name>"
    )
}

/// The identity in a certificate (DER). The TLS handshake has verified the certificate itself.
///
/// # Errors
/// [`NoIdentity`] where the certificate has not exactly one URI of a caller in this trust domain.
pub fn of_certificate(der: &[u8], domain: &TrustDomain) -> Result<Caller, NoIdentity> {
    let unreadable = |error: &dyn fmt::Display| NoIdentity::Unreadable(error.to_string());
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| unreadable(&error))?;
    let names = certificate.subject_alternative_name().map_err(|error| unreadable(&error))?;
    let uris: Vec<&str> = names
        .iter()
        .flat_map(|names| &names.value.general_names)
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        })
        .collect();
    let [uri] = uris[..] else {
        return Err(NoIdentity::NotOneUri { found: uris.len(), domain: domain.clone() });
    };
    let path = uri
        .strip_prefix("spiffe://")
        .and_then(|rest| rest.strip_prefix(domain.0.as_str()))
        .and_then(|rest| rest.strip_prefix('/'));
    path.and_then(of_path).ok_or_else(|| {
        let uri = uri.chars().take(160).collect();
        NoIdentity::WrongUri { uri, domain: domain.clone() }
    })
}

/// The identity in the header, for connections where plain text is allowed.
///
/// # Errors
/// [`NoIdentity::Header`].
pub fn of_header(headers: &http::HeaderMap) -> Result<Caller, NoIdentity> {
    let mut values = headers.get_all(IDENTITY_HEADER).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(NoIdentity::Header);
    };
    value.to_str().ok().and_then(of_path).ok_or(NoIdentity::Header)
}

/// Parses `tenant/<id>`, `operator/<name>` or `orchestrator/<name>`; names follow the rules of ids.
fn of_path(path: &str) -> Option<Caller> {
    let (kind, name) = path.split_once('/')?;
    let id = TenantId::new(name).ok()?;
    match kind {
        "tenant" => Some(Caller::Tenant(id)),
        "operator" => Some(Caller::Operator(id.to_string())),
        "orchestrator" => Some(Caller::Orchestrator(id.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("tenant/acme", Some(Caller::Tenant(TenantId::new("acme").expect("valid"))))]
    #[case("operator/root", Some(Caller::Operator("root".into())))]
    #[case("orchestrator/libvirt", Some(Caller::Orchestrator("libvirt".into())))]
    #[case("tenant/", None)]
    #[case("tenant", None)]
    #[case("/acme", None)]
    #[case("tenant/a/b", None)]
    #[case("tenant/a.b", None)]
    #[case("Tenant/acme", None)]
    #[case("operator/Root", None)]
    #[case("tenant//acme", None)]
    fn a_path_is_a_kind_and_an_id(#[case] path: &str, #[case] expected: Option<Caller>) {
        assert_eq!(of_path(path), expected);
    }

    #[test]
    fn trust_domains_are_validated() {
        for good in ["snic.example.org", "a", "x-y_z.1"] {
            assert_eq!(TrustDomain::new(good).map(|domain| domain.to_string()), Ok(good.into()));
        }
        for bad in ["", "Snic", "a/b", "a:1", "é", &"a".repeat(256)] {
            assert!(TrustDomain::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn malformed_certificates_have_no_identity() {
        let domain = TrustDomain::new("snic.test").expect("valid");
        for bytes in [&b""[..], b"hello", &[0x30, 0x82, 0xFF, 0xFF]] {
            let error = of_certificate(bytes, &domain).expect_err("no certificate");
            assert!(matches!(error, NoIdentity::Unreadable(_)), "{error}");
        }
    }
}
