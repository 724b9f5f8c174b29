//! The card as its host sees it, on top of the data plane.

use std::any::Any;
use std::sync::Arc;

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{CardModel, CardProfile, DagUid, NtCode, RegionId, Timestamp};
use snic_ports::card::windows::{HeldConfiguration, NtWindows};
use snic_ports::card::{Buffers, Card, CardError, Registers, image};
use snic_ports::generator::LoadReading;
use snic_processors::NicModel;
use snic_tables::registers::{
    Address, LOAD_ERROR_BUSY, LOAD_ERROR_PACKETS, LOAD_ERROR_REGION, REGION_DECOUPLE, REGION_RESET,
};
use snic_tables::{DropCause, TableImage};

use crate::configuration::{Controller, Load, identify};
use crate::configurator::Configurator;
use crate::faults::{FaultRng, Faults};
use crate::frames::{FrameId, Frames, Preparation};
use crate::load::LoadMeter;
use crate::measurement::Measurements;
use crate::memory::Memory;
use crate::plane::{EndedWork, MemoryAccess, Plane, PlaneOptions};
use crate::processors::Processors;
use crate::profile::{InvalidProfile, check};
use crate::region::Content;
use crate::trace::PacketRecord;
use crate::traffic::{Generator, Header, InvalidSource, TrafficSource};
use crate::wheel::Event;
use crate::wrapper::Wrapper;

/// Looks a second at a bitstream whose words are through and which is being prepared.
const LOOKS_PER_SECOND: u64 = 1_000;

/// Names a traffic source of one card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

/// Accesses of the host since the card was made, which say what the control plane did to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accesses {
    pub reads: u64,
    pub writes: u64,
    /// Words of the shadow bank written.
    pub table_words: u64,
    pub loads: u64,
}

/// A simulated card: registers, memory, regions and a data plane that packets go through.
///
/// It does nothing but in [`Card::poll`] and [`SimCard::run_for`], which move its clock; everything
/// is determined by profile, seed and the calls. It stays in the past of whoever polls it: until the
/// first poll it is 1970.
#[derive(Debug)]
pub struct SimCard {
    pub(crate) profile: CardProfile,
    pub(crate) plane: Plane,
    pub(crate) controller: Controller,
    pub(crate) configurator: Configurator,
    /// Windows of NTs, where these take configurations and not the shell.
    pub(crate) windows: Option<NtWindows>,
    pub(crate) memory: Memory,
    /// Wrappers of the regions.
    pub(crate) wrappers: Vec<Wrapper>,
    pub(crate) boot_id: u32,
    pub(crate) fault_rng: FaultRng,
    pub(crate) accesses: Accesses,
    seed: u64,
    rng: ChaCha8Rng,
    lost: bool,
}

impl SimCard {
    /// A card of this profile that was just switched on: no region loaded, all tables empty.
    ///
    /// # Errors
    /// The profile describes no card that the model can be: [`InvalidProfile`] says why.
    pub fn new(profile: CardProfile, seed: u64) -> Result<Self, InvalidProfile> {
        let options = PlaneOptions::of(&profile);
        Self::with_options(profile, seed, options)
    }

    /// The same with other choices for the data plane.
    ///
    /// # Errors
    /// As [`SimCard::new`].
    pub fn with_options(
        profile: CardProfile,
        seed: u64,
        options: PlaneOptions,
    ) -> Result<Self, InvalidProfile> {
        check(&profile)?;
        let mut card = Self {
            plane: Plane::new(&profile, options, 0),
            controller: Controller::default(),
            configurator: Configurator::default(),
            windows: None,
            memory: Memory::new(profile.memory, profile.save_area.bytes),
            wrappers: vec![Wrapper::default(); profile.regions.len()],
            boot_id: 0,
            fault_rng: FaultRng::new(seed),
            accesses: Accesses::default(),
            seed,
            rng: ChaCha8Rng::seed_from_u64(seed),
            lost: false,
            profile,
        };
        card.draw_boot_id();
        Ok(card)
    }

    /// A card that runs NTs as programs on the processors of this model, as it was measured.
    ///
    /// # Errors
    /// As [`SimCard::new`]: the profile has to be one of a card.
    pub fn with_processors(
        profile: CardProfile,
        seed: u64,
        model: Arc<NicModel>,
    ) -> Result<Self, InvalidProfile> {
        let mut card = Self::new(profile, seed)?;
        card.plane.set_processors(Processors::new(model));
        Ok(card)
    }

    /// A card whose NTs take configurations by their windows, as in hardware, and whose shell takes none.
    ///
    /// # Errors
    /// As [`SimCard::new`].
    pub fn with_windows(profile: CardProfile, seed: u64) -> Result<Self, InvalidProfile> {
        let mut card = Self::new(profile, seed)?;
        card.windows = Some(NtWindows::default());
        Ok(card)
    }

    /// Whether its NTs take configurations by their windows.
    pub const fn has_windows(&self) -> bool {
        self.windows.is_some()
    }

    /// The tables that new packets follow.
    ///
    /// # Panics
    /// Never: a bank has as many words as tables have.
    pub fn active_tables(&self) -> TableImage {
        let words = self.plane.banks.words(false).to_vec();
        TableImage::from_words(words).expect("as many words as a bank has")
    }

    /// Codes of the NTs that a region says it holds; zeros unless it is loaded.
    pub fn nts_in(&self, region: RegionId) -> [NtCode; CHAIN_SLOTS_MAX] {
        self.plane.regions.get(region.index()).map(|region| region.reported.nts).unwrap_or_default()
    }

    /// Configurations that NTs did not take since the card has power.
    pub fn refused_configurations(&self) -> u64 {
        self.windows.as_ref().map_or(0, NtWindows::refusals)
    }

    /// Configurations that NTs took by their windows.
    pub fn held_configurations(&self) -> Vec<HeldConfiguration> {
        self.windows.as_ref().map(NtWindows::held).unwrap_or_default()
    }

    fn draw_boot_id(&mut self) {
        let before = self.boot_id;
        while self.boot_id == before || self.boot_id == 0 {
            self.boot_id = self.rng.next_u32();
        }
    }

    /// Sets which faults happen from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.fault_rng.faults = faults;
    }

    /// The power fails and comes back: regions, tables, buffers, counters and packets are gone, and
    /// the boot id is another one. Sources go on; the card's clock too.
    pub fn power_cycle(&mut self) {
        self.plane.power_cycle(&self.profile);
        self.controller = Controller::default();
        self.configurator = Configurator::default();
        self.windows = self.windows.as_ref().map(|_| NtWindows::default());
        self.memory.clear();
        self.wrappers.fill(Wrapper::default());
        self.draw_boot_id();
        self.lost = false;
    }

    /// Takes the card from the host: every access finds it lost until it is opened again. Packets
    /// go on.
    pub fn lose(&mut self) {
        self.lost = true;
    }

    /// Opens a card that was lost. What it holds is what it held.
    pub fn reopen(&mut self) {
        self.lost = false;
    }

    /// Says what NTs of `code` do with memory from now on; none does anything until it is said.
    pub fn set_memory_access(&mut self, code: u32, access: MemoryAccess) {
        self.plane.set_access(code, access);
    }

    /// Sends this source's packets at the card; from now on, or from its start.
    ///
    /// # Errors
    /// The source has no rate, no packets, or packets of sizes that a port does not take: see [`InvalidSource`].
    pub fn attach(&mut self, source: TrafficSource) -> Result<SourceId, InvalidSource> {
        // Every source draws from a separate generator.
        let seed = self.rng.next_u64();
        let now = self.plane.now;
        let generator = Generator::new(source, self.plane.clock(), now, seed)?;
        Ok(SourceId(self.plane.attach(generator)))
    }

    /// The same for packets that are counted until they end: a load with an end of its own. What became
    /// of them says [`SimCard::read_load`].
    ///
    /// # Errors
    /// As [`SimCard::attach`].
    pub fn attach_metered(&mut self, source: TrafficSource) -> Result<SourceId, InvalidSource> {
        let (seed, now) = (self.rng.next_u64(), self.plane.now);
        let meter = LoadMeter::new(
            source.start.max(self.now()),
            source.stop.unwrap_or(Timestamp::from_nanos(u64::MAX)),
        );
        let generator = Generator::new(source, self.plane.clock(), now, seed)?;
        Ok(SourceId(self.plane.attach_metered(generator, meter)))
    }

    /// Moves the clock on while no counted source sends: whoever has no time to simulate their packets.
    pub fn skip_loads(&mut self, cycles: u64) {
        let until = self.plane.now.saturating_add(cycles);
        self.plane.silence_metered(until.saturating_add(1));
        self.run_until(until);
    }

    /// Counts of a source's packets; `None` where nobody counts them.
    pub fn read_load(&mut self, source: SourceId) -> Option<LoadReading> {
        let now = self.now();
        self.plane.meter(source.0).map(|meter| meter.read(now))
    }

    /// Sets the holder of the bytes of frames, from now on.
    pub fn set_frames(&mut self, frames: Box<dyn Frames>) {
        self.plane.set_frames(frames);
    }

    /// Holder of the bytes of frames, where it is of this type.
    pub fn frames<T: Frames>(&mut self) -> Option<&mut T> {
        let frames: &mut dyn Any = self.plane.frames()?;
        frames.downcast_mut()
    }

    /// Whether who holds the frames is told of each step of each packet ([`Frames::saw`]). It costs nothing
    /// while it is off.
    pub fn watch(&mut self, on: bool) {
        self.plane.watch(on);
    }

    /// A frame of this length arrives now: at the time of the last poll.
    pub fn inject(&mut self, frame: FrameId, header: &Header, bytes: u32) {
        self.plane.inject(frame, header, bytes);
    }

    /// Ends a source; says how many packets it sent. `None` where it ended before.
    pub fn detach(&mut self, source: SourceId) -> Option<u64> {
        self.plane.detach(source.0)
    }

    /// Counts since the last [`SimCard::take_measurements`].
    pub fn measurements(&self) -> Measurements {
        self.plane.stats.measurements(self.plane.now, self.plane.clock())
    }

    /// The same, and begins again.
    pub fn take_measurements(&mut self) -> Measurements {
        let measurements = self.measurements();
        self.plane.stats.restart(self.plane.now);
        measurements
    }

    /// Moves the card's clock on.
    pub fn run_for(&mut self, cycles: u64) {
        self.run_until(self.plane.now.saturating_add(cycles));
    }

    fn run_until(&mut self, cycle: u64) {
        while let Some(ended) = self.plane.run(cycle) {
            match ended {
                EndedWork::Load(generation) if generation == self.controller.generation => {
                    self.finish_load();
                }
                EndedWork::Load(_) => {}
                EndedWork::State(region, generation) => self.finish_state(region, generation),
            }
        }
    }

    /// The card's clock, in cycles.
    pub const fn now_cycles(&self) -> u64 {
        self.plane.now
    }

    /// The card's clock.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.plane.clock().nanos(self.plane.now))
    }

    /// Profile of the card.
    pub const fn profile(&self) -> &CardProfile {
        &self.profile
    }

    /// From what it was made.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Counts of the host's accesses.
    pub const fn accesses(&self) -> Accesses {
        self.accesses
    }

    /// Packets since power-up: in with those that NTs made, out, and dropped, in the order of
    /// [`DropCause::ALL`].
    pub const fn totals(&self) -> (u64, u64, [u64; DropCause::ALL.len()]) {
        let stats = &self.plane.stats;
        (stats.packets_in + stats.packets_made, stats.packets_out, stats.drops)
    }

    /// A digest of the outcome of every packet since power-up.
    pub const fn trace_digest(&self) -> u64 {
        self.plane.stats.digest
    }

    /// Keeps the records of the next `packets` that end.
    pub fn keep_trace(&mut self, packets: usize) {
        self.plane.trace.keep(packets);
    }

    /// The records that were kept.
    pub fn take_trace(&mut self) -> Vec<PacketRecord> {
        self.plane.trace.take()
    }

    /// Packets that the NT in a slot of a region has counted for a DAG since it keeps state for it.
    pub fn packets_kept(&self, region: RegionId, slot: usize, uid: DagUid) -> u64 {
        let region = self.plane.regions.get(region.index());
        region.map_or(0, |region| region.contexts.packets(slot, uid.raw()))
    }

    /// Bytes that the NT in a slot of a region keeps, for all DAGs together.
    pub fn bytes_kept(&self, region: RegionId, slot: usize) -> u64 {
        let region = self.plane.regions.get(region.index());
        region.map_or(0, |region| region.contexts.bytes_kept(slot))
    }

    /// Packets that NTs with state counted for a DAG since power-up, wherever.
    pub fn packets_counted(&self, uid: DagUid) -> u64 {
        self.plane.counted.get(&uid.raw()).copied().unwrap_or(0)
    }

    /// A part of the save area, as it stands in memory.
    pub fn save_area(&self, offset: u32, length: u32) -> Vec<u8> {
        self.memory.saved(offset, length)
    }

    /// Packets on the card.
    pub const fn packets_in_flight(&self) -> u64 {
        self.plane.in_flight()
    }

    /// The most packets that were on the card at once: what its memory grew to.
    pub fn packets_in_flight_max(&self) -> usize {
        self.plane.places()
    }

    /// Buffers that the host did not give back.
    pub fn buffers(&self) -> usize {
        self.memory.buffers()
    }

    /// Finds what must never be: lost packets, credits, cells, entries. For tests.
    ///
    /// # Errors
    /// Finds packets that are lost or counted twice, in words.
    pub fn check(&self) -> Result<(), String> {
        self.plane.check()
    }

    pub(crate) fn accessible(&mut self) -> Result<(), CardError> {
        self.lost |= self.fault_rng.card_lost();
        if self.lost {
            return Err(CardError::Lost("the simulated card does not answer".into()));
        }
        Ok(())
    }

    pub(crate) fn commit(&mut self, version: u32) {
        let hangs = self.fault_rng.commit_hangs();
        let regions = &self.plane.regions;
        let loaded = || {
            let regions =
                (0..).zip(regions).filter(|(_, region)| region.content == Content::Loaded);
            regions.map(|(at, _)| at).collect()
        };
        if let Some(region) = self.fault_rng.stops_one(loaded) {
            self.plane.stop_region(region);
        }
        if let Some(rows) = self.plane.banks.commit(self.plane.now, version, hangs) {
            self.plane.rows_changed(&rows);
            let configurations = self.configurator.committed();
            self.plane.start_programs(&rows, &configurations);
            self.plane.report_dags(&rows, &configurations);
        }
    }

    pub(crate) fn configure(&mut self) {
        let buffer = self.memory.buffer(self.configurator.buffer());
        let plane = &self.plane;
        self.configurator.take(buffer, |bytes| plane.can_start(bytes));
    }

    pub(crate) fn control_region(&mut self, number: u8, value: u32) {
        let region = &mut self.plane.regions[usize::from(number)];
        region.decoupled = value & REGION_DECOUPLE != 0;
        if value & REGION_RESET != 0 {
            region.reset();
            if self.controller.load.as_ref().is_some_and(|load| load.region == number) {
                region.empty(Content::Broken);
                self.controller.end(self.plane.now, Err(LOAD_ERROR_PACKETS));
                self.forget_contents(number);
            }
        }
        self.plane.region_changed(number);
    }

    pub(crate) fn start_load(&mut self) {
        let request = self.controller.request;
        if self.controller.load.is_some() {
            return self.controller.refuse(LOAD_ERROR_BUSY);
        }
        let number = request.region as usize;
        let Some(region) = self.plane.regions.get_mut(number).filter(|region| region.decoupled)
        else {
            return self.controller.refuse(LOAD_ERROR_REGION);
        };
        let bytes = u64::from(request.bytes);
        // The profile's limit is the bitstream's own; the streams around it come on top.
        let fits =
            bytes <= self.profile.regions[number].bitstream_max.get() + image::CONTROL_BYTES_MAX;
        let buffer = self.memory.buffer(request.buffer());
        let Some(buffer) = buffer.filter(|buffer| fits && bytes <= buffer.len() as u64) else {
            return self.controller.refuse(LOAD_ERROR_PACKETS);
        };
        region.empty(Content::Loading);
        self.plane.region_changed(number as u8);
        if let Some(windows) = &mut self.windows {
            windows.emptied(number as u8);
        }
        let cycles =
            self.plane.clock().cycles_for(bytes, self.profile.configuration_bytes_per_second);
        let whole = bytes == buffer.len() as u64;
        let bytes = if whole { buffer } else { buffer[..bytes as usize].into() };
        if let Some(frames) = self.plane.frames() {
            frames.emptied(number as u8);
            frames.load_began(number as u8, &bytes);
        }
        let generation = self.controller.start(Load {
            region: number as u8,
            bytes,
            since: self.plane.now,
            cycles,
            fails: self.fault_rng.load_fails(),
        });
        self.accesses.loads += 1;
        if !self.fault_rng.load_hangs() {
            self.plane.wheel.at(self.plane.now + cycles, Event::LoadEnds { generation });
        }
    }

    /// Tells the holder of the frames to forget what a region held.
    fn forget_contents(&mut self, region: u8) {
        if let Some(frames) = self.plane.frames() {
            frames.emptied(region);
        }
    }

    fn finish_load(&mut self) {
        let Some(load) = &self.controller.load else { return };
        let number = load.region;
        let (fails, bytes) = (load.fails, Arc::clone(&load.bytes));
        let preparation = self.plane.frames().map(|frames| frames.preparation(number));
        let outcome = match preparation {
            _ if fails => Err(LOAD_ERROR_PACKETS),
            Some(Preparation::UnderWay) => {
                let at = self.plane.now + self.plane.clock().cycles_for(1, LOOKS_PER_SECOND);
                let generation = self.controller.generation;
                return self.plane.wheel.at(at, Event::LoadEnds { generation });
            }
            Some(Preparation::Refused(code)) => identify(&bytes, &self.profile).and(Err(code)),
            Some(Preparation::Ready) | None => identify(&bytes, &self.profile),
        };
        if outcome.is_err() {
            self.forget_contents(number);
        }
        let clock = self.plane.clock();
        let region = &mut self.plane.regions[usize::from(number)];
        match &outcome {
            Ok(rom) => {
                region.fill(rom, clock);
                if let Some(windows) = &mut self.windows {
                    let slots = (0..).zip(region.reported.nts).filter(|(_, nt)| nt.0 != 0);
                    windows.filled(number, slots.map(|(slot, _)| slot));
                }
                if self.fault_rng.region_reports_other_nts() {
                    region.reported.nts[0].0 ^= 1;
                }
            }
            Err(_) => region.empty(Content::Broken),
        }
        self.controller.end(self.plane.now, outcome.map(|_| ()));
    }
}

impl Registers for SimCard {
    fn read(&mut self, at: Address) -> Result<u32, CardError> {
        self.accessible()?;
        self.accesses.reads += 1;
        self.read_register(at)
    }

    fn write(&mut self, at: Address, value: u32) -> Result<(), CardError> {
        self.accessible()?;
        self.accesses.writes += 1;
        self.write_register(at, value)
    }

    fn read_block(&mut self, at: Address, words: &mut [u32]) -> Result<(), CardError> {
        self.accessible()?;
        if let Some(bank) = self.bank_words(at, words.len()) {
            words.copy_from_slice(bank);
            self.accesses.reads += words.len() as u64;
            return Ok(());
        }
        // Each read may find the card lost, where that is asked for.
        let is_copied = self.fault_rng.faults.card_lost <= 0.0
            && (self.copy_dag_load(at, words) || self.plane.latencies.copy_records(at, words));
        if is_copied {
            self.accesses.reads += words.len() as u64;
            return Ok(());
        }
        for (address, word) in (at..).step_by(4).zip(words) {
            *word = self.read(address)?;
        }
        Ok(())
    }
}

impl Buffers for SimCard {
    fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError> {
        self.accessible()?;
        self.memory.stage(bytes)
    }

    fn release(&mut self, address: u64) -> Result<(), CardError> {
        self.accessible()?;
        self.memory.release(address)
    }
}

impl Card for SimCard {
    fn model(&self) -> &CardModel {
        &self.profile.model
    }

    fn poll(&mut self, now: Timestamp) -> Result<(), CardError> {
        // Packets go on also where the host does not reach the card.
        self.run_until(self.plane.clock().cycle_at(now));
        self.accessible()
    }
}
