//! Records of a fleet's DAGs and of the functions that are reserved for them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use snic_domain::{Bandwidth, DagName, DagSpec, Digest, Mapping, TenantId, Timestamp, VmId};
use snic_planner::{RegionLoad, Reservation};

use crate::FleetCard;
use crate::placement::{CardConstraints, CardPolicy, PlacementDefaults};
use crate::request_id::RequestId;

/// When a record was made and changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordMeta {
    /// No other record of the fleet has or had this number.
    pub serial: u64,
    /// 1 at first, and one more with each change that somebody asked for.
    pub revision: u64,
    /// When it was made, by the leader's clock.
    pub created: Timestamp,
    /// When it was changed last.
    pub updated: Timestamp,
}

impl RecordMeta {
    /// Head of a new record.
    pub const fn new(serial: u64, now: Timestamp) -> Self {
        Self { serial, revision: 1, created: now, updated: now }
    }

    /// It is changed.
    pub(crate) const fn change(&mut self, now: Timestamp) {
        self.revision += 1;
        self.updated = now;
    }

    /// Another text for each change of each record.
    pub fn etag(&self) -> String {
        let [a, b, ..] =
            Digest::of(format!("{}/{}", self.serial, self.revision).as_bytes()).words();
        format!("{a:08x}{b:08x}")
    }
}

/// The place of a DAG: the promise that a card serves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRecord {
    pub card: FleetCard,
    /// No other place has or had this number.
    pub serial: u64,
    /// Mapping to regions.
    pub mapping: Mapping,
    /// Reservation on the card.
    pub reservation: Reservation,
}

impl PlaceRecord {
    /// Desired content of its regions.
    pub fn loads(&self) -> Vec<RegionLoad> {
        let mut loads: Vec<RegionLoad> = Vec::new();
        for instance in self.mapping.instances() {
            let (region, bitstream) = (instance.region, instance.bitstream.clone());
            if loads.iter().all(|load| load.region != region) {
                loads.push(RegionLoad { region, bitstream, replaces: None });
            }
        }
        loads
    }
}

/// Fate of a DAG without a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unplaced {
    /// Its host is lost or refused it, and it waits for room elsewhere.
    Waits(String),
    /// As many hosts refused it as it was offered to; with all their reasons.
    Failed(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetDagRecord {
    pub name: DagName,
    pub spec: DagSpec,
    /// Where it may go, as its tenant said.
    pub constraints: CardConstraints,
    /// Constraints that the policy added when it was created.
    #[serde(default, skip_serializing_if = "PlacementDefaults::is_none")]
    pub defaults: PlacementDefaults,
    /// Order of the cards that have room.
    pub policy: CardPolicy,
    pub place: Option<PlaceRecord>,
    /// Why it has none.
    pub unplaced: Option<Unplaced>,
    /// The place that serves it until its new one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<(FleetCard, u64)>,
    /// Cards that refused it since its last success, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<(FleetCard, String)>,
    /// The place on the same card that is changed into the present one, without a stop, until the host says that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<u64>,
    /// Its host has said that it serves it at its place. What a host cannot serve any longer is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ready: bool,
    /// The last generation that a host has said it serves; 0: none.
    pub served_generation: u64,
    /// Counts changes of what is served.
    pub generation: u64,
    /// Places with later serials serve the present spec; 0: all, or it was changed by an earlier version.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spec_serial: u64,
    /// When it was made and changed.
    pub meta: RecordMeta,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(of: &u64) -> bool {
    *of == 0
}

impl FleetDagRecord {
    /// It may be on certain hosts only, so that it never moves by itself.
    pub fn is_pinned(&self) -> bool {
        !self.constraints.hosts.is_empty()
    }

    /// Parts that name other DAGs.
    pub(crate) const fn named(&self) -> (&DagSpec, &CardConstraints) {
        (&self.spec, &self.constraints)
    }

    /// Whether a place with this serial, of this DAG or of one that had its name before, is of the DAG.
    pub const fn is_own(&self, serial: u64) -> bool {
        serial > self.meta.serial
    }

    /// Whether a place with this serial serves the present spec.
    pub const fn is_present(&self, serial: u64) -> bool {
        // A record of an earlier version does not say since when.
        let is_known = self.spec_serial > 0 || self.generation <= 1;
        is_known && self.is_own(serial) && serial > self.spec_serial
    }

    /// Where it may go now: not to cards that refused it.
    pub fn constraints_now(&self) -> CardConstraints {
        let refused: BTreeSet<FleetCard> =
            self.refusals.iter().map(|(card, _)| card.clone()).collect();
        let mut constraints = self.constraints.clone();
        self.defaults.add_to(&mut constraints);
        constraints.apart_from_cards.extend(refused);
        constraints
    }
}

/// Virtual functions and bandwidth of a card that are kept for a machine which is about to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedFunctions {
    pub tenant: TenantId,
    /// Its number, chosen by who asked.
    pub id: RequestId,
    pub card: FleetCard,
    pub functions: u32,
    /// It ends so many seconds after it was made or renewed.
    pub seconds: u32,
    /// When it ends, by the leader's clock. `None`: an earlier version made it, and it ends that long after an election.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Timestamp>,
    /// Bandwidth at ingress and egress.
    #[serde(default)]
    pub bandwidth: Bandwidth,
    /// The only machine that may use its functions; `None`: any of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmId>,
    /// Its number, as who asked wrote it; empty: an earlier version made it.
    #[serde(default)]
    pub uuid: String,
    /// Its host knows it by this number; 0: an earlier version made it, and its host does not.
    #[serde(default)]
    pub serial: u64,
    /// Rises with each change that its host is to learn of.
    #[serde(default)]
    pub revision: u64,
    /// Functions that machines have taken of it, as its host said.
    #[serde(default)]
    pub functions_used: u32,
    /// Bandwidth that DAGs of the tenant on the card have taken of it.
    #[serde(default)]
    pub bandwidth_used: Bandwidth,
}

impl ReservedFunctions {
    /// Functions that are still kept.
    pub const fn functions_left(&self) -> u32 {
        self.functions.saturating_sub(self.functions_used)
    }

    /// Bandwidth that is still kept.
    pub const fn bandwidth_left(&self) -> Bandwidth {
        self.bandwidth.saturating_sub(self.bandwidth_used)
    }
}
