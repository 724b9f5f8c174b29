//! Loads that could serve a part of a chain: prebuilt bitstreams, and the regions that they fit.
//!
//! Regions of one kind and size for which the same bitstreams have images are interchangeable, so only the first of
//! them is tried; only bitstreams that the DAG's tenant may load count. A victim whose content could itself serve the
//! DAG is in a class of its own.

use std::cmp::Reverse;

use snic_domain::{Area, Bitstream, RegionId};

use crate::catalogue::{PhysicalChain, PlanCatalogue};
use crate::classes::fits_region;
use crate::job::Job;
use crate::ledger::Ledger;
use crate::nt_key::NtKey;
use crate::view::{View, fresh_bandwidth, fresh_capacity};

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

/// The result of trying sets of loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CoverResult {
    /// A set was found and accepted.
    Found,
    /// No set exists, or none was accepted.
    None,
    /// The step budget is used up.
    GaveUp,
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
            [key] => fresh_bandwidth(chain, *key, &view.job.work),
            _ => fresh_capacity(chain, keys, &view.job.work),
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
