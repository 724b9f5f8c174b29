//! The system calls that make ports: those for which no safe name exists.
#![allow(unsafe_code, reason = "TUNSETIFF and AF_PACKET have no safe names in rustix or std")]

use std::ffi::{c_int, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

/// A socket buffer that holds what arrives while the card is busy with a large bitstream: 20 ms of
/// 3 Gbit/s.
const SOCKET_BUFFER_BYTES: c_int = 8 << 20;

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

/// Makes a TAP device and attaches to it.
pub(super) fn open_tap(name: &str) -> io::Result<File> {
    let tap = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives across the call.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(tap)
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

fn index(name: &str) -> io::Result<c_int> {
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

/// A socket for all frames that arrive at an interface, each behind a `virtio_net_hdr`. It sees frames
/// for other stations too, and none that it sends.
pub(super) fn open_packet_socket(name: &str) -> io::Result<OwnedFd> {
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
    // SAFETY: `sockaddr_ll` is plain data, for which all zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as libc::c_ushort).to_be();
    address.sll_ifindex = index;
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let pointer: *const libc::sockaddr_ll = &raw const address;
    // SAFETY: `address` has as many bytes as are named, and lives across the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), pointer.cast(), bytes) })?;
    Ok(socket)
}

/// How many frames a packet socket's queue has dropped since the last call; the kernel counts from zero again.
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

/// Makes a socket's queue as short as the system lets it be: a few frames.
#[cfg(test)]
pub(crate) fn shorten_queue(socket: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
    let least: c_int = 0;
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &least)
}
