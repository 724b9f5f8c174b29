//! All machines, each of which owns its state: what the functions above them are given.
//!
//! A machine changes by its own verbs only. What concerns several of them is put together by functions
//! over [`Core`], one module a concern; who may use whom is checked (`cargo xtask tidy`).

use snic_domain::Timestamp;
use snic_tables::Ticket;

use crate::bindings::Bindings;
use crate::card::Cards;
use crate::dags::Dags;
use crate::epoch::Loops;
use crate::freed::Freed;
use crate::maintenance::MaintenanceMode;
use crate::operations::Operations;
use crate::passes::Passes;
use crate::policies::Policies;
use crate::protocol::ControllerSettings;
use crate::refused::RefusedDags;
use crate::registry::Registry;
use crate::rules::Rules;
use crate::suspects::Suspects;

#[cfg(test)]
mod tests;

/// Names commands to cards: by it an answer is known to be one to the command that is under way.
#[derive(Debug, Default)]
pub(crate) struct Tickets(u64);

impl Tickets {
    pub const fn next(&mut self) -> Ticket {
        self.0 += 1;
        Ticket(self.0)
    }
}

/// The machines of one daemon: all tenants, all cards.
#[derive(Debug)]
pub(crate) struct Core {
    pub policies: Policies,
    /// When the event came that is being handled.
    pub now: Timestamp,
    /// Drawn when the store was made: what must not be guessed is derived from it.
    secret: u64,
    pub maintenance: MaintenanceMode,
    pub registry: Registry,
    pub dags: Dags,
    pub cards: Cards,
    /// What keeps each card fair and elastic.
    pub loops: Loops,
    pub rules: Rules,
    pub bindings: Bindings,
    pub operations: Operations,
    /// The consolidations that have not ended.
    pub passes: Passes,
    /// DAGs that were refused lately.
    pub refused: RefusedDags,
    /// What was freed and not looked at yet.
    pub freed: Freed,
    /// Bitstreams of which loads failed.
    pub suspects: Suspects,
    pub tickets: Tickets,
}

impl Core {
    /// Nothing, in a store that has these operations or will have them.
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
            registry: Registry::default(),
            dags: Dags::default(),
            cards: Cards::default(),
            loops: Loops::default(),
            rules: Rules::default(),
            bindings: Bindings::default(),
            operations,
            passes: Passes::default(),
            refused: RefusedDags::default(),
            freed: Freed::default(),
            suspects: Suspects::default(),
            tickets: Tickets::default(),
        }
    }

    /// What must not be guessed is derived from it.
    pub const fn secret(&self) -> u64 {
        self.secret
    }

    /// Names one command to a card.
    pub const fn ticket(&mut self) -> Ticket {
        self.tickets.next()
    }
}
