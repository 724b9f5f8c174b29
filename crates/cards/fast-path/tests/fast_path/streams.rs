//! TCP streams and datagrams of real sockets: merged segments, and checksums that are left to the device.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use snic_card_soft::Received;
use snic_fast_path::DagCounts;
use snic_nts::Pool;
use snic_nts::wire::{self, Frame, Verified};

use crate::card::{FAMILIES, Family, exits, forward};
use crate::site::{Bench, inside, received};

/// Bytes of a stream.
const STREAM_BYTES: usize = 32 << 20;

/// Byte at this place of a stream.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Time in which a stream goes on, however slow the machine is.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

fn send_stream(to: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(10))?;
    stream.set_write_timeout(PATIENCE)?;
    let bytes: Vec<_> = (0..STREAM_BYTES).map(byte).collect();
    stream.write_all(&bytes)?;
    stream.read_exact(&mut [0])
}

/// Takes one stream; the address that it came from, and whether it is as it was sent.
fn take_stream(listener: &TcpListener) -> io::Result<(IpAddr, bool)> {
    let (mut stream, from) = listener.accept()?;
    stream.set_read_timeout(PATIENCE)?;
    let mut bytes = vec![0; STREAM_BYTES];
    stream.read_exact(&mut bytes)?;
    stream.write_all(&[1])?;
    Ok((from.ip(), bytes.iter().enumerate().all(|(at, got)| *got == byte(at))))
}

/// Results of a run: where streams came from, frames on the slow path, counts of the DAG, packets at the second host.
fn run(bench: &mut Bench, family: &Family) -> (IpAddr, u64, DagCounts, u64) {
    family.set_up(bench);
    let is_over = AtomicBool::new(false);
    let [a, b, _] = bench.site.namespaces.clone();
    let to = SocketAddr::new(family.hosts[1].parse().expect("an address"), 5_201);
    let listener = inside(&b, || TcpListener::bind(to).expect("it is free"));
    let before = inside(&b, || received("b"));
    let out = exits(bench);
    let (from, forwarded) = std::thread::scope(|scope| {
        let card = scope.spawn(|| forward(bench, out, family, &is_over));
        let server = scope.spawn(|| take_stream(&listener));
        let sent = inside(&a, || send_stream(to));
        if sent.is_err() {
            // The server gets a stream that ends, in case it has none.
            inside(&b, || drop(TcpStream::connect(to)));
        }
        let taken = server.join().expect("it ends");
        is_over.store(true, Ordering::Relaxed);
        sent.expect("the stream is taken");
        let (from, is_same) = taken.expect("all of the stream");
        assert!(is_same, "as it was sent");
        (from, card.join().expect("it ends well"))
    });
    let counts = bench.path.dag_counts(1).expect("a row");
    (from, forwarded, counts, inside(&b, || received("b")) - before)
}

#[test]
fn a_tcp_stream_passes_in_merged_segments_and_arrives_as_it_was_sent() {
    for (family, purpose) in FAMILIES.iter().zip(["stream4", "stream6"]) {
        let Some(mut bench) = Bench::new(purpose) else { return };
        let (from, forwarded, counts, packets) = run(&mut bench, family);
        println!("{purpose}: {forwarded} frames by the card, {counts:?}, {packets} packets merged");
        assert_eq!(from, family.external.parse::<IpAddr>().expect("an address"));
        assert!(forwarded < 200, "{forwarded} frames took the slow path");
        // Segments have 1,460 bytes of payload at most, and headers.
        let least = STREAM_BYTES as u64 / 1_460;
        assert!(counts.packets >= least && counts.bytes >= STREAM_BYTES as u64 + least * 54);
        assert!(packets * 4 < least, "{packets} packets: they came in one piece");
        assert_eq!((counts.failed, counts.beyond_packets), (0, 0));
    }
}

/// Checksums of what hosts leave to their devices, looked at where the packets arrive: the capture fills in what is still missing, from the sum
/// that the program has left in the field.
#[test]
fn checksums_that_a_host_leaves_to_its_device_are_right_where_packets_arrive() {
    for (family, purpose) in FAMILIES.iter().zip(["sums4", "sums6"]) {
        let Some(mut bench) = Bench::new(purpose) else { return };
        family.set_up(&bench);
        let [a, ..] = bench.site.namespaces.clone();
        let is_over = AtomicBool::new(false);
        let mut host = bench.site.open(1, "interface:b");
        let pool = Pool::new(4_096, 9_216);
        let external: IpAddr = family.external.parse().expect("an address");
        let to = SocketAddr::new(family.hosts[1].parse().expect("an address"), 7_000);
        let local = SocketAddr::new(family.hosts[0].parse().expect("an address"), 7_001);
        let (mut seen, mut right, out) = (0, 0, exits(&bench));
        std::thread::scope(|scope| {
            scope.spawn(|| forward(&mut bench, out, family, &is_over));
            let socket = inside(&a, || UdpSocket::bind(local).expect("it is free"));
            let until = Instant::now() + Duration::from_secs(10);
            while seen < 100 && Instant::now() < until {
                socket.send_to(&[seen as u8; 33], to).expect("it is taken");
                std::thread::sleep(Duration::from_millis(2));
                while let Received::Frame(packet) = host.receive(&pool).expect("it is there") {
                    let Ok(Frame::Ip(layout)) = wire::parse(packet.bytes()) else { continue };
                    if layout.source == external && layout.protocol == 17 {
                        right +=
                            u32::from(wire::verify(packet.bytes(), &layout) == Verified::Right);
                        seen += 1;
                    }
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let counts = bench.path.dag_counts(1).expect("a row");
        println!("{purpose}: {seen} seen, {counts:?}");
        assert_eq!(seen, right, "wrong checksums");
        assert!(seen >= 100 && counts.packets >= 50, "{seen} seen, {counts:?}");
    }
}
