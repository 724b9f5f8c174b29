//! A replica's certificates: what cannot be used is named before there is a connection, and a host whose certificate is
//! revoked is rejected, logged and counted. OpenSSL makes the files and speaks TLS.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use snic_api::fleet_v1::LinkRequest;
use snic_api::fleet_v1::host_link_service_client::HostLinkServiceClient;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::cluster::{Cluster, eventually, free_ports, in_time, runtime};
use crate::openssl::{OpenSsl, P256, P521};
use crate::refusing::{Program, page};

/// An authority, a replica, and hosts of which one is revoked.
fn authority() -> OpenSsl {
    let files = OpenSsl::new();
    files.authority("ca", "ca", P256);
    files.intermediate("middle", "ca");
    for (name, issuer, kind) in
        [("replica", "ca", P256), ("p521", "ca", P521), ("lower", "middle", P256)]
    {
        let names = "subjectAltName=DNS:localhost,IP:127.0.0.1,URI:spiffe://snic.local/replica/r0\n\
                     extendedKeyUsage=serverAuth,clientAuth";
        files.issue(name, issuer, names, kind, "");
    }
    for name in ["h0", "h1"] {
        files.client(name, "ca", &format!("host/{name}"), "");
    }
    files.revoke("h0", "ca");
    files.list("new", "ca", "");
    files.list("past", "ca", "-crl_lastupdate 20200101000000Z -crl_nextupdate 20210101000000Z");
    files.list("future", "ca", "-crl_lastupdate 20350101000000Z -crl_nextupdate 20360101000000Z");
    files
}

/// Settings of a replica with these files, at an etcd, with the ports of its API and its metrics.
fn settings(files: &OpenSsl, (certificate, list): (&str, &str), at: (&str, [u16; 2])) -> PathBuf {
    let path = |name: &str| files.path(name);
    let (etcd, [port, metrics]) = at;
    let text = format!(
        "listen = \"127.0.0.1:{port}\"\naddress = \"https://localhost:{port}\"\nimages = {:?}\n\
         [tls]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\ncrl = {:?}\n\
         [etcd]\nendpoints = [{etcd:?}]\n[signatures]\nallow_unsigned = true\n\
         [telemetry]\nprometheus = \"127.0.0.1:{metrics}\"\n",
        path("images"),
        path("ca.pem"),
        path(&format!("{certificate}.pem")),
        path(&format!("{certificate}.key")),
        path(list),
    );
    files.write("fleet.toml", text)
}

fn program(settings: &PathBuf, check: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snic-fleet"));
    command.arg("--config").arg(settings).args(check.then_some("--check"));
    command.stdin(Stdio::null());
    command
}

#[test]
fn files_that_cannot_be_used_are_named_before_there_is_a_connection() {
    let files = authority();
    let nowhere = ("http://127.0.0.1:1", [0, 0]);
    let check = |certificate: &str, list: &str| {
        let settings = settings(&files, (certificate, list), nowhere);
        let output = program(&settings, true).output().unwrap();
        assert!(!output.status.success(), "etcd is not there");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = check("replica", "new.crl");
    assert!(!text.contains("WRONG tls"), "{text}");
    let current = "ok    tls: tls.crl: the list of revoked certificates of CN=ca is current until";
    assert!(text.contains(current), "{text}");
    files.run("x509 -in replica.pem -outform DER -out der.pem");
    files.write("der.key", files.text("replica.key"));
    files.write("bom.pem", [&[0xef, 0xbb, 0xbf], files.text("replica.pem").as_bytes()].concat());
    files.write("bom.key", files.text("replica.key"));
    files.write("other.pem", files.text("replica.pem"));
    files.write("other.key", files.text("h1.key"));
    for (certificate, says) in [
        ("p521", "p521.pem cannot be used: its key is ECDSA with P-521"),
        ("der", "der.pem cannot be used: it is DER"),
        ("bom", "bom.pem cannot be used: it begins with a byte order mark"),
        ("other", "other.key cannot be used: the key does not belong"),
        ("lower", "lower.pem cannot be used: its issuer CN=middle is neither in it nor in tls.ca"),
    ] {
        let text = check(certificate, "new.crl");
        let line = text.lines().find(|line| line.starts_with("WRONG tls: ")).unwrap_or(&text);
        assert!(line.contains(says), "{says}: {text}");
    }
    for (list, says) in [
        ("past.crl", "of CN=ca expired at 2021-01-01T00:00:00Z"),
        ("future.crl", "is from the future (2035-01-01T00:00:00Z)"),
    ] {
        let text = check("replica", list);
        let line = text.lines().find(|line| line.starts_with("WRONG tls: ")).unwrap_or(&text);
        assert!(line.contains(says), "{says}: {text}");
    }
    // A start ends with the same words.
    let output = program(&settings(&files, ("p521", "new.crl"), nowhere), false).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{log}");
    assert!(log.contains("p521.pem cannot be used: its key is ECDSA with P-521"), "{log}");
}

/// Whether a host gets a link to the replica; its reports are none.
async fn links(files: &OpenSsl, host: &str, port: u16) -> bool {
    let [certificate, key] = ["pem", "key"].map(|end| files.text(&format!("{host}.{end}")));
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(files.text("ca.pem")))
        .identity(Identity::from_pem(certificate, key));
    let endpoint = Endpoint::from_shared(format!("https://localhost:{port}")).unwrap();
    let endpoint = endpoint.tls_config(tls).unwrap().timeout(Duration::from_secs(10));
    // With TLS 1.3 a client has connected before the server has seen its certificate.
    let Ok(channel) = endpoint.connect().await else { return false };
    let reports = tokio_stream::pending::<LinkRequest>();
    match HostLinkServiceClient::new(channel).link(reports).await {
        Ok(_) => true,
        // The replica has answered: the host is not registered, or another replica leads.
        Err(status) => std::error::Error::source(&status).is_none(),
    }
}

#[test]
fn a_host_whose_certificate_is_revoked_is_rejected_logged_and_counted() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (files, ports) = (authority(), free_ports(2));
    let [port, metrics] = [ports[0], ports[1]];
    let file = settings(&files, ("replica", "past.crl"), (&cluster.urls()[0], [port, metrics]));
    let log = files.path("log");
    let mut command = program(&file, false);
    let mut program = Program(command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap());
    let log = || fs::read_to_string(&log).unwrap();
    let metrics = || page(&format!("127.0.0.1:{metrics}"), "/metrics");
    let value = |name: &str, words: &str| {
        let text = metrics();
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with(name) && line.contains(words))?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let revoked = || value("snic_tls_handshakes_rejected_total", "reason=\"revoked\"");
    let signal = |name: &str, pid: u32| {
        let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
        assert!(status.success());
    };
    let pid = program.0.id();
    runtime().block_on(in_time(async {
        eventually(async || log().contains("snic-fleet is up")).await;
        // As `date -u -d 2021-01-01 +%s` has it: the metric of the alert.
        let next = || value("snic_tls_crl_next_update_seconds", "issuer=\"CN=ca\"");
        eventually(async || next() == Some(1_609_459_200.0)).await;
        assert!(log().contains("of CN=ca expired at 2021-01-01T00:00:00Z"), "{}", log());
        assert!(!links(&files, "h0", port).await, "{}", log());
        // A client may try more than once.
        eventually(async || revoked() >= Some(1.0)).await;
        assert!(links(&files, "h1", port).await, "{}", log());
        // An address of its own, which the log has.
        let connect = format!("127.0.0.1:{port}");
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &connect, "-bind", "127.0.0.21:0", "-alpn", "h2"])
            .arg("-CAfile")
            .arg(files.path("ca.pem"))
            .arg("-cert")
            .arg(files.path("h0.pem"))
            .arg("-key")
            .arg(files.path("h0.key"))
            .stdin(Stdio::null())
            .output();
        output.unwrap();
        let said = "connection rejected peer=127.0.0.21:";
        let has_line = |line: &str| line.contains(said) && line.contains("reason=\"revoked\"");
        eventually(async || log().lines().any(has_line)).await;
        assert!(revoked() >= Some(2.0), "{}", metrics());
        // SIGHUP: the list that is there now.
        files.write("past.crl", files.text("future.crl"));
        signal("HUP", pid);
        let this = || value("snic_tls_crl_this_update_seconds", "issuer=\"CN=ca\"");
        eventually(async || this() == Some(2_051_222_400.0)).await;
        assert!(!links(&files, "h0", port).await, "{}", log());
    }));
    signal("TERM", pid);
    let status = program.0.wait().unwrap();
    assert!(status.success() && !log().contains("panicked"), "{status}: {}", log());
}
