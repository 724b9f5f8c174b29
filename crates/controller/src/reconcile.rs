//! From the difference between what should be and what is to the next steps on each card.
//!
//! The order of the steps for a region that gets another content: rows that lead to it leave the
//! tables (commit), packets leave it, it is decoupled, loaded, coupled (load), then rows that lead
//! to it are written (commit). Nothing here remembers that order: a load is only asked for while
//! no row leads to the region, and rows are only written while it holds what they need. What chains
//! keep for DAGs is saved before a load and restored before rows are written: see `states`.

use snic_domain::{CardId, DagName, RegionId, TenantId};
use snic_tables::{CreditRow, RegionRow, Ticket};

use crate::card::{CardState, ConnectionState, Due, KNOWN};
use crate::dags::DagEntry;
use crate::protocol::Change;
use crate::records::{Placement, Record};
use crate::rows::{self, Bucket, DagColumns};
use crate::state::Controller;
use crate::states::Loadable;
use crate::tx::Tx;

impl Controller {
    /// Looks at all that may have changed and asks the cards for the next steps.
    pub(crate) fn reconcile(&mut self, tx: &mut Tx) {
        loop {
            self.settle_regions(tx);
            while let Some(name) = self.dirty_dags.pop_first() {
                self.refresh(tx, &name);
            }
            let cards: Vec<CardId> = self.cards.keys().cloned().collect();
            for id in cards {
                self.finish_drains(tx, &id);
                if self.cards[&id].connection == ConnectionState::Ready {
                    self.follow_at_once(&id);
                    self.program(tx, &id);
                    self.keep_states(tx, &id);
                    self.load(tx, &id);
                }
            }
            if self.dirty_dags.is_empty() && self.maybe_unused.is_empty() && !self.capacity_freed {
                self.go_on_consolidating(tx);
                if self.dirty_dags.is_empty() {
                    return;
                }
            }
        }
    }

    /// Gives what was freed to those who wait, then lets go of what nobody needs.
    fn settle_regions(&mut self, tx: &mut Tx) {
        if std::mem::take(&mut self.capacity_freed) {
            self.place_unscheduled(tx);
            self.go_on_draining(tx);
            self.consolidate_later();
        }
        while let Some((card, region)) = self.maybe_unused.pop_first() {
            self.keep_as_victim(tx, &card, region);
            // While others are in it nothing about its state has changed, and a view of all of
            // them for each that leaves would be quadratic.
            if self.cards.get(&card).is_some_and(|state| state.ledger.is_unused(region)) {
                self.emit_region(tx, &card, region);
            }
        }
    }

    /// Chooses which of a DAG's placements is to be in the tables, and writes its rows into the
    /// target.
    fn refresh(&mut self, tx: &mut Tx, name: &DagName) {
        self.enqueue_context_restore(name);
        self.refresh_rows(name);
        self.settle(tx, name);
    }

    /// The part of it that is about rows.
    pub(crate) fn refresh_rows(&mut self, name: &DagName) {
        let Some(entry) = self.dags.get(name) else { return };
        let serving = self.serving(entry).map(|placement| placement.serial);
        if serving != entry.target() {
            let stops = entry.target().is_some() && self.needs_stop_and_copy(entry);
            let now = self.now;
            if let Some(entry) = self.dags.get_mut(name).filter(|_| stops) {
                entry.stop(now);
            }
            self.retarget(name, serving);
        }
    }

    /// The placement that can serve now: the wanted one as soon as all it needs is loaded and its
    /// state is there, until then the one before. Where the state is in a region that the DAG leaves,
    /// none serves while it is moved.
    fn serving<'a>(&self, entry: &'a DagEntry) -> Option<&'a Placement> {
        if self.needs_stop_and_copy(entry) {
            return None;
        }
        let name = entry.name();
        entry.placements().find(|p| self.is_loaded(p) && self.contexts_resident(name, p))
    }

    /// Whether every region of a placement holds what it needs.
    pub(crate) fn is_loaded(&self, placement: &Placement) -> bool {
        let Some(card) = self.cards.get(&placement.mapping.card) else { return false };
        placement.mapping.instances().all(|instance| {
            card.region(instance.region).is_some_and(|region| {
                region.is_loaded() && region.bitstream() == Some(&instance.bitstream)
            })
        })
    }

    /// Replaces a DAG's rows in the target tables of its card by those of the placement `serial`.
    /// Where the pages that it needs are not free yet, what is there stays until they are.
    fn retarget(&mut self, name: &DagName, serial: Option<u64>) {
        let entry = self.dags.get(name).expect("only a DAG that exists has rows");
        let old = entry.targeted().cloned();
        let new = serial.and_then(|serial| entry.placement(serial)).cloned();
        if self.move_pages(name, old.as_ref(), new.as_ref()).is_err() {
            return;
        }
        let entry = self.dags.get_mut(name).expect("it was there before its pages were moved");
        let uid = entry.uid();
        entry.set_target(new.as_ref().map(|p| p.serial));
        let scaled = entry.meter.scaling.is_some_and(|s| entry.target() == Some(s.serial));
        for placement in [&old, &new].into_iter().flatten() {
            if let Some(card) = self.cards.get_mut(&placement.mapping.card) {
                card.epoch.stale = true;
                card.epoch.urgent |= scaled;
            }
        }
        if let Some(old) = &old
            && let Some(card) = self.cards.get_mut(&old.mapping.card)
        {
            card.tables.clear_dag(name, uid, old);
        }
        if let Some(new) = &new {
            let columns = self.columns(name, new);
            if let Some(card) = self.cards.get_mut(&new.mapping.card) {
                card.tables.put_dag(name, &columns, new);
            }
        }
        self.retarget_rules(name);
    }

    fn columns(&self, name: &DagName, placement: &Placement) -> DagColumns {
        let reads_payload =
            |nt| self.registry.nt(nt).is_some_and(|nt| nt.traffic == snic_domain::Traffic::Payload);
        DagColumns {
            uid: self.dags[name].uid(),
            tenant: self.registry.tenant(&name.tenant).map_or(0, |t| t.number),
            payload: placement.spec.nodes.iter().any(|node| reads_payload(&node.nt)),
            bucket: self.bucket_of(&self.dags[name], placement),
            steering: self.settings.scheduling.steering,
        }
    }

    /// What a DAG's token bucket is to say while a placement serves.
    pub(crate) fn bucket_of(&self, entry: &DagEntry, placement: &Placement) -> Bucket {
        let promised = placement.spec.bandwidth;
        let tenant = self.registry.tenant(&entry.name().tenant);
        let weight = tenant.map_or(1, |record| record.tenant.weight);
        Bucket { rate: entry.rate(promised), promised, weight }
    }

    /// A tenant's weight has changed: the buckets of its DAGs say so.
    pub(crate) fn reweigh(&mut self, tenant: &TenantId) {
        let mut buckets = Vec::new();
        for (_, entry) in self.dags.iter().filter(|(name, _)| name.tenant == *tenant) {
            if let Some(placement) = entry.targeted() {
                let bucket = rows::bucket(self.bucket_of(entry, placement));
                buckets.push((placement.mapping.card.clone(), entry.uid().row(), bucket));
            }
        }
        for (id, row, bucket) in buckets {
            let Some(card) = self.cards.get_mut(&id) else { continue };
            card.tables.put(row, &bucket);
        }
    }

    /// How packets are scheduled has changed: the rows that say so follow.
    pub(crate) fn schedule_anew(&mut self) {
        let served = self.dags.iter().filter(|(_, entry)| entry.target().is_some());
        let served: Vec<_> = served.map(|(name, entry)| (name.clone(), entry.target())).collect();
        for (name, serial) in served {
            self.retarget(&name, serial);
        }
        let loaded = |(id, card): (&CardId, &CardState)| {
            let regions = card.regions.iter().filter(|(_, r)| r.is_loaded());
            regions.map(|(region, _)| (id.clone(), region)).collect::<Vec<_>>()
        };
        let loaded: Vec<_> = self.cards.iter().flat_map(loaded).collect();
        for (id, region) in loaded {
            self.target_region(&id, region);
        }
    }

    /// Sends the rows that differ, if no commit is under way.
    fn program(&mut self, tx: &mut Tx, id: &CardId) {
        let Self { cards, dags, next_ticket, .. } = self;
        let card = cards.get_mut(id).expect(KNOWN);
        let new_ticket = || {
            *next_ticket += 1;
            Ticket(*next_ticket)
        };
        let target = |name: &DagName| dags.get(name).and_then(DagEntry::target);
        match card.tables.begin(self.now, new_ticket, target) {
            Due::Nothing => {}
            Due::Committed(follows) => self.programmed(tx, id, follows),
            Due::Commit { command, dags } => {
                dags.iter().for_each(|name| self.start_operation(name));
                tx.card(id.clone(), command);
            }
        }
    }

    /// Asks for the load that waits longest, if none is under way.
    fn load(&mut self, tx: &mut Tx, id: &CardId) {
        let card = &self.cards[id];
        let is_used = |region: RegionId| !card.ledger.is_unused(region);
        let free = || {
            let routed = card.tables.routed();
            move |region: RegionId| routed >> region.0 & 1 == 0 && !card.states.holds_back(region)
        };
        let next = card.regions.next_load(self.now, is_used, free);
        if let Some(region) = next {
            match self.make_loadable(tx, id, region) {
                Loadable::Now => self.start_load(tx, id, region),
                Loadable::NotYet => self.keep_states(tx, id),
            }
        }
    }

    fn start_load(&mut self, tx: &mut Tx, id: &CardId, region: RegionId) {
        let ticket = self.ticket();
        let card = self.cards.get_mut(id).expect(KNOWN);
        tx.card(id.clone(), card.regions.begin(region, ticket));
        let users: Vec<DagName> = card.ledger.users(region).cloned().collect();
        for name in users {
            self.start_operation(&name);
        }
        self.emit_region(tx, id, region);
    }

    /// Writes the rows of a region that was loaded.
    pub(crate) fn target_region(&mut self, id: &CardId, region: RegionId) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        let content = card.ledger.content(region).expect("a region that is loaded has a content");
        let mut nts = [0; snic_domain::limits::CHAIN_SLOTS_MAX];
        let mut initial = [0; snic_domain::limits::CHAIN_SLOTS_MAX];
        for (slot, nt) in content.nts.iter().enumerate().take(nts.len()) {
            nts[slot] = nt.code().0;
            initial[slot] = card.profile.credits_initial;
        }
        let row = RegionRow {
            user_nt: content.region_kind == snic_domain::RegionKind::UserNt,
            bitstream_tag: content.digest.words()[0],
            nts,
        };
        let at = u16::from(region.0);
        let credits = CreditRow { initial, reservation: self.settings.scheduling.reservation };
        card.tables.put(at, &row);
        card.tables.put(at, &credits);
    }

    /// Operations that drain a region end when nobody is left in it.
    fn finish_drains(&mut self, tx: &mut Tx, id: &CardId) {
        let card = &self.cards[id];
        let is_empty = |of: Option<RegionId>| {
            self.regions_meant(id, of).all(|region| card.ledger.is_unused(region))
        };
        let drains = self.operations.drains().filter(|(_, on, of)| *on == id && is_empty(*of));
        let drained: Vec<_> = drains.map(|(operation, ..)| operation.clone()).collect();
        for operation in drained {
            self.end_operation(tx, &operation, Ok(()));
        }
    }

    pub(crate) fn emit_dag(&self, tx: &mut Tx, name: &DagName) {
        if let Some(entry) = self.dags.get(name) {
            tx.emit(Change::Dag(name.clone(), entry.uid()));
        }
    }

    pub(crate) fn emit_region(&self, tx: &mut Tx, card: &CardId, region: RegionId) {
        tx.emit(Change::Region(card.clone(), region));
    }

    pub(crate) fn store_region(&self, tx: &mut Tx, card: &CardId, region: RegionId) {
        if let Some(entry) = self.cards.get(card).and_then(|c| c.region(region)) {
            tx.put(Record::Region(card.clone(), region, entry.record().clone()));
        }
    }

    pub(crate) fn store_dag(&self, tx: &mut Tx, name: &DagName) {
        if let Some(entry) = self.dags.get(name) {
            tx.put(Record::Dag(Box::new(entry.record())));
        }
    }
}
