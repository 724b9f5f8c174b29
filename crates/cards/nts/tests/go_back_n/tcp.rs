//! TCP between two stacks that this project has no part in (smoltcp), over two cards and a bad line.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use snic_domain::Timestamp;

use crate::ends::{Card, HOSTS};
use crate::line::{Faults, Line};

/// The longest IP packet of the hosts: what the transport adds fits into 1,500 bytes.
const MTU: usize = 1_476;
const BYTES: usize = 400_000;

/// A host's network interface: frames in and out.
#[derive(Default)]
struct Wire {
    came: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sending<'a>(&'a mut Wire);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut frame = vec![0; length];
        let result = f(&mut frame);
        self.0.sent.push(frame);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        let frame = self.came.pop_front()?;
        Some((Received(frame), Sending(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = MTU + 14;
        capabilities
    }
}

struct Host {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    tcp: SocketHandle,
    /// Frames that its card gave it so far.
    given: usize,
}

impl Host {
    fn new(side: usize, is_six: bool) -> Self {
        let mut wire = Wire::default();
        let station = EthernetAddress([2, 0, 0, 0, 0, side as u8 + 1]);
        let mut config = Config::new(HardwareAddress::Ethernet(station));
        config.random_seed = side as u64;
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        let address = HOSTS[usize::from(is_six)][side].parse::<IpAddress>().unwrap();
        let bits = if is_six { 64 } else { 24 };
        interface.update_ip_addrs(|all| all.push(IpCidr::new(address, bits)).unwrap());
        let buffer = || tcp::SocketBuffer::new(vec![0; 64 << 10]);
        let mut sockets = SocketSet::new(Vec::new());
        let tcp = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Self { wire, interface, sockets, tcp, given: 0 }
    }

    fn tcp(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.tcp)
    }
}

fn byte(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// A client sends to a server; says how many segments the client sent, how many frames the line broke, and how long it
/// took.
fn transfer(is_six: bool, faults: Faults) -> (usize, u64, Duration) {
    let settings = json!({"window": 64, "timeout_ms": 10, "retries_max": 1_000});
    let [a, b] = [0, 1].map(|side| Card::new(side, is_six, settings.clone(), side as u64));
    let mut line = Line::new(a, b, faults, 11);
    let mut hosts = [0, 1].map(|side| Host::new(side, is_six));
    let server = HOSTS[usize::from(is_six)][1].parse::<IpAddress>().unwrap();
    hosts[1].tcp().listen(80).unwrap();
    let Host { interface, sockets, tcp, .. } = &mut hosts[0];
    let client = sockets.get_mut::<tcp::Socket<'_>>(*tcp);
    client.connect(interface.context(), (server, 80), 50_000).unwrap();
    let (began, mut written, mut read) = (line.now, 0, 0);
    while read < BYTES {
        assert!(line.now.since(began) < Duration::from_secs(300), "{read} of {BYTES} bytes");
        for (side, host) in hosts.iter_mut().enumerate() {
            host.wire.came.extend(line.delivered[side][host.given..].iter().cloned());
            host.given = line.delivered[side].len();
            let now = Instant::from_micros(line.now.since(Timestamp::ZERO).as_micros() as i64);
            host.interface.poll(now, &mut host.wire, &mut host.sockets);
            for frame in std::mem::take(&mut host.wire.sent) {
                line.send(side, frame);
            }
        }
        while written < BYTES && hosts[0].tcp().can_send() {
            let bytes: Vec<_> = (written..BYTES.min(written + 1_000)).map(byte).collect();
            written += hosts[0].tcp().send_slice(&bytes).unwrap();
        }
        let server = hosts[1].tcp();
        while server.can_recv() {
            let came = server.recv(|bytes| (bytes.len(), bytes.to_vec())).unwrap();
            assert!((read..).zip(&came).all(|(at, came)| byte(at) == *came), "wrong bytes");
            read += came.len();
        }
        line.run_for(Duration::from_micros(500));
    }
    let segments = line.taken[0].iter().filter(|frame| frame.len() > 100).count();
    (segments, line.broken, line.now.since(began))
}

#[test]
fn tcp_loses_nothing_over_a_line_that_loses_a_fifth() {
    for is_six in [false, true] {
        let fine = transfer(is_six, Faults::default());
        let held_up = Duration::from_micros(400);
        let bad = transfer(is_six, Faults { lost: 150, repeated: 50, damaged: 50, held_up });
        println!("segments, frames broken, time: {fine:?} on a good line, {bad:?} on a bad one");
        assert_eq!(fine.1, 0);
        assert!(bad.1 > 100, "the line was bad: {bad:?}");
    }
}
