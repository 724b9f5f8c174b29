//! The configurations of a DAG's NTs on cards whose NTs take them by their windows: what goes where with a commit.
//!
//! Every instance of a chain has NTs of its own, so a configuration is written once for each slot that packets of the DAG
//! use. It goes before the commit whose rows lead packets there. What packets no longer use is forgotten after the commit, when
//! the last packet of the old tables has left.

use std::collections::BTreeSet;

use snic_domain::NtNumber;
use snic_domain::limits::CHAIN_SLOTS_MAX;

use crate::configuration::{DagConfiguration, entries};
use crate::image::TableImage;
use crate::rows::{ChainRow, DagRow, InstancePlace, InstanceRow, NONE, RegionRow, StageRow};

/// A slot of a region, and the NT type that the tables say is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WindowSlot {
    pub region: u8,
    pub slot: u8,
    /// The NT type's number.
    pub nt: NtNumber,
}

/// A configuration that packets use, as a row of the DAG table names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigurationInForce {
    /// UID of the DAG.
    pub uid: u32,
    /// Its tag; zero where there is none.
    pub tag: u32,
}

/// A configuration for the NT in a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowWrite {
    pub at: WindowSlot,
    /// The one that packets use until the commit, and that stays until then. All others of the row are forgotten.
    pub keeps: ConfigurationInForce,
    /// That of all NTs of the DAG.
    pub configuration: DagConfiguration,
}

/// An NT that forgets configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowErasure {
    pub at: WindowSlot,
    /// The one that packets use from the commit on. All others of the row are forgotten.
    pub keeps: ConfigurationInForce,
}

/// An NT that did not take the configuration of a DAG: it refused it, or did not answer. It drops the DAG's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnconfiguredNt {
    /// UID of the DAG.
    pub uid: u32,
    pub at: WindowSlot,
}

/// Changes of NTs' configurations that go with a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowChanges {
    /// Before the commit.
    pub writes: Vec<WindowWrite>,
    /// After it.
    pub erasures: Vec<WindowErasure>,
}

/// A DAG's row and the slots that its packets use.
struct Used {
    names: ConfigurationInForce,
    slots: BTreeSet<WindowSlot>,
}

impl WindowChanges {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.erasures.is_empty()
    }

    /// Adds what a row of the DAG table needs when `target` follows `active`; `configuration` is the one that the target's row
    /// names. Time O(instances of the DAG).
    pub fn add(
        &mut self,
        (active, target): (&TableImage, &TableImage),
        row: u16,
        configuration: Option<&DagConfiguration>,
    ) {
        let (before, after) = (Used::of(active, row), Used::of(target, row));
        if let (Some(after), Some(configuration)) = (&after, configuration) {
            self.write(before.as_ref(), after, configuration);
        }
        let Some(before) = before else { return };
        self.erasures.extend(before.slots.iter().filter_map(|&at| {
            let stays = after.as_ref().filter(|after| after.slots.contains(&at));
            let keeps = stays.map_or(before.names.none(), |after| after.names);
            (keeps != before.names).then_some(WindowErasure { at, keeps })
        }));
    }

    /// Adds the configuration that a DAG's row names once more for NTs in some regions and slots, which did not take it; those that
    /// are written anyway are not written twice. Says whether any is asked: its row and its instances may have changed.
    pub fn repeat(
        &mut self,
        (active, target): (&TableImage, &TableImage),
        configuration: &DagConfiguration,
        at: &BTreeSet<(u8, u8)>,
    ) -> bool {
        let row = configuration.uid.row();
        let names = ConfigurationInForce { uid: configuration.uid.raw(), tag: configuration.tag() };
        let same = |image| Used::of(image, row).filter(|used| used.names == names);
        let (Some(_), Some(after)) = (same(active), same(target)) else { return false };
        let entries = entries(configuration.bytes()).unwrap_or_default();
        let mut is_any = false;
        for &slot in after.slots.iter().filter(|slot| at.contains(&(slot.region, slot.slot))) {
            let is_written = |write: &WindowWrite| {
                write.at == slot && write.configuration.uid == configuration.uid
            };
            if entries.iter().any(|entry| entry.number == slot.nt)
                && !self.writes.iter().any(is_written)
            {
                let (keeps, configuration) = (names.none(), configuration.clone());
                self.writes.push(WindowWrite { at: slot, keeps, configuration });
                is_any = true;
            }
        }
        is_any
    }

    fn write(&mut self, before: Option<&Used>, after: &Used, configuration: &DagConfiguration) {
        // The bytes were made from valid entries, so there are none only where there are no bytes.
        let entries = entries(configuration.bytes()).unwrap_or_default();
        let told = |nt| entries.iter().any(|entry| entry.number == nt);
        for &at in after.slots.iter().filter(|at| told(at.nt)) {
            let held = before.filter(|before| before.slots.contains(&at));
            let keeps = held.map_or(after.names.none(), |before| before.names);
            if keeps != after.names {
                let configuration = configuration.clone();
                self.writes.push(WindowWrite { at, keeps, configuration });
            }
        }
    }
}

impl ConfigurationInForce {
    /// No configuration of the same DAG.
    const fn none(self) -> Self {
        Self { uid: self.uid, tag: 0 }
    }
}

impl Used {
    /// Those of a DAG whose row names configurations.
    fn of(image: &TableImage, row: u16) -> Option<Self> {
        let dag: DagRow = image.get(row)?;
        (dag.configuration != 0).then(|| Self {
            names: ConfigurationInForce { uid: dag.uid, tag: dag.configuration },
            slots: slots(image, &dag),
        })
    }
}

/// Slots that packets of a DAG use, by the rows from its own on.
fn slots(image: &TableImage, dag: &DagRow) -> BTreeSet<WindowSlot> {
    let (mut used, mut next) = (BTreeSet::new(), dag.first_stage);
    for _ in 0..dag.stages {
        let Some(stage) = image.get::<StageRow>(next) else { break };
        let chains = stage.chains.into_iter().filter(|&chain| chain != NONE);
        let instances = chains
            .filter_map(|chain| image.get::<ChainRow>(chain))
            .flat_map(|chain| chain.first_instance..chain.first_instance + chain.instances)
            .filter_map(|instance| image.get::<InstanceRow>(instance));
        used.extend(instances.flat_map(|instance| slots_of(image, instance)));
        next = stage.next;
    }
    used
}

fn slots_of(image: &TableImage, instance: InstanceRow) -> impl Iterator<Item = WindowSlot> {
    // NTs of another card are that card's.
    let (region, used_mask) = match instance.place {
        InstancePlace::Region { region, used_mask } => (region, used_mask),
        InstancePlace::Link { .. } => (0, 0),
    };
    let nts = image.get::<RegionRow>(region.into()).map_or([0; CHAIN_SLOTS_MAX], |row| row.nts);
    (0..)
        .zip(nts)
        .filter(move |(slot, _)| used_mask >> slot & 1 == 1)
        .map(move |(slot, nt)| WindowSlot { region, slot, nt: NtNumber(nt) })
}

#[cfg(test)]
mod tests {
    use snic_domain::{Bandwidth, DagSpec, DagUid, NtConfiguration};

    use super::*;
    use crate::rows::Steering;

    const FIREWALL: NtNumber = NtNumber(7);
    const NAT: NtNumber = NtNumber(9);

    fn configuration(uid: DagUid, json: &str) -> DagConfiguration {
        let nts = ["nat", "firewall"].map(|nt| nt.parse().expect("a label"));
        let mut spec = DagSpec::chain(&nts, Bandwidth::from_gbps(1));
        spec.nodes[1].configuration = Some(NtConfiguration::new(json));
        let number = |nt: &snic_domain::NtTypeId| if nt.as_str() == "nat" { NAT } else { FIREWALL };
        DagConfiguration::of(uid, &spec, number).expect("it has one")
    }

    /// A DAG of one stage in these regions, each with NAT in slot 0 and a firewall in slot 1.
    fn image(uid: DagUid, tag: u32, regions: &[u8]) -> TableImage {
        let mut image = TableImage::default();
        let dag = DagRow {
            tenant: 1,
            uid: uid.raw(),
            first_stage: 4,
            stages: 1,
            rate_limiter: 0,
            payload: false,
            configuration: tag,
            guest: None,
        };
        image.set(uid.row(), &dag).expect("a row");
        let stage =
            StageRow { chains: [2, NONE, NONE, NONE], join_mask: 0, next: NONE, last: true };
        image.set(4, &stage).expect("a row");
        let chain = ChainRow {
            first_instance: 10,
            instances: regions.len() as u16,
            steering: Steering::RoundRobin,
        };
        image.set(2, &chain).expect("a row");
        for (row, &region) in (10..).zip(regions) {
            let instance = InstanceRow::in_region(region, 0b11, 1);
            image.set(row, &instance).expect("a row");
            let mut nts = [0; CHAIN_SLOTS_MAX];
            (nts[0], nts[1]) = (NAT.0, FIREWALL.0);
            let row = RegionRow { user_nt: false, bitstream_tag: 1, nts };
            image.set(region.into(), &row).expect("a row");
        }
        image
    }

    fn at(region: u8, slot: u8) -> WindowSlot {
        WindowSlot { region, slot, nt: if slot == 0 { NAT } else { FIREWALL } }
    }

    fn keeps(uid: DagUid, tag: u32) -> ConfigurationInForce {
        ConfigurationInForce { uid: uid.raw(), tag }
    }

    type Kept = Vec<(WindowSlot, ConfigurationInForce)>;

    /// Writes and erasures of row 3.
    fn changes(
        active: &TableImage,
        target: &TableImage,
        configuration: Option<&DagConfiguration>,
    ) -> (Kept, Kept) {
        let mut changes = WindowChanges::default();
        changes.add((active, target), 3, configuration);
        let written = changes.writes.iter().map(|write| (write.at, write.keeps)).collect();
        (written, changes.erasures.iter().map(|one| (one.at, one.keeps)).collect())
    }

    #[test]
    fn each_slot_with_the_configured_nt_gets_it_once() {
        let uid = DagUid::new(3, 1).expect("it fits");
        let configuration = configuration(uid, "{}");
        let tag = configuration.tag();
        let (none, one) = (TableImage::default(), image(uid, tag, &[5]));
        // Only the firewall is told, and only it is written.
        let first = vec![(at(5, 1), keeps(uid, 0))];
        assert_eq!(changes(&none, &one, Some(&configuration)), (first, vec![]));
        assert_eq!(changes(&one, &one, Some(&configuration)), (vec![], vec![]));
        // A second instance: the first one has it.
        let two = image(uid, tag, &[5, 6]);
        let second = vec![(at(6, 1), keeps(uid, 0))];
        assert_eq!(changes(&one, &two, Some(&configuration)), (second, vec![]));
        // Not who was told but who is used no more forgets: with the tables alone that is known after a restart, too.
        let back = vec![(at(6, 0), keeps(uid, 0)), (at(6, 1), keeps(uid, 0))];
        assert_eq!(changes(&two, &one, Some(&configuration)), (vec![], back));
        let end = vec![(at(5, 0), keeps(uid, 0)), (at(5, 1), keeps(uid, 0))];
        assert_eq!(changes(&one, &none, None), (vec![], end));
    }

    #[test]
    fn the_one_in_force_stays_until_the_commit_and_goes_with_it() {
        let uid = DagUid::new(3, 1).expect("it fits");
        let (old, new) = (configuration(uid, "{}"), configuration(uid, r#"{"a":1}"#));
        let one = image(uid, old.tag(), &[5]);
        let (writes, erasures) = changes(&one, &image(uid, new.tag(), &[5]), Some(&new));
        assert_eq!(writes, [(at(5, 1), keeps(uid, old.tag()))]);
        assert!(erasures.contains(&(at(5, 1), keeps(uid, new.tag()))), "{erasures:?}");
        // Another DAG in the same row, whose NTs are in the same slots.
        let other = DagUid::new(3, 2).expect("it fits");
        let theirs = configuration(other, "{}");
        let (writes, erasures) = changes(&one, &image(other, theirs.tag(), &[5]), Some(&theirs));
        assert_eq!(writes, [(at(5, 1), keeps(uid, old.tag()))]);
        assert!(erasures.contains(&(at(5, 1), keeps(other, theirs.tag()))), "{erasures:?}");
    }

    #[test]
    fn a_dag_without_configurations_touches_no_window() {
        let uid = DagUid::new(3, 1).expect("it fits");
        let plain = image(uid, 0, &[5]);
        assert_eq!(changes(&TableImage::default(), &plain, None), (vec![], vec![]));
        assert_eq!(changes(&plain, &TableImage::default(), None), (vec![], vec![]));
    }
}
