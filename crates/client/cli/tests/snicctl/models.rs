//! `snicctl card models`: no server is asked.

use super::*;

/// Nobody listens there.
const NOBODY: &str = "http://127.0.0.1:1";
const NFV: &str = "name: nfv\nbandwidth: 100Gbps\npacket_sizes: [{bytes: 1024}]\nchain: check-ip-header -> l2-reflector\n";
const SMALL: &str = "name: web\nbandwidth: 10Gbps\nchain: nat -> firewall\n";

fn rows(line: &str, file: &str) -> Vec<serde_json::Value> {
    let run = with_input(NOBODY, &format!("{line} -o json"), file);
    assert_eq!(run.code, 0, "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

fn of<'a>(rows: &'a [serde_json::Value], model: &str) -> &'a serde_json::Value {
    rows.iter().find(|row| row["model"] == model).unwrap()
}

#[test]
fn every_known_model_is_listed_and_what_nobody_said_is_unknown() {
    let run = run(NOBODY, "card models");
    assert_eq!(run.code, 0, "{}", run.stderr);
    for model in ["sim-16", "u280", "bluefield-3", "speedster7t", "agilio-cx"] {
        let lines = run.stdout.lines().filter(|line| line.starts_with(&format!("{model} ")));
        assert_eq!(lines.count(), 1, "{model}: {}", run.stdout);
    }
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{}", run.stdout);
    let rows = rows("card models", "");
    assert_eq!(of(&rows, "agilio-cx")["luts"], serde_json::Value::Null);
    assert_eq!(of(&rows, "n5010")["released"], serde_json::Value::Null);
    assert_eq!(of(&rows, "u280")["regions"], 14);
    let run = with_input(NOBODY, "card models n5010", "");
    assert!(run.stdout.contains("released:      unknown"), "{}", run.stdout);
}

/// The core takes 49 cycles of 4 ns, NAT 12, the firewall 10.
#[test]
fn a_dag_is_planned_on_each_model_with_regions() {
    let rows = rows("card models -f -", SMALL);
    let sim = &of(&rows, "sim-16")["dag"];
    assert_eq!((&sim["fits"], &sim["takes"]), (&"yes".into(), &"1 of 16 regions".into()));
    assert_eq!(sim["latency_nanos"], (49 + 12 + 10) * 4);
    assert_eq!(sim["bandwidth_bps"], 100_000_000_000_u64);
    let built = of(&rows, "u280")["dag"]["takes"].as_str().unwrap();
    assert_eq!(built, "1 of 14 regions, once a bitstream is built of nat -> firewall");
    let unmeasured = &of(&rows, "bluefield-3")["dag"];
    assert_eq!(unmeasured["takes"], "not measured: nat, firewall");
    assert_eq!(unmeasured["bandwidth_bps"], serde_json::Value::Null);
    let unknown = &of(&rows, "speedster7t")["dag"];
    assert_eq!((&unknown["fits"], &unknown["latency_nanos"]), (&"unknown".into(), &().into()));
}

/// AES serves 30 Gbit/s and so has to be there twice for 60.
#[test]
fn a_bottleneck_shows_in_regions_and_bandwidth() {
    let rows = rows(
        "card models -f -",
        "name: w\nbandwidth: 60Gbps\npacket_sizes: [{bytes: 1500}]\nchain: aes\n",
    );
    let sim = &of(&rows, "sim-16")["dag"];
    assert_eq!(
        (&sim["takes"], &sim["bandwidth_bps"]),
        (&"2 of 16 regions".into(), &60_000_000_000_u64.into())
    );
}

#[test]
fn a_dag_that_was_measured_on_processors_gets_threads_and_buffers_with_reasons() {
    let run = with_input(NOBODY, "card models bluefield-3 -f -", NFV);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for text in [
        "DAG fits:      yes",
        "check-ip-header: DPA, 48 threads, packets in Arm memory: up to 101.052 Gbit/s",
        "by guideline 2",
        "not Arm, 4 threads",
        "packets in DPA memory: 50 Gbit/s at most",
    ] {
        assert!(run.stdout.contains(text), "{text}: {}", run.stdout);
    }
    let rows = rows("card models -f -", NFV);
    let sim = &of(&rows, "sim-16")["dag"];
    assert_eq!(sim["takes"], "not in the catalogue: check-ip-header, l2-reflector");
}

/// NAT was measured on no processor and the header check is in no catalogue: only a host with both cards
/// has a place for the DAG. AES of 30 Gbit/s needs two regions for 60.
#[test]
fn a_host_with_two_cards_places_each_nt_where_it_was_built_or_measured() {
    let mixed = "name: m\nbandwidth: 60Gbps\npacket_sizes: [{bytes: 1024}]\nchain: check-ip-header -> nat -> aes\n";
    let alone = rows("card models bluefield-3 -f -", mixed);
    assert_eq!(alone[0]["dag"]["fits"], "unknown");
    let both = rows("card models bluefield-3 --beside u250 -f -", mixed);
    let dag = &both[0]["dag"];
    assert_eq!(dag["fits"], "yes", "{dag}");
    assert_eq!(dag["takes"], "DPA, 29 threads, packets in Arm memory; 1 region; 2 regions");
    let much =
        mixed.replace("aes", "aes -> aes -> aes -> aes -> aes -> aes -> aes -> aes -> aes -> aes");
    let full = rows("card models bluefield-3 --beside u250 -f -", &much);
    assert_eq!(full[0]["dag"]["fits"], "no", "20 regions are there, 21 are needed");
    let run = with_input(NOBODY, "card models bluefield-3 --beside u251 -f -", mixed);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("no card profile u251"), "{}", run.stderr);
}

#[test]
fn mistakes_are_explained() {
    let run = with_input(NOBODY, "card models bluefield-9", "");
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("no card model bluefield-9"), "{}", run.stderr);
    assert!(run.stderr.contains("bluefield-3"), "{}", run.stderr);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, "[[models]]\nmodel = \"mine\"\nline_bps = 0\n").unwrap();
    let run = with_input(NOBODY, &format!("card models --models {}", folder.path().display()), "");
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains(&format!("{}:3: line_bps", file.display())), "{}", run.stderr);
    let run = with_input(NOBODY, "card models -f -", "name: web\nbandwidth: 1Gbps\n");
    assert_eq!(run.code, 2, "{}", run.stderr);
}
