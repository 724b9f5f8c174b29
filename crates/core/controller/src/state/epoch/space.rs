//! Space: how much of a card's area and memory each tenant may hold, by weighted DRF.

use snic_domain::Bandwidth;
use snic_fairness::drf::{self, AMOUNT_MAX, DrfProblem, Fraction, Share, User, UserLimit};
use snic_fairness::fluid::{Demand, InvalidNetwork};

use super::flows::{AREA_BITS, DagFlow, EpochOutcome, OF_REGIONS, TenantOutcome, Topology};
use crate::protocol::Scheme;

/// Bits after the point of a share, as its type defines them.
const SHARE_BITS: u32 = Share::ONE.raw().trailing_zeros();
/// Bits after the point of what a flow may hold, as a part of what it wants.
const PART_BITS: u32 = 62;

/// Shape of a flow in space.
#[derive(Debug, Clone, Copy)]
struct Shape {
    tenant: u32,
    area_per_bps: u64,
    memory: u64,
}

/// Inputs that do not change from step to step, and room to compute in.
#[derive(Debug, Clone)]
pub(super) struct Space {
    problem: DrfProblem,
    solver: drf::DrfSolver,
    /// Shapes of the flows.
    shapes: Vec<Shape>,
    /// Allocations on other cards, by tenant, in the units of this one; empty if there are none.
    elsewhere: Vec<[u64; 2]>,
    /// Area and memory that a tenant's flows want, by tenant.
    demands: Vec<[u64; 2]>,
    /// Part of its demand that a flow may hold, by tenant; `None`: all of it.
    parts: Vec<Option<u64>>,
}

impl Space {
    /// Fails where there are more tenants than DRF is computed for.
    pub fn new(topology: &Topology) -> Result<Self, InvalidNetwork> {
        let (given, limit) = (topology.tenants.len(), drf::USERS_MAX);
        if given > limit {
            return Err(InvalidNetwork::TooMany { what: "tenants", given, limit });
        }
        let whole = Fraction::new(1, 1).expect("one is a fraction");
        let users = topology.tenants.iter().map(|tenant| {
            let user = User::new(&[0, 0]).weighted(tenant.weight).capped(whole);
            match tenant.memory_max {
                Some(pages) => user.with_quota(&[None, Some(pages.min(AMOUNT_MAX))]),
                None => user,
            }
        });
        let capacities = topology.space().map(|amount| amount.min(AMOUNT_MAX));
        let problem = DrfProblem::new(&capacities, users.collect())
            .expect("two resources, few users, and amounts cut to what is allowed");
        let solver = drf::DrfSolver::default();
        let shape = |flow: &DagFlow| Shape {
            tenant: flow.tenant,
            area_per_bps: flow.area_per_bps,
            memory: flow.memory,
        };
        let shapes = topology.flows.iter().map(shape).collect();
        let (elsewhere, demands, parts) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { problem, solver, shapes, elsewhere, demands, parts })
    }

    /// Sets the allocations of tenants on other cards, in the order of the topology: area and memory in the units
    /// of this card.
    pub fn set_elsewhere(&mut self, elsewhere: Vec<[u64; 2]>) {
        self.elsewhere = elsewhere;
    }

    /// Allocation of a tenant on other cards.
    pub fn elsewhere(&self, tenant: usize) -> [u64; 2] {
        self.elsewhere.get(tenant).copied().unwrap_or_default()
    }

    /// Amount of its dominant resource that a tenant holds elsewhere, in units of a share of this card's.
    fn held(&self) -> Vec<u64> {
        let of_tenant = |(tenant, amounts): (usize, &[u64; 2])| {
            let k = self.problem.dominant(tenant)?;
            let capacity = u128::from(self.problem.capacities()[k].max(1));
            u64::try_from((u128::from(amounts[k]) << SHARE_BITS) / capacity).ok()
        };
        let tenants = self.elsewhere.iter().enumerate().take(self.problem.users().len());
        tenants.map(|tenant| of_tenant(tenant).unwrap_or(0)).collect()
    }

    /// Weighted DRF: fills `outcome.tenants` and `outcome.fair`.
    pub fn divide(
        &mut self,
        topology: &Topology,
        scheme: Scheme,
        demands: &[Demand],
        outcome: &mut EpochOutcome,
    ) {
        self.demands.clear();
        self.demands.resize(topology.tenants.len(), [0; 2]);
        for (flow, demand) in self.shapes.iter().zip(demands) {
            let area = u128::from(wanted(scheme, demand)) * u128::from(flow.area_per_bps);
            let area = u64::try_from(area >> AREA_BITS).unwrap_or(AMOUNT_MAX);
            let sum = &mut self.demands[flow.tenant as usize];
            sum[0] = sum[0].saturating_add(area).min(AMOUNT_MAX);
            sum[1] = sum[1].saturating_add(flow.memory).min(AMOUNT_MAX);
        }
        for (user, demand) in self.demands.iter().enumerate() {
            self.problem.set_demand(user, demand).expect("amounts that were cut");
        }
        let from;
        let shares = if self.elsewhere.iter().all(|amounts| *amounts == [0, 0]) {
            self.solver.solve(&self.problem)
        } else {
            from = drf::solve_from(&self.problem, &self.held());
            &from
        };
        let capacities = topology.space();
        outcome.tenants.clear();
        self.parts.clear();
        for (demand, space) in self.demands.iter().zip(shares) {
            let part = part(demand, *space, capacities);
            let allocation = part.map_or(*demand, |part| {
                demand.map(|amount| ((u128::from(amount) * u128::from(part)) >> PART_BITS) as u64)
            });
            outcome.tenants.push(TenantOutcome { demand: *demand, allocation, space: *space });
            self.parts.push(part);
        }
        self.fair(topology, scheme, demands, &mut outcome.fair);
    }

    /// Amount that each flow may hold: all where its tenant is not limited, else the part of what it
    /// wants that its tenant's share buys; at least what it was promised.
    fn fair(
        &self,
        topology: &Topology,
        scheme: Scheme,
        demands: &[Demand],
        fair: &mut Vec<Bandwidth>,
    ) {
        let all = topology.capacities.get(OF_REGIONS).copied().unwrap_or(u64::MAX);
        let flows = self.shapes.iter().zip(demands);
        fair.clear();
        fair.extend(flows.map(|(flow, demand)| match (scheme, self.parts[flow.tenant as usize]) {
            (Scheme::Static, _) => demand.admitted,
            (_, None) => Bandwidth::from_bps(all).max(demand.admitted),
            (_, Some(part)) => {
                let fair = (u128::from(wanted(scheme, demand)) * u128::from(part)) >> PART_BITS;
                Bandwidth::from_bps(fair as u64).max(demand.admitted)
            }
        }));
    }
}

/// Amount of a flow in space, in bits per second: what it sends, at least what it was
/// promised; without measured loads, what it was promised.
fn wanted(scheme: Scheme, demand: &Demand) -> u64 {
    match scheme {
        Scheme::Full => demand.load.max(demand.admitted).get(),
        Scheme::Static | Scheme::Drf => demand.admitted.get(),
    }
}

/// Part of its demand that a tenant's share buys, in units of 2^-[`PART_BITS`], at most one;
/// rounded up, so that a whole number stays one. `None` where nothing limits it.
fn part(demand: &[u64; 2], space: drf::UserOutcome, capacities: [u64; 2]) -> Option<u64> {
    let k = match (space.limit, space.dominant) {
        (UserLimit::OwnCap | UserLimit::AsksNothing, _) | (_, None) => return None,
        (_, Some(k)) => k.min(1),
    };
    let asked = u128::from(demand[k].max(1));
    let got = (u128::from(space.share.raw()) * u128::from(capacities[k])) >> SHARE_BITS;
    let wide = got.min(asked) << PART_BITS;
    // Divided once, where rounding up by the type's own means divides twice.
    let part = wide / asked;
    Some((part + u128::from(part * asked < wide)) as u64)
}
