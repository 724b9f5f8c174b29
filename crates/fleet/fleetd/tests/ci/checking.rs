//! `snic-fleet --check`: what is wrong is said line by line, before a replica serves.

use std::fs;
use std::path::Path;
use std::process::Command;
#[cfg(feature = "s3")]
use std::{
    io::ErrorKind,
    net::{TcpListener, TcpStream},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rcgen::{CertificateParams, KeyPair, SanType};

use crate::cluster::Cluster;
#[cfg(feature = "s3")]
use crate::cluster::PATIENCE;

/// Writes `replica.pem`, which signs itself, and `replica.key`.
pub(crate) fn write_certificate(folder: &Path) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let uri = "spiffe://snic.local/replica/r0".try_into().unwrap();
    params.subject_alt_names.push(SanType::URI(uri));
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("replica.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.join("replica.key"), key.serialize_pem()).unwrap();
}

/// The first connection to a server that never answers, once the program has made it.
#[cfg(feature = "s3")]
fn accept_from(program: &mut Child, silent: &TcpListener) -> TcpStream {
    let until = Instant::now() + PATIENCE;
    loop {
        match silent.accept() {
            Ok((connection, _)) => return connection,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        assert!(program.try_wait().unwrap().is_none(), "it ended before it asked");
        assert!(Instant::now() < until, "it never asks");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A start waits for images that may be away. One that is told to stop meanwhile does so, and waits no longer.
#[cfg(feature = "s3")]
#[test]
fn a_start_that_waits_for_its_images_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    write_certificate(folder.path());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let settings = format!(
        "listen = \"127.0.0.1:0\"\naddress = \"https://localhost:1\"\n\
         [tls]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\n\
         [etcd]\nendpoints = [\"http://127.0.0.1:1\"]\n[signatures]\nallow_unsigned = true\n\
         [images]\nbucket = \"snic-images\"\nendpoint = \"http://{}\"\nallow_http = true\n",
        path("replica.pem"),
        path("replica.pem"),
        path("replica.key"),
        silent.local_addr().unwrap(),
    );
    let file = folder.path().join("fleet.toml");
    fs::write(&file, settings).unwrap();
    for signal in ["TERM", "INT"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snic-fleet"));
        command.arg("--config").arg(&file).stdin(Stdio::null()).stderr(Stdio::piped());
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        let mut program = command.spawn().unwrap();
        let _held = accept_from(&mut program, &silent);
        let pid = program.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let output = program.wait_with_output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{signal}: {log}");
        assert!(!log.contains("starting without images"), "it waited for them: {log}");
    }
}

/// Whether the program finds all in order, and what it prints.
fn check(folder: &Path, settings: &str) -> (bool, String) {
    let file = folder.join("fleet.toml");
    fs::write(&file, settings).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_snic-fleet"));
    let output = command.arg("--check").arg("--config").arg(&file).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// The folder of the audit log is on a file system that cannot be written, or a file is in its place.
#[test]
fn a_folder_for_the_audit_log_that_cannot_be_written_is_named_by_check_and_start() {
    let folder = tempfile::tempdir().unwrap();
    write_certificate(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    // Nobody can make a folder there, not even root.
    for audit in ["/proc/snic-audit".to_owned(), path("replica.key")] {
        let settings = format!(
            "listen = \"127.0.0.1:0\"\naddress = \"https://localhost:1\"\nimages = {:?}\naudit_dir = {audit:?}\n\
             [tls]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\n\
             [etcd]\nendpoints = [\"http://127.0.0.1:1\"]\n[signatures]\nallow_unsigned = true\n",
            path("images"),
            path("replica.pem"),
            path("replica.pem"),
            path("replica.key"),
        );
        let (is_right, text) = check(folder.path(), &settings);
        assert!(!is_right && text.contains("WRONG audit_dir: "), "{text}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_snic-fleet"));
        command.arg("--config").arg(folder.path().join("fleet.toml"));
        let output = command.output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert!(log.contains("audit_dir") && log.contains(&audit), "{log}");
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn each_part_of_the_settings_is_tried() {
    let Some(cluster) = Cluster::start(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    write_certificate(folder.path());
    let etcd = cluster.urls().join("");
    let settings = format!(
        "listen = \"127.0.0.1:0\"\naddress = \"https://localhost:1\"\nimages = {:?}\n\
         [tls]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\n\
         [etcd]\nendpoints = [{etcd:?}]\n[signatures]\nallow_unsigned = true\n",
        path("images"),
        path("replica.pem"),
        path("replica.pem"),
        path("replica.key"),
    );
    let (is_right, text) = check(folder.path(), &settings);
    assert!(is_right && !text.contains("WRONG"), "{text}");
    let parts: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("ok    ")).collect();
    assert_eq!(parts.len(), 5, "{text}");
    fs::write(path("empty"), "").unwrap();
    for (from, to, expected) in [
        (
            etcd.clone(),
            "http://127.0.0.1:1".to_owned(),
            "WRONG etcd: read /snic/v1/: etcd cannot be reached",
        ),
        (path("replica.key"), path("empty"), "empty cannot be used: it is empty"),
        (path("replica.key"), path("none"), "WRONG tls: tls.key: "),
        (path("images"), path("empty"), "WRONG images: "),
        ("allow_unsigned = true".into(), String::new(), "WRONG signatures: there is no key"),
    ] {
        let (is_right, text) = check(folder.path(), &settings.replace(&from, &to));
        assert!(!is_right && text.contains(expected), "{text}");
        assert_eq!(text.matches("WRONG").count(), 1, "{text}");
    }
}
