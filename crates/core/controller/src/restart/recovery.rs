//! From the records of a store to a controller: after a clean stop, a crash, or the first start.
//!
//! The store gives only the desired state. What is on the cards already is read back when
//! they appear; until then every region's content is unknown and no DAG is ready.

use std::collections::BTreeMap;

use snic_domain::{CardId, DagName, Explanation, RegionId, Timestamp};
use snic_planner::Reservation;
use snic_usage::{UsageKey, UsageRecord};

use crate::place::{residency, untrusted};
use crate::protocol::{BindingRecord, ControllerSettings, OperationRecord, OperationWork};
use crate::restart::set_aside::SetAsideAccount;
use crate::state::Core;
use crate::state::card::{CardMachine, SaveSlotConflict};
use crate::state::kept::KeptFunctions;
use crate::state::maintenance::MaintenanceMode;
use crate::state::operations::Operations;
use crate::state::refused::RefusedDags;
use crate::state::registry::Registry;
use crate::state::rules::Rules;
use crate::state::usage::Usage;
use crate::store::records;
use crate::store::records::{
    BitstreamRecord, CardRecord, DagRecord, InvalidRecord, KeptRecord, LAYOUT, Maintenance, Meta,
    NtRecord, PendingErase, Phase, Record, RecordKey, RefusedRecord, RegionRecord, RequestKey,
    RequestRecord, ResidentContext, RuleRecord, StateRecord, TenantRecord,
};
use crate::store::requests::Requests;
use crate::store::revisions::{Revisions, StoredRevisions};
use crate::view::{images, usage};

/// The records by kind.
#[derive(Default)]
struct RecordsByKind {
    meta: Option<Meta>,
    maintenance: Option<Maintenance>,
    tenants: Vec<TenantRecord>,
    nts: Vec<NtRecord>,
    bitstreams: Vec<BitstreamRecord>,
    dags: Vec<DagRecord>,
    explanations: BTreeMap<DagName, Explanation>,
    cards: Vec<(CardId, CardRecord)>,
    regions: Vec<(CardId, RegionId, RegionRecord)>,
    resident: Vec<(CardId, RegionId, ResidentContext)>,
    erases: Vec<(CardId, RegionId, PendingErase)>,
    saved: Vec<(CardId, StateRecord)>,
    rules: Vec<RuleRecord>,
    bindings: Vec<BindingRecord>,
    kept: Vec<KeptRecord>,
    operations: Vec<OperationRecord>,
    requests: Vec<(RequestKey, RequestRecord)>,
    refused: Vec<RefusedRecord>,
    uids: Vec<(u16, u32)>,
    revisions: StoredRevisions,
    usage: Vec<UsageRecord>,
}

impl RecordsByKind {
    fn add(&mut self, record: Record) {
        match record {
            Record::Meta(record) => self.meta = Some(record),
            Record::Maintenance(record) => self.maintenance = Some(record),
            Record::Tenant(record) => self.tenants.push(record),
            Record::NtType(record) => self.nts.push(record),
            Record::Bitstream(record) => self.bitstreams.push(record),
            Record::Dag(record) => self.dags.push(*record),
            Record::Explanation(name, record) => {
                self.explanations.insert(name, record);
            }
            Record::Card(card, record) => self.cards.push((card, record)),
            Record::Region(card, region, record) => self.regions.push((card, region, record)),
            Record::ResidentContext(card, region, record) => {
                self.resident.push((card, region, record));
            }
            Record::PendingErase(card, region, record) => self.erases.push((card, region, record)),
            Record::SavedContext(card, record) => self.saved.push((card, record)),
            Record::Rule(record) => self.rules.push(record),
            Record::Binding(record) => self.bindings.push(record),
            Record::Kept(records) => self.kept = records,
            Record::Operation(record) => self.operations.push(record),
            Record::Request(key, record) => self.requests.push((key, record)),
            Record::Refused(record) => self.refused.push(record),
            Record::Uid(row, incarnation) => self.uids.push((row, incarnation)),
            Record::Revisions(floor) => self.revisions.floor = Some(floor),
            Record::Deletion(name, record) => self.revisions.deletions.push((name, record)),
            Record::Usage(record) => self.usage.push(*record),
        }
    }
}

/// Content of a store.
pub(crate) struct StoreContent {
    pub core: Core,
    pub requests: Requests,
    pub revisions: Revisions,
    /// Records that were set aside, as far as they were counted.
    pub set_aside: SetAsideAccount,
}

/// The machines that wrote these records, as far as they became durable. `secret` is used
/// where the store is new. Time O(records · log records).
pub(crate) fn recover(
    settings: ControllerSettings,
    records: impl IntoIterator<Item = (String, Vec<u8>)>,
    secret: u64,
    now: Timestamp,
) -> Result<StoreContent, InvalidRecord> {
    let records: Vec<_> = records.into_iter().collect();
    restore(settings, &records, true, secret, now)
}

/// As [`recover`]; `is_whole` where no record was left out.
pub(crate) fn restore(
    settings: ControllerSettings,
    records: &[(String, Vec<u8>)],
    is_whole: bool,
    secret: u64,
    now: Timestamp,
) -> Result<StoreContent, InvalidRecord> {
    records::check_layout(records)?;
    let mut sorted = RecordsByKind::default();
    for (key, value) in records {
        if !records::is_set_aside(key) && !UsageKey::is_full_page(key) {
            let record = Record::parse(key, value)?;
            if let Some((name, owner)) = record.resource() {
                sorted.revisions.stamps.push((name, owner, records::stamp_of(value)));
            }
            sorted.add(record);
        }
    }
    let meta_stored = sorted.meta.is_some();
    let meta = sorted.meta.take().unwrap_or(Meta { schema: LAYOUT, secret, operations: 0 });
    let secret = meta.secret;
    let mut core = Core::new(settings, Operations::new(meta, meta_stored), secret, now);
    core.registry = Registry::restore(secret, sorted.tenants, sorted.nts, sorted.bitstreams);
    for (id, record) in sorted.cards {
        let objective = core.policies.current().placement.objective;
        core.cards.add(id.clone(), CardMachine::new(id.clone(), record.profile, objective));
        core.loops.add(id);
    }
    for (id, region, record) in sorted.regions {
        restore_region(&mut core, &id, region, record)?;
    }
    for (row, incarnation) in sorted.uids {
        core.dags.restore_uid(row, incarnation)?;
    }
    for record in sorted.dags {
        let name = record.name.clone();
        let entry = core.dags.restore(record, sorted.explanations.remove(&name))?;
        core.registry.charge_dag(&name.tenant, entry.spec(), entry.card());
        restore_placements(&mut core, &name)?;
        untrusted::restored(&mut core, &name);
    }
    if let Some((name, _)) = sorted.explanations.pop_first() {
        return Err(InvalidRecord::contradiction(RecordKey::Explanation(name), "no such DAG"));
    }
    restore_resident_contexts(&mut core, sorted.resident)?;
    restore_pending_erases(&mut core, sorted.erases)?;
    restore_saved_contexts(&mut core, sorted.saved)?;
    restore_rules(&mut core, sorted.rules)?;
    core.bindings.restore(sorted.bindings, now)?;
    core.kept = KeptFunctions::restore(sorted.kept);
    restore_operations(&mut core, sorted.operations)?;
    core.refused = RefusedDags::restore(sorted.refused);
    core.maintenance = MaintenanceMode::restore(sorted.maintenance);
    Usage::restore(&mut core, sorted.usage, now, usage::rates);
    let revisions = Revisions::restore(sorted.revisions, is_whole, now);
    let requests = Requests::restore(sorted.requests);
    Ok(StoreContent { core, requests, revisions, set_aside: SetAsideAccount::default() })
}

fn restore_region(
    core: &mut Core,
    id: &CardId,
    region: RegionId,
    record: RegionRecord,
) -> Result<(), InvalidRecord> {
    let Core { cards, registry, .. } = core;
    let key = RecordKey::Region(id.clone(), region);
    let content = record.bitstream.as_ref().and_then(|id| registry.bitstream(id));
    let absent = || InvalidRecord::contradiction(key, "no such card");
    let card = cards.get_mut(id).ok_or_else(absent)?;
    card.restore_region(region, record, content, registry.catalogue())
}

/// Takes the rows and the reservation that a DAG's placements have.
fn restore_placements(core: &mut Core, name: &DagName) -> Result<(), InvalidRecord> {
    let wrong = |reason: &str| InvalidRecord::contradiction(RecordKey::Dag(name.clone()), reason);
    let placements: Vec<_> = core.dags.known(name).placements().cloned().collect();
    let mut held: Option<Reservation> = None;
    for placement in &placements {
        let card = core.cards.get_mut(&placement.mapping.card);
        let card = card.ok_or_else(|| wrong("its card is not stored"))?;
        let more = core
            .registry
            .reservation(placement, card.profile())
            .ok_or_else(|| wrong("its spec is no valid DAG"))?;
        held = Some(held.map_or(more.clone(), |held| held.max(&more)));
        let taken = |_| wrong("its table rows belong to another DAG");
        card.restore_rows(placement).map_err(taken)?;
    }
    if let (Some(held), Some(placement)) = (held, placements.first()) {
        let card = core.cards.known_mut(&placement.mapping.card);
        card.restore_hold(name, held).map_err(|error| wrong(&error))?;
    }
    Ok(())
}

fn restore_resident_contexts(
    core: &mut Core,
    contexts: Vec<(CardId, RegionId, ResidentContext)>,
) -> Result<(), InvalidRecord> {
    for (id, region, context) in contexts {
        let key = RecordKey::ResidentContext(id.clone(), region, context.clone());
        let wrong = |reason| InvalidRecord::contradiction(&key, reason);
        if !core.dags.contains(&context.dag) {
            return Err(wrong("no such DAG"));
        }
        let card = core.cards.get_mut(&id);
        let card = card.filter(|card| card.region(region).is_some());
        let card = card.ok_or_else(|| wrong("no such region"))?;
        card.contexts_mut().restore_resident(region, context);
    }
    Ok(())
}

fn restore_pending_erases(
    core: &mut Core,
    erases: Vec<(CardId, RegionId, PendingErase)>,
) -> Result<(), InvalidRecord> {
    for (id, region, erase) in erases {
        let card = core.cards.get_mut(&id).filter(|card| card.region(region).is_some());
        let key = RecordKey::PendingErase(id, region, erase.uid);
        let wrong = || InvalidRecord::contradiction(key, "no such region");
        card.ok_or_else(wrong)?.contexts_mut().restore_pending_erase(region, erase);
    }
    Ok(())
}

fn restore_saved_contexts(
    core: &mut Core,
    contexts: Vec<(CardId, StateRecord)>,
) -> Result<(), InvalidRecord> {
    for (id, context) in contexts {
        let key = RecordKey::SavedContext(id.clone(), context.offset);
        let wrong = |reason| InvalidRecord::contradiction(&key, reason);
        let card = core.cards.get_mut(&id).ok_or_else(|| wrong("no such card"))?;
        if context.phase != Phase::Erasing && !core.dags.contains(&context.dag) {
            return Err(wrong("no such DAG"));
        }
        let taken = |SaveSlotConflict| wrong("its place belongs to another context");
        card.contexts_mut().restore_record(context).map_err(taken)?;
    }
    let ids: Vec<CardId> = core.cards.ids().cloned().collect();
    ids.iter().for_each(|id| residency::refresh_kept(core, id));
    Ok(())
}

fn restore_rules(core: &mut Core, records: Vec<RuleRecord>) -> Result<(), InvalidRecord> {
    for record in &records {
        let key = RecordKey::Rule(record.rule.id.clone());
        let wrong = |reason| Err(InvalidRecord::contradiction(&key, reason));
        if !core.dags.contains(&record.rule.dag) {
            return wrong("its DAG is not stored");
        }
    }
    core.rules = Rules::restore(records)?;
    Ok(())
}

fn restore_operations(core: &mut Core, records: Vec<OperationRecord>) -> Result<(), InvalidRecord> {
    let reconfigurations_max = core.policies.current().consolidation.reconfigurations_max;
    for record in records.iter().filter(|record| record.ended.is_none()) {
        let key = RecordKey::Operation(record.id.clone());
        let wrong = |reason| InvalidRecord::contradiction(&key, reason);
        match &record.work {
            OperationWork::DeleteDag(_, Some(card)) => {
                let card = core.cards.get_mut(card);
                let card = card.ok_or_else(|| wrong("its card is not stored"))?;
                card.wait_for_removal(record.id.clone());
            }
            OperationWork::CreateDag(name) | OperationWork::UpdateDag(name) => {
                let entry = core.dags.get_mut(name);
                let mut entry = entry.ok_or_else(|| wrong("its DAG is not stored"))?;
                entry.set_operation(record.id.clone());
            }
            OperationWork::OptimizeCard(card) => {
                core.passes.begin(&record.id, card, reconfigurations_max);
            }
            OperationWork::DeleteDag(_, None)
            | OperationWork::DrainRegion(..)
            | OperationWork::DrainCard(_)
            | OperationWork::ResetRegion(..)
            | OperationWork::LoadRole { .. }
            | OperationWork::ResetCard { .. }
            | OperationWork::DeleteBitstream(_)
            | OperationWork::DeleteTenant(_) => {}
        }
    }
    core.operations.restore(records);
    images::withhold(core);
    Ok(())
}
