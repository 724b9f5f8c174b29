//! Damage of every kind to packets, configurations and saved states: whatever the bytes are, every NT
//! answers with a verdict, loses no buffer and counts each packet once.
//!
//! `SNIC_FUZZ_PACKETS` says how many packets, over all NTs, `SNIC_FUZZ_SEED` from which seed; a
//! failure prints the NT and the packet.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::Timestamp;
use snic_nts::{Context, Emitted, NT_TYPES, NtInstance, Packet, Pool, create, schema, wire};

use crate::support::{configuration, frames};

/// Packets where nobody says otherwise.
const PACKETS: u64 = 20_000;
/// Packets of a night.
const PACKETS_OF_A_NIGHT: u64 = 10_000_000;
const FRAME_BYTES_MAX: usize = 2_048;
/// Numbers at which lengths, counts and offsets go wrong.
const INTERESTING: [u8; 8] = [0, 1, 4, 0x3F, 0x7F, 0x80, 0xFE, 0xFF];

struct Fuzzer {
    random: ChaCha8Rng,
    frames: Vec<Vec<u8>>,
    pool: Pool,
    emitted: Emitted,
    now: Timestamp,
    /// Packets that came out of an NT: half of the packets are made of these, so that replies, tunnels and
    /// acknowledgements are damaged too.
    seen: Vec<Vec<u8>>,
}

impl Fuzzer {
    fn new(seed: u64) -> Self {
        let pool = Pool::new(64, FRAME_BYTES_MAX);
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            frames: frames(),
            emitted: Emitted::new(pool.clone()),
            pool,
            now: Timestamp::from_nanos(1),
            seen: Vec::new(),
        }
    }

    fn frame(&mut self) -> Vec<u8> {
        let is_new = self.seen.is_empty() || self.random.random();
        let source = if is_new { &self.frames } else { &self.seen };
        let mut frame = source[self.random.random_range(0..source.len())].clone();
        // What an NT says is what its peer could say.
        if !is_new
            && self.random.random()
            && let Ok(wire::Frame::Ip(layout)) = wire::parse(&frame)
        {
            wire::turn_around_addresses(&mut frame, &layout);
        }
        for _ in 0..self.random.random_range(0..4) {
            self.damage(&mut frame);
        }
        frame.truncate(FRAME_BYTES_MAX);
        if self.random.random() {
            repair(&mut frame);
        }
        frame
    }

    fn damage(&mut self, frame: &mut Vec<u8>) {
        if frame.is_empty() {
            return;
        }
        // Half of it where headers are.
        let near = if self.random.random() { frame.len() } else { frame.len().min(80) };
        let at = self.random.random_range(0..near);
        match self.random.random_range(0..6) {
            0 => frame[at] ^= 1 << self.random.random_range(0..8),
            1 => frame[at] = self.random.random(),
            2 => frame[at] = INTERESTING[self.random.random_range(0..INTERESTING.len())],
            3 => frame.truncate(at),
            4 => {
                let other = &self.frames[self.random.random_range(0..self.frames.len())];
                let from = at.min(other.len());
                frame.truncate(at);
                frame.extend_from_slice(&other[from..]);
            }
            _ => {
                let extra = self.random.random_range(1..64);
                frame.extend(std::iter::repeat_with(|| self.random.random::<u8>()).take(extra));
            }
        }
    }

    /// One packet through an NT, and what came of it.
    fn run(&mut self, nt: &mut NtInstance, frame: &[u8]) {
        self.now = self.now + Duration::from_micros(self.random.random_range(0..2_000_000));
        let mut packet = self.pool.copy_of(frame).expect("all buffers came back");
        let mut random = ChaCha8Rng::seed_from_u64(self.random.next_u64());
        let mut context =
            Context { now: self.now, random: &mut random, emitted: &mut self.emitted };
        nt.process(&mut packet, &mut context);
        if nt.next_wake().is_some_and(|due| due <= self.now) {
            nt.wake(&mut context);
        }
        let emitted: Vec<Packet> = self.emitted.drain().map(|(_, packet)| packet).collect();
        for out in emitted.iter().chain([&packet]) {
            let place = self.random.random_range(0..512);
            match self.seen.get_mut(place) {
                Some(old) => *old = out.bytes().to_vec(),
                None => self.seen.push(out.bytes().to_vec()),
            }
        }
    }

    /// A configuration or state with damage, which may be rejected, but not with a panic.
    fn damage_settings(&mut self, nt_type: &'static str, nt: &mut NtInstance) {
        let version = schema(nt_type).expect("listed").version;
        let mut text = configuration(nt_type).to_string().into_bytes();
        self.damage(&mut text);
        let _rejected = nt.configure(self.now, version, &text);
        let mut state = nt.save(self.now);
        self.damage(&mut state);
        let _rejected = nt.restore(self.now, &state);
    }
}

/// Makes checksums right again, or most damage ends at the first one that is looked at.
fn repair(frame: &mut [u8]) {
    if frame.len() >= 34 && frame[12..15] == [8, 0, 0x45] {
        frame[24..26].fill(0);
        let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.ones_complement().to_ne_bytes());
    }
    if let Ok(wire::Frame::Ip(layout)) = wire::parse(frame) {
        wire::fill(frame, &layout);
    }
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).unwrap_or_default();
    text.replace('_', "").parse().unwrap_or(default)
}

#[test]
fn no_bytes_make_an_nt_panic_or_lose_a_buffer() {
    run_all(number("SNIC_FUZZ_PACKETS", PACKETS));
}

#[test]
#[ignore = "nightly: minutes"]
fn no_bytes_of_a_night_make_an_nt_panic_or_lose_a_buffer() {
    run_all(number("SNIC_FUZZ_PACKETS", PACKETS_OF_A_NIGHT));
}

fn run_all(packets: u64) {
    let seed = number("SNIC_FUZZ_SEED", 1);
    let each = packets / NT_TYPES.len() as u64;
    for nt_type in NT_TYPES {
        let mut fuzzer = Fuzzer::new(seed);
        let mut nt = create(nt_type, seed).expect("listed");
        let version = schema(nt_type).expect("listed").version;
        let good = configuration(nt_type).to_string();
        nt.configure(fuzzer.now, version, good.as_bytes()).expect("the tests' own settings");
        for packet in 0..each {
            let frame = fuzzer.frame();
            let run = AssertUnwindSafe(|| fuzzer.run(&mut nt, &frame));
            if std::panic::catch_unwind(run).is_err() {
                panic!("{nt_type}, seed {seed}, packet {packet}: {frame:02x?}");
            }
            assert_eq!(fuzzer.pool.available(), fuzzer.pool.capacity(), "{nt_type}: {frame:02x?}");
            if packet % 1_000 == 999 {
                fuzzer.damage_settings(nt_type, &mut nt);
                nt.configure(fuzzer.now, version, good.as_bytes()).expect("as before");
            }
        }
        let counters = nt.counters();
        let counted =
            counters.forwarded + counters.replied + counters.consumed + counters.dropped_total();
        assert_eq!((counters.received, counted - counters.given_up), (each, each), "{nt_type}");
        let drops: Vec<_> =
            counters.drops().map(|(reason, count)| (reason.name(), count)).collect();
        println!(
            "{nt_type}: {} forwarded, {} replied, {} emitted, {drops:?}",
            counters.forwarded, counters.replied, counters.emitted
        );
    }
}
