//! `snicctl bitstream build`: bitstreams for software cards from WebAssembly modules.

use std::io;
use std::path::Path;

use snic_api::convert::nt_type::nt_type;
use snic_api::v1::GetNtTypeRequest;
use snic_bitstream::manifest::BuiltManifest;
use snic_bitstream::{EmbeddedModule, InvalidModuleBuild, InvalidModules, ModuleBuild};
use snic_client::call;
use snic_client::names;
use snic_client::output::text;
use snic_client::{Client, Failure};
use snic_domain::NtType;

use super::super::CliSession;
use super::{card, catalogue, read, write_image};
use crate::args::ModuleImage;

/// Writes a bitstream with modules. What its ROM says of the NTs is what the server has registered, because an upload
/// that says something else is rejected.
pub(super) async fn build(session: &mut CliSession, wanted: &ModuleImage) -> Result<(), Failure> {
    let catalogue = catalogue(wanted.profiles.as_deref())?;
    let card = card(&catalogue, &wanted.model)?;
    let files =
        wanted.modules.iter().map(|module| module_of(module)).collect::<Result<Vec<_>, _>>()?;
    let client = session.client()?;
    let mut types = Vec::new();
    for nt in &wanted.nts {
        types.push(registered(&client, nt.trim()).await?);
    }
    let mut modules = Vec::new();
    for (slot, nt) in types.iter().enumerate() {
        let found = files.iter().find(|(name, _)| *name == nt.id.as_str());
        modules.extend(found.map(|(name, bytes)| EmbeddedModule { slot, nt: name, bytes }));
    }
    if let Some((unused, _)) = files.iter().find(|(name, _)| modules.iter().all(|m| m.nt != *name))
    {
        let message = format!("there is a module for {unused}, which is not in --nts");
        return Err(Failure::usage(message, "name each NT type of a module in --nts"));
    }
    let chain: Vec<&NtType> = types.iter().collect();
    let build = ModuleBuild { card, chain: &chain, modules: &modules, identity: None };
    let manifest = wanted.manifest.as_deref();
    let identity = manifest.map(|_| build.derived_identity());
    let bytes = ModuleBuild { identity, ..build }.build().map_err(refused)?;
    if let Some(path) = manifest {
        let text = BuiltManifest::of_modules(&build, wanted.kind.into()).to_toml();
        let failed = |source: io::Error| Failure::Write { path: path.to_owned(), source };
        std::fs::write(path, text).map_err(failed)?;
    }
    write_image(&wanted.file, &bytes)
}

fn refused(error: InvalidModuleBuild) -> Failure {
    let advice = match &error {
        InvalidModuleBuild::Modules(InvalidModules::Module { .. }) => {
            "crates/cards/nts-wasm/README.md shows what a module imports and exports"
        }
        _ => "",
    };
    Failure::usage(error.to_string(), advice)
}

/// The NT type and the bytes of `TYPE=FILE`.
fn module_of(text: &str) -> Result<(&str, Vec<u8>), Failure> {
    let Some((nt, file)) = text.split_once('=') else {
        let message = format!("{text} is not TYPE=FILE");
        return Err(Failure::usage(message, "give a module as acme.filter=filter.wasm"));
    };
    Ok((nt.trim(), read(Path::new(file))?.to_vec()))
}

/// An NT type as the server has it.
async fn registered(client: &Client, nt: &str) -> Result<NtType, Failure> {
    let request = GetNtTypeRequest { name: names::nt_type(nt)? };
    let found = call!(client, nts.get_nt_type => nt_type, request)?;
    nt_type(text::id(&found.name), Some(&found)).map_err(|error| {
        Failure::usage(format!("the server's NT type {nt} is invalid: {error:?}"), "")
    })
}
