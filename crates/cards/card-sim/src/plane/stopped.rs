//! Regions whose NTs let no packet go, and the regions that a commit waits for.

use snic_tables::DropCause;

use super::Plane;
use crate::region::{Content, Region};

impl Plane {
    /// A region was coupled, decoupled, reset, emptied or filled: what waits for it looks again.
    pub(crate) fn region_changed(&mut self, region: u8) {
        let at = usize::from(region);
        if !self.regions[at].stopped {
            for copy in std::mem::take(&mut self.regions[at].stuck) {
                self.lose(copy, DropCause::RegionUnavailable);
            }
        }
        self.serve(region);
    }

    /// The NTs of a region let no packet go any more.
    pub(crate) fn stop_region(&mut self, region: u8) {
        if let Some(region) = self.regions.get_mut(usize::from(region)) {
            region.stopped = region.content == Content::Loaded;
        }
    }

    /// Regions that a commit under way waits for, as the register says it.
    pub(crate) fn commit_waits(&self) -> u32 {
        let Some(bank) = self.banks.draining() else { return 0 };
        let waits =
            |(number, region): (usize, &Region)| u32::from(region.of_bank[bank] > 0) << number;
        self.regions.iter().enumerate().map(waits).sum()
    }
}
