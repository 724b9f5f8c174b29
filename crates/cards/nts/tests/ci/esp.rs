//! ESP against an implementation by OpenSSL that was written from the RFCs (`helper.py`).

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use etherparse::PacketBuilder;
use serde_json::json;

use super::card::{Card, Ending, nt};
use super::{HELPER, PYTHON, left_out, starts};

const HERE: [u8; 4] = [192, 0, 2, 1];
const THERE: [u8; 4] = [192, 0, 2, 2];

fn packet(from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(from, to, 64).udp(1, 2).write(&mut packet, payload).unwrap();
    packet
}

fn frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], packet].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

#[test]
fn openssl_opens_what_is_sealed_and_seals_what_is_opened() {
    if !starts(PYTHON, &["-c", "import cryptography"]) {
        return left_out("python3-cryptography is missing");
    }
    let mut helper = Ending(
        Command::new(PYTHON)
            .args([HELPER, "esp"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut input = helper.0.stdin.take().unwrap();
    let mut output = BufReader::new(helper.0.stdout.take().unwrap());
    let mut ask = |line: String| {
        writeln!(input, "{line}").unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    };
    for key_bytes in [20, 36] {
        let (ours, theirs) = ("5a".repeat(key_bytes), "c3".repeat(key_bytes));
        let mut card = Card::new(vec![nt(
            "esp",
            &json!({"local": "192.0.2.1", "remote": "192.0.2.2", "local_prefixes": ["10.1.0.0/16"],
                "remote_prefixes": ["10.2.0.0/16"], "outbound": {"spi": 4_097, "key": ours},
                "inbound": [{"spi": 4_098, "key": theirs}]}),
        )]);
        for length in 0..70 {
            let payload = vec![length as u8; length];
            let inner = packet([10, 1, 0, 1], [10, 2, 0, 1], &payload);
            let [(1, sealed)] = &card.through(0, &frame(&inner))[..] else { panic!() };
            let opened = ask(format!("open {ours} {}", hex(&sealed[34..])));
            assert_eq!(opened, format!("4097 {} 4 {}", length + 1, hex(&inner)));
            let inner = packet([10, 2, 0, 1], [10, 1, 0, 1], &payload);
            let iv = format!("{:016x}", 0x1122_3344_5566_7788 + length);
            let esp = ask(format!("seal {theirs} 4098 {} {iv} {} 4", length + 1, hex(&inner)));
            let mut outer = Vec::new();
            let ip = PacketBuilder::ipv4(THERE, HERE, 64);
            ip.write(&mut outer, 50.into(), &bytes(&esp)).unwrap();
            let [(0, opened)] = &card.through(1, &frame(&outer))[..] else { panic!("{length}") };
            assert_eq!(*opened, frame(&inner));
        }
    }
}
