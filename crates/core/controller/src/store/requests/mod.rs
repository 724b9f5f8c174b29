//! Requests that were carried out, so that a retry is not (AIP-155).
//!
//! A caller gives a request an id. The first one with that id is carried out, and what
//! it made is remembered for a while; the same request again is answered with that, and another
//! request under the same id is rejected.

mod fingerprint;

use std::collections::BTreeMap;

use snic_domain::Timestamp;
use snic_domain::limits::{OPERATOR_HISTORY_MAX, TENANT_HISTORY_MAX};

pub(crate) use fingerprint::Fingerprint;

use crate::protocol::{Caller, ControlError};
use crate::store::history::History;
use crate::store::records::{CreatedResource, Record, RecordKey, RequestKey, RequestRecord};
use crate::store::tx::Tx;

/// Longest request id, in characters: a UUID has 36.
const REQUEST_ID_CHARS_MAX: usize = 64;

/// The requests that are remembered.
#[derive(Debug)]
pub(crate) struct Requests {
    records: BTreeMap<RequestKey, RequestRecord>,
    /// Requests, by caller.
    by_age: History<String, RequestKey>,
}

/// Most requests of a caller, by its [`Caller::key`].
#[expect(clippy::ptr_arg, reason = "the history's owners are strings")]
fn kept_max(caller: &String) -> usize {
    if caller.starts_with("tenant:") { TENANT_HISTORY_MAX } else { OPERATOR_HISTORY_MAX }
}

impl Default for Requests {
    fn default() -> Self {
        Self { records: BTreeMap::new(), by_age: History::new(kept_max) }
    }
}

impl Requests {
    /// The requests that these records remember.
    pub fn restore(records: Vec<(RequestKey, RequestRecord)>) -> Self {
        let mut requests = Self::default();
        for (key, record) in &records {
            requests.by_age.note(key.caller.clone(), record.at, key.clone());
        }
        requests.records = records.into_iter().collect();
        requests
    }

    /// Result of a request that was carried out before; `None` where it is new.
    ///
    /// # Errors
    /// Another request was carried out under its id.
    pub fn made_before(
        &self,
        key: &RequestKey,
        command: &Fingerprint,
    ) -> Result<Option<&CreatedResource>, ControlError> {
        match self.records.get(key) {
            None => Ok(None),
            Some(known) if command.is_of(&known.command) => Ok(Some(&known.made)),
            Some(_) => Err(ControlError::RequestIdReused { id: key.id.clone() }),
        }
    }

    /// Remembers what a request made.
    pub fn remember(
        &mut self,
        tx: &mut Tx,
        key: RequestKey,
        command: Fingerprint,
        made: CreatedResource,
    ) {
        let record = RequestRecord { command: command.into_text(), made, at: tx.now() };
        tx.put(Record::Request(key.clone(), record.clone()));
        let before = self.records.insert(key.clone(), record);
        assert!(before.is_none(), "a request that is known is not carried out again");
        self.by_age.note(key.caller.clone(), tx.now(), key);
    }

    /// Forgets what is old, and of callers that have too many their oldest. Amortised O(log requests)
    /// an event.
    pub fn forget_old(&mut self, tx: &mut Tx, now: Timestamp) {
        while let Some(key) = self.by_age.forget(now) {
            self.forget(tx, key);
        }
    }

    fn forget(&mut self, tx: &mut Tx, key: RequestKey) {
        self.records.remove(&key);
        tx.delete(RecordKey::Request(key));
    }

    /// Forgets the requests of a caller that is gone: its name is another's now.
    pub fn retire(&mut self, tx: &mut Tx, caller: &Caller) {
        for key in self.by_age.retire(&caller.key()) {
            self.forget(tx, key);
        }
    }
}

impl RequestKey {
    /// # Errors
    /// It is no request id.
    pub fn new(caller: &Caller, id: String) -> Result<Self, ControlError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if id.is_empty() || id.len() > REQUEST_ID_CHARS_MAX || !id.chars().all(plain) {
            let shown: String = id.chars().take(REQUEST_ID_CHARS_MAX).collect();
            let rule = format!(
                "{shown:?} is not a request id: 1 to {REQUEST_ID_CHARS_MAX} letters, digits and '-' \
                 are allowed"
            );
            return Err(ControlError::invalid("request_id", rule));
        }
        Ok(Self { caller: caller.key(), id })
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::limits::OPERATION_KEPT;
    use snic_domain::{Quota, Tenant, TenantId};

    use super::*;
    use crate::protocol::Command;

    fn key(id: &str) -> RequestKey {
        let caller = Caller::Operator("ada".into());
        RequestKey::new(&caller, id.into()).expect("a request id")
    }

    fn create(tenant: &str) -> Fingerprint {
        let id = TenantId::new(tenant).expect("a label");
        Fingerprint::of(&Command::CreateTenant(Tenant {
            id,
            weight: 1,
            quota: Quota::default(),
            notes: Default::default(),
            project: None,
        }))
    }

    fn made(tenant: &str) -> CreatedResource {
        CreatedResource::Tenant(TenantId::new(tenant).expect("a label"))
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_same_request_is_known_and_another_one_is_rejected() {
        let mut requests = Requests::default();
        let mut tx = Tx::default();
        assert_eq!(requests.made_before(&key("r"), &create("acme")), Ok(None));
        requests.remember(&mut tx, key("r"), create("acme"), made("acme"));
        assert_eq!(requests.made_before(&key("r"), &create("acme")), Ok(Some(&made("acme"))));
        let other = requests.made_before(&key("r"), &create("beta"));
        assert_eq!(other, Err(ControlError::RequestIdReused { id: "r".into() }));
        assert_eq!(requests.made_before(&key("s"), &create("beta")), Ok(None));
        let beta = RequestKey { caller: "tenant:beta".into(), ..key("r") };
        assert_eq!(requests.made_before(&beta, &create("beta")), Ok(None), "another caller's id");
    }

    #[test]
    fn fingerprints_of_other_versions_match_nothing() {
        let command = create("acme").into_text();
        let (_, bare) = command.split_once(':').expect("a version and a digest");
        for old in [bare.to_owned(), format!("v0:{bare}"), String::new()] {
            let record = RequestRecord { command: old, made: made("acme"), at: at(1) };
            let requests = Requests::restore(vec![(key("r"), record)]);
            let answer = requests.made_before(&key("r"), &create("acme"));
            assert_eq!(answer, Err(ControlError::RequestIdReused { id: "r".into() }));
        }
    }

    #[test]
    fn the_oldest_are_forgotten_by_age_and_by_number() {
        let mut tx = Tx::default();
        let mut records = Vec::new();
        for number in 0..=OPERATOR_HISTORY_MAX {
            let command = create("acme").into_text();
            let record = RequestRecord { command, made: made("acme"), at: at(number as u64 % 7) };
            records.push((key(&format!("r{number}")), record));
        }
        let mut requests = Requests::restore(records);
        requests.forget_old(&mut tx, at(7));
        assert_eq!(tx.writes(), [("requests/operator:ada/r0".to_owned(), None)]);
        requests.forget_old(&mut tx, at(6) + OPERATION_KEPT);
        assert_eq!((tx.writes().len(), requests.records.len()), (OPERATOR_HISTORY_MAX + 1, 0));
        assert_eq!(requests.by_age.names().count(), 0);
    }

    #[test]
    fn ids_are_short_and_plain() {
        let caller = Caller::Operator("ada".into());
        for id in ["", "a/b", "a b", &"x".repeat(REQUEST_ID_CHARS_MAX + 1)] {
            assert!(RequestKey::new(&caller, id.into()).is_err(), "{id:?}");
        }
        assert!(RequestKey::new(&caller, "x".repeat(REQUEST_ID_CHARS_MAX)).is_ok());
    }
}
