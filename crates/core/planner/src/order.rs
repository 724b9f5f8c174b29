//! Order in which the terms of a plan's cost are compared, by the card's objective and what is short.

use snic_domain::EmbeddingCost;

use crate::ledger::Ledger;
use crate::objective::Objective;
use crate::reservation::TableRows;

/// Ports of regions in use, and the scheduler's look-ups, count as short beyond this part, in percent.
const PORTS_SHORT_PERCENT: u64 = 50;
/// Weight of a row beyond the first of a DAG: a card has about as many rows for chains as
/// for DAGs, so each second row of a DAG is one DAG fewer.
const FURTHER_ROWS_WEIGHT: u64 = 16;

/// Order in which the terms of a score are compared.
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
    // Multiplied out instead of divided: plans have to be the same on every machine, and the parts are compared
    // exactly.
    u128::from(a) * u128::from(d) > u128::from(c) * u128::from(b)
}

impl Ledger {
    /// Promised part of the card's ingress, in thousand-millionths.
    pub fn promised_ppb(&self) -> u64 {
        let ingress = u128::from(self.profile().ingress.get().max(1));
        let promised = self.profile().ingress.saturating_sub(self.ingress_residual());
        u64::try_from(u128::from(promised.get()) * 1_000_000_000 / ingress).unwrap_or(u64::MAX)
    }

    /// Whether some DAG has more than one pass of the scheduler, so that another region may save it one.
    pub fn has_further_passes(&self) -> bool {
        let taken = self.rows_max().zip(self.rows_residual(), u32::saturating_sub);
        taken.stages > taken.dags
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

    /// Whether rows, ports or look-ups would run out before regions do at the present ratio.
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
        let is_short = |taken, max| {
            is_greater_part(taken, max, used, all)
                && is_greater_part(taken, max, PORTS_SHORT_PERCENT, 100)
        };
        is_short(ports, ports_max)
            || is_short(self.lookups_taken(), crate::work::lookups_max(self.profile()))
            || is_short(self.reads_taken(), crate::work::reads_max(self.profile()))
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{CardId, CardProfile, RegionId, RegionPass};

    use super::*;
    use crate::Reservation;
    use crate::fixtures::{card, catalogue, gbps, load, name, shares};
    use crate::reservation::PortShare;

    const ROWS: TableRows = TableRows { dags: 100, stages: 100, chains: 100, instances: 100 };

    /// The order of a card of four regions of which one is in use, with these rows taken.
    fn order_with(rows_max: TableRows, [dags, stages, chains, instances]: [u32; 4]) -> Order {
        let catalogue = catalogue("a", &[("a", "a")]);
        let mut ledger =
            Ledger::with_rows(CardId::new("card0").expect("a test id"), card(4), rows_max);
        load(&mut ledger, &catalogue, 0, "a");
        let rows = TableRows { dags, stages, chains, instances };
        let held = Reservation { rows, ..shares(&[(0, 0, 1)]) };
        ledger.hold(&name("t0/a"), held).expect("it fits");
        ledger.order()
    }

    /// A row beyond the first of a DAG counts sixteen times: 10 and one more are 26 of 100, more than 1 of 4.
    #[test]
    fn rows_are_short_beyond_the_part_of_regions_in_use() {
        for (rows, order) in [
            ([0, 0, 0, 0], Order::Regions),
            ([25, 25, 25, 25], Order::Regions),
            ([26, 25, 25, 25], Order::Passes),
            ([9, 10, 9, 9], Order::Regions),
            ([10, 11, 10, 10], Order::Passes),
            ([10, 10, 11, 10], Order::Passes),
            ([10, 10, 10, 11], Order::Passes),
            ([8, 9, 9, 9], Order::Regions),
            ([8, 10, 9, 9], Order::Passes),
        ] {
            assert_eq!(order_with(ROWS, rows), order, "{rows:?}");
        }
        assert_eq!(order_with(TableRows::UNLIMITED, [26, 90, 90, 90]), Order::Regions);
    }

    /// Half of the ports of the regions in use, and a greater part than of the regions.
    #[test]
    fn ports_are_short_from_half_of_them_on() {
        let catalogue = catalogue("a", &[("a", "a")]);
        let port_max = crate::work::port_max(&card(1));
        let order = |regions: usize, used: u8, cycles: u64| {
            let mut ledger = crate::fixtures::ledger(regions);
            for region in 0..used {
                load(&mut ledger, &catalogue, region, "a");
                let region = RegionId(region);
                let ports = [PortShare { region, cycles }].into_iter().collect();
                let held = Reservation { ports, ..shares(&[(region.0, 0, 1)]) };
                ledger.hold(&name(&format!("t0/d{}", region.0)), held).expect("it fits");
            }
            ledger.order()
        };
        assert_eq!(order(4, 1, port_max / 2), Order::Regions);
        assert_eq!(order(4, 1, port_max / 2 + 1), Order::Passes);
        assert_eq!(order(4, 3, port_max / 4 * 3), Order::Regions, "three of four as well");
        assert_eq!(order(4, 3, port_max / 4 * 3 + 1), Order::Passes);
        assert_eq!(order(2, 2, port_max), Order::Regions, "there is no region to open");
    }

    /// Half of them, and a greater part than of the regions.
    #[test]
    fn look_ups_are_short_from_half_of_them_on() {
        let catalogue = catalogue("a", &[("a", "a")]);
        let order = |used: u8, lookups: u64| {
            let limit = std::num::NonZeroU32::new(1);
            let profile = CardProfile { scheduler_lookups_per_cycle: limit, ..card(4) };
            let mut ledger = Ledger::new(CardId::new("card0").expect("a test id"), profile);
            for region in 0..used {
                load(&mut ledger, &catalogue, region, "a");
                let lookups = lookups / u64::from(used);
                let held = Reservation { lookups, ..shares(&[(region, 0, 1)]) };
                ledger.hold(&name(&format!("t0/d{region}")), held).expect("it fits");
            }
            ledger.order()
        };
        assert_eq!(order(1, 120_000_000), Order::Regions);
        assert_eq!(order(1, 120_000_001), Order::Passes);
        assert_eq!(order(3, 180_000_000), Order::Regions, "three of four as well");
        assert_eq!(order(3, 180_000_003), Order::Passes);
    }

    #[test]
    fn only_the_balanced_objective_looks_at_the_card() {
        let mut ledger = Ledger::with_rows(
            CardId::new("card0").expect("a test id"),
            CardProfile { region_pass: Some(RegionPass::SUPERNIC), ..card(4) },
            ROWS,
        );
        let rows = TableRows { dags: 90, ..TableRows::default() };
        for (is_full, balanced) in [(false, Order::Regions), (true, Order::Passes)] {
            if is_full {
                let held = Reservation { rows, ..Reservation::default() };
                ledger.hold(&name("t0/a"), held).expect("90 of 100");
            }
            for (objective, order) in [
                (Objective::Regions, Order::Regions),
                (Objective::Passes, Order::Passes),
                (Objective::Balanced, balanced),
            ] {
                ledger.set_objective(objective);
                assert_eq!(ledger.order(), order, "{objective:?} {is_full}");
            }
        }
    }

    /// All pairs of small costs, beside a comparison of one term after the other.
    #[test]
    fn costs_are_compared_term_by_term() {
        let costs = (0u32..27).map(|n| [n / 9, n / 3 % 3, n % 3]).collect::<Vec<_>>();
        let is_less = |order: Order, terms: [usize; 3], a: &[u32; 3], b: &[u32; 3]| {
            let cost =
                |of: &[u32; 3]| EmbeddingCost { regions: of[0], victims: of[1], passes: of[2] };
            let first = terms.into_iter().find(|term| a[*term] != b[*term]);
            let expected = first.is_some_and(|term| a[term] < b[term]);
            assert_eq!(order.is_less(cost(a), cost(b)), expected, "{order:?} {a:?} {b:?}");
        };
        for a in &costs {
            for b in &costs {
                is_less(Order::Regions, [0, 1, 2], a, b);
                is_less(Order::Passes, [2, 0, 1], a, b);
            }
        }
    }

    #[test]
    fn parts_are_compared_without_rounding_or_overflow() {
        assert!(is_greater_part(2, 3, 1, 2) && !is_greater_part(1, 2, 2, 3));
        assert!(!is_greater_part(2, 4, 1, 2), "they are equal");
        let most = u64::MAX;
        assert!(is_greater_part(most, most, most - 1, most));
        assert!(!is_greater_part(most - 1, most, most, most));
        assert!(!is_greater_part(0, 1, 0, 1));
    }

    #[test]
    fn the_promised_fraction_is_in_parts_per_billion() {
        let mut ledger = Ledger::new(
            CardId::new("card0").expect("a test id"),
            CardProfile { region_pass: None, ..card(1) },
        );
        for (gbit, ppb) in [(0, 0), (1, 10_000_000), (50, 500_000_000), (100, 1_000_000_000)] {
            let held = Reservation { ingress: gbps(gbit), ..Reservation::default() };
            ledger.hold(&name("t0/a"), held).expect("of 100");
            assert_eq!(ledger.promised_ppb(), ppb, "{gbit} of 100 Gbit/s");
        }
    }
}
