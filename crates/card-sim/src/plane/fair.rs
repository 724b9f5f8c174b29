//! Regions entered in the order of virtual start times: packet-level DRFQ as the card's scheduler.
//!
//! Tenants are its flows, NT slots its resources, and a packet costs at each slot the time that its
//! NT takes for it. One schedule for the whole card: what a tenant gets in one region counts in the
//! others. A packet starts when there are credits for all of its chain in the region and none of its
//! NTs has much to do: what waits is to wait here, where its order is decided.

use std::collections::BTreeMap;

use snic_domain::Timestamp;
use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_fairness::Weight;
use snic_fairness::drfq::{Costs, Drfq, FlowId};
use snic_tables::DropCause;

use super::chain::Entry;
use super::{Plane, Scheduling};
use crate::region::slots;
use crate::time::PART_BITS;

/// Copies of one tenant that may wait: what a packet store of 64 MiB holds at 64 bytes each.
const WAITING_MAX: usize = 1 << 20;

/// How many cycles of work an NT may have before it when a packet for it enters the region: 16 µs at
/// 250 MHz, some packets of the largest size.
const ROOM: u64 = 4_000;

/// The schedule.
pub(super) struct Fair {
    order: Drfq<u32>,
    /// By the tenant's number, with the weight that was set last.
    flows: BTreeMap<u16, (FlowId, Weight)>,
    /// By slot of the card: when its NT would have done all that was let in, in parts of a cycle,
    /// came it at once. What is still before an earlier NT of the chain counts, too.
    busy: Vec<u128>,
}

impl std::fmt::Debug for Fair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fair").field("waiting", &self.order.len()).finish_non_exhaustive()
    }
}

impl Fair {
    /// `None` where instances take turns.
    pub fn new(scheduling: Scheduling, regions: usize) -> Option<Self> {
        let Scheduling::Drfq(charging) = scheduling else { return None };
        let resources = regions * CHAIN_SLOTS_MAX;
        // A profile has at most 32 regions.
        let order = Drfq::new(charging, resources, WAITING_MAX).ok()?;
        Some(Self { order, flows: BTreeMap::new(), busy: vec![0; resources] })
    }

    fn flow(&mut self, tenant: u16, weight: Weight) -> FlowId {
        let order = &mut self.order;
        let (flow, known) =
            self.flows.entry(tenant).or_insert_with(|| (order.add_flow(weight), weight));
        if *known != weight && order.set_weight(*flow, weight).is_ok() {
            *known = weight;
        }
        *flow
    }
}

impl Plane {
    /// A copy waits for its turn among all that wait on the card.
    pub(super) fn wait_fairly(&mut self, at: u32) {
        let (tenant, weight) = self.tenant_of(at);
        let costs = self.costs(at);
        let now = Timestamp::from_nanos(self.clock().nanos(self.now));
        let Some(fair) = &mut self.fair else { return };
        let flow = fair.flow(tenant, weight);
        let mut all = Costs::from_elem(0, fair.busy.len());
        for (slot, cost) in costs {
            all[slot] = cost;
        }
        match fair.order.enqueue(flow, &all, now, at) {
            Ok(()) => self.serve_fairly(),
            // It costs nothing where there is no NT for it, and so can not enter.
            Err(_) => self.lose(at, DropCause::RegionUnavailable),
        }
    }

    /// Whose a copy is, and the tenant's weight.
    fn tenant_of(&self, at: u32) -> (u16, Weight) {
        let row = self.packets[self.copies[at].packet].uid.row();
        let rows = self.banks.current();
        let tenant = rows.dags[usize::from(row)].map_or(0, |dag| dag.tenant);
        let weight = rows.limiters[usize::from(row)].map_or(1, |row| u32::from(row.weight));
        (tenant, Weight::new(weight).unwrap_or_default())
    }

    /// By slot of the card: how long its NT takes for a copy, in parts of a cycle.
    fn costs(&self, at: u32) -> Vec<(usize, u64)> {
        let copy = &self.copies[at];
        let region = &self.regions[usize::from(copy.region)];
        let first = usize::from(copy.region) * CHAIN_SLOTS_MAX;
        let cost = |slot: usize| {
            let nt = region.nts[slot].as_ref()?;
            Some((first + slot, nt.meter.cost(copy.bits)))
        };
        slots(copy.rest).filter_map(cost).collect()
    }

    /// Lets copies enter their regions in the order of their virtual starts, until none can. One
    /// that finds no room leaves half of the room at its NTs to those behind it.
    pub(super) fn serve_fairly(&mut self) {
        // What is lost on the way does not begin anew: this goes on until none can enter.
        let Some(mut fair) = self.fair.take() else { return };
        let mut kept = vec![false; fair.busy.len()];
        let now = u128::from(self.now) << PART_BITS;
        loop {
            let mut verdict = Entry::Wait;
            let busy = &mut fair.busy;
            let served = fair.order.next_where(|waiting| {
                let uses = || waiting.costs.iter().enumerate().filter(|(_, cost)| **cost > 0);
                let room = |k: usize| if kept[k] { ROOM / 2 } else { ROOM };
                let fits = uses().all(|(k, _)| busy[k] <= now + (u128::from(room(k)) << PART_BITS));
                verdict = if fits { self.entry(waiting.item) } else { Entry::Wait };
                if matches!(verdict, Entry::Wait) {
                    uses().for_each(|(k, _)| kept[k] = true);
                    return false;
                }
                true
            });
            match (served, verdict) {
                (Some(served), Entry::Granted(leg)) => {
                    for (busy, cost) in busy.iter_mut().zip(&served.costs).filter(|(_, c)| **c > 0)
                    {
                        *busy = (*busy).max(now) + u128::from(*cost);
                    }
                    self.launch(served.item, leg);
                }
                (Some(served), Entry::Refused(cause)) => self.lose(served.item, cause),
                _ => break,
            }
        }
        self.fair = Some(fair);
    }
}
