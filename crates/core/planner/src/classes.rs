//! Regions that can be loaded, in classes of interchangeable ones.

use smallvec::SmallVec;
use snic_domain::limits::REGIONS_MAX;
use snic_domain::{Area, ByteSize, RegionId, RegionKind, RegionProfile};

use crate::catalogue::PhysicalChain;
use crate::job::Job;

/// Interchangeable regions that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Class {
    kind: RegionKind,
    pub(crate) area: Area,
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
