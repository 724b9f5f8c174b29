//! Weights count in shares: whoever is kept from more of a resource has as much of it, by its weight, as
//! anybody who uses it. That and full resources are what weighted DRF is, and nothing else is both.

use std::collections::BTreeMap;

use snic_controller::{Controller, FairnessView, Limiter};
use snic_domain::TenantId;

use crate::world::{TENANTS, tenant};

/// Distance that shares may have for their rounding.
const APART: f64 = 1e-6;

/// Weights of tenants, by what was asked and answered.
#[derive(Debug, Default)]
pub struct Weights {
    /// With the step of the loop at which each was set: the next one counts with it.
    set: BTreeMap<TenantId, (u32, u64)>,
}

fn step(controller: &Controller) -> u64 {
    let views = (0..TENANTS).flat_map(|number| controller.fairness(&tenant(number)));
    views.map(|view| view.step).max().unwrap_or(0)
}

impl Weights {
    pub fn set(&mut self, controller: &Controller, of: &TenantId, weight: u32) {
        self.set.insert(of.clone(), (weight, step(controller)));
    }

    /// The daemon restarted: steps are counted from zero, and changes that were not durable are lost.
    pub fn crashed(&mut self, controller: &Controller) {
        for own in (0..TENANTS).map(tenant) {
            let view = controller.tenant_view(&own).expect("it is never deleted");
            self.set.insert(own, (view.tenant.weight, 0));
        }
    }

    /// Checks the shares of the last step; says how many were compared, of tenants that weigh differently.
    pub fn check(&self, controller: &Controller) -> u64 {
        let views: Vec<FairnessView> =
            (0..TENANTS).flat_map(|number| controller.fairness(&tenant(number))).collect();
        for view in &views {
            let (weight, since) = self.set[&view.tenant];
            if view.step <= since {
                return 0; // Computed before it was set.
            }
            assert_eq!(view.weight, weight, "{}", view.tenant);
        }
        views.iter().map(|view| check_share(view, &views)).sum()
    }
}

fn share(view: &FairnessView) -> f64 {
    view.space.share.raw() as f64 / (1_u64 << 54) as f64
}

fn check_share(view: &FairnessView, all: &[FairnessView]) -> u64 {
    let resource = match view.limiter {
        Limiter::Area => 0,
        Limiter::Memory => 1,
        Limiter::Demand => {
            let k = usize::from(dominant(view) == 1);
            let (asked, whole) = (view.space.demand[k], view.space.capacity[k]);
            let all = (asked as f64 / whole as f64).min(1.0);
            assert!((share(view) - all).abs() < APART, "it has not all it asks for: {view:?}");
            return 0;
        }
        Limiter::MemoryQuota | Limiter::Nothing => return 0,
    };
    let level = |view: &FairnessView| share(view) / f64::from(view.weight);
    if all.len() == TENANTS as usize {
        // Nobody's share is hidden: what is asked for in vain is given out.
        let given: u64 = all.iter().map(|other| other.space.allocation[resource]).sum();
        let whole = view.space.capacity[resource] as f64;
        assert!(given as f64 >= whole * (1.0 - APART) - 4.0, "something is left for {view:?}");
    }
    let mut compared = 0;
    for other in all.iter().filter(|other| other.space.demand[resource] > 0) {
        let is_even = level(other) <= level(view) + APART;
        assert!(is_even, "{view:?}\nhas less by its weight than\n{other:?}");
        compared += u64::from(other.weight != view.weight);
    }
    compared
}

/// Resource that it asks for the larger part of.
fn dominant(view: &FairnessView) -> usize {
    let part = |k: usize| view.space.demand[k] as f64 / view.space.capacity[k].max(1) as f64;
    usize::from(part(1) > part(0))
}
