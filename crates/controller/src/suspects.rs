//! Whose fault it is when loads of a bitstream fail for good: the region's, until another region has
//! failed with the same bitstream; then the bitstream's.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{BitstreamId, CardId, RegionId};

/// In which regions loads of a bitstream were given up since one last succeeded.
#[derive(Debug, Default)]
pub(crate) struct Suspects(BTreeMap<BitstreamId, BTreeSet<(CardId, RegionId)>>);

/// Whose fault it is that a load failed for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The region's, as far as is known.
    Region,
    /// The bitstream's; these regions are cleared of it.
    Bitstream(BTreeSet<(CardId, RegionId)>),
}

impl Suspects {
    /// A load of a bitstream has succeeded.
    pub fn loaded(&mut self, bitstream: &BitstreamId) {
        self.0.remove(bitstream);
    }

    /// A card was taken away: what failed there says nothing any more.
    pub fn forget(&mut self, card: &CardId) {
        self.0.values_mut().for_each(|regions| regions.retain(|(of, _)| of != card));
        self.0.retain(|_, regions| !regions.is_empty());
    }

    /// Loads of a bitstream are not tried any more in a region.
    pub fn given_up(&mut self, bitstream: &BitstreamId, card: &CardId, region: RegionId) -> Fault {
        let regions = self.0.entry(bitstream.clone()).or_default();
        regions.insert((card.clone(), region));
        if regions.len() < 2 {
            return Fault::Region;
        }
        Fault::Bitstream(self.0.remove(bitstream).expect("it was just looked at"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_region_in_a_row_accuses_the_bitstream() {
        let (card, mut suspects) = (CardId::new("card0").expect("a label"), Suspects::default());
        let [aes, lb] = ["aes", "lb"].map(|id| BitstreamId::new(id).expect("a label"));
        let mut given_up =
            |bitstream: &BitstreamId, region| suspects.given_up(bitstream, &card, RegionId(region));
        assert_eq!(given_up(&aes, 0), Fault::Region);
        assert_eq!(given_up(&aes, 0), Fault::Region, "the same region again says nothing new");
        assert_eq!(given_up(&lb, 1), Fault::Region);
        let both = BTreeSet::from([0, 2].map(|region| (card.clone(), RegionId(region))));
        assert_eq!(given_up(&aes, 2), Fault::Bitstream(both));
        assert_eq!(given_up(&aes, 2), Fault::Region, "it starts over");
        suspects.loaded(&lb);
        assert_eq!(suspects.given_up(&lb, &card, RegionId(3)), Fault::Region);
    }
}
