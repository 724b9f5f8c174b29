//! An interface of this machine through AF_PACKET: a veth end, a physical port.
//!
//! ```text
//!   kernel ──► ring in shared memory ──────────► card ──► one call for up to 64 frames ──► kernel
//!          └─► socket's queue: what is longer ──┘         (those of a flow merged)
//! ```

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use snic_nts::{Packet, Pool};

use super::inflow::Inflow;
use super::system::{self, Arrivals, ReceiveRing};
use super::{Port, Received, Sent};
use crate::merging::{FRAMES_MAX, Merger, Unit};

/// Frames that wait in the ring at most, in 8 MiB of the kernel's memory: 8 ms of 500,000 frames a second.
const RING_PLACES: usize = 4_096;

/// Way in which frames that arrive get to the card.
enum Inlet {
    /// Through memory that is shared with the kernel.
    Ring(ReceiveRing),
    /// A call for each frame, where the system has no such ring.
    Queue,
}

pub(crate) struct Interface {
    socket: OwnedFd,
    inlet: Inlet,
    inflow: Inflow,
    merger: Merger,
}

impl Interface {
    pub(super) fn open(name: &str) -> io::Result<Self> {
        Self::with_ring(name, RING_PLACES)
    }

    /// A port that frames leave by, and at which none arrives.
    pub(super) fn to_send(name: &str) -> io::Result<Self> {
        let (socket, ()) = system::open_packet_socket(name, Arrivals::None, |_| ())?;
        system::set_up(name)?;
        let merger = Merger::new(system::frame_bytes_max(name)?);
        Ok(Self { socket, inlet: Inlet::Queue, inflow: Inflow::new(), merger })
    }

    /// With a ring for so many frames, a multiple of 32; without one for none.
    pub(crate) fn with_ring(name: &str, places: usize) -> io::Result<Self> {
        let socket = system::open_packet_socket(name, Arrivals::All, |socket| {
            let ring = (places > 0).then(|| ReceiveRing::new(socket, places));
            // An old kernel, or no memory in one piece: each frame costs a call.
            ring.and_then(Result::ok).map_or(Inlet::Queue, Inlet::Ring)
        });
        let (socket, inlet) = socket?;
        system::set_up(name)?;
        let merger = Merger::new(system::frame_bytes_max(name)?);
        Ok(Self { socket, inlet, inflow: Inflow::new(), merger })
    }

    fn receive_from_ring(&mut self, pool: &Pool) -> io::Result<Received> {
        let Inlet::Ring(ring) = &mut self.inlet else { return Ok(Received::Nothing) };
        let Some(frame) = ring.next() else { return Ok(Received::Nothing) };
        let tag = frame.tag();
        if frame.is_queued() {
            drop(frame);
            // An error that the socket waits to tell, such as that its device was down, is read before the frame.
            let read = self.inflow.read(&self.socket, tag, pool);
            return read.or_else(|_| self.inflow.read(&self.socket, tag, pool));
        }
        if !frame.is_whole() {
            // The socket's queue was full.
            return Ok(Received::NoBuffer);
        }
        Ok(self.inflow.take(frame.bytes(), &frame.offload(), tag, pool))
    }
}

impl Port for Interface {
    fn method(&self) -> &'static str {
        match self.inlet {
            Inlet::Ring(_) => "a ring in shared memory, up to 64 frames sent by one call",
            Inlet::Queue => "a call for each frame that arrives, up to 64 sent by one call",
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn receive(&mut self, pool: &Pool) -> io::Result<Received> {
        if let Some(packet) = self.inflow.next_cut() {
            return Ok(Received::Frame(packet));
        }
        match self.inlet {
            Inlet::Ring(_) => self.receive_from_ring(pool),
            Inlet::Queue => self.inflow.read(&self.socket, None, pool),
        }
    }

    fn send(&mut self, frames: &mut Vec<Packet>) -> Sent {
        let mut sent = Sent::default();
        for frames in frames.chunks_mut(FRAMES_MAX) {
            self.merger.merge(frames);
            let socket = &self.socket;
            let send = |units: &[Unit], frames: &[Packet], merger: &Merger| {
                system::send_units(socket, units, frames, merger)
            };
            self.merger.send(frames, send, |frame, taken| sent.count(frame, taken));
        }
        frames.clear();
        sent
    }

    fn clear_error(&mut self) {
        system::clear_error(&self.socket);
    }

    fn take_drops(&mut self) -> u64 {
        // The option is there for each packet socket.
        system::take_drops(&self.socket).unwrap_or_default().into()
    }
}
