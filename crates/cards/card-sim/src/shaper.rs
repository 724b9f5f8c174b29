//! The token buckets at the ingress: packets of a DAG over its rate wait in the DAG's queue,
//! and are dropped only if that is full.
//!
//! Waiting packets are in the packet store; token buckets have
//! a fixed part of it, so that a DAG that sends too much takes no room from packets that may pass
//! (SuperNIC, 4.5). A software card keeps them in buffers of the host's memory. The queues stand before a packet is bound to a table version, so that a full queue of
//! a slow DAG does not delay a commit.

use snic_tables::{PACKETS_MARGIN, PROMISE_DEPTH, RateLimiterRow};

use crate::plane::Claim;
use crate::time::{Bucket, Clock, Rate};

const NIL: u32 = u32::MAX;

/// One token bucket with its queue; packets are named by their places.
#[derive(Debug)]
pub(crate) struct Limiter {
    bucket: Option<Bucket>,
    /// Fills at the rate that was promised: a packet that finds too little in it is beyond that.
    promise: Option<Promise>,
    /// The same for what is taken from senders, of which some waits and some is dropped.
    taken: Option<Promise>,
    head: u32,
    tail: u32,
    bytes: u64,
    /// Number of packets in the queue.
    packets: u32,
    /// Counts changes of the rate: events of an older one are void.
    pub(crate) generation: u32,
}

impl Default for Limiter {
    fn default() -> Self {
        let (bucket, promise, taken) = (None, None, None);
        Self { bucket, promise, taken, head: NIL, tail: NIL, bytes: 0, packets: 0, generation: 0 }
    }
}

/// Promise to a DAG, as a row says it.
#[derive(Debug, Clone, Copy)]
struct Terms {
    bits: Rate,
    /// Where packets are counted: bits of the promised size at this rate, for each packet.
    packets: Option<(Rate, u64)>,
    burst_bytes: u32,
}

impl Terms {
    /// `None` where nothing is promised.
    fn of(row: &RateLimiterRow, clock: Clock) -> Option<Self> {
        let bps = u64::from(row.promised_kbps) * 1_000;
        let bits = clock.rate(bps)?;
        let margin = clock.rate(bps + bps / u64::from(PACKETS_MARGIN))?;
        let packet_bits = u64::from(row.packet_bytes) * 8;
        let packets = (packet_bits > 0).then_some((margin, packet_bits));
        Some(Self { bits, packets, burst_bytes: row.burst_bytes.saturating_mul(PROMISE_DEPTH) })
    }

    /// A promise on these terms; full, or with what was left of one on other terms until `now`.
    fn promise(self, now: u64, before: Option<Promise>) -> Promise {
        let refilled = |rate, before: Option<Bucket>| {
            let mut bucket = before.unwrap_or_else(|| Bucket::new(rate, self.burst_bytes));
            bucket.change(now, rate, self.burst_bytes);
            bucket
        };
        let (bits, packets) =
            before.map_or((None, None), |before| (Some(before.bits), before.packets));
        let packets_left = packets.map(|(bucket, _)| bucket);
        let packets = self.packets.map(|(rate, each)| (refilled(rate, packets_left), each));
        Promise { bits: refilled(self.bits, bits), packets }
    }
}

/// Rest of a promise: of its bits, and of its packets where they are counted. A packet has to find
/// enough in both.
#[derive(Debug)]
struct Promise {
    bits: Bucket,
    /// In bits of packets of the promised size, and those of one packet.
    packets: Option<(Bucket, u64)>,
}

impl Promise {
    fn is_ready(&self, now: u64, bytes: u32) -> bool {
        self.bits.is_ready(now, u64::from(bytes) * 8)
            && self.packets.as_ref().is_none_or(|(bucket, each)| bucket.is_ready(now, *each))
    }

    /// From when on it is ready if nothing is taken until then.
    fn ready_at(&self, bytes: u32) -> u64 {
        let packets = self.packets.as_ref().map_or(0, |(bucket, each)| bucket.ready_at(*each));
        self.bits.ready_at(u64::from(bytes) * 8).max(packets)
    }

    fn give_back(&mut self, bytes: u32) {
        self.bits.give_back(u64::from(bytes) * 8);
        if let Some((bucket, each)) = &mut self.packets {
            bucket.give_back(*each);
        }
    }

    /// Claim of the next packet, which is within it and could have come at `since`.
    fn claim(&self, now: u64, since: u64) -> Claim {
        Claim::within(now, self.bits.full_at().max(since), self.bits.fills_in())
    }

    /// Takes what has passed elsewhere, as far as the promise goes.
    fn take_rest(&mut self, now: u64, packets: u64, bytes: u64) {
        self.bits.take_rest(now, bytes.saturating_mul(8));
        if let Some((bucket, each)) = &mut self.packets {
            bucket.take_rest(now, packets.saturating_mul(*each));
        }
    }

    /// As if the packet had come at `since`: tokens gained while the card kept it waiting are not lost.
    fn take(&mut self, since: u64, bytes: u32) {
        self.bits.take(since, u64::from(bytes) * 8);
        if let Some((bucket, each)) = &mut self.packets {
            bucket.take(since, *each);
        }
    }
}

/// Largest queue at a token bucket, packets that come included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueRoom {
    pub bytes: u64,
    pub packets: u32,
}

/// Answer of a bucket about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It passes now.
    Pass,
    /// It waits; where it is the first to wait, until this cycle.
    Wait(Option<u64>),
    /// It is dropped.
    Drop,
}

impl Limiter {
    /// Takes on a row's columns at `now`; `None` or a rate of zero lets nothing pass.
    pub(crate) fn set(&mut self, now: u64, row: Option<RateLimiterRow>, clock: Clock) {
        self.generation = self.generation.wrapping_add(1);
        let rate = row.and_then(|row| {
            let rate = clock.rate(u64::from(row.rate_kbps) * 1_000)?;
            Some((rate, row.burst_bytes))
        });
        match (&mut self.bucket, rate) {
            (Some(bucket), Some((rate, burst))) => bucket.change(now, rate, burst),
            (bucket, rate) => *bucket = rate.map(|(rate, burst)| Bucket::new(rate, burst)),
        }
        let promise = row.and_then(|row| Terms::of(&row, clock));
        for kept in [&mut self.promise, &mut self.taken] {
            *kept = promise.map(|terms| terms.promise(now, kept.take()));
        }
    }

    /// Decides about a packet that arrives, where so many may wait. Takes its tokens if it passes.
    pub(crate) fn arrive(&mut self, now: u64, bytes: u32, room: QueueRoom) -> Verdict {
        let Some(bucket) = &mut self.bucket else { return Verdict::Drop };
        let bits = u64::from(bytes) * 8;
        if self.head == NIL && bucket.is_ready(now, bits) {
            bucket.take(now, bits);
            return Verdict::Pass;
        }
        if self.bytes + u64::from(bytes) > room.bytes || self.packets >= room.packets {
            return Verdict::Drop;
        }
        Verdict::Wait((self.head == NIL).then(|| bucket.ready_at(bits)))
    }

    /// Claim of a packet that passes, and whose sender has kept it ready since `since`. Takes its tokens.
    pub(crate) fn claim(&mut self, now: u64, since: u64, bytes: u32) -> Claim {
        match self.promise.as_mut().filter(|promise| promise.is_ready(now, bytes)) {
            None => Claim::BEYOND,
            Some(promise) => {
                let claim = promise.claim(now, since);
                promise.take(since, bytes);
                claim
            }
        }
    }

    /// A packet that passed gives up its part of the promise.
    pub(crate) fn give_back(&mut self, bytes: u32) {
        if let Some(promise) = &mut self.promise {
            promise.give_back(bytes);
        }
    }

    /// Packets have passed elsewhere: their tokens are gone, and the bucket is in debt where there were too few.
    pub(crate) fn passed_elsewhere(&mut self, now: u64, packets: u64, bytes: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.take(now, bytes.saturating_mul(8));
        }
        for promise in [&mut self.promise, &mut self.taken].into_iter().flatten() {
            promise.take_rest(now, packets, bytes);
        }
    }

    /// When the bucket is full again if nothing passes; `None` where nothing ever does.
    pub(crate) fn full_at(&self) -> Option<u64> {
        self.bucket.as_ref().map(Bucket::full_at)
    }

    /// Claim of a packet of this many bytes if it is taken from its sender, which has kept it ready since `since`.
    pub(crate) fn may_take(&self, now: u64, since: u64, bytes: u32) -> Claim {
        let taken = self.taken.as_ref().filter(|taken| taken.is_ready(now, bytes));
        taken.map_or(Claim::BEYOND, |taken| taken.claim(now, since))
    }

    /// From when on a packet of this many bytes that is taken from its sender is promised, if none is taken before;
    /// `None` never.
    pub(crate) fn promised_at(&self, bytes: u32) -> Option<u64> {
        self.taken.as_ref().map(|taken| taken.ready_at(bytes))
    }

    /// A packet was taken from its sender, which had kept it ready since `since`, whatever becomes of it; returns whether it
    /// was promised.
    pub(crate) fn note_taken(&mut self, now: u64, since: u64, bytes: u32) -> bool {
        let taken = self.taken.as_mut().filter(|taken| taken.is_ready(now, bytes));
        let is_promised = taken.is_some();
        if let Some(taken) = taken {
            taken.take(since, bytes);
        }
        is_promised
    }

    /// Puts a packet into the queue; says behind which one.
    pub(crate) fn push(&mut self, packet: u32, bytes: u32) -> Option<u32> {
        self.bytes += u64::from(bytes);
        self.packets += 1;
        let before = std::mem::replace(&mut self.tail, packet);
        if self.head == NIL {
            self.head = packet;
            return None;
        }
        Some(before)
    }

    /// The first that waits.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    /// Takes the first out of the queue, `next` being behind it; with its tokens.
    pub(crate) fn pop(&mut self, now: u64, bytes: u32, next: u32) {
        self.drop_first(bytes, next);
        if let Some(bucket) = &mut self.bucket {
            bucket.take(now, u64::from(bytes) * 8);
        }
    }

    /// Takes the first out of the queue without tokens.
    pub(crate) fn drop_first(&mut self, bytes: u32, next: u32) {
        self.bytes -= u64::from(bytes);
        self.packets -= 1;
        self.head = next;
    }

    /// When a packet of `bytes` at the head may pass; `None` never.
    pub(crate) fn ready_at(&self, bytes: u32) -> Option<u64> {
        self.bucket.as_ref().map(|bucket| bucket.ready_at(u64::from(bytes) * 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock::new(250_000_000);

    /// A bucket for one packet, and nothing is promised.
    const ROW: RateLimiterRow = RateLimiterRow {
        rate_kbps: 1_000,
        burst_bytes: 1_500,
        promised_kbps: 0,
        packet_bytes: 0,
        weight: 1,
    };

    const ROOM: QueueRoom = QueueRoom { bytes: 3_000, packets: 2 };

    fn limiter(rate_kbps: u32) -> Limiter {
        let mut limiter = Limiter::default();
        limiter.set(0, Some(RateLimiterRow { rate_kbps, ..ROW }), CLOCK);
        limiter
    }

    #[test]
    fn packets_over_the_rate_wait_and_then_drop() {
        let mut limiter = limiter(1_000_000);
        assert_eq!(limiter.arrive(0, 1_500, ROOM), Verdict::Pass);
        assert_eq!(limiter.arrive(0, 1_500, ROOM), Verdict::Wait(Some(3_000)));
        assert_eq!(limiter.push(7, 1_500), None);
        assert_eq!(limiter.arrive(0, 1_500, ROOM), Verdict::Wait(None));
        assert_eq!(limiter.push(8, 1_500), Some(7));
        assert_eq!(limiter.arrive(0, 64, ROOM), Verdict::Drop);
        limiter.pop(3_000, 1_500, 8);
        assert_eq!((limiter.first(), limiter.ready_at(1_500)), (Some(8), Some(6_000)));
        limiter.pop(6_000, 1_500, NIL);
        assert_eq!(limiter.first(), None);
    }

    #[test]
    fn packets_beyond_the_promise_are_marked() {
        let mut limiter = Limiter::default();
        assert_eq!(limiter.claim(0, 0, 64).due(), None, "nothing was promised");
        let row = RateLimiterRow { rate_kbps: 4_000_000, promised_kbps: 1_000_000, ..ROW };
        limiter.set(0, Some(row), CLOCK);
        let dues = [0; 4].map(|now| limiter.claim(now, now, 1_500).due());
        assert_eq!(dues, [Some(0), Some(3_000), Some(6_000), Some(9_000)], "four times the burst");
        assert_eq!(
            (limiter.claim(0, 0, 1_500).due(), limiter.claim(2_999, 2_999, 1_500).due()),
            (None, None)
        );
        assert_eq!(
            (limiter.claim(3_000, 3_000, 1_500).due(), limiter.claim(3_000, 3_000, 1_500).due()),
            (Some(12_000), None)
        );
    }

    #[test]
    fn packets_are_promised_too_where_they_are_counted() {
        let promised = |packet_bytes| {
            let mut limiter = Limiter::default();
            let row = RateLimiterRow { promised_kbps: 1_000_000, packet_bytes, ..ROW };
            limiter.set(0, Some(row), CLOCK);
            limiter
        };
        let within = |limiter: &mut Limiter, now, bytes| {
            (0..100).take_while(|_| limiter.claim(now, now, bytes).due().is_some()).count()
        };
        let mut counted = promised(500);
        assert_eq!(within(&mut counted, 0, 60), 12, "6,000 bytes in packets of 500");
        // 500 bytes take 1,000 cycles at 1 Gbit/s, and a thirty-second less.
        assert_eq!(
            (counted.may_take(969, 969, 60).due(), counted.claim(969, 969, 60).due()),
            (Some(969), None)
        );
        assert_eq!(
            (counted.claim(970, 970, 60).due(), counted.claim(970, 970, 60).due()),
            (Some(1_440), None)
        );
        // Bits are as short for large packets.
        assert_eq!(within(&mut promised(500), 0, 1_500), 4);
        assert_eq!(within(&mut promised(0), 0, 60), 100, "nobody counts");
        let mut taken = promised(500);
        assert!((0..12).all(|_| taken.note_taken(0, 0, 60)) && !taken.note_taken(0, 0, 60));
        assert_eq!((taken.may_take(0, 0, 60).due(), taken.claim(0, 0, 60).due()), (None, Some(0)));
    }

    #[test]
    fn what_filled_up_while_the_card_kept_a_sender_waiting_is_not_lost() {
        let mut limiter = Limiter::default();
        limiter.set(0, Some(RateLimiterRow { promised_kbps: 1_000_000, ..ROW }), CLOCK);
        // A packet each 3,000 cycles, which is the promise; the first ones are taken late.
        for (now, since, due) in
            [(5_000, 0, 0), (5_030, 0, 3_000), (6_010, 6_000, 6_000), (9_000, 9_000, 9_000)]
        {
            assert_eq!(limiter.may_take(now, since, 1_500).due(), Some(due));
            assert!(limiter.note_taken(now, since, 1_500));
            assert_eq!(limiter.claim(now, since, 1_500).due(), Some(due));
        }
    }

    #[test]
    fn terms_that_change_keep_what_was_taken() {
        let row = RateLimiterRow { promised_kbps: 1_000_000, ..ROW };
        let mut limiter = Limiter::default();
        limiter.set(0, Some(row), CLOCK);
        assert_eq!(
            [0; 5].map(|now| limiter.claim(now, now, 1_500).due().is_some()),
            [true, true, true, true, false]
        );
        limiter.set(0, Some(RateLimiterRow { packet_bytes: 500, ..row }), CLOCK);
        assert_eq!(limiter.claim(0, 0, 1_500).due(), None, "its bits are gone");
        assert_eq!(limiter.claim(3_000, 3_000, 1_500).due(), Some(12_000));
        limiter.set(3_000, Some(row), CLOCK);
        assert_eq!(limiter.claim(3_000, 3_000, 1_500).due(), None);
    }

    #[test]
    fn no_row_and_no_rate_let_nothing_pass() {
        let mut limiter = limiter(0);
        assert_eq!(limiter.arrive(0, 64, ROOM), Verdict::Drop);
        limiter.set(0, None, CLOCK);
        assert_eq!(limiter.arrive(0, 64, ROOM), Verdict::Drop);
        assert_eq!(limiter.ready_at(64), None);
    }

    #[test]
    fn a_new_rate_counts_for_what_waits() {
        let mut limiter = limiter(1_000_000);
        limiter.arrive(0, 1_500, ROOM);
        limiter.push(7, 1_500);
        let before = limiter.generation;
        limiter.set(0, Some(ROW), CLOCK);
        assert_ne!(limiter.generation, before);
        assert_eq!(
            limiter.ready_at(1_500),
            Some(3_000_000),
            "what is missing comes at the new rate"
        );
        let fast = RateLimiterRow { rate_kbps: 2_000_000, ..ROW };
        limiter.set(1_000_000, Some(fast), CLOCK);
        assert_eq!(limiter.ready_at(1_500), Some(1_001_000), "two thirds of a packet at 2 Gbit/s");
    }
}
