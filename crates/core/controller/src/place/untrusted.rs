//! DAGs in images that they do not trust, or not any more: a key that signed the image counts no more. They keep running where
//! they are, their conditions say so, and each gets another place as soon as there is one, make before break.
//!
//! ```text
//! such an image ──► served ──► another place ──► as any other DAG
//!                     ▲ │ none
//!                     └─┘ until something is freed
//! ```

use std::collections::BTreeSet;

use snic_bitstream::signature::Trust;
use snic_domain::{BitstreamId, DagName};

use crate::place::placement;
use crate::state::Core;
use crate::state::dags::DagEntry;
use crate::store::tx::Tx;
use crate::view::images;

/// Notes a DAG that was restored in an image that it does not trust.
pub(crate) fn restored(core: &mut Core, name: &DagName) {
    if passes_stranger(core, core.dags.known(name)) {
        core.dags.set_untrusted(name);
    }
}

/// Other keys count: DAGs leave images that these have not signed, and stay in those that they have. Time O(DAGs).
pub(crate) fn keys_changed(core: &mut Core, tx: &mut Tx, trust: Option<Trust>) {
    let changed = core.registry.set_trust(trust);
    for id in &changed {
        core.registry.store_bitstream(tx, id);
    }
    follow(core, &changed);
}

/// The same before the first event.
pub(crate) fn begin_with_keys(core: &mut Core, trust: Option<Trust>) {
    let changed = core.registry.set_trust(trust);
    follow(core, &changed);
}

/// Regions know of what they hold who answers for it: plans look there, and not at the registry.
fn follow(core: &mut Core, changed: &BTreeSet<BitstreamId>) {
    images::withhold(core);
    let Core { cards, registry, .. } = &mut *core;
    for bitstream in changed.iter().filter_map(|id| registry.bitstream(id)) {
        for (card, region) in cards.regions_with(&bitstream.id) {
            cards.known_mut(&card).refresh_images(region, bitstream, registry.catalogue());
        }
    }
    judge_all(core);
}

fn judge_all(core: &mut Core) {
    let names: Vec<DagName> = core.dags.iter().map(|entry| entry.name().clone()).collect();
    for name in names {
        let passes = passes_stranger(core, core.dags.known(&name));
        match (passes, core.dags.is_untrusted(&name)) {
            (true, false) => core.dags.set_untrusted(&name),
            (false, true) => core.dags.set_trusted(&name),
            _ => continue,
        }
        core.dags.mark_dirty(&name);
    }
    core.freed.capacity();
}

fn passes_stranger(core: &Core, entry: &DagEntry) -> bool {
    entry.placements().any(|of| images::stranger(core, entry, of).is_some())
}

/// A DAG is looked at: it may have left the image, or be served there by now. Only then it is moved, for until the
/// card has said what it holds, it may serve the DAG.
pub(crate) fn visit_dag(core: &mut Core, name: &DagName) {
    if !core.dags.is_untrusted(name) {
        return;
    }
    let entry = core.dags.known(name);
    if !passes_stranger(core, entry) {
        core.dags.set_trusted(name);
        core.dags.mark_dirty(name);
    } else if entry.is_at_rest() {
        core.planning.untrusted.fill(std::iter::once(name.clone()));
    }
}

/// Something was freed: there may be another place now. Time O(DAGs in such images).
pub(crate) fn retry(core: &mut Core) {
    let Core { dags, planning, .. } = core;
    planning.untrusted.fill(dags.untrusted().cloned());
}

/// Moves DAGs out of such images, as many as one event may.
pub(crate) fn take_next_steps(core: &mut Core, tx: &mut Tx) {
    while !core.planning.untrusted.is_empty() && core.planning.may_begin() {
        let Some(name) = core.planning.untrusted.pop() else { break };
        // It may be gone, or have left the image since.
        if core.dags.is_untrusted(&name) && core.dags.get(&name).is_some_and(DagEntry::is_at_rest) {
            // Without a place elsewhere it stays.
            let _ = placement::relocate(core, tx, &name);
        }
    }
    if core.planning.untrusted.is_due_again() {
        core.freed.capacity();
    }
}
