//! NT types and bitstreams to place with, and which images hosts have.

use snic_domain::{Bitstream, BitstreamId, CardModel, NtType, NtTypeId, RegionId};

use super::host_images::HostImages;
use super::inventory::{HostUnknown, Inventory};
use super::summary::kind_bit;
use crate::HostId;

impl Inventory {
    /// Registers an NT type.
    pub fn insert_nt(&mut self, nt: NtType) {
        self.catalogue.insert_nt(nt);
    }

    /// Registers a bitstream.
    pub fn insert_bitstream(&mut self, bitstream: Bitstream) {
        let builds = self.builds.entry(bitstream.card_model.clone()).or_default();
        for nt in &bitstream.nts {
            *builds.entry(nt.clone()).or_default() |= kind_bit(bitstream.region_kind);
        }
        self.catalogue.insert_bitstream(bitstream);
    }

    /// Forgets an NT type that no bitstream contains.
    pub fn remove_nt(&mut self, id: &NtTypeId) -> Option<NtType> {
        self.catalogue.remove_nt(id)
    }

    /// Forgets a bitstream that no DAG uses; no region counts as loaded with it any more. Time O(cards + bitstreams).
    pub fn remove_bitstream(&mut self, id: &BitstreamId) -> Option<Bitstream> {
        let removed = self.catalogue.remove_bitstream(id)?;
        let builds = self.builds.entry(removed.card_model.clone()).or_default();
        builds.clear();
        let same = |of: &&Bitstream| of.card_model == removed.card_model;
        for of in self.catalogue.bitstreams().filter(same) {
            for nt in &of.nts {
                *builds.entry(nt.clone()).or_default() |= kind_bit(of.region_kind);
            }
        }
        for slot in self.slots.values().copied().collect::<Vec<_>>() {
            let ledger = &self.entry(slot).ledger;
            let regions = ledger.profile().regions().map(|(region, _)| region);
            let holds = |region: &RegionId| ledger.content(*region).is_some_and(|of| of.id == *id);
            let regions: Vec<RegionId> = regions.filter(holds).collect();
            if !regions.is_empty() {
                let catalogue = std::mem::take(&mut self.catalogue);
                self.change(slot, |entry| {
                    for region in regions {
                        let _ = entry.ledger.set_content(region, None, &catalogue);
                    }
                });
                self.catalogue = catalogue;
            }
        }
        for host in self.hosts.values_mut() {
            if let HostImages::AllBut(missing) = &mut host.images {
                missing.remove(id);
            }
        }
        Some(removed)
    }

    /// A bitstream was registered just now: no host with cards of its model has its image yet.
    pub fn image_is_new(&mut self, id: &BitstreamId, model: &CardModel) {
        for host in self.hosts.values_mut() {
            let has_model = host.spec.cards.values().any(|card| card.profile.model == *model);
            if let HostImages::AllBut(missing) = &mut host.images
                && has_model
            {
                missing.insert(id.clone());
            }
        }
    }

    /// Says which images a host has: nothing is placed on it that would load another one.
    ///
    /// # Errors
    ///
    /// [`HostUnknown`]
    pub fn set_images(&mut self, host: &HostId, images: HostImages) -> Result<(), HostUnknown> {
        let entry = self.hosts.get_mut(host).ok_or_else(|| HostUnknown(host.clone()))?;
        entry.images = images;
        Ok(())
    }

    /// Images on a host, if there is such a host.
    pub fn images(&self, host: &HostId) -> Option<&HostImages> {
        self.hosts.get(host).map(|entry| &entry.images)
    }
}
