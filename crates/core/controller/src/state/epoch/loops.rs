//! The loops of all cards, and the time at which their counters are read together.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::{CardId, Timestamp};

use super::card_loop::CardLoop;

/// The loops of all cards.
#[derive(Debug, Default)]
pub(crate) struct CardLoops {
    of: BTreeMap<CardId, CardLoop>,
    /// When counters were last asked for; zero before the first time.
    sampled: Timestamp,
    /// The interval that was in force then.
    interval: Duration,
}

impl CardLoops {
    /// A card has been added.
    pub fn add(&mut self, id: CardId) {
        self.of.insert(id, CardLoop::default());
    }

    /// A card has been taken away.
    pub fn remove(&mut self, id: &CardId) {
        self.of.remove(id);
    }

    /// The loop of a card that a caller named, if there is one.
    pub fn get(&self, id: &CardId) -> Option<&CardLoop> {
        self.of.get(id)
    }

    /// The loop of a card that is known to be there.
    pub fn known(&self, id: &CardId) -> &CardLoop {
        self.of.get(id).expect("each card has a loop")
    }

    /// The loop of a card that is known to be there.
    pub fn known_mut(&mut self, id: &CardId) -> &mut CardLoop {
        self.of.get_mut(id).expect("each card has a loop")
    }

    /// When counters are to be read next, if they are read once an `interval` and no card is to be looked
    /// at earlier.
    pub fn next_sample(&self, interval: Duration) -> Timestamp {
        let looks = self.of.values().filter_map(CardLoop::next_probe);
        looks.fold(self.sampled + interval, Timestamp::min)
    }

    /// Whether the counters are to be read now; `slack` is how much earlier a sample may be.
    pub fn is_sample_due(&self, now: Timestamp, interval: Duration, slack: Duration) -> bool {
        now + slack >= self.sampled + interval
    }

    /// Samples begin, or go on after they were far apart: none was missed.
    pub const fn begin_samples(&mut self, now: Timestamp) {
        self.sampled = now;
    }

    /// The counters are asked for; gives how many samples were missed since the last time.
    pub fn sample(&mut self, now: Timestamp, interval: Duration) -> u64 {
        let before = std::mem::replace(&mut self.sampled, now);
        let waited_for = std::mem::replace(&mut self.interval, interval).max(interval);
        if before == Timestamp::ZERO {
            return 0;
        }
        let late = now.since(before).as_nanos() / waited_for.as_nanos().max(1);
        u64::try_from(late.saturating_sub(1)).unwrap_or(u64::MAX)
    }

    /// All of them, by card.
    pub fn iter(&self) -> impl Iterator<Item = (&CardId, &CardLoop)> {
        self.of.iter()
    }

    /// Has all loops take over a change that all of them compute with.
    pub fn all_changed(&mut self) {
        self.of.values_mut().for_each(CardLoop::topology_changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn samples_that_were_missed_are_counted_from_the_first_on() {
        let mut loops = CardLoops::default();
        assert_eq!(loops.sample(at(700), 10 * MS), 0, "nothing was asked for before");
        assert_eq!(loops.sample(at(710), 10 * MS), 0);
        assert_eq!(loops.sample(at(729), 10 * MS), 0, "late, but not by a whole interval");
        assert_eq!(loops.sample(at(769), 10 * MS), 3);
        loops.begin_samples(at(9_000));
        assert_eq!(loops.sample(at(9_010), 10 * MS), 0, "they were far apart on purpose");
        assert_eq!(loops.sample(at(9_110), 100 * MS), 0, "the cards came to rest");
        assert_eq!(loops.sample(at(9_210), 10 * MS), 0, "and are at rest no more");
        assert_eq!(loops.sample(at(9_240), 10 * MS), 2);
        loops.sample(at(9_241), Duration::ZERO);
        assert_eq!(loops.sample(at(9_242), Duration::ZERO), 999_999, "no interval is a nanosecond");
    }

    #[test]
    fn the_next_sample_is_an_interval_away_or_when_a_card_is_looked_at() {
        let mut loops = CardLoops::default();
        let ids = ["a", "b"].map(|id| CardId::new(id).expect("a label"));
        ids.iter().for_each(|id| loops.add(id.clone()));
        loops.begin_samples(at(100));
        assert_eq!(loops.next_sample(10 * MS), at(110));
        loops.known_mut(&ids[1]).set_next_probe(Some(at(104)));
        loops.known_mut(&ids[0]).set_next_probe(Some(at(200)));
        assert_eq!(loops.next_sample(10 * MS), at(104));
        let is_due = |ms| loops.is_sample_due(at(ms), 10 * MS, 2 * MS);
        assert_eq!([107, 108, 110].map(is_due), [false, true, true]);
    }
}
