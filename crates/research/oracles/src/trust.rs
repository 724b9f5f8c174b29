//! The owners whose images the packets of a DAG may pass: the trust model of SECURITY.md as the table that it is there. It knows
//! neither ids nor signatures of the product; a test says from outside who owns an image and whose key signed it.

/// The holder of the key that an image is signed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHolder {
    /// It is not signed.
    Nobody,
    Provider,
    /// The tenant that owns the image.
    Owner,
}

/// An image, as far as it matters for trust.
#[derive(Debug, Clone, Copy)]
pub struct ImageFacts<'a> {
    /// The tenant that uploaded it; `None` for the provider.
    pub owner: Option<&'a str>,
    /// Whether its owner lets other tenants share it.
    pub is_shared: bool,
    /// The holder of the key that signed it.
    pub signature: KeyHolder,
}

/// An image's owner, as a DAG sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Provider,
    OwnTenant,
    NamedTenant,
    OtherTenant,
}

/// A line of the table; what is `None` may be anything.
struct TrustRow {
    owner: Owner,
    is_shared: Option<bool>,
    signature: Option<KeyHolder>,
    may_pass: bool,
}

const fn line(
    owner: Owner,
    is_shared: Option<bool>,
    signature: Option<KeyHolder>,
    may_pass: bool,
) -> TrustRow {
    TrustRow { owner, is_shared, signature, may_pass }
}

/// In any order: no two lines say something about one image. What no line names may not be passed.
const TABLE: [TrustRow; 6] = [
    line(Owner::Provider, None, None, true),
    line(Owner::OwnTenant, None, None, true),
    line(Owner::NamedTenant, Some(true), None, true),
    line(Owner::OtherTenant, Some(true), Some(KeyHolder::Provider), true),
    line(Owner::OtherTenant, Some(true), Some(KeyHolder::Owner), false),
    line(Owner::OtherTenant, Some(true), Some(KeyHolder::Nobody), false),
];

/// Whether packets of a DAG of `tenant` that names `named` as trusted may pass an image.
pub fn may_pass(tenant: &str, named: &[&str], image: ImageFacts<'_>) -> bool {
    let owner = match image.owner {
        None => Owner::Provider,
        Some(owner) if owner == tenant => Owner::OwnTenant,
        Some(owner) if named.contains(&owner) => Owner::NamedTenant,
        Some(_) => Owner::OtherTenant,
    };
    let is_about = |line: &&TrustRow| {
        line.owner == owner
            && line.is_shared.is_none_or(|is_shared| is_shared == image.is_shared)
            && line.signature.is_none_or(|signature| signature == image.signature)
    };
    TABLE.iter().find(is_about).is_some_and(|line| line.may_pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURES: [KeyHolder; 3] = [KeyHolder::Nobody, KeyHolder::Provider, KeyHolder::Owner];

    fn image(owner: &str, is_shared: bool, signature: KeyHolder) -> ImageFacts<'_> {
        ImageFacts { owner: Some(owner), is_shared, signature }
    }

    #[test]
    fn no_image_is_in_two_lines() {
        for owner in [Owner::Provider, Owner::OwnTenant, Owner::NamedTenant, Owner::OtherTenant] {
            for (is_shared, signature) in
                [false, true].into_iter().flat_map(|is| SIGNATURES.map(|by| (is, by)))
            {
                let lines = TABLE.iter().filter(|line| {
                    line.owner == owner
                        && line.is_shared != Some(!is_shared)
                        && line.signature.is_none_or(|by| by == signature)
                });
                assert!(lines.count() <= 1, "{owner:?} {is_shared} {signature:?}");
            }
        }
    }

    /// The example that made the table: mallory's own key is nothing to acme.
    #[test]
    fn a_tenant_cannot_vouch_for_itself() {
        let own_key = image("mallory", true, KeyHolder::Owner);
        assert!(!may_pass("acme", &[], own_key));
        assert!(!may_pass("acme", &["globex"], own_key));
        assert!(may_pass("acme", &["mallory"], own_key));
        assert!(may_pass("mallory", &[], own_key));
        assert!(may_pass("acme", &[], image("mallory", true, KeyHolder::Provider)));
    }

    #[test]
    fn what_is_not_shared_is_its_owners_alone() {
        for signature in SIGNATURES {
            assert!(!may_pass("acme", &["mallory"], image("mallory", false, signature)));
            assert!(may_pass("mallory", &[], image("mallory", false, signature)));
        }
    }
}
