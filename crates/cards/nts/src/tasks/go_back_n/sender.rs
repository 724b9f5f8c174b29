//! Packets that an end has sent and its peer has not acknowledged.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

use super::header::{self, Header, Kind};
use crate::DropReason;
use crate::wire::{self, Frame, Layout};

/// Acknowledgements of the same number that say as much as a NACK, as in TCP (RFC 5681, section 3.2).
const DUPLICATES: u32 = 3;
/// A timeout doubles this often at most.
const DOUBLINGS_MAX: u32 = 6;

/// Phase of the sending half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// Nothing was sent, or all was given up.
    Closed,
    /// The peer was asked for its token.
    Opening { stream: u32 },
    /// Packets are sent.
    Open { stream: u32, token: u32 },
}

/// Packets to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DuePackets {
    Nothing,
    Open,
    /// All that is not acknowledged, from the oldest on.
    All,
}

/// Limits of the sending half.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Packets that are kept at most.
    pub(super) window: usize,
    /// Bytes of the longest frame.
    pub(super) frame_bytes_max: usize,
    pub(super) timeout: Duration,
    /// Number of repetitions in a row without an acknowledgement.
    pub(super) retries_max: u32,
}

/// A frame with room for the transport's headers, and where in it they are.
#[derive(Debug)]
struct KeptFrame {
    frame: Vec<u8>,
    layout: Layout,
}

/// The sending half of an end. All memory is taken when it is made.
#[derive(Debug)]
pub(super) struct Sender {
    limits: Limits,
    kept: VecDeque<KeptFrame>,
    free: Vec<Vec<u8>>,
    phase: Phase,
    /// The number of the first kept packet.
    base: u32,
    due: Option<Timestamp>,
    /// Number of repetitions since the last acknowledgement of something new.
    retries: u32,
    duplicates: u32,
    /// All was sent again for a report of the peer since then.
    has_gone_back: bool,
}

impl Sender {
    pub(super) fn new(limits: Limits) -> Self {
        let frames = (0..limits.window).map(|_| Vec::with_capacity(limits.frame_bytes_max));
        Self {
            limits,
            kept: VecDeque::with_capacity(limits.window),
            free: frames.collect(),
            phase: Phase::Closed,
            base: 0,
            due: None,
            retries: 0,
            duplicates: 0,
            has_gone_back: false,
        }
    }

    /// The same with other limits. What is kept stays, where it is more than the window too: then nothing is added
    /// until there is room.
    pub(super) fn with_limits(self, limits: Limits) -> Self {
        let mut new = Self::new(limits);
        new.free.truncate(limits.window.saturating_sub(self.kept.len()));
        let mut kept = self.kept;
        kept.reserve(new.free.len());
        Self { limits, kept, free: new.free, ..self }
    }

    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) const fn due(&self) -> Option<Timestamp> {
        self.due
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    fn outstanding(&self) -> u32 {
        self.kept.len() as u32
    }

    /// The number of the next packet.
    pub(super) fn next(&self) -> u32 {
        self.base.wrapping_add(self.outstanding())
    }

    /// Asks for a token of another stream; what is kept gets its numbers.
    pub(super) fn open(&mut self, stream: u32, now: Timestamp) {
        self.phase = Phase::Opening { stream };
        self.base = stream;
        self.wait_from(now);
    }

    /// Keeps a copy of the next packet, where the window has room.
    pub(super) fn keep(&mut self, bytes: &[u8], layout: Layout, now: Timestamp) {
        let Some(mut frame) = self.free.pop() else { return };
        frame.clear();
        frame.extend_from_slice(bytes);
        self.kept.push_back(KeptFrame { frame, layout });
        if self.due.is_none() {
            self.wait_from(now);
        }
    }

    /// Waits for an acknowledgement, longer each time.
    fn wait_from(&mut self, now: Timestamp) {
        self.due = Some(now + self.limits.timeout * (1 << self.retries.min(DOUBLINGS_MAX)));
        (self.duplicates, self.has_gone_back) = (0, false);
    }

    /// The peer's token for the stream that was to be opened.
    pub(super) fn accept(
        &mut self,
        header: &Header,
        now: Timestamp,
    ) -> Result<DuePackets, DropReason> {
        match self.phase {
            Phase::Opening { stream } if stream == header.stream => {
                self.phase = Phase::Open { stream, token: header.token };
                self.wait_from(now);
                Ok(DuePackets::All)
            }
            Phase::Open { stream, token } if (stream, token) == (header.stream, header.token) => {
                Ok(DuePackets::Nothing)
            }
            _ => Err(DropReason::UnknownStream),
        }
    }

    fn check(&self, header: &Header) -> Result<(), DropReason> {
        let Header { stream, token, .. } = *header;
        if self.phase == (Phase::Open { stream, token }) {
            Ok(())
        } else {
            Err(DropReason::UnknownStream)
        }
    }

    /// Takes in an ACK or a NACK.
    pub(super) fn acknowledge(
        &mut self,
        header: &Header,
        now: Timestamp,
    ) -> Result<DuePackets, DropReason> {
        self.check(header)?;
        let count = header.number.wrapping_sub(self.base);
        if count > self.outstanding() {
            // One from before the last one is late, and nothing is wrong.
            let is_late = count.cast_signed() < 0;
            return if is_late {
                Ok(DuePackets::Nothing)
            } else {
                Err(DropReason::UnexpectedReply)
            };
        }
        if count > 0 {
            self.forget(count as usize);
            self.base = header.number;
            self.retries = 0;
            self.wait_from(now);
        }
        if self.kept.is_empty() {
            self.due = None;
            return Ok(DuePackets::Nothing);
        }
        if count == 0 {
            self.duplicates += 1;
        }
        let goes_back = header.kind == Kind::Nack || self.duplicates >= DUPLICATES;
        if goes_back && !self.has_gone_back {
            self.wait_from(now);
            self.has_gone_back = true;
            return Ok(DuePackets::All);
        }
        Ok(DuePackets::Nothing)
    }

    /// The peer does not know the stream: another one is to be opened. `None` where nothing is kept for it, or that was
    /// tried too often.
    pub(super) fn reset(&mut self, header: &Header) -> Result<Option<()>, DropReason> {
        self.check(header)?;
        self.retries = self.retries.saturating_add(1);
        let opens = !self.kept.is_empty() && self.retries <= self.limits.retries_max;
        Ok(opens.then_some(()))
    }

    /// The time is over; `None` where that happened too often.
    pub(super) fn time_out(&mut self, now: Timestamp) -> Option<DuePackets> {
        self.retries = self.retries.saturating_add(1);
        if self.retries > self.limits.retries_max {
            return None;
        }
        self.wait_from(now);
        Some(match self.phase {
            Phase::Closed => DuePackets::Nothing,
            Phase::Opening { .. } => DuePackets::Open,
            Phase::Open { .. } => DuePackets::All,
        })
    }

    /// Gives all up that is not acknowledged; says how many packets that are.
    pub(super) fn give_up(&mut self) -> u64 {
        let count = self.kept.len();
        self.forget(count);
        (self.phase, self.due, self.retries) = (Phase::Closed, None, 0);
        count as u64
    }

    /// Frees the places of the first packets.
    fn forget(&mut self, count: usize) {
        for KeptFrame { mut frame, .. } in self.kept.drain(..count) {
            frame.clear();
            // Frames of before a change of the limits may be shorter, or too many.
            frame.reserve(self.limits.frame_bytes_max);
            self.free.push(frame);
        }
        self.free.truncate(self.limits.window.saturating_sub(self.kept.len()));
    }

    /// All that is kept, with its headers; oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = (&[u8], &Layout, Header)> {
        let (stream, token) = match self.phase {
            Phase::Open { stream, token } => (stream, token),
            Phase::Opening { stream } => (stream, 0),
            Phase::Closed => (0, 0),
        };
        (0_u32..).zip(&self.kept).map(move |(step, kept)| {
            let number = self.base.wrapping_add(step);
            let header = Header { kind: Kind::Data, stream, token, number };
            (kept.frame.as_slice(), &kept.layout, header)
        })
    }

    pub(super) fn save(&self, now: Timestamp) -> SavedSender {
        SavedSender {
            phase: self.phase,
            base: self.base,
            left: self.due.map(|due| due.since(now)),
            retries: self.retries,
            frames: self.kept.iter().map(|kept| kept.frame.clone()).collect(),
        }
    }

    /// Takes over what was saved. `Err` has what is wrong with a packet.
    pub(super) fn restore(&mut self, saved: &SavedSender, now: Timestamp) -> Result<(), String> {
        for (at, frame) in saved.frames.iter().enumerate() {
            match wire::parse(frame) {
                Ok(Frame::Ip(layout)) if header::is_data(frame, &layout) => {
                    self.keep(frame, layout, now);
                }
                _ => return Err(format!("packet {at} is not one of the transport")),
            }
        }
        (self.phase, self.base, self.retries) = (saved.phase, saved.base, saved.retries);
        let left = saved.left.unwrap_or(self.limits.timeout);
        self.due = (!self.kept.is_empty()).then(|| now + left);
        Ok(())
    }
}

/// A [`Sender`] as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedSender {
    phase: Phase,
    base: u32,
    left: Option<Duration>,
    retries: u32,
    pub(super) frames: Vec<Vec<u8>>,
}
