//! Channel between the card's thread and the port's: frames in buffers of the port, and bells. Neither end waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};
use snic_card_soft::FRAME_BYTES_MAX;
use snic_nts::{Packet, Pool};

use crate::{BUFFERS_FROM_GUEST, BUFFERS_TO_GUEST};

/// Becomes readable when it rings.
pub(crate) struct Notifier(OwnedFd);

impl Notifier {
    fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub(crate) fn ring(&self) {
        // Full means that it rings already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Whether it rang since the last call.
    pub(crate) fn silence(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// State that both ends see.
pub(crate) struct Shared {
    /// Rings when a frame of the guest is there.
    pub(crate) for_card: Notifier,
    /// Rings when the port's thread has something to do.
    pub(crate) for_guest: Notifier,
    /// The port's thread waits for buffers that the card has.
    pub(crate) waits_for_buffers: AtomicBool,
    /// The front end whose guest takes frames, by its number; 0 where none does.
    pub(crate) taker: AtomicU64,
    /// Number of chains from the guest that were no frame, not counted yet.
    pub(crate) refused: AtomicU64,
}

impl Shared {
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// A frame for the guest behind the front end of this number.
pub(crate) struct GuestFrame {
    pub(crate) taker: u64,
    pub(crate) frame: Packet,
}

/// The card's end.
pub(crate) struct CardEnd {
    pub(crate) arrived: Receiver<Packet>,
    pub(crate) leaving: SyncSender<GuestFrame>,
    /// Where frames to the guest are copied to.
    pub(crate) buffers: Pool,
    pub(crate) shared: Arc<Shared>,
}

/// The end of the port's thread.
pub(crate) struct GuestEnd {
    pub(crate) arrived: SyncSender<Packet>,
    /// Nobody else has it: the lock is there because the library shares its back end between threads.
    leaving: Mutex<Receiver<GuestFrame>>,
    /// Where frames of the guest are copied to.
    pub(crate) buffers: Pool,
    pub(crate) shared: Arc<Shared>,
}

impl GuestEnd {
    /// The next frame for the guest of this front end. What was for another one is dropped.
    pub(crate) fn next(&mut self, taker: u64) -> Option<Packet> {
        let leaving = self.leaving.get_mut().ok()?;
        leaving.try_iter().find(|frame| frame.taker == taker).map(|leaving| leaving.frame)
    }

    /// No front end takes frames from here on. The card may still send what it began before.
    pub(crate) fn stop(&mut self) {
        self.shared.taker.store(0, Ordering::Release);
        if let Ok(leaving) = self.leaving.get_mut() {
            leaving.try_iter().for_each(drop);
        }
    }
}

/// A channel with room for all buffers that can be in it.
pub(crate) fn channel() -> io::Result<(CardEnd, GuestEnd)> {
    let shared = Arc::new(Shared {
        for_card: Notifier::new()?,
        for_guest: Notifier::new()?,
        waits_for_buffers: AtomicBool::new(false),
        taker: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    });
    let (from_guest, arrived) = sync_channel(BUFFERS_FROM_GUEST);
    let (to_guest, leaving) = sync_channel(BUFFERS_TO_GUEST);
    let card = CardEnd {
        arrived,
        leaving: to_guest,
        buffers: Pool::new(BUFFERS_TO_GUEST, FRAME_BYTES_MAX),
        shared: Arc::clone(&shared),
    };
    let guest = GuestEnd {
        arrived: from_guest,
        leaving: Mutex::new(leaving),
        buffers: Pool::new(BUFFERS_FROM_GUEST, FRAME_BYTES_MAX),
        shared,
    };
    Ok((card, guest))
}
