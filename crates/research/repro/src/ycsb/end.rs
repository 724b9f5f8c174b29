//! An end of the transport in a host: the NT's code, which takes no time there.

use anyhow::{Result, ensure};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use snic_domain::Timestamp;
use snic_nts::{Context, Direction, Emitted, NtInstance, Pool, Verdict};

use super::frames::Station;

/// Frames that an end sends at once, and more.
const FRAMES: usize = 2_048;
const FRAME_BYTES: usize = 2_048;

/// Configuration of the NT.
pub(super) fn configuration(local: Station, peer: Station, window: usize) -> String {
    let (local, peer) = (local.address, peer.address);
    format!(
        r#"{{"local":"{local}","peer":"{peer}","window":{window},"timeout_ms":1,"retries_max":1000}}"#
    )
}

pub(super) struct TransportEnd {
    nt: NtInstance,
    pool: Pool,
    emitted: Emitted,
    random: ChaCha8Rng,
}

impl TransportEnd {
    pub(super) fn new(local: Station, peer: Station, window: usize, seed: u64) -> Result<Self> {
        let mut nt = snic_nts::create("go-back-n", seed)?;
        let version = snic_nts::schema("go-back-n")?.version;
        let told = configuration(local, peer, window);
        nt.configure(Timestamp::ZERO, version, told.as_bytes())?;
        let pool = Pool::new(FRAMES, FRAME_BYTES);
        let emitted = Emitted::new(pool.clone());
        Ok(Self { nt, pool, emitted, random: ChaCha8Rng::seed_from_u64(seed) })
    }

    /// The host's frame, as it leaves for the peer, is added to `wire`.
    ///
    /// # Errors
    /// The transport drops it: its window is full.
    pub(super) fn send(
        &mut self,
        now: Timestamp,
        frame: &[u8],
        wire: &mut Vec<Vec<u8>>,
    ) -> Result<()> {
        let (verdict, own) = self.process(now, frame)?;
        match verdict {
            Verdict::Forward => wire.push(own),
            Verdict::Consume => {}
            other => anyhow::bail!("the transport does not take a frame: {other:?}"),
        }
        self.take(Direction::Onward, wire)
    }

    /// A frame of the peer: what is in it for the host, if it is the next one. Answers are added to `wire`.
    pub(super) fn receive(
        &mut self,
        now: Timestamp,
        frame: &[u8],
        wire: &mut Vec<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let (verdict, own) = self.process(now, frame)?;
        self.take(Direction::Back, wire)?;
        // Out of order, or come again: it will be sent again, or was there.
        Ok((verdict == Verdict::Forward).then_some(own))
    }

    fn process(&mut self, now: Timestamp, frame: &[u8]) -> Result<(Verdict, Vec<u8>)> {
        let packet = self.pool.copy_of(frame);
        let mut packet = packet.ok_or_else(|| anyhow::anyhow!("a frame that is too long"))?;
        let Self { nt, emitted, random, .. } = self;
        let verdict = nt.process(&mut packet, &mut Context { now, random, emitted });
        Ok((verdict, packet.bytes().to_vec()))
    }

    fn take(&mut self, way: Direction, wire: &mut Vec<Vec<u8>>) -> Result<()> {
        for (direction, packet) in self.emitted.drain() {
            ensure!(direction == way, "the transport sends a frame the wrong way");
            wire.push(packet.bytes().to_vec());
        }
        Ok(())
    }

    /// When its timer is due.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.nt.next_wake()
    }

    /// Runs its timer.
    pub(super) fn wake(&mut self, now: Timestamp, wire: &mut Vec<Vec<u8>>) -> Result<()> {
        let Self { nt, emitted, random, .. } = self;
        nt.wake(&mut Context { now, random, emitted });
        self.take(Direction::Onward, wire)
    }
}
