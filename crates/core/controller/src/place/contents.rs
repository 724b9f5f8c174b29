//! Sets the desired content of regions.

use snic_domain::{BitstreamId, CardId, RegionId};

use crate::state::Core;
use crate::state::card::{Environment, ObservedContent, Region};
use crate::store::tx::Tx;

/// Says what a region is to hold from now on.
pub(crate) fn set_content(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    region: RegionId,
    content: Option<&BitstreamId>,
) {
    let Core { cards, registry, policies, .. } = core;
    let content = content.map(|id| {
        registry
            .bitstream(id)
            .expect("only a bitstream that exists is chosen, and it is kept in use")
    });
    let (catalogue, numbers) = (registry.catalogue(), registry.nt_numbers());
    let environment = Environment { catalogue, numbers, settings: policies.current() };
    cards.known_mut(id).set_content(tx, region, content, environment);
}

/// A region that nobody needs and that does not hold what it was to hold keeps what it does
/// hold, as a victim, if that is known; else it is free. One that is to be loaded all the same stays as it is.
pub(crate) fn keep_as_victim(core: &mut Core, tx: &mut Tx, id: &CardId, region: RegionId) {
    let card = core.cards.known(id);
    let entry = card.region(region).expect("a card knows the regions that were freed on it");
    let is_loading = card.regions().is_loading(region);
    if !card.ledger().is_unused(region) || entry.is_loaded() || is_loading || entry.is_spare() {
        return;
    }
    let content = match entry.observed() {
        ObservedContent::Holds(_) => {
            let model = &card.profile().model;
            let mut all = core.registry.catalogue().bitstreams();
            all.find(|b| entry.holds(b, region) && b.card_model == *model).map(|b| b.id.clone())
        }
        ObservedContent::Unknown if entry.bitstream().is_some() => return,
        ObservedContent::Unknown
        | ObservedContent::Empty
        | ObservedContent::Foreign
        | ObservedContent::Broken => None,
    };
    set_content(core, tx, id, region, content.as_ref());
}

/// Marks the rows of all loaded regions for rewriting, because packet scheduling has changed.
pub(crate) fn reschedule_rows(core: &mut Core) {
    let Core { cards, registry, policies, .. } = core;
    let ids: Vec<CardId> = cards.ids().cloned().collect();
    for id in ids {
        let card = cards.known_mut(&id);
        for region in card.region_ids() {
            if card.region(region).is_some_and(Region::is_loaded) {
                card.put_region(region, policies.current(), registry.nt_numbers());
            }
        }
    }
}
