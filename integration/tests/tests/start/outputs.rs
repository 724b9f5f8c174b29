//! Output that nobody reads, that is closed, or that does not fit: exit codes stay true, and nothing panics.

use std::fs::File;
use std::io::pipe;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use snic_api::v1;
use snic_integration::commands::{operate, pki, shell};
use snic_integration::{Home, furnished, program};

use super::signals::quickstart_command;

/// Commands of all programs, by words; `{name}` is a path of [`Files`].
const COMMANDS: &[(&str, &[&str])] = &[
    (
        "snicd",
        &[
            "--help",
            "--version",
            "nonsense",
            "quickstart --help",
            "man",
            "config",
            "config -c {settings}",
            "config -c {none}",
            "doctor -c {settings}",
            "doctor -c {none}",
            "store check -c {settings}",
            "store check -c {stopped}",
            "store dump -c {stopped}",
            "store repair -c {stopped}",
            "host-spec -c {settings} --zone z --rack r",
            "host-spec",
            "pki --folder {fresh} init",
            "pki --folder {pki} list",
            "pki --folder {pki} renew operator/admin --revoke-old",
            "pki --folder {none} list",
            "restore --replace -c {stopped} {backup}",
            "restore -c {stopped} {none}",
        ],
    ),
    (
        "snicctl",
        &[
            "--help",
            "--version",
            "nonsense",
            "dag --help",
            "man",
            "man dag create",
            "completions bash",
            "completions zsh",
            "version",
            "context list",
            "top --once",
            "fleet status",
            "dag get acme/none",
            "dag create --file {none}",
            "backup -f {fresh}",
            "support-bundle -f {fresh}",
            "auth can-i dag.create",
        ],
    ),
    (
        "snic-fleet",
        &[
            "--help",
            "--version",
            "--nonsense",
            "--man",
            "--check --config {fleet}",
            "--check --config {none}",
        ],
    ),
    ("snic-card", &["--help", "man", "nonsense", "check {none}", "check {settings}"]),
    ("snic-repro", &["", "parameters", "nonsense", "--help", "sweep nonsense 1,2"]),
    ("snic-workloads", &["--help", "--count 3", "--count 2000", "--nonsense"]),
    ("snic-cdi", &["nonsense", "--once --config {broken}"]),
    (
        "snic-hook",
        &["", "--config {broken} heartbeat --once", "--config {none} vm prepare begin -"],
    ),
    ("snic-kubernetes", &["nonsense", "--config {none}"]),
];

/// Commands of snicctl that read, which are tried in each format.
const READING: &[&str] = &[
    "dag list -A",
    "dag get acme/web",
    "dag diagnose acme/web",
    "dag explain acme/web",
    "tenant list",
    "tenant get acme",
    "nt list",
    "nt get nat",
    "bitstream list",
    "card list",
    "card get card0",
    "region list",
    "rule list",
    "vm list",
    "operation list",
    "fairness get",
    "events",
    "audit",
    "auth whoami",
    "maintenance status",
];

/// Longest time of a command, in seconds: doctor takes long on a busy machine.
const LONGEST_SECONDS: &str = "120";
/// Commands that run at once: most of their time they wait.
const AT_ONCE: usize = 6;
/// Exit code of what took longer.
const TOO_LONG: i32 = 124;

/// The files that commands name.
struct Files {
    home: Home,
    stopped: Home,
    /// Number of paths that did not exist yet.
    fresh: AtomicU32,
}

impl Files {
    /// The words of a command; each call has other fresh paths.
    fn words(&self, line: &str) -> Vec<String> {
        let path = |name: &str| self.home.path().join(name).display().to_string();
        let fresh = path(&format!("fresh-{}", self.fresh.fetch_add(1, Ordering::Relaxed)));
        let replace = |word: &str| match word {
            "{settings}" => self.home.settings().display().to_string(),
            "{stopped}" => self.stopped.settings().display().to_string(),
            "{fresh}" => fresh.clone(),
            name if name.starts_with('{') => path(name.trim_matches(['{', '}'])),
            word => word.to_owned(),
        };
        line.split_whitespace().map(replace).collect()
    }

    /// The command, which is ended when it takes too long.
    fn command(&self, name: &str, line: &str) -> Command {
        let mut command = Command::new("timeout");
        command.arg(LONGEST_SECONDS).arg(program(name));
        command.args(self.words(line)).stdin(Stdio::null());
        command.env("SNICCTL_CONFIG", self.home.path().join("snicctl.toml"));
        command
    }
}

/// An end of a pipe that nobody reads from any more, as behind `| head -1`.
fn left_pipe() -> Stdio {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn full_disk() -> Stdio {
    File::options().write(true).open("/dev/full").expect("Linux has it").into()
}

/// Exit code and standard error of a command; it must not panic, nor end by a signal.
fn code_of(mut command: Command, what: &str) -> (i32, String) {
    let child = command.spawn().expect("it starts");
    code_in(&child.wait_with_output().expect("it ends"), what)
}

fn code_in(output: &Output, what: &str) -> (i32, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{what}: {said}");
    let code = output.status.code();
    assert!(code != Some(TOO_LONG), "{what} does not end: {said}");
    (code.unwrap_or_else(|| panic!("{what}: {}: {said}", output.status)), said)
}

/// Runs a command with outputs that nobody reads, are closed or full.
fn try_outputs(files: &Files, name: &str, line: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let what = format!("{name} {line}");
    let mut plain = files.command(name, line);
    let output = plain.output().expect("it starts");
    let code = code_in(&output, &what).0;
    let mut same = |case: &str, stdout: Stdio, stderr: Stdio| {
        let mut command = files.command(name, line);
        command.stdout(stdout).stderr(stderr);
        let (now, said) = code_of(command, &format!("{what} {case}"));
        if now != code {
            wrong.push(format!("{what} {case}: {now} instead of {code}: {said}"));
        }
    };
    same("| true", left_pipe(), Stdio::piped());
    same("2>&1 | true", left_pipe(), left_pipe());
    same("2>/dev/full", Stdio::null(), full_disk());
    // Closed altogether: file descriptors 1 and 2 are free for whatever the program opens first.
    let mut closed = Command::new("sh");
    closed.args(["-c", "exec \"$@\" >&- 2>&-", "sh"]).arg(program(name)).args(files.words(line));
    closed.env("SNICCTL_CONFIG", files.home.path().join("snicctl.toml")).stdin(Stdio::null());
    let (now, _) = code_of(closed, &format!("{what} >&- 2>&-"));
    if now != code {
        wrong.push(format!("{what} >&- 2>&-: {now} instead of {code}"));
    }
    let mut full = files.command(name, line);
    full.stdout(full_disk()).stderr(Stdio::piped());
    let (now, said) = code_of(full, &format!("{what} >/dev/full"));
    let is_right = match output.stdout.is_empty() {
        true => now == code,
        false => now != 0 && !said.trim().is_empty(),
    };
    if !is_right {
        wrong.push(format!("{what} >/dev/full: {now}: {said}"));
    }
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ci: every program runs many times, a minute and a half"]
async fn no_command_panics_or_hides_its_result_where_its_output_is_not_read_or_does_not_fit() {
    let stopped = Home::new();
    let daemon = stopped.start().await;
    furnished(&stopped, &["web"]).await;
    assert!(daemon.stop().0.success());
    let home = Home::new();
    let daemon = home.start().await;
    let client = furnished(&home, &["web"]).await;
    while client.list_dags().await.iter().any(|dag| dag.state() != v1::dag::State::Ready) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    operate(&home, &format!("backup -f {}", home.path().join("backup").display()))
        .expect("a backup");
    for words in ["init", "issue operator/admin"] {
        pki(&home, words).expect("an authority");
    }
    std::fs::write(home.path().join("broken"), "[daemon]\nendpoint = \"unix:/nowhere\"\n")
        .expect("a file");
    std::fs::write(home.path().join("fleet"), "listen = 7\n").expect("a file");
    shell(&home, "snicctl dag list -A").expect("it serves");
    let files = Files { home, stopped, fresh: 0.into() };
    let tried = tokio::task::spawn_blocking(move || {
        let commands = COMMANDS
            .iter()
            .flat_map(|(name, lines)| lines.iter().map(move |line| (*name, (*line).to_owned())));
        let reading = READING.iter().enumerate().flat_map(|(number, line)| {
            // Each in the table, half of them in each of the others.
            ["table", ["json", "yaml"][number % 2]]
                .map(|format| ("snicctl", format!("{line} -o {format}")))
        });
        // Those that open one store or one authority would be in each other's way.
        let (alone, others): (Vec<_>, Vec<_>) = commands
            .chain(reading)
            .partition(|(_, line)| line.contains("{stopped}") || line.contains("{pki}"));
        let lines = Mutex::new(others.into_iter());
        let next = || lines.lock().expect("no panic").next();
        let wrong = Mutex::new(Vec::new());
        let try_line = |(name, line): (&str, String)| {
            let found = try_outputs(&files, name, &line);
            wrong.lock().expect("no panic").extend(found);
        };
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| std::iter::from_fn(next).for_each(try_line));
            }
            alone.into_iter().for_each(try_line);
        });
        let mut wrong = wrong.into_inner().expect("no panic");
        // They never end by themselves: a reader that leaves ends them with the first line for it.
        for line in ["dag watch -A", "tenant watch -o json", "card watch", "region watch"] {
            let mut command = files.command("snicctl", line);
            command.stdout(left_pipe()).stderr(Stdio::piped());
            let (code, said) = code_of(command, line);
            if code != 0 {
                wrong.push(format!("snicctl {line} | true: {code}: {said}"));
            }
        }
        (files, wrong)
    });
    let (_files, wrong) = tried.await.expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

/// A quick start whose output is not read goes on; one whose output does not fit says so and leaves nothing behind.
#[test]
#[ignore = "ci: seconds of waiting"]
fn a_quickstart_goes_on_without_a_reader_and_fails_on_a_full_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = quickstart_command(folder.path(), &["--exit"]);
    let (code, said) = code_of(
        {
            command.stdout(full_disk()).stderr(Stdio::piped());
            command
        },
        "quickstart >/dev/full",
    );
    assert!(code != 0 && said.contains("cannot write to standard output"), "{code}: {said}");
    let mut command = quickstart_command(folder.path(), &["--exit"]);
    command.stdout(left_pipe()).stderr(left_pipe());
    assert_eq!(code_of(command, "quickstart | true").0, 0);
}
