//! The files of the audit log: `audit-<number of the first entry>.jsonl`, and for tenants
//! `tenants<series>-<number>.jsonl`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use rustix::fs::Access;
use snic_domain::Caller;

use super::entry::tenant_of;
use super::{AuditSettings, Entry};

/// Permissions of folder and files: only the daemon's user, hence operators.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Number of series that tenants share. Each has this part of their space, so a tenant can push out only
/// entries of the tenants that share its series.
const TENANT_SERIES: u8 = 16;
/// Smallest file of a tenants' series in bytes: some ten entries.
const TENANT_FILE_BYTES_MIN: u64 = 4 << 10;

/// Separate files with separate limits: entries push out only entries of their series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Series(u8);

impl Series {
    /// Calls of operators and orchestrators.
    const OPERATORS: Self = Self(0);

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=TENANT_SERIES).map(Self)
    }

    /// The one of an entry's caller. Callers without an identity share one with tenants.
    pub fn of(caller: &str) -> Self {
        match caller.split_once('/') {
            Some(("operator" | "orchestrator", _)) => Self::OPERATORS,
            _ => Self::of_tenant(tenant_of(caller).unwrap_or(caller)),
        }
    }

    /// FNV-1a: files are found again after an update of the program, so the hash must never change.
    fn of_tenant(tenant: &str) -> Self {
        let hash = tenant
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let series = (hash ^ hash >> 16) % u32::from(TENANT_SERIES);
        Self(u8::try_from(series + 1).unwrap_or(TENANT_SERIES))
    }

    /// Those with entries that a caller may see.
    pub fn of_reader(reader: &Caller) -> Vec<Self> {
        match reader {
            Caller::Operator(_) => Self::all().collect(),
            Caller::Orchestrator(_) => Vec::new(),
            Caller::Tenant(tenant) => vec![Self::OPERATORS, Self::of_tenant(tenant.as_str())],
        }
    }

    /// Its place in a list of all.
    pub fn index(self) -> usize {
        self.0.into()
    }

    fn prefix(self) -> String {
        match self {
            Self::OPERATORS => "audit-".to_owned(),
            Self(series) => format!("tenants{series:02}-"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Files(AuditSettings);

impl Files {
    pub fn new(settings: AuditSettings) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&settings.folder)?;
        // An empty folder would be found out with the first entry only, which is then lost. A full disk passes: there may
        // be room by then.
        rustix::fs::access(&settings.folder, Access::WRITE_OK | Access::EXEC_OK)?;
        Ok(Self(settings))
    }

    /// The numbers of the first entries of all files of a series, ascending.
    pub fn numbers(&self, series: Series) -> io::Result<Vec<u64>> {
        let prefix = series.prefix();
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.0.folder)? {
            let name = entry?.file_name();
            let number: Option<u64> = name
                .to_str()
                .and_then(|name| name.strip_prefix(&prefix)?.strip_suffix(".jsonl")?.parse().ok());
            numbers.extend(number);
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn path(&self, series: Series, first: u64) -> PathBuf {
        self.0.folder.join(format!("{}{first:020}.jsonl", series.prefix()))
    }

    /// The text of a file; empty if it was deleted meanwhile.
    fn read(&self, series: Series, first: u64) -> io::Result<String> {
        match fs::read(self.path(series, first)) {
            Ok(bytes) => Ok(String::from_utf8(bytes).unwrap_or_else(|damaged| {
                String::from_utf8_lossy(damaged.as_bytes()).into_owned()
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// Begins a file for the entry with this number.
    pub fn begin(&self, series: Series, first: u64) -> io::Result<Writer> {
        let mut options = OpenOptions::new();
        let file = options.append(true).read(true).create(true).mode(FILE_MODE);
        let file = file.open(self.path(series, first))?;
        File::open(&self.0.folder)?.sync_all()?;
        Ok(Writer { file, series, bytes: 0, is_torn: false })
    }

    /// Opens the latest file of a series for appending; an incomplete last line is cut off. Gives the number
    /// of its last entry too. `None` where the series has no file.
    pub fn open(&self, series: Series) -> io::Result<Option<(Writer, u64)>> {
        let Some(first) = self.numbers(series)?.last().copied() else { return Ok(None) };
        let mut writer = self.begin(series, first)?;
        let mut bytes = Vec::new();
        writer.file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            writer.file.set_len(whole as u64)?;
            writer.file.seek(SeekFrom::End(0))?;
        }
        writer.bytes = whole as u64;
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let last = text.lines().rev().find_map(|line| Entry::of_line(line).ok());
        let number = last.map_or(first.saturating_sub(1), |entry| entry.number);
        Ok(Some((writer, number)))
    }

    /// Size at which the next file of a series begins.
    fn file_bytes_max(&self, series: Series) -> u64 {
        match series {
            Series::OPERATORS => self.0.file_bytes_max,
            _ => (self.0.file_bytes_max / u64::from(TENANT_SERIES)).max(TENANT_FILE_BYTES_MIN),
        }
    }

    /// Deletes the oldest files beyond the limit.
    fn delete_oldest(&self, series: Series) -> io::Result<()> {
        let numbers = self.numbers(series)?;
        let many = numbers.len().saturating_sub(self.0.files_max.max(1));
        numbers[..many].iter().try_for_each(|first| fs::remove_file(self.path(series, *first)))
    }
}

/// The latest file of a series.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    series: Series,
    /// Bytes of complete lines in it.
    bytes: u64,
    /// Whether half a line may be behind them.
    is_torn: bool,
}

impl Writer {
    /// Another handle of the file, for syncing.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Appends an entry.
    pub fn append(&mut self, files: &Files, entry: &Entry) -> io::Result<()> {
        let line = entry.to_line()?;
        let limit = files.file_bytes_max(self.series);
        if self.bytes > 0 && self.bytes + line.len() as u64 > limit {
            self.file.sync_data()?;
            *self = files.begin(self.series, entry.number)?;
            files.delete_oldest(self.series)?;
        }
        self.mend()?;
        if let Err(error) = self.file.write_all(&line) {
            // Half a line would corrupt the next one. If it cannot be cut off now, it is before the next one.
            self.is_torn = true;
            let _ = self.mend();
            return Err(error);
        }
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Cuts half a line off, if one is at the end.
    fn mend(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.bytes)?;
            self.is_torn = false;
        }
        Ok(())
    }
}

/// The entries of a series below a number, latest first.
#[derive(Debug)]
pub(super) struct Backwards<'a> {
    files: &'a Files,
    series: Series,
    before: u64,
    /// Files that were not read yet, the latest last.
    left: Vec<u64>,
    /// The lines of the file that was read last, as far as they were not looked at.
    text: String,
    /// The next entry, once it was looked for.
    next: Option<Entry>,
}

impl<'a> Backwards<'a> {
    pub fn new(files: &'a Files, series: Series, before: u64) -> io::Result<Self> {
        let mut left = files.numbers(series)?;
        left.retain(|first| *first < before);
        Ok(Self { files, series, before, left, text: String::new(), next: None })
    }

    /// The number of the next entry.
    pub fn number(&mut self) -> io::Result<Option<u64>> {
        while self.next.is_none() {
            if self.text.is_empty() {
                let Some(first) = self.left.pop() else { return Ok(None) };
                self.text = self.files.read(self.series, first)?;
                self.text.truncate(end_of_those_before(&self.text, self.before));
            }
            let end = self.text.trim_end_matches('\n').len();
            let line = self.text[..end].rfind('\n').map_or(0, |at| at + 1);
            let entry = Entry::of_line(&self.text[line..end]).ok();
            self.next = entry.filter(|entry| entry.number < self.before);
            self.text.truncate(line);
        }
        Ok(self.next.as_ref().map(|entry| entry.number))
    }

    /// The next entry, once [`Backwards::number`] has found one.
    pub fn pop(&mut self) -> Option<Entry> {
        self.next.take()
    }
}

/// Where the lines of entries below a number end. Numbers rise, so few lines are looked at; a damaged line counts as
/// one of those before.
fn end_of_those_before(text: &str, before: u64) -> usize {
    // What begins before `low` is below the number, and what begins at `high` or behind is not.
    let (mut low, mut high) = (0, text.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let bytes = text.as_bytes();
        let is_end = |byte: &u8| *byte == b'\n';
        let start = bytes[low..middle].iter().rposition(is_end).map_or(low, |at| low + at + 1);
        let end = bytes[middle..].iter().position(is_end).map_or(text.len(), |at| middle + at + 1);
        match Entry::of_line(text[start..end].trim_end()) {
            Ok(entry) if entry.number >= before => high = start,
            _ => low = end,
        }
    }
    low
}
