//! Kubernetes' rules for the name of an extended resource.

/// Longest name after the slash, in characters.
const NAME_CHARS_MAX: usize = 63;
/// Longest domain before it, in characters.
const DOMAIN_CHARS_MAX: usize = 253;
/// Kubernetes prefixes names with this in quotas, and the result must still be a valid name.
const QUOTA_PREFIX: &str = "requests.";

/// A name that Kubernetes does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidResourceName {
    /// A name that is not of the form `domain/name`.
    #[error("{0:?} is not a resource name (expected domain/name, e.g. snic.dev/acme-web)")]
    Form(String),
    /// The domain is malformed.
    #[error(
        "{name:?}: {domain:?} is not a DNS subdomain of at most {max} lower-case letters, digits, '-' \
         and '.'",
        max = DOMAIN_CHARS_MAX - QUOTA_PREFIX.len()
    )]
    Domain {
        /// The whole name.
        name: String,
        domain: String,
    },
    /// The domain is reserved.
    #[error("{0:?}: kubernetes.io and names that begin with requests. are reserved for Kubernetes")]
    Reserved(String),
    /// The name after the slash is malformed.
    #[error(
        "{name:?}: {part:?} is not 1 to {NAME_CHARS_MAX} letters, digits, '-', '_' and '.', a letter \
         or digit first and last"
    )]
    Name {
        /// The whole name.
        name: String,
        /// The part after the slash.
        part: String,
    },
}

fn is_subdomain(text: &str) -> bool {
    let ends = |label: &str| !label.starts_with('-') && !label.ends_with('-');
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text.split('.').all(|label| !label.is_empty() && ends(label) && label.bytes().all(plain))
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    (1..=NAME_CHARS_MAX).contains(&bytes.len())
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(plain)
}

/// Checks the name of an extended resource.
///
/// # Errors
/// [`InvalidResourceName`] with the rule that it breaks.
pub fn check(name: &str) -> Result<(), InvalidResourceName> {
    let Some((domain, part)) = name.split_once('/').filter(|(_, part)| !part.contains('/')) else {
        return Err(InvalidResourceName::Form(name.into()));
    };
    let is_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    if is_kubernetes || name.starts_with(QUOTA_PREFIX) {
        return Err(InvalidResourceName::Reserved(name.into()));
    }
    if QUOTA_PREFIX.len() + domain.len() > DOMAIN_CHARS_MAX || !is_subdomain(domain) {
        return Err(InvalidResourceName::Domain { name: name.into(), domain: domain.into() });
    }
    if !is_name(part) {
        return Err(InvalidResourceName::Name { name: name.into(), part: part.into() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("snic.dev/acme-web", "")]
    #[case("snic.dev/A_1.b", "")]
    #[case("acme/web", "")]
    #[case("notkubernetes.io/web", "")]
    #[case("web", "expected domain/name")]
    #[case("snic.dev/acme/web", "expected domain/name")]
    #[case("/web", "subdomain")]
    #[case("snic_dev/web", "subdomain")]
    #[case("Snic.dev/web", "subdomain")]
    #[case("-snic.dev/web", "subdomain")]
    #[case("snic..dev/web", "subdomain")]
    #[case("snic.dev/", "letter or digit first")]
    #[case("snic.dev/-web", "letter or digit first")]
    #[case("snic.dev/web_", "letter or digit first")]
    #[case("snic.dev/w b", "letter or digit first")]
    #[case("kubernetes.io/web", "reserved")]
    #[case("snic.kubernetes.io/web", "reserved")]
    #[case("requests.snic.dev/web", "reserved")]
    fn names_follow_the_rules_of_kubernetes(#[case] name: &str, #[case] said: &str) {
        match check(name) {
            Ok(()) => assert_eq!(said, "", "{name} was accepted"),
            Err(error) => assert!(!said.is_empty() && error.to_string().contains(said), "{error}"),
        }
    }

    #[test]
    fn lengths_are_limited() {
        assert_eq!(check(&format!("snic.dev/{}", "w".repeat(63))), Ok(()));
        assert!(check(&format!("snic.dev/{}", "w".repeat(64))).is_err());
        let domain = |chars: usize| format!("{}.{}", "d".repeat(63), "d".repeat(chars - 64));
        // Labels have separate bounds in DNS; Kubernetes looks at the whole.
        assert_eq!(check(&format!("{}/web", domain(244))), Ok(()));
        assert!(check(&format!("{}/web", domain(245))).is_err());
    }
}
