//! Frames that the guest sends: the bytes of a chain of descriptors, copied once before anybody looks at them, for the guest may
//! change its memory at any time.

use snic_card_soft::OFFLOAD_BYTES;
use virtio_queue::DescriptorChain;
use vm_memory::{Bytes as _, GuestMemoryMmap};

use crate::DESCRIPTORS_MAX;
use crate::memory::Memory;

/// Longest header, and longest frame behind it: merged TCP segments of 64 KiB with two VLAN tags.
const HEADER_BYTES_MAX: usize = 12;
const MERGED_BYTES_MAX: usize = 65_535 + 22;
/// Shortest frame: an Ethernet header.
const FRAME_BYTES_MIN: usize = 14;

/// Room for one frame.
pub(crate) struct Outlet {
    bytes: Box<[u8]>,
}

impl Default for Outlet {
    fn default() -> Self {
        Self { bytes: vec![0; HEADER_BYTES_MAX + MERGED_BYTES_MAX].into() }
    }
}

impl Outlet {
    /// Reads a chain: what is left to the card, and the frame. `None` where it is not one: too long or too short, memory
    /// that is not there, or that only the card may write.
    pub(crate) fn read(
        &mut self,
        memory: &GuestMemoryMmap,
        chain: DescriptorChain<Memory>,
        header: usize,
    ) -> Option<([u8; OFFLOAD_BYTES], &[u8])> {
        let mut length = 0;
        for (number, descriptor) in chain.enumerate() {
            if number == DESCRIPTORS_MAX || descriptor.is_write_only() {
                return None;
            }
            let end = length + descriptor.len() as usize;
            memory.read_slice(self.bytes.get_mut(length..end)?, descriptor.addr()).ok()?;
            length = end;
        }
        let (head, frame) = self.bytes[..length].split_at_checked(header)?;
        let offload = *head.first_chunk()?;
        (frame.len() >= FRAME_BYTES_MIN).then_some((offload, frame))
    }
}
