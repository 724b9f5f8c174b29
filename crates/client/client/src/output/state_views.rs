//! The state (contexts) that chains keep for DAGs, as text.

use snic_api::v1::bitstream::{SignatureState, SignerRole};
use snic_api::v1::chain_state::Place;
use snic_api::v1::{Bitstream, ChainState};

use super::Style;
use super::table::{section, table};
use super::text::{self, id, size};

/// A table under a heading; empty if there is no state.
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

/// A sentence about one context: its size, where it is, and when it moves.
pub fn sentence(state: &ChainState) -> String {
    let region = state.region.unwrap_or_default();
    let chain = match id(&state.bitstream) {
        "" => "another tenant's chain",
        known => known,
    };
    let kept = format!("{} kept by {chain}", size(state.bytes));
    match state.place() {
        Place::InRegion => format!(
            "{kept} in region {region}. It is saved when the region is drained or needed for another chain, \
             restored before the chain serves the DAG again, and erased with the DAG."
        ),
        Place::BeingSaved => format!("{kept}. It is being saved from region {region}."),
        Place::Saved => format!(
            "{kept}. It was saved at {} and is restored before the chain serves the DAG again.",
            text::time(state.since.as_ref())
        ),
        Place::Unspecified => kept,
    }
}

/// The key that signed a bitstream and whose it is, or `UNSIGNED`.
pub(super) fn signer(bitstream: &Bitstream) -> String {
    match bitstream.signature_state() {
        SignatureState::Verified => match bitstream.signer_role() {
            SignerRole::Provider => format!("{} (provider)", bitstream.signed_by),
            SignerRole::Owner => format!("{} (its owner)", bitstream.signed_by),
            SignerRole::Unspecified => bitstream.signed_by.clone(),
        },
        SignatureState::Unspecified | SignatureState::Unsigned => "UNSIGNED".to_owned(),
    }
}

/// Since when a bitstream is rejected, why, and when its owner can have it retried.
pub(super) fn rejected(bitstream: &Bitstream) -> String {
    if bitstream.rejection.is_empty() {
        return String::new();
    }
    let since = text::time(bitstream.reject_time.as_ref());
    let retry = text::time(bitstream.retry_time.as_ref());
    format!("{since}: {}; its owner can retry it from {retry}", bitstream.rejection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_states_show_their_location() {
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
        let style = Style {
            is_colour: false,
            width: crate::output::WIDTH,
            now: std::time::SystemTime::UNIX_EPOCH,
        };
        let text = states("State", &all, style);
        for word in
            ["acme/web", "kv-cache-sim-16", "192 KiB", "region 3", "being saved from region 4"]
        {
            assert!(text.contains(word), "{word} is not in:\n{text}");
        }
        assert_eq!(states("State", &[], style), "");
    }
}
