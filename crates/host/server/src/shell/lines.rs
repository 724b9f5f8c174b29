//! One log line for each change of a region's or a DAG's state.

use std::collections::{BTreeMap, HashMap};

use snic_api::convert::{card as wire_card, dag as wire_dag};
use snic_api::words::EnumWord as _;
use snic_controller::{Change, Controller, LogKind, RegionGlance};
use snic_domain::{CardId, DagName, DagState, DagUid, RegionId};

/// The states as of the last lines.
#[derive(Debug, Default)]
pub(super) struct LogLines {
    dags: HashMap<DagUid, DagState>,
    regions: BTreeMap<(CardId, RegionId), RegionGlance>,
}

/// A line to be logged once the change is durable.
#[derive(Debug)]
pub(super) enum LogLine {
    Dag {
        name: DagName,
        uid: DagUid,
        from: &'static str,
        to: &'static str,
    },
    Region {
        card: CardId,
        region: RegionId,
        from: &'static str,
        now: RegionGlance,
    },
    /// A card was lost, or is back.
    Card {
        card: CardId,
        is_lost: bool,
        text: String,
    },
}

/// The previous state in a resource's first line.
const NEW: &str = "NEW";

impl LogLines {
    /// Begins with the current states.
    pub fn of(controller: &Controller) -> Self {
        let dags = controller.dags_after(None, None).map(|dag| (dag.uid, dag.state)).collect();
        Self { dags, regions: BTreeMap::new() }
    }

    /// The line of a change; `None` if the state stays the same.
    pub fn line(&mut self, change: &Change, controller: &Controller) -> Option<LogLine> {
        match change {
            Change::Dag(name, uid) => {
                let (_, now) = controller.dag_glance(name).filter(|(found, _)| found == uid)?;
                let before = self.dags.insert(*uid, now);
                let from = before.map_or(NEW, |state| wire_dag::state_to_wire(state).word());
                let to = wire_dag::state_to_wire(now).word();
                (from != to).then(|| LogLine::Dag { name: name.clone(), uid: *uid, from, to })
            }
            Change::DagDeleted(dag) => {
                let before = self.dags.remove(&dag.uid);
                let from = before.map_or(NEW, |state| wire_dag::state_to_wire(state).word());
                let to = "DELETED";
                Some(LogLine::Dag { name: dag.name.clone(), uid: dag.uid, from, to })
            }
            Change::Region(card, region) => {
                let now = controller.region_glance(card, *region)?;
                let before = self.regions.insert((card.clone(), *region), now.clone());
                let same = before.as_ref().is_some_and(|before| {
                    before.state == now.state && before.cordoned == now.cordoned
                });
                let from = before
                    .map_or(NEW, |before| wire_card::region_state_to_wire(before.state).word());
                (!same).then(|| LogLine::Region { card: card.clone(), region: *region, from, now })
            }
            Change::Logged(entry) => {
                let is_lost = match entry.kind {
                    LogKind::CardLost | LogKind::CardUnhealthy | LogKind::CardError => true,
                    LogKind::CardBack
                    | LogKind::CardAdded
                    | LogKind::CardRemoved
                    | LogKind::CardHealthy => false,
                    _ => return None,
                };
                let (card, text) = (entry.card.clone()?, entry.text.clone());
                Some(LogLine::Card { card, is_lost, text })
            }
            _ => None,
        }
    }
}

impl LogLine {
    pub fn log(self) {
        match self {
            Self::Card { card, is_lost: true, text } => tracing::error!(%card, "{text}"),
            Self::Card { card, is_lost: false, text } => tracing::warn!(%card, "{text}"),
            Self::Dag { name, uid, from, to } => {
                tracing::info!(dag = %name, %uid, from, to, "DAG changed state");
            }
            Self::Region { card, region, from, now } => {
                let bitstream = now.bitstream.as_ref().map(tracing::field::display);
                let to = wire_card::region_state_to_wire(now.state).word();
                tracing::info!(
                    %card, region = region.0, from, to, cordoned = now.cordoned, bitstream,
                    "region changed state"
                );
            }
        }
    }
}
