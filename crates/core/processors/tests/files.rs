//! The files of card models: what is in them, and how mistakes are reported.

use snic_processors::{
    Architecture, MemoryKind, NicModel, ProcessorKind, builtin, parse, with_folder,
};

fn model(name: &str) -> NicModel {
    let models = builtin().expect("our own files");
    models.into_iter().find(|model| model.model.as_str() == name).expect("a model")
}

/// The tutorial's Table 2.1 has sixteen rows.
#[test]
fn the_inventory_has_every_row_of_the_table_once() {
    let models = builtin().expect("our own files");
    assert_eq!(models.len(), 16);
    for one in &models {
        let same = models.iter().filter(|other| other.model == one.model).count();
        assert_eq!(same, 1, "{}", one.model);
    }
    let of = |architecture| models.iter().filter(|one| one.architecture == architecture).count();
    let kinds =
        [Architecture::Fpga, Architecture::Soc, Architecture::SocFpga, Architecture::Asic].map(of);
    assert_eq!(kinds, [6, 7, 2, 1]);
    let total: f64 = models.iter().map(|one| one.line.gbps_f64()).sum();
    // 400+100+100+100+400+200, 200+800+100+100+200+400+100, 200+200, 40.
    assert!((total - 3_640.0).abs() < 1e-9, "{total}");
}

#[test]
fn what_the_table_does_not_say_is_unknown() {
    let netronome = model("agilio-cx");
    let cores = &netronome.processors[0];
    assert_eq!((cores.cores, cores.usable(), cores.clock_hz), (None, None, None));
    assert_eq!(model("n5010").released, None);
    assert_eq!(model("n6000-pl").programming, None);
    assert!(model("sn1000").luts.is_none());
}

#[test]
fn bluefield_3_has_three_processors_and_the_threads_that_its_driver_allows() {
    let card = model("bluefield-3");
    let usable = |kind| card.processor(kind).and_then(snic_processors::Processor::usable);
    assert_eq!(usable(ProcessorKind::Dpa), Some(190));
    assert_eq!(usable(ProcessorKind::Arm), Some(16));
    assert_eq!(usable(ProcessorKind::Host), Some(32));
    let dpa = card.processor(ProcessorKind::Dpa).expect("it has one");
    assert_eq!(dpa.threads.map(u32::from), Some(256));
    assert_eq!(dpa.path(MemoryKind::Arm).and_then(|path| path.read), None, "it is not printed");
}

const MINE: &str = r#"
[[models]]
model = "mine"
vendor = "me"
name = "Mine"
architecture = "soc"
line_bps = 100_000_000_000
pcie = "PCIe 4.0"

[[models.processors]]
kind = "arm"
name = "Arm"
cores = 8
[[models.processors.memories]]
memory = "arm"

[[models.implementations]]
nt = "nat"
on = "arm"
[[models.implementations.measured]]
packet_bytes = 1_024
threads = 8
network = "arm"
bandwidth_bps = 10_000_000_000
"#;

#[test]
fn a_mistake_is_reported_with_file_line_and_key() {
    let cases = [
        ("line_bps = 100_000_000_000", "line_bps = 0", "mine.toml:7: line_bps:"),
        ("cores = 8", "cores = -1", "mine.toml:13: cores:"),
        ("cores = 8", "coresn = 8", "mine.toml:13: coresn:"),
        (
            "cores = 8",
            "threads = 4\nthreads_usable = 5",
            "mine.toml:10: processors.threads_usable: 5 ",
        ),
        ("on = \"arm\"", "on = \"dpa\"", "mine.toml:17: implementations.on: mine has no DPA"),
        (
            "network = \"arm\"",
            "network = \"host\"",
            "mine.toml:17: implementations.measured.network: host memory is not",
        ),
        ("packet_bytes = 1_024", "packet_bytes = 0", "mine.toml:21: packet_bytes:"),
        (
            "[[models.implementations]]",
            "[[models.processors]]\nkind = \"arm\"\nname = \"again\"\n[[models.implementations]]",
            "mine.toml:17: processors.kind: Arm is a duplicate",
        ),
        (
            "memory = \"arm\"",
            "memory = \"arm\"\n[[models.processors.memories]]\nmemory = \"arm\"",
            "mine.toml:10: processors.memories: Arm memory is a duplicate",
        ),
    ];
    assert_eq!(parse("mine.toml", MINE).expect("valid").len(), 1);
    for (good, bad, expected) in cases {
        let text = MINE.replacen(good, bad, 1);
        assert_ne!(text, MINE, "{bad}");
        let error = parse("mine.toml", &text).expect_err(bad).to_string();
        assert!(error.starts_with(expected), "{error}, expected {expected}");
    }
    let twice = format!("{MINE}{MINE}");
    let error = parse("mine.toml", &twice).expect_err("twice").to_string();
    assert!(error.contains("mine is a duplicate"), "{error}");
}

#[test]
fn a_model_of_a_folder_takes_the_place_of_one_that_is_compiled_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let mine = MINE.replace("\"mine\"", "\"bluefield-2\"");
    std::fs::write(folder.path().join("a.toml"), mine).expect("a file");
    std::fs::write(folder.path().join("b.toml"), MINE).expect("a file");
    std::fs::write(folder.path().join("notes.txt"), "no TOML [").expect("a file");
    let models = with_folder(Some(folder.path())).expect("valid");
    assert_eq!(models.len(), 17);
    let old = models.iter().find(|model| model.model.as_str() == "bluefield-2").expect("listed");
    assert_eq!(old.vendor, "me");
    let missing = with_folder(Some(&folder.path().join("missing"))).expect_err("no folder");
    assert!(missing.to_string().contains("missing"), "{missing}");
}
