//! Loads that could serve a part of a chain: prebuilt bitstreams, and the regions that they fit.
//!
//! Regions of one kind and size for which the same bitstreams have images are interchangeable, so only the first of
//! them is tried; only bitstreams that the DAG's tenant may load count. A victim whose content could itself serve the
//! DAG is in a class of its own.

use std::cmp::Reverse;

use smallvec::SmallVec;
use snic_domain::limits::REGIONS_MAX;
use snic_domain::{Area, Bitstream, ByteSize, RegionId, RegionKind, RegionProfile};

use crate::catalogue::{PhysicalChain, PlanCatalogue};
use crate::ledger::Ledger;
use crate::nt_key::NtKey;
use crate::plan::Job;
use crate::view::{View, fresh_bandwidth, fresh_capacity};

/// Interchangeable regions that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Class {
    kind: RegionKind,
    area: Area,
    bitstream_max: ByteSize,
    /// Whether they hold a bitstream that no DAG uses.
    pub(crate) victim: bool,
    /// Whether their content could serve the DAG.
    useful: bool,
    /// Their groups by the images that there are: of the provider, and of the tenant.
    group: [u8; 2],
    /// A bit set.
    pub(crate) regions: u32,
}

impl Class {
    /// Whether its content could serve the DAG; such a class has one region. The content of all
    /// others is of no use to it.
    pub(crate) const fn is_useful(&self) -> bool {
        self.useful
    }

    /// Whether a chain could be loaded if it had an image for these regions, and it has none.
    pub(crate) fn lacks_image_of(&self, chain: &PhysicalChain) -> bool {
        chain.regions & self.regions == 0 && fits(self.kind, self.area, chain)
    }

    /// Whether the same chains can be loaded into it as into another one.
    pub(crate) fn takes_what(&self, other: &Self) -> bool {
        let of = |class: &Self| (class.kind, class.area, class.bitstream_max, class.group);
        of(self) == of(other)
    }

    pub(crate) fn takes(&self, chain: &PhysicalChain) -> bool {
        chain.has_images_for(self.regions, self.bitstream_max) && fits(self.kind, self.area, chain)
    }
}

/// Whether a chain can be loaded into a region: it is of the right kind, large enough, and one that the
/// bitstream has an image for.
pub(crate) fn fits_region(id: RegionId, region: &RegionProfile, chain: &PhysicalChain) -> bool {
    chain.has_images_for(1 << id.0, region.bitstream_max) && fits(region.kind, region.area, chain)
}

/// The bitstreams that a region can be loaded with, whoever owns them, by id; none of a region that the card does not
/// have. Time O(bitstreams).
pub fn loadable_into<'a>(
    ledger: &'a Ledger,
    catalogue: &'a PlanCatalogue,
    id: RegionId,
) -> impl Iterator<Item = &'a Bitstream> {
    let profile = ledger.profile();
    let region = profile.regions.get(id.index());
    let fits = move |chain: &&PhysicalChain| {
        chain.bitstream.card_model == profile.model
            && region.is_some_and(|region| fits_region(id, region, chain))
    };
    catalogue.chains().filter(fits).map(|chain| &chain.bitstream)
}

fn fits(kind: RegionKind, area: Area, chain: &PhysicalChain) -> bool {
    kind == chain.bitstream.region_kind && chain.area.is_some_and(|needed| area.fits(needed))
}

/// The regions in a bit set, in ascending order.
pub(crate) fn regions_in(mut regions: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = regions.trailing_zeros() as usize;
        regions &= regions.wrapping_sub(1);
        (first < REGIONS_MAX).then_some(first)
    })
}

/// The classes of the regions that can be loaded, a bit set: free ones before victims, useful victims last.
pub(crate) fn classes(job: &Job<'_>, loadable: u32) -> SmallVec<[Class; 4]> {
    let mut classes: SmallVec<[Class; 4]> = SmallVec::new();
    let groups = job.catalogue.region_groups(&job.ledger.profile().model, job.tenant());
    for region in regions_in(loadable) {
        let id = RegionId(region as u8);
        let Some(of) = job.ledger.profile().region(id) else { continue };
        let content = job.ledger.chain(id);
        let useful = content.is_some_and(|chain| chain.mask & job.mask != 0);
        let group = groups.map(|groups| groups.map_or(0, |groups| groups.of(id)));
        let alike = classes.iter_mut().find(|class| {
            (class.kind, class.area, class.bitstream_max) == (of.kind, of.area, of.bitstream_max)
                && class.victim == content.is_some()
                && class.group == group
                && !(class.useful || useful)
        });
        match alike {
            Some(class) => class.regions |= 1 << region,
            None => classes.push(Class {
                kind: of.kind,
                area: of.area,
                bitstream_max: of.bitstream_max,
                victim: content.is_some(),
                useful,
                group,
                regions: 1 << region,
            }),
        }
    }
    classes.sort_by_key(|class| (class.victim, class.useful, class.regions.trailing_zeros()));
    classes
}

/// A bitstream that could be loaded into regions of a class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) chain: &'a PhysicalChain,
    pub(crate) class: usize,
    pub(crate) victim: bool,
    /// Area left unused, in thousandths.
    pub(crate) unused: u32,
    /// Number of nodes of the DAG that have their NT in it.
    covers: usize,
    /// Bandwidth of the requested NTs that it serves, in kbit/s.
    pub(crate) capacity: u64,
}

/// Whether the job's tenant may load this bitstream on this card.
pub(crate) fn is_loadable(job: &Job<'_>, chain: &PhysicalChain) -> bool {
    chain.area.is_some()
        && chain.is_loadable_by(job.tenant())
        && chain.bitstream.card_model == job.ledger.profile().model
}

/// The bitstreams that contain `keys` and may be loaded, by id.
pub(crate) fn bitstreams<'a>(
    job: &Job<'a>,
    keys: &[NtKey],
) -> impl Iterator<Item = &'a PhysicalChain> {
    let holders = |key: &NtKey| job.catalogue.loadable_holders(*key, job.tenant());
    let rarest = keys.iter().map(holders).min_by_key(ExactSizeIterator::len);
    let mask = keys.iter().fold(0, |mask, key| mask | key.bit());
    rarest
        .into_iter()
        .flatten()
        .filter(move |chain: &&PhysicalChain| chain.mask & mask == mask && is_loadable(job, chain))
        .filter(move |chain| chain.holds(keys))
}

/// All loads that could serve `keys`, the best first: those that cover most nodes of the DAG, free
/// regions before victims, least unused area, largest capacity, id.
pub(crate) fn candidates<'a>(view: &View<'a>, keys: &[NtKey]) -> Vec<Candidate<'a>> {
    let mut found: Vec<Candidate<'a>> = Vec::new();
    for chain in bitstreams(view.job, keys) {
        let capacity = match keys {
            [key] => fresh_bandwidth(chain, *key),
            _ => fresh_capacity(chain, keys),
        };
        if capacity == 0 {
            continue;
        }
        let covers = view.job.keys.iter().filter(|k| chain.has(**k)).count();
        for (index, class) in view.classes.iter().enumerate().filter(|(_, c)| c.takes(chain)) {
            let (victim, unused) = (class.victim, unused_permille(class.area, chain));
            found.push(Candidate { chain, class: index, victim, unused, covers, capacity });
        }
    }
    // The sort is stable: bitstreams come by id, classes in their order.
    found.sort_by_key(|c| (Reverse(c.covers), c.victim, c.unused, Reverse(c.capacity)));
    found
}

/// Part of a region that a chain leaves unused, in thousandths.
pub(crate) fn unused_permille(region: Area, chain: &PhysicalChain) -> u32 {
    1_000u32.saturating_sub(region.fill_permille(chain.area.unwrap_or_default()))
}

/// The area of a region of the job's card.
pub(crate) fn area_of(job: &Job<'_>, region: RegionId) -> Area {
    job.ledger.profile().region(region).map(|region| region.area).unwrap_or_default()
}
