//! Links to other cards: a chain of a DAG runs there, and its packets go and come back.
//!
//! ```text
//!  home card                                                       other card
//!  scheduler ─► queue of the DAG ─► link's port ──────── frame ───────► row of a guest? ─► token bucket ─► its regions
//!      ▲        (a window for all that waits or is away)                    │ no: dropped                      │
//!      └──────────── away: place and version kept ◄───── frame or word ─────┴───────────── link's port ◄───────┘
//! ```
//!
//! A packet that is away keeps its cells of the packet store and its table version, so it finds room when it comes
//! back, and a commit waits for it: for [`AWAY_MILLIS`] at most, when it is lost. What waits for a link or is
//! away may have a part of the packet store for each link ([`WINDOW_PART`]), and of that a DAG no more than twice what is left
//! (dynamic queue length thresholds, Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998): a card that answers slowly, or not at all,
//! fills neither the store nor the window. Packets beyond their promises have half of what is left.
//!
//! DAGs take turns at the port, those first that have promised packets there. A DAG's packets stay in order: the first of them
//! goes for the promised one, as in regions' queues.

mod guests;
mod home;

use std::collections::{BTreeMap, VecDeque};

use snic_domain::CardProfile;

use super::{Plane, Timing};
use crate::links::{LinkCounters, LinkFrame, SentFrame};
use crate::slab::Slab;
use crate::time::Meter;
use crate::wheel::Event;
pub(super) use guests::Visit;
use home::Away;
pub(super) use home::Crossing;

/// Longest time of a packet on its way to another card and back, in milliseconds. A choice: a guest's packet that waits at the other
/// card for its token bucket has to be in profile there, and a commit should end within the 10 ms that a driver looks at it.
const AWAY_MILLIS: u64 = 2;

/// Packets that wait for a link or are away may have 1 / `WINDOW_PART` of the packet store, for each link. At 100 Gbit/s a
/// quarter of 811,008 bytes is 16 µs of packets.
const WINDOW_PART: u64 = 4;

/// Something that waits for a link's port.
#[derive(Debug, Clone, Copy)]
enum Job {
    /// A packet to the other card, by its place and generation.
    Away(u32, u32),
    /// A guest's packet that goes back.
    Back(u32),
}

/// Things of one DAG that wait for a link's port.
#[derive(Debug, Default)]
struct LinkQueue {
    jobs: VecDeque<(Job, u32)>,
    /// Bytes that were promised and have not gone.
    due: i64,
}

#[derive(Debug)]
struct LinkPort {
    meter: Meter,
    /// Queues by the row of the DAG, and whose turn it is.
    queues: BTreeMap<u16, LinkQueue>,
    turns: VecDeque<u16>,
    /// Words without packets, which go before all others.
    notices: VecDeque<LinkFrame>,
    /// Whether it is planned when the port is looked at.
    is_planned: bool,
    /// Bytes of a DAG's packets that wait or are away, by its row.
    away_of: BTreeMap<u16, u64>,
    counters: LinkCounters,
}

impl LinkPort {
    fn push(&mut self, row: u16, (job, bytes): (Job, u32), is_promised: bool) {
        let queue = self.queues.entry(row).or_insert_with(|| {
            self.turns.push_back(row);
            LinkQueue::default()
        });
        queue.jobs.push_back((job, bytes));
        queue.due += if is_promised { i64::from(bytes) } else { 0 };
    }

    /// Takes what goes next.
    fn pop(&mut self) -> Option<Job> {
        let is_due = |row: &u16| self.queues.get(row).is_some_and(|queue| queue.due > 0);
        let turn = self.turns.iter().position(is_due).unwrap_or(0);
        let row = self.turns.remove(turn)?;
        let queue = self.queues.get_mut(&row)?;
        let (job, bytes) = queue.jobs.pop_front()?;
        queue.due = (queue.due - i64::from(bytes)).max(0);
        if queue.jobs.is_empty() {
            self.queues.remove(&row);
        } else {
            self.turns.push_back(row);
        }
        Some(job)
    }

    fn is_idle(&self) -> bool {
        self.notices.is_empty() && self.queues.is_empty()
    }
}

/// The links of a card.
#[derive(Debug)]
pub(crate) struct Links {
    ports: Vec<LinkPort>,
    /// Bytes that may wait or be away, for each link.
    window: u64,
    aways: Slab<Away>,
    pub(super) visits: Slab<Visit>,
    /// When packets that are away are lost, in order: deadline, place, generation.
    overdue: VecDeque<(u64, u32, u32)>,
    /// Number of the last packet that went. It goes on over losses of power, so that no answer from before is one.
    generation: u32,
    /// Frames on their way in, by number.
    coming: BTreeMap<u32, (u8, LinkFrame)>,
    came: u32,
    sent: Vec<SentFrame>,
}

impl Links {
    /// Those of a profile that was checked.
    pub(super) fn new(profile: &CardProfile, timing: &Timing) -> Self {
        let rate = |bps| timing.clock.rate(bps).expect("the profile was checked to have no zero");
        let port = |bps| LinkPort {
            meter: Meter::new(rate(bps)),
            queues: BTreeMap::new(),
            turns: VecDeque::new(),
            notices: VecDeque::new(),
            is_planned: false,
            away_of: BTreeMap::new(),
            counters: LinkCounters::default(),
        };
        let links = profile.links.iter();
        Self {
            ports: links
                .flat_map(|links| (0..links.count).map(|_| port(links.capacity.get())))
                .collect(),
            window: profile.packet_store.get() / WINDOW_PART,
            aways: Slab::default(),
            visits: Slab::default(),
            overdue: VecDeque::new(),
            generation: 0,
            coming: BTreeMap::new(),
            came: 0,
            sent: Vec::new(),
        }
    }

    /// The numbers of what is away go on from those before a loss of power.
    pub(super) const fn goes_on_from(&mut self, before: &Self) {
        self.generation = before.generation;
    }

    pub(crate) fn count(&self) -> u8 {
        self.ports.len() as u8
    }

    pub(crate) fn take_sent(&mut self) -> Vec<SentFrame> {
        std::mem::take(&mut self.sent)
    }

    pub(crate) fn counters(&self, link: u8) -> LinkCounters {
        self.ports.get(usize::from(link)).map(|port| port.counters).unwrap_or_default()
    }

    fn port_of(&mut self, link: u8) -> &mut LinkPort {
        &mut self.ports[usize::from(link)]
    }

    /// Bits of what waits for a link or is away, as the load of an instance there.
    pub(super) fn load(&self, link: u8) -> u64 {
        self.counters(link).away * 8
    }

    /// Finds what must never be.
    pub(super) fn check(&self) -> Result<(), String> {
        for (number, port) in self.ports.iter().enumerate() {
            let of_rows: u64 = port.away_of.values().sum();
            if of_rows != port.counters.away {
                let away = port.counters.away;
                return Err(format!("{away} bytes are away on link {number}, {of_rows} by DAG"));
            }
        }
        let is_kept = self.aways.len() > 0 || self.ports.iter().all(|port| port.away_of.is_empty());
        if is_kept { Ok(()) } else { Err("bytes are away of no packet".into()) }
    }

    /// Finds what a card without packets must not have.
    pub(super) fn check_rest(&self) -> Result<(), String> {
        let (aways, visits) = (self.aways.len(), self.visits.len());
        match (aways, visits) {
            (0, 0) => Ok(()),
            _ => Err(format!("{aways} places are kept for no packet, {visits} visits")),
        }
    }
}

impl Plane {
    /// A frame's last bit is in at `cycle`.
    pub(crate) fn link_arrives(&mut self, link: u8, cycle: u64, frame: LinkFrame) {
        if usize::from(link) >= self.links.ports.len() {
            return;
        }
        self.links.came = self.links.came.wrapping_add(1);
        let arrival = self.links.came;
        self.links.coming.insert(arrival, (link, frame));
        self.wheel.at(cycle.max(self.now), Event::LinkIn { arrival });
    }

    /// The port of a link may be free for what waits.
    pub(super) fn link_free(&mut self, link: u8) {
        self.links.port_of(link).is_planned = false;
        self.serve_link(link);
    }

    /// Sends what waits for a link, as soon as its port is free.
    fn serve_link(&mut self, link: u8) {
        loop {
            let port = self.links.port_of(link);
            if port.is_idle() || port.is_planned {
                return;
            }
            let free_at = port.meter.free_at();
            if free_at > self.now {
                port.is_planned = true;
                return self.wheel.at(free_at, Event::LinkFree { link });
            }
            if let Some(notice) = port.notices.pop_front() {
                self.put_on_link(link, notice);
            } else if let Some(job) = port.pop() {
                let frame = match job {
                    Job::Away(away, generation) => self.frame_of_away(away, generation),
                    Job::Back(packet) => Some(self.frame_of_visit(packet)),
                };
                frame.into_iter().for_each(|frame| self.put_on_link(link, frame));
            }
        }
    }

    fn put_on_link(&mut self, link: u8, frame: LinkFrame) {
        let port = self.links.port_of(link);
        let bytes = u64::from(frame.wire_bytes());
        let served = port.meter.serve(self.now, bytes * 8);
        port.counters.frames_out += 1;
        port.counters.bytes_out += bytes;
        let at = snic_domain::Timestamp::from_nanos(self.timing.clock.nanos(served.end));
        self.links.sent.push(SentFrame { link, at, frame });
    }
}
