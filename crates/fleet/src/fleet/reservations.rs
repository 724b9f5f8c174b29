//! Virtual functions that are kept for machines about to start, each until its lease ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::{TenantId, Timestamp};

use crate::HostId;
use crate::protocol::RequestId;
use crate::records::{ReservedFunctions, Versioned};

type Name = (TenantId, RequestId);

/// Longest lease in seconds.
pub(super) const SECONDS_MAX: u32 = 86_400;
/// Most reservations of one tenant.
pub(super) const RESERVATIONS_MAX: usize = 256;

/// All reservations.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    all: BTreeMap<Name, (Versioned<ReservedFunctions>, Timestamp)>,
    ends: BTreeSet<(Timestamp, Name)>,
}

impl Reservations {
    /// A new one, or one from its record; its lease begins now.
    pub fn insert(&mut self, record: Versioned<ReservedFunctions>, now: Timestamp) {
        let of = record.value();
        let name = (of.tenant.clone(), of.id);
        let end = now + Duration::from_secs(of.seconds.into());
        self.ends.insert((end, name.clone()));
        self.all.insert(name, (record, end));
    }

    pub fn get(&self, name: &Name) -> Option<&ReservedFunctions> {
        self.all.get(name).map(|(record, _)| record.value())
    }

    /// Returns whether there is such a one.
    pub fn renew(&mut self, name: &Name, now: Timestamp) -> bool {
        let Some((record, end)) = self.all.get_mut(name) else { return false };
        self.ends.remove(&(*end, name.clone()));
        *end = now + Duration::from_secs(record.value().seconds.into());
        self.ends.insert((*end, name.clone()));
        true
    }

    pub fn remove(&mut self, name: &Name) -> Option<ReservedFunctions> {
        let (record, end) = self.all.remove(name)?;
        self.ends.remove(&(end, name.clone()));
        Some(record.value().clone())
    }

    /// One whose lease is over.
    pub fn ended(&self, now: Timestamp) -> Option<Name> {
        let (end, name) = self.ends.first()?;
        (*end <= now).then(|| name.clone())
    }

    /// How many a tenant has.
    pub fn of_tenant(&self, tenant: &TenantId) -> usize {
        let from = (tenant.clone(), RequestId(0));
        self.all.range(from..).take_while(|((of, _), _)| of == tenant).count()
    }

    /// How many are on a host.
    pub fn on(&self, host: &HostId) -> usize {
        self.all.values().filter(|(record, _)| record.value().card.host == *host).count()
    }
}
