//! The end of the card's process.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use snic_card_soft::PortSpec;
use snic_fast_path::{Exit, FastPath, KernelRule};
use snic_nts::Pool;

use crate::frames::Sample;
use crate::site::{Site, WIDE, inside, next};

/// Set for the process that is the card: its namespace.
const CARD: &str = "SNIC_FAST_PATH_CARD";

#[test]
#[ignore = "part: of nothing_passes_without_the_process_of_the_card"]
fn card() {
    let Ok(namespace) = std::env::var(CARD) else { return };
    inside(&namespace, || {
        let spec: PortSpec = "tap:sa".parse().expect("a port");
        let _slow = spec.open(None).expect("it opens");
        let mut path = FastPath::load().expect("it was loaded before");
        let port = path.attach("ca", "sa").expect("it is there");
        let sample = Sample::UDP4;
        let headers = sample.translated(sample.external(), 40_000);
        let out = path.attach("cb", "sa").expect("it is there");
        path.set_version(1).expect("a word");
        path.set_dag(1, &WIDE).expect("a row");
        let (exit, row, generation, version, slot) = (Exit::Device(out), 1, 1, 1, 1);
        let rule = KernelRule { headers, port, exit, row, generation, version, slot };
        path.set_rule(&rule).expect("there is room");
        println!("ready");
        std::io::stdout().flush().expect("a pipe");
        std::thread::sleep(Duration::from_secs(60));
    });
}

#[test]
fn nothing_passes_without_the_process_of_the_card() {
    let Some(site) = Site::new("death") else { return };
    if let Err(error) = FastPath::load() {
        assert!(std::env::var_os("CI").is_none(), "missing: {error:?}");
        return println!("not run: {error}");
    }
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "death::card", "--ignored", "--nocapture"]);
    command.env(CARD, &site.namespaces[2]).stdout(Stdio::piped());
    let mut card = command.spawn().expect("it starts");
    let said = BufReader::new(card.stdout.take().expect("a pipe"));
    assert!(said.lines().map_while(Result::ok).any(|line| line.contains("ready")), "it is a card");
    let (mut near, mut far) = (site.open(0, "interface:a"), site.open(1, "interface:b"));
    let pool = Pool::new(64, 2_048);
    let mut passed = |frames: usize| {
        for _ in 0..frames {
            let packet = pool.copy_of(&Sample::UDP4.frame()).expect("a buffer");
            assert_eq!(near.send(&mut vec![packet]).frames, 1);
        }
        std::thread::sleep(Duration::from_millis(200));
        std::iter::from_fn(|| next(far.as_mut(), &pool)).count()
    };
    assert_eq!(passed(5), 5);
    card.kill().expect("it runs");
    card.wait().expect("it ends");
    assert_eq!(passed(5), 0, "their DAG is gone");
}

/// Set for the process that may not load programs.
const USER: &str = "SNIC_FAST_PATH_USER";

#[test]
#[ignore = "part: of a_process_that_is_not_root_says_why_it_has_no_fast_path"]
fn user() {
    if std::env::var(USER).is_ok() {
        println!("{}", FastPath::load().expect_err("it is not root"));
    }
}

#[test]
fn a_process_that_is_not_root_says_why_it_has_no_fast_path() {
    if !rustix::process::geteuid().is_root() || FastPath::load().is_err() {
        assert!(std::env::var_os("CI").is_none(), "missing: root and clang");
        return println!("not run: it needs root and clang");
    }
    // A copy, for this one may be in a folder of root's.
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("tests");
    std::fs::copy(std::env::current_exe().expect("a path"), &program).expect("it is there");
    for path in [folder.path(), &program] {
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
    }
    let mut command = Command::new(&program);
    command.args(["--exact", "death::user", "--ignored", "--nocapture"]);
    command.env(USER, "1").current_dir("/").uid(65_534).gid(65_534);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("needs root and Linux 6.6"), "{output:?}");
}
