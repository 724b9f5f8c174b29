//! From no certificates to trusted and revoked callers: the commands are those that `snicd pki`
//! prints, and OpenSSL judges the files.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use snic_integration::Home;
use snic_integration::commands::{block, folder, make_context, pki, reload, shell, until};

/// Whether OpenSSL accepts a certificate, given the list of revoked ones.
fn is_valid(home: &Home, name: &str) -> bool {
    let pki = folder(home);
    let files = ["ca.pem", "crl.pem", name].map(|file| format!("{pki}/{file}"));
    let mut command = Command::new("openssl");
    command.args(["verify", "-crl_check", "-x509_strict", "-CAfile", &files[0]]);
    command.args(["-CRLfile", &files[1], &files[2]]);
    command.output().expect("OpenSSL is installed").status.success()
}

#[test]
fn a_fresh_package_is_not_all_right() {
    let home = Home::new();
    let settings = home.settings().display().to_string();
    let lines = format!("snicd config > {settings}; snicd doctor -c {settings}");
    let error = shell(&home, &lines).expect_err("there are no certificates, keys or cards");
    for part in ["tls", "signatures", "cards"] {
        assert!(error.contains(&format!("WRONG {part}: ")), "{part}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_without_an_authority_gets_one_and_tenants_come_and_go() {
    let home = Home::new();
    let doctor =
        |home: &Home| shell(home, &format!("snicd doctor -c {}", home.settings().display()));
    doctor(&home).expect("a socket needs no certificate");
    let error = pki(&home, "issue server").expect_err("there is no authority yet");
    assert!(error.contains("snicd pki init"), "{error}");
    pki(&home, "init").expect("a new authority");
    let error = pki(&home, "init").expect_err("it would make all certificates invalid");
    assert!(error.contains("ca.pem exists"), "{error}");

    let server = pki(&home, "issue server").expect("a certificate");
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("an address").port()
    };
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let text = text.replace("[listen]", &format!("[listen]\ntcp = \"127.0.0.1:{port}\""));
    std::fs::write(home.settings(), &text).expect("settings");
    let error = doctor(&home).expect_err("the default paths are empty");
    assert!(error.contains("WRONG tls") && error.contains("snicd pki"), "{error}");
    let tls = block(&server, "settings of the daemon");
    std::fs::write(home.settings(), format!("{text}\n{tls}")).expect("settings");
    let said = doctor(&home).expect("all is there");
    assert!(said.contains("tls.certificate ends in 364 days"), "{said}");
    let daemon = home.start().await;

    for name in ["operator/admin", "tenant/acme"] {
        let printed = pki(&home, &format!("issue {name}")).expect("a certificate");
        make_context(&home, &printed, port);
        assert!(is_valid(&home, &format!("{}.pem", name.replace('/', "-"))), "{name}");
    }
    shell(&home, "snicctl --context admin tenant create acme").expect("an operator may");
    shell(&home, "snicctl --context acme dag list").expect("a tenant may");
    let error =
        shell(&home, "snicctl --context acme tenant create other").expect_err("not its own");
    assert!(error.contains("PERMISSION_DENIED") || error.contains("may not"), "{error}");

    // A tenant whose certificate is revoked.
    let error = pki(&home, "issue tenant/acme").expect_err("it has one");
    assert!(error.contains("renew"), "{error}");
    pki(&home, "revoke tenant/acme").expect("revoked");
    assert!(!is_valid(&home, "tenant-acme.pem"), "OpenSSL sees it on the list");
    assert!(is_valid(&home, "operator-admin.pem"), "others are not on it");
    reload(&daemon);
    until(&home, "snicctl --context acme dag list", Result::is_err);
    shell(&home, "snicctl --context admin tenant list").expect("others stay");
    let printed = pki(&home, "issue tenant/acme").expect("a new one");
    make_context(&home, &printed, port);
    shell(&home, "snicctl --context acme dag list").expect("it is back");

    // The daemon's own certificate, while it runs.
    let old = std::fs::read(Path::new(&folder(&home)).join("server.pem")).expect("a file");
    pki(&home, "renew server --revoke-old").expect("a certificate");
    let new = std::fs::read(Path::new(&folder(&home)).join("server.pem")).expect("a file");
    assert_ne!(old, new);
    reload(&daemon);
    until(&home, "snicctl --context acme dag list", Result::is_ok);
    let list = pki(&home, "list").expect("a list");
    let states: Vec<_> =
        list.lines().skip(2).filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(states, ["REVOKED", "VALID", "REVOKED", "VALID", "VALID"], "{list}");
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
