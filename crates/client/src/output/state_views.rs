//! What a table shows of what chains keep for DAGs.

use snic_api::v1::ChainState;
use snic_api::v1::chain_state::Place;

use super::Style;
use super::table::{section, table};
use super::text::{self, id, size};

/// What chains keep, under a heading; nothing where they keep nothing.
pub fn states(heading: &str, states: &[ChainState], style: Style) -> String {
    let rows = states.iter().map(|state| {
        let region = state.region.unwrap_or_default();
        let place = match state.place() {
            Place::InRegion => format!("region {region}"),
            Place::BeingSaved => format!("being saved from region {region}"),
            Place::Saved => "saved".to_owned(),
            Place::Unspecified => String::new(),
        };
        vec![
            text::dag(&state.dag),
            id(&state.bitstream).to_owned(),
            size(state.bytes),
            place,
            text::time(state.since.as_ref()),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    section(heading, &table(style, &["DAG", "BITSTREAM", "BYTES", "WHERE", "SINCE"], rows))
}

/// Where something is that a chain keeps, how large it is, and when it is moved.
pub fn sentence(state: &ChainState) -> String {
    let region = state.region.unwrap_or_default();
    let chain = match id(&state.bitstream) {
        "" => "a chain of others",
        known => known,
    };
    let kept = format!("{} that {chain} keeps for it", size(state.bytes));
    match state.place() {
        Place::InRegion => format!(
            "{kept} in region {region}: saved when that is needed for another chain or drained, restored \
             before the chain serves it from a region again, erased with the DAG."
        ),
        Place::BeingSaved => format!("{kept}: being saved from region {region}."),
        Place::Saved => format!(
            "{kept}: saved at {}, restored before the chain serves it from a region again.",
            text::time(state.since.as_ref())
        ),
        Place::Unspecified => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_says_where_it_is() {
        let state = |place: Place, region| ChainState {
            dag: "tenants/acme/dags/web".to_owned(),
            bitstream: "bitstreams/kv-cache-sim-16".to_owned(),
            place: place.into(),
            region,
            bytes: 196_608,
            since: None,
        };
        let all = [
            state(Place::InRegion, Some(3)),
            state(Place::BeingSaved, Some(4)),
            state(Place::Saved, None),
        ];
        let style = Style { is_colour: false, now: std::time::SystemTime::UNIX_EPOCH };
        let text = states("State", &all, style);
        for word in
            ["acme/web", "kv-cache-sim-16", "192 KiB", "region 3", "being saved from region 4"]
        {
            assert!(text.contains(word), "{word} is not in:\n{text}");
        }
        assert_eq!(states("State", &[], style), "");
    }
}
