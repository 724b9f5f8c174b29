//! Functions and bandwidth of a card that are kept for tenants, beside the functions that machines have.

use std::collections::BTreeMap;

use snic_domain::{Bandwidth, TenantId, VmId};

use crate::request_id::RequestId;

/// Name of a reservation.
pub type KeptName = (TenantId, RequestId);

/// Part of a card that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRoom {
    /// The only machine that may use the functions; `None`: any of the tenant.
    pub vm: Option<VmId>,
    pub functions: u32,
    pub bandwidth: Bandwidth,
}

/// User of reservations: what is kept for it is free for it.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeptUser<'a> {
    /// `None`: everything is kept for others.
    pub tenant: Option<&'a TenantId>,
    pub vm: Option<&'a VmId>,
}

/// Virtual functions of a card.
#[derive(Debug, Clone, Default)]
pub(super) struct FunctionBooks {
    all: u32,
    /// Functions that machines have, as the host said.
    pub bound: u32,
    pub kept: BTreeMap<KeptName, KeptRoom>,
}

impl FunctionBooks {
    pub fn new(all: u32) -> Self {
        Self { all, ..Self::default() }
    }

    /// Functions that no machine has, kept or not.
    pub const fn unbound(&self) -> u32 {
        self.all.saturating_sub(self.bound)
    }

    /// Functions that are left for a user.
    pub fn left(&self, user: KeptUser<'_>) -> u32 {
        let is_others = |((tenant, _), of): &(&KeptName, &KeptRoom)| {
            Some(tenant) != user.tenant || of.vm.is_some() && of.vm.as_ref() != user.vm
        };
        let kept = self.kept.iter().filter(is_others).map(|(_, of)| of.functions);
        kept.fold(self.unbound(), u32::saturating_sub)
    }

    /// Whether as many functions are free as are kept.
    pub fn has_kept(&self) -> bool {
        let kept: u64 = self.kept.values().map(|of| u64::from(of.functions)).sum();
        kept <= u64::from(self.unbound())
    }

    /// Bandwidth that is kept for others than a tenant.
    pub fn bandwidth_of_others(&self, tenant: Option<&TenantId>) -> Bandwidth {
        let others = self.kept.iter().filter(|((of, _), _)| Some(of) != tenant);
        others.map(|(_, of)| of.bandwidth).sum()
    }
}
