//! Numbers of admitted calls by tenant, until whoever bills them takes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use snic_domain::TenantId;

use crate::access::{Access, Row};
use crate::identity::CallerIdentity;

/// Tenants whose calls are counted between two takes. Peers of a Unix socket may state any name: without a bound they would fill memory.
const TENANTS_MAX: usize = 65_536;

/// Numbers of admitted calls by tenant. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct CallCounts(Arc<Mutex<BTreeMap<TenantId, u64>>>);

impl CallCounts {
    /// Counts an admitted call of this caller, if it is a tenant's. Health checks and what needs no identity are free. Time O(log tenants).
    pub(crate) fn count(&self, row: Row, caller: &CallerIdentity) {
        if row.is_health() || row.access == Access::Open {
            return;
        }
        let Some(tenant) = caller.tenant() else { return };
        let mut tenants = self.0.lock();
        if let Some(calls) = tenants.get_mut(tenant) {
            *calls += 1;
        } else if tenants.len() < TENANTS_MAX {
            tenants.insert(tenant.clone(), 1);
        }
    }

    /// Takes all numbers, by tenant.
    pub fn take(&self) -> Vec<(TenantId, u64)> {
        std::mem::take(&mut *self.0.lock()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::CONTROL;

    #[test]
    fn calls_of_tenants_are_counted_and_taken_once() {
        let counts = CallCounts::default();
        let row = |path| CONTROL.find(path).expect("a method");
        let list = row("/snic.control.v1.DagService/ListDags");
        let health = row("/grpc.health.v1.Health/Check");
        let caller = |path| CallerIdentity::parse(path).expect("an identity");
        let calls = [
            (list, "tenant/acme"),
            (list, "tenant/acme/bob"),
            (list, "operator/root"),
            (health, "tenant/acme"),
            (list, "tenant/globex"),
        ];
        for (row, path) in calls {
            let caller = caller(path);
            counts.clone().count(row, &caller);
        }
        let taken = counts.take();
        let named: Vec<(String, u64)> =
            taken.into_iter().map(|(tenant, calls)| (tenant.to_string(), calls)).collect();
        assert_eq!(named, [("acme".to_owned(), 2), ("globex".to_owned(), 1)]);
        assert!(counts.take().is_empty());
        let paths: Vec<String> =
            (0..TENANTS_MAX + 10).map(|number| format!("tenant/t{number}")).collect();
        for path in &paths {
            counts.count(list, &caller(path));
        }
        assert_eq!(counts.take().len(), TENANTS_MAX);
    }
}
