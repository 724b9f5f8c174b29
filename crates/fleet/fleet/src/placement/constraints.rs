//! Demands of a request on hosts and cards, the order in which cards are preferred, and what a refusal says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use snic_domain::{CardModel, DagName, Infeasible};

use crate::{FleetCard, HostId, RackId, ZoneId};

/// Order of the cards that have room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CardPolicy {
    /// The one of whose ingress the largest part is promised already: others stay free for large DAGs.
    #[default]
    Pack,
    /// One on a host where the tenant has no DAG yet, if there is any with room before 400 others in order; the order is by
    /// the part of the ingress that is promised, the smallest first.
    Spread,
    /// The one with the most bandwidth left at its ingress.
    Headroom,
    /// One whose regions hold all NTs already with the bandwidth that the DAG needs, if there is any with room before 400
    /// others; of those as [`Self::Pack`].
    Loaded,
}

/// Demands on a card. The default allows every card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardConstraints {
    /// Models of cards; empty: all.
    pub models: BTreeSet<CardModel>,
    /// Zones; empty: all.
    pub zones: BTreeSet<ZoneId>,
    /// Racks; empty: all.
    pub racks: BTreeSet<RackId>,
    /// Labels that the host must have.
    pub labels: BTreeMap<String, String>,
    /// Only these hosts, as where machines are that send its packets; empty: all.
    pub hosts: BTreeSet<HostId>,
    /// Not on these hosts.
    pub apart_from_hosts: BTreeSet<HostId>,
    /// Only these cards; empty: all.
    pub cards: BTreeSet<FleetCard>,
    /// Not on these cards.
    pub apart_from_cards: BTreeSet<FleetCard>,
    /// Virtual functions that must be free.
    pub functions: u32,
    /// Not on a host that serves one of these DAGs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts_without_dags: BTreeSet<DagName>,
    /// Not in a rack with a host that serves one of these DAGs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub racks_without_dags: BTreeSet<DagName>,
    /// Hosts and racks of DAGs that it keeps apart from, as they are now; no record has them.
    #[serde(skip)]
    pub of_dags: PlacesOfDags,
}

/// Hosts and racks of the DAGs that a DAG keeps apart from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacesOfDags {
    /// Hosts of DAGs that it shares no host with.
    pub hosts: BTreeSet<HostId>,
    /// Racks of DAGs that it shares no rack with. Another zone may have a rack of the same name.
    pub racks: BTreeSet<(ZoneId, RackId)>,
}

impl PlacesOfDags {
    fn and(self, other: &Self) -> Self {
        Self { hosts: &self.hosts | &other.hosts, racks: &self.racks | &other.racks }
    }
}

impl CardConstraints {
    /// DAGs that it shares no host or no rack with.
    pub fn dags(&self) -> impl Iterator<Item = &DagName> {
        self.hosts_without_dags.union(&self.racks_without_dags)
    }

    /// Constraints that allow what both allow; `None` where that is no card.
    pub fn and(self, other: Self) -> Option<Self> {
        /// Empty lists allow all.
        fn both<T: Ord + Clone>(a: BTreeSet<T>, b: BTreeSet<T>) -> Option<BTreeSet<T>> {
            match (a.is_empty(), b.is_empty()) {
                (true, _) => Some(b),
                (_, true) => Some(a),
                _ => Some(&a & &b).filter(|both| !both.is_empty()),
            }
        }
        let mut labels = self.labels;
        for (key, value) in other.labels {
            if labels.insert(key, value.clone()).is_some_and(|before| before != value) {
                return None;
            }
        }
        Some(Self {
            models: both(self.models, other.models)?,
            zones: both(self.zones, other.zones)?,
            racks: both(self.racks, other.racks)?,
            labels,
            hosts: both(self.hosts, other.hosts)?,
            apart_from_hosts: &self.apart_from_hosts | &other.apart_from_hosts,
            cards: both(self.cards, other.cards)?,
            apart_from_cards: &self.apart_from_cards | &other.apart_from_cards,
            functions: self.functions.max(other.functions),
            hosts_without_dags: &self.hosts_without_dags | &other.hosts_without_dags,
            racks_without_dags: &self.racks_without_dags | &other.racks_without_dags,
            of_dags: self.of_dags.and(&other.of_dags),
        })
    }
}

/// Constraint that a host failed, in the order in which they are looked at. A host failed what the best of its cards failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Constraint {
    /// It does not answer, or has not said what it holds.
    Unreachable,
    /// An operator keeps new DAGs off it.
    Cordoned,
    /// It is in another zone.
    Zone,
    /// It is in another rack.
    Rack,
    /// It lacks a label.
    Labels,
    /// It is none of the hosts that the request is bound to.
    HostAffinity,
    /// It is one of the hosts that the request keeps apart from.
    HostAntiAffinity,
    /// It serves a DAG that the request shares no host with.
    HostOfDag,
    /// It is in the rack of a DAG that the request shares no rack with.
    RackOfDag,
    /// It has no card.
    NoCard,
    /// Its cards are of other models.
    CardModel,
    /// An operator keeps new DAGs off its card.
    CardCordoned,
    /// Its host has put more on its card than the fleet's books have room for.
    CardOverbooked,
    /// Its cards are none of those that the request is bound to.
    CardAffinity,
    /// Its cards are those that the request keeps apart from.
    CardAntiAffinity,
    /// Too few virtual functions are free.
    Functions,
    /// Enough virtual functions are free, but too many of these are reserved for others.
    FunctionsReserved,
    /// Too little bandwidth is left at ingress or egress.
    Bandwidth,
    /// Enough bandwidth is left, but too much of it is reserved for others.
    BandwidthReserved,
    /// An NT has too little bandwidth left, and no region can be loaded with it.
    Nts,
    /// The planner found no placement on its card.
    NoPlan,
    /// It does not have the image yet that would be loaded.
    Image,
    /// Nothing is known against it, but as many cards as a request may try were tried before.
    NotTried,
}

impl Constraint {
    const fn text(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Cordoned => "cordoned",
            Self::Zone => "in another zone",
            Self::Rack => "in another rack",
            Self::Labels => "without the labels",
            Self::HostAffinity => "not among the required hosts",
            Self::HostAntiAffinity => "excluded by host anti-affinity",
            Self::HostOfDag => "with DAGs to share no host with",
            Self::RackOfDag => "in racks of DAGs to share no rack with",
            Self::NoCard => "without a card",
            Self::CardModel => "with other card models",
            Self::CardCordoned => "with cordoned cards",
            Self::CardOverbooked => "with overbooked cards",
            Self::CardAffinity => "not among the required cards",
            Self::CardAntiAffinity => "excluded by card anti-affinity",
            Self::Functions => "with too few virtual functions",
            Self::FunctionsReserved => "with functions reserved for others",
            Self::Bandwidth => "with too little bandwidth",
            Self::BandwidthReserved => "with bandwidth reserved for others",
            Self::Nts => "with too little NT bandwidth and no region to load",
            Self::NoPlan => "without a feasible placement",
            Self::Image => "without the image yet",
            Self::NotTried => "not tried",
        }
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Why no card was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementRefused {
    /// Number of hosts that failed each constraint; together all hosts of the fleet.
    pub hosts: BTreeMap<Constraint, usize>,
    /// Why the planner refused the first card that it was asked for, if any.
    pub first: Option<Infeasible>,
}

impl PlacementRefused {
    /// Whether there may be room as soon as images have arrived that are on their way to hosts.
    pub fn waits_for_images(&self) -> bool {
        self.hosts.contains_key(&Constraint::Image)
    }

    /// Whether hosts could not be asked.
    pub fn lacks_hosts(&self) -> bool {
        self.hosts.contains_key(&Constraint::Unreachable)
    }
}

impl fmt::Display for PlacementRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: usize = self.hosts.values().sum();
        write!(f, "none of {all} hosts has room")?;
        for (index, (constraint, hosts)) in self.hosts.iter().enumerate() {
            write!(f, "{} {hosts} {constraint}", if index == 0 { ":" } else { "," })?;
        }
        self.first.as_ref().map_or(Ok(()), |first| write!(f, "; on the first card tried: {first}"))
    }
}

impl std::error::Error for PlacementRefused {}
