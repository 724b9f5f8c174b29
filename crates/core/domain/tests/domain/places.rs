//! Mappings and cards against a walk over all their parts.

use std::collections::BTreeSet;

use proptest::prelude::*;
use snic_domain::{
    Area, Bandwidth, BitstreamId, CardId, Dag, DagSpec, Edge, Form, FormPreference, Instance,
    Mapping, Node, NodeId, NtTypeId, PacketSizes, RegionId, Slot, Stage, VirtualChain,
};

fn instance(region: u8, slots: &[u8]) -> Instance {
    Instance {
        region: RegionId(region),
        bitstream: BitstreamId::new("aes").expect("a label"),
        slots: slots.iter().copied().map(Slot).collect(),
        bandwidth: Bandwidth::from_gbps(1),
    }
}

fn chain() -> impl Strategy<Value = VirtualChain> {
    let slots = proptest::collection::btree_set(0u8..8, 1..4);
    let instances = proptest::collection::vec((0u8..32, slots), 1..4);
    instances.prop_map(|instances| VirtualChain {
        nodes: Vec::new(),
        instances: instances
            .into_iter()
            .map(|(region, slots)| instance(region, &slots.into_iter().collect::<Vec<_>>()))
            .collect(),
    })
}

fn mapping() -> impl Strategy<Value = Mapping> {
    let stage = proptest::collection::vec(chain(), 1..5).prop_map(|branches| Stage { branches });
    proptest::collection::vec(stage, 1..5).prop_map(|stages| Mapping {
        card: CardId::new("card0").expect("a label"),
        form: Form::Parallel,
        stages,
        programs: Vec::new(),
    })
}

proptest! {
    #[test]
    fn chains_and_instances_come_stage_by_stage(mapping in mapping()) {
        let (mut chains, mut instances, mut regions) = (0, Vec::new(), BTreeSet::new());
        for stage in &mapping.stages {
            for branch in &stage.branches {
                chains += 1;
                for instance in &branch.instances {
                    instances.push(instance);
                    regions.insert(instance.region);
                }
            }
        }
        prop_assert_eq!(mapping.chains().count(), chains);
        prop_assert_eq!(mapping.instances().collect::<Vec<_>>(), instances);
        for region in (0..=u8::MAX).map(RegionId) {
            prop_assert_eq!(mapping.uses(region), regions.contains(&region));
        }
    }

    /// The card reads the mask from slot 0 on: packets pass the slots of the set bits and skip the rest.
    #[test]
    fn a_mask_has_the_slots_of_the_instance(slots in proptest::collection::btree_set(0u8..8, 0..8)) {
        let slots: Vec<u8> = slots.into_iter().collect();
        let mask = instance(0, &slots).used_mask();
        let read: Vec<u8> = (0..8).filter(|slot| mask >> slot & 1 == 1).collect();
        prop_assert_eq!(read, slots);
    }

    /// Every node after all that lead to it; among those that are ready the first, so that the same DAG
    /// always has the same order.
    #[test]
    fn the_order_of_a_dag_is_the_first_that_respects_its_edges(
        count in 1usize..7,
        picks in proptest::collection::vec((0usize..7, 0usize..7), 0..10),
    ) {
        let id = |n: usize| NodeId::new(&format!("n{n}")).expect("a label");
        let nt = NtTypeId::new("nat").expect("a label");
        let pairs: BTreeSet<(usize, usize)> = picks
            .into_iter()
            .map(|(a, b)| (a % count, b % count))
            .filter(|(a, b)| a < b)
            .chain((1..count).map(|n| (n / 3, n)))
            .collect();
        let spec = DagSpec {
            nodes: (0..count).map(|n| Node::new(id(n), nt.clone())).collect(),
            edges: pairs.iter().map(|(a, b)| Edge { from: id(*a), to: id(*b) }).collect(),
            bandwidth: Bandwidth::from_gbps(1),
            form: FormPreference::Auto,
            packet_sizes: PacketSizes::default(),
            trusted_tenants: Default::default(),
            card_affinity: Default::default(),
            latency_sensitive: false,
            refuse_idle_tasks: false,
            latency_bound: Default::default(),
            notes: Default::default(),
        };
        let Ok(dag) = Dag::new(spec) else { return Ok(()) }; // Too wide a fork.
        let order = dag.topological_order();
        prop_assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), count);
        for (at, node) in order.iter().enumerate() {
            let before = &order[..at];
            let is_ready = |n: &usize| {
                !before.contains(n)
                    && pairs.iter().filter(|(_, to)| to == n).all(|(from, _)| before.contains(from))
            };
            prop_assert_eq!((0..count).find(is_ready), Some(*node));
            let after: BTreeSet<usize> = dag.successors(*node).iter().copied().collect();
            let expected: BTreeSet<usize> =
                pairs.iter().filter(|(from, _)| from == node).map(|(_, to)| *to).collect();
            prop_assert_eq!(after, expected);
            for next in dag.successors(*node) {
                prop_assert!(dag.predecessors(*next).contains(node));
            }
        }
    }

    /// A region is as full as its fullest kind, never less than what is used of it.
    #[test]
    fn a_region_is_as_full_as_its_fullest_kind(all: [u16; 3], used: [u16; 3]) {
        let area = |kinds: [u16; 3]| {
            let [lut, ramb36, dsp] = kinds.map(u32::from);
            Area { lut, ramb36, dsp }
        };
        let permille = area(all).fill_permille(area(used));
        let kinds = all.iter().zip(used).map(|(all, used)| (u64::from(*all), u64::from(used)));
        let least = |permille: u64| {
            kinds.clone().all(|(all, used)| used == 0 || all == 0 || used * 1_000 <= permille * all)
        };
        prop_assert!(least(u64::from(permille)), "{permille}");
        let lacks = kinds.clone().any(|(all, used)| all == 0 && used > 0);
        prop_assert!(!lacks || permille >= 1_000, "a kind that is lacking is full");
        if permille > 0 && !lacks {
            prop_assert!(!least(u64::from(permille) - 1), "{permille} is not the least");
        }
    }
}

#[test]
fn a_slot_beyond_the_mask_is_not_taken_for_another() {
    assert_eq!(instance(0, &[7]).used_mask(), 0b1000_0000);
    assert_eq!(instance(0, &[8]).used_mask(), 0, "no chain has a ninth slot");
    assert_eq!(instance(0, &[]).used_mask(), 0);
}
