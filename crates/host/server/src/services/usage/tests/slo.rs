//! Objectives beside what was done to a promise.

use snic_usage::PromiseState;

use super::*;
use crate::services::usage::slo::slo_of;
use snic_api::usage::slo_objective as objective;

const LOST: PromiseState = PromiseState::Broken(BreakCause::CardLost);
const BELOW: PromiseState = PromiseState::Broken(BreakCause::BelowPromise);

/// A DAG of `acme` with a promise for so many seconds, in another state from each of these on, and its daemon.
fn promised(seconds: u64, states: &[(u64, PromiseState)]) -> (MemoryStore, UsageView) {
    let (store, mut book) = (MemoryStore::new(), Book::default());
    let uid = DagUid::new(0, 1).expect("few");
    let (tenant, dag) = dag("acme");
    for second in 0..=seconds {
        let now = snic_domain::Timestamp::from_nanos((BEGIN + second) * 1_000_000_000);
        book.tick(now);
        if second == 0 {
            book.booted(now, &card(), 1);
            book.place(now, &card(), (&tenant, &dag, uid), UsageRates::default());
            book.set_promise(now, uid, Some(&card()), Some(PromiseState::Kept));
        }
        let line = Bandwidth::from_gbps(1);
        let counters = counters(second);
        let reading = UsageReading { now, clock_hz: 1_000, line, counters: &counters };
        book.read(&card(), &reading, |_| true);
        for (_, state) in states.iter().filter(|(from, _)| *from == second) {
            book.set_promise(now, uid, Some(&card()), Some(*state));
        }
        book.close(now, &Retention::default());
        write(&store, &mut book);
    }
    (store, view(&book))
}

fn of_web(from: Option<u64>, to: Option<u64>) -> UsageQuery {
    let (tenant, dag) = dag("acme");
    let dag = Some(DagName { tenant: tenant.clone(), dag });
    UsageQuery { tenant: Some(tenant), dag, from, to, ..query(0, UsageGrouping::Tenant) }
}

#[test]
fn an_outage_costs_its_seconds_of_the_budget() {
    let states = [(3_500, LOST), (3_536, PromiseState::Kept), (7_100, PromiseState::Unknown)];
    let (store, view) = promised(7_200, &states);
    let slo = slo_of(&store, &view, &of_web(None, None), None).expect("it is in memory");
    assert_eq!((slo.promise_ms, slo.unknown_ms, slo.broken_ms), (7_200_000, 100_000, 36_000));
    assert_eq!(slo.broken, [v1::UsageBreak { cause: "CARD_LOST".into(), millis: 36_000 }]);
    // 7064 of 7100 s, and a thousandth of 7100 s.
    assert_eq!((slo.availability_ppm, slo.objective_ppm), (994_929, 999_000));
    assert_eq!((slo.budget_ms, slo.budget_left_ms), (7_100, 7_100 - 36_000));
    assert_eq!(slo.name, "tenants/acme/dags/web");
    let outage = slo.outages.first().expect("one");
    let at = |second| Some(timestamp(BEGIN + second));
    assert_eq!((outage.start_time, outage.end_time), (at(3_500), at(3_536)));
    assert_eq!((outage.cause.as_str(), outage.card.as_str()), ("CARD_LOST", "cards/card0"));
    // Nothing was broken in the last hour, but for the last 64 s of it nothing more is known.
    let rates: Vec<(u64, u64)> =
        slo.burns.iter().map(|burn| (burn.window_seconds, burn.rate_thousandths)).collect();
    let all = 36_000 * 1_000_000 / 7_100_000;
    assert_eq!(rates, [(300, 0), (3_600, 0), (21_600, all), (259_200, all)]);
}

/// The short windows see an outage at once, each as far as it reaches.
#[test]
fn burn_rates_are_of_their_windows() {
    let (store, view) = promised(7_200, &[(7_050, BELOW), (7_080, PromiseState::Kept)]);
    let slo = slo_of(&store, &view, &of_web(None, None), Some(990_000)).expect("it is in memory");
    let rates: Vec<u64> = slo.burns.iter().map(|burn| burn.rate_thousandths).collect();
    // 30 s of 300 s, of an hour, and of two hours, each over a hundredth.
    assert_eq!(rates, [10_000, 833, 416, 416]);
    assert_eq!((slo.objective_ppm, slo.budget_ms, slo.budget_left_ms), (990_000, 72_000, 42_000));
}

#[test]
fn a_range_has_its_own_outages_and_nothing_is_no_miss() {
    let (store, view) = promised(1_200, &[(100, LOST), (130, PromiseState::Kept)]);
    let part = of_web(Some(BEGIN + 600), Some(BEGIN + 900));
    let slo = slo_of(&store, &view, &part, None).expect("it is in memory");
    assert_eq!((slo.promise_ms, slo.broken_ms, slo.availability_ppm), (300_000, 0, 1_000_000));
    assert_eq!(slo.outages, []);
    let before = of_web(Some(BEGIN - 7_200), Some(BEGIN - 3_600));
    let slo = slo_of(&store, &view, &before, None).expect("it is in memory");
    assert_eq!((slo.promise_ms, slo.availability_ppm, slo.budget_ms), (0, 1_000_000, 0));
}

/// The same numbers by steps of usage, for tenant and operator alike.
#[test]
fn usage_has_the_same_times() {
    let (store, view) = promised(1_200, &[(100, LOST), (130, PromiseState::Unknown)]);
    let listed = add_up(&store, &view, &query(0, UsageGrouping::Dag)).expect("it is in memory");
    let [entry] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((entry.promise_ms, entry.promise_unknown_ms), (1_200_000, 1_070_000));
    assert_eq!(entry.broken, [v1::UsageBreak { cause: "CARD_LOST".into(), millis: 30_000 }]);
}

#[test]
fn an_objective_is_most_of_the_time() {
    assert_eq!(objective(0).expect("the operator's"), None);
    assert_eq!(objective(999_999).expect("a part"), Some(999_999));
    for wrong in [1, 499_999, 1_000_000, u32::MAX] {
        assert!(objective(wrong).is_err(), "{wrong}");
    }
}
