//! Prefixes as ranges of etcd's keys.

/// The range of all keys that begin with `prefix`, from `from` on if that is later.
pub(crate) fn range_of(prefix: &str, from: Option<&str>) -> (Vec<u8>, Vec<u8>) {
    let begin = from.map_or(prefix, |from| from.max(prefix));
    // etcd has no empty key, and an end of one zero byte means all keys from the beginning on.
    let begin = if begin.is_empty() { b"\0".to_vec() } else { begin.as_bytes().to_vec() };
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => *last += 1, // never 255 in UTF-8
        None => end.push(0),
    }
    (begin, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_range_to_what_follows_it() {
        assert_eq!(range_of("a/", None), (b"a/".to_vec(), b"a0".to_vec()));
        assert_eq!(range_of("a/", Some("a/b")), (b"a/b".to_vec(), b"a0".to_vec()));
        assert_eq!(range_of("a/", Some("Z")), (b"a/".to_vec(), b"a0".to_vec()));
        assert_eq!(range_of("", None), (b"\0".to_vec(), b"\0".to_vec()));
        assert_eq!(range_of("", Some("b")), (b"b".to_vec(), b"\0".to_vec()));
        let last = '\u{10ffff}'.to_string();
        assert_eq!(range_of(&last, None).1, [0xf4, 0x8f, 0xbf, 0xc0]);
    }
}
