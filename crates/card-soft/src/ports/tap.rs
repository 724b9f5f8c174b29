//! A TAP device: the kernel's network on one side, the card on the other. The kernel cuts what it sends
//! into frames and fills in their checksums.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use snic_nts::{Packet, Pool};

use super::drops::TapDrops;
use super::{Port, Received, Sent, system};
use crate::FRAME_BYTES_MAX;

pub(super) struct Tap {
    device: File,
    drops: TapDrops,
}

impl Tap {
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let device = system::open_tap(name)?;
        system::set_up(name)?;
        let drops = TapDrops::watch(&device)?;
        Ok(Self { device, drops })
    }
}

/// Whether a call found nothing to do.
pub(super) fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Port for Tap {
    fn method(&self) -> &'static str {
        "a read and a write for each frame"
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn receive(&mut self, pool: &Pool) -> io::Result<Received> {
        let Some(mut packet) = pool.take() else {
            // The frame has to go, or the device stays readable for ever.
            return match self.device.read(&mut [0; 64]) {
                Ok(_) => Ok(Received::NoBuffer),
                Err(error) if is_nothing(&error) => Ok(Received::Nothing),
                Err(error) => Err(error),
            };
        };
        packet
            .grow_back(FRAME_BYTES_MAX)
            .expect("the pool's buffers are as long as the longest frame");
        match self.device.read(packet.bytes_mut()) {
            Ok(FRAME_BYTES_MAX) => Ok(Received::TooLong),
            Ok(bytes) => {
                packet.truncate(bytes);
                Ok(Received::Frame(packet))
            }
            Err(error) if is_nothing(&error) => Ok(Received::Nothing),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, frames: &mut Vec<Packet>) -> Sent {
        let device = &mut self.device;
        Sent::each(frames, |frame| device.write(frame.bytes()).map(|_| ()))
    }

    fn take_drops(&mut self) -> u64 {
        self.drops.take()
    }
}
