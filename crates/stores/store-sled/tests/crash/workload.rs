//! Writes of the child, and what must be found after it was cut off.
//!
//! Four lanes write batches numbered from 1. Batch `n` of a lane puts several records of its own,
//! moves the lane's pointer to `n` and removes the records of batch `n - KEPT`. So the pointer says
//! exactly which records exist: any other set is a batch lost or torn.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use snic_domain::Digest;
use snic_ports::store::{Batch, Store, StoreError};
use snic_store_sled::{Recovery, SledOptions, SledStore};

const LANES: usize = 4;

/// The lane that submits several batches at once instead of waiting for each.
const SUBMITTING_LANE: usize = 3;

/// Batches that lane has under way.
const SUBMITTED: u64 = 5;

/// Batches whose records exist.
const KEPT: u64 = 30;

/// Snapshots so often that crashes meet them.
const OPTIONS: SledOptions = SledOptions {
    cache_bytes: 16 << 20,
    snapshot_groups: 25,
    snapshot_interval: Duration::from_millis(40),
    journal_bytes_max: 1 << 20,
};

fn pointer(lane: usize) -> String {
    format!("lane/{lane}")
}

fn keys(lane: usize, n: u64) -> impl Iterator<Item = String> {
    (0..3 + n % 4).map(move |i| format!("data/{lane}/{n:08}/{i}"))
}

fn value(key: &str) -> Vec<u8> {
    let seed = key.bytes().fold(7_usize, |sum, byte| sum * 31 % 1009 + usize::from(byte));
    let bytes = if seed % 23 == 0 { 60_000 } else { 20 + seed };
    key.bytes().cycle().take(bytes).collect()
}

fn batch(lane: usize, n: u64) -> Batch {
    let mut batch = Batch::new();
    for key in keys(lane, n) {
        let value = value(&key);
        batch = batch.put(key, value);
    }
    batch = batch.put(pointer(lane), n.to_string());
    if n > KEPT {
        batch = keys(lane, n - KEPT).fold(batch, Batch::remove);
    }
    batch
}

fn blob(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(5_000)
}

/// Writes that the child has been told are durable.
#[derive(Debug, Default)]
pub struct Acknowledged {
    batches: [u64; LANES],
    blobs: BTreeSet<Digest>,
}

impl Acknowledged {
    /// Takes a line of the child; whether it acknowledged a batch.
    pub fn add(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["batch", lane, n] => {
                let (lane, n): (usize, u64) = (lane.parse().unwrap(), n.parse().unwrap());
                assert!(n > self.batches[lane], "answered out of order: {line}");
                self.batches[lane] = n;
                true
            }
            ["blob", digest] => {
                self.blobs.insert(digest.parse().unwrap());
                false
            }
            _ => false,
        }
    }
}

/// Opens the store and writes until the process, or its disk, is gone.
pub fn write_until_killed(folder: &Path) {
    let store = match SledStore::open(folder, OPTIONS) {
        Ok(opened) => opened.store,
        // The disk went away while the store was opened, or the test has a case.
        Err(error @ StoreError::Io { .. }) => return println!("\nrefused {error}"),
        Err(error) => return println!("\nfailed {error}"),
    };
    println!("\nopen");
    thread::scope(|scope| {
        for lane in 0..LANES {
            let store = &store;
            scope.spawn(move || {
                // An error is the disk's end.
                let _ = write_lane(store, lane);
            });
        }
    });
}

fn write_lane(store: &SledStore, lane: usize) -> Result<(), StoreError> {
    let mut n = read_pointer(store, lane) + 1;
    loop {
        if lane == SUBMITTING_LANE {
            submit(store, lane, n)?;
            n += SUBMITTED;
        } else {
            store.apply(batch(lane, n))?;
            println!("batch {lane} {n}");
            n += 1;
        }
        if lane == 0 && n.is_multiple_of(8) {
            let bytes = blob(n);
            let digest = Digest::of(&bytes);
            store.put_blob(digest, &bytes)?;
            println!("blob {digest}");
        }
    }
}

/// Submits batches from `first` on and waits for the last one.
fn submit(store: &SledStore, lane: usize, first: u64) -> Result<(), StoreError> {
    let (answer, answers) = mpsc::channel();
    for n in first..first + SUBMITTED {
        let answer = answer.clone();
        let done = move |result: Result<(), StoreError>| {
            if result.is_ok() {
                println!("batch {lane} {n}");
            }
            let _ = answer.send(result);
        };
        store.submit(vec![batch(lane, n)], Box::new(done));
    }
    drop(answer);
    answers.iter().collect()
}

fn read_pointer(store: &SledStore, lane: usize) -> u64 {
    let value = store.get(&pointer(lane)).unwrap();
    value.map_or(0, |value| String::from_utf8(value).unwrap().parse().unwrap())
}

/// Opens the store after the crash and checks it against what was acknowledged; what is there now
/// must be there after the next crash too. Gives what the opening had to repair.
#[track_caller]
pub fn check(folder: &Path, acknowledged: &mut Acknowledged) -> Option<Recovery> {
    let opened = SledStore::open(folder, OPTIONS).unwrap();
    let store = opened.store;
    for lane in 0..LANES {
        let last = read_pointer(&store, lane);
        let told = acknowledged.batches[lane];
        assert!(last >= told, "lane {lane} lost batches {} to {told}", last + 1);
        let expected: BTreeMap<String, Vec<u8>> = (last.saturating_sub(KEPT) + 1..=last)
            .flat_map(|n| keys(lane, n))
            .map(|key| (key.clone(), value(&key)))
            .collect();
        let found: BTreeMap<String, Vec<u8>> =
            store.scan(&format!("data/{lane}/")).unwrap().into_iter().collect();
        let names = |records: &BTreeMap<String, Vec<u8>>| -> BTreeSet<String> {
            records.keys().cloned().collect()
        };
        assert_eq!(names(&found), names(&expected), "lane {lane} is torn at batch {last}");
        assert!(found == expected, "lane {lane} has other values");
        acknowledged.batches[lane] = last;
    }
    for digest in store.list_blobs().unwrap() {
        store.get_blob(digest).unwrap();
        acknowledged.blobs.remove(&digest);
    }
    assert!(acknowledged.blobs.is_empty(), "lost blobs {:?}", acknowledged.blobs);
    acknowledged.blobs.extend(store.list_blobs().unwrap());
    opened.recovered
}
