//! What operators tune while the daemon runs: `policies/*.toml` say it in words.

use std::fmt;
use std::time::Duration;

use snic_domain::Bandwidth;
use snic_domain::limits::DAG_BANDWIDTH_MAX;
use snic_fairness::fluid::Spare;
use snic_tables::{Reservation, Steering};

/// Shortest epoch: below it the card has not answered the last one yet.
pub const EPOCH_MIN: Duration = Duration::from_millis(1);
/// Longest epoch: above it a tenant waits seconds for what nobody else uses.
pub const EPOCH_MAX: Duration = Duration::from_secs(10);

/// How much of fair sharing is in force; all but [`Scheme::Full`] are for comparison.
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

/// Fair sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fairness {
    /// How much of it.
    pub scheme: Scheme,
    /// How often rates are set (SuperNIC, 4.5: 20 ms).
    pub epoch: Duration,
    /// How what is left beyond the promises is shared.
    pub spare: Spare,
    /// How much of a resource that tenants share is kept free, unless promises fill it, in percent,
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

/// How packets are scheduled on the cards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Which instance of a virtual chain a packet goes to.
    pub steering: Steering,
    /// For how much of its chain a packet needs credits before it enters a region.
    pub reservation: Reservation,
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steering = match self.steering {
            Steering::RoundRobin => "round-robin",
            Steering::LeastLoaded => "least-loaded",
        };
        let reservation = match self.reservation {
            Reservation::Chain => "chain",
            Reservation::Prefix => "prefix",
        };
        write!(f, "steering {steering}, reservation {reservation}")
    }
}

/// What is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// How much of a card's ingress bandwidth may be promised, in percent, 1 to 100.
    pub ingress_percent: u32,
    /// Most that one DAG may ask for.
    pub dag_bandwidth_max: Bandwidth,
}

impl Default for Admission {
    fn default() -> Self {
        Self { ingress_percent: 100, dag_bandwidth_max: DAG_BANDWIDTH_MAX }
    }
}
