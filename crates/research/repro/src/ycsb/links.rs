//! Links, and a store with its link and its end of the transport.

use anyhow::Result;

use super::RunInputs;
use super::end::TransportEnd;
use super::frames;
use super::store::Store;

/// One direction of a link.
#[derive(Debug)]
pub(super) struct Link {
    bps: f64,
    /// Behind its end.
    latency_ns: u64,
    free_at: u64,
    pub(super) busy_ns: u64,
}

impl Link {
    pub(super) const fn new(bps: f64, latency_ns: u64) -> Self {
        Self { bps, latency_ns, free_at: 0, busy_ns: 0 }
    }

    /// When a frame that is sent now has arrived.
    pub(super) fn send(&mut self, now: u64, frame: &[u8]) -> u64 {
        let takes = nanos(frames::bits_on_the_wire(frame), self.bps);
        self.busy_ns += takes;
        self.free_at = self.free_at.max(now) + takes;
        self.free_at + self.latency_ns
    }

    /// The same for a frame that rides in another's header.
    const fn ride(&self, now: u64) -> u64 {
        now + self.latency_ns
    }
}

fn nanos(bits: f64, bps: f64) -> u64 {
    (bits * 1e9 / bps).ceil() as u64
}

/// A store behind its link.
pub(super) struct Site {
    /// From the switch, or from the card.
    there: Link,
    pub(super) back: Link,
    /// Its end of the transport, where that is not on the card.
    pub(super) end: Option<TransportEnd>,
    store: Store,
    /// When it has moved the value before, where it moves one at a time.
    free_at: u64,
}

impl Site {
    pub(super) const fn new(
        there: Link,
        back: Link,
        end: Option<TransportEnd>,
        store: Store,
    ) -> Self {
        Self { there, back, end, store, free_at: 0 }
    }

    /// When a frame that is sent to it now has arrived.
    pub(super) fn receive(&mut self, bed: &RunInputs, now: u64, frame: &[u8]) -> u64 {
        Self::over(&mut self.there, self.end.is_some(), bed, now, frame)
    }

    /// When a frame that it sends now has arrived.
    pub(super) fn send(&mut self, bed: &RunInputs, now: u64, frame: &[u8]) -> u64 {
        Self::over(&mut self.back, self.end.is_some(), bed, now, frame)
    }

    fn over(link: &mut Link, has_transport: bool, bed: &RunInputs, now: u64, frame: &[u8]) -> u64 {
        let rides = has_transport && !bed.has_ack_frames && frames::is_acknowledgement(frame);
        if rides { link.ride(now) } else { link.send(now, frame) }
    }

    /// Has each of these wait for what any of them moves, as if they were one board.
    pub(super) fn share(sites: &mut [Self]) {
        let latest = sites.iter().map(|site| site.free_at).max().unwrap_or_default();
        sites.iter_mut().for_each(|site| site.free_at = latest);
    }

    /// The answer to a request that comes now, and when it is ready.
    ///
    /// # Errors
    /// It is not one of those that clients make.
    pub(super) fn serve(
        &mut self,
        bed: &RunInputs,
        now: u64,
        request: &[u8],
    ) -> Result<(u64, Vec<u8>)> {
        let answer = self.store.answer(request)?;
        let mut moved = now;
        if bed.store_moves_one {
            // The longer of the two has the value.
            let is_write = request.len() > answer.len();
            let value = if is_write { request } else { &answer };
            let headers = if self.end.is_some() { frames::TRANSPORT_BYTES * 8 } else { 0 };
            let bits = frames::bits_on_the_wire(value) + headers as f64;
            let times = if is_write { bed.write_moves } else { 1.0 };
            self.free_at = now.max(self.free_at) + nanos(bits * times, bed.store_bps);
            let waits = !(is_write && bed.answers_writes_first);
            moved = if waits { self.free_at } else { now };
        }
        Ok((moved + bed.store_ns, answer))
    }
}
