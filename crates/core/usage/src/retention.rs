//! Ages up to which intervals are kept, and the pages that are left of each length.

use serde::{Deserialize, Serialize};

use crate::pages::{IntervalLevel, PageRange};

/// Ages up to which intervals are kept, in seconds. None is less than that of shorter intervals: what is read from them begins
/// with a whole interval of the longer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Intervals of ten seconds.
    pub fine: u64,
    /// Intervals of a minute.
    pub minute: u64,
    /// Intervals of an hour; older ones are gone.
    pub hour: u64,
}

impl Default for Retention {
    /// An hour, a day, and three months: the disk that each needs is in the pages of usage.
    fn default() -> Self {
        Self { fine: 3_600, minute: 86_400, hour: 92 * 86_400 }
    }
}

impl Retention {
    const fn of(&self, level: IntervalLevel) -> u64 {
        match level {
            IntervalLevel::Fine => self.fine,
            IntervalLevel::Minute => self.minute,
            IntervalLevel::Hour => self.hour,
        }
    }

    /// Beginning of the first page of this length that is young enough. Pages of a shorter length are kept from the beginning of an
    /// interval of the longer one on, so a range is read from each length without overlap.
    const fn kept_from(&self, level: IntervalLevel, second: u64) -> u64 {
        level.page_of(second.saturating_sub(self.of(level)))
    }

    /// The pages that are kept at a second where these ages were in force all the time before.
    pub fn kept(&self, second: u64) -> KeptPages {
        let from = IntervalLevel::ALL.map(|level| self.kept_from(level, second));
        KeptPages { from, removed: from }
    }
}

/// The pages that are left of each length. Where ages become longer, pages that were removed before do not come back, so these times
/// are stored, and only move on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPages {
    /// Beginning of the first page by length, the shortest first: readers find it and all later ones.
    from: [u64; 3],
    /// Beginning of the first page that may still be in the store, by length.
    removed: [u64; 3],
}

impl KeptPages {
    /// Beginning of the first page of this length that readers find, with all later ones.
    pub const fn from(&self, level: IntervalLevel) -> u64 {
        self.from[level as usize]
    }

    /// Beginning of the first page of this length that may still be in the store.
    pub(crate) const fn removed(&self, level: IntervalLevel) -> u64 {
        self.removed[level as usize]
    }

    /// Times of a store that has none of them: its pages were kept by the default ages.
    pub(crate) fn of_old_store(closed: u64, slack: u64) -> Self {
        let KeptPages { from, .. } = Retention::default().kept(closed);
        let KeptPages { removed, .. } = Retention::default().kept(closed.saturating_sub(slack));
        Self { from, removed }
    }

    /// Time has come to a second with these ages.
    pub(crate) fn advance(&mut self, retention: &Retention, second: u64) {
        for level in IntervalLevel::ALL {
            let from = &mut self.from[level as usize];
            *from = retention.kept_from(level, second).max(*from);
        }
    }

    /// Pages before this one are removed from the store.
    pub(crate) const fn set_removed(&mut self, level: IntervalLevel, until: u64) {
        self.removed[level as usize] = until;
    }

    /// The pages that a range is read from: the shortest intervals that are kept.
    pub fn ranges(&self, from: u64, to: u64) -> [PageRange; 3] {
        let fine = self.from(IntervalLevel::Fine).clamp(from, to.max(from));
        let minute = self.from(IntervalLevel::Minute).clamp(from, fine);
        [
            PageRange { level: IntervalLevel::Hour, from, to: minute },
            PageRange { level: IntervalLevel::Minute, from: minute, to: fine },
            PageRange { level: IntervalLevel::Fine, from: fine, to },
        ]
    }
}
