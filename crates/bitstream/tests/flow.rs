//! The build flow as text: Vivado is not here, so its commands are stubs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use snic_bitstream::catalogue;
use snic_bitstream::manifest::{BuiltManifest, Manifest};
use snic_domain::{ChainIdentity, NtTypeId, RegionId};

fn flow() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bitstreams/flow")
}

/// What a program says; nothing where it is not installed.
fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("not run: {:?}: {error}", command.get_program());
            None
        }
    }
}

#[track_caller]
fn assert_success(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("snic-flow-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("manifests")).expect("a writable folder for temporary files");
        Self(path)
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a writable folder");
        path
    }

    fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.put(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an own file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_script_is_complete_and_the_flow_runs_against_stubs() {
    let folder = Folder::new("tcl");
    let lint = folder.put(
        "lint.tcl",
        "foreach file $argv {\n set channel [open $file]\n set text [read $channel]\n \
         if {![info complete $text]} { puts stderr \"$file is not complete\"; exit 1 }\n}\n",
    );
    let scripts: Vec<PathBuf> = ["tcl", "tests"]
        .iter()
        .flat_map(|folder| fs::read_dir(flow().join(folder)).expect("a folder of the flow"))
        .map(|entry| entry.expect("a file").path())
        .collect();
    assert!(scripts.len() >= 6, "{scripts:?}");
    let Some(output) = run(Command::new("tclsh").arg(lint).args(&scripts)) else { return };
    assert_success(&output);
    let output =
        run(Command::new("tclsh").arg(flow().join("tests/dry_run.tcl")).env("TMPDIR", &folder.0))
            .expect("tclsh ran a moment ago");
    assert!(assert_success(&output).lines().any(|line| line == "ok 61"));
}

/// Manifests are what the daemon writes, and a flow that reads them by hand may misread them.
#[test]
fn the_flow_reads_the_manifests_that_the_daemon_writes() {
    let catalogue = catalogue::builtin().expect("it ships");
    let folder = Folder::new("manifest");
    for (number, card) in catalogue.cards.iter().enumerate() {
        let nts: Vec<_> = catalogue.nt_types.iter().take(number % 4 + 1).collect();
        let ids: Vec<_> = nts.iter().map(|nt| nt.id.clone()).collect();
        let region = &card.regions[0];
        let area = nts.iter().map(|nt| nt.area).sum();
        let text =
            Manifest::new(card, &ids, region, area, vec![RegionId(0), RegionId(3)]).to_toml();
        let path = folder.put("chain.toml", &text);
        let script = format!(
            "source {{{}}}\nset m [::snic::manifest::load {{{}}}]\n\
             puts [dict get $m part]\nputs [join [dict get $m nts] ,]\n\
             puts [dict get $m constraints.bitstream_bytes_max]\nputs [dict get $m build_regions]\n",
            flow().join("tcl/manifest.tcl").display(),
            path.display()
        );
        let script = folder.put("read.tcl", &script);
        let Some(output) = run(Command::new("tclsh").arg(script)) else { return };
        let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
        let bytes = region.bitstream_max.get();
        let expected = format!("{}\n{}\n{bytes}\n0 3\n", card.part, names.join(","));
        assert_eq!(assert_success(&output), expected);
    }
}

/// The codes that the ROM of a region has are those that the daemon expects, and what the flow writes beside a
/// bitstream is what is uploaded with it.
#[test]
fn the_daemon_reads_what_the_flow_says_of_a_bitstream() {
    let catalogue = catalogue::builtin().expect("it ships");
    let folder = Folder::new("built");
    let (card, nts) =
        (&catalogue.cards[0], ["firewall", "aes"].map(|id| id.parse().expect("a label")));
    let region = &card.regions[0];
    let order = folder.put(
        "order.toml",
        &Manifest::new(card, &nts, region, region.area, vec![RegionId(0)]).to_toml(),
    );
    let script = format!(
        "source {{{0}/tcl/wrapper.tcl}}\nsource {{{0}/tcl/identity.tcl}}\n\
         ::snic::identity::save {{{1}}} {2} {{0 3}} {{{3}/built.toml}}\n\
         puts [::snic::identity::code firewall]\n",
        flow().display(),
        order.display(),
        ChainIdentity::from_words([1, 2, 3, 4]),
        folder.0.display(),
    );
    let script = folder.put("save.tcl", &script);
    let Some(output) = run(Command::new("tclsh").arg(script)) else { return };
    let code = assert_success(&output);
    let firewall: &NtTypeId = &nts[0];
    assert_eq!(code.trim_end(), format!("{:08x}", firewall.code().0));
    let text = fs::read_to_string(folder.0.join("built.toml")).expect("it was written");
    let built = BuiltManifest::parse(&text).expect("a manifest");
    let regions = vec![RegionId(0), RegionId(3)];
    let identity = ChainIdentity::from_words([1, 2, 3, 4]);
    let (card_model, region_kind) = (card.model.clone(), region.kind);
    let nts = nts.to_vec();
    assert_eq!(built, BuiltManifest { identity, regions, card_model, nts, region_kind });
}

/// From manifests to uploads, with other programs in the places of Vivado and the daemon's client.
#[test]
fn make_builds_signs_and_uploads_each_chain_once() {
    let catalogue = catalogue::builtin().expect("it ships");
    let folder = Folder::new("make");
    let card = &catalogue.cards[0];
    for (name, count) in [("one", 1), ("two+acme.x", 2)] {
        let nts: Vec<_> = catalogue.nt_types.iter().take(count).map(|nt| nt.id.clone()).collect();
        let region = &card.regions[0];
        let text = Manifest::new(card, &nts, region, region.area, vec![RegionId(0)]).to_toml();
        folder.put(&format!("manifests/{name}.toml"), &text);
    }
    folder.put("shell.conf", "part x\n");
    folder.put("regions.conf", "\n");
    // Writes what the flow would, and notes how it was called.
    let vivado = folder.program(
        "vivado",
        "#!/bin/sh\necho \"$@\" >> calls\nfor last; do :; done\nmkdir -p \"$last\"\n\
         case \"$*\" in *' shell '*) touch \"$last/static.dcp\";; \
         *) echo \"$last\" > \"$last/chain.region_0.bit\";; esac\n",
    );
    let snicctl = folder.program(
        "snicctl",
        "#!/bin/sh\nif [ \"$2\" = statement ]; then echo \"$*\"; else echo \"snicctl $*\" >> uploads; fi\n",
    );
    let key = folder.0.join("provider.key");
    let made =
        run(Command::new("openssl").args(["genpkey", "-algorithm", "ed25519", "-out"]).arg(&key));
    let make = |targets: &[&str]| {
        run(Command::new("make")
            .arg("-f")
            .arg(flow().join("Makefile"))
            .args(targets)
            .arg(format!("VIVADO={}", vivado.display()))
            .arg(format!("SNICCTL={}", snicctl.display()))
            .current_dir(&folder.0))
    };
    if made.is_none() {
        return;
    }
    let Some(output) = make(&["sign", "upload"]) else { return };
    assert_success(&output);
    let calls = fs::read_to_string(folder.0.join("calls")).expect("vivado was called");
    assert_eq!(calls.lines().count(), 3, "the shell once, each chain once: {calls}");
    assert!(calls.lines().next().is_some_and(|call| call.contains("-tclargs shell shell.conf")));
    let uploads = fs::read_to_string(folder.0.join("uploads")).expect("snicctl was called");
    let mut uploads: Vec<&str> = uploads.lines().collect();
    uploads.sort_unstable();
    let expected =
        |name: &str, file: &str| format!("snicctl bitstream upload {name} --folder build/{file}");
    assert_eq!(uploads, [expected("one", "one"), expected("two-acme-x", "two+acme.x")]);
    let signed = folder.0.join("build/one/chain.region_0.bit.statement");
    let signed = fs::read_to_string(signed).expect("it was signed");
    let base = "build/one/chain.region_0";
    assert_eq!(signed, format!("bitstream statement -f {base}.bit --manifest {base}.toml\n"));
    // What is up to date is left alone.
    assert_success(&make(&["sign", "upload"]).expect("make ran a moment ago"));
    let again = fs::read_to_string(folder.0.join("calls")).expect("it is there");
    assert_eq!(again, calls);
}

#[test]
fn the_interface_of_nts_passes_the_lint_of_verilator() {
    let folder = Folder::new("rtl");
    let chain = folder.put(
        "chain.tcl",
        &format!(
            "source {{{0}/tcl/manifest.tcl}}\nsource {{{0}/tcl/wrapper.tcl}}\n\
             source {{{0}/tcl/identity.tcl}}\n\
             puts [::snic::wrapper::text {{nts {{pass pass}} card_model m constraints.width_bits 512}} {1}]\n",
            flow().display(),
            ChainIdentity::from_words([1, 2, 3, 4]),
        ),
    );
    let Some(output) = run(Command::new("tclsh").arg(chain)) else { return };
    let chain = assert_success(&output).replace("nt_pass", "snic_nt_pass");
    let chain = folder.put("chain.sv", &chain);
    let top = folder.put(
        "top.sv",
        "module top (input logic clock, input logic reset);\n\
         snic_nt_stream packets_in (.clock, .reset);\n\
         snic_nt_stream packets_out (.clock, .reset);\n\
         snic_nt_control control [2] (.clock, .reset);\n\
         snic_nt_state state [2] (.clock, .reset);\n\
         logic [3:0] rom_address;\n logic [31:0] rom_data;\n\
         snic_chain chain (.clock, .reset, .rom_address, .rom_data, .packets_in, .packets_out, \
         .control, .state);\n\
         endmodule\n",
    );
    let output = run(Command::new("verilator")
        .args(["--lint-only", "-Wall", "-Wno-DECLFILENAME", "-Wno-UNUSED", "-Wno-UNDRIVEN"])
        .args(["--top-module", "top"])
        .arg(flow().join("rtl/snic_nt.sv"))
        .args([chain, top]));
    if let Some(output) = output {
        assert_success(&output);
    }
}
