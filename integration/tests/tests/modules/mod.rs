//! Tenants' NTs with real processes: modules that are compiled here from C and Rust, built into bitstreams, signed,
//! uploaded and loaded with `snicctl`, and met by packets on the ports of a software card.

mod rig;

use std::time::{Duration, Instant};

use rig::{Card, Hosts, Site, as_sent_by, evil, marker, missing, plain, syn, syn_limit};
use serde_json::json;

/// Whether a frame is as after the marker: DSCP 46, one hop less, and a header checksum that fits.
fn is_marked(frame: &[u8], sent: &[u8]) -> bool {
    let header: u32 =
        frame[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sums = (header & 0xffff) + (header >> 16);
    let rest = frame[34..] == sent[34..] && frame[..14] == sent[..14];
    rest && frame[15] == 46 << 2 && frame[22] + 1 == sent[22] && sums == 0xffff
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modules_in_c_and_rust_work_on_packets_and_outlive_daemon_and_card() {
    if missing() {
        return;
    }
    let mut site = Site::new(Card::WithModules).await;
    site.trust("acme");
    site.start().await;
    for tenant in ["acme", "globex"] {
        site.client().create_tenant(tenant).await.expect("a new tenant");
    }
    // acme signs its bitstreams; those of globex are accepted without.
    site.bitstream("acme", "marker", &marker());
    let listed = site.snicctl("acme", &["bitstream", "list"]);
    assert!(listed.contains("acme-2026"), "it says which key: {listed}");
    site.bitstream("globex", "limit", &syn_limit());
    site.dag("acme", "acme.marker", Some(json!({"dscp": 46}))).await;
    site.dag("globex", "globex.limit", Some(json!({"connections": 2}))).await;
    site.lead(0, "acme").await;
    site.lead(1, "globex").await;

    let mut hosts = site.hosts();
    let sent = plain();
    // A rule is in force a moment after it was made.
    let received = hosts.until_through(0, &sent);
    assert!(is_marked(&received, &sent), "{received:02x?}");
    assert_eq!(hosts.until_through(1, &sent), as_sent_by(1, &sent), "it opens no connection");
    let opens: Vec<bool> = (0..3).map(|_| hosts.through(1, &syn()).is_some()).collect();
    assert_eq!(opens, [true, true, false], "two connections are allowed");
    assert_eq!(site.dropped("globex.limit"), [("module".to_owned(), 1)]);

    // The daemon goes: packets meet the modules. It comes back, and nothing is loaded or forgotten.
    let loads = site.observe().loads;
    site.kill_daemon();
    assert!(is_marked(&hosts.through(0, &sent).expect("it goes on"), &sent));
    site.start().await;
    site.ready().await;
    assert_eq!(site.observe().loads, loads, "the modules were in place");
    assert!(hosts.through(1, &syn()).is_none(), "the module has kept what it knew");

    // Another configuration, from one packet to the next.
    site.configure("acme", "acme.marker", json!({"dscp": 10})).await;
    let until = Instant::now() + Duration::from_secs(30);
    while hosts.through(0, &sent).expect("it goes on")[15] != 10 << 2 {
        assert!(Instant::now() < until, "{:?}", site.observe().tasks);
    }

    // The card goes, and all that the modules knew: they are loaded again.
    site.home.kill_card();
    drop(hosts);
    site.serves_again().await;
    let mut hosts = site.hosts();
    let received = hosts.until_through(0, &sent);
    assert_eq!(received[15], 10 << 2);
    hosts.until_through(1, &sent);
    assert!(hosts.through(1, &syn()).is_some(), "a module that begins again knows nobody");
    assert!(site.observe().loads >= 2);
    site.stop();
}

/// The number that the marker gives a packet that is never cut.
fn number(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[18], frame[19]])
}

/// A card on which acme's DAG has this module, and the hosts of the card once packets pass.
async fn with_module(nt: &str, module: &[u8], told: serde_json::Value) -> (Site, Hosts) {
    let mut site = Site::new(Card::WithModules).await;
    site.start().await;
    site.client().create_tenant("acme").await.expect("a new tenant");
    site.bitstream("acme", nt, module);
    site.dag("acme", &format!("acme.{nt}"), Some(told)).await;
    site.lead(0, "acme").await;
    let mut hosts = site.hosts();
    hosts.until_through(0, &plain());
    (site, hosts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_modules_counter_survives_a_drain_a_daemon_kill_and_a_new_module() {
    if missing() {
        return;
    }
    let told = json!({"dscp": 46});
    let (mut site, mut hosts) = with_module("marker", &marker(), told).await;
    let mut uncut = plain();
    uncut[20] = 0x40;
    let mut last = number(&hosts.through(0, &uncut).expect("packets pass"));
    assert_eq!(last, 1);
    let mut goes_on = |hosts: &mut Hosts, after: &str| {
        let received = hosts.through(0, &uncut).expect("packets pass");
        last += 1;
        assert_eq!(number(&received), last, "{after}");
        received
    };
    site.drain("acme").await;
    goes_on(&mut hosts, "a drain");
    site.kill_daemon();
    goes_on(&mut hosts, "a daemon that is gone");
    site.start().await;
    site.ready().await;
    goes_on(&mut hosts, "a daemon that is back");

    // A new module of the same NT type takes the place of the old one.
    let newer = rig::source("c/marker.c").replace("dscp << 2", "dscp / 2 << 2");
    site.replace("acme", "marker", ("marker", "marker-2"), &rig::compile_c(&newer));
    site.ready().await;
    let received = goes_on(&mut hosts, "a new module");
    assert_eq!(received[15], 23 << 2, "it is the new one");

    // One whose state has another version begins with nothing.
    let other = newer.replace("STATE_VERSION 1", "STATE_VERSION 2");
    site.replace("acme", "marker", ("marker-2", "marker-3"), &rig::compile_c(&other));
    site.ready().await;
    assert_eq!(number(&hosts.through(0, &uncut).expect("packets pass")), 1);
    site.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_modules_flow_table_survives_a_drain_a_daemon_kill_and_a_new_module() {
    if missing() {
        return;
    }
    let told = json!({"connections": 2});
    let (mut site, mut hosts) = with_module("limit", &syn_limit(), told).await;
    let opens: Vec<bool> = (0..3).map(|_| hosts.through(0, &syn()).is_some()).collect();
    assert_eq!(opens, [true, true, false], "two connections are allowed");
    let knows = |hosts: &mut Hosts, after: &str| {
        assert!(hosts.through(0, &plain()).is_some(), "{after}: packets pass");
        assert!(hosts.through(0, &syn()).is_none(), "{after}: it has opened two");
    };
    site.drain("acme").await;
    knows(&mut hosts, "a drain");
    site.kill_daemon();
    knows(&mut hosts, "a daemon that is gone");
    site.start().await;
    site.ready().await;
    knows(&mut hosts, "a daemon that is back");
    // Half the table, and the same state.
    let fewer = rig::source("rust/src/lib.rs");
    let fewer = fewer.replace("SOURCES: usize = 4_096", "SOURCES: usize = 2_048");
    site.replace("acme", "limit", ("limit", "limit-2"), &rig::compile_rust(&fewer));
    site.ready().await;
    knows(&mut hosts, "a new module");
    site.stop();
}

fn served(report: &serde_json::Value) -> f64 {
    report["packets_served"].as_f64().expect("a number")
}

/// Whether a neighbour is served nearly as much beside a flood that the module drops for this reason as without it.
fn goes_on_beside_a_flood(
    site: &Site,
    (port, reason): (u16, &str),
    alone: &serde_json::Value,
) -> bool {
    let before = site.dropped("acme.evil");
    let words = format!("--rate 50Mbps --size 64 --for 8s --destination-port {port}");
    let flood = site.flood("acme", &words);
    std::thread::sleep(Duration::from_secs(2));
    let beside = site.traffic("globex", "--rate 1Mbps --size 256 --for 3s");
    let flooded = flood.wait_with_output().expect("it was started");
    assert!(flooded.status.success(), "{}", String::from_utf8_lossy(&flooded.stderr));
    let report: serde_json::Value = serde_json::from_slice(&flooded.stdout).expect("JSON");
    let shown = format!("alone {alone}\nbeside {beside}\nthe flood {report}");
    assert_eq!(beside["lost_percent"].as_f64(), Some(0.0), "{shown}");
    // Of hundreds of thousands of packets the module was called for few.
    let dropped = site.dropped("acme.evil");
    let of = |all: &[(String, u64)]| {
        all.iter().find(|(name, _)| name == reason).map_or(0, |(_, packets)| *packets)
    };
    let refused = of(&dropped) - of(&before);
    let sent = report["packets_offered"].as_u64().expect("a number");
    assert!(refused > sent / 2 && sent > 10_000, "{dropped:?}, {shown}");
    eprintln!("{shown}\nthe module dropped {dropped:?}");
    served(&beside) > 0.8 * served(alone)
}

/// The test of `alone::module_floods`: what it measures others beside it would take.
///
/// # Panics
/// A module harms another tenant.
pub async fn a_module_that_loops_or_traps_harms_only_its_tenant() {
    if missing() {
        return;
    }
    let mut site = Site::new(Card::WithModules).await;
    site.start().await;
    for tenant in ["acme", "globex"] {
        site.client().create_tenant(tenant).await.expect("a new tenant");
    }
    site.bitstream("acme", "evil", &evil());
    site.bitstream("globex", "marker", &marker());
    site.dag("acme", "acme.evil", None).await;
    site.dag("globex", "globex.marker", Some(json!({"dscp": 46}))).await;
    site.lead(0, "acme").await;
    site.lead(1, "globex").await;
    let mut hosts = site.hosts();

    // By its hop limit a packet has it loop, trap, or go on.
    let with_hops = |hops: u8| {
        let mut frame = plain();
        frame[22] = hops;
        frame
    };
    assert_eq!(hosts.until_through(0, &with_hops(3)), with_hops(3), "it can forward");
    hosts.until_through(1, &plain());
    assert!(hosts.through(0, &with_hops(1)).is_none(), "it loops");
    assert!(hosts.until_through(0, &with_hops(3)).len() == 60, "and begins again");
    assert!(hosts.through(0, &with_hops(2)).is_none(), "it traps");
    let dropped = site.dropped("acme.evil");
    for reason in ["module_out_of_fuel", "module_trap"] {
        assert!(dropped.iter().any(|(name, _)| name == reason), "{reason}: {dropped:?}");
    }
    let sent = as_sent_by(1, &plain());
    assert!(is_marked(&hosts.through(1, &sent).expect("the neighbour goes on"), &sent));

    // Floods for the module that loops with each packet, or works long for it, and the neighbour's packets meanwhile.
    let alone = site.traffic("globex", "--rate 1Mbps --size 256 --for 3s");
    assert!(served(&alone) > 1_000.0, "{alone}");
    for (port, reason) in [(rig::LOOPS, "module_backoff"), (rig::WORKS, "module_over_budget")] {
        // What a busy machine takes of the card's time at one moment is not the module's doing: what that does comes each time.
        let goes_on = (0..3).any(|_| goes_on_beside_a_flood(&site, (port, reason), &alone));
        assert!(goes_on, "{reason}: the neighbour has less than without the flood");
    }
    site.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_that_cannot_be_run_is_refused_at_upload_or_rejected_with_its_reason() {
    if missing() {
        return;
    }
    // `snicd` as the card has no runtime.
    let mut site = Site::new(Card::OfDaemon).await;
    site.start().await;
    site.client().create_tenant("acme").await.expect("a new tenant");
    site.bitstream("acme", "marker", &marker());
    site.create("acme", "acme.marker", None).await;
    let reason = site.rejection("acme.marker").await;
    assert!(reason.contains("this card's program runs none"), "{reason}");
    assert!(reason.contains("`snic-card`"), "{reason}");
    site.stop();

    let mut site = Site::new(Card::WithModules).await;
    site.start().await;
    site.client().create_tenant("acme").await.expect("a new tenant");
    // It has the form of a module, but is for another version of the ABI.
    let other = rig::compile_c(&rig::source("c/marker.c").replace(
        "SNIC_NETWORK_TASK",
        "#undef SNIC_ABI_VERSION\n#define SNIC_ABI_VERSION 9\nSNIC_NETWORK_TASK",
    ));
    site.bitstream("acme", "other", &other);
    site.create("acme", "acme.other", None).await;
    let reason = site.rejection("acme.other").await;
    assert!(reason.contains("cannot be run; check it with `snic-card check`"), "{reason}");
    let log = std::fs::read_to_string(site.home.card_folder().join("card.log")).expect("a log");
    assert!(log.contains("it is for version 9 of the ABI; version 1 is known"), "{log}");
    let checked = rig::check(&other);
    assert!(checked.contains("it is for version 9 of the ABI"), "{checked}");
    // Its regions are sound: the next one is loaded.
    site.bitstream("acme", "marker", &marker());
    site.create_named("acme", "second", "acme.marker", Some(json!({"dscp": 1}))).await;
    site.ready_one("second").await;

    // What it imports is looked at when it is built, before anybody uploads it.
    let calls_home = rig::compile_c(
        "#include \"snic_nt.h\"\nSNIC_NETWORK_TASK\n\
         __attribute__((import_module(\"env\"), import_name(\"open\"))) extern int open(int);\n\
         SNIC_EXPORT(\"snic_process\") uint64_t snic_process(uint32_t n) { return open(n); }\n",
    );
    let said = site.build_fails("acme", "marker", &calls_home);
    assert!(said.contains("it imports env.open; the only import is snic.emit"), "{said}");
    site.stop();
}
