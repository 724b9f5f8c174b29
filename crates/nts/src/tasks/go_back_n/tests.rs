use proptest::prelude::*;
use serde_json::json;

use crate::tasks::support::{Bench, assert_valid, fragments, tcp, udp};
use crate::{Direction, DropReason, Verdict};

const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";

fn end(local: &str, peer: &str, window: usize) -> Bench {
    Bench::new("go-back-n", json!({"local": local, "peer": peer, "window": window}))
}

fn packet(number: u32) -> Vec<u8> {
    udp(A, B, &number.to_be_bytes())
}

/// Two ends and what is on its way between them.
struct Line {
    ends: [Bench; 2],
    /// Towards each end.
    wires: [Vec<Vec<u8>>; 2],
    delivered: Vec<Vec<u8>>,
}

impl Line {
    fn new(window: usize) -> Self {
        Self {
            ends: [end(A, B, window), end(B, A, window)],
            wires: [Vec::new(), Vec::new()],
            delivered: Vec::new(),
        }
    }

    /// What end `side` emits: onward to the other end's wire, answers to the same.
    fn put(&mut self, side: usize, emitted: Vec<(Direction, Vec<u8>)>) {
        for (_, frame) in emitted {
            assert_valid(&frame);
            self.wires[1 - side].push(frame);
        }
    }

    /// Whether the window took it.
    fn send(&mut self, number: u32) -> bool {
        let out = self.ends[0].run(&packet(number));
        if out.verdict == Verdict::Forward {
            assert_valid(&out.frame);
            self.wires[1].push(out.frame);
        } else {
            assert_eq!(out.verdict, Verdict::Drop(DropReason::WindowFull));
        }
        out.verdict == Verdict::Forward
    }

    fn arrive(&mut self, side: usize, frame: &[u8]) {
        let out = self.ends[side].run(frame);
        self.put(side, out.emitted);
        if out.verdict == Verdict::Forward {
            assert_eq!(side, 1, "data goes one way only");
            self.delivered.push(out.frame);
        }
    }

    fn wait(&mut self, nanos: u64) {
        for side in 0..2 {
            self.ends[side].wait_nanos(nanos);
            if self.ends[side].nt.next_wake().is_some_and(|due| due <= self.ends[side].now) {
                let emitted = self.ends[side].wake();
                self.put(side, emitted);
            }
        }
    }

    /// Lets everything arrive, without loss, until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..200 {
            for side in 0..2 {
                for frame in std::mem::take(&mut self.wires[side]) {
                    self.arrive(side, &frame);
                }
            }
            if self.ends[0].nt.next_wake().is_none() && self.wires.iter().all(Vec::is_empty) {
                return;
            }
            self.wait(50_000_000);
        }
        panic!("the line does not settle");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send,
    Arrive(usize, prop::sample::Index),
    Lose(usize, prop::sample::Index),
    Repeat(usize, prop::sample::Index),
    Damage(usize, prop::sample::Index),
    Wait(u64),
    Restart(usize),
}

fn steps(restarts: u32) -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        8 => Just(Step::Send),
        12 => (0..2_usize, index()).prop_map(|(side, which)| Step::Arrive(side, which)),
        3 => (0..2_usize, index()).prop_map(|(side, which)| Step::Lose(side, which)),
        2 => (0..2_usize, index()).prop_map(|(side, which)| Step::Repeat(side, which)),
        1 => (0..2_usize, index()).prop_map(|(side, which)| Step::Damage(side, which)),
        3 => (0..30_000_000_u64).prop_map(Step::Wait),
        restarts => (0..2_usize).prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 0..150)
}

fn play(line: &mut Line, steps: Vec<Step>) -> Vec<Vec<u8>> {
    let mut accepted = Vec::new();
    let mut number = 0;
    for step in steps {
        match step {
            Step::Send => {
                number += 1;
                if line.send(number) {
                    accepted.push(packet(number));
                }
            }
            Step::Arrive(side, which)
            | Step::Lose(side, which)
            | Step::Repeat(side, which)
            | Step::Damage(side, which)
                if !line.wires[side].is_empty() =>
            {
                let place = which.index(line.wires[side].len());
                match step {
                    Step::Repeat(..) => {
                        let copy = line.wires[side][place].clone();
                        line.wires[side].push(copy);
                    }
                    // In the transport's own header: what is carried has its own checksum.
                    Step::Damage(..) => line.wires[side][place][40] ^= 0x40,
                    Step::Lose(..) => drop(line.wires[side].remove(place)),
                    _ => {
                        let frame = line.wires[side].remove(place);
                        line.arrive(side, &frame);
                    }
                }
            }
            Step::Wait(nanos) => line.wait(nanos),
            Step::Restart(side) => line.ends[side].restart(),
            _ => {}
        }
    }
    line.settle();
    accepted
}

proptest! {
    /// Loss, repetition, damage and reordering, and restarts with saved state: every packet that the
    /// window took arrives, once, in order, byte for byte.
    #[test]
    fn everything_arrives_once_and_in_order(steps in steps(1), window in 1..9_usize) {
        let mut line = Line::new(window);
        let accepted = play(&mut line, steps);
        prop_assert_eq!(&line.delivered, &accepted);
    }
}

#[test]
fn an_end_that_lost_its_state_is_noticed_and_nothing_is_lost() {
    for lost in 0..2 {
        let mut line = Line::new(8);
        for number in 1..=3 {
            assert!(line.send(number));
        }
        line.settle();
        let (local, peer) = if lost == 0 { (A, B) } else { (B, A) };
        let now = line.ends[lost].now;
        line.ends[lost] = end(local, peer, 8);
        line.ends[lost].now = now;
        // In place of the same seed as before.
        line.ends[lost].random = rand::SeedableRng::seed_from_u64(99);
        for number in 4..=6 {
            assert!(line.send(number));
        }
        line.settle();
        let expected: Vec<_> = (1..=6).map(packet).collect();
        assert_eq!(line.delivered, expected, "lost by {lost}");
    }
}

#[test]
fn an_old_stream_does_not_come_back() {
    let mut line = Line::new(8);
    line.send(1);
    let old = line.wires[1][0].clone();
    line.settle();
    line.ends[0] = end(A, B, 8);
    line.ends[0].random = rand::SeedableRng::seed_from_u64(99);
    line.send(2);
    line.settle();
    line.arrive(1, &old);
    line.send(3);
    line.settle();
    assert_eq!(line.delivered, [packet(1), packet(2), packet(3)]);
}

#[test]
fn a_gap_is_repeated_at_once_and_only_once() {
    let mut line = Line::new(8);
    (1..=4).for_each(|number| assert!(line.send(number)));
    line.wires[1].remove(0);
    for frame in std::mem::take(&mut line.wires[1]) {
        line.arrive(1, &frame);
    }
    for frame in std::mem::take(&mut line.wires[0]) {
        line.arrive(0, &frame);
    }
    assert_eq!(line.wires[1].len(), 4, "three reports, one repetition, without waiting");
    line.settle();
    assert_eq!(line.delivered.len(), 4);
}

#[test]
fn a_peer_that_is_gone_is_given_up() {
    let mut line = Line::new(2);
    assert!(line.send(1) && line.send(2) && !line.send(3));
    for _ in 0..40 {
        line.wait(2_000_000_000);
        line.wires[1].clear();
    }
    assert_eq!(line.ends[0].nt.next_wake(), None);
    assert!(line.send(4));
    line.settle();
    assert_eq!(line.delivered, [packet(4)]);
}

#[test]
fn what_cannot_be_carried_is_dropped_and_others_pass() {
    let mut bench = end(A, B, 8);
    let [first, _] = fragments(&udp(A, B, &[1; 60]), 1, 16);
    assert_eq!(bench.run(&first).verdict, Verdict::Drop(DropReason::Fragment));
    let large = udp(A, B, &[0; 1_500 - 28 - 20 + 1]);
    assert_eq!(bench.run(&large).verdict, Verdict::Drop(DropReason::TooLarge));
    let other = tcp((A, 1), ("10.0.0.9", 2), "S");
    assert_eq!(bench.run(&other).frame, other);
    let same = json!({"local": A, "peer": A});
    assert!(bench.rejected(&same).starts_with("peer: 10.0.0.1 is not allowed"));
}
