//! The two sides of a line: a card with the NT, or the reference.

use std::time::Duration;

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use snic_domain::Timestamp;
use snic_nts::{
    Context, Direction, DropReason, Emitted, NtInstance, Pool, Verdict, create, schema,
};

/// The largest frame of the tests.
const FRAME_BYTES_MAX: usize = 2_048;
/// Buffers of a card: more than any window of these tests.
const BUFFERS: usize = 256;

/// Result of a frame at an end.
#[derive(Debug, Default)]
pub struct Out {
    /// Whether the end took the frame.
    pub is_taken: bool,
    /// For the host.
    pub delivered: Option<Vec<u8>>,
    /// To the other end.
    pub sent: Vec<Vec<u8>>,
}

/// One side of a line.
pub trait End {
    /// Its host sends a frame.
    fn send(&mut self, frame: &[u8], now: Timestamp) -> Out;
    /// The line brings a frame.
    fn arrive(&mut self, frame: &[u8], now: Timestamp) -> Out;
    /// When it has something to do.
    fn due(&self) -> Option<Timestamp>;
    fn wake(&mut self, now: Timestamp) -> Vec<Vec<u8>>;
    /// The state goes to another card, whose clock is another one.
    fn move_to_another_card(&mut self, _now: Timestamp) {}
}

/// The addresses of the two hosts.
pub const HOSTS: [[&str; 2]; 2] = [["10.0.0.1", "10.0.0.2"], ["2001:db8::1", "2001:db8::2"]];

/// Random numbers of which the first are chosen: streams begin where a test wants them to.
struct Chosen {
    first: Vec<u32>,
    rest: ChaCha8Rng,
}

impl RngCore for Chosen {
    fn next_u32(&mut self) -> u32 {
        self.first.pop().unwrap_or_else(|| self.rest.next_u32())
    }

    fn next_u64(&mut self) -> u64 {
        self.rest.next_u64()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.rest.fill_bytes(bytes);
    }
}

/// A card with the NT.
pub struct Card {
    pub nt: NtInstance,
    settings: Value,
    seed: u64,
    random: Chosen,
    pool: Pool,
    emitted: Emitted,
    /// Time by which the card's clock is ahead of the test's.
    ahead: Duration,
}

impl Card {
    /// The card of host `side`; `more` are settings besides the addresses.
    pub fn new(side: usize, is_six: bool, more: Value, seed: u64) -> Self {
        let hosts = HOSTS[usize::from(is_six)];
        let mut settings = json!({"local": hosts[side], "peer": hosts[1 - side]});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let pool = Pool::new(BUFFERS, FRAME_BYTES_MAX);
        let mut card = Self {
            nt: create("go-back-n", seed).unwrap(),
            settings: Value::Null,
            seed,
            random: Chosen { first: Vec::new(), rest: ChaCha8Rng::seed_from_u64(seed) },
            emitted: Emitted::new(pool.clone()),
            pool,
            ahead: Duration::ZERO,
        };
        card.configure(settings);
        card
    }

    pub fn configure(&mut self, settings: Value) {
        let version = schema("go-back-n").unwrap().version;
        self.nt.configure(Timestamp::ZERO, version, settings.to_string().as_bytes()).unwrap();
        self.settings = settings;
    }

    /// The next streams that it opens.
    pub fn will_open(&mut self, streams: &[u32]) {
        self.random.first = streams.iter().rev().copied().collect();
    }

    /// It loses its power, and is configured as before.
    pub fn lose_state(&mut self) {
        self.seed += 1_000;
        self.nt = create("go-back-n", self.seed).unwrap();
        self.configure(self.settings.clone());
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.nt.counters().dropped(reason)
    }

    fn run(&mut self, frame: &[u8], now: Timestamp) -> (Verdict, Vec<u8>) {
        let mut packet = self.pool.copy_of(frame).expect("all buffers came back");
        let mut context =
            Context { now: now + self.ahead, random: &mut self.random, emitted: &mut self.emitted };
        let verdict = self.nt.process(&mut packet, &mut context);
        (verdict, packet.bytes().to_vec())
    }

    /// All that it emitted, which goes one way.
    fn emitted(&mut self, to: Direction) -> Vec<Vec<u8>> {
        let all: Vec<_> = self.emitted.drain().collect();
        assert!(all.iter().all(|(direction, _)| *direction == to), "{all:?}");
        let frames = all.iter().map(|(_, packet)| packet.bytes().to_vec()).collect();
        drop(all);
        assert_eq!(self.pool.available(), self.pool.capacity(), "all buffers came back");
        frames
    }
}

impl End for Card {
    fn send(&mut self, frame: &[u8], now: Timestamp) -> Out {
        let (verdict, frame) = self.run(frame, now);
        let mut sent = self.emitted(Direction::Onward);
        if verdict == Verdict::Forward {
            sent.push(frame);
        }
        Out { is_taken: !matches!(verdict, Verdict::Drop(_)), delivered: None, sent }
    }

    fn arrive(&mut self, frame: &[u8], now: Timestamp) -> Out {
        let (verdict, frame) = self.run(frame, now);
        let sent = self.emitted(Direction::Back);
        let delivered = (verdict == Verdict::Forward).then_some(frame);
        Out { is_taken: !matches!(verdict, Verdict::Drop(_)), delivered, sent }
    }

    fn due(&self) -> Option<Timestamp> {
        let due = self.nt.next_wake()?;
        Some(Timestamp::ZERO + due.since(Timestamp::ZERO + self.ahead))
    }

    fn wake(&mut self, now: Timestamp) -> Vec<Vec<u8>> {
        let mut context =
            Context { now: now + self.ahead, random: &mut self.random, emitted: &mut self.emitted };
        self.nt.wake(&mut context);
        self.emitted(Direction::Onward)
    }

    fn move_to_another_card(&mut self, now: Timestamp) {
        let saved = self.nt.save(now + self.ahead);
        self.lose_state();
        self.ahead += Duration::from_secs(1_000);
        self.nt.restore(now + self.ahead, &saved).unwrap();
        assert_eq!(self.nt.save(now + self.ahead), saved, "what is restored is what was saved");
    }
}
