//! Failures between the daemon and the card: the device dies, hangs, replies with garbage or half a
//! reply, during a load, a table row or a commit; the worker is killed; the daemon is killed.
//! Afterwards every acknowledged DAG is served, and the daemon and the card agree on each region.

use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use snic_api::replies::ItemOf as _;
use snic_api::v1::dag::State;
use snic_api::v1::{self, region};
use snic_bitstream::catalogue::{self, Catalogue};
use snic_domain::{Bandwidth, CardProfile, DagName, DagSpec};
use snic_integration::{Home, TestClient};
use snic_integration_xrt::control::Ask;
use snic_integration_xrt::daemon::{XrtCardProcess, write_settings};
use snic_integration_xrt::emulation;
use snic_integration_xrt::serve::{DeviceFailure, Trap};
use snic_tables::registers::{
    Address, BULK_START, COMMIT, LOAD_STATUS, REGION_EMPTY, REGION_LOADED, REGION_STATUS, region,
};

static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| catalogue::builtin().expect("the built-in catalogue is valid"));

fn profile() -> CardProfile {
    CATALOGUE.card(&"sim-16".parse().expect("a label")).expect("there").clone()
}

/// A worker that hangs is killed soon, so that the tests stay short.
const DEADLINES: &str = "[cards.xrt.deadlines]\naccess_ms = 400\nopen_ms = 20000\n";
/// Longest time of the recovery: deadlines, a second's pause, loads.
const WELL_MAX: Duration = Duration::from_secs(60);

struct Rig {
    card: XrtCardProcess,
    home: Home,
    daemon: Option<snic_integration::DaemonProcess>,
    dags: u32,
}

impl Rig {
    async fn start() -> Self {
        let card = XrtCardProcess::new(profile());
        let home = Home::new();
        write_settings(&home, &[&card.emulation], "hw_emu", DEADLINES);
        let daemon = Some(home.start().await);
        let mut rig = Self { card, home, daemon, dags: 0 };
        let client = rig.client().await;
        client.create_tenant("acme").await.expect("a new tenant");
        client.register(&CATALOGUE).await;
        rig.create("nat", 10).await;
        rig.check_all_is_well("before any fault").await;
        rig
    }

    async fn client(&self) -> TestClient {
        TestClient::connect(&self.home.socket(), "operator/test").await.expect("it serves")
    }

    /// A DAG of one NT, acknowledged.
    async fn create(&mut self, nt: &str, mbps: u64) {
        let dag = format!("dag{}", self.dags).parse().expect("a label");
        let name = DagName { tenant: "acme".parse().expect("a label"), dag };
        let spec = DagSpec::chain(&[nt.parse().expect("a label")], Bandwidth::from_mbps(mbps));
        self.client().await.create_dag(&name, &spec).await.expect("it fits");
        self.dags += 1;
    }

    fn trap(&self, at: Address, write: bool, failure: DeviceFailure) {
        self.card.trap(Trap { at, write, failure });
    }

    /// Every DAG that was acknowledged is ready, and daemon and card agree on every region.
    async fn check_all_is_well(&self, when: &str) {
        let client = self.client().await;
        let until = Instant::now() + WELL_MAX;
        loop {
            let dags = client.list_dags().await;
            assert_eq!(dags.len(), self.dags as usize, "{when}: DAGs that were acknowledged");
            let waiting: Vec<_> = dags.iter().filter(|dag| dag.state() != State::Ready).collect();
            let regions = self.regions_that_differ(&client).await;
            if waiting.is_empty() && regions.is_empty() {
                return;
            }
            let is_late = Instant::now() >= until;
            assert!(!is_late, "{when}: not ready: {waiting:#?}, {regions:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Regions on which the daemon and the card disagree.
    async fn regions_that_differ(&self, client: &TestClient) -> Vec<String> {
        let parent = "cards/card0".to_owned();
        let request = v1::ListRegionsRequest { parent, page_size: 32, ..Default::default() };
        let regions = client.cards().list_regions(request).await.expect("a list").into_inner();
        let card = self.card.ask(&Ask::Report);
        let status = |number| {
            let at = region(number, REGION_STATUS);
            card.registers.iter().find(|word| word.0 == at).map_or(REGION_EMPTY, |word| word.1)
        };
        let differs = |(number, region): (u8, &v1::Region)| {
            let holds = status(number);
            let agree = match region.state() {
                region::State::Free => holds == REGION_EMPTY,
                region::State::Active | region::State::Victim => holds == REGION_LOADED,
                _ => false,
            };
            (!agree)
                .then(|| format!("{}: {:?}, the card says {holds}", region.name, region.state()))
        };
        (0..).zip(&regions.regions).filter_map(differs).collect()
    }

    /// One fault after the other at one access; a request to the daemon meets it.
    async fn survive(&mut self, at: Address, write: bool, nt: &str, mbps: u64) {
        for failure in
            [DeviceFailure::Hang, DeviceFailure::Garbage, DeviceFailure::Short, DeviceFailure::Die]
        {
            self.trap(at, write, failure);
            self.create(nt, mbps).await;
            if failure == DeviceFailure::Die {
                self.card.wait_for_end();
                self.card.start();
            }
            self.check_all_is_well(&format!("{failure:?} at {at:#x}")).await;
            let client = self.client().await;
            let request = v1::GetCardRequest { name: "cards/card0".into() };
            let card = client.cards().get_card(request).await.item().expect("the card");
            assert_eq!(card.health(), v1::card::Health::Ok, "{failure:?}: {}", card.message);
        }
    }
}

/// The process that runs in a folder.
fn worker_in(folder: &Path) -> Option<Pid> {
    let folder = folder.canonicalize().ok()?;
    let pids = std::fs::read_dir("/proc").expect("a Linux system").flatten();
    pids.filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder))
        .find_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_fails_during_a_load_is_survived() {
    if !emulation::is_there() {
        return;
    }
    // More than half of what one region's AES passes, so that each DAG needs another region.
    Rig::start().await.survive(LOAD_STATUS, false, "aes", 16_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_fails_during_a_commit_is_survived() {
    if !emulation::is_there() {
        return;
    }
    Rig::start().await.survive(COMMIT, true, "nat", 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_fails_while_rows_are_on_their_way_is_survived() {
    if !emulation::is_there() {
        return;
    }
    Rig::start().await.survive(BULK_START, true, "nat", 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_or_a_daemon_that_is_killed_loses_nothing() {
    if !emulation::is_there() {
        return;
    }
    let mut rig = Rig::start().await;
    let folder = rig.home.path().join("store/xrt/card0");
    let loads = rig.card.ask(&Ask::Report).loads;
    let worker = worker_in(&folder).expect("the worker runs there");
    kill_process(worker, Signal::KILL).expect("it runs");
    let until = Instant::now() + WELL_MAX;
    while worker_in(&folder).is_none_or(|pid| pid == worker) {
        assert!(Instant::now() < until, "no other worker was started");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rig.check_all_is_well("after the worker was killed").await;
    assert_eq!(rig.card.ask(&Ask::Report).loads, loads, "what the card held was adopted");

    // The daemon, while the worker waits for a load.
    rig.trap(LOAD_STATUS, false, DeviceFailure::Hang);
    rig.create("aes", 16_000).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let worker = worker_in(&folder).expect("the worker runs there");
    rig.daemon.take().expect("it runs").kill();
    let until = Instant::now() + WELL_MAX;
    while test_kill_process(worker).is_ok() {
        assert!(Instant::now() < until, "the worker outlived its daemon");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    rig.daemon = Some(rig.home.start().await);
    rig.check_all_is_well("after the daemon was killed").await;
    // One log of all workers, over restarts of both.
    let log = std::fs::read_to_string(folder.join("worker.log")).expect("it is kept");
    assert!(log.matches("--- a worker starts").count() >= 3, "{log}");
}
