//! Requests for a card's counters: one sample is under way at most, and one look between two samples.

use std::time::Duration;

use snic_domain::Timestamp;
use snic_tables::{CardCommand, Ticket};

use crate::state::meter::{LogDecision, LogThrottle};

/// Samples that a card leaves unanswered until an event says so: a tenth of a second at the default period. Fewer
/// happen wherever a machine is busy for a moment, and only count.
const LATE_TOLD: u64 = 10;

/// Command to a card, and events to report with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NextSample {
    /// Nothing while the last sample is not answered.
    pub command: Option<CardCommand>,
    /// Samples were skipped.
    pub overrun: Option<String>,
    /// Samples that were not asked for, because the card or the daemon was late.
    pub skipped: u64,
}

/// Meaning of a card's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleAnswer {
    /// Nothing was asked, or it is the second at one moment.
    Stale,
    /// There is nothing to compare it with.
    First,
    /// The last one was so long ago.
    After(Duration),
    /// It was asked for between two samples, and the last one was so long ago.
    Between(Duration),
}

/// Requests to one card that are not answered yet, and the time of its last answer.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    /// The sample that is not answered yet.
    pending: Option<Ticket>,
    /// The look between two samples that is not answered yet, for loads near their capacity.
    look: Option<Ticket>,
    /// Time of the next look.
    next_look: Option<Timestamp>,
    /// Time of the last answer to a sample.
    last_answer: Option<Timestamp>,
    /// Samples in a row that were due in time while the card had not answered the one before.
    late: u64,
    overrun_log: LogThrottle,
}

impl Sampler {
    /// Asks the card for its counters, if it has answered the last time; `missed` samples were skipped
    /// because the daemon was busy.
    pub fn ask(&mut self, now: Timestamp, ticket: Ticket, missed: u64) -> NextSample {
        let unanswered = self.pending.is_some();
        // Before its first answer a card has no epoch that could be overrun: what it holds may just
        // have been read back, and one that never answers is lost by its deadline.
        let has_begun = self.last_answer.is_some();
        let skipped = if has_begun { missed + u64::from(unanswered) } else { 0 };
        // A daemon that was not scheduled cannot tell whether the card was late: that is counted, and no event.
        let is_late = has_begun && unanswered && missed == 0;
        self.late = if is_late { self.late + 1 } else { 0 };
        let is_logged = self.late >= LATE_TOLD && self.overrun_log.trouble(now) == LogDecision::Log;
        let overrun = is_logged.then(|| {
            format!("the card has not answered for {} samples, which were skipped", self.late)
        });
        let command = (!unanswered).then(|| {
            self.pending = Some(ticket);
            CardCommand::Sample { ticket }
        });
        NextSample { command, overrun, skipped }
    }

    /// Asks the card for its counters between two samples, if no answer is awaited; again at `next`.
    pub fn request_probe(&mut self, ticket: Ticket, next: Timestamp) -> Option<CardCommand> {
        self.next_look = Some(next);
        if self.pending.is_some() || self.look.is_some() {
            return None;
        }
        self.look = Some(ticket);
        Some(CardCommand::Sample { ticket })
    }

    /// When the counters are to be read between two samples, for loads near their capacity.
    pub const fn next_probe(&self) -> Option<Timestamp> {
        self.next_look
    }

    /// Has the counters read between two samples, or not.
    pub const fn set_next_probe(&mut self, at: Option<Timestamp>) {
        self.next_look = at;
    }

    /// Takes the answer with this ticket.
    pub fn answered(&mut self, now: Timestamp, ticket: Ticket) -> SampleAnswer {
        if self.look.take_if(|asked| *asked == ticket).is_some() {
            let span = self.last_answer.map(|sampled| now.since(sampled));
            return span.map_or(SampleAnswer::Stale, SampleAnswer::Between);
        }
        if self.pending.take_if(|asked| *asked == ticket).is_none() {
            return SampleAnswer::Stale;
        }
        match self.last_answer {
            // Two answers at one moment are one.
            Some(before) if now.since(before).is_zero() => SampleAnswer::Stale,
            before => {
                self.last_answer = Some(now);
                before.map_or(SampleAnswer::First, |before| SampleAnswer::After(now.since(before)))
            }
        }
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
    fn one_sample_is_under_way_and_what_is_skipped_is_counted() {
        let mut sampler = Sampler::default();
        let asked = sampler.ask(at(1), Ticket(1), 7);
        assert_eq!(asked.command, Some(CardCommand::Sample { ticket: Ticket(1) }));
        assert_eq!(asked.overrun, None, "before the first answer there is no epoch to overrun");
        assert_eq!(sampler.ask(at(2), Ticket(2), 0).command, None);
        assert_eq!(sampler.answered(at(3), Ticket(2)), SampleAnswer::Stale, "it was not asked");
        assert_eq!(sampler.answered(at(3), Ticket(1)), SampleAnswer::First);
        sampler.ask(at(4), Ticket(3), 0);
        let asked = sampler.ask(at(5), Ticket(4), 2);
        assert_eq!(asked, NextSample { command: None, overrun: None, skipped: 3 });
        assert_eq!(sampler.answered(at(7), Ticket(3)), SampleAnswer::After(4 * MS));
    }

    #[test]
    fn a_card_that_does_not_answer_is_told_of_and_a_daemon_that_did_not_run_is_not() {
        let mut sampler = Sampler::default();
        sampler.ask(at(1), Ticket(1), 0);
        sampler.answered(at(2), Ticket(1));
        sampler.ask(at(10), Ticket(2), 0);
        let mut told = |ms: u64, missed: u64| sampler.ask(at(ms), Ticket(ms), missed).overrun;
        for ms in 11..11 + 3 * LATE_TOLD {
            assert_eq!(told(ms, 20), None, "it was not scheduled: nobody knows what the card did");
        }
        for ms in 100..99 + LATE_TOLD {
            assert_eq!(told(ms, 0), None);
        }
        let text = told(99 + LATE_TOLD, 0).expect("the card is late");
        assert!(text.contains("not answered for 10 samples"), "{text}");
        assert_eq!(told(100 + LATE_TOLD, 0), None, "told once in a while");
    }

    #[test]
    fn two_answers_at_one_moment_are_one() {
        let mut sampler = Sampler::default();
        for (ticket, expected) in [(1, SampleAnswer::First), (2, SampleAnswer::Stale)] {
            sampler.ask(at(1), Ticket(ticket), 0);
            assert_eq!(sampler.answered(at(1), Ticket(ticket)), expected);
        }
    }

    #[test]
    fn a_look_is_between_two_samples_and_waits_for_answers() {
        let mut sampler = Sampler::default();
        sampler.ask(at(1), Ticket(1), 0);
        assert_eq!(sampler.request_probe(Ticket(2), at(2)), None, "an answer is awaited");
        sampler.answered(at(1), Ticket(1));
        assert!(sampler.request_probe(Ticket(3), at(3)).is_some());
        assert_eq!(sampler.request_probe(Ticket(4), at(4)), None, "one look at a time");
        assert_eq!(sampler.next_probe(), Some(at(4)));
        assert_eq!(sampler.answered(at(3), Ticket(3)), SampleAnswer::Between(2 * MS));
        sampler.ask(at(5), Ticket(5), 0);
        assert_eq!(
            sampler.answered(at(5), Ticket(5)),
            SampleAnswer::After(4 * MS),
            "as without it"
        );
    }
}
