//! Crashes for real: a process killed while it writes, a disk that loses power while it writes.
//!
//! A child process (this program again) opens the store and writes; it tells what was acknowledged
//! over a pipe. After the crash the store is opened here: every acknowledged batch must be there
//! whole, and no batch may be there in part.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod child;
mod disk;
mod workload;

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use child::Child;
use disk::Disk;
use workload::Acknowledged;

/// Kills with each change and before a merge.
const KILLS: u32 = 8;
const KILLS_OF_CI: u32 = 40;
const POWER_CUTS: u32 = 20;

/// Rounds on one store before the next one begins empty, so that crashes also meet its making.
const ROUNDS_OF_A_STORE: u32 = 8;

/// Picks the moments; `SNIC_CRASH_SEED` runs another sequence of them.
fn seeded(test: &str) -> ChaCha8Rng {
    let seed = std::env::var("SNIC_CRASH_SEED").ok();
    let seed = seed.map_or(1, |text| text.parse().expect("SNIC_CRASH_SEED is a number"));
    eprintln!("{test}: SNIC_CRASH_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

/// Lets the child come to a random moment: now and then one while it opens the store.
fn wait_for_a_moment(child: &mut Child, random: &mut ChaCha8Rng) {
    if random.random_bool(0.75) {
        child.wait_until_open();
    }
    std::thread::sleep(Duration::from_micros(random.random_range(0..300_000)));
}

#[test]
fn a_killed_process_loses_and_tears_nothing() {
    kill(KILLS);
}

#[test]
#[ignore = "ci: a quarter of a minute"]
fn a_process_that_is_killed_often_loses_and_tears_nothing() {
    kill(KILLS_OF_CI);
}

fn kill(kills: u32) {
    let mut random = seeded("kill -9");
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    let mut total = 0;
    for round in 0..kills {
        let store = folder.path().join(format!("{}", round / ROUNDS_OF_A_STORE));
        if round % ROUNDS_OF_A_STORE == 0 {
            acknowledged = Acknowledged::default();
        }
        let mut child = Child::spawn(&store);
        wait_for_a_moment(&mut child, &mut random);
        total += child.kill(&mut acknowledged);
        let recovered = workload::check(&store, &mut acknowledged);
        assert_eq!(recovered, None, "round {round}: a kill damages nothing");
    }
    eprintln!("kill -9: {kills} kills, {total} acknowledged batches");
    assert!(total > kills as usize, "the children did next to nothing: {total}");
}

#[test]
#[ignore = "ci: a quarter of a minute"]
fn a_power_cut_loses_and_tears_nothing() {
    let mut random = seeded("power cut");
    let disk = match Disk::new() {
        Ok(disk) => disk,
        Err(reason) if std::env::var("CI").is_ok_and(|value| value == "true") => {
            panic!("CI=true, and the power cut cannot be tested: {reason}");
        }
        Err(reason) => {
            eprintln!("SKIPPED: the power cut cannot be tested here: {reason}");
            return;
        }
    };
    let mut acknowledged = Acknowledged::default();
    let (mut total, mut recoveries) = (0, 0);
    for round in 0..POWER_CUTS {
        if round % ROUNDS_OF_A_STORE == 0 {
            acknowledged = Acknowledged::default();
        }
        let mounted = disk.mount();
        let store = mounted.path().join(format!("{}", round / ROUNDS_OF_A_STORE));
        let switch = mounted.switch();
        let mut child = Child::spawn(&store);
        wait_for_a_moment(&mut child, &mut random);
        // A machine without power acknowledges nothing more, but this child does: what it says from here on does not
        // count. A sync that is under way may report success although its blocks did not reach the disk.
        total += child.hear(&mut acknowledged);
        switch.off();
        // Checks once more that the child could do its work.
        child.kill(&mut Acknowledged::default());
        drop(mounted);
        let mounted = disk.mount();
        let store = mounted.path().join(format!("{}", round / ROUNDS_OF_A_STORE));
        if let Some(recovery) = workload::check(&store, &mut acknowledged) {
            eprintln!("round {round}: {recovery}");
            // sled may come out of a power cut damaged; the snapshots and journals may not.
            assert!(recovery.moved_to.is_some(), "round {round}: the history lost changes");
            recoveries += 1;
        }
    }
    eprintln!(
        "power cut: {POWER_CUTS} cuts, {total} acknowledged batches, {recoveries} databases restored"
    );
    assert!(total > POWER_CUTS as usize, "the children did next to nothing: {total}");
}

/// Program of the child; its name is what [`Child::spawn`] asks for.
#[test]
#[ignore = "part: the child process of the crash tests, which start it themselves"]
fn writer() {
    let folder = std::env::var_os(child::FOLDER_VARIABLE).expect("started by a crash test");
    workload::write_until_killed(folder.as_ref());
}
