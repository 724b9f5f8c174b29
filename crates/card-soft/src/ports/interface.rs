//! An interface of this machine through AF_PACKET: a veth end, a physical port.
//!
//! What a veth end receives is as its peer's kernel has it in memory: TCP segments of up to 64 KiB that
//! a network card would cut, and checksums that it would fill in. A header in front of each frame says so
//! (`virtio_net_hdr`); here is done what the card would do.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use snic_nts::{Packet, Pool};

use super::tap::is_nothing;
use super::{Port, Received, system};
use crate::FRAME_BYTES_MAX;
use crate::segments::{self, Offload};

/// The longest merged frame: 64 KiB of IP and its Ethernet header with two VLAN tags.
const MERGED_BYTES_MAX: usize = 65_535 + 22;

pub(super) struct Interface {
    socket: OwnedFd,
    /// What of a merged frame does not fit a buffer; then the whole of it.
    merged: Box<[u8]>,
    /// Frames that were cut from a merged one.
    cut: VecDeque<Packet>,
}

impl Interface {
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let socket = system::open_packet_socket(name)?;
        system::set_up(name)?;
        let merged = vec![0; MERGED_BYTES_MAX].into_boxed_slice();
        Ok(Self { socket, merged, cut: VecDeque::with_capacity(segments::SEGMENTS_MAX) })
    }

    /// Reads a frame: its offload header, and its length.
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

impl Port for Interface {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn receive(&mut self, pool: &Pool) -> io::Result<Received> {
        if let Some(packet) = self.cut.pop_front() {
            return Ok(Received::Frame(packet));
        }
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
            return Ok(Received::Frame(packet));
        }
        let first = bytes.min(FRAME_BYTES_MAX);
        self.merged[..first].copy_from_slice(&packet.bytes()[..first]);
        drop(packet);
        let merged = &self.merged[..bytes.min(MERGED_BYTES_MAX)];
        if segments::cut(merged, &offload, pool, &mut self.cut) == segments::Cut::Refused {
            return Ok(Received::TooLong);
        }
        Ok(self.cut.pop_front().map_or(Received::NoBuffer, Received::Frame))
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(&[0; Offload::BYTES]), IoSlice::new(frame)];
        rustix::io::writev(&self.socket, &parts)?;
        Ok(())
    }

    fn take_drops(&mut self) -> u32 {
        // The option is there for each packet socket.
        system::take_drops(&self.socket).unwrap_or_default()
    }
}
