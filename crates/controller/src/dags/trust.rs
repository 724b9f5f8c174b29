//! Which DAGs name a tenant as trusted: a tenant that goes is struck from them, without a look at all others.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{DagName, TenantId};

/// By tenant and by DAG. A DAG may be here for a name that it has lost since, until it is noted again.
#[derive(Debug, Default)]
pub(super) struct Trusting {
    by_tenant: BTreeMap<TenantId, BTreeSet<DagName>>,
    by_dag: BTreeMap<DagName, BTreeSet<TenantId>>,
}

impl Trusting {
    /// A DAG names these tenants, and no others any more.
    pub fn note(&mut self, dag: &DagName, tenants: BTreeSet<TenantId>) {
        self.forget(dag);
        for tenant in &tenants {
            self.by_tenant.entry(tenant.clone()).or_default().insert(dag.clone());
        }
        if !tenants.is_empty() {
            self.by_dag.insert(dag.clone(), tenants);
        }
    }

    /// A DAG names nobody any more.
    pub fn forget(&mut self, dag: &DagName) {
        for tenant in self.by_dag.remove(dag).unwrap_or_default() {
            let Some(dags) = self.by_tenant.get_mut(&tenant) else { continue };
            dags.remove(dag);
            if dags.is_empty() {
                self.by_tenant.remove(&tenant);
            }
        }
    }

    /// The DAGs that may name a tenant, by name.
    pub fn of(&self, tenant: &TenantId) -> impl Iterator<Item = &DagName> {
        self.by_tenant.get(tenant).into_iter().flatten()
    }

    /// How many pairs of a DAG and a tenant are here, by either index.
    pub fn counts(&self) -> (usize, usize) {
        let by_tenant = self.by_tenant.values().map(BTreeSet::len).sum();
        (by_tenant, self.by_dag.values().map(BTreeSet::len).sum())
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
        DagName { tenant: tenant(9), dag: DagId::new(&format!("d{number}")).expect("a label") }
    }

    proptest! {
        /// Whoever names whom in whatever order: both indexes say it, and nothing is left of who names nobody.
        #[test]
        fn both_indexes_agree(
            steps in prop::collection::vec((0u8..4, prop::collection::btree_set(0u8..4, 0..4)), 0..30),
        ) {
            let (mut trusting, mut now) = (Trusting::default(), BTreeMap::new());
            for (number, names) in steps {
                trusting.note(&dag(number), names.iter().map(|of| tenant(*of)).collect());
                now.insert(number, names);
                for of in 0..4 {
                    let with = now.iter().filter(|(_, names)| names.contains(&of));
                    let with: Vec<DagName> = with.map(|(number, _)| dag(*number)).collect();
                    prop_assert!(trusting.of(&tenant(of)).eq(with.iter()));
                }
                let pairs: usize = now.values().map(BTreeSet::len).sum();
                prop_assert_eq!(trusting.counts(), (pairs, pairs));
            }
        }
    }
}
