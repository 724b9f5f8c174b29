//! Which bitstreams are worth building: sequences of NTs that do not exist yet, and what each would
//! bring.
//!
//! Candidates come from what tenants ask for: the DAGs that were refused, the chains that are cut,
//! and the chains of regions that are less than half full, two of them merged. Each is tried as if
//! it existed: refused DAGs are planned again, and what is deployed is optimised once more. What it
//! brings beyond what the catalogue does already is what the recommendation says.

use std::collections::BTreeSet;

use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{
    Area, Bitstream, BitstreamId, ByteSize, Dag, DagName, Digest, NtTypeId, RegionId, RegionKind,
};

use crate::optimize::{Budget, Consolidation, Resident, optimize};
use crate::{Catalogue, Ledger, Request, plan};

/// A bitstream that fills less of its region than this is named, in thousandths (SuperNIC, 4.1).
const UNDERFILLED_PERMILLE: u32 = 500;
/// Sequences that are tried: each is as much work as a consolidation.
const CANDIDATES_MAX: usize = 24;

/// A DAG that has no place.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// Its name.
    pub name: &'a DagName,
    /// What it wants.
    pub dag: &'a Dag,
}

/// A sequence of NTs that is worth a bitstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recommendation {
    /// The NTs, in the order packets pass.
    pub nts: Vec<NtTypeId>,
    /// For which regions.
    pub region_kind: RegionKind,
    /// What it takes of a region.
    pub area: Area,
    /// The smallest region of the card that it fits.
    pub region_area: Area,
    /// Largest bitstream that such a region takes.
    pub bitstream_max: ByteSize,
    /// DAGs that were refused and would have a place.
    pub admits: Vec<DagName>,
    /// Regions that it would free, beyond those that can be freed without it.
    pub regions_freed: u32,
    /// Passes of the scheduler, of all DAGs together, that it would spare beyond the same.
    pub passes_spared: u64,
}

/// A region that is less than half full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underfilled {
    /// The region.
    pub region: RegionId,
    /// What it holds.
    pub bitstream: BitstreamId,
    /// What of the region that fills, in thousandths.
    pub fill_permille: u32,
}

/// What is worth building for a card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recommendations {
    /// The most useful first.
    pub sequences: Vec<Recommendation>,
    /// By region.
    pub underfilled: Vec<Underfilled>,
}

/// Names the sequences worth building; changes nothing.
pub fn recommend(
    ledger: &Ledger,
    catalogue: &Catalogue,
    residents: &[Resident<'_>],
    refused: &[Refused<'_>],
) -> Recommendations {
    let underfilled = underfilled(ledger);
    let outcome = |catalogue: &Catalogue| Outcome::of(ledger, catalogue, residents, refused);
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

/// What the card would do for its DAGs.
struct Outcome {
    admitted: BTreeSet<DagName>,
    /// Regions freed, those taken anew subtracted.
    freed: u32,
    passes: u64,
}

impl Outcome {
    fn of(
        ledger: &Ledger,
        catalogue: &Catalogue,
        residents: &[Resident<'_>],
        refused: &[Refused<'_>],
    ) -> Self {
        let fits = |r: &&Refused<'_>| {
            let request = Request { name: r.name, dag: r.dag, previous: None };
            plan(ledger, catalogue, &request).is_ok()
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

/// Sequences that DAGs ask for, each once.
fn candidates(
    ledger: &Ledger,
    residents: &[Resident<'_>],
    refused: &[Refused<'_>],
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

/// The shortest sequence that holds both in order; where there are several, the first's NTs come
/// first.
fn merge(first: &[NtTypeId], second: &[NtTypeId]) -> Vec<NtTypeId> {
    // length[i][j]: of the shortest that holds what follows i of the first and j of the second.
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

/// What a bitstream of these NTs would bring; `None` where it fits no region, or brings nothing.
fn try_one(
    ledger: &Ledger,
    catalogue: &Catalogue,
    nts: Vec<NtTypeId>,
    now: &Outcome,
    outcome: impl Fn(&Catalogue) -> Outcome,
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
    // A tenant's NTs make a tenant's bitstream; several tenants' NTs make none.
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
        digest,
        size: region.bitstream_max,
        nts: nts.clone(),
        region_kind,
        card_model: ledger.profile().model.clone(),
        shareable: true,
        signed_by: None,
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
    use super::*;

    #[test]
    fn the_shortest_sequence_holds_both() {
        let ids = |text: &str| -> Vec<NtTypeId> {
            text.split(' ').map(|id| NtTypeId::new(id).expect("a label")).collect()
        };
        assert_eq!(merge(&ids("a b d"), &ids("b c d")), ids("a b c d"));
        assert_eq!(merge(&ids("a"), &ids("b")), ids("a b"));
        assert_eq!(merge(&ids("a b"), &ids("b a")).len(), 3);
        assert_eq!(merge(&ids("a b c"), &ids("a c")), ids("a b c"));
    }
}
