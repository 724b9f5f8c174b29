//! Some tenants of a set send ten times what they were promised: the others notice next to nothing.

use std::time::Duration;

use snic_domain::{Bandwidth, DagSpec, NtTypeId};
use snic_repro::Parameters;

use super::Seen;
use super::sets::{Load, Random, Set, for_all, seeds, words};

/// How long all send before it counts, and how long it counts: rates follow loads within it, once an epoch.
const WARM_UP: Duration = Duration::from_millis(1);
const COUNTS: Duration = Duration::from_millis(25);

/// How many times its promise a greedy tenant sends.
const GREED: u64 = 10;

/// What the NTs of a DAG take for one packet of this many bytes each, in nanoseconds: nothing is taken back from an
/// NT, so a packet may find one of another tenant in each.
fn packet_nanos(parameters: &Parameters, spec: &DagSpec, bytes: u32) -> f64 {
    let types = || parameters.catalogue.nt_types.iter();
    let serves = |nt: &NtTypeId| types().find(|of| of.id == *nt).map(|of| of.bandwidth_max);
    let serve = spec.nodes.iter().filter_map(|node| serves(&node.nt));
    serve.map(|bandwidth| f64::from(bytes * 8) / bandwidth.gbps_f64()).sum()
}

/// How a tenant that keeps to its promise fares beside greedy ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its p99, from when its sender has a packet to when that leaves the card, is at most a tenth over that of
    /// the same set without greedy tenants, or by what its NTs take for a packet.
    Good,
    /// Its p99 is over that.
    Slower,
    /// It has less than 99 % of what it sends, or drops.
    Broken,
}

fn verdict(calm: &Seen, seen: &Seen, packet_nanos: f64) -> Verdict {
    let most = (calm.p99_nanos * 1.1).max(calm.p99_nanos + packet_nanos);
    if seen.served.gbps_f64() < calm.sent.gbps_f64() * 0.99 || seen.has_drops() {
        Verdict::Broken
    } else if seen.p99_nanos > most {
        Verdict::Slower
    } else {
        Verdict::Good
    }
}

/// What one set shows: how many kept to their promises, and whose verdict is not good.
pub struct Judged {
    pub polite: usize,
    pub others: Vec<(Verdict, String)>,
}

pub fn judge(seed: u64) -> Judged {
    let parameters = Parameters::load().expect("our own files");
    let mut set = Set::new(seed);
    let mut random = Random::new(!seed);
    let greedy: Vec<bool> = set.dags.iter().map(|_| random.below(2) == 0).collect();
    let mut loads = set.promised();
    for ((load, (_, spec)), _) in loads.iter_mut().zip(&set.dags).zip(&greedy).filter(|of| *of.1) {
        *load = Load { rate: spec.bandwidth, is_random: false };
    }
    let calm = set.run(&loads, WARM_UP, COUNTS);
    // The same again: the same tenants, and those that are not greedy send the same packets at the same times.
    let mut set = Set::new(seed);
    assert_eq!(set.promised().len(), loads.len(), "the same seed gives the same set");
    let ten_times = |(load, greedy): (&Load, &bool)| {
        let times = if *greedy { GREED } else { 1 };
        Load { rate: Bandwidth::from_bps(load.rate.get() * times), ..load.clone() }
    };
    let loads: Vec<Load> = loads.iter().zip(&greedy).map(ten_times).collect();
    let seen = set.run(&loads, WARM_UP, COUNTS);
    let specs = set.dags.iter().map(|(_, spec)| spec);
    let greedy_specs = specs.clone().zip(&greedy).filter(|(_, greedy)| **greedy);
    let largest = greedy_specs.map(|(spec, _)| spec.packet_sizes.largest()).max().unwrap_or(0);
    let polite = specs.enumerate().filter(|(at, _)| !greedy[*at]);
    let (mut count, mut others) = (0, Vec::new());
    for (at, spec) in polite {
        count += 1;
        let (Some(calm), Some(seen)) = (&calm[at], &seen[at]) else {
            others.push((Verdict::Broken, format!("{}: no packet came through", words(spec))));
            continue;
        };
        let verdict = verdict(calm, seen, packet_nanos(&parameters, spec, largest));
        if verdict != Verdict::Good {
            let text = format!("{}: {calm:?}, beside greedy tenants {seen:?}", words(spec));
            others.push((verdict, text));
        }
    }
    Judged { polite: count, others }
}

/// `SNIC_PROMISES=1000` judges as many sets, `SNIC_SEED=17` that one alone.
#[test]
fn conforming_dags_are_served_beside_others_sending_ten_times_their_promise() {
    let (mut failed, mut polite, mut verdicts) = (Vec::new(), 0, [0; 2]);
    for (seed, judged) in for_all(seeds(), judge) {
        polite += judged.polite;
        for (verdict, text) in &judged.others {
            println!("SNIC_SEED={seed}: {verdict:?}: {text}");
            verdicts[usize::from(*verdict == Verdict::Broken)] += 1;
        }
        if !judged.others.is_empty() {
            failed.push(seed);
        }
    }
    let [slower, broken] = verdicts;
    println!(
        "{polite} DAGs beside greedy ones: {slower} with a p99 over the goal, {broken} not served"
    );
    assert!(polite > 0 && failed.is_empty(), "promises were broken with seeds {failed:?}");
}
