//! The hook's treatment of a binding when the daemon's reply is late, lost or a rejection: the hook
//! program against a scripted daemon.

use std::path::PathBuf;
use std::process::Stdio;

use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use snic_integration::fake_daemon::{Answer, Call, FakeDaemon};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tonic::Status;

const UUID: &str = "123e4567-e89b-42d3-a456-426614174000";

struct Host {
    folder: TempDir,
}

impl Host {
    fn new(when_down: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        std::fs::create_dir(path.join("state")).expect("a folder");
        let text = format!(
            "timeout_seconds = 1\nwhen_down = {when_down:?}\ndomain_log_dir = {path:?}\n\
             spool_dir = {:?}\nlibvirt_state_dir = {:?}\n[daemon]\nendpoint = \"unix:{}\"\n",
            path.join("spool"),
            path.join("state"),
            path.join("snicd.sock").display()
        );
        std::fs::write(path.join("hook.toml"), text).expect("writable");
        Self { folder }
    }

    fn daemon(&self) -> FakeDaemon {
        FakeDaemon::start(&self.folder.path().join("snicd.sock"))
    }

    fn xml(&self, tenant: &str) -> String {
        format!(
            "<domain><uuid>{UUID}</uuid><metadata><s:vm xmlns:s='urn:snic:libvirt:vm:1' \
             tenant='{tenant}'><s:dag name='web'/></s:vm></metadata></domain>"
        )
    }

    /// Whether a call succeeded.
    async fn run(&self, words: &[&str], xml: &str) -> bool {
        let mut child = Command::new(env!("CARGO_BIN_EXE_snic-hook"))
            .arg("--config")
            .arg(self.folder.path().join("hook.toml"))
            .args(words)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the hook starts");
        let mut stdin = child.stdin.take().expect("piped");
        // A program that ignores its input may have ended.
        let _ = stdin.write_all(xml.as_bytes()).await;
        drop(stdin);
        child.wait().await.expect("the hook ends").success()
    }

    async fn start_domain(&self) -> bool {
        self.run(&["web1", "prepare", "begin", "-"], &self.xml("acme")).await
    }

    async fn end_domain(&self) {
        assert!(self.run(&["web1", "release", "end", "-"], &self.xml("acme")).await);
    }

    async fn beat(&self) -> bool {
        self.run(&["heartbeat", "--once"], "").await
    }

    fn state_file(&self) -> PathBuf {
        self.folder.path().join("state/web1.xml")
    }

    /// libvirt writes this file once the domain runs.
    fn set_running(&self) {
        let text = format!("<domstatus>{}</domstatus>", self.xml("acme"));
        std::fs::write(self.state_file(), text).expect("writable");
    }
}

fn bind() -> Call {
    Call::Bind(UUID.into())
}

fn unbind() -> Call {
    Call::Unbind(UUID.into(), "tenants/acme".into())
}

fn rejected() -> Answer {
    let text = "already bound with a different spec";
    Answer::Status(ApiError::new(ErrorReason::InvalidState, text).into())
}

#[tokio::test]
async fn a_bind_without_an_answer_is_unbound_by_the_next_heartbeat() {
    let host = Host::new("refuse");
    let daemon = host.daemon();
    daemon.script(|script| script.bind = Answer::Silence).await;
    assert!(!host.start_domain().await, "the start is refused");
    assert_eq!(daemon.calls().await, [bind()]);
    assert!(host.beat().await);
    assert_eq!(daemon.calls().await, [bind(), unbind()], "the daemon may have bound it");
    assert!(host.beat().await);
    assert_eq!(daemon.calls().await.len(), 2, "once is enough");
}

#[tokio::test]
async fn a_rejected_bind_leaves_nothing_to_unbind() {
    let host = Host::new("refuse");
    let daemon = host.daemon();
    daemon.script(|script| script.bind = rejected()).await;
    assert!(!host.start_domain().await);
    assert!(host.beat().await);
    assert_eq!(daemon.calls().await, [bind()]);
}

#[tokio::test]
async fn a_new_start_completes_the_pending_unbind_and_is_not_undone_by_it() {
    let host = Host::new("refuse");
    host.end_domain().await;
    let daemon = host.daemon();
    assert!(host.start_domain().await);
    assert_eq!(daemon.calls().await, [unbind(), bind()], "what is left of the earlier start first");
    // libvirt has not written the state file yet.
    assert!(host.beat().await);
    assert_eq!(daemon.calls().await, [unbind(), bind()], "the new binding stays");
}

#[tokio::test]
async fn a_pending_unbind_survives_a_daemon_that_stays_silent() {
    let host = Host::new("refuse");
    host.end_domain().await;
    let daemon = host.daemon();
    daemon.script(|script| script.unbind = Answer::Silence).await;
    assert!(!host.start_domain().await, "the old binding may still be there");
    assert_eq!(daemon.calls().await, [unbind()]);
    daemon.script(|script| script.unbind = Answer::Done).await;
    assert!(host.beat().await);
    assert_eq!(daemon.calls().await, [unbind(), unbind()]);
}

#[tokio::test]
async fn an_overloaded_daemon_is_asked_to_unbind_again() {
    let host = Host::new("refuse");
    let daemon = host.daemon();
    let overloaded: Status = ApiError::new(ErrorReason::Overloaded, "too many calls").into();
    daemon.script(|script| script.unbind = Answer::Status(overloaded)).await;
    host.end_domain().await;
    assert!(host.beat().await);
    daemon.script(|script| script.unbind = Answer::Done).await;
    assert!(host.beat().await);
    assert!(host.beat().await);
    assert_eq!(daemon.calls().await, [unbind(), unbind(), unbind()]);
}

#[tokio::test]
async fn an_unbind_that_the_daemon_rejects_is_not_retried() {
    let host = Host::new("refuse");
    host.end_domain().await;
    let daemon = host.daemon();
    daemon.script(|script| script.unbind = rejected()).await;
    assert!(host.beat().await);
    assert!(host.beat().await);
    assert_eq!(daemon.calls().await, [unbind()]);
}

#[tokio::test]
async fn a_running_domain_is_never_recorded_for_unbinding() {
    let host = Host::new("refuse");
    let daemon = host.daemon();
    daemon.script(|script| script.bind = Answer::Silence).await;
    host.set_running();
    let xml = host.xml("acme");
    assert!(host.run(&["web1", "reconnect", "begin", "-"], &xml).await, "it must go on");
    std::fs::remove_file(host.state_file()).expect("it exists");
    assert!(host.beat().await);
    assert_eq!(daemon.calls().await, [bind()]);
}

#[tokio::test]
async fn a_domain_that_was_allowed_to_start_unbound_is_not_unbound() {
    let host = Host::new("allow");
    let daemon = host.daemon();
    daemon.script(|script| script.bind = Answer::Silence).await;
    assert!(host.start_domain().await, "the settings allow it");
    assert!(host.beat().await);
    assert_eq!(daemon.calls().await, [bind()]);
    daemon.script(|script| script.bind = Answer::Done).await;
    host.set_running();
    assert!(host.beat().await);
    assert_eq!(daemon.calls().await, [bind(), bind()], "the heartbeat binds what runs");
}

/// A daemon passes a tenant's words on, such as the name that it refuses: they reach libvirt's log, `virsh` and the log of the
/// domain.
#[tokio::test]
async fn what_a_daemon_says_reaches_logs_without_anything_that_a_terminal_obeys() {
    let host = Host::new("refuse");
    let daemon = host.daemon();
    let text = "no DAG \u{1b}]0;OWNED\u{7}\u{1b}[2J\u{9b}31m\u{202e}fdp\u{2028}\r\u{200b}";
    let refused: Status = ApiError::new(ErrorReason::InvalidState, text).into();
    daemon.script(|script| script.bind = Answer::Status(refused)).await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_snic-hook"))
        .arg("--config")
        .arg(host.folder.path().join("hook.toml"))
        .args(["web\u{1b}[31m", "prepare", "begin", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the hook starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(host.xml("acme").as_bytes()).await.expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().await.expect("the hook ends");
    assert!(!output.status.success());
    let log = host.folder.path().join("web\u{1b}[31m.log");
    let log =
        std::fs::read_to_string(log).expect("the domain's log, under the name that libvirt uses");
    for said in [String::from_utf8(output.stderr).expect("text"), log] {
        assert!(said.contains("no DAG \\u{1b}]0;OWNED\\u{7}"), "{said:?}");
        let is_hidden = |c: char| c != '\n' && snic_api::text::is_hidden(c);
        assert_eq!(said.find(is_hidden), None, "{said:?}");
    }
}
