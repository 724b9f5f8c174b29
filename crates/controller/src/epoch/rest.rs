//! A card whose DAGs have no traffic is sampled half as often as others, at least once an epoch, so that the first
//! packets are seen soon. Its DAGs are looked at once in ten epochs: a step with the same loads comes to the same rates.

use std::time::Duration;

/// In how many epochs the DAGs of a card at rest are looked at once.
const EPOCHS: u32 = 10;

/// Since when nothing moves on a card.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// How long ago the DAGs were looked at, where none had a load and the rates follow from that; `None`
    /// where something moves.
    still: Option<Duration>,
}

/// What a sample says, compared with the one before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// How long the one before is ago.
    pub span: Duration,
    /// Whether anything has changed: a counter, or what is on the card.
    pub has_changed: bool,
    /// How long an epoch is, where one ends with this sample.
    pub epoch_ended: Option<Duration>,
}

/// The times for which the DAGs are to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// First a time in which no counter moved; zero where there was none.
    pub still: Duration,
    /// Then the time up to this sample.
    pub span: Duration,
}

impl Rest {
    /// The DAGs were looked at; `is_still`: none has a load, and the rates follow from that.
    pub fn looked(&mut self, is_still: bool) {
        self.still = is_still.then_some(Duration::ZERO);
    }

    /// Whether nothing moves.
    pub const fn is_still(&self) -> bool {
        self.still.is_some()
    }

    /// A sample has come; how the DAGs are to be looked at, if they are.
    pub fn sampled(&mut self, sample: Sample) -> Option<Look> {
        let Sample { span, has_changed, epoch_ended } = sample;
        let Some(still) = self.still.take() else {
            return Some(Look { still: Duration::ZERO, span });
        };
        if has_changed {
            return Some(Look { still, span });
        }
        let still = still.saturating_add(span);
        if epoch_ended.is_some_and(|epoch| still >= epoch * EPOCHS) {
            return Some(Look { still: Duration::ZERO, span: still });
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

    fn whole(span: Duration) -> Option<Look> {
        Some(Look { still: Duration::ZERO, span })
    }

    #[test]
    fn each_sample_counts_while_something_moves() {
        let mut rest = Rest::default();
        assert_eq!(rest.sampled(SAMPLE), whole(MS), "nothing is known yet");
        rest.looked(false);
        assert_eq!(rest.sampled(SAMPLE), whole(MS));
    }

    #[test]
    fn one_epoch_of_ten_is_looked_at_while_nothing_moves() {
        let mut rest = Rest::default();
        rest.looked(true);
        for _ in 0..3 {
            for _ in 1..10 {
                assert_eq!(rest.sampled(SAMPLE), None);
            }
            assert_eq!(rest.sampled(SAMPLE), whole(10 * MS), "the look is of all the time");
            rest.looked(true);
        }
    }

    #[test]
    fn the_look_waits_for_the_end_of_an_epoch() {
        let mut rest = Rest::default();
        rest.looked(true);
        let inside = Sample { epoch_ended: None, ..SAMPLE };
        assert!((0..15).all(|_| rest.sampled(inside).is_none()));
        assert_eq!(rest.sampled(SAMPLE), whole(16 * MS));
    }

    #[test]
    fn a_change_is_looked_at_when_it_is_seen_and_loses_no_time_before_it() {
        let mut rest = Rest::default();
        rest.looked(true);
        assert!((0..4).all(|_| rest.sampled(SAMPLE).is_none()));
        let changed = Sample { has_changed: true, epoch_ended: None, ..SAMPLE };
        assert_eq!(rest.sampled(changed), Some(Look { still: 4 * MS, span: MS }));
        assert_eq!(rest.sampled(changed), whole(MS), "it moves until a look says that it does not");
    }
}
