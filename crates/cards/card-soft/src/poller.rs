//! Waiting for frames and requests, without allocation and to the microsecond.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::ports::system::PollSet;

/// Rings when a request waits; any thread may ring.
#[derive(Debug, Clone)]
pub(crate) struct Notifier(Arc<OwnedFd>);

impl Notifier {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(fd)))
    }

    pub(crate) fn notify(&self) {
        // Full means that it rings already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        // Nothing to read means that it did not ring.
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

/// Waits for one of its descriptors. Nobody is registered with them while the card does not wait: then a frame that
/// arrives costs its sender no wake-up.
pub(crate) struct Poller {
    all: PollSet,
    notifier: Notifier,
}

impl Poller {
    pub(crate) fn new<'a>(
        notifier: Notifier,
        fds: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<Self> {
        let mut all = vec![notifier.0.try_clone()?];
        for fd in fds {
            all.push(fd.try_clone_to_owned()?);
        }
        Ok(Self { all: PollSet::new(all), notifier })
    }

    /// Waits until something is there, or the time is over; returns whether something is.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        let is_ready = self.all.wait(limit);
        if self.all.is_readable(0) {
            self.notifier.clear();
        }
        is_ready
    }
}
