//! Maintenance mode: new DAGs and VM bindings are rejected, existing ones are served. It survives restarts, so that
//! a daemon that is updated during maintenance does not leave it.

use crate::protocol::{Caller, ControlError};
use crate::store::records::{Maintenance, Record, RecordKey};
use crate::store::tx::Tx;

/// Longest reason, in characters: a sentence or two.
const REASON_CHARS_MAX: usize = 500;

/// Whether something new is taken in.
#[derive(Debug, Default)]
pub(crate) struct MaintenanceMode(Option<Maintenance>);

impl MaintenanceMode {
    /// As the store has it.
    pub const fn restore(record: Option<Maintenance>) -> Self {
        Self(record)
    }

    /// Since when and why nothing new is taken in; `None` in normal service.
    pub const fn get(&self) -> Option<&Maintenance> {
        self.0.as_ref()
    }

    /// Begins it for a reason, or ends it. Beginning it again changes the reason.
    ///
    /// # Errors
    /// The reason is too long.
    pub fn set(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        reason: Option<String>,
    ) -> Result<(), ControlError> {
        let Some(reason) = reason else {
            if self.0.take().is_some() {
                tx.delete(RecordKey::Maintenance);
            }
            return Ok(());
        };
        if reason.chars().count() > REASON_CHARS_MAX {
            let rule = format!("at most {REASON_CHARS_MAX} characters are allowed");
            return Err(ControlError::invalid("reason", rule));
        }
        let since = self.0.as_ref().map_or(tx.now(), |before| before.since);
        let record = Maintenance { reason, by: caller.key(), since };
        tx.put(Record::Maintenance(record.clone()));
        self.0 = Some(record);
        Ok(())
    }

    /// # Errors
    /// Nothing new is taken in.
    pub fn check(&self) -> Result<(), ControlError> {
        match &self.0 {
            Some(record) => Err(ControlError::Maintenance { reason: record.reason.clone() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::Timestamp;

    use super::*;

    fn set(mode: &mut MaintenanceMode, at: u64, reason: Option<&str>) -> Tx {
        let mut tx = Tx::at(Timestamp::from_nanos(at));
        let caller = Caller::Operator("ada".into());
        mode.set(&mut tx, &caller, reason.map(ToOwned::to_owned)).expect("a short reason");
        tx
    }

    #[test]
    fn it_lasts_from_the_first_reason_until_it_is_ended() {
        let mut mode = MaintenanceMode::default();
        assert_eq!(mode.check(), Ok(()));
        set(&mut mode, 5, Some("a fan"));
        let tx = set(&mut mode, 9, Some("two fans"));
        let record = mode.get().expect("it lasts");
        assert_eq!((record.since.as_nanos(), &*record.reason), (5, "two fans"));
        assert_eq!(tx.writes().len(), 1);
        assert!(matches!(mode.check(), Err(ControlError::Maintenance { .. })));
        let again = MaintenanceMode::restore(mode.get().cloned());
        assert!(again.check().is_err(), "it survives a restart");
        assert_eq!(set(&mut mode, 9, None).writes().len(), 1);
        assert_eq!(set(&mut mode, 9, None), Tx::at(Timestamp::from_nanos(9)), "it has ended");
        assert_eq!(mode.check(), Ok(()));
    }

    #[test]
    fn a_reason_is_a_sentence_or_two() {
        let mut mode = MaintenanceMode::default();
        let caller = Caller::Operator("ada".into());
        let mut tx = Tx::at(Timestamp::ZERO);
        let long = Some("é".repeat(REASON_CHARS_MAX + 1));
        assert!(matches!(mode.set(&mut tx, &caller, long), Err(ControlError::Invalid(_))));
        assert_eq!((mode.check(), tx.writes().len()), (Ok(()), 0));
        let longest = Some("é".repeat(REASON_CHARS_MAX));
        assert_eq!(mode.set(&mut tx, &caller, longest), Ok(()));
    }
}
