//! From the records of a store to a controller: after a clean stop, a crash, or the first start.
//!
//! Only what should be comes from the store. Which of it is there already the cards are asked when
//! they appear; until then every region is unknown and no DAG is ready.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use snic_domain::{CardId, DagName, Explanation, RegionId, Timestamp};
use snic_planner::Catalogue;

use crate::bindings::Bindings;
use crate::card::CardState;
use crate::dags::DagEntry;
use crate::protocol::{BindingRecord, OperationRecord, Settings, Work};
use crate::records::{
    BitstreamRecord, CardRecord, DagRecord, InvalidRecord, Maintenance, Meta, NtRecord,
    RegionRecord, RequestRecord, RuleRecord, SCHEMA, TenantRecord, key, read,
};
use crate::refused::{RefusedDags, RefusedRecord};
use crate::state::{Controller, Uids};
use crate::states::{PendingErase, ResidentContext, StateRecord};

/// The records by kind, with their keys.
#[derive(Default)]
struct Sorted {
    meta: Option<Meta>,
    maintenance: Option<Maintenance>,
    tenants: Vec<TenantRecord>,
    nts: Vec<NtRecord>,
    bitstreams: Vec<BitstreamRecord>,
    dags: Vec<(String, DagRecord)>,
    explanations: BTreeMap<String, Explanation>,
    cards: Vec<(String, CardRecord)>,
    regions: Vec<(String, RegionRecord)>,
    guests: Vec<(String, ResidentContext)>,
    departed: Vec<(String, PendingErase)>,
    states: Vec<(String, StateRecord)>,
    rules: Vec<(String, RuleRecord)>,
    bindings: Vec<(String, BindingRecord)>,
    operations: Vec<OperationRecord>,
    requests: Vec<(String, RequestRecord)>,
    refused: Vec<RefusedRecord>,
    uids: Vec<(String, u32)>,
}

impl Sorted {
    fn add(&mut self, key: String, value: &[u8]) -> Result<(), InvalidRecord> {
        let (kind, rest) = key.split_once('/').unwrap_or((&key, ""));
        match kind {
            "meta" => self.meta = Some(read(&key, value)?),
            key::MAINTENANCE => self.maintenance = Some(read(&key, value)?),
            "tenants" => {
                self.tenants.push(named(&key, value, |r: &TenantRecord| key::tenant(&r.tenant.id))?)
            }
            "nt-types" => self.nts.push(named(&key, value, |r: &NtRecord| key::nt(&r.nt.id))?),
            "bitstreams" => self
                .bitstreams
                .push(named(&key, value, |r: &BitstreamRecord| key::bitstream(&r.bitstream.id))?),
            "dags" => {
                let record = named(&key, value, |r: &DagRecord| key::dag(&r.name))?;
                self.dags.push((key, record));
            }
            "explanations" => {
                let record = read(&key, value)?;
                self.explanations.insert(rest.to_owned(), record);
            }
            "cards" => self.cards.push((rest.to_owned(), read(&key, value)?)),
            "regions" => self.regions.push((rest.to_owned(), read(&key, value)?)),
            "guests" => self.guests.push((rest.to_owned(), read(&key, value)?)),
            "departed" => self.departed.push((rest.to_owned(), read(&key, value)?)),
            "states" => self.states.push((rest.to_owned(), read(&key, value)?)),
            "rules" => {
                let record = named(&key, value, |r: &RuleRecord| key::rule(&r.rule.id))?;
                self.rules.push((key, record));
            }
            "bindings" => {
                let own = |r: &BindingRecord| key::binding(&r.spec.vm);
                let record = named(&key, value, own)?;
                self.bindings.push((key, record));
            }
            "operations" => self
                .operations
                .push(named(&key, value, |r: &OperationRecord| key::operation(&r.id))?),
            "requests" => self.requests.push((rest.to_owned(), read(&key, value)?)),
            "refused" => {
                self.refused.push(named(&key, value, |r: &RefusedRecord| key::refused(&r.name))?)
            }
            "uids" => self.uids.push((rest.to_owned(), read(&key, value)?)),
            _ => return Err(contradiction(&key, "no record has such a key")),
        }
        Ok(())
    }
}

pub(crate) fn contradiction(key: &str, reason: impl Into<String>) -> InvalidRecord {
    InvalidRecord::Contradiction { key: key.to_owned(), reason: reason.into() }
}

/// The card and the region of a key `C/NN`.
fn region_in(key: &str, rest: &str) -> Result<(CardId, RegionId), InvalidRecord> {
    let (card, region) =
        rest.split_once('/').ok_or_else(|| contradiction(key, "no card in its key"))?;
    let id = CardId::new(card).map_err(|e| contradiction(key, e.to_string()))?;
    let number = region.parse().map_err(|_| contradiction(key, "no region in its key"))?;
    Ok((id, RegionId(number)))
}

/// A record that says itself which it is, under the key that it should have.
fn named<T: DeserializeOwned>(
    key: &str,
    value: &[u8],
    own: impl Fn(&T) -> String,
) -> Result<T, InvalidRecord> {
    let record = read(key, value)?;
    let own = own(&record);
    if own == key {
        return Ok(record);
    }
    Err(contradiction(key, format!("what it holds belongs under {own}")))
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
            sorted.add(key, &value)?;
        }
        let meta_stored = sorted.meta.is_some();
        let meta = sorted.meta.take().unwrap_or(Meta { schema: SCHEMA, secret, operations: 0 });
        if meta.schema != SCHEMA {
            return Err(InvalidRecord::Schema { found: meta.schema });
        }
        let mut controller = Self { meta_stored, ..Self::empty(settings, meta, now) };
        controller.recover_catalogue(&mut sorted);
        controller.recover_cards(&mut sorted)?;
        controller.recover_dags(&mut sorted)?;
        controller.recover_guests(&mut sorted)?;
        controller.recover_departed(&mut sorted)?;
        controller.recover_states(&mut sorted)?;
        controller.recover_rules(&mut sorted)?;
        controller.recover_bindings(std::mem::take(&mut sorted.bindings))?;
        controller.recover_operations(&mut sorted)?;
        controller.refused = RefusedDags::recover(std::mem::take(&mut sorted.refused));
        controller.maintenance = sorted.maintenance;
        Ok(controller)
    }

    fn empty(settings: Settings, meta: Meta, now: Timestamp) -> Self {
        Self {
            settings,
            now,
            meta,
            meta_stored: false,
            maintenance: None,
            tenants: BTreeMap::new(),
            usage: BTreeMap::new(),
            nts: BTreeMap::new(),
            bitstreams: BTreeMap::new(),
            catalogue: Catalogue::new(),
            dags: BTreeMap::new(),
            cards: BTreeMap::new(),
            absent: BTreeMap::new(),
            rules: BTreeMap::new(),
            bindings: Bindings::default(),
            operations: BTreeMap::new(),
            drains: BTreeMap::new(),
            consolidations: BTreeMap::new(),
            roles: BTreeMap::new(),
            consolidate_at: None,
            refused: Default::default(),
            ended: Default::default(),
            requests: BTreeMap::new(),
            requests_by_age: Default::default(),
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

    fn recover_catalogue(&mut self, sorted: &mut Sorted) {
        for record in std::mem::take(&mut sorted.tenants) {
            self.tenants.insert(record.tenant.id.clone(), record);
        }
        for record in std::mem::take(&mut sorted.nts) {
            self.catalogue.insert_nt(record.nt.clone());
            self.nts.insert(record.nt.id.clone(), record);
        }
        for record in std::mem::take(&mut sorted.bitstreams) {
            if record.rejected.is_none() {
                self.catalogue.insert_bitstream(record.bitstream.clone());
            }
            self.charge_bitstream(&record.bitstream);
            self.bitstreams.insert(record.bitstream.id.clone(), record);
        }
    }

    fn recover_cards(&mut self, sorted: &mut Sorted) -> Result<(), InvalidRecord> {
        for (rest, record) in std::mem::take(&mut sorted.cards) {
            let id = CardId::new(&rest)
                .map_err(|e| contradiction(&format!("cards/{rest}"), e.to_string()))?;
            self.cards.insert(id.clone(), CardState::new(id, record.profile));
        }
        for (rest, record) in std::mem::take(&mut sorted.regions) {
            let key = format!("regions/{rest}");
            let (id, region) = region_in(&key, &rest)?;
            self.recover_region(&key, &id, region, record)?;
        }
        Ok(())
    }

    fn recover_region(
        &mut self,
        key: &str,
        id: &CardId,
        region: RegionId,
        mut record: RegionRecord,
    ) -> Result<(), InvalidRecord> {
        let bitstream = match &record.bitstream {
            Some(id) => self.bitstreams.get(id).map(|r| r.bitstream.clone()),
            None => None,
        };
        if bitstream.is_none() {
            record.bitstream = None;
        }
        let card = self.cards.get_mut(id).ok_or_else(|| contradiction(key, "no such card"))?;
        let desired = bitstream.as_ref().map(|b| b.digest);
        if card.region(region).is_none() {
            return Err(contradiction(key, "the card has no such region"));
        }
        card.regions.restore(region, record, desired);
        card.ledger
            .set_content(region, bitstream.as_ref(), &self.catalogue)
            .map_err(|e| contradiction(key, e.to_string()))?;
        self.refresh_condition(id, region);
        Ok(())
    }

    fn recover_dags(&mut self, sorted: &mut Sorted) -> Result<(), InvalidRecord> {
        for (row, incarnation) in std::mem::take(&mut sorted.uids) {
            let slot = row.parse().ok().and_then(|row: usize| self.uids.incarnations.get_mut(row));
            *slot.ok_or_else(|| contradiction(&format!("uids/{row}"), "no row in its key"))? =
                incarnation;
        }
        for (key, record) in std::mem::take(&mut sorted.dags) {
            let name = record.name.clone();
            let rest = format!("{}/{}", name.tenant, name.dag);
            let explanation = sorted.explanations.remove(&rest);
            self.uids.free.remove(&record.uid.row());
            if record.placement.is_none() {
                self.unscheduled.insert(name.clone());
            }
            snic_domain::Dag::new(record.spec.clone())
                .map_err(|error| contradiction(&key, error.to_string()))?;
            let entry = DagEntry::restore(record, explanation);
            self.charge_dag(&name.tenant, entry.spec());
            self.dags.insert(name.clone(), entry);
            self.recover_placements(&key, &name)?;
            self.dirty_dags.insert(name);
        }
        Ok(())
    }

    /// Takes the rows and the reservation that a DAG's placements have.
    fn recover_placements(&mut self, key: &str, name: &DagName) -> Result<(), InvalidRecord> {
        let placements: Vec<_> = self.dags[name].placements().cloned().collect();
        let mut held: Option<snic_planner::Reservation> = None;
        for placement in &placements {
            let more = self
                .reservation_of(placement)
                .ok_or_else(|| contradiction(key, "its spec is no valid DAG"))?;
            held = Some(held.map_or(more.clone(), |held| held.max(&more)));
            let card = self
                .cards
                .get_mut(&placement.mapping.card)
                .ok_or_else(|| contradiction(key, "its card is not stored"))?;
            if !card.rows.take_stored(placement) {
                return Err(contradiction(key, "its table rows belong to another DAG"));
            }
        }
        if let (Some(held), Some(placement)) = (held, placements.first())
            && let Some(card) = self.cards.get_mut(&placement.mapping.card)
        {
            card.ledger.hold(name, held).map_err(|e| contradiction(key, e.to_string()))?;
        }
        Ok(())
    }

    fn recover_guests(&mut self, sorted: &mut Sorted) -> Result<(), InvalidRecord> {
        for (rest, guest) in std::mem::take(&mut sorted.guests) {
            let key = format!("guests/{rest}");
            let (card, number) = rest.split_once('/').unwrap_or((&rest, ""));
            let (number, _) = number.split_once('/').unwrap_or((number, ""));
            let (id, region) = region_in(&key, &format!("{card}/{number}"))?;
            let own = key::guest(&id, region, &guest);
            if own != key {
                return Err(contradiction(&key, format!("what it holds belongs under {own}")));
            }
            if !self.dags.contains_key(&guest.dag) {
                return Err(contradiction(&key, "no such DAG"));
            }
            let card = self.cards.get_mut(&id);
            let card = card.filter(|card| card.region(region).is_some());
            let card = card.ok_or_else(|| contradiction(&key, "no such region"))?;
            card.states.recover_resident(region, guest);
        }
        Ok(())
    }

    fn recover_departed(&mut self, sorted: &mut Sorted) -> Result<(), InvalidRecord> {
        for (rest, departed) in std::mem::take(&mut sorted.departed) {
            let key = format!("departed/{rest}");
            let place = rest.rsplit_once('/').map_or("", |(place, _)| place);
            let (id, region) = region_in(&key, place)?;
            let own = key::departed(&id, region, departed.uid);
            if own != key {
                return Err(contradiction(&key, format!("what it holds belongs under {own}")));
            }
            let card = self.cards.get_mut(&id).filter(|card| card.region(region).is_some());
            let card = card.ok_or_else(|| contradiction(&key, "no such region"))?;
            card.states.recover_departed(region, departed);
        }
        Ok(())
    }

    fn recover_states(&mut self, sorted: &mut Sorted) -> Result<(), InvalidRecord> {
        for (rest, record) in std::mem::take(&mut sorted.states) {
            let key = format!("states/{rest}");
            let id = rest.split_once('/').and_then(|(card, _)| CardId::new(card).ok());
            let card = id.as_ref().and_then(|id| self.cards.get_mut(id));
            let card = card.ok_or_else(|| contradiction(&key, "no such card"))?;
            if !card.states.recover(record) {
                return Err(contradiction(&key, "its place belongs to another state"));
            }
        }
        let ids: Vec<CardId> = self.cards.keys().cloned().collect();
        ids.iter().for_each(|id| self.refresh_kept(id));
        Ok(())
    }

    fn recover_rules(&mut self, sorted: &mut Sorted) -> Result<(), InvalidRecord> {
        for (key, record) in std::mem::take(&mut sorted.rules) {
            let card = self
                .cards
                .get_mut(&record.card)
                .ok_or_else(|| contradiction(&key, "its card is not stored"))?;
            if !card.classifier_free.remove(&record.row) {
                return Err(contradiction(&key, "its row belongs to another rule"));
            }
            self.rules.insert(record.rule.id.clone(), record);
        }
        Ok(())
    }

    fn recover_operations(&mut self, sorted: &mut Sorted) -> Result<(), InvalidRecord> {
        for record in std::mem::take(&mut sorted.operations) {
            if let (Work::DeleteDag(_, Some(card)), None) = (&record.work, &record.ended)
                && let Some(card) = self.cards.get_mut(card)
            {
                card.tables.wait_for_removal(record.id.clone());
            }
            if let (Work::CreateDag(name) | Work::UpdateDag(name), None) =
                (&record.work, &record.ended)
                && let Some(entry) = self.dags.get_mut(name)
            {
                entry.operation = Some(record.id.clone());
            }
            match (&record.work, &record.ended) {
                (Work::DrainRegion(card, region), None) => {
                    self.drains.insert(record.id.clone(), (card.clone(), Some(*region)));
                }
                (Work::DrainCard(card), None) => {
                    self.drains.insert(record.id.clone(), (card.clone(), None));
                }
                _ => {}
            }
            if let (Work::OptimizeCard(card), None) = (&record.work, &record.ended) {
                self.note_consolidation(&record.id, card);
            }
            if let (Work::LoadRole { card, .. }, None) = (&record.work, &record.ended) {
                self.note_role(&record.id, card);
            }
            self.operations.insert(record.id.clone(), record);
        }
        let ended = self.operations.values().filter_map(|r| Some((r.ended.as_ref()?.0, &r.id)));
        let mut ended: Vec<_> = ended.map(|(at, id)| (at, id.clone())).collect();
        ended.sort();
        self.ended = ended.into_iter().map(|(_, id)| id).collect();
        let mut requests = Vec::new();
        for (rest, record) in std::mem::take(&mut sorted.requests) {
            let (caller, id) = rest.rsplit_once('/').ok_or_else(|| {
                contradiction(&format!("requests/{rest}"), "no caller in its key")
            })?;
            let key = (caller.to_owned(), id.to_owned());
            requests.push((record.at, key.clone()));
            self.requests.insert(key, record);
        }
        requests.sort();
        self.requests_by_age = requests.into_iter().map(|(_, key)| key).collect();
        Ok(())
    }
}
