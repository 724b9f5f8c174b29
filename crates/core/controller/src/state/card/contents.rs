//! The desired contents of a card's regions, and the loads that follow from them.

use std::time::Duration;

use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{Bitstream, BitstreamId, DeviceReading, RegionId, RegionKind, Timestamp};
use snic_planner::{PlanCatalogue, RegionCondition};
use snic_tables::{CreditRow, LoadFailure, RegionRow, Ticket};

use super::{CardMachine, LoadEnded, ObservedContent, Region};
use crate::protocol::{ControllerSettings, DevicePolicy};
use crate::state::device_health::DeviceNews;
use crate::state::nt_numbers::NtNumbers;
use crate::store::records::{InvalidRecord, Record, RecordKey, RegionRecord};
use crate::store::tx::Tx;

/// Inputs of a card that it does not decide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Environment<'a> {
    /// Bitstreams to load.
    pub catalogue: &'a PlanCatalogue,
    /// Numbers of NT types on cards.
    pub numbers: &'a NtNumbers,
    /// Settings of packet scheduling.
    pub settings: &'a ControllerSettings,
}

impl CardMachine {
    /// A region as stored, with the bitstream that it is to hold, where that exists.
    ///
    /// # Errors
    /// The card has no such region, or the region cannot hold that.
    pub fn restore_region(
        &mut self,
        region: RegionId,
        mut record: RegionRecord,
        content: Option<&Bitstream>,
        catalogue: &PlanCatalogue,
    ) -> Result<(), InvalidRecord> {
        let wrong = |reason: &str| {
            InvalidRecord::contradiction(RecordKey::Region(self.id.clone(), region), reason)
        };
        if self.region(region).is_none() {
            return Err(wrong("the card has no such region"));
        }
        if content.is_none() {
            record.bitstream = None;
        }
        let set = self.ledger.set_content(region, content, catalogue);
        set.map_err(|error| wrong(&error.to_string()))?;
        self.regions.restore(region, record, content);
        self.refresh_condition(region);
        Ok(())
    }

    /// Stores what is to be in a region.
    pub fn store_region(&self, tx: &mut Tx, region: RegionId) {
        let entry = self.region(region).expect("only regions of this card are stored");
        tx.put(Record::Region(self.id.clone(), region, entry.record().clone()));
    }

    /// Says what a region is to hold from now on.
    ///
    /// # Panics
    /// The region cannot hold that, or is used.
    pub fn set_content(
        &mut self,
        tx: &mut Tx,
        region: RegionId,
        content: Option<&Bitstream>,
        environment: Environment<'_>,
    ) {
        let Environment { catalogue, numbers, settings } = environment;
        let desired = content.map(|bitstream| &bitstream.id);
        if self.region(region).and_then(Region::bitstream) == desired {
            return;
        }
        let fits = self.ledger.set_content(region, content, catalogue);
        debug_assert!(fits.is_ok(), "the content of a region in use was changed: {fits:?}");
        self.regions.set_desired(region, content, tx.now());
        self.tables.clear_region(region);
        if self.region(region).is_some_and(Region::is_loaded) {
            self.put_region(region, settings, numbers);
        }
        self.store_region(tx, region);
    }

    /// Writes the rows of a region that was loaded.
    pub fn put_region(
        &mut self,
        region: RegionId,
        settings: &ControllerSettings,
        numbers: &NtNumbers,
    ) {
        let content = self.ledger.content(region).expect("a region that is loaded has a content");
        let mut nts = [0; CHAIN_SLOTS_MAX];
        for (slot, nt) in content.nts.iter().enumerate().take(nts.len()) {
            nts[slot] = numbers.of(nt).0;
        }
        let row = RegionRow {
            user_nt: content.region_kind == RegionKind::UserNt,
            bitstream_tag: content
                .digest_for(region)
                .expect("what a region holds has an image for it")
                .words()[0],
            nts,
        };
        let at = u16::from(region.0);
        let initial = self.ledger.credits(region);
        let credits = CreditRow { initial, reservation: settings.scheduling.reservation };
        self.tables.put(at, &row);
        self.tables.put(at, &credits);
    }

    /// Takes over other images of the desired content, where they are the same one for this region.
    pub fn refresh_images(
        &mut self,
        region: RegionId,
        bitstream: &Bitstream,
        catalogue: &PlanCatalogue,
    ) {
        let fits = self.ledger.set_content(region, Some(bitstream), catalogue);
        debug_assert!(fits.is_ok(), "the image of a region in use was removed: {fits:?}");
    }

    /// The region is to be loaded though nobody uses it.
    pub fn keep_spare(&mut self, region: RegionId) {
        self.regions.keep_spare(region);
    }

    /// Nothing new is placed in a region, or it is let in again.
    pub fn set_cordoned(&mut self, tx: &mut Tx, region: RegionId, cordoned: bool) {
        self.regions.set_cordoned(region, cordoned);
        self.refresh_condition(region);
        self.store_region(tx, region);
    }

    /// A region is faulty for this reason, or is not.
    pub fn set_faulty(&mut self, region: RegionId, reason: Option<String>, now: Timestamp) {
        self.regions.set_faulty(region, reason, now);
        self.refresh_condition(region);
    }

    /// An operator gives a region another chance: the stalls that it waited for count no more.
    pub fn forgive_stalls(&mut self, region: RegionId) {
        self.regions.forgive_stalls(region);
    }

    /// Distrusts a region's content: a DAG that needs it has it loaded again.
    pub fn distrust(&mut self, region: RegionId) {
        self.regions.distrust(region);
    }

    /// A region's NTs let no packet go, and were reset.
    pub fn region_stalled(
        &mut self,
        now: Timestamp,
        region: RegionId,
        waited: Duration,
        settings: &ControllerSettings,
    ) {
        self.regions.stalled(now, region, waited, settings);
        self.contexts.not_fresh(region);
    }

    /// Its device was read: where that says that it is not fit, nothing new is placed in any region.
    pub fn read_device(
        &mut self,
        reading: DeviceReading,
        policy: &DevicePolicy,
        now: Timestamp,
    ) -> DeviceNews {
        let news = self.device.read(reading, policy, now);
        if news.fitness_changed {
            self.region_ids().for_each(|region| self.refresh_condition(region));
        }
        news
    }

    /// Tells the ledger whether a region may be planned with.
    fn refresh_condition(&mut self, region: RegionId) {
        let condition = match self.region(region).map(Region::condition) {
            Some(RegionCondition::Usable) if !self.device.is_fit() => RegionCondition::Cordoned,
            condition => condition.unwrap_or(RegionCondition::Unknown),
        };
        self.ledger.set_condition(region, condition);
    }

    /// The region whose load is due: no rows lead there, and nothing in it is being saved.
    pub fn next_load(&self, now: Timestamp) -> Option<RegionId> {
        let is_used = |region: RegionId| !self.ledger.is_unused(region);
        let free = || {
            let routed = self.tables.routed();
            move |region: RegionId| routed >> region.0 & 1 == 0 && !self.contexts.holds_back(region)
        };
        self.regions.next_load(now, is_used, free)
    }

    /// Begins the load of what a region is to hold.
    pub fn begin_load(&mut self, tx: &mut Tx, region: RegionId, ticket: Ticket) {
        let command = self.regions.begin(region, ticket);
        tx.card(self.id.clone(), command);
    }

    /// It answered to a load.
    pub fn load_ended(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        result: Result<Duration, LoadFailure>,
        settings: &ControllerSettings,
    ) -> LoadEnded {
        let ended = self.regions.ended(now, ticket, result, settings);
        match &ended {
            LoadEnded::Stale => {}
            LoadEnded::Loaded(load) => self.contexts.loaded(load.region),
            LoadEnded::Failed(load)
            | LoadEnded::Unusable { load, .. }
            | LoadEnded::GivenUp { load, .. } => {
                self.contexts.not_fresh(load.region);
            }
        }
        ended
    }

    /// A chain of which every loaded region is used, and a region like those that holds nothing: the
    /// first of these chains that is so. `None` too while anybody waits for a load.
    pub fn missing_spare<'a>(
        &self,
        chains: impl IntoIterator<Item = &'a BitstreamId>,
    ) -> Option<(BitstreamId, RegionId)> {
        let waits = |region: RegionId| self.region(region).is_some_and(Region::is_waiting);
        if !self.is_ready() || self.regions.loading().is_some() || self.region_ids().any(waits) {
            return None;
        }
        let missing = |bitstream: &BitstreamId| {
            let holds = |region: &RegionId| {
                self.region(*region).is_some_and(|e| e.bitstream() == Some(bitstream))
            };
            let like = self.region_ids().find(holds)?;
            let spare = self.region_ids().filter(holds).any(|region| self.ledger.is_unused(region));
            (!spare).then(|| self.free_like(like))?.map(|region| (bitstream.clone(), region))
        };
        chains.into_iter().find_map(missing)
    }

    /// Whether there is a region that nobody uses.
    pub fn has_unused_region(&self) -> bool {
        self.region_ids().any(|region| self.ledger.is_unused(region))
    }

    /// The first region that holds nothing, may be used, is as large as another one, and can hold the same
    /// bitstream.
    fn free_like(&self, other: RegionId) -> Option<RegionId> {
        let profile = |region: RegionId| self.profile.regions.get(region.index());
        let content = self.ledger.content(other);
        let fits = |region: &RegionId| content.is_none_or(|of| of.fits_region(*region));
        let is_free = |region: &RegionId| {
            self.region(*region).is_some_and(|entry| {
                entry.bitstream().is_none()
                    && entry.observed() == ObservedContent::Empty
                    && self.ledger.condition(*region) == RegionCondition::Usable
            })
        };
        let mut free = self.region_ids().filter(is_free).filter(fits);
        free.find(|region| profile(*region) == profile(other))
    }
}
