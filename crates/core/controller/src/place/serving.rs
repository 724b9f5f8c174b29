//! Chooses which of a DAG's placements is in the target tables, and writes its rows.

use std::collections::BTreeSet;

use snic_domain::{DagName, TenantId, Traffic};
use snic_tables::DagConfiguration;

use crate::decide::rows;
use crate::decide::rows::{Bucket, DagColumns};
use crate::place::{classification, residency};
use crate::state::Core;
use crate::state::card::{PageNeed, PagesInUse};
use crate::state::dags::DagEntry;
use crate::store::records::Placement;

/// Chooses which of a DAG's placements is to be in the tables, and writes its rows into the target.
pub(crate) fn refresh_rows(core: &mut Core, name: &DagName) {
    let Some(entry) = core.dags.get(name) else {
        return; // It was deleted after it was marked.
    };
    let serving = serving(core, entry).map(|placement| placement.serial);
    if serving != entry.target() {
        let stops = entry.target().is_some() && residency::needs_stop_and_copy(core, entry);
        let now = core.now();
        if stops {
            core.dags.known_mut(name).stop(now);
        }
        retarget(core, name, serving);
    }
}

/// The placement that can serve now: the wanted one as soon as all it needs is loaded and its
/// state is there, until then the one before. Where the state is in a region that the DAG leaves,
/// none serves while it is moved.
fn serving<'a>(core: &Core, entry: &'a DagEntry) -> Option<&'a Placement> {
    if residency::needs_stop_and_copy(core, entry) {
        return None;
    }
    let can_serve = |p: &Placement| {
        let card = core.cards.known(&p.mapping.card);
        // A firewall without its rules would let everything pass; programs are told by configuration.
        let is_told = p.spec.configurations() > 0 || !p.mapping.programs.is_empty();
        card.is_loaded(p) && (card.configures() || !is_told)
    };
    let name = entry.name();
    entry.placements().find(|p| can_serve(p) && residency::contexts_resident(core, name, p))
}

/// Replaces a DAG's rows in the target tables of its card by those of the placement `serial`.
/// Where the pages that it needs are not free yet, what is there stays until they are.
fn retarget(core: &mut Core, name: &DagName, serial: Option<u64>) {
    let entry = core.dags.known(name);
    let old = entry.targeted().cloned();
    let new = serial.and_then(|serial| entry.placement(serial)).cloned();
    if move_pages(core, name, old.as_ref(), new.as_ref()).is_err() {
        return; // The DAG is looked at again when they may be free.
    }
    core.dags.known_mut(name).set_target(new.as_ref().map(|p| p.serial));
    let entry = core.dags.known(name);
    let uid = entry.uid();
    let scaled = entry.meter().scaling().is_some_and(|s| entry.target() == Some(s.serial));
    for placement in [&old, &new].into_iter().flatten() {
        let card_loop = core.loops.known_mut(&placement.mapping.card);
        card_loop.topology_changed();
        if scaled {
            card_loop.mark_urgent();
        }
    }
    if let Some(old) = &old {
        core.cards.known_mut(&old.mapping.card).clear_dag(name, uid, old);
    }
    if let Some(new) = &new {
        let columns = columns(core, name, new);
        core.cards.known_mut(&new.mapping.card).put_dag(name, &columns, new);
    }
    classification::retarget_rules(core, name);
}

/// A DAG goes from one placement to another: it gets the spaces that it needs there, and others
/// go.
///
/// # Errors
/// Where pages are not free yet; nothing has changed then.
fn move_pages(
    core: &mut Core,
    name: &DagName,
    old: Option<&Placement>,
    new: Option<&Placement>,
) -> Result<(), PagesInUse> {
    if let Some(new) = new {
        let needs = page_needs(core, name, new);
        core.cards.known_mut(&new.mapping.card).hold_pages(name, &needs)?;
    }
    let is_left = |old: &&Placement| new.is_none_or(|new| new.mapping.card != old.mapping.card);
    if let Some(old) = old.filter(is_left) {
        core.cards.known_mut(&old.mapping.card).release_pages(name);
    }
    Ok(())
}

/// The spaces that a placement needs.
pub(crate) fn page_needs(core: &Core, name: &DagName, placement: &Placement) -> BTreeSet<PageNeed> {
    if !placement.mapping.programs.is_empty() {
        return BTreeSet::new(); // Programs have memories of their own.
    }
    let tenant = core.registry.tenant(&name.tenant).map_or(0, |record| record.number);
    let nts = placement.spec.nodes.iter().filter_map(|node| core.registry.nt(&node.nt));
    PageNeed::of(tenant, nts, core.registry.nt_numbers())
}

/// A tenant's weight has changed: the buckets of its DAGs say so.
pub(crate) fn reweigh(core: &mut Core, tenant: &TenantId) {
    let mut buckets = Vec::new();
    for entry in core.dags.of_tenant(tenant) {
        if let Some(placement) = entry.targeted() {
            let bucket = rows::bucket(bucket_of(core, entry, placement));
            buckets.push((placement.mapping.card.clone(), entry.uid().row(), bucket));
        }
    }
    for (id, row, bucket) in buckets {
        core.cards.known_mut(&id).put_bucket(row, &bucket);
    }
}

/// Marks the rows of all served DAGs for rewriting, because packet scheduling has changed.
pub(crate) fn reschedule_rows(core: &mut Core) {
    let served = core.dags.iter().filter(|entry| entry.target().is_some());
    let served: Vec<_> = served.map(|entry| (entry.name().clone(), entry.target())).collect();
    for (name, serial) in served {
        retarget(core, &name, serial);
    }
}

fn columns(core: &Core, name: &DagName, placement: &Placement) -> DagColumns {
    let reads_payload = |nt| core.registry.nt(nt).is_some_and(|nt| nt.traffic == Traffic::Payload);
    let (uid, numbers) = (core.dags.known(name).uid(), core.registry.nt_numbers());
    let nts = DagConfiguration::of(uid, &placement.spec, |nt| numbers.of(nt));
    DagColumns {
        uid,
        tenant: core.registry.tenant(&name.tenant).map_or(0, |t| t.number),
        payload: placement.spec.nodes.iter().any(|node| reads_payload(&node.nt)),
        bucket: bucket_of(core, core.dags.known(name), placement),
        steering: core.policies.current().scheduling.steering,
        configuration: DagConfiguration::of_programs(uid, nts, &placement.mapping.programs),
    }
}

/// Settings of a DAG's token bucket while a placement serves.
pub(crate) fn bucket_of(core: &Core, entry: &DagEntry, placement: &Placement) -> Bucket {
    let promised = placement.spec.bandwidth;
    let tenant = core.registry.tenant(&entry.name().tenant);
    let weight = tenant.map_or(1, |record| record.tenant.weight);
    let counts = core.cards.known(&placement.mapping.card).counts_packets();
    let packet_bytes = rows::packet_bytes(counts, &placement.spec);
    // More would wait for its threads.
    let rate = placement.mapping.programs_serve().unwrap_or(entry.rate(promised));
    let rate = entry.rate(promised).min(rate.max(promised));
    Bucket { rate, promised, packet_bytes, weight }
}
