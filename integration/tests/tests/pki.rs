//! From no certificates to trusted and revoked callers: the commands are those that `snicd pki`
//! prints, and OpenSSL judges the files.

#[path = "../../../crates/edge/api/tests/openssl/mod.rs"]
mod openssl;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use openssl::{OpenSsl, P256, P521};
use snic_integration::commands::{block, folder, make_context, operate, pki, reload, shell, until};
use snic_integration::{Home, free_address, metrics_page};

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
    let port = free_port();
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

/// A free TCP port.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// Settings of a daemon on TCP with these files.
fn write_tls_settings(home: &Home, files: &OpenSsl, port: u16, certificate: &str) {
    home.write_settings("");
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let text = text.replace("[listen]", &format!("[listen]\ntcp = \"127.0.0.1:{port}\""));
    let path = |name: &str| files.path(name);
    let tls = format!(
        "[tls]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\ncrl = {:?}\n",
        path("ca.pem"),
        path(&format!("{certificate}.pem")),
        path(&format!("{certificate}.key")),
        path("all.crl")
    );
    std::fs::write(home.settings(), format!("{text}\n{tls}")).expect("settings");
}

/// An authority with a server and lists of revoked certificates of which the older comes first or last.
fn authority_with_lists(order: [&str; 2]) -> OpenSsl {
    let files = OpenSsl::new();
    files.authority("ca", "ca", P256);
    files.authority("foreign", "foreign", P256);
    files.intermediate("middle", "ca");
    let server = "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth";
    files.issue("server", "ca", server, P256, "");
    files.list("old", "ca", "");
    for name in ["root", "revoked"] {
        files.client(name, "ca", &format!("operator/{name}"), "");
    }
    files.client(
        "expired",
        "ca",
        "operator/expired",
        "-startdate 20200101000000Z -enddate 20210101000000Z",
    );
    files.client(
        "early",
        "ca",
        "operator/early",
        "-startdate 20350101000000Z -enddate 20360101000000Z",
    );
    files.client("alien", "foreign", "operator/alien", "");
    files.client("below", "middle", "operator/below", "");
    files.issue("nameless", "ca", "extendedKeyUsage=clientAuth", P256, "");
    files.revoke("revoked", "ca");
    files.list("new", "ca", "");
    let lists: String = order.iter().map(|name| files.text(&format!("{name}.crl"))).collect();
    files.write("all.crl", lists);
    files
}

/// A TLS handshake of OpenSSL from an address of the loopback, with a certificate.
fn shake_hands(files: &OpenSsl, port: u16, from: &str, certificate: &str) {
    let path = |name: String| files.path(&name);
    let status = Command::new("openssl")
        .args([
            "s_client",
            "-connect",
            &format!("127.0.0.1:{port}"),
            "-bind",
            &format!("{from}:0"),
            "-alpn",
            "h2",
        ])
        .arg("-CAfile")
        .arg(path("ca.pem".into()))
        .arg("-cert")
        .arg(path(format!("{certificate}.pem")))
        .arg("-key")
        .arg(path(format!("{certificate}.key")))
        .stdin(std::process::Stdio::null())
        .output();
    // OpenSSL 3 ends well or not, as the alert comes before or after the end of its input.
    status.expect("OpenSSL is installed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_handshakes_are_logged_with_peer_and_reason() {
    // The newest list counts, also where the older one comes last, of which a verifier would take the first.
    for order in [["old", "new"], ["new", "old"]] {
        let (home, files, port) = (Home::new(), authority_with_lists(order), free_port());
        write_tls_settings(&home, &files, port, "server");
        let daemon = home.start().await;
        let cases = [
            (
                "127.0.0.11",
                "expired",
                "reason=\"expired\" detail=\"a certificate expired at 2021-01-01T00:00:00Z\"",
            ),
            ("127.0.0.12", "revoked", "reason=\"revoked\""),
            ("127.0.0.13", "alien", "reason=\"unknown_authority\""),
            ("127.0.0.14", "below", "reason=\"unknown_authority\""),
            ("127.0.0.15", "early", "reason=\"not_yet_valid\""),
            ("127.0.0.16", "nameless", "reason=\"no_identity\""),
        ];
        for (from, certificate, _) in cases {
            shake_hands(&files, port, from, certificate);
        }
        for _ in 0..20 {
            shake_hands(&files, port, "127.0.0.17", "alien");
        }
        shake_hands(&files, port, "127.0.0.18", "root");
        let mut plain = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        std::io::Write::write_all(&mut plain, b"GET / HTTP/1.0\r\n\r\n").expect("sent");
        // Until the daemon closes it.
        let _ = std::io::Read::read_to_end(&mut plain, &mut Vec::new());
        let (status, log) = daemon.stop();
        assert!(status.success(), "{log}");
        let lines = |peer: &str| -> Vec<&str> {
            let peer = format!("connection rejected peer={peer}:");
            log.lines().filter(|line| line.contains(&peer)).collect()
        };
        for (from, certificate, says) in cases {
            let [line] = lines(from)[..] else { panic!("{certificate}: {log}") };
            assert!(line.contains(says), "{certificate}: {line}");
        }
        assert_eq!(lines("127.0.0.17").len(), 3, "a peer fills no log: {log}");
        assert_eq!(lines("127.0.0.18"), [""; 0], "it is valid");
        assert!(lines("127.0.0.1")[0].contains("reason=\"not_tls\""), "{log}");
    }
}

/// Findings of doctor, a start, and snicctl about files, each before any connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_used_are_named_with_their_reason() {
    let (home, files, port) = (Home::new(), authority_with_lists(["new", "old"]), free_port());
    let doctor = || shell(&home, &format!("snicd doctor -c {}", home.settings().display()));
    let wrong = |what: &str| {
        let text = doctor().expect_err(what);
        let is_said =
            text.lines().any(|line| line.starts_with("WRONG tls: ") && line.contains(what));
        assert!(is_said, "{what}: {text}");
    };
    write_tls_settings(&home, &files, port, "server");
    let text = doctor().expect("all is there");
    assert!(
        text.contains("tls.crl: the list of revoked certificates of CN=ca is current until"),
        "{text}"
    );
    assert!(text.contains("older ones in the file, which do not count: 1"), "{text}");
    files.list("past", "ca", "-crl_lastupdate 20200101000000Z -crl_nextupdate 20210101000000Z");
    files.write("all.crl", files.text("past.crl"));
    wrong("of CN=ca expired at 2021-01-01T00:00:00Z");
    // The daemon serves with it, and says so.
    let daemon = home.start().await;
    operate(&home, "tenant list").expect("it serves");
    let (_, log) = daemon.stop();
    assert!(log.contains("of CN=ca expired at 2021-01-01T00:00:00Z"), "{log}");
    files.list("future", "ca", "-crl_lastupdate 20350101000000Z -crl_nextupdate 20360101000000Z");
    files.write("all.crl", files.text("future.crl"));
    wrong("is from the future (2035-01-01T00:00:00Z)");
    files.write("all.crl", files.text("new.crl"));
    // Certificates of the daemon: a start fails, and names the file.
    files.issue("p521", "ca", "subjectAltName=DNS:localhost", P521, "");
    write_tls_settings(&home, &files, port, "p521");
    wrong("p521.pem cannot be used: its key is ECDSA with P-521");
    let (status, log) = home.run_to_end();
    assert!(
        !status.success() && log.contains("p521.pem cannot be used: its key is ECDSA with P-521"),
        "{log}"
    );
    files.run("x509 -in server.pem -outform DER -out der.pem");
    files.write("der.key", files.text("server.key"));
    write_tls_settings(&home, &files, port, "der");
    wrong("der.pem cannot be used: it is DER");
    let server = "subjectAltName=DNS:localhost";
    files.issue("lower", "middle", server, P256, "");
    write_tls_settings(&home, &files, port, "lower");
    wrong("lower.pem cannot be used: its issuer CN=middle is neither in it nor in tls.ca");
}

/// Value of a metric whose line has these words; `None` where there is no such line.
fn value(page: &str, name: &str, words: &str) -> Option<f64> {
    let of = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(words);
    page.lines().find(of)?.rsplit(' ').next()?.parse().ok()
}

/// The metrics behind the alerts of lists and handshakes, as Prometheus reads them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_reads_the_dates_of_lists_and_the_handshakes_that_were_rejected() {
    let (home, files, port) = (Home::new(), authority_with_lists(["new", "old"]), free_port());
    let (prometheus, issuer) = (free_address(), "issuer=\"CN=ca\"");
    files.list("past", "ca", "-crl_lastupdate 20200101000000Z -crl_nextupdate 20210101000000Z");
    files.list("future", "ca", "-crl_lastupdate 20350101000000Z -crl_nextupdate 20360101000000Z");
    files.write("all.crl", files.text("past.crl"));
    write_tls_settings(&home, &files, port, "server");
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let text = format!("{text}\n[telemetry]\nprometheus = \"{prometheus}\"\n");
    std::fs::write(home.settings(), text).expect("settings");
    let daemon = home.start().await;
    let dates = |page: &str| {
        ["this", "next"]
            .map(|which| value(page, &format!("snic_tls_crl_{which}_update_seconds"), issuer))
    };
    let rejected = |page: &str, reason: &str| {
        value(page, "snic_tls_handshakes_rejected_total", &format!("reason=\"{reason}\""))
    };
    // As `date -u -d 2020-01-01 +%s` has them. The page is served a moment before the lists are read.
    let past = [Some(1_577_836_800.0), Some(1_609_459_200.0)];
    let page = eventually(|| metrics_page(prometheus), |page| dates(page) == past);
    assert_eq!(dates(&page), past, "{page}");
    assert_eq!(rejected(&page, "revoked"), None, "{page}");
    for (certificate, times) in [("revoked", 3), ("alien", 2), ("expired", 1), ("root", 1)] {
        (0..times).for_each(|_| shake_hands(&files, port, "127.0.0.1", certificate));
    }
    // The last handshake may end after OpenSSL has.
    let page = eventually(|| metrics_page(prometheus), |page| rejected(page, "expired").is_some());
    let counts = ["revoked", "unknown_authority", "expired"].map(|reason| rejected(&page, reason));
    assert_eq!(counts, [Some(3.0), Some(2.0), Some(1.0)], "{page}");

    // A list from the future revokes as well, and its dates are told once it is in force.
    files.write("all.crl", files.text("future.crl"));
    reload(&daemon);
    let future = [Some(2_051_222_400.0), Some(2_082_758_400.0)];
    let page = eventually(|| metrics_page(prometheus), |page| dates(page) == future);
    assert_eq!(dates(&page), future, "{page}");
    shake_hands(&files, port, "127.0.0.1", "revoked");
    let page =
        eventually(|| metrics_page(prometheus), |page| rejected(page, "revoked") == Some(4.0));
    assert_eq!(rejected(&page, "revoked"), Some(4.0), "{page}");
    let (status, log) = daemon.stop();
    assert!(status.success() && log.contains("is from the future (2035-01-01"), "{log}");
}

/// Looks again until what is seen is as expected; gives what was seen last.
fn eventually(look: impl Fn() -> String, expected: impl Fn(&str) -> bool) -> String {
    let mut seen = look();
    for _ in 0..300 {
        if expected(&seen) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        seen = look();
    }
    seen
}

/// Contexts of snicctl are refused with the file and the reason, with no server at the other end.
#[test]
fn contexts_with_files_that_cannot_be_used_are_refused() {
    let (home, files) = (Home::new(), authority_with_lists(["new", "old"]));
    files.issue("p521", "ca", "subjectAltName=DNS:localhost", P521, "");
    let context = |certificate: &str, key: &str| {
        let set = format!(
            "snicctl context set wrong --endpoint https://127.0.0.1:1 --ca {} --certificate {} --key {}",
            files.path("ca.pem").display(),
            files.path(certificate).display(),
            files.path(key).display()
        );
        shell(&home, &format!("{set}\nsnicctl --context wrong tenant list"))
            .expect_err("it is wrong")
    };
    files.write("bom.pem", [&[0xef, 0xbb, 0xbf], files.text("root.pem").as_bytes()].concat());
    for (certificate, key, says) in [
        ("bom.pem", "root.key", "bom.pem cannot be used: it begins with a byte order mark"),
        ("below.pem", "below.key", "below.pem cannot be used: its issuer CN=middle is neither"),
        (
            "expired.pem",
            "expired.key",
            "expired.pem cannot be used: the certificate expired at 2021",
        ),
        (
            "early.pem",
            "early.key",
            "early.pem cannot be used: the certificate is not valid before 2035",
        ),
        ("root.pem", "revoked.key", "revoked.key cannot be used: the key does not belong"),
        ("p521.pem", "p521.key", "p521.pem cannot be used: its key is ECDSA with P-521"),
        ("nameless.pem", "nameless.key", "nameless.pem cannot be used: the certificate has 0 URIs"),
    ] {
        let error = context(certificate, key);
        assert!(error.contains(says), "{says}: {error}");
    }
}
