//! Packet buffers from a bounded pool.
//!
//! A buffer is allocated once and goes back to its pool when its packet is dropped, whoever drops
//! forgotten. The pool's size is the limit on packets in the card: when it is empty, a port drops what
//! arrives, and an NT that wants to emit a packet counts that it could not.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::wire::{Flow, Fragment, Layout};

/// Room before a received frame: the outer headers of VXLAN over IPv6 (70 bytes) around those of ESP
/// over IPv6 (56 bytes) around those of the go-back-N transport (24 bytes), rounded up to three cache lines.
pub const HEADROOM: usize = 192;

/// A fixed number of buffers of one size.
#[derive(Debug, Clone)]
pub struct Pool {
    home: Arc<BufferOwner>,
}

#[derive(Debug)]
struct BufferOwner {
    free: Mutex<Vec<Box<[u8]>>>,
    capacity: usize,
    frame_bytes_max: usize,
}

/// A packet needs more room than its buffer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes do not fit into the {available} that the buffer has left")]
pub struct NoRoom {
    /// Bytes asked for.
    pub needed: usize,
    /// Bytes left on that side.
    pub available: usize,
}

impl Pool {
    /// `capacity` buffers for frames of up to `frame_bytes_max` bytes, with [`HEADROOM`] before each.
    pub fn new(capacity: usize, frame_bytes_max: usize) -> Self {
        let buffer = || vec![0; HEADROOM + frame_bytes_max].into_boxed_slice();
        let free = Mutex::new((0..capacity).map(|_| buffer()).collect());
        Self { home: Arc::new(BufferOwner { free, capacity, frame_bytes_max }) }
    }

    /// An empty packet; `None` while all buffers are in use.
    pub fn take(&self) -> Option<Packet> {
        let buffer = self.home.free.lock().pop()?;
        let home = Arc::clone(&self.home);
        let marks = Marks::default();
        Some(Packet { buffer, start: HEADROOM, end: HEADROOM, marks, home })
    }

    /// A packet that holds a copy of `frame`; `None` while all buffers are in use, or for a frame
    /// that is larger than the pool's.
    pub fn copy_of(&self, frame: &[u8]) -> Option<Packet> {
        if frame.len() > self.home.frame_bytes_max {
            return None;
        }
        let mut packet = self.take()?;
        packet.replace(frame).expect("the length was compared with the pool's above");
        Some(packet)
    }

    /// Buffers that are not in use.
    pub fn available(&self) -> usize {
        self.home.free.lock().len()
    }

    pub fn capacity(&self) -> usize {
        self.home.capacity
    }

    /// Bytes of memory that all buffers take.
    pub fn memory_bytes(&self) -> usize {
        self.home.capacity * (HEADROOM + self.home.frame_bytes_max)
    }
}

/// One frame in a buffer, with room around it.
#[derive(Debug)]
pub struct Packet {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    marks: Marks,
    home: Arc<BufferOwner>,
}

/// Marks that NTs leave on a packet for other NTs of its chain.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    /// The flow before NTs gave it other addresses.
    origin: Option<Flow>,
    /// The flow by which an NT follows the packet.
    followed: Option<Flow>,
    /// Its flow behind the last NT that gave it other addresses.
    translation: Option<Translation>,
}

/// New addresses that an NT gave to a packet that an NT before it follows: replies come with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translation {
    /// The flow by which the packet is followed.
    pub(crate) followed: Flow,
    /// Its flow now.
    pub(crate) flow: Flow,
    /// Its identification, for the first fragment of a packet.
    pub(crate) fragment: Option<u32>,
}

impl Drop for Packet {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.home.free.lock().push(buffer);
    }
}

impl Packet {
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The frame, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Length of the frame.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The flow that the packet was of before NTs gave it other addresses. Replies pass these NTs first, too, so
    /// those behind them see replies with the old addresses: that is what they know the flow by. For an ICMP error it
    /// is the flow of the packet that it quotes.
    pub(crate) const fn origin(&self) -> Option<Flow> {
        self.marks.origin
    }

    /// An NT gave the packet other addresses, which replies do not have behind that NT.
    pub(crate) fn translated_from(&mut self, flow: Flow) {
        self.marks.origin.get_or_insert(flow);
    }

    /// An NT follows the packet by this flow, and is to learn which other addresses it gets behind.
    pub(crate) fn follow_as(&mut self, flow: Flow) {
        self.marks.followed = Some(flow);
    }

    /// An NT gave the packet other addresses or ports; `layout` is the new one.
    pub(crate) fn translated_to(&mut self, layout: &Layout) {
        let Some(followed) = self.marks.followed else { return };
        let fragment = match layout.fragment {
            Fragment::First { id } => Some(id),
            Fragment::No | Fragment::Later { .. } => None,
        };
        let flow = Flow::of(self.bytes(), layout);
        self.marks.translation = Some(Translation { followed, flow, fragment });
    }

    /// Leaves the marks on the packet that a flow rule has kept.
    pub(crate) fn mark_as(&mut self, origin: Option<Flow>, followed: Option<Flow>) {
        self.marks = Marks { origin, followed, translation: None };
    }

    /// The flow before NTs gave it other addresses, and the one by which an NT follows it.
    pub(crate) const fn marks(&self) -> (Option<Flow>, Option<Flow>) {
        (self.marks.origin, self.marks.followed)
    }

    /// Takes out what the other NTs of the chain have to learn of the NT that the packet has just passed:
    /// [`crate::NtInstance::learn`].
    pub fn take_translation(&mut self) -> Option<Translation> {
        self.marks.translation.take()
    }

    /// Replaces the frame by a copy of `frame`.
    ///
    /// # Errors
    /// The frame is larger than the buffer; the packet is unchanged.
    pub fn replace(&mut self, frame: &[u8]) -> Result<(), NoRoom> {
        let start = HEADROOM.min(self.buffer.len());
        let available = self.buffer.len() - start;
        if frame.len() > available {
            return Err(NoRoom { needed: frame.len(), available });
        }
        self.start = start;
        self.end = start + frame.len();
        self.marks = Marks::default();
        self.bytes_mut().copy_from_slice(frame);
        Ok(())
    }

    /// Adds `count` bytes of undefined content at the front.
    ///
    /// # Errors
    /// There is less headroom; the packet is unchanged.
    pub fn grow_front(&mut self, count: usize) -> Result<(), NoRoom> {
        if count > self.start {
            return Err(NoRoom { needed: count, available: self.start });
        }
        self.start -= count;
        self.marks = Marks::default();
        Ok(())
    }

    /// Removes up to `count` bytes from the front.
    pub fn shrink_front(&mut self, count: usize) {
        self.start += count.min(self.len());
        self.marks = Marks::default();
    }

    /// Adds `count` bytes of undefined content at the end.
    ///
    /// # Errors
    /// There is less room behind the frame; the packet is unchanged.
    pub fn grow_back(&mut self, count: usize) -> Result<(), NoRoom> {
        let available = self.buffer.len() - self.end;
        if count > available {
            return Err(NoRoom { needed: count, available });
        }
        self.end += count;
        Ok(())
    }

    /// Cuts the frame to at most `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.end = self.start + length.min(self.len());
    }

    /// Opens a gap of `count` undefined bytes at offset `at`: what is before it moves to the front.
    ///
    /// # Errors
    /// There is less headroom; the packet is unchanged.
    ///
    /// # Panics
    /// `at` is beyond the frame.
    pub fn open_gap(&mut self, at: usize, count: usize) -> Result<(), NoRoom> {
        assert!(at <= self.len(), "a gap at {at} in a frame of {} bytes", self.len());
        self.grow_front(count)?;
        self.bytes_mut().copy_within(count..count + at, 0);
        Ok(())
    }

    /// Removes `count` bytes at offset `at`: what is before them moves back.
    ///
    /// # Panics
    /// The bytes are not all in the frame.
    pub fn close_gap(&mut self, at: usize, count: usize) {
        assert!(at + count <= self.len(), "{count} bytes at {at} of {}", self.len());
        self.bytes_mut().copy_within(0..at, count);
        self.shrink_front(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_no_more_exist_than_were_made() {
        let pool = Pool::new(2, 64);
        let (first, second) = (pool.take().unwrap(), pool.copy_of(&[1; 64]).unwrap());
        assert!(pool.take().is_none());
        assert_eq!(second.bytes(), [1; 64]);
        drop(first);
        assert_eq!(pool.available(), 1);
        std::thread::spawn(move || drop(second)).join().unwrap();
        assert_eq!(pool.available(), pool.capacity());
        assert!(pool.copy_of(&[0; 65]).is_none());
        assert_eq!(pool.memory_bytes(), 2 * (64 + HEADROOM));
    }

    #[test]
    fn gaps_move_what_is_before_them() {
        let pool = Pool::new(1, 8);
        let mut packet = pool.copy_of(b"headtail").unwrap();
        packet.open_gap(4, 3).unwrap();
        packet.bytes_mut()[4..7].copy_from_slice(b"-+-");
        assert_eq!(packet.bytes(), b"head-+-tail");
        packet.close_gap(2, 5);
        assert_eq!(packet.bytes(), b"hetail");
        assert_eq!(packet.open_gap(0, HEADROOM + 3), Err(NoRoom { needed: 195, available: 194 }));
        assert_eq!(packet.bytes(), b"hetail");
        packet.truncate(2);
        assert_eq!(packet.bytes(), b"he");
    }

    #[test]
    fn no_side_grows_over_its_room() {
        let pool = Pool::new(1, 8);
        let mut packet = pool.copy_of(b"frame").unwrap();
        assert!(packet.grow_back(3).is_ok());
        assert_eq!(packet.grow_back(1), Err(NoRoom { needed: 1, available: 0 }));
        assert!(packet.grow_front(HEADROOM).is_ok());
        assert!(packet.grow_front(1).is_err());
        packet.shrink_front(usize::MAX);
        assert!(packet.is_empty());
        assert!(packet.replace(b"12345678").is_ok());
        assert_eq!(packet.len(), 8);
    }
}
