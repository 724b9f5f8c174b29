//! The invariants, in one place: tests, the simulation and debug builds all call [`Controller::check`].

use snic_domain::CardId;
use snic_tables::{DagRow, RateLimiterRow};

use crate::card::CardState;
use crate::dags::DagEntry;
use crate::protocol::Work;
use crate::rows::bucket;
use crate::state::Controller;

impl Controller {
    /// Every invariant, recomputed from scratch; says which is broken.
    /// Time O(state · log state).
    pub fn check(&self) -> Result<(), String> {
        for (id, card) in &self.cards {
            card.ledger.check().map_err(|broken| format!("card {id}: {broken}"))?;
            card.tables.check().map_err(|broken| format!("card {id}: {broken}"))?;
            self.check_regions(id, card)?;
            self.check_pages(id, card).map_err(|broken| format!("card {id}: {broken}"))?;
            let mut guests = card.states.all_residents();
            if let Some((_, guest)) = guests.find(|(_, guest)| !self.dags.contains_key(&guest.dag))
            {
                return Err(format!("card {id}: {} is gone and has state in a region", guest.dag));
            }
            card.states
                .check(card.profile.save_area)
                .map_err(|broken| format!("card {id}: {broken}"))?;
            card.epoch.check().map_err(|broken| format!("card {id}: {broken}"))?;
        }
        for entry in self.dags.values() {
            self.check_dag(entry)?;
        }
        let charged = self.dags.values().map(|entry| (&entry.name().tenant, entry.spec()));
        self.registry.check(charged)?;
        self.operations.check()?;
        self.rules.check()?;
        let open = self.operations.all().filter(|operation| operation.ended.is_none());
        let passes = open.filter(|operation| matches!(operation.work, Work::OptimizeCard(_)));
        if !passes.map(|operation| &operation.id).eq(self.consolidations.keys()) {
            return Err("the pending consolidations are not those among the operations".into());
        }
        self.bindings.check()?;
        self.check_functions()
    }

    /// Each function of a machine has its rule, and each rule of a machine its function.
    fn check_functions(&self) -> Result<(), String> {
        let mut rules = 0;
        for record in self.bindings.all() {
            let vm = &record.spec.vm;
            for function in &record.functions {
                let rule = self.rules.get(&function.rule);
                if rule.is_none_or(|rule| rule.binding.as_ref() != Some(vm)) {
                    return Err(format!("{vm}: rule {} is not its own", function.rule));
                }
                rules += 1;
            }
        }
        if rules != self.rules.all().filter(|rule| rule.binding.is_some()).count() {
            return Err("a rule is of a machine that is not bound".into());
        }
        Ok(())
    }

    fn check_regions(&self, id: &CardId, card: &CardState) -> Result<(), String> {
        for (region, entry) in card.regions.iter() {
            let content = card.ledger.content(region).map(|content| &content.id);
            if content != entry.bitstream() {
                return Err(format!(
                    "card {id} region {region}: the ledger says {content:?}, the record {:?}",
                    entry.bitstream()
                ));
            }
            if entry.fault().is_some() && !card.ledger.is_unused(region) {
                return Err(format!("card {id} region {region} is faulty and in use"));
            }
        }
        Ok(())
    }

    /// The bucket in the target tables is the DAG's rate, and that is at least what was promised.
    fn check_rate(&self, entry: &DagEntry, card: Option<&CardState>) -> Option<String> {
        let placement = entry.targeted()?;
        let target = card.map(|card| card.tables.target())?;
        let row: Option<RateLimiterRow> = target.get(entry.uid().row());
        let desired = Some(bucket(self.bucket_of(entry, placement)));
        let dag: Option<DagRow> = target.get(entry.uid().row());
        if dag.is_none_or(|dag| dag.uid != entry.uid().raw()) {
            return Some(format!("its row in the target tables is {dag:?}"));
        }
        (row != desired).then(|| format!("its bucket is {row:?} and should be {desired:?}"))
    }

    fn check_dag(&self, entry: &DagEntry) -> Result<(), String> {
        let name = entry.name();
        let served = entry.targeted();
        if served.is_some_and(|placement| !self.contexts_resident(name, placement)) {
            return Err(format!("{name}: its rows lead where its state is not"));
        }
        let card = entry.card().and_then(|id| self.cards.get(id));
        let held = card.and_then(|card| card.ledger.held(name));
        if held.is_some() != (entry.placements().next().is_some()) {
            return Err(format!("{name}: it has a reservation and no placement, or the reverse"));
        }
        if let (Some(placement), None) = (entry.desired(), entry.previous())
            && let (Some(held), Some(desired)) = (held, self.reservation_of(placement))
            && *held != desired
        {
            return Err(format!("{name}: its reservation is not what its placement needs"));
        }
        if entry.desired().is_none() && !self.unscheduled.contains(name) {
            return Err(format!("{name}: it has no place and does not wait for one"));
        }
        if let Some(broken) = self.check_rate(entry, card) {
            return Err(format!("{name}: {broken}"));
        }
        if self.uids.free.contains(&entry.uid().row()) {
            return Err(format!("{name}: its UID's row is free"));
        }
        match entry.target() {
            Some(serial) if entry.placement(serial).is_none() => {
                Err(format!("{name}: its rows are of placement {serial}, which is gone"))
            }
            _ => Ok(()),
        }
    }
}
