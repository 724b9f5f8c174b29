use proptest::prelude::*;
use snic_domain::Bandwidth;

use super::*;

fn offload(name: &'static str, width_bits: u32, mhz: u64, delay_cycles: u64) -> Offload {
    Offload {
        name,
        width_bits,
        clock_hz: mhz * 1_000_000,
        delay_cycles,
        header_only: false,
        units: None,
    }
}

/// FlexPipe's Table II with the delays of spec and paper.
fn table_2() -> Vec<Offload> {
    vec![
        offload("CRC", 64, 250, 0),
        offload("firewall", 8, 150, 21),
        offload("SHA-3", 64, 150, 25),
        offload("AES", 128, 250, 0),
        offload("JPEG", 32, 100, 0),
        offload("RSS", 256, 200, 0),
    ]
}

const PANIC: Panic = Panic {
    unit_credits: 8,
    queue_clock_hz: 125_000_000,
    descriptor_beats: 1,
    pass_cycles: 16,
    detour: true,
};

fn design(scheduler: Scheduler) -> Design {
    Design {
        clock_hz: 250_000_000,
        width_bits: 512,
        offloads: table_2(),
        scheduler,
        fifo_bytes: 16_384,
        hop_cycles: 2,
    }
}

fn flow(chain: &[usize]) -> PacketClass {
    PacketClass { chain: chain.to_vec(), share: 1, priority: 0 }
}

fn workload(flows: Vec<PacketClass>, gbps: u64, packets: u64) -> Workload {
    let sizes = vec![64, 128, 256, 512, 1_024, 1_500];
    let rate = Bandwidth::from_gbps(gbps);
    Workload { flows, sizes, rate, packets, from: 0, to: packets, seed: 7 }
}

fn slow(chain: &[usize], bytes: u32) -> Workload {
    Workload { sizes: vec![bytes], ..workload(vec![flow(chain)], 1, 20) }
}

#[test]
fn equation_1_gives_table_2_exactly() {
    let design = design(Scheduler::FlexPipe);
    let units: Vec<u64> = design.offloads.iter().map(|offload| units(&design, offload)).collect();
    assert_eq!(units, [8, 128, 39, 4, 40, 3]);
}

#[test]
fn a_lone_packet_takes_hops_units_and_its_own_beats() {
    // 512 bytes are 8 beats: CRC takes 64 cycles, AES 32.
    let flex = slow(&[0, 3], 512).run(&design(Scheduler::FlexPipe)).expect("valid");
    assert_eq!((flex.flows[0].min, flex.flows[0].max), (7 * 2 + 64 + 32 + 8, 118));
    let all = 64 + (512 * 250_u64).div_ceil(150) + 21 + (64 * 250_u64).div_ceil(150) + 25 + 32;
    let all = all + 128 * 250 / 100 + 16 * 250 / 200;
    let fixed = slow(&[0, 3], 512).run(&design(Scheduler::StaticPipe)).expect("valid");
    assert_eq!((fixed.flows[0].min, fixed.flows[0].max), (7 * 2 + all + 8, 7 * 2 + all + 8));
    // The scheduler's pass and queue, a descriptor at each of three transfers, hops of two cycles.
    let panic = slow(&[0, 3], 512).run(&design(Scheduler::Panic(PANIC))).expect("valid");
    assert_eq!(panic.flows[0].min, 16 + 2 + 3 * (1 + 2) + 64 + 32 + 8);
}

#[test]
fn a_chain_out_of_order_goes_round_again() {
    let in_order = slow(&[0, 3], 512).run(&design(Scheduler::FlexPipe)).expect("valid");
    let turned = slow(&[3, 0], 512).run(&design(Scheduler::FlexPipe)).expect("valid");
    assert_eq!(turned.flows[0].min, in_order.flows[0].min + 7 * 2);
}

#[test]
fn the_least_loaded_unit_is_found_by_bytes_and_a_sticky_one_is_not() {
    let mean = |scheduler| {
        // What units push on, for PANIC's scheduler itself sees who has room.
        let workload = workload(vec![flow(&[0, 4])], 60, 3_000);
        workload.run(&design(scheduler)).expect("valid").mean
    };
    let (flex, panic) = (mean(Scheduler::FlexPipe), mean(Scheduler::Panic(PANIC)));
    assert!(flex * 2.0 < panic, "{flex} and {panic}");
}

#[test]
fn higher_priority_goes_first_at_a_busy_scheduler() {
    let urgent = PacketClass { priority: 0, ..flow(&[3]) };
    let other = PacketClass { priority: 1, ..flow(&[3]) };
    let outcome = workload(vec![other, urgent], 110, 3_000)
        .run(&design(Scheduler::Panic(PANIC)))
        .expect("valid");
    let mean = |flow| {
        let of = outcome.flows.iter().filter(|measured| measured.flow == flow);
        of.map(|measured| measured.mean).sum::<f64>() / 6.0
    };
    assert!(mean(1) * 4.0 < mean(0), "{} and {}", mean(1), mean(0));
}

#[test]
fn detours_take_the_schedulers_time_from_everyone() {
    // The second offload has two units for what wants three: what they cannot take waits where it is,
    // or goes back to the scheduler, which is busy with it over and over (FlexPipe, II).
    let quick = |detour| {
        let few = Offload { units: Some(2), ..offload("slow", 128, 250, 0) };
        let offloads = vec![offload("quick", 256, 250, 0), few];
        let panic = Panic { unit_credits: 1, detour, ..PANIC };
        let design = Design { offloads, ..design(Scheduler::Panic(panic)) };
        let both = workload(vec![flow(&[0, 1]), flow(&[0])], 72, 1_000);
        let outcome = both.run(&design).expect("valid");
        let quick = outcome.flows.iter().filter(|measured| measured.flow == 1);
        quick.map(|measured| measured.mean).sum::<f64>() / 6.0
    };
    let (with, without) = (quick(true), quick(false));
    assert!(with > without * 1.2, "{with} with detours, {without} without");
}

#[test]
fn every_wrong_key_is_named() {
    let key = |change: fn(&mut Design)| {
        let mut wrong = design(Scheduler::Panic(PANIC));
        change(&mut wrong);
        wrong.check().expect_err("wrong").key
    };
    assert_eq!(key(|d| d.clock_hz = 0), "clock_hz");
    assert_eq!(key(|d| d.width_bits = 12), "width_bits");
    assert_eq!(key(|d| d.offloads.clear()), "offloads");
    assert_eq!(key(|d| d.offloads[2].width_bits = 0), "offloads[2].width_bits");
    assert_eq!(key(|d| d.offloads[1].clock_hz = 0), "offloads[1].clock_hz");
    assert_eq!(key(|d| d.offloads[5].delay_cycles = u64::MAX), "offloads[5].delay_cycles");
    assert_eq!(key(|d| d.offloads[0].units = Some(0)), "offloads[0].units");
    assert_eq!(key(|d| d.fifo_bytes = 100), "fifo_bytes");
    assert_eq!(
        key(|d| d.scheduler = Scheduler::Panic(Panic { unit_credits: 0, ..PANIC })),
        "unit_credits"
    );
    assert_eq!(
        key(|d| d.scheduler = Scheduler::Panic(Panic { queue_clock_hz: 0, ..PANIC })),
        "queue_clock_hz"
    );
    let refused = |change: fn(&mut Workload)| {
        let mut wrong = workload(vec![flow(&[0])], 10, 10);
        change(&mut wrong);
        wrong.run(&design(Scheduler::FlexPipe)).expect_err("wrong").key
    };
    assert_eq!(refused(|w| w.sizes.push(63)), "sizes");
    assert_eq!(refused(|w| w.flows[0].share = 0), "flows");
    assert_eq!(refused(|w| w.rate = Bandwidth::ZERO), "rate");
    assert_eq!(refused(|w| w.to = 11), "to");
    assert_eq!(refused(|w| w.flows[0].chain.push(6)), "flows[0].chain");
}

fn scheduler() -> impl Strategy<Value = Scheduler> {
    prop_oneof![
        Just(Scheduler::StaticPipe),
        Just(Scheduler::FlexPipe),
        (1_usize..9, any::<bool>()).prop_map(|(unit_credits, detour)| Scheduler::Panic(Panic {
            unit_credits,
            detour,
            ..PANIC
        })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_packet_comes_out_and_the_same_again(
        scheduler in scheduler(),
        chains in prop::collection::vec(prop::collection::vec(0_usize..6, 1..5), 1..4),
        gbps in 5_u64..100,
        seed: u64,
    ) {
        let flows: Vec<PacketClass> = chains.iter().map(|chain| flow(chain)).collect();
        let passes = chains.iter().map(|chain| {
            1 + chain.windows(2).filter(|pair| pair[1] <= pair[0]).count() as u64
        });
        // No more than goes round: a pipeline that is asked for more fills up and stops, as it may.
        let gbps = gbps / passes.max().unwrap_or(1);
        let workload = Workload { seed, ..workload(flows, gbps.max(1), 500) };
        let outcome = workload.run(&design(scheduler)).expect("valid");
        let packets: u64 = outcome.flows.iter().map(|flow| flow.packets).sum();
        prop_assert_eq!(packets, 500, "all are out");
        prop_assert!(outcome.in_flight_max as f64 >= outcome.in_flight_mean);
        prop_assert_eq!(workload.run(&design(scheduler)).expect("valid"), outcome);
    }
}
