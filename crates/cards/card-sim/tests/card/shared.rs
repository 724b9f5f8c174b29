//! One card in several hands: the driver's session programs it while others send traffic at it.

use std::sync::Arc;
use std::time::Duration;

use crate::rig::{Rig, profile, uid};
use snic_card_sim::{SharedSimCard, SimCard, Sizes, TrafficSource};
use snic_domain::{Bandwidth, Digest, RegionId, Timestamp};
use snic_ports::card::{Card, Registers};
use snic_ports::driver::{Deadlines, Session};
use snic_tables::registers::BOOT_ID;
use snic_tables::{
    CardCommand, CardReport, ChainRow, DagRow, DropCause, InstanceRow, NONE, StageRow, Steering,
    TableImage, Ticket,
};

/// Steps the session until it has reported on everything.
fn run(session: &mut Session, card: &mut SharedSimCard, now: &mut Timestamp) -> Vec<CardReport> {
    let mut reports = Vec::new();
    while !session.is_idle() {
        *now = *now + Duration::from_micros(10);
        card.poll(*now).expect("there");
        reports.extend(session.step(card, *now));
    }
    reports
}

/// The rows of a DAG of one NT in region 2.
fn tables(bytes: &[u8]) -> TableImage {
    let mut image = TableImage::default();
    let dag = DagRow {
        tenant: 1,
        uid: uid(5).raw(),
        first_stage: 0,
        stages: 1,
        rate_limiter: NONE,
        payload: false,
        configuration: 0,
        guest: None,
    };
    let stage = StageRow { chains: [0, NONE, NONE, NONE], join_mask: 1, next: NONE, last: true };
    image.set(5, &dag).expect("there");
    image.set(0, &stage).expect("there");
    image
        .set(0, &ChainRow { first_instance: 0, instances: 1, steering: Steering::RoundRobin })
        .expect("there");
    let instance = InstanceRow::in_region(2, 1, 1);
    image.set(0, &instance).expect("there");
    image.set(2, &Rig::region_row(bytes, &[(9, 40)])).expect("there");
    image
}

#[test]
fn a_session_brings_a_dag_up_while_its_traffic_already_comes() {
    let mut card = SharedSimCard::new(SimCard::new(profile(), 1).expect("valid"));
    let traffic = card.clone();
    let source = TrafficSource::of_dag(uid(5), Bandwidth::from_gbps(8), Sizes::imix());
    traffic.with(|card| card.attach(source)).expect("valid");
    let bytes: Arc<[u8]> = Rig::new().image(&[(9, 40)], 40_000).into();
    let mut session = Session::new(Deadlines::default());
    let mut now = Timestamp::ZERO;
    session.submit(CardCommand::ReadBack { ticket: Ticket(1), known: Arc::default() }, None);
    run(&mut session, &mut card, &mut now);
    let (ticket, region, digest) = (Ticket(2), RegionId(2), Digest::of(&bytes));
    let load = CardCommand::Load { ticket, region, digest, chain: Rig::reported(&[(9, 40)]) };
    session.submit(load, Some(Arc::clone(&bytes)));
    let delta = TableImage::default().delta_to(&tables(&bytes));
    let words = delta.words() as u64;
    let reports = run(&mut session, &mut card, &mut now);
    let [CardReport::Loaded { result: Ok(took), .. }] = reports[..] else {
        panic!("{reports:?}");
    };
    assert_eq!(took, Duration::from_micros(50), "40 kB at 800 MB/s");
    let before = traffic.with(|card| (card.take_measurements(), card.accesses()));
    assert!(before.0.dropped(DropCause::StaleUid) > 0, "its DAG was not there yet");
    session.submit(
        CardCommand::Program {
            ticket: Ticket(3),
            delta,
            configurations: Vec::new(),
            windows: Default::default(),
            rates_only: false,
        },
        None,
    );
    session.submit(CardCommand::Sample { ticket: Ticket(4) }, None);
    let reports = run(&mut session, &mut card, &mut now);
    assert!(
        matches!(
            reports[..],
            [CardReport::Sampled { .. }, CardReport::Programmed { result: Ok(1), .. }]
        ),
        "a sample goes first: {reports:?}"
    );
    let accesses = traffic.with(|card| card.accesses());
    assert_eq!(accesses.table_words - before.1.table_words, words, "only rows that differ");
    traffic.with(|card| {
        card.run_for(50_000);
        let measured = card.take_measurements();
        let dag = measured.dag(5).expect("packets name it");
        assert!(dag.counters.packets_out > 50, "{dag:?}");
        assert!((dag.latency_mean_nanos() - 58.0 * 4.0).abs() < 8.0, "{:?}", dag.latency);
        assert_eq!(measured.errors(), 0);
        assert_eq!(card.buffers(), 0, "the bitstream's buffer was given back");
        card.check().expect("nothing is lost");
    });
}

#[test]
fn handles_are_used_from_several_threads() {
    let card = SharedSimCard::new(SimCard::new(profile(), 1).expect("valid"));
    let mut owner = card.clone();
    let boot = owner.read(BOOT_ID);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for micros in 1..=1_000 {
                owner.poll(Timestamp::from_nanos(micros * 1_000)).expect("there");
                assert_eq!(owner.read(BOOT_ID), boot);
            }
        });
        for row in 1..=2 {
            let card = card.clone();
            scope.spawn(move || {
                for _ in 0..100 {
                    let rate = Bandwidth::from_gbps(1);
                    let source = TrafficSource::of_dag(uid(row), rate, Sizes::Fixed(64)).at_most(7);
                    let id = card.with(|card| card.attach(source)).expect("valid");
                    card.with(|card| card.run_for(10_000));
                    assert_eq!(card.with(|card| card.detach(id)), Some(7));
                }
            });
        }
    });
    assert_eq!(card.with(|card| card.measurements().dropped(DropCause::StaleUid)), 1_400);
}
