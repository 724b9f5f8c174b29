//! The port as the card sees it, and the thread that serves one front end after the other.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snic_card_soft::{Port, Received, Sent};
use snic_nts::{Packet, Pool};
use vhost::vhost_user::Listener;
use vhost_user_backend::VhostUserDaemon;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;

use crate::channel::{CardEnd, GuestFrame, channel};
use crate::guest::{BELL_EVENT, Guest};
use crate::relay;

/// Behind the port's path: a socket that is there for a moment with each front end.
const INNER: &str = ".in";
/// Wait when no threads can be had for a front end.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(crate) struct VhostUserPort {
    end: CardEnd,
}

impl VhostUserPort {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // Whoever left it is dead: the card's lock is ours.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let (end, guest_end) = channel()?;
        let guest = Arc::new(Mutex::new(Guest::new(guest_end)));
        let mut inner = path.as_os_str().to_owned();
        inner.push(INNER);
        let inner = PathBuf::from(inner);
        // Tells whether its path is too long.
        relay::pair(&inner)?;
        let work = move || serve(&listener, &inner, &guest);
        std::thread::Builder::new().name("card-vhost".into()).spawn(work)?;
        Ok(Self { end })
    }
}

/// Serves front ends, one at a time; each begins with nothing of the one before.
fn serve(listener: &UnixListener, inner: &Path, guest: &Arc<Mutex<Guest>>) {
    loop {
        let Ok(bell) = guest.lock().map(|mut guest| guest.begin()) else { return };
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let daemon = VhostUserDaemon::new("card-vhost-conn".into(), Arc::clone(guest), memory);
        let Ok(mut daemon) = daemon else {
            std::thread::sleep(RETRY_AFTER);
            continue;
        };
        let is_heard = daemon.get_epoll_handlers().iter().all(|handler| {
            let fd = bell.for_guest.as_fd().as_raw_fd();
            handler.register_listener(fd, EventSet::IN, BELL_EVENT).is_ok()
        });
        let front = listener.accept().and_then(|(front, _)| Ok((front, relay::pair(inner)?)));
        let Ok((front, (waiting, library))) = front else {
            std::thread::sleep(RETRY_AFTER);
            continue;
        };
        if is_heard && daemon.start(&mut Listener::from(waiting)).is_ok() {
            // It ends with the connection, or with the first request that is invalid.
            relay::relay_messages(&front, &library);
            let _ = daemon.wait();
        }
        // Dropping it ends the thread that works on the rings.
        drop(daemon);
    }
}

impl Port for VhostUserPort {
    fn method(&self) -> &'static str {
        "the guest's memory, by a thread of the port (vhost-user)"
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.end.shared.for_card.as_fd())
    }

    fn receive(&mut self, pool: &Pool) -> io::Result<Received> {
        let shared = &self.end.shared;
        if shared.refused.load(Ordering::Relaxed) > 0 {
            shared.refused.fetch_sub(1, Ordering::Relaxed);
            return Ok(Received::TooLong);
        }
        let mut frame = self.end.arrived.try_recv();
        if frame.is_err() && shared.for_card.silence() {
            // What came before it rang.
            frame = self.end.arrived.try_recv();
        }
        let Ok(frame) = frame else { return Ok(Received::Nothing) };
        let copy = pool.copy_of(frame.bytes());
        drop(frame);
        if shared.waits_for_buffers.swap(false, Ordering::AcqRel) {
            shared.for_guest.ring();
        }
        Ok(copy.map_or(Received::NoBuffer, Received::Frame))
    }

    fn send(&mut self, frames: &mut Vec<Packet>) -> Sent {
        let CardEnd { leaving, buffers, shared, .. } = &self.end;
        let taker = shared.taker.load(Ordering::Acquire);
        let sent = Sent::each(frames, |frame| {
            let copy = buffers.copy_of(frame.bytes()).filter(|_| taker != 0);
            let frame = copy.ok_or(io::ErrorKind::WouldBlock)?;
            leaving
                .try_send(GuestFrame { taker, frame })
                .map_err(|_| io::ErrorKind::WouldBlock.into())
        });
        if sent.frames > 0 {
            shared.for_guest.ring();
        }
        sent
    }
}
