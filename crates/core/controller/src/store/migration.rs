//! Older layouts of the records, and the steps to the present one.
//!
//! A step reads JSON, not the types of today, so that it stays as it is when they change. A record that it
//! cannot read is left as it is: recovery says what is wrong with it.

use serde::Deserialize;
use serde_json::{Map, Value};
use snic_domain::NtTypeId;

use crate::store::records::{InvalidRecord, LAYOUT, RecordKey, RecordWrite};

/// From layout 1 on, what becomes of a record on the way to the next layout; `None` where it stays.
const STEPS: [Step; LAYOUT as usize - 1] = [number_nt_types, begin_revisions];

type Step = fn(key: &str, value: &Value) -> Option<Value>;

/// The head of a store as it is in every layout, past or to come.
#[derive(Deserialize)]
struct Head {
    schema: u32,
}

/// Records in the present layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// All of them.
    pub records: Vec<(String, Vec<u8>)>,
    /// The layout that they had, where it was an older one.
    pub from: Option<u32>,
    /// The changes, to be stored as one batch.
    pub writes: Vec<RecordWrite>,
}

/// Brings the records of a store to the present layout. Records of the present one, or of a store without
/// a head, stay as they are. Time O(bytes of the records) where anything is to be done.
///
/// # Errors
/// The head cannot be read, or the layout is newer than the present one.
pub fn migrate(mut records: Vec<(String, Vec<u8>)>) -> Result<Migrated, InvalidRecord> {
    let found = layout_of(&records)?.unwrap_or(LAYOUT);
    let first = usize::try_from(found).ok().and_then(|found| found.checked_sub(1));
    let steps = first.and_then(|first| STEPS.get(first..));
    let steps = steps.ok_or(InvalidRecord::Schema { found })?;
    let mut writes = Vec::new();
    if !steps.is_empty() {
        for (key, value) in &mut records {
            if let Some(migrated) = carry(key, value, steps) {
                value.clone_from(&migrated);
                writes.push((key.clone(), Some(migrated)));
            }
        }
    }
    Ok(Migrated { records, from: (found < LAYOUT).then_some(found), writes })
}

/// The layout that the head of the store names, if there is a head.
fn layout_of(records: &[(String, Vec<u8>)]) -> Result<Option<u32>, InvalidRecord> {
    let key = RecordKey::Meta.to_string();
    let Some((key, value)) = records.iter().find(|(other, _)| *other == key) else {
        return Ok(None);
    };
    // By way of an object: a list would do for a struct.
    let fields: Result<Map<String, Value>, _> = serde_json::from_slice(value);
    let head = fields.and_then(|fields| Head::deserialize(Value::Object(fields)));
    head.map(|head| Some(head.schema))
        .map_err(|source| InvalidRecord::Unreadable { key: key.clone(), source })
}

/// The value of a record after all steps, if any of them changes it.
fn carry(key: &str, value: &[u8], steps: &[Step]) -> Option<Vec<u8>> {
    let before: Value = serde_json::from_slice(value).ok()?;
    let mut after = before.clone();
    for step in steps {
        after = step(key, &after).unwrap_or(after);
    }
    if *key == *RecordKey::Meta.to_string() {
        after["schema"] = LAYOUT.into();
    }
    (after != before).then(|| after.to_string().into_bytes())
}

/// 1 to 2: every NT type names its number on cards. One without is of a store in which no two types have
/// one code, and the code is its number.
fn number_nt_types(key: &str, value: &Value) -> Option<Value> {
    let is_without = key.starts_with("nt-types/") && value.get("number").is_none();
    let id = is_without.then(|| value.get("nt")?.get("id")?.as_str())??;
    let code = NtTypeId::new(id).ok()?.code();
    let mut numbered = value.clone();
    numbered.as_object_mut()?.insert("number".to_owned(), code.0.into());
    Some(numbered)
}

/// 2 to 3: records of what can be watched are stored with revisions from now on. Those without are
/// from before the revisions that are known.
const fn begin_revisions(_: &str, _: &Value) -> Option<Value> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(records: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        records.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_newer_layout_is_refused_whatever_else_its_records_say() {
        let newer = LAYOUT + 1;
        let meta = format!("{{\"schema\":{newer},\"colour\":\"red\"}}");
        for records in
            [[("meta", meta.as_str()), ("paintings/1", "\0")], [("a", "?"), ("meta", &meta)]]
        {
            let error = migrate(store(&records)).expect_err("nobody knows it");
            assert!(matches!(error, InvalidRecord::Schema { found } if found == newer), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("layout {newer}")) && text.contains("newer"), "{text}");
        }
        for never in [0, u32::MAX] {
            let meta = format!("{{\"schema\":{never}}}");
            let error = migrate(store(&[("meta", &meta)])).expect_err("nobody wrote it");
            assert!(matches!(error, InvalidRecord::Schema { found } if found == never), "{error}");
        }
    }

    #[test]
    fn a_head_that_cannot_be_read_is_named() {
        for damaged in ["", "{}", "[1]", "{\"schema\":\"two\"}"] {
            let error = migrate(store(&[("meta", damaged)])).expect_err(damaged);
            assert_eq!(error.key(), Some("meta"), "{error}");
        }
    }

    #[test]
    fn the_present_layout_and_a_new_store_stay_as_they_are() {
        let present = format!("{{\"schema\":{LAYOUT},\"secret\":7,\"operations\":0}}");
        for records in [store(&[]), store(&[("meta", &present), ("nt-types/x", "{\"nt\":{}}")])] {
            let migrated = migrate(records.clone()).expect("it is known");
            assert_eq!(migrated, Migrated { records, from: None, writes: Vec::new() });
        }
    }

    #[test]
    fn records_that_a_step_cannot_read_are_left_for_recovery() {
        let head = "{\"schema\":1,\"secret\":7,\"operations\":0}";
        let strange = [("nt-types/x", "\0"), ("nt-types/y", "{\"nt\":{\"id\":\"Not A Label\"}}")];
        let records = store(&[strange[0], strange[1], ("meta", head)]);
        let migrated = migrate(records).expect("its head is known");
        assert_eq!(migrated.records[..2], store(&strange)[..]);
        assert_eq!(migrated.writes.len(), 1, "the head: {:?}", migrated.writes);
    }
}
