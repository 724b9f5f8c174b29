//! The explanation of a mapping as text.

use snic_api::v1::{
    ChainExplanation, Embedding, EmbeddingWay, Explanation, RejectedAlternative, ScoreTerm,
};
use snic_api::words::EnumWord as _;

use super::Style;
use super::state_views::sentence;
use super::text::{dag, form_word, id, rate, region};

/// The explanation, chain by chain.
pub fn explanation(explanation: &Explanation, style: Style) -> String {
    let width = style.width;
    let mut lines = Vec::new();
    let name = explanation.dag.as_ref().map(|found| {
        let unserved = match found.unserved_bps {
            0 => String::new(),
            bps => format!(", {} not served", rate(bps)),
        };
        let (name, state) = (dag(&found.name), found.state().word());
        format!("{name}, {}, {state}{unserved}", rate(found.bandwidth_bps))
    });
    lines.extend(name);
    let parallel = explanation.parallel_latency_cycles;
    let parallel =
        parallel.map_or("no fork".into(), |cycles| format!("{cycles} cycles in parallel"));
    let form = form_word(explanation.form());
    let cycles = explanation.sequential_latency_cycles;
    let latency = format!("Form: {form} ({cycles} cycles in sequence, {parallel})");
    push(&mut lines, (0, width), &latency);
    push(&mut lines, (2, width), &explanation.form_reason);
    for (index, chain) in explanation.chains.iter().enumerate() {
        lines.push(String::new());
        chain_lines(&mut lines, width, (index + 1, chain));
    }
    if explanation.chains.is_empty() {
        for line in &explanation.lines {
            push(&mut lines, (0, width), line);
        }
    }
    let warnings = explanation.dag.iter().flat_map(|found| &found.warnings);
    for (index, warning) in warnings.enumerate() {
        if index == 0 {
            lines.push(String::new());
            push(&mut lines, (0, width), "Warnings:");
        }
        push(&mut lines, (2, width), &warning.message);
    }
    for (index, headroom) in explanation.headroom.iter().enumerate() {
        if index == 0 {
            lines.push(String::new());
            push(&mut lines, (0, width), "Left for further promises, of what it holds:");
        }
        push(&mut lines, (2, width), &headroom.message);
    }
    let states = explanation.dag.iter().flat_map(|found| &found.states);
    for (index, state) in states.enumerate() {
        if index == 0 {
            lines.push(String::new());
            push(&mut lines, (0, width), "State:");
        }
        push(&mut lines, (2, width), &sentence(state));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn chain_lines(lines: &mut Vec<String>, width: usize, (number, chain): (usize, &ChainExplanation)) {
    let nodes = chain.nodes.iter().zip(&chain.nt_types).map(|(node, nt)| match id(nt) {
        nt if nt == node => node.clone(),
        nt => format!("{node}: {nt}"),
    });
    push(lines, (0, width), &format!("Chain {number}: {}", nodes.collect::<Vec<_>>().join(" -> ")));
    for embedding in &chain.chosen {
        push(lines, (2, width), &chosen(embedding));
        let terms: Vec<String> = embedding.score_terms.iter().map(term).collect();
        if !terms.is_empty() {
            push(lines, (4, width), &terms.join(", "));
        }
    }
    for alternative in &chain.rejected {
        push(lines, (2, width), &rejected(alternative));
    }
}

fn chosen(embedding: &Embedding) -> String {
    let bitstream = match id(&embedding.bitstream) {
        "" => String::new(),
        bitstream => format!(" ({bitstream})"),
    };
    let place = region(&embedding.region);
    let reserved = rate(embedding.bandwidth_bps);
    format!("chosen: {} {place}{bitstream}, {reserved}", way_words(embedding.way()))
}

fn rejected(alternative: &RejectedAlternative) -> String {
    let way = way_words(alternative.way());
    // Daemons before this field say it in the shortage.
    let shortage = alternative.shortage.as_ref().map_or("", |shortage| &shortage.message);
    match (alternative.message.as_str(), shortage) {
        ("", "") => format!("rejected: {way}"),
        ("", message) | (message, _) => format!("rejected: {way}: {message}"),
    }
}

fn term(term: &ScoreTerm) -> String {
    let better = if term.more_is_better { ", more is better" } else { "" };
    let name = term.name.replace('_', " ");
    match term.unit.as_str() {
        "bit/s" => format!("{name} {}{better}", rate(term.value)),
        // "new regions 1" says it already.
        unit if name.ends_with(unit) => format!("{name} {}{better}", term.value),
        unit => format!("{name} {} {unit}{better}", term.value),
    }
}

const fn way_words(way: EmbeddingWay) -> &'static str {
    match way {
        EmbeddingWay::Unspecified => "unknown",
        EmbeddingWay::Shared => "shared region",
        EmbeddingWay::FreeRegion => "free region",
        EmbeddingWay::VictimRegion => "cached region",
        EmbeddingWay::Split => "split",
    }
}

/// Adds a text, indented and broken between words to fit the width.
pub(super) fn push(lines: &mut Vec<String>, (indent, most): (usize, usize), text: &str) {
    let mut line = String::new();
    let mut depth = indent;
    for word in text.split_whitespace() {
        let width = depth + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && width > most {
            lines.push(format!("{:depth$}{line}", ""));
            line.clear();
            depth = indent + 2;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        while depth + line.chars().count() > most {
            let end = line.char_indices().nth(most - depth).map_or(line.len(), |(at, _)| at);
            let rest = line.split_off(end);
            lines.push(format!("{:depth$}{line}", ""));
            line = rest;
            depth = indent + 2;
        }
    }
    if !line.is_empty() {
        lines.push(format!("{:depth$}{line}", ""));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_broken_to_the_width(
            text in "([a-zé]{0,100} ?){0,20}",
            indent in 0..5_usize,
            most in 40..200_usize,
        ) {
            let mut lines = Vec::new();
            push(&mut lines, (indent, most), &text);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= most), "{:?}", lines);
            let letters: String = lines.concat().split_whitespace().collect();
            prop_assert_eq!(letters, text.split_whitespace().collect::<String>());
        }
    }
}
