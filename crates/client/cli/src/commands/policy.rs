//! `snicctl fleet policy`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use snic_api::fleet_v1::{GetPoliciesRequest, Policies, UpdatePoliciesRequest};
use snic_client::output::fleet_views as views;
use snic_client::{Client, Failure, call};

use super::{CliSession, request_id};
use crate::args::PolicyCommand;
use snic_usage::PRICES_FILE;

/// Largest file: a little more than a fleet takes, so that its server says what is too much.
const FILE_BYTES_MAX: u64 = 128 << 10;

pub async fn run(
    session: &mut CliSession,
    client: &Client,
    command: PolicyCommand,
) -> Result<(), Failure> {
    let mut policies = call!(client, policies.get_policies => policies, GetPoliciesRequest {})?;
    match command {
        PolicyCommand::List => session.output.one(&policies, views::policies),
        PolicyCommand::Get { file } => {
            let text = policies.files.get(&file).ok_or_else(|| absent(&file, &policies))?;
            let data = serde_json::json!({ "file": file, "text": text });
            session.output.plain(&data, text)
        }
        PolicyCommand::Set { paths, dry_run } => {
            for path in paths {
                policies.files.extend(files_at(&path)?);
            }
            update(session, client, policies, dry_run).await
        }
        PolicyCommand::Delete { files } => {
            for file in files {
                policies.files.remove(&file).ok_or_else(|| absent(&file, &policies))?;
            }
            update(session, client, policies, false).await
        }
    }
}

/// Fails where others have changed the policies since they were read.
async fn update(
    session: &mut CliSession,
    client: &Client,
    Policies { files, etag, .. }: Policies,
    validate_only: bool,
) -> Result<(), Failure> {
    let policies = Some(Policies { files, etag, ..Policies::default() });
    let request = UpdatePoliciesRequest { policies, validate_only, request_id: request_id() };
    let now = call!(client, policies.update_policies => policies, request)?;
    if validate_only {
        let data = serde_json::json!({ "valid": true });
        return session.output.plain(&data, "the files are valid; nothing was changed\n");
    }
    session.output.one(&now, views::policies)
}

fn absent(file: &str, policies: &Policies) -> Failure {
    let names: Vec<&str> = policies.files.keys().map(String::as_str).collect();
    let hint = match names.as_slice() {
        [] => "no files are registered; `snicctl fleet policy set` registers some".to_owned(),
        names => format!("registered are {}", names.join(", ")),
    };
    Failure::usage(format!("{file} is not registered with the fleet"), hint)
}

/// A file's text under its name, or the texts of all TOML files in a folder but prices, which each host has of its own.
fn files_at(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let failed = |source: io::Error| Failure::Read { path: path.to_owned(), source };
    if !path.is_dir() {
        return Ok(BTreeMap::from([named(path)?]));
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?.path();
        let is_for_bills = entry.file_name().is_some_and(|name| name == PRICES_FILE);
        if entry.extension().is_some_and(|of| of == "toml") && !is_for_bills {
            found.push(entry);
        }
    }
    if found.is_empty() {
        let hint = "name files, or a folder such as policies/";
        return Err(Failure::usage(format!("{} has no TOML file", path.display()), hint));
    }
    found.iter().map(|path| named(path)).collect()
}

fn named(path: &Path) -> Result<(String, String), Failure> {
    let failed = |source: io::Error| Failure::Read { path: path.to_owned(), source };
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        let hint = "name a file such as policies/fairness.toml";
        Failure::usage(format!("{} is not a policy file", path.display()), hint)
    })?;
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok((name.to_owned(), text))
}
