//! Ports whose frames pass by a fast path.

use snic_domain::Timestamp;

use super::{Side, Switch};
use crate::offload::FlowOffload;
use crate::ports::split::SplitPort;
use crate::ports::{OpenPort, Port, PortSpec};

impl Switch {
    /// Opens a port, with the fast path where there is one and the port takes it; the port with its number there.
    pub(super) fn open_port(
        spec: &PortSpec,
        vhost_user: Option<OpenPort>,
        offload: Option<&mut (dyn FlowOffload + 'static)>,
    ) -> Result<(Box<dyn Port>, Option<u32>), String> {
        if let Some(offload) = offload {
            match open_split(spec, offload) {
                Ok((port, number)) => return Ok((Box::new(port), Some(number))),
                Err(why) => snic_output::complain!("port {spec} without the fast path: {why}"),
            }
        }
        let port = spec.open(vhost_user).map_err(|error| format!("port {spec}: {error}"))?;
        Ok((port, None))
    }

    /// Says of all ports that they have the fast path.
    #[cfg(test)]
    pub(crate) fn set_fast(&mut self) {
        (0..).zip(&mut self.slots).for_each(|(number, slot)| slot.fast = Some(number));
    }

    /// Whether any port has the fast path.
    pub(crate) fn has_fast_ports(&self) -> bool {
        self.slots.iter().any(|slot| slot.fast.is_some())
    }

    /// The number that a port has for the fast path.
    pub(crate) fn fast_port(&self, port: usize) -> Option<u32> {
        self.slots.get(port)?.fast
    }

    /// Number of changes of stations' places.
    pub(crate) const fn station_changes(&self) -> u64 {
        self.stations.changes()
    }

    /// Frames that came to a port and are lost because the card did not keep up.
    pub(crate) fn losses(&mut self, port: usize) -> u64 {
        let slot = &mut self.slots[port];
        slot.counts.too_slow += slot.port.take_drops();
        slot.counts.too_slow
    }

    /// Frames were lost before the card took them.
    pub(crate) fn add_too_slow(&mut self, port: usize, frames: u64) {
        self.slots[port].counts.too_slow += frames;
    }

    /// Packets passed by the fast path, the last one at `last`: ports count them, and their source is still where it was.
    pub(crate) fn note_passed(
        &mut self,
        [from, out]: [usize; 2],
        stations: &[u8],
        (packets, bytes): (u64, u64),
        last: Timestamp,
    ) {
        let came = &mut self.slots[from];
        came.counts.received += packets;
        came.counts.received_bytes += bytes;
        if let Side::Function(number) = came.side {
            self.stations.learn(stations, number, last);
        }
        let left = &mut self.slots[out].counts;
        left.sent += packets;
        left.sent_bytes += bytes;
    }
}

/// Opens an interface whose frames the fast path takes first.
fn open_split(spec: &PortSpec, offload: &mut dyn FlowOffload) -> Result<(SplitPort, u32), String> {
    let PortSpec::Interface(name) = spec else {
        return Err("only interfaces have it, not devices and sockets that the card makes".into());
    };
    let (port, slow) = SplitPort::open(name).map_err(|error| error.to_string())?;
    let number = offload.open_port(name, &slow).map_err(|failure| failure.to_string())?;
    Ok((port, number))
}
