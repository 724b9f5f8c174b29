//! Saving and restoring the state of a chain, by the handshake of its region's wrapper.
//!
//! Owner and place come first, the doorbell last; then the status is polled. A wrapper that refuses says
//! why. One that does not end in time is ended: it then leaves nothing that could be taken for a
//! saved context, and no half of one in the region.

use std::time::Duration;

use snic_domain::{RegionId, Timestamp};
use snic_tables::registers::{
    STATE_BUSY, STATE_CHECK, STATE_CLEAR, STATE_COMMAND, STATE_DONE, STATE_END, STATE_ERASE,
    STATE_ERROR, STATE_LENGTH, STATE_MOVED, STATE_OFFSET, STATE_REFUSED, STATE_RESTORE, STATE_SAVE,
    STATE_STATUS, STATE_UID, state,
};
use snic_tables::{CardReport, SaveSlot, StateDone, StateFailure, StateOrder, Ticket};

use super::Context;
use crate::card::{Card, CardError};

/// A `State` under way.
#[derive(Debug)]
pub(super) struct State {
    pub(super) ticket: Ticket,
    region: RegionId,
    order: StateOrder,
    since: Timestamp,
    rung: bool,
}

impl State {
    pub(super) const fn new(
        ticket: Ticket,
        region: RegionId,
        order: StateOrder,
        now: Timestamp,
    ) -> Self {
        Self { ticket, region, order, since: now, rung: false }
    }

    pub(super) fn advance(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<Option<CardReport>, CardError> {
        if !self.rung {
            self.ring(card)?;
            self.rung = true;
        }
        let took = context.now.since(self.since);
        let result = match card.read(self.register(STATE_STATUS))? {
            STATE_BUSY if took < context.deadlines.state => return Ok(None),
            STATE_BUSY => {
                card.write(self.register(STATE_COMMAND), STATE_END)?;
                Err(StateFailure::Timeout(context.deadlines.state))
            }
            STATE_DONE => Ok(self.done(card, took)?),
            STATE_REFUSED => {
                Err(StateFailure::Refused { code: card.read(self.register(STATE_ERROR))? })
            }
            other => {
                let text = format!("a region's wrapper forgot what it was asked: {other}");
                return Err(CardError::Lost(text));
            }
        };
        let moves = matches!(self.order, StateOrder::Save { .. } | StateOrder::Restore { .. });
        context.statistics.states_moved += u64::from(moves && result.is_ok());
        Ok(Some(CardReport::State { ticket: self.ticket, region: self.region, result }))
    }

    const fn register(&self, register: u32) -> u32 {
        state(self.region.0, register)
    }

    fn ring(&self, card: &mut dyn Card) -> Result<(), CardError> {
        let nowhere = SaveSlot { offset: 0, length: 0 };
        let (command, uid, slot) = match self.order {
            StateOrder::Save { uid, slot } => (STATE_SAVE, uid.raw(), slot),
            StateOrder::Restore { uid, slot, check } => {
                card.write(self.register(STATE_CHECK), check)?;
                (STATE_RESTORE, uid.raw(), slot)
            }
            StateOrder::Clear { uid } => (STATE_CLEAR, uid.raw(), nowhere),
            StateOrder::Erase { slot } => (STATE_ERASE, 0, slot),
        };
        card.write(self.register(STATE_UID), uid)?;
        card.write(self.register(STATE_OFFSET), slot.offset)?;
        card.write(self.register(STATE_LENGTH), slot.length)?;
        card.write(self.register(STATE_COMMAND), command)
    }

    fn done(&self, card: &mut dyn Card, took: Duration) -> Result<StateDone, CardError> {
        let bytes = card.read(self.register(STATE_MOVED))?;
        let check = card.read(self.register(STATE_CHECK))?;
        Ok(StateDone { bytes, check, took })
    }
}
