//! Loads: packets that the card makes for a DAG, at a rate, for some time.
//!
//! A load is like a port that is always full: it gets as many turns as one, and what the machine cannot make
//! in time is not made, so that nothing is late. Its packets end here, counted, and leave by no port. A load
//! that nobody reads from ends.

use std::collections::VecDeque;
use std::time::Duration;

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use snic_card_sim::LoadMeter;
use snic_domain::{DagUid, Timestamp};
use snic_nts::{Packet, Pool};
use snic_ports::generator::{GeneratedLoad, LoadReading};
use snic_tables::DropCause;

use crate::frame_patterns::FramePattern;

/// Loads of a card at once: as many as the daemon has, which shares them between callers.
pub(crate) const LOADS_MAX: usize = 8;
/// Frames of a load that one turn of the card makes: as many as one look at a port takes.
const BATCH: u32 = 32;
/// Time that a load may fall behind its rate and catch up again.
const LAG_MAX: Duration = Duration::from_millis(1);
/// Time that a load lives that nobody reads from.
const PATIENCE: Duration = Duration::from_secs(10);
const NANOS: u128 = 1_000_000_000;

/// Names a load of this card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadId(pub(crate) u64);

#[derive(Debug)]
struct Load {
    id: LoadId,
    uid: DagUid,
    pattern: FramePattern,
    random: ChaCha8Rng,
    rate_bps: u128,
    stop: Timestamp,
    read_at: Timestamp,
    /// When its rate was last paid in.
    paid_at: Timestamp,
    /// Credit for sending, in bits times 10^9.
    credit: u128,
    /// The next frame.
    next: usize,
    sent: u64,
    /// Frames that are left of this turn.
    turn: u32,
    meter: LoadMeter,
}

/// A frame that is due.
#[derive(Debug)]
pub(crate) struct DueFrame {
    pub(crate) load: LoadId,
    pub(crate) uid: DagUid,
    pub(crate) packet: Packet,
}

/// The loads of a card.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// In the order of their turns.
    running: VecDeque<Load>,
    begun: u64,
}

/// Why a load does not begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LoadRefused {
    TooMany,
    Invalid(String),
}

impl Load {
    /// Cost of the next frame.
    fn cost(&self) -> u128 {
        self.pattern.bytes(self.next) as u128 * 8 * NANOS
    }

    /// Pays in what its rate allows since the last time, of which it keeps as much as it may catch up.
    fn pay(&mut self, now: Timestamp) {
        let until = now.min(self.stop);
        let nanos = until.since(self.paid_at).as_nanos();
        self.paid_at = self.paid_at.max(until);
        let most = self.rate_bps * LAG_MAX.as_nanos() + self.cost();
        self.credit = (self.credit + self.rate_bps * nanos).min(most);
    }

    fn is_due(&self) -> bool {
        self.credit >= self.cost()
    }

    /// From now until the next frame is due; `None` where none will be.
    fn due_in(&self, now: Timestamp) -> Option<Duration> {
        let nanos = self.cost().saturating_sub(self.credit).div_ceil(self.rate_bps.max(1));
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        (wait.is_zero() || now + wait < self.stop).then_some(wait)
    }
}

impl Loads {
    pub(crate) fn begin(
        &mut self,
        now: Timestamp,
        load: &GeneratedLoad,
        seed: u64,
    ) -> Result<LoadId, LoadRefused> {
        if self.running.len() >= LOADS_MAX {
            return Err(LoadRefused::TooMany);
        }
        if load.rate_bps == 0 {
            return Err(LoadRefused::Invalid("a rate of 0".to_owned()));
        }
        let pattern = FramePattern::new(&load.packets).map_err(LoadRefused::Invalid)?;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let next = pattern.choose(0, &mut random);
        self.begun += 1;
        let (id, stop) = (LoadId(self.begun), now + load.duration);
        self.running.push_back(Load {
            id,
            uid: load.dag(),
            pattern,
            random,
            rate_bps: load.rate_bps.into(),
            stop,
            read_at: now,
            paid_at: now,
            credit: 0,
            next,
            sent: 0,
            turn: 0,
            meter: LoadMeter::new(now, stop),
        });
        Ok(id)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Ends one, if it is there.
    pub(crate) fn end(&mut self, id: LoadId) {
        self.running.retain(|load| load.id != id);
    }

    /// The card stood still for so long: meanwhile nobody could read. The time in which a load sends is not longer for it.
    pub(crate) fn postpone_ends(&mut self, by: Duration) {
        self.running.iter_mut().for_each(|load| load.read_at = load.read_at + by);
    }

    /// Ends those that nobody reads from, and begins a turn.
    pub(crate) fn begin_turn(&mut self, now: Timestamp) {
        self.running.retain(|load| now.since(load.read_at) < PATIENCE);
        for load in &mut self.running {
            load.pay(now);
            load.turn = BATCH;
        }
    }

    /// The next frame of this turn, of one load after the other; `None` where none is due or no buffer is
    /// free.
    pub(crate) fn due(&mut self, pool: &Pool) -> Option<DueFrame> {
        let at = self.running.iter().position(|load| load.turn > 0 && load.is_due())?;
        let mut load = self.running.remove(at)?;
        load.turn -= 1;
        let made = load.pattern.make(load.next, load.sent, pool);
        let due = made.map(|packet| {
            load.credit -= load.cost();
            load.sent += 1;
            load.next = load.pattern.choose(load.sent, &mut load.random);
            // A frame is shorter than the pool's buffers.
            load.meter.offered(packet.len() as u32);
            DueFrame { load: load.id, uid: load.uid, packet }
        });
        self.running.push_back(load);
        due
    }

    /// Time until a frame is due; `None` where none will be.
    pub(crate) fn due_in(&self, now: Timestamp) -> Option<Duration> {
        self.running.iter().filter_map(|load| load.due_in(now)).min()
    }

    fn meter(&mut self, id: LoadId) -> Option<&mut LoadMeter> {
        self.running.iter_mut().find(|load| load.id == id).map(|load| &mut load.meter)
    }

    /// A frame of a load left the DAG after this time on the card.
    pub(crate) fn served(&mut self, id: LoadId, bytes: usize, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(meter) = self.meter(id) {
            // A frame is shorter than the pool's buffers.
            meter.served(bytes as u32, nanos);
        }
    }

    /// A frame of a load was dropped.
    pub(crate) fn dropped(&mut self, id: LoadId, cause: DropCause) {
        if let Some(meter) = self.meter(id) {
            meter.dropped(cause);
        }
    }

    /// An NT made a frame of one of a load.
    pub(crate) fn made(&mut self, id: LoadId) {
        if let Some(meter) = self.meter(id) {
            meter.made();
        }
    }

    /// Counts of a load's frames; `None` where there is no such load.
    pub(crate) fn read(&mut self, id: LoadId, now: Timestamp) -> Option<LoadReading> {
        let load = self.running.iter_mut().find(|load| load.id == id)?;
        load.read_at = now;
        load.pay(now);
        let mut reading = load.meter.read(now);
        // What it may catch up is still to come when its time is over.
        reading.is_sending |= load.is_due();
        Some(reading)
    }

    /// The power failed: loads are gone.
    pub(crate) fn clear(&mut self) {
        self.running.clear();
    }
}

#[cfg(test)]
mod tests {
    use snic_ports::generator::{GeneratedHeaders, GeneratedPackets};

    use super::*;
    use crate::FRAME_BYTES_MAX;

    fn at(micros: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_micros(micros)
    }

    fn load(rate_bps: u64, bytes: u32, millis: u64) -> GeneratedLoad {
        let headers = GeneratedHeaders {
            source: "198.18.0.1".parse().expect("an address"),
            destination: "198.19.0.1".parse().expect("an address"),
            is_tcp: false,
            source_port: 1_024,
            destination_port: 9,
            flows: 1,
        };
        let packets = GeneratedPackets::Mix { sizes: vec![(bytes, 1)], headers };
        let duration = Duration::from_millis(millis);
        GeneratedLoad { uid: 7, rate_bps, packets, duration }
    }

    fn turn(loads: &mut Loads, now: Timestamp, pool: &Pool) -> u64 {
        loads.begin_turn(now);
        let mut frames = 0;
        while loads.due(pool).is_some() {
            frames += 1;
        }
        frames
    }

    #[test]
    fn a_load_sends_what_its_rate_is_until_its_time_is_over() {
        let pool = Pool::new(8, FRAME_BYTES_MAX);
        let mut loads = Loads::default();
        let id = loads.begin(at(0), &load(100_000_000, 1_000, 10), 1).expect("room");
        let mut frames = 0;
        for micros in (0..20_000).step_by(50) {
            frames += turn(&mut loads, at(micros), &pool);
        }
        // 100 Mbit/s for 10 ms are 10^6 bits: 125 frames of 8,000.
        assert_eq!(frames, 125);
        let reading = loads.read(id, at(20_000)).expect("it is there");
        assert_eq!((reading.total.packets_offered, reading.total.bytes_offered), (125, 125_000));
        assert_eq!((reading.total.elapsed, reading.is_sending), (Duration::from_millis(10), false));
        assert_eq!(loads.due_in(at(20_000)), None, "nothing is due any more");
    }

    #[test]
    fn what_a_slow_machine_cannot_make_is_not_made_later() {
        let pool = Pool::new(8, FRAME_BYTES_MAX);
        let mut loads = Loads::default();
        loads.begin(at(0), &load(1_000_000_000, 1_000, 1_000), 1).expect("room");
        // 100 ms without a turn: a millisecond of it may be caught up (125 frames), 32 in a turn.
        let frames: Vec<u64> = (0..5).map(|_| turn(&mut loads, at(100_000), &pool)).collect();
        assert_eq!(frames, [32, 32, 32, 30, 0]);
        assert_eq!(loads.due_in(at(100_000)), Some(Duration::from_micros(8)));
    }

    #[test]
    fn a_load_that_has_to_catch_up_when_its_time_is_over_is_still_sending() {
        let pool = Pool::new(8, FRAME_BYTES_MAX);
        let mut loads = Loads::default();
        let id = loads.begin(at(0), &load(1_000_000_000, 1_000, 10), 1).expect("room");
        let readings: Vec<(u64, bool)> = (0..6)
            .map(|_| {
                let reading = loads.read(id, at(10_000)).expect("it is there");
                turn(&mut loads, at(10_000), &pool);
                (reading.total.packets_offered, reading.is_sending)
            })
            .collect();
        let sending = [(0, true), (32, true), (64, true), (96, true)];
        assert_eq!(readings[..4], sending);
        assert_eq!(readings[4..], [(126, false); 2], "a millisecond, and the frame that was next");
    }

    #[test]
    fn loads_take_turns_and_none_without_a_buffer() {
        let pool = Pool::new(10, FRAME_BYTES_MAX);
        let mut loads = Loads::default();
        let ids: Vec<_> = (0..LOADS_MAX as u64)
            .map(|_| loads.begin(at(0), &load(1_000_000_000, 1_000, 1_000), 1).expect("room"))
            .collect();
        let more = loads.begin(at(0), &load(1, 64, 1), 1);
        assert_eq!(more, Err(LoadRefused::TooMany));
        loads.begin_turn(at(100));
        let held: Vec<_> = std::iter::from_fn(|| loads.due(&pool)).collect();
        let of: Vec<_> = held.iter().map(|due| due.load).collect();
        assert_eq!(of, [&ids[..], &ids[..2]].concat());
        let offered = |loads: &mut Loads, id| {
            loads.read(id, at(100)).expect("it is there").total.packets_offered
        };
        assert_eq!(ids.iter().map(|id| offered(&mut loads, *id)).sum::<u64>(), 10);
    }

    #[test]
    fn a_load_that_nobody_reads_from_ends() {
        let mut loads = Loads::default();
        let first = loads.begin(at(0), &load(1_000, 64, 60_000), 1).expect("room");
        let second = loads.begin(at(0), &load(1_000, 64, 60_000), 1).expect("room");
        loads.read(first, at(6_000_000)).expect("it is there");
        loads.postpone_ends(Duration::from_secs(60));
        loads.begin_turn(at(69_000_000));
        assert_eq!(loads.running.len(), 2, "a minute in which nobody could read");
        loads.begin_turn(at(71_000_000));
        assert!(loads.read(second, at(71_000_000)).is_none());
        loads.end(first);
        assert!(loads.is_empty());
    }

    #[test]
    fn a_load_without_a_rate_or_a_frame_is_refused() {
        let mut loads = Loads::default();
        for load in [load(0, 64, 1), load(1, 13, 1)] {
            assert!(matches!(loads.begin(at(0), &load, 1), Err(LoadRefused::Invalid(_))));
        }
    }
}
