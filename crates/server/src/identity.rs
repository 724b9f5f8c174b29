//! Who calls: from the client's certificate, or, where plain text is allowed, from a header.
//!
//! A certificate has exactly one URI among its alternative names, and that URI is of this server's
//! trust domain: `spiffe://<trust domain>/` and then `tenant/<id>`, `operator/<name>` or `orchestrator/<name>`.
//! Two URIs would be two identities, and the server would have to choose; it refuses instead.

use std::fmt;

use snic_controller::Caller;
use snic_domain::TenantId;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The header that says who calls where plain text is allowed.
pub const IDENTITY_HEADER: &str = "snic-identity";
/// Longest trust domain, in characters: a DNS name has 255, and SPIFFE takes no more.
const TRUST_DOMAIN_CHARS_MAX: usize = 255;

/// The domain that identities belong to, such as `snic.example.org`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustDomain(String);

/// A text that is no trust domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no trust domain: 1 to {TRUST_DOMAIN_CHARS_MAX} of a-z, 0-9, '.', '-' and '_'")]
pub struct InvalidTrustDomain(String);

impl TrustDomain {
    /// Checks and takes the text, by SPIFFE's rules.
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

/// Why nobody can be told from a connection. The text says what was expected and repeats nothing
/// but what the client itself sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    /// No certificate came.
    #[error("no client certificate; one with the URI {} is needed", forms(.0))]
    NoCertificate(TrustDomain),
    /// The certificate cannot be read.
    #[error("the client certificate cannot be read: {0}")]
    Unreadable(String),
    /// There is not exactly one URI.
    #[error("the client certificate has {found} URIs; exactly one is needed: {}", forms(.domain))]
    NotOneUri {
        /// How many there are.
        found: usize,
        /// This server's domain.
        domain: TrustDomain,
    },
    /// The URI is of another form or domain.
    #[error("the client certificate's URI {uri:?} is not {}", forms(.domain))]
    WrongUri {
        /// The URI, cut to 160 characters.
        uri: String,
        /// This server's domain.
        domain: TrustDomain,
    },
    /// The header is missing or of another form.
    #[error(
        "header {IDENTITY_HEADER} is missing or malformed; over plain text it is needed once: \
         tenant/<id>, operator/<name> or orchestrator/<name>"
    )]
    Header,
}

fn forms(domain: &TrustDomain) -> String {
    format!(
        "spiffe://{domain}/tenant/<id>, spiffe://{domain}/operator/<name> or \
         spiffe://{domain}/orchestrator/<name>"
    )
}

/// Who a certificate (DER) says its holder is. That it is valid and from a trusted authority was
/// checked by the TLS handshake.
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

/// Who the header says the caller is; for connections that plain text is allowed on.
pub fn of_header(headers: &http::HeaderMap) -> Result<Caller, NoIdentity> {
    let mut values = headers.get_all(IDENTITY_HEADER).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(NoIdentity::Header);
    };
    value.to_str().ok().and_then(of_path).ok_or(NoIdentity::Header)
}

/// `tenant/<id>`, `operator/<name>` or `orchestrator/<name>`; all follow the rule of ids.
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
    fn a_trust_domain_is_a_plain_name() {
        for good in ["snic.example.org", "a", "x-y_z.1"] {
            assert_eq!(TrustDomain::new(good).map(|domain| domain.to_string()), Ok(good.into()));
        }
        for bad in ["", "Snic", "a/b", "a:1", "é", &"a".repeat(256)] {
            assert!(TrustDomain::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_are_nobody() {
        let domain = TrustDomain::new("snic.test").expect("valid");
        for bytes in [&b""[..], b"hello", &[0x30, 0x82, 0xFF, 0xFF]] {
            let error = of_certificate(bytes, &domain).expect_err("no certificate");
            assert!(matches!(error, NoIdentity::Unreadable(_)), "{error}");
        }
    }
}
