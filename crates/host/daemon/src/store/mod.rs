//! The daemon's store: opened, and made into a controller.

mod command;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use snic_controller::{Controller, ControllerSettings, RecordWrite, SetAside, is_set_aside};
use snic_ports::store::{Batch, Store, Write};
use snic_store_sled::{SledOptions, keeps_damaged, steady};

use crate::secrets::random;

pub use command::{StoreOptions, run, set_aside_count};

/// The store, and whether all records that it ever had are there and can be written: they may not be while a damaged
/// database is kept beside it, from whichever start.
///
/// # Errors
/// Another daemon has it open, or it cannot even be read.
pub fn open(folder: &Path) -> Result<(Arc<dyn Store>, bool)> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("create the data folder {}", folder.display()))?;
    let opened = steady::open(folder, SledOptions::default())
        .with_context(|| format!("open the store in {}", folder.display()))?;
    if let Some(failure) = &opened.failure {
        tracing::error!(
            error = failure.with_source(),
            "the store can only be read: changes are refused until it can be written"
        );
    }
    let is_whole = opened.failure.is_none()
        && opened.recovered.as_ref().is_none_or(|made| made.complete)
        && !keeps_damaged(folder).context("look for damaged databases")?;
    if let Some(recovery) = opened.recovered {
        if recovery.complete {
            tracing::warn!("{recovery}");
        } else {
            tracing::error!("{recovery}");
        }
    }
    Ok((Arc::new(opened.store), is_whole))
}

/// State that the records of a store give.
pub struct StoreAdoption {
    /// The controller that wrote them, without those that were set aside.
    pub controller: Controller,
    /// The records that were set aside now.
    pub set_aside: Vec<SetAside>,
    /// Whether no record is set aside, now or from an earlier start.
    pub is_whole: bool,
}

/// Moves records that cannot be used out of the way, and gives the controller that the rest make. A store that can only be read for now is told once it can be written,
/// before anything else.
///
/// # Errors
/// The layout is another one, or what all else depends on cannot be used; nothing was changed.
pub fn adopt(store: &dyn Store, policy: ControllerSettings) -> Result<StoreAdoption> {
    let records = store.scan("").context("read the store")?;
    let was_whole = !records.iter().any(|(key, _)| is_set_aside(key));
    let recovered = Controller::recover_rest(policy, records, secret()?, snic_front::wall_clock());
    let (controller, set_aside) = recovered.context("recover the state from the store")?;
    for record in &set_aside {
        tracing::error!(
            record = record.key,
            reason = %record.reason,
            "a record of the store cannot be used: it is kept under quarantine/, and the daemon goes \
             on without it"
        );
    }
    write(store, set_aside.iter().flat_map(SetAside::writes))?;
    let is_whole = was_whole && set_aside.is_empty();
    Ok(StoreAdoption { controller, set_aside, is_whole })
}

/// Stores changes, in one batch.
fn write(store: &dyn Store, writes: impl Iterator<Item = RecordWrite>) -> Result<()> {
    let writes: Vec<Write> = writes.map(|(key, value)| Write { key, value }).collect();
    let batch = Batch { writes };
    if batch.writes.is_empty() {
        return Ok(());
    }
    if store.unavailable().is_none() {
        return store.apply(batch).context("store the records that were set aside");
    }
    let done = |stored: Result<(), snic_ports::store::StoreError>| {
        if let Err(error) = stored {
            let error = error.with_source();
            tracing::error!(error, "the records that were set aside could not be stored");
        }
    };
    store.submit(vec![batch], Box::new(done));
    Ok(())
}

/// A random number, used only if the store is new.
fn secret() -> Result<u64> {
    let [a, b, c, d, e, f, g, h, ..] = random()?;
    Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of bitstreams that no record names are deleted only where it is certain that none was lost.
    #[test]
    fn a_store_beside_a_damaged_database_is_not_taken_for_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let is_whole = || open(folder.path()).expect("it opens").1;
        assert!(is_whole());
        let damaged = folder.path().join("db.damaged-1");
        std::fs::create_dir(&damaged).expect("a folder in it");
        assert!(!is_whole());
        assert!(!is_whole(), "nor with the next start");
        std::fs::remove_dir(&damaged).expect("it was made");
        assert!(is_whole(), "whoever removes it has looked");
    }
}
