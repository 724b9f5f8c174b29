//! The two halves of a connection: what was sent and is not acknowledged, and what is expected.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

use super::shim::{self, Kind, Shim};
use crate::wire::{self, Frame};

/// How many former incarnations of the peer are remembered, so that a late packet of one does not
/// start it again.
const RETIRED: usize = 4;
/// A timeout doubles this often at most.
const DOUBLINGS_MAX: u32 = 6;

/// What was sent and is not acknowledged: a ring of copies, in place at the number modulo its length,
/// a power of two, so that places go on when numbers start again at 0.
#[derive(Debug)]
pub(super) struct Sender {
    frames: Vec<Vec<u8>>,
    window: usize,
    incarnation: u32,
    base: u32,
    next: u32,
    due: Option<Timestamp>,
    retries: u32,
    /// The number that a gap was last reported for: one report starts one repetition.
    went_back_to: Option<u32>,
}

impl Sender {
    pub(super) fn new(window: usize, frame_bytes_max: usize, incarnation: u32) -> Self {
        let places = 0..window.next_power_of_two();
        let frames = places.map(|_| Vec::with_capacity(frame_bytes_max)).collect();
        Self {
            frames,
            window,
            incarnation,
            base: 0,
            next: 0,
            due: None,
            retries: 0,
            went_back_to: None,
        }
    }

    pub(super) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due
    }

    pub(super) fn is_full(&self) -> bool {
        self.outstanding() as usize >= self.window
    }

    fn outstanding(&self) -> u32 {
        self.next.wrapping_sub(self.base)
    }

    fn place(&self, number: u32) -> usize {
        number as usize % self.frames.len()
    }

    /// Keeps a copy of the packet with the next number.
    pub(super) fn keep(&mut self, frame: &[u8], now: Timestamp, timeout: Duration) {
        let place = self.place(self.next);
        self.frames[place].clear();
        self.frames[place].extend_from_slice(frame);
        self.next = self.next.wrapping_add(1);
        self.due.get_or_insert(now + timeout);
    }

    /// Takes in that everything before `expected` has arrived. Whether that is possible.
    pub(super) fn acknowledge(&mut self, expected: u32, now: Timestamp, timeout: Duration) {
        let count = expected.wrapping_sub(self.base);
        if count == 0 || count > self.outstanding() {
            return;
        }
        self.base = expected;
        self.retries = 0;
        self.due = (self.outstanding() > 0).then(|| now + timeout);
    }

    /// Whether a report that `expected` is missing asks for a repetition.
    pub(super) fn goes_back(&mut self, expected: u32) -> bool {
        expected == self.base
            && self.outstanding() > 0
            && self.went_back_to.replace(expected) != Some(expected)
    }

    /// All packets that are not acknowledged, oldest first.
    pub(super) fn unacknowledged(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.outstanding()).map(|step| {
            let place = self.place(self.base.wrapping_add(step));
            self.frames[place].as_slice()
        })
    }

    /// The time is over: counts a repetition. Whether there may be another one.
    pub(super) fn retry(&mut self, now: Timestamp, timeout: Duration, retries_max: u32) -> bool {
        self.retries += 1;
        self.due = Some(now + timeout * (1 << self.retries.min(DOUBLINGS_MAX)));
        self.retries <= retries_max
    }

    /// Gives up what is not acknowledged.
    pub(super) fn give_up(&mut self, incarnation: u32) {
        (self.base, self.next, self.due, self.retries) = (0, 0, None, 0);
        (self.incarnation, self.went_back_to) = (incarnation, None);
    }

    /// Starts again under another incarnation: what is not acknowledged gets the numbers from 0.
    pub(super) fn start_again(&mut self, incarnation: u32, now: Timestamp, timeout: Duration) {
        let (outstanding, first) = (self.outstanding(), self.place(self.base));
        self.give_up(incarnation);
        self.frames.rotate_left(first);
        self.next = outstanding;
        self.due = (outstanding > 0).then(|| now + timeout);
        for (number, frame) in (0..outstanding).zip(&mut self.frames) {
            let Ok(Frame::Ip(layout)) = wire::parse(frame) else { continue };
            let Ok(shim) = Shim::read(frame, &layout) else { continue };
            let shim = Shim { sequence: number, incarnation, ..shim };
            shim.write(&mut frame[layout.transport..]);
        }
    }

    pub(super) fn save(&self) -> SavedSender {
        SavedSender {
            incarnation: self.incarnation,
            base: self.base,
            frames: self.unacknowledged().map(<[u8]>::to_vec).collect(),
        }
    }

    /// `None` where it does not fit the window.
    pub(super) fn restore(&mut self, saved: &SavedSender, now: Timestamp) -> Option<()> {
        let fits = |frame: &Vec<u8>| frame.len() <= self.frames[0].capacity();
        if saved.frames.len() > self.window || !saved.frames.iter().all(fits) {
            return None;
        }
        self.give_up(saved.incarnation);
        (self.base, self.next) = (saved.base, saved.base);
        for frame in &saved.frames {
            self.keep(frame, now, Duration::ZERO);
        }
        Some(())
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedSender {
    incarnation: u32,
    base: u32,
    pub(super) frames: Vec<Vec<u8>>,
}

/// What to do with a data packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The next one.
    InOrder,
    /// Answer with this; the packet itself is of no use.
    Useless(Kind),
    /// Of a stream that is over.
    Late,
}

/// What is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Receiver {
    peer: Option<u32>,
    pub(super) expected: u32,
    retired: [Option<u32>; RETIRED],
}

impl Receiver {
    /// The incarnation of the peer, as acknowledgements name it; 0 before its first packet.
    pub(super) fn peer(&self) -> u32 {
        self.peer.unwrap_or(0)
    }

    pub(super) fn arrive(&mut self, shim: &Shim) -> Arrival {
        if self.retired.contains(&Some(shim.incarnation)) {
            return Arrival::Late;
        }
        if self.peer != Some(shim.incarnation) {
            if shim.sequence != 0 {
                return Arrival::Useless(Kind::Reset);
            }
            self.retired.rotate_right(1);
            self.retired[0] = self.peer.replace(shim.incarnation);
            self.expected = 0;
        }
        if shim.sequence == self.expected {
            self.expected = self.expected.wrapping_add(1);
            return Arrival::InOrder;
        }
        let is_ahead = shim.sequence.wrapping_sub(self.expected) < u32::MAX / 2;
        Arrival::Useless(if is_ahead { Kind::Nack } else { Kind::Ack })
    }
}

/// The longest a stored frame gets.
pub(super) fn frame_bytes_max(mtu: usize) -> usize {
    mtu + wire::ETHERNET_BYTES + 8 + shim::BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_start_again_at_zero_without_mixing_places() {
        let mut sender = Sender::new(3, 8, 1);
        (sender.base, sender.next) = (u32::MAX - 1, u32::MAX - 1);
        let (now, timeout) = (Timestamp::ZERO, Duration::from_millis(1));
        for frame in [b"a", b"b", b"c"] {
            sender.keep(frame, now, timeout);
        }
        assert!(sender.is_full());
        assert!(sender.unacknowledged().eq([b"a", b"b", b"c"]));
        sender.acknowledge(0, now, timeout);
        assert!(sender.unacknowledged().eq([b"c"]));
        sender.acknowledge(5, now, timeout);
        assert!(sender.unacknowledged().eq([b"c"]), "never sent");
    }
}
