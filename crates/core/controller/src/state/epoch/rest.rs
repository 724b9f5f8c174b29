//! A card whose DAGs have no traffic is sampled half as often as others, at least once an epoch, so that the first
//! packets are seen soon. Its DAGs are looked at once in ten epochs: a step with the same loads comes to the same rates.
//!
//! After a second without traffic it is sampled once in five epochs, and its DAGs are looked at once in fifty: a daemon
//! that nobody uses should cost its host next to nothing. All DAGs may send what they were promised meanwhile. Only what
//! goes beyond that comes up to [`RESTING_MAX`] later: rates, scale-out, and what is shown.

use std::time::Duration;

/// In how many epochs the DAGs of a card at rest are looked at once.
const EPOCHS: u32 = 10;

/// Time without movement after which a card counts as at rest.
const RESTING_AFTER: Duration = Duration::from_secs(1);

/// In how many epochs a card at rest is sampled once, and in how many its DAGs are looked at.
const RESTING_EPOCHS: u32 = 5;
const RESTING_LOOK_EPOCHS: u32 = 50;

/// The longest time between two samples of a card at rest; that, or an epoch.
const RESTING_MAX: Duration = Duration::from_millis(100);

/// Since when nothing moves on a card.
#[derive(Debug, Default)]
pub(crate) struct IdleTimer {
    /// Time since the DAGs were looked at, where none had a load and the rates follow from that; `None`
    /// where something moves.
    still: Option<Duration>,
    /// Time without movement, up to the last sample; looks do not end it.
    at_rest: Duration,
}

/// A sample, compared with the one before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Time since the one before.
    pub span: Duration,
    /// Whether anything has changed: a counter, or what is on the card.
    pub has_changed: bool,
    /// Length of the epoch that ends with this sample, if one does.
    pub epoch_ended: Option<Duration>,
}

/// The times for which the DAGs are to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MeasuredSpans {
    /// First a time in which no counter moved; zero where there was none.
    pub still: Duration,
    /// Then the time up to this sample.
    pub span: Duration,
}

impl IdleTimer {
    /// The DAGs were looked at; `is_still`: none has a load, and the rates follow from that.
    pub fn rates_set(&mut self, is_still: bool) {
        self.still = is_still.then_some(Duration::ZERO);
        if !is_still {
            self.at_rest = Duration::ZERO;
        }
    }

    /// Longest wait for the next sample, where those of a card with traffic come once a `shortest`.
    pub fn sample_interval(&self, shortest: Duration, epoch: Duration) -> Duration {
        let epoch = epoch.max(shortest);
        match self.still {
            None => shortest,
            Some(_) if self.at_rest < RESTING_AFTER => shortest.saturating_mul(2).min(epoch),
            Some(_) => epoch.saturating_mul(RESTING_EPOCHS).min(RESTING_MAX).max(epoch),
        }
    }

    /// A sample has come; how the DAGs are to be looked at, if they are.
    pub fn sampled(&mut self, sample: Sample) -> Option<MeasuredSpans> {
        let Sample { span, has_changed, epoch_ended } = sample;
        let Some(still) = self.still.take() else {
            return Some(MeasuredSpans { still: Duration::ZERO, span });
        };
        if has_changed {
            self.at_rest = Duration::ZERO;
            return Some(MeasuredSpans { still, span });
        }
        self.at_rest = self.at_rest.saturating_add(span);
        let still = still.saturating_add(span);
        let is_resting = self.at_rest > RESTING_AFTER;
        let epochs = if is_resting { RESTING_LOOK_EPOCHS } else { EPOCHS };
        if epoch_ended.is_some_and(|epoch| still >= epoch.saturating_mul(epochs)) {
            return Some(MeasuredSpans { still: Duration::ZERO, span: still });
        }
        self.still = Some(still);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SAMPLE: Sample = Sample { span: MS, has_changed: false, epoch_ended: Some(MS) };

    #[test]
    fn samples_come_less_often_the_longer_nothing_moves() {
        let mut rest = IdleTimer::default();
        let interval = |rest: &IdleTimer| rest.sample_interval(10 * MS, 20 * MS);
        assert_eq!(interval(&rest), 10 * MS);
        rest.rates_set(true);
        assert_eq!(interval(&rest), 20 * MS);
        let sample = Sample { span: 20 * MS, has_changed: false, epoch_ended: Some(20 * MS) };
        for _ in 0..49 {
            if rest.sampled(sample).is_some() {
                rest.rates_set(true);
            }
        }
        assert_eq!(interval(&rest), 20 * MS, "for less than a second");
        rest.sampled(sample);
        rest.rates_set(true);
        assert_eq!(interval(&rest), 100 * MS);
        assert_eq!(rest.sample_interval(10 * MS, 500 * MS), 500 * MS, "an epoch at least");
        assert_eq!(rest.sample_interval(MS, 2 * MS), 10 * MS);
        assert!(rest.sampled(Sample { has_changed: true, ..sample }).is_some());
        assert_eq!(interval(&rest), 10 * MS, "something moves");
        rest.rates_set(true);
        assert_eq!(interval(&rest), 20 * MS);
    }

    fn whole(span: Duration) -> Option<MeasuredSpans> {
        Some(MeasuredSpans { still: Duration::ZERO, span })
    }

    #[test]
    fn each_sample_counts_while_something_moves() {
        let mut rest = IdleTimer::default();
        assert_eq!(rest.sampled(SAMPLE), whole(MS), "nothing is known yet");
        rest.rates_set(false);
        assert_eq!(rest.sampled(SAMPLE), whole(MS));
    }

    #[test]
    fn one_epoch_of_ten_is_looked_at_while_nothing_moves() {
        let mut rest = IdleTimer::default();
        rest.rates_set(true);
        for _ in 0..3 {
            for _ in 1..10 {
                assert_eq!(rest.sampled(SAMPLE), None);
            }
            assert_eq!(rest.sampled(SAMPLE), whole(10 * MS), "the look is of all the time");
            rest.rates_set(true);
        }
    }

    #[test]
    fn a_card_at_rest_is_looked_at_once_in_fifty_epochs() {
        let mut rest = IdleTimer::default();
        let epoch = 20 * MS;
        let sample =
            |ms: u32| Sample { span: ms * MS, has_changed: false, epoch_ended: Some(epoch) };
        rest.rates_set(true);
        let mut looks = Vec::new();
        for at in 1..=30 {
            if let Some(look) = rest.sampled(sample(100)) {
                looks.push((at, look.span));
                rest.rates_set(true);
            }
        }
        assert_eq!(looks[..3], [(2, 200 * MS), (4, 200 * MS), (6, 200 * MS)]);
        assert_eq!(looks[looks.len() - 2..], [(20, 1_000 * MS), (30, 1_000 * MS)]);
    }

    #[test]
    fn the_look_waits_for_the_end_of_an_epoch() {
        let mut rest = IdleTimer::default();
        rest.rates_set(true);
        let inside = Sample { epoch_ended: None, ..SAMPLE };
        assert!((0..15).all(|_| rest.sampled(inside).is_none()));
        assert_eq!(rest.sampled(SAMPLE), whole(16 * MS));
    }

    #[test]
    fn a_change_is_looked_at_when_it_is_seen_and_loses_no_time_before_it() {
        let mut rest = IdleTimer::default();
        rest.rates_set(true);
        assert!((0..4).all(|_| rest.sampled(SAMPLE).is_none()));
        let changed = Sample { has_changed: true, epoch_ended: None, ..SAMPLE };
        assert_eq!(rest.sampled(changed), Some(MeasuredSpans { still: 4 * MS, span: MS }));
        assert_eq!(rest.sampled(changed), whole(MS), "it moves until a look says that it does not");
    }
}
