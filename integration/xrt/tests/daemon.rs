//! The daemon with cards through XRT: the same DAGs, the same tables, the same packets.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use snic_api::replies::ItemOf as _;
use snic_api::v1::card::Health;
use snic_api::v1::dag::State;
use snic_api::v1::{self, Dag};
use snic_bitstream::TestBuild;
use snic_bitstream::catalogue::{self, Catalogue};
use snic_bitstream::manifest::BuiltManifest;
use snic_domain::{
    Bandwidth, Bitstream, ByteSize, CardProfile, DagName, DagSpec, Digest, NtConfiguration,
    RegionImages, RegionKind,
};
use snic_integration::{Home, TestClient};
use snic_integration_xrt::control::{self, Ask, DeviceReport};
use snic_integration_xrt::daemon::{XrtCardProcess, write_settings};
use snic_integration_xrt::embedded::Embedded;
use snic_integration_xrt::emulation;
use snic_tables::registers::{ACTIVE_BANK, Address, CLOCK_CYCLES, DAG_LOAD, PACKETS_OUT};

static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| catalogue::builtin().expect("the built-in catalogue is valid"));

fn profile() -> CardProfile {
    CATALOGUE.card(&"sim-16".parse().expect("a label")).expect("there").clone()
}

/// Longest time until DAGs are ready: a load is 5 ms of the card's time.
const READY_MAX: Duration = Duration::from_secs(60);

async fn operator(socket: &std::path::Path) -> TestClient {
    TestClient::connect(socket, "operator/test").await.expect("it serves")
}

/// Waits until all of these are ready; gives every DAG.
async fn ready(client: &TestClient) -> Vec<Dag> {
    let until = Instant::now() + READY_MAX;
    loop {
        let dags = client.list_dags().await;
        let waiting: Vec<_> = dags.iter().filter(|dag| dag.state() != State::Ready).collect();
        if waiting.is_empty() {
            return dags;
        }
        assert!(Instant::now() < until, "not ready: {waiting:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The DAGs of the quickstart, one after the other.
async fn submit_samples(client: &TestClient) -> Vec<Dag> {
    for tenant in &CATALOGUE.tenants {
        client.create_tenant(tenant.id.as_str()).await.expect("a new tenant");
    }
    client.register(&CATALOGUE).await;
    for sample in &CATALOGUE.dags {
        client.create_dag(&sample.name, &sample.spec).await.expect("it fits");
        ready(client).await;
    }
    ready(client).await
}

/// No DAG gets more than its guaranteed rate: rates that follow the load would depend on the moment
/// at which they were set.
fn share_nothing(home: &Home) {
    let folder = home.path().join("policies");
    std::fs::create_dir(&folder).expect("the folder takes folders");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    write("fairness.toml", "[sharing]\nscheme = \"static\"\n");
    write("autoscaling.toml", "enabled = false\n");
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    std::fs::write(home.settings(), format!("policies_dir = {folder:?}\n{text}"))
        .expect("settings");
}

/// Most of what each DAG requested.
fn flows(dags: &[Dag]) -> Vec<(u32, u64)> {
    let mut flows: Vec<_> =
        dags.iter().map(|dag| (dag.uid, dag.bandwidth_bps / 100_000 * 80_000)).collect();
    flows.sort_unstable();
    flows
}

const MICROS: u64 = 200;

/// Addresses where two dumps differ.
fn differences(left: &[(Address, u32)], right: &[(Address, u32)]) -> Vec<(Address, u32)> {
    // Each card's clock has gone its own way.
    let is_clock = |at: Address| (CLOCK_CYCLES..CLOCK_CYCLES + 8).contains(&at);
    let only = |of: &[(Address, u32)], other: &[(Address, u32)]| {
        of.iter()
            .filter(|word| !is_clock(word.0) && !other.contains(word))
            .copied()
            .collect::<Vec<_>>()
    };
    [only(left, right), only(right, left)].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_quickstarts_dags_come_to_the_same_through_xrt_number_by_number() {
    if !emulation::is_there() {
        return;
    }
    let embedded = Embedded::start(&CATALOGUE, &profile()).await;
    let dags = submit_samples(&operator(&embedded.socket()).await).await;
    let expected = control::drive(&embedded.card, &flows(&dags), MICROS);

    let card = XrtCardProcess::new(profile());
    let home = Home::new();
    write_settings(&home, &[&card.emulation], "hw_emu", "");
    share_nothing(&home);
    let daemon = home.start().await;
    let client = operator(&home.socket()).await;
    let through_xrt = submit_samples(&client).await;
    assert_eq!(flows(&through_xrt), flows(&dags), "the same DAGs have the same UIDs");
    let ask = Ask::Drive { flows: flows(&through_xrt), micros: MICROS };
    let report = card.ask(&ask);
    let counted = |at: Address| expected.iter().find(|word| word.0 == at).map_or(0, |word| word.1);
    assert!(counted(PACKETS_OUT) > 1_000 && counted(DAG_LOAD) > 0, "{}", counted(PACKETS_OUT));
    let differ = differences(&report.registers, &expected);
    assert_eq!(differ, [], "of {} words", expected.len());
    assert!(expected.iter().any(|(at, _)| *at >= ACTIVE_BANK), "rows are in the tables");
    assert!(report.loads >= 2 && report.bytes_in >= report.loads * (4 << 20), "{report:?}");
    let request = v1::GetCardRequest { name: "cards/card0".into() };
    let shown = client.cards().get_card(request).await.item().expect("the card");
    assert_eq!(shown.reconfigurations, report.loads);
    assert_eq!(shown.driver, "XRT 2.13.0");
    assert_eq!(shown.shell_uuid, "00000000-0000-0000-0000-000000000001");
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

/// The differences between two reports of a device.
fn since(before: &DeviceReport, after: &DeviceReport) -> (u64, u64, u64) {
    (
        after.loads - before.loads,
        after.table_words - before.table_words,
        after.writes - before.writes,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dag_that_shares_a_loaded_chain_costs_its_own_rows_and_no_load() {
    if !emulation::is_there() {
        return;
    }
    let card = XrtCardProcess::new(profile());
    let home = Home::new();
    write_settings(&home, &[&card.emulation], "hw_emu", "");
    share_nothing(&home);
    let _daemon = home.start().await;
    let client = operator(&home.socket()).await;
    submit_samples(&client).await;
    let before = card.ask(&Ask::Report);
    let name = DagName {
        tenant: CATALOGUE.tenants[0].id.clone(),
        dag: "sharer".parse().expect("a label"),
    };
    let nts = ["nat".parse().expect("a label"), "load-balancer".parse().expect("a label")];
    let spec = DagSpec::chain(&nts, Bandwidth::from_mbps(10));
    client.create_dag(&name, &spec).await.expect("it fits");
    ready(&client).await;
    let after = card.ask(&Ask::Report);
    let (loads, words, writes) = since(&before, &after);
    println!("a DAG that shares: {loads} loads, {words} table words, {writes} register writes");
    assert_eq!(loads, 0);
    let rows: Vec<_> = differences(&after.registers, &before.registers)
        .into_iter()
        .filter(|(at, _)| *at >= ACTIVE_BANK)
        .collect();
    // A DAG's row, one of each of stage, chain, instance and rate limiter: 8 + 8 + 4 + 4 + 4.
    assert!(words <= 28, "{words} words, for {rows:x?}");
    // Four registers for the doorbell, one for the commit; and two where the row of its rate follows
    // with a separate commit, too small for the doorbell.
    assert!(writes <= 7, "{writes} register writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_cards_are_driven_by_one_daemon() {
    if !emulation::is_there() {
        return;
    }
    let cards = [XrtCardProcess::new(profile()), XrtCardProcess::new(profile())];
    let home = Home::new();
    write_settings(&home, &[&cards[0].emulation, &cards[1].emulation], "hw_emu", "");
    let daemon = home.start().await;
    let client = operator(&home.socket()).await;
    submit_samples(&client).await;
    // More than one card takes: each of these needs most of what goes into a card.
    let tenant = CATALOGUE.tenants[0].id.clone();
    for number in 0..2 {
        let dag = format!("wide{number}").parse().expect("a label");
        let spec = DagSpec::chain(&["nat".parse().expect("a label")], Bandwidth::from_gbps(25));
        let name = DagName { tenant: tenant.clone(), dag };
        client.create_dag(&name, &spec).await.expect("there are two cards");
    }
    let dags = ready(&client).await;
    assert_eq!(dags.len(), CATALOGUE.dags.len() + 2);
    let loads = cards.each_ref().map(|card| card.ask(&Ask::Report).loads);
    assert!(loads.iter().all(|loads| *loads > 0), "{loads:?}");
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_is_changed_while_the_daemon_runs_once_the_regions_are_drained() {
    if !emulation::is_there() {
        return;
    }
    let card = XrtCardProcess::new(profile());
    let home = Home::new();
    write_settings(&home, &[&card.emulation], "hw_emu", "");
    let daemon = home.start().await;
    let client = operator(&home.socket()).await;
    submit_samples(&client).await;
    let role = || async {
        let request =
            v1::LoadRoleRequest { name: "cards/card0".into(), force: false, ..Default::default() };
        let asked = client.cards().load_role(request).await.item()?;
        Ok::<_, tonic::Status>(client.wait(&asked).await)
    };
    let shell = || async {
        let until = Instant::now() + READY_MAX;
        loop {
            let request = v1::GetCardRequest { name: "cards/card0".into() };
            let card = client.cards().get_card(request).await.item().expect("the card");
            if card.health() == Health::Ok {
                return card.shell_uuid;
            }
            assert!(Instant::now() < until, "{card:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let before = shell().await;
    card.emulation.write_role("role.xclbin", 7);
    let refused = role().await.expect_err("DAGs are in its regions");
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("drain them first"), "{refused:?}");
    assert_eq!(shell().await, before);
    for sample in &CATALOGUE.dags {
        let gone = client.delete_dag(&sample.name).await.expect("it is there");
        client.wait(&gone).await.expect("its rows go");
    }
    std::fs::write(card.emulation.path("role.xclbin"), "no role").expect("the folder takes files");
    let error = role().await.expect("it begins").expect_err("that is no role");
    assert!(error.contains("role.xclbin"), "{error}");
    assert_eq!(shell().await, before, "the card is as it was");
    card.emulation.write_role("role.xclbin", 7);
    role().await.expect("it begins").expect("it is a role for this card");
    assert_eq!(shell().await, "00000000-0000-0000-0000-000000000007");
    let sample = &CATALOGUE.dags[0];
    client.create_dag(&sample.name, &sample.spec).await.expect("it fits");
    ready(&client).await;
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

/// As a vendor's flow makes it: nothing at a known place of the file says which NTs it has.
fn built(id: &str, declared: &str, holds: &str) -> (Bitstream, Vec<u8>) {
    let nt = CATALOGUE.nt_type(&holds.parse().expect("a label")).expect("of the catalogue");
    let nts = vec![declared.parse().expect("a label")];
    let (card, chain) = (profile(), [nt]);
    let manifest = BuiltManifest::of_test(&card.model, &nts, RegionKind::KnownNt, &[]);
    let build = TestBuild { card: &card, chain: &chain, die: 0, identity: Some(manifest.identity) };
    let bytes = build.build(ByteSize::from_mib(4)).expect("it fits");
    let bitstream = Bitstream {
        id: id.parse().expect("a label"),
        images: RegionImages::for_all(Digest::of(&bytes), ByteSize::from_mib(4)),

        identity: Some(manifest.identity),
        nts,
        region_kind: RegionKind::KnownNt,
        card_model: card.model,
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
    };
    (bitstream, bytes)
}

/// Through the library, a worker and the emulated card's registers: an upload with a manifest serves, and one
/// whose region reports other NTs than it declares never does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_has_to_report_the_nts_that_its_bitstream_declares() {
    if !emulation::is_there() {
        return;
    }
    let card = XrtCardProcess::new(profile());
    let home = Home::new();
    write_settings(&home, &[&card.emulation], "hw_emu", "");
    let daemon = home.start().await;
    let client = operator(&home.socket()).await;
    let tenant = &CATALOGUE.tenants[0].id;
    client.create_tenant(tenant.as_str()).await.expect("a new tenant");
    client.register_nt_types(&CATALOGUE).await;
    let name = |dag: &str| DagName { tenant: tenant.clone(), dag: dag.parse().expect("a label") };
    let spec = |nt: &str| DagSpec::chain(&[nt.parse().expect("a label")], Bandwidth::from_mbps(10));

    let (honest, bytes) = built("honest", "firewall", "firewall");
    let undeclared = Bitstream { identity: None, ..honest.clone() };
    let refused = client.upload(&undeclared, bytes.clone()).await.expect_err("it does not say it");
    assert!(refused.message().contains("no identity is declared"), "{refused:?}");
    let shown = client.upload(&honest, bytes).await.expect("a manifest says it");
    assert_eq!(Some(shown.identity), honest.identity.map(|id| id.to_string()));
    client.create_dag(&name("good"), &spec("firewall")).await.expect("it fits");
    ready(&client).await;

    let (liar, bytes) = built("liar", "nat", "aes");
    client.upload(&liar, bytes).await.expect("nobody can see it in the file");
    client.create_dag(&name("bad"), &spec("nat")).await.expect("it fits");
    let until = Instant::now() + READY_MAX;
    let rejection = loop {
        let request = v1::ListRegionsRequest { parent: "cards/card0".into(), ..Default::default() };
        let regions = client.cards().list_regions(request).await.expect("the card").into_inner();
        let active = regions.regions.iter().filter(|region| {
            region.bitstream == "bitstreams/liar" && region.state() == v1::region::State::Active
        });
        assert_eq!(active.count(), 0, "{regions:?}");
        let request = v1::GetBitstreamRequest { name: "bitstreams/liar".into() };
        let shown = client.bitstreams().get_bitstream(request).await.item().expect("it is there");
        if shown.state() == v1::bitstream::State::Rejected {
            break shown.rejection;
        }
        assert!(Instant::now() < until, "not rejected: {shown:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(rejection.contains("reports another NT in slot 0"), "{rejection}");
    for dag in client.list_dags().await {
        let is_good = dag.name.ends_with("/good");
        assert_eq!(dag.state() == State::Ready, is_good, "{dag:?}");
    }
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

/// Configurations that NTs of the device hold, once there are as many as expected.
async fn held(card: &XrtCardProcess, expected: usize) -> Vec<([u8; 2], u32, Vec<u32>)> {
    let until = Instant::now() + READY_MAX;
    loop {
        let held = card.ask(&Ask::Report).held;
        if held.len() == expected {
            return held;
        }
        assert!(Instant::now() < until, "{held:x?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// From a tenant's DAG over gRPC, the daemon and XRT into the window of the NT in the region that serves it: in the words of
/// the NT's schema, again after a change, not again by a daemon that finds it there, and gone with the DAG.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_of_a_network_task_reaches_its_window() {
    if !emulation::is_there() {
        return;
    }
    let card = XrtCardProcess::new(profile());
    let home = Home::new();
    write_settings(&home, &[&card.emulation], "hw_emu", "");
    let daemon = home.start().await;
    let client = operator(&home.socket()).await;
    let tenant = CATALOGUE.tenants[0].id.clone();
    client.create_tenant(tenant.as_str()).await.expect("a new tenant");
    client.register(&CATALOGUE).await;
    let name = DagName { tenant, dag: "filtered".parse().expect("a label") };
    let spec = |json: &str| {
        let nts = ["firewall".parse().expect("a label"), "nat".parse().expect("a label")];
        let mut spec = DagSpec::chain(&nts, Bandwidth::from_mbps(10));
        spec.nodes[0].configuration = Some(NtConfiguration::new(json));
        spec
    };
    let words = |json| snic_nts::configuration_words("firewall", json).expect("its type");
    let open = r#"{"rules":[],"default":"accept"}"#;
    let closed = r#"{"rules":[{"action":"accept","source":"192.0.2.0/24"}]}"#;

    client.create_dag(&name, &spec(open)).await.expect("it fits");
    let uid = ready(&client).await[0].uid;
    let first = held(&card, 1).await;
    let request = v1::ListRegionsRequest { parent: "cards/card0".into(), ..Default::default() };
    let regions = client.cards().list_regions(request).await.expect("the card").into_inner();
    let [region, slot] = first[0].0;
    let serves = &regions.regions[usize::from(region)];
    assert_eq!(serves.slots[usize::from(slot)].nt_type, "ntTypes/firewall", "{serves:?}");
    assert_eq!(first, [([region, slot], uid, words(open).expect("a configuration"))]);

    // A daemon that finds it there neither loses nor repeats it.
    drop(client);
    daemon.kill();
    let daemon = home.start().await;
    let client = operator(&home.socket()).await;
    ready(&client).await;
    assert_eq!(held(&card, 1).await, first);

    let changed = client.update_dag(&name, &spec(closed)).await.expect("it is there");
    client.wait(&changed).await.expect("its rows change");
    let second = held(&card, 1).await;
    assert_eq!(second, [([region, slot], uid, words(closed).expect("a configuration"))]);

    let gone = client.delete_dag(&name).await.expect("it is there");
    client.wait(&gone).await.expect("its rows go");
    held(&card, 0).await;
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
