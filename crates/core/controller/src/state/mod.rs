//! All machines, each of which owns its state.
//!
//! A machine changes by its own verbs only. What concerns several of them is coordinated by functions
//! over [`Core`], one module a concern; `cargo xtask tidy` checks which module may use which.

pub(crate) mod bindings;
pub(crate) mod budgets;
pub(crate) mod card;
pub(crate) mod dags;
pub(crate) mod device_health;
pub(crate) mod epoch;
pub(crate) mod freed;
pub(crate) mod kept;
pub(crate) mod maintenance;
pub(crate) mod meter;
pub(crate) mod nt_numbers;
pub(crate) mod operations;
pub(crate) mod passes;
pub(crate) mod planning;
pub(crate) mod policies;
pub(crate) mod refused;
pub(crate) mod registry;
pub(crate) mod rules;
pub(crate) mod suspects;
pub(crate) mod tally;
mod traffic_windows;
pub(crate) mod usage;

use std::time::Duration;

use snic_domain::{CardId, DagName, Timestamp};
use snic_tables::Ticket;

use crate::protocol::ControllerSettings;
use crate::state::bindings::Bindings;
use crate::state::budgets::Budgets;
use crate::state::card::{Cards, TableStep};
use crate::state::dags::{DagEntry, Dags};
use crate::state::epoch::CardLoops;
use crate::state::freed::FreedCapacity;
use crate::state::kept::KeptFunctions;
use crate::state::maintenance::MaintenanceMode;
use crate::state::operations::Operations;
use crate::state::passes::Passes;
use crate::state::planning::Planning;
use crate::state::policies::Policies;
use crate::state::refused::RefusedDags;
use crate::state::registry::Registry;
use crate::state::rules::Rules;
use crate::state::suspects::FailureCounts;
use crate::state::usage::Usage;

#[cfg(test)]
mod tests;

/// Longest time between two events that counts for leases and deadlines of machines. The shell gives an event at
/// least once a second. Where the next one is later, the daemon did not run: it was stopped, or its machine was, or it
/// waited for something for long. Heartbeats and answers of cards may have been sent meanwhile, so the rest of
/// that time counts for nobody.
pub(crate) const EVENT_GAP_MAX: Duration = Duration::from_secs(2);

/// Names commands to cards: by it an answer is known to be one to the command that is under way.
#[derive(Debug, Default)]
struct Tickets(u64);

impl Tickets {
    const fn next(&mut self) -> Ticket {
        self.0 += 1;
        Ticket(self.0)
    }
}

/// The machines of one daemon: all tenants, all cards.
#[derive(Debug)]
pub(crate) struct Core {
    pub policies: Policies,
    /// The time of the event that is being handled.
    now: Timestamp,
    /// Random, drawn when the store was created: ids that must not be guessable are derived from it.
    secret: u64,
    pub maintenance: MaintenanceMode,
    /// Whether this host belongs to a fleet, by the daemon's settings.
    pub in_fleet: bool,
    pub registry: Registry,
    pub dags: Dags,
    pub cards: Cards,
    /// The control loop of each card.
    pub loops: CardLoops,
    pub rules: Rules,
    pub bindings: Bindings,
    /// Functions and bandwidth that the fleet keeps for tenants.
    pub kept: KeptFunctions,
    pub operations: Operations,
    /// The consolidations that have not ended.
    pub passes: Passes,
    /// DAGs that were rejected lately.
    pub refused: RefusedDags,
    /// Capacity that was freed and not reconsidered yet.
    pub freed: FreedCapacity,
    /// Bitstreams of which loads failed.
    pub suspects: FailureCounts,
    /// Usage of cards by DAGs.
    pub usage: Usage,
    /// Budgets as they were last looked at.
    pub budgets: Budgets,
    /// Planning of the event that is being handled, and what is put off.
    pub planning: Planning,
    tickets: Tickets,
}

impl Core {
    /// An empty state for a store with these operations.
    pub fn new(
        settings: ControllerSettings,
        operations: Operations,
        secret: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            policies: Policies::new(settings),
            now,
            secret,
            maintenance: MaintenanceMode::default(),
            in_fleet: false,
            registry: Registry::default(),
            dags: Dags::default(),
            cards: Cards::default(),
            loops: CardLoops::default(),
            rules: Rules::default(),
            bindings: Bindings::default(),
            kept: KeptFunctions::default(),
            operations,
            passes: Passes::default(),
            refused: RefusedDags::default(),
            freed: FreedCapacity::default(),
            suspects: FailureCounts::default(),
            usage: Usage::default(),
            budgets: Budgets::default(),
            planning: Planning::default(),
            tickets: Tickets::default(),
        }
    }

    /// The time of the event that is being handled.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// An event came; returns when. Time never goes backwards, and time in which no event could come ends no lease.
    pub fn advance(&mut self, to: Timestamp) -> Timestamp {
        self.planning.begin();
        let unheard = to.since(self.now).saturating_sub(EVENT_GAP_MAX);
        if !unheard.is_zero() {
            self.bindings.postpone_alarms(unheard);
        }
        self.now = self.now.max(to);
        self.now
    }

    /// Takes over what was declared to the state that this one replaces. Tickets go on: answers to commands of the
    /// other one are none to commands of this one.
    pub fn declare_as(&mut self, other: &Self) {
        self.in_fleet = other.in_fleet;
        self.registry.declare_as(&other.registry);
        self.bindings.offer_as(&other.bindings);
        self.usage.set_prices(other.usage.prices().cloned());
        self.tickets = Tickets(other.tickets.0);
    }

    /// Ids that must not be guessable are derived from it.
    pub const fn secret(&self) -> u64 {
        self.secret
    }

    /// Names one command to a card.
    pub const fn ticket(&mut self) -> Ticket {
        self.tickets.next()
    }

    /// Begins a commit of the rows that differ on a card, if none is under way.
    pub fn begin_commit(&mut self, id: &CardId) -> TableStep {
        let Self { cards, dags, tickets, now, .. } = self;
        let target = |name: &DagName| dags.get(name).and_then(DagEntry::target);
        cards.known_mut(id).begin_commit(*now, || tickets.next(), target)
    }
}
