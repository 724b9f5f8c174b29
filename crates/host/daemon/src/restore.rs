//! `snicd restore`: rebuilds the store from a file that `snicctl backup` wrote.
//!
//! The daemon must be stopped: the store has one owner at a time, enforced by its lock. The whole file
//! is checked before anything is written: its digests, that this daemon understands its records, and
//! that it contains the bytes of every bitstream.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use snic_controller::{Controller, REVISIONS_KEY};
use snic_domain::Digest;
use snic_output::out;
use snic_ports::store::Store;
use snic_ports::store::backup::Backup;
use snic_store_sled::{SledOptions, SledStore};

use crate::policies;
use crate::settings::Settings;

/// Restores the store that the settings name.
pub fn run(settings: &Settings, file: &Path, replace: bool) -> Result<()> {
    let bytes = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let mut backup = Backup::decode(&bytes)
        .map_err(|reason| anyhow::anyhow!("{} is not a valid backup: {reason}", file.display()))?;
    check(settings, &backup).with_context(|| format!("{} cannot be restored", file.display()))?;
    let folder = &settings.data_dir;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("create the data folder {}", folder.display()))?;
    let opened = SledStore::open(folder, SledOptions::default())
        .with_context(|| format!("open the store in {}", folder.display()))?;
    let store = opened.store;
    let present = store.scan("").context("read the store")?.len();
    if present > 0 && !replace {
        bail!(
            "the store in {} is not empty ({present} records); use --replace to overwrite it",
            folder.display()
        );
    }
    for (digest, bytes) in &backup.blobs {
        store.put_blob(*digest, bytes).context("store a bitstream")?;
    }
    let records = backup.snapshot.records.len();
    // Watches know of what was changed after the backup: they start over.
    backup.snapshot.records.retain(|(key, _)| key != REVISIONS_KEY);
    let folder = tempfile::tempdir_in(folder).context("create a folder for the snapshot")?;
    let snapshot = folder.path().join("snapshot");
    backup.snapshot.write(&snapshot).context("write the snapshot")?;
    store.restore(&snapshot).context("restore the records")?;
    out!(
        "restored {} records and {} bitstreams from a backup made {} ago",
        records,
        backup.blobs.len(),
        age(&backup)
    )?;
    Ok(())
}

fn age(backup: &Backup<'_>) -> String {
    match backup.snapshot.age().as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Checks that the daemon can start with the backup.
fn check(settings: &Settings, backup: &Backup<'_>) -> Result<()> {
    let policies = policies::load(settings.policies_dir.as_deref())?;
    let records = backup.snapshot.records.clone();
    let controller = Controller::recover(policies, records, 1, snic_front::wall_clock())
        .context("this version of snicd cannot read its records")?;
    let there: BTreeSet<Digest> = backup.blobs.iter().map(|(digest, _)| *digest).collect();
    match controller.digests().find(|digest| !there.contains(digest)) {
        Some(missing) => bail!("the bitstream with digest {missing} is missing from the backup"),
        None => Ok(()),
    }
}
