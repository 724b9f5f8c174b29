//! Frames from a hostile guest: damage of every kind to frames and to what the kernel says of them. Whatever the bytes
//! are, classifier, switch and segmentation answer without a panic, and lose no buffer.
//!
//! `SNIC_FUZZ_PACKETS` says how many, `SNIC_FUZZ_SEED` from which seed; a failure prints the frame.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use snic_domain::Timestamp;
use snic_nts::Pool;

use crate::segments::{Offload, SEGMENTS_MAX, cut};
use crate::stations::Stations;
use crate::{FRAME_BYTES_MAX, header};

/// Frames where nobody says otherwise.
const FRAMES: u64 = 50_000;
/// Frames of a night.
const FRAMES_OF_A_NIGHT: u64 = 10_000_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(default)
}

/// Frames to begin with: TCP over IPv4 and IPv6, with and without VLAN tags, and UDP with VXLAN in it.
fn seeds() -> Vec<Vec<u8>> {
    let addresses = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let v4 = |protocol: u8| {
        let mut ip = vec![8, 0, 0x45, 0, 0, 200, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        ip
    };
    let mut v6 = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 160, 6, 64];
    v6.extend([0x20, 1, 0xd, 0xb8].repeat(8));
    let mut tagged = vec![0x81, 0, 0, 7];
    tagged.extend(v4(6));
    let mut seeds = Vec::new();
    for (network, transport) in [
        (v4(6), &[0, 80, 0, 81, 0, 0, 3, 0xe8, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0][..]),
        (v6, &[0, 80, 0, 81, 0, 0, 3, 0xe8, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]),
        (tagged, &[0, 80, 0, 81, 0, 0, 3, 0xe8, 0, 0, 0, 1, 0xf0, 0x19, 1, 0, 0, 0, 0, 0]),
        (v4(17), &[3, 0xe8, 0x12, 0xb5, 0, 180, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0]),
    ] {
        let mut frame = addresses.to_vec();
        frame.extend(network);
        frame.extend(transport);
        frame.resize(frame.len() + 160, 0x5a);
        seeds.push(frame);
    }
    seeds
}

fn damaged(random: &mut ChaCha8Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = seeds[random.random_range(0..seeds.len())].clone();
    // Some are merged ones of tens of thousands of bytes.
    if random.random_range(0..8) == 0 {
        frame.resize(frame.len() + random.random_range(0..60_000), 0x5a);
        let bytes = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&bytes.to_be_bytes());
    }
    for _ in 0..random.random_range(0..5) {
        if frame.is_empty() {
            break;
        }
        let at = random.random_range(0..frame.len().min(80));
        match random.random_range(0..4) {
            0 => frame[at] ^= 1 << random.random_range(0..8),
            1 => frame[at] = random.random(),
            2 => frame[at] = [0, 1, 0x0f, 0x7f, 0x80, 0xff][random.random_range(0..6)],
            _ => frame.truncate(random.random_range(0..=frame.len())),
        }
    }
    frame
}

/// Header that the kernel might put before a frame, and more.
fn head(random: &mut ChaCha8Rng) -> [u8; Offload::BYTES] {
    let mut head: [u8; Offload::BYTES] = random.random();
    if random.random() {
        (head[0], head[1]) = (1, [0, 1, 4, 0x81][random.random_range(0..4)]);
        head[4..6].copy_from_slice(&random.random_range(0..1_500_u16).to_ne_bytes());
        head[6..8].copy_from_slice(&random.random_range(0..80_u16).to_ne_bytes());
        head[8..10].copy_from_slice(&16_u16.to_ne_bytes());
    }
    head
}

fn check(frame: &mut [u8], offload: &Offload, pool: &Pool, stations: &mut Stations) {
    let mut out = VecDeque::new();
    cut(frame, offload, pool, &mut out);
    assert!(out.len() <= SEGMENTS_MAX, "{} segments", out.len());
    let all: usize = out.iter().map(|segment| segment.len()).sum();
    assert!(all <= frame.len() + out.len() * 512, "{all} bytes of {}", frame.len());
    drop(out);
    assert_eq!(pool.available(), pool.capacity(), "buffers came back");
    offload.fill_checksum(frame);
    header::of(frame, 0);
    let _ = stations.learn(frame, 0, Timestamp::ZERO);
    stations.receiver(frame);
}

#[test]
fn no_frame_of_a_hostile_guest_makes_the_card_panic_or_lose_a_buffer() {
    run_all(number("SNIC_FUZZ_PACKETS", FRAMES));
}

#[test]
#[ignore = "nightly: minutes"]
fn no_frame_of_a_night_makes_the_card_panic_or_lose_a_buffer() {
    run_all(number("SNIC_FUZZ_PACKETS", FRAMES_OF_A_NIGHT));
}

fn run_all(frames: u64) {
    let seed = number("SNIC_FUZZ_SEED", 1);
    let (mut random, seeds) = (ChaCha8Rng::seed_from_u64(seed), seeds());
    let (pool, mut stations) = (Pool::new(SEGMENTS_MAX, FRAME_BYTES_MAX), Stations::default());
    for at in 0..frames {
        let mut frame = damaged(&mut random, &seeds);
        let head = head(&mut random);
        let offload = Offload::of(head);
        let shown = frame.clone();
        let run = AssertUnwindSafe(|| check(&mut frame, &offload, &pool, &mut stations));
        assert!(catch_unwind(run).is_ok(), "seed {seed}, frame {at}: {head:02x?} {shown:02x?}");
    }
}
