//! Records that cannot be used, and what the rest makes without them.
//!
//! Records that only say more of a DAG (its explanation, its rules, what its chains keep, its operation under way) go
//! with the DAG's record, and the two count as one fault.

use std::collections::BTreeSet;

use snic_domain::Timestamp;

use crate::protocol::ControllerSettings;
use crate::restart::recovery::{StoreContent, restore};
use crate::restart::set_aside::{SetAsideAccount, dag_of};
use crate::store::records::{
    InvalidRecord, REVISIONS_KEY, Record, RecordKey, RecordWrite, SET_ASIDE_MAX, is_set_aside,
    key_before, set_aside_key,
};

/// Faults that a start does without at most: beyond, the store as a whole is not to be trusted.
const FAULTS_MAX: usize = 32;

/// Kinds of records without which the rest stands. Tenants, cards and regions, what was given out and
/// the head of the store are not among them: who is served would change.
const EXPENDABLE: [&str; 14] = [
    "nt-types/",
    "bitstreams/",
    "dags/",
    "explanations/",
    "guests/",
    "departed/",
    "states/",
    "rules/",
    "bindings/",
    "operations/",
    "requests/",
    "refused/",
    "deleted/",
    "usage-open/",
];

/// A record that cannot be read, contradicts the others, or is about one of these, and was left out.
#[derive(Debug)]
pub struct SetAside {
    pub key: String,
    /// Its value, as it is.
    pub value: Vec<u8>,
    /// Fault of the record.
    pub reason: InvalidRecord,
    /// The key under which it is kept: none of those that are kept already.
    pub kept_as: String,
}

/// Chooses keys for records that are set aside, and counts them.
struct Keeper {
    taken: BTreeSet<String>,
    account: SetAsideAccount,
}

impl Keeper {
    /// With the records that are set aside already.
    fn of(records: &[(String, Vec<u8>)]) -> Self {
        let mut keeper = Self { taken: BTreeSet::new(), account: SetAsideAccount::default() };
        for (kept_as, value) in records.iter().filter(|(key, _)| is_set_aside(key)) {
            keeper.account.add(key_before(kept_as).unwrap_or(kept_as), value);
            keeper.taken.insert(kept_as.clone());
        }
        keeper
    }

    /// # Errors
    /// There is no room for it.
    fn keep(
        &mut self,
        (key, value): (String, Vec<u8>),
        reason: InvalidRecord,
    ) -> Result<SetAside, InvalidRecord> {
        self.account.add(&key, &value);
        self.account.check(&key)?;
        let mut free = (1..=SET_ASIDE_MAX).map(|number| set_aside_key(&key, number));
        let Some(kept_as) = free.find(|kept| !self.taken.contains(kept)) else {
            let SetAsideAccount { records, bytes, .. } = self.account;
            return Err(InvalidRecord::Full { key, records, bytes });
        };
        self.taken.insert(kept_as.clone());
        Ok(SetAside { key, value, reason, kept_as })
    }
}

impl SetAside {
    /// Moves it out of the way, and keeps it: what the store is to be told. Watches are not told that it
    /// is gone, so they start over.
    pub fn writes(&self) -> [RecordWrite; 3] {
        let revisions = RecordKey::Revisions.to_string();
        let kept = (self.kept_as.clone(), Some(self.value.clone()));
        [kept, (self.key.clone(), None), (revisions, None)]
    }
}

/// As [`crate::restart::recovery::recover`], without the records that it fails for, if the rest stands without them. Time
/// O(records · log records) for each of at most [`FAULTS_MAX`] faults.
pub(crate) fn recover_rest(
    settings: ControllerSettings,
    mut records: Vec<(String, Vec<u8>)>,
    secret: u64,
    now: Timestamp,
) -> Result<(StoreContent, Vec<SetAside>), InvalidRecord> {
    let mut keeper = Keeper::of(&records);
    let mut set_aside = Vec::new();
    let mut faults = 0;
    loop {
        let is_whole = set_aside.is_empty();
        let reason = match restore(settings, &records, is_whole, secret, now) {
            Ok(mut recovered) => {
                recovered.set_aside = keeper.account;
                return Ok((recovered, set_aside));
            }
            Err(reason) => reason,
        };
        let Some(at) = expendable(&records, &reason).filter(|_| faults < FAULTS_MAX) else {
            return Err(reason);
        };
        faults += 1;
        take_out(&mut records, at, reason, &mut keeper, &mut set_aside)?;
    }
}

/// Takes out a record, and those that say something of the DAG that it is of.
///
/// # Errors
/// There is no room to keep them.
fn take_out(
    records: &mut Vec<(String, Vec<u8>)>,
    at: usize,
    reason: InvalidRecord,
    keeper: &mut Keeper,
    set_aside: &mut Vec<SetAside>,
) -> Result<(), InvalidRecord> {
    let (key, value) = records.remove(at);
    let about = take_about(records, &key);
    let of = key.clone();
    set_aside.push(keeper.keep((key, value), reason)?);
    for (key, value) in about {
        let reason = format!("it is about {of}, which was set aside");
        let reason = InvalidRecord::contradiction(&key, reason);
        set_aside.push(keeper.keep((key, value), reason)?);
    }
    Ok(())
}

/// Takes out the record under `key`, or of the DAG that it is about, so that the controller which goes on from the
/// others does not decide again what led to a change that no store takes. Gives what was taken out: nothing where the rest
/// does not stand without it, or there is no such record.
///
/// # Errors
/// There is no room to keep them.
pub(crate) fn take_cause(
    records: &mut Vec<(String, Vec<u8>)>,
    key: &str,
    why: &str,
) -> Result<Vec<SetAside>, InvalidRecord> {
    // An explanation is decided with the place of its DAG, and would be again.
    let key = match key.strip_prefix("explanations/") {
        Some(dag) => format!("dags/{dag}"),
        None => key.to_owned(),
    };
    let at = records.iter().position(|(other, _)| *other == key);
    let Some(at) = at.filter(|_| is_expendable(&key)) else { return Ok(Vec::new()) };
    let mut keeper = Keeper::of(records);
    let mut taken = Vec::new();
    let reason = InvalidRecord::contradiction(&key, why);
    take_out(records, at, reason, &mut keeper, &mut taken)?;
    // Watches are not told that it is gone, so they start over.
    records.retain(|(other, _)| other != REVISIONS_KEY);
    Ok(taken)
}

/// Where the record is that is to blame, if the rest may stand without it.
pub(crate) fn expendable(records: &[(String, Vec<u8>)], reason: &InvalidRecord) -> Option<usize> {
    let key = reason.key().filter(|key| is_expendable(key))?;
    records.iter().position(|(other, _)| other == key)
}

/// Whether the rest may stand without the record under this key.
pub(crate) fn is_expendable(key: &str) -> bool {
    EXPENDABLE.iter().any(|kind| key.starts_with(kind))
}

/// Takes out the records that say something of the DAG under `key`, if a DAG is under it.
fn take_about(records: &mut Vec<(String, Vec<u8>)>, key: &str) -> Vec<(String, Vec<u8>)> {
    let is_about = |other: &str, value: &[u8]| {
        let record = Record::parse(other, value).ok();
        let dag = record.as_ref().and_then(dag_of);
        dag.is_some_and(|dag| RecordKey::Dag(dag.clone()).to_string() == key)
    };
    if !key.starts_with("dags/") {
        return Vec::new();
    }
    let all = std::mem::take(records).into_iter();
    let (about, rest) =
        all.partition(|(other, value)| is_expendable(other) && is_about(other, value));
    *records = rest;
    about
}
