//! The fault when loads of a bitstream fail for good. The first line that holds counts:
//!
//! | what failed | the fault |
//! |---|---|
//! | a bitstream in two regions, with no success in between | the bitstream's |
//! | a tenant's bitstream, and no region holds the same bytes | the bitstream's: no tenant's file puts a region out of use |
//! | anything else | the region's |
//!
//! Where bitstreams of two tenants failed in one region, with no success there in between, it may be either's. Tenants could
//! act together, so the region is then tried with a bitstream that is none of theirs to break, where there is one
//! ([`Fault::Either`]). If that fails, the third line holds; if it is loaded, the region is cleared.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{BitstreamId, CardId, RegionId, TenantId};

/// A region of a card.
type RegionKey = (CardId, RegionId);

/// Failures since the last success.
#[derive(Debug, Default)]
pub(crate) struct FailureCounts {
    /// In which regions loads of a bitstream were given up since one last succeeded.
    places: BTreeMap<BitstreamId, BTreeSet<RegionKey>>,
    /// Owners of bitstreams that failed in a region since a load there last succeeded.
    tenants: BTreeMap<RegionKey, BTreeSet<TenantId>>,
}

/// The party at fault when a load fails for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The region's, as far as is known.
    Region,
    /// The bitstream's; these regions are cleared of it.
    Bitstream(BTreeSet<RegionKey>),
    /// The same, but the last region is to be tried with another bitstream.
    Either(BTreeSet<RegionKey>),
}

/// Evidence where a load was given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    /// A region holds the same bytes.
    pub is_held: bool,
    /// There is a bitstream that the region can be tried with.
    pub has_trial: bool,
}

impl FailureCounts {
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

    /// Loads of a bitstream are not tried any more in a region.
    pub fn given_up(
        &mut self,
        bitstream: &BitstreamId,
        card: &CardId,
        region: RegionId,
        Evidence { is_held, has_trial }: Evidence,
    ) -> Fault {
        let place = (card.clone(), region);
        let places = self.places.entry(bitstream.clone()).or_default();
        places.insert(place.clone());
        let failed_twice = places.len() >= 2;
        let owner = bitstream.owner().filter(|_| !is_held);
        let is_second = owner.clone().is_some_and(|owner| self.is_second(place, owner));
        if !failed_twice && (owner.is_none() || is_second && !has_trial) {
            return Fault::Region;
        }
        let places = self.places.remove(bitstream).expect("it was just looked at");
        match is_second {
            true => Fault::Either(places),
            false => Fault::Bitstream(places),
        }
    }

    /// A tenant's bitstream failed; says whether another tenant's did before.
    fn is_second(&mut self, place: RegionKey, owner: TenantId) -> bool {
        let tenants = self.tenants.entry(place).or_default();
        tenants.insert(owner);
        tenants.len() > 1
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

    fn places(regions: &[u8]) -> BTreeSet<RegionKey> {
        regions.iter().map(|region| (card(), RegionId(*region))).collect()
    }

    const UNKNOWN: Evidence = Evidence { is_held: false, has_trial: false };

    #[test]
    fn the_second_region_in_a_row_accuses_the_bitstream() {
        let mut suspects = FailureCounts::default();
        let [aes, lb] = ["aes", "lb"].map(id);
        let mut given_up = |bitstream: &BitstreamId, region| {
            suspects.given_up(bitstream, &card(), RegionId(region), UNKNOWN)
        };
        assert_eq!(given_up(&aes, 0), Fault::Region);
        assert_eq!(given_up(&aes, 0), Fault::Region, "the same region again says nothing new");
        assert_eq!(given_up(&lb, 1), Fault::Region);
        assert_eq!(given_up(&aes, 2), Fault::Bitstream(places(&[0, 2])));
        assert_eq!(given_up(&aes, 2), Fault::Region, "it starts over");
        suspects.loaded(&lb, &card(), RegionId(7));
        assert_eq!(suspects.given_up(&lb, &card(), RegionId(3), UNKNOWN), Fault::Region);
    }

    #[test]
    fn a_tenant_alone_accuses_no_region() {
        let mut suspects = FailureCounts::default();
        let fault = |suspects: &mut FailureCounts, bitstream: &str, is_held| {
            suspects.given_up(&id(bitstream), &card(), RegionId(0), Evidence { is_held, ..UNKNOWN })
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

    #[test]
    fn two_tenants_accuse_a_region_only_where_it_cannot_be_tried() {
        let failed = |suspects: &mut FailureCounts, bitstream: &str, has_trial| {
            let evidence = Evidence { has_trial, ..UNKNOWN };
            suspects.given_up(&id(bitstream), &card(), RegionId(0), evidence)
        };
        let mut suspects = FailureCounts::default();
        let rejected = Fault::Bitstream(places(&[0]));
        let tried = Fault::Either(places(&[0]));
        assert_eq!(failed(&mut suspects, "acme.a", true), rejected);
        assert_eq!(failed(&mut suspects, "beta.a", true), tried);
        assert_eq!(failed(&mut suspects, "acme.b", true), tried, "until it was tried");
        assert_eq!(failed(&mut suspects, "beta.b", false), Fault::Region);
        suspects.loaded(&id("lb"), &card(), RegionId(0));
        assert_eq!(failed(&mut suspects, "beta.c", true), rejected, "it was loaded");
        assert_eq!(failed(&mut suspects, "lb", true), Fault::Region, "it is the provider's");
    }
}
