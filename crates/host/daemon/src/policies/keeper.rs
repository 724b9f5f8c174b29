//! Keeper of the policies, which the control plane follows: a changed file, a signal, the fleet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snic_fleet::protocol::{HostPolicies, Numbered, PolicyFiles};
use snic_server::shell::ControlPlane;

use super::{Policies, PriceFile};

/// The policies of a running daemon. Cheap to clone.
#[derive(Clone)]
pub struct PolicyKeeper(Arc<KeeperState>);

struct KeeperState {
    policies: Mutex<Policies>,
    prices: PriceFile,
    plane: ControlPlane,
}

impl PolicyKeeper {
    /// For this control plane, which has them already.
    pub fn new(policies: Policies, prices: PriceFile, plane: ControlPlane) -> Self {
        Self(Arc::new(KeeperState { policies: Mutex::new(policies), prices, plane }))
    }

    /// Reads all files again; what is invalid is an event, and what was accepted last stays.
    pub fn reload(&self) -> usize {
        self.follow(&mut self.policies())
    }

    /// Takes files of the fleet and puts them in force, or refuses them. Blocks until they are stored.
    ///
    /// # Errors
    /// They cannot be stored. What was there before still is.
    pub fn set_for_fleet(&self, files: Numbered<PolicyFiles>) -> anyhow::Result<HostPolicies> {
        let mut policies = self.policies();
        if policies.of_fleet().number == files.number {
            return Ok(policies.of_fleet()); // It was sent twice.
        }
        policies.set_for_fleet(files)?;
        let said = policies.of_fleet();
        match &said.refused {
            None => drop(self.follow(&mut policies)),
            Some(why) => {
                let reason = format!("policies of the fleet: {why}; what was in force stays");
                self.0.plane.set_policies(Err(reason));
            }
        }
        Ok(said)
    }

    /// Files of the fleet that it looked at.
    pub fn of_fleet(&self) -> HostPolicies {
        self.policies().of_fleet()
    }

    /// Number of files that were rejected.
    fn follow(&self, policies: &mut Policies) -> usize {
        let (now, rejected) = policies.read();
        let (prices, wrong) = self.0.prices.read();
        let rejected: Vec<String> = rejected.into_iter().chain(wrong).collect();
        let count = rejected.len();
        self.0.plane.set_prices(prices);
        self.0.plane.set_policies(Ok(now));
        rejected.into_iter().for_each(|reason| self.0.plane.set_policies(Err(reason)));
        count
    }

    /// Policies, which are whole after a panic of another thread: each step stores first, then changes one value.
    fn policies(&self) -> MutexGuard<'_, Policies> {
        self.0.policies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
