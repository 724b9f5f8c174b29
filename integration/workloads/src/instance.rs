//! Small problems for the exact oracle: a card, a catalogue and DAGs from a seed, small enough that
//! a solver proves the optimum.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, CardId, CardModel, CardProfile, Cycles, Dag,
    DagName, Digest, NtType, NtTypeId, RegionId, RegionImage, RegionImages, RegionKind,
    RegionProfile, SaveArea,
};
use snic_planner::{Ledger, PlanCatalogue};

use crate::{Item, POPULAR, Shape, generate};

/// Most DAGs of an instance.
pub const DAGS_MAX: usize = 8;
pub const REGIONS_MAX: usize = 8;
pub const NTS: usize = 12;
pub const BITSTREAMS_MAX: usize = 20;

/// A small problem.
#[derive(Debug)]
pub struct SmallProblem {
    /// An empty card.
    pub ledger: Ledger,
    pub catalogue: PlanCatalogue,
    /// The DAGs to place.
    pub dags: Vec<(DagName, Dag)>,
}

/// The instance of a seed. In every second one, most bitstreams have images for some regions only.
pub fn instance(seed: u64) -> SmallProblem {
    let count = |rng: &mut ChaCha8Rng| rng.random_range(1..=DAGS_MAX);
    if seed.is_multiple_of(2) {
        return with_dags(seed, count, |_, _| ());
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x2545_f491_4f6c_dd1d);
    with_dags(seed, count, |profile, bitstream| {
        if rng.random_ratio(3, 4) {
            bitstream.images = images(&mut rng, profile, &bitstream.id);
        }
    })
}

/// The card and the catalogue of a seed with so many DAGs that they compete for it.
pub fn crowded(seed: u64, dags: usize) -> SmallProblem {
    with_dags(seed, |_| dags, |_, _| ())
}

fn with_dags(
    seed: u64,
    count: impl Fn(&mut ChaCha8Rng) -> usize,
    mut change: impl FnMut(&CardProfile, &mut Bitstream),
) -> SmallProblem {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x9e37_79b9_7f4a_7c15);
    let mut nts = nt_types(&mut rng);
    let mut profile = profile(&mut rng);
    if seed.is_multiple_of(4) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x6c62_272e_07bb_0142);
        profile.memory = memory(&mut rng, &mut nts);
    }
    let mut catalogue = PlanCatalogue::new();
    for mut bitstream in bitstreams(&mut rng, &nts, &profile) {
        change(&profile, &mut bitstream);
        catalogue.insert_bitstream(bitstream);
    }
    let shape = Shape {
        nts: nts.iter().map(|nt| nt.id.clone()).collect(),
        tenants: 3,
        mbps: 500..=20_000,
        ..Shape::default()
    };
    nts.into_iter().for_each(|nt| drop(catalogue.insert_nt(nt)));
    let count = count(&mut rng);
    let dags = generate(seed, count, &shape).into_iter().filter_map(dag).collect();
    let card = CardId::new("card-0").expect("a label");
    SmallProblem { ledger: Ledger::new(card, profile), catalogue, dags }
}

fn dag(item: Item) -> Option<(DagName, Dag)> {
    Dag::new(item.spec).ok().map(|dag| (item.name, dag))
}

/// The papers' eight and four of the same kind, with bandwidths that make some of them scarce.
fn nt_types(rng: &mut ChaCha8Rng) -> Vec<NtType> {
    let more = ["checksum", "compress", "monitor", "police"];
    let lut = [468, 864, 4_533, 535, 2_452, 4_900, 458, 4_266, 500, 4_000, 1_000, 2_000];
    let ids = POPULAR.into_iter().chain(more);
    ids.zip(lut)
        .map(|(id, lut)| {
            NtType::new(
                NtTypeId::new(id).expect("a label"),
                Bandwidth::from_gbps([10, 20, 30, 40, 64, 100][rng.random_range(0..6)]),
                Cycles::new(rng.random_range(10..60)),
                Area { lut, ramb36: 0, dsp: 0 },
            )
        })
        .collect()
}

/// Some NTs keep state on the card, and the card has less for it than all of them might take.
fn memory(rng: &mut ChaCha8Rng, nts: &mut [NtType]) -> ByteSize {
    for nt in nts {
        if rng.random_ratio(1, 3) {
            nt.memory = ByteSize::from_mib(2 * rng.random_range(1..=4));
        }
    }
    ByteSize::from_mib(2 * rng.random_range(2..=16))
}

/// Up to three images, together for at most half of the regions.
fn images(rng: &mut ChaCha8Rng, profile: &CardProfile, id: &BitstreamId) -> RegionImages {
    let mut regions: Vec<RegionId> = profile.regions().map(|(region, _)| region).collect();
    regions.shuffle(rng);
    regions.truncate(rng.random_range(1..=regions.len().div_ceil(2)));
    let size = regions.len().div_ceil(rng.random_range(1..=3));
    let mut images = regions.chunks(size).enumerate().map(|(at, regions)| RegionImage {
        digest: Digest::of(format!("{id} {at}").as_bytes()),
        size: ByteSize::from_mib(3),
        regions: regions.to_vec(),
        signature: None,
    });
    let mut all = RegionImages::from(images.next().expect("one region at least"));
    images.for_each(|image| all.add(image).expect("for other regions"));
    all
}

/// Regions of two sizes, now and then one for tenants' NTs.
fn profile(rng: &mut ChaCha8Rng) -> CardProfile {
    let sizes = [9_000, 18_000];
    let regions = (0..rng.random_range(2..=REGIONS_MAX))
        .map(|_| RegionProfile {
            kind: if rng.random_ratio(1, 6) { RegionKind::UserNt } else { RegionKind::KnownNt },
            area: Area { lut: sizes[rng.random_range(0..2)], ramb36: 0, dsp: 0 },
            bitstream_max: ByteSize::from_mib(4),
        })
        .collect();
    CardProfile {
        model: CardModel::new("oracle").expect("a label"),
        part: "xcvu9p".into(),
        idcode: 0,
        clock_hz: 250_000_000,
        width_bits: 512,
        ingress: Bandwidth::from_gbps(100),
        egress: Bandwidth::from_gbps(100),
        memory: ByteSize::from_mib(10_240),
        memory_bytes_per_second: None,
        packet_store: ByteSize::from_mib(4),
        configuration_bytes_per_second: 800_000_000,
        scheduler_pass: Cycles::new(16),
        scheduler_lookups_per_cycle: None,
        packet_store_beats_per_cycle: None,
        core: Cycles::new(49),
        credits_initial: 8,
        region_pass: Some(snic_domain::RegionPass::SUPERNIC),
        save_area: SaveArea::default(),
        regions,
        processors: Vec::new(),
        links: None,
    }
}

/// Some single NTs and some chains, each for a region it fits; a few belong to tenants, and of
/// those none may be shared.
fn bitstreams(rng: &mut ChaCha8Rng, nts: &[NtType], profile: &CardProfile) -> Vec<Bitstream> {
    let count = rng.random_range(12..=BITSTREAMS_MAX);
    let mut singles: Vec<usize> = (0..nts.len()).collect();
    singles.shuffle(rng);
    (0..count)
        .filter_map(|index| {
            let region = &profile.regions[rng.random_range(0..profile.regions.len())];
            let mut chosen: Vec<&NtType> = if index < 8 {
                vec![&nts[singles[index]]]
            } else {
                let mut order: Vec<&NtType> = nts.iter().collect();
                order.shuffle(rng);
                order.truncate(rng.random_range(2..=7));
                order
            };
            while chosen.iter().map(|nt| nt.area.lut).sum::<u32>() > region.area.lut {
                chosen.pop();
            }
            let owner = if rng.random_ratio(1, 8) { "tenant-0." } else { "" };
            let id = format!("{owner}b{index:02}");
            (!chosen.is_empty()).then(|| Bitstream {
                id: BitstreamId::new(&id).expect("a label"),
                images: RegionImages::for_all(Digest::of(id.as_bytes()), ByteSize::from_mib(3)),
                nts: chosen.iter().map(|nt| nt.id.clone()).collect(),
                region_kind: region.kind,
                card_model: profile.model.clone(),
                shareable: owner.is_empty(),
                signed_by: None,
                modules: Vec::new(),
                notes: Default::default(),
                identity: None,
            })
        })
        .collect()
}
