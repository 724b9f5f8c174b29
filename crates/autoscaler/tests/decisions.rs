//! Decisions: Fig. 15 of SuperNIC as a golden, one example for every way out, and what never
//! happens.

use std::time::Duration;

use proptest::prelude::*;
use snic_autoscaler::{Chain, Decision, Monitor, Policy, Why, decide, target_millis};
use snic_domain::{Bandwidth, Timestamp};

const PERIOD: Duration = Duration::from_millis(10);

fn gbps(n: u64) -> Bandwidth {
    Bandwidth::from_gbps(n)
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// Two instances of 10 Gbit/s, both promised.
fn two() -> Chain {
    Chain {
        capacity: gbps(20),
        unit: gbps(10),
        holds: gbps(20),
        admitted: gbps(20),
        fair: gbps(100),
        settled: Timestamp::ZERO,
    }
}

/// Loads of whole periods, in Gbit/s, and what is decided after the last.
fn after(policy: &Policy, chain: &Chain, loads: &[u64]) -> Decision {
    let mut monitor = Monitor::default();
    let mut decision = Decision::Keep;
    for (i, load) in loads.iter().enumerate() {
        assert!(monitor.observe(gbps(*load), PERIOD, PERIOD));
        decision = decide(policy, PERIOD, chain, &mut monitor, at(1_000 + 10 * i as u64));
    }
    decision
}

/// SuperNIC, Fig. 15: 10 Gbit/s a region, two launched with the chain, a card with room for three,
/// a reconfiguration of 5 ms. Steps of one millisecond; a decision at the end of each period.
#[test]
fn figure_15() {
    let load_at = |ms: u64| match ms {
        0..20 => 10,
        20..30 => 20,
        30..70 => 30,
        70..90 => 15,
        _ => 30,
    };
    let (regions_max, reconfiguration) = (3, 5);
    let (mut regions, mut reconfigurations, mut ready_at) = (2, 0, None);
    let mut chain = Chain { fair: gbps(10 * regions_max), ..two() };
    let mut monitor = Monitor::default();
    let mut served = Vec::new();
    for ms in 0..120 {
        if ready_at == Some(ms) {
            chain.capacity = gbps(30);
            chain.settled = at(ms);
        }
        served.push(load_at(ms).min(chain.capacity.get() / 1_000_000_000));
        let now = at(ms + 1);
        if !monitor.observe(gbps(load_at(ms)), PERIOD / 10, PERIOD) {
            continue;
        }
        match decide(&Policy::default(), PERIOD, &chain, &mut monitor, now) {
            Decision::Keep => {}
            Decision::ScaleOut { to, .. } | Decision::PreLaunch { to, .. } => {
                assert_eq!((to, ready_at), (gbps(30), None), "at {ms} ms");
                chain.holds = to;
                ready_at = Some(ms + 1 + reconfiguration);
                regions += 1;
                reconfigurations += 1;
            }
            Decision::ScaleIn { .. } => panic!("at {ms} ms: falling load alone evicts nothing"),
        }
    }
    assert_eq!((regions, reconfigurations, ready_at), (3, 1, Some(35)));
    let steps = [(0..20, 10), (20..35, 20), (35..70, 30), (70..90, 15), (90..120, 30)];
    for (range, gbps) in steps {
        assert!(served[range.clone()].iter().all(|s| *s == gbps), "{range:?}: {served:?}");
    }
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
    let decision = after(&policy, &two(), &[27]);
    let (to, enough) = (gbps(27), gbps(27));
    assert_eq!(decision, Decision::ScaleOut { to, enough, why: overloaded });
    assert!(
        matches!(after(&policy, &two(), &[25, 27]), Decision::ScaleOut { to, .. } if to == gbps(29))
    );
    assert_eq!(after(&policy, &Chain { fair: gbps(20), ..two() }, &[27]), Decision::Keep);
    let mut monitor = Monitor::default();
    monitor.observe(gbps(90), PERIOD / 2, PERIOD);
    assert!(monitor.observe(gbps(1), PERIOD / 2, PERIOD), "a burst inside of a period");
    assert_eq!(decide(&policy, PERIOD, &two(), &mut monitor, at(1_000)), Decision::Keep);
}

#[test]
fn steady_load_at_what_was_promised_asks_for_nothing() {
    assert_eq!(after(&Policy::default(), &two(), &[20, 20, 20, 20]), Decision::Keep);
    let policy = Policy { pre_launch: false, ..Policy::default() };
    assert_eq!(after(&policy, &two(), &[10, 20]), Decision::Keep, "no forecast, no launch ahead");
    let policy = Policy { enabled: false, ..Policy::default() };
    assert_eq!(after(&policy, &two(), &[90, 90]), Decision::Keep);
}

/// Its NTs are shared, up to the headroom: what it holds is not all that they serve of it now.
#[test]
fn what_is_held_already_is_not_asked_for_again() {
    let mbps = Bandwidth::from_mbps;
    let policy = Policy::default();
    let short = |holds| Chain { holds: mbps(holds), capacity: mbps(28_500), ..two() };
    assert_eq!(after(&policy, &short(30_000), &[30, 30]), Decision::Keep);
    assert_eq!(after(&policy, &short(29_999), &[30, 30]), Decision::Keep, "but for noise");
    assert!(matches!(after(&policy, &short(29_000), &[30, 30]), Decision::ScaleOut { .. }));
    // The same ahead of need: 33 Gbit/s is the forecast.
    let near = |holds| Chain { holds: gbps(holds), capacity: gbps(31), ..two() };
    assert_eq!(after(&policy, &near(33), &[26, 29]), Decision::Keep);
    assert!(matches!(after(&policy, &near(31), &[26, 29]), Decision::PreLaunch { .. }));
}

#[test]
fn calm_for_long_enough_scales_in_and_never_below_the_promise() {
    let policy = Policy { scale_in_periods: 3, ..Policy::default() };
    let chain = Chain { holds: gbps(30), capacity: gbps(30), ..two() };
    assert_eq!(after(&policy, &chain, &[15, 15]), Decision::Keep);
    let why = Why::Calm { load: gbps(15), holds: gbps(30), periods: 3 };
    assert_eq!(after(&policy, &chain, &[15, 15, 15]), Decision::ScaleIn { to: gbps(20), why });
    assert_eq!(after(&policy, &chain, &[17, 17, 17, 17]), Decision::Keep, "over 80 % of two");
    assert_eq!(after(&policy, &chain, &[15, 15, 19, 15, 15]), Decision::Keep, "in a row");
    assert_eq!(after(&policy, &two(), &[0; 9]), Decision::Keep, "it holds its promise only");
}

#[test]
fn what_was_decided_stays_for_the_residency() {
    let mut monitor = Monitor::default();
    monitor.observe(gbps(90), PERIOD, PERIOD);
    let chain = Chain { settled: at(50), ..two() };
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
        let chain = Chain { capacity, unit, holds, admitted, fair, settled: Timestamp::ZERO };
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
