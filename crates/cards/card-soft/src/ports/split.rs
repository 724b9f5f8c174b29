//! An interface whose frames come by another device: a fast path takes them first, and sends here what it leaves to the card.
//!
//! A packet socket at the interface would get each frame that the fast path has sent on as well, for the kernel serves such sockets first.

use std::io;
use std::os::fd::BorrowedFd;

use snic_nts::{Packet, Pool};

use super::interface::Interface;
use super::tap::Tap;
use super::{Port, Received, Sent, system};

/// Packets that wait in the slow device's queue at most, as in the ring of an interface.
const QUEUE_PACKETS: u32 = 4_096;

pub(crate) struct SplitPort {
    out: Interface,
    slow: Tap,
}

impl SplitPort {
    /// Opens an interface, and makes its slow device; the port with that device's name.
    pub(crate) fn open(name: &str) -> io::Result<(Self, String)> {
        let slow = format!("snicfp{}", system::index(name)?);
        let out = Interface::to_send(name)?;
        Ok((Self { out, slow: Tap::open_silent(&slow, QUEUE_PACKETS)? }, slow))
    }
}

impl Port for SplitPort {
    fn method(&self) -> &'static str {
        "flows with rules in the kernel, others by a TAP device; up to 64 frames sent by one call"
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.slow.fd()
    }

    fn receive(&mut self, pool: &Pool) -> io::Result<Received> {
        self.slow.receive(pool)
    }

    fn send(&mut self, frames: &mut Vec<Packet>) -> Sent {
        self.out.send(frames)
    }

    fn clear_error(&mut self) {
        self.out.clear_error();
    }

    fn take_drops(&mut self) -> u64 {
        self.slow.take_drops()
    }
}
