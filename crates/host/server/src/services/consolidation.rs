//! Converts consolidations and recommendations; only operators get them, so all names are included.

use snic_api::convert::{card, name};
use snic_api::v1;
use snic_controller::{
    BitstreamAdvice, ConsolidationView, MoveView, RecommendationView, Underfilled,
};
use snic_domain::{CardId, RegionId};

fn regions(card: &CardId, regions: &[RegionId]) -> Vec<String> {
    regions.iter().map(|region| name::of_region(card, *region)).collect()
}

/// The result of a dry run.
pub(super) fn would_be(view: &ConsolidationView) -> v1::OptimizeCardResponse {
    let card = &view.card;
    let one = |step: &MoveView| v1::optimize_card_response::Move {
        dag: step.dag.to_string(),
        from_regions: regions(card, &step.from),
        to_regions: regions(card, &step.to),
        loaded_regions: regions(card, &step.loads),
    };
    v1::OptimizeCardResponse {
        operation: None,
        moves: view.moves.iter().map(one).collect(),
        freed_regions: regions(card, &view.freed),
        taken_regions: regions(card, &view.taken),
        reconfigurations: view.reconfigurations,
        passes_before: view.passes.0,
        passes_after: view.passes.1,
    }
}

/// Bitstreams worth building for a card.
pub(super) fn recommended(id: &CardId, advice: BitstreamAdvice) -> v1::RecommendBitstreamsResponse {
    let one = |view: RecommendationView| {
        let found = view.recommendation;
        v1::recommend_bitstreams_response::Recommendation {
            nts: found.nts.iter().map(name::of_nt_type).collect(),
            region_kind: card::region_kind_to_wire(found.region_kind).into(),
            fill_permille: found.region_area.fill_permille(found.area),
            admitted_dags: found.admits.iter().map(ToString::to_string).collect(),
            freed_regions: found.regions_freed,
            spared_passes: found.passes_spared,
            manifest: view.manifest,
        }
    };
    let half_empty = |found: &Underfilled| v1::recommend_bitstreams_response::Underfilled {
        region: name::of_region(id, found.region),
        bitstream: name::of_bitstream(&found.bitstream),
        fill_permille: found.fill_permille,
    };
    v1::RecommendBitstreamsResponse {
        recommendations: advice.worth_building.into_iter().map(one).collect(),
        underfilled: advice.underfilled.iter().map(half_empty).collect(),
    }
}
