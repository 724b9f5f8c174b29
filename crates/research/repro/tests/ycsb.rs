//! The test bed of YCSB's figures, compared with a list, and with what must be lost.

use snic_repro::Parameters;
use snic_repro::ycsb::{
    ARMS, Arm, CardCache, KeyValueNetwork, Load, RunInputs, WORKLOADS, YcsbMeasurement,
    YcsbWorkload,
};

fn run(parameters: &Parameters, arm: Arm, load: Load) -> YcsbMeasurement {
    let bed = RunInputs::of_crowd(parameters);
    let network = KeyValueNetwork::new(parameters, &bed, arm, load).expect("the arm is set up");
    network.run().expect("every answer is right")
}

fn load(workload: YcsbWorkload, clients: usize, operations: u64) -> Load {
    Load { workload, clients, warm_up: 100, operations, lost_ppm: 0.0 }
}

/// Reads that hit a cache, written slowly: a list in the order of use, the oldest first. What is written leaves it.
fn hits_of_a_list(made: &[(u64, bool)], pairs: usize) -> u64 {
    let (mut list, mut hits) = (Vec::<u64>::new(), 0);
    for &(key, is_read) in made {
        let place = list.iter().position(|held| *held == key);
        let was_held = place.map(|place| list.remove(place)).is_some();
        if is_read {
            hits += u64::from(was_held);
            list.push(key);
        }
        if list.len() > pairs {
            list.remove(0);
        }
    }
    hits
}

#[test]
fn one_clients_reads_hit_exactly_those_that_a_list_holds() {
    let mut parameters = Parameters::load().expect("our own files");
    for (pairs, bytes) in [(192, "196608"), (8, "8192")] {
        parameters.set("crowd.cache_bytes", bytes).expect("allowed");
        for workload in WORKLOADS {
            for arm in ARMS.into_iter().filter(|arm| arm.cache != CardCache::Absent) {
                let seen = run(&parameters, arm, load(workload, 1, 2_000));
                let expected = hits_of_a_list(&seen.made, pairs);
                let what = format!("{}, workload {}, {pairs} pairs", arm.name, workload.name);
                assert_eq!(seen.hits, expected, "{what}");
                assert!(expected > 10, "{what}: {expected}");
            }
        }
    }
}

#[test]
fn only_a_card_with_a_cache_answers() {
    let parameters = Parameters::load().expect("our own files");
    for arm in ARMS {
        let seen = run(&parameters, arm, load(WORKLOADS[2], 16, 1_000));
        assert_eq!(seen.hits > 0, arm.cache != CardCache::Absent, "{}: {seen:?}", arm.name);
        assert_eq!(seen.lost, 0, "{}", arm.name);
        assert!(seen.reads == 1_100 && seen.rate > 0.0, "{}", arm.name);
    }
}

#[test]
fn what_a_network_loses_the_transport_sends_again() {
    let parameters = Parameters::load().expect("our own files");
    for arm in ARMS {
        let lossy = Load { lost_ppm: 20_000.0, ..load(WORKLOADS[1], 16, 2_000) };
        let seen = run(&parameters, arm, lossy);
        assert_eq!(seen.lost == 0, arm.transport, "{}: {} lost", arm.name, seen.lost);
    }
}
