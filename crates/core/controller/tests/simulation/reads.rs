//! Reads of a tenant's own records wait until a crash could undo none of it, and need not wait for more.

use snic_controller::Controller;
use snic_domain::{Caller, TenantId};

/// A tenant reads whenever the steps so far are a multiple of this.
pub const READ_AFTER: usize = 8;

/// Records that a tenant saw of its own.
pub struct OwnRecords {
    tenant: TenantId,
    seen: Vec<String>,
}

impl OwnRecords {
    pub fn read(controller: &Controller, tenant: TenantId) -> Self {
        let caller = Caller::Tenant(tenant.clone());
        let own = controller.tenant_view(&tenant).map(|view| (view.tenant, view.etag));
        let dags = controller.dags(Some(&tenant)).into_iter().map(|dag| {
            let what = (dag.name, dag.uid, dag.spec, dag.generation, dag.etag);
            format!("{:?}", (what, dag.mapping, dag.explanation, dag.created, dag.updated))
        });
        // When it was started is stored with its end.
        let operations = controller.operations(&caller).map(|view| {
            let record = view.record;
            format!("{:?}", (record.id, record.work, record.created, record.ended))
        });
        let own = std::iter::once(format!("{own:?}"));
        let seen = own.chain(dags).chain(operations).collect();
        Self { tenant, seen }
    }

    /// Checks what was read, as it is told, against a daemon that starts from what is durable now.
    pub fn check(&self, recovered: &Controller) {
        let now = Self::read(recovered, self.tenant.clone());
        assert_eq!(self.seen, now.seen, "{} was told what a crash undoes", self.tenant);
    }
}
