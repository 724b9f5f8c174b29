//! Frames that the guest receives: a frame behind its header, in as many of the guest's buffers as it takes.

use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};

use crate::DESCRIPTORS_MAX;
use crate::memory::Memory;

/// Chains of one frame at most: a guest's buffer has a page, or the largest frame.
const CHAINS_MAX: usize = 64;
/// Longest header. Its last two bytes say how many chains a frame is in.
const HEADER_BYTES_MAX: usize = 12;
const CHAINS_AT: usize = 10;
/// Bytes of an entry of the used ring, and of what is before the entries (virtio 1.2, 2.7.8).
const USED_BYTES: u64 = 8;
const USED_HEAD_BYTES: u64 = 4;

/// Fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameFate {
    /// It is in the guest's memory.
    Whole { chains: usize },
    /// The guest has too few buffers at the moment.
    NoBuffers,
    /// The guest's next buffers are useless, and it has them back empty.
    Unusable,
}

/// A part of the guest's memory that is written.
struct Part {
    address: GuestAddress,
    bytes: usize,
}

/// Room to find buffers for one frame.
#[derive(Default)]
pub(crate) struct Inlet {
    parts: Vec<Part>,
    /// The chains by their heads, and the bytes that each gets.
    chains: Vec<(u16, u32)>,
}

impl Inlet {
    /// Writes a frame behind a header of so many bytes; into more than one chain where the guest merges them.
    pub(crate) fn put(
        &mut self,
        queue: &mut Queue,
        memory: &Memory,
        frame: &[u8],
        (header, merges): (usize, bool),
    ) -> FrameFate {
        let placed = self.find(queue, memory, (header + frame.len(), merges));
        match placed {
            FrameFate::NoBuffers => return placed,
            FrameFate::Unusable => self.chains.iter_mut().for_each(|(_, bytes)| *bytes = 0),
            FrameFate::Whole { chains } => {
                let mut head = [0; HEADER_BYTES_MAX];
                // At most 64.
                head[CHAINS_AT..].copy_from_slice(&(chains as u16).to_le_bytes());
                self.write(memory, &head[..header], frame);
            }
        }
        // The addresses were in the memory: where the ring is not, the guest will not see the frame.
        let _ = self.publish(queue, memory);
        placed
    }

    /// Finds buffers for so many bytes.
    fn find(
        &mut self,
        queue: &mut Queue,
        memory: &Memory,
        (needed, merges): (usize, bool),
    ) -> FrameFate {
        self.parts.clear();
        self.chains.clear();
        let before = queue.next_avail();
        let (mut room, mut looks) = (0, DESCRIPTORS_MAX);
        while room < needed {
            let is_last = self.chains.len() == if merges { CHAINS_MAX } else { 1 };
            if is_last || looks == 0 {
                return FrameFate::Unusable;
            }
            let Some(chain) = queue.pop_descriptor_chain(Memory::clone(memory)) else {
                // What was looked at is there for the next time.
                queue.set_next_avail(before);
                return FrameFate::NoBuffers;
            };
            let (head, first) = (chain.head_index(), room);
            for descriptor in chain.take(looks) {
                looks -= 1;
                let bytes = (descriptor.len() as usize).min(needed - room);
                if bytes > 0
                    && descriptor.is_write_only()
                    && memory.check_range(descriptor.addr(), bytes)
                {
                    self.parts.push(Part { address: descriptor.addr(), bytes });
                    room += bytes;
                }
            }
            // At most a frame's length.
            self.chains.push((head, (room - first) as u32));
        }
        FrameFate::Whole { chains: self.chains.len() }
    }

    fn write(&self, memory: &GuestMemoryMmap, head: &[u8], frame: &[u8]) {
        let mut rest = [head, frame];
        for part in &self.parts {
            let (mut at, mut left) = (part.address, part.bytes);
            for source in &mut rest {
                let (now, later) = source.split_at(source.len().min(left));
                // The range was checked, and a mapping stays while it is in use.
                let _ = memory.write_slice(now, at);
                at = GuestAddress(at.0.saturating_add(now.len() as u64));
                left -= now.len();
                *source = later;
            }
        }
    }

    /// Gives the chains to the guest, all at once: it sees either none or all that a frame is in.
    fn publish(&self, queue: &mut Queue, memory: &GuestMemoryMmap) -> Option<()> {
        let ((last, bytes), before) = self.chains.split_last()?;
        if before.iter().any(|(head, _)| *head >= queue.size()) {
            return None;
        }
        let mut next = queue.next_used();
        for (head, bytes) in before {
            let place = u64::from(next.checked_rem(queue.size())?);
            let at = queue.used_ring().checked_add(USED_HEAD_BYTES + place * USED_BYTES)?;
            let entry = u64::from(*head) | u64::from(*bytes) << 32;
            memory.write_slice(&entry.to_le_bytes(), GuestAddress(at)).ok()?;
            next = next.wrapping_add(1);
        }
        queue.set_next_used(next);
        queue.add_used(memory, *last, *bytes).ok()
    }
}
