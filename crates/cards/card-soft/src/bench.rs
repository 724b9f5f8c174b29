//! The software card's frames and NTs on a simulated card whose clock the caller moves: for figures, whose hosts,
//! ports and links are models, too.

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use snic_card_sim::{Header, SimCard};
use snic_domain::{DagUid, Timestamp};
use snic_nts::{Packet, Pool};

use crate::FRAME_BYTES_MAX;
use crate::datapath::{Datapath, DepartingFrame, FrameRoute};
use crate::machine::FRAMES_MAX;
use crate::modules::Modules;
use crate::port_guard::is_link_control;
use crate::protocol::TaskObservation;

/// A frame that left the card.
#[derive(Debug)]
pub struct LeftFrame {
    /// The frame, as the NTs have left it.
    pub packet: Packet,
    /// The port that it came in by, as [`FrameBench::inject`] was told.
    pub port: usize,
    /// Whether an NT sends it back there.
    pub back: bool,
    /// When it left, by the card's clock.
    pub at: Timestamp,
}

/// The frames of a simulated card, and the NTs that work on them.
#[derive(Debug, Clone)]
pub struct FrameBench {
    pool: Pool,
}

impl FrameBench {
    /// Has the card's NTs work on bytes from now on, if the DAGs that are committed then have configurations for them.
    /// `seed` is what NTs draw random numbers from.
    pub fn attach(card: &mut SimCard, seed: u64) -> Self {
        let pool = Pool::new(FRAMES_MAX, FRAME_BYTES_MAX);
        let random = ChaCha8Rng::seed_from_u64(seed);
        card.set_frames(Box::new(Datapath::new(&pool, random, Modules::new(None))));
        Self { pool }
    }

    fn datapath(card: &mut SimCard) -> &mut Datapath {
        card.frames().expect("the frames of this bench were set when it was attached")
    }

    /// A frame of this DAG arrives by a port, at the card's time. `false` if it is too long, the card has no buffer, or it
    /// is a control frame of the link, which no port relays: then it is lost.
    pub fn inject(&self, card: &mut SimCard, dag: DagUid, port: usize, frame: &[u8]) -> bool {
        if is_link_control(frame) {
            Self::count_control(card, port);
            return false;
        }
        let Some(packet) = self.pool.copy_of(frame) else { return false };
        let bytes = packet.len() as u32;
        let held = Self::datapath(card).hold(packet, FrameRoute { from: port, to: None });
        let Some(held) = held else { return false };
        card.inject(held, &Header { dag: Some(dag), ..Header::default() }, bytes);
        true
    }

    /// When the next timer of an NT is due.
    pub fn next_wake(&self, card: &mut SimCard) -> Option<Timestamp> {
        let now = card.now();
        Self::datapath(card).tasks.due_in(now).map(|wait| now + wait)
    }

    /// Runs the timers of NTs that are due. The frames that they make come in by the port that `port` says.
    pub fn wake(&self, card: &mut SimCard, port: impl Fn(&[u8]) -> usize) {
        let now = card.now();
        Self::datapath(card).wake_tasks(now);
        while let Some(made) = Self::datapath(card).by_timer() {
            let header = Header { dag: Some(made.uid), ..Header::default() };
            let bytes = made.packet.len() as u32;
            let route = FrameRoute { from: port(made.packet.bytes()), to: None };
            if let Some(frame) = Self::datapath(card).hold_by_timer(made, route) {
                card.inject(frame, &header, bytes);
            }
        }
    }

    /// The next frame that left the card.
    pub fn left(&self, card: &mut SimCard) -> Option<LeftFrame> {
        loop {
            let DepartingFrame { packet, way, back, at, .. } = Self::datapath(card).leaving()?;
            if !is_link_control(packet.bytes()) {
                return Some(LeftFrame { packet, port: way.from, back, at });
            }
            Self::count_control(card, way.from);
        }
    }

    fn count_control(card: &mut SimCard, port: usize) {
        *Self::datapath(card).control.entry(port).or_default() += 1;
    }

    /// Control frames of the link that came in by a port, or would have left because of a frame that did.
    pub fn control_frames(card: &mut SimCard, port: usize) -> u64 {
        Self::datapath(card).control.get(&port).copied().unwrap_or_default()
    }

    /// Counts of the NTs that have a configuration.
    pub fn observe(&self, card: &mut SimCard) -> Vec<TaskObservation> {
        Self::datapath(card).tasks.observe()
    }
}

#[cfg(test)]
mod tests {
    use snic_bitstream::catalogue;
    use snic_domain::CardModel;

    use super::*;

    #[test]
    fn a_port_of_the_model_refuses_control_frames_and_counts_them() {
        let catalogue = catalogue::builtin().expect("the built-in catalogue");
        let model = CardModel::new("sim-16").expect("a label");
        let profile = catalogue.card(&model).expect("it is listed").clone();
        let mut card = SimCard::new(profile, 1).expect("a valid profile");
        let bench = FrameBench::attach(&mut card, 1);
        let dag = DagUid::from_raw(1);
        let frame = |to: [u8; 6]| [&to[..], &[2, 0, 0, 0, 0, 1, 8, 0], &[0; 46]].concat();
        assert!(!bench.inject(&mut card, dag, 3, &frame([1, 0x80, 0xC2, 0, 0, 2])));
        assert!(!bench.inject(&mut card, dag, 3, &frame([1, 0x80, 0xC2, 0, 0, 0x0E])));
        assert!(bench.inject(&mut card, dag, 4, &frame([0xFF; 6])));
        let control = |card: &mut SimCard, port| FrameBench::control_frames(card, port);
        assert_eq!([3, 4].map(|port| control(&mut card, port)), [2, 0]);
    }
}
