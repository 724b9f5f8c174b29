//! Properties that each of the three designs is known for, one by one, with packets whose way can be followed
//! by hand.

use super::engine::Engine;
use super::{Design, Offload, PacketClass, Panic, Scheduler};

const PANIC: Panic = Panic {
    unit_credits: 2,
    queue_clock_hz: 125_000_000,
    descriptor_beats: 1,
    pass_cycles: 16,
    detour: false,
};

/// A type of offload of which a unit takes this many bytes a cycle.
const fn offload(bytes_a_cycle: u32, units: u64) -> Offload {
    Offload {
        name: "offload",
        width_bits: 8 * bytes_a_cycle,
        clock_hz: 250_000_000,
        delay_cycles: 0,
        header_only: false,
        units: Some(units),
    }
}

fn design(scheduler: Scheduler, offloads: &[Offload]) -> Design {
    Design {
        clock_hz: 250_000_000,
        width_bits: 512,
        offloads: offloads.to_vec(),
        scheduler,
        fifo_bytes: 16_384,
        hop_cycles: 2,
    }
}

fn flow(chain: &[usize], priority: u8) -> PacketClass {
    PacketClass { chain: chain.to_vec(), share: 1, priority }
}

/// Sends packets (cycle, flow, bytes) in their order; gives flow, bytes and the cycle of the last beat of
/// each as they come out.
fn sent(
    design: &Design,
    flows: &[PacketClass],
    packets: &[(u64, usize, u32)],
) -> Vec<(usize, u32, u64)> {
    design.check().expect("a valid design");
    let mut engine = Engine::new(design, flows);
    for &(at, flow, bytes) in packets {
        engine.run(at + 1);
        engine.now = engine.now.max(at);
        engine.inject(at, flow, bytes);
    }
    engine.run(u64::MAX);
    engine.check_rest().expect("all are out");
    assert_eq!(engine.out.len(), packets.len());
    engine.out.iter().map(|(packet, at)| (packet.flow, packet.bytes, *at)).collect()
}

/// The sizes of packets as they come out.
fn sizes(out: &[(usize, u32, u64)]) -> Vec<u32> {
    out.iter().map(|(_, bytes, _)| *bytes).collect()
}

/// When the first packet of a flow is out.
fn end_of(out: &[(usize, u32, u64)], flow: usize) -> u64 {
    out.iter().find(|(of, ..)| *of == flow).expect("it is out").2
}

#[test]
fn panic_units_push_packets_on_without_another_pass_of_the_scheduler() {
    let design = design(Scheduler::Panic(PANIC), &[const { offload(64, 1) }; 5]);
    let mut before = None;
    for nts in 1..=5 {
        let chain: Vec<usize> = (0..nts).collect();
        let end = sent(&design, &[flow(&chain, 0)], &[(0, 0, 64)])[0].2;
        // A descriptor, a hop of two cycles, and a cycle of work; a pass alone would be 16.
        if let Some(before) = before.replace(end) {
            assert_eq!(end - before, 4, "{nts} offloads");
        }
    }
}

#[test]
fn panic_gives_a_unit_as_many_packets_as_its_buffer_holds_and_no_more() {
    for unit_credits in 1..=5 {
        let panic = Panic { unit_credits, ..PANIC };
        let design = design(Scheduler::Panic(panic), &[offload(1, 1)]);
        let flows = [flow(&[0], 1), flow(&[0], 0)];
        // Seven packets, and one that goes before all that are not in the unit yet.
        let mut packets = vec![(0, 0, 64); 7];
        packets.push((40, 1, 64));
        let out = sent(&design, &flows, &packets);
        let place = out.iter().position(|(flow, ..)| *flow == 1);
        assert_eq!(place, Some(unit_credits), "{out:?}");
    }
}

#[test]
fn panic_takes_a_packet_back_to_the_scheduler_where_the_next_offload_is_full() {
    let end = |detour| {
        let panic = Panic { unit_credits: 1, detour, ..PANIC };
        let design = design(Scheduler::Panic(panic), &[offload(64, 1), offload(1, 1)]);
        // The second packet finds the slow offload full; the third needs the quick one only.
        let flows = [flow(&[0, 1], 0), flow(&[0], 0)];
        let out = sent(&design, &flows, &[(0, 0, 512), (0, 0, 512), (0, 1, 64)]);
        end_of(&out, 1)
    };
    let (with, without) = (end(true), end(false));
    assert!(with < 200 && without > 500, "{with} with detours, {without} without");
}

#[test]
fn panic_lets_out_what_needs_no_offload_beside_a_full_one() {
    let panic = Panic { unit_credits: 1, ..PANIC };
    let design = design(Scheduler::Panic(panic), &[offload(1, 1)]);
    let flows = [flow(&[0], 0), flow(&[], 1)];
    let out = sent(&design, &flows, &[(0, 0, 512), (0, 0, 512), (0, 1, 64)]);
    assert!(end_of(&out, 1) < 100, "it does not wait behind the second: {out:?}");
}

#[test]
fn panics_priority_queue_takes_a_cycle_of_its_own_slower_clock_for_each_packet() {
    for (queue_clock_hz, gap) in [(250_000_000, 3), (125_000_000, 4), (62_500_000, 6)] {
        let panic = Panic { queue_clock_hz, ..PANIC };
        let design = design(Scheduler::Panic(panic), &[offload(64, 4)]);
        let out = sent(&design, &[flow(&[0], 0)], &[(0, 0, 64), (0, 0, 64)]);
        // A beat and a descriptor's beside it.
        assert_eq!(out[1].2 - out[0].2, gap, "{queue_clock_hz} Hz");
    }
}

#[test]
fn panics_scheduler_takes_the_unit_with_most_credits_and_pushes_stay_with_one_that_has_any() {
    let slow = offload(1, 2);
    let packets = [(0, 0, 64), (0, 0, 65), (0, 0, 66)];
    let first = design(Scheduler::Panic(PANIC), std::slice::from_ref(&slow));
    let out = sent(&first, &[flow(&[0], 0)], &packets);
    assert_eq!(sizes(&out), [64, 65, 66]);
    assert!(out[1].2 - out[0].2 < 20, "the first two have a unit each: {out:?}");
    let second = design(Scheduler::Panic(PANIC), &[offload(64, 1), slow]);
    let out = sent(&second, &[flow(&[0, 1], 0)], &packets);
    assert_eq!(sizes(&out), [64, 66, 65], "the second is behind the first, the third beside it");
}

#[test]
fn a_static_pipe_takes_every_packet_through_every_offload_in_its_own_order() {
    let offloads = [offload(8, 2), offload(4, 2), offload(64, 1)];
    let design = design(Scheduler::StaticPipe, &offloads);
    for chain in [&[][..], &[1], &[0, 1, 2], &[2, 0]] {
        let out = sent(&design, &[flow(chain, 0)], &[(0, 0, 512)]);
        // Four hops, 64, 128 and 8 cycles of work, 8 beats.
        assert_eq!(out[0].2, 4 * 2 + 64 + 128 + 8 + 8, "{chain:?}");
    }
}

#[test]
fn flexpipes_splitter_lets_packets_by_what_they_do_not_need() {
    let end = |scheduler| {
        let design = design(scheduler, &[offload(1, 1)]);
        let out = sent(&design, &[flow(&[0], 0), flow(&[], 0)], &[(0, 0, 1_500), (1, 1, 64)]);
        end_of(&out, 1)
    };
    assert!(end(Scheduler::FlexPipe) < 50, "it is not held up by the slow unit");
    assert!(end(Scheduler::StaticPipe) > 1_500);
}

#[test]
fn flexpipes_balancer_goes_by_bytes_and_not_by_packets_or_in_turn() {
    let design = design(Scheduler::FlexPipe, &[offload(1, 2)]);
    let out = sent(&design, &[flow(&[0], 0)], &[(0, 0, 1_500), (0, 0, 64), (0, 0, 66)]);
    assert_eq!(sizes(&out), [64, 66, 1_500], "both small ones beside the large one");
}

#[test]
fn flexpipes_arbiter_lets_out_first_of_whom_more_bytes_wait() {
    // When the second large packet has passed by, two kinds wait: what passes by behind it, and what
    // is done since.
    let order = |second| {
        let design = design(Scheduler::FlexPipe, &[offload(8, 2)]);
        let flows = [flow(&[0], 0), flow(&[], 0)];
        let packets = [(0, 0, 1_500), (0, 1, 9_216), (0, 0, second), (0, 1, 9_216), (0, 1, 512)];
        sizes(&sent(&design, &flows, &packets))
    };
    assert_eq!(order(64), [9_216, 9_216, 1_500, 512, 64], "512 bytes against 64");
    assert_eq!(order(1_400), [9_216, 1_500, 9_216, 1_400, 512], "512 bytes against 1,400");
}

#[test]
fn flexpipes_units_let_out_what_is_done_in_turn() {
    let design = design(Scheduler::FlexPipe, &[offload(4, 2)]);
    let flows = [flow(&[0], 0), flow(&[], 0)];
    // The first unit gets 64 and 66, the second 65 and 67; they wait for what passes by.
    let packets = [(0, 0, 64), (0, 0, 65), (0, 0, 66), (0, 0, 67), (0, 1, 9_216)];
    assert_eq!(sizes(&sent(&design, &flows, &packets)), [9_216, 64, 65, 66, 67]);
}

#[test]
fn a_full_queue_of_16_kb_holds_up_who_comes_behind_and_drops_nobody() {
    let end = |fifo_bytes, packets| {
        let design = Design { fifo_bytes, ..design(Scheduler::FlexPipe, &[offload(1, 1)]) };
        let mut all = vec![(0, 0, 1_500); packets];
        all.push((0, 1, 64));
        end_of(&sent(&design, &[flow(&[0], 0), flow(&[], 0)], &all), 1)
    };
    // While eleven come in, the unit takes in what makes room for the eleventh, not for a twelfth.
    assert!(end(16_384, 11) < 300, "{}", end(16_384, 11));
    assert!(end(16_384, 12) > 1_500, "{}", end(16_384, 12));
    assert!(end(32_768, 12) < 350, "{}", end(32_768, 12));
}

#[test]
fn flexpipe_takes_a_chain_out_of_order_round_once_for_each_step_back() {
    let design = design(Scheduler::FlexPipe, &[offload(8, 1), offload(8, 1), offload(8, 1)]);
    let end = |chain: &[usize]| sent(&design, &[flow(chain, 0)], &[(0, 0, 512)])[0].2;
    let in_order = end(&[0, 1, 2]);
    for (chain, rounds) in [([0, 2, 1], 1), ([1, 0, 2], 1), ([2, 0, 1], 1), ([2, 1, 0], 2)] {
        assert_eq!(end(&chain), in_order + rounds * 4 * 2, "{chain:?}");
    }
}
