//! The key of a page without TLS: every user of the machine can reach loopback, but the page is for
//! operators. The key comes once in the address; then the browser keeps it as a cookie (HttpOnly,
//! SameSite=Strict), which every request must carry.

use http::HeaderMap;
use http::header::{COOKIE, HOST};
use subtle::ConstantTimeEq as _;

/// Query parameter of the page's address, `?key=…`.
const QUERY_PREFIX: &str = "key=";

/// The secret that opens a page without TLS. Its `Debug` output hides it.
#[derive(Clone)]
pub struct PageKey(String);

impl std::fmt::Debug for PageKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PageKey(..)")
    }
}

impl PageKey {
    /// A key; it should be strong: [`PageKey::is_strong`].
    pub const fn new(key: String) -> Self {
        Self(key)
    }

    /// Whether it has at least 32 characters, all letters and digits: 128 bits in hexadecimal.
    pub fn is_strong(&self) -> bool {
        self.0.len() >= 32 && self.0.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }

    /// The query to append to the page's address.
    pub fn in_address(&self) -> String {
        format!("?{QUERY_PREFIX}{}", self.0)
    }

    /// Whether this query contains the key.
    pub(crate) fn opens(&self, query: Option<&str>) -> bool {
        query.and_then(|query| query.strip_prefix(QUERY_PREFIX)).is_some_and(|key| self.is(key))
    }

    /// The cookie with the key.
    pub(crate) fn cookie(&self, headers: &HeaderMap) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict", name(headers), self.0)
    }

    /// Whether the request's cookies contain the key.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let name = name(headers);
        let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|c| c.split_once('='));
        pairs.any(|(of, key)| of.trim() == name && self.is(key.trim()))
    }

    /// Compares in constant time.
    fn is(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

/// Cookies ignore the port, so the port is part of the cookie's name: daemons on one host differ.
fn name(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let authority = host.and_then(|host| host.parse::<http::uri::Authority>().ok());
    let port = authority.and_then(|authority| authority.port_u16()).unwrap_or(80);
    format!("snic-page-{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &'static str, cookie: &'static str) -> HeaderMap {
        let value = http::HeaderValue::from_static;
        HeaderMap::from_iter([(HOST, value(host)), (COOKIE, value(cookie))])
    }

    #[test]
    fn only_the_whole_key_under_the_right_name_opens() {
        let key = PageKey::new("0123456789abcdef0123456789abcdef".into());
        assert!(key.is_strong() && !PageKey::new("short".into()).is_strong());
        assert!(!PageKey::new("0123456789abcdef; Domain=example".into()).is_strong());
        assert!(key.opens(key.in_address().strip_prefix('?')));
        for query in [
            None,
            Some(""),
            Some("key="),
            Some("key=0123456789abcdef0123456789abcdee"),
            Some("key=0123456789abcdef"),
        ] {
            assert!(!key.opens(query), "{query:?}");
        }
        let here = "localhost:7444";
        let kept = "a=b; snic-page-7444=0123456789abcdef0123456789abcdef";
        assert!(key.is_in(&headers(here, kept)));
        assert!(!key.is_in(&headers("localhost:7445", kept)), "that of another daemon");
        assert!(!key.is_in(&headers(here, "snic-page-7444=0123456789abcdef")));
        assert!(!key.is_in(&HeaderMap::new()));
        assert!(key.cookie(&headers(here, "")).starts_with("snic-page-7444=0123"));
        assert_eq!(format!("{key:?}"), "PageKey(..)");
    }
}
