//! A picture of a card: a copy of what a search for a better arrangement looks at, so that it can run on
//! another thread, for as long as it takes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use snic_bitstream::manifest::Manifest;
use snic_domain::{CardId, Dag, DagName, DagSpec, Mapping, RegionId, RegionProfile};
use snic_planner::{
    Budget, Consolidation, InfeasibleDag, Ledger, Move, PlanCatalogue, Recommendation, Resident,
    optimize, recommend,
};

use crate::protocol::{
    Arrangement, BitstreamAdvice, ConsolidationSettings, ConsolidationView, MoveView, PlannedMove,
    RecommendationView,
};
use crate::state::Core;

/// Number of waiting DAGs that are looked at for a recommendation: more would make it slow,
/// and tell little.
const WAITING_MAX: usize = 256;

/// A DAG that has a place and rests there.
#[derive(Debug, Clone)]
struct RestingDag {
    name: DagName,
    spec: DagSpec,
    mapping: Mapping,
    /// Serial of the placement.
    serial: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct CardPicture {
    card: CardId,
    ledger: Ledger,
    catalogue: Arc<PlanCatalogue>,
    /// The groups of its regions that one image serves each.
    region_groups: Vec<Range<u8>>,
    settled: Vec<RestingDag>,
    /// Whether DAGs are on their way to a place, which could not be moved yet.
    is_under_way: bool,
    settings: ConsolidationSettings,
}

/// The card's picture; `None` without such a card. Time O(DAGs of the card · their NTs).
pub(crate) fn of(core: &Core, id: &CardId) -> Option<CardPicture> {
    let ledger = core.cards.get(id)?.ledger().clone();
    Some(CardPicture {
        card: id.clone(),
        region_groups: core.registry.region_groups(&ledger.profile().model).to_vec(),
        ledger,
        catalogue: core.registry.catalogue_now(),
        settled: resting_dags(core, id),
        is_under_way: core.dags.on_card(id).any(|e| !e.is_ready() || e.previous().is_some()),
        settings: core.policies.current().consolidation,
    })
}

/// The DAGs that a card serves and that nothing is under way for. What a DAG has borrowed stays
/// where it is until the loop takes it back; who keeps state stays too: to move it, its traffic
/// would have to stop, and nobody asked for that.
fn resting_dags(core: &Core, id: &CardId) -> Vec<RestingDag> {
    let at_rest = core.dags.on_card(id).filter(|e| e.is_ready() && e.previous().is_none());
    let settled = at_rest.filter_map(|entry| {
        let placement = entry.desired().expect("what is ready has a placement");
        let may_move =
            placement.burst.is_none() && core.registry.stateful(&placement.mapping).is_empty();
        may_move.then(|| RestingDag {
            name: entry.name().clone(),
            spec: placement.spec.clone(),
            mapping: placement.mapping.clone(),
            serial: placement.serial,
        })
    });
    settled.collect()
}

/// The DAGs that have no place now, and those that were refused; each name once, by name.
pub(crate) fn dags_without_place(core: &Core) -> Vec<(DagName, DagSpec)> {
    let waiting = core.dags.unscheduled().map(|entry| (entry.name(), entry.spec()));
    let all: BTreeMap<&DagName, &DagSpec> =
        core.refused.all().chain(waiting.take(WAITING_MAX)).collect();
    all.into_iter().map(|(name, spec)| (name.clone(), spec.clone())).collect()
}

impl CardPicture {
    /// Looks for a better arrangement with at most so many loads: the answer to `Effect::Search`. Time as
    /// [`optimize`].
    pub fn search(self, reconfigurations: u32) -> Arrangement {
        let found = self.consolidate(reconfigurations);
        let mut serials: BTreeMap<&DagName, u64> =
            self.settled.iter().map(|s| (&s.name, s.serial)).collect();
        let begun = |step: Move| {
            let next = serials.get_mut(&step.name).expect("only DAGs that were given are moved");
            let serial = *next;
            *next += 1;
            PlannedMove { step, serial }
        };
        let moves = found.moves.into_iter().map(begun).collect();
        let (card, is_under_way) = (self.card.clone(), self.is_under_way);
        Arrangement { card, moves, is_under_way, has_failed: false }
    }

    /// Effect of moving DAGs of the card together. Time as [`optimize`].
    pub fn consolidation(&self) -> ConsolidationView {
        let found = self.consolidate(self.settings.reconfigurations_max);
        let mut now: BTreeMap<&DagName, Vec<RegionId>> =
            self.settled.iter().map(|s| (&s.name, regions_of(&s.mapping))).collect();
        let mut moves = Vec::new();
        for Move { name, plan } in &found.moves {
            let to = regions_of(&plan.mapping);
            let from = now.insert(name, to.clone()).unwrap_or_default();
            let loads = plan.loads.iter().map(|load| load.region).collect();
            moves.push(MoveView { dag: name.clone(), from, to, loads });
        }
        ConsolidationView {
            card: self.card.clone(),
            moves,
            freed: found.freed,
            taken: found.taken,
            reconfigurations: found.reconfigurations,
            passes: (found.passes_before, found.passes_after),
        }
    }

    /// Bitstreams that are worth building for the card, with a manifest each, if these DAGs have no
    /// place; and which regions are less than half full. Time as [`recommend`].
    pub fn recommendations(&self, without_place: Vec<(DagName, DagSpec)>) -> BitstreamAdvice {
        let without_place = without_place.into_iter();
        let refused: Vec<(DagName, Dag)> =
            without_place.filter_map(|(name, spec)| Some((name, Dag::new(spec).ok()?))).collect();
        let refused: Vec<InfeasibleDag<'_>> =
            refused.iter().map(|(name, dag)| InfeasibleDag { name, dag }).collect();
        let dags = self.dags();
        let found = recommend(&self.ledger, &self.catalogue, &self.residents(&dags), &refused);
        let with_manifest = |recommendation: Recommendation| {
            let region = RegionProfile {
                kind: recommendation.region_kind,
                area: recommendation.region_area,
                bitstream_max: recommendation.bitstream_max,
            };
            let build_regions = self.regions_to_build(&recommendation);
            let Recommendation { nts, area, .. } = &recommendation;
            let profile = self.ledger.profile();
            let manifest = Manifest::new(profile, nts, &region, *area, build_regions);
            RecommendationView { manifest: manifest.to_toml(), recommendation }
        };
        let worth_building = found.sequences.into_iter().map(with_manifest).collect();
        BitstreamAdvice { worth_building, underfilled: found.underfilled }
    }

    /// The first region of each group that the sequence fits and that no bitstream of it has an image for.
    fn regions_to_build(&self, of: &Recommendation) -> Vec<RegionId> {
        let profile = self.ledger.profile();
        let first = self.region_groups.iter().map(|group| RegionId(group.start));
        let fits = |region: &RegionId| {
            let region = profile.region(*region);
            region.is_some_and(|region| region.kind == of.region_kind && region.area.fits(of.area))
        };
        let has_image = |region: &RegionId| {
            let mut built = self.catalogue.bitstreams().filter(|built| {
                built.nts == of.nts
                    && built.region_kind == of.region_kind
                    && built.card_model == profile.model
            });
            built.any(|built| built.fits_region(*region))
        };
        first.filter(|region| fits(region) && !has_image(region)).collect()
    }

    fn consolidate(&self, reconfigurations: u32) -> Consolidation {
        let ConsolidationSettings { regions_min, passes_min, .. } = self.settings;
        let budget = Budget { reconfigurations, regions: regions_min, passes: passes_min };
        let dags = self.dags();
        optimize(&self.ledger, &self.catalogue, &self.residents(&dags), budget)
    }

    fn dags(&self) -> Vec<Dag> {
        let checked =
            |s: &RestingDag| Dag::new(s.spec.clone()).expect("it was checked when it was admitted");
        self.settled.iter().map(checked).collect()
    }

    fn residents<'a>(&'a self, dags: &'a [Dag]) -> Vec<Resident<'a>> {
        let resident = |(s, dag): (&'a RestingDag, &'a Dag)| Resident {
            name: &s.name,
            dag,
            mapping: &s.mapping,
        };
        self.settled.iter().zip(dags).map(resident).collect()
    }
}

/// The regions of a mapping, rising, each once.
fn regions_of(mapping: &Mapping) -> Vec<RegionId> {
    let mut regions: Vec<RegionId> = mapping.instances().map(|i| i.region).collect();
    regions.sort_unstable();
    regions.dedup();
    regions
}
