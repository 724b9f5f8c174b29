//! A port and a front end in one process: frames cross, a guest comes back, and whatever a guest writes stays its own
//! trouble.

mod front_end;
mod qemu;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use front_end::{
    BUFFERS, Card, EVENT_INDEX, FrontEnd, INDIRECT, MERGEABLE, NEXT, PATIENCE, Part, RECEIVE, SEND,
    SIZE, WRITE,
};
use proptest::prelude::*;
use rustix::fs::SealFlags;
use snic_card_soft::Received;
use snic_nts::wire::{self, Flow, Frame};
use snic_vhost_user::BUFFERS_TO_GUEST;
use vm_memory::{Bytes as _, GuestAddress};

const PLAIN: [u8; 12] = [0; 12];

/// A frame of no known protocol, with a number.
fn frame(number: u16, bytes: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..bytes).map(|at| at as u8));
    frame
}

#[test]
fn frames_cross_in_both_directions() {
    for features in [0, MERGEABLE, EVENT_INDEX, MERGEABLE | EVENT_INDEX] {
        let mut card = Card::new();
        assert!(!card.send(&frame(0, 60)), "nobody is there");
        let mut guest = FrontEnd::connect(&card.path, features);
        for number in 0..600 {
            let sent = frame(number, 60 + usize::from(number) * 15);
            guest.send(PLAIN, &sent);
            assert_eq!(card.frame(), sent);
            assert_eq!(guest.until_used(SEND, 1), [(u32::from(number % SIZE), 0)]);
        }
        guest.give(SIZE, 2_048);
        for number in 0..600_u16 {
            let sent = frame(number, 60 + usize::from(number) * 2);
            card.until_sent(&sent);
            let used = guest.until_used(RECEIVE, 1);
            let bytes = guest.contents(&used);
            let header = [&[0; 10][..], &1_u16.to_le_bytes()].concat();
            assert_eq!(bytes, [header, sent].concat());
            guest.give(1, 2_048);
        }
    }
}

#[test]
fn a_long_frame_is_merged_from_many_buffers_or_not_sent() {
    let mut card = Card::new();
    let mut guest = FrontEnd::connect(&card.path, MERGEABLE);
    // Too few at first: it waits.
    guest.give(18, 512);
    let long = frame(7, 9_216);
    card.until_sent(&long);
    std::thread::sleep(Duration::from_millis(50));
    assert!(guest.used(RECEIVE).is_empty(), "half a frame is none");
    guest.give(2, 512);
    let used = guest.until_used(RECEIVE, 19);
    assert_eq!(used.len(), 19, "12 + 9,216 bytes in parts of 512");
    let bytes = guest.contents(&used);
    assert_eq!(
        (&bytes[..10], &bytes[10..12], &bytes[12..]),
        (&[0; 10][..], &[19, 0][..], &long[..])
    );
    assert!(guest.was_called(RECEIVE));

    // Who merges none has buffers that are too small back empty, and the frame in the next one.
    let mut card = Card::new();
    let mut guest = FrontEnd::connect(&card.path, 0);
    guest.give(3, 512);
    guest.give(1, 2_048);
    card.until_sent(&frame(8, 1_514));
    let used = guest.until_used(RECEIVE, 4);
    assert_eq!(used, [(0, 0), (1, 0), (2, 0), (3, 12 + 1_514)]);
}

/// UDP or TCP over IPv4 with the sum of its pseudo header in its checksum, as drivers leave it.
fn unfinished(protocol: u8, checksum_at: usize, payload: usize) -> Vec<u8> {
    let transport = if protocol == 6 { 20 } else { 8 };
    let total = (20 + transport + payload) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = |words: &[u8]| {
        let sum: u32 = words.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        (sum & 0xffff) + (sum >> 16)
    };
    let header = !(sum(&ip) as u16);
    ip[10..12].copy_from_slice(&header.to_be_bytes());
    let pseudo = sum(&ip[12..20]) + u32::from(protocol) + transport as u32 + payload as u32;
    let pseudo = ((pseudo & 0xffff) + (pseudo >> 16)) as u16;
    frame.extend(ip);
    let mut head = vec![0; transport];
    head[..4].copy_from_slice(&[3, 0xe8, 7, 0xd0]);
    if protocol == 6 {
        head[12] = 0x50;
        head[13] = 0x18;
    } else {
        head[4..6].copy_from_slice(&(total - 20).to_be_bytes());
    }
    head[checksum_at..checksum_at + 2].copy_from_slice(&pseudo.to_be_bytes());
    frame.extend(head);
    frame.extend((0..payload).map(|at| at as u8));
    frame
}

fn header(flags: u8, merge: u8, words: [u16; 4]) -> [u8; 12] {
    let mut header = [0; 12];
    (header[0], header[1]) = (flags, merge);
    for (word, at) in words.iter().zip([2, 4, 6, 8]) {
        header[at..at + 2].copy_from_slice(&word.to_le_bytes());
    }
    header
}

/// Whether the transport's checksum of a frame is right, summed up over its pseudo header.
fn is_finished(frame: &[u8]) -> bool {
    let Ok(Frame::Ip(layout)) = wire::parse(frame) else { return false };
    let flow = Flow::of(frame, &layout);
    let part = &frame[layout.transport..layout.end];
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum()
    };
    let mut sum =
        words(&frame[26..34]) + u32::from(flow.protocol) + part.len() as u32 + words(part);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum == 0xffff
}

#[test]
fn the_card_finishes_what_the_guest_leaves_to_it_and_drops_what_makes_no_sense() {
    let mut card = Card::new();
    let mut guest = FrontEnd::connect(&card.path, 1 | 1 << 11);
    let udp = unfinished(17, 6, 100);
    guest.send(header(1, 0, [0, 0, 34, 6]), &udp);
    let received = card.frame();
    assert!(is_finished(&received) && !is_finished(&udp), "{received:02x?}");
    assert_eq!(received[42..], udp[42..]);
    // 3,000 bytes in segments of 1,400.
    let tcp = unfinished(6, 16, 3_000);
    guest.send(header(1, 1, [54, 1_400, 34, 16]), &tcp);
    let segments = [card.frame(), card.frame(), card.frame()];
    assert_eq!(segments.each_ref().map(Vec::len), [1_454, 1_454, 254]);
    assert!(segments.iter().all(|segment| is_finished(segment)));
    let payload = segments.map(|segment| segment[54..].to_vec()).concat();
    assert_eq!(payload, tcp[54..]);
    // A place behind the frame is not filled; what cannot be cut is dropped, and so is a frame without its header.
    guest.send(header(1, 0, [0, 0, 0xffff, 0xffff]), &udp);
    assert_eq!(card.frame(), udp);
    guest.send(header(1, 1, [54, 0, 34, 16]), &tcp);
    assert!(matches!(card.receive(), Received::TooLong));
    guest.send(header(1, 3, [42, 1_400, 34, 6]), &udp);
    assert!(matches!(card.receive(), Received::TooLong));
    guest.send(PLAIN, &[2; 13]);
    assert!(matches!(card.receive(), Received::TooLong));
    guest.send(PLAIN, &frame(1, 60));
    assert_eq!(card.frame(), frame(1, 60));
}

#[test]
fn chains_may_be_long_and_indirect() {
    let mut card = Card::new();
    let mut guest = FrontEnd::connect(&card.path, 0);
    let sent = frame(3, 1_000);
    let bytes = [&PLAIN[..], &sent].concat();
    guest.memory.write_slice(&bytes, GuestAddress(BUFFERS)).expect("memory");
    // A byte each for the first, then the rest.
    let last = 200_u16;
    for at in 0..last {
        let part = Part { next: at + 1, ..Part::new(BUFFERS + u64::from(at), 1, NEXT) };
        guest.describe(SEND, at, part);
    }
    let rest = bytes.len() as u32 - u32::from(last);
    guest.describe(SEND, last, Part::new(BUFFERS + u64::from(last), rest, 0));
    guest.offer(SEND, 0);
    guest.kick(SEND);
    assert_eq!(card.frame(), sent);
    // The same table is in other memory, and one descriptor says so.
    let elsewhere = BUFFERS + 0x8_0000;
    let mut table = vec![0; 16 * (usize::from(last) + 1)];
    let here = GuestAddress(BUFFERS - 0x4_0000 + 0x1_0000);
    guest.memory.read_slice(&mut table, here).expect("memory");
    guest.memory.write_slice(&table, GuestAddress(elsewhere)).expect("memory");
    guest.describe(SEND, 7, Part::new(elsewhere, table.len() as u32, INDIRECT));
    guest.offer(SEND, 7);
    guest.kick(SEND);
    assert_eq!(card.frame(), sent);
    assert_eq!(guest.until_used(SEND, 2), [(0, 0), (7, 0)]);
}

#[test]
fn a_guest_that_reboots_and_a_front_end_that_comes_back_begin_afresh() {
    let mut card = Card::new();
    let mut guest = FrontEnd::connect(&card.path, MERGEABLE);
    let round = |card: &mut Card, guest: &mut FrontEnd, number: u16| {
        guest.send(PLAIN, &frame(number, 60));
        assert_eq!(card.frame(), frame(number, 60));
        guest.give(4, 2_048);
        card.until_sent(&frame(number + 1, 60));
        let used = guest.until_used(RECEIVE, 1);
        assert_eq!(guest.contents(&used)[12..], frame(number + 1, 60));
    };
    round(&mut card, &mut guest, 10);
    for number in [20, 30] {
        guest.reboot();
        round(&mut card, &mut guest, number);
    }
    // Frames that wait for a guest that is gone are not for the next one, also where a kick comes while it goes.
    for _ in 0..10 {
        for number in 0..8 {
            card.until_sent(&frame(900 + number, 60));
        }
        let is_next = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(guest.kicker(RECEIVE, &is_next));
            drop(guest);
            let until = Instant::now() + PATIENCE;
            while card.send(&frame(999, 60)) {
                assert!(Instant::now() < until, "the guest is gone");
                std::thread::sleep(Duration::from_millis(1));
            }
            is_next.store(true, Ordering::Relaxed);
        });
        guest = FrontEnd::connect(&card.path, 0);
        round(&mut card, &mut guest, 40);
    }
    // While it is connected, another one waits.
    let path = card.path.clone();
    let waits = std::thread::spawn(move || FrontEnd::connect(&path, 0));
    std::thread::sleep(Duration::from_millis(50));
    round(&mut card, &mut guest, 50);
    assert!(!waits.is_finished());
    drop(guest);
    let mut third = waits.join().expect("it is connected");
    round(&mut card, &mut third, 60);
}

#[test]
fn memory_that_can_shrink_is_refused() {
    let mut card = Card::new();
    assert!(FrontEnd::with_memory(&card.path, 0, SealFlags::empty()).is_err());
    assert!(FrontEnd::with_memory(&card.path, 0, SealFlags::GROW).is_err());
    let mut guest = FrontEnd::connect(&card.path, 0);
    guest.send(PLAIN, &frame(1, 60));
    assert_eq!(card.frame(), frame(1, 60));
}

#[test]
fn who_sends_faster_than_the_card_waits_and_who_does_not_read_loses_its_own() {
    let mut card = Card::new();
    let mut guest = FrontEnd::connect(&card.path, EVENT_INDEX);
    // More than the port has buffers for, while the card takes nothing: the rest stays in the guest's ring.
    for number in 0..2 * SIZE {
        if number == SIZE {
            guest.until_used(SEND, SIZE.into());
        }
        guest.send(PLAIN, &frame(number, 60));
    }
    std::thread::sleep(Duration::from_millis(100));
    let taken = guest.used(SEND).len();
    assert!((64..usize::from(SIZE)).contains(&taken), "{taken} of the second half");
    for number in 0..2 * SIZE {
        assert_eq!(card.frame(), frame(number, 60));
    }
    guest.until_used(SEND, usize::from(SIZE) - taken);
    // Nobody reads: what does not fit is not taken.
    let mut taken = 0;
    for number in 0..2_000 {
        taken += usize::from(card.send(&frame(number, 60)));
    }
    assert!((1..=BUFFERS_TO_GUEST + 1).contains(&taken), "{taken}");
    guest.give(SIZE, 2_048);
    let first = guest.until_used(RECEIVE, taken.min(SIZE.into()));
    for (number, chain) in (0..).zip(&first) {
        assert_eq!(guest.contents(&[*chain])[12..], frame(number, 60), "in their order");
    }
}

/// A write of a hostile driver.
#[derive(Debug, Clone)]
enum Write {
    Describe { ring: usize, at: u16, part: Part },
    Offer { ring: usize, head: u16 },
    Tell { ring: usize, available: u16 },
    Scribble { at: u64, bytes: Vec<u8> },
    Kick { ring: usize },
    CardSends { bytes: usize },
    Reboot,
}

fn part() -> impl Strategy<Value = Part> {
    let address = prop_oneof![
        BUFFERS..BUFFERS + 0x10_0000,
        // The rings themselves, the edges of the memory, and anywhere.
        front_end::BASE..BUFFERS,
        (0..64_u64).prop_map(|to| front_end::BASE + front_end::MEMORY_BYTES - 32 + to),
        Just(u64::MAX - 7),
        any::<u64>(),
    ];
    let bytes =
        prop_oneof![0..64_u32, 1_500..2_048_u32, 9_000..70_000_u32, Just(u32::MAX), any::<u32>()];
    let flags =
        prop_oneof![Just(0), Just(NEXT), Just(WRITE), Just(WRITE | NEXT), Just(INDIRECT), 0..8_u16];
    (address, bytes, flags, prop_oneof![0..SIZE, any::<u16>()])
        .prop_map(|(address, bytes, flags, next)| Part { address, bytes, flags, next })
}

fn write() -> impl Strategy<Value = Write> {
    let ring = || 0..2_usize;
    let head = || prop_oneof![8 => 0..SIZE, 1 => any::<u16>()];
    prop_oneof![
        10 => (ring(), 0..SIZE, part()).prop_map(|(ring, at, part)| Write::Describe { ring, at, part }),
        8 => (ring(), head()).prop_map(|(ring, head)| Write::Offer { ring, head }),
        1 => (ring(), any::<u16>()).prop_map(|(ring, available)| Write::Tell { ring, available }),
        2 => (front_end::BASE..BUFFERS, prop::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(at, bytes)| Write::Scribble { at, bytes }),
        4 => ring().prop_map(|ring| Write::Kick { ring }),
        2 => (14..9_217_usize).prop_map(|bytes| Write::CardSends { bytes }),
        1 => Just(Write::Reboot),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_guest_writes_harms_no_other(
        writes in prop::collection::vec(write(), 1..120),
        features in prop_oneof![Just(0), Just(MERGEABLE), Just(EVENT_INDEX), Just(MERGEABLE | EVENT_INDEX)],
    ) {
        let mut card = Card::new();
        let mut other = Card::new();
        let mut neighbour = FrontEnd::connect(&other.path, 0);
        let mut guest = FrontEnd::connect(&card.path, features);
        // A loop of descriptors, and one that goes into itself.
        for (ring, flags) in [(SEND, NEXT), (RECEIVE, WRITE | NEXT)] {
            for at in 0..SIZE {
                let next = (at + 1) % SIZE;
                guest.describe(ring, at, Part { next, ..Part::new(BUFFERS, 0, flags) });
            }
        }
        for write in &writes {
            match write {
                Write::Describe { ring, at, part } => guest.describe(*ring, *at, *part),
                Write::Offer { ring, head } => guest.offer(*ring, *head),
                Write::Tell { ring, available } => guest.tell(*ring, *available),
                Write::Scribble { at, bytes } => {
                    guest.memory.write_slice(bytes, GuestAddress(*at)).expect("memory");
                }
                Write::Kick { ring } => guest.kick(*ring),
                Write::CardSends { bytes } => {
                    card.send(&frame(1, *bytes));
                }
                Write::Reboot => guest.reboot(),
            }
            // The card looks, and gets frames of the right lengths or none.
            for _ in 0..8 {
                if let Received::Frame(packet) = card.port.receive(&card.pool).expect("it is there") {
                    prop_assert!((14..=9_216).contains(&packet.len()), "{}", packet.len());
                }
            }
        }
        guest.kick(SEND);
        neighbour.send(PLAIN, &frame(5, 60));
        prop_assert_eq!(other.frame(), frame(5, 60));
        // The port is as good as new for the next guest.
        drop(guest);
        let mut next = FrontEnd::connect(&card.path, features);
        while !matches!(card.port.receive(&card.pool), Ok(Received::Nothing)) {}
        next.send(PLAIN, &frame(6, 60));
        let until = Instant::now() + PATIENCE;
        loop {
            // Frames of the guest before may still come.
            if let Received::Frame(packet) = card.receive()
                && packet.bytes() == frame(6, 60)
            {
                break;
            }
            prop_assert!(Instant::now() < until);
        }
    }
}

#[test]
fn a_ring_outside_of_the_memory_and_requests_that_make_no_sense_end_the_connection_at_most() {
    let mut card = Card::new();
    let end = front_end::BASE + front_end::MEMORY_BYTES;
    for at in [[0; 3], [end; 3], [end - 16; 3], [u64::MAX; 3]] {
        let mut guest = FrontEnd::with_memory(&card.path, 0, SealFlags::SHRINK).expect("sealed");
        if guest.start_ring(SEND, SIZE, at).is_ok() {
            guest.kick(SEND);
            guest.offer(SEND, 3);
            guest.kick(SEND);
        }
    }
    for size in [0, 3, 2_048, u16::MAX] {
        let mut guest = FrontEnd::with_memory(&card.path, 0, SealFlags::SHRINK).expect("sealed");
        let _ = guest.start_ring(SEND, size, [front_end::BASE; 3]);
        guest.kick(SEND);
    }
    let mut guest = FrontEnd::connect(&card.path, 0);
    guest.send(PLAIN, &frame(1, 60));
    loop {
        if let Received::Frame(packet) = card.receive()
            && packet.bytes() == frame(1, 60)
        {
            break;
        }
    }
}
