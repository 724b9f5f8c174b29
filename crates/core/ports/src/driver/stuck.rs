//! Regions that let no packet go.
//!
//! A commit ends when the packets of the old tables are gone. Where the NTs of one region hang, it would never end, and with it no
//! other DAG's: one tenant's NT would take the whole card. The card names the regions that a commit waits for. One that is
//! still named after all the time that a full packet store takes to drain does not work; it is decoupled, so that nothing it drives is
//! believed, and reset, which gives back the credits and the places of the packets in it. The other regions serve on.
//!
//! Each region is reset once for a commit: where that does not help, it is not the NTs, and the commit fails.

use snic_domain::RegionId;
use snic_tables::CardReport;
use snic_tables::registers::{
    COMMIT_WAITS, REGION_CONTROL, REGION_COUNT, REGION_DECOUPLE, REGION_RESET, region,
};

use super::Context;
use crate::card::{Card, CardError};

/// Regions that were reset while one commit was waited for.
#[derive(Debug)]
pub(super) struct StuckRegions(u32);

impl StuckRegions {
    pub(super) const fn new() -> Self {
        Self(0)
    }

    /// Whether a region was reset.
    pub(super) const fn contains(&self, region: u8) -> bool {
        self.0 >> region & 1 == 1
    }

    /// Resets the regions that the commit under way waits for and that were not reset before; whether there were any. The
    /// deadline for the packets that remain then starts again.
    pub(super) fn reset(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<bool, CardError> {
        let regions = card.read(REGION_COUNT)?;
        let stuck = card.read(COMMIT_WAITS)? & !self.0;
        let is_stuck = |number: &u8| stuck >> number & 1 == 1;
        let numbers: Vec<u8> =
            (0..32).filter(|at| u32::from(*at) < regions).filter(is_stuck).collect();
        for &number in &numbers {
            card.write(region(number, REGION_CONTROL), REGION_DECOUPLE | REGION_RESET)?;
            self.0 |= 1 << number;
            context.statistics.regions_reset += 1;
            let waited = context.deadlines.commit;
            context.stuck.push(CardReport::Stuck { region: RegionId(number), waited });
        }
        Ok(!numbers.is_empty())
    }
}
