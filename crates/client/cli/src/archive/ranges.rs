//! Ranges of time that files of an archive are of.

use std::collections::BTreeSet;
use std::time::UNIX_EPOCH;

use snic_usage::{IntervalLevel, month, utc};

/// Intervals of one length in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntervalSet {
    pub level: IntervalLevel,
}

/// Range of time of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileRange {
    /// First second, since 1970.
    pub from: u64,
    /// Second after the last.
    pub to: u64,
}

/// Intervals of one length that the daemon has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available {
    /// Second from which on it has all of them.
    pub from: u64,
    /// Second up to which they are closed.
    pub closed: u64,
}

impl IntervalSet {
    /// Name of its folder.
    pub const fn folder(self) -> &'static str {
        match self.level {
            IntervalLevel::Fine => "ten-seconds",
            IntervalLevel::Minute => "minutes",
            IntervalLevel::Hour => "hours",
        }
    }

    /// The range of the file that has a second: an hour, a day or a month, in UTC.
    pub fn range_of(self, second: u64) -> FileRange {
        let of = |length: u64| FileRange {
            from: second / length * length,
            to: second / length * length + length,
        };
        match self.level {
            IntervalLevel::Fine => of(3_600),
            IntervalLevel::Minute => of(86_400),
            IntervalLevel::Hour => {
                let (from, to) = month(second);
                FileRange { from, to }
            }
        }
    }

    /// Name of the file of a range, without its ending.
    pub fn name(self, range: FileRange) -> String {
        let length = match self.level {
            IntervalLevel::Fine => "2026-11-30T14".len(),
            IntervalLevel::Minute => "2026-11-30".len(),
            IntervalLevel::Hour => "2026-11".len(),
        };
        utc(range.from).chars().take(length).collect()
    }

    /// The range of the file with this name; `None` if no file of this set has it.
    pub fn parse(self, name: &str) -> Option<FileRange> {
        let rest = match self.level {
            IntervalLevel::Fine => ":00:00Z",
            IntervalLevel::Minute => "T00:00:00Z",
            IntervalLevel::Hour => "-01T00:00:00Z",
        };
        let begin = humantime::parse_rfc3339(&format!("{name}{rest}")).ok()?;
        let range = self.range_of(begin.duration_since(UNIX_EPOCH).ok()?.as_secs());
        (self.name(range) == name).then_some(range)
    }

    /// The first whole range of which the daemon has all intervals.
    pub fn first(self, available: Available) -> FileRange {
        let range = self.range_of(available.from);
        if range.from == available.from { range } else { self.range_of(range.to) }
    }

    /// The first range that is young enough to be kept.
    pub fn oldest(self, available: Available, age: u64) -> FileRange {
        self.range_of(available.closed.saturating_sub(age))
    }

    /// Ranges that are over and closed, young enough, and in the archive neither as a file nor as missing; the first one first.
    pub fn due(
        self,
        begun: FileRange,
        known: &BTreeSet<FileRange>,
        available: Available,
        age: u64,
    ) -> Vec<FileRange> {
        let mut due = Vec::new();
        let mut range = begun.max(self.oldest(available, age));
        while range.to <= available.closed {
            if !known.contains(&range) {
                due.push(range);
            }
            range = self.range_of(range.to);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-01T00:00:00Z
    const NOVEMBER: u64 = 1_793_491_200;
    const HOUR: u64 = 3_600;
    const DAY: u64 = 24 * HOUR;

    const TEN_SECONDS: IntervalSet = IntervalSet { level: IntervalLevel::Fine };
    const MINUTES: IntervalSet = IntervalSet { level: IntervalLevel::Minute };
    const HOURS: IntervalSet = IntervalSet { level: IntervalLevel::Hour };

    #[test]
    fn files_have_names_by_which_they_are_found_again() {
        for (set, second, name) in [
            (TEN_SECONDS, NOVEMBER + 14 * HOUR + 7, "2026-11-01T14"),
            (MINUTES, NOVEMBER + DAY - 1, "2026-11-01"),
            (HOURS, NOVEMBER + 29 * DAY, "2026-11"),
        ] {
            let range = set.range_of(second);
            assert!((range.from..range.to).contains(&second), "{name}");
            assert_eq!((set.name(range), set.parse(name)), (name.to_owned(), Some(range)));
        }
        assert_eq!(HOURS.range_of(NOVEMBER), FileRange { from: NOVEMBER, to: NOVEMBER + 30 * DAY });
        for wrong in ["2026-11", "2026-11-01T14:00", "2026-13-01", "2026-11-1", ".begun", ""] {
            assert_eq!(MINUTES.parse(wrong), None, "{wrong}");
        }
        assert_eq!(TEN_SECONDS.parse("2026-11-01"), None);
    }

    #[test]
    fn a_range_is_due_once_it_is_over_and_closed() {
        let begun = TEN_SECONDS.range_of(NOVEMBER);
        let due = |closed: u64, known: &[FileRange], age| {
            let available = Available { from: NOVEMBER, closed: NOVEMBER + closed };
            let known = known.iter().copied().collect();
            let due = TEN_SECONDS.due(begun, &known, available, age);
            due.into_iter().map(|range| (range.from - NOVEMBER) / HOUR).collect::<Vec<_>>()
        };
        assert_eq!(due(HOUR - 1, &[], DAY), Vec::<u64>::new());
        assert_eq!(due(HOUR, &[], DAY), [0]);
        assert_eq!(due(3 * HOUR + 59, &[begun], DAY), [1, 2]);
        assert_eq!(due(3 * HOUR, &[TEN_SECONDS.range_of(NOVEMBER + HOUR)], DAY), [0, 2]);
        // What is too old to be kept is not written to be removed at once.
        assert_eq!(due(10 * HOUR, &[], 2 * HOUR), [8, 9]);
    }

    #[test]
    fn an_archive_begins_with_the_first_range_that_is_there_as_a_whole() {
        let first = |from: u64| TEN_SECONDS.first(Available { from, closed: from + DAY }).from;
        assert_eq!(first(NOVEMBER), NOVEMBER);
        assert_eq!(first(NOVEMBER + 60), NOVEMBER + HOUR);
        let months = HOURS.first(Available { from: NOVEMBER + DAY, closed: NOVEMBER + 2 * DAY });
        assert_eq!(HOURS.name(months), "2026-12");
    }
}
