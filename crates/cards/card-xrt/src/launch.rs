//! Settings of a card, and the start of a worker with its log.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::process::{CallDeadlines, WorkerProcess};
use crate::protocol::CardSelector;

/// Settings by which a card is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XrtCardSettings {
    /// The program that serves as the worker, with its arguments.
    pub program: (PathBuf, Vec<String>),
    /// Its working folder, created if missing: logs, and files that XRT leaves behind.
    pub folder: PathBuf,
    pub device: CardSelector,
    /// The role's file.
    pub role: PathBuf,
    /// Loads the role also where the card holds it already.
    pub force_role: bool,
    /// The kernel with the register map, as `kernel:instance`.
    pub control: String,
    /// Variables of the worker's environment beside the daemon's.
    pub environment: BTreeMap<String, String>,
    /// Deadlines of calls.
    pub deadlines: CallDeadlines,
}

pub(crate) fn no_folder(folder: &Path, error: &std::io::Error) -> String {
    format!("the folder {} of the XRT worker: {error}", folder.display())
}

/// Starts a worker with this log, and with these variables beside those of the settings.
pub(crate) fn spawn(
    settings: &XrtCardSettings,
    log: &str,
    more: impl IntoIterator<Item = (&'static str, PathBuf)>,
) -> Result<WorkerProcess, String> {
    let folder = &settings.folder;
    fs::create_dir_all(folder).map_err(|error| no_folder(folder, &error))?;
    let log = open_log(folder, log).map_err(|error| no_folder(folder, &error))?;
    let (program, arguments) = &settings.program;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).envs(&settings.environment).envs(more);
    WorkerProcess::start(&mut command, &log)
        .map_err(|error| format!("the XRT worker {} does not start: {error}", program.display()))
}

/// The log of all workers of a card: a new worker appends to it, because the last one may have
/// logged why it ended. A full one gets `.1` behind its name.
fn open_log(folder: &Path, name: &str) -> std::io::Result<File> {
    let path = folder.join(name);
    if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
        fs::rename(&path, folder.join(format!("{name}.1")))?;
    }
    let mut log = File::options().append(true).create(true).open(path)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    writeln!(log, "--- a worker starts, {} s after 1970", now.as_secs())?;
    Ok(log)
}

/// Size of a worker's log, in bytes, at which the next worker starts a new one.
const LOG_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_log_survives_restarts_and_stays_small() {
        let folder = tempfile::tempdir().expect("a folder");
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        for number in 0..3 {
            let mut log = open_log(folder.path(), "worker.log").expect("it can be written");
            writeln!(log, "last words {number}").expect("written");
        }
        let log = read("worker.log");
        assert_eq!(
            (log.matches("last words").count(), log.matches("a worker starts").count()),
            (3, 3)
        );
        fs::write(folder.path().join("worker.log"), vec![b'x'; 1 << 21]).expect("written");
        open_log(folder.path(), "worker.log").expect("it can be written");
        assert_eq!((read("worker.log").lines().count(), read("worker.log.1").len()), (1, 1 << 21));
    }
}
