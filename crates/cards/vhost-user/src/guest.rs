//! The guest behind a port: its memory, its features, and the turns of the thread that works on its rings.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{SealFlags, fcntl_get_seals, fstatfs};
use snic_nts::Packet;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost_user_backend::{VhostUserBackendMut, VringMutex, VringT as _};
use virtio_queue::QueueT as _;
use vm_memory::{
    GuestAddressSpace as _, GuestMemoryAtomic, GuestMemoryBackend as _, GuestMemoryMmap,
    GuestMemoryRegion as _,
};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{
    EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier,
};

use crate::channel::{GuestEnd, Shared};
use crate::memory::Memory;
use crate::receiving::{FrameFate, Inlet};
use crate::sending::Outlet;
use crate::{RING_SIZE_MAX, TURN_CHAINS};

/// The rings of a network device with one pair (virtio 1.2, 5.1.2).
const RINGS: usize = 2;
/// Event of the bell among those of the port's thread; lower ones are the rings and their end.
pub(crate) const BELL_EVENT: u64 = RINGS as u64 + 1;

/// Bits of features (virtio 1.2, 5.1.3 and 6; vhost-user for the last one).
const CHECKSUM: u64 = 1 << 0;
const TSO_V4: u64 = 1 << 11;
const TSO_V6: u64 = 1 << 12;
pub(crate) const MERGEABLE_BUFFERS: u64 = 1 << 15;
const INDIRECT: u64 = 1 << 28;
const EVENT_INDEX: u64 = 1 << 29;
pub(crate) const VERSION_1: u64 = 1 << 32;
pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
const FEATURES: u64 = CHECKSUM
    | TSO_V4
    | TSO_V6
    | MERGEABLE_BUFFERS
    | INDIRECT
    | EVENT_INDEX
    | VERSION_1
    | PROTOCOL_FEATURES;

/// The file system of huge pages (`HUGETLBFS_MAGIC`).
const HUGE_PAGES: u64 = 0x9584_58f6;

pub(crate) struct Guest {
    end: GuestEnd,
    /// The number of the front end that is connected or awaited, from 1.
    number: u64,
    /// The guest's memory, once it was checked.
    memory: Option<Memory>,
    features: u64,
    inlet: Inlet,
    outlet: Outlet,
    /// A frame that waits for the guest's buffers.
    waiting: Option<Packet>,
    /// Frames that were made of the last chain.
    made: VecDeque<Packet>,
}

/// Whether there is more to do at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TurnOutcome {
    Done,
    More,
}

impl Guest {
    pub(crate) fn new(end: GuestEnd) -> Self {
        Self {
            end,
            number: 0,
            memory: None,
            features: 0,
            inlet: Inlet::default(),
            outlet: Outlet::default(),
            waiting: None,
            made: VecDeque::with_capacity(snic_card_soft::SEGMENTS_MAX),
        }
    }

    /// Another front end comes. The thread of the one before has ended.
    pub(crate) fn begin(&mut self) -> Arc<Shared> {
        self.number += 1;
        self.memory = None;
        self.features = 0;
        self.waiting = None;
        self.end.stop();
        Arc::clone(&self.end.shared)
    }

    /// Bytes of the header in front of a frame (virtio 1.2, 5.1.6).
    const fn header_bytes(&self) -> usize {
        if self.features & (VERSION_1 | MERGEABLE_BUFFERS) == 0 { 10 } else { 12 }
    }

    /// Takes frames out of the guest's memory.
    fn take(&mut self, memory: &Memory, ring: &VringMutex) -> TurnOutcome {
        let header = self.header_bytes();
        let mut ring = ring.get_mut();
        if !ring.is_enabled() || !ring.get_queue().ready() {
            return TurnOutcome::Done;
        }
        let queue = ring.get_queue_mut();
        // An error is a ring outside of the memory: nothing can be done with it.
        let _ = queue.disable_notification(&**memory);
        let (mut taken, mut looks) = (0, 0);
        let turn = loop {
            if taken >= TURN_CHAINS {
                break TurnOutcome::More;
            }
            // A merged frame may need so many.
            if self.end.buffers.available() < snic_card_soft::SEGMENTS_MAX {
                self.end.shared.waits_for_buffers.store(true, Ordering::Release);
                // The card may have given them back meanwhile, and not have seen that somebody waits.
                let is_late = self.end.buffers.available() >= snic_card_soft::SEGMENTS_MAX;
                break if is_late { TurnOutcome::More } else { TurnOutcome::Done };
            }
            let Some(chain) = queue.pop_descriptor_chain(Arc::clone(memory)) else {
                looks += 1;
                // What came while notifications were off. Where it is no chain, there is no use in looking again.
                if looks > 1 || !queue.enable_notification(&**memory).unwrap_or(false) {
                    break TurnOutcome::Done;
                }
                continue;
            };
            looks = 0;
            taken += 1;
            let head = chain.head_index();
            let is_good =
                self.outlet.read(memory, chain, header).is_some_and(|(offload, frame)| {
                    snic_card_soft::complete(offload, frame, &self.end.buffers, &mut self.made)
                });
            if is_good {
                // There is room for all buffers.
                self.made.drain(..).for_each(|packet| drop(self.end.arrived.try_send(packet)));
            } else {
                self.made.clear();
                self.end.shared.refuse();
            }
            if queue.add_used(&**memory, head, 0).is_err() {
                break TurnOutcome::Done;
            }
        };
        if taken > 0 {
            self.end.shared.for_card.ring();
            if queue.needs_notification(&**memory).unwrap_or(true) {
                let _ = ring.signal_used_queue();
            }
        }
        turn
    }

    /// Puts frames into the guest's memory.
    fn give(&mut self, memory: &Memory, ring: &VringMutex) -> TurnOutcome {
        let (header, merges) = (self.header_bytes(), self.features & MERGEABLE_BUFFERS != 0);
        let mut ring = ring.get_mut();
        let is_up = ring.is_enabled() && ring.get_queue().ready();
        let taker = if is_up { self.number } else { 0 };
        self.end.shared.taker.store(taker, Ordering::Release);
        if !is_up {
            return TurnOutcome::Done;
        }
        let queue = ring.get_queue_mut();
        let _ = queue.disable_notification(&**memory);
        let (mut tried, mut looks) = (0, 0);
        let mut tells = false;
        let turn = loop {
            if tried >= TURN_CHAINS {
                break TurnOutcome::More;
            }
            let next = self.waiting.take().or_else(|| self.end.next(taker));
            let Some(frame) = next else { break TurnOutcome::Done };
            tried += 1;
            match self.inlet.put(queue, memory, frame.bytes(), (header, merges)) {
                FrameFate::Whole { chains } => {
                    looks = 0;
                    // One chain is what the queue itself knows to have been used.
                    tells |= chains > 1;
                }
                FrameFate::Unusable => self.waiting = Some(frame),
                FrameFate::NoBuffers => {
                    self.waiting = Some(frame);
                    looks += 1;
                    if looks > 1 || !queue.enable_notification(&**memory).unwrap_or(false) {
                        break TurnOutcome::Done;
                    }
                }
            }
        };
        let needs = queue.needs_notification(&**memory).unwrap_or(true);
        if tried > 0 && (needs || tells) {
            let _ = ring.signal_used_queue();
        }
        turn
    }
}

/// Whether the memory stays as long as it is mapped. A file that somebody can truncate ends whoever reads it, and so does a
/// huge page that cannot be had.
fn check(memory: &GuestMemoryMmap) -> io::Result<()> {
    let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    for region in memory.iter() {
        let Some(file) = region.file_offset() else { return invalid("memory without a file") };
        let is_sealed = fcntl_get_seals(file.file())?.contains(SealFlags::SHRINK);
        if !is_sealed {
            return invalid("the file of the guest's memory is not sealed against shrinking");
        }
        if fstatfs(file.file())?.f_type as u64 == HUGE_PAGES {
            return invalid("the guest's memory has huge pages");
        }
    }
    Ok(())
}

impl VhostUserBackendMut for Guest {
    type Bitmap = ();
    type Vring = VringMutex;

    fn num_queues(&self) -> usize {
        RINGS
    }

    fn max_queue_size(&self) -> usize {
        RING_SIZE_MAX
    }

    fn features(&self) -> u64 {
        FEATURES
    }

    fn acked_features(&mut self, features: u64) {
        self.features = features;
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::REPLY_ACK
    }

    fn set_event_idx(&mut self, _: bool) {}

    fn update_memory(&mut self, memory: GuestMemoryAtomic<GuestMemoryMmap>) -> io::Result<()> {
        self.memory = None;
        let memory = memory.memory().into_inner();
        check(&memory).inspect_err(|error| {
            // The card's log is the file that this goes to.
            snic_output::complain!(
                "a front end of a vhost-user port is refused: {error}; share the memory with memfd"
            );
        })?;
        self.memory = Some(memory);
        Ok(())
    }

    fn exit_event(&self, _: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }

    fn handle_event(
        &mut self,
        event: u16,
        _: EventSet,
        rings: &[VringMutex],
        _: usize,
    ) -> io::Result<()> {
        if u64::from(event) == BELL_EVENT {
            self.end.shared.for_guest.silence();
        }
        // An error would end the thread, and with it the port.
        let (Some(memory), [to_guest, from_guest]) = (self.memory.clone(), rings) else {
            return Ok(());
        };
        let turns = [self.give(&memory, to_guest), self.take(&memory, from_guest)];
        if turns.contains(&TurnOutcome::More) {
            self.end.shared.for_guest.ring();
        }
        Ok(())
    }
}
