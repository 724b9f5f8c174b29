//! Conversation of two hosts: a ping, a TCP transfer, values of a memcached server over UDP.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smoltcp::iface::SocketHandle;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::{icmp, tcp, udp};
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, IpAddress};

use super::host::StackHost;

const GUEST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const NET: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Names the pings of the guest.
const PING_IDENTIFIER: u16 = 0x534e;
const MEMCACHED_PORT: u16 = 11_211;
/// Buffers of a TCP socket: a window of 128 KiB.
const TCP_BYTES: usize = 128 << 10;
const DATAGRAM_BYTES: usize = 2_048;
const DATAGRAMS: usize = 16;
/// Longest time for an answer, and time for which no answer is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_millis(1_500);
/// The longest wait for a frame.
const LOOK: Duration = Duration::from_millis(20);
/// The value of the key `greeting`.
pub(super) const VALUE: &str = "hello from net";
/// A frame of memcached over UDP: request, number and count of its datagrams, reserved.
const MEMCACHED_HEADER: usize = 8;

/// A TCP transfer.
pub(super) struct Transfer {
    pub(super) bytes: usize,
    pub(super) took: Duration,
}

pub(super) struct Talk {
    guest: StackHost,
    net: StackHost,
    ping: SocketHandle,
    pings: u16,
    client: SocketHandle,
    server: SocketHandle,
    reader: SocketHandle,
    memcached: SocketHandle,
    /// Requests that the memcached server got.
    requests: u32,
    ports: u16,
}

fn tcp_socket() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; TCP_BYTES]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_nagle_enabled(false);
    socket
}

fn udp_socket() -> udp::Socket<'static> {
    let buffer = || {
        let places = vec![udp::PacketMetadata::EMPTY; DATAGRAMS];
        udp::PacketBuffer::new(places, vec![0; DATAGRAMS * DATAGRAM_BYTES])
    };
    udp::Socket::new(buffer(), buffer())
}

fn icmp_socket() -> icmp::Socket<'static> {
    let buffer = || {
        let places = vec![icmp::PacketMetadata::EMPTY; DATAGRAMS];
        icmp::PacketBuffer::new(places, vec![0; DATAGRAMS * DATAGRAM_BYTES])
    };
    icmp::Socket::new(buffer(), buffer())
}

/// Byte `at` of what is transferred: no two parts of it are alike for a long time.
const fn pattern(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Talk {
    /// Connects the hosts to the ports of function 0 and of the uplink.
    pub(super) fn connect([guest, net]: &[PathBuf; 2]) -> Result<Self> {
        let seed = std::process::id().into();
        let connect = |path: &PathBuf, address, seed| {
            StackHost::connect(path, address, seed)
                .with_context(|| format!("connect a host to {}", path.display()))
        };
        let mut guest = connect(guest, GUEST, seed)?;
        let mut net = connect(net, NET, seed + 1)?;
        let mut ping = icmp_socket();
        ping.bind(icmp::Endpoint::Ident(PING_IDENTIFIER)).context("bind the ping socket")?;
        let mut reader = udp_socket();
        reader.bind(40_000).context("bind the client's UDP socket")?;
        let mut memcached = udp_socket();
        memcached.bind(MEMCACHED_PORT).context("bind the server's UDP socket")?;
        Ok(Self {
            ping: guest.sockets.add(ping),
            client: guest.sockets.add(tcp_socket()),
            reader: guest.sockets.add(reader),
            server: net.sockets.add(tcp_socket()),
            memcached: net.sockets.add(memcached),
            guest,
            net,
            pings: 0,
            requests: 0,
            ports: 0,
        })
    }

    /// Requests that the memcached server got.
    pub(super) const fn requests(&self) -> u32 {
        self.requests
    }

    /// Lets both hosts work until `done` says so, at most for `most`; says whether it did.
    fn run(
        &mut self,
        most: Duration,
        mut done: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<bool> {
        let until = Instant::now() + most;
        loop {
            let due = [self.guest.poll()?, self.net.poll()?];
            self.serve_values()?;
            if done(self)? {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let due =
                due.into_iter().flatten().map(|due| Duration::from_micros(due.total_micros()));
            let wait = due.min().unwrap_or(LOOK).min(LOOK).min(left);
            let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
            let mut fds = [self.guest.fd(), self.net.fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            // Interrupted or not: whoever waits looks again.
            let _ = poll(&mut fds, Some(&wait));
        }
    }

    /// Answers requests to the memcached server.
    fn serve_values(&mut self) -> Result<()> {
        let socket = self.net.sockets.get_mut::<udp::Socket<'_>>(self.memcached);
        while let Ok((request, from)) = socket.recv() {
            let Some((header, command)) = request.split_at_checked(MEMCACHED_HEADER) else {
                continue;
            };
            let found = if command == b"get greeting\r\n" {
                format!("VALUE greeting 0 {}\r\n{VALUE}\r\nEND\r\n", VALUE.len())
            } else {
                "ERROR\r\n".to_owned()
            };
            // The request's number, and one datagram of one.
            let header = [header[0], header[1], 0, 0, 0, 1, 0, 0];
            let answer = [&header[..], found.as_bytes()].concat();
            self.requests += 1;
            socket.send_slice(&answer, from).context("answer a request")?;
        }
        Ok(())
    }

    /// Sends a ping and waits for its answer; says how long it took.
    fn ping(&mut self) -> Result<Option<Duration>> {
        self.pings = self.pings.wrapping_add(1);
        let (sequence, begun) = (self.pings, Instant::now());
        let checksums = ChecksumCapabilities::default();
        let request = Icmpv4Repr::EchoRequest {
            ident: PING_IDENTIFIER,
            seq_no: sequence,
            data: b"snic quick start",
        };
        let socket = self.guest.sockets.get_mut::<icmp::Socket<'_>>(self.ping);
        let room =
            socket.send(request.buffer_len(), IpAddress::Ipv4(NET)).context("send a ping")?;
        request.emit(&mut Icmpv4Packet::new_unchecked(room), &checksums);
        let came_back = self.run(ANSWER_MAX, |talk| {
            let socket = talk.guest.sockets.get_mut::<icmp::Socket<'_>>(talk.ping);
            while let Ok((answer, _)) = socket.recv() {
                let packet = Icmpv4Packet::new_checked(answer);
                let answer = packet.and_then(|packet| Icmpv4Repr::parse(&packet, &checksums));
                if matches!(answer, Ok(Icmpv4Repr::EchoReply { seq_no, .. }) if seq_no == sequence)
                {
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        Ok(came_back.then(|| begun.elapsed()))
    }

    /// So many pings from guest to net, in the order of their times.
    pub(super) fn pings(&mut self, count: usize) -> Result<Vec<Duration>> {
        // The first finds out who has the address.
        self.ping()?;
        let mut took = Vec::new();
        for _ in 0..count {
            took.push(self.ping()?.context("no answer; is the DAG ready?")?);
        }
        took.sort_unstable();
        Ok(took)
    }

    /// One ping, and a rest.
    pub(super) fn ping_once(&mut self, rest: Duration) -> Result<()> {
        self.ping()?;
        self.rest(rest)
    }

    /// Sends nothing new for so long.
    pub(super) fn rest(&mut self, time: Duration) -> Result<()> {
        self.run(time, |_| Ok(false)).map(|_| ())
    }

    fn connect_to(&mut self, port: u16) -> Result<()> {
        self.ports += 1;
        let from = 41_000 + self.ports;
        self.guest.open(self.client, (NET, port), from).context("open a connection")
    }

    /// Sends so many bytes from guest to net.
    pub(super) fn transfer(&mut self, bytes: usize, port: u16) -> Result<Transfer> {
        self.net.sockets.get_mut::<tcp::Socket<'_>>(self.server).listen(port).context("listen")?;
        self.connect_to(port)?;
        let begun = Instant::now();
        let (mut sent, mut seen) = (0, 0);
        let is_whole = self.run(ANSWER_MAX * 3, |talk| {
            let client = talk.guest.sockets.get_mut::<tcp::Socket<'_>>(talk.client);
            while client.can_send() && sent < bytes {
                let part: Vec<u8> = (sent..bytes.min(sent + 4_096)).map(pattern).collect();
                sent += client.send_slice(&part).context("send")?;
            }
            if sent == bytes {
                client.close();
            }
            let server = talk.net.sockets.get_mut::<tcp::Socket<'_>>(talk.server);
            while server.can_recv() {
                let (next, is_equal) = server
                    .recv(|part| {
                        let is_equal = (seen..).zip(&*part).all(|(at, byte)| pattern(at) == *byte);
                        (part.len(), (seen + part.len(), is_equal))
                    })
                    .context("receive")?;
                ensure!(is_equal, "bytes {seen} to {next} are not those that were sent");
                seen = next;
            }
            if seen == bytes {
                server.close();
            }
            Ok(seen == bytes)
        })?;
        ensure!(is_whole, "{seen} of {bytes} bytes arrived");
        let took = begun.elapsed();
        // Both ends hang up.
        self.run(SILENCE, |talk| {
            let server = talk.net.sockets.get_mut::<tcp::Socket<'_>>(talk.server);
            Ok(server.state() == tcp::State::Closed)
        })?;
        Ok(Transfer { bytes: seen, took })
    }

    /// Whether a connection to this port opens, where net serves it.
    pub(super) fn opens(&mut self, port: u16) -> Result<bool> {
        self.net.sockets.get_mut::<tcp::Socket<'_>>(self.server).abort();
        self.guest.sockets.get_mut::<tcp::Socket<'_>>(self.client).abort();
        self.run(LOOK, |_| Ok(false))?;
        self.net.sockets.get_mut::<tcp::Socket<'_>>(self.server).listen(port).context("listen")?;
        self.connect_to(port)?;
        let is_open = self.run(SILENCE, |talk| {
            let client = talk.guest.sockets.get_mut::<tcp::Socket<'_>>(talk.client);
            Ok(client.state() == tcp::State::Established)
        })?;
        self.guest.sockets.get_mut::<tcp::Socket<'_>>(self.client).abort();
        self.net.sockets.get_mut::<tcp::Socket<'_>>(self.server).abort();
        Ok(is_open)
    }

    /// Asks the memcached server of net for its value.
    pub(super) fn get_value(&mut self) -> Result<String> {
        self.ports += 1;
        let number = self.ports.to_be_bytes();
        let request =
            [&[number[0], number[1], 0, 0, 0, 1, 0, 0], &b"get greeting\r\n"[..]].concat();
        let socket = self.guest.sockets.get_mut::<udp::Socket<'_>>(self.reader);
        socket.send_slice(&request, (NET, MEMCACHED_PORT)).context("send")?;
        let mut found = None;
        self.run(ANSWER_MAX, |talk| {
            let socket = talk.guest.sockets.get_mut::<udp::Socket<'_>>(talk.reader);
            while let Ok((answer, _)) = socket.recv() {
                if answer.get(..2) == Some(&number[..]) {
                    found = Some(String::from_utf8_lossy(&answer[MEMCACHED_HEADER..]).into_owned());
                }
            }
            Ok(found.is_some())
        })?;
        let Some(found) = found else { bail!("no answer") };
        let value = found.split("\r\n").nth(1);
        value.map(str::to_owned).with_context(|| format!("the server answered {found:?}"))
    }
}
