//! Frames as the kernel has them in memory: TCP segments and UDP datagrams of up to 64 KiB that a network card would cut, and
//! checksums that it would fill in. A header in front of each frame says so (`virtio_net_hdr`); here is done what the card
//! would do.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use snic_nts::{Packet, Pool};

use super::Received;
use super::system::VlanTag;
use crate::FRAME_BYTES_MAX;
use crate::segments::{self, Offload};

/// The longest merged frame: 64 KiB of IP and its Ethernet header with two VLAN tags.
const MERGED_BYTES_MAX: usize = 65_535 + 22;
/// Bytes of the two Ethernet addresses, behind which a VLAN tag stands.
const ADDRESSES_BYTES: usize = 12;

/// Frames that a port receives.
pub(super) struct Inflow {
    /// The frame that was read last, with its header.
    place: Box<[u8]>,
    /// Frames that were cut from a merged one.
    cut: VecDeque<Packet>,
}

impl Inflow {
    pub(super) fn new() -> Self {
        let place = vec![0; Offload::BYTES + MERGED_BYTES_MAX].into_boxed_slice();
        Self { place, cut: VecDeque::with_capacity(segments::SEGMENTS_MAX) }
    }

    /// The next frame that was cut from the last one.
    pub(super) fn next_cut(&mut self) -> Option<Packet> {
        self.cut.pop_front()
    }

    /// Takes a frame that is in memory as a whole.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        offload: &Offload,
        tag: Option<VlanTag>,
        pool: &Pool,
    ) -> Received {
        take(bytes, offload, tag, pool, &mut self.cut)
    }

    /// Reads the next frame from a socket or a device.
    ///
    /// # Errors
    /// The device is gone.
    pub(super) fn read(
        &mut self,
        from: &impl AsFd,
        tag: Option<VlanTag>,
        pool: &Pool,
    ) -> io::Result<Received> {
        let bytes = match rustix::io::read(from, &mut *self.place) {
            Ok(bytes) => bytes,
            Err(error) => {
                let error = io::Error::from(error);
                return if is_nothing(&error) { Ok(Received::Nothing) } else { Err(error) };
            }
        };
        let Some((head, frame)) = self.place[..bytes].split_first_chunk() else {
            return Ok(Received::TooLong);
        };
        Ok(take(frame, &Offload::of(*head), tag, pool, &mut self.cut))
    }
}

/// Takes a frame that is in memory as a whole.
fn take(
    bytes: &[u8],
    offload: &Offload,
    tag: Option<VlanTag>,
    pool: &Pool,
    out: &mut VecDeque<Packet>,
) -> Received {
    if offload.is_merged() {
        return cut(bytes, offload, tag, pool, out);
    }
    if bytes.len() > FRAME_BYTES_MAX {
        return Received::TooLong;
    }
    let Some(mut packet) = pool.copy_of(bytes) else { return Received::NoBuffer };
    offload.fill_checksum(packet.bytes_mut());
    Received::Frame(tagged(packet, tag))
}

/// Whether a call found nothing to do.
pub(super) fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Cuts a merged frame, and gives the first of what comes of it.
fn cut(
    merged: &[u8],
    offload: &Offload,
    tag: Option<VlanTag>,
    pool: &Pool,
    out: &mut VecDeque<Packet>,
) -> Received {
    if segments::cut(merged, offload, pool, out) == segments::CutOutcome::Refused {
        return Received::TooLong;
    }
    if tag.is_some() {
        for _ in 0..out.len() {
            let segment = out.pop_front().map(|packet| tagged(packet, tag));
            out.extend(segment);
        }
    }
    out.pop_front().map_or(Received::NoBuffer, Received::Frame)
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
