//! A TAP device: the kernel's network on one side, the card on the other.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, BorrowedFd};

use snic_nts::{Packet, Pool};

use super::drops::TapDrops;
use super::inflow::Inflow;
use super::{Port, Received, Sent, system};
use crate::merging::{FRAMES_MAX, Merger, Unit};

pub(super) struct Tap {
    device: File,
    drops: TapDrops,
    inflow: Inflow,
    merger: Merger,
}

impl Tap {
    pub(super) fn open(name: &str) -> io::Result<Self> {
        Self::set_up(name, system::open_tap(name)?)
    }

    /// A device on which the host's own network says nothing, with a queue for so many packets.
    pub(super) fn open_silent(name: &str, queue: u32) -> io::Result<Self> {
        let device = system::open_tap(name)?;
        // A kernel without IPv6 has nothing to say.
        match std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        system::set_queue(name, queue)?;
        Self::set_up(name, device)
    }

    fn set_up(name: &str, device: File) -> io::Result<Self> {
        system::set_up(name)?;
        let drops = TapDrops::watch(&device)?;
        let merger = Merger::new(system::frame_bytes_max(name)?);
        Ok(Self { device, drops, inflow: Inflow::new(), merger })
    }
}

/// Writes the first of some units; how many that are.
fn write(device: &File, units: &[Unit], frames: &[Packet], merger: &Merger) -> io::Result<usize> {
    let Some(unit) = units.first() else { return Ok(0) };
    let head = unit.offload();
    let mut parts = [IoSlice::new(&head); FRAMES_MAX + 1];
    let mut count = 1;
    for (place, part) in parts[1..].iter_mut().zip(merger.parts(unit, frames)) {
        *place = IoSlice::new(part);
        count += 1;
    }
    rustix::io::writev(device, &parts[..count])?;
    Ok(1)
}

impl Port for Tap {
    fn method(&self) -> &'static str {
        "a read for each frame, a write for up to 64 of a flow"
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn receive(&mut self, pool: &Pool) -> io::Result<Received> {
        match self.inflow.next_cut() {
            Some(packet) => Ok(Received::Frame(packet)),
            None => self.inflow.read(&self.device, None, pool),
        }
    }

    fn send(&mut self, frames: &mut Vec<Packet>) -> Sent {
        let (device, mut sent) = (&self.device, Sent::default());
        for frames in frames.chunks_mut(FRAMES_MAX) {
            self.merger.merge(frames);
            let send = |units: &[Unit], frames: &[Packet], merger: &Merger| {
                write(device, units, frames, merger)
            };
            self.merger.send(frames, send, |frame, taken| sent.count(frame, taken));
        }
        frames.clear();
        sent
    }

    fn take_drops(&mut self) -> u64 {
        self.drops.take()
    }
}
