//! ETags of cards, regions and bindings: what a caller read of them before it asks for a change.
//!
//! They change with what requests and the control plane decide about a region, and not with what the card
//! does meanwhile: whoever reads a card, thinks, and drains it is not refused because a load has ended.

use snic_domain::{CardId, Digest, RegionId, VmId};

use crate::protocol::etag::{check_etag, etag};
use crate::protocol::{BindingRecord, Command, ControlError};
use crate::state::Core;

/// Fails where what a command changes is not as it was read, or does not exist.
pub(crate) fn check(core: &Core, command: &Command, read: &str) -> Result<(), ControlError> {
    let (resource, now) = match command {
        Command::DrainRegion { card, region }
        | Command::Cordon { card, region: Some(region), .. }
        | Command::UndrainRegion { card, region }
        | Command::ResetRegion { card, region } => {
            (format!("cards/{card}/regions/{region}"), region_etag(core, card, *region))
        }
        Command::DrainCard { card }
        | Command::Cordon { card, region: None, .. }
        | Command::LoadRole { card, .. }
        | Command::ResetCard { card, .. }
        | Command::OptimizeCard { card }
        | Command::RemoveCard { card }
        | Command::ReplaceCard { card } => (format!("cards/{card}"), card_etag(core, card)),
        Command::UnbindVm { vm, .. } => (format!("vmBindings/{vm}"), binding_etag_of(core, vm)),
        _ => return Err(ControlError::invalid("etag", "this request has none; leave it out")),
    };
    let now = now.ok_or_else(|| ControlError::not_found(&resource))?;
    check_etag(resource, Some(read), now)
}

/// Etag that guards changes of a region.
pub(crate) fn region_etag(core: &Core, id: &CardId, region: RegionId) -> Option<String> {
    let entry = core.cards.get(id)?.region(region)?;
    let is_meant = |of: Option<RegionId>| of.is_none_or(|of| of == region);
    let drains = core.operations.drains().filter(|(_, card, of)| *card == id && is_meant(*of));
    let drains: Vec<&str> = drains.map(|(operation, ..)| operation.as_str()).collect();
    let bitstream = entry.bitstream().map(ToString::to_string).unwrap_or_default();
    let faulty = entry.fault().is_some();
    Some(etag(&[id, &region, &bitstream, &entry.is_cordoned(), &faulty, &drains.join(",")]))
}

/// Etag that guards changes of a card: its profile, and all of its regions.
pub(crate) fn card_etag(core: &Core, id: &CardId) -> Option<String> {
    let card = core.cards.get(id)?;
    let profile = serde_json::to_vec(card.profile()).expect("profiles are stored as JSON");
    let regions: Vec<String> =
        card.region_ids().filter_map(|region| region_etag(core, id, region)).collect();
    Some(etag(&[id, &Digest::of(&profile), &regions.join(",")]))
}

fn binding_etag_of(core: &Core, vm: &VmId) -> Option<String> {
    core.bindings.get(vm).map(binding_etag)
}

/// Etag that guards the end of a binding.
pub(crate) fn binding_etag(record: &BindingRecord) -> String {
    let state = format!("{:?}", record.state);
    let (created, changed) = (record.created.as_nanos(), record.changed.as_nanos());
    etag(&[&record.spec.vm, &state, &created, &changed])
}
