//! Fragments in any order, classified by their first one (RFC 4787, REQ-14).
//!
//! Later fragments have no ports: what was decided about the first holds for them. Those that come before it are kept
//! until it comes, and then go on ahead of it:
//!
//! ```text
//!              first            decide ──► decision, kept ones go on
//!   fragment ─ later, decided   follow the decision
//!              later, before    kept: at most 30 s, HELD_MAX of all packets
//! ```
//!
//! Nothing is put together. Which parts of a packet were seen is remembered, so that no fragment overwrites what the
//! decision was made on: an overlap ends its packet (RFC 5722 for IPv6; Linux does the same for IPv4), and an exact
//! repetition is dropped (RFC 8200, section 4.5). When all parts were seen, the packet is forgotten, and its
//! identification may be used again at once.
//!
//! An ICMP error may quote a later fragment, which has no ports either. So the addresses with which a packet left are
//! remembered with those that it came with, for as long.
//!
//! A sender of nothing but fragments takes places from other packets in fragments, and from nothing else (REQ-14a).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use rand::RngCore;
use snic_domain::Timestamp;

use crate::aging::{AgingTable, EntryId, KeyedHash, Lookup};
use crate::wire::{
    self, Endpoint, Flow, Fragment, FragmentPart, Layout, Side, rewrite, rewrite_quoted,
};
use crate::{Context, Direction, DropReason, Emitted};

/// Packets in fragments at once. The oldest goes for a new one.
const PACKETS_MAX: usize = 1_024;
/// Fragments of a packet: one of 65,535 bytes has 54 at IPv6's smallest MTU.
const PARTS_MAX: usize = 64;
/// Fragments that wait for their first. The oldest goes for a new one.
const HELD_MAX: usize = 128;
/// Identifications that are tried for a packet: with 1,024 of 65,536 in use all tries fail once in 2^96.
const IDENTIFICATION_TRIES: usize = 16;
/// The longest frame that waits: the longest of the software card.
const HELD_BYTES_MAX: usize = 9_216;
/// As Linux waits for the rest of a packet; RFC 8200 section 4.5 allows twice as long.
const LIFETIME: Duration = Duration::from_secs(30);

/// Identifies a packet in fragments: for IPv6 addresses and identification (RFC 8200, section 4.5), for
/// IPv4 the protocol too (RFC 791).
type Key = (IpAddr, IpAddr, Option<u8>, u32);

fn key(layout: &Layout) -> Option<Key> {
    match layout.fragment {
        Fragment::No => None,
        Fragment::First { id } | Fragment::Later { id } => {
            let protocol = layout.is_ipv4().then_some(layout.protocol);
            Some((layout.source, layout.destination, protocol, id))
        }
    }
}

/// Next step for a packet that came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival<V> {
    /// It is whole or a first fragment: decide on it, then call [`Fragments::decide`].
    Decide,
    /// The decision on its first fragment.
    Follow(V),
    /// It waits for its first fragment.
    Held,
}

/// Decision on the first fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First<V> {
    Missing,
    Accepted(V),
    Refused,
}

/// The parts of a packet that were seen.
#[derive(Debug, Clone, Copy)]
struct Parts {
    /// From which byte to which, in no order.
    seen: [(u32, u32); PARTS_MAX],
    count: usize,
    /// Where the packet ends, once its last fragment was seen.
    end: Option<u32>,
}

impl Parts {
    const NONE: Self = Self { seen: [(0, 0); PARTS_MAX], count: 0, end: None };

    /// Adds a part.
    ///
    /// # Errors
    /// It overlaps another one, or contradicts the end. Says whether it is an exact repetition.
    fn add(&mut self, part: FragmentPart) -> Result<(), bool> {
        let FragmentPart { start, end, is_last } = part;
        let seen = &self.seen[..self.count];
        let is_behind = |limit: u32| end > limit || (is_last && end != limit);
        let highest = seen.iter().map(|(_, end)| *end).max().unwrap_or(0);
        if seen.contains(&(start, end)) && is_last == (self.end == Some(end)) {
            return Err(true);
        }
        let is_overlap = seen.iter().any(|(from, to)| start < *to && *from < end);
        let is_contradiction = self.end.is_some_and(is_behind) || (is_last && highest > end);
        if is_overlap || is_contradiction || self.count == PARTS_MAX {
            return Err(false);
        }
        self.seen[self.count] = (start, end);
        self.count += 1;
        self.end = self.end.or(is_last.then_some(end));
        Ok(())
    }

    /// Whether all of the packet was seen: no two parts overlap.
    fn is_complete(&self) -> bool {
        let bytes: u32 = self.seen[..self.count].iter().map(|(from, to)| to - from).sum();
        self.end == Some(bytes)
    }
}

#[derive(Debug)]
struct Assembly<V> {
    first: First<V>,
    parts: Parts,
    /// A fragment has overlapped another one.
    is_spoilt: bool,
}

/// A fragment that waits.
#[derive(Debug)]
struct WaitingFragment {
    key: Key,
    /// Its place among the frames.
    slot: usize,
    bytes: usize,
    until: Timestamp,
}

/// The addresses of a packet in fragments as it came to the NT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// The station that sent it.
    pub(crate) station: [u8; 6],
    /// Identification field of the IP header, which all fragments of the packet share.
    id: u32,
}

impl Sent {
    /// The addresses of a frame.
    pub(crate) fn of(frame: &[u8], layout: &Layout) -> Self {
        let station = frame[6..12].try_into().expect("six bytes of a parsed frame");
        let id = key(layout).map_or(0, |(.., id)| id);
        Self { source: layout.source, destination: layout.destination, station, id }
    }

    /// Gives an ICMP error about a fragment that left with other addresses, and the fragment that it quotes, those that
    /// the fragment came with. `hides_sender` replaces the error's source where the fragment's destination is another.
    pub(crate) fn translate_error(
        &self,
        bytes: &mut [u8],
        layout: &mut Layout,
        mut quoted: Layout,
        hides_sender: bool,
    ) {
        let [source, destination] =
            [self.source, self.destination].map(|address| Endpoint { address, port: 0 });
        if source.address != quoted.source {
            rewrite_quoted(bytes, &mut quoted, Side::Source, source);
            rewrite(bytes, layout, Side::Destination, source);
        }
        if key(&quoted).is_some_and(|(.., id)| id != self.id) {
            wire::replace_identification(bytes, &mut quoted, self.id as u16);
        }
        if destination.address != quoted.destination {
            rewrite_quoted(bytes, &mut quoted, Side::Destination, destination);
            if hides_sender {
                rewrite(bytes, layout, Side::Source, destination);
            }
        }
        wire::fill(bytes, layout);
    }
}

/// The packets in fragments of an NT, which decides values of type `V` on first fragments. All memory is taken when
/// it is made.
#[derive(Debug)]
pub(crate) struct Fragments<V> {
    table: AgingTable<Key, Assembly<V>, 1>,
    /// Packets that were let through, as they left.
    sent: AgingTable<Key, Sent, 1>,
    /// In the order in which they came.
    held: VecDeque<WaitingFragment>,
    /// The frames of those: one piece, of which the system provides what was written to.
    frames: Box<[u8]>,
    free: Vec<usize>,
}

impl<V: Copy> Fragments<V> {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self {
            table: AgingTable::new(PACKETS_MAX, [LIFETIME], hash),
            sent: AgingTable::new(PACKETS_MAX, [LIFETIME], hash),
            held: VecDeque::with_capacity(HELD_MAX),
            frames: vec![0; HELD_MAX * HELD_BYTES_MAX].into_boxed_slice(),
            free: (0..HELD_MAX).collect(),
        }
    }

    /// Records a packet as it came in, before any address in it is changed.
    ///
    /// # Errors
    /// It has to be dropped: an overlap, or a later fragment whose first was refused.
    pub(crate) fn arrive(
        &mut self,
        frame: &[u8],
        layout: &Layout,
        context: &mut Context<'_>,
    ) -> Result<Arrival<V>, DropReason> {
        let (now, emitted) = (context.now, &mut *context.emitted);
        self.remove_expired(now, emitted);
        let Some(key) = key(layout) else { return Ok(Arrival::Decide) };
        let part = FragmentPart::of(frame, layout).ok_or(DropReason::Malformed)?;
        let id = self.assembly(key, now, emitted);
        let assembly = self.table.value_mut(id);
        if assembly.is_spoilt {
            return Err(DropReason::FragmentOverlap);
        }
        if let Err(is_repetition) = assembly.parts.add(part) {
            assembly.is_spoilt = !is_repetition;
            if !is_repetition {
                self.give_up(&key, emitted);
            }
            return Err(DropReason::FragmentOverlap);
        }
        if !matches!(layout.fragment, Fragment::Later { .. }) {
            return Ok(Arrival::Decide);
        }
        match assembly.first {
            First::Missing => self.hold(key, frame, now, emitted),
            First::Refused => Err(DropReason::FragmentWithoutFirst),
            First::Accepted(value) => {
                if assembly.parts.is_complete() {
                    self.table.remove(id);
                }
                Ok(Arrival::Follow(value))
            }
        }
    }

    /// Records the decision on a packet that [`Fragments::arrive`] said to decide on; `None` refuses it. `layout` is
    /// that of the packet as it came in. Fragments that waited for it go in the given direction after `change`, or are
    /// dropped.
    pub(crate) fn decide(
        &mut self,
        layout: &Layout,
        decision: Option<(V, Direction)>,
        emitted: &mut Emitted,
        change: impl Fn(&mut [u8]),
    ) {
        let Some(key) = key(layout) else { return };
        let Some(id) = self.id(&key) else { return };
        let assembly = self.table.value_mut(id);
        match decision {
            None => {
                assembly.first = First::Refused;
                self.give_up(&key, emitted);
            }
            Some((value, direction)) => {
                assembly.first = First::Accepted(value);
                if assembly.parts.is_complete() {
                    self.table.remove(id);
                }
                self.take(&key, |frame| emitted.with(direction, frame, &change));
            }
        }
    }

    /// Remembers how a packet came whose first fragment leaves with `layout`.
    pub(crate) fn record_sent(&mut self, layout: &Layout, sent: Sent, now: Timestamp) {
        let Some(key) = key(layout) else { return };
        match self.sent.lookup(&key, now) {
            Lookup::Fresh(id) | Lookup::Expired(id) => {
                self.sent.remove(id);
            }
            Lookup::Absent if self.sent.is_full() => {
                let oldest = self.sent.oldest(0).expect("a full table has an oldest entry");
                self.sent.remove(oldest);
            }
            Lookup::Absent => {}
        }
        self.sent.insert(key, sent, 0, now).expect("room was made above");
    }

    /// Remembers that an NT behind this one gave a packet other addresses.
    pub(crate) fn record_translated(&mut self, from: &Flow, to: &Flow, id: u32, now: Timestamp) {
        let layout = |flow: &Flow| Layout {
            network: 0,
            transport: 0,
            end: 0,
            protocol: flow.protocol,
            fragment: Fragment::First { id },
            source: flow.source,
            destination: flow.destination,
        };
        if let Some(sent) = self.sent(&layout(from), now) {
            self.record_sent(&layout(to), sent, now);
        }
    }

    /// An identification for an IPv4 packet in fragments that leaves with `layout`: its own, unless one from another host
    /// that is still on its way has the same addresses and the same one (RFC 6864, section 5.3). `None` where it has
    /// none or keeps its own.
    pub(crate) fn other_identification(
        &self,
        layout: &Layout,
        came: &Sent,
        (random, now): (&mut dyn RngCore, Timestamp),
    ) -> Option<u16> {
        let is_free = |id: u32| {
            let layout = Layout { fragment: Fragment::First { id }, ..*layout };
            self.sent(&layout, now).is_none_or(|other| other.source == came.source)
        };
        let (.., own) = key(layout).filter(|_| layout.is_ipv4())?;
        if is_free(own) {
            return None;
        }
        let mut tries =
            std::iter::repeat_with(|| random.next_u32() as u16).take(IDENTIFICATION_TRIES);
        tries.find(|id| is_free(u32::from(*id)))
    }

    /// The addresses with which a fragment came that an ICMP error quotes.
    pub(crate) fn sent(&self, quoted: &Layout, now: Timestamp) -> Option<Sent> {
        let Lookup::Fresh(id) = self.sent.lookup(&key(quoted)?, now) else { return None };
        Some(*self.sent.value(id))
    }

    fn id(&self, key: &Key) -> Option<EntryId> {
        match self.table.lookup(key, Timestamp::ZERO) {
            Lookup::Fresh(id) | Lookup::Expired(id) => Some(id),
            Lookup::Absent => None,
        }
    }

    /// The record of a packet, made with the first of its fragments that comes.
    fn assembly(&mut self, key: Key, now: Timestamp, emitted: &mut Emitted) -> EntryId {
        match self.table.lookup(&key, now) {
            Lookup::Fresh(id) => return id,
            Lookup::Expired(id) => self.forget(id, emitted),
            Lookup::Absent if self.table.is_full() => {
                let oldest = self.table.oldest(0).expect("a full table has an oldest entry");
                self.forget(oldest, emitted);
            }
            Lookup::Absent => {}
        }
        let assembly = Assembly { first: First::Missing, parts: Parts::NONE, is_spoilt: false };
        self.table.insert(key, assembly, 0, now).expect("room was made above")
    }

    fn forget(&mut self, id: EntryId, emitted: &mut Emitted) {
        let (key, _) = self.table.remove(id);
        self.give_up(&key, emitted);
    }

    fn hold(
        &mut self,
        key: Key,
        frame: &[u8],
        now: Timestamp,
        emitted: &mut Emitted,
    ) -> Result<Arrival<V>, DropReason> {
        if frame.len() > HELD_BYTES_MAX {
            return Err(DropReason::NoBuffer);
        }
        if self.free.is_empty() {
            self.drop_oldest(emitted);
        }
        let slot = self.free.pop().expect("the oldest gave its place back");
        let bytes = frame.len();
        self.frames[slot * HELD_BYTES_MAX..][..bytes].copy_from_slice(frame);
        self.held.push_back(WaitingFragment { key, slot, bytes, until: now + LIFETIME });
        Ok(Arrival::Held)
    }

    fn drop_oldest(&mut self, emitted: &mut Emitted) {
        if let Some(oldest) = self.held.pop_front() {
            self.free.push(oldest.slot);
            emitted.drop_orphans(1);
        }
    }

    /// Drops what waits for a first fragment that is refused or missing.
    fn give_up(&mut self, key: &Key, emitted: &mut Emitted) {
        let mut count = 0;
        self.take(key, |_| count += 1);
        emitted.drop_orphans(count);
    }

    /// Takes out what waits, in the order in which it came.
    fn take(&mut self, key: &Key, mut each: impl FnMut(&[u8])) {
        let mut at = 0;
        while at < self.held.len() {
            if self.held[at].key != *key {
                at += 1;
                continue;
            }
            if let Some(WaitingFragment { slot, bytes, .. }) = self.held.remove(at) {
                each(&self.frames[slot * HELD_BYTES_MAX..][..bytes]);
                self.free.push(slot);
            }
        }
    }

    pub(crate) fn remove_expired(&mut self, now: Timestamp, emitted: &mut Emitted) {
        while self.held.front().is_some_and(|held| held.until <= now) {
            self.drop_oldest(emitted);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(start: u32, end: u32, is_last: bool) -> FragmentPart {
        FragmentPart { start, end, is_last }
    }

    #[test]
    fn rfc_5722_overlaps_are_told_from_repetitions() {
        let mut parts = Parts::NONE;
        assert_eq!(parts.add(part(8, 16, false)), Ok(()));
        assert_eq!(parts.add(part(8, 16, false)), Err(true));
        for overlap in [part(0, 16, false), part(0, 9, true), part(8, 24, false), part(0, 8, true)]
        {
            assert_eq!(parts.add(overlap), Err(false), "{overlap:?}");
        }
        assert_eq!(parts.add(part(16, 20, true)), Ok(()));
        assert_eq!(parts.add(part(24, 32, false)), Err(false), "behind the end");
        assert!(!parts.is_complete());
        assert_eq!(parts.add(part(0, 8, false)), Ok(()));
        assert!(parts.is_complete());
    }

    proptest! {
        /// A packet is complete with its last part and not before, in whatever order they come.
        #[test]
        fn parts_complete_a_packet_in_any_order(
            order in (1..=PARTS_MAX).prop_flat_map(|count| {
                Just((0..count).collect::<Vec<_>>()).prop_shuffle()
            }),
            rest in 1..8_u32,
        ) {
            let mut parts = Parts::NONE;
            let count = order.len() as u32;
            for (added, at) in order.iter().enumerate() {
                prop_assert!(!parts.is_complete(), "{added}");
                let start = *at as u32 * 8;
                let is_last = *at as u32 + 1 == count;
                let end = if is_last { start + rest } else { start + 8 };
                prop_assert_eq!(parts.add(part(start, end, is_last)), Ok(()));
                prop_assert_eq!(parts.add(part(start, end, is_last)), Err(true));
            }
            prop_assert!(parts.is_complete());
        }
    }
}
