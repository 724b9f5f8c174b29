//! NTs as programs, through controller, driver and simulated card: what the card serves follows from what was
//! measured of threads and memories, and the control plane keeps its promises on it.

use std::time::Duration;

use snic_card_sim::{DagMeasurement, Sizes, TrafficSource};
use snic_controller::{Command, DagView};
use snic_domain::{
    Bandwidth, DagId, DagName, DagPatch, DagSpec, DagState, NtType, NtTypeId, PacketSizes,
    ProcessorKind, Quota, Tenant, TenantId,
};
use snic_processors::{NicModel, builtin};
use snic_repro::{Testbed, nt};

const STEP: Duration = Duration::from_micros(100);

fn bluefield() -> NicModel {
    let models = builtin().expect("our own files");
    models.into_iter().find(|model| model.model.as_str() == "bluefield-3").expect("it is there")
}

fn gbps(gbps: u64) -> Bandwidth {
    Bandwidth::from_gbps(gbps)
}

fn nts() -> Vec<NtType> {
    let ids = ["l2-reflector", "check-ip-header"];
    ids.map(|id| nt(id, 10, gbps(10)).expect("an NT")).to_vec()
}

fn testbed() -> Testbed {
    Testbed::on_processors(&bluefield(), &nts()).expect("a bench")
}

/// Packets of 1,024 bytes, as the study's.
fn spec(nts: &[&str], bandwidth: Bandwidth) -> DagSpec {
    let nts: Vec<NtTypeId> = nts.iter().map(|nt| NtTypeId::new(nt).expect("a label")).collect();
    DagSpec { packet_sizes: PacketSizes::only(1_024), ..DagSpec::chain(&nts, bandwidth) }
}

fn name(tenant: &str, dag: &str) -> DagName {
    let tenant = TenantId::new(tenant).expect("a label");
    DagName { tenant, dag: DagId::new(dag).expect("a label") }
}

fn send(testbed: &mut Testbed, dag: &DagView, rate: Bandwidth) {
    let source = TrafficSource::of_dag(dag.uid, rate, Sizes::Fixed(1_024));
    testbed.send(source.poisson()).expect("a source");
}

/// Traffic through a DAG in 5 ms, after as long.
fn measured(testbed: &mut Testbed, dag: &DagView) -> DagMeasurement {
    testbed.live(Duration::from_millis(5), STEP).expect("time passes");
    testbed.card.take_measurements();
    testbed.live(Duration::from_millis(5), STEP).expect("time passes");
    let measured = testbed.card.take_measurements();
    assert_eq!(measured.errors(), 0, "{measured:?}");
    testbed.card.check().expect("nothing is lost, and no thread has two programs");
    testbed.controller.check().expect("sound");
    measured.dag(dag.uid.row()).expect("it sends").clone()
}

fn threads(dag: &DagView) -> u32 {
    dag.mapping.iter().flat_map(|mapping| &mapping.programs).map(|program| program.threads).sum()
}

#[test]
fn a_promise_is_kept_and_a_packet_takes_what_a_thread_was_measured_to_take() {
    let mut testbed = testbed();
    let dag = testbed.dag("lab", "web", spec(&["l2-reflector"], gbps(96))).expect("it is served");
    assert_eq!(threads(&dag), 48);
    send(&mut testbed, &dag, gbps(86));
    let seen = measured(&mut testbed, &dag);
    assert!(seen.served.get() * 100 >= seen.intended.get() * 99, "{seen:?}");
    assert_eq!(seen.drops.iter().sum::<u64>(), 0, "{seen:?}");
    // 190 threads serve 400 Gbit/s of 1,024 bytes: a thread has a packet for 3.89 us, 48 of them as well.
    // Reception at 400 Gbit/s is another 20 ns, and so are ports.
    let least = seen.latency.min as f64 * seen.nanos_per_cycle;
    assert!((3_890.0..4_000.0).contains(&least), "{least} ns");
}

/// Packets of which nobody states a size are IMIX. Eleven of twelve have a thread as long as 1,024 bytes, the longest
/// that what was measured allows, and with these times the promise is kept.
#[test]
fn a_promise_of_a_mix_is_kept_by_threads_as_slow_as_what_was_measured_allows() {
    let mut testbed = testbed();
    let spec = DagSpec { packet_sizes: PacketSizes::imix(), ..spec(&["l2-reflector"], gbps(24)) };
    let dag = testbed.dag("lab", "web", spec).expect("it is served");
    assert_eq!(threads(&dag), 35, "25 of 135.9 Gbit/s with 190");
    let source = TrafficSource::of_dag(dag.uid, gbps(22), Sizes::imix());
    testbed.send(source.poisson()).expect("a source");
    let seen = measured(&mut testbed, &dag);
    assert!(seen.served.get() * 100 >= seen.intended.get() * 99, "{seen:?}");
    assert_eq!(seen.drops.iter().sum::<u64>(), 0, "{seen:?}");
    // With more than that the threads are never idle: 35 of them have 9.0 million packets a second, 8.3 are promised.
    let source = TrafficSource::of_dag(dag.uid, gbps(40), Sizes::imix());
    testbed.send(source.poisson()).expect("a source");
    let seen = measured(&mut testbed, &dag);
    assert!((41_500..=45_000).contains(&seen.counters.packets_out), "in 5 ms: {seen:?}");
}

/// The card is told threads and buffers only. If the control plane believes that threads are twice as fast, the card
/// serves half of what was promised.
#[test]
fn the_card_serves_what_was_measured_and_not_what_was_planned() {
    let mut testbed = testbed();
    let mut believed = bluefield();
    for implementation in &mut believed.implementations {
        for point in &mut implementation.points {
            point.threads = (point.threads.get() / 2).try_into().expect("not zero");
        }
    }
    testbed.controller.declare_models([believed]);
    let dag = testbed.dag("lab", "web", spec(&["l2-reflector"], gbps(96))).expect("it is served");
    assert_eq!(threads(&dag), 24);
    send(&mut testbed, &dag, gbps(94));
    let seen = measured(&mut testbed, &dag);
    // 24 threads, each with a packet for 3.89 us: 50.5 Gbit/s.
    assert!((49.0..51.0).contains(&(seen.served.get() as f64 / 1e9)), "{seen:?}");
}

#[test]
fn who_sends_ten_times_its_promise_takes_nothing_from_others() {
    let mut testbed = testbed();
    testbed.tenant("other", 1).expect("a tenant");
    let flood = testbed.dag("lab", "flood", spec(&["l2-reflector"], gbps(20))).expect("served");
    let polite = testbed.dag("other", "web", spec(&["check-ip-header"], gbps(40))).expect("served");
    send(&mut testbed, &flood, gbps(200));
    send(&mut testbed, &polite, gbps(36));
    let seen = measured(&mut testbed, &polite);
    assert!(seen.served.get() * 100 >= seen.intended.get() * 99, "{seen:?}");
    assert_eq!(seen.drops.iter().sum::<u64>(), 0, "{seen:?}");
}

#[test]
fn an_update_gets_more_threads_and_a_delete_gives_all_back() {
    let mut testbed = testbed();
    let before = testbed.dag("lab", "web", spec(&["l2-reflector"], gbps(24))).expect("served");
    send(&mut testbed, &before, gbps(20));
    measured(&mut testbed, &before);
    let name = name("lab", "web");
    let patch = DagPatch { bandwidth: Some(gbps(48)), ..DagPatch::default() };
    let (etag, validate_only) = (None, false);
    let update = Command::UpdateDag { name: name.clone(), patch, etag, validate_only };
    testbed.ask(update).expect("it fits");
    let seen = measured(&mut testbed, &before);
    assert_eq!(seen.drops.iter().sum::<u64>(), 0, "make before break: {seen:?}");
    let after = testbed.controller.dag_view(&name).expect("it is there");
    assert_eq!(after.state, DagState::Ready, "{:?}", after.conditions);
    assert_eq!((threads(&before), threads(&after)), (12, 24));
    let used = |testbed: &Testbed| -> u32 {
        let cards = testbed.controller.cards();
        cards.flat_map(|card| card.threads_used).sum()
    };
    assert_eq!(used(&testbed), 24);
    testbed.ask(Command::DeleteDag { name, etag: None }).expect("it is there");
    testbed.live(Duration::from_millis(5), STEP).expect("time passes");
    assert_eq!(used(&testbed), 0);
}

#[test]
fn a_tenant_has_no_more_threads_than_its_quota() {
    let mut testbed = testbed();
    let id = TenantId::new("small").expect("a label");
    let quota = Quota { threads_max: 20, ..Quota::default() };
    let tenant = Tenant { id, weight: 1, quota, notes: Default::default(), project: None };
    testbed.ask(Command::CreateTenant(tenant)).expect("a tenant");
    let create = |testbed: &mut Testbed, dag: &str, gbit: u64| {
        let spec = spec(&["l2-reflector"], gbps(gbit));
        let name = name("small", dag);
        testbed.ask(Command::CreateDag { name, spec, validate_only: false })
    };
    create(&mut testbed, "a", 24).expect("12 of 20 threads");
    let refused = create(&mut testbed, "b", 24).expect_err("24 of 20 threads").to_string();
    assert!(refused.contains("threads: 12 threads needed, 8 threads available"), "{refused}");
    assert!(refused.contains("threads_max") && refused.contains("may have 20"), "{refused}");
    create(&mut testbed, "b", 16).expect("8 more");
    let view = testbed.controller.tenant_view(&TenantId::new("small").expect("a label"));
    assert_eq!(view.expect("it is there").usage.threads, 20);
}

#[test]
fn programs_of_all_dags_fit_the_processors_together() {
    let mut testbed = testbed();
    let mut served = Vec::new();
    for number in 0..40 {
        let chain = spec(&["l2-reflector", "check-ip-header"], gbps(24));
        match testbed.dag("lab", &format!("d{number}"), chain) {
            Ok(dag) => served.push(dag),
            Err(refused) => {
                let refused = refused.to_string();
                let ingress = "ingress bandwidth: 24 Gbit/s needed, 16 Gbit/s available";
                assert!(refused.contains(ingress), "{refused}");
                break;
            }
        }
    }
    // 190 DPA threads, 16 Arm and 32 host threads for programs of 12, 1 and 2 threads.
    let of = |kind| -> u32 {
        let programs =
            served.iter().flat_map(|dag| &dag.mapping).flat_map(|mapping| &mapping.programs);
        programs.filter(|program| program.processor == kind).map(|program| program.threads).sum()
    };
    assert!(
        of(ProcessorKind::Dpa) <= 190
            && of(ProcessorKind::Arm) <= 16
            && of(ProcessorKind::Host) <= 32
    );
    assert_eq!(served.len(), 16, "384 of 400 Gbit/s");
    for dag in &served {
        send(&mut testbed, dag, gbps(21));
    }
    let last = served.last().expect("some").clone();
    let seen = measured(&mut testbed, &last);
    assert!(seen.served.get() * 100 >= seen.intended.get() * 99, "{seen:?}");
}

/// A power failure takes programs and tables; the control plane tells the card both again, and the promise holds.
#[test]
fn programs_start_again_after_a_power_failure() {
    let mut testbed = testbed();
    let names = ["web", "mail"];
    let dags = names.map(|name| {
        let nts = ["l2-reflector", "check-ip-header"];
        let dag = testbed.dag("lab", name, spec(&nts[..1 + usize::from(name == "mail")], gbps(20)));
        dag.expect("it is served")
    });
    let threads_before = dags.each_ref().map(threads);
    testbed.power_fails().expect("it comes back");
    testbed.live(Duration::from_millis(50), STEP).expect("time passes");
    for ((dag, name_of), before) in dags.iter().zip(names).zip(threads_before) {
        let now = testbed.controller.dag_view(&name("lab", name_of)).expect("it is there");
        assert_eq!((now.state, threads(&now), now.uid), (DagState::Ready, before, dag.uid));
        send(&mut testbed, dag, gbps(18));
    }
    for dag in &dags {
        let seen = measured(&mut testbed, dag);
        assert!(seen.served.get() * 100 >= seen.intended.get() * 99, "{seen:?}");
        assert_eq!(seen.drops.iter().sum::<u64>(), 0, "{seen:?}");
    }
}
