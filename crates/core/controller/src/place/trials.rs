//! A region that bitstreams of several tenants failed in is tried with one that none of them can have broken, before it
//! counts as faulty: tenants that act together put no region out of use.
//!
//! ```text
//! failed for two tenants ──► is to hold another bitstream ──► loaded: the region is sound
//!                              ▲ │ taken for a DAG           └─► failed: it is faulty, as after any such load
//!                              └─┘ whose bitstream fails, too
//! ```

use snic_domain::{Bitstream, BitstreamId, CardId, RegionId};
use snic_planner::{RegionCondition, loadable_into};

use crate::place::contents;
use crate::state::Core;
use crate::store::tx::Tx;

/// The bitstream to try a region with: one of the provider's, or one that another region holds; best one that is both.
/// Time O(bitstreams × regions).
pub(crate) fn find(core: &Core, id: &CardId, region: RegionId) -> Option<BitstreamId> {
    let ledger = core.cards.known(id).ledger();
    let is_held = |of: &Bitstream| of.digest_for(region).is_some_and(|it| core.cards.hold(it));
    let all = loadable_into(ledger, core.registry.catalogue(), region);
    let ranked = all.map(|of| ((of.id.owner().is_none(), is_held(of)), of));
    let sound = ranked.filter(|(rank, _)| *rank != (false, false));
    // The first of those that rank equally.
    let best = sound.reduce(|best, other| if other.0 > best.0 { other } else { best });
    best.map(|(_, of)| of.id.clone())
}

/// Tries a region that nobody uses and no operator has cordoned. Where a DAG uses it already, the load for that decides.
pub(crate) fn begin(core: &mut Core, tx: &mut Tx, id: &CardId, region: RegionId, of: &BitstreamId) {
    let ledger = core.cards.known(id).ledger();
    if ledger.is_unused(region) && ledger.condition(region) == RegionCondition::Usable {
        contents::set_content(core, tx, id, region, Some(of));
        core.cards.known_mut(id).keep_spare(region);
        tx.emit_region(id, region);
    }
}
