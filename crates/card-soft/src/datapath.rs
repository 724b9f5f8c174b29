//! The frames that are on the card: their bytes, by the numbers that the model knows them by.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use snic_card_sim::{FrameAtNt, FrameId, Frames, MadeFrame, Passed, Sighting};
use snic_domain::Timestamp;
use snic_nts::{Direction, Packet, Pool, Verdict};
use snic_tables::{DagRow, DropCause};

use crate::captures::Captures;
use crate::loads::{DueFrame, LoadId, Loads};
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
pub(crate) struct Leaving {
    pub(crate) packet: Packet,
    pub(crate) way: FrameRoute,
    /// An NT sends it back to where it came from.
    pub(crate) back: bool,
}

/// A frame on the card.
#[derive(Debug)]
struct Held {
    packet: Packet,
    way: FrameRoute,
    /// Tells it from all others, for people who watch.
    serial: u64,
    /// The load that it is of, and since when it is on the card. It leaves by no port.
    load: Option<(LoadId, Timestamp)>,
}

/// The route of frames that the card makes: they come in by no port.
const NO_ROUTE: FrameRoute = FrameRoute { from: usize::MAX, to: None };

/// The frames, and what works on them.
#[derive(Debug)]
pub(crate) struct Datapath {
    places: Vec<Option<Held>>,
    /// Frames so far.
    serial: u64,
    free: Vec<u32>,
    made: VecDeque<MadeFrame>,
    leaving: VecDeque<Leaving>,
    pub(crate) tasks: Tasks,
    pub(crate) captures: Captures,
    pub(crate) loads: Loads,
}

impl Datapath {
    /// Room for as many frames as the pool has buffers.
    pub(crate) fn new(pool: &Pool, random: ChaCha8Rng) -> Self {
        let frames = pool.capacity();
        Self {
            places: (0..frames).map(|_| None).collect(),
            serial: 0,
            free: (0..frames as u32).rev().collect(),
            made: VecDeque::with_capacity(frames),
            leaving: VecDeque::with_capacity(frames),
            tasks: Tasks::new(pool, random),
            captures: Captures::default(),
            loads: Loads::default(),
        }
    }

    /// Takes a frame in; `None`, with the frame gone, where there is no place.
    pub(crate) fn hold(&mut self, packet: Packet, way: FrameRoute) -> Option<FrameId> {
        self.place(packet, way, None)
    }

    /// Takes a frame in that a load made; `None`, with the frame gone, where there is no place.
    pub(crate) fn hold_made(&mut self, now: Timestamp, due: DueFrame) -> Option<FrameId> {
        let place = self.place(due.packet, NO_ROUTE, Some((due.load, now)));
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
    ) -> Option<FrameId> {
        let at = self.free.pop()?;
        self.serial += 1;
        self.places[at as usize] = Some(Held { packet, way, serial: self.serial, load });
        Some(FrameId(at))
    }

    fn take(&mut self, frame: FrameId) -> Option<Held> {
        let taken = self.places.get_mut(frame.0 as usize)?.take()?;
        self.free.push(frame.0);
        Some(taken)
    }

    /// The next frame that leaves the card.
    pub(crate) fn leaving(&mut self) -> Option<Leaving> {
        self.leaving.pop_front()
    }

    /// Keeps what the NT made while a frame passed.
    fn hold_emitted(&mut self, way: FrameRoute, load: Option<(LoadId, Timestamp)>) {
        for (direction, packet) in self.tasks.made() {
            let Some(at) = self.free.pop() else { continue };
            self.serial += 1;
            // A frame is shorter than the pool's buffers.
            let bytes = packet.len() as u32;
            self.places[at as usize] = Some(Held { packet, way, serial: self.serial, load });
            if let Some((load, _)) = load {
                self.loads.made(load);
            }
            let back = direction == Direction::Back;
            self.made.push_back(MadeFrame { frame: FrameId(at), bytes, back });
        }
    }
}

impl Frames for Datapath {
    fn pass(&mut self, passage: &FrameAtNt) -> Passed {
        let key = (passage.uid.raw(), passage.nt);
        // A branch of a fork that nobody waits for may come after the packet has left.
        let held = &mut self.places[passage.frame.0 as usize];
        let Some(Held { packet, way, load, .. }) = held else {
            return Passed::On { bytes: passage.bytes };
        };
        let (way, load) = (*way, *load);
        let Some(verdict) = self.tasks.process(key, packet, passage.now) else {
            return Passed::On { bytes: passage.bytes };
        };
        let bytes = packet.len() as u32;
        self.hold_emitted(way, load);
        match verdict {
            Verdict::Forward => Passed::On { bytes },
            Verdict::Reply => Passed::Back { bytes },
            Verdict::Consume => Passed::UsedUp,
            Verdict::Drop(_) => Passed::Dropped,
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
            Some(Held { packet, load: Some((load, since)), .. }) => {
                self.loads.served(load, packet.len(), now.since(since));
            }
            Some(Held { packet, way, load: None, .. }) => {
                self.leaving.push_back(Leaving { packet, way, back });
            }
            None => {}
        }
    }

    fn gone(&mut self, frame: FrameId, cause: DropCause) {
        if let Some(Held { load: Some((load, _)), .. }) = self.take(frame) {
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
                None => self.tasks.row_is_gone(now, *row),
                Some(dag) => {
                    let came = configurations.get(&(dag.uid, dag.configuration));
                    self.tasks.row_is(now, dag, came.map(AsRef::as_ref));
                }
            }
        }
    }

    fn power_lost(&mut self) {
        for at in 0..self.places.len() as u32 {
            self.take(FrameId(at));
        }
        self.tasks.clear();
        self.loads.clear();
    }
}
