//! The build flow as text: Vivado is not here, so its commands are stubs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use snic_bitstream::catalogue;
use snic_bitstream::manifest::{BuiltManifest, Manifest};
use snic_bitstream::signature::{Signatures, Trust};
use snic_bitstream::xclbin::TestRole;
use snic_domain::{ChainIdentity, Digest, NtTypeId, RegionId};
use uuid::Uuid;

fn flow() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bitstreams/flow")
}

/// Output of a program; nothing where it is not installed.
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
    assert!(assert_success(&output).lines().any(|line| line == "ok 89"));
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

/// `make`, with the variables of a role for XRT.
fn make_role(folder: &Folder, arguments: &[&str]) -> Option<Output> {
    run(Command::new("make")
        .arg("-f")
        .arg(flow().join("Makefile"))
        .args(["ROUTE=vitis", "ROUTED=routed.dcp", "SYNTHESISED=ulp.dcp", "MODEL=u280"])
        .args(arguments)
        .current_dir(&folder.0))
}

/// Commands that make would run, a line each.
#[track_caller]
fn dry_run(output: &Output) -> Vec<String> {
    let joined = assert_success(output).replace("\\\n", " ");
    joined.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn make_says_what_a_role_takes_before_it_does_anything() {
    let folder = Folder::new("dry");
    folder.put("shell.conf", "");
    folder.put("regions.conf", "");
    folder.put("manifests/one.toml", "");
    folder.put("mac.xo", "");
    folder.put("mac.cfg", "");
    let all = ["-n", "sign-role", "chains", "KERNELS=mac.xo", "LINK_CONFIG=mac.cfg"];
    let Some(output) = make_role(&folder, &all) else { return };
    let said = dry_run(&output);
    let steps: Vec<&str> = said
        .iter()
        .filter_map(|line| {
            let step = [
                ("-tclargs kernel shell.conf regions.conf build/role", "kernel"),
                ("--output build/role/linked.xclbin", "link"),
                ("-tclargs role shell.conf regions.conf routed.dcp ulp.dcp build/shell", "divide"),
                ("--reuse_impl build/shell/role.dcp --output build/role/role.xclbin", "link again"),
                ("xclbinutil --force --input build/role/role.xclbin", "look"),
                ("statement -f build/role/role.xclbin --role u280", "state"),
                ("pkeyutl -sign -rawin -inkey provider.key", "sign"),
                ("-tclargs chain shell.conf", "chain"),
            ];
            step.iter().find(|(text, _)| line.contains(text)).map(|(_, step)| *step)
        })
        .collect();
    let expected = ["kernel", "link", "divide", "link again", "look", "state", "sign", "chain"];
    assert_eq!(steps, expected, "{said:#?}");
    let links: Vec<&String> = said.iter().filter(|line| line.starts_with("v++ --link")).collect();
    assert_eq!(links.len(), 2);
    for link in links {
        assert!(
            link.contains("--target hw --config build/role/link.cfg --config mac.cfg"),
            "{link}"
        );
        assert!(link.contains("build/role/snic_control.xo mac.xo"), "{link}");
    }
    // The other way: one run of Vivado, nothing of Vitis, and no xclbin by accident.
    let shell = make_role(&folder, &["-n", "shell", "chains", "ROUTE=vivado"]).expect("it ran");
    let said = dry_run(&shell);
    assert!(said.iter().any(|line| line.contains("-tclargs shell shell.conf")), "{said:#?}");
    assert!(!said.iter().any(|line| line.contains("v++") || line.contains("xclbin")), "{said:#?}");
}

#[test]
fn make_names_what_is_missing_for_a_role() {
    let folder = Folder::new("missing");
    folder.put("shell.conf", "");
    folder.put("regions.conf", "");
    for (arguments, says) in [
        (["role", "ROUTED="], "ROUTED is not set"),
        (["role", "SYNTHESISED="], "SYNTHESISED is not set"),
        (["sign-role", "MODEL="], "MODEL is not set"),
        (["role", "ROUTE=both"], "ROUTE = both is not allowed; it is vivado or vitis"),
        (["role", "ROUTE=vivado"], "an xclbin is made with ROUTE=vitis"),
    ] {
        let tools = ["VIVADO=true", "VPP=true", "XCLBINUTIL=true", "SNICCTL=true", "OPENSSL=true"];
        let Some(output) = make_role(&folder, &[&arguments[..], &tools[..]].concat()) else {
            return;
        };
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{arguments:?}: {error}");
    }
}

/// From the sources of a kernel to a signature that the daemon takes, with other programs in the places of the
/// vendor's.
#[test]
fn make_links_a_role_twice_and_signs_what_came_out() {
    let catalogue = catalogue::builtin().expect("it ships");
    let folder = Folder::new("role");
    folder.put("shell.conf", "");
    folder.put("regions.conf", "");
    let card = &catalogue.cards[0];
    let made = TestRole {
        uuid: Uuid::from_u128(5),
        interface: Uuid::from_u128(6),
        platform: "xilinx_u280_gen3x16_xdma_base_1",
        control: "snic_control:control_0",
        registers_bytes: 1 << 22,
        memory_kibibytes: 1 << 20,
    };
    let made = made.build(card).expect("a role");
    fs::write(folder.0.join("made"), &made).expect("a writable folder");
    let log = "echo \"$(basename \"$0\") $*\" >> calls\nfor last; do :; done\n";
    let program = |name: &str, text: &str| {
        format!(
            "{}={}",
            name.to_uppercase(),
            folder.program(name, &format!("#!/bin/sh\n{log}{text}")).display()
        )
    };
    let tools = [
        program(
            "vivado",
            "mkdir -p \"$last\"\ncase \"$*\" in *' kernel '*) touch \"$last/snic_control.xo\" \"$last/link.cfg\";; \
             *) touch \"$last/static.dcp\" \"$last/role.dcp\";; esac\n",
        ),
        program("vpp", "cp made \"$last\"\n"),
        program("xclbinutil", ""),
        program("snicctl", "echo \"snic-bitstream-v1 $(sha256sum < \"$4\" | cut -d' ' -f1)\"\n"),
    ];
    let key = folder.0.join("provider.key");
    let pem = folder.0.join("provider.pem");
    let genpkey = ["genpkey", "-algorithm", "ed25519", "-out"];
    if run(Command::new("openssl").args(genpkey).arg(&key)).is_none() {
        return;
    }
    run(Command::new("openssl").args(["pkey", "-pubout", "-in"]).arg(&key).arg("-out").arg(&pem))
        .expect("openssl ran a moment ago");
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let Some(output) = make_role(&folder, &[&["sign-role"][..], &tools[..]].concat()) else {
        return;
    };
    assert_success(&output);
    let calls = fs::read_to_string(folder.0.join("calls")).expect("programs were called");
    let programs: Vec<&str> =
        calls.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(programs, ["vivado", "vpp", "vivado", "vpp", "xclbinutil", "snicctl"], "{calls}");

    let keys = Signatures { provider: vec![pem], ..Signatures::default() };
    let trust = Trust::read(&keys).expect("a key");
    let signature = fs::read(folder.0.join("build/role/role.xclbin.sig")).expect("it was signed");
    trust.signer_of_role(Digest::of(&made), &signature).expect("the provider's");
    assert!(trust.signer_of_role(Digest::of(b"other"), &signature).is_err());
    // What is up to date is left alone, and another floor plan needs no other kernel and no first link.
    assert_success(&make_role(&folder, &[&["sign-role"][..], &tools[..]].concat()).expect("again"));
    assert_eq!(fs::read_to_string(folder.0.join("calls")).expect("still there"), calls);
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    let regions = fs::File::options().append(true).open(folder.0.join("regions.conf"));
    regions.and_then(|file| file.set_modified(later)).expect("an own file");
    assert_success(&make_role(&folder, &[&["sign-role"][..], &tools[..]].concat()).expect("again"));
    let all = fs::read_to_string(folder.0.join("calls")).expect("still there");
    let since: Vec<&str> =
        all[calls.len()..].lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(since, ["vivado", "vpp", "xclbinutil", "snicctl"], "{all}");
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
