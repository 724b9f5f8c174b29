//! Each resource that admission counts, filled by itself on the card model: what is admitted up to its limit is
//! served, the next DAG is refused with the resource named, and if it is let in all the same, promises break.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use snic_card_sim::{MemoryAccess, PlaneOptions, Sizes, TrafficSource};
use snic_controller::{ControllerSettings, DagView};
use snic_domain::limits::PAGE_SIZE;
use snic_domain::{
    Bandwidth, ByteSize, CardProfile, DagSpec, Edge, Form, FormPreference, MemoryTraffic, NtType,
    PacketSizes, RegionPass, Resource,
};
use snic_repro::{NtSequence, Parameters, Setup, Testbed, nt};

use super::{STEP, Seen, chain_of};

const WARM_UP: Duration = Duration::from_millis(2);
const COUNTS: Duration = Duration::from_millis(10);

/// DAGs that fill one resource of a card and hardly any other.
struct Case {
    resource: Resource,
    /// Changes of the shipped profile.
    card: fn(&mut CardProfile),
    regions: usize,
    /// Name, latency in cycles and Gbit/s.
    nts: &'static [(&'static str, u64, u64)],
    chains: &'static [NtSequence<'static>],
    /// Every tenant's DAG.
    spec: fn() -> DagSpec,
    /// Number of DAGs that fit.
    fits: usize,
    /// Number of others, each promised 1 Gbit/s of NT `x`, that send nine times as much.
    greedy: usize,
    /// Number of further DAGs that break promises.
    more: usize,
    /// On-board memory of each NT, of which every packet reads and writes all pages.
    memory: ByteSize,
    /// Further limits of NTs.
    limits: fn(&mut NtType),
}

fn of(nts: &[&str], gbps: u64, bytes: u32) -> DagSpec {
    DagSpec { packet_sizes: PacketSizes::only(bytes), ..chain_of(nts, gbps) }
}

/// A node and two branches behind it, side by side.
fn fork() -> DagSpec {
    let mut spec = of(&["a", "b", "c"], 6, 64);
    let id = |i: usize| spec.nodes[i].id.clone();
    spec.edges = [1, 2].map(|to| Edge { from: id(0), to: id(to) }).to_vec();
    DagSpec { form: FormPreference::Parallel, ..spec }
}

/// A million packets a second, 24 beats each, in two passes and at the egress: 72 of 240 million beats that may be promised of 250.
fn store_reads() -> Case {
    Case {
        card: |card| card.packet_store_beats_per_cycle = NonZeroU32::new(1),
        regions: 8,
        chains: &[&["b", "a"]],
        ..Case::new(
            Resource::StoreReads,
            &[("a", 10, 100), ("b", 10, 100)],
            || of(&["a", "b"], 12, 1_500),
            3,
        )
    }
}

fn cases() -> [Case; 12] {
    [
        // 96 of 100 Gbit/s.
        Case {
            regions: 4,
            ..Case::new(Resource::IngressBandwidth, &[("a", 10, 40)], || of(&["a"], 32, 1_500), 3)
        },
        Case {
            card: |card| card.egress = Bandwidth::from_gbps(50),
            regions: 4,
            ..Case::new(Resource::EgressBandwidth, &[("a", 10, 20)], || of(&["a"], 16, 1_500), 3)
        },
        Case::new(Resource::NtBandwidth, &[("a", 10, 30)], || of(&["a"], 10, 1_500), 3),
        // 9.8 million packets a second each, of 30 million.
        Case {
            limits: |nt| nt.packets_per_second_max = NonZeroU32::new(30_000_000),
            ..Case::new(Resource::NtPackets, &[("a", 10, 100)], || of(&["a"], 5, 64), 3)
        },
        // 128 bytes for each of 9.8 million packets a second: 1.25 of 3.84 GB/s that may be promised of 4.
        Case {
            card: |card| card.memory_bytes_per_second = NonZeroU64::new(4_000_000_000),
            limits: |nt| {
                nt.memory_traffic =
                    MemoryTraffic { bytes_per_packet: 64, bytes_per_packet_byte: 1 };
            },
            ..Case::new(Resource::MemoryBandwidth, &[("a", 10, 100)], || of(&["a"], 5, 64), 3)
        },
        // 27.3 million packets a second in two passes: 54.7 of 240 million look-ups that may be promised of 250.
        Case {
            regions: 8,
            chains: &[&["b", "a"]],
            ..Case::new(
                Resource::SchedulerLookups,
                &[("a", 10, 100), ("b", 10, 100)],
                || of(&["a", "b"], 14, 64),
                4,
            )
        },
        store_reads(),
        // Six pages of 2 MiB, two for each tenant.
        Case {
            card: |card| card.memory = ByteSize::from_mib(12),
            memory: ByteSize::from_mib(4),
            ..Case::new(Resource::Memory, &[("a", 10, 100)], || of(&["a"], 1, 1_500), 3)
        },
        // 31.25 million packets a second, 2.5 cycles each: 78.1 of 240 million cycles that may be promised of 250.
        Case::new(Resource::RegionPort, &[("a", 10, 100)], || of(&["a"], 16, 64), 3),
        // 9.8 million packets a second, 841 cycles each: 33 of 101.6 credits that may be promised of 127.
        Case {
            more: 2,
            ..Case::new(Resource::Credits, &[("a", 835, 100)], || of(&["a"], 5, 64), 3)
        },
        // 4.9 million packets a second, 61 µs each, of 4 cells: 1,188 of 2,376 cells.
        Case {
            regions: 16,
            chains: &[&["a"], &["b"], &["c"], &["x"]],
            greedy: 8,
            more: 3,
            ..Case::new(
                Resource::PacketStore,
                &[("a", 5_030, 15), ("b", 5_030, 15), ("c", 5_030, 15), ("x", 10, 10)],
                || of(&["a", "b", "c"], 10, 256),
                2,
            )
        },
        // 11.7 million packets a second, 1,450 cycles each: 68 of 204.8 entries that may be promised of 256.
        Case {
            regions: 12,
            chains: &[&["a"], &["b"], &["c"]],
            ..Case::new(
                Resource::SyncEntries,
                &[("a", 10, 100), ("b", 1_434, 10), ("c", 1_434, 10)],
                fork,
                3,
            )
        },
    ]
}

impl Case {
    /// One NT in one region of the shipped card; one DAG more breaks promises.
    fn new(
        resource: Resource,
        nts: &'static [(&'static str, u64, u64)],
        spec: fn() -> DagSpec,
        fits: usize,
    ) -> Self {
        let (card, chains): (fn(&mut CardProfile), &[NtSequence<'_>]) = (|_| {}, &[&["a"]]);
        let (regions, greedy, more, memory) = (1, 0, 1, ByteSize::ZERO);
        let limits = |_: &mut NtType| {};
        Self { resource, card, regions, nts, chains, spec, fits, greedy, more, memory, limits }
    }

    fn card(&self) -> CardProfile {
        let parameters = Parameters::load().expect("our own files");
        let mut card = parameters.card;
        card.region_pass = Some(RegionPass::SUPERNIC);
        card.regions.truncate(self.regions);
        (self.card)(&mut card);
        card
    }

    fn setup(&self) -> Setup<'static> {
        let nts = self.nts.iter().map(|(name, latency, gbps)| {
            let mut nt = nt(name, *latency, Bandwidth::from_gbps(*gbps)).expect("a label");
            nt.memory = self.memory;
            (self.limits)(&mut nt);
            nt
        });
        let (nts, chains, card) = (nts.collect(), self.chains.to_vec(), self.card());
        Setup { options: PlaneOptions::of(&card), card, nts, chains }
    }

    /// The control plane, and a card of the given profile.
    fn testbed(&self) -> Testbed {
        Testbed::new(&self.setup()).expect("a bench")
    }

    /// A control plane that counts nothing but what NTs serve, and gives all credits that there are. Where that is the
    /// resource, it believes that NTs serve more than they do.
    fn careless(&self) -> Testbed {
        let most = Bandwidth::from_gbps(1_000);
        let credits_initial = RegionPass::SUPERNIC.credits_max;
        let told = CardProfile {
            region_pass: None,
            credits_initial,
            ingress: most,
            egress: most,
            memory: ByteSize::from_mib(1_024),
            memory_bytes_per_second: None,
            scheduler_lookups_per_cycle: None,
            packet_store_beats_per_cycle: None,
            ..self.card()
        };
        let setup = self.setup();
        let mut nts = setup.nts.clone();
        nts.iter_mut().for_each(|nt| nt.packets_per_second_max = None);
        if self.resource == Resource::NtBandwidth {
            nts.iter_mut().for_each(|nt| nt.bandwidth_max = most);
        }
        Testbed::with_profile(&setup, told, &nts).expect("a bench")
    }

    /// Lets this many tenants in; each sends what it is promised: every second one evenly, the others nine
    /// tenths of it at random times.
    fn run(&self, mut testbed: Testbed, tenants: usize) -> Vec<Seen> {
        testbed.policies(ControllerSettings::default()).expect("policies");
        let pages = self.memory.get() / PAGE_SIZE.get();
        if pages > 0 {
            for nt in self.setup().nts {
                let access = MemoryAccess { pages: pages as u16, writes: true };
                testbed.card.set_memory_access(nt.id.code().0, access);
            }
        }
        for number in 0..self.greedy {
            let name = format!("greedy{number}");
            testbed.tenant(&name, 1).expect("a tenant");
            let dag = testbed.dag(&name, "web", of(&["x"], 1, 1_500)).expect("it fits");
            let nine = Bandwidth::from_gbps(9);
            testbed
                .send(TrafficSource::of_dag(dag.uid, nine, Sizes::Fixed(1_500)))
                .expect("a source");
        }
        let dags: Vec<(DagView, Bandwidth)> = (0..tenants)
            .map(|number| {
                let (name, spec) = (format!("t{number}"), (self.spec)());
                let sizes = spec.packet_sizes.largest();
                let promised = spec.bandwidth;
                testbed.tenant(&name, 1).expect("a tenant");
                let dag = testbed.dag(&name, "web", spec).expect("it fits");
                let is_even = number % 2 == 0;
                let percent = if is_even { 100 } else { 90 };
                let rate = Bandwidth::from_bps(promised.get() / 100 * percent);
                let source = TrafficSource::of_dag(dag.uid, rate, Sizes::Fixed(sizes));
                let source = if is_even { source } else { source.poisson() };
                testbed.send(source).expect("a source");
                (dag, rate)
            })
            .collect();
        testbed.live(WARM_UP, STEP).expect("time passes");
        testbed.card.take_measurements();
        testbed.live(COUNTS, STEP).expect("time passes");
        testbed.card.check().expect("nothing is lost");
        let measured = testbed.card.take_measurements();
        let seen = |(dag, rate): &(DagView, Bandwidth)| {
            Seen::of(*rate, measured.dag(dag.uid.row()).expect("its packets went through"))
        };
        dags.iter().map(seen).collect()
    }

    fn is_kept(&self, seen: &Seen) -> bool {
        seen.is_kept(&(self.spec)().packet_sizes, COUNTS)
    }

    /// Fate of the DAG after the last that fits.
    fn one_more(&self) -> Result<DagView, String> {
        let mut testbed = self.testbed();
        let mut dag = |number: usize| {
            let name = format!("t{number}");
            testbed.tenant(&name, 1).expect("a tenant");
            testbed.dag(&name, "web", (self.spec)()).map_err(|refused| refused.to_string())
        };
        for number in 0..self.fits {
            dag(number).expect("it fits");
        }
        dag(self.fits)
    }
}

#[test]
#[ignore = "ci: half a minute"]
fn each_resource_is_served_to_its_limit_and_not_beyond() {
    for case in cases() {
        let (resource, answer) = (case.resource, case.one_more());
        println!("{resource}: {answer:?}");
        match answer {
            Ok(next) => {
                // Branches one after the other wait for nobody.
                let form = next.mapping.map(|mapping| mapping.form);
                let is_spared = (resource, form) == (Resource::SyncEntries, Some(Form::Sequential));
                assert!(is_spared, "{resource}: it is admitted as {form:?}");
            }
            Err(refusal) => {
                let named = refusal.contains(&format!("placement: {resource}: "));
                assert!(named, "{resource}: {refusal}");
            }
        }
        let seen = case.run(case.testbed(), case.fits);
        println!("{resource}, {} DAGs: {seen:?}", case.fits);
        assert!(seen.iter().all(|seen| case.is_kept(seen)), "{resource}: {seen:?}");
        let over = case.fits + case.more;
        let seen = case.run(case.careless(), over);
        println!("{resource}, {over} DAGs: {seen:?}");
        assert!(!seen.iter().all(|seen| case.is_kept(seen)), "{resource}: {seen:?}");
    }
}
