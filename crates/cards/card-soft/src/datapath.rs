//! The frames that are on the card: their bytes, by the numbers that the model knows them by.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use snic_card_sim::{FrameAtNt, FrameId, Frames, MadeFrame, NtOutcome, Preparation, Sighting};
use snic_domain::{DagUid, NtNumber, Timestamp};
use snic_nts::{Direction, Packet, Pool, Verdict};
use snic_tables::{DagRow, DropCause, GuardRow};

use crate::captures::Captures;
use crate::flows::{FlowOffer, FrameFlow};
use crate::loads::{DueFrame, LoadId, Loads};
use crate::modules::Modules;
use crate::tasks::Tasks;

/// The source and the destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameRoute {
    /// The port that it came in by.
    pub(crate) from: usize,
    /// The function that it is for, where it was classified as one for a function.
    pub(crate) to: Option<u16>,
}

/// A frame that leaves the card.
#[derive(Debug)]
pub(crate) struct DepartingFrame {
    pub(crate) packet: Packet,
    pub(crate) way: FrameRoute,
    /// An NT sends it back to where it came from.
    pub(crate) back: bool,
    /// The card's time.
    pub(crate) at: Timestamp,
    /// Rule for further packets of its flow, where those may pass elsewhere.
    pub(crate) offer: Option<FlowOffer>,
}

/// A frame on the card.
#[derive(Debug)]
struct HeldFrame {
    packet: Packet,
    way: FrameRoute,
    /// Tells it from all others, for people who watch.
    serial: u64,
    /// The load that it is of, and since when it is on the card. It leaves by no port.
    load: Option<(LoadId, Timestamp)>,
    /// A timer of this NT made it: NTs do nothing with it up to this one.
    behind: Option<NtNumber>,
    flow: FrameFlow,
    /// State of the card in which it came.
    epoch: u32,
}

/// A frame that a timer of an NT made.
#[derive(Debug)]
pub(crate) struct TimerFrame {
    pub(crate) uid: DagUid,
    nt: NtNumber,
    pub(crate) packet: Packet,
}

/// The route of frames that the card makes: they come in by no port.
const NO_ROUTE: FrameRoute = FrameRoute { from: usize::MAX, to: None };

/// The frames, and what works on them.
#[derive(Debug)]
pub(crate) struct Datapath {
    places: Vec<Option<HeldFrame>>,
    /// Frames so far.
    serial: u64,
    free: Vec<u32>,
    made: VecDeque<MadeFrame>,
    leaving: VecDeque<DepartingFrame>,
    by_timers: VecDeque<TimerFrame>,
    pub(crate) tasks: Tasks,
    pub(crate) modules: Modules,
    pub(crate) captures: Captures,
    pub(crate) loads: Loads,
    /// Control frames that ports of a bench refused, by port. A card's switch counts those of its ports itself.
    pub(crate) control: BTreeMap<usize, u64>,
    /// Whether packets of flows may pass elsewhere.
    pub(crate) offers: bool,
    /// Number of times that something was about to change.
    epoch: u32,
    /// Rows of functions' ports that changed and that the switch has not taken yet.
    pub(crate) guards: BTreeMap<u16, Option<GuardRow>>,
}

impl Datapath {
    /// Room for as many frames as the pool has buffers.
    pub(crate) fn new(pool: &Pool, random: ChaCha8Rng, modules: Modules) -> Self {
        let frames = pool.capacity();
        Self {
            places: (0..frames).map(|_| None).collect(),
            serial: 0,
            free: (0..frames as u32).rev().collect(),
            made: VecDeque::with_capacity(frames),
            leaving: VecDeque::with_capacity(frames),
            by_timers: VecDeque::with_capacity(frames),
            tasks: Tasks::new(pool, random),
            modules,
            captures: Captures::default(),
            loads: Loads::default(),
            control: BTreeMap::new(),
            offers: false,
            epoch: 0,
            guards: BTreeMap::new(),
        }
    }

    /// Takes a frame in; `None`, with the frame gone, where there is no place.
    pub(crate) fn hold(&mut self, packet: Packet, way: FrameRoute) -> Option<FrameId> {
        self.place(packet, way, None, None)
    }

    /// The time until a load or a timer of an NT is due.
    pub(crate) fn due_in(&self, now: Timestamp) -> Option<Duration> {
        self.loads.due_in(now).into_iter().chain(self.tasks.due_in(now)).min()
    }

    /// Runs the timers of NTs that are due. The frames that they make are in [`Datapath::by_timer`].
    pub(crate) fn wake_tasks(&mut self, now: Timestamp) {
        let Self { tasks, by_timers, .. } = self;
        tasks.wake(now, |(uid, nt), packet| {
            by_timers.push_back(TimerFrame { uid: DagUid::from_raw(uid), nt, packet });
        });
    }

    /// The next frame that a timer made.
    pub(crate) fn by_timer(&mut self) -> Option<TimerFrame> {
        self.by_timers.pop_front()
    }

    /// Takes in a frame that a timer made; `None`, with the frame gone, where there is no place.
    pub(crate) fn hold_by_timer(&mut self, made: TimerFrame, way: FrameRoute) -> Option<FrameId> {
        self.place(made.packet, way, None, Some(made.nt))
    }

    /// Takes a frame in that a load made; `None`, with the frame gone, where there is no place.
    pub(crate) fn hold_made(&mut self, now: Timestamp, due: DueFrame) -> Option<FrameId> {
        let place = self.place(due.packet, NO_ROUTE, Some((due.load, now)), None);
        if place.is_none() {
            self.loads.dropped(due.load, DropCause::StoreFull);
        }
        place
    }

    fn place(
        &mut self,
        packet: Packet,
        way: FrameRoute,
        load: Option<(LoadId, Timestamp)>,
        behind: Option<NtNumber>,
    ) -> Option<FrameId> {
        let at = self.free.pop()?;
        self.serial += 1;
        // What a timer made came through none of the NTs before it.
        let flow = if behind.is_some() { FrameFlow::Unruled } else { FrameFlow::New };
        let held =
            HeldFrame { packet, way, serial: self.serial, load, behind, flow, epoch: self.epoch };
        self.places[at as usize] = Some(held);
        Some(FrameId(at))
    }

    fn take(&mut self, frame: FrameId) -> Option<HeldFrame> {
        let taken = self.places.get_mut(frame.0 as usize)?.take()?;
        self.free.push(frame.0);
        Some(taken)
    }

    /// Something is about to change: no frame that is here says anything of later ones.
    pub(crate) fn end_offers(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.leaving.iter_mut().for_each(|leaving| leaving.offer = None);
    }

    /// The next frame that leaves the card.
    pub(crate) fn leaving(&mut self) -> Option<DepartingFrame> {
        self.leaving.pop_front()
    }

    /// Keeps what the NT made while a frame passed.
    fn hold_emitted(&mut self, way: FrameRoute, load: Option<(LoadId, Timestamp)>) {
        for (direction, packet) in self.tasks.made() {
            let Some(at) = self.free.pop() else { continue };
            self.serial += 1;
            // A frame is shorter than the pool's buffers.
            let bytes = packet.len() as u32;
            let (behind, flow) = (None, FrameFlow::Unruled);
            let held = HeldFrame {
                packet,
                way,
                serial: self.serial,
                load,
                behind,
                flow,
                epoch: self.epoch,
            };
            self.places[at as usize] = Some(held);
            if let Some((load, _)) = load {
                self.loads.made(load);
            }
            let back = direction == Direction::Back;
            self.made.push_back(MadeFrame { frame: FrameId(at), bytes, back });
        }
    }
}

impl Frames for Datapath {
    fn pass(&mut self, passage: &FrameAtNt) -> NtOutcome {
        let key = (passage.uid.raw(), passage.nt);
        // A branch of a fork that nobody waits for may come after the packet has left.
        let held = &mut self.places[passage.frame.0 as usize];
        let Some(HeldFrame { packet, way, load, behind, flow, .. }) = held else {
            return NtOutcome::On { bytes: passage.bytes };
        };
        if let Some(nt) = behind {
            if *nt == passage.nt {
                *behind = None;
            }
            return NtOutcome::On { bytes: passage.bytes };
        }
        let (way, load) = (*way, *load);
        let by_module = self.modules.process(passage, packet, &mut self.tasks.context(passage.now));
        if by_module.is_some() {
            // It may have changed the frame by bytes that are in no key.
            *flow = FrameFlow::Unruled;
        }
        let verdict = by_module.or_else(|| self.tasks.process(key, (packet, flow), passage.now));
        let Some(verdict) = verdict else {
            return NtOutcome::On { bytes: passage.bytes };
        };
        let bytes = packet.len() as u32;
        self.hold_emitted(way, load);
        match verdict {
            Verdict::Forward => NtOutcome::On { bytes },
            Verdict::Reply => NtOutcome::Back { bytes },
            Verdict::Consume => NtOutcome::UsedUp,
            Verdict::Drop(_) => NtOutcome::Dropped,
        }
    }

    fn made(&mut self) -> Option<MadeFrame> {
        self.made.pop_front()
    }

    fn saw(&mut self, sighting: &Sighting) {
        if let Some(Some(held)) = self.places.get(sighting.frame.0 as usize) {
            self.captures.saw(sighting, held.serial, held.packet.bytes());
        }
    }

    fn out(&mut self, frame: FrameId, back: bool, now: Timestamp) {
        match self.take(frame) {
            Some(HeldFrame { packet, load: Some((load, since)), .. }) => {
                self.loads.served(load, packet.len(), now.since(since));
            }
            // The DAG has not the NT any more that made it.
            Some(HeldFrame { behind: Some(_), .. }) => {}
            Some(HeldFrame { packet, way, load: None, flow, epoch, .. }) => {
                let may_be = self.offers && epoch == self.epoch;
                let offer = if may_be { self.tasks.offer(&flow) } else { None };
                let offer = offer.filter(|offer| offer.rule.is_back() == back);
                self.leaving.push_back(DepartingFrame { packet, way, back, at: now, offer });
            }
            None => {}
        }
    }

    fn gone(&mut self, frame: FrameId, cause: DropCause) {
        if let Some(HeldFrame { load: Some((load, _)), .. }) = self.take(frame) {
            self.loads.dropped(load, cause);
        }
    }

    fn committed(
        &mut self,
        now: Timestamp,
        dags: &[(u16, Option<DagRow>)],
        configurations: &BTreeMap<(u32, u32), Arc<[u8]>>,
    ) {
        for (row, dag) in dags {
            match dag {
                None => {
                    self.tasks.row_is_gone(now, *row);
                    self.modules.row_is_gone(now, *row);
                }
                Some(dag) => {
                    let came = configurations.get(&(dag.uid, dag.configuration));
                    let came = came.map(AsRef::as_ref);
                    self.tasks.row_is(now, dag, came);
                    self.modules.row_is(dag, came);
                }
            }
        }
    }

    fn guarded(&mut self, ports: &[(u16, Option<GuardRow>)]) {
        self.guards.extend(ports.iter().copied());
    }

    fn load_began(&mut self, region: u8, bitstream: &Arc<[u8]>) {
        self.modules.load_began(region, bitstream);
    }

    fn preparation(&mut self, region: u8) -> Preparation {
        self.modules.preparation(region)
    }

    fn emptied(&mut self, region: u8) {
        self.modules.emptied(region);
    }

    fn power_lost(&mut self) {
        for at in 0..self.places.len() as u32 {
            self.take(FrameId(at));
        }
        self.by_timers.clear();
        self.tasks.clear();
        self.modules.clear();
        self.loads.clear();
    }
}
