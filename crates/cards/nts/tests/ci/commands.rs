//! Every command of memcached's protocol before a real memcached: after each, over UDP and over TCP, the card says what the
//! server says, or nothing.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::card::{Card, nt};
use super::memcached::{CLIENT, PORT, SERVER, Server, datagram, frame, payload, segment};
use super::{left_out, starts};

/// Requests of a command.
struct Requests {
    command: &'static str,
    /// With `{k}` and `{o}` for cached keys, `{n}` for a key that is not there, `{K}` for the first one in base64, and
    /// `{c}` for the number of its value's version.
    texts: &'static [&'static str],
    /// Whether the texts only read, so that what is cached stays.
    reads: bool,
    /// Whether something may end by itself a second later.
    ends: bool,
    /// Whether a server speaks it over TCP only.
    tcp_only: bool,
}

const fn writes(command: &'static str, texts: &'static [&'static str]) -> Requests {
    Requests { command, texts, reads: false, ends: false, tcp_only: false }
}

const fn reads(command: &'static str, texts: &'static [&'static str]) -> Requests {
    Requests { reads: true, ..writes(command, texts) }
}

const fn ends(command: &'static str, texts: &'static [&'static str]) -> Requests {
    Requests { ends: true, ..writes(command, texts) }
}

const fn over_tcp(command: &'static str, texts: &'static [&'static str]) -> Requests {
    Requests { tcp_only: true, ..writes(command, texts) }
}

/// The commands of memcached 1.6's `doc/protocol.txt`, with each of their flags.
#[rustfmt::skip] // a command in few lines
const COMMANDS: &[Requests] = &[
    writes("set", &["set {k} 7 0 1\r\nb\r\n", "set {k} 7 0 1 noreply\r\nb\r\n", "set {k} 7 -1 1\r\nb\r\n", "set {k} 7 4102444800 1\r\nb\r\n",
        "set {k} 7 0 1\r\nbcd\r\n", "set {k} x 0 1\r\nb\r\n", "set {n} 7 0 1\r\nb\r\n"]),
    ends("set", &["set {k} 7 1 1\r\nb\r\n", "set {k} 7 1 1 noreply\r\nb\r\n"]),
    writes("add", &["add {k} 7 0 1\r\nb\r\n", "add {n} 7 0 1\r\nb\r\n", "delete {k}\r\nadd {k} 7 0 1 noreply\r\nb\r\n"]),
    writes("replace", &["replace {k} 7 0 1\r\nb\r\n", "replace {n} 7 0 1\r\nb\r\n", "replace {k} 7 0 1 noreply\r\nb\r\n"]),
    writes("append", &["append {k} 0 0 1\r\n8\r\n", "append {k} 0 0 1 noreply\r\n8\r\n"]),
    writes("prepend", &["prepend {k} 0 0 1\r\n8\r\n", "prepend {k} 0 0 1 noreply\r\n8\r\n"]),
    writes("cas", &["cas {k} 7 0 1 {c}\r\nb\r\n", "cas {k} 7 0 1 {c} noreply\r\nb\r\n", "cas {k} 7 0 1 1\r\nb\r\n", "cas {n} 7 0 1 1\r\nb\r\n"]),
    reads("get", &["get {k}\r\n", "get {k} {o} {n}\r\n"]),
    reads("gets", &["gets {k}\r\n", "gets {k} {o} {n}\r\n"]),
    writes("gat", &["gat 0 {k}\r\n", "gat 100 {k} {o} {n}\r\n", "gat -1 {k}\r\n"]),
    ends("gat", &["gat 1 {k} {o}\r\n"]),
    writes("gats", &["gats 0 {k}\r\n", "gats -1 {k} {o} {n}\r\n"]),
    ends("gats", &["gats 1 {k}\r\n"]),
    writes("delete", &["delete {k}\r\n", "delete {k} 0\r\n", "delete {k} noreply\r\n", "delete {n}\r\n"]),
    writes("incr", &["incr {k} 3\r\n", "incr {k} 3 noreply\r\n", "incr {k} x\r\n", "incr {n} 3\r\n"]),
    writes("decr", &["decr {k} 3\r\n", "decr {k} 3 noreply\r\n", "decr {n} 3\r\n"]),
    writes("touch", &["touch {k} 0\r\n", "touch {k} -1\r\n", "touch {n} 0\r\n", "touch {k} -1 noreply\r\n"]),
    ends("touch", &["touch {k} 1\r\n", "touch {k} 1 noreply\r\n"]),
    reads("me", &["me {k}\r\n", "me {K} b\r\n", "me {n}\r\n"]),
    reads("mg", &["mg {k}\r\n", "mg {k} c f h k l Oabc s t u v\r\n", "mg {k} q v\r\n", "mg {k} R30 v\r\n", "mg {n} v\r\n", "mg {K} b v\r\n"]),
    writes("mg", &["mg {k} T100 v\r\n", "mg {k} T-1 v\r\n", "mg {n} N100 v\r\n", "mg {K} b T-1 v\r\n"]),
    ends("mg", &["mg {k} T1 v\r\n", "mg {n} N1 v\r\n", "mg {k} q T1\r\n", "mg {K} b T1\r\n"]),
    writes("ms", &["ms {k} 1\r\nb\r\n", "ms {k} 1 c F9 k O77 q\r\nb\r\n", "ms {k} 1 C{c}\r\nb\r\n", "ms {k} 1 C1 I\r\nb\r\n", "ms {k} 1 ME\r\nb\r\n",
        "ms {k} 1 MA\r\n8\r\n", "ms {k} 1 MP\r\n8\r\n", "ms {k} 1 MR\r\nb\r\n", "ms {k} 1 MS\r\nb\r\n", "ms {n} 1 MR\r\nb\r\n", "ms {K} 1 b\r\nb\r\n"]),
    ends("ms", &["ms {k} 1 T1\r\nb\r\n", "ms {K} 1 b T1\r\nb\r\n"]),
    writes("md", &["md {k}\r\n", "md {k} q k O1\r\n", "md {k} C{c}\r\n", "md {k} C1\r\n", "md {k} I\r\n", "md {K} b\r\n", "md {n}\r\n"]),
    ends("md", &["md {k} I T1\r\n"]),
    writes("ma", &["ma {k}\r\n", "ma {k} v c t\r\n", "ma {k} D3 MD\r\n", "ma {k} MI q\r\n", "ma {k} C{c}\r\n", "ma {n} N100 J9 v\r\n", "ma {K} b\r\n"]),
    ends("ma", &["ma {k} T1\r\n", "ma {n} N1 J9\r\n"]),
    reads("mn", &["mn\r\n"]),
    writes("flush_all", &["flush_all\r\n", "flush_all 0\r\n", "flush_all noreply\r\n", "flush_all -1\r\n"]),
    ends("flush_all", &["flush_all 1\r\n", "flush_all 1 noreply\r\n"]),
    reads("version", &["version\r\n"]),
    reads("verbosity", &["verbosity 0\r\n", "verbosity 0 noreply\r\n"]),
    reads("stats", &["stats\r\n", "stats items\r\n", "stats slabs\r\n", "stats settings\r\n", "stats sizes\r\n", "stats reset\r\n", "stats conns\r\n"]),
    writes("slabs", &["slabs automove 0\r\n", "slabs reassign 1 2\r\n"]),
    writes("lru", &["lru mode flat\r\n", "lru mode segmented\r\n", "lru tune 10 25 0.1 2.0\r\n", "lru temp_ttl -1\r\n"]),
    writes("lru_crawler", &["lru_crawler enable\r\n", "lru_crawler sleep 100\r\n", "lru_crawler tocrawl 0\r\n", "lru_crawler crawl all\r\n", "lru_crawler disable\r\n"]),
    over_tcp("lru_crawler", &["lru_crawler enable\r\n", "lru_crawler metadump all\r\n"]),
    writes("cache_memlimit", &["cache_memlimit 64\r\n", "cache_memlimit 64 noreply\r\n"]),
    writes("shutdown", &["shutdown\r\n", "shutdown graceful\r\n"]),
    writes("misbehave", &["misbehave\r\n"]),
    over_tcp("watch", &["watch mutations\r\n"]),
    over_tcp("quit", &["quit\r\n", "set {k} 7 0 1\r\nb\r\nquit\r\n"]),
];

/// A card before a server, and the keys of one case.
struct Case<'a> {
    server: &'a Server,
    card: Card,
    keys: [String; 3],
    /// Number of the last request.
    id: u16,
}

impl<'a> Case<'a> {
    /// With two keys that are cached, and one that is not there.
    fn new(server: &'a Server, number: usize) -> Self {
        let settings = json!({"server": "192.0.2.1", "settling_ms": 1, "age_max_ms": 3_600_000});
        let card = Card::new(vec![nt("kv-cache", &settings)]);
        let keys = ["k", "o", "n"].map(|name| format!("{name}{number:04}"));
        let mut case = Self { server, card, keys, id: 0 };
        for key in case.keys.clone().iter().take(2) {
            let set = format!("set {key} 5 0 1\r\n5\r\n");
            let is_cached = (0..500).any(|try_| {
                if try_ % 100 == 0 {
                    case.udp(&set);
                }
                std::thread::sleep(Duration::from_millis(2));
                case.udp(&format!("get {key}\r\n"))
            });
            assert!(is_cached, "{key} of case {number}");
        }
        case
    }

    /// Sends a request over UDP; whether the card has answered it, as the server would have.
    fn udp(&mut self, text: &str) -> bool {
        self.id += 1;
        let request = datagram(self.id, text);
        let sent = self.card.through(0, &frame((CLIENT, 40_000), (SERVER, PORT), &request));
        let [(side, out)] = &sent[..] else { panic!("{text}: {} frames", sent.len()) };
        let answers = self.server.answers(&request);
        if *side == 0 {
            let said: Vec<u8> = answers.iter().flat_map(|answer| &answer[8..]).copied().collect();
            let out = payload(out);
            let [of_card, of_server] = [&out[8..], &said].map(String::from_utf8_lossy);
            assert_eq!(of_card, of_server, "{text}");
            return true;
        }
        for answer in answers {
            let _passed = self.card.through(1, &frame((SERVER, PORT), (CLIENT, 40_000), &answer));
        }
        false
    }

    /// The text with this case's keys.
    fn fill(&self, text: &str) -> String {
        let [key, other, absent] = &self.keys;
        let mut text = text.replace("{k}", key).replace("{o}", other).replace("{n}", absent);
        if text.contains("{K}") {
            text = text.replace("{K}", &base64(key));
        }
        if text.contains("{c}") {
            let said = self.server.tell(&format!("gets {key}\r\n"));
            let line = said.lines().next().unwrap_or_default().to_owned();
            text = text.replace("{c}", line.split(' ').nth(4).expect("a number"));
        }
        text
    }

    /// Reads all keys, each of which the card answers as the server does or not at all. Says whether it answered the
    /// first one.
    fn check(&mut self) -> bool {
        let [first, rest @ ..] = self.keys.clone();
        let is_hit = self.udp(&format!("get {first}\r\n"));
        for key in rest {
            self.udp(&format!("get {key}\r\n"));
        }
        is_hit
    }
}

/// A key of five bytes in base64.
fn base64(key: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |bytes: &[u8]| {
        let bits = bytes.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - bytes.len()));
        let digit = |at: usize| match at <= bytes.len() {
            true => char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63]),
            false => '=',
        };
        (0..4).map(digit).collect::<String>()
    };
    key.as_bytes().chunks(3).map(group).collect()
}

#[test]
fn after_each_command_of_the_protocol_the_card_says_what_memcached_says() {
    if !starts("memcached", &["-V"]) {
        return left_out("memcached is missing");
    }
    let server = Server::start();
    let mut number = 0;
    for requests in COMMANDS {
        let mut ending = Vec::new();
        for text in requests.texts {
            for is_tcp in [false, true] {
                if requests.tcp_only && !is_tcp {
                    continue;
                }
                number += 1;
                let mut case = Case::new(&server, number);
                let text = case.fill(text);
                if is_tcp {
                    assert_eq!(case.card.through(0, &segment(&text)).len(), 1, "{text}");
                    server.tell(&text);
                } else {
                    case.udp(&text);
                }
                let is_hit = case.check();
                // After what only reads the value is still cached; after data over TCP it is not.
                let is_sure = requests.reads || is_tcp;
                assert!(!is_sure || is_hit != is_tcp, "{text}: answered from the cache: {is_hit}");
                std::thread::sleep(Duration::from_millis(15));
                case.check();
                case.check();
                if requests.ends {
                    ending.push(case);
                }
                // What one flushes is flushed for all.
                let is_last = ending.len() == 2 * requests.texts.len();
                if !ending.is_empty() && (is_last || requests.command == "flush_all") {
                    std::thread::sleep(Duration::from_millis(1_200));
                    for mut case in ending.drain(..) {
                        let _is_hit: bool = case.check();
                    }
                }
            }
        }
    }
}

/// The command whose request a line of the document shows.
fn shown_command(line: &str) -> Option<&str> {
    let line = line.strip_prefix('"').unwrap_or(line);
    let end = line.find(|c: char| !(c.is_ascii_lowercase() || c == '_'))?;
    let (word, rest) = line.split_at(end);
    let behind = rest.trim_start_matches(|c: char| c == ' ' || c.is_ascii_lowercase());
    let is_shown = rest == "\\r\\n"
        || rest.starts_with("\" is a command")
        || rest.starts_with(' ') && behind.starts_with('<');
    (is_shown && !word.is_empty()).then_some(word)
}

/// No command and no flag of a meta command that memcached's own document names is left out.
#[test]
fn the_commands_above_are_those_of_memcached_s_document() {
    let path = "/usr/share/doc/memcached/protocol.txt.gz";
    let Ok(document) = Command::new("zcat").arg(path).output() else {
        return left_out("zcat is missing");
    };
    if !document.status.success() {
        return left_out("memcached's protocol.txt is missing");
    }
    let document = String::from_utf8_lossy(&document.stdout).into_owned();
    let shown: Vec<_> = document.lines().filter_map(shown_command).collect();
    assert!(shown.len() > 25, "{shown:?}");
    for command in shown {
        assert!(COMMANDS.iter().any(|row| row.command == command), "{command} is missing");
    }
    let mut section = "";
    let mut flags = 0;
    for line in document.lines() {
        section = match line {
            "Meta Get" => "mg",
            "Meta Set" => "ms",
            "Meta Delete" => "md",
            "Meta Arithmetic" => "ma",
            "Meta No-Op" => "",
            _ => section,
        };
        let Some(flag) = line.strip_prefix("- ").and_then(|rest| rest.chars().next()) else {
            continue;
        };
        // These three are in answers only.
        let is_flag = matches!(line.as_bytes().get(3), Some(b':' | b'(')) && !"WXZ".contains(flag);
        if section.is_empty() || !is_flag {
            continue;
        }
        flags += 1;
        let has_flag = |text: &&str| {
            let line = text.lines().next().unwrap_or_default();
            line.split(' ').skip(2).any(|word| word.starts_with(flag))
        };
        let mut texts =
            COMMANDS.iter().filter(|row| row.command == section).flat_map(|row| row.texts);
        assert!(texts.any(has_flag), "{section} with {flag} is missing");
    }
    assert!(flags > 30, "{flags}");
}
