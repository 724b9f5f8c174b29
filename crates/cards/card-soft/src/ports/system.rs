//! The system calls that make ports: those for which no safe name exists.
#![allow(unsafe_code, reason = "TUNSETIFF and AF_PACKET have no safe names in rustix or std")]

use std::ffi::{c_int, c_uint, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use snic_nts::Packet;

use crate::merging::{FRAMES_MAX, Merger, Unit};
use crate::segments::Offload;

/// A socket buffer that holds what arrives while the card is busy with a large bitstream: 20 ms of
/// 3 Gbit/s. Where there is a ring, only frames that are longer than its places wait here.
const SOCKET_BUFFER_BYTES: c_int = 8 << 20;
/// Bytes of a place in a ring: a frame of 1,500 bytes with its headers, and what the kernel says of it.
const PLACE_BYTES: usize = 2_048;
/// Bytes that the kernel allocates at once for a ring.
const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// An interface request that names an interface. The name was checked to be shorter than the field.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is plain data, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request
}

/// Makes a TAP device and attaches to it. Frames have a `virtio_net_hdr` in front, and those that arrive are as the kernel has
/// them: merged, with checksums left out.
pub(super) fn open_tap(name: &str) -> io::Result<File> {
    let tap = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    let mut request = request(name);
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives across the call.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    // Merged datagrams are left to the card since Linux 6.2.
    // SAFETY: takes no pointers.
    let leave = |what: c_uint| unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD, what) };
    if leave(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6) < 0 {
        check(leave(tcp))?;
    }
    Ok(tap)
}

/// The name of a TAP device now, and the network namespace that it is in now. Both may wait for the kernel's locks.
pub(super) fn find_tap(device: &File) -> io::Result<(String, OwnedFd)> {
    /// `_IO('T', 227)`, which libc does not have.
    const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;
    let mut request = request("");
    // SAFETY: TUNGETIFF writes one `ifreq`, which lives across the call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNGETIFF, &raw mut request) })?;
    let name = request.ifr_name.iter().take_while(|byte| **byte != 0);
    let name = name.map(|byte| char::from(*byte as u8)).collect();
    // SAFETY: takes no pointers.
    let namespace = check(unsafe { libc::ioctl(device.as_raw_fd(), TUNGETDEVNETNS) })?;
    // SAFETY: the descriptor was just opened and has no other owner.
    Ok((name, unsafe { OwnedFd::from_raw_fd(namespace) }))
}

/// Moves the calling thread into a network namespace. Ports that it opens are those of the namespace.
///
/// # Errors
/// The descriptor is of no network namespace, or the process may not enter it.
pub fn enter_network(namespace: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(|_| ())
}

/// A socket for questions about interfaces.
fn control_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd =
        check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an interface up.
pub(super) fn set_up(name: &str) -> io::Result<()> {
    let socket = control_socket()?;
    let mut request = request(name);
    // SAFETY: SIOCGIFFLAGS writes one `ifreq`, which lives across the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) })?;
    // SAFETY: SIOCGIFFLAGS has written this field of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives across the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })?;
    Ok(())
}

/// Gives a device a queue for so many packets.
pub(super) fn set_queue(name: &str, packets: u32) -> io::Result<()> {
    let (socket, mut request) = (control_socket()?, request(name));
    // The queue's length is in the place of an index, which is a number, too.
    request.ifr_ifru.ifru_ifindex = packets as c_int;
    // SAFETY: SIOCSIFTXQLEN reads one `ifreq`, which lives across the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFTXQLEN, &raw const request) })?;
    Ok(())
}

/// The longest frame that a device takes, without VLAN tags.
pub(super) fn frame_bytes_max(name: &str) -> io::Result<usize> {
    let socket = control_socket()?;
    let mut request = request(name);
    // SAFETY: SIOCGIFMTU writes one `ifreq`, which lives across the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) })?;
    // SAFETY: SIOCGIFMTU has written this field of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0) + ETHERNET_BYTES)
}

/// The index of a device.
pub(super) fn index(name: &str) -> io::Result<c_int> {
    let socket = control_socket()?;
    let mut request = request(name);
    // SAFETY: SIOCGIFINDEX writes one `ifreq`, which lives across the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX, &raw mut request) })?;
    // SAFETY: SIOCGIFINDEX has written this field of the union.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex })
}

fn set<T>(socket: &impl AsRawFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    let value: *const T = value;
    // SAFETY: `value` points to as many bytes as are named, and lives across the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, value.cast::<c_void>(), bytes)
    };
    check(result).map(|_| ())
}

/// Frames that a packet socket gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrivals {
    All,
    None,
}

/// A socket for all frames that arrive at an interface, each behind a `virtio_net_hdr`. It sees frames
/// for other stations too, and none that it sends. `prepare` has it before anything arrives.
pub(super) fn open_packet_socket<T>(
    name: &str,
    arrivals: Arrivals,
    prepare: impl FnOnce(&OwnedFd) -> T,
) -> io::Result<(OwnedFd, T)> {
    let index = index(name)?;
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers. Protocol 0: nothing arrives before the socket is bound.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the descriptor was just opened and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let on: c_int = 1;
    set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on)?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on)?;
    let all = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)?;
    // Without the right to go over the system's limit the limit is what there is.
    if set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &SOCKET_BUFFER_BYTES).is_err() {
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &SOCKET_BUFFER_BYTES)?;
    }
    let prepared = prepare(&socket);
    // SAFETY: `sockaddr_ll` is plain data, for which all zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    if arrivals == Arrivals::All {
        address.sll_protocol = (libc::ETH_P_ALL as libc::c_ushort).to_be();
    }
    address.sll_ifindex = index;
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let pointer: *const libc::sockaddr_ll = &raw const address;
    // SAFETY: `address` has as many bytes as are named, and lives across the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), pointer.cast(), bytes) })?;
    Ok((socket, prepared))
}

/// Number of frames that a packet socket's queue has dropped since the last call; the kernel counts from zero again.
pub(super) fn take_drops(socket: &OwnedFd) -> io::Result<u32> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut bytes = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    let pointer: *mut libc::tpacket_stats = &raw mut statistics;
    // SAFETY: `statistics` has as many bytes as `bytes` says, and both live across the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            pointer.cast(),
            &raw mut bytes,
        )
    })?;
    Ok(statistics.tp_drops)
}

/// Takes the error that a socket waits to tell, such as that its device is down: until then it counts as readable, and
/// a ring tells no errors.
pub(super) fn clear_error(socket: &OwnedFd) {
    let (mut error, mut bytes): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    let pointer: *mut c_int = &raw mut error;
    // SAFETY: `error` has as many bytes as `bytes` says, and both live across the call. Each socket has the option, so
    // there is no failure to tell.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            pointer.cast(),
            &raw mut bytes,
        );
    }
}

/// Sends the first of some units by a packet socket in one call; how many it sent.
pub(super) fn send_units(
    socket: &OwnedFd,
    units: &[Unit],
    frames: &[Packet],
    merger: &Merger,
) -> io::Result<usize> {
    let part = |bytes: &[u8]| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: bytes.len(),
    };
    // SAFETY: `mmsghdr` and `iovec` are plain data, for which all zeros are valid.
    let (mut messages, mut parts): ([libc::mmsghdr; FRAMES_MAX], [libc::iovec; 2 * FRAMES_MAX]) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let mut heads = [[0_u8; Offload::BYTES]; FRAMES_MAX];
    let mut left = &mut parts[..];
    for ((message, head), unit) in messages.iter_mut().zip(&mut heads).zip(units) {
        *head = unit.offload();
        let bytes = std::iter::once(&head[..]).chain(merger.parts(unit, frames));
        let mut count = 0;
        for (place, bytes) in left.iter_mut().zip(bytes) {
            *place = part(bytes);
            count += 1;
        }
        let (own, rest) = left.split_at_mut(count);
        left = rest;
        message.msg_hdr.msg_iov = own.as_mut_ptr();
        message.msg_hdr.msg_iovlen = count as _;
    }
    // SAFETY: each of the first `units.len()` messages points to parts, which point to a head and to bytes of frames;
    // all of them live across the call, which only reads parts and bytes.
    let sent = check(unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            units.len().min(FRAMES_MAX) as c_uint,
            libc::MSG_DONTWAIT,
        )
    })?;
    Ok(sent as usize)
}

/// Descriptors that are waited for, in memory that is made once: `rustix` borrows them for each wait.
pub(crate) struct PollSet {
    polled: Vec<libc::pollfd>,
    /// Keeps them open.
    _owned: Vec<OwnedFd>,
}

impl PollSet {
    pub(crate) fn new(owned: Vec<OwnedFd>) -> Self {
        let polled =
            |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        Self { polled: owned.iter().map(polled).collect(), _owned: owned }
    }

    /// Waits until one is readable or has an error, or the time is over; whether one is.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        let limit = libc::timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: the kernel writes the answers of as many descriptors as are named; both live across the call.
        let ready = unsafe {
            libc::ppoll(
                self.polled.as_mut_ptr(),
                self.polled.len() as libc::nfds_t,
                &raw const limit,
                std::ptr::null(),
            )
        };
        // Interrupted: nothing was answered.
        if ready < 0 {
            self.polled.iter_mut().for_each(|of| of.revents = 0);
        }
        ready > 0
    }

    /// Whether the descriptor at a place was readable when the last wait ended.
    pub(crate) fn is_readable(&self, at: usize) -> bool {
        self.polled.get(at).is_some_and(|of| of.revents != 0)
    }
}

/// Frames that arrive at a packet socket, in memory that the kernel writes and the card reads (TPACKET_V2): a frame
/// costs no call. Each place belongs to the kernel or to the card, as its status word says.
pub(super) struct ReceiveRing {
    memory: NonNull<c_void>,
    places: usize,
    /// The place of the next frame.
    next: usize,
}

// SAFETY: the mapping has no other owner, and is bound to no thread.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    /// Gives a packet socket a ring for `places` frames, a multiple of 32. Longer frames than its places hold wait in
    /// the socket's queue as well ([`RingFrame::is_queued`]).
    pub(super) fn new(socket: &OwnedFd, places: usize) -> io::Result<Self> {
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let on: c_int = 1;
        set(socket, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, &on)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as c_uint,
            tp_block_nr: (places * PLACE_BYTES / BLOCK_BYTES) as c_uint,
            tp_frame_size: PLACE_BYTES as c_uint,
            tp_frame_nr: places as c_uint,
        };
        set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping of the length that the ring was just given; no memory of this process is replaced.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                places * PLACE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // Without a ring, frames wait in the queue again.
            // SAFETY: `tpacket_req` is plain data, for which all zeros are valid.
            let none: libc::tpacket_req = unsafe { std::mem::zeroed() };
            set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &none)?;
            return Err(error);
        }
        let memory = NonNull::new(memory).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { memory, places, next: 0 })
    }

    /// The next frame, if one is there. Its place is the kernel's again when it is dropped.
    pub(super) fn next(&mut self) -> Option<RingFrame<'_>> {
        // SAFETY: `next` is less than `places`, and the mapping has `PLACE_BYTES` for each.
        let place = unsafe { self.memory.cast::<u8>().add(self.next * PLACE_BYTES) };
        // SAFETY: a place begins with its status word, is aligned to far more than four bytes, and the kernel
        // writes the word as a whole. The mapping lives as long as `self`.
        let status = unsafe { AtomicU32::from_ptr(place.as_ptr().cast::<u32>()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the status says that the place is not the kernel's any more: until the status changes nobody
        // writes to it, and it begins with this header, which is plain data.
        let head = unsafe { place.cast::<libc::tpacket2_hdr>().read() };
        // SAFETY: as above; the slice ends with the borrow of `self`, before which the status does not change.
        let place = unsafe { std::slice::from_raw_parts(place.as_ptr(), PLACE_BYTES) };
        self.next = (self.next + 1) % self.places;
        Some(RingFrame { status, head, place })
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and is not used any more.
        unsafe { libc::munmap(self.memory.as_ptr(), self.places * PLACE_BYTES) };
    }
}

/// A frame in a ring.
pub(super) struct RingFrame<'a> {
    status: &'a AtomicU32,
    head: libc::tpacket2_hdr,
    place: &'a [u8],
}

impl RingFrame<'_> {
    /// Work that is left to do with it.
    pub(super) fn offload(&self) -> Offload {
        let end = usize::from(self.head.tp_mac);
        let head = end.checked_sub(Offload::BYTES).and_then(|start| self.place.get(start..end));
        Offload::of(head.and_then(|head| head.try_into().ok()).unwrap_or_default())
    }

    /// The frame, as far as the place holds it.
    pub(super) fn bytes(&self) -> &[u8] {
        let start = usize::from(self.head.tp_mac);
        self.place.get(start..start + self.head.tp_snaplen as usize).unwrap_or_default()
    }

    /// Whether the place holds all of it.
    pub(super) fn is_whole(&self) -> bool {
        self.head.tp_snaplen == self.head.tp_len
    }

    /// Whether it waits in the socket's queue as a whole.
    pub(super) fn is_queued(&self) -> bool {
        self.head.tp_status & libc::TP_STATUS_COPY != 0
    }

    /// The VLAN tag that the kernel took out of it.
    pub(super) fn tag(&self) -> Option<VlanTag> {
        let has = |what: u32| self.head.tp_status & what != 0;
        let protocol = match has(libc::TP_STATUS_VLAN_TPID_VALID) {
            true => self.head.tp_vlan_tpid,
            false => libc::ETH_P_8021Q as u16,
        };
        has(libc::TP_STATUS_VLAN_VALID).then_some(VlanTag { protocol, id: self.head.tp_vlan_tci })
    }
}

impl Drop for RingFrame<'_> {
    fn drop(&mut self) {
        self.status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// A VLAN tag: what stands in it, in the order of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VlanTag {
    /// Kind of tag: 0x8100 for 802.1Q.
    pub(super) protocol: u16,
    /// Priority and number.
    pub(super) id: u16,
}

/// Makes a socket's queue as short as the system lets it be: a few frames.
#[cfg(test)]
pub(crate) fn shorten_queue(socket: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
    let least: c_int = 0;
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &least)
}

/// A device fills in no checksums any more, and so cuts no merged frames either: the kernel does both before it.
#[cfg(test)]
pub(crate) fn leave_no_checksums(name: &str) -> io::Result<()> {
    /// ETHTOOL_STXCSUM, with its value.
    const NO_CHECKSUMS: [u32; 2] = [0x17, 0];
    let (socket, mut request, mut what) = (control_socket()?, request(name), NO_CHECKSUMS);
    request.ifr_ifru.ifru_data = what.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL reads one `ifreq` and the two words it points to; all live across the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) })?;
    Ok(())
}
