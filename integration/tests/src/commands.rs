//! Commands of operators and tenants as they type them, with certificates of `snicd pki`.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{DaemonProcess, Home, program};

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs shell commands with the programs of this build; returns their output.
///
/// # Errors
/// Runs commands; the error is what a command that failed has printed.
pub fn shell(home: &Home, lines: &str) -> Result<String, String> {
    let programs = program("snicd").parent().expect("it is in a folder").display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.arg("-ec").arg(lines).env("PATH", path).stdin(Stdio::null());
    command.env("SNICCTL_CONFIG", home.path().join("snicctl.toml"));
    let Output { status, stdout, stderr } = command.output().expect("a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match status.success() {
        true => Ok(text(&stdout)),
        false => Err(text(&stdout) + &text(&stderr)),
    }
}

/// `snicctl` as an operator, over the socket of a home.
///
/// # Errors
/// As [`shell`].
pub fn operate(home: &Home, words: &str) -> Result<String, String> {
    operate_with(home, "", words)
}

/// The same with variables, as `NAME=value`.
///
/// # Errors
/// As [`shell`].
pub fn operate_with(home: &Home, variables: &str, words: &str) -> Result<String, String> {
    if !home.path().join("snicctl.toml").exists() {
        let endpoint = format!("unix:{}", home.socket().display());
        let set = format!("snicctl context set it --endpoint {endpoint} --identity operator/test");
        shell(home, &format!("{set}\nsnicctl context use it"))?;
    }
    shell(home, &format!("{variables} snicctl {words}"))
}

/// `snicd pki` on the folder of a home.
///
/// # Errors
/// As [`shell`].
pub fn pki(home: &Home, words: &str) -> Result<String, String> {
    shell(home, &format!("snicd pki --folder {} {words}", folder(home)))
}

/// The folder of a home's certificates.
pub fn folder(home: &Home) -> String {
    home.path().join("pki").display().to_string()
}

/// The indented lines behind a line that starts with these words.
pub fn block(printed: &str, title: &str) -> String {
    let lines = printed.lines().skip_while(|line| !line.starts_with(title)).skip(1);
    lines
        .take_while(|line| line.starts_with(' '))
        .map(|line| format!("{}\n", line.trim()))
        .collect()
}

/// Makes the context that was printed, for the port of this test.
///
/// # Panics
/// The command fails.
pub fn make_context(home: &Home, printed: &str, port: u16) {
    let command = block(printed, "a context of snicctl").replace("7443", &port.to_string());
    shell(home, &command).unwrap_or_else(|error| panic!("{command}: {error}"));
}

pub fn reload(daemon: &DaemonProcess) {
    let pid = Pid::from_raw(daemon.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::HUP).expect("it runs");
}

/// Repeats a command until its result is as expected.
///
/// # Panics
/// It is not after half a minute.
pub fn until(home: &Home, words: &str, expected: impl Fn(&Result<String, String>) -> bool) {
    let began = Instant::now();
    loop {
        let result = shell(home, words);
        if expected(&result) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{words}: {result:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a command ends of itself; returns what it has printed to its pipes.
///
/// # Panics
/// It still runs after half a minute. It is killed then.
pub fn ended(child: Child) -> Output {
    ended_within(child, PATIENCE)
}

fn ended_within(mut child: Child, patience: Duration) -> Output {
    let began = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        if began.elapsed() >= patience {
            child.kill().expect("it runs");
            let Output { stdout, stderr, .. } = child.wait_with_output().expect("it was killed");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            panic!("it still runs after {patience:?}: {}{}", text(&stdout), text(&stderr));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("it has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(line: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell")
    }

    #[test]
    fn what_ends_gives_its_status_and_what_it_printed() {
        let output = ended(child("echo out; echo err >&2; exit 6"));
        assert_eq!(output.status.code(), Some(6));
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    }

    #[test]
    #[should_panic(expected = "it still runs")]
    fn what_never_ends_is_killed() {
        ended_within(child("exec sleep 600"), Duration::from_millis(50));
    }
}
