//! A disk that takes nothing, or fails: the daemon stays up, reads and the card's loop go on, changes are
//! refused, and it recovers by itself.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod failing;
mod full;
mod read_only;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use snic_api::error::reason_of;
use snic_api::v1::{self, ErrorReason, ListTenantsRequest};
use snic_domain::DagName;
use snic_integration::commands::{operate, shell};
use snic_integration::{DaemonProcess, Home, TestClient, furnished};

/// Longest time of the daemon to see that the disk is well again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The machine whose lease the tests renew.
const MACHINE: &str = "123e4567-e89b-42d3-a456-426614174000";

/// A daemon with a DAG, a machine that uses it, a page and metrics.
struct Rig {
    home: Home,
    daemon: DaemonProcess,
    client: TestClient,
    page: SocketAddr,
    metrics: SocketAddr,
}

impl Rig {
    /// In a home whose disk is well.
    async fn start(home: Home) -> Self {
        let (page, metrics) = (free(), free());
        home.write_settings(&format!(
            "[web]\nlisten = \"{page}\"\ninsecure_plaintext = true\n\
             [telemetry]\nprometheus = \"{metrics}\""
        ));
        let daemon = home.start().await;
        let client = furnished(&home, &["web"]).await;
        let dag = DagName { tenant: label("acme"), dag: label("web") };
        let names = vec![dag.to_string()];
        let request = v1::BindVmRequest {
            vm: MACHINE.into(),
            tenant: "tenants/acme".into(),
            chains: Some(v1::bind_vm_request::Chains::Dags(v1::DagNames { names })),
            functions: 1,
            ..Default::default()
        };
        client.machines().bind_vm(request).await.expect("it is bound");
        Self { home, daemon, client, page, metrics }
    }

    /// All that does not write goes on: reads, heartbeats, the page, the card's loop.
    async fn assert_alive(&self) {
        assert!(tenants(&self.client).await.contains(&"tenants/acme".to_owned()));
        let request = v1::HeartbeatRequest { vms: vec![MACHINE.into()] };
        let beat = self.client.machines().heartbeat(request).await.expect("heartbeats pass");
        assert_eq!(beat.into_inner().missing, Vec::<String>::new());
        let key = std::fs::read_to_string(self.home.path().join("store/page.key")).expect("a key");
        let opened = get(self.page, &format!("/?key={}", key.trim()), "");
        let cookie = opened.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie.and_then(|cookie| cookie.split(';').next()).expect("the page opens");
        let explained = get(self.page, "/explanation/tenants/acme/dags/web", cookie);
        assert!(explained.starts_with("HTTP/1.1 200"), "{explained}");
        let (before, until) = (self.epochs(), Instant::now() + PATIENCE);
        while self.epochs() == before {
            assert!(Instant::now() < until, "the loop stands at epoch {before}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Epochs of the card's loop so far.
    fn epochs(&self) -> u64 {
        self.metric("snic_loop_epochs_total") as u64
    }

    /// The value of a metric that has one.
    fn metric(&self, name: &str) -> f64 {
        let page = get(self.metrics, "/metrics", "");
        let line = page
            .lines()
            .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
    }

    /// Asserts that it is told while the disk takes nothing: callers are refused with what the system says, are sent to the
    /// log, or hear that the store stopped, without a path; the metrics and `snicd doctor` say it; lost entries of the audit log are counted.
    async fn assert_told(&self, system: &str) {
        let lost = self.metric("snic_audit_lost_total");
        let until = Instant::now() + PATIENCE;
        let mut number = 0;
        // The last page of the log may have room for some entries.
        while self.metric("snic_audit_lost_total") == lost {
            number += 1;
            let status = self.client.create_tenant(&format!("told{number}")).await.unwrap_err();
            assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
            let says = |text: &str| status.message().contains(text);
            let is_told =
                [system, "see the server's log", "the store stopped after a failed write"];
            assert!(is_told.iter().any(|text| says(text)), "{status:?}");
            assert!(!status.message().contains('/'), "a path: {status:?}");
            assert!(Instant::now() < until, "{number} entries have room");
        }
        assert_eq!(self.metric("snic_store_unwritable_ratio"), 1.0);
        let doctor = format!("snicd doctor -c {} || true", self.home.settings().display());
        let said = shell(&self.home, &doctor).expect("it says what is wrong");
        let is_told = |line: &str| line.starts_with("WRONG data_dir: ") && line.contains(system);
        assert_eq!(said.lines().filter(|line| is_told(line)).count(), 2, "{said}");
    }

    /// Once the disk is well: the metric says so, and the audit log has whole entries again, behind those before.
    async fn assert_well(&self, created: &str) {
        assert_eq!(self.metric("snic_store_unwritable_ratio"), 0.0);
        let audit = operate(&self.home, "audit --method CreateTenant --limit 10000").unwrap();
        for tenant in ["tenants/acme", created] {
            assert!(audit.contains(tenant), "{tenant} is missing: {audit}");
        }
        let folder = self.home.path().join("store/audit");
        for file in std::fs::read_dir(folder).expect("the folder of the log") {
            let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
            let broken =
                text.lines().find(|line| serde_json::from_str::<serde_json::Value>(line).is_err());
            assert_eq!(broken, None, "half a line is in the log");
        }
    }
}

fn label<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text} is a label"))
}

fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it is bound")
}

/// Answer of a server of pages.
fn get(address: SocketAddr, path: &str, cookie: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the page is served");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    )
    .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    text
}

async fn tenants(client: &TestClient) -> Vec<String> {
    let mut all = Vec::new();
    let mut request = ListTenantsRequest { page_size: 1_000, ..Default::default() };
    loop {
        let reply = client.tenants().list_tenants(request.clone()).await;
        let reply = reply.expect("reads are answered").into_inner();
        all.extend(reply.tenants.into_iter().map(|tenant| tenant.name));
        if reply.next_page_token.is_empty() {
            return all;
        }
        request.page_token = reply.next_page_token;
    }
}

/// Creates tenants until one is rejected because of the store; gives those that were acknowledged.
async fn create_until_refused(client: &TestClient, prefix: &str) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0..10_000 {
        let id = format!("{prefix}{number}");
        if let Err(status) = client.create_tenant(&id).await {
            assert_eq!(reason_of(&status), Some(ErrorReason::StoreUnavailable), "{status:?}");
            return acknowledged;
        }
        acknowledged.push(format!("tenants/{id}"));
    }
    panic!("the disk takes everything");
}

async fn create_when_it_is_well(client: &TestClient, id: &str) {
    let until = Instant::now() + PATIENCE;
    while let Err(status) = client.create_tenant(id).await {
        assert_eq!(reason_of(&status), Some(ErrorReason::StoreUnavailable), "{status:?}");
        assert!(Instant::now() < until, "it never takes changes again: {status:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
