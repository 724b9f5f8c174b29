//! Pages of lists: page sizes and opaque page tokens.
//!
//! A token is the key of the last item sent, bound to its query. The server keeps no state for it, so
//! tokens survive a restart, and items created or deleted between two pages neither shift nor repeat
//! others. The binding detects mix-ups, not forgery: a forged key only selects where to continue among
//! items that the caller may see anyway.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use snic_domain::Digest;

/// Default page size.
pub const PAGE_SIZE_DEFAULT: usize = 50;
/// Largest page size: replies stay far below the 4 MiB that gRPC clients accept.
pub const PAGE_SIZE_MAX: usize = 1_000;
/// Longest token accepted, in characters: the longest key has a name with two ids, and three texts of 128
/// characters by which the list is ordered, in JSON.
const TOKEN_CHARS_MAX: usize = 4_096;
/// Bytes of the digest in a token: a mix-up goes undetected once in 2^64.
const DIGEST_BYTES: usize = 8;

/// A list request without its paging fields: method, parent, filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query(Vec<u8>);

impl Query {
    /// A query of this method, such as `ListDags`.
    pub fn of(method: &str) -> Self {
        Self(Vec::new()).and(method)
    }

    /// Adds a property. The order of properties matters.
    #[must_use]
    pub fn with(self, property: &str, value: &str) -> Self {
        self.and(property).and(value)
    }

    /// Appends a text with its length, so that different queries have different bytes.
    fn and(mut self, text: &str) -> Self {
        self.0.extend((text.len() as u64).to_be_bytes());
        self.0.extend(text.as_bytes());
        self
    }

    fn digest(&self, key: &str) -> [u8; DIGEST_BYTES] {
        let whole = Digest::of(&self.clone().and(key).0);
        let mut short = [0; DIGEST_BYTES];
        short.copy_from_slice(&whole.as_bytes()[..DIGEST_BYTES]);
        short
    }

    /// The token for the page after the item with this key.
    pub fn token_after(&self, key: &str) -> String {
        let mut bytes = self.digest(key).to_vec();
        bytes.extend(key.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The key in a token; `None` if the token is damaged or from another query.
    fn key_of(&self, token: &str) -> Option<String> {
        if token.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (digest, key) = bytes.split_at_checked(DIGEST_BYTES)?;
        let key = std::str::from_utf8(key).ok()?;
        (digest == self.digest(key)).then(|| key.to_owned())
    }
}

/// Invalid paging fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPage {
    /// A negative size.
    #[error(
        "page_size {0} is out of range (1 to {PAGE_SIZE_MAX}; 0 stands for {PAGE_SIZE_DEFAULT})"
    )]
    NegativeSize(i32),
    /// The token is damaged or from another list.
    #[error(
        "page_token is not from this list: repeat the request it came from, changing only the token, \
         or start without a token"
    )]
    Token,
}

impl InvalidPage {
    /// The invalid field.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::NegativeSize(_) => "page_size",
            Self::Token => "page_token",
        }
    }
}

/// The requested page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    query: Query,
    limit: usize,
    after: Option<String>,
}

/// A page: its items, and the token for the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in the order of the list.
    pub items: Vec<T>,
    /// For `next_page_token`: empty on the last page.
    pub next_page_token: String,
}

impl PageRequest {
    /// Parses `page_size` and `page_token` of a request for `query`.
    ///
    /// # Errors
    /// [`InvalidPage`] for a negative size, and for a token that is damaged or from another query.
    pub fn parse(query: Query, page_size: i32, page_token: &str) -> Result<Self, InvalidPage> {
        let size = usize::try_from(page_size).map_err(|_| InvalidPage::NegativeSize(page_size))?;
        let limit = if size == 0 { PAGE_SIZE_DEFAULT } else { size.min(PAGE_SIZE_MAX) };
        let after = match page_token {
            "" => None,
            token => Some(query.key_of(token).ok_or(InvalidPage::Token)?),
        };
        Ok(Self { query, limit, after })
    }

    /// Page size, 1 to [`PAGE_SIZE_MAX`].
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// The key of the previous page's last item; the page begins with the next greater key.
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// The token for the page after the item with this key.
    pub fn token_after(&self, key: &str) -> String {
        self.query.token_after(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dags(parent: &str) -> Query {
        Query::of("ListDags").with("parent", parent)
    }

    #[test]
    fn sizes_have_a_default_and_a_limit() {
        for (asked, limit) in [(0, 50), (1, 1), (1_000, 1_000), (1_001, 1_000), (i32::MAX, 1_000)] {
            let page = PageRequest::parse(dags("tenants/a"), asked, "").expect("a page");
            assert_eq!((page.limit(), page.after()), (limit, None), "{asked}");
        }
        let error = PageRequest::parse(dags("tenants/a"), -1, "").expect_err("negative");
        assert_eq!(error, InvalidPage::NegativeSize(-1));
        assert_eq!(error.field(), "page_size");
    }

    #[test]
    fn a_token_is_valid_only_for_its_list() {
        let token = dags("tenants/a").token_after("tenants/a/dags/x");
        let page = PageRequest::parse(dags("tenants/a"), 0, &token).expect("its own list");
        assert_eq!(page.after(), Some("tenants/a/dags/x"));
        let others =
            [dags("tenants/b"), Query::of("ListTenants"), dags("tenants/a").with("filter", "")];
        for other in others {
            let error = PageRequest::parse(other, 0, &token).expect_err("another list");
            assert_eq!((error.field(), error), ("page_token", InvalidPage::Token));
        }
    }

    #[test]
    fn properties_are_kept_apart() {
        let token = Query::of("List").with("ab", "c").token_after("k");
        assert_eq!(Query::of("List").with("a", "bc").key_of(&token), None);
        assert_eq!(Query::of("Lista").with("b", "c").key_of(&token), None);
        // Nor does the last one run into the key.
        let token = Query::of("List").with("a", "").token_after("k");
        assert_eq!(Query::of("List").with("a", "k").key_of(&token), None);
    }

    #[test]
    fn malformed_tokens_are_rejected() {
        let long = "A".repeat(TOKEN_CHARS_MAX + 1);
        for text in ["x", "tenants/a", "AAAA", "AAAAAAAAAAA", "%%%%", " ", "é", &long] {
            let error = PageRequest::parse(dags("tenants/a"), 0, text).expect_err(text);
            assert_eq!(error, InvalidPage::Token);
        }
    }

    #[test]
    fn the_longest_key_fits_a_token() {
        let id = "a".repeat(63);
        let key = format!("tenants/{id}/dags/{id}");
        let token = dags("tenants/-").token_after(&key);
        assert_eq!(dags("tenants/-").key_of(&token), Some(key));
    }

    proptest! {
        #[test]
        fn a_damaged_token_is_refused(key in "[a-z/]{1,40}", at in any::<prop::sample::Index>()) {
            let token = dags("tenants/a").token_after(&key);
            let mut damaged = token.clone().into_bytes();
            let at = at.index(damaged.len());
            damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
            let damaged = String::from_utf8(damaged).expect("ASCII");
            prop_assert_eq!(dags("tenants/a").key_of(&damaged), None);
        }

        #[test]
        fn any_key_survives(key in ".{0,90}") {
            let token = dags("tenants/a").token_after(&key);
            prop_assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
            prop_assert_eq!(dags("tenants/a").key_of(&token), Some(key));
        }
    }
}
