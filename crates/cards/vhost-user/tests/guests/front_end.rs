//! QEMU's side of a port, and the guest's driver, in this process.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use snic_card_soft::{Port, Received};
use snic_nts::{Packet, Pool};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// Longest time of anything on a machine that has other work.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Where the guest's memory begins, and its length.
pub const BASE: u64 = 0x1000_0000;
pub const MEMORY_BYTES: u64 = 4 << 20;
/// Where buffers are: behind the rings.
pub const BUFFERS: u64 = BASE + 0x4_0000;
/// Descriptors of a ring.
pub const SIZE: u16 = 256;
/// The rings: to the guest, and from it.
pub const RECEIVE: usize = 0;
pub const SEND: usize = 1;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

pub const MERGEABLE: u64 = 1 << 15;
pub const EVENT_INDEX: u64 = 1 << 29;
/// Version 1 and the features of the protocol, which all front ends here have.
const ALWAYS: u64 = 1 << 32 | 1 << 30;

#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub address: u64,
    pub bytes: u32,
    pub flags: u16,
    pub next: u16,
}

impl Part {
    pub const fn new(address: u64, bytes: u32, flags: u16) -> Self {
        Self { address, bytes, flags, next: 0 }
    }

    fn encode(self) -> [u8; 16] {
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&self.address.to_le_bytes());
        entry[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        entry[12..14].copy_from_slice(&self.flags.to_le_bytes());
        entry[14..].copy_from_slice(&self.next.to_le_bytes());
        entry
    }
}

pub struct FrontEnd {
    front: Frontend,
    pub memory: GuestMemoryMmap,
    kicks: [EventFd; 2],
    calls: [EventFd; 2],
    /// Where the driver is in each ring: what it made available, and what it has seen used.
    pub available: [u16; 2],
    seen: [u16; 2],
}

fn memfd(seals: SealFlags) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create("guest", flags).expect("memory");
    ftruncate(&fd, MEMORY_BYTES).expect("memory");
    fcntl_add_seals(&fd, seals).expect("it is ours");
    fd.into()
}

const fn table(ring: usize) -> u64 {
    BASE + ring as u64 * 0x1_0000
}

pub const fn avail(ring: usize) -> u64 {
    table(ring) + 0x8000
}

const fn used(ring: usize) -> u64 {
    table(ring) + 0xC000
}

impl FrontEnd {
    /// Connects with sealed memory, and starts both rings.
    pub fn connect(path: &Path, features: u64) -> Self {
        let mut front = Self::with_memory(path, features, SealFlags::SHRINK).expect("it is taken");
        front.start_rings().expect("rings in the memory");
        front
    }

    /// Connects and shares memory with these seals.
    pub fn with_memory(path: &Path, features: u64, seals: SealFlags) -> vhost::Result<Self> {
        let file = memfd(seals);
        let mut raw = UnixStream::connect(path).expect("a port");
        let mut front = Frontend::from_stream(raw.try_clone().expect("a socket"), 2);
        let eventfd = || EventFd::new(libc_nonblock()).expect("an event");
        let ranges = [(GuestAddress(BASE), MEMORY_BYTES as usize, Some(FileOffset::new(file, 0)))];
        let memory = GuestMemoryMmap::from_ranges_with_files(ranges).expect("memory");
        front.set_owner()?;
        let offered = front.get_features()?;
        let features = features | ALWAYS;
        assert_eq!(offered & features, features, "{offered:x}");
        let protocol = front.get_protocol_features()?;
        front.set_protocol_features(protocol)?;
        front.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
        // As QEMU does, rings are enabled before the guest's features are known.
        for ring in [RECEIVE, SEND] {
            // SET_VRING_ENABLE, version 1, 8 bytes: the ring, on.
            let request = [18, 1, 8, ring as u32, 1].map(u32::to_ne_bytes).concat();
            raw.write_all(&request).expect("it is connected");
        }
        front.set_features(features)?;
        let region = memory.iter().next().expect("one region");
        let mut region = VhostUserMemoryRegionInfo::from_guest_region(region)?;
        region.userspace_addr = BASE;
        front.set_mem_table(&[region])?;
        let kicks = [eventfd(), eventfd()];
        let calls = [eventfd(), eventfd()];
        Ok(Self { front, memory, kicks, calls, available: [0; 2], seen: [0; 2] })
    }

    /// Starts the rings where they stand, as a driver does that begins or goes on.
    pub fn start_rings(&mut self) -> vhost::Result<()> {
        for ring in [RECEIVE, SEND] {
            self.start_ring(ring, SIZE, [table(ring), avail(ring), used(ring)])?;
        }
        Ok(())
    }

    pub fn start_ring(&mut self, ring: usize, size: u16, at: [u64; 3]) -> vhost::Result<()> {
        let [desc_table_addr, avail_ring_addr, used_ring_addr] = at;
        let place = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr,
            used_ring_addr,
            avail_ring_addr,
            log_addr: None,
        };
        self.front.set_vring_num(ring, size)?;
        self.front.set_vring_addr(ring, &place)?;
        self.front.set_vring_base(ring, self.available[ring])?;
        self.front.set_vring_call(ring, &self.calls[ring])?;
        self.front.set_vring_kick(ring, &self.kicks[ring])?;
        self.front.set_vring_enable(ring, true)
    }

    /// Stops the rings, as for a guest that starts again; the driver that comes begins with empty ones.
    pub fn reboot(&mut self) {
        for ring in [RECEIVE, SEND] {
            self.front.get_vring_base(ring).expect("it runs");
            self.memory.write_slice(&[0; 0x1_0000], GuestAddress(table(ring))).expect("memory");
        }
        (self.available, self.seen) = ([0; 2], [0; 2]);
        self.start_rings().expect("rings in the memory");
    }

    /// Writes a descriptor.
    pub fn describe(&self, ring: usize, at: u16, part: Part) {
        let at = GuestAddress(table(ring) + u64::from(at) * 16);
        self.memory.write_slice(&part.encode(), at).expect("memory");
    }

    /// Makes a chain available; it is seen with the next kick.
    pub fn offer(&mut self, ring: usize, head: u16) {
        let place = u64::from(self.available[ring] % SIZE);
        let at = GuestAddress(avail(ring) + 4 + place * 2);
        self.memory.write_slice(&head.to_le_bytes(), at).expect("memory");
        self.available[ring] = self.available[ring].wrapping_add(1);
        self.tell(ring, self.available[ring]);
    }

    /// Says how many chains are available.
    pub fn tell(&self, ring: usize, available: u16) {
        let at = GuestAddress(avail(ring) + 2);
        self.memory.write_slice(&available.to_le_bytes(), at).expect("memory");
    }

    pub fn kick(&self, ring: usize) {
        self.kicks[ring].write(1).expect("an event");
    }

    /// Kicks a ring until it is told to end, also when the front end is gone.
    pub fn kicker<'a>(&self, ring: usize, end: &'a AtomicBool) -> impl FnOnce() + use<'a> {
        let kick = self.kicks[ring].try_clone().expect("an event");
        move || {
            while !end.load(Ordering::Relaxed) {
                kick.write(1).expect("an event");
            }
        }
    }

    /// Chains that were used: their heads and bytes.
    pub fn used(&mut self, ring: usize) -> Vec<(u32, u32)> {
        let mut chains = Vec::new();
        let index: u16 = self.memory.read_obj(GuestAddress(used(ring) + 2)).expect("memory");
        while self.seen[ring] != index {
            let at = used(ring) + 4 + u64::from(self.seen[ring] % SIZE) * 8;
            let entry: [u8; 8] = self.memory.read_obj(GuestAddress(at)).expect("memory");
            let half = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four"));
            chains.push((half(0), half(4)));
            self.seen[ring] = self.seen[ring].wrapping_add(1);
        }
        chains
    }

    /// Waits until so many chains of a ring were used.
    pub fn until_used(&mut self, ring: usize, chains: usize) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        let until = Instant::now() + PATIENCE;
        while all.len() < chains {
            all.extend(self.used(ring));
            assert!(Instant::now() < until, "{} of {chains} were used", all.len());
            std::thread::sleep(Duration::from_micros(100));
        }
        all
    }

    /// Whether the card has told the driver of a ring something since the last call.
    pub fn was_called(&self, ring: usize) -> bool {
        self.calls[ring].read().is_ok()
    }

    /// Sends a frame behind a header, in one descriptor at a place of its own.
    pub fn send(&mut self, header: [u8; 12], frame: &[u8]) {
        let number = self.available[SEND] % SIZE;
        let at = BUFFERS + 0x10_0000 + u64::from(number) * 4_096;
        self.memory.write_slice(&[&header[..], frame].concat(), GuestAddress(at)).expect("memory");
        self.describe(SEND, number, Part::new(at, 12 + frame.len() as u32, 0));
        self.offer(SEND, number);
        self.kick(SEND);
    }

    /// Gives the card so many buffers of so many bytes for frames.
    pub fn give(&mut self, buffers: u16, bytes: u32) {
        for _ in 0..buffers {
            let number = self.available[RECEIVE] % SIZE;
            let at = BUFFERS + u64::from(number) * 2_048;
            self.describe(RECEIVE, number, Part::new(at, bytes, WRITE));
            self.offer(RECEIVE, number);
        }
        self.kick(RECEIVE);
    }

    /// Content of these buffers.
    pub fn contents(&self, chains: &[(u32, u32)]) -> Vec<u8> {
        let mut all = Vec::new();
        for (head, bytes) in chains {
            let mut part = vec![0; *bytes as usize];
            let at = BUFFERS + u64::from(*head) * 2_048;
            self.memory.read_slice(&mut part, GuestAddress(at)).expect("memory");
            all.extend(part);
        }
        all
    }
}

const fn libc_nonblock() -> i32 {
    0x800
}

/// A port and what the card has for it.
pub struct Card {
    pub port: Box<dyn Port>,
    pub pool: Pool,
    _folder: tempfile::TempDir,
    pub path: std::path::PathBuf,
}

impl Card {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("guest.sock");
        let port = snic_vhost_user::open(&path).expect("a socket");
        Self { port, pool: Pool::new(32, 9_216), _folder: folder, path }
    }

    /// Next frame of the port, as soon as it has something.
    pub fn receive(&mut self) -> Received {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.port.receive(&self.pool).expect("it is there") {
                Received::Nothing if Instant::now() < until => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                received => return received,
            }
        }
    }

    pub fn frame(&mut self) -> Vec<u8> {
        match self.receive() {
            Received::Frame(packet) => packet.bytes().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a frame; whether it was taken.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        let packet: Packet = self.pool.copy_of(frame).expect("a buffer");
        self.port.send(&mut vec![packet]).frames == 1
    }

    /// The same, as soon as the guest takes frames.
    pub fn until_sent(&mut self, frame: &[u8]) {
        let until = Instant::now() + PATIENCE;
        while !self.send(frame) {
            assert!(Instant::now() < until, "the guest takes nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
