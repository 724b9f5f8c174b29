//! A host inside this process: a TCP/IP stack (smoltcp) at a socket port of a card.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::{Duration as SmolDuration, Instant as SmolInstant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, Ipv4Cidr};

/// The longest frame of these hosts: 1,500 bytes of IP in Ethernet.
const FRAME_BYTES_MAX: usize = 1_514;
const LENGTH_BYTES: usize = 4;
const READ_BYTES: usize = 64 << 10;
/// Bytes that wait for the card: more than a window of TCP. What is more is not sent, as by a full queue.
const UNSENT_BYTES_MAX: usize = 256 << 10;
/// Hosts of the network.
const PREFIX_BITS: u8 = 24;

/// The wire from a host to the card: each frame behind its length.
struct Wire {
    stream: UnixStream,
    read: Vec<u8>,
    unsent: Vec<u8>,
    is_broken: bool,
}

impl Wire {
    /// The next frame that has arrived.
    fn take_frame(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(head) = self.read.first_chunk::<LENGTH_BYTES>() {
                let end = LENGTH_BYTES + u32::from_be_bytes(*head) as usize;
                if self.read.len() >= end {
                    let rest = self.read.split_off(end);
                    let frame = std::mem::replace(&mut self.read, rest);
                    return Some(frame[LENGTH_BYTES..].to_vec());
                }
            }
            let before = self.read.len();
            self.read.resize(before + READ_BYTES, 0);
            let read = self.stream.read(&mut self.read[before..]);
            self.read.truncate(before + read.as_ref().map_or(0, |bytes| *bytes));
            match read {
                Ok(0) => self.is_broken = true,
                Err(error) if error.kind() != ErrorKind::WouldBlock => self.is_broken = true,
                Ok(_) => continue,
                Err(_) => {}
            }
            return None;
        }
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(bytes) => drop(self.unsent.drain(..bytes)),
                Err(error) => {
                    self.is_broken |= error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }
}

struct RxFrame(Vec<u8>);
struct TxFrame<'a>(&'a mut Wire);

impl RxToken for RxFrame {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for TxFrame<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut frame = vec![0; length];
        let result = f(&mut frame);
        // A frame has at most 1,514 bytes.
        self.0.unsent.extend((length as u32).to_be_bytes());
        self.0.unsent.extend(frame);
        self.0.flush();
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = RxFrame;
    type TxToken<'a> = TxFrame<'a>;

    fn receive(&mut self, _: SmolInstant) -> Option<(RxFrame, TxFrame<'_>)> {
        let frame = self.take_frame()?;
        Some((RxFrame(frame), TxFrame(self)))
    }

    fn transmit(&mut self, _: SmolInstant) -> Option<TxFrame<'_>> {
        (self.unsent.len() < UNSENT_BYTES_MAX).then_some(TxFrame(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_BYTES_MAX;
        capabilities
    }
}

pub struct StackHost {
    wire: Wire,
    interface: Interface,
    /// Sockets of its programs.
    pub sockets: SocketSet<'static>,
    /// Its clock begins here.
    begun: Instant,
}

impl StackHost {
    /// Connects a host with this address to the port at `path`.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(path: &Path, address: Ipv4Addr, seed: u64) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_nonblocking(true)?;
        let mut wire = Wire { stream, read: Vec::new(), unsent: Vec::new(), is_broken: false };
        let [.., c, d] = address.octets();
        // A local station that nobody else of the network has.
        let station = EthernetAddress([2, 0, 0, 0, c, d]);
        let mut config = Config::new(HardwareAddress::Ethernet(station));
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire, SmolInstant::ZERO);
        let network = IpCidr::Ipv4(Ipv4Cidr::new(address, PREFIX_BITS));
        interface.update_ip_addrs(|addresses| {
            addresses.push(network).expect("an interface takes more than one address");
        });
        Ok(Self { wire, interface, sockets: SocketSet::new(Vec::new()), begun: Instant::now() })
    }

    fn now(&self) -> SmolInstant {
        // A quick start does not run for 300,000 years.
        SmolInstant::from_micros(self.begun.elapsed().as_micros() as i64)
    }

    /// Takes what arrived, and sends what is due; says how long until something is due again.
    ///
    /// # Errors
    /// The card is gone.
    pub fn poll(&mut self) -> io::Result<Option<SmolDuration>> {
        let now = self.now();
        self.wire.flush();
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
        if self.wire.is_broken {
            return Err(io::Error::new(ErrorKind::BrokenPipe, "the card's port is gone"));
        }
        Ok(self.interface.poll_delay(now, &self.sockets))
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// In words: the socket is in use.
    pub fn open(
        &mut self,
        socket: SocketHandle,
        to: (Ipv4Addr, u16),
        from_port: u16,
    ) -> Result<(), smoltcp::socket::tcp::ConnectError> {
        let socket = self.sockets.get_mut::<smoltcp::socket::tcp::Socket>(socket);
        socket.connect(self.interface.context(), to, from_port)
    }

    /// Descriptor that becomes readable when a frame arrives.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wire.stream.as_fd()
    }
}
