//! NT types by name.

use std::collections::BTreeMap;

use crate::aging::KeyedHash;
use snic_domain::Timestamp;

use crate::config::{InvalidConfiguration, SHOWN_SECRET, Schema, Secret, shown_secret};
use crate::task::{NetworkTask, NtInstance};
use crate::tasks;

type Make = fn(KeyedHash) -> Box<dyn NetworkTask>;

/// One line per type: its schema, which has its name, and its constructor.
const TASKS: &[(&Schema, Make)] = &[
    (&tasks::checksum::SCHEMA, |_| Box::new(tasks::checksum::Checksum::default())),
    (&tasks::esp::SCHEMA, |_| Box::new(tasks::esp::Esp::default())),
    (&tasks::firewall::SCHEMA, |hash| Box::new(tasks::firewall::Firewall::new(hash))),
    (&tasks::go_back_n::SCHEMA, |hash| Box::new(tasks::go_back_n::GoBackN::new(hash))),
    (&tasks::kv_cache::SCHEMA, |hash| Box::new(tasks::kv_cache::KvCache::new(hash))),
    (&tasks::kv_replication::SCHEMA, |hash| {
        Box::new(tasks::kv_replication::KvReplication::new(hash))
    }),
    (&tasks::load_balancer::SCHEMA, |hash| Box::new(tasks::load_balancer::LoadBalancer::new(hash))),
    (&tasks::nat::SCHEMA, |hash| Box::new(tasks::nat::Nat::new(hash))),
    (&tasks::policer::SCHEMA, |_| Box::new(tasks::policer::Policer::default())),
    (&tasks::vxlan::SCHEMA, |_| Box::new(tasks::vxlan::Vxlan::default())),
];

/// The names of all NT types of this crate.
pub const NT_TYPES: [&str; TASKS.len()] = {
    let mut names = [""; TASKS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = TASKS[index].0.nt_type;
        index += 1;
    }
    names
};

/// An NT type that this crate does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no network task of type {0:?}; known types: {known}", known = NT_TYPES.join(", "))]
pub struct UnknownNtType(pub String);

/// A new NT without configuration. `seed` is a random number that senders of packets do not know: it
/// keeps them from choosing flows that collide in tables.
///
/// # Errors
/// There is no such type.
pub fn create(nt_type: &str, seed: u64) -> Result<NtInstance, UnknownNtType> {
    let (schema, make) = find(nt_type)?;
    Ok(NtInstance::new(make(KeyedHash(seed, schema.version.into())), schema, seed))
}

/// Checks a configuration of an NT type as the NT itself would: against its schema, and against the
/// rules that a schema cannot express. Needs as much memory as the NT for the duration of the call.
///
/// # Errors
/// A field is missing, unknown or not allowed; or there is no such type.
pub fn check(nt_type: &str, json: &str) -> Result<(), InvalidConfiguration> {
    let unknown = |_| {
        let allowed = format!("NT types that can be configured: {}", NT_TYPES.join(", "));
        InvalidConfiguration::field("", nt_type, allowed)
    };
    let version = schema(nt_type).map_err(unknown)?.version;
    create(nt_type, 0).map_err(unknown)?.configure(Timestamp::ZERO, version, json.as_bytes())
}

/// A configuration as it may be shown, with digests in place of secrets; `None` if [`check`]
/// rejects it.
pub fn redacted(nt_type: &str, json: &str) -> Option<serde_json::Value> {
    let schema = schema(nt_type).ok()?;
    schema.check(schema.version, json.as_bytes()).ok().map(|configuration| configuration.redacted())
}

/// A configuration in the words that an NT of the type takes in hardware ([`crate::config`]); `None` where there is no such
/// type here.
///
/// # Errors
/// The type's schema does not accept it.
pub fn configuration_words(
    nt_type: &str,
    json: &str,
) -> Option<Result<Vec<u32>, InvalidConfiguration>> {
    let schema = schema(nt_type).ok()?;
    let configuration = schema.check(schema.version, json.as_bytes());
    Some(configuration.and_then(|configuration| configuration.words()))
}

/// Whether a digest stands where a configuration of this type has a secret, as [`redacted`] prints one.
pub fn has_digests(nt_type: &str, json: &str) -> bool {
    let (Ok(schema), Ok(mut document)) = (schema(nt_type), serde_json::from_str(json)) else {
        return false;
    };
    let mut found = false;
    schema.visit_secrets(&mut document, &mut |text| found |= text.starts_with(SHOWN_SECRET));
    found
}

/// A configuration with the secrets themselves where their digests stand, as far as one of `known` has them: what
/// [`redacted`] showed can be given back. `known` are NT types with their configurations. `None` where no digest stands, or
/// it is no configuration.
pub fn with_secrets(nt_type: &str, json: &str, known: &[(&str, &str)]) -> Option<String> {
    if !json.contains(SHOWN_SECRET) {
        return None;
    }
    let mut secrets = BTreeMap::new();
    for (nt_type, json) in known {
        let (Ok(schema), Ok(mut document)) = (schema(nt_type), serde_json::from_str(json)) else {
            continue;
        };
        schema.visit_secrets(&mut document, &mut |text| {
            if let Ok(secret) = text.parse::<Secret>() {
                secrets.insert(shown_secret(secret.digest()), text.clone());
            }
        });
    }
    let mut document = serde_json::from_str(json).ok()?;
    let mut replaced = 0;
    schema(nt_type).ok()?.visit_secrets(&mut document, &mut |text| {
        if let Some(secret) = secrets.get(text) {
            text.clone_from(secret);
            replaced += 1;
        }
    });
    (replaced > 0).then(|| document.to_string())
}

/// The schema of an NT type's configurations.
///
/// # Errors
/// There is no such type.
pub fn schema(nt_type: &str) -> Result<&'static Schema, UnknownNtType> {
    find(nt_type).map(|(schema, _)| schema)
}

fn find(nt_type: &str) -> Result<(&'static Schema, Make), UnknownNtType> {
    let found = TASKS.iter().find(|(schema, _)| schema.nt_type == nt_type);
    found.copied().ok_or_else(|| UnknownNtType(nt_type.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_sorted_and_found_by_name() {
        assert!(NT_TYPES.is_sorted());
        for name in NT_TYPES {
            assert_eq!(schema(name).unwrap().nt_type, name);
            assert!(create(name, 0).is_ok());
        }
        let unknown = create("router", 0).err().unwrap().to_string();
        assert!(unknown.starts_with("there is no network task of type \"router\"; known types: "));
    }

    #[test]
    fn every_field_says_what_it_is_for() {
        use crate::config::{Field, Kind};
        fn check(fields: &[Field]) {
            for field in fields {
                assert!(field.description.ends_with('.'), "{}", field.name);
                match &field.kind {
                    Kind::Object(fields) | Kind::Objects { fields, .. } => check(fields),
                    _ => {}
                }
            }
        }
        TASKS.iter().for_each(|(schema, _)| check(schema.fields));
    }
}
