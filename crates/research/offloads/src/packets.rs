//! Places for packets, used again, so that memory follows what is in a design and not what was sent.

use slab::Slab;

/// A packet on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) flow: usize,
    pub(super) bytes: u32,
    pub(super) born: u64,
    /// Number of offloads of its chain behind it.
    pub(super) next: usize,
}

/// Packets at numbered places.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    places: Slab<Packet>,
    most: usize,
}

impl Packets {
    /// Puts a packet somewhere; says where.
    pub(crate) fn insert(&mut self, packet: Packet) -> u32 {
        let at = self.places.insert(packet);
        self.most = self.most.max(self.places.len());
        at as u32
    }

    /// Takes a packet out.
    pub(crate) fn remove(&mut self, at: u32) -> Packet {
        self.places.remove(at as usize)
    }

    /// Number of packets.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The most there were at once.
    pub(crate) fn most(&self) -> usize {
        self.most
    }
}

impl std::ops::Index<u32> for Packets {
    type Output = Packet;
    fn index(&self, at: u32) -> &Packet {
        &self.places[at as usize]
    }
}

impl std::ops::IndexMut<u32> for Packets {
    fn index_mut(&mut self, at: u32) -> &mut Packet {
        &mut self.places[at as usize]
    }
}
