//! Damage of every kind, millions of times: whatever the bytes are, a parser answers, and takes no
//! more memory than twice the file.
//!
//! `SNIC_MUTATIONS` says how many files (of each kind), `SNIC_MUTATION_SEED` from which seed; a
//! failure prints both. Memory is bounded by the allocator: a parser that wants more than twice its
//! file gets none, and the program ends.

use std::alloc::System;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use cap::Cap;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_bitstream::xclbin::{ExpectedRole, TestRole, check_role};
use snic_bitstream::{FloorGroup, FloorPlan, FrameRange, TestBuild, catalogue, parse};
use snic_domain::{ByteSize, CardProfile, RegionKind};
use uuid::Uuid;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// Files of each kind with each change, where nobody says otherwise.
const FILES: u64 = 50_000;
/// The same before a merge: three million in all.
const FILES_OF_CI: u64 = 1_000_000;
/// Numbers at which lengths, counts and offsets go wrong.
const INTERESTING: [u64; 12] =
    [0, 1, 7, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 1 << 40, u64::MAX];
/// A small file still gets an error that names what is wrong.
const SLACK: usize = 1_024;

struct Mutator {
    rng: ChaCha8Rng,
    file: Vec<u8>,
}

impl Mutator {
    /// The original with one to four kinds of damage.
    fn damage(&mut self, original: &[u8]) -> &[u8] {
        self.file.clear();
        self.file.extend_from_slice(original);
        for _ in 0..self.rng.random_range(1..=4) {
            self.damage_once();
        }
        &self.file
    }

    fn damage_once(&mut self) {
        if self.file.is_empty() {
            return;
        }
        let length = self.file.len();
        // Half of it where headers, counts and packets are.
        let near = if self.rng.random() { length } else { length.min(1_024) };
        let at = self.rng.random_range(0..near);
        match self.rng.random_range(0..8) {
            0 => self.file[at] ^= 1 << self.rng.random_range(0..8),
            1 => self.file[at] = self.rng.random(),
            2 => self.number(at, 4),
            3 => self.number(at, 8),
            4 => self.file.truncate(at),
            5 => self.copy_run(at),
            6 => {
                let end = (at + self.rng.random_range(1..64)).min(length);
                self.file.drain(at..end);
            }
            _ => {
                let end = (at + self.rng.random_range(1..64)).min(length);
                self.rng.fill_bytes(&mut self.file[at..end]);
            }
        }
    }

    fn number(&mut self, at: usize, bytes: usize) {
        let at = if self.rng.random() { at & !3 } else { at };
        let value = INTERESTING[self.rng.random_range(0..INTERESTING.len())];
        let value = value.wrapping_add(u64::from(self.rng.random_range(0..3_u8))).wrapping_sub(1);
        let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
        let written = if self.rng.random() { &little[..bytes] } else { &big[8 - bytes..] };
        let end = (at + bytes).min(self.file.len());
        self.file[at..end].copy_from_slice(&written[..end - at]);
    }

    fn copy_run(&mut self, at: usize) {
        let length = self.rng.random_range(1..64).min(self.file.len() - at);
        let to = self.rng.random_range(0..=self.file.len() - length);
        self.file.copy_within(at..at + length, to);
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn role() -> TestRole<'static> {
    TestRole {
        uuid: Uuid::from_u128(7),
        interface: Uuid::from_u128(9),
        platform: "xilinx_u280_gen3x16_xdma_base_1",
        control: "snic_control:control_0",
        registers_bytes: 1 << 22,
        memory_kibibytes: 1 << 20,
    }
}

fn check_all(bytes: &[u8], card: &CardProfile, plan: &FloorPlan) -> bool {
    let expected = ExpectedRole {
        control: role().control,
        registers_bytes: 1 << 21,
        first_register: 0x40,
        interface: None,
        card,
    };
    let role = check_role(bytes, &expected);
    let region = parse(bytes);
    let inside = region.as_ref().is_ok_and(|file| plan.check(file, RegionKind::KnownNt).is_ok());
    role.is_ok() || inside
}

/// Runs what is to be tested with as much memory as it may take.
fn bounded<T>(file: usize, run: impl FnOnce() -> T) -> T {
    MEMORY.set_limit(MEMORY.allocated() + 2 * file + SLACK).expect("more than is in use");
    let result = run();
    MEMORY.set_limit(usize::MAX).expect("more than is in use");
    result
}

#[test]
fn damaged_files_are_answered_within_twice_their_memory() {
    answer_damaged(setting("SNIC_MUTATIONS", FILES));
}

#[test]
#[ignore = "ci: half a minute"]
fn a_million_damaged_files_are_answered_within_twice_their_memory() {
    answer_damaged(setting("SNIC_MUTATIONS", FILES_OF_CI));
}

/// Runs alone, so that nothing else allocates.
fn answer_damaged(files: u64) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let catalogue = catalogue::builtin().expect("valid");
    let card = catalogue.card(&"sim-16".parse().expect("a label")).expect("there");
    let mut plan = catalogue.floor_plan(&card.model).expect("there").clone();
    // The same frames on the next die too, so that streams in streams are damaged as well.
    for FloorGroup { ranges, .. } in &mut plan.groups {
        let next: Vec<_> =
            ranges.iter().map(|range| FrameRange { die: 1, ..range.clone() }).collect();
        ranges.extend(next);
    }
    let plan = &plan;
    let chain = [&catalogue.nt_types[0], &catalogue.nt_types[1]];
    let region = |die| {
        let build = TestBuild { card, chain: &chain, die, identity: None };
        build.build(ByteSize::from_bytes(2_500)).expect("possible")
    };
    let originals = [
        ("role", role().build(card).expect("possible")),
        ("region", region(0)),
        ("region of the next die", region(1)),
    ];
    let seed = setting("SNIC_MUTATION_SEED", 1);
    println!("SNIC_MUTATIONS={files} SNIC_MUTATION_SEED={seed}");
    let mut summary = String::new();
    for (name, original) in &originals {
        assert!(bounded(original.len(), || check_all(original, card, plan)), "the {name} is valid");
        let mut mutator =
            Mutator { rng: ChaCha8Rng::seed_from_u64(seed), file: Vec::with_capacity(8_192) };
        let mut taken = 0_u64;
        for _ in 0..files {
            let file = mutator.damage(original);
            taken += u64::from(bounded(file.len(), || check_all(file, card, plan)));
        }
        // Damage to frames, timestamps and the like does not make a file invalid.
        assert!(taken < files, "no damage to a {name} was ever found");
        write!(summary, "{name}: {taken} of {files} taken; ").expect("a string");
    }
    println!("{summary}");
}
