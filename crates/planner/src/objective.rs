//! What plans save first.

use serde::{Deserialize, Serialize};
use snic_domain::EmbeddingCost;

use crate::{Ledger, TableRows};

/// Ports of regions in use count as short beyond this part, in percent.
const PORTS_SHORT_PERCENT: u64 = 50;
/// How often a row beyond the first of a DAG counts: a card has about as many rows for chains as for DAGs, so
/// what one DAG takes twice, another one goes without.
const FURTHER_ROWS_WEIGHT: u64 = 16;

/// What plans for a card save first, after admitting the DAG and interrupting no other one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The fewest new regions, then the fewest victims, then the fewest passes.
    Regions,
    /// The fewest passes, then the fewest new regions, then the fewest victims.
    Passes,
    /// As [`Self::Regions`]; as [`Self::Passes`] while table rows or ports run short: while a greater part of
    /// the rows of a table is taken than of the regions (where every row beyond the first of a DAG counts
    /// sixteen times), or of the ports of the regions in use (from half of them on).
    #[default]
    Balanced,
}

/// Which terms of a score are compared first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Regions,
    Passes,
}

impl Order {
    /// Terms of a cost, the first one that differs decides.
    pub(crate) const fn rank(self, regions: usize, victims: usize, passes: usize) -> [usize; 3] {
        match self {
            Self::Regions => [regions, victims, passes],
            Self::Passes => [passes, regions, victims],
        }
    }

    pub(crate) fn is_less(self, a: EmbeddingCost, b: EmbeddingCost) -> bool {
        let rank = |cost: EmbeddingCost| {
            self.rank(cost.regions as usize, cost.victims as usize, cost.passes as usize)
        };
        rank(a) < rank(b)
    }
}

/// `a / b > c / d`.
fn is_greater_part(a: u64, b: u64, c: u64, d: u64) -> bool {
    u128::from(a) * u128::from(d) > u128::from(c) * u128::from(b)
}

impl Ledger {
    /// How much of the card's ingress is promised, in thousand-millionths.
    pub fn promised_ppb(&self) -> u64 {
        let ingress = u128::from(self.profile().ingress.get().max(1));
        let promised = self.profile().ingress.saturating_sub(self.ingress_residual());
        u64::try_from(u128::from(promised.get()) * 1_000_000_000 / ingress).unwrap_or(u64::MAX)
    }

    /// The order in which a plan on the card as it is compares its alternatives.
    pub(crate) fn order(&self) -> Order {
        match self.objective() {
            Objective::Regions => Order::Regions,
            Objective::Passes => Order::Passes,
            Objective::Balanced if self.is_short_of_rows_or_ports() => Order::Passes,
            Objective::Balanced => Order::Regions,
        }
    }

    /// Whether rows or ports run out before regions do, if it goes on like this.
    fn is_short_of_rows_or_ports(&self) -> bool {
        let all = self.region_count() as u64;
        let used = self.profile().regions().filter(|(r, _)| !self.is_unused(*r)).count() as u64;
        let max = self.rows_max();
        let taken = max.zip(self.rows_residual(), u32::saturating_sub);
        let dags = taken.dags;
        let mut rows = taken.beside(max).into_iter();
        let unlimited = TableRows::UNLIMITED.dags;
        let is_short = |(_, taken, max): (&str, u32, u32)| {
            let further = u64::from(taken.saturating_sub(dags)) * FURTHER_ROWS_WEIGHT;
            let taken = u64::from(taken.min(dags)) + further;
            max != unlimited && is_greater_part(taken, max.into(), used, all)
        };
        if rows.any(is_short) {
            return true;
        }
        let (ports, port_max) = (self.ports_taken(), crate::work::port_max(self.profile()));
        let ports_max = used.saturating_mul(port_max);
        is_greater_part(ports, ports_max, used, all)
            && is_greater_part(ports, ports_max, PORTS_SHORT_PERCENT, 100)
    }
}
