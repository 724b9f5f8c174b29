//! How things are, in a word: what a line of a log or a metric needs, without making a whole view.

use snic_domain::{BitstreamId, CardId, DagName, DagState, DagUid, Digest, RegionId, RegionState};

use crate::state::Controller;

/// A region in a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionGlance {
    /// How it is.
    pub state: RegionState,
    /// Whether nothing new is placed in it.
    pub cordoned: bool,
    /// What it is to hold.
    pub bitstream: Option<BitstreamId>,
}

impl Controller {
    /// A DAG: which one has the name now, and how it is. Time O(log DAGs + its regions).
    pub fn dag_glance(&self, name: &DagName) -> Option<(DagUid, DagState)> {
        let entry = self.dags.get(name)?;
        Some((entry.uid(), self.dag_state(entry)))
    }

    /// A region. Time O(log cards).
    pub fn region_glance(&self, card: &CardId, region: RegionId) -> Option<RegionGlance> {
        let card = self.cards.get(card)?;
        let entry = card.region(region)?;
        Some(RegionGlance {
            state: card.region_state(region),
            cordoned: entry.is_cordoned(),
            bitstream: entry.bitstream().cloned(),
        })
    }

    /// The digests of all bitstreams: whose bytes are needed.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        self.registry.bitstreams().map(|bitstream| bitstream.digest)
    }

    /// Whether somebody waits for a region to be loaded: a DAG that is to have its place there and
    /// is not served by what is on the card. Where nobody is, the load is hidden: all that it is
    /// for is served meanwhile. Time O(DAGs in the region).
    pub fn is_waited_for(&self, card: &CardId, region: RegionId) -> bool {
        let Some(card) = self.cards.get(card) else { return false };
        let served = |name: &DagName| self.dags.get(name).is_some_and(|dag| dag.active().is_some());
        card.ledger.users(region).any(|name| !served(name))
    }
}
