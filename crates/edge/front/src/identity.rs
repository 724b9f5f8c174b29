//! The caller's identity: from the client's certificate, or, on a Unix socket, from the user that opened it.
//!
//! A certificate must have exactly one URI among its subject alternative names, in this server's trust
//! domain: `spiffe://<trust domain>/` followed by `tenant/<id>`, `tenant/<id>/<member>`, `operator/<name>`
//! or `orchestrator/<name>`. Common names, DNS names and e-mail addresses are no identities. Two URIs would
//! be two identities, so they are rejected.
//!
//! A member acts for its tenant, as far as the authorization policies let it: for quotas, fairness and
//! what it owns it is the tenant.
//!
//! On a Unix socket the kernel names the peer's user, and a table of the settings says which identities
//! that user has. One with several chooses among them by a header; no header adds any.

use std::collections::BTreeMap;
use std::fmt;

use snic_domain::{Caller, TenantId};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The header by which a user of a Unix socket chooses among its identities.
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

/// Identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallerIdentity {
    party: Party,
    member: Option<TenantId>,
}

/// Party that a certificate can name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Party {
    /// Somebody for whom requests are carried out.
    Caller(Caller),
    /// The daemon of a host of a fleet.
    Host(String),
    /// A replica of the fleet's service, which vouches for those whose requests it passes on.
    Replica(String),
}

impl CallerIdentity {
    /// The party that it names.
    pub const fn party(&self) -> &Party {
        &self.party
    }

    /// The caller it acts for; `None` for hosts and replicas of a fleet. The controller knows nothing else of a caller.
    pub const fn caller(&self) -> Option<&Caller> {
        match &self.party {
            Party::Caller(caller) => Some(caller),
            Party::Host(_) | Party::Replica(_) => None,
        }
    }

    /// The tenant for which it acts, if it is a tenant or a member of one.
    pub const fn tenant(&self) -> Option<&TenantId> {
        match self.caller() {
            Some(caller) => caller.tenant(),
            None => None,
        }
    }

    /// The member's name, if it is a member of a tenant.
    pub fn member(&self) -> Option<&str> {
        self.member.as_ref().map(TenantId::as_str)
    }

    /// Parses `tenant/<id>`, `tenant/<id>/<member>`, `operator/<name>`, `orchestrator/<name>` or `replica/<name>`,
    /// whose names follow the rules of ids, or `host/<name>`, a name as in DNS.
    pub fn parse(path: &str) -> Option<Self> {
        let (kind, name) = path.split_once('/')?;
        if kind == "host" {
            let host = is_host_name(name).then(|| name.to_owned())?;
            return Some(Self { party: Party::Host(host), member: None });
        }
        let (name, member) = match name.split_once('/') {
            Some((name, member)) if kind == "tenant" => (name, Some(TenantId::new(member).ok()?)),
            _ => (name, None),
        };
        let id = TenantId::new(name).ok()?;
        let caller = match kind {
            "tenant" => Caller::Tenant(id),
            "operator" => Caller::Operator(id.to_string()),
            "orchestrator" => Caller::Orchestrator(id.to_string()),
            "replica" => {
                return Some(Self { party: Party::Replica(id.to_string()), member: None });
            }
            _ => return None,
        };
        Some(Self { party: Party::Caller(caller), member })
    }
}

impl From<Caller> for CallerIdentity {
    fn from(caller: Caller) -> Self {
        Self { party: Party::Caller(caller), member: None }
    }
}

/// Longest name of a host, in characters: that of DNS.
const HOST_CHARS_MAX: usize = 253;

/// 1 to 253 of a-z, 0-9, '-' and '.', a letter or digit first and last.
fn is_host_name(text: &str) -> bool {
    let is_end = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= HOST_CHARS_MAX
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|b| is_end(b) || matches!(b, b'-' | b'.'))
}

impl fmt::Display for CallerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caller = match &self.party {
            Party::Caller(caller) => caller,
            Party::Host(name) => return write!(f, "host/{name}"),
            Party::Replica(name) => return write!(f, "replica/{name}"),
        };
        match (caller, &self.member) {
            (Caller::Operator(name), _) => write!(f, "operator/{name}"),
            (Caller::Orchestrator(name), _) => write!(f, "orchestrator/{name}"),
            (Caller::Tenant(tenant), None) => write!(f, "tenant/{tenant}"),
            (Caller::Tenant(tenant), Some(member)) => write!(f, "tenant/{tenant}/{member}"),
        }
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
    /// The user of a Unix socket has no identity.
    #[error(
        "user {0} has no identity on this socket; an operator can give it one in listen.unix_peers"
    )]
    UnknownUser(u32),
    /// The header is missing, malformed or repeated.
    #[error(
        "header {IDENTITY_HEADER} is missing, malformed or repeated (expected once: tenant/<id>, \
         tenant/<id>/<member>, operator/<name> or orchestrator/<name>)"
    )]
    Header,
    /// The header names an identity that the user does not have.
    #[error(
        "user {user} may not be {identity} on this socket; an operator can allow it in listen.unix_peers"
    )]
    NotAllowed {
        /// The user's number.
        user: u32,
        /// The identity in the header.
        identity: String,
    },
}

fn forms(domain: &TrustDomain) -> String {
    format!(
        "spiffe://{domain}/tenant/<id>, spiffe://{domain}/tenant/<id>/<member>, \
         spiffe://{domain}/operator/<name> or spiffe://{domain}/orchestrator/<name>"
    )
}

/// The identity in a certificate (DER). The TLS handshake has verified the certificate itself.
///
/// # Errors
/// [`NoIdentity`] where the certificate has not exactly one URI of a caller in this trust domain.
pub fn of_certificate(der: &[u8], domain: &TrustDomain) -> Result<CallerIdentity, NoIdentity> {
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
    path.and_then(CallerIdentity::parse).ok_or_else(|| {
        let uri = uri.chars().take(160).collect();
        NoIdentity::WrongUri { uri, domain: domain.clone() }
    })
}

pub use snic_api::certificates::end_of_certificate;

/// The identities that a user of a Unix socket may have.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Allowed {
    One(CallerIdentity),
    /// Every identity of the same kind, or every member of the same tenant.
    Every(CallerIdentity),
}

/// Whether both are the same but for the last name.
fn is_alike(one: &CallerIdentity, other: &CallerIdentity) -> bool {
    let kind = |identity: &CallerIdentity| {
        let text = identity.to_string();
        text.rsplit_once('/').map(|(kind, _)| kind.to_owned())
    };
    kind(one) == kind(other)
}

/// An identity in the table of a Unix socket's users is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid identity (expected tenant/<id>, tenant/<id>/<member>, operator/<name> or \
     orchestrator/<name>; the last name may be * for every name)"
)]
pub struct InvalidIdentity(String);

/// The users of a Unix socket, and the identities that each has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnixPeers(BTreeMap<u32, Vec<Allowed>>);

impl UnixPeers {
    /// Gives a user (by its number) these identities, in addition to those that it has. The first
    /// is its identity if it does not choose one, unless that one has `*`.
    ///
    /// # Errors
    /// [`InvalidIdentity`]; the ones before it are kept.
    pub fn allow<I: AsRef<str>>(
        &mut self,
        user: u32,
        identities: impl IntoIterator<Item = I>,
    ) -> Result<(), InvalidIdentity> {
        let all = self.0.entry(user).or_default();
        for identity in identities {
            let text = identity.as_ref();
            let invalid = || InvalidIdentity(text.chars().take(80).collect());
            all.push(match text.strip_suffix("/*") {
                // Any valid name: only the kind counts.
                Some(kind) => Allowed::Every(
                    CallerIdentity::parse(&format!("{kind}/any")).ok_or_else(invalid)?,
                ),
                None => Allowed::One(CallerIdentity::parse(text).ok_or_else(invalid)?),
            });
        }
        Ok(())
    }

    pub(crate) fn user(&self, uid: u32) -> UnixUser {
        UnixUser { uid, allowed: self.0.get(&uid).cloned().unwrap_or_default() }
    }
}

/// The user at the other end of a Unix socket.
#[derive(Debug)]
pub(crate) struct UnixUser {
    uid: u32,
    allowed: Vec<Allowed>,
}

impl UnixUser {
    /// The user's number.
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    /// Its first identity. Of one with `*`, only the kind means something.
    pub fn default_identity(&self) -> Option<&CallerIdentity> {
        self.allowed.first().map(|(Allowed::One(one) | Allowed::Every(one))| one)
    }

    /// The identity of a request with these headers.
    ///
    /// # Errors
    /// [`NoIdentity`] where the user has no identity, not the one that the header names, or does not say
    /// which one where it must.
    pub fn identity(&self, headers: &http::HeaderMap) -> Result<CallerIdentity, NoIdentity> {
        let first = self.allowed.first().ok_or(NoIdentity::UnknownUser(self.uid))?;
        let mut values = headers.get_all(IDENTITY_HEADER).iter();
        let value = match (values.next(), values.next()) {
            (Some(value), None) => value,
            (None, None) => match first {
                Allowed::One(caller) => return Ok(caller.clone()),
                Allowed::Every(_) => return Err(NoIdentity::Header),
            },
            _ => return Err(NoIdentity::Header),
        };
        let text = value.to_str().map_err(|_| NoIdentity::Header)?;
        let identity = CallerIdentity::parse(text).ok_or(NoIdentity::Header)?;
        let is_allowed = self.allowed.iter().any(|allowed| match allowed {
            Allowed::One(one) => *one == identity,
            Allowed::Every(one) => is_alike(one, &identity),
        });
        if is_allowed {
            return Ok(identity);
        }
        Err(NoIdentity::NotAllowed { user: self.uid, identity: text.chars().take(80).collect() })
    }

    /// Whether the user has exactly this identity, by the settings: with `*` it names itself, as it likes.
    pub fn is_named(&self, identity: &CallerIdentity) -> bool {
        self.allowed.iter().any(|allowed| matches!(allowed, Allowed::One(one) if one == identity))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("host/rack1-h3.example.org", Some(Party::Host("rack1-h3.example.org".into())))]
    #[case("replica/r1", Some(Party::Replica("r1".into())))]
    #[case("host/", None)]
    #[case("host/-h", None)]
    #[case("host/h/1", None)]
    #[case("host/H", None)]
    #[case("replica/r.1", None)]
    fn hosts_and_replicas_act_for_nobody(#[case] path: &str, #[case] party: Option<Party>) {
        let parsed = CallerIdentity::parse(path);
        assert_eq!(parsed.as_ref().map(CallerIdentity::party), party.as_ref());
        if let Some(identity) = parsed {
            assert_eq!((identity.caller(), identity.tenant()), (None, None));
            assert_eq!(identity.to_string(), path);
        }
    }

    #[rstest]
    #[case("tenant/acme", Some(Caller::Tenant(TenantId::new("acme").expect("valid"))))]
    #[case("operator/root", Some(Caller::Operator("root".into())))]
    #[case("orchestrator/libvirt", Some(Caller::Orchestrator("libvirt".into())))]
    #[case("tenant/", None)]
    #[case("tenant", None)]
    #[case("/acme", None)]
    #[case("tenant/a/b/c", None)]
    #[case("tenant/a/", None)]
    #[case("tenant/a/B", None)]
    #[case("operator/a/b", None)]
    #[case("tenant/a.b", None)]
    #[case("Tenant/acme", None)]
    #[case("operator/Root", None)]
    #[case("tenant//acme", None)]
    fn a_path_is_a_kind_and_an_id(#[case] path: &str, #[case] expected: Option<Caller>) {
        assert_eq!(CallerIdentity::parse(path), expected.map(CallerIdentity::from));
    }

    #[test]
    fn a_member_acts_for_its_tenant() {
        let bob = CallerIdentity::parse("tenant/acme/bob").expect("a member");
        assert_eq!(bob.caller(), Some(&Caller::Tenant(TenantId::new("acme").expect("valid"))));
        assert_eq!(bob.member(), Some("bob"));
        assert_eq!(bob.to_string(), "tenant/acme/bob");
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

    fn headers(values: &[&str]) -> http::HeaderMap {
        let name = http::HeaderName::from_static(IDENTITY_HEADER);
        values.iter().map(|value| (name.clone(), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn a_user_is_what_the_table_says_and_a_header_only_chooses() {
        let mut peers = UnixPeers::default();
        peers.allow(0, ["orchestrator/hook", "operator/root"]).expect("valid");
        peers.allow(7, ["tenant/*"]).expect("valid");
        let root = peers.user(0);
        let hook = CallerIdentity::from(Caller::Orchestrator("hook".into()));
        let operator = CallerIdentity::from(Caller::Operator("root".into()));
        assert_eq!(root.identity(&headers(&[])), Ok(hook.clone()));
        assert_eq!(root.identity(&headers(&["orchestrator/hook"])), Ok(hook));
        assert_eq!(root.identity(&headers(&["operator/root"])), Ok(operator));
        for other in ["operator/admin", "tenant/acme", "orchestrator/other"] {
            let identity = other.to_owned();
            let refused = Err(NoIdentity::NotAllowed { user: 0, identity });
            assert_eq!(root.identity(&headers(&[other])), refused);
        }
        for wrong in [&["root"][..], &["operator/root", "operator/root"], &["operator/*"]] {
            assert_eq!(root.identity(&headers(wrong)), Err(NoIdentity::Header), "{wrong:?}");
        }
        let tenants = peers.user(7);
        let acme = CallerIdentity::parse("tenant/acme").expect("valid");
        assert_eq!(tenants.identity(&headers(&["tenant/acme"])), Ok(acme));
        assert_eq!(tenants.identity(&headers(&[])), Err(NoIdentity::Header));
        assert!(tenants.identity(&headers(&["operator/root"])).is_err());
        // A tenant's members are no tenants, and those of one are not those of another.
        assert!(tenants.identity(&headers(&["tenant/acme/bob"])).is_err());
        peers.allow(9, ["tenant/acme/*"]).expect("valid");
        let members = peers.user(9);
        let bob = CallerIdentity::parse("tenant/acme/bob").expect("valid");
        assert_eq!(members.identity(&headers(&["tenant/acme/bob"])), Ok(bob));
        for other in ["tenant/globex/bob", "tenant/acme"] {
            assert!(members.identity(&headers(&[other])).is_err(), "{other}");
        }
        let stranger = peers.user(8);
        for headers in [headers(&[]), headers(&["operator/root"])] {
            assert_eq!(stranger.identity(&headers), Err(NoIdentity::UnknownUser(8)));
        }
    }

    #[test]
    fn invalid_identities_of_users_are_rejected() {
        for wrong in ["", "root", "operator/", "operator/A", "*", "*/*", "admin/*", "tenant/a*"] {
            let error = UnixPeers::default().allow(0, [wrong]).expect_err(wrong);
            assert!(error.to_string().contains("expected tenant/<id>"), "{error}");
        }
    }
}
