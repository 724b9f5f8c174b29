//! The page over TLS: a browser sends its user's certificate, and only operators see anything.

use std::path::Path;
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use snic_integration::{Home, TestClient};
use tempfile::TempDir;

use super::browser::{Browser, PROFILE};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.distinguished_name.push(DnType::CommonName, "test authority");
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

/// A certificate and its key, as files in a folder.
fn issue(authority: &Authority, folder: &Path, name: &str, san: SanType) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = vec![san];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, authority).expect("signed");
    let write = |kind: &str, text: String| {
        std::fs::write(folder.join(format!("{name}.{kind}")), text).expect("a file");
    };
    write("pem", certificate.pem());
    write("key", key.serialize_pem());
}

/// Runs a program in a folder; `None` if it is not installed.
fn run(folder: &Path, program: &str, words: &[&str]) -> Option<()> {
    let mut command = Command::new(program);
    let command = command.args(words).current_dir(folder).stdin(Stdio::null());
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: {program} is missing");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {words:?}: {said}");
    Some(())
}

/// The home of a user who trusts the authority, and sends the certificate of that name, if any, to
/// the page.
fn home(authority: &Authority, who: Option<&str>, page: &str) -> Option<TempDir> {
    let home = tempfile::tempdir().expect("a temporary folder");
    let folder = home.path();
    std::fs::write(folder.join("ca.pem"), authority.pem()).expect("a file");
    if let Some(who) = who {
        let uri = format!("spiffe://snic.local/{who}").try_into().expect("a URI");
        issue(authority, folder, "user", SanType::URI(uri));
    }
    furnished(home, page)
}

/// A home with `ca.pem`, and with `user.pem` and `user.key` if its user has a certificate, as Chromium reads it.
pub fn furnished(home: TempDir, page: &str) -> Option<TempDir> {
    let folder = home.path();
    let (profile, base) = (folder.join(PROFILE).join("Default"), folder.join(".pki/nssdb"));
    std::fs::create_dir_all(&profile).and(std::fs::create_dir_all(&base)).expect("folders");
    let base = "sql:.pki/nssdb";
    run(folder, "certutil", &["-d", base, "-N", "--empty-password"])?;
    run(folder, "certutil", &["-d", base, "-A", "-t", "C,,", "-n", "ca", "-i", "ca.pem"])?;
    if folder.join("user.pem").exists() {
        let words = ["pkcs12", "-export", "-in", "user.pem", "-inkey", "user.key", "-name", "user"];
        let words = [&words[..], &["-passout", "pass:", "-out", "user.p12"]].concat();
        run(folder, "openssl", &words)?;
        run(folder, "pk12util", &["-d", base, "-i", "user.p12", "-W", ""])?;
    }
    // A person would be asked here which certificate to send.
    let sites = serde_json::json!({ format!("{page},*"): { "setting": { "filters": [{}] } } });
    let exceptions = serde_json::json!({ "auto_select_certificate": sites });
    let all =
        serde_json::json!({ "profile": { "content_settings": { "exceptions": exceptions } } });
    std::fs::write(profile.join("Preferences"), all.to_string()).expect("a file");
    Some(home)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_an_operators_browser_sees_it_and_nobody_elses() {
    let authority = authority();
    let files = Home::new();
    let folder = files.path().to_owned();
    std::fs::write(folder.join("ca.pem"), authority.pem()).expect("a file");
    issue(&authority, &folder, "server", SanType::DnsName("localhost".try_into().expect("a name")));
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let address = free.expect("a free port");
    let path = |name: &str| folder.join(name);
    files.write_settings(&format!(
        "[tls]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\n[web]\nlisten = \"{address}\"\n",
        path("ca.pem"),
        path("server.pem"),
        path("server.key"),
    ));
    let daemon = files.start().await;
    let client = TestClient::connect(&files.socket(), "operator/test").await.expect("it serves");
    client.create_tenant("acme").await.expect("a tenant");

    let page = format!("https://localhost:{}", address.port());
    let look = |who: Option<&str>| Browser::start_at(home(&authority, who, &page)?);
    let Some(mut browser) = look(Some("operator/root")) else { return };
    browser.open(&page);
    browser.until("document.querySelector('#link')?.textContent === 'live'");
    browser.until("document.querySelectorAll('.tile').length === 16");
    assert_eq!(browser.complaints, [""; 0]);
    for (who, said) in [
        (Some("tenant/acme"), "this page is for operators"),
        (None, "import a client certificate for spiffe://snic.local/operator/<name>"),
    ] {
        let mut browser = look(who).expect("as the one before");
        browser.open(&page);
        browser.until(&format!("document.body.textContent.includes('{said}')"));
        assert!(!browser.text().contains("acme"), "{}", browser.text());
    }
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
