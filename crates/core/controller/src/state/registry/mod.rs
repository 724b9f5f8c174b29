//! The registry: tenants with their quotas and usage, NT types,
//! bitstreams. It knows no card and no DAG: the caller of a change says what uses a resource elsewhere.
//!
//! Invariants, see [`Registry::check`]: the planner's catalogue has every NT type,
//! and every bitstream but those that were rejected; what each tenant uses is the sum over its own
//! NT types and bitstreams and the DAGs that were charged to it.

mod bitstreams;
mod images;
mod needs;
mod nts;
pub(crate) mod rejections;
mod tenants;
mod trust;
mod usage;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use snic_bitstream::signature::{NotTrusted, Trust};
use snic_domain::{BitstreamId, CardModel, NtTypeId, TenantId};
use snic_planner::PlanCatalogue;
use snic_processors::NicModel;

use crate::protocol::{Caller, ControlError, ProvisionName};
use crate::state::nt_numbers::NtNumbers;
use crate::store::records::{BitstreamRecord, NtRecord, TenantRecord};

pub(crate) use nts::NtUsers;
use tenants::Numbers;
use usage::OwnUsage;

/// Tenants, NT types and bitstreams.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Secret that uids of tenants are derived from.
    secret: u64,
    tenants: BTreeMap<TenantId, TenantRecord>,
    numbers: Numbers,
    /// Usage of each tenant; without an entry nothing.
    usage: BTreeMap<TenantId, OwnUsage>,
    nts: BTreeMap<NtTypeId, NtRecord>,
    nt_numbers: NtNumbers,
    bitstreams: BTreeMap<BitstreamId, BitstreamRecord>,
    /// The bitstreams with each NT type.
    holders: BTreeMap<NtTypeId, BTreeSet<BitstreamId>>,
    /// The NT types, and the bitstreams that may be loaded, as the planner wants them.
    /// Shared with the searches that look at it.
    catalogue: Arc<PlanCatalogue>,
    /// Programs for NTs on cards with processors, as they were declared.
    models: Vec<NicModel>,
    /// Regions that one image serves, by card model; the first of each group first.
    region_groups: BTreeMap<CardModel, Vec<Range<u8>>>,
    /// Keys that count. `None`: what was found at each upload counts, here or at the fleet.
    trust: Option<Trust>,
    /// Bitstreams that would be refused now, for their keys count no more, and why.
    revoked: BTreeMap<BitstreamId, NotTrusted>,
}

impl Registry {
    /// The registry that wrote these records. DAGs are charged when they are restored.
    pub fn restore(
        secret: u64,
        tenants: Vec<TenantRecord>,
        nts: Vec<NtRecord>,
        bitstreams: Vec<BitstreamRecord>,
    ) -> Self {
        let numbers = Numbers::restore(tenants.iter().map(|record| record.number));
        let mut registry = Self { secret, numbers, ..Self::default() };
        for record in tenants {
            registry.tenants.insert(record.tenant.id.clone(), record);
        }
        for record in nts {
            registry.charge_nt(&record.nt.id);
            registry.nt_numbers.restore(&record.nt.id, record.number);
            registry.catalogue_mut().insert_nt(record.nt.clone());
            registry.nts.insert(record.nt.id.clone(), record);
        }
        for record in bitstreams {
            if record.rejected.is_none() {
                registry.catalogue_mut().insert_bitstream(record.bitstream.clone());
            }
            registry.keep_bitstream(record);
        }
        registry
    }

    /// Says which programs there are for NTs on cards with processors.
    pub fn set_models(&mut self, models: impl IntoIterator<Item = NicModel>) {
        self.models = models.into_iter().collect();
        let models = self.models.clone();
        self.catalogue_mut().set_models(models);
    }

    /// Takes over what was declared to another registry: programs, and groups of regions.
    pub fn declare_as(&mut self, other: &Self) {
        self.set_models(other.models.iter().cloned());
        self.region_groups = other.region_groups.clone();
    }

    /// Says within which groups of regions the cards of each model relocate an image.
    pub fn set_region_groups(&mut self, groups: BTreeMap<CardModel, Vec<Range<u8>>>) {
        self.region_groups = groups;
    }

    /// The groups of regions of a card model that one image serves each; none where they are not known.
    pub fn region_groups(&self, model: &CardModel) -> &[Range<u8>] {
        self.region_groups.get(model).map_or(&[], Vec::as_slice)
    }

    /// The numbers that NT types have on cards.
    pub const fn nt_numbers(&self) -> &NtNumbers {
        &self.nt_numbers
    }

    /// Bitstreams and NT types to plan with.
    pub fn catalogue(&self) -> &PlanCatalogue {
        &self.catalogue
    }

    /// The same, for another thread: what is registered from now on is not in it.
    pub fn catalogue_now(&self) -> Arc<PlanCatalogue> {
        Arc::clone(&self.catalogue)
    }

    /// The same, to change it. Copies it where a search looks at it.
    fn catalogue_mut(&mut self) -> &mut PlanCatalogue {
        Arc::make_mut(&mut self.catalogue)
    }

    /// Numbers of what the fleet manages.
    pub fn fleet_numbers(&self) -> Vec<(ProvisionName, u64)> {
        let Self { tenants, nts, bitstreams, .. } = self;
        let tenants = tenants
            .iter()
            .map(|(id, of)| Some((ProvisionName::Tenant(id.clone()), of.fleet_number?)));
        let nts =
            nts.iter().map(|(id, of)| Some((ProvisionName::NtType(id.clone()), of.fleet_number?)));
        let bitstreams = bitstreams
            .iter()
            .map(|(id, of)| Some((ProvisionName::Bitstream(id.clone()), of.fleet_number?)));
        tenants.chain(nts).chain(bitstreams).flatten().collect()
    }

    /// Fails where `caller` may not make something that `owner` owns, or the owner is no tenant.
    fn check_owner(
        &self,
        caller: &Caller,
        owner: Option<&TenantId>,
        field: &str,
    ) -> Result<(), ControlError> {
        let known = owner.is_none_or(|owner| self.tenants.contains_key(owner));
        if caller.may_change(owner) && known {
            return Ok(());
        }
        let rule = match caller.tenant() {
            Some(tenant) => format!("the id of something of yours begins with \"{tenant}.\""),
            None => "the part before the dot is no tenant".to_owned(),
        };
        Err(ControlError::invalid(field, rule))
    }
}
