//! Reloads policy files when they change.
//!
//! Editors write a file in several steps or replace it, and some systems swap the whole folder. So the
//! folder is watched, and all files are read once it has been quiet for a moment. Reading must not count
//! as a change, or the reload would never end.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use snic_controller::Settings;

use super::{InvalidPolicy, load};

/// How long the folder must be quiet. Editors have finished saving by then.
const QUIET: Duration = Duration::from_millis(50);

/// Watches a folder until it is stopped.
pub struct Reloader {
    watcher: RecommendedWatcher,
    thread: JoinHandle<()>,
}

impl Reloader {
    /// Stops watching.
    pub fn stop(self) {
        drop(self.watcher);
        if self.thread.join().is_err() {
            tracing::error!("the thread that reads policies panicked");
        }
    }
}

/// Calls `changed` with all policies, or with the reason for their rejection, whenever a file of the
/// folder has changed.
pub fn watch(
    folder: &Path,
    changed: impl Fn(Result<Settings, InvalidPolicy>) + Send + 'static,
) -> notify::Result<Reloader> {
    let (sender, events) = channel();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let counts = match &event {
            Ok(event) => !matches!(event.kind, EventKind::Access(_)),
            // Events were lost, so read the files to be safe.
            Err(_) => true,
        };
        if counts {
            // An error means that the thread has stopped.
            let _ = sender.send(());
        }
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    let folder = folder.to_owned();
    let thread = std::thread::Builder::new()
        .name("policies".into())
        .spawn(move || run(&folder, &events, changed))
        .map_err(notify::Error::io)?;
    Ok(Reloader { watcher, thread })
}

fn run(folder: &Path, events: &Receiver<()>, changed: impl Fn(Result<Settings, InvalidPolicy>)) {
    while events.recv().is_ok() {
        while events.recv_timeout(QUIET).is_ok() {}
        changed(load(Some(folder)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::RecvTimeoutError;

    use super::*;

    /// Far longer than any file system takes.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_change_is_read_once_and_a_bad_file_is_refused_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, heard) = channel();
        let reloader = watch(folder.path(), move |policies| {
            sender.send(policies.map_err(|error| error.to_string())).expect("the test listens");
        })
        .expect("it is watched");
        let file = folder.path().join("fairness.toml");
        fs::write(&file, "[epoch]\nlength_ms = 40").expect("it is written");
        let good = heard.recv_timeout(LONG).expect("it is noticed").expect("it is good");
        assert_eq!(good.fairness.epoch, Duration::from_millis(40));
        assert_eq!(
            heard.recv_timeout(4 * QUIET),
            Err(RecvTimeoutError::Timeout),
            "reading is no change"
        );
        let other = folder.path().join("new");
        fs::write(&other, "[epoch]\nlength_ms = 0").expect("it is written");
        fs::rename(&other, &file).expect("it replaces the file");
        let mut last = heard.recv_timeout(LONG).expect("it is noticed");
        while let Ok(next) = heard.recv_timeout(4 * QUIET) {
            last = next;
        }
        let error = last.expect_err("it is refused");
        assert!(error.contains("fairness.toml:2: epoch.length_ms = 0"), "{error}");
        reloader.stop();
    }
}
