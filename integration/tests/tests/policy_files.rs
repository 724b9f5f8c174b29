//! The roles of the page about authorization policies, with a running daemon and certificates, by the commands that
//! people type.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use snic_integration::commands::{block, ended, make_context, pki, reload, shell, until};
use snic_integration::{DaemonProcess, Home, TestClient, program};

const PAGE: &str = include_str!("../../../crates/host/daemon/docs/authorization.md");

/// A daemon with the cards `card0` and `a`, the policies of the page, and certificates.
struct Site {
    home: Home,
    policies: PathBuf,
    port: u16,
}

/// The policy files on the page: name and text.
fn files() -> Vec<(&'static str, &'static str)> {
    let blocks = PAGE.split("```cedar\n").skip(1);
    let block = |text: &'static str| {
        let (text, _) = text.split_once("```").expect("the end of the block");
        let name = text.lines().next().and_then(|line| line.strip_prefix("// "));
        (name.expect("the file's name"), text)
    };
    blocks.map(block).collect()
}

impl Site {
    fn new() -> Self {
        let home = Home::new();
        home.write_settings(
            "[[cards]]\nid = \"a\"\ndriver = \"sim\"\nmodel = \"sim-16\"\nseed = 2\n",
        );
        let policies = home.path().join("policies");
        let own = policies.join("authorization");
        std::fs::create_dir_all(&own).expect("made");
        for (name, text) in files() {
            std::fs::write(own.join(name), text).expect("written");
        }
        pki(&home, "init").expect("a new authority");
        let server = pki(&home, "issue server").expect("a certificate");
        let tls = block(&server, "settings of the daemon");
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            listener.local_addr().expect("an address").port()
        };
        let text = std::fs::read_to_string(home.settings()).expect("settings");
        let text = text.replace("[listen]", &format!("[listen]\ntcp = \"127.0.0.1:{port}\""));
        let text = format!("policies_dir = {policies:?}\n{text}\n{tls}");
        std::fs::write(home.settings(), text).expect("settings");
        Self { home, policies: own, port }
    }

    /// Starts the daemon; acme has a DAG.
    async fn start(&self) -> DaemonProcess {
        let daemon = self.home.start().await;
        let client = TestClient::connect(&self.home.socket(), "operator/test").await;
        let client = client.expect("it serves");
        client.register(&snic_bitstream::catalogue::builtin().expect("the catalogue")).await;
        for tenant in ["acme", "globex"] {
            client.create_tenant(tenant).await.expect("a tenant");
        }
        for caller in [
            "operator/dave",
            "operator/erin",
            "tenant/acme",
            "tenant/acme/alice",
            "tenant/acme/bob",
        ] {
            let printed = pki(&self.home, &format!("issue {caller}")).expect("a certificate");
            make_context(&self.home, &printed, self.port);
        }
        daemon
    }

    /// Whether the built daemon has the feature. In CI it must have.
    fn has_policies(&self) -> bool {
        let doctor = format!("snicd doctor -c {}", self.home.settings().display());
        let without = shell(&self.home, &doctor).is_err_and(|said| said.contains("without them"));
        assert!(
            !(without && std::env::var_os("CI").is_some()),
            "the tests need `--features snicd/cedar`, which `cargo xtask ci` gives"
        );
        !without
    }

    fn as_(&self, who: &str, words: &str) -> Result<String, String> {
        shell(&self.home, &format!("snicctl --context {who} {words}"))
    }

    fn dag_file(&self) -> String {
        let file = self.home.path().join("web.yaml");
        let text = "name: web\nbandwidth: 1Gbps\nchain: nat\n";
        std::fs::write(&file, text).expect("written");
        file.display().to_string()
    }
}

#[track_caller]
fn refused(result: Result<String, String>) {
    let said = result.expect_err("it must be refused");
    assert!(said.contains("authorization policies do not allow"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_roles_of_the_page_with_certificates() {
    let site = Site::new();
    if !site.has_policies() {
        return eprintln!("skipped: this snicd was built without the feature cedar");
    }
    let daemon = site.start().await;
    let file = site.dag_file();

    // An administrator, and a member who reads.
    assert_eq!(site.as_("acme.alice", "auth whoami").as_deref(), Ok("tenant/acme/alice\n"));
    site.as_("acme.alice", &format!("dag create -f {file} --wait")).expect("an administrator");
    assert!(site.as_("acme.bob", "dag list").expect("reads").contains("web"));
    site.as_("acme.bob", "dag explain web").expect("reads");
    refused(site.as_("acme.bob", "dag delete web"));
    refused(site.as_("acme.bob", &format!("dag create other -f {file}")));
    site.as_("acme.bob", &format!("dag create other -f {file} --validate-only")).expect("a check");

    // An operator of one card.
    site.as_("dave", "card cordon a").expect("its card");
    refused(site.as_("dave", "card cordon card0"));
    site.as_("dave", "region list").expect("it reads all");
    refused(site.as_("dave", "tenant create initech"));
    site.as_("erin", "card cordon card0").expect("another operator");
    site.as_("erin", "card uncordon card0").expect("another operator");

    // What one may do, and who did what by which policy.
    let no = site.as_("dave", "auth can-i cordon cards/card0").expect_err("not its card");
    assert!(no.contains("no: refused") && no.contains("dave-changes-card-a"), "{no}");
    let yes = site.as_("erin", "auth can-i CordonCard cards/a --as operator/dave").expect("yes");
    assert!(yes.contains("yes: allowed"), "{yes}");
    let no = site.as_("acme.bob", "auth can-i delete tenants/acme/dags/web").expect_err("reads");
    assert!(no.contains("no: ") && !no.contains(".cedar"), "{no}");
    let log = site.as_("erin", "audit").expect("an operator");
    let line = |what: &str| {
        let found = log.lines().find(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("{what}: {log}"))
    };
    let denied = ") CordonCard cards/card0: PERMISSION_DENIED";
    assert!(line(denied).ends_with("denied by card-operators.cedar:dave-changes-card-a"), "{log}");
    let allowed = ") CreateDag tenants/acme/dags/web: OK";
    assert!(line(allowed).ends_with("allowed by acme-administrators.cedar:alice"), "{log}");
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_change_are_in_force_at_once_and_wrong_ones_are_not() {
    let site = Site::new();
    if !site.has_policies() {
        return eprintln!("skipped: this snicd was built without the feature cedar");
    }
    let daemon = site.start().await;
    let mut watch = Command::new(program("snicctl"));
    watch.args(["--context", "acme.bob", "dag", "watch"]);
    watch.env("SNICCTL_CONFIG", site.home.path().join("snicctl.toml"));
    let watch = watch.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    site.as_("acme.bob", "dag list").expect("a reader");

    // A file that is wrong changes nothing, and says where.
    let dave = site.policies.join("card-operators.cedar");
    std::fs::write(&dave, "\n\nforbid (principal, action, resorce);").expect("written");
    reload(&daemon);
    until(&site.home, "snicctl --context erin events", |events| {
        events.as_ref().is_ok_and(|text| text.contains("card-operators.cedar:3: "))
    });
    refused(site.as_("dave", "card cordon card0"));

    // A file that goes takes its rights with it, also from a watch that runs.
    std::fs::remove_file(site.policies.join("acme-readers.cedar")).expect("removed");
    until(&site.home, "snicctl --context acme.bob dag list", Result::is_err);
    let events = site.as_("erin", "events").expect("an operator");
    assert!(events.contains("authorization/acme-readers.cedar is gone"), "{events}");
    let watch = ended(watch);
    let said = String::from_utf8_lossy(&watch.stderr).into_owned();
    assert_eq!(watch.status.code(), Some(6), "{said}");
    assert!(said.contains("no longer allow this stream"), "{said}");

    // Over a crash the last good text of the wrong file stays in force.
    daemon.kill();
    let daemon = site.home.start().await;
    refused(site.as_("dave", "card cordon card0"));
    std::fs::write(&dave, "// Nothing.\n").expect("written");
    until(&site.home, "snicctl --context dave card cordon card0", Result::is_ok);
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

/// A rule that forbids something must not be passed over in silence.
#[test]
fn a_daemon_without_the_feature_does_not_start_beside_policies_of_ones_own() {
    let site = Site::new();
    if site.has_policies() {
        return eprintln!("skipped: this snicd was built with the feature cedar");
    }
    let output = ended(site.home.command().spawn().expect("snicd"));
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{log}");
    let named = files().iter().any(|(name, _)| log.contains(&format!("authorization/{name}")));
    assert!(named && log.contains("--features cedar"), "{log}");
}
