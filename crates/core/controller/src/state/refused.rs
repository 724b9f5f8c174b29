//! DAGs that were rejected lately. Recommendations of bitstreams to build are made from them, so
//! they are kept over a restart.

use std::collections::VecDeque;

use snic_domain::{DagName, DagSpec};

use crate::store::records::{Record, RecordKey, RefusedRecord};
use crate::store::tx::Tx;

/// Number of refused DAGs that are kept. More would make a recommendation slow, and the oldest tell little.
const KEPT_MAX: usize = 64;

/// All of them, each name once, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefusedDags(VecDeque<RefusedRecord>);

impl RefusedDags {
    /// As they were stored.
    pub(crate) fn restore(mut records: Vec<RefusedRecord>) -> Self {
        records.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
        Self(records.into())
    }

    /// Remembers a DAG that found no room, the latest of its name; forgets the oldest.
    pub fn note(&mut self, tx: &mut Tx, name: &DagName, spec: &DagSpec) {
        let mut spec = spec.clone();
        // What is worth building does not depend on them, and there may be secrets in them.
        spec.nodes.iter_mut().for_each(|node| node.configuration = None);
        if self.0.back().is_some_and(|last| last.name == *name && last.spec == spec) {
            return;
        }
        self.0.retain(|record| record.name != *name);
        if self.0.len() == KEPT_MAX
            && let Some(oldest) = self.0.pop_front()
        {
            tx.delete(RecordKey::Refused(oldest.name));
        }
        let record = RefusedRecord { name: name.clone(), spec, at: tx.now() };
        tx.put(Record::Refused(record.clone()));
        self.0.push_back(record);
    }

    /// Forgets those that were admitted after all, or that nobody wants any more.
    pub fn forget(&mut self, tx: &mut Tx, which: impl Fn(&DagName) -> bool) {
        self.0.retain(|record| {
            let goes = which(&record.name);
            if goes {
                tx.delete(RecordKey::Refused(record.name.clone()));
            }
            !goes
        });
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = (&DagName, &DagSpec)> {
        self.0.iter().map(|record| (&record.name, &record.spec))
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{Bandwidth, DagId, NtTypeId, TenantId};

    use super::*;

    fn name(tenant: &str, number: usize) -> DagName {
        let tenant = TenantId::new(tenant).expect("a label");
        DagName { tenant, dag: DagId::new(&format!("d{number}")).expect("a label") }
    }

    fn spec(gbps: u64) -> DagSpec {
        let nt = NtTypeId::new("nat").expect("a label");
        DagSpec::chain(&[nt], Bandwidth::from_gbps(gbps))
    }

    fn names(refused: &RefusedDags) -> Vec<String> {
        refused.all().map(|(name, _)| format!("{}/{}", name.tenant, name.dag)).collect()
    }

    #[test]
    fn the_latest_of_each_name_is_kept_and_the_oldest_goes() {
        let mut refused = RefusedDags::default();
        let mut tx = Tx::default();
        for number in 0..KEPT_MAX {
            refused.note(&mut tx, &name("acme", number), &spec(1));
        }
        let before = tx.writes().len();
        let last = name("acme", KEPT_MAX - 1);
        refused.note(&mut tx, &last, &spec(1));
        assert_eq!(tx.writes().len(), before, "the same again is not stored");
        refused.note(&mut tx, &last, &spec(2));
        assert_eq!(refused.all().count(), KEPT_MAX);
        refused.note(&mut tx, &name("beta", 0), &spec(1));
        assert_eq!(refused.all().count(), KEPT_MAX);
        assert_eq!(names(&refused).first().map(String::as_str), Some("acme/d1"));
        assert!(tx.writes().contains(&("refused/acme/d0".to_owned(), None)));
        let mut records = Vec::new();
        for record in &refused.0 {
            records.insert(0, record.clone());
        }
        assert_eq!(RefusedDags::restore(records).all().count(), KEPT_MAX);
    }

    #[test]
    fn those_that_are_wanted_no_more_are_forgotten() {
        let mut refused = RefusedDags::default();
        let mut tx = Tx::default();
        for tenant in ["acme", "beta", "gamma"] {
            refused.note(&mut tx, &name(tenant, 0), &spec(1));
        }
        let before = tx.writes().len();
        refused.forget(&mut tx, |name| name.tenant.as_str() == "beta");
        assert_eq!(tx.writes()[before..], [("refused/beta/d0".to_owned(), None)]);
        assert_eq!(names(&refused), ["acme/d0", "gamma/d0"]);
    }
}
