//! Demand outnumbers regions, through the daemon's own controller on the simulated card, under the
//! policies that ship: one chain takes a region from another that holds more than its fair share, and
//! gives it back. What the chain's NT had counted is saved before the region is loaded with the
//! other, restored when the chain has a region again, and goes on from there.

use std::time::Duration;

use snic_card_sim::{PlaneOptions, Sizes, SourceId, TrafficSource};
use snic_controller::{ControllerSettings, DagView, LogEntry, LogKind, StatePlace};
use snic_domain::{Bandwidth, ByteSize, CardId, DagSpec, NtType, NtTypeId, RegionId, Timestamp};
use snic_repro::{Parameters, Setup, Testbed, nt};

const STEP: Duration = Duration::from_micros(100);
/// As much as the block RAM of SuperNIC's key-value cache holds (Fig. 6: 48 of 4 KiB).
const STATE: ByteSize = ByteSize::from_bytes(48 * 4_096);

fn gbps(n: u64) -> Bandwidth {
    Bandwidth::from_gbps(n)
}

/// Two tenants with a chain each, of which one region serves 10 Gbit/s; four regions.
fn bench() -> (Testbed, DagView, DagView) {
    let mut card = Parameters::load().expect("our own files").card;
    card.regions.truncate(4);
    let keeps = |id| NtType { state: STATE, ..nt(id, 20, gbps(10)).expect("an NT") };
    let nts = vec![keeps("first"), keeps("second")];
    let chains: Vec<&[&str]> = vec![&["first"], &["second"]];
    let setup = Setup { card, options: PlaneOptions::default(), nts, chains };
    let mut testbed = Testbed::new(&setup).expect("a bench");
    testbed.policies(ControllerSettings::default()).expect("policies");
    let mut deploy = |id: &str| {
        testbed.tenant(id, 1).expect("a tenant");
        let spec = DagSpec::chain(&[NtTypeId::new(id).expect("a label")], gbps(10));
        testbed.dag(id, "web", spec).expect("it fits")
    };
    let dags = (deploy("first"), deploy("second"));
    (testbed, dags.0, dags.1)
}

fn send(testbed: &mut Testbed, dag: &DagView, gb: u64) -> SourceId {
    let source = TrafficSource::of_dag(dag.uid, gbps(gb), Sizes::Fixed(9_000)).poisson();
    testbed.send(source).expect("a source")
}

fn regions(testbed: &Testbed, dag: &DagView) -> Vec<RegionId> {
    let mapping = testbed.controller.dag_view(&dag.name).and_then(|dag| dag.mapping);
    let mapping = mapping.expect("it has a place");
    let mut regions: Vec<RegionId> = mapping.instances().map(|i| i.region).collect();
    regions.sort_unstable();
    regions
}

/// Advances time until a chain has this many regions that serve.
fn until(testbed: &mut Testbed, dag: &DagView, count: usize) {
    for _ in 0..300 {
        testbed.live(Duration::from_millis(1), STEP).expect("time passes");
        let is_ready = || {
            let now = testbed.controller.dag_view(&dag.name).expect("it exists");
            now.state == snic_domain::DagState::Ready
        };
        if regions(testbed, dag).len() == count && is_ready() {
            return testbed.live(Duration::from_millis(12), STEP).expect("time passes");
        }
    }
    panic!("{} has {:?}, not {count} regions", dag.name, regions(testbed, dag));
}

/// Sum of all that contexts of a chain counted, in regions and saved.
fn kept(testbed: &Testbed, dag: &DagView) -> u64 {
    let packets =
        testbed.controller.states_of(&dag.name).into_iter().map(|state| match state.place {
            StatePlace::Region(region) | StatePlace::Saving(region) => {
                testbed.card.packets_kept(region, 0, dag.uid)
            }
            StatePlace::Saved(offset) => {
                let bytes = testbed.card.save_area(offset + 64, 8);
                u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
            }
        });
    packets.sum()
}

fn told(testbed: &Testbed, kind: LogKind) -> Vec<LogEntry> {
    let operator = snic_domain::Caller::Operator("repro".into());
    let mut all: Vec<LogEntry> = testbed
        .controller
        .log_before(&operator, None)
        .filter(|e| e.kind == kind)
        .cloned()
        .collect();
    all.reverse();
    all
}

#[test]
#[ignore = "ci: ten seconds"]
fn counters_go_on_when_chains_take_turns_with_a_region() {
    let (mut testbed, first, second) = bench();
    testbed.live(Duration::from_millis(30), STEP).expect("time passes");
    send(&mut testbed, &first, 30);
    until(&mut testbed, &first, 3);
    let held = regions(&testbed, &first);
    assert_eq!(kept(&testbed, &first), testbed.card.packets_counted(first.uid));

    // Both want three of the four regions: each may have two.
    let burst = send(&mut testbed, &second, 30);
    until(&mut testbed, &second, 2);
    assert_eq!(regions(&testbed, &first).len(), 2);
    let switch = &told(&testbed, LogKind::ContextSwitch)[0];
    assert!(switch.text.contains("its fair share is"), "{}", switch.text);
    let saved = testbed.controller.states_of(&first.name);
    let saved: Vec<_> =
        saved.iter().filter(|state| matches!(state.place, StatePlace::Saved(_))).collect();
    assert_eq!((saved.len(), saved[0].bytes), (1, STATE), "{saved:?}");
    let given: Vec<RegionId> =
        held.iter().filter(|r| !regions(&testbed, &first).contains(r)).copied().collect();
    let StatePlace::Saved(offset) = saved[0].place else { unreachable!("they were filtered") };
    let before =
        u64::from_le_bytes(testbed.card.save_area(offset + 64, 8).try_into().expect("eight bytes"));
    assert!(before > 1_000, "it counted {before} packets before it gave the region up");
    assert_eq!(
        testbed.card.packets_kept(given[0], 0, first.uid),
        0,
        "the region has forgotten them"
    );

    // The other chain needs only one region again.
    testbed.card.detach(burst);
    until(&mut testbed, &first, 3);
    let back =
        regions(&testbed, &first).into_iter().find(|r| *r == given[0]).expect("the same again");
    let after = testbed.card.packets_kept(back, 0, first.uid);
    println!("{before} packets before the switch, {after} after it");
    assert!(after > before, "{after} packets, and {before} before");
    for dag in [&first, &second] {
        assert_eq!(
            kept(&testbed, dag),
            testbed.card.packets_counted(dag.uid),
            "{}: none is lost",
            dag.name
        );
    }
    assert!(told(&testbed, LogKind::StateLost).is_empty());
    testbed.card.check().expect("the card's invariants");
    check_residency(&testbed, &given);
}

/// Each save stands for a switch of the region that is shared: a monitor period lies between two.
fn check_residency(testbed: &Testbed, shared: &[RegionId]) {
    let longest = snic_controller::Autoscaling::default().monitor_period;
    let saves =
        told(testbed, LogKind::StateSaved).into_iter().chain(told(testbed, LogKind::StateRestored));
    let of_region = saves.filter(|entry| entry.regions == shared);
    let mut times: Vec<Timestamp> = of_region.map(|entry| entry.at).collect();
    times.sort_unstable();
    // The first's state saved; the second's saved and the first's restored, with one load between
    // them.
    assert_eq!(times.len(), 3, "{times:?}");
    assert!(times[1].since(times[0]) >= longest, "{times:?}");
    let card = CardId::new("card0").expect("a label");
    let figures = testbed.controller.state_figures(&card).expect("it was seen");
    assert_eq!((figures.saved, figures.restored, figures.waiting), (2, 1, 1));
}
