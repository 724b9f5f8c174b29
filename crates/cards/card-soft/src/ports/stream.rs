//! A unix socket that a host connects to: each frame behind its length in four bytes, the highest first. It needs
//! no rights, and is what QEMU speaks (`-netdev stream,addr.type=unix`).
//!
//! One host at a time has the port; the next one gets it when the first has gone. Where the host does not
//! read, frames are not taken, as by a device that is down.

use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::event::epoll;
use snic_nts::{Packet, Pool};

use super::inflow::is_nothing;
use super::{Port, Received, Sent};
use crate::FRAME_BYTES_MAX;

/// Bytes of a length.
const LENGTH_BYTES: usize = 4;
/// Bytes read at once: some tens of frames, and more than the longest.
const READ_BYTES: usize = 64 << 10;
/// The longest frame of any host: merged TCP segments. Who announces more does not speak this language.
const ANNOUNCED_MAX: usize = 128 << 10;

/// Data of all descriptors: it does not matter which one is readable, all are looked at.
const ANY: epoll::EventData = epoll::EventData::new_u64(0);

/// The host that is connected.
struct Peer {
    stream: UnixStream,
    read: Box<[u8]>,
    /// Where in `read` what was not looked at yet begins and ends.
    start: usize,
    end: usize,
    /// Bytes of a frame that is too long and still to come.
    skipped: usize,
    /// The rest of a frame of which the socket took a part.
    unsent: Vec<u8>,
}

pub(super) struct Stream {
    listener: UnixListener,
    peer: Option<Peer>,
    /// Readable when the port has something to do: somebody waits to be connected, or the peer sent something,
    /// or takes the rest of a frame.
    events: OwnedFd,
}

/// Result of parsing the peer's bytes.
enum Parsed {
    Frame { start: usize, length: usize },
    TooLong,
    Incomplete,
    Garbage,
}

impl Stream {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // Whoever left it is dead: the card's lock is ours.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&events, &listener, ANY, epoll::EventFlags::IN)?;
        Ok(Self { listener, peer: None, events })
    }

    /// Connects who waits; while it is connected, the next one is not looked at.
    fn accept(&mut self) -> io::Result<()> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(true)?;
        epoll::delete(&self.events, &self.listener)?;
        epoll::add(&self.events, &stream, ANY, epoll::EventFlags::IN)?;
        let read = vec![0; READ_BYTES].into();
        let unsent = Vec::with_capacity(LENGTH_BYTES + FRAME_BYTES_MAX);
        self.peer = Some(Peer { stream, read, start: 0, end: 0, skipped: 0, unsent });
        Ok(())
    }

    fn send_one(&mut self, frame: &[u8]) -> io::Result<()> {
        let Some(peer) = &mut self.peer else { return Err(ErrorKind::NotConnected.into()) };
        peer.send(frame, &self.events)
    }

    /// The peer is gone: the next one may come.
    fn hang_up(&mut self) {
        // Closing takes it out of the events.
        self.peer = None;
        let _ = epoll::add(&self.events, &self.listener, ANY, epoll::EventFlags::IN);
    }
}

impl Peer {
    /// Takes the next frame out of what was read.
    fn parse(&mut self) -> Parsed {
        let skip = self.skipped.min(self.end - self.start);
        self.start += skip;
        self.skipped -= skip;
        let Some(head) = self.read[self.start..self.end].first_chunk::<LENGTH_BYTES>() else {
            return Parsed::Incomplete;
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length > ANNOUNCED_MAX {
            return Parsed::Garbage;
        }
        if length > FRAME_BYTES_MAX {
            self.start += LENGTH_BYTES;
            self.skipped = length;
            return Parsed::TooLong;
        }
        let (start, end) = (self.start + LENGTH_BYTES, self.start + LENGTH_BYTES + length);
        if end > self.end {
            return Parsed::Incomplete;
        }
        self.start = end;
        Parsed::Frame { start, length }
    }

    /// Reads more; `false` where the peer is gone.
    fn fill(&mut self) -> io::Result<bool> {
        // Less than one frame is left over, so there is room.
        self.read.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let bytes = self.stream.read(&mut self.read[self.end..])?;
        self.end += bytes;
        Ok(bytes > 0)
    }

    /// Sends what is left of a frame.
    fn flush(&mut self, events: &OwnedFd) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        match self.stream.write(&self.unsent) {
            Ok(bytes) => drop(self.unsent.drain(..bytes)),
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
        if self.unsent.is_empty() {
            epoll::modify(events, &self.stream, ANY, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    fn send(&mut self, frame: &[u8], events: &OwnedFd) -> io::Result<()> {
        self.flush(events)?;
        if !self.unsent.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        // A frame is shorter than the pool's buffers.
        let length = (frame.len() as u32).to_be_bytes();
        let sent = self.stream.write_vectored(&[IoSlice::new(&length), IoSlice::new(frame)])?;
        if sent < LENGTH_BYTES + frame.len() {
            let rest = length.iter().chain(frame).skip(sent);
            self.unsent.extend(rest);
            let wanted = epoll::EventFlags::IN | epoll::EventFlags::OUT;
            epoll::modify(events, &self.stream, ANY, wanted)?;
        }
        Ok(())
    }
}

impl Port for Stream {
    fn method(&self) -> &'static str {
        "a unix socket, with a call for each frame"
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.as_fd())
    }

    fn receive(&mut self, pool: &Pool) -> io::Result<Received> {
        loop {
            let Some(peer) = &mut self.peer else {
                match self.accept() {
                    Ok(()) => continue,
                    Err(error) if is_nothing(&error) => return Ok(Received::Nothing),
                    Err(error) => return Err(error),
                }
            };
            match peer.parse() {
                Parsed::Frame { start, length } => {
                    let frame = &peer.read[start..start + length];
                    let copy = pool.copy_of(frame);
                    return Ok(copy.map_or(Received::NoBuffer, Received::Frame));
                }
                Parsed::TooLong => return Ok(Received::TooLong),
                Parsed::Garbage => self.hang_up(),
                Parsed::Incomplete => match peer.flush(&self.events).and_then(|()| peer.fill()) {
                    Ok(true) => {}
                    Err(error) if is_nothing(&error) => return Ok(Received::Nothing),
                    Ok(false) | Err(_) => self.hang_up(),
                },
            }
        }
    }

    fn send(&mut self, frames: &mut Vec<Packet>) -> Sent {
        Sent::each(frames, |frame| self.send_one(frame.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    struct Bench {
        port: Stream,
        pool: Pool,
        folder: tempfile::TempDir,
    }

    impl Bench {
        fn new(buffers: usize) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let port = Stream::open(&folder.path().join("port")).expect("it is new");
            Self { port, pool: Pool::new(buffers, FRAME_BYTES_MAX), folder }
        }

        fn connect(&self) -> UnixStream {
            UnixStream::connect(self.folder.path().join("port")).expect("it listens")
        }

        fn is_readable(&self) -> bool {
            let fd = self.port.fd().expect("it has one");
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut fds, Some(&none)).expect("it can be asked") > 0
        }

        fn receive(&mut self) -> Received {
            self.port.receive(&self.pool).expect("the port is there")
        }

        fn frame(&mut self) -> Vec<u8> {
            match self.receive() {
                Received::Frame(packet) => packet.bytes().to_vec(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn message(frame: &[u8]) -> Vec<u8> {
        [&(frame.len() as u32).to_be_bytes()[..], frame].concat()
    }

    #[test]
    fn frames_cross_in_both_directions_however_they_are_cut() {
        let mut bench = Bench::new(4);
        assert!(matches!(bench.receive(), Received::Nothing) && !bench.is_readable());
        let mut host = bench.connect();
        assert!(bench.is_readable(), "somebody waits");
        let all = [message(&[1; 60]), message(&[2; 9_216]), message(&[3; 14])].concat();
        let (first, rest) = all.split_at(70);
        host.write_all(first).expect("it is connected");
        assert_eq!(bench.frame(), [1; 60]);
        assert!(matches!(bench.receive(), Received::Nothing));
        host.write_all(rest).expect("it is connected");
        assert!(bench.is_readable());
        assert_eq!(bench.frame(), [2; 9_216]);
        assert_eq!(bench.frame(), [3; 14]);
        assert!(matches!(bench.receive(), Received::Nothing) && !bench.is_readable());
        bench.port.send_one(&[4; 61]).expect("there is room");
        let mut seen = [0; 65];
        host.read_exact(&mut seen).expect("it was sent");
        assert_eq!(seen[..], message(&[4; 61]));
    }

    #[test]
    fn a_host_that_does_not_read_gets_whole_frames_later_and_no_others() {
        let mut bench = Bench::new(4);
        let mut host = bench.connect();
        bench.receive();
        let mut sent: u32 = 0;
        while bench.port.send_one(&sent.to_be_bytes().repeat(500)).is_ok() {
            sent += 1;
        }
        assert!(sent > 10, "{sent}");
        host.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
        let until = Instant::now() + Duration::from_secs(20);
        let (mut seen, mut buffer) = (Vec::<u8>::new(), [0; 4_096]);
        while seen.len() < sent as usize * 2_004 && Instant::now() < until {
            // As the card does: whenever the port is ready.
            if bench.is_readable() {
                bench.receive();
            }
            let bytes = host.read(&mut buffer).unwrap_or(0);
            seen.extend(&buffer[..bytes]);
        }
        for (number, frame) in seen.chunks(2_004).enumerate() {
            assert_eq!(frame, message(&(number as u32).to_be_bytes().repeat(500)), "{number}");
        }
        assert_eq!(seen.len(), sent as usize * 2_004, "what was taken has arrived");
        bench.port.send_one(&[0; 60]).expect("there is room again");
    }

    #[test]
    fn one_host_at_a_time_has_the_port() {
        let mut bench = Bench::new(4);
        let mut first = bench.connect();
        first.write_all(&message(&[1; 60])).expect("it is connected");
        assert_eq!(bench.frame(), [1; 60]);
        let mut second = bench.connect();
        second.write_all(&message(&[2; 60])).expect("it waits");
        assert!(matches!(bench.receive(), Received::Nothing) && !bench.is_readable());
        drop(first);
        assert!(bench.is_readable());
        assert_eq!(bench.frame(), [2; 60]);
        drop(second);
        assert!(matches!(bench.receive(), Received::Nothing));
        assert!(bench.port.send_one(&[0; 60]).is_err(), "nobody is there");
    }

    #[test]
    fn long_frames_and_garbage_do_no_harm() {
        let mut bench = Bench::new(1);
        let mut host = bench.connect();
        host.write_all(&message(&vec![9; 70_000])).expect("it is connected");
        host.write_all(&message(&[1; 60])).expect("it is connected");
        assert!(matches!(bench.receive(), Received::TooLong));
        let held = bench.pool.take();
        assert!(matches!(bench.receive(), Received::NoBuffer));
        drop(held);
        host.write_all(&message(&[2; 60])).expect("it is connected");
        assert_eq!(bench.frame(), [2; 60]);
        host.write_all(&[0xff; 100]).expect("it is connected");
        assert!(matches!(bench.receive(), Received::Nothing));
        assert_eq!(host.read(&mut [0; 1]).expect("it was hung up"), 0);
    }
}
