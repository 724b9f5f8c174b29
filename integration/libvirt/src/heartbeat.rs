//! The heartbeat of a host: says which domains run, binds those that should be bound and are not,
//! and unbinds those that a hook could not.
//!
//! Which domains run is read from the files that libvirt keeps of them, so that libvirt is not
//! asked: a host that comes back after a crash has none of them, and the leases of its domains end.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::daemon::{Daemon, Problem};
use crate::domain::{self, Wish};
use crate::hook::bind_wish;
use crate::settings::Settings;
use crate::spool::Spool;

/// Largest file of a domain that is read, in bytes.
const STATUS_BYTES_MAX: u64 = 4 << 20;

/// The domains that run and want something of us, by UUID.
fn running(folder: &Path) -> BTreeMap<String, Wish> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| {
        let small =
            path.metadata().is_ok_and(|data| data.is_file() && data.len() <= STATUS_BYTES_MAX);
        small && path.extension().is_some_and(|end| end == "xml")
    });
    let read = |path| {
        let domain = domain::read(&std::fs::read_to_string(path).ok()?).ok()?;
        Some((domain.uuid, domain.wish?.ok()?))
    };
    files.filter_map(read).collect()
}

/// Beats once.
///
/// # Errors
/// [`Problem`] where the daemon does not answer or takes no heartbeats of us.
pub async fn beat(settings: &Settings) -> Result<(), Problem> {
    let mut daemon = Daemon::connect(&settings.daemon).await?;
    let running = running(&settings.libvirt_state_dir);
    let spool = Spool::new(&settings.spool_dir);
    for uuid in spool.all() {
        if running.contains_key(&uuid) {
            spool.forget(&uuid);
        } else if daemon.unbind(&uuid, None, settings.timeout()).await.is_ok() {
            spool.forget(&uuid);
            eprintln!("snic-hook: domain {uuid} is unbound at last");
        }
    }
    if running.is_empty() {
        return Ok(());
    }
    let uuids = running.keys().cloned().collect();
    for uuid in daemon.heartbeat(uuids, settings.timeout()).await? {
        let Some(wish) = running.get(&uuid.to_lowercase()) else { continue };
        match bind_wish(settings, &uuid, wish).await {
            Ok(()) => eprintln!("snic-hook: domain {uuid}, which runs, is bound again"),
            Err(problem) => eprintln!("snic-hook: domain {uuid} runs and is not bound: {problem}"),
        }
    }
    Ok(())
}

/// Beats until the program is ended.
pub async fn run(settings: &Settings) -> Result<(), String> {
    loop {
        if let Err(problem) = beat(settings).await {
            eprintln!("snic-hook: {problem}");
        }
        tokio::time::sleep(Duration::from_secs(settings.heartbeat_seconds)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_domains_of_ours_that_run_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("it can be written");
        };
        let status = |uuid: &str, metadata: &str| {
            format!(
                "<domstatus><domain><uuid>{uuid}</uuid><metadata>{metadata}</metadata></domain></domstatus>"
            )
        };
        let ours = "<s:vm xmlns:s='urn:snic:libvirt:vm:1' tenant='a'><s:dag name='w'/></s:vm>";
        write("a.xml", &status("ours", ours));
        write("b.xml", &status("other", ""));
        write("c.xml", "garbage");
        write("d.pid", &status("pid", ours));
        assert_eq!(running(folder.path()).into_keys().collect::<Vec<_>>(), ["ours"]);
        assert!(running(Path::new("/nonexistent")).is_empty());
    }
}
