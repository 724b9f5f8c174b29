//! Captures: what is seen of a DAG's packets, kept until somebody fetches it.
//!
//! A capture is bounded in sightings and in bytes. When it is full, what is seen is counted and not kept:
//! packets never wait for whoever looks. A capture that nobody fetches from ends.

use std::collections::VecDeque;
use std::time::Duration;

use snic_card_sim::Sighting;
use snic_domain::Timestamp;
use snic_ports::packets::{SeenPacket, SeenPackets};

/// Captures of a card at once.
pub(crate) const CAPTURES_MAX: usize = 8;
/// Sightings that wait to be fetched, of one capture.
const SIGHTINGS_MAX: usize = 8_192;
/// Bytes of packets that wait to be fetched, of one capture.
const BYTES_MAX: usize = 1 << 20;
/// Sightings and bytes of packets that one answer takes.
const ANSWER_SIGHTINGS_MAX: usize = 1_024;
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Time that a capture lives that nobody fetches from.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Capture {
    id: u64,
    uid: u32,
    bytes_each: usize,
    fetched: Timestamp,
    kept: VecDeque<SeenPacket>,
    bytes: usize,
    lost: u64,
}

/// The captures of a card.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    open: Vec<Capture>,
    begun: u64,
}

impl Captures {
    /// Begins one for the packets of a DAG, with the first `bytes` of each; `None` where there are too many.
    pub(crate) fn begin(&mut self, now: Timestamp, uid: u32, bytes_each: u32) -> Option<u64> {
        if self.open.len() >= CAPTURES_MAX {
            return None;
        }
        self.begun += 1;
        self.open.push(Capture {
            id: self.begun,
            uid,
            bytes_each: bytes_each as usize,
            fetched: now,
            kept: VecDeque::new(),
            bytes: 0,
            lost: 0,
        });
        Some(self.begun)
    }

    /// Whether anybody wants to be told.
    pub(crate) const fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Ends one, if it is there.
    pub(crate) fn end(&mut self, id: u64) {
        self.open.retain(|capture| capture.id != id);
    }

    /// The card stood still for so long: meanwhile nobody could fetch.
    pub(crate) fn postpone_ends(&mut self, by: Duration) {
        self.open.iter_mut().for_each(|capture| capture.fetched = capture.fetched + by);
    }

    /// Ends those that nobody fetches from.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        self.open.retain(|capture| now.since(capture.fetched) < PATIENCE);
    }

    /// A packet was seen. Time O(captures) of the card, which are few, and O(bytes kept) of it.
    pub(crate) fn saw(&mut self, sighting: &Sighting, packet: u64, bytes: &[u8]) {
        let uid = sighting.uid.raw();
        for capture in self.open.iter_mut().filter(|capture| capture.uid == uid) {
            let kept = &bytes[..bytes.len().min(capture.bytes_each)];
            if capture.kept.len() >= SIGHTINGS_MAX || capture.bytes + kept.len() > BYTES_MAX {
                capture.lost += 1;
                continue;
            }
            capture.bytes += kept.len();
            capture.kept.push_back(SeenPacket {
                at: sighting.now,
                packet,
                step: sighting.step,
                // A frame is shorter than the pool's buffers.
                length: bytes.len() as u32,
                bytes: kept.to_vec(),
            });
        }
    }

    /// Packets seen since the last time, as many as one answer takes, with times after `start`, which is
    /// when the card was switched on; `None` where there is no such capture.
    pub(crate) fn fetch(
        &mut self,
        id: u64,
        now: Timestamp,
        start: Timestamp,
    ) -> Option<SeenPackets> {
        let capture = self.open.iter_mut().find(|capture| capture.id == id)?;
        capture.fetched = now;
        let mut seen = SeenPackets { seen: Vec::new(), lost: std::mem::take(&mut capture.lost) };
        let mut bytes = 0;
        while seen.seen.len() < ANSWER_SIGHTINGS_MAX
            && bytes < ANSWER_BYTES_MAX
            && let Some(mut kept) = capture.kept.pop_front()
        {
            capture.bytes -= kept.bytes.len();
            bytes += kept.bytes.len();
            kept.at = start + kept.at.since(Timestamp::ZERO);
            seen.seen.push(kept);
        }
        Some(seen)
    }
}

#[cfg(test)]
mod tests {
    use snic_card_sim::FrameId;
    use snic_domain::DagUid;
    use snic_ports::packets::PacketStep;

    use super::*;

    const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

    fn at(micros: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_micros(micros)
    }

    fn sighting(uid: u32, step: PacketStep, micros: u64) -> Sighting {
        Sighting { frame: FrameId(0), uid: DagUid::from_raw(uid), step, now: at(micros) }
    }

    #[test]
    fn a_capture_has_the_packets_of_its_dag_and_no_others() {
        let mut captures = Captures::default();
        let id = captures.begin(at(0), 7, 4).expect("room");
        let frame = [1, 2, 3, 4, 5, 6];
        captures.saw(&sighting(7, PacketStep::Arrived, 1), 11, &frame);
        captures.saw(&sighting(8, PacketStep::Arrived, 2), 12, &frame);
        captures.saw(&sighting(7, PacketStep::Passed { region: 3, slot: 1 }, 3), 11, &frame[..2]);
        let seen = captures.fetch(id, at(9), START).expect("it is there").seen;
        assert_eq!(seen.iter().map(|seen| seen.packet).collect::<Vec<_>>(), [11, 11]);
        assert_eq!(seen[0].at, Timestamp::from_nanos(1_700_000_000_000_001_000));
        assert_eq!((&seen[0].bytes[..], seen[0].length), (&frame[..4], 6));
        assert_eq!((&seen[1].bytes[..], seen[1].length), (&frame[..2], 2));
        assert_eq!(seen[1].step, PacketStep::Passed { region: 3, slot: 1 });
        assert!(captures.fetch(id, at(9), START).expect("there").seen.is_empty(), "once");
    }

    #[test]
    fn a_flood_is_counted_and_takes_bounded_room() {
        let mut captures = Captures::default();
        let id = captures.begin(at(0), 7, 1_500).expect("room");
        let frame = [0; 1_500];
        for packet in 0..20_000 {
            captures.saw(&sighting(7, PacketStep::Arrived, packet), packet, &frame);
        }
        let mut seen = 0;
        let mut lost = 0;
        loop {
            let captured = captures.fetch(id, at(0), START).expect("it is there");
            let bytes: usize = captured.seen.iter().map(|seen| seen.bytes.len()).sum();
            assert!(bytes < ANSWER_BYTES_MAX + frame.len());
            if captured.seen.is_empty() {
                break;
            }
            seen += captured.seen.len();
            lost += captured.lost;
        }
        assert_eq!((seen, seen as u64 + lost), (BYTES_MAX / frame.len(), 20_000));
        captures.saw(&sighting(7, PacketStep::Left, 1), 1, &frame);
        assert_eq!(captures.fetch(id, at(0), START).expect("there").seen.len(), 1, "room again");
    }

    #[test]
    fn a_capture_that_nobody_fetches_from_ends() {
        let mut captures = Captures::default();
        let ids: Vec<_> = (0..CAPTURES_MAX).map(|_| captures.begin(at(0), 1, 64)).collect();
        assert!(ids.iter().all(Option::is_some));
        assert_eq!(captures.begin(at(0), 1, 64), None, "as many as the card takes");
        let first = ids[0].expect("begun");
        captures.fetch(first, at(6_000_000), START).expect("it is there");
        captures.postpone_ends(Duration::from_secs(60));
        captures.expire(at(69_000_000));
        assert_eq!(captures.open.len(), CAPTURES_MAX, "a minute in which nobody could fetch");
        captures.expire(at(71_000_000));
        assert_eq!(captures.open.len(), 1, "the one that was fetched from");
        captures.end(first);
        assert!(captures.is_empty() && captures.fetch(first, at(0), START).is_none());
    }
}
