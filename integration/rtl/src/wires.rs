//! Packets at the ports of the simulated shell, and what its regions do with them.

use std::io::{self, Read as _};

use crate::process::RtlProcess;

/// A packet for the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentPacket {
    /// Cycle from which on it is offered; those before it go first.
    pub cycle: u64,
    /// UID that a descriptor names, where there is one.
    pub uid: Option<u32>,
    pub bytes: Vec<u8>,
}

/// A packet that came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedPacket {
    /// Cycle of its first beat.
    pub cycle: u64,
    pub bytes: Vec<u8>,
}

/// Conduct of a region towards its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionConduct {
    /// A chain of NTs that let everything pass.
    Good,
    /// Nothing that goes in comes out.
    Swallows,
    /// Nothing goes in.
    NeverReady,
    /// Each packet comes out twice.
    Duplicates,
    /// The tag is that of another packet.
    ForgesPlace,
    /// It is that of another region.
    ForgesRegion,
    /// A packet has no last beat.
    NoEnd,
    /// Packets come out that nobody sent, also while the region is decoupled.
    Babbles,
    /// A packet has a beat less, and says so.
    Shorter,
    /// It has a beat more, and says so.
    Longer,
    /// It says that it has no bytes.
    NoBytes,
    /// It says that it ends.
    Drops,
    /// The tag is that of the packet before.
    Late,
    /// Beats move now and then only.
    Stutters,
}

impl RtlProcess {
    /// Offers packets to the port, behind those that it has been given before.
    ///
    /// # Errors
    /// The process has ended.
    pub fn send_packets(&mut self, packets: &[SentPacket]) -> io::Result<()> {
        let mut frame = b"I".to_vec();
        frame.extend((packets.len() as u32).to_le_bytes());
        for packet in packets {
            frame.extend(packet.cycle.to_le_bytes());
            frame.extend(u32::from(packet.uid.is_some()).to_le_bytes());
            frame.extend(packet.uid.unwrap_or(0).to_le_bytes());
            frame.extend((packet.bytes.len() as u32).to_le_bytes());
            frame.extend(&packet.bytes);
        }
        self.send(&[&frame])?;
        self.take().map(|[_]: [u8; 1]| ())
    }

    /// Packets that have not gone in whole yet, and the cycles of the first beats of those that have since this was asked last.
    ///
    /// # Errors
    /// The process has ended.
    pub fn arrived_packets(&mut self) -> io::Result<(usize, Vec<u64>)> {
        self.send(&[b"A"])?;
        let left = u32::from_le_bytes(self.take()?) as usize;
        let count = u32::from_le_bytes(self.take()?);
        let cycles =
            (0..count).map(|_| self.take().map(u64::from_le_bytes)).collect::<Result<_, _>>()?;
        Ok((left, cycles))
    }

    /// Packets that came out since this was asked last.
    ///
    /// # Errors
    /// The process has ended.
    pub fn received_packets(&mut self) -> io::Result<Vec<ReceivedPacket>> {
        self.send(&[b"U"])?;
        let count = u32::from_le_bytes(self.take()?);
        (0..count)
            .map(|_| {
                let cycle = u64::from_le_bytes(self.take()?);
                let mut bytes = vec![0; u32::from_le_bytes(self.take()?) as usize];
                self.answers().read_exact(&mut bytes)?;
                Ok(ReceivedPacket { cycle, bytes })
            })
            .collect()
    }

    /// Says how a region treats its packets from now on.
    ///
    /// # Errors
    /// The process has ended: also where there is no such region.
    pub fn set_conduct(&mut self, region: u8, conduct: RegionConduct) -> io::Result<()> {
        self.send(&[b"H", &u32::from(region).to_le_bytes(), &(conduct as u32).to_le_bytes()])?;
        self.take().map(|[_]: [u8; 1]| ())
    }

    /// Says whether whoever takes packets from the port is ready now and then only.
    ///
    /// # Errors
    /// The process has ended.
    pub fn set_slow_port(&mut self, is_slow: bool) -> io::Result<()> {
        self.send(&[b"H", &255_u32.to_le_bytes(), &u32::from(is_slow).to_le_bytes()])?;
        self.take().map(|[_]: [u8; 1]| ())
    }
}
