//! The program itself, where no etcd is needed. It is here also because cargo builds a program for the tests of its package
//! only, and the way through a whole fleet starts it.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

use std::fs;
use std::process::Command;

/// A file that cannot be read is one sentence: the setting, the file, and what the system says.
#[test]
fn a_file_that_is_missing_is_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.pem");
    let file = folder.path().join("fleet.toml");
    let settings = format!(
        "listen = \"127.0.0.1:0\"\naddress = \"https://localhost:1\"\nimages = {:?}\n\
         [tls]\nca = {missing:?}\ncertificate = {missing:?}\nkey = {missing:?}\n\
         [etcd]\nendpoints = [\"http://127.0.0.1:1\"]\n",
        folder.path().join("images"),
    );
    fs::write(&file, settings).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_snic-fleet"));
    let output = command.arg("--config").arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "snic-fleet: tls.certificate: {} cannot be used: No such file or directory (os error 2)",
        missing.display()
    );
    assert_eq!(said.lines().last(), Some(expected.as_str()), "{said}");
}
