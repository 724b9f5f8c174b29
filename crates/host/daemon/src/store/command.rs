//! `snicd store`: a look at the records of a daemon that does not run, and their repair.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use snic_api::text::{escaped, escaped_json, escaped_lines};
use snic_controller::{Controller, shown};
use snic_domain::Digest;
use snic_output::out;
use snic_ports::store::StoreError;
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
}

/// `snicd store`.
///
/// # Errors
/// A daemon has the store open, it cannot be read, or something is wrong with it.
pub fn run(options: &StoreOptions) -> Result<()> {
    let settings = Settings::read(&options.config)?;
    match options.act {
        Act::Check => check(&settings),
        Act::Dump => dump(&settings.data_dir),
        Act::Repair => repair(&settings),
    }
}

fn inspect_folder(folder: &Path) -> Result<Inspected> {
    inspect(folder).with_context(|| format!("look at the store in {}", folder.display()))
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
        let line = format!("set aside under quarantine/: {}: {}", record.key, record.reason);
        out!("{}", escaped(&line))?;
    }
    let left = findings(settings)?;
    left.iter().try_for_each(|finding| out!("WRONG {}", escaped(finding)))?;
    match left.len() {
        0 => Ok(()),
        left => bail!("{left} findings are left; no repair is known for them but `snicd restore`"),
    }
}
