use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use snic_nts::Pool;
use snic_nts::wire::Flow;

use super::*;

/// Properties that a sender may vary from frame to frame.
#[derive(Debug, Clone)]
struct Sending {
    flow: u8,
    ipv6: bool,
    tcp: bool,
    payload: usize,
    push: bool,
    /// The number is not the one that follows.
    jumps: bool,
    /// The field of the IPv4 header stays what it was.
    same_id: bool,
    dont_fragment: bool,
    wrong: bool,
    tagged: bool,
    padding: usize,
    window: u8,
}

fn plain(flow: u8, payload: usize) -> Sending {
    Sending {
        flow,
        ipv6: false,
        tcp: false,
        payload,
        push: false,
        jumps: false,
        same_id: false,
        dont_fragment: false,
        wrong: false,
        tagged: false,
        padding: 0,
        window: 1,
    }
}

/// Makes the frames of some senders, each with the numbers that follow from its last frame.
#[derive(Default)]
struct Senders {
    numbers: BTreeMap<u8, (u32, u16)>,
    sent: u8,
}

impl Senders {
    fn frame(&mut self, of: &Sending) -> Vec<u8> {
        let (number, id) = self.numbers.entry(of.flow).or_insert((1_000, 65_534));
        *number = number.wrapping_add(if of.jumps { 7 } else { 0 });
        *id = id.wrapping_add(u16::from(!of.same_id));
        let transport_bytes = if of.tcp { 20 } else { 8 } + of.payload;
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if of.tagged {
            frame.extend([0x81, 0, 0, 5]);
        }
        let protocol = if of.tcp { 6 } else { 17 };
        let length = |bytes: usize| (bytes as u16).to_be_bytes();
        let network = frame.len() + 2;
        if of.ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length(transport_bytes));
            frame.extend([protocol, 64]);
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(length(20 + transport_bytes));
            frame.extend(id.to_be_bytes());
            frame.extend([if of.dont_fragment { 0x40 } else { 0 }, 0, 64, protocol, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            segments::fill_ipv4_checksum(&mut frame[network..]);
        }
        frame.extend([0, of.flow, 0, 81]);
        if of.tcp {
            frame.extend(number.to_be_bytes());
            let flags = ACK | if of.push { PUSH } else { 0 };
            frame.extend([0, 0, 0, 9, 0x50, flags, 1, of.window, 0, 0, 0, 0]);
        } else {
            frame.extend(length(transport_bytes));
            frame.extend([0, 0]);
        }
        *number = number.wrapping_add(of.payload as u32);
        self.sent = self.sent.wrapping_add(1);
        frame.extend((0..of.payload).map(|at| self.sent ^ at as u8));
        let Ok(Frame::Ip(layout)) = wire::parse(&frame) else { panic!("{of:?} {frame:02x?}") };
        wire::fill(&mut frame, &layout);
        if of.wrong {
            let last = frame.len() - 1;
            frame[last] ^= 1;
        }
        frame.extend(vec![0; of.padding]);
        frame
    }
}

fn frames(of: &[Sending]) -> Vec<Vec<u8>> {
    let mut senders = Senders::default();
    of.iter().map(|of| senders.frame(of)).collect()
}

/// System that takes some kinds of merged frames, and so many at a call.
struct System {
    tcp: bool,
    udp: bool,
    at_once: usize,
    /// Frames that it got, cut where they were merged.
    got: RefCell<Vec<Vec<u8>>>,
    /// Number of frames in each of its calls.
    calls: RefCell<Vec<usize>>,
}

impl System {
    fn new(tcp: bool, udp: bool, at_once: usize) -> Self {
        Self { tcp, udp, at_once, got: RefCell::default(), calls: RefCell::default() }
    }

    fn take(&self, units: &[Unit], frames: &[Packet], merger: &Merger) -> io::Result<usize> {
        let pool = Pool::new(FRAMES_MAX, 2_048);
        let refused = |unit: &&Unit| {
            let is_cut = if unit.kind == Kind::Udp { self.udp } else { self.tcp };
            unit.is_merged() && !is_cut
        };
        if units.first().is_some_and(|unit| refused(&unit)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let taken = units.iter().take(self.at_once).take_while(|unit| !refused(unit));
        let mut count = 0;
        for unit in taken {
            count += 1;
            let whole: Vec<u8> = merger.parts(unit, frames).flatten().copied().collect();
            let mut cut = VecDeque::new();
            let is_done = segments::complete(unit.offload(), &whole, &pool, &mut cut);
            assert!(is_done, "{unit:?} {whole:02x?}");
            self.calls.borrow_mut().push(cut.len());
            self.got.borrow_mut().extend(cut.iter().map(|packet| packet.bytes().to_vec()));
        }
        Ok(count)
    }
}

fn send(system: &System, merger: &mut Merger, frames: &[Vec<u8>]) {
    let pool = Pool::new(FRAMES_MAX, 2_048);
    let mut packets: Vec<Packet> =
        frames.iter().map(|frame| pool.copy_of(frame).expect("as many as fit")).collect();
    merger.merge(&mut packets);
    let mut taken = 0;
    merger.send(
        &mut packets,
        |units, frames, merger| system.take(units, frames, merger),
        |_, is_taken| taken += usize::from(is_taken),
    );
    assert_eq!(taken, frames.len());
}

fn merged(of: &[Sending]) -> Vec<usize> {
    let (system, frames) = (System::new(true, true, 64), frames(of));
    send(&system, &mut Merger::new(1_514), &frames);
    assert_eq!(sorted(&system.got.borrow()), sorted(&frames));
    system.calls.take()
}

fn sorted(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut sorted = frames.to_vec();
    sorted.sort();
    sorted
}

#[test]
fn frames_of_a_flow_go_as_one_and_flows_keep_their_order() {
    let [a, b] = [plain(1, 100), plain(2, 100)];
    assert_eq!(merged(&[a.clone(), b.clone(), a.clone(), a.clone(), b.clone()]), [3, 2]);
    assert_eq!(merged(&vec![a.clone(); 64]), [64]);
    let short = plain(1, 60);
    assert_eq!(merged(&[a.clone(), a.clone(), short, a.clone(), a.clone()]), [3, 2]);
    assert_eq!(merged(&[a, plain(1, 120)]), [1, 1], "a longer one does not follow");
}

#[test]
fn segments_of_a_stream_go_as_one_up_to_a_push() {
    let data = Sending { tcp: true, ..plain(1, 1_400) };
    let push = Sending { push: true, ..data.clone() };
    assert_eq!(merged(&[data.clone(), data.clone(), push, data.clone(), data.clone()]), [3, 2]);
    let later = Sending { jumps: true, ..data.clone() };
    assert_eq!(merged(&[data.clone(), later, data.clone()]), [1, 2]);
    let six = Sending { ipv6: true, ..data.clone() };
    assert_eq!(merged(&vec![six; 10]), [10]);
    // 46 of 1,400 bytes are as much as an IP packet holds.
    assert_eq!(merged(&vec![data; 64]), [46, 18]);
}

#[test]
fn what_a_receiver_would_see_changed_goes_alone() {
    let data = plain(1, 100);
    let alone = [
        Sending { wrong: true, ..data.clone() },
        Sending { tagged: true, ..data.clone() },
        Sending { padding: 3, ..data.clone() },
        Sending { payload: 0, ..data.clone() },
        Sending { payload: 1_480, ..data.clone() },
        Sending { same_id: true, ..data.clone() },
        Sending { tcp: true, payload: 0, ..data.clone() },
    ];
    for of in alone {
        assert_eq!(merged(&[of.clone(), of.clone(), of]), [1, 1, 1]);
    }
    let free = Sending { same_id: true, dont_fragment: true, ..data };
    let (system, frames) = (System::new(true, true, 64), frames(&vec![free; 3]));
    send(&system, &mut Merger::new(1_514), &frames);
    assert_eq!(system.calls.take(), [3], "the field says nothing there");
}

#[test]
fn a_system_that_cuts_nothing_gets_what_was_sent() {
    let data = [plain(1, 100), Sending { tcp: true, ..plain(2, 1_400) }];
    let frames: Vec<_> = frames(&data.iter().cycle().take(40).cloned().collect::<Vec<_>>());
    let (system, mut merger) = (System::new(true, false, 3), Merger::new(1_514));
    send(&system, &mut merger, &frames);
    assert_eq!(sorted(&system.got.take()), sorted(&frames));
    assert_eq!(system.calls.take().len(), 21, "those of the stream are one");
    send(&system, &mut merger, &frames);
    assert_eq!(system.calls.take().len(), 21);
}

fn sendings() -> impl Strategy<Value = Vec<Sending>> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let one = (0..4_u8, flags, 0..9_u8, 0..3_usize, any::<bool>());
    let one = one.prop_map(|(flow, (tcp, ipv6, push), odd, size, dont_fragment)| Sending {
        // A flow is of one kind.
        flow: flow * 4 + u8::from(tcp) * 2 + u8::from(ipv6),
        ipv6,
        tcp,
        payload: [100, 100, 60][size],
        push: push && odd == 0,
        jumps: odd == 1,
        same_id: odd == 2 && !dont_fragment,
        dont_fragment,
        wrong: odd == 3,
        tagged: odd == 4,
        padding: usize::from(odd == 5),
        window: 1 + u8::from(odd == 6),
    });
    proptest::collection::vec(one, 1..FRAMES_MAX)
}

proptest! {
    /// Whatever is sent arrives, each flow in its order, byte for byte.
    #[test]
    fn each_flow_arrives_as_it_was_sent(
        of in sendings(), tcp in any::<bool>(), udp in any::<bool>(), at_once in 1..5_usize
    ) {
        let (system, frames) = (System::new(tcp, udp, at_once), frames(&of));
        send(&system, &mut Merger::new(1_514), &frames);
        let got = system.got.take();
        for of in &of {
            let port = |frame: &&Vec<u8>| {
                let Ok(Frame::Ip(layout)) = wire::parse(frame) else { panic!("{frame:02x?}") };
                let flow = Flow::of(frame, &layout);
                flow.source_port == u16::from(of.flow)
            };
            let [sent, came] = [&frames, &got].map(|all| all.iter().filter(port).collect::<Vec<_>>());
            prop_assert_eq!(sent, came);
        }
    }
}
