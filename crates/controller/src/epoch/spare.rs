//! One region more than is used, for chains that were scaled out: what was needed at once lately will
//! be needed at once again, and a load that jumps gives a trend no time. Only regions that hold
//! nothing are loaded for it, and only while nobody waits for a load; the chain is there as a victim.

use snic_domain::{BitstreamId, CardId, RegionId};
use snic_planner::RegionCondition;

use crate::card::{CardState, ConnectionState, ObservedContent, Region};
use crate::protocol::LogKind;
use crate::state::Controller;
use crate::tx::{About, Tx};

impl Controller {
    /// Has the next spare loaded, if one is missing and there is a place. Time O(chains × regions).
    pub(super) fn keep_spare(&mut self, tx: &mut Tx, id: &CardId) {
        let policy = self.settings.autoscaling;
        if !(policy.enabled && policy.spare) {
            return;
        }
        let Some((bitstream, region)) = self.cards.get(id).and_then(CardState::missing_spare)
        else {
            return;
        };
        self.set_content(tx, id, region, Some(&bitstream));
        let card = self.cards.get_mut(id).expect("it misses a spare");
        card.regions.keep_spare(region);
        let text =
            format!("{bitstream} was scaled out: one region more than is used is kept loaded");
        let about = About { regions: vec![region], ..About::card(id) };
        tx.note(LogKind::PreLaunch, about, text);
        self.emit_region(tx, id, region);
    }
}

impl CardState {
    /// A chain that was scaled out and of which every loaded region is used, and a region like those
    /// that holds nothing; `None` too while anybody waits for a load.
    fn missing_spare(&self) -> Option<(BitstreamId, RegionId)> {
        let waits = |region: RegionId| self.region(region).is_some_and(Region::is_waiting);
        if self.connection != ConnectionState::Ready
            || self.regions.loading().is_some()
            || self.region_ids().any(waits)
        {
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
        self.epoch.scaled.iter().find_map(missing)
    }

    /// The first region that holds nothing, may be used, and is as large as another one.
    fn free_like(&self, other: RegionId) -> Option<RegionId> {
        let profile = |region: RegionId| self.profile.regions.get(region.index());
        let is_free = |region: &RegionId| {
            self.region(*region).is_some_and(|entry| {
                entry.bitstream().is_none()
                    && entry.observed() == ObservedContent::Empty
                    && entry.condition() == RegionCondition::Usable
            })
        };
        self.region_ids().filter(is_free).find(|region| profile(*region) == profile(other))
    }
}
