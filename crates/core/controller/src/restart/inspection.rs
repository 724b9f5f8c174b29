//! A look at the records of a store that no daemon has open: all that is wrong with them, and what they say
//! without secrets.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use snic_domain::{Digest, TenantId, Timestamp};

use crate::protocol::ControllerSettings;
use crate::restart::check;
use crate::restart::quarantine::{expendable, is_expendable};
use crate::restart::recovery::{self, StoreContent};
use crate::store::records::{InvalidRecord, Record, RecordKey, check_layout, is_set_aside};

/// Records that contradict others and are looked for: each takes a recovery of the rest.
const CONTRADICTIONS_MAX: usize = 256;

#[derive(Debug, Default)]
pub struct Inspection {
    /// All that is wrong with them, in the order in which it was found.
    pub faults: Vec<InvalidRecord>,
    /// An invariant of the whole that is broken though each record can be used.
    pub broken: Option<String>,
    /// Records that an earlier start set aside.
    pub set_aside: Vec<String>,
    /// The bytes that bitstreams' records name; empty where the records do not make a whole.
    pub digests: BTreeSet<Digest>,
}

/// Reads the records of a store without changing them; see [`crate::Controller::inspect`].
pub(crate) fn inspect(
    settings: ControllerSettings,
    records: Vec<(String, Vec<u8>)>,
    now: Timestamp,
) -> Inspection {
    let mut found = Inspection::default();
    if let Err(fault) = check_layout(&records) {
        found.faults.push(fault);
        return found;
    }
    let (set_aside, records): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|(key, _)| is_set_aside(key));
    found.set_aside = set_aside.into_iter().map(|(key, _)| key).collect();
    let (mut readable, mut parsed) = (Vec::new(), Vec::new());
    let mut is_whole = true;
    for (key, value) in records {
        match Record::parse(&key, &value) {
            Ok(record) => {
                parsed.push(record);
                readable.push((key, value));
            }
            Err(fault) => {
                is_whole &= is_expendable(&key);
                found.faults.push(fault);
            }
        }
    }
    found.faults.extend(dangling(&parsed));
    if is_whole
        && let Some(StoreContent { core, .. }) = rest(settings, readable, now, &mut found.faults)
    {
        found.broken = check::check(&core).err();
        found.digests = core.registry.digests().collect();
    }
    found
}

/// State from the records without those that contradict others, which are added to the faults.
fn rest(
    settings: ControllerSettings,
    mut records: Vec<(String, Vec<u8>)>,
    now: Timestamp,
    faults: &mut Vec<InvalidRecord>,
) -> Option<StoreContent> {
    for _ in 0..CONTRADICTIONS_MAX {
        match recovery::restore(settings, &records, true, 0, now) {
            Ok(recovered) => return Some(recovered),
            Err(fault) => {
                let at = expendable(&records, &fault);
                faults.push(fault);
                records.remove(at?);
            }
        }
    }
    None
}

/// References to records that are not stored, and that a recovery does without.
fn dangling(records: &[Record]) -> Vec<InvalidRecord> {
    let keys: BTreeSet<String> = records.iter().map(|record| record.key().to_string()).collect();
    let absent = |record: &Record, to: &RecordKey| {
        let to = to.to_string();
        let reason = || format!("it needs {to}, which is not stored");
        (!keys.contains(&to)).then(|| InvalidRecord::contradiction(record.key(), reason()))
    };
    let tenant = |id: &TenantId| RecordKey::Tenant(id.clone());
    let needs = |record: &Record| match record {
        Record::Dag(dag) => Some(tenant(&dag.name.tenant)),
        Record::NtType(record) => record.nt.id.owner().as_ref().map(tenant),
        Record::Bitstream(record) => record.bitstream.id.owner().as_ref().map(tenant),
        Record::Binding(record) => Some(tenant(&record.spec.tenant)),
        Record::Region(_, _, record) => record.bitstream.clone().map(RecordKey::Bitstream),
        _ => None,
    };
    records.iter().filter_map(|record| absent(record, &needs(record)?)).collect()
}

/// A record as a line of JSON: its key, and its value without secrets. Of a value that is no JSON, the
/// number of bytes and their digest.
pub fn shown(key: &str, value: &[u8]) -> String {
    let record = serde_json::from_slice(value).map(|mut record| {
        hide(&mut record);
        json!({ "key": key, "record": record })
    });
    let unreadable = |_| {
        let digest = Digest::of(value).to_string();
        json!({ "key": key, "unreadable": { "bytes": value.len(), "sha256": digest } })
    };
    record.unwrap_or_else(unreadable).to_string()
}

/// Configurations of NTs may hold keys, and operation ids are made from the secret of the head.
fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "configuration" | "secret" if !value.is_null() => {
                        *value = "left out".into();
                    }
                    _ => hide(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(hide),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out_wherever_they_are() {
        let key = "ab".repeat(20);
        let spec = format!(
            r#"{{"spec":{{"nodes":[{{"id":"n","nt":"esp","configuration":"{{\"key\":\"{key}\"}}"}},
               {{"id":"m","nt":"nat","configuration":null}}]}},"previous":[{{"configuration":"{key}"}}]}}"#
        );
        let line = shown("dags/acme/web", spec.as_bytes());
        assert!(!line.contains(&key) && !line.contains('\n'), "{line}");
        let json: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(json["key"], "dags/acme/web");
        assert_eq!(json["record"]["spec"]["nodes"][0]["nt"], "esp");
        assert!(json["record"]["spec"]["nodes"][1]["configuration"].is_null());
        let head = shown("meta", br#"{"schema":2,"secret":77121,"operations":3}"#);
        assert!(!head.contains("77121") && head.contains("\"operations\":3"), "{head}");
    }

    #[test]
    fn a_record_that_is_not_json_is_shown_by_size_and_digest() {
        let line = shown("dags/a/b", b"\0key=1234");
        assert!(!line.contains("1234"), "{line}");
        let json: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(json["unreadable"]["bytes"], 9);
        assert_eq!(json["unreadable"]["sha256"], Digest::of(b"\0key=1234").to_string());
    }
}
