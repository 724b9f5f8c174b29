//! Memory and state that a placement needs for its NT types and bitstreams.

use snic_domain::limits::STATE_UNIT;
use snic_domain::{
    BitstreamId, ByteSize, CardProfile, Cycles, Dag, DagSpec, Instance, Mapping, NodeId, RegionId,
    Slot, VirtualChain,
};
use snic_planner::Reservation;
use snic_tables::registers::STATE_HEAD;

use super::Registry;
use crate::store::records::Placement;

impl Registry {
    /// Resources that a placement reserves of its card; `None` where its spec is no DAG.
    pub fn reservation(&self, placement: &Placement, profile: &CardProfile) -> Option<Reservation> {
        let spec = DagSpec { bandwidth: placement.holds(), ..placement.spec.clone() };
        let dag = Dag::new(spec).ok()?;
        Some(Reservation::of(&placement.mapping, &dag, self.catalogue(), profile))
    }

    /// Latency of a packet that waits nowhere in a placement's NTs: the longest branch of each stage.
    pub fn latency(&self, spec: &DagSpec, mapping: &Mapping) -> Cycles {
        let of_node = |id: &NodeId| {
            let node = spec.nodes.iter().find(|node| node.id == *id)?;
            self.nt(&node.nt).map(|nt| nt.latency)
        };
        let of_chain =
            |chain: &VirtualChain| -> Cycles { chain.nodes.iter().filter_map(of_node).sum() };
        let stages = mapping.stages.iter();
        stages.filter_map(|s| s.branches.iter().map(of_chain).max()).sum()
    }

    /// The instances of a mapping that keep state: region and bitstream, each region once.
    pub fn stateful<'a>(&self, mapping: &'a Mapping) -> Vec<(RegionId, &'a BitstreamId)> {
        let instances = mapping.instances();
        let keeps = instances.filter(|i| self.uses_state(i));
        let mut all: Vec<_> = keeps.map(|i| (i.region, &i.bitstream)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether an instance uses an NT that keeps state.
    fn uses_state(&self, instance: &Instance) -> bool {
        let nts = self.bitstream(&instance.bitstream).map(|b| &b.nts);
        let nt = |slot: &Slot| nts.and_then(|nts| self.nt(nts.get(slot.index())?));
        instance.slots.iter().filter_map(nt).any(|nt| nt.state > ByteSize::ZERO)
    }

    /// Bytes of a context of a bitstream, as its region's wrapper counts them; zero where it keeps
    /// no state.
    pub fn state_bytes(&self, bitstream: &BitstreamId) -> u32 {
        let nts = self.bitstream(bitstream).map_or(&[][..], |b| &b.nts);
        let units = nts.iter().filter_map(|nt| self.nt(nt));
        let units = units.map(|nt| nt.state.get().div_ceil(STATE_UNIT.get()));
        u32::try_from(units.sum::<u64>() * STATE_UNIT.get()).unwrap_or(u32::MAX)
    }

    /// Space of a context of a bitstream in the save area.
    pub fn context_length(&self, bitstream: &BitstreamId) -> u32 {
        self.state_bytes(bitstream).saturating_add(STATE_HEAD)
    }
}
