//! DAGs that name something: a tenant as trusted, an NT type as one of their nodes. They are found without
//! a look at all others.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{DagName, TenantId};

/// Pairs of a name and a DAG. A DAG may be here for a name that it has lost since, until it is noted again.
#[derive(Debug)]
pub(super) struct NameIndex<K> {
    by_name: BTreeMap<K, BTreeSet<DagName>>,
    by_dag: BTreeMap<DagName, BTreeSet<K>>,
}

impl<K> Default for NameIndex<K> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), by_dag: BTreeMap::new() }
    }
}

impl<K: Clone + Ord> NameIndex<K> {
    /// A DAG names these, and no others any more.
    pub fn note(&mut self, dag: &DagName, names: BTreeSet<K>) {
        self.forget(dag);
        for name in &names {
            self.by_name.entry(name.clone()).or_default().insert(dag.clone());
        }
        if !names.is_empty() {
            self.by_dag.insert(dag.clone(), names);
        }
    }

    /// A DAG names nothing any more.
    pub fn forget(&mut self, dag: &DagName) {
        for name in self.by_dag.remove(dag).unwrap_or_default() {
            let Some(dags) = self.by_name.get_mut(&name) else { continue };
            dags.remove(dag);
            if dags.is_empty() {
                self.by_name.remove(&name);
            }
        }
    }

    /// The DAGs that may name this, by name.
    pub fn of(&self, name: &K) -> impl Iterator<Item = &DagName> {
        self.by_name.get(name).into_iter().flatten()
    }

    /// One of the DAGs that may name this, but for those of a tenant. Time O(log DAGs).
    pub fn one_of(&self, name: &K, but_for: Option<&TenantId>) -> Option<&DagName> {
        let dags = self.by_name.get(name)?;
        // They are by tenant: where both ends are its own, all are.
        let mut ends = dags.first().into_iter().chain(dags.last());
        ends.find(|dag| but_for != Some(&dag.tenant))
    }

    /// Number of pairs of a DAG and a name, by either index.
    pub fn counts(&self) -> (usize, usize) {
        let by_name = self.by_name.values().map(BTreeSet::len).sum();
        (by_name, self.by_dag.values().map(BTreeSet::len).sum())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::DagId;

    use super::*;

    fn tenant(number: u8) -> TenantId {
        TenantId::new(&format!("t{number}")).expect("a label")
    }

    fn dag(number: u8) -> DagName {
        let dag = DagId::new(&format!("d{number}")).expect("a label");
        DagName { tenant: tenant(number % 3), dag }
    }

    proptest! {
        /// Whoever names whom in whatever order: both indexes say it, nothing is left of who names nobody, and one of
        /// another tenant's is found if there is any.
        #[test]
        fn both_indexes_agree(
            steps in prop::collection::vec((0u8..6, prop::collection::btree_set(0u8..4, 0..4)), 0..30),
        ) {
            let (mut naming, mut now) = (NameIndex::default(), BTreeMap::new());
            for (number, names) in steps {
                naming.note(&dag(number), names.iter().map(|of| tenant(*of)).collect());
                now.insert(dag(number), names);
                for of in 0..4 {
                    let with = now.iter().filter(|(_, names)| names.contains(&of));
                    let with: Vec<&DagName> = with.map(|(dag, _)| dag).collect();
                    prop_assert!(naming.of(&tenant(of)).eq(with.iter().copied()));
                    for own in [None, Some(0), Some(1), Some(2)] {
                        let own = own.map(tenant);
                        let found = naming.one_of(&tenant(of), own.as_ref());
                        let mut others = with.iter().filter(|dag| own.as_ref() != Some(&dag.tenant));
                        prop_assert_eq!(found.is_some(), others.next().is_some());
                        prop_assert!(found.is_none_or(|dag| own.as_ref() != Some(&dag.tenant)));
                        prop_assert!(found.is_none_or(|dag| with.contains(&dag)));
                    }
                }
                let pairs: usize = now.values().map(BTreeSet::len).sum();
                prop_assert_eq!(naming.counts(), (pairs, pairs));
            }
        }
    }
}
