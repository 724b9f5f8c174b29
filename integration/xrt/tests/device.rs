//! The device behind a card: its sensors, its platform, a reset, and what happens when it is pulled and comes back.
//! Its folder in sysfs is one of the test, as the driver of a U280 has it.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use snic_api::replies::ItemOf as _;
use snic_api::v1::card::Health;
use snic_api::v1::condition::Status;
use snic_api::v1::{self, Card};
use snic_bitstream::catalogue::{self, Catalogue};
use snic_domain::{Bandwidth, CardProfile, DagName, DagSpec};
use snic_integration::{Home, TestClient, free_address, metrics_page};
use snic_integration_xrt::daemon::{XrtCardProcess, write_settings};
use snic_integration_xrt::emulation;

static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| catalogue::builtin().expect("the built-in catalogue is valid"));
const PATIENCE: Duration = Duration::from_secs(60);

fn profile() -> CardProfile {
    CATALOGUE.card(&"sim-16".parse().expect("a label")).expect("there").clone()
}

/// A folder of a card in sysfs.
struct Sysfs(PathBuf);

impl Sysfs {
    fn new(home: &Home) -> Self {
        let sysfs = Self(home.path().join("0000:3b:00.1"));
        sysfs.set("xmc.u.1/xmc_fpga_temp", "43");
        sysfs.set("xmc.u.1/xmc_power", "28500000");
        sysfs.set("firewall.u.1/detected_level", "0");
        for (name, text) in [("link_speed", "8.0 GT/s PCIe"), ("link_width", "16")] {
            sysfs.set(&format!("current_{name}"), text);
            sysfs.set(&format!("max_{name}"), text);
        }
        // As in the role of the emulation.
        sysfs.set("interface_uuids", "000000000000000000000000862c7020");
        sysfs.set("rom.u.0/VBNV", "xilinx_u280_gen3x16_xdma_base_1");
        sysfs
    }

    fn set(&self, entry: &str, text: &str) {
        let path = self.0.join(entry);
        std::fs::create_dir_all(path.parent().expect("in the folder")).expect("a folder");
        // The card must never read half of it.
        let new = path.with_extension("new");
        std::fs::write(&new, format!("{text}\n")).expect("a file");
        std::fs::rename(new, path).expect("the same folder");
    }

    fn line(&self) -> String {
        format!("sysfs = {:?}\n", self.0)
    }

    fn away(&self) -> PathBuf {
        self.0.with_extension("away")
    }

    fn pull(&self) {
        std::fs::rename(&self.0, self.away()).expect("it is there");
    }

    fn plug(&self) {
        std::fs::rename(self.away(), &self.0).expect("it was pulled");
    }
}

/// A card that the emulation has, with its folder in sysfs, and the settings of a daemon for it.
struct Bench {
    process: XrtCardProcess,
    home: Home,
    sysfs: Sysfs,
}

impl Bench {
    fn new() -> Self {
        let process = XrtCardProcess::new(profile());
        let home = Home::new();
        let sysfs = Sysfs::new(&home);
        write_settings(&home, &[&process.emulation], "hw_emu", &sysfs.line());
        Self { process, home, sysfs }
    }
}

async fn operator(socket: &Path) -> TestClient {
    TestClient::connect(socket, "operator/test").await.expect("it serves")
}

async fn card(client: &TestClient) -> Card {
    let request = v1::ListCardsRequest::default();
    let listed = client.cards().list_cards(request).await.expect("an operator");
    listed.into_inner().cards.into_iter().next().unwrap_or_default()
}

/// The card, once it is so.
async fn card_when(client: &TestClient, is_so: impl Fn(&Card) -> bool) -> Card {
    let until = Instant::now() + PATIENCE;
    loop {
        let card = card(client).await;
        if is_so(&card) {
            return card;
        }
        assert!(Instant::now() < until, "{card:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_ok(card: &Card) -> bool {
    card.health() == Health::Ok && card.device.is_some()
}

/// The catalogue, and one DAG that serves.
async fn one_dag(client: &TestClient) {
    for tenant in &CATALOGUE.tenants {
        client.create_tenant(tenant.id.as_str()).await.expect("a new tenant");
    }
    client.register(&CATALOGUE).await;
    create(client, "web").await.expect("it fits");
    ready(client).await;
}

async fn create(client: &TestClient, dag: &str) -> Result<(), tonic::Status> {
    let dag = dag.parse().expect("a label");
    let name = DagName { tenant: CATALOGUE.tenants[0].id.clone(), dag };
    let spec = DagSpec::chain(&["nat".parse().expect("a label")], Bandwidth::from_mbps(100));
    client.create_dag(&name, &spec).await.map(|_| ())
}

async fn ready(client: &TestClient) {
    let until = Instant::now() + PATIENCE;
    loop {
        let dags = client.list_dags().await;
        if dags.iter().all(|dag| dag.state() == v1::dag::State::Ready) {
            return;
        }
        assert!(Instant::now() < until, "{dags:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn status(card: &Card, kind: &str) -> Status {
    let condition = card.conditions.iter().find(|condition| condition.r#type == kind);
    condition.expect("each aspect has one").status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cards_sensors_are_shown_and_a_hot_card_gets_no_new_dags() {
    if !emulation::is_there() {
        return;
    }
    let Bench { mut process, home, sysfs } = Bench::new();
    let prometheus = free_address();
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let text = format!("{text}[telemetry]\nprometheus = \"{prometheus}\"\n");
    std::fs::write(home.settings(), text).expect("settings");
    let daemon = home.start().await;
    let client = operator(&home.socket()).await;
    let cool = card_when(&client, is_ok).await;
    one_dag(&client).await;
    let device = cool.device.clone().expect("it was read");
    let told = |sensors: &[v1::CardSensor]| {
        sensors.iter().map(|sensor| (sensor.sensor.clone(), sensor.value)).collect::<Vec<_>>()
    };
    assert_eq!(told(&device.temperatures), [("FPGA".to_owned(), Some(43.0))]);
    assert_eq!(told(&device.powers), [("Card".to_owned(), Some(28.5))]);
    assert_eq!(device.pcie_link.expect("it has one").lanes, Some(16));
    assert!(["Temperature", "Firewall", "Link"].iter().all(|of| status(&cool, of) == Status::True));

    sysfs.set("xmc.u.1/xmc_fpga_temp", "97");
    let hot = card_when(&client, |card| card.health() == Health::Impaired).await;
    assert!(hot.message.contains("FPGA is at 97.0 °C"), "{}", hot.message);
    assert_eq!(status(&hot, "Temperature"), Status::False);
    create(&client, "more").await.expect_err("nothing new is placed");
    ready(&client).await;

    // Its driver does not answer for the sensor: it is unknown, and neither 0 nor cool.
    sysfs.set("xmc.u.1/xmc_fpga_temp", "");
    let silent = card_when(&client, |card| status(card, "Temperature") == Status::Unknown).await;
    assert_eq!(silent.device.as_ref().expect("read").temperatures[0].value, None);
    assert_eq!(silent.health(), Health::Impaired);

    let page = metrics_page(prometheus);
    for line in [
        "snic_card_condition{card=\"card0\",condition=\"Temperature\"",
        "snic_card_power_watts{card=\"card0\"",
        "snic_card_link_lanes{card=\"card0\"",
        "snic_card_link_speed_",
        "snic_card_driver_errors_total{card=\"card0\"",
        "snic_card_access_duration_seconds_bucket{access=\"read\",card=\"card0\"",
    ] {
        assert!(page.contains(line), "no {line} in {page}");
    }
    assert!(!page.contains("snic_card_temperature_celsius{"), "what is unknown has no reading");

    // Its firewall has blocked the bus: cool or not, nothing new is placed.
    sysfs.set("firewall.u.1/detected_status", "0x80000");
    sysfs.set("firewall.u.1/detected_level", "2");
    sysfs.set("xmc.u.1/xmc_fpga_temp", "60");
    let blocked = card_when(&client, |card| status(card, "Firewall") == Status::False).await;
    assert_eq!(blocked.health(), Health::Impaired);
    assert!(blocked.message.contains("`snicctl card reset`"), "{}", blocked.message);
    create(&client, "blocked").await.expect_err("nothing new is placed");

    sysfs.set("firewall.u.1/detected_level", "0");
    card_when(&client, |card| status(card, "Firewall") == Status::True).await;
    sysfs.set("current_link_width", "8");
    let narrow = card_when(&client, |card| status(card, "Link") == Status::False).await;
    assert_eq!(narrow.health(), Health::Ok, "{}", narrow.message);
    create(&client, "more").await.expect("it is cool again");

    // It is switched off and on: another worker opens it, and is counted.
    process.kill();
    card_when(&client, |card| card.health() == Health::Lost).await;
    process.start();
    card_when(&client, |card| card.health() == Health::Ok).await;
    let page = metrics_page(prometheus);
    let restarts = "snic_card_worker_restarts_total{card=\"card0\"";
    assert!(page.contains(restarts), "no {restarts} in {page}");
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_that_is_pulled_and_comes_back_is_adopted_without_a_restart() {
    if !emulation::is_there() {
        return;
    }
    let Bench { mut process, home, sysfs } = Bench::new();
    let daemon = home.start().await;
    let client = operator(&home.socket()).await;
    card_when(&client, is_ok).await;
    one_dag(&client).await;
    sysfs.pull();
    process.kill();
    let gone = |card: &Card| card.health() == Health::Lost && card.message.contains("is not there");
    let lost = card_when(&client, gone).await;
    assert!(lost.message.contains("0000:3b:00.1"), "{}", lost.message);
    assert!(lost.lost_since.is_some() && lost.open_attempts > 0, "{lost:?}");
    assert!(lost.conditions.iter().all(|of| of.status() != Status::False), "{lost:?}");
    // The pauses between two tries are some seconds by then; a device that comes back ends them.
    tokio::time::sleep(Duration::from_secs(8)).await;
    process.start();
    let plugged = Instant::now();
    sysfs.plug();
    card_when(&client, is_ok).await;
    println!("open {:?} after it was plugged in", plugged.elapsed());
    ready(&client).await;
    let (status, log) = daemon.stop();
    assert!(status.success() && log.contains("the card's device is back"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_for_another_platform_is_refused_with_both_names_before_xrt_sees_it() {
    if !emulation::is_there() {
        return;
    }
    let Bench { process: _process, home, sysfs } = Bench::new();
    sysfs.set("interface_uuids", "862c7020a250293e32036f19956669e5");
    let daemon = home.start().await;
    let client = operator(&home.socket()).await;
    let is_refused = |card: &Card| card.message.contains("was built against platform");
    let told = card_when(&client, is_refused).await.message;
    assert!(told.contains("00000000-0000-0000-0000-0000862c7020"), "{told}");
    assert!(told.contains("862c7020-a250-293e-3203-6f19956669e5"), "{told}");
    sysfs.set("interface_uuids", "000000000000000000000000862c7020");
    card_when(&client, is_ok).await;
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_is_reset_by_force_and_its_dags_are_loaded_again() {
    if !emulation::is_there() {
        return;
    }
    let Bench { process: _process, home, sysfs: _ } = Bench::new();
    let daemon = home.start().await;
    let client = operator(&home.socket()).await;
    card_when(&client, is_ok).await;
    one_dag(&client).await;
    let reset = |force| {
        let request =
            v1::ResetCardRequest { name: "cards/card0".into(), force, ..Default::default() };
        async { client.cards().reset_card(request).await.item() }
    };
    let refused = reset(false).await.expect_err("a DAG is on it");
    assert!(refused.message().contains("force"), "{refused:?}");
    let operation = reset(true).await.expect("it begins");
    let ended = client.wait(&operation).await;
    println!("the reset through the emulation: {ended:?}");
    // Whatever the driver says: the card is opened again, and its DAGs are served.
    card_when(&client, is_ok).await;
    ready(&client).await;
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
