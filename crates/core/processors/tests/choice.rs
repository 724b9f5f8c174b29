//! Implementations of NTs on BlueField-3, by the study's guidelines, and why.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;
use snic_domain::{Bandwidth, ByteSize, Dag, DagSpec, NtTypeId, PacketSizes};
use snic_processors::{
    ByteRate, Choice, Fit, Free, Guideline, Implementation, Intensity, MemoryKind, NicModel,
    NoChoice, NodePlacement, NtDemand, Objection, Offer, PacketWork, PlacementOption,
    ProcessorKind, RegionOffer, Setting, SizeBound, ThroughputLimit, builtin, choose, estimate,
    fit, options, place,
};

fn bluefield3() -> NicModel {
    let models = builtin().expect("our own files");
    models.into_iter().find(|model| model.model.as_str() == "bluefield-3").expect("a model")
}

fn demand(nt: &str, gbps: u64) -> NtDemand {
    NtDemand {
        nt: NtTypeId::new(nt).expect("an id"),
        bandwidth: Bandwidth::from_gbps(gbps),
        packets: PacketSizes::only(1_024),
        working_set: ByteSize::ZERO,
        is_latency_sensitive: false,
        latency_max: None,
    }
}

fn on(model: &NicModel, demand: &NtDemand) -> Result<Choice, NoChoice> {
    choose(demand, &Offer::of_model(model, &demand.nt), &Free::all(model))
}

fn setting(option: &PlacementOption) -> (ProcessorKind, Setting) {
    option.setting.expect("a processor")
}

/// The same program on all three processors.
fn everywhere(model: &mut NicModel, work: PacketWork, intensity: Intensity) {
    model.implementations.clear();
    for on in [ProcessorKind::Dpa, ProcessorKind::Arm, ProcessorKind::Host] {
        let nt = NtTypeId::new("it").expect("an id");
        let (work, points) = (Some(work), Vec::new());
        model.implementations.push(Implementation {
            nt,
            on,
            parallel: true,
            intensity,
            working_set: None,
            work,
            points,
        });
    }
}

fn quick() -> PacketWork {
    PacketWork { thread: Some(Duration::from_nanos(500)), ..PacketWork::default() }
}

/// Guidelines 2 and 3: 100 of 400 Gbit/s, measured with 190 threads, need 48 (47.5) of them, and packets
/// not in DPA memory, which stops at 50.
#[test]
fn a_parallel_nt_goes_to_the_dpa_with_packets_in_arm_memory() {
    let choice = on(&bluefield3(), &demand("l2-reflector", 100)).expect("it is possible");
    let (kind, at) = setting(&choice.taken);
    assert_eq!((kind, at.threads, at.network), (ProcessorKind::Dpa, 48, MemoryKind::Arm));
    let both = [Guideline::ParallelAndSmall, Guideline::BuffersByUse];
    assert_eq!(choice.taken.follows, both);
    let in_dpa = choice.others.iter().find(|other| {
        let (kind, at) = setting(other);
        kind == ProcessorKind::Dpa && at.network == MemoryKind::Dpa
    });
    let (bandwidth, limit) = (Bandwidth::from_gbps(50), ThroughputLimit::Threads);
    let objections = &in_dpa.expect("listed").objections;
    assert_eq!(*objections, [Objection::TooSlow { bandwidth, limit }]);
    let arm = choice.others.iter().find(|other| setting(other).0 == ProcessorKind::Arm);
    assert_eq!(setting(arm.expect("listed")).1.threads, 4, "400 with 16");
    let text = choice.taken.to_string();
    assert!(text.starts_with("DPA, 48 threads, packets in Arm memory"), "{text}");
    assert!(text.contains("guideline 2") && text.contains("latency unknown"), "{text}");
}

#[test]
fn what_nobody_measured_is_not_promised() {
    let model = bluefield3();
    let none = on(&model, &demand("firewall", 1)).expect_err("nobody measured it");
    assert_eq!(none.options, []);
    assert!(none.to_string().contains("nobody measured one here"), "{none}");
    let none = on(&model, &demand("kv-aggregation", 1)).expect_err("rates are missing");
    let is_unmeasured = |option: &PlacementOption| {
        option.objections.iter().any(|o| matches!(o, Objection::Unmeasured(_)))
    };
    assert!(none.options.iter().all(is_unmeasured));
    let late = NtDemand { latency_max: Some(Duration::from_secs(1)), ..demand("l2-reflector", 1) };
    let none = on(&model, &late).expect_err("no latency was printed");
    assert!(none.options[0].objections.contains(&Objection::UnmeasuredLatency));
}

#[test]
fn more_than_the_line_is_refused_with_the_nearest() {
    let none = on(&bluefield3(), &demand("l2-reflector", 401)).expect_err("over the line");
    let text = none.to_string();
    assert!(
        text.contains("401 Gbit/s") && text.contains("400 Gbit/s at most (the line)"),
        "{text}"
    );
}

/// Guideline 1: simple and near.
#[test]
fn a_latency_sensitive_nt_goes_to_the_dpa_with_packets_in_dpa_memory() {
    let mut model = bluefield3();
    everywhere(&mut model, quick(), Intensity::Simple);
    let sensitive = NtDemand { is_latency_sensitive: true, ..demand("it", 1) };
    let choice = on(&model, &sensitive).expect("it is possible");
    let (kind, at) = setting(&choice.taken);
    let near = (ProcessorKind::Dpa, MemoryKind::Dpa, MemoryKind::Dpa);
    assert_eq!((kind, at.network, at.working), near);
    assert_eq!(choice.taken.follows, [Guideline::NearTheNetwork]);
    // Where latencies are known, they decide.
    for (processor, nanos) in model.processors.iter_mut().zip([9_000, 2_000, 3_000]) {
        for path in &mut processor.memories {
            path.network = Some(Duration::from_nanos(nanos));
        }
    }
    let choice = on(&model, &sensitive).expect("it is possible");
    assert_eq!(setting(&choice.taken).0, ProcessorKind::Dpa, "a guideline speaks for it");
    let limited = NtDemand { latency_max: Some(Duration::from_micros(5)), ..sensitive };
    let choice = on(&model, &limited).expect("Arm takes 2.5 µs");
    assert_eq!(setting(&choice.taken).0, ProcessorKind::Arm);
}

#[test]
fn heavy_or_large_nts_stay_off_the_dpa_while_others_serve_them() {
    let mut model = bluefield3();
    everywhere(&mut model, quick(), Intensity::Compute);
    let kind = |model: &NicModel, demand: &NtDemand| {
        setting(&on(model, demand).expect("it is possible").taken).0
    };
    assert_ne!(kind(&model, &demand("it", 10)), ProcessorKind::Dpa);
    everywhere(&mut model, quick(), Intensity::Simple);
    assert_eq!(kind(&model, &demand("it", 10)), ProcessorKind::Dpa);
    let large = NtDemand { working_set: ByteSize::from_mib(2), ..demand("it", 10) };
    assert_ne!(kind(&model, &large), ProcessorKind::Dpa);
    model.implementations.retain(|one| one.on == ProcessorKind::Dpa);
    assert_eq!(kind(&model, &large), ProcessorKind::Dpa, "a guideline is advice");
    let huge = NtDemand { working_set: ByteSize::from_mib(2_048), ..demand("it", 10) };
    let choice = on(&model, &huge).expect("other memories have room");
    assert_ne!(setting(&choice.taken).1.working, MemoryKind::Dpa, "it has 1 GiB");
}

#[test]
fn what_cannot_be_spread_has_one_thread() {
    let mut model = bluefield3();
    everywhere(&mut model, quick(), Intensity::Simple);
    model.implementations.iter_mut().for_each(|one| one.parallel = false);
    // 1,024 bytes in 500 ns: 16.4 Gbit/s.
    assert_eq!(setting(&on(&model, &demand("it", 16)).expect("just").taken).1.threads, 1);
    let none = on(&model, &demand("it", 17)).expect_err("one thread is too slow");
    let slow = Objection::TooSlow {
        bandwidth: Bandwidth::from_bps(16_384_000_000),
        limit: ThroughputLimit::Threads,
    };
    assert!(none.options.iter().all(|option| option.objections.contains(&slow)));
}

#[test]
fn only_what_is_free_is_given() {
    let model = bluefield3();
    let wanted = demand("l2-reflector", 100);
    let offers = Offer::of_model(&model, &wanted.nt);
    let mut free = Free::all(&model);
    free.threads.insert(ProcessorKind::Dpa, 47);
    let choice = choose(&wanted, &offers, &free).expect("Arm or host");
    assert_ne!(setting(&choice.taken).0, ProcessorKind::Dpa);
    free.threads.clear();
    let none = choose(&wanted, &offers, &free).expect_err("nothing is free");
    assert!(none.options.iter().all(|option| option.objections.contains(&Objection::NoThreads)));
    // An FPGA beside it.
    let region =
        RegionOffer { bandwidth: wanted.bandwidth, latency: Duration::from_nanos(200), regions: 1 };
    free.regions = 2;
    let with_region = [&offers[..], &[Offer::Region(region)]].concat();
    let choice = choose(&wanted, &with_region, &free).expect("a region");
    assert_eq!((choice.taken.place().as_str(), choice.taken.share_permille), ("1 region", 500));
    free.regions = 0;
    let none = choose(&wanted, &with_region, &free).expect_err("no region");
    let missing = Objection::NoRegions { needed: 1, free: 0 };
    assert!(none.options.iter().any(|option| option.objections == [missing.clone()]));
}

/// Aggregation with everything in host memory, by hand: 576 and 512 bytes are read at 7.2 GB/s and 512
/// written at 14, so 187.7 ns for 4,608 bits.
#[test]
fn memories_limit_by_what_is_read_and_written() {
    let mut model = bluefield3();
    let one = model.implementations.iter_mut().find(|one| one.nt.as_str() == "kv-aggregation");
    let work = one.and_then(|one| one.work.as_mut()).expect("its work is counted");
    work.thread = Some(Duration::from_nanos(1));
    let dpa = model.processor(ProcessorKind::Dpa).expect("it has one");
    let one = model.implementations.iter().find(|one| one.nt.as_str() == "kv-aggregation");
    let at = Setting { threads: 10_000, network: MemoryKind::Host, working: MemoryKind::Host };
    let sizes = PacketSizes::only(576);
    let sizes = (&sizes, ByteSize::ZERO);
    let ours = estimate(dpa, one.expect("listed"), model.line, sizes, at);
    assert_eq!(ours.limit, ThroughputLimit::MemoryBandwidth(MemoryKind::Host));
    let by_hand = 4_608.0 / (1_088.0 / 7.2 + 512.0 / 14.0);
    assert!((ours.bandwidth.gbps_f64() / by_hand - 1.0).abs() < 1e-3, "{}", ours.bandwidth);
    assert_eq!(ours.unmeasured, []);
    // Not host and Arm memory at once: seven pairs of nine (study, V-C).
    assert_eq!(snic_processors::settings(dpa, 1).len(), 7);
}

/// A random program on a random copy of the card.
fn worlds() -> impl Strategy<Value = (NicModel, NtDemand, Free)> {
    let work = (1u64..5_000, 0u32..1_001, 0u32..1_001, 0u32..1_001, any::<bool>(), 0usize..3);
    let card = (1u64..60, 1u64..60, 1u64..60, 1u64..400);
    let wanted = (1u64..450, 64u32..9_000, 0u64..4_000_000, any::<bool>(), 0u32..191, 0u32..33);
    (work, card, wanted).prop_map(|(work, card, wanted)| {
        let mut model = bluefield3();
        let (thread, payload, read, write, parallel, intensity) = work;
        let program = PacketWork {
            thread: Some(Duration::from_nanos(thread)),
            payload_permille: payload,
            working_read_permille: read,
            working_write_permille: write,
        };
        let intensity = [Intensity::Simple, Intensity::Compute, Intensity::Memory][intensity];
        everywhere(&mut model, program, intensity);
        model.implementations.iter_mut().for_each(|one| one.parallel = parallel);
        for processor in &mut model.processors {
            processor.thread_read.get_or_insert(ByteRate::new(card.3 * 100_000_000));
            for (path, rate) in processor.memories.iter_mut().zip([card.0, card.1, card.2]) {
                path.read.get_or_insert(ByteRate::new(rate * 1_000_000_000));
                path.write.get_or_insert(ByteRate::new(rate * 1_500_000_000));
            }
        }
        let (gbps, packet, set, is_latency_sensitive, dpa, host) = wanted;
        let demand = NtDemand {
            packets: PacketSizes::only(packet),
            working_set: ByteSize::from_bytes(set),
            is_latency_sensitive,
            ..demand("it", gbps)
        };
        let mut free = Free::all(&model);
        free.threads.insert(ProcessorKind::Dpa, dpa);
        free.threads.insert(ProcessorKind::Host, host);
        (model, demand, free)
    })
}

proptest! {
    /// Held against a search through every number of threads.
    #[test]
    fn the_fewest_threads_are_taken_and_something_possible_is_found((model, demand, free) in worlds()) {
        let offers = Offer::of_model(&model, &demand.nt);
        let mut can_any = false;
        for option in options(&demand, &offers, &free) {
            let (kind, at) = setting(&option);
            let processor = model.processor(kind).expect("listed");
            let one = model.implementations.iter().find(|one| one.on == kind).expect("listed");
            let serves = |threads: u32| {
                let at = Setting { threads, ..at };
                let sizes = (&demand.packets, demand.working_set);
                estimate(processor, one, model.line, sizes, at).bandwidth >= demand.bandwidth
            };
            let most = if one.parallel { free.threads[&kind] } else { free.threads[&kind].min(1) };
            let fewest = (1..=most).find(|&threads| serves(threads));
            let room = processor.path(at.working).and_then(|path| path.size);
            let has_room = room.is_none_or(|room| demand.working_set <= room);
            prop_assert_eq!(option.is_possible(), fewest.is_some() && has_room);
            prop_assert_eq!(at.threads, fewest.unwrap_or(most));
            can_any |= option.is_possible();
        }
        prop_assert_eq!(choose(&demand, &offers, &free).is_ok(), can_any);
    }

    /// A guideline never costs the demand, and nothing is taken against one while something else serves.
    #[test]
    fn nothing_goes_against_a_guideline_without_need((model, demand, free) in worlds()) {
        let offers = Offer::of_model(&model, &demand.nt);
        if let Ok(Choice { taken, others }) = choose(&demand, &offers, &free) {
            prop_assert!(taken.bandwidth >= demand.bandwidth);
            for other in others.iter().filter(|other| other.is_possible()) {
                prop_assert!(other.against.len() >= taken.against.len());
            }
        }
    }
}

/// Points: linear up to the first, flat beyond the last.
#[test]
fn measured_points_are_joined_by_straight_lines() {
    let model = bluefield3();
    let dpa = model.processor(ProcessorKind::Dpa).expect("it has one");
    let mut one = model.implementations[0].clone();
    one.points.retain(|point| point.network == MemoryKind::Arm);
    let mut middle = one.points[0].clone();
    middle.threads = NonZeroU32::new(100).expect("not zero");
    middle.bandwidth = Bandwidth::from_gbps(300);
    one.points.push(middle);
    let at = |threads, packet| {
        let setting = Setting { threads, network: MemoryKind::Arm, working: MemoryKind::Arm };
        let packets = PacketSizes::only(packet);
        estimate(dpa, &one, Bandwidth::from_gbps(1_000), (&packets, ByteSize::ZERO), setting)
    };
    for (threads, gbps) in [(50, 150), (100, 300), (145, 350), (190, 400), (200, 400)] {
        assert_eq!(at(threads, 1_024).bandwidth, Bandwidth::from_gbps(gbps), "{threads} threads");
    }
    assert_eq!(at(200, 9_000).limit, ThroughputLimit::Measured);
    assert_eq!(at(100, 1_024).bounded, []);
    let bound = |size, measured| {
        let [size, measured] = [size, measured].map(ByteSize::from_bytes);
        [SizeBound { size, measured }]
    };
    // As many packets of a smaller size, as many bits of a larger one.
    assert_eq!(at(100, 64).bandwidth, Bandwidth::from_mbps(300_000 / 16));
    assert_eq!(at(100, 64).bounded, bound(64, 1_024));
    assert_eq!(at(100, 2_048).bandwidth, Bandwidth::from_gbps(300));
    assert_eq!(at(100, 2_048).bounded, bound(2_048, 1_024));
}

/// With two sizes that were measured, the one between has the better of both bounds.
#[test]
fn the_better_bound_of_two_sizes_counts() {
    let model = bluefield3();
    let dpa = model.processor(ProcessorKind::Dpa).expect("it has one");
    let mut one = model.implementations[0].clone();
    one.points.retain(|point| point.network == MemoryKind::Arm);
    one.points[0].latency = Some(Duration::from_micros(3));
    let mut small = one.points[0].clone();
    (small.packet, small.bandwidth) = (ByteSize::from_bytes(64), Bandwidth::from_gbps(100));
    small.latency = Some(Duration::from_micros(2));
    one.points.push(small);
    let at = |packet| {
        let setting = Setting { threads: 190, network: MemoryKind::Arm, working: MemoryKind::Arm };
        let packets = PacketSizes::only(packet);
        estimate(dpa, &one, Bandwidth::from_gbps(1_000), (&packets, ByteSize::ZERO), setting)
    };
    // 100 Gbit/s as 64 bytes have; of 512 bytes half of 400, as many packets as of 1,024.
    for (bytes, gbps, micros) in [(64, 100, 2), (128, 100, 4), (512, 200, 3), (1_024, 400, 3)] {
        assert_eq!(at(bytes).bandwidth, Bandwidth::from_gbps(gbps), "{bytes} bytes");
        assert_eq!(at(bytes).latency, Some(Duration::from_micros(micros)), "{bytes} bytes");
    }
    assert_eq!(at(2_048).latency, Some(Duration::from_micros(6)), "in proportion at most");
}

/// The simple IMIX by hand: eleven of twelve packets are counted as 1,024 bytes, one by its bits. With 190 threads
/// that is 12 packets in 11 x 20.48 + 30.36 ns, so 135.9 Gbit/s, and 10 of them take 14 threads (13.9).
#[test]
fn a_mix_takes_what_its_packets_take_at_most() {
    let imix = NtDemand { packets: PacketSizes::imix(), ..demand("l2-reflector", 10) };
    let choice = on(&bluefield3(), &imix).expect("it is bounded by what was measured");
    let (kind, at) = setting(&choice.taken);
    assert_eq!((kind, at.threads), (ProcessorKind::Dpa, 14));
    let by_hand = 4_342.0 * 8.0 / (11.0 * 20.48 + 30.36) * 14.0 / 190.0;
    assert!((choice.taken.bandwidth.gbps_f64() / by_hand - 1.0).abs() < 1e-4);
    let text = choice.taken.to_string();
    let bounds =
        "; not measured: 64 and 594 bytes (counted as 1024), 1518 bytes (at the bandwidth of 1024)";
    assert!(text.contains(bounds), "{text}");
    let most = NtDemand { bandwidth: Bandwidth::from_gbps(135), ..imix.clone() };
    assert_eq!(setting(&on(&bluefield3(), &most).expect("just").taken).1.threads, 189);
    let more = NtDemand { bandwidth: Bandwidth::from_gbps(136), ..imix };
    let none = on(&bluefield3(), &more).expect_err("no processor was measured to serve as many");
    assert!(none.to_string().contains("at most (threads)"), "{none}");
}

/// The BlueField-3 with the points of DPA memory alone, which threads enough for two NTs serve.
fn with_dpa_memory_only() -> NicModel {
    let mut model = bluefield3();
    model.implementations.retain(|one| one.on == ProcessorKind::Dpa);
    model.implementations.iter_mut().for_each(|one| {
        one.points.retain(|point| point.network == MemoryKind::Dpa);
        for point in &mut one.points {
            point.threads = NonZeroU32::new(90).expect("not zero");
        }
    });
    model
}

/// DPA memory receives 50 Gbit/s of 1,024 bytes, 6.1 million packets a second, whatever their size.
#[test]
fn small_packets_take_of_what_a_memory_receives_as_large_ones_do() {
    let model = with_dpa_memory_only();
    let two = |mbps| {
        let nts = ["l2-reflector", "check-ip-header"].map(|nt| NtTypeId::new(nt).expect("an id"));
        let bandwidth = Bandwidth::from_mbps(mbps);
        let packet_sizes = PacketSizes::only(64);
        let spec = DagSpec { packet_sizes, ..DagSpec::chain(&nts, bandwidth) };
        let dag = Dag::new(spec).expect("a DAG");
        place(&model, |_| None, (&dag, bandwidth), Free::all(&model))
    };
    // 50 / 16 are 3.125 Gbit/s for both.
    assert_eq!(fit(&two(1_562)), Fit::Yes);
    let nodes = two(1_600);
    assert!(nodes[0].choice.is_ok());
    let none = nodes[1].choice.as_ref().expect_err("1,525 Mbit/s are left");
    let (bandwidth, limit) =
        (Bandwidth::from_mbps(1_525), ThroughputLimit::Receive(MemoryKind::Dpa));
    let short = Objection::TooSlow { bandwidth, limit };
    assert!(none.options.iter().any(|option| option.objections.contains(&short)), "{none}");
}

/// As the study's Fig. 10 has it: the reflector on the DPA with packets in its memory, and with more than that
/// receives still on the DPA, before Arm and host.
#[test]
fn a_dag_that_is_latency_sensitive_gets_the_place_nearest_to_the_network() {
    let model = bluefield3();
    let at = |is_latency_sensitive, gbps| {
        let demand = NtDemand { is_latency_sensitive, ..demand("l2-reflector", gbps) };
        on(&model, &demand).expect("it is possible")
    };
    let near = at(true, 10);
    let (kind, buffers) = setting(&near.taken);
    assert_eq!((kind, buffers.network), (ProcessorKind::Dpa, MemoryKind::Dpa));
    assert_eq!(near.taken.follows, [Guideline::NearTheNetwork]);
    assert!(near.decided_by().starts_with("decided by guideline 1"), "{}", near.decided_by());
    assert_eq!(at(false, 10).taken.follows, [Guideline::ParallelAndSmall]);
    let fast = at(true, 100);
    let (kind, buffers) = setting(&fast.taken);
    assert_eq!((kind, buffers.network), (ProcessorKind::Dpa, MemoryKind::Arm));
    assert_eq!(fast.taken.follows, [Guideline::BuffersByUse]);
}

/// A statement of a DAG about its latency is what its NTs need.
#[test]
fn a_dag_says_that_it_is_latency_sensitive() {
    let (model, bandwidth) = (bluefield3(), Bandwidth::from_gbps(10));
    let network = |latency_sensitive| {
        let spec = chain(&["l2-reflector"], 10).spec().clone();
        let dag = Dag::new(DagSpec { latency_sensitive, ..spec }).expect("a DAG");
        let nodes = place(&model, |_| None, (&dag, bandwidth), Free::all(&model));
        setting(&nodes[0].choice.as_ref().expect("it is possible").taken).1.network
    };
    assert_eq!([true, false].map(network), [MemoryKind::Dpa, MemoryKind::Arm]);
}

#[test]
fn what_needs_low_latency_and_much_memory_stays_off_the_dpa() {
    let mut model = bluefield3();
    everywhere(&mut model, quick(), Intensity::Memory);
    let kind = |is_latency_sensitive| {
        let demand = NtDemand { is_latency_sensitive, ..demand("it", 1) };
        setting(&on(&model, &demand).expect("it is possible").taken).0
    };
    assert_eq!((kind(false), kind(true)), (ProcessorKind::Dpa, ProcessorKind::Arm));
}

fn chain(nts: &[&str], gbps: u64) -> Dag {
    let nts: Vec<NtTypeId> = nts.iter().map(|nt| NtTypeId::new(nt).expect("an id")).collect();
    let spec = DagSpec::chain(&nts, Bandwidth::from_gbps(gbps));
    Dag::new(DagSpec { packet_sizes: PacketSizes::only(1_024), ..spec }).expect("a DAG")
}

/// 250 of 400 Gbit/s need 119 of 190 DPA threads, so the second NT gets 10 of 16 Arm cores, the third 20 of 32
/// host threads, and the fourth nothing.
#[test]
fn the_nts_of_a_dag_do_not_share_threads() {
    let model = bluefield3();
    let four = ["l2-reflector", "check-ip-header", "l2-reflector", "check-ip-header"];
    let nodes =
        place(&model, |_| None, (&chain(&four, 250), Bandwidth::from_gbps(250)), Free::all(&model));
    let taken = nodes.iter().map(|node| node.choice.as_ref().ok().map(|one| setting(&one.taken)));
    let taken: Vec<_> = taken.map(|one| one.map(|(kind, at)| (kind, at.threads))).collect();
    let expected = [(ProcessorKind::Dpa, 119), (ProcessorKind::Arm, 10), (ProcessorKind::Host, 20)];
    assert_eq!(taken, [expected.map(Some).to_vec(), vec![None]].concat());
    assert_eq!(nodes.iter().map(NodePlacement::fit).collect::<Vec<_>>()[3], Fit::No);
    assert_eq!(fit(&nodes), Fit::No);
    assert_eq!(fit(&nodes[..3]), Fit::Yes);
    let unmeasured = place(
        &model,
        |_| None,
        (&chain(&["l2-reflector", "nat"], 1), Bandwidth::from_gbps(1)),
        Free::all(&model),
    );
    assert_eq!(fit(&unmeasured), Fit::Unknown);
}

/// DPA memory receives 50 Gbit/s for all NTs together.
#[test]
fn the_nts_of_a_dag_share_what_a_memory_receives() {
    let model = with_dpa_memory_only();
    let two = ["l2-reflector", "check-ip-header"];
    assert_eq!(
        fit(&place(
            &model,
            |_| None,
            (&chain(&two, 25), Bandwidth::from_gbps(25)),
            Free::all(&model)
        )),
        Fit::Yes
    );
    let nodes =
        place(&model, |_| None, (&chain(&two, 26), Bandwidth::from_gbps(26)), Free::all(&model));
    assert!(nodes[0].choice.is_ok());
    let none = nodes[1].choice.as_ref().expect_err("24 Gbit/s are left");
    let (bandwidth, limit) = (Bandwidth::from_gbps(24), ThroughputLimit::Receive(MemoryKind::Dpa));
    let short = Objection::TooSlow { bandwidth, limit };
    assert!(none.options.iter().any(|option| option.objections.contains(&short)), "{none}");
}

#[test]
fn a_working_set_that_a_program_states_takes_memory() {
    let mut model = bluefield3();
    everywhere(&mut model, quick(), Intensity::Simple);
    model.implementations.retain(|one| one.on == ProcessorKind::Dpa);
    for one in &mut model.implementations {
        one.working_set = Some(ByteSize::from_mib(1));
    }
    let mut free = Free::all(&model);
    free.memory.clear();
    free.memory.insert(MemoryKind::Dpa, ByteSize::from_mib(3) - ByteSize::from_bytes(1));
    let fits: Vec<Fit> =
        place(&model, |_| None, (&chain(&["it", "it", "it"], 1), Bandwidth::from_gbps(1)), free)
            .iter()
            .map(NodePlacement::fit)
            .collect();
    assert_eq!(fits, [Fit::Yes, Fit::Yes, Fit::No]);
}
