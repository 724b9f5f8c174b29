//! A daemon that belongs to a fleet, killed between the steps of what it is ordered; the test plays the fleet's leader.

// The replica of the link's own tests; some of what it can do is for those.
#[allow(dead_code)]
#[path = "../../../crates/fleet/host-link/tests/link/replica.rs"]
mod replica;

use std::collections::BTreeMap;
use std::time::Duration;

use replica::{Authority, Orders, Replica, dag_of, name, removal};
use snic_api::v1::dag::State;
use snic_bitstream::catalogue::{Catalogue, builtin};
use snic_domain::{Bandwidth, DagName, DagSpec, Digest, NtTypeId};
use snic_fleet::protocol::{Epoch, HostReport, Numbered, OrderKind, Provisions};
use snic_integration::{DaemonProcess, Home, TestClient};
use tonic::Code;

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens")
}

/// A host that is linked to the replica that the test plays.
struct Host {
    home: Home,
    replica: Replica,
    daemon: Option<DaemonProcess>,
    orders: Orders,
    epoch: i64,
    sequence: u64,
}

impl Host {
    async fn start() -> Self {
        let (home, authority) = (Home::new(), Authority::new());
        let mut replica = Replica::start(&authority).await;
        let tls = authority.link_tls("host/h0");
        for (file, pem) in [("ca", &tls.authority), ("crt", &tls.certificate), ("key", &tls.key)] {
            std::fs::write(home.path().join(file), pem.text()).expect("the folder takes files");
        }
        let path = |file| home.path().join(file);
        home.write_settings(&format!(
            "[fleet]\nendpoints = [{:?}]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\nbeat_ms = 100",
            replica.endpoint(),
            path("ca"),
            path("crt"),
            path("key"),
        ));
        let daemon = Some(home.start().await);
        let orders = within(replica.linked()).await;
        Self { home, replica, daemon, orders, epoch: 5, sequence: 0 }
    }

    /// `kill -9`, and a new daemon on the same folder, which links again.
    async fn kill(&mut self) {
        drop(self.daemon.take().map(DaemonProcess::kill));
        self.daemon = Some(self.home.start().await);
        self.orders = within(self.replica.linked()).await;
    }

    fn send(&mut self, what: OrderKind) {
        self.sequence += 1;
        self.orders.send(self.epoch, self.sequence, what);
    }

    async fn report<T>(&mut self, meant: impl Fn(HostReport) -> Option<T>) -> T {
        within(async {
            loop {
                let report = self.orders.report().await.expect("the host is linked");
                if let Some(found) = meant(report) {
                    return found;
                }
            }
        })
        .await
    }

    async fn applied(&mut self, wanted: u64) {
        self.report(|report| match report {
            HostReport::Applied { serial, .. } => (serial == wanted).then_some(()),
            HostReport::Refused { serial, reason, .. } if serial == wanted => panic!("{reason}"),
            _ => None,
        })
        .await;
    }

    /// Content of the next beat: the epoch, what was provided, and how many images are missing.
    async fn beat(&mut self) -> (Epoch, Digest, usize) {
        self.report(|report| match report {
            HostReport::Beat { epoch, provided, missing, .. } => {
                Some((epoch, provided, missing.len()))
            }
            _ => None,
        })
        .await
    }

    /// Until all that was provided is there, and not only what was before a kill.
    async fn provided(&mut self, all: &Provisions) {
        let all = all.digest();
        within(async {
            loop {
                let (_, provided, missing) = self.beat().await;
                if (provided, missing) == (all, 0) {
                    return;
                }
            }
        })
        .await;
    }

    /// The DAGs that it says it serves.
    async fn holds(&mut self) -> BTreeMap<DagName, u64> {
        self.send(OrderKind::List(replica::card()));
        self.report(|report| match report {
            HostReport::Holds { dags, .. } => Some(dags),
            _ => None,
        })
        .await
    }

    async fn client(&self) -> TestClient {
        TestClient::connect(&self.home.socket(), "operator/test").await.expect("it serves")
    }

    /// The state of the fleet's DAG; `None` where it is not there.
    async fn state(&self) -> Option<State> {
        let dags = self.client().await.list_dags().await;
        dags.iter().find(|dag| dag.name == name().to_string()).map(|dag| dag.state())
    }

    async fn until(&self, wanted: Option<State>) {
        within(async {
            while self.state().await != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

/// The NT types of the catalogue and a chain for the simulated card, with its image.
fn provisions(catalogue: &Catalogue) -> (OrderKind, Provisions, Vec<u8>) {
    let model = "sim-16".parse().expect("a label");
    let profile = catalogue.card(&model).expect("the catalogue has it");
    let uses = |nts: &[NtTypeId]| nts.iter().any(|nt| nt.as_str() == "firewall");
    let built = catalogue
        .chains_for(&model)
        .map(|chain| catalogue.test_bitstream(chain, profile).expect("a chain of the catalogue"));
    let (bitstream, image) =
        built.into_iter().find(|(of, _)| uses(&of.nts)).expect("a chain with a firewall");
    let nts = catalogue.nt_types.iter().cloned();
    let nts: Vec<_> = (1..).zip(nts).map(|(number, of)| Numbered { number, of }).collect();
    let all = Provisions {
        nts: nts.iter().map(|nt| (nt.of.id.clone(), nt.number)).collect(),
        bitstreams: [(bitstream.id.clone(), 100)].into(),
        tenants: BTreeMap::new(),
    };
    let bitstreams = vec![Numbered { number: 100, of: bitstream }];
    (OrderKind::Provide { nts, bitstreams, tenants: Vec::new() }, all, image)
}

fn put(serial: u64, mbps: u64) -> OrderKind {
    let firewall: NtTypeId = "firewall".parse().expect("a label");
    dag_of("web", serial, DagSpec::chain(&[firewall], Bandwidth::from_mbps(mbps)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_killed_between_any_two_steps_carries_its_orders_out() {
    let mut host = Host::start().await;
    assert_eq!(host.beat().await.0, Epoch(0));
    host.send(OrderKind::Greet);
    while host.beat().await.0 != Epoch(5) {}
    host.kill().await;
    assert_eq!(host.beat().await.0, Epoch(5), "the epoch was remembered");

    // What is provided: killed at once, and once more when it is there.
    let (provide, all, image) = provisions(&builtin().expect("the built-in catalogue"));
    host.replica.sends(vec![image.clone(), image]);
    host.send(provide.clone());
    host.kill().await;
    host.send(provide);
    host.provided(&all).await;
    host.kill().await;
    let (_, provided, missing) = host.beat().await;
    assert_eq!((provided, missing), (all.digest(), 0), "the numbers were stored");

    // A DAG: killed while it is on its way, and once it is served.
    host.send(put(7, 500));
    host.kill().await;
    host.send(put(7, 500));
    host.applied(7).await;
    host.kill().await;
    assert_eq!(host.holds().await, [(name(), 7)].into());
    host.until(Some(State::Ready)).await;

    // A change, killed in the middle; the DAG is there all the time.
    host.send(put(9, 800));
    host.kill().await;
    assert!(host.state().await.is_some());
    host.send(put(9, 800));
    host.applied(9).await;
    host.kill().await;
    assert_eq!(host.holds().await, [(name(), 9)].into());
    let dags = host.client().await.list_dags().await;
    assert_eq!(dags[0].bandwidth_bps, 800_000_000);

    // An order of a leader before it changes nothing; nor does anybody on the host.
    host.orders.send(4, 1_000, removal(9));
    let refused = host.client().await.delete_dag(&name()).await.expect_err("the fleet manages it");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("the fleet manages it"), "{refused}");
    assert_eq!(host.holds().await, [(name(), 9)].into());

    host.send(removal(9));
    host.until(None).await;
    host.kill().await;
    assert_eq!(host.holds().await, [].into());
}

/// A host whose certificate the fleet rejects says so, with the replica and its reason; files that cannot be used are named
/// before there is a connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_says_why_the_fleet_rejects_its_certificate() {
    let (home, authority, other) = (Home::new(), Authority::new(), Authority::new());
    let replica = Replica::start(&authority).await;
    let (tls, foreign) = (authority.link_tls("host/h0"), other.link_tls("host/h0"));
    let write = |file: &str, text: &[u8]| {
        std::fs::write(home.path().join(file), text).expect("the folder takes files");
    };
    write("ca", tls.authority.text().as_bytes());
    write("crt", foreign.certificate.text().as_bytes());
    write("key", foreign.key.text().as_bytes());
    let path = |file| home.path().join(file);
    home.write_settings(&format!(
        "[fleet]\nendpoints = [{:?}]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\nbeat_ms = 100",
        replica.endpoint(),
        path("ca"),
        path("crt"),
        path("key"),
    ));
    // RFC 8446, 6.2: the alert for a signature that does not verify, for both authorities have one name. The host may write
    // once more before the alert is there, and then only learns that the connection is closed.
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains("received fatal alert: DecryptError")) {
        assert!(lines.len() < 10, "{lines:?}");
        let daemon = home.start().await;
        // The link is tried at once, and twice more within this time.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (status, log) = daemon.stop();
        assert!(status.success(), "{log}");
        let line = log.lines().find(|line| line.contains("not linked to the fleet"));
        let line = line.unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains(&replica.endpoint()), "{line}");
        lines.push(line.to_owned());
    }

    for (file, text, says) in [
        (
            "crt",
            &b"\xef\xbb\xbf-----BEGIN CERTIFICATE-----\n"[..],
            "it begins with a byte order mark",
        ),
        ("key", b"", "it is empty"),
        ("crt", b"\x30\x82\x01\x0a\x02\x82\x01\x01", "it is DER"),
    ] {
        write("crt", tls.certificate.text().as_bytes());
        write("key", tls.key.text().as_bytes());
        write(file, text);
        let (status, log) = home.run_to_end();
        let named = format!("{} cannot be used: {says}", path(file).display());
        assert!(!status.success() && log.contains(&named), "{named}: {log}");
    }
}

/// Without the fleet the host serves on, and what a leader ordered meanwhile is done when it is heard again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_its_fleet_serves_on() {
    let mut host = Host::start().await;
    let (provide, all, image) = provisions(&builtin().expect("the built-in catalogue"));
    host.replica.sends(vec![image]);
    host.send(provide);
    host.provided(&all).await;
    host.send(put(7, 500));
    host.applied(7).await;
    // In this order: a link that is made in between would be taken for the next daemon's.
    host.replica.refuse("nobody leads");
    host.orders.end();
    drop(host.daemon.take().map(DaemonProcess::kill));
    host.daemon = Some(host.home.start().await);
    host.until(Some(State::Ready)).await;
    host.replica.accept();
    host.orders = within(host.replica.linked()).await;
    (host.epoch, host.sequence) = (6, 0);
    host.send(removal(7));
    host.until(None).await;
}
