//! The card's memory: buffers of the host, bounded by what NTs have too and named by their device
//! address, and behind all that the save area, which no page of an NT reaches.

use std::collections::BTreeMap;
use std::sync::Arc;

use snic_domain::ByteSize;
use snic_ports::card::CardError;

/// Buffers begin at multiples of this: what DMA engines move at once.
const ALIGNMENT: u64 = 4_096;

/// The card's memory, as far as the host uses it for buffers.
#[derive(Debug)]
pub(crate) struct Memory {
    size: u64,
    buffers: BTreeMap<u64, Arc<[u8]>>,
    save_area: u64,
    /// The save area as far as it was written.
    saved: Vec<u8>,
}

impl Memory {
    pub(crate) const fn new(size: ByteSize, save_area: ByteSize) -> Self {
        let (size, save_area) = (size.get(), save_area.get());
        Self { size, buffers: BTreeMap::new(), save_area, saved: Vec::new() }
    }

    /// Where the save area begins: the first byte that no page has.
    pub(crate) const fn save_area_base(&self) -> u64 {
        self.size
    }

    /// Writes into the save area; the part was checked to be in it.
    pub(crate) fn write_saved(&mut self, offset: u32, bytes: &[u8]) {
        let range = offset as usize..offset as usize + bytes.len();
        debug_assert!(range.end as u64 <= self.save_area, "outside of the save area: {range:?}");
        if self.saved.len() < range.end {
            self.saved.resize(range.end, 0);
        }
        self.saved[range].copy_from_slice(bytes);
    }

    /// Reads from the save area; what was never written is zero.
    pub(crate) fn saved(&self, offset: u32, length: u32) -> Vec<u8> {
        let from = self.saved.get(offset as usize..).unwrap_or_default();
        let mut bytes = from[..from.len().min(length as usize)].to_vec();
        bytes.resize(length as usize, 0);
        bytes
    }

    /// Zeros over a part of the save area.
    pub(crate) fn erase(&mut self, offset: u32, length: u32) {
        let end = self.saved.len().min(offset as usize + length as usize);
        if let Some(range) = self.saved.get_mut(offset as usize..end) {
            range.fill(0);
        }
    }

    /// Puts bytes into the first gap that is large enough.
    pub(crate) fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError> {
        let needed = room(bytes.len());
        let mut at = 0;
        for (&address, buffer) in &self.buffers {
            if address - at >= needed {
                break;
            }
            at = address + room(buffer.len());
        }
        if self.size.saturating_sub(at) < needed {
            return Err(CardError::NoMemory { bytes: bytes.len() });
        }
        self.buffers.insert(at, bytes.into());
        Ok(at)
    }

    pub(crate) fn release(&mut self, address: u64) -> Result<(), CardError> {
        self.buffers.remove(&address).map(|_| ()).ok_or(CardError::NoBuffer(address))
    }

    /// The buffer that begins at `address`.
    pub(crate) fn buffer(&self, address: u64) -> Option<Arc<[u8]>> {
        self.buffers.get(&address).cloned()
    }

    /// Number of buffers.
    pub(crate) fn buffers(&self) -> usize {
        self.buffers.len()
    }

    pub(crate) fn clear(&mut self) {
        self.buffers.clear();
        self.saved.clear();
    }
}

/// Space that a buffer takes: whole units, and a distinct address even where it is empty.
fn room(bytes: usize) -> u64 {
    (bytes.max(1) as u64).next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_memory_refuses_and_a_freed_gap_is_used() {
        let mut memory = Memory::new(ByteSize::from_bytes(3 * ALIGNMENT), ByteSize::ZERO);
        let first = memory.stage(&[1; 5_000]).expect("two units");
        let second = memory.stage(&[2]).expect("one unit");
        assert_eq!((first, second), (0, 2 * ALIGNMENT));
        assert_eq!(memory.stage(&[3]), Err(CardError::NoMemory { bytes: 1 }));
        memory.release(first).expect("it is there");
        assert_eq!(memory.release(first), Err(CardError::NoBuffer(first)));
        assert_eq!(memory.stage(&[3]).expect("the gap"), first);
        assert_eq!(memory.buffer(second).expect("still there")[..], [2]);
        assert!(memory.buffer(1).is_none());
    }

    proptest! {
        #[test]
        fn buffers_never_overlap(steps in prop::collection::vec((0_usize..20_000, any::<u8>()), 1..60)) {
            let mut memory = Memory::new(ByteSize::from_bytes(40 * ALIGNMENT), ByteSize::ZERO);
            for (bytes, drop) in steps {
                let before = memory.buffers();
                match memory.stage(&vec![0; bytes]) {
                    Ok(_) => prop_assert_eq!(memory.buffers(), before + 1),
                    Err(_) => prop_assert_eq!(memory.buffers(), before),
                }
                if drop % 3 == 0 && let Some((&address, _)) = memory.buffers.iter().nth(usize::from(drop) % memory.buffers.len().max(1)) {
                    memory.release(address).expect("listed");
                }
                let mut end = 0;
                for (&address, buffer) in &memory.buffers {
                    prop_assert!(address >= end);
                    end = address + room(buffer.len());
                }
                prop_assert!(end <= memory.size);
            }
        }
    }
}
