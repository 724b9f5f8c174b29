//! A machine that moves to another host while it runs, from one libvirtd to another, each in its own namespaces and with
//! its own daemon and card. The DAG follows: the target binds it before the machine runs there, the source releases it
//! once the machine has left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snic_api::v1;
use snic_api::v1::vm_binding::State;
use snic_integration::{DaemonProcess, Home, TestClient, furnished};

use super::{Libvirt, WISH, bare, binding, configure, missing, wait_for};

/// A host: its libvirtd, its daemon.
struct Host {
    libvirt: Libvirt,
    daemon: DaemonProcess,
    client: TestClient,
    home: Home,
}

impl Host {
    async fn start() -> Self {
        let home = Home::new();
        configure(&home, "");
        let libvirt = Libvirt::start(&home);
        let daemon = home.start().await;
        let client = furnished(&home, &["web"]).await;
        Self { libvirt, daemon, client, home }
    }

    /// Moves the machine away; libvirt's error if it stays.
    fn migrate(&self, to: &Self) -> Result<(), String> {
        let socket = to.libvirt.path("/run/libvirt/libvirt-sock");
        let target = format!("qemu+unix:///system?socket={}", socket.display());
        let way = format!("unix://{}", to.home.path().join("memory.sock").display());
        let words = ["migrate", "--live", "web1", &target, "--migrateuri", &way];
        let output = self.libvirt.virsh(&words);
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn runs(&self) -> bool {
        let output = self.libvirt.virsh(&["domstate", "web1"]);
        String::from_utf8_lossy(&output.stdout).trim() == "running"
    }

    async fn is_served(&self) -> bool {
        let Some(bound) = binding(&self.client).await else { return false };
        bound.state() == State::Bound && bound.dags.iter().all(is_ready)
    }
}

fn is_ready(dag: &v1::BoundDag) -> bool {
    dag.state() == v1::dag::State::Ready
}

/// Whether the machine's DAG was served by source and target, each time somebody looked.
async fn watched(source: &Host, target: &Host, until: &AtomicBool) -> Vec<(bool, bool)> {
    let mut seen = Vec::new();
    while !until.load(Ordering::Acquire) {
        // The source is asked first: a machine that has just left it is at the target.
        let now = (source.is_served().await, target.is_served().await);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_moves_to_another_host_and_its_dag_is_there_before_it() {
    if let Some(why) = missing() {
        eprintln!("SKIPPED: no machine can be moved here: {why}");
        return;
    }
    let (source, target) = (Arc::new(Host::start().await), Arc::new(Host::start().await));
    source.libvirt.define(&source.home, &bare(WISH));
    source.libvirt.start_machine().expect("it is bound");
    assert!(source.is_served().await);

    // There and back.
    for (from, to) in [(&source, &target), (&target, &source)] {
        let ended = Arc::new(AtomicBool::new(false));
        let moving = {
            let (from, to, ended) = (Arc::clone(from), Arc::clone(to), Arc::clone(&ended));
            tokio::task::spawn_blocking(move || {
                let moved = from.migrate(&to);
                ended.store(true, Ordering::Release);
                moved
            })
        };
        let seen = watched(from, to, &ended).await;
        moving.await.expect("no panic").expect("it moves");
        assert!(!seen.contains(&(false, false)), "nobody served it: {seen:?}");
        assert!(seen.contains(&(true, true)), "the target before the source let go: {seen:?}");
        assert!(to.runs() && !from.runs(), "it runs at the target");
        wait_for(&from.client, State::Unbound).await;
        assert!(to.is_served().await);
    }

    // A target that cannot serve it does not get it: it runs on where it is, with its DAG.
    let web = snic_domain::DagName {
        tenant: "acme".parse().expect("an id"),
        dag: "web".parse().expect("an id"),
    };
    target.client.delete_dag(&web).await.expect("nothing uses it");
    let said = source.migrate(&target).expect_err("there is no such DAG at the target");
    assert!(said.contains("tenants/acme/dags/web"), "{said}");
    assert!(source.runs() && source.is_served().await && !target.is_served().await);

    source.libvirt.fine(&["destroy", "web1"]);
    wait_for(&source.client, State::Unbound).await;
    for host in [source, target] {
        let host = Arc::into_inner(host).expect("nobody uses it any more");
        let (status, log) = host.daemon.stop();
        assert!(status.success(), "{log}");
    }
}
