use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use crate::tasks::support::{Bench, End, assert_valid, fragments, tcp, udp_between};
use crate::wire::{self, Flow, Frame};
use crate::{DropReason, Verdict};

const SERVER: End = ("192.0.2.1", 11_211);
const CLIENT: End = ("10.0.0.1", 40_000);

fn cache() -> Bench {
    let mut bench =
        Bench::new("kv-cache", json!({"server": SERVER.0, "items_max": 8, "value_bytes_max": 64}));
    bench.wait_secs(1);
    bench
}

fn datagram(id: u16, text: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0], text].concat()
}

fn ask(id: u16, text: &[u8]) -> Vec<u8> {
    udp_between(CLIENT, SERVER, &datagram(id, text))
}

fn reply(id: u16, text: &[u8]) -> Vec<u8> {
    udp_between(SERVER, CLIENT, &datagram(id, text))
}

/// A read that goes to the server, and its answer.
fn fill(bench: &mut Bench, id: u16, key: &str, value: &str) {
    assert_eq!(bench.run(&ask(id, format!("get {key}\r\n").as_bytes())).verdict, Verdict::Forward);
    let answer = format!("VALUE {key} 5 {}\r\n{value}\r\nEND\r\n", value.len());
    assert_eq!(bench.run(&reply(id, answer.as_bytes())).verdict, Verdict::Forward);
}

/// Answer of the card; nothing where the request goes on.
fn hit(bench: &mut Bench, request: &[u8]) -> Option<Vec<u8>> {
    let out = bench.run(&ask(9, request));
    match out.verdict {
        Verdict::Reply => {
            assert_valid(&out.frame);
            let Ok(Frame::Ip(layout)) = wire::parse(&out.frame) else { panic!() };
            let flow = Flow::of(&out.frame, &layout);
            let to = (flow.destination.to_string(), flow.destination_port);
            assert_eq!((flow.source.to_string(), flow.source_port), (SERVER.0.into(), SERVER.1));
            assert_eq!(to, (CLIENT.0.to_owned(), CLIENT.1));
            assert_eq!(out.frame[42..50], datagram(9, b""));
            Some(out.frame[50..].to_vec())
        }
        Verdict::Forward => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_that_were_read_are_answered_by_the_card() {
    let mut bench = cache();
    fill(&mut bench, 1, "a", "one");
    fill(&mut bench, 2, "bb", "two");
    assert_eq!(hit(&mut bench, b"get a\r\n").unwrap(), b"VALUE a 5 3\r\none\r\nEND\r\n");
    let both = hit(&mut bench, b"get bb a\r\n").unwrap();
    assert_eq!(both, b"VALUE bb 5 3\r\ntwo\r\nVALUE a 5 3\r\none\r\nEND\r\n");
    assert_eq!(hit(&mut bench, b"get a c\r\n"), None, "not all of it");
    assert_eq!(hit(&mut bench, b"gets a\r\n"), None, "needs the server's number");
    bench.wait_secs(10);
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "too old");
}

#[test]
fn a_write_takes_its_key_out() {
    for write in
        ["set a 0 0 1\r\nx\r\n", "delete a\r\n", "incr a 1\r\n", "append a 0 0 1 noreply\r\ny\r\n"]
    {
        let mut bench = cache();
        fill(&mut bench, 1, "a", "one");
        fill(&mut bench, 2, "b", "two");
        assert_eq!(bench.run(&ask(3, write.as_bytes())).verdict, Verdict::Forward);
        assert_eq!(hit(&mut bench, b"get a\r\n"), None, "{write}");
        assert!(hit(&mut bench, b"get b\r\n").is_some(), "{write}");
    }
    for clear in [&b"flush_all\r\n"[..], b"\x80\x01", b"set b 0 0 1\r\nx\r\nset a 0 0 1\r\ny\r\n"] {
        let mut bench = cache();
        fill(&mut bench, 1, "a", "one");
        bench.run(&ask(3, clear));
        assert_eq!(hit(&mut bench, b"get a\r\n"), None);
    }
    let mut bench = cache();
    fill(&mut bench, 1, "a", "one");
    // A server takes it whatever its sequence number is.
    let mut numbered = datagram(3, b"delete a\r\n");
    numbered[3] = 7;
    bench.run(&udp_between(CLIENT, SERVER, &numbered));
    assert_eq!(hit(&mut bench, b"get a\r\n"), None);
    let mut bench = cache();
    fill(&mut bench, 1, "a", "one");
    let large = ask(3, &[&b"set a 0 0 900\r\n"[..], &[b'x'; 902]].concat());
    let [first, later] = fragments(&large, 7, 480);
    bench.run(&first);
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "a write in fragments");
    bench.wait_secs(61);
    fill(&mut bench, 1, "a", "one");
    bench.run(&later);
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "the server has all of it only now");
}

/// Whether a value that the server gives can be served then.
fn is_filled(bench: &mut Bench, id: u16, key: &str) -> bool {
    fill(bench, id, key, "one");
    hit(bench, format!("get {key}\r\n").as_bytes()).is_some()
}

#[test]
fn after_what_is_not_read_nothing_is_filled_for_as_long_as_anything_may_end() {
    for (limit, waited) in [(json!(null), 30 * 86_400), (json!(500), 500), (json!(0), 1)] {
        let mut settings = json!({"server": SERVER.0, "items_max": 8});
        if !limit.is_null() {
            settings["unread_expiry_s"] = limit;
        }
        for unread in [
            tcp(CLIENT, SERVER, "A"),
            ask(3, b"\x80\x01"),
            ask(3, b"set a x 0 9\r\ndelete a\r\n"),
            udp_between(CLIENT, SERVER, &[0, 3, 0, 0, 0, 2, 0, 0, b'x']),
        ] {
            let mut bench = Bench::new("kv-cache", settings.clone());
            bench.wait_secs(1);
            assert!(is_filled(&mut bench, 1, "a"));
            // No data is in these.
            let mut empty = tcp(CLIENT, SERVER, "SA");
            empty.truncate(empty.len() - 4);
            wire::replace_bytes(&mut empty, 24, 16, &[0, 40]);
            bench.run(&empty);
            assert!(hit(&mut bench, b"get a\r\n").is_some());
            bench.run(&unread);
            assert_eq!(hit(&mut bench, b"get a\r\n"), None);
            bench.wait_secs(waited - 1);
            bench.restart();
            assert!(!is_filled(&mut bench, 11, "a"), "{waited}");
            bench.wait_secs(2);
            assert!(is_filled(&mut bench, 12, "a"), "{waited}");
        }
    }
}

/// A write that the server does at once.
fn done(bench: &mut Bench, id: u16, text: &str) {
    bench.run(&ask(id, text.as_bytes()));
    bench.run(&reply(id, b"STORED\r\n"));
}

#[test]
fn a_value_is_served_until_it_may_be_over() {
    let patient = json!({"server": SERVER.0, "items_max": 8, "age_max_ms": 3_600_000});
    for set in ["set a 0 100 3\r\none\r\n", "ms a 3 T100\r\none\r\n", "add a 0 100 3\r\none\r\n"] {
        let mut bench = Bench::new("kv-cache", patient.clone());
        bench.wait_secs(2);
        done(&mut bench, 1, set);
        fill(&mut bench, 2, "a", "one");
        bench.wait_secs(96);
        bench.restart();
        assert!(hit(&mut bench, b"get a\r\n").is_some(), "{set}");
        bench.wait_secs(1);
        assert_eq!(hit(&mut bench, b"get a\r\n"), None, "it may be over in a second");
        bench.wait_secs(1);
        assert!(!is_filled(&mut bench, 3, "a"));
        bench.run(&ask(4, b"touch a 0\r\n"));
        bench.run(&reply(4, b"NOT_FOUND\r\n"));
        assert!(!is_filled(&mut bench, 5, "a"), "that changed nothing");
        bench.run(&ask(6, b"touch a 0\r\n"));
        bench.run(&reply(6, b"TOUCHED\r\n"));
        assert!(is_filled(&mut bench, 7, "a"));
    }
    let mut bench = Bench::new("kv-cache", patient);
    bench.wait_secs(2);
    for (key, end) in [
        ("a", "set a 0 2000000000 1\r\nx\r\n"),
        ("b", "set b 0 -1 1\r\nx\r\n"),
        ("c", "gat 2 c\r\n"),
        ("d", "mg d T2\r\n"),
        ("e", "touch e 2 noreply\r\n"),
        ("f", "set z 0 0 1\r\nx\r\ntouch f 2\r\n"),
    ] {
        assert!(is_filled(&mut bench, 1, key));
        bench.run(&ask(2, end.as_bytes()));
        bench.wait_secs(3);
        assert!(!is_filled(&mut bench, 3, key), "{end}");
    }
    bench.run(&ask(4, b"flush_all 100\r\n"));
    bench.run(&reply(4, b"OK\r\n"));
    bench.wait_secs(2);
    assert!(is_filled(&mut bench, 5, "g"));
    bench.wait_secs(94);
    assert!(hit(&mut bench, b"get g\r\n").is_some());
    bench.wait_secs(1);
    assert_eq!(hit(&mut bench, b"get g\r\n"), None, "all may be over");
    assert!(!is_filled(&mut bench, 6, "g"));
    bench.wait_secs(17);
    assert!(is_filled(&mut bench, 7, "g"));
}

#[test]
fn with_more_keys_that_end_than_fit_only_known_ones_are_filled() {
    let mut bench = cache();
    for key in 0..17_000_u32 {
        let text = format!("set k{key} 0 1000 1\r\nx\r\n");
        done(&mut bench, key as u16, &text);
        bench.wait_nanos(1_000_000);
    }
    assert!(is_filled(&mut bench, 40_000, "k16999"));
    assert!(!is_filled(&mut bench, 40_001, "k0"), "its end is forgotten");
    assert!(!is_filled(&mut bench, 40_002, "other"), "it may be another such");
    done(&mut bench, 40_003, "set other 0 0 1\r\nx\r\n");
    assert!(is_filled(&mut bench, 40_004, "other"));
    bench.restart();
    bench.wait_secs(1);
    bench.run(&ask(40_005, b"get other k0\r\n"));
    assert!(hit(&mut bench, b"get other\r\n").is_some() && !is_filled(&mut bench, 40_006, "k0"));
    bench.wait_secs(1_100);
    assert!(is_filled(&mut bench, 40_007, "k0"));
}

#[test]
fn an_answer_to_an_earlier_request_of_the_same_number_fills_nothing() {
    let old = b"VALUE a 5 3\r\nold\r\nEND\r\n";
    for earlier in [&b"get a\r\n"[..], b"get a b\r\n", b"mg a v\r\n"] {
        for is_repeated in [false, true] {
            let mut bench = cache();
            bench.run(&ask(1, earlier));
            if is_repeated {
                bench.run(&reply(1, old));
            }
            bench.run(&ask(2, b"set a 0 0 3\r\nnew\r\n"));
            bench.run(&reply(2, b"STORED\r\n"));
            bench.run(&ask(1, b"get a\r\n"));
            bench.run(&reply(1, old));
            assert_eq!(hit(&mut bench, b"get a\r\n"), None);
        }
    }
    // The answer is to the read, and the write is still on its way.
    let mut bench = cache();
    bench.run(&ask(1, b"get a\r\n"));
    bench.run(&ask(1, b"set a 0 0 3\r\nnew\r\n"));
    bench.run(&reply(1, old));
    bench.run(&ask(2, b"get a\r\n"));
    bench.run(&reply(2, old));
    assert_eq!(hit(&mut bench, b"get a\r\n"), None);
}

#[test]
fn a_write_is_on_its_way_for_as_long_as_it_is_not_answered() {
    let mut bench = cache();
    bench.run(&ask(1, b"set a 0 0 3\r\nnew\r\n"));
    bench.wait_secs(9);
    assert!(!is_filled(&mut bench, 2, "a"));
    bench.run(&reply(1, b"STORED\r\n"));
    assert!(is_filled(&mut bench, 3, "a"));
    bench.run(&ask(4, b"flush_all\r\n"));
    bench.wait_secs(9);
    assert!(!is_filled(&mut bench, 5, "a"));
    bench.run(&reply(4, b"OK\r\n"));
    assert!(is_filled(&mut bench, 6, "a"));
    bench.run(&ask(7, b"set a 0 0 3\r\nnew\r\n"));
    bench.wait_secs(11);
    assert!(is_filled(&mut bench, 8, "a"), "its answer is lost");
}

#[test]
fn an_answer_that_a_write_overtook_is_not_cached() {
    let old = b"VALUE a 5 3\r\nold\r\nEND\r\n";
    let mut bench = cache();
    bench.run(&ask(1, b"get a\r\n"));
    bench.run(&ask(2, b"set a 0 0 3\r\nnew\r\n"));
    bench.run(&reply(1, old));
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "the write is on its way");
    let mut bench = cache();
    bench.run(&ask(1, b"get a\r\n"));
    bench.run(&ask(2, b"set a 0 0 3\r\nnew\r\n"));
    bench.run(&reply(2, b"STORED\r\n"));
    bench.run(&reply(1, old));
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "the write is done");
    let mut bench = cache();
    bench.run(&ask(2, b"set a 0 0 3\r\nnew\r\n"));
    bench.run(&ask(1, b"get a\r\n"));
    bench.run(&reply(2, b"STORED\r\n"));
    bench.run(&reply(1, old));
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "the read went beside the write");
    bench.run(&ask(3, b"get a\r\n"));
    bench.run(&reply(3, b"VALUE a 5 3\r\nnew\r\nEND\r\n"));
    assert!(hit(&mut bench, b"get a\r\n").is_some(), "read after the write");
}

#[test]
fn answers_that_nobody_asked_for_fill_nothing() {
    let mut bench = cache();
    bench.run(&reply(1, b"VALUE a 5 3\r\nbad\r\nEND\r\n"));
    bench.run(&ask(2, b"get b\r\n"));
    bench.run(&reply(2, b"VALUE a 5 3\r\nbad\r\nEND\r\n"));
    bench.run(&ask(3, b"get a\r\n"));
    let mut wrong = reply(3, b"VALUE a 5 3\r\nbad\r\nEND\r\n");
    *wrong.last_mut().unwrap() ^= 1;
    bench.run(&wrong);
    assert_eq!(hit(&mut bench, b"get a\r\n"), None);
    let mut damaged = ask(4, b"get a\r\n");
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(bench.run(&damaged).verdict, Verdict::Drop(DropReason::BadChecksum));
}

#[test]
fn the_cache_survives_save_and_restore() {
    let mut bench = cache();
    fill(&mut bench, 1, "a", "one");
    bench.wait_secs(4);
    bench.restart();
    assert!(hit(&mut bench, b"get a\r\n").is_some());
    bench.wait_secs(6);
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "its age was saved too");
    let huge = json!({"server": SERVER.0, "items_max": 32_768});
    assert!(
        bench.rejected(&huge).starts_with("items_max: 32768 is not allowed; allowed: items_max")
    );
}

/// One of the writes of the protocol.
#[derive(Debug, Clone, Copy)]
enum Write {
    Set,
    MetaSet,
    QuietSet,
    Append,
    Delete,
    MetaDelete,
    Flush,
    Pair,
}

impl Write {
    const ALL: [Self; 8] = [
        Self::Set,
        Self::MetaSet,
        Self::QuietSet,
        Self::Append,
        Self::Delete,
        Self::MetaDelete,
        Self::Flush,
        Self::Pair,
    ];

    fn text(self, key: u8, value: &str) -> String {
        let length = value.len();
        match self {
            Self::Set => format!("set {key} 0 0 {length}\r\n{value}\r\n"),
            Self::MetaSet => format!("ms {key} {length}\r\n{value}\r\n"),
            Self::QuietSet => format!("set {key} 0 0 {length} noreply\r\n{value}\r\n"),
            Self::Append => format!("append {key} 0 0 {length}\r\n{value}\r\n"),
            Self::Delete => format!("delete {key}\r\n"),
            Self::MetaDelete => format!("md {key}\r\n"),
            Self::Flush => "flush_all\r\n".to_owned(),
            Self::Pair => format!("get 0\r\nset {key} 0 0 {length}\r\n{value}\r\n"),
        }
    }

    /// The server's action, and its answer.
    fn serve(
        self,
        server: &mut BTreeMap<u8, String>,
        key: u8,
        value: &str,
    ) -> Option<&'static str> {
        match self {
            Self::Set | Self::MetaSet | Self::QuietSet | Self::Pair => {
                server.insert(key, value.to_owned());
            }
            Self::Append => {
                server.entry(key).and_modify(|old| old.push_str(value));
            }
            Self::Delete | Self::MetaDelete => drop(server.remove(&key)),
            Self::Flush => server.clear(),
        }
        match self {
            Self::Set | Self::Append => Some("STORED\r\n"),
            Self::MetaSet | Self::MetaDelete => Some("HD\r\n"),
            Self::Delete => Some("DELETED\r\n"),
            Self::Flush => Some("OK\r\n"),
            Self::Pair => Some("END\r\nSTORED\r\n"),
            Self::QuietSet => None,
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Get(u8),
    Write(Write, u8),
    /// One of the requests on their way reaches the server; it may come twice.
    Serve(prop::sample::Index, bool),
    /// One of the answers on their way passes the card; it may come twice.
    Answer(prop::sample::Index, bool),
    Wait(u64),
}

/// A request on its way to the server: its number, its key, what it writes, and when it passed the card.
type PendingRequest = (u16, u8, Option<(Write, String)>, u64);

proptest! {
    /// Whatever order packets take behind the card, whatever numbers clients give their requests, and however
    /// long answered requests take: the card answers no read of a key that is being written, and what it answers
    /// is what the server holds. So reads are linearizable.
    #[test]
    fn no_read_is_older_than_a_complete_write(
        numbers in prop::sample::select(vec![1_u16, 3, 20_000]),
        steps in prop::collection::vec(prop_oneof![
            6 => (0..3_u8).prop_map(Step::Get),
            2 => (prop::sample::select(&Write::ALL[..]), 0..3_u8).prop_map(|(write, key)| Step::Write(write, key)),
            8 => (any::<prop::sample::Index>(), prop::bool::weighted(0.1)).prop_map(|(at, twice)| Step::Serve(at, twice)),
            8 => (any::<prop::sample::Index>(), prop::bool::weighted(0.1)).prop_map(|(at, twice)| Step::Answer(at, twice)),
            1 => (0..400_u64).prop_map(Step::Wait),
        ], 1..200),
    ) {
        let mut bench = cache();
        let mut server: BTreeMap<u8, String> = BTreeMap::new();
        let mut requests: Vec<PendingRequest> = Vec::new();
        let mut answers: Vec<(u16, u8, bool, String, u64)> = Vec::new();
        let (mut count, mut version, mut now) = (0_u16, 0, 0_u64);
        for step in steps {
            count += 1;
            let id = count % numbers;
            // Nothing takes longer than the settling time, but what is answered alone and has its own number.
            let is_late = |since: &u64| now - since >= 1_000;
            requests.retain(|(.., since)| !is_late(since));
            answers.retain(|(.., since)| !is_late(since));
            match step {
                Step::Get(key) => {
                    let out = bench.run(&ask(id, format!("get {key}\r\n").as_bytes()));
                    if out.verdict == Verdict::Reply {
                        let text = String::from_utf8(out.frame[50..].to_vec()).unwrap();
                        let read = text.lines().nth(1).unwrap().to_owned();
                        prop_assert_eq!(Some(&read), server.get(&key));
                    } else {
                        requests.push((id, key, None, now));
                    }
                }
                Step::Write(write, key) => {
                    version += 1;
                    let value = format!("v{version}");
                    bench.run(&ask(id, write.text(key, &value).as_bytes()));
                    requests.push((id, key, Some((write, value)), now));
                }
                Step::Serve(which, is_twice) if !requests.is_empty() => {
                    let at = which.index(requests.len());
                    let (id, key, write, since) = requests[at].clone();
                    // A repeated read is one more read; a repeated write would be a write that did not pass.
                    if !is_twice || write.is_some() {
                        requests.remove(at);
                    }
                    let text = match &write {
                        // The server orders writes of a key as they reach it.
                        Some((write, value)) => write.serve(&mut server, key, value).map(str::to_owned),
                        None => Some(match server.get(&key) {
                            Some(value) => {
                                format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
                            }
                            None => "END\r\n".to_owned(),
                        }),
                    };
                    answers.extend(text.map(|text| (id, key, write.is_some(), text, since)));
                }
                Step::Answer(which, is_twice) if !answers.is_empty() => {
                    let at = which.index(answers.len());
                    let (id, _, _, text, _) = answers[at].clone();
                    if !is_twice {
                        answers.remove(at);
                    }
                    bench.run(&reply(id, text.as_bytes()));
                }
                Step::Wait(millis) => {
                    now += millis;
                    bench.wait_nanos(millis * 1_000_000);
                }
                _ => {}
            }
        }
    }
}
