//! Small worlds and what happens in them, from numbers that proptest chooses and shrinks.

use proptest::prelude::*;
use snic_domain::{
    ByteSize, Cycles, Dag, DagSpec, Digest, Edge, FormPreference, Node, NtTypeId, RegionId,
    RegionImage, RegionKind, RegionProfile, Signer,
};

use super::{World, bitstream, gbps, lut, node_id, nt, nt_id, profile};

/// NTs by number: three of the provider's, one of the provider's that nobody may use, and one of
/// each tenant's, of which the first is shareable.
pub const NTS: [&str; 6] = ["a", "b", "c", "secret", "t0.x", "t1.x"];
pub const TENANTS: [&str; 2] = ["t0", "t1"];

#[derive(Debug, Clone)]
pub struct RandomNt {
    pub gbps: u64,
    pub latency: u64,
    pub lut: u32,
    pub memory_mib: u64,
}

#[derive(Debug, Clone)]
pub struct RandomBitstream {
    /// 0 is the provider, then the tenants.
    pub owner: usize,
    pub nts: Vec<usize>,
    pub user_region: bool,
    pub shareable: bool,
    /// 0 is nobody, 1 the provider, 2 its owner.
    pub signer: usize,
    pub mib: u64,
    pub other_model: bool,
    /// The regions of each image and its size in MiB; none: one image of `mib` for all of its kind.
    pub images: Vec<(Vec<u8>, u64)>,
}

#[derive(Debug, Clone)]
pub struct RandomWorld {
    pub nts: Vec<RandomNt>,
    pub bitstreams: Vec<RandomBitstream>,
    /// Kind, LUTs and MiB of each region.
    pub regions: Vec<(bool, u32, u64)>,
    /// Bitstreams that are loaded at the start, by region.
    pub loaded: Vec<Option<usize>>,
    pub ingress_gbps: u64,
    pub memory_mib: u64,
}

impl RandomWorld {
    pub fn build(&self) -> World {
        let mut profile = profile(0);
        profile.ingress = gbps(self.ingress_gbps);
        profile.memory = ByteSize::from_mib(self.memory_mib);
        profile.regions = self
            .regions
            .iter()
            .map(|(user, area, mib)| RegionProfile {
                kind: if *user { RegionKind::UserNt } else { RegionKind::KnownNt },
                area: lut(*area),
                bitstream_max: ByteSize::from_mib(*mib),
            })
            .collect();
        let mut world = World::new(profile);
        for (id, random) in NTS.iter().zip(&self.nts) {
            let mut nt = nt(id);
            nt.shareable = *id != "secret" && *id != "t1.x";
            nt.bandwidth_max = gbps(random.gbps);
            nt.latency = Cycles::new(random.latency);
            nt.area = lut(random.lut);
            nt.memory = ByteSize::from_mib(random.memory_mib);
            world.catalogue.insert_nt(nt);
        }
        for (i, random) in self.bitstreams.iter().enumerate() {
            world.catalogue.insert_bitstream(random.build(i, &self.regions));
        }
        for (region, loaded) in (0u8..).zip(&self.loaded).take(self.regions.len()) {
            if let Some(i) = loaded.filter(|i| *i < self.bitstreams.len()) {
                let bitstream = self.bitstreams[i].build(i, &self.regions);
                if bitstream.fits_region(RegionId(region)) {
                    world.load(region, bitstream.id.as_str());
                }
            }
        }
        world
    }
}

impl RandomBitstream {
    /// An image names no region that it is too large for: an upload would not be taken with it.
    fn build(&self, i: usize, profiles: &[(bool, u32, u64)]) -> snic_domain::Bitstream {
        let owner = ["", "t0.", "t1."][self.owner];
        let nts: Vec<&str> = self.nts.iter().map(|n| NTS[*n]).collect();
        let mut made = bitstream(&format!("{owner}b{i}"), &nts.join(" "));
        made.region_kind = if self.user_region { RegionKind::UserNt } else { RegionKind::KnownNt };
        made.shareable = self.owner == 0 || self.shareable;
        made.signed_by = match self.signer {
            0 => None,
            1 => Some(Signer::Provider("key".into())),
            _ => Some(Signer::Owner("key".into())),
        };
        made.images.first_mut().size = ByteSize::from_mib(self.mib);
        let images = (0u8..).zip(&self.images).map(|(at, (regions, mib))| {
            let takes =
                |region: &u8| profiles.get(usize::from(*region)).is_none_or(|of| *mib <= of.2);
            RegionImage {
                digest: Digest::of(&[i as u8, at]),
                size: ByteSize::from_mib(*mib),
                regions: regions.iter().copied().filter(takes).map(RegionId).collect(),
                signature: None,
            }
        });
        for (at, image) in images.filter(|image| !image.regions.is_empty()).enumerate() {
            match at {
                0 => made.images = image.into(),
                _ => made.images.add(image).expect("other regions"),
            }
        }
        if self.other_model {
            made.card_model = snic_domain::CardModel::new("other").expect("a test id");
        }
        made
    }
}

fn seldom() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.15)
}

/// One image for all regions, or images for some of the four: each for one region or for several.
fn images() -> impl Strategy<Value = Vec<(Vec<u8>, u64)>> {
    let regions = prop::sample::subsequence(vec![0u8, 1, 2, 3], 1..=4);
    let own = (regions, prop::collection::vec(1u64..5, 4), 1usize..=4).prop_map(
        |(regions, mib, pieces)| {
            let size = regions.len().div_ceil(pieces);
            regions.chunks(size).zip(mib).map(|(of, mib)| (of.to_vec(), mib)).collect()
        },
    );
    prop_oneof![4 => Just(Vec::new()), 1 => own]
}

pub fn worlds() -> impl Strategy<Value = RandomWorld> {
    let nt = (2u64..10, 1u64..60, 1u32..3, prop_oneof![4 => Just(0u64), 1 => 1u64..5])
        .prop_map(|(gbps, latency, lut, memory_mib)| RandomNt { gbps, latency, lut, memory_mib });
    let kind = prop_oneof![12 => 0usize..3, 1 => 3usize..6];
    let bitstream = (
        prop_oneof![3 => Just(0usize), 1 => 1usize..3],
        prop::collection::vec(kind, 1..5),
        seldom(),
        (any::<bool>(), 0usize..3),
        1u64..4,
        seldom(),
        images(),
    );
    let bitstream = bitstream.prop_map(
        |(owner, nts, user_region, (shareable, signer), mib, other_model, images)| {
            RandomBitstream { owner, nts, user_region, shareable, signer, mib, other_model, images }
        },
    );
    let region = (seldom(), 3u32..12, 2u64..5);
    let loaded = prop::option::weighted(0.4, 0usize..8);
    (
        prop::collection::vec(nt, NTS.len()),
        prop::collection::vec(bitstream, 2..8),
        prop::collection::vec(region, 1..5),
        prop::collection::vec(loaded, 4),
        prop_oneof![1 => 3u64..12, 2 => Just(100u64)],
        prop_oneof![1 => 2u64..16, 2 => Just(1_024u64)],
    )
        .prop_map(|(nts, bitstreams, regions, loaded, ingress_gbps, memory_mib)| RandomWorld {
            nts,
            bitstreams,
            regions,
            loaded,
            ingress_gbps,
            memory_mib,
        })
}

#[derive(Debug, Clone)]
pub struct RandomDag {
    pub nts: Vec<usize>,
    /// Pairs of node numbers; only those that go forward count.
    pub edges: Vec<(usize, usize)>,
    pub mbps: u64,
    pub form: FormPreference,
    /// Whether it names all tenants as trusted.
    pub trusts_all: bool,
}

impl RandomDag {
    pub fn build(&self) -> Dag {
        self.build_with(self.mbps)
    }

    pub fn build_with(&self, mbps: u64) -> Dag {
        let nodes: Vec<Node> = self
            .nts
            .iter()
            .enumerate()
            .map(|(i, n)| Node::new(node_id(i), nt_id(NTS[*n])))
            .collect();
        let mut pairs: Vec<(usize, usize)> =
            self.edges.iter().copied().filter(|(a, b)| a < b && *b < nodes.len()).collect();
        // One entry: a node that nothing leads to comes after the one before it.
        for node in 1..nodes.len() {
            if !pairs.iter().any(|(_, to)| *to == node) {
                pairs.push((node - 1, node));
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        let edges =
            pairs.iter().map(|(a, b)| Edge { from: node_id(*a), to: node_id(*b) }).collect();
        let bandwidth = snic_domain::Bandwidth::from_mbps(mbps);
        Dag::new(DagSpec {
            nodes,
            edges,
            bandwidth,
            form: self.form,
            packet_sizes: snic_domain::PacketSizes::default(),
            trusted_tenants: TENANTS
                .into_iter()
                .filter(|_| self.trusts_all)
                .map(super::tenant)
                .collect(),
            card_affinity: Default::default(),
            latency_sensitive: false,
            refuse_idle_tasks: false,
            latency_bound: Default::default(),
            notes: Default::default(),
        })
        .expect("at most 5 nodes")
    }

    pub fn nt_ids(&self) -> Vec<NtTypeId> {
        self.nts.iter().map(|n| nt_id(NTS[*n])).collect()
    }
}

pub fn dags() -> impl Strategy<Value = RandomDag> {
    let form = prop_oneof![
        2 => Just(FormPreference::Auto),
        1 => Just(FormPreference::Sequential),
        1 => Just(FormPreference::Parallel),
    ];
    let kind = prop_oneof![20 => 0usize..3, 1 => 3usize..6];
    (
        prop::collection::vec(kind, 1..5),
        prop::collection::vec((0usize..4, 0usize..5), 0..5),
        prop_oneof![
            4 => 1u64..2_500,
            2 => 2_500u64..12_000,
            1 => (1u64..9).prop_map(|n| n * 1_000)
        ],
        form,
    )
        .prop_map(|(nts, edges, mbps, form)| RandomDag {
            nts,
            edges,
            mbps,
            form,
            trusts_all: false,
        })
}

#[derive(Debug, Clone)]
pub enum Event {
    /// Tenant, number of the DAG within the tenant, and what it wants; an update where it exists.
    Submit(usize, usize, RandomDag),
    Delete(usize, usize),
    Condition(u8, usize),
}

pub fn events(count: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => (0usize..2, 0usize..4, dags(), seldom()).prop_map(|(t, n, dag, trusts_all)| {
            Event::Submit(t, n, RandomDag { trusts_all, ..dag })
        }),
        2 => (0usize..2, 0usize..4).prop_map(|(t, n)| Event::Delete(t, n)),
        1 => (0u8..3, 0usize..4).prop_map(|(region, c)| Event::Condition(region, c)),
    ];
    prop::collection::vec(event, 1..count)
}
