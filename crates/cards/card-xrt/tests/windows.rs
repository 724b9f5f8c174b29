//! The windows of NTs in SystemVerilog (`bitstreams/flow/rtl/snic_nt_configuration.sv`) beside the model that the driver is
//! tried against: the same accesses, and the same answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use snic_domain::DagUid;
use snic_ports::card::windows::{NtWindows, WORDS_MAX};
use snic_tables::registers::{
    Address, NT_APPEND, NT_BEGIN, NT_COMMAND, NT_COUNT, NT_DATA, NT_DATA_WORDS, NT_DONE, NT_KEEP,
    NT_REFUSED, NT_STATUS, NT_TAG, NT_TAKE, NT_UID, NT_WORDS_MAX, WINDOW, WINDOW_SELECT, window,
};

/// NTs of the simulation that take configurations: region and slot.
const NTS: [(u8, u8); 3] = [(0, 0), (0, 1), (1, 0)];
/// Configurations that an NT of the simulation holds.
const HELD: usize = 16;

fn flow(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bitstreams/flow").join(path)
}

/// A simulation that follows files.
struct Simulation(tempfile::TempDir);

impl Simulation {
    /// `None` where there is no Verilator.
    fn build() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let built = Command::new("verilator")
            .args(["--binary", "-Wno-fatal", "--top-module", "snic_nt_configuration_tb", "-Mdir"])
            .arg(folder.path())
            .arg(format!("-GSELECT={WINDOW_SELECT}"))
            .arg(format!("-GWINDOW={WINDOW}"))
            .arg(format!("-GWORDS={WORDS_MAX}"))
            .arg(format!("-GHELD={HELD}"))
            .args(["rtl/snic_nt.sv", "rtl/snic_nt_configuration.sv"].map(flow))
            .arg(flow("tests/snic_nt_configuration_tb.sv"))
            .output();
        let built = match built {
            Ok(built) => built,
            Err(error) => {
                println!("not run: verilator: {error}");
                return None;
            }
        };
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(Self(folder))
    }

    /// Follows the lines; how many checks it made.
    fn follow(&self, lines: &str) -> usize {
        let path = self.0.path().join("accesses");
        std::fs::write(&path, lines).expect("a writable folder");
        let program = self.0.path().join("Vsnic_nt_configuration_tb");
        let ran = Command::new(program)
            .arg(format!("+follow={}", path.display()))
            .output()
            .expect("it was built");
        let said = String::from_utf8_lossy(&ran.stdout);
        let line = |text: &str| lines.lines().nth(text.parse::<usize>().ok()? - 1);
        let at = said.split_once("line ").and_then(|(_, rest)| line(rest.split(' ').next()?));
        assert!(ran.status.success(), "{said} {at:?}");
        let checks = said.lines().find_map(|line| line.strip_prefix("ok "));
        checks.and_then(|checks| checks.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    }
}

/// The model, and what it was asked and answered as lines for the simulation.
struct Recorded {
    model: NtWindows,
    lines: String,
}

impl Recorded {
    fn new() -> Self {
        let mut model = NtWindows::default();
        fill(&mut model);
        Self { model, lines: String::new() }
    }

    fn line(&mut self, kind: char, numbers: &[u32]) {
        let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:x}")).collect();
        writeln!(self.lines, "{kind} {}", numbers.join(" ")).expect("a text takes all");
    }

    fn select(&mut self, select: u32) {
        self.line('w', &[WINDOW_SELECT, select]);
        self.model.show(select);
    }

    fn write(&mut self, register: Address, value: u32) {
        self.line('w', &[WINDOW + register, value]);
        self.model.write(register, value);
    }

    fn read(&mut self, register: Address) -> u32 {
        let value = self.model.read(register);
        self.line('r', &[WINDOW + register, value]);
        value
    }

    fn command(&mut self, command: u32) -> u32 {
        self.model.write(NT_COMMAND, command);
        let status = self.model.read(NT_STATUS);
        self.line('c', &[command, status]);
        status
    }

    fn name(&mut self, uid: u32, tag: u32) {
        self.write(NT_UID, uid);
        self.write(NT_TAG, tag);
    }

    /// Writes the data of all windows: what they hold after a load is nobody's to say.
    fn write_all(&mut self, rng: &mut ChaCha8Rng) {
        for (region, slot) in NTS {
            self.select(window(region, slot));
            (0..NT_DATA_WORDS as u32).for_each(|at| self.write(NT_DATA + 4 * at, rng.random()));
        }
    }

    /// Packets ask for all that is held, word by word where there are few, and for something that is not.
    fn packets(&mut self, rng: &mut ChaCha8Rng) {
        let held = self.model.held();
        for one in held {
            let nt = NTS.iter().position(|nt| *nt == (one.region, one.slot)).expect("one of them");
            self.line('p', &[nt as u32, one.uid, one.tag, 1]);
            for _ in 0..one.words.len().min(3) {
                let index = rng.random_range(0..one.words.len());
                self.line('d', &[index as u32, one.words[index]]);
            }
            self.line('p', &[nt as u32, one.uid ^ 1 << 31, one.tag, 0]);
        }
    }
}

fn fill(model: &mut NtWindows) {
    model.filled(0, [0, 1]);
    model.filled(1, [0]);
}

/// Number of times that each command ended in each state.
type Seen = BTreeMap<(u32, u32), usize>;

/// Accesses of a host that does what it likes; rows are few, so that names meet, and no NT gets more than it has room for.
fn random(seed: u64, steps: usize, seen: &mut Seen) -> Recorded {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut host = Recorded::new();
    let names: Vec<(u32, u32)> = (0..5)
        .flat_map(|row| (1..3).map(move |incarnation| DagUid::new(row, incarnation)))
        .flat_map(|uid| (0..3).map(move |tag| (uid.expect("it fits").raw(), tag)))
        .collect();
    host.read(NT_STATUS);
    for _ in 0..steps {
        match rng.random_range(0..20) {
            0 => host
                .select(*[0, 1, 0x100, 0x101, 0x200, 2, 0x1_0000].choose(&mut rng).expect("one")),
            1 => {
                _ = host
                    .read(*[NT_WORDS_MAX, NT_COUNT, NT_TAG, NT_DATA].choose(&mut rng).expect("one"))
            }
            2 if rng.random_range(0..20) == 0 => {
                host.lines.push_str("z\n");
                fill(&mut host.model);
                host.write_all(&mut rng);
            }
            2..=4 => {
                let at = rng.random_range(0..NT_DATA_WORDS as u32);
                host.write(NT_DATA + 4 * at, rng.random::<u32>() | 1 << 31);
            }
            5..=8 => {
                let (uid, tag) = *names.choose(&mut rng).expect("one of them");
                host.name(uid, tag);
            }
            9 => {
                let most = NT_DATA_WORDS as u32;
                let counts = [0, 1, 2, 7, most - 1, most, most + 1, u32::MAX, 1 << 16];
                host.write(NT_COUNT, *counts.choose(&mut rng).expect("one"));
            }
            10 => host.packets(&mut rng),
            _ => {
                let commands = [0, NT_KEEP, NT_BEGIN, NT_BEGIN, NT_APPEND, NT_APPEND, NT_TAKE, 5];
                let command = *commands.choose(&mut rng).expect("one");
                *seen.entry((command, host.command(command))).or_default() += 1;
            }
        }
    }
    host.packets(&mut rng);
    host
}

/// The window does what the model does, whatever a host writes.
#[test]
#[ignore = "ci: needs Verilator"]
fn the_windows_in_hardware_answer_as_the_model_does() {
    let Some(simulation) = Simulation::build() else { return };
    let mut seen = Seen::new();
    for seed in 0..40 {
        let recorded = random(seed, 2_000, &mut seen);
        assert!(simulation.follow(&recorded.lines) > 500, "seed {seed}");
    }
    for command in [NT_BEGIN, NT_APPEND, NT_TAKE, NT_KEEP] {
        assert!(seen.contains_key(&(command, NT_DONE)), "{command}: {seen:?}");
    }
    for command in [0, NT_APPEND, NT_TAKE] {
        assert!(seen.contains_key(&(command, NT_REFUSED)), "{command}: {seen:?}");
    }
}

/// Things that the model has not: an end of room, an NT that refuses words, registers of the NT, half words.
#[test]
#[ignore = "ci: needs Verilator"]
fn a_window_has_an_end_of_room_and_the_task_the_last_word() {
    let Some(simulation) = Simulation::build() else { return };
    let mut lines = String::new();
    let mut line = |text: String| lines.push_str(&(text + "\n"));
    let at = |register| WINDOW + register;
    line(format!("w {WINDOW_SELECT:x} {:x}", window(0, 1)));
    // A register that is the NT's own, and one that nobody has.
    line(format!("w {:x} 1234", at(0x40)));
    line(format!("r {:x} 1234", at(0x40)));
    line(format!("w {:x} 1234", at(0x18)));
    line(format!("r {:x} 0", at(0x18)));
    // Longer than what has room, in pieces.
    line(format!("w {:x} {NT_DATA_WORDS:x}", at(NT_COUNT)));
    line(format!("c {NT_BEGIN:x} {NT_DONE:x}"));
    for _ in 0..WORDS_MAX / NT_DATA_WORDS {
        line(format!("c {NT_APPEND:x} {NT_DONE:x}"));
    }
    line(format!("c {NT_APPEND:x} {NT_REFUSED:x}"));
    // What this task does not accept, and then what it does: in the same place.
    line(format!("w {:x} badc0de", at(NT_DATA)));
    line(format!("w {:x} 1", at(NT_COUNT)));
    line(format!("w {:x} 401", at(NT_UID)));
    for (word, status) in [(0xbad_c0de, NT_REFUSED), (7, NT_DONE)] {
        line(format!("w {:x} {word:x}", at(NT_DATA)));
        line(format!("c {NT_BEGIN:x} {NT_DONE:x}"));
        line(format!("c {NT_APPEND:x} {NT_DONE:x}"));
        line(format!("c {NT_TAKE:x} {status:x}"));
        line(format!("p 1 401 0 {:x}", u32::from(status == NT_DONE)));
    }
    line("d 0 7".to_owned());
    // Others until there is no room, and room again once one is forgotten.
    for row in 2..=HELD {
        line(format!("w {:x} {:x}", at(NT_UID), 0x400 + row));
        line(format!("c {NT_BEGIN:x} {NT_DONE:x}"));
        line(format!("c {NT_TAKE:x} {NT_DONE:x}"));
    }
    line(format!("c {NT_BEGIN:x} {NT_REFUSED:x}"));
    line(format!("w {:x} 1", at(NT_TAG)));
    line(format!("c {NT_KEEP:x} {NT_DONE:x}"));
    line(format!("c {NT_BEGIN:x} {NT_DONE:x}"));
    line("p 1 401 0 1".to_owned());
    assert!(simulation.follow(&lines) > 60);
}

/// As Vivado reads it: no inferred latch, no width that is not said.
#[test]
#[ignore = "ci: needs Verilator"]
fn the_windows_pass_the_lint_of_verilator() {
    let linted = Command::new("verilator")
        .args(["--lint-only", "-Wall", "-Wno-DECLFILENAME", "--top-module"])
        .arg("snic_nt_configuration_tb")
        .args(["rtl/snic_nt.sv", "rtl/snic_nt_configuration.sv"].map(flow))
        .arg(flow("tests/snic_nt_configuration_tb.sv"))
        .output();
    let Ok(linted) = linted else { return println!("not run: verilator is not installed") };
    let said = String::from_utf8_lossy(&linted.stderr);
    // The simulation's own file is not for Vivado.
    let of_windows = |line: &&str| line.starts_with('%') && line.contains("rtl/");
    let found: Vec<&str> = said.lines().filter(of_windows).collect();
    assert!(found.is_empty() && !said.contains("Cannot find"), "{said}");
}
