//! From the records of a store to a controller: after a clean stop, a crash, or the first start.
//!
//! Only what should be comes from the store. Which of it is there already the cards are asked when
//! they appear; until then every region is unknown and no DAG is ready.

use std::collections::BTreeMap;

use snic_domain::{CardId, DagName, Explanation, RegionId, Timestamp};

use crate::bindings::Bindings;
use crate::card::CardState;
use crate::dags::DagEntry;
use crate::operations::Operations;
use crate::protocol::{BindingRecord, OperationRecord, Settings, Work};
use crate::records::{
    BitstreamRecord, CardRecord, DagRecord, InvalidRecord, Key, Maintenance, Meta, NtRecord,
    PendingErase, Record, RefusedRecord, RegionRecord, RequestKey, RequestRecord, ResidentContext,
    RuleRecord, SCHEMA, StateRecord, TenantRecord,
};
use crate::refused::RefusedDags;
use crate::registry::Registry;
use crate::requests::Requests;
use crate::rules::Rules;
use crate::state::{Controller, Uids};

/// The records by kind.
#[derive(Default)]
struct Sorted {
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
    operations: Vec<OperationRecord>,
    requests: Vec<(RequestKey, RequestRecord)>,
    refused: Vec<RefusedRecord>,
    uids: Vec<(u16, u32)>,
}

impl Sorted {
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
            Record::Operation(record) => self.operations.push(record),
            Record::Request(key, record) => self.requests.push((key, record)),
            Record::Refused(record) => self.refused.push(record),
            Record::Uid(row, incarnation) => self.uids.push((row, incarnation)),
        }
    }
}

impl Controller {
    /// The controller that wrote these records, as far as they became durable. `secret` is used
    /// where the store is new. Time O(records · log records).
    pub fn recover(
        settings: Settings,
        records: impl IntoIterator<Item = (String, Vec<u8>)>,
        secret: u64,
        now: Timestamp,
    ) -> Result<Self, InvalidRecord> {
        let mut sorted = Sorted::default();
        for (key, value) in records {
            sorted.add(Record::parse(&key, &value)?);
        }
        let meta_stored = sorted.meta.is_some();
        let meta = sorted.meta.take().unwrap_or(Meta { schema: SCHEMA, secret, operations: 0 });
        if meta.schema != SCHEMA {
            return Err(InvalidRecord::Schema { found: meta.schema });
        }
        let (tenants, nts) = (sorted.tenants, sorted.nts);
        let registry = Registry::restore(meta.secret, tenants, nts, sorted.bitstreams);
        let secret = meta.secret;
        let operations = Operations::new(meta, meta_stored);
        let mut controller = Self { registry, ..Self::empty(settings, operations, secret, now) };
        controller.restore_cards(sorted.cards, sorted.regions)?;
        controller.restore_uids(sorted.uids)?;
        controller.restore_dags(sorted.dags, sorted.explanations)?;
        controller.restore_resident_contexts(sorted.resident)?;
        controller.restore_pending_erases(sorted.erases)?;
        controller.restore_saved_contexts(sorted.saved)?;
        controller.restore_rules(sorted.rules)?;
        controller.bindings.restore(sorted.bindings, now)?;
        controller.restore_operations(sorted.operations);
        controller.requests = Requests::restore(sorted.requests);
        controller.refused = RefusedDags::restore(sorted.refused);
        controller.maintenance = sorted.maintenance;
        Ok(controller)
    }

    fn empty(settings: Settings, operations: Operations, secret: u64, now: Timestamp) -> Self {
        Self {
            settings,
            now,
            secret,
            maintenance: None,
            registry: Registry::default(),
            dags: BTreeMap::new(),
            cards: BTreeMap::new(),
            absent: BTreeMap::new(),
            rules: Rules::default(),
            bindings: Bindings::default(),
            operations,
            consolidations: BTreeMap::new(),
            consolidate_at: None,
            refused: Default::default(),
            requests: Requests::default(),
            uids: Uids::new(),
            dirty_dags: Default::default(),
            maybe_unused: Default::default(),
            unscheduled: Default::default(),
            capacity_freed: false,
            load_suspects: BTreeMap::new(),
            next_ticket: 0,
            log: Default::default(),
            sampled: Timestamp::ZERO,
            next_settings: None,
        }
    }

    fn restore_cards(
        &mut self,
        cards: Vec<(CardId, CardRecord)>,
        regions: Vec<(CardId, RegionId, RegionRecord)>,
    ) -> Result<(), InvalidRecord> {
        for (id, record) in cards {
            self.cards.insert(id.clone(), CardState::new(id, record.profile));
        }
        regions
            .into_iter()
            .try_for_each(|(id, region, record)| self.restore_region(&id, region, record))
    }

    fn restore_region(
        &mut self,
        id: &CardId,
        region: RegionId,
        mut record: RegionRecord,
    ) -> Result<(), InvalidRecord> {
        let wrong =
            |reason: &str| InvalidRecord::contradiction(Key::Region(id.clone(), region), reason);
        let bitstream = record.bitstream.as_ref().and_then(|id| self.registry.bitstream(id));
        if bitstream.is_none() {
            record.bitstream = None;
        }
        let card = self.cards.get_mut(id).ok_or_else(|| wrong("no such card"))?;
        let desired = bitstream.map(|b| b.digest);
        if card.region(region).is_none() {
            return Err(wrong("the card has no such region"));
        }
        card.regions.restore(region, record, desired);
        card.ledger
            .set_content(region, bitstream, self.registry.catalogue())
            .map_err(|error| wrong(&error.to_string()))?;
        self.refresh_condition(id, region);
        Ok(())
    }

    fn restore_uids(&mut self, uids: Vec<(u16, u32)>) -> Result<(), InvalidRecord> {
        for (row, incarnation) in uids {
            let slot = self.uids.incarnations.get_mut(usize::from(row));
            let wrong = || InvalidRecord::contradiction(Key::Uid(row), "there is no such row");
            *slot.ok_or_else(wrong)? = incarnation;
        }
        Ok(())
    }

    fn restore_dags(
        &mut self,
        records: Vec<DagRecord>,
        mut explanations: BTreeMap<DagName, Explanation>,
    ) -> Result<(), InvalidRecord> {
        for record in records {
            let name = record.name.clone();
            let explanation = explanations.remove(&name);
            self.uids.free.remove(&record.uid.row());
            if record.placement.is_none() {
                self.unscheduled.insert(name.clone());
            }
            snic_domain::Dag::new(record.spec.clone()).map_err(|error| {
                InvalidRecord::contradiction(Key::Dag(name.clone()), error.to_string())
            })?;
            let entry = DagEntry::restore(record, explanation);
            self.registry.charge_dag(&name.tenant, entry.spec());
            self.dags.insert(name.clone(), entry);
            self.restore_placements(&name)?;
            self.dirty_dags.insert(name);
        }
        Ok(())
    }

    /// Takes the rows and the reservation that a DAG's placements have.
    fn restore_placements(&mut self, name: &DagName) -> Result<(), InvalidRecord> {
        let wrong = |reason: &str| InvalidRecord::contradiction(Key::Dag(name.clone()), reason);
        let placements: Vec<_> = self.dags[name].placements().cloned().collect();
        let mut held: Option<snic_planner::Reservation> = None;
        for placement in &placements {
            let more =
                self.reservation_of(placement).ok_or_else(|| wrong("its spec is no valid DAG"))?;
            held = Some(held.map_or(more.clone(), |held| held.max(&more)));
            let card = self
                .cards
                .get_mut(&placement.mapping.card)
                .ok_or_else(|| wrong("its card is not stored"))?;
            if !card.rows.take_stored(placement) {
                return Err(wrong("its table rows belong to another DAG"));
            }
        }
        if let (Some(held), Some(placement)) = (held, placements.first())
            && let Some(card) = self.cards.get_mut(&placement.mapping.card)
        {
            card.ledger.hold(name, held).map_err(|error| wrong(&error.to_string()))?;
        }
        Ok(())
    }

    fn restore_resident_contexts(
        &mut self,
        contexts: Vec<(CardId, RegionId, ResidentContext)>,
    ) -> Result<(), InvalidRecord> {
        for (id, region, context) in contexts {
            let key = Key::ResidentContext(id.clone(), region, context.clone());
            let wrong = |reason| InvalidRecord::contradiction(&key, reason);
            if !self.dags.contains_key(&context.dag) {
                return Err(wrong("no such DAG"));
            }
            let card = self.cards.get_mut(&id);
            let card = card.filter(|card| card.region(region).is_some());
            card.ok_or_else(|| wrong("no such region"))?.states.recover_resident(region, context);
        }
        Ok(())
    }

    fn restore_pending_erases(
        &mut self,
        erases: Vec<(CardId, RegionId, PendingErase)>,
    ) -> Result<(), InvalidRecord> {
        for (id, region, erase) in erases {
            let card = self.cards.get_mut(&id).filter(|card| card.region(region).is_some());
            let key = Key::PendingErase(id, region, erase.uid);
            let wrong = || InvalidRecord::contradiction(key, "no such region");
            card.ok_or_else(wrong)?.states.recover_departed(region, erase);
        }
        Ok(())
    }

    fn restore_saved_contexts(
        &mut self,
        contexts: Vec<(CardId, StateRecord)>,
    ) -> Result<(), InvalidRecord> {
        for (id, context) in contexts {
            let key = Key::SavedContext(id.clone(), context.offset);
            let wrong = |reason| InvalidRecord::contradiction(&key, reason);
            let card = self.cards.get_mut(&id).ok_or_else(|| wrong("no such card"))?;
            if !card.states.recover(context) {
                return Err(wrong("its place belongs to another context"));
            }
        }
        let ids: Vec<CardId> = self.cards.keys().cloned().collect();
        ids.iter().for_each(|id| self.refresh_kept(id));
        Ok(())
    }

    fn restore_rules(&mut self, records: Vec<RuleRecord>) -> Result<(), InvalidRecord> {
        for record in &records {
            let key = Key::Rule(record.rule.id.clone());
            let wrong = |reason| Err(InvalidRecord::contradiction(&key, reason));
            if !self.cards.contains_key(&record.card) {
                return wrong("its card is not stored");
            }
            if !self.dags.contains_key(&record.rule.dag) {
                return wrong("its DAG is not stored");
            }
        }
        self.rules = Rules::restore(records)?;
        Ok(())
    }

    fn restore_operations(&mut self, records: Vec<OperationRecord>) {
        for record in records.iter().filter(|record| record.ended.is_none()) {
            match &record.work {
                Work::DeleteDag(_, Some(card)) => {
                    if let Some(card) = self.cards.get_mut(card) {
                        card.tables.wait_for_removal(record.id.clone());
                    }
                }
                Work::CreateDag(name) | Work::UpdateDag(name) => {
                    if let Some(entry) = self.dags.get_mut(name) {
                        entry.operation = Some(record.id.clone());
                    }
                }
                Work::OptimizeCard(card) => self.note_consolidation(&record.id, card),
                Work::DeleteDag(_, None)
                | Work::DrainRegion(..)
                | Work::DrainCard(_)
                | Work::ResetRegion(..)
                | Work::LoadRole { .. } => {}
            }
        }
        self.operations.restore(records);
    }
}
