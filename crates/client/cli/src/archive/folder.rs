//! Folders and files of an archive.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use snic_client::Failure;

use super::ranges::{Available, FileRange, IntervalSet};

/// Endings of names: of files, of ranges that are missing, and of what is being written.
const FILE: &str = ".parquet";
const MISSING: &str = ".missing";
const PARTIAL: &str = ".partial";
/// Name of the file that has the first range of a set.
const BEGUN: &str = ".begun";

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let path = path.to_owned();
    move |source| Failure::Write { path, source }
}

/// Has names in a folder be on disk.
fn sync_folder(path: &Path) -> Result<(), Failure> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(failed(path))
}

/// Archive that this run alone writes.
#[derive(Debug)]
pub struct ArchiveFolder {
    path: PathBuf,
    _lock: File,
}

impl ArchiveFolder {
    /// Opens an archive, or begins one.
    ///
    /// # Errors
    /// Another run writes it, or it cannot be written.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(failed(path))?;
        let lock = path.join(".lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&lock);
        let file = file.map_err(failed(&lock))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: file }),
            Err(TryLockError::WouldBlock) => {
                let text =
                    "another `snicctl usage archive` is writing there; wait until it has ended";
                Err(failed(path)(io::Error::new(io::ErrorKind::ResourceBusy, text)))
            }
            Err(TryLockError::Error(error)) => Err(failed(&lock)(error)),
        }
    }

    /// The folder of intervals of one length. What a run left that was killed is removed.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn set(&self, set: IntervalSet) -> Result<SetFolder, Failure> {
        let path = self.path.join(set.folder());
        fs::create_dir_all(&path).map_err(failed(&path))?;
        sync_folder(&self.path)?;
        let mut known = BTreeSet::new();
        let read = |source| Failure::Read { path: path.clone(), source };
        for entry in fs::read_dir(&path).map_err(read)? {
            let name = entry.map_err(read)?.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(PARTIAL) {
                let partial = path.join(name);
                fs::remove_file(&partial).map_err(failed(&partial))?;
            }
            let range = [FILE, MISSING].iter().find_map(|ending| name.strip_suffix(ending));
            known.extend(range.and_then(|name| set.parse(name)));
        }
        Ok(SetFolder { path, set, known })
    }
}

/// Folder of intervals of one length.
#[derive(Debug)]
pub struct SetFolder {
    path: PathBuf,
    set: IntervalSet,
    /// Ranges that have a file, or are noted as missing.
    known: BTreeSet<FileRange>,
}

impl SetFolder {
    /// Name of what the archive has of a range, as reports show it.
    pub fn shown(&self, range: FileRange) -> String {
        format!("{}/{}", self.set.folder(), self.set.name(range))
    }

    /// The first range of the archive: of a new one, the first that the daemon has all intervals of.
    ///
    /// # Errors
    /// The file that has it cannot be read or written.
    pub fn begun(&self, available: Available) -> Result<FileRange, Failure> {
        let path = self.path.join(BEGUN);
        match fs::read_to_string(&path) {
            Ok(text) => self.set.parse(text.trim()).ok_or_else(|| {
                let what =
                    format!("{} has {:?}, which is no name of a file", path.display(), text.trim());
                let hint =
                    "write the name of the oldest file of this folder to it, without its ending";
                Failure::usage(what, hint)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let first = self.set.first(available);
                let first = self.known.first().map_or(first, |known| first.min(*known));
                self.write_text(BEGUN, &self.set.name(first))?;
                Ok(first)
            }
            Err(source) => Err(Failure::Read { path, source }),
        }
    }

    /// Ranges that are over and closed, young enough, and not in the archive; the first one first.
    pub fn due(&self, begun: FileRange, available: Available, age: u64) -> Vec<FileRange> {
        self.set.due(begun, &self.known, available, age)
    }

    /// Begins the file of a range.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn begin(&self, range: FileRange) -> Result<PartialFile, Failure> {
        PartialFile::new(&self.path, &format!("{}{FILE}", self.set.name(range)))
    }

    /// Notes that there is no file of a range, and never will be.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_missing(&self, range: FileRange, why: &str) -> Result<(), Failure> {
        self.write_text(&format!("{}{MISSING}", self.set.name(range)), why)
    }

    fn write_text(&self, name: &str, text: &str) -> Result<(), Failure> {
        let partial = PartialFile::new(&self.path, name)?;
        let mut file = partial.writer()?;
        file.write_all(format!("{text}\n").as_bytes()).map_err(failed(&partial.path))?;
        partial.publish(file)
    }

    /// Removes what is older than a range; gives its names.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_before(&self, oldest: FileRange) -> Result<Vec<String>, Failure> {
        let mut removed = Vec::new();
        for range in self.known.iter().take_while(|range| **range < oldest) {
            let name = self.set.name(*range);
            for path in [FILE, MISSING].map(|ending| self.path.join(format!("{name}{ending}"))) {
                match fs::remove_file(&path) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(failed(&path)(error)),
                }
            }
            removed.push(self.shown(*range));
        }
        Ok(removed)
    }
}

/// File that does not have its name yet.
#[derive(Debug)]
pub struct PartialFile {
    folder: PathBuf,
    path: PathBuf,
    last: PathBuf,
    file: File,
}

impl PartialFile {
    fn new(folder: &Path, name: &str) -> Result<Self, Failure> {
        let path = folder.join(format!(".{}{PARTIAL}", name.trim_start_matches('.')));
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path);
        let file = file.map_err(failed(&path))?;
        Ok(Self { folder: folder.to_owned(), last: folder.join(name), path, file })
    }

    /// Writer of its bytes.
    ///
    /// # Errors
    /// The operating system refuses another handle.
    pub fn writer(&self) -> Result<File, Failure> {
        self.file.try_clone().map_err(failed(&self.path))
    }

    /// Gives it up.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn discard(self) -> Result<(), Failure> {
        fs::remove_file(&self.path).map_err(failed(&self.path))
    }

    /// Gives it its name, once all of it is on disk.
    ///
    /// # Errors
    /// There is a file of this name, which stays, or it cannot be written.
    pub fn publish(self, written: File) -> Result<(), Failure> {
        drop(written);
        let Self { folder, path, last, file } = self;
        file.sync_all().map_err(failed(&path))?;
        if last.exists() {
            return Err(failed(&last)(io::ErrorKind::AlreadyExists.into()));
        }
        fs::rename(&path, &last).map_err(failed(&last))?;
        sync_folder(&folder)
    }
}

#[cfg(test)]
mod tests {
    use snic_usage::IntervalLevel;

    use super::*;

    const MINUTES: IntervalSet = IntervalSet { level: IntervalLevel::Minute };
    const DAY: u64 = 86_400;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder.join("minutes")).expect("a folder");
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.expect("an entry").file_name().to_str().expect("a text").to_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    fn write(folder: &SetFolder, day: u64) -> Result<(), Failure> {
        let partial = folder.begin(MINUTES.range_of(day * DAY))?;
        let mut file = partial.writer()?;
        file.write_all(b"usage").expect("it is written");
        partial.publish(file)
    }

    #[test]
    fn a_file_has_its_name_once_it_is_complete_and_is_never_replaced() {
        let archive = tempfile::tempdir().expect("a folder");
        let open = ArchiveFolder::open(archive.path()).expect("it opens");
        let folder = open.set(MINUTES).expect("a folder");
        let partial = folder.begin(MINUTES.range_of(0)).expect("it begins");
        partial.writer().expect("a handle").write_all(b"half").expect("it is written");
        assert_eq!(names(archive.path()), [".1970-01-01.parquet.partial"]);
        drop((partial, folder));
        // As after a kill: what is half is gone, and the range is not known.
        let folder = open.set(MINUTES).expect("a folder");
        assert_eq!((names(archive.path()), folder.known.len()), (Vec::new(), 0));
        write(&folder, 0).expect("it is written");
        let again = write(&folder, 0).expect_err("there is one");
        assert!(again.to_string().contains("1970-01-01.parquet"), "{again}");
        let text = fs::read(archive.path().join("minutes/1970-01-01.parquet"));
        assert_eq!(text.expect("the first one"), b"usage");
    }

    #[test]
    fn one_run_at_a_time_has_an_archive() {
        let archive = tempfile::tempdir().expect("a folder");
        let first = ArchiveFolder::open(archive.path()).expect("it opens");
        let second = ArchiveFolder::open(archive.path()).expect_err("it is open");
        assert!(second.to_string().contains("another `snicctl usage archive`"), "{second}");
        drop(first);
        ArchiveFolder::open(archive.path()).expect("the first one has ended");
    }

    #[test]
    fn what_is_old_goes_and_other_files_stay() {
        let archive = tempfile::tempdir().expect("a folder");
        let open = ArchiveFolder::open(archive.path()).expect("it opens");
        let folder = open.set(MINUTES).expect("a folder");
        (0..3).for_each(|day| write(&folder, day).expect("it is written"));
        folder.note_missing(MINUTES.range_of(3 * DAY), "not kept").expect("it is noted");
        fs::write(archive.path().join("minutes/notes.txt"), "mine").expect("it is written");
        let available = Available { from: 9 * DAY, closed: 9 * DAY };
        let folder = open.set(MINUTES).expect("a folder");
        let begun = folder.begun(available).expect("it is noted");
        assert_eq!(begun, MINUTES.range_of(0), "files that are there count");
        assert_eq!(folder.known.len(), 4);
        let removed = folder.remove_before(MINUTES.range_of(2 * DAY)).expect("they are removed");
        assert_eq!(removed, ["minutes/1970-01-01", "minutes/1970-01-02"]);
        let left = [".begun", "1970-01-03.parquet", "1970-01-04.missing", "notes.txt"];
        assert_eq!(names(archive.path()), left);
        let begun = open.set(MINUTES).expect("a folder").begun(available).expect("it was noted");
        assert_eq!(begun, MINUTES.range_of(0), "it stays where it was");
    }
}
