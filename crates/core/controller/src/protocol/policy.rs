//! Policies that operators tune while the daemon runs; `policies/*.toml` document them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use snic_domain::limits::DAG_BANDWIDTH_MAX;
use snic_domain::{Bandwidth, BudgetPolicy};
use snic_fairness::fluid::Spare;
use snic_planner::Objective;
use snic_tables::{CreditReservation, Steering};
use snic_usage::Retention;

/// Shortest epoch: below it the card has not answered the last one yet.
pub const EPOCH_MIN: Duration = Duration::from_millis(1);
/// Longest epoch: above it a tenant waits seconds for what nobody else uses.
pub const EPOCH_MAX: Duration = Duration::from_secs(10);

/// Part of fair sharing that is in force; all but [`Scheme::Full`] are for comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Everybody has what was admitted, and no more.
    Static,
    /// Space is shared by DRF, by what was asked for; what a DAG may use of it does not follow the
    /// loads, so what it leaves is idle.
    Drf,
    /// Space by DRF and time by measured load.
    #[default]
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fairness {
    /// Part of fair sharing that is in force.
    pub scheme: Scheme,
    /// Interval between settings of rates (SuperNIC, 4.5: 20 ms).
    pub epoch: Duration,
    /// Rule for sharing what is left beyond the promises.
    pub spare: Spare,
    /// Part of a shared resource that is kept free, unless promises fill it, in percent,
    /// 0 to 50: queues stay short.
    pub headroom_percent: u32,
}

impl Default for Fairness {
    fn default() -> Self {
        Self {
            scheme: Scheme::Full,
            epoch: Duration::from_millis(20),
            spare: Spare::LevelShares,
            headroom_percent: 5,
        }
    }
}

/// Packet scheduling on the cards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Choice of a virtual chain's instance for a packet.
    pub steering: Steering,
    /// For how much of its chain a packet needs credits before it enters a region.
    pub reservation: CreditReservation,
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steering = match self.steering {
            Steering::RoundRobin => "round-robin",
            Steering::LeastLoaded => "least-loaded",
            Steering::ByFlow => "by-flow",
        };
        let reservation = match self.reservation {
            CreditReservation::Chain => "chain",
            CreditReservation::Prefix => "prefix",
        };
        write!(f, "steering {steering}, reservation {reservation}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionPolicy {
    /// Part of a card's ingress bandwidth that may be promised, in percent, 1 to 100.
    pub ingress_percent: u32,
    /// Most that one DAG may ask for.
    pub dag_bandwidth_max: Bandwidth,
    /// Answer to a new or changed DAG with tasks that pass packets on unchanged.
    pub idle_tasks: IdleTaskPolicy,
}

/// Answer to a DAG with tasks that pass packets on unchanged where it is placed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IdleTaskPolicy {
    /// It is created, and the reply names them.
    #[default]
    Warn,
    /// It is refused.
    Refuse,
}

impl Default for AdmissionPolicy {
    fn default() -> Self {
        Self {
            ingress_percent: 100,
            dag_bandwidth_max: DAG_BANDWIDTH_MAX,
            idle_tasks: IdleTaskPolicy::default(),
        }
    }
}

/// Cost limit of a consolidation, and the gain that it must bring (`policies/placement.toml`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsolidationSettings {
    /// Delay between freed capacity and a pass that begins on its own; `None`: only when asked.
    pub after: Option<Duration>,
    /// Most reconfigurations of a pass.
    pub reconfigurations_max: u32,
    /// Fewest regions that a pass frees, those it takes subtracted; at least 1.
    pub regions_min: u32,
    /// Fewest passes of the scheduler that are spared for moves that free no region; at least 1.
    pub passes_min: u32,
}

impl Default for ConsolidationSettings {
    fn default() -> Self {
        let after = Some(Duration::from_secs(60));
        Self { after, reconfigurations_max: 4, regions_min: 1, passes_min: 1 }
    }
}

/// Order of a host's cards for a DAG; cards that do not answer come last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CardOrder {
    /// The one with the greatest part of its ingress promised that has a place: others stay empty for DAGs
    /// that need much.
    Pack,
    /// The one with the least part of its ingress promised that has a place.
    #[default]
    Spread,
    /// The one where it takes the fewest new regions, replaced chains and passes; among equal ones as
    /// [`Self::Spread`]. Costs a plan for each card.
    Headroom,
}

/// Where DAGs are placed (`policies/placement.toml`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlacementPolicy {
    /// Objective that plans save first.
    pub objective: Objective,
    /// Order of the cards.
    pub cards: CardOrder,
}

/// When a card is too hot for new DAGs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DevicePolicy {
    /// From which temperature on, in degrees Celsius, where a sensor's driver names no limit.
    pub temperature_max_celsius: u32,
    /// Difference to its limit that each sensor must reach before new DAGs are placed again.
    pub temperature_margin_celsius: u32,
}

impl Default for DevicePolicy {
    fn default() -> Self {
        Self { temperature_max_celsius: 95, temperature_margin_celsius: 5 }
    }
}

/// Patience of the controller, and the policies by which it shares and promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerSettings {
    /// Number of attempts to load a region before it is given up; at least 1.
    pub load_attempts: u32,
    /// Wait after a first failure; doubled after each further one.
    pub backoff: Duration,
    /// The longest wait between two tries.
    pub backoff_max: Duration,
    pub fairness: Fairness,
    /// When DAGs get more instances, and when fewer.
    pub autoscaling: snic_autoscaler::Policy,
    pub admission: AdmissionPolicy,
    /// Packet scheduling on the cards.
    pub scheduling: Scheduling,
    /// Cost limit and least gain of moving DAGs together.
    pub consolidation: ConsolidationSettings,
    /// Where DAGs are placed.
    pub placement: PlacementPolicy,
    /// When a card is too hot.
    pub device: DevicePolicy,
    /// Part of the time in which promises are to be kept, in millionths.
    pub availability_ppm: u32,
    /// Warnings of tenants with a budget, and limits of those that have spent it.
    pub budgets: BudgetPolicy,
    /// Ages up to which intervals of usage are kept.
    pub usage_ages: Retention,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            load_attempts: 3,
            backoff: Duration::from_millis(20),
            backoff_max: Duration::from_secs(5),
            fairness: Fairness::default(),
            autoscaling: snic_autoscaler::Policy::default(),
            admission: AdmissionPolicy::default(),
            scheduling: Scheduling::default(),
            consolidation: ConsolidationSettings::default(),
            placement: PlacementPolicy::default(),
            device: DevicePolicy::default(),
            availability_ppm: 999_000,
            budgets: BudgetPolicy::default(),
            usage_ages: Retention::default(),
        }
    }
}

/// The values of a settings' text, by their path.
fn values(settings: &ControllerSettings) -> BTreeMap<String, String> {
    let (mut values, mut path) = (BTreeMap::new(), Vec::new());
    for line in format!("{settings:#?}").lines() {
        let line = line.trim().trim_end_matches(',');
        if let Some((name, value)) = line.split_once(": ")
            && !value.ends_with(['{', '(', '['])
        {
            path.push(name);
            values.insert(path[1..].join("."), value.to_owned());
            path.pop();
        } else if line.ends_with(['{', '(', '[']) {
            path.push(line.split_once(": ").map_or("", |(name, _)| name));
        } else if line.starts_with(['}', ')', ']']) {
            path.pop();
        } else {
            values.insert(path[1..].join("."), line.to_owned());
        }
    }
    values
}

impl ControllerSettings {
    /// Differences to the settings before, for people: `fairness.epoch: 40ms, was 20ms`.
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<String> {
        let (before, now) = (values(before), values(self));
        let none = "none".to_owned();
        let paths: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let of =
            |values: &BTreeMap<String, String>, path| values.get(path).unwrap_or(&none).clone();
        let both = paths.into_iter().map(|path| (path, of(&now, path), of(&before, path)));
        let changed = both.filter(|(_, now, before)| now != before);
        changed.map(|(path, now, before)| format!("{path}: {now}, was {before}")).collect()
    }

    /// Wait after the `failures`th failure in a row.
    pub(crate) fn wait(&self, failures: u32) -> Duration {
        let doubled = self.backoff.saturating_mul(1 << failures.saturating_sub(1).min(16));
        doubled.min(self.backoff_max)
    }
}
