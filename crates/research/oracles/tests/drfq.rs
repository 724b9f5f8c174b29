//! Packet-level DRFQ: the golden orders, and what any fair queue owes its flows.

use proptest::prelude::*;
use snic_domain::Timestamp;
use snic_fairness::Weight;
use snic_oracles::drfq::{Charging, Drfq, EnqueueError, FlowId, RESOURCES_MAX, TooManyResources};

const NOW: Timestamp = Timestamp::ZERO;

fn drfq(charging: Charging, resources: usize) -> Drfq<u32> {
    Drfq::new(charging, resources, 100_000).expect("few resources")
}

fn weight(w: u32) -> Weight {
    Weight::new(w).expect("valid")
}

/// Flow 0 alternates ⟨2,1⟩ and ⟨1,2⟩, flow 1 needs ⟨3,3⟩; both backlogged.
fn golden(charging: Charging, served: usize) -> Vec<u32> {
    let mut drfq = drfq(charging, 2);
    let flows = [drfq.add_flow(Weight::ONE), drfq.add_flow(Weight::ONE)];
    for i in 0..served as u32 {
        let costs = if i % 2 == 0 { [2, 1] } else { [1, 2] };
        drfq.enqueue(flows[0], &costs, NOW, i).expect("room");
        drfq.enqueue(flows[1], &[3, 3], NOW, i).expect("room");
    }
    (0..served).map(|_| drfq.next().expect("backlogged").flow.0).collect()
}

fn ratio(order: &[u32]) -> f64 {
    let first = order.iter().filter(|&&flow| flow == 0).count();
    first as f64 / (order.len() - first) as f64
}

#[test]
fn memoryless_serves_1212112121() {
    assert_eq!(golden(Charging::Memoryless, 10), [0, 1, 0, 1, 0, 0, 1, 0, 1, 0]);
    assert_eq!(ratio(&golden(Charging::Memoryless, 10)), 1.5);
    assert_eq!(ratio(&golden(Charging::Memoryless, 10_000)), 1.5);
}

#[test]
fn dovetailing_tends_to_two() {
    assert_eq!(golden(Charging::Dovetailing, 6), [0, 1, 0, 0, 1, 0]);
    assert!((ratio(&golden(Charging::Dovetailing, 9_999)) - 2.0).abs() < 1e-3);
}

#[test]
fn a_flow_that_was_idle_saves_nothing_up() {
    for charging in [Charging::Memoryless, Charging::Dovetailing] {
        let mut drfq = drfq(charging, 1);
        let (busy, idle) = (drfq.add_flow(Weight::ONE), drfq.add_flow(Weight::ONE));
        for i in 0..300 {
            drfq.enqueue(busy, &[5], NOW, i).expect("room");
        }
        for _ in 0..100 {
            assert_eq!(drfq.next().expect("backlogged").flow, busy);
        }
        for i in 0..100 {
            drfq.enqueue(idle, &[5], NOW, i).expect("room");
        }
        let next: Vec<_> = (0..100).map(|_| drfq.next().expect("backlogged").flow).collect();
        let idle = next.iter().filter(|&&flow| flow == idle).count();
        assert!((49..=51).contains(&idle), "{idle} of 100 instead of half");
    }
}

#[test]
fn a_new_busy_period_starts_with_all_equal() {
    let mut drfq = drfq(Charging::Memoryless, 1);
    let (a, b) = (drfq.add_flow(Weight::ONE), drfq.add_flow(Weight::ONE));
    drfq.enqueue(a, &[1_000], NOW, 0).expect("room");
    assert!(drfq.next().is_some() && drfq.next().is_none());
    for i in 0..4 {
        drfq.enqueue(b, &[10], NOW, i).expect("room");
        drfq.enqueue(a, &[10], NOW, i).expect("room");
    }
    let order: Vec<_> = std::iter::from_fn(|| drfq.next()).map(|served| served.flow).collect();
    assert_eq!(order, [a, b, a, b, a, b, a, b]);
}

#[test]
fn thirds_do_not_drift() {
    // A flow of weight 3 has served exactly three packets whenever a flow of weight 1 has one.
    let mut drfq = drfq(Charging::Memoryless, 1);
    let (light, heavy) = (drfq.add_flow(weight(1)), drfq.add_flow(weight(3)));
    for i in 0..40_000 {
        drfq.enqueue(light, &[1], NOW, i).expect("room");
        drfq.enqueue(heavy, &[1], NOW, i).expect("room");
    }
    for round in 0..10_000 {
        let four: Vec<_> = (0..4).map(|_| drfq.next().expect("backlogged").flow).collect();
        assert_eq!(four, [light, heavy, heavy, heavy], "round {round}");
    }
    assert_eq!(drfq.virtual_time(), 9_999.0 + 2.0 / 3.0 - 2.0 / 3.0 % (1.0 / (1_u64 << 32) as f64));
}

#[test]
fn a_refused_packet_keeps_its_turn_and_flows_stay_in_order() {
    let mut drfq = drfq(Charging::Memoryless, 2);
    let (a, b) = (drfq.add_flow(Weight::ONE), drfq.add_flow(Weight::ONE));
    for i in 0..3 {
        drfq.enqueue(a, &[1, 0], NOW, i).expect("room");
        drfq.enqueue(b, &[0, 1], NOW, 10 + i).expect("room");
    }
    let mut asked = Vec::new();
    let served = drfq.next_where(|packet| {
        asked.push(packet.item);
        packet.costs[0] == 0
    });
    assert_eq!((asked, served.map(|s| s.item)), (vec![0, 10], Some(10)));
    assert_eq!(drfq.next_where(|_| false), None);
    let rest: Vec<_> = std::iter::from_fn(|| drfq.next()).map(|s| s.item).collect();
    assert_eq!(rest, [0, 1, 11, 2, 12]);
}

#[test]
fn time_that_goes_back_stands_still() {
    let mut drfq = drfq(Charging::Memoryless, 1);
    let flow = drfq.add_flow(Weight::ONE);
    drfq.enqueue(flow, &[1], Timestamp::from_nanos(9), 0).expect("room");
    drfq.enqueue(flow, &[1], Timestamp::from_nanos(4), 1).expect("room");
    let arrivals: Vec<_> =
        std::iter::from_fn(|| drfq.next()).map(|s| s.arrived.as_nanos()).collect();
    assert_eq!(arrivals, [9, 9]);
}

#[test]
fn a_flow_can_be_drained_and_used_again() {
    let mut drfq = drfq(Charging::Dovetailing, 1);
    let (a, b) = (drfq.add_flow(Weight::ONE), drfq.add_flow(Weight::ONE));
    for i in 0..3 {
        drfq.enqueue(a, &[1], NOW, i).expect("room");
        drfq.enqueue(b, &[1], NOW, 10 + i).expect("room");
    }
    assert_eq!(drfq.drain(a), Ok(vec![0, 1, 2]));
    assert_eq!((drfq.backlog(a), drfq.backlog(b), drfq.len()), (0, 3, 3));
    drfq.enqueue(a, &[1], NOW, 7).expect("room");
    let rest: Vec<_> = std::iter::from_fn(|| drfq.next()).map(|s| s.item).collect();
    assert_eq!(rest, [10, 11, 12, 7], "its earlier packets still count as sent");
    assert!(drfq.is_empty());
}

#[test]
fn bad_packets_are_refused_and_leave_no_trace() {
    let mut drfq: Drfq<()> = Drfq::new(Charging::Memoryless, 2, 1).expect("few resources");
    let flow = drfq.add_flow(Weight::ONE);
    let unknown = FlowId(1);
    let refused = [
        (unknown, &[1, 1][..], EnqueueError::UnknownFlow { flow: unknown }),
        (flow, &[1][..], EnqueueError::WrongLength { given: 1, resources: 2 }),
        (flow, &[0, 0][..], EnqueueError::NoCost { flow }),
    ];
    for (flow, costs, error) in refused {
        assert_eq!(drfq.enqueue(flow, costs, NOW, ()), Err(error));
    }
    assert!(drfq.is_empty() && drfq.next().is_none());
    assert_eq!(drfq.enqueue(flow, &[u64::MAX, 0], NOW, ()), Ok(()));
    let full = EnqueueError::QueueFull { flow, waiting: 1 };
    assert_eq!(drfq.enqueue(flow, &[1, 1], NOW, ()), Err(full));
    assert_eq!(full.to_string(), "the queue of flow 0 is full with 1 packets");
    assert!(drfq.set_weight(unknown, Weight::ONE).is_err() && drfq.drain(unknown).is_err());
    let given = RESOURCES_MAX + 1;
    let error = Drfq::<()>::new(Charging::Memoryless, given, 1).err();
    assert_eq!(error, Some(TooManyResources { given }));
}

#[test]
fn a_new_weight_counts_from_the_next_packet() {
    let mut drfq = drfq(Charging::Memoryless, 1);
    let (a, b) = (drfq.add_flow(Weight::ONE), drfq.add_flow(Weight::ONE));
    drfq.set_weight(b, weight(2)).expect("known");
    for i in 0..300 {
        drfq.enqueue(a, &[3], NOW, i).expect("room");
        drfq.enqueue(b, &[3], NOW, i).expect("room");
    }
    let served = (0..300).filter(|_| drfq.next().expect("backlogged").flow == b).count();
    assert_eq!(served, 200);
}

/// Flows 0 and 1 (weights 1 and 4) crowd at resource 0, flow 2 is alone at resource 1 and runs
/// ahead. New packets arrive all the time: with one virtual time for all, those of the first two
/// would start where flow 2 is, and be served by arrival.
#[test]
fn a_flow_that_runs_ahead_elsewhere_does_not_disturb_the_weights() {
    let mut drfq = drfq(Charging::Memoryless, 2);
    let flows = [1, 4, 1].map(|w| drfq.add_flow(weight(w)));
    let mut served = [0; 3];
    for time in 0..6_000 {
        for (flow, costs) in flows.iter().zip([[10, 0], [10, 0], [0, 1]]) {
            while drfq.backlog(*flow) < 3 {
                drfq.enqueue(*flow, &costs, Timestamp::from_nanos(time), 0).expect("room");
            }
        }
        // Resource 1 serves a packet every time, resource 0 every tenth time.
        let free = |k: usize| k == 1 || time % 10 == 0;
        for k in [0, 1] {
            if free(k) {
                let packet = drfq.next_where(|packet| packet.costs[k] > 0).expect("backlogged");
                served[packet.flow.0 as usize] += 1;
            }
        }
    }
    assert_eq!(served, [120, 480, 6_000]);
}

#[test]
fn a_resource_that_was_idle_starts_where_the_others_are() {
    let mut drfq = drfq(Charging::Memoryless, 2);
    let flows = [drfq.add_flow(Weight::ONE), drfq.add_flow(Weight::ONE)];
    for i in 0..50 {
        drfq.enqueue(flows[0], &[1, 0], NOW, i).expect("room");
        assert!(drfq.next().is_some());
    }
    // Both now come to resource 1, which nobody used: neither is ahead or behind.
    for i in 0..6 {
        drfq.enqueue(flows[0], &[0, 1], NOW, i).expect("room");
        drfq.enqueue(flows[1], &[0, 1], NOW, i).expect("room");
    }
    let order: Vec<_> = std::iter::from_fn(|| drfq.next()).map(|s| s.flow.0).collect();
    assert_eq!(order, [0, 1].repeat(6));
}

#[test]
fn dovetailing_charges_needs_that_complement_each_other_once() {
    // One flow's packets need resource 0 and 1 by turns, the other's need 0 only: by dominant
    // resource the first has used as much of each after two packets as the second after one.
    let mut drfq = drfq(Charging::Dovetailing, 2);
    let (turns, plain) = (drfq.add_flow(Weight::ONE), drfq.add_flow(Weight::ONE));
    for i in 0..400 {
        let costs = if i % 2 == 0 { [4, 0] } else { [0, 4] };
        drfq.enqueue(turns, &costs, NOW, i).expect("room");
        drfq.enqueue(plain, &[4, 0], NOW, i).expect("room");
    }
    let first = (0..300).filter(|_| drfq.next().expect("backlogged").flow == turns).count();
    assert_eq!(first, 200);
}

proptest! {
    /// Backlogged flows: the dominant service each has had, by its weight, never differs by more
    /// than one packet of each (the bound of start-time fair queueing).
    #[test]
    fn backlogged_flows_stay_within_a_packet(
        flows in proptest::collection::vec((1..10_u32, proptest::collection::vec(1..100_u64, 3)), 2..6)
    ) {
        let mut drfq = drfq(Charging::Memoryless, 3);
        let ids: Vec<_> = flows.iter().map(|(w, _)| drfq.add_flow(weight(*w))).collect();
        for i in 0..200 {
            for (id, (_, costs)) in ids.iter().zip(&flows) {
                drfq.enqueue(*id, costs, NOW, i).expect("room");
            }
        }
        let packet = |i: usize| *flows[i].1.iter().max().expect("three") as f64 / f64::from(flows[i].0);
        let mut service = vec![0.0; flows.len()];
        while ids.iter().all(|&id| drfq.backlog(id) > 0) {
            let flow = drfq.next().expect("backlogged").flow.0 as usize;
            service[flow] += packet(flow);
            for i in 0..flows.len() {
                for j in 0..flows.len() {
                    prop_assert!(service[i] - service[j] <= packet(i) + packet(j) + 1e-6);
                }
            }
        }
    }

    /// Whatever comes in goes out once, each flow in order, in both modes.
    #[test]
    fn nothing_is_lost_or_reordered(
        steps in proptest::collection::vec(
            proptest::option::weighted(0.6, (0..4_u32, 1..50_u64, 0..50_u64)), 0..200
        ),
        dovetailing in any::<bool>(),
    ) {
        let charging = if dovetailing { Charging::Dovetailing } else { Charging::Memoryless };
        let mut drfq = drfq(charging, 2);
        for w in 1..5 {
            drfq.add_flow(weight(w));
        }
        let (mut sent, mut served) = (vec![Vec::new(); 4], vec![Vec::new(); 4]);
        for (i, step) in (0..).zip(&steps) {
            match *step {
                Some((flow, a, b)) => {
                    drfq.enqueue(FlowId(flow), &[a, b], NOW, i).expect("room");
                    sent[flow as usize].push(i);
                }
                None => {
                    let before = drfq.len();
                    let packet = drfq.next();
                    prop_assert_eq!(packet.is_some(), before > 0);
                    if let Some(packet) = packet {
                        served[packet.flow.0 as usize].push(packet.item);
                    }
                }
            }
        }
        for packet in std::iter::from_fn(|| drfq.next()) {
            served[packet.flow.0 as usize].push(packet.item);
        }
        prop_assert_eq!(sent, served);
    }
    /// After a flow is drained the others are served as if its packets had never waited, and its
    /// own count starts from nothing.
    #[test]
    fn a_drained_flow_leaves_the_order_of_the_others(
        packets in proptest::collection::vec((0..4_u32, 1..50_u64, 0..50_u64), 1..100)
    ) {
        let mut drfq = drfq(Charging::Memoryless, 2);
        for w in 1..5 {
            drfq.add_flow(weight(w));
        }
        for (i, &(flow, a, b)) in (0..).zip(&packets) {
            drfq.enqueue(FlowId(flow), &[a, b], NOW, i).expect("room");
        }
        let waiting = drfq.backlog(FlowId(2));
        prop_assert_eq!(drfq.drain(FlowId(2)).expect("known").len(), waiting);
        prop_assert_eq!(drfq.len(), packets.len() - waiting);
        let rest: Vec<_> = std::iter::from_fn(|| drfq.next()).collect();
        prop_assert_eq!(rest.len(), packets.len() - waiting);
        for flow in [0, 1, 3].map(FlowId) {
            let items: Vec<_> = rest.iter().filter(|s| s.flow == flow).map(|s| s.item).collect();
            prop_assert!(items.is_sorted());
        }
    }
}
