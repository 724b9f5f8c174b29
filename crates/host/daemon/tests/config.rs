//! `snicd config`: what a new user looks at first.

use std::process::Command;

fn snicd(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_snicd"))
        .args(arguments)
        .output()
        .expect("the program that was built for this test");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_defaults_are_printed_and_accepted_again() {
    let (ok, printed, log) = snicd(&["config"]);
    assert!(ok, "{log}");
    assert!(!printed.contains("[[cards]]") && printed.contains("trust_domain"), "{printed}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("snicd.toml");
    std::fs::write(&file, &printed).expect("the folder takes files");
    let (ok, again, log) = snicd(&["config", "--config", &file.display().to_string()]);
    assert!(ok, "{log}");
    assert_eq!(again, printed);
}

#[test]
fn a_wrong_key_is_named_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("snicd.toml");
    std::fs::write(&file, "trust_domain = \"x\"\n[listen]\nport = 1\n").expect("a file");
    let (ok, _, log) = snicd(&["run", "--config", &file.display().to_string()]);
    assert!(!ok);
    assert!(log.contains("snicd.toml:3:") && log.contains("port"), "{log}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_its_cause_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("missing.toml").display().to_string();
    let cause = std::fs::read(&file).expect_err("it is not there");
    let (ok, _, log) = snicd(&["run", "--config", &file]);
    assert!(!ok);
    assert_eq!(log, format!("snicd: cannot read the settings file {file}: {cause}\n"));
}
