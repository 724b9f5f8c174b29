//! The card at work: one thread that has the model, the frames and the ports.

mod fast;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant, SystemTime};

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use snic_card_sim::{FrameId, Header, PlaneOptions, ShaperMemory, SimCard};
use snic_domain::{ByteSize, CardProfile, DagUid, Timestamp};
use snic_nts::{ModuleRuntime, Packet, Pool};
use snic_ports::card::{Buffers as _, Card as _, CardError, Registers as _};
use snic_ports::generator::GeneratedLoad;
use snic_ports::packets::FlowTableUse;
use snic_ports::remote::{PAYLOAD_BYTES_MAX, to_bytes, to_words};
use snic_tables::DropCause;

use crate::captures::CAPTURES_MAX;
use crate::datapath::{Datapath, DepartingFrame, FrameRoute};
use crate::fragments::{FragmentOrder, PortFragments};
use crate::header::{self, NO_FUNCTION};
use crate::loads::{LOADS_MAX, LoadId, LoadRefused};
use crate::modules::Modules;
use crate::offload::OffloadFailure;
use crate::poller::Poller;
use crate::protocol::{ControlReply, ControlRequest, Observation};
use crate::stations::Receiver as Whom;
use crate::switch::{PortPoll, Side, Switch, Target};
use crate::{FRAME_BYTES_MAX, SoftCardSettings};

use fast::FastFlows;

/// Frames that wait at token buckets: hosts hand over what TCP may send in pieces of 64 KiB, which a network card would take
/// from their memory when it may, and which are here at once. Half a second at 100 Mbit/s, in frames of 1,500 bytes.
const FRAMES_WAITING: usize = 4_096;
/// Bytes that a DAG may have waiting at its token bucket, whatever its rate: two blocks of 128 KiB, as programs write them.
const BURST_BYTES: u64 = 256 << 10;
/// Time in which a token bucket passes the most that waits at it, in microseconds: what a stream that is beyond its rate is
/// late at most. Eight streams of `iperf3` at 23 Mbit/s each hand over a block of 128 KiB at the same moment; with 20 ms at
/// 200 Mbit/s a fifth of their segments were dropped and sent again.
const BURST_MICROS: u32 = 50_000;
/// Frames on the card at once: those that wait at token buckets, and a packet store of 800 KB full of the smallest; 57 MB of
/// buffers, which take no memory before they are used.
pub const FRAMES_MAX: usize = 2_048 + FRAMES_WAITING;
/// Frames that one look at a port takes: enough to pay for the look, few against the other ports.
const BATCH: usize = 32;
/// Time that the card looks again and again after something happened: an answer or the next frame is often near, and whom
/// nobody waits for costs its sender no wake-up.
const SPIN: Duration = Duration::from_micros(20);
/// The longest wait while packets are on the card: rates and queues are as faithful as this.
const STEP: Duration = Duration::from_micros(50);
/// The longest wait while none are.
const REST: Duration = Duration::from_secs(1);

/// A longer time between two turns is one in which the process stood still, as with SIGSTOP or a suspended host: turns are
/// [`REST`] apart at most.
const STANDSTILL: Duration = Duration::from_secs(2);

/// A request from a connection.
pub(crate) struct Job {
    pub(crate) request: ControlRequest,
    pub(crate) payload: Vec<u8>,
    pub(crate) answer: SyncSender<(ControlReply, Vec<u8>)>,
}

pub(crate) struct Machine {
    card: SimCard,
    switch: Switch,
    /// Packets in fragments, for each port that they came in by.
    fragments: Vec<PortFragments>,
    pool: Pool,
    start: Instant,
    /// When the last turn began.
    turned: Timestamp,
    /// When the card was switched on, by the host's clock.
    wall: Timestamp,
    settings: SoftCardSettings,
    fast: FastFlows,
}

/// A number that nobody outside can know.
fn draw() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The model with token buckets whose queues are in the host's memory.
fn plane_options() -> PlaneOptions {
    let memory = ShaperMemory { buffers: FRAMES_WAITING as u32, micros: BURST_MICROS };
    PlaneOptions {
        shaper_queue: ByteSize::from_bytes(BURST_BYTES),
        shaper_memory: Some(memory),
        ..PlaneOptions::default()
    }
}

impl Machine {
    /// A card that was just switched on.
    pub(crate) fn new(
        profile: CardProfile,
        settings: SoftCardSettings,
        switch: Switch,
        runtime: Option<Arc<dyn ModuleRuntime>>,
        seed: Option<u64>,
    ) -> Result<Self, String> {
        let pool = Pool::new(FRAMES_MAX, FRAME_BYTES_MAX);
        let random = ChaCha8Rng::seed_from_u64(seed.unwrap_or_else(draw));
        let datapath = Datapath::new(&pool, random, Modules::new(runtime));
        let card = SimCard::with_options(profile, seed.unwrap_or_else(draw), plane_options());
        let mut card = card.map_err(|error| error.to_string())?;
        card.set_frames(Box::new(datapath));
        // A host whose clock stands before 1970 shows times from there on.
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let wall = Timestamp::ZERO + since_1970.unwrap_or_default();
        let fragments = (0..switch.len()).map(|_| PortFragments::new()).collect();
        let (start, turned) = (Instant::now(), Timestamp::ZERO);
        let fast = FastFlows::default();
        Ok(Self { card, switch, fragments, pool, start, turned, wall, settings, fast })
    }

    /// Ports, and what becomes readable when a frame arrives.
    pub(crate) fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Works until nobody can ask for anything any more.
    ///
    /// # Errors
    /// The fast path may pass what it must not: it ends with the card.
    pub(crate) fn run(
        mut self,
        jobs: &Receiver<Job>,
        poller: &mut Poller,
    ) -> Result<(), OffloadFailure> {
        let mut moved = Instant::now();
        let mut was_woken = false;
        loop {
            let mut is_busy = self.turn();
            loop {
                match jobs.try_recv() {
                    Ok(job) => {
                        self.do_job(job);
                        is_busy = true;
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            if let Some(failure) = self.fast.failure.take() {
                return Err(failure);
            }
            if is_busy {
                moved = Instant::now();
                was_woken = false;
                continue;
            }
            if was_woken {
                self.switch.clear_errors();
            }
            let has_packets = self.card.packets_in_flight() > 0 || self.fast.waits();
            if moved.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                let most = if has_packets { STEP } else { self.fast.wait_max().unwrap_or(REST) };
                let now = self.now();
                was_woken = poller.wait(self.datapath().due_in(now).unwrap_or(most).min(most));
            }
        }
    }

    /// The card's time: since it was switched on.
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.start.elapsed()
    }

    fn datapath(&mut self) -> &mut Datapath {
        self.card.frames().expect("the frames were set when the card was made")
    }

    /// Does what is due, takes what arrived, sends what leaves; says whether there was anything.
    fn turn(&mut self) -> bool {
        let now = self.run_model();
        self.note_standstill(now);
        self.end_stale_rules();
        self.account_some(now);
        self.datapath().tasks.expire(now);
        self.datapath().modules.expire(now);
        self.switch.poll_drops(now);
        for port in 0..self.fragments.len() {
            while let Some(waiting) = self.fragments[port].next_expired(now) {
                self.hand(waiting.packet, waiting.way, &waiting.header);
            }
        }
        if !self.datapath().captures.is_empty() {
            self.datapath().captures.expire(now);
            self.watch();
        }
        let mut frames = self.send_leaving() + self.hand_over_idle();
        frames += self.generate() + self.wake_tasks(now);
        for port in 0..self.switch.len() {
            for _ in 0..BATCH {
                match self.switch.receive(port, &self.pool, now) {
                    PortPoll::Frame(arrival) => self.arrive(arrival.packet, arrival.from),
                    PortPoll::Lost => {}
                    PortPoll::Nothing => break,
                }
                frames += 1;
            }
        }
        if frames > 0 {
            self.run_model();
            self.end_stale_rules();
            self.send_leaving();
        }
        frames > 0
    }

    /// Time in which the process stood still counts against nobody who asks it something, nor against stations that it could
    /// not hear. What NTs keep ends when it would have: a value of a cache is over, whoever was stopped.
    fn note_standstill(&mut self, now: Timestamp) {
        let since = now.since(std::mem::replace(&mut self.turned, now));
        if since >= STANDSTILL {
            self.account_all();
            self.datapath().captures.postpone_ends(since);
            self.datapath().loads.postpone_ends(since);
            self.switch.postpone_silence(since);
        }
    }

    fn run_model(&mut self) -> Timestamp {
        let now = self.now();
        // A card in this process is never lost.
        let _ = self.card.poll(now);
        self.take_guards();
        now
    }

    /// Ports keep to the rows of the last commit.
    fn take_guards(&mut self) {
        for (function, row) in std::mem::take(&mut self.datapath().guards) {
            self.switch.set_guard(function, row.as_ref());
        }
    }

    /// A frame came in by a port.
    fn arrive(&mut self, packet: Packet, from: usize) {
        match self.switch.side(from) {
            Side::Function(number) => self.inject(packet, FrameRoute { from, to: None }, number),
            Side::Uplink => match self.switch.receiver(packet.bytes()) {
                Whom::Function(to) => self.inject(packet, FrameRoute { from, to: Some(to) }, to),
                Whom::Group => self.spread(&packet, from, None),
                Whom::Unknown => self.inject(packet, FrameRoute { from, to: None }, NO_FUNCTION),
            },
        }
    }

    /// Makes the frames of loads that are due; says how many.
    fn generate(&mut self) -> usize {
        if self.datapath().loads.is_empty() {
            return 0;
        }
        let now = self.card.now();
        let mut frames = 0;
        self.datapath().loads.begin_turn(now);
        let pool = self.pool.clone();
        while let Some(due) = self.datapath().loads.due(&pool) {
            frames += 1;
            let header = Header { dag: Some(due.uid), ..Header::default() };
            // A frame is shorter than the pool's buffers.
            let bytes = due.packet.len() as u32;
            if let Some(frame) = self.datapath().hold_made(now, due) {
                self.enter(frame, &header, bytes);
            }
        }
        frames
    }

    /// Runs the timers of NTs that are due; says how many frames they made. Those are the DAG's, as those of its hosts.
    fn wake_tasks(&mut self, now: Timestamp) -> usize {
        self.datapath().wake_tasks(now);
        let mut frames = 0;
        while let Some(made) = self.datapath().by_timer() {
            frames += 1;
            let Some(way) = self.switch.way_from_source(made.packet.bytes()) else { continue };
            let header = Header { dag: Some(made.uid), ..Header::default() };
            // A frame is shorter than the pool's buffers.
            let bytes = made.packet.len() as u32;
            match self.datapath().hold_by_timer(made, way) {
                Some(frame) => self.enter(frame, &header, bytes),
                None => self.switch.count_too_slow(way.from),
            }
        }
        frames
    }

    /// Hands a frame to the model, with the ports of its first fragment if it is a later one.
    fn inject(&mut self, packet: Packet, way: FrameRoute, function: u16) {
        let now = self.card.now();
        let (mut header, layout) = header::read(packet.bytes(), function);
        let Some(fragments) = self.fragments.get_mut(way.from) else {
            return self.hand(packet, way, &header);
        };
        match fragments.track(layout.as_ref(), &mut header, now) {
            FragmentOrder::GoesOn => self.hand(packet, way, &header),
            FragmentOrder::First(key) => {
                self.hand(packet, way, &header);
                while let Some(waiting) = self.fragments[way.from].next_behind(&key) {
                    self.hand(waiting.packet, waiting.way, &waiting.header);
                }
            }
            FragmentOrder::Early(key) => {
                if let Some(oldest) = fragments.hold(key, (packet, way, header), now) {
                    self.hand(oldest.packet, oldest.way, &oldest.header);
                }
            }
        }
    }

    /// Hands a frame to the model, as one with this header.
    fn hand(&mut self, packet: Packet, way: FrameRoute, header: &Header) {
        // A frame is shorter than the pool's buffers.
        let bytes = packet.len() as u32;
        match self.datapath().hold(packet, way) {
            Some(frame) => self.enter(frame, header, bytes),
            None => self.switch.count_too_slow(way.from),
        }
    }

    /// A frame enters the model. Its DAG is the card's from then on.
    fn enter(&mut self, frame: FrameId, header: &Header, bytes: u32) {
        if self.fast.passes()
            && let Some(uid) = self.card.dag_of(header)
        {
            self.take_back(uid.row());
        }
        self.card.inject(frame, header, bytes);
    }

    /// A copy for each function but one, through the function's DAG.
    fn spread(&mut self, packet: &Packet, from: usize, except: Option<u16>) {
        for at in 0..self.switch.len() {
            let Side::Function(to) = self.switch.side(at) else { continue };
            if Some(to) == except {
                continue;
            }
            match self.pool.copy_of(packet.bytes()) {
                Some(copy) => self.inject(copy, FrameRoute { from, to: Some(to) }, to),
                None => self.switch.count_too_slow(from),
            }
        }
    }

    /// Sends what left the model; says how many frames.
    fn send_leaving(&mut self) -> usize {
        let mut frames = 0;
        while let Some(leaving) = self.datapath().leaving() {
            frames += 1;
            self.send(leaving);
        }
        self.switch.flush();
        frames
    }

    fn send(&mut self, leaving: DepartingFrame) {
        let from = leaving.way.from;
        match self.switch.target(&leaving) {
            Target::Port(port) => {
                if let Some(offer) = &leaving.offer {
                    self.give(offer, leaving.way, port);
                }
                self.switch.send(port, leaving.packet);
            }
            Target::Function(to, from) => {
                self.inject(leaving.packet, FrameRoute { from, to: Some(to) }, to)
            }
            Target::All => {
                let except = match self.switch.side(from) {
                    Side::Function(number) => Some(number),
                    Side::Uplink => None,
                };
                self.spread(&leaving.packet, from, except);
                self.switch.send_up(leaving.packet);
            }
            Target::Nowhere => {}
        }
    }

    fn do_job(&mut self, job: Job) {
        self.run_model();
        match job.request {
            ControlRequest::Write { ref runs } => self.before_write(runs),
            ControlRequest::Capture { .. } => self.end_all_rules(),
            ControlRequest::Read { at, words } => self.charge_for(at, words),
            ControlRequest::Observe => self.account_all(),
            _ => {}
        }
        let answer = self.answer(job.request, &job.payload);
        // Who asked may be gone.
        let _ = job.answer.send(answer);
    }

    fn answer(&mut self, request: ControlRequest, payload: &[u8]) -> (ControlReply, Vec<u8>) {
        let result = match request {
            ControlRequest::Hello { .. } => Ok((self.hello(), Vec::new())),
            ControlRequest::Read { at, words } => self.read(at, words),
            ControlRequest::Write { runs } => self.write(&runs, payload),
            ControlRequest::Stage => self
                .card
                .stage(payload)
                .map(|address| (ControlReply::Staged { address }, Vec::new())),
            ControlRequest::Release { address } => {
                self.card.release(address).map(|()| (ControlReply::Done, Vec::new()))
            }
            ControlRequest::Observe => Ok((ControlReply::Seen(self.observe()), Vec::new())),
            ControlRequest::Capture { uid, bytes } => Ok((self.capture(uid, bytes), Vec::new())),
            ControlRequest::Captured { id } => {
                let (now, wall) = (self.now(), self.wall);
                let fetched = self.datapath().captures.fetch(id, now, wall);
                let reply = fetched.map_or(ControlReply::NoCapture, ControlReply::Captured);
                Ok((reply, Vec::new()))
            }
            ControlRequest::EndCapture { id } => {
                self.datapath().captures.end(id);
                self.watch();
                Ok((ControlReply::Done, Vec::new()))
            }
            ControlRequest::Generate { load } => Ok((self.begin_load(&load), Vec::new())),
            ControlRequest::ReadLoad { id } => {
                let now = self.card.now();
                let read = self.datapath().loads.read(LoadId(id), now);
                Ok((read.map_or(ControlReply::NoLoad, ControlReply::Load), Vec::new()))
            }
            ControlRequest::EndLoad { id } => {
                self.datapath().loads.end(LoadId(id));
                Ok((ControlReply::Done, Vec::new()))
            }
        };
        result.unwrap_or_else(|error| {
            let reply = match error {
                CardError::NoRegister(at) => ControlReply::NoRegister { at },
                CardError::NoMemory { .. } => ControlReply::NoMemory,
                CardError::NoBuffer(_) => ControlReply::NoBuffer,
                CardError::Lost(what) => ControlReply::Failed { what },
            };
            (reply, Vec::new())
        })
    }

    fn capture(&mut self, uid: u32, bytes: u32) -> ControlReply {
        let now = self.now();
        let begun = self.datapath().captures.begin(now, uid, bytes);
        self.watch();
        let most = CAPTURES_MAX as u32;
        begun.map_or(ControlReply::TooManyCaptures { most }, |id| ControlReply::Capturing { id })
    }

    fn begin_load(&mut self, load: &GeneratedLoad) -> ControlReply {
        let now = self.card.now();
        match self.datapath().loads.begin(now, load, draw()) {
            Ok(LoadId(id)) => ControlReply::Generating { id },
            Err(LoadRefused::TooMany) => ControlReply::TooManyLoads { most: LOADS_MAX as u32 },
            Err(LoadRefused::Invalid(what)) => ControlReply::InvalidLoad { what },
        }
    }

    /// The model tells each step of a packet while somebody captures.
    fn watch(&mut self) {
        let on = !self.datapath().captures.is_empty();
        self.card.watch(on);
    }

    fn hello(&self) -> ControlReply {
        let settings = serde_json::to_string(&self.settings);
        ControlReply::Card {
            version: crate::protocol::VERSION,
            settings: settings.expect("settings are text and lists of text"),
            pid: std::process::id(),
        }
    }

    fn read(&mut self, at: u32, words: u32) -> Result<(ControlReply, Vec<u8>), CardError> {
        if words as usize > PAYLOAD_BYTES_MAX / 4 {
            return Err(CardError::NoRegister(at));
        }
        let mut read = vec![0; words as usize];
        self.card.read_block(at, &mut read)?;
        Ok((ControlReply::Done, to_bytes(&read)))
    }

    fn write(
        &mut self,
        runs: &[snic_ports::remote::Run],
        payload: &[u8],
    ) -> Result<(ControlReply, Vec<u8>), CardError> {
        let words = to_words(payload);
        let mut left = &words[..];
        for run in runs {
            let Some((these, rest)) = left.split_at_checked(run.words as usize) else {
                return Err(CardError::Lost("a write names more words than it has".to_owned()));
            };
            self.card.write_block(run.at, these)?;
            left = rest;
        }
        self.after_write(runs);
        // Before the commit is read back: a function that counts as bound is guarded.
        self.take_guards();
        Ok((ControlReply::Done, Vec::new()))
    }

    fn flows_by_dag(&mut self) -> Vec<FlowTableUse> {
        let uses: Vec<_> = self.datapath().tasks.flow_uses().collect();
        let described = uses.into_iter().map(|(uid, flows, evicted)| {
            let uid = DagUid::from_raw(uid);
            let fast_flows = u32::try_from(self.fast.flows_of(uid.row())).unwrap_or(flows);
            FlowTableUse { uid, flows, fast_flows, evicted }
        });
        described.collect()
    }

    fn observe(&mut self) -> Observation {
        let accesses = self.card.accesses();
        let (packets_in, packets_out, drops) = self.card.totals();
        let drops = DropCause::ALL.iter().zip(drops).filter(|(_, packets)| *packets > 0);
        let mut tasks = self.datapath().tasks.observe();
        tasks.extend(self.datapath().modules.observe());
        Observation {
            ports: self.switch.observe(),
            tasks,
            flows: self.datapath().tasks.flows(),
            flows_by_dag: self.flows_by_dag(),
            fast_flows: self.fast.totals().0,
            fast_packets: self.fast.totals().1,
            configurations: self.datapath().tasks.configurations().0,
            configurations_refused: self.datapath().tasks.configurations().1,
            loads: accesses.loads,
            table_words: accesses.table_words,
            packets_in,
            packets_out,
            drops: drops.map(|(cause, packets)| (format!("{cause:?}"), packets)).collect(),
        }
    }
}
