//! The ports of a card, and which of them a frame leaves by.
//!
//! ```text
//!   function ──► its DAG ──► uplink              host to network
//!   uplink ──► DAG of the function ──► function  network to host, by the station that it is for
//!   function ──► its DAG ─► DAG of the other ──► other function   host to host
//!   uplink ──► a DAG, by rules ──► uplink        network to network
//! ```

use std::os::fd::BorrowedFd;

use snic_domain::Timestamp;
use snic_nts::{Packet, Pool};

use crate::SoftCardSettings;
use crate::datapath::Leaving;
use crate::ports::{Port, Received};
use crate::protocol::PortObservation;
use crate::stations::{Receiver, Stations};

/// Where a port leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Uplink,
    Function(u16),
}

struct Slot {
    side: Side,
    port: Box<dyn Port>,
    counts: PortObservation,
}

/// A frame that a port received.
pub(crate) struct Arrival {
    pub(crate) packet: Packet,
    pub(crate) from: usize,
}

/// A look at the ports.
pub(crate) enum Looked {
    Frame(Arrival),
    /// One was there, and is lost and counted.
    Lost,
    Nothing,
}

/// Whom a frame goes to.
pub(crate) enum Target {
    /// Out by this port.
    Port(usize),
    /// Through the DAG of this function.
    Function(u16),
    /// To each function but the one it came from, and to the network where it came from a function.
    All,
    /// No port leads there.
    Nowhere,
}

/// The ports.
#[derive(Default)]
pub(crate) struct Switch {
    slots: Vec<Slot>,
    stations: Stations,
}

impl Switch {
    /// Opens the ports.
    pub(crate) fn open(settings: &SoftCardSettings) -> Result<Self, String> {
        let uplink = settings.uplink.iter().map(|spec| (Side::Uplink, spec));
        let functions = (0..).zip(&settings.functions);
        let functions = functions.map(|(number, spec)| (Side::Function(number), spec));
        let mut switch = Self::default();
        for (side, spec) in uplink.chain(functions) {
            let port = spec.open().map_err(|error| format!("port {spec}: {error}"))?;
            switch.add(side, spec.to_string(), port);
        }
        Ok(switch)
    }

    pub(crate) fn add(&mut self, side: Side, name: String, port: Box<dyn Port>) {
        let counts = PortObservation { name, ..PortObservation::default() };
        self.slots.push(Slot { side, port, counts });
    }

    /// How many ports there are.
    pub(crate) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// What becomes readable when a frame arrives.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.slots.iter().filter_map(|slot| slot.port.fd())
    }

    /// Where a port leads.
    pub(crate) fn side(&self, port: usize) -> Side {
        self.slots[port].side
    }

    /// The next frame of a port.
    pub(crate) fn receive(&mut self, from: usize, pool: &Pool, now: Timestamp) -> Looked {
        let slot = &mut self.slots[from];
        match slot.port.receive(pool) {
            Ok(Received::Frame(packet)) => {
                slot.counts.received += 1;
                slot.counts.received_bytes += packet.len() as u64;
                if let Side::Function(number) = slot.side {
                    self.stations.learn(packet.bytes(), number, now);
                }
                Looked::Frame(Arrival { packet, from })
            }
            Ok(Received::NoBuffer) => {
                slot.counts.too_slow += 1;
                Looked::Lost
            }
            Ok(Received::TooLong) => {
                slot.counts.too_long += 1;
                Looked::Lost
            }
            // A device that is down gives nothing; when it is up again it does.
            Ok(Received::Nothing) | Err(_) => Looked::Nothing,
        }
    }

    /// A frame that came in could not be taken any further.
    pub(crate) fn count_too_slow(&mut self, port: usize) {
        self.slots[port].counts.too_slow += 1;
    }

    fn port_of(&self, side: Side) -> Option<usize> {
        self.slots.iter().position(|slot| slot.side == side)
    }

    fn to_side(&self, side: Side) -> Target {
        self.port_of(side).map_or(Target::Nowhere, Target::Port)
    }

    /// Whom an arriving frame is for.
    pub(crate) fn receiver(&self, frame: &[u8]) -> Receiver {
        self.stations.receiver(frame)
    }

    /// Whom a frame goes to that leaves its DAG.
    pub(crate) fn target(&self, leaving: &Leaving) -> Target {
        let from = self.side(leaving.way.from);
        if leaving.back {
            return Target::Port(leaving.way.from);
        }
        if let Some(function) = leaving.way.to {
            return self.to_side(Side::Function(function));
        }
        match (self.stations.receiver(leaving.packet.bytes()), from) {
            (Receiver::Group, _) => Target::All,
            (Receiver::Function(to), Side::Function(of)) if to == of => Target::Nowhere,
            (Receiver::Function(to), _) => Target::Function(to),
            (Receiver::Unknown, _) => self.to_side(Side::Uplink),
        }
    }

    /// Sends a frame by a port, and counts it.
    pub(crate) fn send(&mut self, port: usize, frame: &[u8]) {
        let slot = &mut self.slots[port];
        match slot.port.send(frame) {
            Ok(()) => {
                slot.counts.sent += 1;
                slot.counts.sent_bytes += frame.len() as u64;
            }
            Err(_) => slot.counts.not_taken += 1,
        }
    }

    /// Sends a frame to the network, where there is one.
    pub(crate) fn send_up(&mut self, frame: &[u8]) {
        if let Some(port) = self.port_of(Side::Uplink) {
            self.send(port, frame);
        }
    }

    /// What went through.
    pub(crate) fn observe(&self) -> Vec<PortObservation> {
        self.slots.iter().map(|slot| slot.counts.clone()).collect()
    }
}
