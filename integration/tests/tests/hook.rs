//! libvirt's hook against a daemon, called as libvirt calls it.

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};

use snic_api::replies::ItemOf as _;
use snic_api::v1::vm_binding::State;
use snic_api::v1::{self, VmBinding};
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_integration::commands::operate;
use snic_integration::{Home, TestClient, furnished, program};

const UUID: &str = "123e4567-e89b-42d3-a456-426614174000";

/// A domain that asks for a binding.
fn domain(metadata: &str) -> String {
    format!(
        "<domain type='qemu'><name>web1</name><uuid>{UUID}</uuid><metadata>{metadata}</metadata>\
         <memory>65536</memory></domain>"
    )
}

fn wish(children: &str) -> String {
    let namespace = "urn:snic:libvirt:vm:1";
    domain(&format!("<s:vm xmlns:s='{namespace}' tenant='acme' functions='2'>{children}</s:vm>"))
}

/// The hook of a host.
struct Hook<'a> {
    home: &'a Home,
}

impl Hook<'_> {
    fn configure(&self, more: &str) {
        self.configure_as("identity = \"orchestrator/libvirt\"", more);
    }

    /// The same with a line of the table `daemon`.
    fn configure_as(&self, identity: &str, more: &str) {
        let path = self.home.path();
        let text = format!(
            "{more}\ndomain_log_dir = {path:?}\nspool_dir = {:?}\nlibvirt_state_dir = {:?}\n\
             [daemon]\nendpoint = \"unix:{}\"\n{identity}\n",
            path.join("spool"),
            path.join("state"),
            self.home.socket().display()
        );
        std::fs::write(path.join("hook.toml"), text).expect("the folder takes files");
    }

    /// The same call on a host of another name.
    fn on_host(&self, host: &str, operation: &str, sub_operation: &str, xml: &str) -> Output {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--uts", "sh", "-c", "hostname $0 && exec \"$@\"", host]);
        command.arg(program("snic-hook"));
        self.run_in(command, &["web1", operation, sub_operation, "-"], xml)
    }

    fn run(&self, words: &[&str], xml: &str) -> Output {
        self.run_in(Command::new(program("snic-hook")), words, xml)
    }

    fn run_in(&self, mut command: Command, words: &[&str], xml: &str) -> Output {
        let mut child = command
            .arg("--config")
            .arg(self.home.path().join("hook.toml"))
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the hook starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        // One that reads nothing has ended already.
        let _ = stdin.write_all(xml.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("the hook ends")
    }

    /// One call; returns its output, and whether it succeeded.
    fn call(&self, operation: &str, sub_operation: &str, xml: &str) -> (bool, String) {
        let output = self.run(&["web1", operation, sub_operation, "-"], xml);
        assert_eq!(output.stdout, b"", "what is printed would replace the domain's XML");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn fine(&self, operation: &str, sub_operation: &str, xml: &str) {
        let (fine, said) = self.call(operation, sub_operation, xml);
        assert!(fine, "{operation} {sub_operation}: {said}");
    }

    fn refused(&self, xml: &str) -> String {
        let (fine, said) = self.call("prepare", "begin", xml);
        assert!(!fine, "{said}");
        said
    }
}

async fn binding(client: &TestClient) -> Option<VmBinding> {
    let request = v1::GetBindingRequest { name: format!("vmBindings/{UUID}") };
    client.machines().get_binding(request).await.item().ok()
}

async fn state(client: &TestClient) -> Option<State> {
    binding(client).await.map(|binding| binding.state())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_domain_is_bound_before_it_runs_and_freed_after() {
    let home = Home::new();
    let daemon = home.start().await;
    let client = furnished(&home, &["web", "mail"]).await;
    let hook = Hook { home: &home };
    hook.configure("");
    let xml = wish("<s:dag name='web'/><s:dag name='mail'/>");
    hook.fine("release", "end", &xml);
    assert_eq!(state(&client).await, None, "out of order: there was nothing to give back");
    hook.fine("prepare", "begin", &xml);
    let bound = binding(&client).await.expect("it is bound");
    assert_eq!((bound.state(), bound.functions.len()), (State::Bound, 2));
    assert!(bound.dags.iter().all(|dag| dag.state() == v1::dag::State::Ready));
    for (operation, sub) in [("start", "begin"), ("started", "begin"), ("prepare", "begin")] {
        hook.fine(operation, sub, &xml);
    }
    hook.fine("reconnect", "begin", &xml);
    assert_eq!(binding(&client).await, Some(bound), "nothing has changed");
    hook.fine("stopped", "end", &xml);
    assert_eq!(state(&client).await, Some(State::Bound));
    hook.fine("release", "end", &xml);
    hook.fine("release", "end", &xml);
    assert_eq!(state(&client).await, Some(State::Unbound));
    hook.fine("reconnect", "begin", &xml);
    assert_eq!(state(&client).await, Some(State::Bound), "a domain that runs is bound again");
    let _ = daemon.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_hook_arguments_are_refused_with_the_reason() {
    let home = Home::new();
    let daemon = home.start().await;
    let client = furnished(&home, &["web", "mail"]).await;
    let hook = Hook { home: &home };
    hook.configure("");
    hook.fine("prepare", "begin", &domain(""));
    assert_eq!(state(&client).await, None, "a domain that wants nothing gets nothing");
    for (xml, says) in [
        ("<domain".to_owned(), "cannot be read"),
        (domain("<s:vm xmlns:s='urn:snic:libvirt:vm:9'/>"), "version"),
        (wish("<s:dag name='nope'/>"), "tenants/acme/dags/nope does not exist"),
        (wish("<s:dag name='web'/>").replace("acme", "nobody"), "tenants/nobody"),
        (wish("<s:dag name='web'/>").replace(UUID, "one"), "UUID"),
    ] {
        let said = hook.refused(&xml);
        assert!(said.contains(says), "{said}");
        let log = std::fs::read_to_string(home.path().join("web1.log")).expect("the domain's log");
        assert!(log.ends_with(&said), "{log}");
        // A call with broken input ends all the same.
        hook.fine("release", "end", &xml);
        hook.fine("reconnect", "begin", &xml);
    }
    let xml = wish("<s:dag name='web'/>");
    hook.fine("prepare", "begin", &xml);
    client.create_tenant("beta").await.expect("a tenant");
    let foreign = xml.replace("acme", "beta");
    let theirs =
        DagName { tenant: "beta".parse().expect("a label"), dag: "web".parse().expect("") };
    let spec = DagSpec::chain(&["nat".parse().expect("an NT type")], Bandwidth::from_mbps(1));
    client.create_dag(&theirs, &spec).await.expect("there is room");
    let said = hook.refused(&foreign);
    assert!(
        said.contains("bound with a different spec, for tenants/acme"),
        "a UUID of another tenant: {said}"
    );
    hook.fine("release", "end", &foreign);
    assert_eq!(state(&client).await, Some(State::Bound), "it is not beta's to give back");
    assert!(
        hook.refused(&wish("<s:dag name='mail'/>")).contains("already bound with a different spec")
    );
    let _ = daemon.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_daemon_is_down_the_policy_decides() {
    let home = Home::new();
    let hook = Hook { home: &home };
    let xml = wish("<s:dag name='web'/>");
    hook.configure("");
    assert!(hook.refused(&xml).contains("cannot be reached"));
    hook.configure("when_down = \"allow\"");
    hook.fine("prepare", "begin", &xml);
    hook.configure("timeout_seconds = 0");
    assert!(hook.refused(&xml).contains("timeout_seconds"), "wrong settings refuse a start");
    hook.fine("release", "end", &xml);
    hook.fine("started", "begin", &xml);

    // The domain runs without its functions until the daemon is back.
    hook.configure("when_down = \"allow\"");
    let daemon = home.start().await;
    let client = furnished(&home, &["web", "mail"]).await;
    let states = home.path().join("state");
    std::fs::create_dir(&states).expect("a folder");
    let status = states.join("web1.xml");
    std::fs::write(&status, format!("<domstatus>{xml}</domstatus>")).expect("a file");
    let beat = || hook.run(&["heartbeat", "--once"], "");
    assert!(beat().status.success());
    assert_eq!(state(&client).await, Some(State::Bound));
    assert!(beat().status.success());

    // It ends while the daemon is down: this is recorded, and the next heartbeat unbinds it.
    let _ = daemon.kill();
    std::fs::remove_file(&status).expect("it is there");
    hook.fine("release", "end", &xml);
    assert!(!beat().status.success(), "nobody hears it");
    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    assert_eq!(state(&client).await, Some(State::Bound));
    assert!(beat().status.success());
    assert_eq!(state(&client).await, Some(State::Unbound));
    let _ = daemon.kill();
}

#[test]
fn a_daemon_that_does_not_speak_does_not_hold_libvirt() {
    let home = Home::new();
    let _silent = UnixListener::bind(home.socket()).expect("a socket");
    let hook = Hook { home: &home };
    hook.configure("timeout_seconds = 1");
    assert!(hook.refused(&wish("<s:dag name='web'/>")).contains("cannot be reached"));
}

/// Many hosts have the same settings. Their hooks name program and host, which the log marks as long as nobody else says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_tells_hosts_with_the_same_settings_apart() {
    let home = Home::new();
    let daemon = home.start().await;
    furnished(&home, &["web", "mail"]).await;
    let hook = Hook { home: &home };
    let xml = wish("<s:dag name='web'/>");
    hook.configure_as("", "");
    for host in ["node1", "node2.example.org"] {
        for (operation, sub_operation) in [("prepare", "begin"), ("release", "end")] {
            let output = hook.on_host(host, operation, sub_operation, &xml);
            assert!(output.status.success(), "{output:?}");
        }
    }
    let log = operate(&home, "audit").expect("an operator");
    for host in ["node1", "node2"] {
        let stated = format!(" orchestrator/libvirt-{host} (stated, uid ");
        let found: Vec<_> = log.lines().filter(|line| line.contains(&stated)).collect();
        assert_eq!(found.len(), 2, "bound and unbound by {host}: {log}");
        assert!(found.iter().all(|line| line.contains(UUID)), "{log}");
    }
    let _ = daemon.kill();

    // A user who is one host by the settings cannot be another.
    let text = std::fs::read_to_string(home.settings()).expect("they are there");
    let text = text.replace("\"orchestrator/*\"", "\"orchestrator/libvirt-node1\"");
    std::fs::write(home.settings(), text).expect("the folder takes files");
    let daemon = home.start().await;
    let output = hook.on_host("node1", "prepare", "begin", &xml);
    assert!(output.status.success(), "{output:?}");
    let output = hook.on_host("node2", "release", "end", &xml);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("may not be orchestrator/libvirt-node2 on this socket"), "{said}");
    let log = operate(&home, "audit").expect("an operator");
    let proven = log.lines().rev().find(|line| line.contains(UUID)).expect("it is logged");
    assert!(proven.contains(" orchestrator/libvirt-node1 (uid "), "{log}");
    let _ = daemon.kill();
}
