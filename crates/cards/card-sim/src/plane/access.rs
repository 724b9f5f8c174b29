//! NTs and their memory: every access goes through the page table, keyed by tenant and NT, so that
//! an NT that tenants share keeps them apart. What is not mapped for it is a fault: the packet is
//! dropped and counted, and nothing is read or written.
//!
//! An NT's use of memory is defined by its netlist, which a simulated card does not have: its ROM states how many bytes
//! it moves for a packet, and the caller of the simulation which pages it reaches ([`MemoryAccess`]): of an NT whose ROM
//! says nothing, a beat for each packet. When a packet's head has passed the NT's pipeline, the access
//! waits for those before it (one memory serves all NTs, at its bandwidth), and the packet goes on when
//! the answer is back. Until then it keeps the NT's credit.

use snic_domain::limits::PAGE_SIZE;
use snic_domain::{CardProfile, NtNumber};

use super::{MEMORY_BYTES_PER_SECOND, PacketCopy, Plane, PlaneOptions, bank_index};
use crate::decoded::{Decoded, PageKey};

/// Reading is allowed: bit 0 of a page row's rights.
const READ: u8 = 0b001;
/// Writing is allowed: bit 1.
const WRITE: u8 = 0b010;

/// Access of an NT to memory for every packet: one access of a beat, to pages that packets spread
/// over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Pages of its own space that it uses, from page zero on; none is no access.
    pub pages: u16,
    /// Whether it writes; it reads in any case.
    pub writes: bool,
}

impl MemoryAccess {
    const fn rights(self) -> u8 {
        if self.writes { READ | WRITE } else { READ }
    }

    /// The page that a packet's access is to; the same for the same packet on every machine.
    fn page(self, source: u32, sequence: u32) -> u16 {
        let mixed = (u64::from(source) << 32 | u64::from(sequence)) + 1;
        // The golden ratio times 2^64: neighbours fall far apart.
        let spread = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (spread % u64::from(self.pages.max(1))) as u16
    }
}

impl PlaneOptions {
    /// The usual choices for a card with this profile, which may say what its memory moves.
    pub fn of(profile: &CardProfile) -> Self {
        let rate = profile.memory_bytes_per_second.unwrap_or(MEMORY_BYTES_PER_SECOND);
        Self { memory_bytes_per_second: rate, ..Self::default() }
    }
}

/// Result of the access of an NT for a packet.
pub(super) enum Access {
    /// It makes none.
    None,
    /// The answer is there at this cycle.
    Answered(u64),
    /// It is to a page that it may not reach.
    Fault,
}

/// Where a page of a tenant's NT lies, if it may be accessed so.
fn translate(rows: &Decoded, key: PageKey, rights: u8) -> Option<u16> {
    let (physical, granted) = rows.page(key)?;
    (granted & rights == rights).then_some(physical)
}

impl Plane {
    /// Sets what NTs of `code` do with memory from now on.
    pub(crate) fn set_access(&mut self, code: u32, access: MemoryAccess) {
        if access.pages == 0 {
            self.accesses.remove(&code);
        } else {
            self.accesses.insert(code, access);
        }
    }

    /// Makes the memory access of the NT that a copy is in.
    pub(super) fn access(&mut self, at: u32) -> Access {
        let copy = &self.copies[at];
        let slot = copy.rest.trailing_zeros() as usize;
        let nt = self.regions[usize::from(copy.region)].nts[slot].as_ref();
        let number = self.number(copy, slot).unwrap_or_default().0;
        let Some((code, traffic)) = nt.map(|nt| (nt.code, nt.memory_traffic)) else {
            return Access::None;
        };
        let packet = &self.packets[copy.packet];
        let Some(access) = self.accesses.get(&code) else {
            let bytes = traffic.bytes(packet.bytes);
            return if bytes == 0 { Access::None } else { self.move_bytes(bytes) };
        };
        let bank = packet.bank.map_or(self.banks.active(), bank_index);
        let rows = self.banks.rows(bank);
        let tenant = rows.dags[usize::from(packet.uid.row())].map(|row| row.tenant);
        let virtual_page = access.page(packet.source, packet.sequence);
        let physical = tenant.and_then(|tenant| {
            let key = PageKey { tenant, nt: number, virtual_page };
            translate(rows, key, access.rights())
        });
        // A page that the card does not have is none.
        let inside = physical.is_some_and(|page| u64::from(page) < self.memory_pages);
        if !inside {
            return Access::Fault;
        }
        let beat = u64::from(self.timing.beat_bytes);
        self.move_bytes(if traffic.is_none() { beat } else { traffic.bytes(packet.bytes) })
    }

    /// Moves bytes when those before are moved.
    fn move_bytes(&mut self, bytes: u64) -> Access {
        let served = self.memory.serve(self.now, bytes.saturating_mul(8));
        Access::Answered(served.end + self.timing.memory)
    }
}

impl Plane {
    /// NT type that the scheduler takes a slot for: the region's row says so, in the packet's tables.
    pub(super) fn number(&self, copy: &PacketCopy, slot: usize) -> Option<NtNumber> {
        let bank = self.packets[copy.packet].bank.map_or(self.banks.active(), bank_index);
        let row = self.banks.rows(bank).regions[usize::from(copy.region)]?;
        Some(NtNumber(row.nts[slot])).filter(|number| number.0 != 0)
    }
}

/// Number of pages of a memory.
pub(super) const fn pages(memory: snic_domain::ByteSize) -> u64 {
    memory.get() / PAGE_SIZE.get()
}
