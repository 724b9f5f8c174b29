//! The files of the audit log: `audit-<number of the first entry>.jsonl`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use super::{AuditSettings, Entry};

/// Permissions of folder and files: only the daemon's user, hence operators.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The folder.
#[derive(Debug)]
pub(super) struct Files(AuditSettings);

impl Files {
    pub fn new(settings: AuditSettings) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&settings.folder)?;
        Ok(Self(settings))
    }

    /// The numbers of the first entries of all files, ascending.
    pub fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.0.folder)? {
            let name = entry?.file_name();
            let number: Option<u64> = name
                .to_str()
                .and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse().ok());
            numbers.extend(number);
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn path(&self, first: u64) -> PathBuf {
        self.0.folder.join(format!("audit-{first:020}.jsonl"))
    }

    /// The text of a file; empty if it was deleted meanwhile.
    pub fn read(&self, first: u64) -> io::Result<String> {
        match fs::read(self.path(first)) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    fn begin(&self, first: u64) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.append(true).read(true).create(true).mode(FILE_MODE);
        let file = file.open(self.path(first))?;
        File::open(&self.0.folder)?.sync_all()?;
        Ok(file)
    }

    /// Opens the latest file for appending; an incomplete last line is cut off.
    pub fn open(&self) -> io::Result<Writer> {
        let first = self.numbers()?.last().copied().unwrap_or(1);
        let mut file = self.begin(first)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64)?;
            file.seek(SeekFrom::End(0))?;
        }
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let last = text.lines().rev().find_map(|line| Entry::of_line(line).ok());
        let next = last.map_or(first, |entry| entry.number + 1);
        Ok(Writer { file, bytes: whole as u64, next })
    }

    /// Deletes the oldest files beyond the limit.
    fn delete_oldest(&self) -> io::Result<()> {
        let numbers = self.numbers()?;
        let many = numbers.len().saturating_sub(self.0.files_max.max(1));
        numbers[..many].iter().try_for_each(|first| fs::remove_file(self.path(*first)))
    }
}

/// The latest file.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    /// Bytes of complete lines in it.
    bytes: u64,
    /// Number of the next entry.
    next: u64,
}

impl Writer {
    /// Another handle of the file, for syncing.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Numbers the entry and appends it.
    pub fn append(&mut self, files: &Files, entry: &mut Entry) -> io::Result<()> {
        entry.number = self.next;
        let line = entry.to_line()?;
        if self.bytes > 0 && self.bytes + line.len() as u64 > files.0.file_bytes_max {
            self.file.sync_data()?;
            self.file = files.begin(self.next)?;
            self.bytes = 0;
            files.delete_oldest()?;
        }
        if let Err(error) = self.file.write_all(&line) {
            // Half a line would corrupt the next one. If this fails too, the next start repairs it.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += line.len() as u64;
        self.next += 1;
        Ok(())
    }
}
