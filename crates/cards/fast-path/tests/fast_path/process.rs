//! A card's process with the fast path: packets, counts, changes and deaths.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use snic_card_soft::CardFolder;

use crate::rig::{ARRIVAL, FAMILY, FIREWALL, NAT, Rig, address, count, receive, send, serve};
use crate::site::inside;
use crate::support;

#[test]
#[ignore = "part: the process of the card"]
fn card() {
    serve();
}

#[test]
fn packets_of_a_flow_pass_in_the_kernel_and_are_in_all_counts() {
    let Some(mut rig) = Rig::new("counts") else { return };
    let (sender, receiver) = (rig.sender(4_000, 7_000), rig.receiver(7_000));
    const SENT: usize = 400;
    let (mut arrived, mut answered) = (0, 0);
    sender.set_read_timeout(Some(ARRIVAL)).expect("a time");
    for number in 0..SENT {
        sender.send(&(number as u32).to_be_bytes()).expect("it is taken");
        let Some((from, _)) = receive(&receiver) else { continue };
        arrived += 1;
        assert_eq!(from.ip(), FAMILY.external.parse::<std::net::IpAddr>().expect("an address"));
        receiver.send_to(b"pong", from).expect("it is taken");
        answered += u64::from(sender.recv(&mut [0; 64]).is_ok());
    }
    assert_eq!((arrived, answered), (SENT as u64, SENT as u64), "{:?}", rig.bench.observe());
    let seen = rig.bench.observe();
    let all = arrived + answered;
    println!("{all} packets, of which {} passed in the kernel", seen.fast_packets);
    // A busy machine gives the card its turns late, and until then packets take the slow path.
    assert!(seen.fast_packets > all / 4, "{seen:?}");
    // Frames of 46 bytes, for both payloads have 4; veth pads none.
    let bytes = all * 46;
    assert_eq!(rig.bench.dag_counts(), [[all, bytes]; 2], "{seen:?}");
    let counts: Vec<_> = seen.ports.iter().map(|port| (port.received, port.sent)).collect();
    assert_eq!(counts, [(answered, arrived), (arrived, answered)], "{seen:?}");
    for task in &seen.tasks {
        assert_eq!((task.received, task.forwarded), (all, all), "{task:?}");
    }
    assert_eq!((seen.packets_in, seen.packets_out), (all, all));
}

#[test]
fn a_change_takes_effect_from_one_packet_to_the_next() {
    let Some(mut rig) = Rig::new("changes") else { return };
    let (sender, receiver) = (rig.sender(4_000, 7_000), rig.receiver(7_000));
    rig.warm_up(&sender, &receiver);
    // The firewall keeps what is established; without a memory it drops by its rules.
    let closed = r#"{"stateful":false,"rules":[{"action":"accept","protocol":"tcp"}]}"#;
    rig.bench.tell(&[Some(NAT), Some(closed)]);
    send(&sender, 50);
    assert_eq!(count(&receiver), 0, "the firewall drops them: {:?}", rig.bench.observe());
    rig.bench.tell(&[Some(NAT), Some(FIREWALL)]);
    rig.warm_up(&sender, &receiver);
    rig.bench.remove_dag();
    send(&sender, 50);
    assert_eq!(count(&receiver), 0, "their DAG is gone: {:?}", rig.bench.observe());
}

#[test]
fn nothing_passes_when_the_card_was_killed() {
    let Some(mut rig) = Rig::new("killed") else { return };
    let (sender, receiver) = (rig.sender(4_000, 7_000), rig.receiver(7_000));
    rig.warm_up(&sender, &receiver);
    send(&sender, 20);
    assert_eq!(count(&receiver), 20);
    rig.process.0.kill().expect("it runs");
    rig.process.0.wait().expect("it ends");
    for _ in 0..20 {
        let _ = sender.send(b"nobody");
    }
    assert_eq!(count(&receiver), 0, "their DAG is gone");
}

/// The daemon may die: the card's packets go on, and the next one finds it as it was.
#[test]
fn packets_go_on_without_whoever_programs_the_card() {
    let Some(mut rig) = Rig::new("adopted") else { return };
    let (sender, receiver) = (rig.sender(4_000, 7_000), rig.receiver(7_000));
    rig.warm_up(&sender, &receiver);
    let place = CardFolder::new(rig.folder.path());
    let settings = place.read_settings().expect("it was written");
    let before = rig.fast();
    // The connection ends with the old value.
    rig.bench = support::Bench::of(&place, &settings, String::new());
    send(&sender, 20);
    assert_eq!(count(&receiver), 20);
    assert!(rig.fast() >= before + 15, "{:?}", rig.bench.observe());
}

#[test]
fn no_packet_of_a_flow_overtakes_another_one() {
    let Some(mut rig) = Rig::new("order") else { return };
    let receiver = rig.receiver(7_000);
    let steady = rig.sender(4_000, 7_000);
    rig.warm_up(&steady, &receiver);
    let others: Vec<_> = (0..64).map(|at| rig.sender(4_100 + at, 7_000)).collect();
    let mut sent = 0_u32;
    let (mut last, mut came) = (std::collections::HashMap::new(), 0);
    let mut drain = |receiver: &UdpSocket| {
        receiver.set_nonblocking(true).expect("a socket");
        while let Some((from, number)) = receive(receiver) {
            came += 1;
            let before = last.insert(from, number);
            assert!(before.is_none_or(|before| before < number), "{number} behind {before:?}");
        }
    };
    for round in 0..64 {
        // A new flow takes the DAG back in the middle of others.
        for step in 0..20 {
            for socket in [&steady, &others[round], &others[round / 2]] {
                sent += 1;
                socket.send(&sent.to_be_bytes()).expect("it is taken");
            }
            if step % 5 == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        drain(&receiver);
    }
    std::thread::sleep(ARRIVAL);
    drain(&receiver);
    let seen = rig.bench.observe();
    println!("{came} of {sent} arrived, {} passed in the kernel", seen.fast_packets);
    assert!(seen.fast_packets > 100, "{seen:?}");
    assert!(came > sent * 9 / 10, "{came} of {sent}: {seen:?}");
}

#[test]
fn a_dag_gets_its_rate_once() {
    const KBPS: u32 = 50_000;
    let Some(mut rig) = Rig::with("rate", true, Some([KBPS, 16_384])) else { return };
    let (sender, receiver) = (rig.sender(4_000, 7_000), rig.receiver(7_000));
    rig.warm_up(&sender, &receiver);
    let before = rig.fast();
    let [_, [_, served]] = rig.bench.dag_counts();
    let began = Instant::now();
    // A second at 80 % of the rate, and a second at ten times it.
    for (spacing, span) in [(280, 1), (22, 2)] {
        while began.elapsed() < Duration::from_secs(span) {
            let _ = sender.send(&[0; 1_358]);
            std::thread::sleep(Duration::from_micros(spacing));
        }
    }
    std::thread::sleep(ARRIVAL);
    let took = (began.elapsed() - ARRIVAL).as_secs_f64();
    let [_, [_, after]] = rig.bench.dag_counts();
    let (bits, fast) = ((after - served) as f64 * 8.0, rig.fast() - before);
    println!("{:.1} Mbit/s of 50, {fast} packets in the kernel", bits / took / 1e6);
    // What may be in the buckets at the beginning, and waits at the end.
    let most = f64::from(KBPS) * 1e3 * took + 8.0 * f64::from((256 << 10) + (128 << 10) + 16_384);
    assert!(bits <= most, "{bits} bits in {took} s: {:?}", rig.bench.observe());
    assert!(bits > 0.6 * f64::from(KBPS) * 1e3 * took, "{bits} bits in {took} s");
    assert!(fast > 100, "{:?}", rig.bench.observe());
}

/// The next stream, which blocks.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("it can");
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).expect("it can");
                return stream;
            }
            Err(error) => assert!(Instant::now() < until, "no stream: {error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends bytes in parts, the next one when the one before has arrived: a DAG is handed over when none of its frames waits at the card,
/// and a stream that fills its window without a pause may keep a card on a busy machine from that to its end.
fn write_in_parts(stream: &mut TcpStream, bytes: &[u8], arrived: &AtomicUsize) {
    let mut sent = 0;
    for part in bytes.chunks(2 << 20) {
        stream.write_all(part).expect("it is taken");
        sent += part.len();
        let until = Instant::now() + Duration::from_secs(20);
        while arrived.load(Ordering::Relaxed) < sent {
            assert!(Instant::now() < until, "{sent} bytes have not arrived");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All bytes of a stream, which counts them as they arrive.
fn read_all(stream: &mut TcpStream, arrived: &AtomicUsize) -> Vec<u8> {
    let (mut bytes, mut part) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match stream.read(&mut part).expect("it can be read") {
            0 => return bytes,
            read => bytes.extend_from_slice(&part[..read]),
        }
        arrived.store(bytes.len(), Ordering::Relaxed);
    }
}

#[test]
fn what_opens_and_ends_connections_and_fragments_pass_by_the_card() {
    let Some(mut rig) = Rig::new("opening") else { return };
    let (sender, receiver) = (rig.sender(4_000, 7_000), rig.receiver(7_000));
    rig.warm_up(&sender, &receiver);
    let before = rig.fast();
    for _ in 0..20 {
        sender.send(&[1; 3_000]).expect("it is taken in fragments");
        assert!(receive(&receiver).is_some(), "{:?}", rig.bench.observe());
    }
    assert_eq!(rig.fast(), before, "fragments");
    let [a, b, _] = rig.site.namespaces.clone();
    let to = address(FAMILY.hosts[1], 5_201);
    let listener = inside(&b, || TcpListener::bind(to).expect("it is free"));
    for round in 0..3 {
        let before = rig.fast();
        let arrived = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| read_all(&mut accept(&listener), &arrived));
            let mut stream = inside(&a, || TcpStream::connect(to).expect("it listens"));
            let bytes: Vec<u8> = (0..16 << 20).map(|at: u32| (at % 251) as u8).collect();
            write_in_parts(&mut stream, &bytes, &arrived);
            drop(stream);
            assert!(server.join().expect("it ends") == bytes, "other bytes in round {round}");
        });
        let fast = rig.fast() - before;
        println!("round {round}: {fast} packets of the stream in the kernel");
        assert!(fast > 5_000, "{:?}", rig.bench.observe());
    }
}
