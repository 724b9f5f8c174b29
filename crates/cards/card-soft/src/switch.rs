//! The ports of a card, and which of them a frame leaves by.
//!
//! ```text
//!   function ──► its DAG ──► uplink              host to network
//!   uplink ──► DAG of the function ──► function  network to host, by the station that it is for
//!   function ──► its DAG ─► DAG of the other ──► other function   host to host
//!   uplink ──► a DAG, by rules ──► uplink        network to network
//! ```

mod fast;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use snic_domain::Timestamp;
use snic_nts::{Packet, Pool};
use snic_ports::packets::PortTraffic;
use snic_tables::GuardRow;

use crate::SoftCardSettings;
use crate::datapath::{DepartingFrame, FrameRoute};
use crate::failover::Failover;
use crate::offload::FlowOffload;
use crate::port_guard::{FrameRefusal, FunctionGuard, PortGuard};
use crate::ports::{OpenPort, Port, Received};
use crate::stations::{Receiver, Station, Stations};

/// Interval at which the system's counts of what it dropped are taken. They have 32 bits: enough for 71 million
/// frames a second.
const DROPS_INTERVAL: Duration = Duration::from_secs(60);
/// Frames that leave by a port in one call at most.
pub(crate) const SENT_MAX: usize = 64;

/// Where a port leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Uplink,
    Function(u16),
}

struct Slot {
    side: Side,
    port: Box<dyn Port>,
    guard: PortGuard,
    /// Frames that leave with the next [`Switch::flush`].
    leaving: Vec<Packet>,
    counts: PortTraffic,
    /// Number of the port for the fast path.
    fast: Option<u32>,
}

impl Slot {
    fn flush(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let sent = self.port.send(&mut self.leaving);
        self.counts.sent += sent.frames;
        self.counts.sent_bytes += sent.bytes;
        self.counts.not_taken += sent.not_taken;
    }
}

/// A frame that a port received.
pub(crate) struct Arrival {
    pub(crate) packet: Packet,
    pub(crate) from: usize,
}

/// A look at the ports.
pub(crate) enum PortPoll {
    Frame(Arrival),
    /// One was there, and is lost and counted.
    Lost,
    Nothing,
}

/// Target of a frame.
pub(crate) enum Target {
    /// Out by this port.
    Port(usize),
    /// Through the DAG of this function, as from this port.
    Function(u16, usize),
    /// To each function but the one it came from, and to the network where it came from a function.
    All,
    /// No port leads there.
    Nowhere,
}

#[derive(Default)]
pub(crate) struct Switch {
    slots: Vec<Slot>,
    stations: Stations,
    looked_at_drops: Timestamp,
}

impl Switch {
    /// Opens the ports.
    pub(crate) fn open(
        settings: &SoftCardSettings,
        vhost_user: Option<OpenPort>,
        mut offload: Option<&mut (dyn FlowOffload + 'static)>,
    ) -> Result<Self, String> {
        let uplink = settings.uplink.iter().map(|spec| (Side::Uplink, spec));
        let functions = (0..).zip(&settings.functions);
        let functions = functions.map(|(number, spec)| (Side::Function(number), spec));
        FunctionGuard::check(&settings.guards, settings.functions.len())
            .map_err(|error| format!("guards: {error}"))?;
        Failover::check(&settings.failovers, settings.functions.len())
            .map_err(|error| format!("failovers: {error}"))?;
        let mut switch = Self { stations: Stations::new(&settings.failovers), ..Self::default() };
        for (side, spec) in uplink.chain(functions) {
            let (port, fast) = Self::open_port(spec, vhost_user, offload.as_deref_mut())?;
            switch.add(side, spec.to_string(), port);
            switch.slots.iter_mut().rev().take(1).for_each(|slot| slot.fast = fast);
        }
        for limits in &settings.guards {
            let port = switch.port_of(Side::Function(limits.function));
            let port = port.expect("the guards were compared with the ports above");
            switch.slots[port].guard = PortGuard::new(limits.clone());
        }
        switch.hold_stations();
        Ok(switch)
    }

    /// The port of a function keeps to this row of the card's tables; without one, to the settings alone. A row of a
    /// function without a port has no effect.
    pub(crate) fn set_guard(&mut self, function: u16, row: Option<&GuardRow>) {
        let Some(port) = self.port_of(Side::Function(function)) else { return };
        let shared = self.stations.shared_by(function);
        self.slots[port].guard.set_row(row, &shared);
        self.hold_stations();
    }

    /// Stations that a guard names are those functions' alone, also before they are heard.
    fn hold_stations(&mut self) {
        let mut held: BTreeMap<Station, BTreeSet<u16>> = BTreeMap::new();
        for slot in &self.slots {
            let Side::Function(function) = slot.side else { continue };
            for station in slot.guard.stations() {
                held.entry(station).or_default().insert(function);
            }
        }
        self.stations.hold(held);
    }

    pub(crate) fn add(&mut self, side: Side, name: String, port: Box<dyn Port>) {
        let method = port.method().to_owned();
        let function = match side {
            Side::Uplink => None,
            Side::Function(number) => Some(number),
        };
        let counts = PortTraffic { name, method, function, ..PortTraffic::default() };
        let (guard, leaving) = (PortGuard::default(), Vec::with_capacity(SENT_MAX));
        self.slots.push(Slot { side, port, guard, leaving, counts, fast: None });
    }

    /// The card stood still for so long, and heard no station.
    pub(crate) fn postpone_silence(&mut self, by: Duration) {
        self.stations.postpone_silence(by);
    }

    /// Number of ports.
    pub(crate) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Descriptors that become readable when a frame arrives.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.slots.iter().filter_map(|slot| slot.port.fd())
    }

    /// Where a port leads.
    pub(crate) fn side(&self, port: usize) -> Side {
        self.slots[port].side
    }

    /// The next frame of a port.
    pub(crate) fn receive(&mut self, from: usize, pool: &Pool, now: Timestamp) -> PortPoll {
        let slot = &mut self.slots[from];
        match slot.port.receive(pool) {
            Ok(Received::Frame(packet)) => {
                let mut admitted = slot.guard.admit(packet.bytes(), now);
                if let (Ok(()), Side::Function(number)) = (admitted, slot.side)
                    && !self.stations.learn(packet.bytes(), number, now)
                {
                    admitted = Err(FrameRefusal::Source);
                }
                if let Err(refused) = admitted {
                    refused.count(&mut slot.counts);
                    return PortPoll::Lost;
                }
                slot.counts.received += 1;
                slot.counts.received_bytes += packet.len() as u64;
                if slot.side == Side::Uplink {
                    self.stations.learn_outside(packet.bytes());
                }
                PortPoll::Frame(Arrival { packet, from })
            }
            Ok(Received::NoBuffer) => {
                slot.counts.too_slow += 1;
                PortPoll::Lost
            }
            Ok(Received::TooLong) => {
                slot.counts.too_long += 1;
                PortPoll::Lost
            }
            // A device that is down gives nothing; when it is up again it does.
            Ok(Received::Nothing) | Err(_) => PortPoll::Nothing,
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

    /// Receiver of an arriving frame.
    pub(crate) fn receiver(&self, frame: &[u8]) -> Receiver {
        self.stations.receiver(frame)
    }

    /// The way of a frame as if its source had just sent it; `None` where no port leads there.
    pub(crate) fn way_from_source(&self, frame: &[u8]) -> Option<FrameRoute> {
        if let Some(function) = self.stations.sender(frame) {
            let from = self.port_of(Side::Function(function))?;
            return Some(FrameRoute { from, to: None });
        }
        let to = match self.stations.receiver(frame) {
            Receiver::Function(to) => Some(to),
            Receiver::Group | Receiver::Unknown => None,
        };
        Some(FrameRoute { from: self.port_of(Side::Uplink)?, to })
    }

    /// Target of a frame that leaves its DAG.
    pub(crate) fn target(&self, leaving: &DepartingFrame) -> Target {
        let from = self.side(leaving.way.from);
        if leaving.back {
            let here = leaving.way.to.and_then(|to| self.port_of(Side::Function(to)));
            return match (from, here) {
                // It came through the DAG of that function, and so does the answer.
                (Side::Function(of), Some(here)) => Target::Function(of, here),
                _ => Target::Port(leaving.way.from),
            };
        }
        if let Some(function) = leaving.way.to {
            return self.to_side(Side::Function(function));
        }
        match (self.stations.receiver(leaving.packet.bytes()), from) {
            (Receiver::Group, _) => Target::All,
            (Receiver::Function(to), Side::Function(of)) if to == of => Target::Nowhere,
            (Receiver::Function(to), _) => Target::Function(to, leaving.way.from),
            (Receiver::Unknown, _) => self.to_side(Side::Uplink),
        }
    }

    /// Sends a frame by a port, with the next [`Switch::flush`] or earlier.
    /// A frame that NTs made, or took out of a tunnel, is not for the port where its guard refuses it.
    pub(crate) fn send(&mut self, port: usize, packet: Packet) {
        let slot = &mut self.slots[port];
        if let Err(refused) = slot.guard.may_leave(packet.bytes()) {
            return refused.count(&mut slot.counts);
        }
        slot.leaving.push(packet);
        if slot.leaving.len() >= SENT_MAX {
            slot.flush();
        }
    }

    /// Sends a frame to the network, where there is one.
    pub(crate) fn send_up(&mut self, packet: Packet) {
        if let Some(port) = self.port_of(Side::Uplink) {
            self.send(port, packet);
        }
    }

    /// Hands what leaves to the other sides, and counts it.
    pub(crate) fn flush(&mut self) {
        self.slots.iter_mut().for_each(Slot::flush);
    }

    /// Ports were readable and had no frames.
    pub(crate) fn clear_errors(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.port.clear_error());
    }

    /// Counts what the system dropped before the card took it.
    fn count_drops(&mut self) {
        for slot in &mut self.slots {
            slot.counts.too_slow += slot.port.take_drops();
        }
    }

    /// Takes the system's counts of dropped frames often enough that none of them wraps.
    pub(crate) fn poll_drops(&mut self, now: Timestamp) {
        if now.since(self.looked_at_drops) >= DROPS_INTERVAL {
            self.looked_at_drops = now;
            self.count_drops();
        }
    }

    /// Traffic of the ports.
    pub(crate) fn observe(&mut self) -> Vec<PortTraffic> {
        self.count_drops();
        self.slots.iter().map(|slot| slot.counts.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::process::Command;
    use std::time::Instant;

    use snic_nts::wire::{self, Frame};

    use super::*;
    use crate::FRAME_BYTES_MAX;
    use crate::ports::Sent;
    use crate::ports::interface::Interface;
    use crate::ports::system::{leave_no_checksums, shorten_queue};

    /// A pair of devices; gone with its value.
    struct Pair([String; 2]);

    impl Pair {
        fn new(name: &str) -> Self {
            let pair = Self(["a", "b"].map(|end| format!("sq{name}{}{end}", std::process::id())));
            let [near, far] = &pair.0;
            ip(&format!("link add {near} type veth peer name {far}"));
            // Nobody but the test sends.
            for device in &pair.0 {
                ip(&format!("link set {device} addrgenmode none"));
            }
            pair
        }
    }

    impl Drop for Pair {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["link", "del", &self.0[0]]).output();
        }
    }

    fn ip(line: &str) {
        let output = Command::new("ip").args(line.split(' ')).output().expect("ip starts");
        assert!(output.status.success(), "ip {line}: {output:?}");
    }

    /// A broadcast frame of the smallest length, for an experiment.
    const FRAME: [u8; 60] = {
        let mut frame = [0; 60];
        let mut at = 0;
        while at < 6 {
            (frame[at], frame[at + 6]) = (0xff, 2);
            at += 1;
        }
        (frame[12], frame[13]) = (0x88, 0xb5);
        frame
    };

    #[test]
    fn what_a_full_queue_drops_is_what_was_sent_and_not_read() {
        check_drops(0);
    }

    #[test]
    fn what_a_full_ring_drops_is_what_was_sent_and_not_read() {
        check_drops(32);
    }

    /// With a ring of so many places.
    fn check_drops(places: usize) {
        let is_there = Command::new("ip").arg("-V").output().is_ok();
        if !rustix::process::geteuid().is_root() || !is_there {
            println!("not run: it needs root and ip");
            return;
        }
        // Fewer than the kernel keeps between two devices (netdev_max_backlog, 1,000).
        const SENT: u64 = 500;
        let pair = Pair::new(&format!("r{places}"));
        let [near, far] = pair
            .0
            .each_ref()
            .map(|device| Box::new(Interface::with_ring(device, places).expect("it is there")));
        let mut switch = Switch::default();
        switch.add(Side::Uplink, "near".to_owned(), near);
        switch.add(Side::Function(0), "far".to_owned(), far);
        shorten_queue(switch.fds().next().expect("the uplink")).expect("any length is taken");
        let pool = Pool::new(4, FRAME_BYTES_MAX);
        let mut read = 0;
        for round in 1..=2 {
            let until = Instant::now() + Duration::from_secs(5);
            // A device that just came up takes the first frames not yet.
            while switch.slots[1].counts.sent < round * SENT && Instant::now() < until {
                switch.send(1, pool.copy_of(&FRAME).expect("all came back"));
                switch.flush();
            }
            let seen = loop {
                if let PortPoll::Frame(_) = switch.receive(0, &pool, Timestamp::ZERO) {
                    read += 1;
                    continue;
                }
                let seen = switch.observe();
                if read + seen[0].too_slow >= round * SENT || Instant::now() > until {
                    break seen;
                }
            };
            assert_eq!((seen[1].sent, seen[0].received), (round * SENT, read), "{seen:?}");
            assert_eq!(seen[0].too_slow, round * SENT - read, "{seen:?}");
            assert!(read > 0 && seen[0].too_slow >= round * SENT / 2, "{seen:?}");
            assert_eq!(seen[1].too_slow, 0, "only the port whose queue was full: {seen:?}");
        }
        println!("{read} of {} were read", 2 * SENT);
    }

    /// An IPv4 frame with a datagram of one of four flows, the `number`th of it. No field of it is like another's.
    fn datagram(flow: u8, number: u8, payload: usize) -> Vec<u8> {
        let bytes = |count: usize| (count as u16).to_be_bytes();
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]);
        frame.extend(bytes(28 + payload));
        frame.extend([flow, number, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 3, flow, 0, 9]);
        frame.extend(bytes(8 + payload));
        frame.extend([0, 0]);
        frame.extend((0..payload).map(|at| at as u8 ^ number));
        crate::segments::fill_ipv4_checksum(&mut frame[14..]);
        let Ok(Frame::Ip(layout)) = wire::parse(&frame) else { panic!("{frame:02x?}") };
        wire::fill(&mut frame, &layout);
        frame
    }

    /// Frames that were merged for the kernel come out of it as they were: cut by the kernel, before a device that cuts nothing and
    /// fills in no checksums, and cut by the port at the other end, which gets it merged.
    #[test]
    fn what_went_merged_arrives_as_it_was_sent() {
        let is_there = Command::new("ip").arg("-V").output().is_ok();
        if !rustix::process::geteuid().is_root() || !is_there {
            println!("not run: it needs root and ip");
            return;
        }
        for is_cut_by_kernel in [true, false] {
            let pair = Pair::new(if is_cut_by_kernel { "c" } else { "m" });
            let [near, far] = pair.0.each_ref();
            if is_cut_by_kernel {
                leave_no_checksums(near).expect("veth devices fill in checksums or not");
            }
            let open = |device: &str, places| {
                Box::new(Interface::with_ring(device, places).expect("it is there"))
            };
            let mut switch = Switch::default();
            switch.add(Side::Uplink, "near".to_owned(), open(near, 0));
            switch.add(Side::Function(0), "far".to_owned(), open(far, 512));
            let pool = Pool::new(256, FRAME_BYTES_MAX);
            let sizes = [18, 18, 18, 700, 700, 90];
            let sent: Vec<Vec<u8>> =
                (0..48_u8).map(|at| datagram(at % 4, at / 4, sizes[usize::from(at / 8)])).collect();
            let until = Instant::now() + Duration::from_secs(5);
            let is_up = |switch: &mut Switch| {
                switch.send(0, pool.copy_of(&FRAME).expect("all came back"));
                switch.flush();
                matches!(switch.receive(1, &pool, Timestamp::ZERO), PortPoll::Frame(_))
            };
            while !is_up(&mut switch) && Instant::now() < until {}
            for frame in &sent {
                switch.send(0, pool.copy_of(frame).expect("all came back"));
            }
            switch.flush();
            let mut came: Vec<Vec<u8>> = Vec::new();
            while came.len() < sent.len() && Instant::now() < until {
                if let PortPoll::Frame(arrival) = switch.receive(1, &pool, Timestamp::ZERO) {
                    came.push(arrival.packet.bytes().to_vec());
                    came.retain(|frame| frame[..] != FRAME);
                }
            }
            for flow in 0..4 {
                let of = |frame: &&Vec<u8>| frame[35] == flow;
                let [sent, came] =
                    [&sent, &came].map(|all| all.iter().filter(of).collect::<Vec<_>>());
                assert_eq!(came, sent, "flow {flow}, cut by the kernel: {is_cut_by_kernel}");
            }
        }
    }

    /// A port whose system drops as many as 32 bits count between two looks.
    struct Dropping;

    impl Port for Dropping {
        fn method(&self) -> &'static str {
            "nothing"
        }

        fn fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn receive(&mut self, _: &Pool) -> io::Result<Received> {
            Ok(Received::Nothing)
        }

        fn send(&mut self, frames: &mut Vec<Packet>) -> Sent {
            Sent::each(frames, |_| Ok(()))
        }

        fn take_drops(&mut self) -> u64 {
            u32::MAX.into()
        }
    }

    /// A port at which these frames wait, and that takes what leaves.
    struct WaitingPort(std::collections::VecDeque<Vec<u8>>);

    impl Port for WaitingPort {
        fn method(&self) -> &'static str {
            "memory"
        }

        fn fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn receive(&mut self, pool: &Pool) -> io::Result<Received> {
            let frame = self.0.pop_front();
            Ok(frame
                .and_then(|frame| pool.copy_of(&frame))
                .map_or(Received::Nothing, Received::Frame))
        }

        fn send(&mut self, frames: &mut Vec<Packet>) -> Sent {
            Sent::each(frames, |_| Ok(()))
        }
    }

    #[test]
    fn control_frames_and_foreign_sources_end_at_every_port_and_are_counted_there() {
        let pool = Pool::new(4, FRAME_BYTES_MAX);
        let frame = |to: [u8; 6], from: u8, kind: [u8; 2]| {
            [&to[..], &[2, 0, 0, 0, 0, from], &kind, &[0; 46]].concat()
        };
        let lldp = |from| frame([1, 0x80, 0xc2, 0, 0, 0x0e], from, [0x88, 0xcc]);
        let pause = |from| frame([0xff; 6], from, [0x88, 0x08]);
        let plain = |from| frame([0xff; 6], from, [0x08, 0x06]);
        let mut switch = Switch::default();
        for (side, own) in [(Side::Uplink, 9), (Side::Function(0), 1), (Side::Function(1), 2)] {
            // The station of function 0 is known when the others use it.
            let frames = [plain(own), lldp(own), pause(own), plain(1), plain(own)];
            switch.add(side, format!("{side:?}"), Box::new(WaitingPort(frames.into())));
        }
        let mut came = [0; 3];
        for port in [1, 2, 0] {
            for _ in 0..5 {
                let looked = switch.receive(port, &pool, Timestamp::ZERO);
                came[port] += usize::from(matches!(looked, PortPoll::Frame(_)));
            }
        }
        assert_eq!(came, [3, 3, 2], "the network's stations are not learned");
        for port in 0..3 {
            for frame in [lldp(7), pause(7), plain(7)] {
                switch.send(port, pool.copy_of(&frame).expect("a buffer"));
            }
        }
        switch.flush();
        for (port, seen) in switch.observe().iter().enumerate() {
            assert_eq!((seen.control, seen.sent), (2 + 2, 1), "{seen:?}");
            assert_eq!(seen.wrong_source, u64::from(port == 2), "{seen:?}");
            assert_eq!(seen.received as usize, came[port], "{seen:?}");
        }
    }

    #[test]
    fn what_the_system_dropped_is_counted_each_minute_though_nobody_asks() {
        let mut switch = Switch::default();
        switch.add(Side::Uplink, "fake".to_owned(), Box::new(Dropping));
        for second in 0..180 {
            switch.poll_drops(Timestamp::ZERO + Duration::from_secs(second));
        }
        let looks = 2 + 1;
        assert_eq!(switch.observe()[0].too_slow, looks * u64::from(u32::MAX));
    }
}
