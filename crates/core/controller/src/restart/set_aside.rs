//! The account of records that are set aside: how many there are, and of which tenants.

use std::collections::BTreeMap;

use snic_domain::{DagName, TenantId};

use crate::protocol::OperationWork;
use crate::store::records::{InvalidRecord, Phase, Record, SET_ASIDE_BYTES_MAX, SET_ASIDE_MAX};

/// All records that are set aside, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetAsideAccount {
    pub records: usize,
    /// Bytes of their keys and values.
    pub bytes: usize,
    /// Number of records by tenant, as far as key or value say so.
    pub tenants: BTreeMap<TenantId, usize>,
}

impl SetAsideAccount {
    /// Counts a record that had this key before.
    pub(crate) fn add(&mut self, key: &str, value: &[u8]) {
        self.records += 1;
        self.bytes += key.len() + value.len();
        if let Some(tenant) = tenant_of(key, value) {
            *self.tenants.entry(tenant).or_default() += 1;
        }
    }

    /// # Errors
    /// There are more than can be kept; the last of them is `key`.
    pub(crate) fn check(&self, key: &str) -> Result<(), InvalidRecord> {
        let Self { records, bytes, .. } = *self;
        if records > SET_ASIDE_MAX || bytes > SET_ASIDE_BYTES_MAX {
            return Err(InvalidRecord::Full { key: key.to_owned(), records, bytes });
        }
        Ok(())
    }
}

/// The tenant of a record. Its value may not be readable, so its key is looked at first.
fn tenant_of(key: &str, value: &[u8]) -> Option<TenantId> {
    let (kind, rest) = key.split_once('/')?;
    let mut parts = rest.split('/');
    let named = match kind {
        "dags" | "explanations" | "refused" => parts.next(),
        // `deleted/tenants/acme/dags/web`
        "deleted" => parts.nth(1).filter(|_| rest.starts_with("tenants/")),
        // `guests/card0/00/acme/web/…`
        "guests" => parts.nth(2),
        "nt-types" | "bitstreams" => rest.split_once('.').map(|(owner, _)| owner),
        _ => None,
    };
    if let Some(named) = named {
        return TenantId::new(named).ok();
    }
    let record = Record::parse(key, value).ok()?;
    match &record {
        Record::Binding(binding) => Some(binding.spec.tenant.clone()),
        other => dag_of(other).map(|dag| dag.tenant.clone()),
    }
}

/// The DAG without which a record cannot be used.
pub(crate) fn dag_of(record: &Record) -> Option<&DagName> {
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
