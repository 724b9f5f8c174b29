//! `snicd restore`: a store from the file that `snicctl backup` wrote.
//!
//! The daemon is stopped meanwhile: the store has one owner at a time, and its lock says so. All of
//! the file is checked before anything is written: its digests, that this daemon understands its
//! records, and that the bytes of every bitstream are there.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use snic_controller::Controller;
use snic_domain::Digest;
use snic_ports::store::Store;
use snic_ports::store::backup::Backup;
use snic_server::shell;
use snic_store_sled::{Options, SledStore};

use crate::policies;
use crate::settings::Settings;

/// Restores the store of the settings.
pub fn run(settings: &Settings, file: &Path, replace: bool) -> Result<()> {
    let bytes = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let backup = Backup::decode(&bytes)
        .map_err(|reason| anyhow::anyhow!("{} cannot be used: {reason}", file.display()))?;
    check(settings, &backup).with_context(|| format!("{} cannot be used", file.display()))?;
    let folder = &settings.data_dir;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("make the data folder {}", folder.display()))?;
    let opened = SledStore::open(folder, Options::default())
        .with_context(|| format!("open the store in {}", folder.display()))?;
    let store = opened.store;
    let present = store.scan("").context("read the store")?.len();
    if present > 0 && !replace {
        bail!(
            "the store in {} has {present} records; with --replace they are given up",
            folder.display()
        );
    }
    for (digest, bytes) in &backup.blobs {
        store.put_blob(*digest, bytes).context("store a bitstream")?;
    }
    let folder = tempfile::tempdir_in(folder).context("make a folder for the snapshot")?;
    let snapshot = folder.path().join("snapshot");
    backup.snapshot.write(&snapshot).context("write the snapshot")?;
    store.restore(&snapshot).context("restore the records")?;
    println!(
        "restored {} records and {} bitstreams, of {} ago",
        backup.snapshot.records.len(),
        backup.blobs.len(),
        age(&backup)
    );
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

/// The daemon would start with it.
fn check(settings: &Settings, backup: &Backup<'_>) -> Result<()> {
    let policies = policies::load(settings.policies_dir.as_deref())?;
    let records = backup.snapshot.records.clone();
    let controller = Controller::recover(policies, records, 1, shell::wall_clock())
        .context("its records are not those of this daemon")?;
    let there: BTreeSet<Digest> = backup.blobs.iter().map(|(digest, _)| *digest).collect();
    match controller.digests().find(|digest| !there.contains(digest)) {
        Some(missing) => bail!("the bytes of the bitstream with digest {missing} are not in it"),
        None => Ok(()),
    }
}
