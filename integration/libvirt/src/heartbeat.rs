//! The heartbeat of a host: reports which domains run, binds those that should be bound and are not,
//! and retries the unbinds that a hook could not complete.
//!
//! Running domains are read from libvirt's state files, so libvirt itself is not asked. A host that
//! comes back after a crash has no such files, so its domains' leases expire.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use snic_api::text::escaped_lines;
use snic_output::complain;
use uuid::Uuid;

use crate::daemon::{CallError, DaemonClient};
use crate::domain::{self, RequestedBinding};
use crate::hook::bind_domain;
use crate::settings::Settings;
use crate::spool::{PendingUnbind, Spool};

/// Largest state file that is read, in bytes.
const STATUS_BYTES_MAX: u64 = 4 << 20;

/// The running domains that ask for a binding.
fn running(folder: &Path) -> BTreeMap<Uuid, RequestedBinding> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| {
        let small =
            path.metadata().is_ok_and(|data| data.is_file() && data.len() <= STATUS_BYTES_MAX);
        small && path.extension().is_some_and(|end| end == "xml")
    });
    let read = |path| {
        let domain = domain::read(&std::fs::read_to_string(path).ok()?).ok()?;
        Some((domain.uuid, domain.binding?.ok()?))
    };
    files.filter_map(read).collect()
}

/// One heartbeat.
///
/// # Errors
/// [`CallError`] where the daemon does not answer or rejects the heartbeat.
pub async fn beat(settings: &Settings) -> Result<(), CallError> {
    let mut daemon = DaemonClient::connect(&settings.daemon).await?;
    let spool = Spool::new(&settings.spool_dir);
    // The records first: a domain that runs now was started after its record was made.
    let pending = spool.list();
    let running = running(&settings.libvirt_state_dir);
    for pending in pending {
        retry_unbind(settings, &mut daemon, &spool, &pending, &running).await;
    }
    if running.is_empty() {
        return Ok(());
    }
    let uuids = running.keys().copied().collect();
    for uuid in daemon.heartbeat(uuids, settings.timeout()).await? {
        let Some(spec) = running.get(&uuid) else { continue };
        match bind_domain(settings, uuid, spec).await {
            Ok(()) => complain!("snic-hook: running domain {uuid} is bound again"),
            Err(error) => complain!(
                "snic-hook: running domain {uuid} is not bound: {}",
                escaped_lines(&error.to_string())
            ),
        }
    }
    Ok(())
}

async fn retry_unbind(
    settings: &Settings,
    daemon: &mut DaemonClient,
    spool: &Spool,
    pending: &PendingUnbind,
    running: &BTreeMap<Uuid, RequestedBinding>,
) {
    let uuid = pending.uuid;
    if !running.contains_key(&uuid) {
        // A hook that binds the domain again at this moment has removed the record first.
        if spool.get(uuid).is_none() {
            return;
        }
        match daemon.unbind(uuid, pending.tenant.as_deref(), settings.timeout()).await {
            Ok(()) => complain!("snic-hook: domain {uuid} is unbound"),
            Err(error) if error.is_transient() => return,
            Err(error) => complain!(
                "snic-hook: domain {uuid} is not unbound: {}",
                escaped_lines(&error.to_string())
            ),
        }
    }
    if let Err(error) = spool.remove(uuid) {
        complain!("snic-hook: spool record of domain {uuid} cannot be removed: {error}");
    }
}

/// Sends heartbeats until the program is ended.
pub async fn run(settings: &Settings) -> ! {
    loop {
        if let Err(error) = beat(settings).await {
            complain!("snic-hook: {}", escaped_lines(&error.to_string()));
        }
        tokio::time::sleep(Duration::from_secs(settings.heartbeat_seconds)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_running_domains_with_our_metadata_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("writable");
        };
        let status = |uuid: u128, metadata: &str| {
            let uuid = Uuid::from_u128(uuid);
            format!(
                "<domstatus><domain><uuid>{uuid}</uuid><metadata>{metadata}</metadata></domain></domstatus>"
            )
        };
        let ours = "<s:vm xmlns:s='urn:snic:libvirt:vm:1' tenant='a'><s:dag name='w'/></s:vm>";
        write("a.xml", &status(1, ours));
        write("b.xml", &status(2, ""));
        write("c.xml", "garbage");
        write("d.pid", &status(3, ours));
        let found: Vec<Uuid> = running(folder.path()).into_keys().collect();
        assert_eq!(found, [Uuid::from_u128(1)]);
        assert!(running(Path::new("/nonexistent")).is_empty());
    }
}
