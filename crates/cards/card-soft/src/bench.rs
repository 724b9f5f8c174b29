//! The software card's frames and NTs on a simulated card whose clock the caller moves: for figures, whose hosts,
//! ports and links are models, too.

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use snic_card_sim::{Header, SimCard};
use snic_domain::{DagUid, Timestamp};
use snic_nts::{Packet, Pool};

use crate::FRAME_BYTES_MAX;
use crate::datapath::{Datapath, FrameRoute, Leaving};
use crate::machine::FRAMES_MAX;
use crate::modules::Modules;
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

    /// A frame of this DAG arrives by a port, at the card's time. `false` if it is too long or the card has no buffer:
    /// then it is lost.
    pub fn inject(&self, card: &mut SimCard, dag: DagUid, port: usize, frame: &[u8]) -> bool {
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
        let Leaving { packet, way, back, at } = Self::datapath(card).leaving()?;
        Some(LeftFrame { packet, port: way.from, back, at })
    }

    /// What went through the NTs that have a configuration.
    pub fn observe(&self, card: &mut SimCard) -> Vec<TaskObservation> {
        Self::datapath(card).tasks.observe()
    }
}
