//! NT types and bitstreams: registered once for all hosts, removed when nothing uses them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use snic_domain::limits::{BITSTREAM_BYTES_MAX, CHAIN_SLOTS_MAX, DESCRIPTION_BYTES_MAX};
use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, ByteSize, CardModel, DagSpec, Digest, NtType, NtTypeId,
    Tenant, TenantId, Timestamp, UnfitImage,
};

use snic_planner::PlanCatalogue;

use super::Fleet;
use crate::HostId;
use crate::journal::FleetStep;
use crate::protocol::{Denied, FleetItem, FleetName, FleetUsage, Numbered, OrderKind, Provisions};
use crate::records::{
    FleetBitstreamRecord, FleetNtRecord, PlaceRecord, RecordMeta, Versioned, bitstream_key, nt_key,
};

/// Most NT types, and most bitstreams, of the fleet: each host has all of them, and says which in one message.
pub(super) const REGISTERED_MAX: usize = 20_000;
/// Things of one order: each has at most some kilobytes, and an order at most 4 MiB.
const PROVIDED_AT_ONCE: usize = 256;

/// Things of one order.
type ProvidedItems = (Vec<Numbered<NtType>>, Vec<Numbered<Bitstream>>, Vec<Numbered<Tenant>>);

/// Users of what is registered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UseCounts {
    /// Number of DAGs that name an NT type.
    specs: BTreeMap<NtTypeId, usize>,
    /// Number of bitstreams that contain it.
    builds: BTreeMap<NtTypeId, usize>,
    /// Number of DAGs with a place that uses a bitstream.
    places: BTreeMap<BitstreamId, usize>,
}

fn count<K: Ord + Clone>(all: &mut BTreeMap<K, usize>, key: &K, is_more: bool) {
    let of = all.entry(key.clone()).or_default();
    *of = if is_more { *of + 1 } else { *of - 1 };
    if *of == 0 {
        all.remove(key);
    }
}

impl UseCounts {
    /// A DAG's spec names NT types, or does so no more.
    pub fn count_spec(&mut self, spec: &DagSpec, is_more: bool) {
        let nts: BTreeSet<&NtTypeId> = spec.nodes.iter().map(|node| &node.nt).collect();
        nts.into_iter().for_each(|nt| count(&mut self.specs, nt, is_more));
    }

    /// A bitstream contains NT types, or does so no more.
    fn count_build(&mut self, of: &Bitstream, is_more: bool) {
        let nts: BTreeSet<&NtTypeId> = of.nts.iter().collect();
        nts.into_iter().for_each(|nt| count(&mut self.builds, nt, is_more));
    }

    /// A place uses bitstreams, or does so no more.
    pub fn count_place(&mut self, place: &PlaceRecord, is_more: bool) {
        let used: BTreeSet<_> = place.mapping.instances().map(|of| &of.bitstream).collect();
        used.into_iter().for_each(|id| count(&mut self.places, id, is_more));
    }
}

/// Registered resources, beside the planner's catalogue, and their users.
#[derive(Debug, Default)]
pub(super) struct Registry {
    nts: BTreeMap<NtTypeId, RecordMeta>,
    bitstreams: BTreeMap<BitstreamId, RecordMeta>,
    pub uses: UseCounts,
    nts_digest: Option<Digest>,
    /// Digests of bitstreams, by the models of a host's cards.
    bitstreams_digests: BTreeMap<BTreeSet<CardModel>, Digest>,
}

impl Registry {
    /// Usage of what tenants own in it.
    pub fn usage(&self, catalogue: &PlanCatalogue) -> BTreeMap<TenantId, FleetUsage> {
        let mut usage: BTreeMap<TenantId, FleetUsage> = BTreeMap::new();
        for owner in self.nts.keys().filter_map(NtTypeId::owner) {
            usage.entry(owner).or_default().add(FleetUsage::of_nt());
        }
        for of in self.bitstreams.keys().filter_map(|id| catalogue.bitstream(id)) {
            if let Some(owner) = of.id.owner() {
                usage.entry(owner).or_default().add(FleetUsage::of_bitstream(of));
            }
        }
        usage
    }

    /// Recomputes what uses it; `uses` has what DAGs do.
    pub fn check(&self, mut uses: UseCounts, catalogue: &PlanCatalogue) -> Result<(), String> {
        catalogue.bitstreams().for_each(|of| uses.count_build(of, true));
        let (nts, bitstreams) = (catalogue.nts().count(), catalogue.bitstreams().count());
        if (nts, bitstreams) != (self.nts.len(), self.bitstreams.len()) {
            return Err("the planner's catalogue is not what is registered".into());
        }
        if uses != self.uses {
            return Err(format!("uses are {uses:?}, counted {:?}", self.uses));
        }
        Ok(())
    }

    /// When an NT type was registered.
    pub fn nt(&self, id: &NtTypeId) -> Option<RecordMeta> {
        self.nts.get(id).copied()
    }

    /// When a bitstream was registered.
    pub fn bitstream(&self, id: &BitstreamId) -> Option<RecordMeta> {
        self.bitstreams.get(id).copied()
    }

    /// Those from one on, by id.
    pub fn nts_from(&self, from: Bound<NtTypeId>) -> impl Iterator<Item = &NtTypeId> {
        self.nts.range::<NtTypeId, _>((from, Bound::Unbounded)).map(|(id, _)| id)
    }

    /// Those that a tenant owns.
    pub fn nts_of(&self, tenant: &TenantId) -> impl Iterator<Item = &NtTypeId> {
        let from = format!("{tenant}.");
        let range = self.nts.range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded));
        range.map(|(id, _)| id).take_while(move |id| id.as_str().starts_with(&from))
    }

    /// Those that a tenant owns.
    pub fn bitstreams_of(&self, tenant: &TenantId) -> impl Iterator<Item = &BitstreamId> {
        let from = format!("{tenant}.");
        let range =
            self.bitstreams.range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded));
        range.map(|(id, _)| id).take_while(move |id| id.as_str().starts_with(&from))
    }

    /// Those from one on, by id.
    pub fn bitstreams_from(&self, from: Bound<BitstreamId>) -> impl Iterator<Item = &BitstreamId> {
        self.bitstreams.range::<BitstreamId, _>((from, Bound::Unbounded)).map(|(id, _)| id)
    }
}

impl Fleet {
    pub(super) fn check_nt(&self, nt: &NtType) -> Result<(), Denied> {
        let name = FleetName::Nt(nt.id.clone());
        if self.registry.nt(&nt.id).is_some() {
            return Err(Denied::Exists(name.to_string()));
        }
        let invalid = |field: &str, rule: String| Err(Denied::Invalid(format!("{field}: {rule}")));
        if nt.bandwidth_max < Bandwidth::GRANULARITY || !nt.bandwidth_max.is_whole() {
            let (of, least) = (nt.bandwidth_max, Bandwidth::GRANULARITY);
            let rule = format!("{of} is not allowed: at least {least}, in whole kbit/s");
            return invalid("nt_type.bandwidth_max_bps", rule);
        }
        if nt.area.lut == 0 {
            return invalid("nt_type.area.lut", "an NT takes at least one LUT".into());
        }
        let bytes = nt.description.len();
        if bytes > DESCRIPTION_BYTES_MAX {
            let rule = format!("it has {bytes} bytes; at most {DESCRIPTION_BYTES_MAX} are allowed");
            return invalid("nt_type.description", rule);
        }
        if nt.id.code().0 == 0 {
            let rule = "its code is zero, which bitstreams cannot name; choose another id";
            return invalid("nt_type_id", rule.into());
        }
        self.check_registered("NT types", self.registry.nts.len())?;
        self.admit_owner(nt.id.owner(), FleetUsage::of_nt())
    }

    fn check_registered(&self, what: &str, count: usize) -> Result<(), Denied> {
        if count >= REGISTERED_MAX {
            return Err(Denied::Full { what: what.into(), max: REGISTERED_MAX });
        }
        Ok(())
    }

    fn admit_owner(&self, owner: Option<TenantId>, more: FleetUsage) -> Result<(), Denied> {
        let none = FleetUsage::default();
        owner.map_or(Ok(()), |owner| self.tenants.admit(&owner, none, more))
    }

    pub(super) fn create_nt(&mut self, now: Timestamp, nt: NtType, step: &mut FleetStep) {
        let meta = RecordMeta::new(self.journal.next_serial(), now);
        let record = FleetNtRecord { nt: nt.clone(), meta };
        step.put(nt_key(&nt.id), Versioned::new(record.clone()).bytes());
        self.insert_nt(record);
        self.provide_all(step, |_| OrderKind::Provide {
            nts: vec![Numbered { number: meta.serial, of: nt.clone() }],
            bitstreams: Vec::new(),
            tenants: Vec::new(),
        });
    }

    /// From a request or its record.
    pub(super) fn insert_nt(&mut self, record: FleetNtRecord) {
        let FleetNtRecord { nt, meta } = record;
        if let Some(owner) = nt.id.owner() {
            self.tenants.take(&owner, FleetUsage::of_nt());
        }
        self.registry.nts_digest = None;
        self.registry.nts.insert(nt.id.clone(), meta);
        self.inventory.insert_nt(nt);
    }

    pub(super) fn check_bitstream(&self, of: &Bitstream) -> Result<(), Denied> {
        let name = || FleetName::Bitstream(of.id.clone()).to_string();
        match self.inventory.catalogue().bitstream(&of.id) {
            None => self.check_registered("bitstreams", self.registry.bitstreams.len())?,
            Some(present) => drop(present.with_images_of(of).map_err(|error| match error {
                UnfitImage::Exists => Denied::Exists(name()),
                UnfitImage::Differs { field, .. } => Denied::Invalid(format!("{field}: {error}")),
                UnfitImage::Conflict(error) => {
                    Denied::Conflict { what: name(), why: error.to_string() }
                }
            })?),
        }
        let invalid = |field: &str, rule: String| Err(Denied::Invalid(format!("{field}: {rule}")));
        let (slots, owner) = (of.nts.len(), of.id.owner());
        if !(1..=CHAIN_SLOTS_MAX).contains(&slots) {
            let rule = format!("it has {slots} NTs; 1 to {CHAIN_SLOTS_MAX} are allowed");
            return invalid("nts", rule);
        }
        let is_known = |id: &NtTypeId| {
            let nt = self.inventory.catalogue().nt(id);
            nt.is_some_and(|nt| owner.as_ref().is_none_or(|owner| nt.is_visible_to(owner)))
        };
        if let Some(at) = of.nts.iter().position(|nt| !is_known(nt)) {
            let rule = format!("ntTypes/{} does not exist; register it first", of.nts[at]);
            return invalid(&format!("nts[{at}]"), rule);
        }
        let is_out_of_range =
            |size: &ByteSize| *size == ByteSize::ZERO || *size > BITSTREAM_BYTES_MAX;
        if let Some(size) = of.images.iter().map(|image| image.size).find(is_out_of_range) {
            let rule = format!("{size} is not allowed: 1 byte to {BITSTREAM_BYTES_MAX}");
            return invalid("size_bytes", rule);
        }
        self.admit_owner(owner, FleetUsage::of_bitstream(of))
    }

    /// Registers a checked bitstream, or adds its images to the one of its name: hosts know the number of the whole.
    pub(super) fn create_bitstream(
        &mut self,
        now: Timestamp,
        mut of: Bitstream,
        step: &mut FleetStep,
    ) {
        let mut meta = RecordMeta::new(self.journal.next_serial(), now);
        if let Some(before) = self.registry.bitstreams.remove(&of.id)
            && let Some(present) = self.inventory.remove_bitstream(&of.id)
        {
            of = present.with_images_of(&of).expect("it was checked");
            meta.created = before.created;
            self.registry.uses.count_build(&present, false);
            if let Some(owner) = of.id.owner() {
                self.tenants.give_back(&owner, FleetUsage::of_bitstream(&present));
            }
        }
        let record = FleetBitstreamRecord { bitstream: of.clone(), meta };
        step.put(bitstream_key(&of.id), Versioned::new(record.clone()).bytes());
        self.insert_bitstream(record);
        self.inventory.image_is_new(&of.id, &of.card_model);
        let models = BTreeSet::from([of.card_model.clone()]);
        self.provide_all(step, |host| OrderKind::Provide {
            nts: Vec::new(),
            bitstreams: if host.is_disjoint(&models) {
                Vec::new()
            } else {
                vec![Numbered { number: meta.serial, of: of.clone() }]
            },
            tenants: Vec::new(),
        });
    }

    /// From a request or its record.
    pub(super) fn insert_bitstream(&mut self, record: FleetBitstreamRecord) {
        let FleetBitstreamRecord { bitstream, meta } = record;
        if let Some(owner) = bitstream.id.owner() {
            self.tenants.take(&owner, FleetUsage::of_bitstream(&bitstream));
        }
        self.registry.bitstreams_digests.clear();
        self.registry.bitstreams.insert(bitstream.id.clone(), meta);
        self.registry.uses.count_build(&bitstream, true);
        self.inventory.insert_bitstream(bitstream);
    }

    /// An order to each host, by the models of its cards; an empty one is not sent.
    fn provide_all(
        &mut self,
        step: &mut FleetStep,
        order: impl Fn(&BTreeSet<CardModel>) -> OrderKind,
    ) {
        let orders = self.hosts.iter().map(|(id, host)| (id.clone(), order(host.models())));
        for (host, what) in orders.collect::<Vec<_>>() {
            let is_empty = match &what {
                OrderKind::Provide { nts, bitstreams, tenants } => {
                    nts.is_empty() && bitstreams.is_empty() && tenants.is_empty()
                }
                OrderKind::Withdraw(gone) => *gone == Provisions::default(),
                _ => false,
            };
            if !is_empty {
                self.order(&host, what, step);
            }
        }
    }

    /// Fails where DAGs or bitstreams use an NT type.
    pub(super) fn check_nt_unused(&self, id: &NtTypeId, is_tenant: bool) -> Result<(), Denied> {
        let dags = self.registry.uses.specs.get(id).copied().unwrap_or_default();
        let bitstreams = self.registry.uses.builds.get(id).copied().unwrap_or_default();
        self.in_use(FleetName::Nt(id.clone()), is_tenant, dags, bitstreams)
    }

    /// Fails where DAGs use a bitstream.
    pub(super) fn check_bitstream_unused(
        &self,
        id: &BitstreamId,
        is_tenant: bool,
    ) -> Result<(), Denied> {
        let dags = self.registry.uses.places.get(id).copied().unwrap_or_default();
        self.in_use(FleetName::Bitstream(id.clone()), is_tenant, dags, 0)
    }

    fn in_use(
        &self,
        what: FleetName,
        is_tenant: bool,
        dags: usize,
        bitstreams: usize,
    ) -> Result<(), Denied> {
        if dags + bitstreams == 0 {
            return Ok(());
        }
        // How many are others' is not for a tenant.
        let users = if is_tenant {
            "bitstreams or DAGs".to_owned()
        } else {
            format!("{bitstreams} bitstreams and {dags} DAGs")
        };
        Err(Denied::InUse { what: what.to_string(), users })
    }

    /// An NT type that nothing uses.
    pub(super) fn delete_nt(&mut self, id: &NtTypeId, step: &mut FleetStep) {
        let Some(meta) = self.registry.nts.remove(id) else { return };
        self.registry.nts_digest = None;
        self.inventory.remove_nt(id);
        if let Some(owner) = id.owner() {
            self.tenants.give_back(&owner, FleetUsage::of_nt());
        }
        step.delete(nt_key(id));
        let gone = Provisions { nts: [(id.clone(), meta.serial)].into(), ..Provisions::default() };
        self.provide_all(step, |_| OrderKind::Withdraw(gone.clone()));
    }

    /// A bitstream that nothing uses. Its image stays in the object store until nobody names it: that is the shell's.
    pub(super) fn delete_bitstream(&mut self, id: &BitstreamId, step: &mut FleetStep) {
        let Some(meta) = self.registry.bitstreams.remove(id) else { return };
        self.registry.bitstreams_digests.clear();
        let Some(gone) = self.inventory.remove_bitstream(id) else { return };
        self.registry.uses.count_build(&gone, false);
        if let Some(owner) = id.owner() {
            self.tenants.give_back(&owner, FleetUsage::of_bitstream(&gone));
        }
        step.delete(bitstream_key(id));
        let (bitstreams, none) = ([(id.clone(), meta.serial)].into(), Provisions::default());
        let withdrawn = Provisions { bitstreams, ..Provisions::default() };
        self.provide_all(step, |models| {
            let is_there = models.contains(&gone.card_model);
            OrderKind::Withdraw(if is_there { withdrawn.clone() } else { none.clone() })
        });
    }

    pub(super) fn nt_item(&self, id: &NtTypeId) -> Option<FleetItem> {
        let nt = self.inventory.catalogue().nt(id)?;
        Some(FleetItem::Nt(nt.clone(), self.registry.nt(id)?))
    }

    pub(super) fn bitstream_item(&self, id: &BitstreamId) -> Option<FleetItem> {
        let of = self.inventory.catalogue().bitstream(id)?;
        Some(FleetItem::Bitstream(of.clone(), self.registry.bitstream(id)?))
    }

    /// The digest of what a host is to have beside DAGs.
    pub(super) fn provisions_digest(&mut self, host: &HostId) -> Option<Digest> {
        let state = self.hosts.get(host)?;
        let numbers =
            state.tenants().filter_map(|id| Some((id.as_str(), self.tenants.number(id)?)));
        let tenants = Provisions::digest_of(numbers);
        let registry = &mut self.registry;
        let nts = registry.nts.iter().map(|(id, meta)| (id.as_str(), meta.serial));
        let nts = *registry.nts_digest.get_or_insert_with(|| Provisions::digest_of(nts));
        let bitstreams = match registry.bitstreams_digests.get(state.models()) {
            Some(known) => *known,
            None => {
                let catalogue = self.inventory.catalogue();
                let is_for = |id: &BitstreamId| {
                    catalogue
                        .bitstream(id)
                        .is_some_and(|of| state.models().contains(&of.card_model))
                };
                let of_host = registry.bitstreams.iter().filter(|(id, _)| is_for(id));
                let digest =
                    Provisions::digest_of(of_host.map(|(id, meta)| (id.as_str(), meta.serial)));
                registry.bitstreams_digests.insert(state.models().clone(), digest);
                digest
            }
        };
        Some(Provisions::digest_from(nts, bitstreams, tenants))
    }

    /// All that a host is to have beside DAGs.
    fn provisions(&self, host: &HostId) -> Provisions {
        let Some(state) = self.hosts.get(host) else { return Provisions::default() };
        let catalogue = self.inventory.catalogue();
        let is_for = |id: &BitstreamId| {
            catalogue.bitstream(id).is_some_and(|of| state.models().contains(&of.card_model))
        };
        let bitstreams = self.registry.bitstreams.iter().filter(|(id, _)| is_for(id));
        let tenants = state.tenants().filter_map(|id| Some((id.clone(), self.tenants.number(id)?)));
        Provisions {
            nts: self.registry.nts.iter().map(|(id, of)| (id.clone(), of.serial)).collect(),
            bitstreams: bitstreams.map(|(id, of)| (id.clone(), of.serial)).collect(),
            tenants: tenants.collect(),
        }
    }

    /// Sends a host what it lacks, and has it forget what it is not to have.
    pub(super) fn provide_difference(
        &mut self,
        host: &HostId,
        has: &Provisions,
        step: &mut FleetStep,
    ) {
        fn without<K: Ord + Clone>(all: &BTreeMap<K, u64>, of: &BTreeMap<K, u64>) -> Vec<(K, u64)> {
            let differ = all.iter().filter(|(id, number)| of.get(*id) != Some(*number));
            differ.map(|(id, number)| (id.clone(), *number)).collect()
        }
        let wanted = self.provisions(host);
        let gone = Provisions {
            nts: without(&has.nts, &wanted.nts).into_iter().collect(),
            bitstreams: without(&has.bitstreams, &wanted.bitstreams).into_iter().collect(),
            tenants: without(&has.tenants, &wanted.tenants).into_iter().collect(),
        };
        if gone != Provisions::default() {
            self.order(host, OrderKind::Withdraw(gone), step);
        }
        let catalogue = self.inventory.catalogue();
        let nt = |(id, number)| Some(Numbered { number, of: catalogue.nt(&id)?.clone() });
        let image = |(id, number)| Some(Numbered { number, of: catalogue.bitstream(&id)?.clone() });
        let nts: Vec<_> = without(&wanted.nts, &has.nts).into_iter().filter_map(nt).collect();
        let images = without(&wanted.bitstreams, &has.bitstreams);
        let images: Vec<_> = images.into_iter().filter_map(image).collect();
        let tenants = without(&wanted.tenants, &has.tenants);
        let tenants: Vec<_> =
            tenants.into_iter().filter_map(|(id, _)| self.tenants.on_hosts(&id)).collect();
        for nts in nts.chunks(PROVIDED_AT_ONCE).map(<[_]>::to_vec) {
            self.provide(host, (nts, Vec::new(), Vec::new()), step);
        }
        for tenants in tenants.chunks(PROVIDED_AT_ONCE).map(<[_]>::to_vec) {
            self.provide(host, (Vec::new(), Vec::new(), tenants), step);
        }
        for images in images.chunks(PROVIDED_AT_ONCE).map(<[_]>::to_vec) {
            self.provide(host, (Vec::new(), images, Vec::new()), step);
        }
    }

    fn provide(
        &mut self,
        host: &HostId,
        (nts, bitstreams, tenants): ProvidedItems,
        step: &mut FleetStep,
    ) {
        self.order(host, OrderKind::Provide { nts, bitstreams, tenants }, step);
    }
}
