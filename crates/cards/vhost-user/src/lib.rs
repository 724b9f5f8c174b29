//! vhost-user ports of the software card: a guest's network device, reached through the guest's memory.
//!
//! The card is the back end and QEMU the front end. QEMU connects to the port's socket, and hands over the guest's memory
//! and the rings of its virtio-net device. Then frames cross without a system call of QEMU's.
//!
//! ```text
//!  guest's rings ◄──────► thread of the port ── frames in buffers of the port ──► card's thread
//!                          │  reads and writes the guest's memory      ◄──
//!  QEMU ── socket ──► thread of the connection: memory, rings, features
//! ```
//!
//! Guest and QEMU are not trusted. What they write is read by the port's threads only, so a guest that keeps them busy, or a
//! descriptor that blocks, stops this port and nothing else. Addresses are checked with each access (`vm-memory`),
//! and the memory has to be sealed, for a file that shrinks would end the card with SIGBUS.
//! Work of one turn is bounded: [`TURN_CHAINS`] chains of a ring, each of at most [`DESCRIPTORS_MAX`] descriptors.
//!
//! The guest may leave checksums and the cutting of TCP segments to the card (`VIRTIO_NET_F_CSUM`, `VIRTIO_NET_F_HOST_TSO4`
//! and `6`), which does both when the frame arrives. It gets frames that are whole. Dirty pages are not logged,
//! so QEMU does not migrate the guest.
//!
//! The programs of the rust-vmm project that this uses are not in `snicd`, whose build is to stay small: the program
//! `snic-card` has these ports.

mod channel;
mod guest;
mod memory;
mod port;
mod receiving;
mod relay;
mod sending;

use std::io;
use std::path::Path;

use snic_card_soft::Port;

/// Chains of one ring that are looked at in one turn of the port's thread.
pub const TURN_CHAINS: usize = 256;
/// Descriptors of one chain, or of all chains that one frame is put into.
pub const DESCRIPTORS_MAX: usize = 1_024;
/// Descriptors of a ring at most: as many as QEMU allows.
pub const RING_SIZE_MAX: usize = 1_024;
/// Buffers of a port for frames from its guest, and for frames to it. They are its own: a guest that sends much takes no
/// buffer of another port.
pub const BUFFERS_FROM_GUEST: usize = 512;
/// The same for frames to the guest.
pub const BUFFERS_TO_GUEST: usize = 256;

/// Opens a port: a socket at this path, for the user of the card only.
///
/// # Errors
/// The socket cannot be made.
pub fn open(path: &Path) -> io::Result<Box<dyn Port>> {
    Ok(Box::new(port::VhostUserPort::open(path)?))
}
