//! Later fragments have no ports: what was decided about the first is remembered for them, for as
//! long as a receiver waits for the rest (RFC 8200 section 4.5 says 60 s, Linux takes 30).

use std::net::IpAddr;
use std::time::Duration;

use snic_domain::Timestamp;

use crate::aging::{AgingTable, KeyedHash, Lookup};
use crate::wire::{Fragment, Layout};

/// Packets in fragments at once. The oldest goes for a new one.
const PACKETS_MAX: usize = 1_024;
const LIFETIME: Duration = Duration::from_secs(30);

type Key = (IpAddr, IpAddr, u8, u32);

/// What was decided about first fragments.
#[derive(Debug)]
pub(crate) struct Fragments<V> {
    table: AgingTable<Key, V, 1>,
}

fn key(layout: &Layout) -> Option<Key> {
    match layout.fragment {
        Fragment::No => None,
        Fragment::First { id } | Fragment::Later { id } => {
            Some((layout.source, layout.destination, layout.protocol, id))
        }
    }
}

impl<V: Copy> Fragments<V> {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self { table: AgingTable::new(PACKETS_MAX, [LIFETIME], hash) }
    }

    /// Remembers what holds for the fragments that follow `layout`; whole packets are ignored.
    /// `layout` is that of the packet as it came in.
    pub(crate) fn remember(&mut self, layout: &Layout, value: V, now: Timestamp) {
        let Some(key) = key(layout) else { return };
        match self.table.lookup(&key, now) {
            Lookup::Fresh(id) | Lookup::Expired(id) => {
                self.table.remove(id);
            }
            Lookup::Absent if self.table.is_full() => {
                let oldest = self.table.oldest(0).expect("a full table has an oldest entry");
                self.table.remove(oldest);
            }
            Lookup::Absent => {}
        }
        self.table.insert(key, value, 0, now);
    }

    /// What was decided about the first fragment.
    pub(crate) fn recall(&self, layout: &Layout, now: Timestamp) -> Option<V> {
        match self.table.lookup(&key(layout)?, now) {
            Lookup::Fresh(id) => Some(*self.table.value(id)),
            Lookup::Expired(_) | Lookup::Absent => None,
        }
    }
}
