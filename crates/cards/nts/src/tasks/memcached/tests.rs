use super::*;

const DAY: u64 = 86_400;

fn write(
    key: &[u8],
    expiry: Expiry,
    is_confirmed: bool,
    is_answered: bool,
) -> MemcachedRequest<'_> {
    MemcachedRequest::Write(KeyWrite { keys: Keys(key), expiry, is_confirmed, is_answered })
}

/// With the spaces between keys left out.
fn read(text: &[u8]) -> Vec<String> {
    let shown = |request| match request {
        MemcachedRequest::Get(keys) => format!("get {}", joined(&keys)),
        MemcachedRequest::Write(KeyWrite { keys, expiry, is_confirmed, is_answered }) => {
            format!("{} {expiry:?} {is_confirmed} {is_answered}", joined(&keys))
        }
        other => format!("{other:?}"),
    };
    requests(text, 0).map(shown).collect()
}

fn joined(keys: &Keys<'_>) -> String {
    let keys: Vec<_> = keys.iter().map(String::from_utf8_lossy).collect();
    keys.join(",")
}

#[test]
fn storage_commands_are_read_with_their_expiry() {
    let (key, secs) = (&b"k"[..], |seconds| Expiry::After(Duration::from_secs(seconds)));
    for (text, expected) in [
        (&b"set k 0 0 5\r\nhello\r\n"[..], write(key, Expiry::Never, true, true)),
        (b"set k 0 0 5 noreply\r\nhello\r\n", write(key, Expiry::Never, true, false)),
        (b"add k 4294967295 7 5 x\r\nhello\r\n", write(key, secs(7), true, true)),
        (b"replace k 0 2592000 0\r\n\r\n", write(key, secs(30 * DAY), true, true)),
        (b"set k 0 2592001 0\r\n\r\n", write(key, Expiry::Unknown, true, true)),
        (b"set k 0 -1 0\n\r\n", write(key, secs(0), true, true)),
        (b"append k 0 9 1\r\n\n\r\n", write(key, Expiry::Kept, false, true)),
        (b"cas k 1 2 3 4 noreply\r\nabc\r\n", write(key, secs(2), true, false)),
        (b"ms k 2\r\nhi\r\n", write(key, Expiry::Never, true, true)),
        (b"ms k 2 T30 q Oopaque c F7\r\nhi\r\n", write(key, secs(30), true, false)),
        (b"ms k 2 T30 MA\r\nhi\r\n", write(key, secs(30), false, true)),
        (b"ms k 2 C9 I\r\nhi\r\n", write(key, Expiry::Kept, false, true)),
    ] {
        assert_eq!(request(text), expected, "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn other_commands_are_told_apart() {
    for (text, expected) in [
        (&b"get  a bb \r\n"[..], "get a,bb"),
        (b"get\r\n", "Harmless"),
        (b"gets k\r\n", "Harmless"),
        (b"version\r\n", "Harmless"),
        (b"delete k\r\n", "k Kept false true"),
        (b"delete k noreply\n", "k Kept false false"),
        (b"delete  k  noreply\n", "k Kept false false"),
        (b"delete\r\n", "Harmless"),
        (b"incr k 5\r\n", "k Kept false true"),
        (b"touch k 9\r\n", "k After(9s) true true"),
        (b"touch k 0 noreply\r\n", "k Never true false"),
        (b"gat 9 a b\r\n", "a,b After(9s) false true"),
        (b"gats 0 a\r\n", "a Never false true"),
        (b"flush_all\r\n", "Flush { delay: 0ns, is_answered: true }"),
        (b"flush_all noreply\r\n", "Flush { delay: 0ns, is_answered: false }"),
        (b"flush_all 5 noreply\r\n", "Flush { delay: 5s, is_answered: false }"),
        (b"flush_all -5\r\n", "Flush { delay: 0ns, is_answered: true }"),
        (b"mg k v t\r\n", "Harmless"),
        (b"mg Zm9v b v\r\n", "Harmless"),
        (b"mg k v R30\r\n", "Harmless"),
        (b"mg k N30 v\r\n", "k After(30s) false true"),
        (b"mg k T30 q\r\n", "k After(30s) false false"),
        (b"md k\r\n", "k Kept false true"),
        (b"md k I T30\r\n", "k After(30s) false true"),
        (b"ma k N0 J5 D2\r\n", "k Never false true"),
        (b"ma k N9 T5\r\n", "k Unknown false true"),
        (b"me k\r\n", "Harmless"),
        (b"mn\r\n", "Harmless"),
    ] {
        assert_eq!(read(text), [expected], "{}", String::from_utf8_lossy(text));
    }
    let long = [&b"get "[..], &[b'k'; 251], b"\r\n"].concat();
    assert_eq!(request(&long), MemcachedRequest::Harmless);
}

/// A server rejects such lines, and takes what follows for commands, or it knows commands that are not read here.
#[test]
fn what_a_server_may_read_otherwise_is_unknown() {
    for text in [
        &b"set k x 0 10\r\ndelete a\r\n\r\n"[..],
        b"set k 0 0 10 a b\r\ndelete a\r\n\r\n",
        b"set k 4294967296 0 10\r\ndelete a\r\n\r\n",
        b"set k 0 0 -1\r\n",
        b"set k 0 0 5\r\nhell\r\n",
        b"set k 0 0 5\r\nhelloo\r\n",
        b"set k 0 0 4294967295\r\n",
        b"cas k 0 0 1\r\n1\r\n",
        b"cas k 0 0 1 x\r\n1\r\n",
        b"ms k S5\r\nhello\r\n",
        b"ms Zm9v 2 b\r\nhi\r\n",
        b"ms k 2 T30 T40\r\nhi\r\n",
        b"ms k 2 Tx\r\nhi\r\n",
        b"md Zm9v b\r\n",
        b"mg k X1\r\n",
        b"delete k\0 b\r\n",
        b"flush_all 2592001\r\n",
        b" get a\r\n",
        b"GET a\r\n",
        b"lru_crawler crawl all\r\n",
        b"\x80\x01\x00\x00",
        b"get k",
        b"",
    ] {
        let last = read(text).pop();
        assert_eq!(last.as_deref(), Some("Unknown"), "{}", String::from_utf8_lossy(text));
    }
    let long = [&b"delete "[..], &[b'k'; 251], b"\r\n"].concat();
    assert_eq!(request(&long), MemcachedRequest::Harmless, "no server knows the key");
    let long = [&b"set "[..], &[b'k'; 251], b" 0 0 10\r\ndelete a\r\n\r\n"].concat();
    assert_eq!(request(&long), MemcachedRequest::Unknown);
}

#[test]
fn commands_follow_each_other() {
    let text = b"set a 0 0 5\r\nget b\r\nmd c q\r\nget d\r\nmn\r\n";
    let expected = ["a Never true true", "c Kept false false", "get d", "Harmless"];
    assert_eq!(read(text), expected);
    assert_eq!(request(text), MemcachedRequest::Unknown);
    assert_eq!(read(b"get a\r\nset b 0 0 9\r\nx\r\n"), ["get a", "Unknown"]);
}

#[test]
fn of_a_fragment_only_data_may_be_missing() {
    let read = |text, missing| requests(text, missing).collect::<Vec<_>>();
    let (text, expected) = (b"set k 0 0 5\r\nhel", write(b"k", Expiry::Never, true, true));
    assert_eq!(read(text, 4), [expected]);
    for missing in [3, 5, 20] {
        assert_eq!(read(text, missing), [MemcachedRequest::Unknown], "commands may follow");
    }
    assert_eq!(read(b"get k\r\n", 9), [MemcachedRequest::Unknown]);
    assert_eq!(read(b"set k 0 0 5\r\nhello\r\n", 9), [MemcachedRequest::Unknown]);
}

#[test]
fn answers_are_read_whole_or_not_at_all() {
    let whole = b"VALUE k 7 5\r\na\r\nb!\r\nEND\r\n";
    assert_eq!(answer(whole), Some(MemcachedAnswer { key: b"k", flags: 7, data: b"a\r\nb!" }));
    for cut in 0..whole.len() {
        assert_eq!(answer(&whole[..cut]), None);
    }
    assert_eq!(answer(b"END\r\n"), None);
    assert_eq!(answer(b"VALUE k 7 1 99\r\na\r\nEND\r\n"), None, "with a unique number");
    for success in [&b"STORED\r\n"[..], b"12\r\n", b"HD O1\r\n", b"TOUCHED\r\n"] {
        assert!(is_success(success));
    }
    assert!(!is_success(b"NOT_FOUND\r\n") && !is_success(b"NS\r\n"));
}

#[test]
fn a_value_that_does_not_fit_is_not_written_in_part() {
    let mut room = [0; 10];
    let mut writer = Writer::new(&mut room);
    writer.put(b"n=");
    writer.put_number(u64::from(u32::MAX / 1_000));
    assert_eq!(writer.finish(), Some(9));
    assert_eq!(&room[..9], b"n=4294967");
    let mut writer = Writer::new(&mut room);
    writer.put_number(u64::MAX);
    writer.put(b"");
    assert_eq!(writer.finish(), None);
}
