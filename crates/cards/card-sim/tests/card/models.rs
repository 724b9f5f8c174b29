//! Other cards: other clocks, widths, cores, stores and credits; everything comes from the profile.

use std::num::{NonZeroU32, NonZeroU64};

use crate::rig::{Rig, profile, uid};
use proptest::prelude::*;
use snic_card_sim::{FRAME_BYTES_MAX, PlaneOptions, RegionPace, SimCard, Sizes, TrafficSource};
use snic_domain::{Bandwidth, ByteSize, CardProfile, Cycles, Timestamp};
use snic_ports::card::image::CONTROL_BYTES_MAX;
use snic_ports::card::{Buffers, Card, CardError, Registers};
use snic_tables::registers::*;
use snic_tables::{CreditReservation, CreditRow, DagRow, DropCause};

fn with(change: impl FnOnce(&mut CardProfile)) -> Rig {
    let mut profile = profile();
    change(&mut profile);
    Rig::with(profile, 1, PlaneOptions::default())
}

#[test]
fn a_header_crosses_in_one_beat_and_a_payload_in_all_of_its_own() {
    let served = |payload| {
        let mut rig = Rig::new();
        // Two branches of one region: together they want its port twice.
        rig.load(0, &[(4, 300), (4, 300)]);
        rig.dag(1, &[&[&[(0, 0b01, 1)], &[(0, 0b10, 1)]]]);
        rig.program(|image| {
            let row = image.get::<DagRow>(1).expect("programmed");
            image.set(1, &DagRow { payload, ..row }).expect("there");
        });
        rig.send(1, 120, Sizes::Fixed(1_024));
        rig.card.run_for(100_000);
        rig.card.take_measurements();
        rig.card.run_for(100_000);
        rig.check();
        rig.card.take_measurements().dag(1).expect("it sends").served.gbps_f64()
    };
    assert!((served(false) - 120.0).abs() < 0.5, "{}", served(false));
    // 16 beats and the descriptor's, for each of two copies.
    let half = 128.0 / 2.0 * 16.0 / 17.0;
    assert!((served(true) - half).abs() < 0.5, "half the port: {}", served(true));
}

#[test]
fn more_credits_let_more_packets_through_until_the_port_is_full() {
    let served = |credits| {
        let mut rig = with(|profile| profile.credits_initial = credits);
        // A credit comes back after 13 cycles and 3 on its way.
        rig.load(0, &[(13, 200)]);
        rig.dag(1, &[&[&[(0, 1, 1)]]]);
        rig.send(1, 128, Sizes::Fixed(64));
        rig.card.run_for(20_000);
        rig.card.take_measurements();
        rig.card.run_for(40_000);
        rig.card.take_measurements().dag(1).expect("it sends").served.gbps_f64()
    };
    // A region takes two packets in five cycles, 51.2 Gbit/s of 64 bytes.
    for (credits, gbps) in [(1, 8.0), (2, 16.0), (4, 32.0), (8, 51.2), (16, 51.2), (32, 51.2)] {
        let seen = served(credits);
        assert!((seen - gbps).abs() < 0.2, "{credits} credits in 16 cycles: {seen}");
    }
}

#[test]
fn a_region_takes_as_many_packets_in_so_many_cycles_and_no_more() {
    for (packets, cycles, gbps) in [(1, 25, 5.12), (2, 5, 51.2), (1, 2, 64.0), (8, 5, 64.0)] {
        let number = |n| NonZeroU32::new(n).expect("not zero");
        let region_pace = RegionPace { packets: number(packets), cycles: number(cycles) };
        let options = PlaneOptions { region_pace, ..PlaneOptions::default() };
        let mut rig = Rig::with(profile(), 1, options);
        rig.load(0, &[(4, 200)]);
        rig.dag(1, &[&[&[(0, 1, 1)]]]);
        rig.send(1, 128, Sizes::Fixed(64));
        rig.card.run_for(20_000);
        rig.card.take_measurements();
        rig.card.run_for(40_000);
        let seen = rig.card.take_measurements().dag(1).expect("it sends").served.gbps_f64();
        // A packet of one beat and its descriptor take two cycles at least.
        assert!((seen - gbps).abs() < 0.2, "{packets} packets in {cycles} cycles: {seen}");
    }
}

#[test]
fn region_throughput_scales_with_the_clock() {
    for (mhz, gbps) in [(200, 40.96), (250, 51.2), (500, 102.4)] {
        let mut rig = with(|profile| {
            profile.clock_hz = mhz * 1_000_000;
            profile.configuration_bytes_per_second = 4_000_000_000;
            (profile.ingress, profile.egress) =
                (Bandwidth::from_gbps(400), Bandwidth::from_gbps(400));
        });
        rig.load(0, &[(4, 400)]);
        rig.dag(1, &[&[&[(0, 1, 1)]]]);
        rig.send(1, 120, Sizes::Fixed(64));
        rig.card.run_for(20_000);
        rig.card.take_measurements();
        rig.card.run_for(80_000);
        let seen = rig.card.take_measurements().dag(1).expect("it sends").served.gbps_f64();
        assert!((seen - gbps).abs() < 0.2, "at {mhz} MHz: {seen}");
    }
}

#[test]
fn packets_waiting_at_token_buckets_occupy_the_packet_store() {
    let store = 16 << 10;
    let mut rig = with(|profile| profile.packet_store = ByteSize::from_bytes(store));
    rig.load(0, &[(4, 100)]);
    for row in [1, 2, 3] {
        rig.dag(row, &[&[&[(0, 1, 1)]]]);
    }
    // Two that send far too much, and one that keeps to what its bucket gives.
    for row in [1, 2] {
        rig.limit(row, Bandwidth::from_mbps(100), 1_500);
        rig.send(row, 10, Sizes::Fixed(1_024));
    }
    rig.limit(3, Bandwidth::from_gbps(10), 10_000);
    rig.send(3, 9, Sizes::Fixed(1_024));
    rig.card.run_for(100_000);
    rig.card.take_measurements();
    for _ in 0..200 {
        rig.card.run_for(1_000);
        rig.check();
        let held = rig.card.packets_in_flight() * 1_024;
        assert!(held <= store, "{held} bytes in a store of {store}");
    }
    let measured = rig.card.take_measurements();
    let modest = measured.dag(3).expect("it sends");
    assert!(modest.served.gbps_f64() > 8.9, "{modest:?}");
    assert_eq!(
        measured.dropped(DropCause::StoreFull),
        0,
        "who waits takes no room from who passes"
    );
    let greedy = [1, 2].map(|row| measured.dag(row).expect("it sends").served.gbps_f64());
    assert!(greedy.iter().all(|gbps| (0.09..0.11).contains(gbps)), "{greedy:?}");
}

#[test]
fn a_credit_is_there_again_after_its_way_back() {
    for (way, gbps) in [(1, 32.0 / 3.0), (3, 32.0 / 3.5), (9, 6.4)] {
        let credit_cycles = NonZeroU64::new(way).expect("not zero");
        let mut card = profile();
        card.credits_initial = 1;
        let options = PlaneOptions { credit_cycles, ..PlaneOptions::default() };
        let mut rig = Rig::with(card, 1, options);
        rig.load(0, &[(11, 200)]);
        rig.dag(1, &[&[&[(0, 1, 1)]]]);
        rig.send(1, 128, Sizes::Fixed(64));
        rig.card.run_for(20_000);
        rig.card.take_measurements();
        rig.card.run_for(80_000);
        let seen = rig.card.take_measurements().dag(1).expect("it sends").served.gbps_f64();
        assert!((seen - gbps).abs() < 0.1, "11 cycles and {way}: {seen}");
    }
}

#[test]
fn a_credit_row_changes_the_credits_in_the_middle_of_traffic() {
    let mut rig = Rig::new();
    rig.load(0, &[(13, 200)]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    rig.send(1, 120, Sizes::Fixed(64));
    for (initial, gbps) in [(2, 16.0), (6, 48.0), (1, 8.0)] {
        rig.program(|image| {
            image
                .set(0, &CreditRow { initial: [initial; 8], reservation: CreditReservation::Chain })
                .expect("there");
        });
        rig.card.run_for(5_000);
        rig.card.take_measurements();
        rig.card.run_for(20_000);
        let seen = rig.card.take_measurements().dag(1).expect("it sends").served.gbps_f64();
        assert!((seen - gbps).abs() < 0.5, "{initial} credits: {seen}");
        rig.check();
    }
}

#[test]
fn a_store_of_one_jumbo_frame_holds_one_jumbo_frame() {
    let mut rig = with(|profile| {
        profile.packet_store = ByteSize::from_bytes(FRAME_BYTES_MAX.into());
    });
    rig.load(0, &[(1_000, 100)]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    let jumbo = Sizes::Fixed(FRAME_BYTES_MAX);
    let source = TrafficSource::of_dag(uid(1), Bandwidth::from_gbps(128), jumbo).at_most(5);
    rig.card.attach(source).expect("valid");
    rig.drain();
    let measured = rig.card.measurements();
    let dag = measured.dag(1).expect("it sends");
    assert_eq!((dag.counters.packets_in, dag.counters.packets_out), (5, 1));
    assert_eq!(measured.dropped(DropCause::StoreFull), 4);
}

#[test]
fn the_cards_memory_is_the_profiles() {
    let mut rig = with(|profile| profile.memory = ByteSize::from_bytes(8_192));
    let first = rig.card.stage(&[0; 8_192]).expect("room for it");
    assert_eq!(rig.card.stage(&[0]), Err(CardError::NoMemory { bytes: 1 }));
    rig.card.release(first).expect("staged");
    rig.card.stage(&[0]).expect("room again");
}

#[test]
fn a_load_takes_what_the_configuration_port_takes() {
    for (rate, micros) in [(800_000_000, 125), (400_000_000, 250), (100_000_000, 1_000)] {
        let mut rig = with(|profile| profile.configuration_bytes_per_second = rate);
        let image = rig.image(&[(4, 100)], 100_000);
        rig.start_load(2, &image);
        rig.card.poll(Timestamp::from_nanos(micros * 1_000 - 4)).expect("there");
        assert_eq!(rig.card.read(LOAD_STATUS), Ok(LOAD_BUSY), "{rate}");
        rig.card.poll(Timestamp::from_nanos(micros * 1_000)).expect("there");
        assert_eq!(rig.card.read(LOAD_STATUS), Ok(LOAD_DONE), "{rate}");
    }
}

#[test]
fn an_image_for_another_part_or_too_large_a_region_is_refused() {
    let image = Rig::new().image(&[(4, 100)], 20_000);
    let mut other = with(|profile| profile.idcode = 0x0484_a093);
    other.start_load(0, &image);
    other.card.run_for(10_000);
    assert_eq!(other.card.read(LOAD_ERROR), Ok(LOAD_ERROR_PACKETS));
    assert_eq!(other.card.read(region(0, REGION_STATUS)), Ok(REGION_BROKEN));
    let mut small = with(|profile| {
        // One byte less than what the image takes beside the streams around it.
        profile.regions[0].bitstream_max = ByteSize::from_bytes(19_999 - CONTROL_BYTES_MAX);
    });
    small.start_load(0, &image);
    assert_eq!(small.card.read(LOAD_STATUS), Ok(LOAD_FAILED));
    assert_eq!(small.card.read(region(0, REGION_STATUS)), Ok(REGION_EMPTY), "nothing began");
    small.start_load(1, &image);
    small.card.run_for(10_000);
    assert_eq!(small.card.read(LOAD_STATUS), Ok(LOAD_DONE));
}

#[test]
fn boot_ids_and_models_come_from_seed_and_profile() {
    let card = |seed| SimCard::new(profile(), seed).expect("valid");
    assert_eq!(card(3).read(BOOT_ID), card(3).read(BOOT_ID));
    assert_ne!(card(3).read(BOOT_ID), card(4).read(BOOT_ID));
    assert_eq!((card(3).model().as_str(), card(3).seed()), ("sim-16", 3));
    assert_eq!(card(3).read(REGION_COUNT), Ok(16));
    assert_eq!(card(3).read(IDCODE), Ok(0x14b3_1093));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_latency_law_and_the_conservation_hold_on_any_card(
        mhz in 1_u64..2_000,
        beat_bytes in 16_u32..257,
        pass in 0_u64..64,
        around in 0_u64..100,
        d in 0_u64..100,
        store in 9_216_u64..400_000,
    ) {
        let mut rig = with(|profile| {
            profile.clock_hz = mhz * 1_000_000;
            profile.width_bits = beat_bytes * 8;
            profile.scheduler_pass = Cycles::new(pass);
            profile.core = Cycles::new(pass + around);
            profile.packet_store = ByteSize::from_bytes(store.max(u64::from(beat_bytes) * 1_000));
            // So that a load is over when the bench looks, whatever the clock.
            profile.configuration_bytes_per_second = mhz * 1_000_000 * 4;
        });
        rig.load(0, &[(d, 3_000); 3]);
        rig.load(1, &[(d, 3_000); 2]);
        rig.dag(1, &[&[&[(0, 0b111, 1)]], &[&[(1, 0b11, 1)]]]);
        rig.card.keep_trace(1);
        let alone = TrafficSource::of_dag(uid(1), Bandwidth::from_gbps(1), Sizes::Fixed(64));
        rig.card.attach(alone.at_most(1)).expect("valid");
        rig.drain();
        let record = rig.card.take_trace()[0];
        prop_assert_eq!(record.latency(), around + 2 * pass + 5 * d);
        let many = TrafficSource::of_dag(uid(1), Bandwidth::from_gbps(200), Sizes::imix());
        rig.card.attach(many.poisson().at_most(2_000)).expect("valid");
        rig.card.run_for(10_000);
        rig.check();
        rig.drain();
        let dag = rig.card.measurements().dag(1).expect("it sends").counters;
        prop_assert_eq!(dag.packets_in, 2_001);
    }
}

#[test]
fn without_rate_limits_an_nt_gets_all_that_is_sent_and_saturates() {
    let served = |rate_limits| {
        let options = PlaneOptions { credits: false, rate_limits, ..PlaneOptions::default() };
        let mut rig = Rig::with(profile(), 1, options);
        rig.load(0, &[(4, 30)]);
        rig.dag(1, &[&[&[(0, 1, 1)]]]);
        rig.limit(1, Bandwidth::from_gbps(10), 10_000);
        rig.send(1, 100, Sizes::Fixed(1_500));
        rig.card.run_for(50_000);
        rig.card.take_measurements();
        rig.card.run_for(200_000);
        rig.check();
        rig.card.take_measurements().dag(1).expect("it sends").served.gbps_f64()
    };
    assert!((served(true) - 10.0).abs() < 0.1 && (served(false) - 30.0).abs() < 0.3);
}
