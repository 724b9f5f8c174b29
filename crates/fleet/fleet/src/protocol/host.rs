//! Orders to hosts, and their reports. Both travel as JSON between programs one version apart.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use snic_domain::{
    Bitstream, BitstreamId, CardId, DagAttachments, DagName, DagSpec, Digest, FunctionUse,
    KeptForTenant, Mapping, NtType, NtTypeId, RegionId, Tenant, TenantId,
};
use snic_planner::Reservation;

use super::Epoch;
use crate::dag_records::PlaceRecord;

/// Something that hosts are given, with its number: another number is another thing, even under the same id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered<T> {
    pub number: u64,
    pub of: T,
}

/// Provisions of a host beside DAGs: the number of each, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provisions {
    pub nts: BTreeMap<NtTypeId, u64>,
    pub bitstreams: BTreeMap<BitstreamId, u64>,
    pub tenants: BTreeMap<TenantId, u64>,
}

impl Provisions {
    /// The digest of ids and numbers, in order.
    pub fn digest(&self) -> Digest {
        let nts = Self::digest_of(self.nts.iter().map(|(id, of)| (id.as_str(), *of)));
        let bitstreams = self.bitstreams.iter().map(|(id, of)| (id.as_str(), *of));
        let tenants = self.tenants.iter().map(|(id, of)| (id.as_str(), *of));
        Self::digest_from(nts, Self::digest_of(bitstreams), Self::digest_of(tenants))
    }

    /// Digest of one kind.
    pub(crate) fn digest_of<'a>(all: impl Iterator<Item = (&'a str, u64)>) -> Digest {
        let text = all.fold(String::new(), |text, (id, number)| text + &format!("{id} {number}\n"));
        Digest::of(text.as_bytes())
    }

    /// Digest of all kinds, from the digest of each.
    pub(crate) fn digest_from(nts: Digest, bitstreams: Digest, tenants: Digest) -> Digest {
        Digest::of(format!("{nts} {bitstreams} {tenants}").as_bytes())
    }
}

/// The texts of policy files by name, such as `fairness.toml`.
pub type PolicyFiles = BTreeMap<String, String>;

/// The fleet's policies that a host looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPolicies {
    /// The number of the files; 0: none.
    pub number: u64,
    /// Why they are not in force there. What was before stays.
    pub refused: Option<String>,
}

/// An order to a host, released only once what it follows from is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostOrder {
    /// Epoch of the leader. A host rejects an order of an earlier epoch than it has seen.
    pub epoch: Epoch,
    /// Rises within an epoch.
    pub sequence: u64,
    pub what: OrderKind,
}

/// Work that a host is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderKind {
    /// Take over the epoch and report.
    Greet,
    /// Report all DAGs of a card.
    List(CardId),
    /// Report what was provided.
    ListProvided,
    /// Report whatever leads packets to DAGs. Only for hosts whose beats have its digest.
    ListAttachments,
    /// Serve a DAG. Where the card serves it already, with another serial, it is changed without a stop.
    Put {
        name: DagName,
        spec: Box<DagSpec>,
        place: Box<PlaceRecord>,
        /// Owner: with the fleet's weight, and quotas that allow everything, for the fleet has checked them.
        tenant: Box<Numbered<Tenant>>,
    },
    /// Serve a DAG no more, if it still has the place with this serial.
    Remove {
        name: DagName,
        /// On which card.
        card: CardId,
        /// Serial of its place.
        serial: u64,
        /// Only if nothing leads packets to it: [`HostReport::Removed`] or [`HostReport::Kept`] says what came of it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        if_detached: bool,
    },
    /// Register NT types and tenants, fetch images and register bitstreams; what was provided before stays.
    Provide {
        /// All NT types are for all hosts.
        nts: Vec<Numbered<NtType>>,
        /// Bitstreams for the models of its cards.
        bitstreams: Vec<Numbered<Bitstream>>,
        /// Tenants whose DAGs it has.
        tenants: Vec<Numbered<Tenant>>,
    },
    /// Forget what was provided with these numbers, once nothing uses it.
    Withdraw(Provisions),
    /// Put policy files in force instead of those before. Only for hosts whose beats have [`HostPolicies`].
    SetPolicies(Numbered<PolicyFiles>),
    /// Keep functions and bandwidth for tenants: these reservations and no others. Only for hosts whose beats have
    /// [`FunctionUse`].
    Keep(Vec<KeptForTenant>),
}

/// Placement that a host's controller really chose for a DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostChoice {
    /// Mapping of the DAG to regions.
    pub mapping: Mapping,
    /// Reservation on the card.
    pub reservation: Reservation,
}

/// Report of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostReport {
    Beat {
        /// The highest epoch that it has seen.
        epoch: Epoch,
        /// The last order of that epoch which it looked at.
        sequence: u64,
        /// Digest of what each card holds ([`crate::holdings_digest`]).
        digests: BTreeMap<CardId, Digest>,
        /// The digest of what it was told to have ([`Provisions::digest`]), whether it is there already or not.
        provided: Digest,
        /// Bitstreams of these whose image it does not have yet; at most [`MISSING_MAX`], and then others may be missing.
        missing: BTreeSet<BitstreamId>,
        /// Faults that keep its cards from taking anything; cards without a fault are left out. `None`: it does not say.
        faults: Option<BTreeMap<CardId, CardFaults>>,
        /// Policies that it looked at. `None`: it takes none.
        policies: Option<HostPolicies>,
        /// Digest of whatever leads packets to its DAGs ([`attachments_digest`]). `None`: it does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attachments: Option<Digest>,
        /// Functions that machines have, and reservations that it knows. `None`: it does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        functions: Option<FunctionUse>,
    },
    /// Whatever leads packets to DAGs: of all of them, or what has changed since the last such report.
    Attachments {
        /// The epoch of the order that asked for it first.
        epoch: Epoch,
        /// DAGs that are not here have nothing, rather than what was reported before.
        is_all: bool,
        #[serde(with = "pairs")]
        dags: Attachments,
    },
    /// A DAG that nothing leads packets to is served no more, as ordered.
    Removed {
        name: DagName,
        /// On which card.
        card: CardId,
        /// Serial of its place.
        serial: u64,
    },
    /// A DAG was to be removed if nothing leads packets to it. Something does, and it is served on.
    Kept {
        name: DagName,
        /// On which card.
        card: CardId,
        /// Serial of its place.
        serial: u64,
        /// Where its controller has it, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<Box<HostChoice>>,
    },
    /// All DAGs of a card, each with the serial of its place.
    Holds {
        /// The epoch of the order that asked for it.
        epoch: Epoch,
        card: CardId,
        #[serde(with = "pairs")]
        dags: BTreeMap<DagName, u64>,
    },
    /// Provisions that it was ordered to have.
    Has {
        /// The epoch of the order that asked for it.
        epoch: Epoch,
        /// All of it.
        provided: Provisions,
    },
    /// A DAG is served.
    Applied {
        name: DagName,
        /// Serial of its place.
        serial: u64,
        /// Where its controller put it, if it says so: also later, when that changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<Box<HostChoice>>,
    },
    /// A DAG cannot be served, not be changed, or not be served any longer: the host knows better what its card has.
    Refused {
        name: DagName,
        /// Serial of its place.
        serial: u64,
        reason: String,
        /// Regions of the card that take nothing.
        faulty: Vec<RegionId>,
        /// It was served there, and has lost its place.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        was_served: bool,
    },
}

/// Faults that keep a card from taking anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardFaults {
    /// The whole card: it does not answer, or was removed.
    pub is_gone: bool,
    /// Regions that failed.
    pub regions: BTreeSet<RegionId>,
    /// Regions that take nothing new: an operator of the host keeps it off them. What they serve stays.
    pub cordoned: BTreeSet<RegionId>,
}

/// Whatever leads packets to DAGs; those with nothing are left out.
pub type Attachments = BTreeMap<DagName, DagAttachments>;

/// Most DAGs of a host to which something leads that it reports. Where there are more, its beats do not say.
pub const ATTACHED_MAX: usize = 20_000;

/// Digest of names and what leads packets to them, in order.
pub fn attachments_digest(of: &Attachments) -> Digest {
    let line =
        |(name, of): (&DagName, &DagAttachments)| format!("{name} {} {}\n", of.machines, of.rules);
    Digest::of(of.iter().map(line).collect::<String>().as_bytes())
}

/// Most bitstreams that a beat says are missing.
pub const MISSING_MAX: usize = 1_000;

/// A map by names that are no text: JSON has it as a list of pairs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<K, V, S>(map: &BTreeMap<K, V>, serializer: S) -> Result<S::Ok, S::Error>
    where
        K: Serialize,
        V: Serialize,
        S: Serializer,
    {
        serializer.collect_seq(map)
    }

    pub fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Vec::<(K, V)>::deserialize(deserializer).map(|pairs| pairs.into_iter().collect())
    }
}
