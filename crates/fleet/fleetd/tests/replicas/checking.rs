//! `snic-fleet --check`: what is wrong is said line by line, before a replica serves.

use std::fs;
use std::path::Path;
use std::process::Command;

use rcgen::{CertificateParams, KeyPair, SanType};

use crate::cluster::Cluster;

/// Writes `replica.pem`, which signs itself, and `replica.key`.
pub(crate) fn write_certificate(folder: &Path) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let uri = "spiffe://snic.local/replica/r0".try_into().unwrap();
    params.subject_alt_names.push(SanType::URI(uri));
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("replica.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.join("replica.key"), key.serialize_pem()).unwrap();
}

/// Whether the program finds all in order, and what it prints.
fn check(folder: &Path, settings: &str) -> (bool, String) {
    let file = folder.join("fleet.toml");
    fs::write(&file, settings).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_snic-fleet"));
    let output = command.arg("--check").arg("--config").arg(&file).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
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
