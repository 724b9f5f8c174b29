//! A card on the bench: regions loaded and tables programmed through its registers, as a driver
//! does it.

#![allow(dead_code, missing_docs, reason = "each test binary uses a part of it")]

mod crc;

use std::num::NonZeroU32;

use snic_bitstream::build_test;
use snic_card_sim::{PlaneOptions, SimCard, Sizes, SourceId, TrafficSource};
use snic_domain::{
    Area, Bandwidth, ByteSize, CardModel, CardProfile, ChainIdentity, Cycles, DagUid, Digest,
    MemoryTraffic, NtType, NtTypeId, RegionKind, RegionProfile, ReportedChain, SaveArea, Traffic,
};
use snic_ports::card::{Buffers, Registers};
use snic_tables::registers::*;
use snic_tables::{
    ChainRow, CreditReservation, CreditRow, DagRow, InstanceRow, NONE, RateLimiterRow, RegionRow,
    StageRow, Steering, TableImage,
};

/// An NT: cycles of latency, Gbit/s.
pub type Nt = (u64, u64);

/// Packets per second that NTs of a bandwidth take: 2 to 20 million from 150 Gbit/s on, any number below and from 160 on.
pub fn packets_max(gbps: u64) -> Option<NonZeroU32> {
    NonZeroU32::new(if (150..160).contains(&gbps) { (gbps as u32 - 149) * 2_000_000 } else { 0 })
}

/// Traffic with memory of NTs of a bandwidth: of 160 to 169 Gbit/s, 100 bytes for a packet and its bytes.
pub fn memory_traffic(gbps: u64) -> MemoryTraffic {
    match gbps {
        160..170 => MemoryTraffic { bytes_per_packet: 100, bytes_per_packet_byte: 1 },
        _ => MemoryTraffic::default(),
    }
}

/// A card like sim-16, with ports as wide as the data path.
pub fn profile() -> CardProfile {
    let region = RegionProfile {
        kind: RegionKind::KnownNt,
        area: Area { lut: 60_000, ramb36: 108, dsp: 340 },
        bitstream_max: ByteSize::from_mib(4),
    };
    CardProfile {
        model: CardModel::new("sim-16").expect("valid"),
        part: "xcvu9p-flgb2104-2-e".into(),
        idcode: 0x14b3_1093,
        clock_hz: 250_000_000,
        width_bits: 512,
        ingress: Bandwidth::from_gbps(128),
        egress: Bandwidth::from_gbps(128),
        memory: ByteSize::from_mib(10_240),
        memory_bytes_per_second: None,
        packet_store: ByteSize::from_bytes(811_008),
        configuration_bytes_per_second: 800_000_000,
        scheduler_pass: Cycles::new(16),
        scheduler_lookups_per_cycle: None,
        packet_store_beats_per_cycle: None,
        core: Cycles::new(49),
        credits_initial: 8,
        region_pass: Some(snic_domain::RegionPass::SUPERNIC),
        save_area: SaveArea { bytes: ByteSize::from_mib(1), bytes_per_second: 19_200_000_000 },
        regions: vec![region; 16],
        processors: Vec::new(),
        links: None,
    }
}

pub fn uid(row: u16) -> DagUid {
    DagUid::new(row, 1).expect("fits")
}

/// One instance of a virtual chain: region, used mask, weight.
pub type Instance = (u8, u8, u32);

pub struct Rig {
    pub card: SimCard,
    pub image: TableImage,
    pub version: u32,
    /// Steering of chains that are programmed from now on.
    pub steering: Steering,
    /// Credits that packets need to enter regions that are loaded from now on.
    pub reservation: CreditReservation,
    next_stage: u16,
    next_chain: u16,
    next_instance: u16,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(profile(), 1, PlaneOptions::default())
    }

    pub fn without_credits() -> Self {
        Self::with(profile(), 1, PlaneOptions { credits: false, ..PlaneOptions::default() })
    }

    /// The same with other choices for what is programmed from now on.
    pub fn scheduled(mut self, steering: Steering, reservation: CreditReservation) -> Self {
        (self.steering, self.reservation) = (steering, reservation);
        self
    }

    pub fn with(profile: CardProfile, seed: u64, options: PlaneOptions) -> Self {
        Self::on(SimCard::with_options(profile, seed, options).expect("valid profile"))
    }

    pub fn on(card: SimCard) -> Self {
        let image = TableImage::default();
        Self {
            card,
            image,
            version: 0,
            steering: Steering::RoundRobin,
            reservation: CreditReservation::Chain,
            next_stage: 0,
            next_chain: 0,
            next_instance: 0,
        }
    }

    pub fn nt((latency, gbps): Nt) -> NtType {
        NtType {
            // Those of a latency over 1000 keep a table of flows.
            state: ByteSize::from_bytes(if latency > 1_000 { 4_096 } else { 0 }),
            traffic: Traffic::Payload,
            packets_per_second_max: packets_max(gbps),
            memory_traffic: memory_traffic(gbps),
            ..NtType::new(
                NtTypeId::new(&format!("nt-{latency}-{gbps}")).expect("valid"),
                Bandwidth::from_gbps(gbps),
                Cycles::new(latency),
                Area { lut: 1, ramb36: 0, dsp: 0 },
            )
        }
    }

    /// Report of a region with a chain.
    pub fn reported(chain: &[Nt]) -> ReportedChain {
        let nts: Vec<_> = chain.iter().map(|&nt| Self::nt(nt).id).collect();
        ReportedChain::of(&nts, ChainIdentity::of_nts(&nts))
    }

    pub fn bitstream(&self, chain: &[Nt]) -> Vec<u8> {
        self.image(chain, 2_000)
    }

    pub fn image(&self, chain: &[Nt], bytes: u64) -> Vec<u8> {
        let nts: Vec<_> = chain.iter().map(|&nt| Self::nt(nt)).collect();
        let chain: Vec<_> = nts.iter().collect();
        let image = build_test(self.card.profile(), &chain, ByteSize::from_bytes(bytes));
        crc::seal(image.expect("fits"))
    }

    /// Starts a load and leaves it running.
    pub fn start_load(&mut self, number: u8, bytes: &[u8]) -> u64 {
        let card = &mut self.card;
        let buffer = card.stage(bytes).expect("room");
        card.write(region(number, REGION_CONTROL), REGION_DECOUPLE).expect("there");
        card.write_block(region(number, REGION_DIGEST_NEXT), &Digest::of(bytes).words())
            .expect("there");
        for (at, value) in [
            (LOAD_REGION, u32::from(number)),
            (LOAD_BUFFER_LOW, buffer as u32),
            (LOAD_BUFFER_HIGH, (buffer >> 32) as u32),
            (LOAD_BYTES, bytes.len() as u32),
            (LOAD_START, 1),
        ] {
            card.write(at, value).expect("there");
        }
        buffer
    }

    /// Loads a region, couples it, and writes its row.
    pub fn load(&mut self, number: u8, chain: &[Nt]) {
        let bytes = self.bitstream(chain);
        let buffer = self.start_load(number, &bytes);
        self.card.run_for(1_000);
        assert_eq!(self.card.read(LOAD_STATUS), Ok(LOAD_DONE));
        self.card.write(region(number, REGION_CONTROL), 0).expect("there");
        self.card.release(buffer).expect("staged");
        let row = Self::region_row(&bytes, chain);
        let initial = [self.card.profile().credits_initial; 8];
        let credits = CreditRow { initial, reservation: self.reservation };
        self.program(|image| {
            image.set(number.into(), &row).expect("there");
            image.set(number.into(), &credits).expect("there");
        });
    }

    pub fn region_row(bytes: &[u8], chain: &[Nt]) -> RegionRow {
        let code = |slot: usize| chain.get(slot).map_or(0, |&nt| Self::nt(nt).id.code().0);
        RegionRow {
            user_nt: false,
            bitstream_tag: Digest::of(bytes).words()[0],
            nts: std::array::from_fn(code),
        }
    }

    /// Changes rows and commits them, once the commit before is done.
    pub fn program(&mut self, change: impl FnOnce(&mut TableImage)) {
        while self.card.read(COMMIT_STATUS) == Ok(COMMIT_BUSY) {
            self.card.run_for(10);
        }
        let mut target = self.image.clone();
        change(&mut target);
        for (key, words) in self.image.delta_to(&target).rows() {
            let at = shadow_row(key).expect("there");
            self.card.write_block(at, words).expect("there");
        }
        self.image = target;
        self.version += 1;
        self.card.write(COMMIT, self.version).expect("there");
        assert_eq!(self.card.read(TABLE_VERSION), Ok(self.version));
    }

    /// Programs a DAG: stages of branches of instances. Returns the rows of its stages.
    pub fn dag(&mut self, row: u16, stages: &[&[&[Instance]]]) -> Vec<u16> {
        let mut image = self.image.clone();
        let first = self.next_stage;
        let rows: Vec<_> = (first..).take(stages.len()).collect();
        for (stage, branches) in rows.iter().zip(stages) {
            let mut chains = [NONE; 4];
            for (chain, instances) in chains.iter_mut().zip(*branches) {
                *chain = self.chain(&mut image, instances);
            }
            let last = stage + 1 == first + stages.len() as u16;
            let join_mask = (1 << branches.len()) - 1;
            let next = if last { NONE } else { stage + 1 };
            image.set(*stage, &StageRow { chains, join_mask, next, last }).expect("there");
        }
        self.next_stage += stages.len() as u16;
        let columns = DagRow {
            tenant: 1,
            uid: uid(row).raw(),
            first_stage: first,
            stages: stages.len() as u16,
            rate_limiter: NONE,
            payload: true,
            configuration: 0,
            guest: None,
        };
        image.set(row, &columns).expect("there");
        self.program(|target| *target = image);
        rows
    }

    fn chain(&mut self, image: &mut TableImage, instances: &[Instance]) -> u16 {
        let first_instance = self.next_instance;
        for &(region, used_mask, weight_kbps) in instances {
            let row = InstanceRow::in_region(region, used_mask, weight_kbps);
            image.set(self.next_instance, &row).expect("there");
            self.next_instance += 1;
        }
        let instances = instances.len() as u16;
        let row = ChainRow { first_instance, instances, steering: self.steering };
        image.set(self.next_chain, &row).expect("there");
        self.next_chain += 1;
        self.next_chain - 1
    }

    /// Gives a DAG a token bucket.
    pub fn limit(&mut self, row: u16, rate: Bandwidth, burst_bytes: u32) {
        self.program(|image| {
            let dag = image.get::<DagRow>(row).expect("programmed");
            image.set(row, &DagRow { rate_limiter: row, ..dag }).expect("there");
            let rate_kbps = rate.kbps();
            let columns = RateLimiterRow {
                rate_kbps,
                burst_bytes,
                promised_kbps: rate_kbps,
                packet_bytes: 0,
                weight: 1,
            };
            image.set(row, &columns).expect("there");
        });
    }

    pub fn send(&mut self, row: u16, gbps: u64, sizes: Sizes) -> SourceId {
        let source = TrafficSource::of_dag(uid(row), Bandwidth::from_gbps(gbps), sizes);
        self.card.attach(source).expect("valid")
    }

    /// Sends packets one at a time, `gap` cycles apart; none waits for another.
    pub fn send_alone(&mut self, row: u16, packets: u64) {
        let source = TrafficSource::of_dag(uid(row), Bandwidth::from_mbps(100), Sizes::Fixed(64));
        self.card.attach(source.at_most(packets)).expect("valid");
    }

    /// Runs until no packet is on the card, and checks that all is as it should be at rest.
    pub fn drain(&mut self) {
        for _ in 0..1_000 {
            self.card.run_for(20_000);
            self.check();
            if self.card.packets_in_flight() == 0 {
                // Slow NTs may still hold a credit.
                self.card.run_for(100_000);
                return self.check();
            }
        }
        panic!("{} packets never left", self.card.packets_in_flight());
    }

    pub fn check(&self) {
        self.card.check().expect("nothing is lost");
    }

    /// Latencies in cycles of a card that has no other packet.
    pub fn latency_alone(&mut self, row: u16) -> u64 {
        self.card.take_measurements();
        self.send_alone(row, 3);
        self.card.run_for(10_000);
        let measured = self.card.take_measurements();
        let dag = measured.dag(row).expect("packets named it");
        assert_eq!(dag.latency.count, 3, "{measured:?}");
        assert_eq!(dag.latency.min, dag.latency.max);
        dag.latency.min
    }
}
