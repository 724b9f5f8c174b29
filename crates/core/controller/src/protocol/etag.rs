//! ETags and UIDs: they identify a state of a resource, and a resource among all that had its name.

use std::fmt::Display;

use snic_domain::Digest;

use crate::protocol::ControlError;

/// A short digest of what identifies a state of a resource.
pub(crate) fn etag(parts: &[&dyn Display]) -> String {
    let text = parts.iter().map(|part| part.to_string()).collect::<Vec<_>>().join("/");
    let [a, b, ..] = Digest::of(text.as_bytes()).words();
    format!("{a:08x}{b:08x}")
}

/// Rejects a change of something that changed since the caller read it.
pub(crate) fn check_etag(
    resource: impl ToString,
    read: Option<&str>,
    now: String,
) -> Result<(), ControlError> {
    match read {
        Some(read) if read != now => {
            Err(ControlError::EtagMismatch { resource: resource.to_string(), etag: now })
        }
        _ => Ok(()),
    }
}

/// A UUID made from a text (version 8).
pub(crate) fn uuid(text: &str) -> String {
    let [a, b, c, d, ..] = Digest::of(text.as_bytes()).words();
    let (b, c) = (b & 0xFFFF_0FFF | 0x8000, c & 0x3FFF_FFFF | 0x8000_0000);
    let (b, b_low) = (b >> 16, b & 0xFFFF);
    let (c, c_low) = (c >> 16, c & 0xFFFF);
    format!("{a:08x}-{b:04x}-{b_low:04x}-{c:04x}-{c_low:04x}{d:08x}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_etag_changes_with_each_part_and_with_nothing_else() {
        let of = |uid: &str, generation: u64| etag(&[&uid, &generation]);
        assert_eq!(of("a", 1), of("a", 1));
        let all = BTreeSet::from([of("a", 1), of("a", 2), of("b", 1), of("a", 11), etag(&[&"a"])]);
        assert_eq!(all.len(), 5);
        let is_hex =
            |etag: &String| etag.len() == 16 && etag.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(all.iter().all(is_hex), "{all:?}");
    }

    #[test]
    fn a_stale_etag_is_refused_with_the_current_one() {
        assert_eq!(check_etag("dags/web", None, "new".into()), Ok(()), "it did not read it");
        assert_eq!(check_etag("dags/web", Some("new"), "new".into()), Ok(()));
        let error = check_etag("dags/web", Some("old"), "new".into()).expect_err("it changed");
        assert_eq!(
            error.to_string(),
            "dags/web has changed since it was read: its etag is new; read it again"
        );
        assert!(check_etag("dags/web", Some(""), "new".into()).is_err(), "empty is not absent");
    }

    /// RFC 9562, 5.8: version 8 in the 13th digit, variant 10 in the two high bits of the 17th.
    #[test]
    fn a_uid_is_a_uuid_of_version_8() {
        let mut all = BTreeSet::new();
        for number in 0..200 {
            let uid = uuid(&format!("7/acme/{number}"));
            let parts: Vec<usize> = uid.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{uid}");
            assert_eq!(&uid[14..15], "8", "{uid}");
            assert!(["8", "9", "a", "b"].contains(&&uid[19..20]), "{uid}");
            assert!(uid.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()), "{uid}");
            all.insert(uid);
        }
        assert_eq!(all.len(), 200);
        assert_eq!(uuid("7/acme/0"), uuid("7/acme/0"), "the same after a restart");
    }
}
