//! `snicctl bitstream statement`: what is signed, by any program. The key never comes here.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use snic_bitstream::manifest::BuiltManifest;
use snic_bitstream::signature::{self, Statement};
use snic_bitstream::xclbin::{ExpectedRole, ROLE_BYTES_MAX, check_role};
use snic_client::Failure;
use snic_domain::{CardProfile, Digest};
use snic_tables::registers;

use crate::args::SignedFile;

pub(super) fn print(signed: &SignedFile) -> Result<(), Failure> {
    let line = match (&signed.role, &signed.manifest) {
        (Some(model), _) => {
            let catalogue = super::catalogue(signed.profiles.as_deref())?;
            of_role(&signed.file, super::card(&catalogue, model)?, &signed.control)?
        }
        (None, Some(manifest)) => of_bitstream(&signed.file, manifest)?,
        (None, None) => unreachable!("the manifest is required unless it is a role"),
    };
    crate::print(&line)
}

fn of_bitstream(file: &Path, manifest: &Path) -> Result<String, Failure> {
    let (bytes, manifest) = (super::read(file)?, super::read_manifest(manifest)?);
    let BuiltManifest { card_model, nts, region_kind, identity, regions } = manifest;
    let statement = Statement {
        digest: Digest::of(&bytes),
        card_model: &card_model,
        nts: &nts,
        region_kind,
        identity: Some(identity),
        regions: &regions,
    };
    Ok(statement.to_string())
}

/// Whoever signs a role vouches for all of it, so it is held first against what the daemon checks. The interface of
/// the platform is the one thing that only the card knows.
fn of_role(file: &Path, card: &CardProfile, control: &str) -> Result<String, Failure> {
    let failed = |source: io::Error| Failure::Read { path: file.to_owned(), source };
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(failed)?;
    opened.take(ROLE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let expected = ExpectedRole {
        control,
        registers_bytes: registers::END.into(),
        first_register: registers::FIRST.into(),
        interface: None,
        card,
    };
    check_role(&bytes, &expected).map_err(|error| {
        let message = format!("{} is no role for {}: {error}", file.display(), card.model);
        Failure::usage(message, "bitstreams/flow/README.md says how a role is built")
    })?;
    Ok(signature::statement(Digest::of(&bytes)))
}
