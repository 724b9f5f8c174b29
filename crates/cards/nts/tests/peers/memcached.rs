//! The key-value cache before a real memcached: what the card answers is what memcached answers.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use etherparse::PacketBuilder;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use snic_nts::wire::{self, Frame};

use super::card::{Card, Ending, nt};
use super::{left_out, starts};

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 1];
const PORT: u16 = 11_211;

fn frame(from: ([u8; 4], u16), to: ([u8; 4], u16), datagram: &[u8]) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut frame = Vec::new();
    link.ipv4(from.0, to.0, 64).udp(from.1, to.1).write(&mut frame, datagram).unwrap();
    frame
}

fn datagram(id: u16, text: &str) -> Vec<u8> {
    [&id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0], text.as_bytes()].concat()
}

/// What is in a UDP frame, whose checksum is right.
fn payload(frame: &[u8]) -> Vec<u8> {
    let Ok(Frame::Ip(layout)) = wire::parse(frame) else { panic!("not IP") };
    assert_eq!(wire::verify(frame, &layout), wire::Verified::Right);
    frame[layout.transport + 8..layout.end].to_vec()
}

struct Server {
    _process: Ending,
    socket: UdpSocket,
}

impl Server {
    fn start() -> Self {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new("memcached")
            .args([
                "-u",
                "nobody",
                "-l",
                "127.0.0.1",
                "-p",
                "0",
                "-U",
                &free.to_string(),
                "-t",
                "1",
            ])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", free)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let server = Self { _process: Ending(process), socket };
        for _ in 0..100 {
            if server.try_ask(&datagram(0, "version\r\n")).is_some() {
                server.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                return server;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("memcached does not answer");
    }

    fn try_ask(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        self.socket.send(datagram).ok()?;
        self.next_answer(datagram)
    }

    /// The next datagram for a request. Late answers to what was asked before are passed over.
    fn next_answer(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut answer = vec![0; 65_536];
        loop {
            let length = self.socket.recv(&mut answer).ok()?;
            if answer[..2] == request[..2] {
                answer.truncate(length);
                return Some(answer);
            }
        }
    }

    /// An answer to a read as one datagram: this memcached sends one for each value.
    fn join(&self, request: &[u8], mut answer: Vec<u8>) -> Vec<u8> {
        while !answer.ends_with(b"END\r\n") {
            let more = self.next_answer(request).unwrap();
            answer.extend_from_slice(&more[8..]);
        }
        answer
    }
}

#[test]
fn the_card_answers_as_memcached_does() {
    if !starts("memcached", &["-V"]) {
        return left_out("memcached is missing");
    }
    let server = Server::start();
    let settings = json!({"server": "192.0.2.1", "items_max": 6, "settling_ms": 1,
        "age_max_ms": 3_600_000});
    let mut card = Card::new(vec![nt("kv-cache", &settings)]);
    std::thread::sleep(Duration::from_millis(5));
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut hits = 0;
    for id in 1..3_000_u16 {
        let key = |random: &mut ChaCha8Rng| format!("key{}", random.random_range(0..8));
        let (first, second) = (key(&mut random), key(&mut random));
        let value = "v".repeat(random.random_range(0..40)) + &id.to_string();
        let text = match random.random_range(0..20) {
            0 => format!("set {first} {} 0 {}\r\n{value}\r\n", id, value.len()),
            1 => format!("delete {first}\r\n"),
            2 => format!("append {first} 0 0 1\r\nz\r\n"),
            3 => format!("gets {first}\r\n"),
            4 if id % 16 == 0 => "flush_all\r\n".to_owned(),
            5 => format!("get {first} {second}\r\n"),
            _ => format!("get {first}\r\n"),
        };
        let request = datagram(id, &text);
        let sent = card.through(0, &frame((CLIENT, 40_000), (SERVER, PORT), &request));
        let [(side, out)] = &sent[..] else { panic!("{text}") };
        assert!(*side == 0 || payload(out) == request, "requests are not changed");
        // Asked in any case: a read changes nothing, and the card's answers need no write.
        let answer = server.try_ask(&request).expect("memcached answers");
        if *side == 0 {
            hits += 1;
            let answer = server.join(&request, answer);
            let shown = String::from_utf8_lossy(&answer).into_owned();
            assert_eq!(String::from_utf8_lossy(&payload(out)), shown, "{text}");
        } else {
            let back = frame((SERVER, PORT), (CLIENT, 40_000), &answer);
            let [(0, out)] = &card.through(1, &back)[..] else { panic!("{text}") };
            assert_eq!(payload(out), answer);
        }
    }
    assert!(hits > 500, "{hits} of 3000 answered by the card");
    println!("{hits} of 3000 requests answered by the card");
}
