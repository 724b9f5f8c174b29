//! The traffic of one DAG in the last second and the last ten, for every view: what is shown, judged and alarmed of is
//! read here, so two screens never say two things.
//!
//! Sums are kept as they were at some moments (marks), a second or more apart, in the card's clock. A window begins at the
//! last mark that is old enough, so it is a second (or ten) long, and less than a second more; only a DAG that was not
//! measured for that long has a shorter one. A DAG without traffic has no marks and takes no memory for them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::TrafficWindow;

/// Distance of two marks, and least length of the short window.
const SECOND: Duration = Duration::from_secs(1);
/// Least length of the long window.
const TEN_SECONDS: Duration = Duration::from_secs(10);
/// Marks of ten seconds, the one before them, and the one that is being reached.
const MARKS_MAX: usize = 12;

/// The sums of a DAG since its counting began, and what they were at some moments of the last ten seconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrafficWindows {
    sums: TrafficWindow,
    /// The oldest first; none while there is no traffic.
    marks: Option<VecDeque<TrafficWindow>>,
}

impl TrafficWindows {
    /// Sums since counting began.
    pub const fn sums(&self) -> &TrafficWindow {
        &self.sums
    }

    /// Whether no window has anything.
    pub const fn is_silent(&self) -> bool {
        self.marks.is_none()
    }

    /// Adds what came in a `span` of the card's clock: `sums` has the new sums, but for their span.
    pub fn pass(&mut self, sums: TrafficWindow, span: Duration) {
        let before = self.sums;
        self.sums = TrafficWindow { span: before.span.saturating_add(span), ..sums };
        let now = self.sums.span;
        let Some(marks) = &mut self.marks else {
            if !self.sums.has_moved(&before) {
                return;
            }
            // Nothing came since counting began, or for longer than any window.
            let mut marks = VecDeque::with_capacity(MARKS_MAX);
            for seconds in (1..=10).rev() {
                let span = before.span.saturating_sub(seconds * SECOND);
                if marks.back().is_none_or(|last: &TrafficWindow| last.span < span) {
                    marks.push_back(TrafficWindow { span, ..before });
                }
            }
            self.marks = Some(marks);
            return;
        };
        if marks.back().is_none_or(|last| before.span.saturating_sub(last.span) >= SECOND) {
            marks.push_back(before);
        }
        while marks.get(1).is_some_and(|second| second.span + TEN_SECONDS <= now) {
            marks.pop_front();
        }
        let is_over = |oldest: &TrafficWindow| {
            oldest.span + TEN_SECONDS <= now && !self.sums.has_moved(oldest)
        };
        if marks.front().is_some_and(is_over) {
            self.marks = None;
        }
    }

    /// Traffic of the last second.
    pub fn second(&self) -> TrafficWindow {
        self.last(SECOND)
    }

    /// Traffic of the last ten seconds.
    pub fn ten_seconds(&self) -> TrafficWindow {
        self.last(TEN_SECONDS)
    }

    fn last(&self, length: Duration) -> TrafficWindow {
        let Some(marks) = &self.marks else {
            let span = self.sums.span.min(length);
            return TrafficWindow {
                span,
                counts_drops: self.sums.counts_drops,
                ..TrafficWindow::default()
            };
        };
        let is_old = |mark: &&TrafficWindow| mark.span + length <= self.sums.span;
        let begin = marks.iter().rev().find(is_old).or_else(|| marks.front());
        begin.map_or(self.sums, |begin| self.sums.since(begin))
    }

    /// The card's counters begin again: nothing of before is in a window any more. The sums stay.
    pub fn restart(&mut self) {
        self.marks = None;
        self.sums.span = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sums at each moment, and a window as its definition says: everything behind the last moment that is old enough.
    fn slow(history: &[TrafficWindow], length: Duration) -> TrafficWindow {
        let last = history.last().copied().unwrap_or_default();
        let old = |sums: &&TrafficWindow| sums.span + length <= last.span;
        let begin = history.iter().rev().find(old).copied().unwrap_or_default();
        last.since(&begin)
    }

    proptest! {
        #[test]
        fn a_window_is_as_long_as_it_says_and_has_all_that_came_in_it(
            steps in prop::collection::vec((1_u64..3_000, prop_oneof![Just(0_u64), 1_u64..2_000]), 1..120),
        ) {
            let mut windows = TrafficWindows::default();
            let mut history = vec![TrafficWindow::default()];
            for (millis, packets) in steps {
                let before = *history.last().expect("the first");
                let sums = TrafficWindow {
                    packets_in: before.packets_in + packets,
                    packets_out: before.packets_out + packets / 2,
                    bytes_in: before.bytes_in + 64 * packets,
                    bytes_out: before.bytes_out + 32 * packets,
                    ..before
                };
                let span = Duration::from_millis(millis);
                windows.pass(sums, span);
                history.push(TrafficWindow { span: before.span + span, ..sums });
                let total = windows.sums().span;
                for (length, window) in
                    [(SECOND, windows.second()), (TEN_SECONDS, windows.ten_seconds())]
                {
                    prop_assert!(window.span >= length.min(total), "{window:?} of {total:?}");
                    // The same as if every sample were kept, from the mark on that it begins at.
                    prop_assert_eq!(window.packets_in, slow(&history, window.span).packets_in);
                    prop_assert_eq!(window.bytes_out, slow(&history, window.span).bytes_out);
                    // A second longer than asked, and the sample that its beginning fell into.
                    let longest = length + SECOND + Duration::from_millis(2 * 3_000);
                    prop_assert!(window.span <= longest, "{window:?}");
                }
                prop_assert!(windows.marks.iter().all(|marks| marks.len() <= MARKS_MAX));
            }
            windows.pass(*windows.sums(), TEN_SECONDS);
            windows.pass(*windows.sums(), TEN_SECONDS);
            prop_assert!(windows.marks.is_none(), "a DAG without traffic takes no memory");
            prop_assert_eq!(windows.ten_seconds().packets_in, 0);
        }
    }

    #[test]
    fn traffic_after_a_long_rest_is_not_a_rate_of_a_moment() {
        let mut windows = TrafficWindows::default();
        for _ in 0..30 {
            windows.pass(TrafficWindow::default(), SECOND);
        }
        let burst = TrafficWindow { bytes_in: 1_250, packets_in: 1, ..TrafficWindow::default() };
        windows.pass(burst, Duration::from_millis(10));
        let second = windows.second();
        assert!(second.span >= SECOND && second.offered().get() <= 10_000, "{second:?}");
    }
}
