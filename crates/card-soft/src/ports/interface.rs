//! An interface of this machine through AF_PACKET: a veth end, a physical port.
//!
//! ```text
//!   kernel ──► ring in shared memory ──────────► card ──► one call for up to 64 frames ──► kernel
//!          └─► socket's queue: what is longer ──┘
//! ```
//!
//! What a veth end receives is as its peer's kernel has it in memory: TCP segments of up to 64 KiB that
//! a network card would cut, and checksums that it would fill in. A header in front of each frame says so
//! (`virtio_net_hdr`); here is done what the card would do.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use snic_nts::{Packet, Pool};

use super::system::{self, ReceiveRing, VlanTag};
use super::tap::is_nothing;
use super::{Port, Received, Sent};
use crate::FRAME_BYTES_MAX;
use crate::segments::{self, Offload};

/// The longest merged frame: 64 KiB of IP and its Ethernet header with two VLAN tags.
const MERGED_BYTES_MAX: usize = 65_535 + 22;
/// Frames that wait in the ring at most, in 8 MiB of the kernel's memory: 8 ms of 500,000 frames a second.
const RING_PLACES: usize = 4_096;
/// Bytes of the two Ethernet addresses, behind which a VLAN tag stands.
const ADDRESSES_BYTES: usize = 12;

/// How frames that arrive get to the card.
enum Inlet {
    /// Through memory that is shared with the kernel.
    Ring(ReceiveRing),
    /// By a call for each, where the system has no such ring.
    Queue,
}

pub(crate) struct Interface {
    socket: OwnedFd,
    inlet: Inlet,
    /// What of a merged frame does not fit a buffer; then the whole of it.
    merged: Box<[u8]>,
    /// Frames that were cut from a merged one.
    cut: VecDeque<Packet>,
}

impl Interface {
    pub(super) fn open(name: &str) -> io::Result<Self> {
        Self::with_ring(name, RING_PLACES)
    }

    /// With a ring for so many frames, a multiple of 32; without one for none.
    pub(crate) fn with_ring(name: &str, places: usize) -> io::Result<Self> {
        let socket = system::open_packet_socket(name, |socket| {
            let ring = (places > 0).then(|| ReceiveRing::new(socket, places));
            // An old kernel, or no memory in one piece: each frame costs a call.
            ring.and_then(Result::ok).map_or(Inlet::Queue, Inlet::Ring)
        });
        let (socket, inlet) = socket?;
        system::set_up(name)?;
        let merged = vec![0; MERGED_BYTES_MAX].into_boxed_slice();
        let cut = VecDeque::with_capacity(segments::SEGMENTS_MAX);
        Ok(Self { socket, inlet, merged, cut })
    }

    fn receive_from_ring(&mut self, pool: &Pool) -> io::Result<Received> {
        let Inlet::Ring(ring) = &mut self.inlet else { return Ok(Received::Nothing) };
        let Some(frame) = ring.next() else { return Ok(Received::Nothing) };
        let tag = frame.tag();
        if frame.is_queued() {
            drop(frame);
            return self.receive_from_queue(pool, tag);
        }
        let (offload, bytes) = (frame.offload(), frame.bytes());
        if !frame.is_whole() {
            // The socket's queue was full.
            return Ok(Received::NoBuffer);
        }
        if offload.is_merged() {
            let length = bytes.len();
            self.merged[..length].copy_from_slice(bytes);
            drop(frame);
            return Ok(self.cut(length, &offload, pool, tag));
        }
        let Some(mut packet) = pool.copy_of(bytes) else { return Ok(Received::NoBuffer) };
        offload.fill_checksum(packet.bytes_mut());
        Ok(Received::Frame(tagged(packet, tag)))
    }

    fn receive_from_queue(&mut self, pool: &Pool, tag: Option<VlanTag>) -> io::Result<Received> {
        let Some(mut packet) = pool.take() else {
            let read = self.read(None)?;
            return Ok(if read.is_some() { Received::NoBuffer } else { Received::Nothing });
        };
        packet
            .grow_back(FRAME_BYTES_MAX)
            .expect("the pool's buffers are as long as the longest frame");
        let Some((offload, bytes)) = self.read(Some(&mut packet))? else {
            return Ok(Received::Nothing);
        };
        if !offload.is_merged() {
            if bytes > FRAME_BYTES_MAX {
                return Ok(Received::TooLong);
            }
            packet.truncate(bytes);
            offload.fill_checksum(packet.bytes_mut());
            return Ok(Received::Frame(tagged(packet, tag)));
        }
        let first = bytes.min(FRAME_BYTES_MAX);
        self.merged[..first].copy_from_slice(&packet.bytes()[..first]);
        drop(packet);
        Ok(self.cut(bytes.min(MERGED_BYTES_MAX), &offload, pool, tag))
    }

    /// Cuts the merged frame of this length, and gives the first of its segments.
    fn cut(
        &mut self,
        length: usize,
        offload: &Offload,
        pool: &Pool,
        tag: Option<VlanTag>,
    ) -> Received {
        let merged = &self.merged[..length];
        if segments::cut(merged, offload, pool, &mut self.cut) == segments::Cut::Refused {
            return Received::TooLong;
        }
        if tag.is_some() {
            for _ in 0..self.cut.len() {
                let segment = self.cut.pop_front().map(|packet| tagged(packet, tag));
                self.cut.extend(segment);
            }
        }
        self.cut.pop_front().map_or(Received::NoBuffer, Received::Frame)
    }

    /// Reads a frame from the socket's queue: its offload header, and its length.
    fn read(&mut self, packet: Option<&mut Packet>) -> io::Result<Option<(Offload, usize)>> {
        let mut head = [0; Offload::BYTES];
        let mut none = [];
        let (first, second) = match packet {
            Some(packet) => (packet.bytes_mut(), &mut self.merged[FRAME_BYTES_MAX..]),
            None => (&mut none[..], &mut self.merged[..]),
        };
        let mut parts =
            [IoSliceMut::new(&mut head), IoSliceMut::new(first), IoSliceMut::new(second)];
        match rustix::io::readv(&self.socket, &mut parts) {
            Ok(bytes) => Ok(Some((Offload::of(head), bytes.saturating_sub(Offload::BYTES)))),
            Err(error) => {
                let error = io::Error::from(error);
                if is_nothing(&error) { Ok(None) } else { Err(error) }
            }
        }
    }
}

/// Puts the VLAN tag back that the kernel took out.
fn tagged(mut packet: Packet, tag: Option<VlanTag>) -> Packet {
    if let Some(VlanTag { protocol, id }) = tag
        && packet.len() >= ADDRESSES_BYTES
        && packet.open_gap(ADDRESSES_BYTES, 4).is_ok()
    {
        let place = &mut packet.bytes_mut()[ADDRESSES_BYTES..ADDRESSES_BYTES + 4];
        place[..2].copy_from_slice(&protocol.to_be_bytes());
        place[2..].copy_from_slice(&id.to_be_bytes());
    }
    packet
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
        if let Some(packet) = self.cut.pop_front() {
            return Ok(Received::Frame(packet));
        }
        match self.inlet {
            Inlet::Ring(_) => self.receive_from_ring(pool),
            Inlet::Queue => self.receive_from_queue(pool, None),
        }
    }

    fn send(&mut self, frames: &mut Vec<Packet>) -> Sent {
        let mut sent = Sent::default();
        system::send_all(&self.socket, frames, |frame, taken| sent.count(frame, taken));
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
