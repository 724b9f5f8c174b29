//! Recommends bitstreams to build: sequences of NTs that do not exist yet, with the gain of each.
//!
//! Candidates are the chains of rejected DAGs, chains that are cut, and merged pairs of chains in regions
//! that are less than half full. Each is tried as if it existed: rejected DAGs are planned again, and the
//! placed DAGs are consolidated again. The recommendation states the gain over the current catalogue.

use std::collections::BTreeSet;

use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{
    Area, Bitstream, BitstreamId, ByteSize, Dag, DagName, Digest, NtTypeId, RegionId, RegionImages,
    RegionKind,
};

use crate::optimize::{Budget, Consolidation, Resident, optimize};
use crate::plan::plan_silently;
use crate::{Ledger, PlanCatalogue, PlanRequest};

/// Bitstreams that fill less of their region than this are reported, in thousandths (SuperNIC, 4.1).
const UNDERFILLED_PERMILLE: u32 = 500;
/// Most sequences that are tried; each costs as much as a consolidation.
const CANDIDATES_MAX: usize = 24;

/// A DAG that was rejected because it is infeasible.
#[derive(Debug, Clone, Copy)]
pub struct InfeasibleDag<'a> {
    pub name: &'a DagName,
    pub dag: &'a Dag,
}

/// A sequence of NTs for which a bitstream is worth building.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recommendation {
    /// The NTs, in the order packets pass.
    pub nts: Vec<NtTypeId>,
    /// The kind of region that it is for.
    pub region_kind: RegionKind,
    pub area: Area,
    /// The smallest region of the card that it fits.
    pub region_area: Area,
    /// Largest bitstream that such a region takes.
    pub bitstream_max: ByteSize,
    /// Rejected DAGs that it would make feasible.
    pub admits: Vec<DagName>,
    /// Regions that it would free beyond those that consolidation frees without it.
    pub regions_freed: u32,
    /// Scheduler passes, of all DAGs together, that it would save beyond the same.
    pub passes_spared: u64,
}

/// A region that is less than half full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underfilled {
    pub region: RegionId,
    pub bitstream: BitstreamId,
    /// Part of the region's area that the content fills, in thousandths.
    pub fill_permille: u32,
}

/// Recommendations for a card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recommendations {
    /// The most useful first.
    pub sequences: Vec<Recommendation>,
    /// Regions that are less than half full.
    pub underfilled: Vec<Underfilled>,
}

/// Recommends sequences to build; changes nothing.
pub fn recommend(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    residents: &[Resident<'_>],
    refused: &[InfeasibleDag<'_>],
) -> Recommendations {
    let underfilled = underfilled(ledger);
    let outcome =
        |catalogue: &PlanCatalogue| CatalogueResult::of(ledger, catalogue, residents, refused);
    let now = outcome(catalogue);
    let mut sequences: Vec<Recommendation> = candidates(ledger, residents, refused, &underfilled)
        .into_iter()
        .filter_map(|nts| try_one(ledger, catalogue, nts, &now, outcome))
        .collect();
    sequences.sort_by_key(|r| {
        let (admits, freed) = (r.admits.len(), r.regions_freed);
        (std::cmp::Reverse((admits, freed, r.passes_spared)), r.nts.len(), r.nts.clone())
    });
    Recommendations { sequences, underfilled }
}

fn underfilled(ledger: &Ledger) -> Vec<Underfilled> {
    let of = |(region, profile): (RegionId, &snic_domain::RegionProfile)| {
        let chain = ledger.chain(region)?;
        let fill_permille = profile.area.fill_permille(chain.area?);
        let bitstream = chain.bitstream.id.clone();
        (fill_permille < UNDERFILLED_PERMILLE).then_some(Underfilled {
            region,
            bitstream,
            fill_permille,
        })
    };
    ledger.profile().regions().filter_map(of).collect()
}

/// Result of a card with a catalogue.
struct CatalogueResult {
    admitted: BTreeSet<DagName>,
    /// Regions freed, minus newly used ones.
    freed: u32,
    passes: u64,
}

impl CatalogueResult {
    fn of(
        ledger: &Ledger,
        catalogue: &PlanCatalogue,
        residents: &[Resident<'_>],
        refused: &[InfeasibleDag<'_>],
    ) -> Self {
        let fits = |r: &&InfeasibleDag<'_>| {
            let request = PlanRequest { name: r.name, dag: r.dag, previous: None };
            plan_silently(ledger, catalogue, &request).is_some()
        };
        let budget = Budget { reconfigurations: u32::MAX, regions: 1, passes: 1 };
        let Consolidation { freed, taken, passes_after, .. } =
            optimize(ledger, catalogue, residents, budget);
        Self {
            admitted: refused.iter().filter(fits).map(|r| r.name.clone()).collect(),
            freed: u32::try_from(freed.len().saturating_sub(taken.len())).unwrap_or(u32::MAX),
            passes: passes_after,
        }
    }
}

/// Candidate sequences, each once.
fn candidates(
    ledger: &Ledger,
    residents: &[Resident<'_>],
    refused: &[InfeasibleDag<'_>],
    underfilled: &[Underfilled],
) -> Vec<Vec<NtTypeId>> {
    let sequence = |dag: &Dag| -> Vec<NtTypeId> {
        dag.topological_order().iter().map(|n| dag.nodes()[*n].nt.clone()).collect()
    };
    let mut found: Vec<Vec<NtTypeId>> = Vec::new();
    let mut add = |nts: Vec<NtTypeId>| {
        if (1..=CHAIN_SLOTS_MAX).contains(&nts.len()) && !found.contains(&nts) {
            found.push(nts);
        }
    };
    refused.iter().for_each(|r| add(sequence(r.dag)));
    for resident in residents.iter().filter(|r| r.mapping.stages.len() > 1) {
        add(sequence(resident.dag));
    }
    let chains: Vec<&Bitstream> =
        underfilled.iter().filter_map(|u| ledger.content(u.region)).collect();
    for (i, first) in chains.iter().enumerate() {
        for second in &chains[i + 1..] {
            add(merge(&first.nts, &second.nts));
        }
    }
    found.truncate(CANDIDATES_MAX);
    found
}

/// The shortest sequence that contains both in order; of several, the one that starts with the NTs of the
/// first.
fn merge(first: &[NtTypeId], second: &[NtTypeId]) -> Vec<NtTypeId> {
    // length[i][j]: length of the shortest sequence for the suffixes from i and from j.
    let mut length = vec![vec![0usize; second.len() + 1]; first.len() + 1];
    for i in (0..=first.len()).rev() {
        for j in (0..=second.len()).rev() {
            length[i][j] = match (first.get(i), second.get(j)) {
                (Some(a), Some(b)) if a == b => 1 + length[i + 1][j + 1],
                (Some(_), Some(_)) => 1 + length[i + 1][j].min(length[i][j + 1]),
                (Some(_), None) => 1 + length[i + 1][j],
                (None, Some(_)) => 1 + length[i][j + 1],
                (None, None) => 0,
            };
        }
    }
    let (mut i, mut j, mut merged) = (0, 0, Vec::new());
    while let Some(next) = first.get(i).or_else(|| second.get(j)) {
        match (first.get(i), second.get(j)) {
            (Some(a), Some(b)) if a == b => {
                merged.push(a.clone());
                (i, j) = (i + 1, j + 1);
            }
            (Some(_), Some(b)) if length[i][j + 1] < length[i + 1][j] => {
                merged.push(b.clone());
                j += 1;
            }
            (Some(a), _) => {
                merged.push(a.clone());
                i += 1;
            }
            (None, _) => {
                merged.push(next.clone());
                j += 1;
            }
        }
    }
    merged
}

/// The gain of a bitstream of these NTs; `None` if it fits no region or gains nothing.
fn try_one(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    nts: Vec<NtTypeId>,
    now: &CatalogueResult,
    outcome: impl Fn(&PlanCatalogue) -> CatalogueResult,
) -> Option<Recommendation> {
    let known: Option<Vec<_>> = nts.iter().map(|id| catalogue.nt(id)).collect();
    let area: Area = known?.into_iter().map(|nt| nt.area).sum();
    let region_kind = match nts.iter().all(|id| id.owner().is_none()) {
        true => RegionKind::KnownNt,
        false => RegionKind::UserNt,
    };
    let fitting = ledger.profile().regions.iter().filter(|r| r.kind == region_kind);
    let region = fitting.filter(|r| r.area.fits(area)).min_by_key(|r| r.area.lut)?;
    let name = nts.iter().map(NtTypeId::as_str).collect::<Vec<_>>().join("+");
    // A bitstream with a tenant's NTs belongs to that tenant; NTs of several tenants cannot be combined.
    let owners: BTreeSet<_> = nts.iter().filter_map(NtTypeId::owner).collect();
    let owner = match owners.len() {
        0 => String::new(),
        1 => owners.first().map(|owner| format!("{owner}.")).unwrap_or_default(),
        _ => return None,
    };
    let digest = Digest::of(name.as_bytes());
    let mut with = catalogue.clone();
    with.insert_bitstream(Bitstream {
        id: BitstreamId::new(&format!("{owner}built-{:08x}", digest.words()[0])).ok()?,
        images: RegionImages::for_all(digest, region.bitstream_max),
        nts: nts.clone(),
        region_kind,
        card_model: ledger.profile().model.clone(),
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: None,
    });
    let then = outcome(&with);
    let recommendation = Recommendation {
        nts,
        region_kind,
        area,
        region_area: region.area,
        bitstream_max: region.bitstream_max,
        admits: then.admitted.difference(&now.admitted).cloned().collect(),
        regions_freed: then.freed.saturating_sub(now.freed),
        passes_spared: now.passes.saturating_sub(then.passes),
    };
    let brings = !recommendation.admits.is_empty()
        || recommendation.regions_freed > 0
        || (recommendation.passes_spared > 0 && then.freed >= now.freed);
    brings.then_some(recommendation)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn merging_gives_the_shortest_common_sequence() {
        let ids = |text: &str| -> Vec<NtTypeId> {
            text.split(' ').map(|id| NtTypeId::new(id).expect("a label")).collect()
        };
        assert_eq!(merge(&ids("a b d"), &ids("b c d")), ids("a b c d"));
        assert_eq!(merge(&ids("a"), &ids("b")), ids("a b"));
        assert_eq!(merge(&ids("a b"), &ids("b a")).len(), 3);
        assert_eq!(merge(&ids("a b c"), &ids("a c")), ids("a b c"));
    }

    /// Whether a sequence is a subsequence of another.
    fn is_within(part: &[NtTypeId], of: &[NtTypeId]) -> bool {
        let mut rest = of.iter();
        part.iter().all(|nt| rest.any(|other| other == nt))
    }

    proptest! {
        /// Beside all sequences of three NTs, the shorter ones first.
        #[test]
        fn no_shorter_sequence_contains_both(
            first in prop::collection::vec(0usize..3, 0..4),
            second in prop::collection::vec(0usize..3, 0..4),
        ) {
            let ids = |of: &[usize]| -> Vec<NtTypeId> {
                of.iter().map(|nt| NtTypeId::new(["a", "b", "c"][*nt]).expect("a label")).collect()
            };
            let (first, second) = (ids(&first), ids(&second));
            let merged = merge(&first, &second);
            prop_assert!(is_within(&first, &merged) && is_within(&second, &merged));
            let of_length = |length: usize| {
                (0..3usize.pow(length as u32)).any(|number| {
                    let digits = (0..length).map(|at| number / 3usize.pow(at as u32) % 3);
                    let all = ids(&digits.collect::<Vec<_>>());
                    is_within(&first, &all) && is_within(&second, &all)
                })
            };
            prop_assert_eq!((0..=6).find(|length| of_length(*length)), Some(merged.len()));
        }
    }
}
