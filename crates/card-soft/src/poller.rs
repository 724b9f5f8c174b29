//! Waiting for frames and requests, without allocation and to the microsecond.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

/// Rings when a request waits; any thread may ring.
#[derive(Debug, Clone)]
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(fd)))
    }

    pub(crate) fn ring(&self) {
        // Full means that it rings already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn silence(&self) {
        // Nothing to read means that it did not ring.
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

/// Waits for one of its descriptors.
pub(crate) struct Poller {
    all: OwnedFd,
    bell: Bell,
}

impl Poller {
    pub(crate) fn new<'a>(
        bell: Bell,
        fds: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<Self> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        epoll::add(&all, &*bell.0, epoll::EventData::new_u64(0), readable)?;
        for fd in fds {
            epoll::add(&all, fd, epoll::EventData::new_u64(1), readable)?;
        }
        Ok(Self { all, bell })
    }

    /// Waits until something is there, or the time is over; returns whether something is.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // One descriptor that stands for all: `poll` waits to the nanosecond, `epoll` to the millisecond.
        let mut fds = [PollFd::new(&self.all, PollFlags::IN)];
        // Interrupted, or a time that ran out: whoever waits looks at everything again.
        let ready = poll(&mut fds, Some(&limit));
        self.bell.silence();
        ready.is_ok_and(|descriptors| descriptors > 0)
    }
}
