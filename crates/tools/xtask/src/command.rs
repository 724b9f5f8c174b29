//! Runs programs: cargo with a clean environment, and any program with its output printed and parsed line by
//! line.

use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

/// Time to wait for more output after the program has exited. A process that a test left behind keeps the
/// pipe open, and must not block us.
const WAIT_AFTER_END: Duration = Duration::from_secs(1);

/// Cargo, to be run in `root`.
///
/// `cargo run` sets variables about the package it runs, and some build scripts are rerun when these change.
/// Without this cleaning, `cargo xtask test` and plain `cargo test` would rebuild the same crates each time.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root).args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(describes_package) {
            command.env_remove(name);
        }
    }
    if is_ci() {
        command.env("CARGO_INCREMENTAL", "0"); // a single build gains nothing from incremental data
    }
    command
}

fn describes_package(variable: &str) -> bool {
    const BEGINNINGS: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
    BEGINNINGS.iter().any(|beginning| variable.starts_with(beginning))
        || variable == "CARGO_PRIMARY_PACKAGE"
        || variable == "OUT_DIR"
}

/// Whether this runs in CI, by the convention of CI services.
pub fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Runs `command` with our output. Returns whether it succeeded.
///
/// # Errors
/// The command cannot be started.
pub fn succeeds(command: &mut Command) -> anyhow::Result<bool> {
    let status = command.status().with_context(|| cannot_start(command))?;
    Ok(status.success())
}

/// Runs `command`, copies each line of both of its outputs to `out` in order, and passes it to `read`. What has not
/// ended after `longest` is killed: a test that hangs must say so instead of holding everything up.
///
/// # Errors
/// The command cannot be started, or `out` is closed.
pub fn streamed(
    command: &mut Command,
    longest: Duration,
    out: &mut impl Write,
    mut read: impl FnMut(&str),
) -> anyhow::Result<ExitStatus> {
    let (pipe, writer) = io::pipe().context("making a pipe")?;
    command.stdin(std::process::Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn();
    // Release the command's copies of the pipe, or the reader would never see its end.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = child.with_context(|| cannot_start(command))?;
    let lines = lines_of(pipe);
    let (begin, mut is_killed) = (Instant::now(), false);
    let mut wait_left = WAIT_AFTER_END;
    let mut ended = None;
    while !wait_left.is_zero() {
        let start = Instant::now();
        let next = lines.recv_timeout(wait_left);
        match ended {
            // Only waiting counts, so that lines already written are read even if we are slow.
            Some(_) => wait_left = wait_left.saturating_sub(start.elapsed()),
            None => ended = child.try_wait()?,
        }
        if ended.is_none() && !is_killed && begin.elapsed() > longest {
            writeln!(out, "error: killed, since it did not end within {} s", longest.as_secs())?;
            child.kill().context("kill a program that does not end")?;
            is_killed = true;
        }
        match next {
            Ok(line) => {
                out.write_all(&line)?;
                read(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    match ended {
        Some(status) => Ok(status),
        None => child.wait().context("wait for a program to exit"),
    }
}

fn lines_of(pipe: PipeReader) -> Receiver<Vec<u8>> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        loop {
            let mut line = Vec::new();
            let more = pipe.read_until(b'\n', &mut line).is_ok_and(|length| length > 0);
            if !more || sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start `{}`; is it installed?", command.get_program().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// The lines that were read, what was copied, and how it ended.
    fn stream(script: &str) -> (Vec<String>, Vec<u8>, ExitStatus) {
        let (mut seen, mut copy) = (Vec::new(), Vec::new());
        let status =
            streamed(&mut shell(script), PATIENCE, &mut copy, |line| seen.push(line.to_owned()))
                .unwrap();
        (seen, copy, status)
    }

    #[test]
    fn both_outputs_arrive_in_the_order_they_were_written() {
        let (seen, copy, status) =
            stream("echo one; echo two >&2; echo three; printf four; exit 3");
        assert_eq!(seen, ["one", "two", "three", "four"]);
        assert_eq!(copy, b"one\ntwo\nthree\nfour");
        assert_eq!(status.code(), Some(3));
    }

    /// It ends by itself, so that this test leaves nothing running for long.
    #[test]
    fn a_process_left_behind_does_not_keep_us() {
        let (seen, _, status) = stream("sleep 20 & echo started");
        assert!(status.success());
        assert_eq!(seen, ["started"]);
    }

    /// Were it waited for, this test would not end; the talker itself ends with the broken pipe.
    #[test]
    fn a_process_left_behind_that_keeps_talking_does_not_keep_us_either() {
        let (seen, ..) = stream("(while echo still; do sleep 0.3; done) & echo first");
        assert!(seen.contains(&"first".to_owned()), "{seen:?}");
    }

    /// Were it not killed, this test would take a minute. Its own child, which has the pipe too, does not keep us.
    #[test]
    fn what_does_not_end_is_killed_and_told() {
        let (mut copy, begin) = (Vec::new(), Instant::now());
        let mut hanging = shell("echo begins; sleep 60; echo ends");
        let status = streamed(&mut hanging, Duration::from_millis(300), &mut copy, |_| ()).unwrap();
        assert!(!status.success());
        assert!(begin.elapsed() < PATIENCE);
        let copy = String::from_utf8(copy).unwrap();
        assert_eq!(copy, "begins\nerror: killed, since it did not end within 0 s\n");
    }

    #[test]
    fn output_that_is_not_text_is_read_all_the_same() {
        let (seen, copy, _) = stream(r"printf 'a\377b\r\n'");
        assert_eq!(seen, ["a\u{fffd}b"]);
        assert_eq!(copy, b"a\xffb\r\n", "and copied as it is");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = succeeds(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.to_string().contains("`no-such-program`"), "{error}");
        let error =
            streamed(&mut Command::new("no-such-program"), PATIENCE, &mut Vec::new(), |_| ())
                .unwrap_err();
        assert!(error.to_string().contains("`no-such-program`"), "{error}");
    }

    #[test]
    fn cargo_is_not_told_about_our_own_package() {
        for ours in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "CARGO_BIN_NAME", "OUT_DIR"] {
            assert!(describes_package(ours), "{ours}");
        }
        for kept in ["CARGO_TARGET_DIR", "CARGO_HOME", "CARGO", "PATH", "CARGO_TERM_COLOR"] {
            assert!(!describes_package(kept), "{kept}");
        }
    }
}
