//! The checker against a device: whatever it takes does to the interpreted device only what a
//! region's bitstream may do. Vendor-shaped files are changed piece by piece, with right CRCs, and
//! word by word.
//!
//! `SNIC_STREAMS` says how many files, `SNIC_STREAM_SEED` from which seed; a failure prints both.

use crate::image::*;
use crate::interpreter::{Effect, Machine};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_bitstream::{FloorPlan, parse};
use snic_domain::RegionKind;

/// Files where nobody says otherwise.
const FILES: u64 = 1_600;
/// Values at which registers go wrong.
const VALUES: [u32; 26] = [
    0,
    1,
    2,
    3,
    5,
    6,
    7,
    8,
    10,
    11,
    12,
    13,
    15,
    0x100,
    0x400,
    0x500,
    0x2_0000,
    0x2_0500,
    0x80_0000,
    u32::MAX,
    OPTIONS,
    IDCODE,
    CLOSING,
    0x3FE5,
    0x10_0000,
    0x4_0200,
];
const REGISTERS: [u32; 14] =
    [FAR, CMD, CTL0, MASK, CTL1, COR0, IDCODE_REGISTER, 8, 11, 13, 14, 16, 17, 22];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Narrow, so that a wrong address is soon somebody else's.
fn device() -> Device {
    Device { columns: vec![2, 4, 3, 5, 2], memories: 1, rows: 4 }
}

fn regions() -> [Region; 4] {
    [
        Region { die: 0, rows: 1..=2, columns: 1..=3, memories: None },
        Region { die: 0, rows: 1..=2, columns: 0..=4, memories: None },
        Region { die: 0, rows: 2..=2, columns: 3..=4, memories: None },
        Region { die: 1, rows: 1..=1, columns: 2..=3, memories: None },
    ]
}

/// Operations of the vendor's tools, without the waiting.
fn original(device: &Device, region: &Region) -> Vec<Op> {
    let mut ops = partial(device, region);
    for op in &mut ops {
        if let Op::Noop(count) = op {
            *count = (*count).min(2);
        }
    }
    // Some frames repeated, as compression does.
    let at = ops.iter().position(|op| *op == Op::Set(CMD, GRESTORE)).expect("stream 3");
    let first = far(0, *region.rows.start(), *region.columns.start(), 0);
    let repeat = [Op::Set(CMD, MFW), Op::Set(FAR, first), Op::Repeat(2)];
    ops.splice(at..at, repeat);
    if region.die == 1 { on_next_die(ops) } else { ops }
}

struct Mutator {
    rng: ChaCha8Rng,
}

impl Mutator {
    fn value(&mut self) -> u32 {
        match self.rng.random_range(0..4) {
            0 => self.address(),
            1 => 1 << self.rng.random_range(0..32),
            _ => VALUES[self.rng.random_range(0..VALUES.len())],
        }
    }

    fn address(&mut self) -> u32 {
        let block_type = u8::from(self.rng.random_range(0..12) == 0);
        let (row, column) = (self.rng.random_range(0..5), self.rng.random_range(0..7));
        far(block_type, row, column, self.rng.random_range(0..6))
    }

    fn piece(&mut self) -> Op {
        match self.rng.random_range(0..10) {
            0 => Op::Sync,
            1 => Op::Crc,
            2 => Op::Repeat(self.rng.random_range(0..5)),
            3 => Op::Frames(
                [frames(self.rng.random(), self.rng.random_range(0..4)), pads(1)].concat(),
            ),
            4 => Op::Set(CMD, self.rng.random_range(0..16)),
            5 => Op::Set(FAR, self.address()),
            6 => Op::Word(self.rng.random()),
            7 => {
                let inner = [Op::Set(CMD, RCRC), self.piece(), Op::Set(CMD, DESYNC)];
                Op::Die([&[Op::Sync], &inner[..]].concat())
            }
            _ => Op::Set(REGISTERS[self.rng.random_range(0..REGISTERS.len())], self.value()),
        }
    }

    fn change(&mut self, ops: &mut Vec<Op>) {
        let mut inner = ops.iter_mut().filter_map(|op| match op {
            Op::Die(inner) => Some(inner),
            _ => None,
        });
        // What is around the next die's streams is short: most changes are for those.
        if let Some(inner) = inner.next().filter(|_| self.rng.random_range(0..4) > 0) {
            return self.change(inner);
        }
        if ops.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..ops.len());
        match self.rng.random_range(0..8) {
            0 => {
                ops.remove(at);
            }
            1 | 2 => ops.insert(at, self.piece()),
            3 => {
                let to = self.rng.random_range(0..ops.len());
                ops.swap(at, to);
            }
            4 => {
                let end = (at + self.rng.random_range(1..12)).min(ops.len());
                let copied = ops[at..end].to_vec();
                let to = self.rng.random_range(0..=ops.len());
                ops.splice(to..to, copied);
            }
            5 => {
                let end = (at + self.rng.random_range(1..12)).min(ops.len());
                ops.drain(at..end);
            }
            _ => self.change_piece(ops, at),
        }
    }

    fn change_piece(&mut self, ops: &mut [Op], at: usize) {
        // From here on the first that has something to change.
        let Some(op) = ops[at..].iter_mut().find(|op| !matches!(op, Op::Noop(_) | Op::Sync)) else {
            return;
        };
        match op {
            Op::Set(FAR, value) => *value = self.address(),
            Op::Set(_, value) => *value = self.value(),
            Op::Frames(words) => {
                let count = (words.len() / FRAME + self.rng.random_range(0..3)).saturating_sub(1);
                words.resize(count * FRAME, 0);
                if self.rng.random_range(0..4) == 0 {
                    words.iter_mut().for_each(|word| *word = 1);
                }
            }
            Op::Repeat(count) => *count = self.rng.random_range(0..4),
            Op::Die(inner) => self.change(inner),
            Op::Word(word) => *word = self.rng.random(),
            Op::Crc | Op::Noop(_) | Op::Sync => {}
        }
    }

    /// Damage to words, after which CRCs are wrong where there are any.
    fn damage(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..bytes.len() / 4) * 4;
        match self.rng.random_range(0..3) {
            0 => bytes[at + self.rng.random_range(0..4)] ^= 1 << self.rng.random_range(0..8),
            1 => bytes[at..at + 4].copy_from_slice(&self.value().to_be_bytes()),
            _ => {
                let from = self.rng.random_range(0..bytes.len() / 4) * 4;
                bytes.copy_within(from..from + 4, at);
            }
        }
    }
}

fn is_taken(bytes: &[u8], plan: &FloorPlan) -> bool {
    parse(bytes).is_ok_and(|file| plan.check(&file, RegionKind::KnownNt).is_ok())
}

/// Operation that a bitstream of `region` must not have done.
fn find_escape(device: &Device, region: &Region, bytes: &[u8]) -> Option<String> {
    let machine = Machine::run(device, bytes);
    let here = usize::from(region.die);
    for effect in &machine.effects {
        let is_allowed = match *effect {
            Effect::Frame(frame) => {
                let columns = if frame.block_type == 0 {
                    Some(&region.columns)
                } else {
                    region.memories.as_ref()
                };
                frame.die == here
                    && region.rows.contains(&frame.row)
                    && columns.is_some_and(|columns| columns.contains(&frame.column))
            }
            Effect::Control { die, register: CTL0, bits, value } => {
                let switches_off = bits & 0x400 != 0 && value & 0x400 == 0;
                die == here && bits & !0x500 == 0 && !switches_off
            }
            Effect::Control { die, bits, .. } => die == here && bits & !(1 << 17) == 0,
            Effect::Options { die, value } => die == here && value == OPTIONS,
            Effect::Global { die, is_confined, .. } => die == here && is_confined,
            Effect::NoSuchFrame { .. }
            | Effect::Command { .. }
            | Effect::Register { .. }
            | Effect::BadPacket { .. }
            | Effect::CrcError { .. } => false,
        };
        if !is_allowed {
            return Some(format!("{effect:?}"));
        }
    }
    let masks = (0..4).map(|die| machine.mask_register(die));
    if masks.clone().any(|mask| mask != u32::MAX && mask & !0x2_0500 != 0) {
        return Some(format!("MASK is left as {:x?}", masks.collect::<Vec<_>>()));
    }
    machine.is_mask_open().then(|| "CTL1 bit 17 is left set".to_owned())
}

#[test]
fn the_interpreter_sees_what_a_vendors_file_does() {
    let device = Device::small();
    let region = Region { die: 0, rows: 1..=2, columns: 0..=7, memories: Some(0..=1) };
    let bytes = bit(&partial(&device, &region));
    assert_eq!(find_escape(&device, &region, &bytes), None);
    let machine = Machine::run(&device, &bytes);
    assert!(machine.is_reset_mask_on(0));
    let mut frames: Vec<_> = machine
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Frame(frame) if !frame.is_mask => Some(*frame),
            _ => None,
        })
        .collect();
    // Each frame of the region once: 80 of logic and 512 of memory in each of two rows.
    let count = frames.len();
    frames.dedup();
    assert_eq!((count, frames.len()), (2 * 80 + 2 * 512, 2 * 80 + 2 * 512));
    let globals: Vec<_> = machine
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Global { command, .. } => Some(*command),
            _ => None,
        })
        .collect();
    // AGHIGH and START are repeated by the FAR behind them.
    assert_eq!(globals, [SHUTDOWN, AGHIGH, AGHIGH, URAM, SHUTDOWN, GRESTORE, START]);
}

#[test]
fn accepted_bitstreams_change_nothing_outside_the_region() {
    let device = device();
    let (files, seed) = (setting("SNIC_STREAMS", FILES), setting("SNIC_STREAM_SEED", 1));
    println!("SNIC_STREAMS={files} SNIC_STREAM_SEED={seed}");
    let mut mutator = Mutator { rng: ChaCha8Rng::seed_from_u64(seed) };
    let (mut taken, mut escapes_refused) = (0_u64, 0_u64);
    for region in regions() {
        let (plan, original) = (device.plan(&region), original(&device, &region));
        assert!(is_taken(&bit(&original), &plan), "{region:?}");
        for file in 0..files / 4 {
            let mut ops = original.clone();
            (0..mutator.rng.random_range(1..=3)).for_each(|_| mutator.change(&mut ops));
            let mut bytes = bit(&ops);
            if mutator.rng.random_range(0..4) == 0 {
                ops.retain(|op| *op != Op::Crc);
                bytes = bit(&ops);
                let header = bytes.len() - words(&ops).len() * 4;
                mutator.damage(&mut bytes[header..]);
            }
            if is_taken(&bytes, &plan) {
                taken += 1;
                let escape = find_escape(&device, &region, &bytes);
                assert_eq!(escape, None, "file {file} of {region:?}: {ops:?}");
            } else if file % 16 == 0 {
                escapes_refused += u64::from(find_escape(&device, &region, &bytes).is_some());
            }
        }
    }
    println!("{taken} of {files} taken; of each 16th refused one {escapes_refused} reach beyond");
    assert!(taken > files / 10, "only {taken} of {files} are taken: the changes are too coarse");
    assert!(escapes_refused > 0, "no refused file reaches beyond: the changes are too fine");
}
