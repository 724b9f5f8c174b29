//! Records that cannot be used, and what the rest makes without them.
//!
//! Records that only say more of a DAG (its explanation, its rules, what its chains keep, its operation under way) go
//! with the DAG's record, and the two count as one fault.

use snic_domain::{DagName, Timestamp};

use crate::protocol::{ControllerSettings, OperationWork};
use crate::restart::recovery::{StoreContent, restore};
use crate::store::records::{
    InvalidRecord, Phase, REVISIONS_KEY, Record, RecordKey, RecordWrite, set_aside_key,
};

/// Faults that a start does without at most: beyond, the store as a whole is not to be trusted.
const FAULTS_MAX: usize = 32;

/// Kinds of records without which the rest stands. Tenants, cards and regions, what was given out and
/// the head of the store are not among them: who is served would change.
const EXPENDABLE: [&str; 13] = [
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
];

/// A record that cannot be read, contradicts the others, or is about one of these, and was left out.
#[derive(Debug)]
pub struct SetAside {
    pub key: String,
    /// Its value, as it is.
    pub value: Vec<u8>,
    /// Fault of the record.
    pub reason: InvalidRecord,
}

impl SetAside {
    /// Moves it out of the way, and keeps it: what the store is to be told. Watches are not told that it
    /// is gone, so they start over.
    pub fn writes(&self) -> [RecordWrite; 3] {
        let revisions = RecordKey::Revisions.to_string();
        let kept = (set_aside_key(&self.key), Some(self.value.clone()));
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
    let mut set_aside = Vec::new();
    let mut faults = 0;
    loop {
        let is_whole = set_aside.is_empty();
        let reason = match restore(settings, &records, is_whole, secret, now) {
            Ok(recovered) => return Ok((recovered, set_aside)),
            Err(reason) => reason,
        };
        let Some(at) = expendable(&records, &reason).filter(|_| faults < FAULTS_MAX) else {
            return Err(reason);
        };
        faults += 1;
        let (key, value) = records.remove(at);
        let about = take_about(&mut records, &key);
        set_aside.push(SetAside { key, value, reason });
        set_aside.extend(about);
    }
}

/// Takes out the record under `key`, or of the DAG that it is about, so that the controller which goes on from the
/// others does not decide again what led to a change that no store takes. Gives what was taken out: nothing where the rest
/// does not stand without it, or there is no such record.
pub(crate) fn take_cause(
    records: &mut Vec<(String, Vec<u8>)>,
    key: &str,
    why: &str,
) -> Vec<SetAside> {
    // An explanation is decided with the place of its DAG, and would be again.
    let key = match key.strip_prefix("explanations/") {
        Some(dag) => format!("dags/{dag}"),
        None => key.to_owned(),
    };
    let at = records.iter().position(|(other, _)| *other == key);
    let Some(at) = at.filter(|_| is_expendable(&key)) else { return Vec::new() };
    let (key, value) = records.remove(at);
    let about = take_about(records, &key);
    // Watches are not told that it is gone, so they start over.
    records.retain(|(other, _)| other != REVISIONS_KEY);
    let reason = InvalidRecord::contradiction(&key, why);
    let mut taken = vec![SetAside { key, value, reason }];
    taken.extend(about);
    taken
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
fn take_about(records: &mut Vec<(String, Vec<u8>)>, key: &str) -> Vec<SetAside> {
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
    let taken = |(other, value): (String, Vec<u8>)| {
        let reason = format!("it is about {key}, which was set aside");
        SetAside { reason: InvalidRecord::contradiction(&other, reason), key: other, value }
    };
    Vec::into_iter(about).map(taken).collect()
}

/// The DAG without which a record cannot be used.
fn dag_of(record: &Record) -> Option<&DagName> {
    match record {
        Record::Explanation(dag, _) => Some(dag),
        Record::ResidentContext(_, _, context) => Some(&context.dag),
        Record::SavedContext(_, context) => {
            (context.phase != Phase::Erasing).then_some(&context.dag)
        }
        Record::Rule(record) => Some(&record.rule.dag),
        Record::Operation(record) => match &record.work {
            OperationWork::CreateDag(dag) | OperationWork::UpdateDag(dag) => {
                record.ended.is_none().then_some(dag)
            }
            _ => None,
        },
        _ => None,
    }
}
