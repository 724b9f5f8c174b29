//! `snicctl usage archive`.

use prost_types::Timestamp;
use serde::Serialize;
use snic_api::v1::{ListUsageRequest, ListUsageResponse, UsageEntry, UsageGrouping};
use snic_client::lists::PAGE_SIZE;
use snic_client::{Client, Failure, call};
use snic_usage::{IntervalLevel, utc};

use super::CliSession;
use crate::archive::{ArchiveFolder, Available, FileRange, IntervalSet, SetFolder};
use crate::args::UsageArchive;
use crate::export::UsageFile;

/// Rows of a group: as many are in memory at once.
const GROUP_ROWS: usize = 16_384;

/// Files that one run has written, removed, and could not write.
#[derive(Debug, Default, Serialize)]
struct ArchiveReport {
    written: Vec<WrittenFile>,
    removed: Vec<String>,
    missing: Vec<MissingFile>,
}

#[derive(Debug, Serialize)]
struct WrittenFile {
    file: String,
    rows: u64,
}

#[derive(Debug, Serialize)]
struct MissingFile {
    file: String,
    why: String,
}

impl ArchiveReport {
    fn text(&self) -> String {
        let written = self.written.iter().map(|WrittenFile { file, rows }| {
            format!("{file}.parquet is written, with {rows} rows\n")
        });
        let removed =
            self.removed.iter().map(|file| format!("{file} was too old and is removed\n"));
        let missing = self
            .missing
            .iter()
            .map(|MissingFile { file, why }| format!("{file} is MISSING: {why}\n"));
        written.chain(removed).chain(missing).collect()
    }

    /// # Errors
    /// A file could not be written.
    fn complete(&self) -> Result<(), Failure> {
        let Some(MissingFile { file, why }) = self.missing.first() else { return Ok(()) };
        let count = self.missing.len();
        Err(Failure::Incomplete {
            message: format!("{count} files of the archive are missing, the first is {file}: {why}"),
            hint: "run it more often, or have the daemon keep intervals for longer (`[usage]` of \
                   policies/admission.toml); each of them is noted in the archive, and not named again"
                .into(),
        })
    }
}

pub async fn run(session: &mut CliSession, options: UsageArchive) -> Result<(), Failure> {
    let UsageArchive { directory, keep_10s, keep_1m, keep_1h } = options;
    let archive = ArchiveFolder::open(&directory)?;
    let client = session.client()?;
    let mut report = ArchiveReport::default();
    let ages = [keep_10s, keep_1m, keep_1h].map(|age| age.as_secs());
    let mut done = Ok(());
    for (level, age) in IntervalLevel::ALL.into_iter().zip(ages).filter(|(_, age)| *age > 0) {
        done = add(&client, &archive, IntervalSet { level }, age, &mut report).await;
        if done.is_err() {
            break;
        }
    }
    session.output.plain(&report, &report.text())?;
    done.and_then(|()| report.complete())
}

/// Adds the files of one length that are due, and removes those that are too old.
async fn add(
    client: &Client,
    archive: &ArchiveFolder,
    set: IntervalSet,
    age: u64,
    report: &mut ArchiveReport,
) -> Result<(), Failure> {
    let folder = archive.set(set)?;
    let available = ask(client, set).await?;
    let begun = folder.begun(available)?;
    for range in folder.due(begun, available, age) {
        let file = folder.shown(range);
        match write(client, &folder, set, range).await? {
            WriteOutcome::Written(rows) => report.written.push(WrittenFile { file, rows }),
            WriteOutcome::Missing(from) => {
                let why = format!(
                    "the daemon has intervals of {} s from {} on, and not all of this range",
                    set.level.interval(),
                    utc(from)
                );
                folder.note_missing(range, &why)?;
                report.missing.push(MissingFile { file, why });
            }
        }
    }
    report.removed.extend(folder.remove_before(set.oldest(available, age))?);
    Ok(())
}

/// Result of writing a file.
enum WriteOutcome {
    /// It has so many rows.
    Written(u64),
    /// The daemon has intervals of this length only from this second on.
    Missing(u64),
}

/// Writes the file of a range.
async fn write(
    client: &Client,
    folder: &SetFolder,
    set: IntervalSet,
    range: FileRange,
) -> Result<WriteOutcome, Failure> {
    let partial = folder.begin(range)?;
    let mut file = UsageFile::new(partial.writer()?).map_err(|error| not_written(&error))?;
    let (mut rows, mut count): (Vec<UsageEntry>, u64) = (Vec::new(), 0);
    let mut page_token = String::new();
    loop {
        let request = ListUsageRequest { page_token, ..request(set, range) };
        let reply = call!(client, usage.list_usage, request)?;
        // What is too old by now may be missing in this page.
        let available = available(set, &reply)?;
        if available.from > range.from {
            partial.discard()?;
            return Ok(WriteOutcome::Missing(available.from));
        }
        count += reply.usage.len() as u64;
        rows.extend(reply.usage);
        page_token = reply.next_page_token;
        let is_last = page_token.is_empty();
        if rows.len() >= GROUP_ROWS || is_last && !rows.is_empty() {
            file.add(&rows).map_err(|error| not_written(&error))?;
            rows.clear();
        }
        if is_last {
            break;
        }
    }
    let written = file.finish().map_err(|error| not_written(&error))?;
    partial.publish(written)?;
    Ok(WriteOutcome::Written(count))
}

fn not_written(error: &parquet::errors::ParquetError) -> Failure {
    let hint = "look at the disk; the next run begins this file again";
    Failure::Incomplete { message: format!("a file cannot be written: {error}"), hint: hint.into() }
}

fn timestamp(second: u64) -> Timestamp {
    Timestamp { seconds: i64::try_from(second).unwrap_or(i64::MAX), nanos: 0 }
}

fn request(set: IntervalSet, range: FileRange) -> ListUsageRequest {
    ListUsageRequest {
        page_size: PAGE_SIZE,
        start_time: Some(timestamp(range.from)),
        end_time: Some(timestamp(range.to)),
        step_seconds: set.level.interval(),
        by: UsageGrouping::Dag.into(),
        ..Default::default()
    }
}

/// Asks for the intervals that the daemon has, and for no usage.
async fn ask(client: &Client, set: IntervalSet) -> Result<Available, Failure> {
    let range = FileRange { from: 0, to: 1 };
    let request = ListUsageRequest { step_seconds: 0, ..request(set, range) };
    available(set, &call!(client, usage.list_usage, request)?)
}

/// Intervals of one length that the daemon has, by a reply.
fn available(set: IntervalSet, reply: &ListUsageResponse) -> Result<Available, Failure> {
    let seconds = |at: Option<Timestamp>| u64::try_from(at?.seconds).ok();
    let of =
        |length: u64| reply.intervals.iter().find(|intervals| intervals.interval_seconds == length);
    let from = of(set.level.interval()).and_then(|of| seconds(of.kept_from_time));
    match (from, seconds(reply.closed_time)) {
        (Some(from), Some(closed)) => Ok(Available { from, closed }),
        _ => {
            let hint = "an archive is of one host: name it with --endpoint, or with --host at a fleet's endpoint";
            Err(Failure::usage("the server does not say which intervals it keeps", hint))
        }
    }
}
