//! What operators do with regions and cards: cordon, drain, undrain, reset.

use snic_domain::{CardId, Dag, DagName, OperationId, RegionId};

use crate::card::Region;
use crate::placement::Handover;
use crate::protocol::{ControlError, Reply, Work};
use crate::state::Controller;
use crate::tx::Tx;

impl Controller {
    fn region_entry(&self, id: &CardId, region: RegionId) -> Result<&Region, ControlError> {
        self.cards
            .get(id)
            .and_then(|card| card.region(region))
            .ok_or_else(|| ControlError::not_found(region_name(id, region)))
    }

    /// The operation that drains a region, if one does.
    fn pending_drain(&self, id: &CardId, region: RegionId) -> Option<OperationId> {
        let of = |(_, card, drained): &(_, &CardId, RegionId)| *card == id && *drained == region;
        self.pending_drains().find(of).map(|(operation, ..)| operation.clone())
    }

    /// Nothing new is placed in the region; what is there moves where it can, make before break.
    pub(crate) fn drain_region(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        region: RegionId,
    ) -> Result<Reply, ControlError> {
        self.region_entry(id, region)?;
        if let Some(operation) = self.pending_drain(id, region) {
            return Ok(self.operation_reply(&operation));
        }
        self.cordon(tx, id, region, true);
        let work = Work::DrainRegion(id.clone(), region);
        let operation = self.begin_operation(tx, work);
        self.move_away(tx, id, region);
        self.emit_region(tx, id, region);
        Ok(self.operation_reply(&operation))
    }

    /// One region of a card, or all. None of a card that is not known.
    pub(crate) fn regions_meant(
        &self,
        id: &CardId,
        region: Option<RegionId>,
    ) -> impl Iterator<Item = RegionId> + use<> {
        let count = self.cards.get(id).map_or(0, |card| card.regions.len());
        let all = (0..count).filter_map(|n| u8::try_from(n).ok()).map(RegionId);
        all.filter(move |found| region.is_none_or(|region| region == *found))
    }

    fn check_card(&self, id: &CardId) -> Result<(), ControlError> {
        let absent = || ControlError::not_found(format!("cards/{id}"));
        self.cards.get(id).map(|_| ()).ok_or_else(absent)
    }

    /// Nothing new is placed on the card; what it does not serve yet goes to other cards. What it
    /// serves stays until it is deleted: its packets come in by this card.
    pub(crate) fn drain_card(&mut self, tx: &mut Tx, id: &CardId) -> Result<Reply, ControlError> {
        self.check_card(id)?;
        let mut pending = self.operations.drains();
        let same = pending.find(|(_, card, of)| *card == id && of.is_none());
        if let Some((operation, ..)) = same {
            return Ok(self.operation_reply(operation));
        }
        drop(pending);
        let regions: Vec<RegionId> = self.regions_meant(id, None).collect();
        for region in &regions {
            self.cordon(tx, id, *region, true);
        }
        let operation = self.begin_operation(tx, Work::DrainCard(id.clone()));
        for region in regions {
            self.move_away(tx, id, region);
            self.emit_region(tx, id, region);
        }
        Ok(self.operation_reply(&operation))
    }

    /// Places nothing new in regions, or lets them be used again.
    pub(crate) fn cordon_regions(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        region: Option<RegionId>,
        on: bool,
    ) -> Result<Reply, ControlError> {
        self.check_card(id)?;
        if let Some(region) = region {
            self.region_entry(id, region)?;
        }
        let meant: Vec<RegionId> = self.regions_meant(id, region).collect();
        for region in meant {
            if on {
                self.cordon(tx, id, region, true);
                self.emit_region(tx, id, region);
            } else {
                self.undrain_region(tx, id, region)?;
            }
        }
        Ok(Reply::Done)
    }

    /// Moves the DAGs of a region elsewhere, where there is room.
    pub(crate) fn move_away(&mut self, tx: &mut Tx, id: &CardId, region: RegionId) {
        let users: Vec<DagName> = self.cards[id].ledger.users(region).cloned().collect();
        for name in users {
            self.migrate(tx, &name, region);
        }
    }

    /// Something was freed, or an update is done: more DAGs may leave the regions that are drained.
    /// Time O(drains + plans for the DAGs still there).
    pub(crate) fn go_on_draining(&mut self, tx: &mut Tx) {
        let drains: Vec<(CardId, RegionId)> =
            self.pending_drains().map(|(_, id, region)| (id.clone(), region)).collect();
        for (id, region) in drains {
            self.move_away(tx, &id, region);
        }
    }

    /// Moves one DAG out of a region; without a place elsewhere it stays. A DAG that is being
    /// updated is left until the update is done.
    fn migrate(&mut self, tx: &mut Tx, name: &DagName, region: RegionId) {
        let entry = self.dags.get(name).expect("who uses a region exists");
        let Some(placement) = entry.desired().cloned() else { return };
        if entry.previous().is_some() || !placement.mapping.uses(region) {
            return;
        }
        let serves = entry.active() == Some(placement.serial);
        // What is lent to it is not moved: the loop lends again.
        let dag = Dag::new(placement.spec.clone()).expect("it was checked when it was admitted");
        let previous = serves.then_some(&placement);
        let Ok(choice) = self.choose(name, &dag, previous) else { return };
        // Without rows for it the DAG stays.
        if self.assign(tx, name, choice, Handover::MakeBeforeBreak).is_ok() {
            self.store_dag(tx, name);
        }
    }

    pub(crate) fn undrain_region(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        region: RegionId,
    ) -> Result<Reply, ControlError> {
        self.region_entry(id, region)?;
        if let Some(operation) = self.pending_drain(id, region) {
            let resource = region_name(id, region);
            self.end_operation(tx, &operation, Err(ControlError::Superseded { resource }));
        }
        self.uncordon(tx, id, region);
        self.region_reply(id, region)
    }

    pub(crate) fn uncordon(&mut self, tx: &mut Tx, id: &CardId, region: RegionId) {
        self.cordon(tx, id, region, false);
        self.capacity_freed = true;
        self.emit_region(tx, id, region);
    }

    fn cordon(&mut self, tx: &mut Tx, id: &CardId, region: RegionId, cordoned: bool) {
        let card = self.cards.get_mut(id).expect("a card that is not known was refused");
        card.regions.set_cordoned(region, cordoned);
        self.refresh_condition(id, region);
        self.store_region(tx, id, region);
    }

    /// Gives a faulty region another chance; refused while DAGs are in it.
    pub(crate) fn reset_region(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        region: RegionId,
    ) -> Result<Reply, ControlError> {
        self.region_entry(id, region)?;
        if !self.cards[id].ledger.is_unused(region) {
            let text = "DAGs are in it; drain it first";
            return Err(ControlError::precondition(region_name(id, region), text));
        }
        self.set_faulty(id, region, None);
        self.set_content(tx, id, region, None);
        self.loosen(id, [region]);
        self.store_region(tx, id, region);
        self.capacity_freed = true;
        let card = self.cards.get_mut(id).expect("a card that is not known was refused");
        card.regions.distrust(region);
        self.settle_guests(tx, id, region);
        let operation = self.begin_operation(tx, Work::ResetRegion(id.clone(), region));
        self.end_operation(tx, &operation, Ok(()));
        self.emit_region(tx, id, region);
        Ok(self.operation_reply(&operation))
    }

    fn region_reply(&self, id: &CardId, region: RegionId) -> Result<Reply, ControlError> {
        let view = self.region_view(id, region);
        view.map(Reply::Region).ok_or_else(|| ControlError::not_found(region_name(id, region)))
    }
}

pub(crate) fn region_name(id: &CardId, region: RegionId) -> String {
    format!("cards/{id}/regions/{region}")
}
