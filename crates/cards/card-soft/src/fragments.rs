//! Fragments before the classifier: rules may name ports, and only the first fragment of a packet has some.
//!
//! ```text
//!              first            classified by its ports; those that waited for it follow
//!   fragment ─ later, behind it classified as the first was
//!              later, before it waits: at most 1 s, HELD_MAX of a port; then classified without ports
//! ```
//!
//! Each port has its own, so that a guest that sends nothing but fragments takes places from nobody else. Nothing is lost
//! here: what waits in vain goes on as what it is, a fragment without ports.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use snic_card_sim::Header;
use snic_domain::Timestamp;
use snic_nts::Packet;
use snic_nts::wire::{Fragment, Layout};

use crate::datapath::FrameRoute;

/// Packets in fragments of a port at once. The oldest goes for a new one.
const PACKETS_MAX: usize = 256;
/// Fragments of a port that wait: all but the first of a packet of 64 KB. They take buffers of the card.
const HELD_MAX: usize = 48;
/// Time for which a first fragment is remembered: as Linux waits for the rest of a packet.
const LIFETIME: Duration = Duration::from_secs(30);
/// Longest wait of a fragment for its first: networks that reorder do so within milliseconds.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Identifies a packet in fragments, at one function. For IPv4 the protocol is a part of it (RFC 791), for
/// IPv6 it is not (RFC 8200, section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FragmentKey {
    function: u16,
    source: IpAddr,
    destination: IpAddr,
    protocol: Option<u8>,
    id: u32,
}

/// Fields of a first fragment that hold for all of its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct First {
    protocol: u8,
    source_port: u16,
    destination_port: u16,
    vni: Option<u32>,
    seen: Timestamp,
}

impl First {
    fn of(header: &Header, seen: Timestamp) -> Self {
        let Header { protocol, source_port, destination_port, vni, .. } = *header;
        Self { protocol, source_port, destination_port, vni, seen }
    }

    fn apply_to(&self, header: &mut Header) {
        let Self { protocol, source_port, destination_port, vni, .. } = *self;
        *header = Header { protocol, source_port, destination_port, vni, ..*header };
    }
}

/// A fragment that waits for its first.
#[derive(Debug)]
pub(crate) struct WaitingFragment {
    key: FragmentKey,
    until: Timestamp,
    pub(crate) packet: Packet,
    pub(crate) way: FrameRoute,
    pub(crate) header: Header,
}

/// Place of a frame among the fragments of its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FragmentOrder {
    /// It goes on, with the header that it has now.
    GoesOn,
    /// The same, and fragments may have waited for it.
    First(FragmentKey),
    /// It is a later fragment, and its first was not seen.
    Early(FragmentKey),
}

/// The packets in fragments that came in by one port.
#[derive(Debug)]
pub(crate) struct PortFragments {
    firsts: HashMap<FragmentKey, First>,
    /// In the order in which they came.
    order: VecDeque<(FragmentKey, Timestamp)>,
    held: VecDeque<WaitingFragment>,
}

impl PortFragments {
    pub(crate) fn new() -> Self {
        Self {
            // Twice as many: then a full table is cleaned in place and never grows.
            firsts: HashMap::with_capacity(2 * PACKETS_MAX),
            order: VecDeque::with_capacity(PACKETS_MAX),
            held: VecDeque::with_capacity(HELD_MAX),
        }
    }

    /// Looks at a packet with this header; a later fragment gets its first one's protocol and ports.
    pub(crate) fn track(
        &mut self,
        layout: Option<&Layout>,
        header: &mut Header,
        now: Timestamp,
    ) -> FragmentOrder {
        let Some(layout) = layout else { return FragmentOrder::GoesOn };
        let function = header.virtual_function;
        let (id, is_first) = match layout.fragment {
            Fragment::No => return FragmentOrder::GoesOn,
            Fragment::First { id } => (id, true),
            Fragment::Later { id } => (id, false),
        };
        let protocol = layout.is_ipv4().then_some(layout.protocol);
        let (source, destination) = (layout.source, layout.destination);
        let key = FragmentKey { function, source, destination, protocol, id };
        if is_first {
            self.remember(key, header, now);
            return FragmentOrder::First(key);
        }
        match self.firsts.get(&key) {
            Some(first) if now < first.seen + LIFETIME => {
                first.apply_to(header);
                FragmentOrder::GoesOn
            }
            _ => FragmentOrder::Early(key),
        }
    }

    fn remember(&mut self, key: FragmentKey, header: &Header, seen: Timestamp) {
        let first = First::of(header, seen);
        if let Some(known) = self.firsts.get_mut(&key) {
            *known = first;
            return;
        }
        if self.order.len() >= PACKETS_MAX
            && let Some((oldest, _)) = self.order.pop_front()
        {
            self.firsts.remove(&oldest);
        }
        self.firsts.insert(key, first);
        self.order.push_back((key, seen));
    }

    /// Keeps an early fragment. The oldest goes on in its place where there is no other.
    pub(crate) fn hold(
        &mut self,
        key: FragmentKey,
        (packet, way, header): (Packet, FrameRoute, Header),
        now: Timestamp,
    ) -> Option<WaitingFragment> {
        let oldest = (self.held.len() >= HELD_MAX).then(|| self.held.pop_front()).flatten();
        let until = now + WAIT_MAX;
        self.held.push_back(WaitingFragment { key, until, packet, way, header });
        oldest
    }

    /// The next fragment that has waited for this first one, with its ports.
    pub(crate) fn next_behind(&mut self, key: &FragmentKey) -> Option<WaitingFragment> {
        let at = self.held.iter().position(|waiting| waiting.key == *key)?;
        let mut waiting = self.held.remove(at)?;
        if let Some(first) = self.firsts.get(key) {
            first.apply_to(&mut waiting.header);
        }
        Some(waiting)
    }

    /// The next fragment that has waited for too long.
    pub(crate) fn next_expired(&mut self, now: Timestamp) -> Option<WaitingFragment> {
        let is_due = self.held.front().is_some_and(|oldest| oldest.until <= now);
        is_due.then(|| self.held.pop_front()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use snic_nts::Pool;

    use super::*;
    use crate::header;

    const WAY: FrameRoute = FrameRoute { from: 0, to: None };

    /// Fragments of a UDP packet from 10.0.0.1:1000 to 10.0.0.2:53: the first, and one behind it.
    fn fragments(id: u8) -> [Vec<u8>; 2] {
        let fragment = |flags: u16, payload: &[u8]| {
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
            let length = 20 + payload.len() as u8;
            let [high, low] = flags.to_be_bytes();
            let mut ip =
                vec![0x45, 0, 0, length, 0, id, high, low, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let sum: u32 = ip.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            let sum = !(((sum >> 16) + (sum & 0xffff)) as u16);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(ip);
            frame.extend(payload);
            frame
        };
        let udp = [0x03, 0xe8, 0, 53, 0, 32, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        [fragment(0x2000, &udp), fragment(2, &[9; 16])]
    }

    fn track(port: &mut PortFragments, frame: &[u8], now: Timestamp) -> (FragmentOrder, Header) {
        let (mut header, layout) = header::read(frame, 3);
        let order = port.track(layout.as_ref(), &mut header, now);
        (order, header)
    }

    #[test]
    fn later_fragments_are_classified_as_their_first() {
        let (mut port, now) = (PortFragments::new(), Timestamp::from_nanos(1));
        let [first, later] = fragments(7);
        let (order, of_first) = track(&mut port, &first, now);
        assert!(matches!(order, FragmentOrder::First(_)));
        assert_eq!((of_first.source_port, of_first.destination_port), (1_000, 53));
        assert_eq!(track(&mut port, &later, now), (FragmentOrder::GoesOn, of_first));
        let [_, other] = fragments(8);
        assert!(matches!(track(&mut port, &other, now).0, FragmentOrder::Early(_)));
        let late = now + LIFETIME;
        assert!(matches!(track(&mut port, &later, late).0, FragmentOrder::Early(_)));
    }

    #[test]
    fn early_fragments_wait_for_their_first_and_have_its_ports_then() {
        let (mut port, now) = (PortFragments::new(), Timestamp::from_nanos(1));
        let pool = Pool::new(64, 2_048);
        let hold = |port: &mut PortFragments, id: u8| {
            let [_, later] = fragments(id);
            let (FragmentOrder::Early(key), header) = track(port, &later, now) else { panic!() };
            port.hold(key, (pool.copy_of(&later).expect("a buffer"), WAY, header), now)
        };
        for id in 0..48 {
            assert!(hold(&mut port, id).is_none());
        }
        let [first, later] = fragments(7);
        let (FragmentOrder::First(key), of_first) = track(&mut port, &first, now) else { panic!() };
        let behind = port.next_behind(&key).expect("one has waited");
        assert_eq!((behind.packet.bytes(), behind.header), (&later[..], of_first));
        assert!(port.next_behind(&key).is_none());
        assert!(hold(&mut port, 48).is_none(), "in its place");
        let oldest = hold(&mut port, 49).expect("no place is left");
        assert_eq!(oldest.header.destination_port, 0, "as what it is");
        assert!(port.next_expired(now).is_none());
        let expired = std::iter::from_fn(|| port.next_expired(now + WAIT_MAX)).count();
        assert_eq!((expired, pool.available()), (48, 62));
    }

    #[test]
    fn a_port_remembers_no_more_than_it_has_places_for() {
        let mut port = PortFragments::new();
        let [first, later] = fragments(7);
        track(&mut port, &first, Timestamp::from_nanos(1));
        let capacity = port.firsts.capacity();
        for round in 0..4_u8 {
            for id in 0..=255 {
                let [mut first, _] = fragments(id);
                snic_nts::wire::replace_bytes(&mut first, 24, 28, &[0, round]);
                track(&mut port, &first, Timestamp::from_nanos(2));
            }
        }
        assert!(port.firsts.len() <= PACKETS_MAX && port.firsts.capacity() <= capacity);
        let order = track(&mut port, &later, Timestamp::from_nanos(3)).0;
        assert!(matches!(order, FragmentOrder::Early(_)), "it was the oldest");
    }
}
