//! `snicctl usage archive` against a server that answers as a test says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use prost_types::Timestamp;
use snic_api::v1::*;

use crate::support::fake::Fake;
use crate::support::{Run, run};

/// 2026-01-01T00:00:00Z
const JANUARY: i64 = 1_767_225_600;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// Longest time until a program has done something.
const SOON: Duration = Duration::from_secs(20);

fn at(second: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds: second, nanos: 0 })
}

/// Reply of a daemon that keeps intervals from these times on, and has closed them up to one, in seconds of January.
fn reply(kept: [i64; 3], closed: i64, usage: Vec<UsageEntry>) -> ListUsageResponse {
    let of = |(interval_seconds, from): (u64, i64)| UsageIntervals {
        interval_seconds,
        kept_from_time: at(JANUARY + from),
    };
    ListUsageResponse {
        usage,
        intervals: [10, 60, 3_600].into_iter().zip(kept).map(of).collect(),
        closed_time: at(JANUARY + closed),
        ..ListUsageResponse::default()
    }
}

fn entry(second: i64) -> UsageEntry {
    UsageEntry {
        tenant: "tenants/acme".into(),
        start_time: at(JANUARY + second),
        end_time: at(JANUARY + second + 10),
        bytes_in: 1_000,
        gaps: vec![UsageGap { reason: "LATE".into(), millis: 7 }],
        ..UsageEntry::default()
    }
}

fn archive(fake: &Fake, folder: &Path, options: &str) -> Run {
    let line = format!("usage archive --directory {} {options}", folder.display());
    run(fake.endpoint(), &line)
}

/// Names below a folder, with the bytes of each file; without the lock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if !path.ends_with(".lock") {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                files.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    files
}

fn names(folder: &Path) -> Vec<String> {
    files(folder).into_keys().collect()
}

const BEGUN: [&str; 3] = ["hours/.begun", "minutes/.begun", "ten-seconds/.begun"];

/// Two hours are over: a file each, of all pages. A second run has nothing to do.
#[test]
fn what_is_over_and_closed_is_written_once() {
    let (fake, folder) = (Fake::start(), tempfile::tempdir().unwrap());
    let closed = 2 * HOUR + 10;
    let of = |usage| reply([0; 3], closed, usage);
    let more = |usage| ListUsageResponse { next_page_token: "more".into(), ..of(usage) };
    fake.answer("ListUsage", &of(vec![]));
    fake.answer("ListUsage", &more(vec![entry(0), entry(10)]));
    fake.answer("ListUsage", &of(vec![entry(20)]));
    for _ in 0..3 {
        // An hour without usage, and two lengths of which nothing is over.
        fake.answer("ListUsage", &of(vec![]));
    }
    let first = archive(&fake, folder.path(), "");
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(first.stdout.contains("ten-seconds/2026-01-01T00.parquet is written, with 3 rows"));
    let written = files(folder.path());
    let all: Vec<&str> = written.keys().map(String::as_str).collect();
    let [hours, minutes, seconds] = BEGUN;
    let of_hour = ["ten-seconds/2026-01-01T00.parquet", "ten-seconds/2026-01-01T01.parquet"];
    assert_eq!(all, [hours, minutes, seconds, of_hour[0], of_hour[1]]);
    assert!(of_hour.iter().all(|name| written[*name].ends_with(b"PAR1")));
    let asked: Vec<ListUsageRequest> = fake.asked("ListUsage");
    let range = |request: &ListUsageRequest| {
        let [from, to] = [request.start_time, request.end_time].map(|at| at.unwrap().seconds);
        (from - JANUARY, to - JANUARY, request.step_seconds, request.page_token.clone())
    };
    assert_eq!(range(&asked[1]), (0, HOUR, 10, String::new()));
    assert_eq!(range(&asked[2]), (0, HOUR, 10, "more".into()));
    assert_eq!(range(&asked[3]), (HOUR, 2 * HOUR, 10, String::new()));
    for _ in 0..3 {
        fake.answer("ListUsage", &of(vec![]));
    }
    let second = archive(&fake, folder.path(), "-o json");
    assert_eq!((second.code, second.json()["written"].clone()), (0, serde_json::json!([])));
    assert_eq!(fake.asked::<ListUsageRequest>("ListUsage").len(), asked.len() + 3);
    assert_eq!(files(folder.path()), written);
}

/// The daemon keeps an hour of ten seconds, and nobody ran for three: what is gone is said once, and never written.
#[test]
fn what_the_daemon_does_not_have_any_more_is_said_and_not_written() {
    let (fake, folder) = (Fake::start(), tempfile::tempdir().unwrap());
    let only = "--keep-1m 0s --keep-1h 0s";
    fake.answer("ListUsage", &reply([0; 3], HOUR - 10, vec![]));
    assert_eq!(archive(&fake, folder.path(), only).code, 0);
    let of = |usage| reply([2 * HOUR, 0, 0], 3 * HOUR, usage);
    for usage in [vec![], vec![entry(0)], vec![entry(HOUR)], vec![entry(2 * HOUR)]] {
        fake.answer("ListUsage", &of(usage));
    }
    let late = archive(&fake, folder.path(), only);
    assert_eq!(late.code, 1, "{}", late.stderr);
    for part in
        ["2 files of the archive are missing", "ten-seconds/2026-01-01T00", "T02:00:00Z", "keep"]
    {
        assert!(late.stderr.contains(part), "{part}: {}", late.stderr);
    }
    assert!(late.stdout.contains("ten-seconds/2026-01-01T01 is MISSING"), "{}", late.stdout);
    let names = names(folder.path());
    let missing = ["2026-01-01T00.missing", "2026-01-01T01.missing", "2026-01-01T02.parquet"];
    assert_eq!(names[1..], missing.map(|name| format!("ten-seconds/{name}")), "{names:?}");
    fake.answer("ListUsage", &of(vec![]));
    assert_eq!(archive(&fake, folder.path(), only).code, 0, "it is noted, and not said again");
}

/// Pages of one file are asked for one by one, and the daemon removes something of it in between.
#[test]
fn a_range_that_goes_while_it_is_read_is_missing() {
    let (fake, folder) = (Fake::start(), tempfile::tempdir().unwrap());
    let only = "--keep-1m 0s --keep-1h 0s";
    fake.answer("ListUsage", &reply([0; 3], HOUR, vec![]));
    let first = reply([0; 3], HOUR, vec![entry(0)]);
    fake.answer("ListUsage", &ListUsageResponse { next_page_token: "more".into(), ..first });
    fake.answer("ListUsage", &reply([60, 0, 0], HOUR + 60, vec![entry(10)]));
    let run = archive(&fake, folder.path(), only);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let left = ["ten-seconds/.begun", "ten-seconds/2026-01-01T00.missing"];
    assert_eq!(names(folder.path()), left);
}

#[test]
fn files_go_by_age() {
    let (fake, folder) = (Fake::start(), tempfile::tempdir().unwrap());
    let only = "--keep-10s 2h --keep-1m 0s --keep-1h 0s";
    let of = |closed, usage| reply([0; 3], closed, usage);
    for _ in 0..3 {
        fake.answer("ListUsage", &of(2 * HOUR, vec![]));
    }
    assert_eq!(archive(&fake, folder.path(), only).code, 0);
    for _ in 0..2 {
        fake.answer("ListUsage", &of(3 * HOUR, vec![]));
    }
    let run = archive(&fake, folder.path(), only);
    assert!(run.stdout.contains("ten-seconds/2026-01-01T00 was too old"), "{}", run.stdout);
    let left = ["T01", "T02"].map(|hour| format!("ten-seconds/2026-01-01{hour}.parquet"));
    assert_eq!(names(folder.path())[1..], left);
}

/// Months have their lengths, and a file begins with the first one that the daemon has from its beginning on.
#[test]
fn a_month_of_hours_is_one_file() {
    let (fake, folder) = (Fake::start(), tempfile::tempdir().unwrap());
    let only = "--keep-10s 0s --keep-1m 0s";
    let of = |usage| reply([0, 0, -5 * DAY], 59 * DAY, usage);
    for usage in [vec![], vec![entry(0)], vec![entry(31 * DAY)]] {
        fake.answer("ListUsage", &of(usage));
    }
    let run = archive(&fake, folder.path(), only);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let files = ["hours/.begun", "hours/2026-01.parquet", "hours/2026-02.parquet"];
    assert_eq!(names(folder.path()), files);
    let asked: Vec<ListUsageRequest> = fake.asked("ListUsage");
    assert_eq!((asked[2].start_time, asked[2].step_seconds), (at(JANUARY + 31 * DAY), 3_600));
    assert_eq!(asked[2].end_time, at(JANUARY + 59 * DAY));
}

#[test]
fn a_fleet_has_no_archive_of_its_own() {
    let (fake, folder) = (Fake::start(), tempfile::tempdir().unwrap());
    fake.answer("ListUsage", &ListUsageResponse::default());
    let run = archive(&fake, folder.path(), "");
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("--host"), "{}", run.stderr);
}

/// A run that the server keeps waiting in the middle of a file.
fn stuck(fake: &Fake, folder: &Path) -> Child {
    fake.answer("ListUsage", &reply([0; 3], HOUR, vec![]));
    let page = reply([0; 3], HOUR, (0..20_000).map(entry).collect());
    fake.answer("ListUsage", &ListUsageResponse { next_page_token: "more".into(), ..page });
    fake.ignore("ListUsage");
    let config = folder.with_extension("toml");
    let mut program = Command::new(env!("CARGO_BIN_EXE_snicctl"));
    program.env_clear().env("SNICCTL_CONFIG", config).env("SNICCTL_ENDPOINT", fake.endpoint());
    program.args(["usage", "archive", "--keep-1m", "0s", "--directory"]).arg(folder);
    program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !what() {
        assert!(Instant::now() < end, "it takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `kill -9` in the middle of a file, while a second run tries the same.
#[test]
fn a_run_that_is_killed_leaves_no_half_file_and_the_next_one_goes_on() {
    let (fake, place) = (Fake::start(), tempfile::tempdir().unwrap());
    let folder = place.path().join("archive");
    let mut child = stuck(&fake, &folder);
    let partial: PathBuf = folder.join("ten-seconds/.2026-01-01T00.parquet.partial");
    until(|| std::fs::metadata(&partial).is_ok_and(|file| file.len() > 1_000));
    until(|| fake.asked::<ListUsageRequest>("ListUsage").len() == 3);
    let other = archive(&fake, &folder, "");
    assert_eq!(other.code, 2, "{}", other.stdout);
    assert!(other.stderr.contains("another `snicctl usage archive`"), "{}", other.stderr);
    assert!(partial.exists(), "the second run leaves it alone");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        names(&folder),
        ["ten-seconds/.2026-01-01T00.parquet.partial", "ten-seconds/.begun"]
    );
    for usage in [vec![], vec![entry(0)]] {
        fake.answer("ListUsage", &reply([0; 3], HOUR, usage));
    }
    let next = archive(&fake, &folder, "--keep-1m 0s --keep-1h 0s");
    assert_eq!(next.code, 0, "{}", next.stderr);
    assert!(next.stdout.contains("T00.parquet is written, with 1 rows"), "{}", next.stdout);
    assert_eq!(names(&folder), ["ten-seconds/.begun", "ten-seconds/2026-01-01T00.parquet"]);
}
