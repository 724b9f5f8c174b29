//! Explanations of mappings, and shortages.
//!
//! For tenants, everything that would reveal others is left out: others' bitstreams, and the headroom of
//! what they share with others.

use snic_domain::{
    CardId, ChainExplanation, Embedding, EmbeddingCost, EmbeddingKind, Explanation, Headroom,
    OtherCard, ProgramExplanation, Rejection, RejectionReason, Resource, Shortage,
};

use super::dag::{DagReader, form_to_wire};
use super::name;
use crate::v1;

fn resource_to_wire(resource: Resource) -> v1::shortage::Resource {
    use v1::shortage::Resource as Wire;
    match resource {
        Resource::IngressBandwidth => Wire::IngressBandwidth,
        Resource::EgressBandwidth => Wire::EgressBandwidth,
        Resource::NtBandwidth => Wire::NtBandwidth,
        Resource::NtPackets => Wire::NtPackets,
        Resource::MemoryBandwidth => Wire::MemoryBandwidth,
        Resource::SchedulerLookups => Wire::SchedulerLookups,
        Resource::StoreReads => Wire::StoreReads,
        Resource::RegionPort => Wire::RegionPort,
        Resource::Credits => Wire::Credits,
        Resource::PacketStore => Wire::PacketStore,
        Resource::SyncEntries => Wire::SyncEntries,
        Resource::Regions => Wire::Regions,
        Resource::Bitstreams => Wire::Bitstreams,
        Resource::Memory => Wire::Memory,
        Resource::TableRows => Wire::TableRows,
        Resource::Passes => Wire::Passes,
        Resource::SearchSteps => Wire::SearchSteps,
        Resource::Cards => Wire::Cards,
        Resource::Threads => Wire::Threads,
        Resource::ReceiveBandwidth => Wire::ReceiveBandwidth,
        Resource::ProgramMemory => Wire::ProgramMemory,
    }
}

/// Rest of what a DAG holds on `card`; for tenants without what others share.
pub fn headroom_to_wire(
    headroom: &[Headroom],
    card: &CardId,
    reader: DagReader<'_>,
) -> Vec<v1::Headroom> {
    let shown = |left: &&Headroom| !left.of_others || reader == DagReader::Operator;
    let entry = |left: &Headroom| v1::Headroom {
        resource: resource_to_wire(left.resource).into(),
        region: left.region.map(|region| name::of_region(card, region)).unwrap_or_default(),
        nt_type: left.nt.as_ref().map(name::of_nt_type).unwrap_or_default(),
        held: left.held,
        available: left.available,
        unit: left.resource.unit().to_owned(),
        message: left.to_string(),
    };
    headroom.iter().filter(shown).map(entry).collect()
}

/// Converts a shortage.
pub fn shortage_to_wire(shortage: &Shortage) -> v1::Shortage {
    v1::Shortage {
        resource: resource_to_wire(shortage.resource).into(),
        required: shortage.required,
        available: shortage.available,
        unit: shortage.resource.unit().to_owned(),
        nodes: shortage.nodes.iter().map(ToString::to_string).collect(),
        message: shortage.to_string(),
    }
}

const fn kind_to_wire(kind: EmbeddingKind) -> v1::EmbeddingWay {
    match kind {
        EmbeddingKind::Shared => v1::EmbeddingWay::Shared,
        EmbeddingKind::FreeRegion => v1::EmbeddingWay::FreeRegion,
        EmbeddingKind::VictimRegion => v1::EmbeddingWay::VictimRegion,
        EmbeddingKind::Split => v1::EmbeddingWay::Split,
    }
}

const fn kind_text(kind: EmbeddingKind) -> &'static str {
    match kind {
        EmbeddingKind::Shared => "shared",
        EmbeddingKind::FreeRegion => "free region",
        EmbeddingKind::VictimRegion => "victim region",
        EmbeddingKind::Split => "split",
    }
}

fn embedding_to_wire(
    embedding: &Embedding,
    card: Option<&CardId>,
    reader: DagReader<'_>,
) -> v1::Embedding {
    let term = |name: &str, value: u64, unit: &str, more_is_better| v1::ScoreTerm {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        more_is_better,
    };
    let mut score_terms = vec![
        term("interruptions", embedding.interruptions.into(), "regions", false),
        term("new_regions", embedding.new_regions.into(), "regions", false),
        term("passes", embedding.passes.into(), "passes", false),
    ];
    // Of what is shared, the rest would tell what others loaded and reserve.
    if embedding.kind != EmbeddingKind::Shared || reader == DagReader::Operator {
        let unused = embedding.unused_permille.into();
        score_terms.push(term("unused_area", unused, "permille", false));
        score_terms.push(term("headroom", embedding.headroom.get(), "bit/s", true));
    }
    v1::Embedding {
        way: kind_to_wire(embedding.kind).into(),
        region: card.map(|card| name::of_region(card, embedding.region)).unwrap_or_default(),
        bitstream: reader.bitstream(&embedding.bitstream),
        bandwidth_bps: embedding.bandwidth.get(),
        score_terms,
    }
}

fn rejection_to_wire(rejection: &Rejection) -> v1::RejectedAlternative {
    let cost = |cost: &EmbeddingCost| v1::EmbeddingCost {
        new_regions: cost.regions,
        replaced_chains: cost.victims,
        passes: cost.passes,
    };
    let (shortage, least, chosen) = match &rejection.reason {
        RejectionReason::Shortage(shortage) => (Some(shortage_to_wire(shortage)), None, None),
        RejectionReason::CostsMore(costs) => {
            (None, Some(cost(&costs.least)), Some(cost(&costs.chosen)))
        }
    };
    v1::RejectedAlternative {
        way: kind_to_wire(rejection.kind).into(),
        shortage,
        least_cost: least,
        chosen_cost: chosen,
        message: rejection.reason.to_string(),
    }
}

fn chain_to_wire(
    chain: &ChainExplanation,
    card: Option<&CardId>,
    reader: DagReader<'_>,
) -> v1::ChainExplanation {
    v1::ChainExplanation {
        nodes: chain.nodes.iter().map(ToString::to_string).collect(),
        nt_types: chain.nts.iter().map(name::of_nt_type).collect(),
        chosen: chain.embeddings.iter().map(|e| embedding_to_wire(e, card, reader)).collect(),
        rejected: chain.rejected.iter().map(rejection_to_wire).collect(),
    }
}

/// Converts the explanation of a mapping to `card`, without the DAG.
pub fn explanation_to_wire(
    explanation: &Explanation,
    card: Option<&CardId>,
    reader: DagReader<'_>,
) -> v1::Explanation {
    let chain = |chain| chain_to_wire(chain, card, reader);
    v1::Explanation {
        dag: None,
        form: form_to_wire(explanation.form.chosen).into(),
        sequential_latency_cycles: explanation.form.sequential.get(),
        parallel_latency_cycles: explanation.form.parallel.map(|cycles| cycles.get()),
        form_reason: explanation.form.reason.clone(),
        chains: explanation.chains.iter().map(chain).collect(),
        lines: lines(explanation, card, reader),
        headroom: Vec::new(),
        programs: explanation.programs.iter().map(program_to_wire).collect(),
        other_cards: explanation.other_cards.iter().map(other_to_wire).collect(),
    }
}

fn program_to_wire(program: &ProgramExplanation) -> v1::ProgramExplanation {
    v1::ProgramExplanation {
        node: program.node.to_string(),
        nt_type: name::of_nt_type(&program.nt),
        chosen: program.chosen.clone(),
        guidelines: program.guidelines.clone(),
        against: program.against.clone(),
        rejected: program.rejected.clone(),
    }
}

fn other_to_wire(other: &OtherCard) -> v1::OtherCard {
    v1::OtherCard { model: other.model.to_string(), reason: other.reason.clone() }
}

/// The explanation as lines of text.
fn lines(explanation: &Explanation, card: Option<&CardId>, reader: DagReader<'_>) -> Vec<String> {
    let mut lines = vec![explanation.form.reason.clone()];
    for chain in &explanation.chains {
        let nodes = chain.nodes.iter().map(ToString::to_string).collect::<Vec<_>>();
        lines.push(nodes.join(" -> "));
        lines.extend(chain.embeddings.iter().map(|e| embedding_line(e, card, reader)));
        lines.extend(
            chain.rejected.iter().map(|rejection| {
                format!("  not {}: {}", kind_text(rejection.kind), rejection.reason)
            }),
        );
    }
    for ProgramExplanation { node, nt, chosen, rejected, .. } in &explanation.programs {
        lines.push(format!("{node} ({nt})"));
        lines.push(format!("  {chosen}"));
        lines.extend(rejected.iter().map(|option| format!("  not {option}")));
    }
    let others = explanation.other_cards.iter();
    lines.extend(
        others.map(|OtherCard { model, reason }| format!("not a card of model {model}: {reason}")),
    );
    lines
}

fn embedding_line(embedding: &Embedding, card: Option<&CardId>, reader: DagReader<'_>) -> String {
    let region = card.map_or_else(
        || format!("region {}", embedding.region),
        |c| name::of_region(c, embedding.region),
    );
    let skipped = match embedding.skipped {
        0 => String::new(),
        n => format!(", skipping {n} of its NTs"),
    };
    let with = match reader.bitstream(&embedding.bitstream) {
        name if name.is_empty() => String::new(),
        name => format!(" with {name}"),
    };
    let (kind, bandwidth) = (kind_text(embedding.kind), embedding.bandwidth);
    format!("  {kind}: {bandwidth} in {region}{with}{skipped}")
}
