//! Decisions: Fig. 15 of SuperNIC as a golden, one example for every way out, and what never
//! happens.

use std::time::Duration;

use proptest::prelude::*;
use snic_autoscaler::{
    DagCapacity, Decision, Monitor, Policy, Why, decide, decide_early, is_near, target_millis,
};
use snic_domain::{Bandwidth, Timestamp};

const PERIOD: Duration = Duration::from_millis(10);

fn gbps(n: u64) -> Bandwidth {
    Bandwidth::from_gbps(n)
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// Two instances of 10 Gbit/s, both promised.
fn two() -> DagCapacity {
    DagCapacity {
        capacity: gbps(20),
        unit: gbps(10),
        holds: gbps(20),
        admitted: gbps(20),
        fair: gbps(100),
        settled: Timestamp::ZERO,
    }
}

/// Loads of whole periods, in Gbit/s, and what is decided after each.
fn decisions(policy: &Policy, chain: &DagCapacity, loads: &[u64]) -> Vec<Decision> {
    let mut monitor = Monitor::default();
    let mut decide_after = |i: usize, load: u64| {
        monitor.observe(gbps(load), PERIOD, PERIOD).expect("a whole period");
        decide(policy, PERIOD, chain, &mut monitor, at(1_000 + 10 * i as u64))
    };
    loads.iter().enumerate().map(|(i, load)| decide_after(i, *load)).collect()
}

/// Decision after the last of these loads.
fn after(policy: &Policy, chain: &DagCapacity, loads: &[u64]) -> Decision {
    decisions(policy, chain, loads).pop().unwrap_or(Decision::Keep)
}

/// Whether nothing is decided after any of these loads.
fn keeps(policy: &Policy, chain: &DagCapacity, loads: &[u64]) -> bool {
    decisions(policy, chain, loads).iter().all(|decision| *decision == Decision::Keep)
}

/// Course of a load that changes, on a card of sixteen regions.
struct Seen {
    /// Served load in each millisecond, in Gbit/s.
    served: Vec<u64>,
    /// When a reconfiguration of 5 ms began, in ms, and to how much.
    begun: Vec<(u64, Bandwidth)>,
}

/// Steps of one millisecond: a decision at the end of each period, and a look in each step between.
fn drive(load_at: impl Fn(u64) -> u64) -> Seen {
    let policy = Policy::default();
    let mut chain = DagCapacity { fair: gbps(160), ..two() };
    let (mut monitor, mut last) = (Monitor::default(), Bandwidth::ZERO);
    let mut ready = None;
    let mut seen = Seen { served: Vec::new(), begun: Vec::new() };
    for ms in 0..120 {
        if let Some((_, holds)) = ready.take_if(|(at, _)| *at == ms) {
            (chain.capacity, chain.holds, chain.settled) = (holds, holds, at(ms));
        }
        let load = gbps(load_at(ms));
        seen.served.push(load_at(ms).min(chain.capacity.get() / 1_000_000_000));
        let now = at(ms + 1);
        let decision = if monitor.observe(load, PERIOD / 10, PERIOD).is_some() {
            last = load;
            decide(&policy, PERIOD, &chain, &mut monitor, now)
        } else if is_near(&policy, &chain, last) {
            decide_early(&policy, PERIOD, &chain, load, now)
        } else {
            Decision::Keep
        };
        match decision {
            Decision::ScaleOut { to, .. } | Decision::PreLaunch { to, .. } if ready.is_none() => {
                seen.begun.push((ms + 1, to));
                ready = Some((ms + 1 + 5, to));
            }
            Decision::Keep | Decision::ScaleOut { .. } | Decision::PreLaunch { .. } => {}
            Decision::ScaleIn { .. } => panic!("at {ms} ms: falling load alone evicts nothing"),
        }
    }
    seen
}

/// SuperNIC, Fig. 15: 10 Gbit/s a region, two launched with the chain, and room for more than it needs.
#[test]
fn figure_15() {
    let seen = drive(|ms| match ms {
        0..20 => 10,
        20..30 => 20,
        30..70 => 30,
        70..90 => 15,
        _ => 30,
    });
    assert_eq!(seen.begun, [(31, gbps(30))], "one reconfiguration, for what is needed");
    let steps = [(0..20, 10), (20..36, 20), (36..70, 30), (70..90, 15), (90..120, 30)];
    for (range, gbps) in steps {
        let served = &seen.served;
        assert!(served[range.clone()].iter().all(|s| *s == gbps), "{range:?}: {served:?}");
    }
}

/// However it comes to what its instances serve: a load that never exceeds them has no region loaded.
#[test]
fn a_load_that_its_instances_serve_asks_for_nothing() {
    let loads: [fn(u64) -> u64; 5] = [
        |ms| if ms < 20 { 10 } else { 20 },
        |ms| if ms < 50 { 1 } else { 20 },
        |ms| (ms / 5).min(20),
        |ms| if ms / 10 % 2 == 0 { 2 } else { 20 },
        |_| 20,
    ];
    for (number, load) in loads.into_iter().enumerate() {
        assert_eq!(drive(load).begun, [], "load {number}");
    }
}

/// A load that rises by steps has as much loaded as it needs, at each step.
#[test]
fn the_autoscaler_loads_exactly_what_is_needed() {
    let seen = drive(|ms| if ms < 30 { 20 } else { 45 });
    assert_eq!(seen.begun, [(31, gbps(45))]);
    let seen = drive(|ms| if ms < 60 { 30 } else { 50 });
    assert_eq!(seen.begun.iter().map(|(_, to)| *to).collect::<Vec<_>>(), [gbps(30), gbps(50)]);
}

#[test]
fn targets_can_be_fractions() {
    assert_eq!(target_millis(gbps(25), gbps(100), gbps(10)), 2_500);
    assert_eq!(target_millis(gbps(4), gbps(100), gbps(10)), 400, "below one: by sharing");
    assert_eq!(target_millis(gbps(25), gbps(12), gbps(10)), 1_200, "no more than its share");
    assert_eq!(target_millis(gbps(25), gbps(12), Bandwidth::ZERO), 0);
}

#[test]
fn overload_for_a_whole_period_scales_out() {
    let policy = Policy::default();
    let overloaded = Why::Overloaded { load: gbps(27), capacity: gbps(20) };
    let expected = Decision::ScaleOut { to: gbps(27), why: overloaded };
    assert_eq!(after(&policy, &two(), &[27]), expected);
    assert_eq!(after(&policy, &two(), &[25, 27]), expected, "what it needs, and no trend");
    assert_eq!(after(&policy, &DagCapacity { fair: gbps(20), ..two() }, &[27]), Decision::Keep);
    let mut monitor = Monitor::default();
    monitor.observe(gbps(90), PERIOD / 2, PERIOD);
    assert!(monitor.observe(gbps(1), PERIOD / 2, PERIOD).is_some(), "a burst inside of a period");
    assert_eq!(decide(&policy, PERIOD, &two(), &mut monitor, at(1_000)), Decision::Keep);
}

#[test]
fn steady_load_at_what_was_promised_asks_for_nothing() {
    assert_eq!(after(&Policy::default(), &two(), &[20, 20, 20, 20]), Decision::Keep);
    assert_eq!(after(&Policy::default(), &two(), &[10, 20]), Decision::Keep);
    let policy = Policy { enabled: false, ..Policy::default() };
    assert_eq!(after(&policy, &two(), &[90, 90]), Decision::Keep);
}

/// Its NTs are shared, up to the headroom: what it holds is not all that they serve of it now.
#[test]
fn instances_already_held_are_not_requested_again() {
    let mbps = Bandwidth::from_mbps;
    let policy = Policy::default();
    let short = |holds| DagCapacity { holds: mbps(holds), capacity: mbps(28_500), ..two() };
    assert_eq!(after(&policy, &short(30_000), &[30, 30]), Decision::Keep);
    assert_eq!(after(&policy, &short(29_999), &[30, 30]), Decision::Keep, "but for noise");
    assert!(matches!(after(&policy, &short(29_000), &[30, 30]), Decision::ScaleOut { .. }));
    // The same before a period ends.
    let decide_early = |chain| decide_early(&policy, PERIOD, &chain, gbps(30), at(1_000));
    assert_eq!(decide_early(short(30_000)), Decision::Keep);
    assert!(
        matches!(decide_early(short(29_000)), Decision::PreLaunch { to, .. } if to == gbps(30))
    );
}

#[test]
fn a_load_is_looked_at_where_it_is_near_and_may_have_more() {
    let policy = Policy::default();
    let at_18 = |policy: Policy, chain: DagCapacity| is_near(&policy, &chain, gbps(18));
    assert!(at_18(policy, two()) && !is_near(&policy, &two(), Bandwidth::from_mbps(17_999)));
    assert!(!at_18(policy, DagCapacity { fair: gbps(20), ..two() }), "it may have no more");
    assert!(!at_18(Policy { pre_launch: false, ..policy }, two()));
    assert!(!at_18(Policy { enabled: false, ..policy }, two()));
    assert_eq!(policy.check_interval(), Duration::from_millis(1));
    let over = |policy, now| {
        decide_early(&policy, PERIOD, &DagCapacity { settled: at(50), ..two() }, gbps(27), now)
    };
    let why = Why::Exceeding { load: gbps(27), capacity: gbps(20) };
    assert_eq!(over(policy, at(60)), Decision::PreLaunch { to: gbps(27), why });
    assert_eq!(over(policy, at(59)), Decision::Keep, "a decision stays for the cooldown");
    assert_eq!(over(Policy { pre_launch: false, ..policy }, at(60)), Decision::Keep);
    let shares = DagCapacity { capacity: gbps(25), ..two() };
    let noise = decide_early(&policy, PERIOD, &shares, Bandwidth::from_mbps(25_400), at(1_000));
    assert_eq!(noise, Decision::Keep);
    let fair = DagCapacity { fair: gbps(25), ..two() };
    let most = decide_early(&policy, PERIOD, &fair, gbps(90), at(1_000));
    assert!(matches!(most, Decision::PreLaunch { to, .. } if to == gbps(25)), "{most:?}");
}

#[test]
fn calm_for_long_enough_scales_in_and_never_below_the_promise() {
    let policy = Policy { scale_in_periods: 3, ..Policy::default() };
    let chain = DagCapacity { holds: gbps(30), capacity: gbps(30), ..two() };
    assert_eq!(after(&policy, &chain, &[15, 15]), Decision::Keep);
    let why = Why::Calm { load: gbps(15), holds: gbps(30), periods: 3 };
    assert_eq!(after(&policy, &chain, &[15, 15, 15]), Decision::ScaleIn { to: gbps(20), why });
    assert!(keeps(&policy, &chain, &[17; 9]), "over 80 % of two");
    assert!(keeps(&policy, &chain, &[15, 15, 19, 15, 15]), "in a row");
    assert!(keeps(&policy, &two(), &[0; 9]), "it holds its promise only");
    // A half is an instance: of 25 Gbit/s, three serve, and two would do.
    let half = DagCapacity { holds: gbps(25), capacity: gbps(25), admitted: gbps(5), ..two() };
    let scaled = after(&policy, &half, &[15; 3]);
    assert!(matches!(scaled, Decision::ScaleIn { to, .. } if to == gbps(15)), "{scaled:?}");
}

#[test]
fn decisions_hold_for_the_cooldown() {
    let mut monitor = Monitor::default();
    monitor.observe(gbps(90), PERIOD, PERIOD);
    let chain = DagCapacity { settled: at(50), ..two() };
    let policy = Policy::default();
    assert_eq!(decide(&policy, PERIOD, &chain, &mut monitor, at(59)), Decision::Keep);
    assert_ne!(decide(&policy, PERIOD, &chain, &mut monitor, at(60)), Decision::Keep);
}

#[test]
fn reasons_say_the_numbers() {
    let Decision::ScaleOut { why, .. } = after(&Policy::default(), &two(), &[27]) else {
        panic!("it is overloaded")
    };
    let text = why.to_string();
    assert!(text.contains("27 Gbit/s") && text.contains("20 Gbit/s"), "{text}");
}

proptest! {
    /// Whatever the numbers: never below the promise, never over the fair share but for the
    /// promise, out only to more than there is, in only to less.
    #[test]
    fn decisions_keep_to_promise_and_share(
        loads in prop::collection::vec(0_u64..200, 1..12),
        numbers in prop::array::uniform5(0_u64..100),
    ) {
        let [capacity, unit, holds, admitted, fair] = numbers.map(gbps);
        let chain = DagCapacity { capacity, unit, holds, admitted, fair, settled: Timestamp::ZERO };
        let policy = Policy { scale_in_periods: 2, ..Policy::default() };
        match after(&policy, &chain, &loads) {
            Decision::Keep => {}
            Decision::ScaleOut { to, .. } | Decision::PreLaunch { to, .. } => {
                prop_assert!(to > capacity && to >= admitted && to <= fair.max(admitted));
            }
            Decision::ScaleIn { to, .. } => prop_assert!(to < holds && to >= admitted),
        }
    }
}
