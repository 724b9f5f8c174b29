//! Requests that were done, so that one that is sent again gets the same answer and is not done twice.

use std::collections::{BTreeMap, VecDeque};

use snic_domain::{Digest, TenantId};

use crate::journal::FleetStep;
use crate::protocol::{Denied, FleetReply, RequestId};
use crate::records::{DoneRequest, Versioned, request_key};

/// Number of requests that are remembered of each tenant; the oldest is forgotten. One that is sent again later is done again, and finds
/// what it made.
const REMEMBERED_MAX: usize = 128;

/// Requests of each tenant, in the order in which they were done.
#[derive(Debug, Default)]
pub(super) struct Requests(BTreeMap<Option<TenantId>, VecDeque<DoneRequest>>);

impl Requests {
    /// Answer to a request that was done before.
    ///
    /// # Errors
    ///
    /// [`Denied::RequestReused`]
    pub fn answer(
        &self,
        tenant: Option<&TenantId>,
        id: RequestId,
        fingerprint: Digest,
    ) -> Result<Option<FleetReply>, Denied> {
        let of = self.0.get(&tenant.cloned());
        let done = of.and_then(|of| of.iter().find(|done| done.id == id));
        match done {
            Some(done) if done.fingerprint != fingerprint => Err(Denied::RequestReused(id)),
            done => Ok(done.map(|done| done.reply.clone())),
        }
    }

    pub fn done(&mut self, done: DoneRequest, step: &mut FleetStep) {
        let key = request_key(done.tenant.as_ref(), done.id);
        step.put(key, Versioned::new(done.clone()).bytes());
        let of = self.0.entry(done.tenant.clone()).or_default();
        of.push_back(done);
        if of.len() > REMEMBERED_MAX
            && let Some(oldest) = of.pop_front()
        {
            step.delete(request_key(oldest.tenant.as_ref(), oldest.id));
        }
    }

    /// Forgets requests of a tenant that is being deleted, some at a time; returns how many.
    pub fn forget(&mut self, tenant: &TenantId, most: usize, step: &mut FleetStep) -> usize {
        let tenant = Some(tenant.clone());
        let Some(of) = self.0.get_mut(&tenant) else { return 0 };
        let gone: Vec<DoneRequest> = of.drain(..most.min(of.len())).collect();
        gone.iter().for_each(|done| step.delete(request_key(done.tenant.as_ref(), done.id)));
        if of.is_empty() {
            self.0.remove(&tenant);
        }
        gone.len()
    }

    /// From its record, in any order.
    pub fn restore(&mut self, done: DoneRequest) {
        let of = self.0.entry(done.tenant.clone()).or_default();
        let at = of.partition_point(|other| other.serial < done.serial);
        of.insert(at, done);
    }
}
