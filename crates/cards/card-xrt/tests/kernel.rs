//! The kernel of the build flow (`bitstreams/flow/rtl`) against what this crate drives: names, addresses and protocol
//! as text, and its behaviour in a simulation.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use snic_card_xrt::{CONTROL, FIRST_REGISTER, REGISTERS_BYTES};

fn flow(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bitstreams/flow").join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(flow(path)).expect("a file of the flow")
}

/// Text between two texts, the first time.
#[track_caller]
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no {after:?} behind {before:?}")).0.trim()
}

fn hexadecimal(text: &str) -> u64 {
    let digits = text.trim_start_matches("0x").trim_start_matches("'h");
    u64::from_str_radix(digits, 16).expect("a hexadecimal number")
}

/// The ports of the module at the top of a Verilog file: direction, width in bits as written, name.
fn ports(verilog: &str) -> BTreeSet<(String, String, String)> {
    let port = |line: &str| {
        let line = line.trim().trim_end_matches(',');
        let (direction, rest) = line.split_once(char::is_whitespace)?;
        let rest = rest.trim().strip_prefix("wire")?.trim();
        let (width, name) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let is_port = matches!(direction, "input" | "output");
        is_port.then(|| (direction.to_owned(), width.to_owned(), name.trim().to_owned()))
    };
    between(verilog, "module snic_control", ");\n    localparam").lines().filter_map(port).collect()
}

#[test]
fn its_registers_are_where_the_driver_looks_for_them() {
    let (verilog, xml) = (text("rtl/snic_control.v"), text("rtl/kernel.xml"));
    let first = between(&verilog, "] FIRST    = ", ";");
    assert_eq!(hexadecimal(first), FIRST_REGISTER, "{first}");
    let bits: u32 =
        between(&verilog, "parameter ADDRESS_BITS = ", " ").parse().expect("a number of bits");
    let range = hexadecimal(between(&xml, "name=\"s_axi_control\" mode=\"slave\" range=\"", "\""));
    assert_eq!(range, 1 << bits, "what XRT may access is what the kernel decodes");
    assert!(range >= REGISTERS_BYTES, "{range:#x} bytes for a map of {REGISTERS_BYTES:#x}");
    let argument = hexadecimal(between(&verilog, "] ARGUMENT = ", ";"));
    let named = between(&xml, "<arg name=\"buffer\"", "/>");
    assert_eq!(hexadecimal(between(named, " offset=\"", "\"")), argument);
    let size = hexadecimal(between(named, " size=\"", "\""));
    assert!(argument >= 0x10 && argument + size <= FIRST_REGISTER, "{argument:#x}, {size} bytes");
}

#[test]
fn it_has_the_name_the_protocol_and_the_ports_that_are_said_of_it() {
    let (verilog, xml) = (text("rtl/snic_control.v"), text("rtl/kernel.xml"));
    let script = text("tcl/kernel.tcl");
    let kernel = between(&script, "variable name ", "\n");
    assert_eq!(format!("{kernel}:{}", between(&script, "variable instance ", "\n")), CONTROL);
    assert_eq!(between(&xml, "<kernel name=\"", "\""), kernel);
    assert!(verilog.contains(&format!("\nmodule {kernel} #(")));
    assert_eq!(between(&xml, "hwControlProtocol=\"", "\""), "ap_ctrl_hs");
    // The core that is packaged is the one that the description names.
    let core = between(&script, "ipx::package_project", "\n");
    let (vendor, library) = (between(core, "-vendor ", " "), between(core, "-library ", " "));
    assert_eq!(between(&xml, "vlnv=\"", "\""), format!("{vendor}:{library}:{kernel}:1.0"));

    let ports = ports(&verilog);
    let has = |direction: &str, width: &str, name: &str| {
        ports.contains(&(direction.to_owned(), width.to_owned(), name.to_owned()))
    };
    assert!(has("input", "", "ap_clk") && has("input", "", "ap_rst_n"), "{ports:?}");
    let described: Vec<&str> = xml.split("<port ").skip(1).collect();
    let mut names: Vec<&str> =
        described.iter().map(|port| between(port, "name=\"", "\"")).collect();
    for port in &described {
        let name = between(port, "name=\"", "\"");
        let bits: u32 = between(port, "dataWidth=\"", "\"").parse().expect("a number");
        let last = format!("{}:0", bits - 1);
        let (direction, data) = match between(port, "mode=\"", "\"") {
            "slave" => ("input", "_wdata"),
            "master" => ("output", "_wdata"),
            "read_only" => ("input", "_tdata"),
            _ => ("output", "_tdata"),
        };
        assert!(
            has(direction, &last, &format!("{name}{data}")),
            "{name}: {direction}, {bits} bits"
        );
    }
    // Each is on the clock, and no port of the module is left out.
    let clocked = between(&script, "variable interfaces {", "}");
    assert_eq!(clocked.split_whitespace().collect::<Vec<_>>(), names);
    names.extend(["ap_clk", "ap_rst_n"]);
    let lost = ports.iter().find(|(_, _, port)| !names.iter().any(|name| port.starts_with(name)));
    assert_eq!(lost, None);
}

/// Handshake and argument are the kernel's, all from the first register of the map to the last is the shell's.
#[test]
#[ignore = "ci: needs Verilator"]
fn it_answers_in_a_simulation_as_xrt_and_the_driver_expect() {
    let folder = tempfile::tempdir().expect("a folder");
    let built = Command::new("verilator")
        .args(["--binary", "-Wno-fatal", "--top-module", "snic_control_tb", "-Mdir"])
        .arg(folder.path())
        .arg(format!("-GFIRST={FIRST_REGISTER}"))
        .arg(format!("-GLAST={}", REGISTERS_BYTES - 4))
        .args([flow("rtl/snic_control.v"), flow("tests/snic_control_tb.sv")])
        .output();
    let built = match built {
        Ok(built) => built,
        Err(error) => return println!("not run: verilator: {error}"),
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(folder.path().join("Vsnic_control_tb")).output().expect("it was built");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.lines().any(|line| line == "ok 147"), "{said}");
}

/// As Vivado reads it: no inferred latch, no width that is not said.
#[test]
#[ignore = "ci: needs Verilator"]
fn it_passes_the_lint_of_verilator() {
    let linted = Command::new("verilator")
        .args(["--lint-only", "-Wall", "-Wno-DECLFILENAME", "--bbox-unsup"])
        .args(["-Wno-MODMISSING", "--top-module", "snic_control"])
        .args([flow("rtl/snic_control.v"), flow("tests/snic_control_tb.sv")])
        .output();
    let Ok(linted) = linted else { return println!("not run: verilator is not installed") };
    let said = String::from_utf8_lossy(&linted.stderr);
    // The simulation's own file is not for Vivado.
    let of_kernel: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with('%') && line.contains("snic_control.v"))
        .collect();
    assert!(of_kernel.is_empty(), "{of_kernel:?}");
    assert!(!said.contains("Cannot find"), "{said}");
}
