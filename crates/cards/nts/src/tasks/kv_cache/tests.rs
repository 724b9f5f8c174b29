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

fn tell(id: u16, text: &[u8]) -> Vec<u8> {
    udp_between(SERVER, CLIENT, &datagram(id, text))
}

/// A read that goes to the server, and its answer.
fn fill(bench: &mut Bench, id: u16, key: &str, value: &str) {
    assert_eq!(bench.run(&ask(id, format!("get {key}\r\n").as_bytes())).verdict, Verdict::Forward);
    let answer = format!("VALUE {key} 5 {}\r\n{value}\r\nEND\r\n", value.len());
    assert_eq!(bench.run(&tell(id, answer.as_bytes())).verdict, Verdict::Forward);
}

/// What the card answers; nothing where the request goes on.
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
    for clear in [&b"flush_all\r\n"[..], b"\x80\x01", b"set a 0 0 1\r\nx\r\nset b 0 0 1\r\ny\r\n"] {
        let mut bench = cache();
        fill(&mut bench, 1, "a", "one");
        bench.run(&ask(3, clear));
        assert_eq!(hit(&mut bench, b"get a\r\n"), None);
    }
    let mut bench = cache();
    fill(&mut bench, 1, "a", "one");
    bench.run(&tcp(CLIENT, SERVER, "A"));
    assert_eq!(hit(&mut bench, b"get a\r\n"), None);
    bench.wait_secs(2);
    fill(&mut bench, 1, "a", "one");
    let large = ask(3, &[&b"set a 0 0 900\r\n"[..], &[b'x'; 902]].concat());
    let [first, _] = fragments(&large, 7, 480);
    bench.run(&first);
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "a write in fragments");
}

#[test]
fn an_answer_that_a_write_overtook_is_not_cached() {
    let old = b"VALUE a 5 3\r\nold\r\nEND\r\n";
    let mut bench = cache();
    bench.run(&ask(1, b"get a\r\n"));
    bench.run(&ask(2, b"set a 0 0 3\r\nnew\r\n"));
    bench.run(&tell(1, old));
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "the write is on its way");
    let mut bench = cache();
    bench.run(&ask(1, b"get a\r\n"));
    bench.run(&ask(2, b"set a 0 0 3\r\nnew\r\n"));
    bench.run(&tell(2, b"STORED\r\n"));
    bench.run(&tell(1, old));
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "the write is done");
    let mut bench = cache();
    bench.run(&ask(2, b"set a 0 0 3\r\nnew\r\n"));
    bench.run(&ask(1, b"get a\r\n"));
    bench.run(&tell(2, b"STORED\r\n"));
    bench.run(&tell(1, old));
    assert_eq!(hit(&mut bench, b"get a\r\n"), None, "the read went beside the write");
    bench.run(&ask(3, b"get a\r\n"));
    bench.run(&tell(3, b"VALUE a 5 3\r\nnew\r\nEND\r\n"));
    assert!(hit(&mut bench, b"get a\r\n").is_some(), "read after the write");
}

#[test]
fn answers_that_nobody_asked_for_fill_nothing() {
    let mut bench = cache();
    bench.run(&tell(1, b"VALUE a 5 3\r\nbad\r\nEND\r\n"));
    bench.run(&ask(2, b"get b\r\n"));
    bench.run(&tell(2, b"VALUE a 5 3\r\nbad\r\nEND\r\n"));
    bench.run(&ask(3, b"get a\r\n"));
    let mut wrong = tell(3, b"VALUE a 5 3\r\nbad\r\nEND\r\n");
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

#[derive(Debug, Clone)]
enum Step {
    Get(u8),
    Set(u8),
    /// One of the requests on their way reaches the server.
    Serve(prop::sample::Index),
    /// One of the answers on their way passes the card.
    Answer(prop::sample::Index),
}

proptest! {
    /// Whatever order packets take behind the card: it answers no read of a key that is being written,
    /// and what it answers is what the server holds. So reads are linearizable.
    #[test]
    fn no_read_is_older_than_a_complete_write(steps in prop::collection::vec(prop_oneof![
        3 => (0..3_u8).prop_map(Step::Get),
        1 => (0..3_u8).prop_map(Step::Set),
        4 => any::<prop::sample::Index>().prop_map(Step::Serve),
        4 => any::<prop::sample::Index>().prop_map(Step::Answer),
    ], 1..200)) {
        let mut bench = cache();
        let mut server: BTreeMap<u8, u32> = BTreeMap::new();
        let mut requests: Vec<(u16, u8, Option<u32>)> = Vec::new();
        let mut answers: Vec<(u16, u8, Option<u32>, String)> = Vec::new();
        let (mut id, mut version) = (0, 0);
        for step in steps {
            id += 1;
            match step {
                Step::Get(key) => {
                    let out = bench.run(&ask(id, format!("get {key}\r\n").as_bytes()));
                    if out.verdict == Verdict::Reply {
                        let text = String::from_utf8(out.frame[50..].to_vec()).unwrap();
                        let read: u32 = text.lines().nth(1).unwrap().parse().unwrap();
                        prop_assert_eq!(Some(&read), server.get(&key));
                        let is_written = requests.iter().any(|r| r.1 == key && r.2.is_some())
                            || answers.iter().any(|a| a.1 == key && a.2.is_some());
                        prop_assert!(!is_written);
                    } else {
                        requests.push((id, key, None));
                    }
                }
                Step::Set(key) => {
                    version += 1;
                    let text = format!("set {key} 0 0 {}\r\n{version}\r\n", version.to_string().len());
                    bench.run(&ask(id, text.as_bytes()));
                    requests.push((id, key, Some(version)));
                }
                Step::Serve(which) if !requests.is_empty() => {
                    let (id, key, write) = requests.remove(which.index(requests.len()));
                    let text = match write {
                        Some(version) => {
                            // The server orders writes of a key as they reach it.
                            server.insert(key, version);
                            "STORED\r\n".to_owned()
                        }
                        None => match server.get(&key) {
                            Some(value) => {
                                let value = value.to_string();
                                format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
                            }
                            None => "END\r\n".to_owned(),
                        },
                    };
                    answers.push((id, key, write, text));
                }
                Step::Answer(which) if !answers.is_empty() => {
                    let (id, _, _, text) = answers.remove(which.index(answers.len()));
                    bench.run(&tell(id, text.as_bytes()));
                }
                _ => {}
            }
        }
    }
}
