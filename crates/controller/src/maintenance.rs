//! Maintenance: nothing new is taken in, what is there is served. It survives restarts, so that
//! a daemon that is updated during it does not come back open.

use crate::protocol::{Caller, ControlError, Reply};
use crate::records::{Key, Maintenance, Record};
use crate::state::Controller;
use crate::tx::Tx;

/// Longest reason, in characters: a sentence or two.
const REASON_CHARS_MAX: usize = 500;

impl Controller {
    /// Since when and why nothing new is taken in; `None` in normal service.
    pub const fn maintenance(&self) -> Option<&Maintenance> {
        self.maintenance.as_ref()
    }

    /// Begins or ends it. Beginning it again changes the reason.
    pub(crate) fn maintain(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        reason: Option<String>,
    ) -> Result<Reply, ControlError> {
        let Some(reason) = reason else {
            if self.maintenance.take().is_some() {
                tx.delete(Key::Maintenance);
            }
            return Ok(Reply::Done);
        };
        if reason.chars().count() > REASON_CHARS_MAX {
            let rule = format!("at most {REASON_CHARS_MAX} characters are allowed");
            return Err(ControlError::invalid("reason", rule));
        }
        let since = self.maintenance.as_ref().map_or(self.now, |before| before.since);
        let record = Maintenance { reason, by: caller.key(), since };
        tx.put(Record::Maintenance(record.clone()));
        self.maintenance = Some(record);
        Ok(Reply::Done)
    }

    /// Refuses what is new, unless it changes nothing.
    pub(crate) fn check_maintenance(&self, changes_nothing: bool) -> Result<(), ControlError> {
        match &self.maintenance {
            Some(record) if !changes_nothing => {
                Err(ControlError::Maintenance { reason: record.reason.clone() })
            }
            _ => Ok(()),
        }
    }
}
