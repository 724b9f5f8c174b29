//! The autoscaler requests what is needed and no more: controller, driver and card model, under the policies that ship,
//! on a card with next to no spare region and on one with many. A DAG of one NT that serves 10 Gbit/s is
//! promised 20, so it starts with two regions.

use std::time::Duration;

use snic_card_sim::{PlaneOptions, Sizes, TrafficSource};
use snic_controller::ControllerSettings;
use snic_domain::{Bandwidth, CardId, RegionPass, RegionState};
use snic_repro::{Parameters, Setup, Testbed, nt};

const STEP: Duration = Duration::from_micros(50);
const MS: Duration = Duration::from_millis(1);

/// Cards of this many regions.
const REGIONS: [usize; 2] = [4, 16];

/// Gbit/s, and for how many milliseconds.
type Phase = (f64, usize);

/// Observations by millisecond.
#[derive(Debug, Default)]
struct Seen {
    served: Vec<f64>,
    /// Regions that hold the chain.
    held: Vec<usize>,
    /// Regions that were loaded after the DAG was first served.
    loads: u64,
}

impl Seen {
    fn held_at_most(&self) -> usize {
        self.held.iter().copied().max().unwrap_or(0)
    }
}

/// Arrival times of packets.
#[derive(Debug, Clone, Copy)]
enum Times {
    Even,
    Random,
}

fn watch(regions: usize, times: Times, phases: &[Phase]) -> Seen {
    let parameters = Parameters::load().expect("our own files");
    let mut card = parameters.card;
    card.region_pass = Some(RegionPass::SUPERNIC);
    card.regions.truncate(regions);
    let nts = vec![nt("dummy", 50, Bandwidth::from_gbps(10)).expect("a label")];
    let options = PlaneOptions::default();
    let setup = Setup { card, options, nts, chains: vec![&["dummy"]] };
    let mut testbed = Testbed::new(&setup).expect("a bench");
    testbed.policies(ControllerSettings::default()).expect("policies");
    let dag = testbed.chain("chain", &["dummy"], Bandwidth::from_gbps(20)).expect("it fits");
    testbed.live(20 * MS, STEP).expect("time passes");
    let card = |testbed: &Testbed| {
        let id = CardId::new("card0").expect("a label");
        testbed.controller.card_view(&id).expect("the card is there")
    };
    let before = card(&testbed).loads;
    let mut seen = Seen::default();
    testbed.card.take_measurements();
    for (gbps, millis) in phases {
        let rate = Bandwidth::from_mbps((gbps * 1_000.0) as u64);
        let source = TrafficSource::of_dag(dag.uid, rate, Sizes::Fixed(1_000));
        let source = match times {
            Times::Even => source,
            Times::Random => source.poisson(),
        };
        let source = testbed.send(source).expect("a source");
        for _ in 0..*millis {
            testbed.live(MS, STEP).expect("time passes");
            let measured = testbed.card.take_measurements();
            let served = measured.dag(dag.uid.row()).map_or(0.0, |dag| dag.served.gbps_f64());
            seen.served.push(served);
            let holds =
                |state: &RegionState| matches!(state, RegionState::Active | RegionState::Victim);
            seen.held.push(card(&testbed).regions.iter().filter(|(_, state)| holds(state)).count());
        }
        testbed.card.detach(source);
    }
    seen.loads = card(&testbed).loads - before;
    seen
}

/// Milliseconds from the first of these on until so much is served.
fn until(seen: &Seen, from: usize, gbps: f64) -> usize {
    let served = seen.served[from..].iter().position(|served| *served > gbps);
    served.expect("it is served in the end")
}

/// A load takes 5.2 ms of its own: 4 MiB at 800 MB/s. A second one that nobody needs would be 5.2 more.
const SERVED_WITHIN: usize = 8;

#[test]
#[ignore = "ci: seconds"]
fn a_load_that_needs_three_regions_takes_three_and_one_reconfiguration() {
    let steps: &[Phase] = &[(10.0, 20), (20.0, 10), (30.0, 40), (15.0, 20), (30.0, 40)];
    for regions in REGIONS {
        for times in [Times::Even, Times::Random] {
            // What comes at random times fills no NT to the last bit.
            let part = if matches!(times, Times::Even) { 1.0 } else { 0.95 };
            let phases: Vec<Phase> = steps.iter().map(|(gbps, ms)| (gbps * part, *ms)).collect();
            let seen = watch(regions, times, &phases);
            let late = until(&seen, 30, 26.0 * part);
            println!("{regions} regions, {times:?}: {} loads, late by {late} ms", seen.loads);
            assert_eq!((seen.loads, seen.held_at_most()), (1, 3), "{regions} {times:?} {seen:?}");
            assert!(late <= SERVED_WITHIN, "{regions} {times:?}: {late} ms");
            assert_eq!(until(&seen, 91, 26.0 * part), 0, "the region is still there: {seen:?}");
        }
    }
}

/// From 10 to 30 Gbit/s, half a Gbit/s more each millisecond.
#[test]
fn a_load_that_rises_slowly_takes_one_region_more_when_it_needs_it() {
    let phases: Vec<Phase> = (0..=40).map(|n| (10.0 + 0.5 * f64::from(n), 1)).collect();
    let phases = [&phases[..], &[(30.0, 40)]].concat();
    for regions in REGIONS {
        let seen = watch(regions, Times::Even, &phases);
        println!("{regions} regions: {} loads, {:?}", seen.loads, seen.held);
        assert_eq!((seen.loads, seen.held_at_most()), (1, 3), "{regions} {seen:?}");
        assert!(seen.served[45..].iter().all(|served| *served > 29.0), "{regions} {seen:?}");
    }
}

/// Up to all that two regions serve, even and random, steady and in bursts.
#[test]
#[ignore = "ci: seconds"]
fn a_load_that_two_regions_serve_has_nothing_loaded_for_it() {
    let steady: &[Phase] = &[(20.0, 100)];
    let bursts: Vec<Phase> = (0..20).map(|n| (if n % 2 == 0 { 20.0 } else { 2.0 }, 7)).collect();
    let cases = [(Times::Even, steady, 1.0), (Times::Even, &bursts, 1.0)];
    let cases =
        cases.into_iter().chain([(Times::Random, steady, 0.98), (Times::Random, &bursts, 0.98)]);
    for (times, phases, part) in cases {
        let phases: Vec<Phase> = phases.iter().map(|(gbps, ms)| (gbps * part, *ms)).collect();
        for regions in REGIONS {
            let seen = watch(regions, times, &phases);
            println!("{regions} regions, {times:?}: {} loads", seen.loads);
            assert_eq!((seen.loads, seen.held_at_most()), (0, 2), "{regions} {times:?} {phases:?}");
        }
    }
}
