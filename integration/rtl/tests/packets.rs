//! Packets through the shell, beside the card model with the same tables and the same packets in the same cycles.
//!
//! The shell goes first; the model is given each packet in the cycle in which the shell's port took it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_bitstream::catalogue;
use snic_card_sim::{FrameAtNt, FrameId, Frames, Header, MadeFrame, NtOutcome, Sighting, SimCard};
use snic_domain::{CardModel, DagUid, Timestamp};
use snic_integration_rtl::{ReceivedPacket, RtlCard, SentPacket};
use snic_ports::card::{Buffers, Registers};
use snic_tables::registers::*;
use snic_tables::{
    ChainRow, DagRow, DropCause, GuardRow, InstanceRow, NONE, RegionRow, RowCodec, RowKey,
    StageRow, Steering, Table,
};

use crate::conformance::card;
use crate::images::{Image, Images};

/// Nanoseconds of a cycle.
const CYCLE_NANOS: u64 = 4;
/// Cycles in which everything that is under way ends, where nothing hangs.
const REST_CYCLES: u64 = 3_000;

/// Ends of the model's frames.
#[derive(Debug, Default)]
struct Ends {
    out: Vec<(u32, u64)>,
    gone: Vec<(u32, DropCause)>,
}

impl Frames for Ends {
    fn pass(&mut self, passage: &FrameAtNt) -> NtOutcome {
        NtOutcome::On { bytes: passage.bytes }
    }

    fn made(&mut self) -> Option<MadeFrame> {
        None
    }

    fn saw(&mut self, _: &Sighting) {}

    fn out(&mut self, frame: FrameId, _: bool, now: Timestamp) {
        self.out.push((frame.0, now.as_nanos() / CYCLE_NANOS));
    }

    fn gone(&mut self, frame: FrameId, cause: DropCause) {
        self.gone.push((frame.0, cause));
    }

    fn committed(
        &mut self,
        _: Timestamp,
        _: &[(u16, Option<DagRow>)],
        _: &BTreeMap<(u32, u32), Arc<[u8]>>,
    ) {
    }

    fn guarded(&mut self, _: &[(u16, Option<GuardRow>)]) {}

    fn power_lost(&mut self) {}
}

/// Where the packets of a DAG go: a region and the slots that they use, stage by stage.
type Way = Vec<(u8, u8)>;

/// Both cards with the same chains in their regions.
pub(crate) struct Pair {
    pub(crate) rng: ChaCha8Rng,
    pub(crate) shell: RtlCard,
    pub(crate) model: SimCard,
    /// The model's cycle less the shell's.
    ahead: u64,
    version: u32,
    next_frame: u32,
    /// Whether the host reads rows while packets come.
    reads_rows: bool,
}

pub(crate) fn uid(row: u16, incarnation: u32) -> u32 {
    incarnation << 10 | u32::from(row)
}

fn digest(region: u8) -> u32 {
    0xd1_0000 + u32::from(region)
}

impl Pair {
    /// Regions 0 to 3 are loaded: with two NTs, with one each.
    pub(crate) fn new(seed: u32) -> Option<Self> {
        let shell = card(seed)?;
        let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
        let name = CardModel::new("sim-16").expect("a label");
        let profile = catalogue.card(&name).expect("the catalogue has it").clone();
        let mut model = SimCard::new(profile, u64::from(seed)).expect("a valid profile");
        model.set_frames(Box::new(Ends::default()));
        let rng = ChaCha8Rng::seed_from_u64(seed.into());
        let (ahead, version, next_frame, reads_rows) = (0, 0, 1, false);
        let mut pair = Self { rng, shell, model, ahead, version, next_frame, reads_rows };
        let images = Images::new();
        for (region, nts) in [&[0, 1][..], &[2], &[3], &[1, 0, 2]].into_iter().enumerate() {
            pair.load(region as u8, &images.build(nts, 4_000 + region as u64));
        }
        Some(pair)
    }

    fn load(&mut self, number: u8, image: &Image) {
        let buffers = [
            self.shell.stage(&image.bytes).expect("there is room"),
            self.model.stage(&image.bytes).expect("there is room"),
        ];
        self.both(region(number, REGION_CONTROL), REGION_DECOUPLE);
        let cards: [&mut dyn Registers; 2] = [&mut self.shell, &mut self.model];
        for (card, buffer) in cards.into_iter().zip(buffers) {
            let digest = region(number, REGION_DIGEST_NEXT);
            card.write(digest, self::digest(number)).expect("there");
            card.write(LOAD_REGION, number.into()).expect("there");
            card.write(LOAD_BUFFER_LOW, buffer as u32).expect("there");
            card.write(LOAD_BUFFER_HIGH, (buffer >> 32) as u32).expect("there");
            card.write(LOAD_BYTES, image.bytes.len() as u32).expect("there");
            card.write(LOAD_START, 1).expect("there");
        }
        self.model.run_for(50_000);
        while self.shell.read(LOAD_STATUS) == Ok(LOAD_BUSY) {}
        self.same(LOAD_STATUS);
        self.both(region(number, REGION_CONTROL), 0);
    }

    pub(crate) fn both(&mut self, at: u32, value: u32) {
        self.shell.write(at, value).expect("there");
        self.model.write(at, value).expect("there");
    }

    fn same(&mut self, at: u32) {
        let values = [self.shell.read(at), self.model.read(at)];
        assert_eq!(values[0], values[1], "{at:#x}: shell, model");
    }

    pub(crate) fn cycle(&mut self) -> u64 {
        self.shell.process().step(0).expect("it is there").0
    }

    pub(crate) fn step(&mut self, cycles: u64) {
        self.shell.process().step(cycles).expect("it is there");
    }

    pub(crate) fn row<R: RowCodec>(&mut self, row: u16, columns: &R) {
        let mut words = vec![0; R::TABLE.row_words()];
        columns.encode(&mut words);
        let at = shadow_row(RowKey { table: R::TABLE, row }).expect("the table has the row");
        for (place, word) in (at..).step_by(4).zip(words) {
            self.both(place, word);
        }
    }

    /// A DAG in this row of each table: stages, chains and instances at four times its number.
    pub(crate) fn dag(&mut self, row: u16, incarnation: u32, way: &Way, payload: bool) {
        let first = 4 * row;
        self.row(
            row,
            &DagRow {
                tenant: row,
                uid: uid(row, incarnation),
                first_stage: first,
                stages: way.len() as u16,
                rate_limiter: NONE,
                payload,
                configuration: 0,
                guest: None,
            },
        );
        for (place, (region, used)) in (first..).zip(way) {
            let last = usize::from(place - first) + 1 == way.len();
            let next = if last { NONE } else { place + 1 };
            let chains = [place, NONE, NONE, NONE];
            self.row(place, &StageRow { chains, join_mask: 1, next, last });
            let steering = Steering::RoundRobin;
            self.row(place, &ChainRow { first_instance: place, instances: 1, steering });
            self.row(place, &InstanceRow::in_region(*region, *used, 1_000));
        }
    }

    pub(crate) fn region_rows(&mut self) {
        for number in 0..4 {
            let row = RegionRow { user_nt: false, bitstream_tag: digest(number), nts: [0; 8] };
            self.row(number.into(), &row);
        }
    }

    /// The shell's commit, and the model's at the same time.
    pub(crate) fn commit(&mut self) {
        self.version += 1;
        self.shell.write(COMMIT, self.version).expect("there");
        self.catch_up();
        self.model.write(COMMIT, self.version).expect("there");
    }

    /// Both at rest, and their clocks side by side from here on.
    pub(crate) fn rest(&mut self) {
        self.step(REST_CYCLES);
        self.shell.rest().expect("no commit is under way for ever");
        self.model.run_for(100_000);
        assert_eq!(self.model.packets_in_flight(), 0);
        self.side_by_side();
    }

    fn side_by_side(&mut self) {
        let now = self.cycle();
        self.ahead = self.model.now_cycles() - now;
    }

    fn catch_up(&mut self) {
        let now = self.cycle() + self.ahead;
        self.model.run_for(now.saturating_sub(self.model.now_cycles()));
    }

    /// A packet with a number that is no other's, and bytes that are drawn.
    pub(crate) fn packet(&mut self, uid: Option<u32>, bytes: usize, cycle: u64) -> SentPacket {
        let mut content = vec![0; bytes];
        self.rng.fill(&mut content[..]);
        content[..4].copy_from_slice(&self.next_frame.to_le_bytes());
        self.next_frame += 1;
        SentPacket { cycle, uid, bytes: content }
    }

    /// Sends packets to the shell, until all are in; then the same to the model.
    pub(crate) fn send(&mut self, packets: &[SentPacket]) -> Vec<u64> {
        self.shell.process().send_packets(packets).expect("it is there");
        let mut arrived = Vec::new();
        loop {
            let (left, cycles) = self.shell.process().arrived_packets().expect("it is there");
            arrived.extend(cycles);
            if left == 0 {
                break;
            }
            // An access of the host may hold a look-up up for a cycle.
            if self.reads_rows {
                self.read_rows();
            } else {
                self.step(20);
            }
        }
        assert_eq!(arrived.len(), packets.len());
        for (packet, cycle) in packets.iter().zip(&arrived) {
            let wait = (cycle + self.ahead).checked_sub(self.model.now_cycles());
            self.model.run_for(wait.expect("the model is not ahead"));
            let header = Header { dag: packet.uid.map(DagUid::from_raw), ..Header::default() };
            self.model.inject(FrameId(number(&packet.bytes)), &header, packet.bytes.len() as u32);
        }
        arrived
    }

    /// Rows that packets follow, read by the host at the same time: by one access each, and in bulk.
    fn read_rows(&mut self) {
        let tables = [Table::Dag, Table::Stage, Table::Chain, Table::Instance];
        let table = *tables.choose(&mut self.rng).expect("four");
        let row = self.rng.random_range(0..36);
        let at = active_row(RowKey { table, row }).expect("the table has the row");
        let mut words = [[0; 16]; 2];
        if self.rng.random() {
            self.shell.read_block(at, &mut words[0]).expect("there");
        } else {
            words[0][0] = self.shell.read(at).expect("there");
            words[0][1] = self.shell.read(at + 4).expect("there");
        }
        self.model.read_block(at, &mut words[1]).expect("there");
        let count = words[0].iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        assert_eq!(words[0][..count], words[1][..count], "{at:#x}");
    }

    pub(crate) fn received(&mut self) -> Vec<ReceivedPacket> {
        self.shell.process().received_packets().expect("it is there")
    }

    fn ends(&mut self) -> Ends {
        std::mem::take(self.model.frames().expect("it has them"))
    }

    /// Counters of the card, and of the DAGs in the first rows.
    fn same_counters(&mut self) {
        let causes = (0..DropCause::ALL.len() as u32).map(|cause| DROPS + 8 * cause);
        let dags = (0..16).flat_map(|row| (0..4).map(move |word| DAG_LOAD + 32 * row + 8 * word));
        let regions = (0..5).map(|number| region(number, REGION_IN_FLIGHT));
        for at in [PACKETS_IN, PACKETS_OUT].into_iter().chain(causes).chain(dags).chain(regions) {
            self.same(at);
        }
    }

    pub(crate) fn counter(&mut self, at: u32) -> u64 {
        let words = [at, at + 4].map(|at| u64::from(self.shell.read(at).expect("there")));
        words[0] | words[1] << 32
    }
}

pub(crate) fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Alone on the card, a packet takes as many cycles as in the model, up to so many bytes: the look-up begins with the last beat, and a
/// packet that its NTs read whole is written back whole before it goes out.
#[test]
fn a_packet_alone_takes_the_cycles_of_the_model() {
    const EQUAL_BYTES: [usize; 2] = [832, 192];
    let Some(mut pair) = Pair::new(41) else { return };
    pair.region_rows();
    pair.dag(1, 1, &vec![(0, 0b11)], false);
    pair.dag(2, 1, &vec![(3, 0b101)], true);
    pair.dag(3, 1, &vec![(3, 0b101), (2, 0b1)], false);
    pair.commit();
    pair.rest();
    let of = |row: u16, sizes: &[usize]| sizes.iter().map(|size| (row, *size)).collect::<Vec<_>>();
    let all = [
        of(1, &[60, 64, 65, 128, 511, 512, 831, 832, 833, 1_280, 1_518, 2_048]),
        of(2, &[64, 128, 192, 193, 256, 1_518]),
        of(3, &[64, 300, 832, 1_518]),
    ];
    let mut late = Vec::new();
    for (row, bytes) in all.concat() {
        let cycle = pair.cycle() + 10;
        let packet = pair.packet(Some(uid(row, 1)), bytes, cycle);
        pair.send(std::slice::from_ref(&packet));
        pair.step(800);
        pair.model.run_for(800);
        let (out, ends) = (pair.received(), pair.ends());
        assert_eq!((out.len(), ends.out.len()), (1, 1), "{bytes} bytes");
        assert_eq!(out[0].bytes, packet.bytes);
        let took = [out[0].cycle - cycle, ends.out[0].1 - pair.ahead - cycle];
        late.push((row, bytes, took[0] - took[1]));
        let is_equal = match row {
            1 | 2 => bytes <= EQUAL_BYTES[usize::from(row) - 1],
            _ => false,
        };
        assert!(!is_equal || took[0] == took[1], "{bytes} bytes of DAG {row}: {took:?}");
        assert!((took[1]..took[1] + 40).contains(&took[0]), "{bytes} bytes of {row}: {took:?}");
    }
    println!("DAG, bytes, cycles later than the model: {late:?}");
    pair.rest();
    pair.same_counters();
}

/// A way of any of the kinds that there are, mostly one that leads through.
fn draw_way(rng: &mut ChaCha8Rng) -> Way {
    let good = [(0, 0b01), (0, 0b10), (0, 0b11), (1, 0b1), (2, 0b1), (3, 0b111), (3, 0b010)];
    let bad = [(0, 0), (0, 0b100), (4, 0b1), (15, 0b1), (16, 0b1), (255, 0b1)];
    let stages = rng.random_range(1..=2);
    (0..stages)
        .map(|_| match rng.random_ratio(1, 20) {
            true => *bad.choose(rng).expect("some"),
            false => *good.choose(rng).expect("some"),
        })
        .collect()
}

/// Amount of what was tried.
#[derive(Debug, Default)]
struct Tried {
    packets: usize,
    out: usize,
    two_stages: usize,
    commits_under_way: usize,
    decoupled: usize,
    latest: u64,
    earliest: u64,
    drops: BTreeMap<&'static str, usize>,
}

impl Pair {
    fn burst(&mut self, now: &[u32; 12], before: u32) -> Vec<SentPacket> {
        let mut cycle = self.cycle() + 20;
        let incarnations = [&now[..], &[before]].concat();
        (0..self.rng.random_range(60..120))
            .map(|_| {
                cycle += match self.rng.random_range(0..4) {
                    0 => self.rng.random_range(0..200),
                    _ => 0,
                };
                let row = self.rng.random_range(1..9);
                let incarnation = *incarnations.choose(&mut self.rng).expect("some");
                let uid = match self.rng.random_range(0..24) {
                    0 => None,
                    1 => Some(uid(row, 99)),
                    2 => Some(uid(900, 1)),
                    _ => Some(uid(row, incarnation)),
                };
                let bytes = match self.rng.random_range(0..4) {
                    0 => 64,
                    1 => 1_518,
                    _ => self.rng.random_range(64..=1_518),
                };
                self.packet(uid, bytes, cycle)
            })
            .collect()
    }

    /// Packets of one DAG come out in the order in which they went in, the same on both cards, with their bytes.
    fn same_ends(&mut self, sent: &[SentPacket], ahead: u64, tried: &mut Tried) {
        let (out, ends) = (self.received(), self.ends());
        let by_number: BTreeMap<u32, &SentPacket> =
            sent.iter().map(|packet| (number(&packet.bytes), packet)).collect();
        let mut orders: [BTreeMap<Option<u32>, Vec<u32>>; 2] = Default::default();
        let mut cycles = BTreeMap::new();
        for packet in &out {
            let before = by_number[&number(&packet.bytes)];
            assert_eq!(packet.bytes, before.bytes);
            orders[0].entry(before.uid).or_default().push(number(&packet.bytes));
            cycles.insert(number(&packet.bytes), packet.cycle);
        }
        for (frame, cycle) in &ends.out {
            orders[1].entry(by_number[frame].uid).or_default().push(*frame);
            if let Some(shell) = cycles.get(frame) {
                tried.latest = tried.latest.max((shell + ahead).saturating_sub(*cycle));
                tried.earliest = tried.earliest.max(cycle.saturating_sub(shell + ahead));
            }
        }
        assert_eq!(orders[0], orders[1], "shell, model: {:?}", ends.gone);
        tried.packets += sent.len();
        tried.out += out.len();
        for (_, cause) in ends.gone {
            let name = format!("{cause:?}");
            *tried.drops.entry(name.leak()).or_default() += 1;
        }
    }

    /// Other tables, some regions decoupled, then bursts; half of the time a commit while packets are under way.
    fn scenario(&mut self, incarnation: u32, tried: &mut Tried) {
        let decoupled = if self.rng.random_ratio(1, 4) { self.rng.random_range(0..4) } else { 9 };
        self.region_rows();
        if self.rng.random_ratio(1, 6) {
            let row = RegionRow { user_nt: false, bitstream_tag: 5, nts: [0; 8] };
            let number = self.rng.random_range(0..4);
            self.row(number, &row);
        }
        for row in 1..9 {
            let way = draw_way(&mut self.rng);
            tried.two_stages += usize::from(way.len() == 2);
            let payload = self.rng.random();
            self.dag(row, incarnation, &way, payload);
        }
        self.commit();
        for number in 0..4 {
            let value = if number == decoupled { REGION_DECOUPLE } else { 0 };
            tried.decoupled += usize::from(number == decoupled);
            self.both(region(number, REGION_CONTROL), value);
        }
        self.rest();
        let is_slow = self.rng.random_ratio(1, 4);
        self.shell.process().set_slow_port(is_slow).expect("it is there");
        let commits = self.rng.random();
        if commits {
            for row in 1..9 {
                let way = draw_way(&mut self.rng);
                self.dag(row, incarnation + 1, &way, true);
            }
        }
        self.side_by_side();
        let mut sent = self.burst(&[incarnation; 12], incarnation - 1);
        self.send(&sent);
        if commits {
            self.commit();
            tried.commits_under_way += usize::from(self.model.packets_in_flight() > 0);
            let more = self.burst(&[incarnation + 1; 12], incarnation);
            self.send(&more);
            sent.extend(more);
        }
        let ahead = self.ahead;
        self.rest();
        self.same_ends(&sent, ahead, tried);
        self.same_counters();
    }
}

fn beside_the_model(seed: u32, scenarios: u32) {
    let Some(mut pair) = Pair::new(seed) else { return };
    pair.reads_rows = true;
    let mut tried = Tried::default();
    for scenario in 0..scenarios {
        pair.scenario(2 * scenario + 2, &mut tried);
    }
    println!("seed {seed}: {tried:?}");
    let is_little = tried.commits_under_way < 2 || tried.decoupled == 0 || tried.drops.len() < 3;
    assert!(!is_little, "too little was tried: {tried:?}");
}

#[test]
fn packets_and_counters_are_those_of_the_model_from_a_first_seed() {
    beside_the_model(61, 12);
}

#[test]
fn packets_and_counters_are_those_of_the_model_from_a_second_seed() {
    beside_the_model(62, 12);
}

/// `SNIC_SEEDS` of them, or `SNIC_SEED` alone, with twenty scenarios each.
#[test]
#[ignore = "nightly: minutes"]
fn packets_and_counters_are_those_of_the_model_from_many_seeds() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("SNIC_SEED") {
        Some(seed) => beside_the_model(seed, 20),
        None => {
            (200..200 + number("SNIC_SEEDS").unwrap_or(20)).for_each(|s| beside_the_model(s, 20))
        }
    }
}
