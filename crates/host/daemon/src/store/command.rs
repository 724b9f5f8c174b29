//! `snicd store`: a look at the records of a daemon that does not run, and their repair.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use snic_api::text::{escaped, escaped_json, escaped_lines};
use snic_controller::{Controller, is_set_aside, shown};
use snic_domain::Digest;
use snic_output::out;
use snic_ports::store::{Batch, Store as _, StoreError, Write};
use snic_store_sled::inspection::{Inspected, inspect};
use snic_store_sled::{SledOptions, SledStore};

use super::{StoreAdoption, adopt};
use crate::policies;
use crate::settings::Settings;

/// Store, and what to do with it.
#[derive(Debug, Args)]
pub struct StoreOptions {
    #[command(subcommand)]
    act: Act,
    /// Settings file
    #[arg(long, short, global = true, default_value = "/etc/snic/snicd.toml")]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Say what cannot be read or contradicts other records; exit 1 if there is any. Changes nothing
    Check,
    /// Print each record as a line of JSON, without secrets. Changes nothing
    Dump,
    /// Do what the daemon does when it starts: rebuild damaged files, set unusable records aside
    Repair,
    /// Move the records that were set aside to a file of JSON lines, which holds secrets; their values are in hexadecimal
    TakeOut {
        /// File that is made; it must not be there
        file: PathBuf,
    },
}

/// `snicd store`.
///
/// # Errors
/// A daemon has the store open, it cannot be read, or something is wrong with it.
pub fn run(options: &StoreOptions) -> Result<()> {
    let settings = Settings::read(&options.config)?;
    match &options.act {
        Act::Check => check(&settings),
        Act::Dump => dump(&settings.data_dir),
        Act::Repair => repair(&settings),
        Act::TakeOut { file } => take_out(&settings.data_dir, file),
    }
}

/// Nothing leaves the store before the file is durable.
fn take_out(folder: &Path, file: &Path) -> Result<()> {
    // Where there is none, none is made.
    drop(inspect_folder(folder)?);
    let store = SledStore::open(folder, SledOptions::default())
        .with_context(|| format!("open the store in {}", folder.display()))?
        .store;
    let mut records = store.scan("").context("read the store")?;
    records.retain(|(key, _)| is_set_aside(key));
    if records.is_empty() {
        return Ok(out!("no record is set aside")?);
    }
    let written = write_records(&records, file);
    written.with_context(|| format!("write {}; nothing was taken out", file.display()))?;
    let writes = records.iter().map(|(key, _)| Write { key: key.clone(), value: None });
    store.apply(Batch { writes: writes.collect() }).context("take the records out")?;
    store.close();
    out!("{} records were moved to {}", records.len(), file.display())?;
    Ok(())
}

/// A line for each record, readable by its owner only.
fn write_records(records: &[(String, Vec<u8>)], file: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut to = options.write(true).create_new(true).mode(0o600).open(file)?;
    let mut text = String::new();
    for (key, value) in records {
        let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{}\n", json!({ "key": key, "value": digits }));
    }
    let written = to.write_all(text.as_bytes()).and_then(|()| to.sync_all());
    if written.is_err() {
        // What is half written would only be in the way; the first error is the one to tell of.
        let _ = std::fs::remove_file(file);
    }
    written?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn inspect_folder(folder: &Path) -> Result<Inspected> {
    inspect(folder).with_context(|| format!("look at the store in {}", folder.display()))
}

/// Number of records that are set aside in a store that no daemon has open. Changes nothing.
///
/// # Errors
/// It cannot be read.
pub fn set_aside_count(folder: &Path) -> Result<usize> {
    let records = inspect_folder(folder)?.records;
    Ok(records.iter().filter(|(key, _)| is_set_aside(key)).count())
}

fn check(settings: &Settings) -> Result<()> {
    let findings = findings(settings)?;
    findings.iter().try_for_each(|finding| out!("WRONG {}", escaped(finding)))?;
    match findings.len() {
        0 => Ok(()),
        found => {
            bail!("{found} findings; `snicd store repair` does what the daemon would at its start")
        }
    }
}

/// All that is wrong; prints what is not.
fn findings(settings: &Settings) -> Result<Vec<String>> {
    let folder = &settings.data_dir;
    let Inspected { records, recovery, blobs } = inspect_folder(folder)?;
    out!("{}: {} records, {} bitstreams", folder.display(), records.len(), blobs.len())?;
    let policies = policies::load(settings.policies_dir.as_deref())?;
    let found = Controller::inspect(policies, records, snic_front::wall_clock());
    let set_aside = found.set_aside.iter();
    set_aside
        .into_iter()
        .try_for_each(|key| out!("set aside at an earlier start: {}", escaped(key)))?;
    let files = recovery.into_iter().flat_map(|recovery| recovery.faults);
    let mut findings: Vec<String> = files.map(|fault| format!("files: {fault}")).collect();
    findings.extend(found.faults.iter().map(ToString::to_string));
    findings
        .extend(found.broken.map(|broken| format!("the records do not make a whole: {broken}")));
    let present: BTreeSet<Digest> = blobs.iter().map(|(digest, _)| *digest).collect();
    let unusable = blobs.into_iter().filter_map(|(_, read)| read.err());
    findings.extend(unusable.map(|error| format!("a bitstream: {}", error.with_source())));
    let absent = found.digests.difference(&present);
    findings.extend(absent.map(|digest| format!("a bitstream: {}", StoreError::NoBlob(*digest))));
    Ok(findings)
}

fn dump(folder: &Path) -> Result<()> {
    for (key, value) in inspect_folder(folder)?.records {
        out!("{}", escaped_json(&shown(&key, &value))).context("print a record")?;
    }
    Ok(())
}

fn repair(settings: &Settings) -> Result<()> {
    let folder = &settings.data_dir;
    // Where there is none, none is made.
    drop(inspect_folder(folder)?);
    let opened = SledStore::open(folder, SledOptions::default())
        .with_context(|| format!("open the store in {}", folder.display()))?;
    if let Some(recovery) = opened.recovered {
        out!("{}", escaped_lines(&recovery.to_string()))?;
    }
    let policies = policies::load(settings.policies_dir.as_deref())?;
    let StoreAdoption { set_aside, .. } = adopt(&opened.store, policies)
        .context("it cannot be repaired; `snicd restore` replaces it by a backup")?;
    opened.store.close();
    for record in set_aside {
        let line = format!("set aside as {}: {}", record.kept_as, record.reason);
        out!("{}", escaped(&line))?;
    }
    let left = findings(settings)?;
    left.iter().try_for_each(|finding| out!("WRONG {}", escaped(finding)))?;
    match left.len() {
        0 => Ok(()),
        left => bail!("{left} findings are left; no repair is known for them but `snicd restore`"),
    }
}
