//! Consolidation and recommendations as text.

use snic_api::v1::optimize_card_response::Move;
use snic_api::v1::recommend_bitstreams_response::{Recommendation, Underfilled};
use snic_api::v1::{OptimizeCardResponse, RecommendBitstreamsResponse};

use super::Style;
use super::table::{section, table};
use super::text;

fn regions(names: &[String]) -> String {
    names.iter().map(|name| text::region(name)).collect::<Vec<_>>().join(" ")
}

/// The moves of a consolidation.
pub fn moves(reply: &OptimizeCardResponse, style: Style) -> String {
    if reply.moves.is_empty() {
        return "no worthwhile move found\n".to_owned();
    }
    let row = |step: &Move| {
        vec![
            text::dag(&step.dag),
            regions(&step.from_regions),
            regions(&step.to_regions),
            regions(&step.loaded_regions),
        ]
    };
    let rows = reply.moves.iter().map(row).collect();
    let (before, after) = (reply.passes_before, reply.passes_after);
    let gain = format!(
        "frees {} regions, uses {} more, loads {}; passes: {before} before, {after} after\n",
        reply.freed_regions.len(),
        reply.taken_regions.len(),
        reply.reconfigurations,
    );
    table(style, &["DAG", "FROM", "TO", "LOADED"], rows) + &gain
}

/// The sequences that are worth building, and the regions that are less than half full.
pub fn recommendations(reply: &RecommendBitstreamsResponse, style: Style) -> String {
    let row = |found: &Recommendation| {
        let nts: Vec<&str> = found.nts.iter().map(|nt| text::id(nt)).collect();
        let dags: Vec<String> = found.admitted_dags.iter().map(|dag| text::dag(dag)).collect();
        vec![
            nts.join(" -> "),
            permille(found.fill_permille),
            dags.join(" "),
            found.freed_regions.to_string(),
            found.spared_passes.to_string(),
        ]
    };
    let half_empty = |found: &Underfilled| {
        vec![
            text::region(&found.region),
            text::id(&found.bitstream).to_owned(),
            permille(found.fill_permille),
        ]
    };
    let worth = reply.recommendations.iter().map(row).collect();
    let heading = ["SEQUENCE", "FILL", "ADMITS", "FREES", "SAVES"];
    let worth = match reply.recommendations.is_empty() {
        true => "no sequence is worth building\n".to_owned(),
        false => table(style, &heading, worth),
    };
    let rows: Vec<_> = reply.underfilled.iter().map(half_empty).collect();
    if rows.is_empty() {
        return worth;
    }
    worth + &section("Less than half full", &table(style, &["REGION", "BITSTREAM", "FILL"], rows))
}

fn permille(permille: u32) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}
