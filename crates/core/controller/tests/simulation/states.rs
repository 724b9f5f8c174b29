//! Invariants of what chains keep: it is never restored to another DAG or into another chain,
//! every packet that was counted is in one context of its DAG, or an event said what is lost, and no
//! place of the save area is kept for nobody, and no region keeps anything for who is gone.

use std::collections::BTreeSet;

use snic_controller::{LogEntry, LogKind, StatePlace};
use snic_domain::{ByteSize, DagName, DagUid, RegionId};
use snic_tables::registers::STATE_HEAD;
use snic_tables::{ChainRow, DagRow, InstanceRow, RegionRow, StageRow, StateOrder, TableImage};

use crate::world::{CATALOGUE, World, card_id};

/// Contexts that were seen.
#[derive(Debug, Default)]
pub struct States {
    /// DAGs of which something is lost, as they were told.
    lost: BTreeSet<DagUid>,
    /// Contexts that were restored, as it was told.
    pub restored: u64,
    /// All DAGs that ever were.
    pub seen: BTreeSet<DagUid>,
    /// The region of which the card was asked to save something, and has not answered.
    saving: Option<RegionId>,
}

impl States {
    /// A decision, and the DAG that it is about.
    pub fn heard(&mut self, entry: &LogEntry, about: Option<DagUid>) {
        match entry.kind {
            LogKind::StateLost => self.lost.extend(about),
            LogKind::StateRestored => self.restored += 1,
            _ => {}
        }
    }

    /// The card has answered, or what it was asked counts no more.
    pub const fn answered(&mut self) {
        self.saving = None;
    }

    /// A load does not overtake what saves its region's state.
    pub fn loads(&self, region: RegionId, log: &str) {
        let saves = self.saving == Some(region);
        assert!(!saves, "region {region} is loaded, and its save has not been answered\n{log}");
    }

    /// Nothing is asked of a context while rows lead its DAG to what keeps it.
    pub fn asked(&mut self, tables: &TableImage, region: RegionId, order: &StateOrder) {
        if matches!(order, StateOrder::Save { .. }) {
            self.saving = Some(region);
        }
        let uid = match order {
            StateOrder::Save { uid, .. }
            | StateOrder::Restore { uid, .. }
            | StateOrder::Clear { uid } => *uid,
            StateOrder::Erase { .. } => return,
        };
        assert!(!leads(tables, uid, region), "{order:?}, and rows lead to region {region}");
    }
}

/// Whether the tables lead a DAG's packets through an NT of a region that keeps state.
fn leads(tables: &TableImage, uid: DagUid, region: RegionId) -> bool {
    let Some(dag) = tables.get::<DagRow>(uid.row()).filter(|dag| dag.uid == uid.raw()) else {
        return false;
    };
    let stages = (dag.first_stage..dag.first_stage + dag.stages)
        .filter_map(|row| tables.get::<StageRow>(row));
    let chains =
        stages.flat_map(|stage| stage.chains).filter_map(|row| tables.get::<ChainRow>(row));
    let mut instances = chains
        .flat_map(|chain| chain.first_instance..chain.first_instance + chain.instances)
        .filter_map(|row| tables.get::<InstanceRow>(row));
    let keeps = |code: &u32| {
        let mut known = CATALOGUE.nts.iter();
        known.any(|nt| nt.id.code().0 == *code && nt.state > ByteSize::ZERO)
    };
    let nts = tables.get::<RegionRow>(region.0.into()).map_or([0; 8], |row| row.nts);
    let mask = (0..8).fold(0, |mask, slot| mask | u8::from(keeps(&nts[slot])) << slot);
    instances.any(|instance| {
        instance.region().expect("on this card") == region.0 && instance.used_mask() & mask != 0
    })
}

/// Slots of a bitstream that keep state: their numbers, and where their state begins.
fn slots(bitstream: &snic_domain::BitstreamId) -> Vec<(usize, usize)> {
    let mut begin = 0;
    let mut slots = Vec::new();
    for (slot, nt) in CATALOGUE.bitstream(bitstream).nts.iter().enumerate() {
        let bytes = CATALOGUE.nt(nt).state.get() as usize;
        if bytes > 0 {
            slots.push((slot, begin));
        }
        begin += bytes;
    }
    slots
}

/// State kept for a DAG, in all its contexts.
fn kept(world: &World, name: &DagName, uid: DagUid) -> u64 {
    let mut packets = 0;
    for state in world.controller.states_of(name) {
        for (slot, begin) in slots(&state.bitstream) {
            packets += match state.place {
                StatePlace::Region(region) => world.card.packets_kept(region, slot, uid),
                StatePlace::Saving(region) => panic!("{name} is being saved from {region}"),
                StatePlace::Saved(offset) => {
                    let at = offset + STATE_HEAD + begin as u32;
                    let bytes = world.card.save_area(at, 8);
                    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
                }
            };
        }
    }
    packets
}

/// When all is quiet: every packet is counted in a context, or it is said that some are lost.
pub fn check_quiet(world: &World) {
    for dag in world.controller.dags(None) {
        let (kept, counted) =
            (kept(world, &dag.name, dag.uid), world.card.packets_counted(dag.uid));
        let lost = world.states.lost.contains(&dag.uid);
        let states = world.controller.states_of(&dag.name);
        assert!(kept <= counted, "{}: {kept} of {counted}; {states:?}\n{}", dag.name, world.log);
        assert!(
            kept == counted || lost,
            "{}: {kept} of {counted} packets are kept, and nobody said so; {states:?}\n{}",
            dag.name,
            world.log
        );
    }
    let here: BTreeSet<DagUid> = world.controller.dags(None).iter().map(|dag| dag.uid).collect();
    for uid in world.states.seen.difference(&here) {
        for (region, slot) in (0..world.profile.regions.len() as u8)
            .flat_map(|region| (0..8).map(move |slot| (RegionId(region), slot)))
        {
            let kept = world.card.packets_kept(region, slot, *uid);
            assert_eq!(kept, 0, "{uid} is gone, and region {region} keeps it\n{}", world.log);
        }
    }
    let figures = world.controller.state_figures(&card_id()).expect("it was seen");
    let saved = world.controller.states_on(&card_id()).into_iter();
    let saved = saved.filter(|state| matches!(state.place, StatePlace::Saved(_))).count();
    assert_eq!(figures.waiting, saved as u64, "places of nobody\n{}", world.log);
}
