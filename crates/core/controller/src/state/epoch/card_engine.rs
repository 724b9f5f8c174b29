//! The engine of one card, with the names of its flows, the loads of its last step and the rates that are in force.
//!
//! Where a card's limits are passed there is no engine, and all DAGs keep the rates that they have.

use std::collections::BTreeSet;
use std::time::Duration;

use snic_domain::{Bandwidth, DagName, TenantId, Timestamp};
use snic_fairness::drf::Share;
use snic_fairness::fluid::Cost;
use snic_tables::RateLimiterRow;

use super::engine::Engine;
use super::flows::EpochOutcome;
use super::renewal::{FlowNames, NamedTopology};
use super::topology::CardResource;
use crate::decide::rows::{self, Bucket};
use crate::protocol::Fairness;
use crate::state::dags::{DagEntry, DagNumber, Dags};

/// A rate is written again when it differs by more than this part of itself: what packets that fall
/// on either side of a sample make of a steady load is less.
const RATE_PART: u64 = 64;

/// Epochs between two renewals of the engine that do not fall on an edge.
const EPOCHS_BETWEEN_RENEWALS: u32 = 10;

/// Result of a step, by flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flows<'a> {
    pub outcome: &'a EpochOutcome,
    /// Bandwidth of one more instance.
    pub units: &'a [Bandwidth],
    pub dags: &'a [DagName],
    /// Their numbers among all DAGs.
    pub numbers: &'a [DagNumber],
    /// Names the engine: by it DAGs know whether the number they have is one of it.
    pub number: u64,
}

/// The DAG of a flow of an engine, with its number among all DAGs, for who changes its meter alone. `None` where it is
/// gone, or another engine knows it by now.
pub(crate) fn of_engine(
    dags: &mut Dags,
    engine: u64,
    (flow, number): (usize, DagNumber),
) -> Option<&mut DagEntry> {
    let entry = dags.metered_mut(number);
    entry.filter(|entry| entry.meter().flow_of(engine) == Some(flow))
}

/// The last step, for views.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastStep<'a> {
    pub engine: &'a Engine,
    pub names: &'a FlowNames,
    /// Load that the step counted with, for each DAG.
    pub loads: &'a [Bandwidth],
    /// Steps that were computed since the daemon started.
    pub number: u64,
}

/// Engine of one card.
#[derive(Debug, Default)]
pub(super) struct CardEngine {
    engine: Option<Engine>,
    /// Names behind the engine's numbers.
    names: FlowNames,
    /// Names the engine: by it DAGs know whether the number they have is one of it.
    number: u64,
    /// Load that the last step counted with, for each DAG.
    loads: Vec<Bandwidth>,
    /// Rates that were in force last.
    applied: Vec<Bandwidth>,
    /// Steps that were computed since the daemon started.
    steps: u64,
    /// The engine is of another topology than the card's.
    stale: bool,
    /// When it was last brought up to date between two edges.
    renewed_between: Timestamp,
}

impl CardEngine {
    /// Nothing is known of the card any more.
    pub fn forget(&mut self) {
        *self = Self { steps: self.steps, stale: true, ..Self::default() };
    }

    /// Has the engine take over a changed topology.
    pub const fn topology_changed(&mut self) {
        self.stale = true;
    }

    /// Whether the engine is of another topology than the card's.
    pub const fn is_stale(&self) -> bool {
        self.stale || self.engine.is_none()
    }

    /// Whether to bring the engine up to date now: if it `must` be, as at each edge, and once in a while between two.
    /// Where DAGs come and go all the time, that takes longer than anything else in a sample, and new DAGs have their
    /// promise already.
    pub fn take_renewal(&mut self, now: Timestamp, must: bool, epoch: Duration) -> bool {
        if !self.is_stale() {
            return false;
        }
        if must {
            return true;
        }
        let is_rare =
            now.since(self.renewed_between) >= epoch.saturating_mul(EPOCHS_BETWEEN_RENEWALS);
        if is_rare {
            self.renewed_between = now;
        }
        is_rare
    }

    /// Gives up the engine, which is about to be replaced: its topology, and its number.
    pub fn take_former(&mut self) -> Option<(NamedTopology, u64)> {
        let topology = self.engine.take()?.into_topology();
        Some((NamedTopology { topology, names: std::mem::take(&mut self.names) }, self.number))
    }

    /// Takes over what is on the card now, under a number that no engine had.
    pub fn renew(
        &mut self,
        named: NamedTopology,
        fairness: Fairness,
        number: u64,
        dags: &mut Dags,
    ) {
        for (at, of) in (0..).zip(&named.names.numbers) {
            if let Some(entry) = dags.metered_mut(*of) {
                entry.meter_mut().set_flow(number, at);
            }
        }
        // Limits far over what a card's tables hold: where they are passed all keep what they have.
        self.engine = Engine::new(named.topology, fairness).ok();
        self.number = number;
        self.names = named.names;
        self.applied.clear();
        self.stale = false;
    }

    /// Sets the allocations on other cards, by tenant, as [`CardEngine::allocation`] of this card.
    pub fn set_elsewhere(&mut self, of: impl Fn(&TenantId) -> [u64; 2]) {
        if let Some(engine) = &mut self.engine {
            engine.set_elsewhere(self.names.tenants.iter().map(of).collect());
        }
    }

    /// Computes with the loads of the DAGs as they are known now, those of the tenants in `burst_off` up to their promises.
    pub fn step(&mut self, dags: &Dags, burst_off: &BTreeSet<TenantId>) {
        let Some(engine) = &mut self.engine else {
            return; // Too much for an engine: all keep what they have.
        };
        self.loads.clear();
        self.loads.resize(self.names.dags.len(), Bandwidth::ZERO);
        for ((at, number), load) in self.names.numbers.iter().enumerate().zip(&mut self.loads) {
            let entry = dags.at(*number);
            if let Some(entry) = entry.filter(|e| e.meter().flow_of(self.number) == Some(at)) {
                // Before its load is known a DAG counts as sending what it was promised.
                *load = entry.meter().load().unwrap_or(entry.spec().bandwidth);
                if !burst_off.is_empty() && burst_off.contains(&entry.name().tenant) {
                    *load = (*load).min(engine.topology().flows[at].admitted);
                }
            }
        }
        engine.step(&self.loads);
        self.steps += 1;
    }

    /// Result of the last step; `None` before the first.
    pub fn flows(&self) -> Option<Flows<'_>> {
        let engine = self.engine.as_ref()?;
        Some(Flows {
            outcome: engine.outcome(),
            units: &self.names.units,
            dags: &self.names.dags,
            numbers: &self.names.numbers,
            number: self.number,
        })
    }

    /// The last step, for views; `None` where there is no engine.
    pub fn last_step(&self) -> Option<LastStep<'_>> {
        let engine = self.engine.as_ref()?;
        Some(LastStep { engine, names: &self.names, loads: &self.loads, number: self.steps })
    }

    /// The tenants with DAGs on the card, by id.
    pub fn tenants(&self) -> &[TenantId] {
        &self.names.tenants
    }

    /// Allocation of a tenant on the card: area in [`AREA_UNITS`], memory in pages.
    pub fn allocation(&self, tenant: &TenantId) -> [u64; 2] {
        let at = self.names.tenants.binary_search(tenant).ok();
        let outcome = self.engine.as_ref().map(Engine::outcome);
        let tenant = outcome.zip(at).and_then(|(outcome, at)| outcome.tenants.get(at));
        tenant.map_or([0, 0], |tenant| tenant.allocation)
    }

    /// Whether somebody sends what it was promised and others were let in for it meanwhile: that
    /// does not wait for the epoch's edge.
    pub fn is_promise_at_risk(&self) -> bool {
        let Some(engine) = &self.engine else {
            return false; // Too much for an engine: all keep what they have.
        };
        let flows = engine.topology().flows.iter().zip(&self.loads);
        let mut all = flows.zip(&self.applied);
        all.any(|((flow, load), applied)| {
            let promised = flow.admitted.min(*load).get();
            promised > applied.get() + applied.get() / RATE_PART
        })
    }

    /// Notes the rates of the last step in the meters; `put` is given the token buckets that differ, by
    /// their row. `counts` says whether the card counts packets. DAGs of the tenants in `burst_off` get what they are promised.
    pub fn set_rates(
        &mut self,
        dags: &mut Dags,
        burst_off: &BTreeSet<TenantId>,
        counts: bool,
        mut put: impl FnMut(u16, &RateLimiterRow),
    ) {
        let Some(engine) = &self.engine else {
            return; // Too much for an engine: all keep what they have.
        };
        let (topology, outcome) = (engine.topology(), engine.outcome());
        for (at, number) in self.names.numbers.iter().enumerate() {
            let Some(entry) = of_engine(dags, self.number, (at, *number)) else {
                continue; // It is gone.
            };
            let (promised, packet_bytes, most) = match entry.targeted() {
                Some(placement) => {
                    let spec = &placement.spec;
                    let most = placement.mapping.programs_serve();
                    (spec.bandwidth, rows::packet_bytes(counts, spec), most)
                }
                None => continue, // It left the tables since the engine was made.
            };
            let flow = &topology.flows[at];
            // Whole units of the register, so that what is read back says the same.
            let kbps = outcome.grants[at].kbps();
            let new = Bandwidth::from_bps(u64::from(kbps) * 1_000);
            // What its threads do not serve would wait for them.
            let most = most.map(|most| Bandwidth::from_bps(u64::from(most.kbps()) * 1_000));
            let new = most.map_or(new, |most| new.min(most)).max(promised);
            let is_off = !burst_off.is_empty() && burst_off.contains(&entry.name().tenant);
            let new = if is_off { promised } else { new };
            // A small difference is not worth a row: packets on either side of a sample make as much. The way back to the
            // promise is written however small it is. Left out, a DAG would keep a little of what was lent to it, and the
            // sum of all buckets could stay over what the card serves.
            let old = entry.meter().rate(promised);
            let part = old.get() / RATE_PART;
            let moved = new.get().abs_diff(old.get()) > part || (new == promised && old != new);
            if moved {
                entry.meter_mut().set_rate(Some(new));
                let weight = topology.tenants[flow.tenant as usize].weight.get();
                let bucket = rows::bucket(Bucket { rate: new, promised, packet_bytes, weight });
                put(entry.uid().row(), &bucket);
            }
        }
        self.applied.clone_from(&outcome.rates);
    }

    /// No share is over a whole, nobody gets less than it was promised, no resource is given out
    /// twice.
    pub fn check(&self) -> Result<(), String> {
        let Some(engine) = &self.engine else { return Ok(()) };
        let (outcome, flows) = (engine.outcome(), &engine.topology().flows);
        let over = outcome.tenants.iter().any(|tenant| tenant.space.share > Share::ONE);
        let mut grants = flows.iter().zip(&outcome.grants);
        if over || grants.any(|(flow, grant)| *grant < flow.admitted) {
            return Err(format!("a share over a whole, or a broken promise: {outcome:?}"));
        }
        let mut used = vec![0_u128; engine.topology().capacities.len()];
        for (flow, rate) in flows.iter().zip(&outcome.rates) {
            for (resource, cost) in &flow.uses {
                used[*resource] += u128::from(rate.get()) * u128::from(cost.raw());
            }
        }
        let one = u128::from(Cost::ONE.raw());
        let mut all = used.iter().zip(&engine.topology().capacities);
        match all.position(|(used, capacity)| *used > u128::from(*capacity) * one) {
            Some(k) => Err(format!("{} is given out twice", CardResource(k))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn an_engine_follows_changes_at_edges_and_now_and_then_between() {
        let mut engine = CardEngine::default();
        let epoch = 20 * MS;
        let mut take_renewal = |ms, must| engine.take_renewal(at(ms), must, epoch);
        assert!(take_renewal(1_000, false), "the first change does not wait");
        assert!(!take_renewal(1_010, false));
        assert!(take_renewal(1_020, true), "an edge always counts");
        assert!(!take_renewal(1_199, false));
        assert!(take_renewal(1_200, false));
    }
}
