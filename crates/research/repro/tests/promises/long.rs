//! The long run: many more sets than each run of the tests has time for.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::sets::for_all;
use super::ten_times::{self, Verdict};

/// As many sets, where nobody asks for others (`SNIC_PROMISES`).
const SETS: u64 = 1_000;
/// After as many sets a line tells how far it is.
const TELLS_AFTER: usize = 50;

/// Each set twice: all send what they were promised; then half of the tenants send ten times theirs. Minutes with
/// optimisation: CONTRIBUTING.md has the command.
#[test]
#[ignore = "nightly: the long run, with a summary"]
fn promises_of_a_thousand_sets() {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let first = number("SNIC_SEED").unwrap_or(0);
    let sets = number("SNIC_PROMISES").unwrap_or(SETS);
    let done = AtomicUsize::new(0);
    let judged = for_all(first..first + sets, |seed| {
        let (promised, greedy) = (super::judge(seed), ten_times::judge(seed, ten_times::COUNTS));
        for broken in &promised.broken {
            println!("SNIC_SEED={seed}: {broken}");
        }
        for (verdict, text) in &greedy.others {
            println!("SNIC_SEED={seed}: beside greedy tenants: {verdict:?}: {text}");
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(TELLS_AFTER) {
            println!("{done} of {sets} sets");
        }
        (promised, greedy)
    });
    let count = |of: Verdict| {
        let others = judged.iter().flat_map(|(_, (_, greedy))| &greedy.others);
        others.filter(|(verdict, _)| *verdict == of).count()
    };
    let sum = |of: fn(&super::Judged) -> usize| -> usize {
        judged.iter().map(|(_, (promised, _))| of(promised)).sum()
    };
    let gbps: f64 = judged.iter().map(|(_, (promised, _))| promised.gbps).sum();
    let polite: usize = judged.iter().map(|(_, (_, greedy))| greedy.polite).sum();
    let broken = sum(|promised| promised.broken.len());
    println!(
        "{sets} sets from seed {first} on: {} DAGs with {gbps:.0} Gbit/s admitted, {} refused",
        sum(|promised| promised.admitted),
        sum(|promised| promised.refused)
    );
    println!("all send their promise: {broken} DAGs with less than 99 %, drops or held back");
    println!(
        "half of the tenants send ten times theirs: of {polite} others {} with less than 99 % or drops, {} with \
         a p99 over the goal",
        count(Verdict::Broken),
        count(Verdict::Slower)
    );
    let failed = |(_, (promised, greedy)): &&(u64, (super::Judged, ten_times::Judged))| {
        !promised.broken.is_empty() || !greedy.others.is_empty()
    };
    let failed: Vec<u64> = judged.iter().filter(failed).map(|(seed, _)| *seed).collect();
    assert!(failed.is_empty(), "promises were broken with seeds {failed:?}");
}
