//! Tables and regions change in the middle of traffic: packets never notice; and where the control
//! plane makes a mistake, it is counted.

use std::collections::BTreeMap;

use crate::rig::{Rig, profile, uid};
use proptest::prelude::*;
use snic_card_sim::{Faults, Header, PacketOutcome, SimCard, Sizes, TrafficSource};
use snic_domain::{Bandwidth, CardProfile, Cycles, Timestamp};
use snic_ports::card::{Buffers, Card, CardError, Registers};
use snic_tables::registers::*;
use snic_tables::{
    ChainRow, ClassifierRow, CreditReservation, DagRow, DropCause, InstanceRow, NONE, RegionRow,
    RowCodec, RowKey, StageRow, Steering, Table,
};

fn on_two_regions() -> Rig {
    let mut rig = Rig::new();
    rig.load(0, &[(30, 60)]);
    rig.load(1, &[(70, 60)]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    rig
}

fn drops(rig: &mut Rig) -> BTreeMap<DropCause, u64> {
    let measured = rig.card.measurements();
    let counts = DropCause::ALL.into_iter().zip(measured.drops());
    let dropped: BTreeMap<_, _> = counts.filter(|(_, count)| *count > 0).collect();
    for (cause, count) in &dropped {
        let at = DROPS + 8 * *cause as u32;
        assert_eq!(rig.card.read(at), Ok(*count as u32), "{cause:?} in its register");
    }
    dropped
}

#[test]
fn a_flip_in_the_middle_of_traffic_is_not_noticed() {
    let mut rig = on_two_regions();
    rig.send(1, 50, Sizes::imix());
    rig.card.run_for(2_000);
    rig.card.keep_trace(1_000_000);
    for flip in 0..50 {
        let row = InstanceRow::in_region((flip + 1) % 2, 1, 1);
        rig.program(|image| {
            image.set(0, &row).expect("there");
        });
        assert_eq!(rig.card.read(COMMIT_STATUS), Ok(COMMIT_BUSY), "packets are under way");
        let old = u64::from(rig.card.read(region(flip % 2, REGION_IN_FLIGHT)).expect("there"));
        assert!(old > 0);
        rig.card.run_for(2_000);
        assert_eq!(rig.card.read(COMMIT_STATUS), Ok(COMMIT_IDLE));
        assert_eq!(rig.card.read(region(flip % 2, REGION_IN_FLIGHT)), Ok(0));
    }
    assert_eq!(drops(&mut rig), BTreeMap::new());
    let trace = rig.card.take_trace();
    let first = rig.version - 50;
    for record in &trace {
        // Region 0 takes 79 cycles at least, region 1 takes 119: the version says which it was.
        let region = (record.version - first) % 2;
        assert!(record.latency() >= [79, 119][region as usize], "{record:?}");
        let quick = record.latency() < 119;
        assert!(!quick || region == 0, "{record:?} was not in the region of its version");
    }
    assert!(trace.iter().any(|record| record.version == first + 25));
    rig.check();
}

#[test]
fn a_region_is_loaded_in_the_middle_of_the_traffic_of_others() {
    let mut rig = on_two_regions();
    rig.dag(2, &[&[&[(1, 1, 1)]]]);
    rig.send(1, 30, Sizes::imix());
    let other = rig.send(2, 30, Sizes::imix());
    rig.card.run_for(50_000);
    rig.card.take_measurements();
    // As the controller does it: tables first, then the region.
    rig.card.detach(other);
    rig.program(|image| {
        image.clear(RowKey { table: Table::Dag, row: 2 }).expect("there");
    });
    rig.card.run_for(2_000);
    assert_eq!(rig.card.read(region(1, REGION_IN_FLIGHT)), Ok(0));
    let bytes = rig.image(&[(5, 90), (6, 90)], 1_000_000);
    let buffer = rig.start_load(1, &bytes);
    rig.card.run_for(312_499);
    assert_eq!(rig.card.read(LOAD_STATUS), Ok(LOAD_BUSY), "1 MB at 800 MB/s takes 1.25 ms");
    let progress = rig.card.read(LOAD_PROGRESS).expect("there");
    assert!((999_990..1_000_000).contains(&progress), "{progress}");
    rig.card.run_for(1);
    assert_eq!(rig.card.read(LOAD_STATUS), Ok(LOAD_DONE));
    assert_eq!(rig.card.read(LOAD_PROGRESS), Ok(1_000_000));
    rig.card.release(buffer).expect("staged");
    rig.card.write(region(1, REGION_CONTROL), 0).expect("there");
    let row = Rig::region_row(&bytes, &[(5, 90), (6, 90)]);
    assert_eq!(rig.card.read(region(1, REGION_NTS + 4)), Ok(row.nts[1]));
    rig.program(|image| {
        image.set(1, &row).expect("there");
    });
    rig.dag(3, &[&[&[(1, 0b11, 1)]]]);
    rig.send(3, 30, Sizes::imix());
    rig.card.run_for(50_000);
    let measured = rig.card.take_measurements();
    assert!(measured.dag(3).expect("it sends").counters.packets_out > 100);
    assert!((measured.dag(1).expect("it sends").served.gbps_f64() - 30.0).abs() < 0.5);
    assert_eq!(measured.drops().iter().sum::<u64>(), 0);
    rig.check();
}

/// Drops that a mistake of the control plane causes to a DAG that works.
fn mistake(change: impl FnOnce(&mut Rig)) -> BTreeMap<DropCause, u64> {
    let mut rig = on_two_regions();
    rig.send(1, 20, Sizes::Fixed(256));
    rig.card.run_for(5_000);
    assert_eq!(drops(&mut rig), BTreeMap::new());
    change(&mut rig);
    rig.card.run_for(5_000);
    rig.check();
    let seen = drops(&mut rig);
    rig.card.take_measurements();
    seen
}

fn causes(seen: &BTreeMap<DropCause, u64>) -> Vec<DropCause> {
    seen.keys().copied().collect()
}

#[test]
fn a_region_that_is_not_usable_is_an_error() {
    let control = |value| {
        mistake(move |rig| rig.card.write(region(0, REGION_CONTROL), value).expect("there"))
    };
    assert_eq!(causes(&control(REGION_DECOUPLE)), [DropCause::RegionUnavailable]);
    let reset = control(REGION_RESET);
    assert_eq!(causes(&reset), [DropCause::RegionUnavailable]);
    assert!(reset[&DropCause::RegionUnavailable] < 20, "only those in it: {reset:?}");
    let loading = mistake(|rig| {
        let image = rig.image(&[(30, 60)], 100_000);
        rig.start_load(0, &image);
    });
    assert_eq!(causes(&loading), [DropCause::RegionUnavailable]);
    let broken = mistake(|rig| {
        rig.start_load(0, &[0; 100]);
        rig.card.run_for(1_000);
        assert_eq!(rig.card.read(region(0, REGION_STATUS)), Ok(REGION_BROKEN));
        rig.card.write(region(0, REGION_CONTROL), 0).expect("there");
    });
    assert_eq!(causes(&broken), [DropCause::RegionUnavailable]);
}

/// Changes one row, whatever was in it.
fn set<R: RowCodec>(row: u16, columns: R) -> BTreeMap<DropCause, u64> {
    mistake(|rig| {
        rig.program(|image| {
            image.set(row, &columns).expect("there");
        });
    })
}

fn clear(table: Table, row: u16) -> BTreeMap<DropCause, u64> {
    mistake(|rig| rig.program(|image| image.clear(RowKey { table, row }).expect("there")))
}

#[test]
fn a_region_that_holds_something_else_is_an_error() {
    let other = RegionRow { user_nt: false, bitstream_tag: 7, nts: [0; 8] };
    assert_eq!(causes(&set(0, other)), [DropCause::RegionUnavailable]);
    assert_eq!(causes(&clear(Table::Region, 0)), [DropCause::RegionUnavailable]);
    let row = |region, used_mask| InstanceRow::in_region(region, used_mask, 1);
    assert_eq!(causes(&set(0, row(5, 1))), [DropCause::RegionUnavailable], "empty region");
    assert_eq!(causes(&set(0, row(99, 1))), [DropCause::RegionUnavailable], "no region");
    assert_eq!(causes(&set(0, row(0, 0b10))), [DropCause::RegionUnavailable], "empty slot");
    let none = snic_tables::CreditRow { initial: [0; 8], reservation: CreditReservation::Chain };
    assert_eq!(causes(&set(0, none)), [DropCause::RegionUnavailable], "no credit ever");
}

#[test]
fn a_stage_without_an_instance_is_an_error() {
    for (table, row) in [(Table::Stage, 0), (Table::Chain, 0), (Table::Instance, 0)] {
        assert_eq!(causes(&clear(table, row)), [DropCause::NoInstance], "{table:?}");
    }
    let no_chain = StageRow { chains: [NONE; 4], join_mask: 0, next: NONE, last: true };
    assert_eq!(causes(&set(0, no_chain)), [DropCause::NoInstance]);
    let nowhere = StageRow { chains: [0, NONE, NONE, NONE], join_mask: 1, next: 9, last: false };
    assert_eq!(causes(&set(0, nowhere)), [DropCause::NoInstance]);
    let empty = ChainRow { first_instance: 0, instances: 0, steering: Steering::RoundRobin };
    assert_eq!(causes(&set(0, empty)), [DropCause::NoInstance]);
    let no_weight = InstanceRow::in_region(0, 1, 0);
    assert_eq!(causes(&set(0, no_weight)), [DropCause::NoInstance]);
    let no_slot = InstanceRow::in_region(0, 0, 1);
    assert_eq!(causes(&set(0, no_slot)), [DropCause::NoInstance]);
}

#[test]
fn rows_written_under_old_packets_are_ignored() {
    let ignored = mistake(|rig| {
        // Two stages, so that packets under way read rows again.
        rig.dag(2, &[&[&[(1, 1, 1)]], &[&[(0, 1, 1)]]]);
        rig.send(2, 20, Sizes::Fixed(256));
        rig.card.run_for(2_000);
        rig.program(|image| {
            image
                .set(
                    900,
                    &ChainRow { first_instance: 0, instances: 1, steering: Steering::RoundRobin },
                )
                .expect("there");
        });
        assert_eq!(rig.card.read(COMMIT_STATUS), Ok(COMMIT_BUSY));
        let key = RowKey { table: Table::Region, row: 0 };
        let at = shadow_row(key).expect("there");
        rig.card.write(at, 0).expect("there");
    });
    assert_eq!(causes(&ignored), []);
}

#[test]
fn packets_of_no_dag_and_of_a_gone_one_are_dropped_and_are_no_error() {
    let gone = clear(Table::Dag, 1);
    assert_eq!(causes(&gone), [DropCause::StaleUid]);
    let successor = mistake(|rig| {
        rig.program(|image| {
            let row = image.get::<DagRow>(1).expect("programmed");
            image.set(1, &DagRow { uid: row.uid + (1 << 10), ..row }).expect("there");
        });
    });
    assert_eq!(causes(&successor), [DropCause::StaleUid], "its row was given out again");
    assert!(!DropCause::StaleUid.is_error() && !DropCause::Unclassified.is_error());
}

#[test]
fn packets_without_a_descriptor_are_classified_by_rules() {
    let mut rig = on_two_regions();
    let rule = ClassifierRow {
        dag_uid: uid(1).raw(),
        priority: 5,
        virtual_function: Some(3),
        vni: Some(77),
        source: (0x0a00_0000, 0xff00_0000),
        destination: (0, 0),
        protocol: Some(17),
        source_port: None,
        destination_port: Some(53),
        vlan: Some(5),
    };
    rig.program(|image| {
        image.set(4, &rule).expect("there");
    });
    let good = Header {
        virtual_function: 3,
        vni: Some(77),
        source: 0x0a01_0203,
        protocol: 17,
        destination_port: 53,
        vlan: Some(5),
        ..Header::default()
    };
    let bad = [
        Header { virtual_function: 4, ..good },
        Header { vni: None, ..good },
        Header { vlan: None, ..good },
        Header { vlan: Some(6), ..good },
        Header { source: 0x0b01_0203, ..good },
        Header { protocol: 6, ..good },
        Header { destination_port: 54, ..good },
    ];
    for (header, out) in bad.into_iter().map(|header| (header, 0)).chain([(good, 5)]) {
        rig.card.take_measurements();
        let source = TrafficSource::new(header, Bandwidth::from_gbps(10), Sizes::Fixed(64));
        rig.card.attach(source.at_most(5)).expect("valid");
        rig.drain();
        let measured = rig.card.take_measurements();
        let served: u64 = measured.dags.iter().map(|dag| dag.counters.packets_out).sum();
        assert_eq!(served, out, "{header:?}");
        assert_eq!(measured.dropped(DropCause::Unclassified), 5 - out);
    }
    // A better rule that leads nowhere wins; a descriptor wins over both.
    rig.program(|image| {
        image.set(9, &ClassifierRow { dag_uid: uid(8).raw(), priority: 4, ..rule }).expect("there");
    });
    for (dag, stale) in [(None, 5), (Some(uid(1)), 0)] {
        rig.card.take_measurements();
        let header = Header { dag, ..good };
        let source = TrafficSource::new(header, Bandwidth::from_gbps(10), Sizes::Fixed(64));
        rig.card.attach(source.at_most(5)).expect("valid");
        rig.drain();
        assert_eq!(rig.card.measurements().dropped(DropCause::StaleUid), stale);
    }
}

#[test]
fn a_branch_that_the_join_leaves_out_does_not_hold_the_packet_up() {
    let mut rig = Rig::new();
    rig.load(0, &[(10, 100)]);
    rig.load(1, &[(500, 100)]);
    let stages = rig.dag(1, &[&[&[(0, 1, 1)], &[(1, 1, 1)]]]);
    assert_eq!(rig.latency_alone(1), 49 + 500);
    rig.program(|image| {
        let row = image.get::<StageRow>(stages[0]).expect("programmed");
        image.set(stages[0], &StageRow { join_mask: 0b01, ..row }).expect("there");
    });
    assert_eq!(rig.latency_alone(1), 49 + 10);
    rig.drain();
}

#[test]
fn a_full_queue_of_a_slow_dag_does_not_hold_up_a_commit() {
    let mut rig = on_two_regions();
    rig.limit(1, Bandwidth::from_mbps(1), 2_000);
    rig.send(1, 10, Sizes::Fixed(1_000));
    rig.card.run_for(100_000);
    assert!(rig.card.packets_in_flight() > 50);
    rig.program(|image| {
        image
            .set(900, &ChainRow { first_instance: 0, instances: 1, steering: Steering::RoundRobin })
            .expect("there");
    });
    rig.card.run_for(1_000);
    assert_eq!(rig.card.read(COMMIT_STATUS), Ok(COMMIT_IDLE));
    // The DAG goes while its packets wait: they are stale when their turn comes.
    rig.program(|image| image.clear(RowKey { table: Table::Dag, row: 1 }).expect("there"));
    rig.card.run_for(10_000_000);
    assert!(rig.card.measurements().dropped(DropCause::StaleUid) > 1);
    rig.check();
}

#[test]
fn a_power_cycle_leaves_nothing_but_the_sources() {
    let mut rig = on_two_regions();
    rig.send(1, 50, Sizes::imix());
    rig.card.stage(&[1; 100]).expect("room");
    rig.card.run_for(10_000);
    let boot = rig.card.read(BOOT_ID).expect("there");
    let now = rig.card.now_cycles();
    rig.card.power_cycle();
    assert_ne!(rig.card.read(BOOT_ID), Ok(boot));
    assert_eq!(rig.card.now_cycles(), now);
    assert_eq!((rig.card.packets_in_flight(), rig.card.buffers()), (0, 0));
    for at in [TABLE_VERSION, PACKETS_IN, region(0, REGION_STATUS), region(0, REGION_DIGEST)] {
        assert_eq!(rig.card.read(at), Ok(0), "{at:#x}");
    }
    rig.card.run_for(10_000);
    assert!(rig.card.measurements().dropped(DropCause::StaleUid) > 10, "the sender goes on");
    rig.check();
}

#[test]
fn faults_happen_when_asked_for_and_only_then() {
    let mut rig = on_two_regions();
    let image = rig.image(&[(5, 90)], 10_000);
    rig.card.set_faults(Faults { load_fails: 1.0, ..Faults::default() });
    rig.start_load(3, &image);
    rig.card.run_for(10_000);
    assert_eq!(rig.card.read(LOAD_STATUS), Ok(LOAD_FAILED));
    assert_eq!(rig.card.read(region(3, REGION_STATUS)), Ok(REGION_BROKEN));
    rig.card.set_faults(Faults { load_hangs: 1.0, ..Faults::default() });
    rig.start_load(3, &image);
    rig.card.run_for(1_000_000_000);
    assert_eq!(rig.card.read(LOAD_STATUS), Ok(LOAD_BUSY));
    rig.card.write(region(3, REGION_CONTROL), REGION_RESET | REGION_DECOUPLE).expect("there");
    assert_eq!(rig.card.read(LOAD_STATUS), Ok(LOAD_FAILED));
    rig.card.set_faults(Faults::default());
    rig.start_load(3, &image);
    rig.card.run_for(10_000);
    assert_eq!(rig.card.read(LOAD_STATUS), Ok(LOAD_DONE));
    rig.card.set_faults(Faults { commit_hangs: 1.0, ..Faults::default() });
    rig.program(|_| {});
    rig.card.set_faults(Faults::default());
    rig.card.run_for(1_000_000);
    assert_eq!(rig.card.read(COMMIT_STATUS), Ok(COMMIT_BUSY));
}

#[test]
fn a_lost_card_answers_nothing_and_goes_on() {
    let mut rig = on_two_regions();
    rig.send(1, 10, Sizes::imix());
    rig.card.set_faults(Faults { card_lost: 0.01, ..Faults::default() });
    let lost = (0..10_000).find_map(|_| rig.card.read(MAGIC).err());
    assert!(matches!(lost, Some(CardError::Lost(_))));
    rig.card.set_faults(Faults::default());
    assert!(rig.card.write(ABORT, 1).is_err() && rig.card.stage(&[1]).is_err());
    assert!(rig.card.read_block(MAGIC, &mut [0; 2]).is_err() && rig.card.release(0).is_err());
    let later = Timestamp::from_nanos(1_000_000);
    assert!(rig.card.poll(later).is_err());
    assert_eq!(rig.card.now(), later);
    rig.card.reopen();
    assert!(rig.card.read(PACKETS_OUT).expect("open again") > 100);
    assert_eq!(rig.card.read(TABLE_VERSION), Ok(rig.version));
}

#[test]
fn the_wall_clock_can_be_the_cards_clock() {
    let mut card = SimCard::new(profile(), 1).expect("valid");
    let today = Timestamp::from_nanos(1_795_219_200_000_000_000);
    card.poll(today).expect("there");
    assert_eq!(card.now(), today);
    let source = TrafficSource::of_dag(uid(1), Bandwidth::from_gbps(1), Sizes::Fixed(64));
    card.attach(source).expect("valid");
    card.run_for(1_000);
    assert_eq!(card.measurements().dropped(DropCause::StaleUid), 8, "one in 128 cycles");
    card.poll(Timestamp::ZERO).expect("time does not go back");
    assert!(card.now() > today);
}

#[test]
fn profiles_that_no_card_can_have_are_refused_by_key() {
    type Change = fn(&mut CardProfile);
    let wrong: [(&str, Change); 10] = [
        ("clock_hz", |p| p.clock_hz = 0),
        ("width_bits", |p| p.width_bits = 12),
        ("ingress", |p| p.ingress = Bandwidth::ZERO),
        ("egress", |p| p.egress = Bandwidth::ZERO),
        ("packet_store", |p| p.packet_store = snic_domain::ByteSize::from_bytes(9_000)),
        ("configuration_bytes_per_second", |p| p.configuration_bytes_per_second = 0),
        ("core", |p| p.core = Cycles::new(15)),
        ("credits_initial", |p| p.credits_initial = 0),
        ("regions", |p| p.regions.clear()),
        // The last one has no port.
        ("regions", |p| p.regions = vec![p.regions[0].clone(); 33]),
    ];
    for (key, change) in wrong {
        let mut profile = profile();
        change(&mut profile);
        let error = SimCard::new(profile, 1).expect_err(key);
        assert_eq!(error.key, key);
        assert!(error.to_string().contains(key), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// DAGs come, move and go in the middle of traffic, always by whole commits: no packet meets an
    /// error, and each is of one version.
    #[test]
    fn whole_commits_never_make_an_error(
        seed: u64,
        steps in prop::collection::vec((1_u16..4, 0_u8..4, 0_u64..3_000), 1..40),
    ) {
        let mut rig = Rig::with(profile(), seed, snic_card_sim::PlaneOptions::default());
        for number in 0..4 {
            rig.load(number, &[(20, 60), (u64::from(number) * 9, 40)]);
        }
        for row in 1..4 {
            rig.dag(row, &[&[&[(0, 0b11, 1)], &[(1, 0b01, 1)]], &[&[(2, 0b10, 1)]]]);
            let load = TrafficSource::of_dag(uid(row), Bandwidth::from_gbps(9), Sizes::imix());
            rig.card.attach(load.poisson()).expect("valid");
        }
        rig.card.keep_trace(100_000);
        for (row, to, pause) in steps {
            rig.program(|image| {
                let key = RowKey { table: Table::Dag, row };
                let dag = image.get::<DagRow>(row);
                match (to, dag) {
                    (3, Some(_)) => image.clear(key).expect("there"),
                    (to, _) => {
                        let first_stage = 2 * (row - 1);
                        let dag = DagRow {
                            tenant: 1,
                            uid: uid(row).raw(),
                            first_stage,
                            stages: 2,
                            rate_limiter: NONE,
                            payload: true,
                            configuration: 0, guest: None, };
                        image.set(row, &dag).expect("there");
                        let instance = 3 * (row - 1);
                        let moved = InstanceRow::in_region(to, 0b10, 5);
                        image.set(instance, &moved).expect("there");
                    }
                }
            });
            rig.card.run_for(pause);
            rig.check();
        }
        rig.card.run_for(20_000);
        let measured = rig.card.take_measurements();
        prop_assert_eq!(measured.errors(), 0);
        let ends = rig.card.take_trace();
        prop_assert!(ends.iter().all(|record| record.version <= rig.version));
        prop_assert!(ends.iter().any(|record| record.outcome == PacketOutcome::Served));
    }
}
