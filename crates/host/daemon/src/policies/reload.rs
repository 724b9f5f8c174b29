//! Reloads policy files when they change.
//!
//! Editors write a file in several steps or replace it, and some systems swap the whole folder. So the
//! folder is watched, and all files are read once it has been quiet for a moment. Reading must not count
//! as a change, or the reload would never end.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

/// Time that the folder must be quiet. Editors have finished saving by then.
const QUIET: Duration = Duration::from_millis(50);

/// Watches a folder until it is stopped.
pub struct Reloader {
    watcher: RecommendedWatcher,
    changed: Sender<()>,
    thread: JoinHandle<()>,
}

impl Reloader {
    /// Acts as if a file had changed.
    pub fn reload(&self) {
        // An error means that the thread has stopped.
        let _ = self.changed.send(());
    }

    pub fn stop(self) {
        drop((self.watcher, self.changed));
        if self.thread.join().is_err() {
            tracing::error!("the thread that reads policies panicked");
        }
    }
}

/// Calls `changed` whenever a file of the folder, or of one in it, has changed.
pub fn watch(folder: &Path, changed: impl Fn() + Send + 'static) -> notify::Result<Reloader> {
    let (sender, events) = channel();
    let by_hand = sender.clone();
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
    // Authorization policies have a folder in it.
    watcher.watch(folder, RecursiveMode::Recursive)?;
    let thread = std::thread::Builder::new()
        .name("policies".into())
        .spawn(move || run(&events, changed))
        .map_err(notify::Error::io)?;
    Ok(Reloader { watcher, changed: by_hand, thread })
}

fn run(events: &Receiver<()>, changed: impl Fn()) {
    while events.recv().is_ok() {
        while events.recv_timeout(QUIET).is_ok() {}
        changed();
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
    fn a_change_is_told_once_and_so_is_a_request() {
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, heard) = channel();
        let file = folder.path().join("fairness.toml");
        let read = file.clone();
        let reloader = watch(folder.path(), move || {
            // Reading is no change.
            let text = fs::read_to_string(&read).unwrap_or_default();
            sender.send(text).expect("the test listens");
        })
        .expect("it is watched");
        fs::write(&file, "[epoch]\nlength_ms = 40").expect("it is written");
        let text = heard.recv_timeout(LONG).expect("it is noticed");
        assert_eq!(text, "[epoch]\nlength_ms = 40");
        assert_eq!(heard.recv_timeout(4 * QUIET), Err(RecvTimeoutError::Timeout));
        let other = folder.path().join("new");
        fs::write(&other, "new").expect("it is written");
        fs::rename(&other, &file).expect("it replaces the file");
        let mut last = heard.recv_timeout(LONG).expect("it is noticed");
        while let Ok(next) = heard.recv_timeout(4 * QUIET) {
            last = next;
        }
        assert_eq!(last, "new");
        reloader.reload();
        assert_eq!(heard.recv_timeout(LONG).expect("asked for"), "new");
        reloader.stop();
    }
}
