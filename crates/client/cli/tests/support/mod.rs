//! The program against a server that answers as a test says.

pub mod fake;

use std::path::Path;

use assert_cmd::Command;
use assert_cmd::assert::Assert;

/// Result of a run of the program.
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// The standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// The program with a clean environment, so that the user's settings have no effect.
pub fn snicctl(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snicctl"));
    command.env_clear().env("SNICCTL_CONFIG", config).env("HOME", "/nonexistent");
    command
}

/// Runs the program with the words of `line`, against an endpoint if there is one.
pub fn run(endpoint: &str, line: &str) -> Run {
    with_input(endpoint, line, "")
}

/// The same with a standard input.
pub fn with_input(endpoint: &str, line: &str, input: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let mut command = snicctl(&folder.path().join("config.toml"));
    command.env("SNICCTL_ENDPOINT", endpoint).args(line.split_whitespace());
    ended(command.write_stdin(input).assert())
}

/// Result of a run.
pub fn ended(assert: Assert) -> Run {
    let output = assert.get_output();
    Run {
        code: output.status.code().expect("an exit, not a signal"),
        stdout: String::from_utf8(output.stdout.clone()).unwrap(),
        stderr: String::from_utf8(output.stderr.clone()).unwrap(),
    }
}
