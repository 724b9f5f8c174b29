//! Whose fault it is when loads of a bitstream fail for good. The first line that holds counts:
//!
//! | what failed | the fault |
//! |---|---|
//! | a bitstream in two regions, with no success in between | the bitstream's |
//! | bitstreams of two tenants in one region, with no success there in between | the region's |
//! | a tenant's bitstream, and no region holds the same bytes | the bitstream's: no tenant's file puts a region out of use |
//! | anything else | the region's |

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{BitstreamId, CardId, RegionId, TenantId};

/// A region of a card.
type Place = (CardId, RegionId);

/// What failed since the last success.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// In which regions loads of a bitstream were given up since one last succeeded.
    places: BTreeMap<BitstreamId, BTreeSet<Place>>,
    /// Whose bitstreams failed in a region since a load there last succeeded.
    tenants: BTreeMap<Place, BTreeSet<TenantId>>,
}

/// Whose fault it is that a load failed for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The region's, as far as is known.
    Region,
    /// The bitstream's; these regions are cleared of it.
    Bitstream(BTreeSet<Place>),
}

impl Suspects {
    /// A load of a bitstream has succeeded.
    pub fn loaded(&mut self, bitstream: &BitstreamId, card: &CardId, region: RegionId) {
        self.places.remove(bitstream);
        self.tenants.remove(&(card.clone(), region));
    }

    /// A card was taken away: what failed there says nothing any more.
    pub fn forget(&mut self, card: &CardId) {
        self.places.values_mut().for_each(|places| places.retain(|(of, _)| of != card));
        self.places.retain(|_, places| !places.is_empty());
        self.tenants.retain(|(of, _), _| of != card);
    }

    /// Loads of a bitstream are not tried any more in a region. `is_held` says whether a region holds the same bytes.
    pub fn given_up(
        &mut self,
        bitstream: &BitstreamId,
        card: &CardId,
        region: RegionId,
        is_held: bool,
    ) -> Fault {
        let place = (card.clone(), region);
        let places = self.places.entry(bitstream.clone()).or_default();
        places.insert(place.clone());
        let failed_twice = places.len() >= 2;
        let is_tenants =
            !is_held && bitstream.owner().is_some_and(|owner| self.is_first(place, owner));
        if !failed_twice && !is_tenants {
            return Fault::Region;
        }
        Fault::Bitstream(self.places.remove(bitstream).expect("it was just looked at"))
    }

    /// A tenant's bitstream failed; says whether no other tenant's did before.
    fn is_first(&mut self, place: Place, owner: TenantId) -> bool {
        let tenants = self.tenants.entry(place).or_default();
        tenants.insert(owner);
        tenants.len() < 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: &str) -> BitstreamId {
        BitstreamId::new(id).expect("a label")
    }

    fn card() -> CardId {
        CardId::new("card0").expect("a label")
    }

    fn places(regions: &[u8]) -> BTreeSet<Place> {
        regions.iter().map(|region| (card(), RegionId(*region))).collect()
    }

    #[test]
    fn the_second_region_in_a_row_accuses_the_bitstream() {
        let mut suspects = Suspects::default();
        let [aes, lb] = ["aes", "lb"].map(id);
        let mut given_up = |bitstream: &BitstreamId, region| {
            suspects.given_up(bitstream, &card(), RegionId(region), false)
        };
        assert_eq!(given_up(&aes, 0), Fault::Region);
        assert_eq!(given_up(&aes, 0), Fault::Region, "the same region again says nothing new");
        assert_eq!(given_up(&lb, 1), Fault::Region);
        assert_eq!(given_up(&aes, 2), Fault::Bitstream(places(&[0, 2])));
        assert_eq!(given_up(&aes, 2), Fault::Region, "it starts over");
        suspects.loaded(&lb, &card(), RegionId(7));
        assert_eq!(suspects.given_up(&lb, &card(), RegionId(3), false), Fault::Region);
    }

    #[test]
    fn a_tenant_alone_accuses_no_region() {
        let mut suspects = Suspects::default();
        let fault = |suspects: &mut Suspects, bitstream: &str, is_held| {
            suspects.given_up(&id(bitstream), &card(), RegionId(0), is_held)
        };
        for bitstream in ["acme.a", "acme.b", "acme.a"] {
            assert_eq!(fault(&mut suspects, bitstream, false), Fault::Bitstream(places(&[0])));
        }
        assert_eq!(fault(&mut suspects, "acme.a", true), Fault::Region, "it works elsewhere");
        assert_eq!(fault(&mut suspects, "beta.a", false), Fault::Region, "it is the second tenant");
        suspects.loaded(&id("lb"), &card(), RegionId(0));
        assert_eq!(fault(&mut suspects, "beta.b", false), Fault::Bitstream(places(&[0])));
        suspects.forget(&card());
        assert_eq!(fault(&mut suspects, "acme.c", false), Fault::Bitstream(places(&[0])));
    }
}
