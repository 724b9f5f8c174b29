//! Limits of a module's effect on its host: nothing but what it is allowed to. Modules are in text form, so that no
//! compiler is needed.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use snic_domain::Timestamp;
use snic_domain::limits::{MODULE_BYTES_MAX, MODULE_MEMORY_BYTES_MAX};
use snic_nts::{
    CompiledModule, Context, Direction, DropReason, Emitted, ModuleInstance, ModuleRuntime, Packet,
    Pool, Verdict,
};
use snic_nts_wasm::{EMITTED_MAX, WasmRuntime};

const FRAME: [u8; 60] = [7; 60];

/// A module with this function `snic_process`, whose buffer begins at 1,024, and more of its own.
fn text(process: &str, more: &str) -> String {
    format!(
        r#"(module
            (import "snic" "emit" (func $emit (param i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (global $count (mut i32) (i32.const 0))
            (func (export "snic_abi_version") (result i32) i32.const 1)
            (func (export "snic_buffer") (result i32) i32.const 1024)
            (func $forward (param i32) (result i64)
                (i64.or (i64.const 0x0100_0080_0000_0000) (i64.extend_i32_u (local.get 0))))
            (func (export "snic_process") (param i32) (result i64) {process})
            {more})"#
    )
}

fn runtime() -> WasmRuntime {
    WasmRuntime::new().expect("this machine's processor is known")
}

fn compiled(text: &str) -> std::sync::Arc<dyn CompiledModule> {
    let bytes = wat::parse_str(text).expect("the test's module is valid text");
    runtime().compile(&bytes).expect("the test's module can be used")
}

/// Why a module is refused.
fn refused(text: &str) -> String {
    let bytes = wat::parse_str(text).expect("the test's module is valid text");
    runtime().compile(&bytes).map(|_| ()).expect_err("it cannot be used").to_string()
}

struct Bench {
    pool: Pool,
    emitted: Emitted,
    random: ChaCha8Rng,
    now: Timestamp,
    module: ModuleInstance,
}

impl Bench {
    fn new(process: &str) -> Self {
        Self::of(&text(process, ""))
    }

    fn of(text: &str) -> Self {
        let pool = Pool::new(16, 9_216);
        let emitted = Emitted::new(pool.clone());
        let module = ModuleInstance::new(compiled(text).as_ref());
        Self { pool, emitted, random: ChaCha8Rng::seed_from_u64(1), now: Timestamp::ZERO, module }
    }

    fn process(&mut self, packet: &mut Packet) -> Verdict {
        let mut context =
            Context { now: self.now, random: &mut self.random, emitted: &mut self.emitted };
        self.module.process(packet, &mut context)
    }

    /// The verdict on a frame, and what became of the frame.
    fn send(&mut self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let mut packet = self.pool.copy_of(frame).expect("a buffer");
        let verdict = self.process(&mut packet);
        (verdict, packet.bytes().to_vec())
    }

    fn verdict(&mut self) -> Verdict {
        self.send(&FRAME).0
    }

    /// After a pause that is long enough for every back-off.
    fn later(&mut self) -> Verdict {
        self.now = self.now + Duration::from_secs(2);
        self.verdict()
    }
}

const FORWARD: &str = "(call $forward (local.get 0))";
const DROPPED: fn(DropReason) -> Verdict = Verdict::Drop;

#[test]
fn a_frame_goes_on_as_the_module_leaves_it() {
    assert_eq!(Bench::new(FORWARD).send(&FRAME), (Verdict::Forward, FRAME.to_vec()));
    let mut marker = Bench::new(&format!("(i32.store8 (i32.const 1153) (i32.const 9)) {FORWARD}"));
    let (verdict, frame) = marker.send(&FRAME);
    assert_eq!((verdict, frame[0], frame[1], frame[2]), (Verdict::Forward, 7, 9, 7));
    let longest = vec![3; 9_216];
    assert_eq!(Bench::new(FORWARD).send(&longest), (Verdict::Forward, longest));
    // 4 bytes more at the front, and the last 10 cut off.
    let wrapper = "(i32.store (i32.const 1148) (i32.const 0x04030201))
        (i64.const 0x0200_007c_0000_0036)";
    let (verdict, frame) = Bench::new(wrapper).send(&FRAME);
    assert_eq!(verdict, Verdict::Reply);
    assert_eq!(frame, [&[1, 2, 3, 4][..], &FRAME[..50]].concat());
    assert_eq!(Bench::new("(i64.const 0)").verdict(), DROPPED(DropReason::Module));
    let consume = "(i64.const 0x0300_0000_0000_0000)";
    assert_eq!(Bench::new(consume).verdict(), Verdict::Consume);
}

#[test]
fn a_module_keeps_what_it_knows_from_packet_to_packet() {
    let counter = "(global.set $count (i32.add (global.get $count) (i32.const 1)))
        (if (result i64) (i32.lt_u (global.get $count) (i32.const 3))
            (then (call $forward (local.get 0))) (else (i64.const 0)))";
    let mut bench = Bench::new(counter);
    let verdicts = [bench.verdict(), bench.verdict(), bench.verdict()];
    assert_eq!(verdicts, [Verdict::Forward, Verdict::Forward, DROPPED(DropReason::Module)]);
    assert_eq!(bench.module.restarts(), 0);
}

#[test]
fn a_loop_ends_with_its_fuel_and_the_next_one_has_to_wait() {
    let mut bench = Bench::new("(loop $l (br $l)) (i64.const 0)");
    let began = Instant::now();
    assert_eq!(bench.verdict(), DROPPED(DropReason::ModuleOutOfFuel));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(bench.verdict(), DROPPED(DropReason::ModuleBackoff));
    // 1 ms after the first failure, and then twice as long each time.
    let mut calls = 0;
    for millis in 0..1_000 {
        bench.now = Timestamp::ZERO + Duration::from_millis(millis);
        calls += u32::from(bench.verdict() == DROPPED(DropReason::ModuleOutOfFuel));
    }
    assert_eq!(calls, 9, "at 1, 3, 7, 15, 31, 63, 127, 255 and 511 ms");
    assert_eq!(bench.module.restarts(), 10);
    let counters = bench.module.counters();
    assert_eq!(counters.dropped(DropReason::ModuleOutOfFuel), 10);
    assert_eq!(counters.dropped_total(), counters.received);
}

#[test]
fn each_packet_has_fuel_of_its_own() {
    // About half of one packet's fuel, each time.
    let count_down = format!(
        "(local $left i32) (local.set $left (i32.const 5000))
         (loop $l (br_if $l (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
         {FORWARD}"
    );
    let mut bench = Bench::new(&count_down);
    for packet in 0..100 {
        assert_eq!(bench.verdict(), Verdict::Forward, "packet {packet}");
    }
    let too_much = count_down.replace("5000", "20000");
    assert_eq!(Bench::new(&too_much).verdict(), DROPPED(DropReason::ModuleOutOfFuel));
}

#[test]
fn bytes_that_are_moved_at_once_take_fuel_too() {
    // 64 KiB each time, and never at an end.
    let fill = "(loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 65536)) (br $l)) (i64.const 0)";
    let mut bench = Bench::new(fill);
    let began = Instant::now();
    assert_eq!(bench.verdict(), DROPPED(DropReason::ModuleOutOfFuel));
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    let grow = "(loop $l (drop (memory.grow (i32.const 0))) (br $l)) (i64.const 0)";
    assert_eq!(Bench::new(grow).verdict(), DROPPED(DropReason::ModuleOutOfFuel));
}

#[test]
fn memory_has_an_end_that_the_module_is_told_of() {
    // It grows by a page until it cannot, and then forwards; the result of the last growing is -1.
    let grow = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
        (if (i32.ne (memory.size) (i32.const 32)) (then unreachable))
        (call $forward (local.get 0))";
    assert_eq!(MODULE_MEMORY_BYTES_MAX, 32 * 65_536);
    assert_eq!(Bench::new(grow).verdict(), Verdict::Forward);
    let tables = "(loop $l (br_if $l (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))))
        (if (i32.gt_u (table.size $t) (i32.const 10000)) (then unreachable))
        (call $forward (local.get 0))";
    let mut bench = Bench::of(&text(tables, "(table $t 1 funcref)"));
    assert_eq!(bench.verdict(), Verdict::Forward);
}

#[test]
fn a_trap_drops_the_packet_and_the_state_and_nothing_else() {
    // The second packet traps.
    let second = "(global.set $count (i32.add (global.get $count) (i32.const 1)))
        (if (i32.eq (global.get $count) (i32.const 2)) (then unreachable))
        (call $forward (local.get 0))";
    let mut bench = Bench::new(second);
    let verdicts = [bench.verdict(), bench.verdict(), bench.verdict()];
    let trap = DROPPED(DropReason::ModuleTrap);
    assert_eq!(verdicts, [Verdict::Forward, trap, DROPPED(DropReason::ModuleBackoff)]);
    assert_eq!([bench.later(), bench.later()], [Verdict::Forward, trap], "its state is gone");
    assert_eq!(bench.module.restarts(), 2);
    for process in [
        // Outside of its memory, by a little and by much.
        "(i64.load (i32.const 65529))",
        "(i64.load offset=4294967295 (i32.const -1))",
        "(i64.extend_i32_u (i32.div_u (i32.const 1) (i32.const 0)))",
        // Deeper than its stack.
        "(call $deep (local.get 0))",
        "(call_indirect (result i64) (i32.const 0))",
    ] {
        let deep = "(table 1 funcref) (func $deep (param i32) (result i64) (local i64 i64 i64 i64)
            (call $deep (local.get 0)) (local.set 1) (i64.add (local.get 1) (local.get 2)))";
        let mut bench = Bench::of(&text(process, deep));
        assert_eq!(bench.verdict(), trap, "{process}");
    }
}

#[test]
fn an_answer_that_is_none_is_a_failure() {
    for answer in ["-1", "0x0400_0080_0000_003c", "0x0100_0080_ffff_ffff", "0x0100_ffff_0000_003c"]
    {
        let mut bench = Bench::new(&format!("(i64.const {answer})"));
        let (verdict, frame) = bench.send(&FRAME);
        assert_eq!(verdict, DROPPED(DropReason::ModuleInvalidVerdict), "{answer}");
        assert_eq!(frame, FRAME);
        assert_eq!(bench.module.restarts(), 1);
    }
}

#[test]
fn frames_that_are_made_are_few_and_inside_of_its_memory() {
    let emit = |direction: &str, pointer: &str, length: &str| {
        format!("(call $emit (i32.const {direction}) (i32.const {pointer}) (i32.const {length}))")
    };
    let good = emit("0", "1152", "20");
    let mut bench = Bench::new(&format!("(drop {good}) (drop {}) {FORWARD}", emit("1", "0", "14")));
    assert_eq!(bench.verdict(), Verdict::Forward);
    let made: Vec<_> =
        bench.emitted.drain().map(|(way, packet)| (way, packet.bytes().to_vec())).collect();
    assert_eq!(made, [(Direction::Onward, vec![7; 20]), (Direction::Back, vec![0; 14])]);
    assert_eq!(bench.module.counters().emitted, 2);
    // None of these is made, and the module is told so: it would trap else.
    for wrong in [
        emit("2", "1152", "20"),
        emit("0", "65530", "20"),
        emit("0", "-1", "20"),
        emit("0", "-1", "-1"),
        emit("0", "1152", "13"),
        emit("0", "1152", "9217"),
    ] {
        let mut bench = Bench::new(&format!("(if {wrong} (then unreachable)) {FORWARD}"));
        assert_eq!(bench.verdict(), Verdict::Forward, "{wrong}");
        assert!(bench.emitted.is_empty(), "{wrong}");
    }
    let many = format!("(loop $l (br_if $l {good})) {FORWARD}");
    let mut bench = Bench::new(&many);
    assert_eq!(bench.verdict(), Verdict::Forward);
    assert_eq!(bench.emitted.len(), EMITTED_MAX);
    bench.emitted.truncate(0);
    assert_eq!(bench.verdict(), Verdict::Forward);
    assert_eq!(bench.emitted.len(), EMITTED_MAX, "each packet has as many");
    let mut bench = Bench::new(&format!("(drop {good}) unreachable"));
    assert_eq!(bench.verdict(), DROPPED(DropReason::ModuleTrap));
    assert!(bench.emitted.is_empty(), "what a module made that failed is not sent");
    assert_eq!(bench.pool.available(), bench.pool.capacity());
}

#[test]
fn a_configuration_is_in_the_buffer_and_what_is_not_taken_drops() {
    // It takes what begins with a bracket, and keeps its length.
    let configure = r#"(func (export "snic_configure") (param i32) (result i32)
        (global.set $count (local.get 0))
        (i32.ne (i32.load8_u (i32.const 1024)) (i32.const 0x7b)))"#;
    let process = "(if (result i64) (i32.eq (global.get $count) (i32.const 7))
        (then (call $forward (local.get 0))) (else (i64.const 0)))";
    let told = text(process, configure);
    let mut bench = Bench::of(&told);
    assert_eq!(bench.verdict(), DROPPED(DropReason::Module), "it was told nothing");
    bench.module.configure(r#"{"k":1}"#).expect("it takes it");
    assert_eq!(bench.verdict(), Verdict::Forward);
    assert!(bench.module.configure("[1,2,3]").is_err());
    assert_eq!(bench.verdict(), DROPPED(DropReason::Unconfigured));
    bench.module.configure(r#"{"k":2}"#).expect("it takes it");
    assert_eq!(bench.verdict(), Verdict::Forward);
    // Told before its first packet, and again after a trap.
    let mut early = Bench::of(&told);
    early.module.configure(r#"{"k":1}"#).expect("nobody has looked at it yet");
    assert_eq!(early.verdict(), Verdict::Forward);
    let none = text(FORWARD, "");
    let mut bench = Bench::of(&none);
    bench.module.configure("{}").expect("nobody has looked at it yet");
    assert_eq!(bench.verdict(), DROPPED(DropReason::Unconfigured), "it takes none");
    let looping = r#"(func (export "snic_configure") (param i32) (result i32) (loop $l (br $l)) i32.const 0)"#;
    let mut bench = Bench::of(&text(FORWARD, looping));
    assert_eq!(bench.verdict(), Verdict::Forward);
    assert!(bench.module.configure("{}").is_err());
    assert_eq!(bench.later(), DROPPED(DropReason::ModuleTrap));
}

#[test]
fn what_cannot_be_used_is_refused_with_its_reason() {
    let good = text(FORWARD, "");
    compiled(&good);
    for (from, to, says) in [
        (
            "\"snic\" \"emit\"",
            "\"wasi_snapshot_preview1\" \"fd_write\"",
            "it imports wasi_snapshot_preview1.fd_write",
        ),
        (
            "(param i32 i32 i32) (result i32)",
            "(param i32 i32) (result i32)",
            "its import has another type",
        ),
        ("(export \"memory\") 1", "1", "it does not export its memory"),
        ("(export \"memory\") 1", "(export \"memory\") 33", "its memory begins with 2162688 bytes"),
        ("\"snic_abi_version\"", "\"version\"", "it does not export snic_abi_version as "),
        ("\"snic_process\"", "\"process\"", "it does not export snic_process as "),
        ("i32.const 1)", "i32.const 2)", "it is for version 2 of the ABI; version 1 is known"),
        (
            "i32.const 1024",
            "i32.const 60000",
            "its buffer of 9344 bytes at 60000 ends behind its memory",
        ),
        ("i32.const 1024", "i32.const -1", "ends behind its memory"),
        ("i32.const 1024", "(loop $l (br $l)) i32.const 1024", "all fuel consumed"),
    ] {
        let wrong = good.replacen(from, to, 1);
        assert_ne!(wrong, good, "{from}");
        // A function that is imported with fewer parameters is called by nobody.
        let said = refused(&wrong);
        assert!(said.contains(says), "{said}: {says}");
    }
    for (more, says) in [
        ("(func $s (loop $l (br $l))) (start $s)", "it does not start"),
        ("(func $s unreachable) (start $s)", "it does not start"),
        ("(data (i32.const 65535) \"ab\")", "it does not start"),
        ("(func (export \"snic_configure\"))", "it does not export snic_configure as "),
    ] {
        let said = refused(&text(FORWARD, more));
        assert!(said.contains(says), "{said}: {says}");
    }
    // A memory of the host's, and features that are switched off.
    let memory64 = good.replace("(export \"memory\") 1", "(export \"memory\") i64 1");
    let shared = good.replace("(export \"memory\") 1", "(export \"memory\") 1 1 shared");
    let second = text(FORWARD, "(memory 1)");
    for wrong in [memory64, shared, second] {
        let said = refused(&wrong);
        assert!(said.contains("it is no valid module"), "{said}");
    }
}

#[test]
fn a_huge_module_is_not_compiled() {
    let huge = vec![0; MODULE_BYTES_MAX + 1];
    let said = runtime().compile(&huge).map(|_| ()).expect_err("too large").to_string();
    assert_eq!(said, "it has 262145 bytes; at most 262144 are allowed");
}

#[test]
fn instances_of_one_module_have_nothing_in_common() {
    let counter = "(global.set $count (i32.add (global.get $count) (i32.const 1)))
        (if (i32.eq (global.get $count) (i32.const 2)) (then unreachable))
        (call $forward (local.get 0))";
    let mut first = Bench::new(counter);
    let module = compiled(&text(counter, ""));
    first.module = ModuleInstance::new(module.as_ref());
    let mut second = Bench::new(counter);
    second.module = ModuleInstance::new(module.as_ref());
    assert_eq!((first.verdict(), second.verdict()), (Verdict::Forward, Verdict::Forward));
    assert_eq!(first.verdict(), DROPPED(DropReason::ModuleTrap));
    assert_eq!(second.module.restarts(), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_compiled_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let runtime = runtime();
        prop_assert!(runtime.compile(&bytes).is_err());
        let _ = runtime.compile(&[b"\0asm\x01\0\0\0", &bytes[..]].concat());
    }

    #[test]
    fn a_damaged_module_is_refused_or_does_no_harm(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let good = text(&format!("(drop (call $emit (i32.const 0) (i32.const 1152) (i32.const 60))) {FORWARD}"), "");
        let mut bytes = wat::parse_str(&good).expect("valid");
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(module) = runtime().compile(&bytes) {
            let mut bench = Bench::new(FORWARD);
            bench.module = ModuleInstance::new(module.as_ref());
            for _ in 0..4 {
                bench.later();
            }
            bench.emitted.truncate(0);
            prop_assert_eq!(bench.pool.available(), bench.pool.capacity());
        }
    }
}

/// Functions of a state: four bytes at 12,000, which `$kept` copies there from the counter; and of where to take bytes back.
fn state(version: u32, save: &str, buffer: &str, restore: &str) -> String {
    format!(
        r#"(func (export "snic_state_version") (result i32) i32.const {version})
           (func (export "snic_save") (result i64) {save})
           (func (export "snic_restore_buffer") (param i32) (result i32) {buffer})
           (func (export "snic_restore") (param i32) (result i32) {restore})"#
    )
}

/// Drops from the third packet on.
const COUNTER: &str = "(global.set $count (i32.add (global.get $count) (i32.const 1)))
    (if (result i64) (i32.lt_u (global.get $count) (i32.const 3))
        (then (call $forward (local.get 0))) (else (i64.const 0)))";
const SAVE: &str =
    "(i32.store (i32.const 12000) (global.get $count)) (i64.const 0x0000_2ee0_0000_0004)";
const BUFFER: &str = "(i32.const 13000)";
const RESTORE: &str = "(if (i32.ne (local.get 0) (i32.const 4)) (then (return (i32.const 1))))
    (global.set $count (i32.load (i32.const 13000))) (i32.const 0)";

/// A counter with these functions.
fn counter(version: u32, save: &str, buffer: &str, restore: &str) -> Bench {
    Bench::of(&text(COUNTER, &state(version, save, buffer, restore)))
}

#[test]
fn another_instance_goes_on_with_what_was_saved() {
    let mut before = counter(1, SAVE, BUFFER, RESTORE);
    assert_eq!(before.module.save(), None, "it has not begun");
    assert_eq!(before.verdict(), Verdict::Forward);
    let saved = before.module.save().expect("it has begun");
    assert_eq!((saved.version, &saved.bytes[..]), (1, &[1, 0, 0, 0][..]));
    assert_eq!(before.verdict(), Verdict::Forward, "and goes on itself");

    let mut after = counter(1, SAVE, BUFFER, RESTORE);
    after.module.restore(saved.clone());
    assert_eq!(after.module.save().as_ref(), Some(&saved), "it has not begun: it is as it was");
    let verdicts = [after.verdict(), after.verdict()];
    assert_eq!(verdicts, [Verdict::Forward, DROPPED(DropReason::Module)]);
    assert_eq!(after.module.restarts(), 0);

    // A module of another version begins with nothing, and so does one that saves nothing.
    for text in [text(COUNTER, &state(2, SAVE, BUFFER, RESTORE)), text(COUNTER, "")] {
        let mut other = Bench::of(&text);
        other.module.restore(saved.clone());
        assert_eq!([other.verdict(), other.verdict()], [Verdict::Forward; 2]);
        assert_eq!((other.verdict(), other.module.restarts()), (DROPPED(DropReason::Module), 0));
    }
    assert_eq!(Bench::of(&text(COUNTER, "")).module.save(), None);
}

#[test]
fn a_state_that_is_not_taken_leaves_nothing_behind() {
    let with = |bytes: &[u8]| snic_nts::ModuleState { version: 1, bytes: bytes.into() };
    let spoils = "(global.set $count (i32.const 99))";
    for (restored, buffer, restore) in [
        (with(&[1, 0, 0]), BUFFER, RESTORE.to_owned()),
        (with(&[]), BUFFER, RESTORE.to_owned()),
        (with(&[2, 0, 0, 0]), BUFFER, format!("{spoils} i32.const 7")),
        (with(&[2, 0, 0, 0]), BUFFER, format!("{spoils} unreachable")),
        (with(&[2, 0, 0, 0]), BUFFER, format!("{spoils} (loop $l (br $l)) i32.const 0")),
        (with(&[2, 0, 0, 0]), "(i32.const 65533)", RESTORE.to_owned()),
        (with(&[2, 0, 0, 0]), "(i32.const -1)", RESTORE.to_owned()),
        (with(&[2, 0, 0, 0]), "(i32.const 0)", format!("{spoils} i32.const 0")),
        (with(&[2, 0, 0, 0]), "unreachable", RESTORE.to_owned()),
    ] {
        let mut bench = counter(1, SAVE, buffer, &restore);
        bench.module.restore(restored);
        assert_eq!([bench.verdict(), bench.verdict()], [Verdict::Forward; 2], "{buffer} {restore}");
        assert_eq!(bench.verdict(), DROPPED(DropReason::Module), "{buffer} {restore}");
        assert_eq!(bench.module.restarts(), 1, "{buffer} {restore}");
    }
}

#[test]
fn a_module_saves_its_own_memory_within_limits() {
    let most = snic_nts::MODULE_STATE_BYTES_MAX;
    let word = |start: u64, length: usize| format!("(i64.const {})", start << 32 | length as u64);
    for (save, bytes) in [
        (word(0, 0), Some(0)),
        (word(65_536, 0), Some(0)),
        (word(65_535, 1), Some(1)),
        (word(65_536, 1), None),
        (word(65_530, 7), None),
        (word(0, 65_537), None),
        (word(0xFFFF_FFFF, 0xFFFF_FFFF), None),
        ("unreachable".to_owned(), None),
        ("(loop $l (br $l)) (i64.const 0)".to_owned(), None),
        // It grows to what it names.
        (format!("(drop (memory.grow (i32.const 7))) {}", word(0, most)), Some(most)),
        (format!("(drop (memory.grow (i32.const 7))) {}", word(0, most + 1)), None),
        // Frames are made of packets only.
        (
            format!(
                "(drop (call $emit (i32.const 0) (i32.const 0) (i32.const 60))) {}",
                word(0, 0)
            ),
            Some(0),
        ),
    ] {
        let mut bench = counter(1, &save, BUFFER, RESTORE);
        bench.verdict();
        let saved = bench.module.save();
        assert_eq!(saved.map(|saved| saved.bytes.len()), bytes, "{save}");
        assert!(bench.emitted.is_empty());
    }
    let partial = r#"(func (export "snic_save") (result i64) (i64.const 0))"#;
    let why = refused(&text(FORWARD, partial));
    assert!(why.contains("it exports snic_save and not snic_state_version"), "{why}");
    let typed = state(1, SAVE, BUFFER, RESTORE)
        .replace("(param i32) (result i32) (i32.const 13000)", "(result i32) (i32.const 13000)");
    let why = refused(&text(FORWARD, &typed));
    assert!(why.contains("it does not export snic_restore_buffer as"), "{why}");
}
