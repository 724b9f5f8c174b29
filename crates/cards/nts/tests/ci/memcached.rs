//! The key-value cache before a real memcached: what the card answers is what memcached answers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use snic_nts::wire::{self, Frame};

use super::card::{Card, Ending, nt};
use super::{left_out, starts};

pub const CLIENT: [u8; 4] = [10, 0, 0, 1];
pub const SERVER: [u8; 4] = [192, 0, 2, 1];
pub const PORT: u16 = 11_211;
/// The number of a request that no test uses for another one.
const FENCE: u16 = u16::MAX;

/// The frame of a segment to the server, which holds this text.
pub fn segment(text: &str) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let tcp = link.ipv4(CLIENT, SERVER, 64).tcp(40_009, PORT, 1, 1_000).ack(1).psh();
    let mut frame = Vec::new();
    tcp.write(&mut frame, text.as_bytes()).unwrap();
    frame
}

pub fn frame(from: ([u8; 4], u16), to: ([u8; 4], u16), datagram: &[u8]) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut frame = Vec::new();
    link.ipv4(from.0, to.0, 64).udp(from.1, to.1).write(&mut frame, datagram).unwrap();
    frame
}

pub fn datagram(id: u16, text: &str) -> Vec<u8> {
    [&id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0], text.as_bytes()].concat()
}

/// Payload of a UDP frame, whose checksum is right.
pub fn payload(frame: &[u8]) -> Vec<u8> {
    let Ok(Frame::Ip(layout)) = wire::parse(frame) else { panic!("not IP") };
    assert_eq!(wire::verify(frame, &layout), wire::Verified::Right);
    frame[layout.transport + 8..layout.end].to_vec()
}

pub struct Server {
    _process: Ending,
    socket: UdpSocket,
    tcp_port: u16,
}

impl Server {
    pub fn start() -> Self {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let tcp_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new("memcached")
            .args([
                "-u",
                "nobody",
                "-l",
                "127.0.0.1",
                "-p",
                &tcp_port.to_string(),
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
        let server = Self { _process: Ending(process), socket, tcp_port };
        for _ in 0..100 {
            if server.try_ask(&datagram(0, "version\r\n")).is_some() {
                server.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                return server;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("memcached does not answer");
    }

    /// Sends a text over a TCP connection of its own; what the server answers until it has read all, or closes.
    pub fn tell(&self, text: &str) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", self.tcp_port)).unwrap();
        // The connection of a watcher answers nothing more.
        connection.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        connection.write_all(text.as_bytes()).unwrap();
        let mut said = Vec::new();
        let mut bytes = [0; 4_096];
        // A connection that was closed takes no more; what it answered is there.
        let _sent = connection.write_all(b"mn\r\n");
        while !said.ends_with(b"MN\r\n") {
            match connection.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => said.extend_from_slice(&bytes[..count]),
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&said).into_owned()
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

    /// All that the server answers to a request: it has one thread, so an answer to what is asked after it is behind
    /// them.
    pub fn answers(&self, request: &[u8]) -> Vec<Vec<u8>> {
        self.socket.send(request).unwrap();
        self.socket.send(&datagram(FENCE, "mn\r\n")).unwrap();
        let mut answers = Vec::new();
        loop {
            let mut answer = vec![0; 65_536];
            let length = self.socket.recv(&mut answer).expect("memcached answers");
            answer.truncate(length);
            match answer[..2] == FENCE.to_be_bytes() {
                true => return answers,
                false => answers.push(answer),
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

/// A request of the text protocol.
fn command(random: &mut ChaCha8Rng, count: u32) -> String {
    let key = |random: &mut ChaCha8Rng| format!("key{}", random.random_range(0..5));
    let (first, second) = (key(random), key(random));
    // A number, so that it can be counted up.
    let value = count.to_string();
    let length = value.len();
    // Mostly none, for one that ends is cached for less long.
    let expiry = [0, 0, 0, 0, 0, 5, 7, -1][random.random_range(0..8)];
    let quiet = ["", "", " noreply"][random.random_range(0..3)];
    let meta = ["", " T4", " q", " k O7", " c t"][random.random_range(0..5)];
    let data = format!("{length}{quiet}\r\n{value}\r\n");
    // Most requests read, or no key would ever be without a write on its way.
    let kind = if random.random_bool(0.015) { 0..30 } else { 30..100 };
    match random.random_range(kind) {
        0..6 => format!("set {first} 5 {expiry} {data}"),
        6 => format!("add {first} 5 {expiry} {data}"),
        7 => format!("replace {first} 5 {expiry} {data}"),
        8 => format!("append {first} 5 {expiry} {data}"),
        9 => format!("prepend {first} 5 {expiry} {data}"),
        10 => format!("cas {first} 5 {expiry} {length} 7{quiet}\r\n{value}\r\n"),
        11 => format!("delete {first}{quiet}\r\n"),
        12 => format!("incr {first} 3{quiet}\r\n"),
        13 => format!("decr {first} 3{quiet}\r\n"),
        14 => format!("touch {first} {expiry}{quiet}\r\n"),
        15 => format!("gat {expiry} {first}\r\n"),
        16 => format!("gats {expiry} {first} {second}\r\n"),
        17 => format!("ms {first} {length}{meta}\r\n{value}\r\n"),
        18 => format!("ms {first} {length} MP{meta}\r\n{value}\r\n"),
        19 => format!("md {first}\r\n"),
        20 => format!("md {first} I T4\r\n"),
        21 => format!("ma {first} N4 J100 v\r\n"),
        22 => format!("ma {first} D5 MD{meta}\r\n"),
        23 => format!("mg {first} v N4\r\n"),
        24 => format!("mg {first} v T4\r\n"),
        25 => format!("mg {first} v f t\r\n"),
        26 => format!("me {first}\r\n"),
        27 => format!("set {first} 0 0 {data}get {second}\r\ntouch {second} 4\r\nmd {first} q\r\n"),
        28 => format!("set {first} x 0 99\r\ndelete {second}\r\n"),
        29 if count.is_multiple_of(4) => format!("flush_all{quiet}\r\n"),
        30..36 => format!("get {first} {second}\r\n"),
        36..38 => format!("gets {first}\r\n"),
        38 => "version\r\n".to_owned(),
        _ => format!("get {first}\r\n"),
    }
}

/// A request on its way to the server.
enum OnItsWay {
    Datagram(u16, Vec<u8>),
    /// A command that a client of the server writes over TCP.
    Segment(String),
}

/// Requests and answers that overtake each other, requests over TCP between those over UDP, expiry times and delays, and numbers of requests that come again:
/// at each hit memcached itself would have given the same answer, and had no write of the key still to come.
#[test]
fn no_answer_of_the_card_is_older_than_memcached_s() {
    if !starts("memcached", &["-V"]) {
        return left_out("memcached is missing");
    }
    let server = Server::start();
    let settings = json!({"server": "192.0.2.1", "items_max": 4, "settling_ms": 200,
        "age_max_ms": 3_600_000, "unread_expiry_s": 0});
    let mut card = Card::new(vec![nt("kv-cache", &settings)]);
    let seed = 12;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let start = Instant::now();
    let mut requests: Vec<(Instant, OnItsWay)> = Vec::new();
    let mut answers: Vec<(Instant, u16, Vec<u8>)> = Vec::new();
    let (mut hits, mut count) = (0, 0_u32);
    while start.elapsed() < Duration::from_secs(16) {
        std::thread::sleep(Duration::from_millis(1));
        count += 1;
        // Nothing takes longer than half of the settling time in either direction.
        let is_old = |since: Instant| since.elapsed().as_millis() > 80;
        let client = 40_000 + random.random_range(0..2);
        // The first client counts its requests, the second one gives them few numbers.
        let id = if client == 40_000 { (count % 60_000) as u16 } else { random.random_range(0..3) };
        // Once, since nothing is filled around its end.
        let is_flush = count == 300;
        let text = if is_flush { "flush_all 6\r\n".into() } else { command(&mut random, count) };
        let request = datagram(id, &text);
        let sent = card.through(0, &frame((CLIENT, client), (SERVER, PORT), &request));
        let [(side, out)] = &sent[..] else { panic!("{text}") };
        if *side == 0 {
            hits += 1;
            let said = server.answers(&request);
            let first = said[0].clone();
            let rest = said[1..].iter().flat_map(|more| &more[8..]);
            let said: Vec<u8> = first.iter().chain(rest).copied().collect();
            let out = payload(out);
            let [said, of_card] = [&said[8..], &out[8..]].map(String::from_utf8_lossy);
            assert_eq!(of_card, said, "{text}, request {count}, seed {seed}");
        } else {
            requests.push((Instant::now(), OnItsWay::Datagram(client, request)));
        }
        // Few, for nothing is filled until they have surely arrived. Their values do not end: `unread_expiry_s` is 0.
        if count.is_multiple_of(2_500) {
            let key = random.random_range(0..5);
            let text = [format!("set key{key} 5 0 3\r\ntcp\r\n"), format!("delete key{key}\r\n")];
            let text = text[random.random_range(0..2)].clone();
            assert_eq!(card.through(0, &segment(&text)).len(), 1, "it goes on");
            requests.push((Instant::now(), OnItsWay::Segment(text)));
        }
        let is_old_request = |(since, _): &(Instant, OnItsWay)| is_old(*since);
        let is_old_answer = |(since, ..): &(Instant, u16, Vec<u8>)| is_old(*since);
        while !requests.is_empty()
            && (random.random_bool(0.6) || requests.iter().any(is_old_request))
        {
            let old = requests.iter().position(is_old_request);
            let at = old.unwrap_or_else(|| random.random_range(0..requests.len()));
            match requests.remove(at).1 {
                OnItsWay::Datagram(client, request) => {
                    let said = server.answers(&request);
                    answers.extend(said.into_iter().map(|answer| (Instant::now(), client, answer)));
                }
                OnItsWay::Segment(text) => drop(server.tell(&text)),
            }
        }
        while !answers.is_empty() && (random.random_bool(0.6) || answers.iter().any(is_old_answer))
        {
            let old = answers.iter().position(is_old_answer);
            let at = old.unwrap_or_else(|| random.random_range(0..answers.len()));
            let (_, client, answer) = answers.remove(at);
            card.through(1, &frame((SERVER, PORT), (CLIENT, client), &answer));
        }
    }
    assert!(hits > 50, "{hits} of {count} answered by the card");
    println!("{hits} of {count} requests answered by the card");
}
