//! Commands of the README and of the pages for tenants, operators and researchers, word
//! for word and in their order, on a machine where nothing is set up yet: namespaces with an `/etc`, a `/var/lib`, a home
//! and process numbers of their own. Only `cargo` is another: it finds the programs of this build.

mod page;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use page::{Block, blocks};
use snic_integration::program;

/// Longest time of the commands of a page, in seconds.
const PATIENCE: &str = "240";

/// `cargo run` and `cargo build` for programs that are named: a reader's build, without the wait.
const CARGO: &str = r#"#!/bin/bash
set -e
command=$1; shift
folder=debug; names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --bin) names+=("$2"); shift;;
    --release) folder=release;;
    --profile) folder=$2; shift;;
    --features) shift;;
    *) echo "cargo $command: $1 is not understood" >&2; exit 1;;
  esac
  shift
done
[ ${#names[@]} -gt 0 ] || { echo "cargo $command: no program is named" >&2; exit 1; }
mkdir -p "target/$folder"
for name in "${names[@]}"; do ln -sf "$PROGRAMS/$name" "target/$folder/$name"; done
if [ "$command" = run ]; then shift; exec "target/$folder/${names[0]}" "$@"; fi
"#;

/// The machine before the first command. The shell is the first process of its namespace: when it ends, all others do.
const MACHINE: &str = r#"set -e
shopt -s expand_aliases
ip link set lo up
cp -a /etc "$MACHINE/etc"; rm -rf "$MACHINE/etc/snic"; mount --bind "$MACHINE/etc" /etc
mount -t tmpfs tmpfs /var/lib
background() { # NAME, READY: waits until its log has the text
  for _ in $(seq 1200); do
    if grep -q -- "$2" "$MACHINE/$1.log"; then return; fi
    jobs %% > "$MACHINE/jobs" 2>&1 || true
    if ! grep -q Running "$MACHINE/jobs"; then break; fi
    sleep 0.05
  done
  echo "it does not say '$2':"; cat "$MACHINE/$1.log"; return 1
}
"#;

/// Why this machine cannot have others in it.
fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root");
    }
    let there = |name: &&str| {
        ["/usr/sbin", "/usr/bin", "/sbin"].iter().any(|at| Path::new(at).join(name).exists())
    };
    (!["bash", "unshare", "ip", "mount"].iter().all(there))
        .then_some("it needs bash, unshare, mount and ip")
}

/// The project's folder.
fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is here")
}

fn read(page: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(project().join(page)).expect("the page is there");
    let blocks = blocks(&text).unwrap_or_else(|why| panic!("{page}: {why}"));
    assert!(blocks.iter().any(|block| matches!(block, Block::Run(_))), "{page} has no commands");
    blocks
}

/// The words that a command in the background says when the next may begin.
fn ready(line: &str) -> &'static str {
    match line {
        line if line.contains(" quickstart") => "press Ctrl-C",
        line if line.starts_with("snicd run ") => " serving",
        _ => panic!("how is it seen that `{line}` is ready?"),
    }
}

/// Script for the shell.
fn script(blocks: &[Block]) -> String {
    let mut script = MACHINE.to_owned();
    for (number, block) in blocks.iter().enumerate() {
        script += &match block {
            Block::File { name, text } => {
                format!("cat > '{name}' <<'END OF FILE'\n{text}END OF FILE\n")
            }
            Block::Run(lines) => lines.lines().fold(String::new(), |all, line| {
                let quiet = line.ends_with('\\') || line.starts_with(' ');
                let said =
                    if quiet { String::new() } else { format!("echo '$ '{}\n", quoted(line)) };
                all + &said + line + "\n"
            }),
            Block::Background(line) => format!(
                "echo '$ '{}' &'\n{line} > \"$MACHINE/{number}.log\" 2>&1 &\nbackground {number} '{}'\n",
                quoted(line),
                ready(line)
            ),
        };
    }
    script + "echo 'all commands have run'\n"
}

/// A line as one word of a shell.
fn quoted(line: &str) -> String {
    format!("'{}'", line.replace('\'', r"'\''"))
}

/// A machine with a clone of the project and nothing else.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["home", "bin", "clone"] {
            std::fs::create_dir(at(name)).expect("a folder");
        }
        for name in ["bitstreams", "policies", "proto", "crates", "integration"] {
            std::os::unix::fs::symlink(project().join(name), at("clone").join(name))
                .expect("a link");
        }
        let cargo = at("bin").join("cargo");
        std::fs::write(&cargo, CARGO).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&cargo, mode).expect("its own file");
        Self { folder }
    }

    /// Runs the commands of pages. `installed`: the programs are on the search path, as after an installation.
    fn run(&self, blocks: &[Block], installed: bool) -> Result<String, String> {
        let at = |name: &str| self.folder.path().join(name);
        std::fs::write(at("script"), script(blocks)).expect("written");
        let programs = program("snicd").parent().expect("it is in a folder").to_owned();
        let mut path = vec![at("bin")];
        path.extend(installed.then(|| programs.clone()));
        path.extend(
            ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
                .map(PathBuf::from),
        );
        let mut command = Command::new("timeout");
        command.args([PATIENCE, "unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc"]);
        command.args(["--kill-child", "bash"]).arg(at("script")).current_dir(at("clone"));
        command.env_clear().env("PATH", std::env::join_paths(path).expect("valid folders"));
        command.env("HOME", at("home")).env("MACHINE", self.folder.path());
        command.env("PROGRAMS", programs).stdin(Stdio::null());
        let Output { status, stdout, stderr } = command.output().expect("timeout is installed");
        let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
        match status.success() && said.contains("all commands have run") {
            true => Ok(said.into_owned()),
            false => Err(format!("{status}:\n{said}")),
        }
    }
}

fn follow(pages: &[&str], installed: bool) -> Option<String> {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return None;
    }
    let blocks: Vec<Block> = pages.iter().flat_map(|page| read(page)).collect();
    Some(Machine::new().run(&blocks, installed).unwrap_or_else(|said| panic!("{pages:?}: {said}")))
}

#[test]
fn the_readme_leads_to_a_running_daemon_with_packets() {
    let Some(said) = follow(&["README.md"], false) else { return };
    let (offered, served) =
        packets(&said).unwrap_or_else(|| panic!("no report of packets: {said}"));
    // What it sends is within the DAG's promise.
    assert!(served > 0 && served * 100 >= offered * 95, "{served} of {offered}: {said}");
    assert!(said.contains("acme/dag-d: "), "no diagnosis: {said}");
}

/// Packets offered and served, as the report of `snicctl traffic run` has them.
fn packets(said: &str) -> Option<(u64, u64)> {
    let (_, report) = said.split_once("$ snicctl traffic run ")?;
    let row = report.lines().find_map(|line| line.strip_prefix("Packets "))?;
    let mut numbers = row.split_whitespace().map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[test]
fn a_report_of_packets_is_read() {
    let said = "$ snicctl dag list\nPackets 1 2\n$ snicctl traffic run --dag a/b\n          OFFERED  SERVED\n\
                Packets       334     330\nPackets/s     3        4\n";
    assert_eq!(packets(said), Some((334, 330)));
    for none in ["", "Packets 1 2", "$ snicctl traffic run x\nerror: no such DAG\n"] {
        assert_eq!(packets(none), None, "{none}");
    }
}

#[test]
fn the_page_for_tenants_works_from_its_first_command_to_its_last() {
    follow(&["crates/host/daemon/docs/tenants.md"], false);
}

#[test]
fn the_page_for_researchers_works_from_its_first_command_to_its_last() {
    follow(&["crates/host/daemon/docs/researchers.md"], false);
}

#[test]
fn an_operators_first_day_goes_from_an_empty_machine_over_a_kill_to_the_end() {
    let Some(said) = follow(&["crates/host/daemon/docs/operators.md"], true) else { return };
    assert!(said.contains("READY"), "{said}");
}

#[test]
fn a_command_that_fails_is_told() {
    if missing().is_some() {
        return;
    }
    let blocks = blocks("```sh\ntrue\nsnicctl dag list\n```\n").expect("a page");
    let said = Machine::new().run(&blocks, true).expect_err("there is no server");
    assert!(said.contains("$ snicctl dag list") && !said.contains("all commands"), "{said}");
}
