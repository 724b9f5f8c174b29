//! Tells the card which steps belong to a trace, so that the part of a step that another process does is
//! found in that trace.

use std::collections::BTreeMap;

use snic_tables::Ticket;

use crate::card::{Card, CardError};

/// The steps of traces that are queued or under way.
#[derive(Debug, Default)]
pub(super) struct Traces {
    of: BTreeMap<Ticket, String>,
    told: Option<Ticket>,
}

impl Traces {
    pub(super) const fn new() -> Self {
        Self { of: BTreeMap::new(), told: None }
    }

    pub(super) fn add(&mut self, ticket: Ticket, parent: String) {
        self.of.insert(ticket, parent);
    }

    /// Accesses from now on belong to this step, or to none.
    pub(super) fn turn(&mut self, card: &mut dyn Card, step: Option<Ticket>) {
        let parent = step.and_then(|ticket| self.of.get(&ticket));
        let step = step.filter(|_| parent.is_some());
        if step != self.told {
            card.trace(parent.map(String::as_str));
            self.told = step;
        }
    }

    /// A step has ended.
    pub(super) fn end(&mut self, card: &mut dyn Card, ticket: Ticket) -> Result<(), CardError> {
        match self.of.remove(&ticket) {
            Some(parent) => card.trace_ended(&parent),
            None => Ok(()),
        }
    }

    pub(super) fn forget(&mut self) {
        *self = Self::new();
    }
}
