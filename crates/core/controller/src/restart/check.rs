//! All invariants in one place, those of each machine and those across machines: tests, the simulation and
//! debug builds all call [`check`].

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{ByteSize, CardId, TenantId};
use snic_tables::{DagRow, RateLimiterRow, Table};

use crate::decide::memory_use::Pages;
use crate::decide::rows;
use crate::decide::rows::bucket;
use crate::place::{residency, serving, work};
use crate::protocol::OperationWork;
use crate::state::Core;
use crate::state::card::{CardMachine, PageNeed, SpaceKey};
use crate::state::dags::DagEntry;
use crate::store::records::RuleRecord;
use crate::view::{images, usage};

/// Every invariant, recomputed from scratch; says which is broken.
/// Time O(state · log state).
pub(crate) fn check(core: &Core) -> Result<(), String> {
    for (id, card) in core.cards.iter() {
        let of_card = |broken: String| format!("card {id}: {broken}");
        card.check().map_err(of_card)?;
        core.loops.known(id).check().map_err(of_card)?;
        check_pages(core, id, card).map_err(of_card)?;
        check_guards(core, id, card).map_err(of_card)?;
        let placements = core.dags.iter().flat_map(DagEntry::placements);
        let here = placements.filter(|placement| placement.mapping.card == *id);
        card.check_rows(here).map_err(of_card)?;
        let mut residents = card.contexts().all_residents();
        if let Some((_, gone)) = residents.find(|(_, of)| !core.dags.contains(&of.dag)) {
            return Err(of_card(format!("{} is gone and has state in a region", gone.dag)));
        }
    }
    core.dags.check()?;
    for entry in core.dags.iter() {
        check_dag(core, entry)?;
    }
    let charged = core.dags.iter().map(|entry| {
        let (spec, card) = entry.counted();
        (&entry.name().tenant, spec, card)
    });
    core.registry.check(charged)?;
    check_memory(core)?;
    core.operations.check()?;
    images::check(core)?;
    let is_open =
        |id, region| core.cards.known(id).region(region).is_some_and(|r| !r.is_cordoned());
    if let Some((operation, id, region)) =
        work::pending_drains(core).find(|&(_, id, region)| is_open(id, region))
    {
        return Err(format!(
            "card {id}: region {region} is not cordoned and {operation} drains it"
        ));
    }
    core.rules.check()?;
    let open = core.operations.all().filter(|operation| operation.ended.is_none());
    let passes = open.filter(|operation| matches!(operation.work, OperationWork::OptimizeCard(_)));
    if !passes.map(|operation| &operation.id).eq(core.passes.operations()) {
        return Err("the pending consolidations are not those among the operations".into());
    }
    core.bindings.check()?;
    core.usage.check(core, usage::rates)?;
    check_functions(core)
}

/// The ledgers of all cards charge each tenant for its DAGs' NT types, once on each card; and that is what it
/// is told it uses while none of its DAGs moves or waits.
fn check_memory(core: &Core) -> Result<(), String> {
    let mut held: BTreeMap<(&TenantId, &CardId), Pages> = BTreeMap::new();
    let mut unsettled: BTreeSet<&TenantId> = BTreeSet::new();
    for entry in core.dags.iter() {
        let tenant = &entry.name().tenant;
        for placement in entry.placements() {
            let pages = core.registry.pages_of(&placement.spec);
            held.entry((tenant, &placement.mapping.card)).or_default().extend(pages);
        }
        if entry.previous().is_some() || entry.desired().is_none() {
            unsettled.insert(tenant);
        }
    }
    let mut charged: BTreeMap<&TenantId, ByteSize> = BTreeMap::new();
    for ((tenant, id), pages) in held {
        let (asked, ledger) = (pages.into_values().sum(), core.cards.known(id).ledger());
        // A card with processors has working sets instead of NTs' memory; the quota counts it all the same.
        let charges = if ledger.profile().regions.is_empty() { ByteSize::ZERO } else { asked };
        let has = ledger.allocated(tenant);
        if has != charges {
            return Err(format!("card {id} charges {tenant} {has} of memory for {charges}"));
        }
        *charged.entry(tenant).or_default() += asked;
    }
    charged.retain(|tenant, _| !unsettled.contains(tenant));
    match charged.into_iter().find(|(id, charged)| core.registry.usage(id).memory != *charged) {
        Some((tenant, charged)) => {
            Err(format!("{tenant} uses another amount of memory than its cards charge: {charged}"))
        }
        None => Ok(()),
    }
}

/// A DAG in the target tables has the spaces that its placement needs and no others.
fn check_pages(core: &Core, id: &CardId, card: &CardMachine) -> Result<(), String> {
    let mut held: BTreeMap<_, _> = card.pages().held().iter().collect();
    for entry in core.dags.on_card(id) {
        let name = entry.name();
        let target = entry.targeted();
        let needs = target.map(|target| serving::page_needs(core, name, target));
        let needed: BTreeSet<SpaceKey> =
            needs.unwrap_or_default().iter().map(PageNeed::space).collect();
        if needed != held.remove(name).cloned().unwrap_or_default() {
            return Err(format!("{name} has not the pages that it needs"));
        }
    }
    match held.keys().next() {
        Some(name) => Err(format!("{name} has pages and is not in the tables")),
        None => Ok(()),
    }
}

/// The guards in a card's target tables are those of the functions that machines have.
fn check_guards(core: &Core, id: &CardId, card: &CardMachine) -> Result<(), String> {
    if !card.is_ready() {
        return Ok(()); // Its target is made when it has said what it holds.
    }
    let target = card.tables().target();
    let mut guarded = 0;
    for record in core.bindings.all() {
        for (number, function) in record.functions.iter().enumerate() {
            if function.card != *id {
                continue;
            }
            guarded += 1;
            let row = rows::guard(&record.limits_of(number));
            if target.get(function.function) != Some(row) {
                let vm = &record.spec.vm;
                return Err(format!("function {} of {vm} is not guarded", function.function));
            }
        }
    }
    if target.rows_used(Table::Guard) == guarded {
        Ok(())
    } else {
        Err(format!("card {id} guards functions that no machine has"))
    }
}

/// Each function of a machine has its rule, and each rule of a machine its function.
fn check_functions(core: &Core) -> Result<(), String> {
    let mut rules = 0;
    for record in core.bindings.all() {
        let vm = &record.spec.vm;
        for function in &record.functions {
            let rule = core.rules.get(&function.rule);
            if rule.is_none_or(|rule| rule.binding.as_ref() != Some(vm)) {
                return Err(format!("{vm}: rule {} is not its own", function.rule));
            }
            rules += 1;
        }
    }
    if rules != core.rules.all().filter(|rule| rule.is_of_machine()).count() {
        return Err("a rule is of a machine that is not bound".into());
    }
    let mut tenants = core.rules.all().filter(|record| record.rule.id.owner().is_some());
    match tenants.find(|record| !is_about_own_packets(core, record)) {
        Some(record) => Err(format!("rule {} is about others' packets", record.rule.id)),
        None => Ok(()),
    }
}

/// Whether a tenant's rule leads packets of a function of its machine to one of its DAGs.
fn is_about_own_packets(core: &Core, record: &RuleRecord) -> bool {
    let Some(owner) = record.rule.id.owner() else { return false };
    let machine = record.binding.as_ref().and_then(|vm| core.bindings.live(vm));
    let wanted = record.rule.matches.virtual_function;
    record.rule.dag.tenant == owner
        && machine.is_some_and(|machine| {
            let mut functions = machine.functions.iter();
            machine.spec.tenant == owner
                && functions.any(|of| of.card == record.card && Some(of.function) == wanted)
        })
}

/// The bucket in the target tables is the DAG's rate, and that is at least what was promised.
fn check_rate(core: &Core, entry: &DagEntry, card: Option<&CardMachine>) -> Option<String> {
    let placement = entry.targeted()?;
    let target = card.map(|card| card.tables().target())?;
    let row: Option<RateLimiterRow> = target.get(entry.uid().row());
    let desired = Some(bucket(serving::bucket_of(core, entry, placement)));
    let dag: Option<DagRow> = target.get(entry.uid().row());
    if dag.is_none_or(|dag| dag.uid != entry.uid().raw()) {
        return Some(format!("its row in the target tables is {dag:?}"));
    }
    (row != desired).then(|| format!("its bucket is {row:?} and should be {desired:?}"))
}

fn check_dag(core: &Core, entry: &DagEntry) -> Result<(), String> {
    let name = entry.name();
    let served = entry.targeted();
    if served.is_some_and(|placement| !residency::contexts_resident(core, name, placement)) {
        return Err(format!("{name}: its rows lead where its state is not"));
    }
    let card = entry.card().map(|id| core.cards.known(id));
    let held = card.and_then(|card| card.ledger().held(name));
    if held.is_some() != (entry.placements().next().is_some()) {
        return Err(format!("{name}: it has a reservation and no placement, or the reverse"));
    }
    if let (Some(placement), None) = (entry.desired(), entry.previous())
        && let (Some(card), Some(held)) = (card, held)
        && let Some(desired) = core.registry.reservation(placement, card.profile())
        && *held != desired
    {
        return Err(format!("{name}: its reservation is not what its placement needs"));
    }
    let stranger = entry.placements().find_map(|of| images::stranger(core, entry, of));
    if let (Some(stranger), false) = (stranger, core.dags.is_untrusted(name)) {
        return Err(format!("{name}: it passes through {stranger}, which it may not"));
    }
    if let Some(broken) = check_rate(core, entry, card) {
        return Err(format!("{name}: {broken}"));
    }
    Ok(())
}
