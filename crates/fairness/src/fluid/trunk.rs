//! Where a resource that everybody uses, like a port, is the first to be full, its level says all:
//! nothing need be put in order.
//!
//! Until something is full nobody's rise depends on others. So the level at which the trunk alone
//! would be full is found from the tenants' rises, and then all uses are counted there once: if no
//! other resource is over, that is where the level stops.

/// How one tenant's use of the trunk rises.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rise {
    /// Where it starts, and where all is served.
    pub start: f64,
    pub end: f64,
    /// The part of the trunk that it takes for all that it misses, and for each unit of level.
    pub part: f64,
    pub rate: f64,
}

/// What is used of the trunk near a level: `rate × level + base`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    rate: f64,
    base: f64,
}

impl Line {
    /// Without a branch that depends on loads, and in sums that do not wait for each other.
    fn at(rises: &[Rise], given: f64, level: f64) -> Self {
        let one = |rise: &Rise| {
            let rate = if level >= rise.start && level < rise.end { rise.rate } else { 0.0 };
            let served = if level >= rise.end { rise.part } else { 0.0 };
            (rate, served - rate * rise.start)
        };
        let mut sums = [(0.0, 0.0); 4];
        let (chunks, rest) = rises.as_chunks::<4>();
        for chunk in chunks {
            for (sum, rise) in sums.iter_mut().zip(chunk) {
                let (rate, base) = one(rise);
                *sum = (sum.0 + rate, sum.1 + base);
            }
        }
        let all = sums.into_iter().chain(rest.iter().map(one));
        let (rate, base) = all.fold((0.0, 0.0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        Self { rate, base: given + base }
    }

    /// Where it is full.
    fn full(self) -> f64 {
        (1.0 - self.base) / self.rate
    }
}

/// Two levels that agree to so much of themselves are one.
const NOISE: f64 = 4.0 * f64::EPSILON;
/// Most lines that are tried. Each is the one that holds at the root of the last, or halves what
/// remains: a few do.
const TRIES: usize = 60;

/// The level at which `given` and the rises fill the trunk; `None` where they do not, or where it is
/// not found. Time O(rises) for each line that is tried.
pub(super) fn level_of(rises: &[Rise], given: f64) -> Option<f64> {
    let (mut low, mut high) = (0.0, rises.iter().map(|rise| rise.end).fold(0.0, f64::max));
    if Line::at(rises, given, high).base <= 1.0 {
        return None;
    }
    let rate: f64 = rises.iter().map(|rise| rise.rate).sum();
    let base: f64 = rises.iter().map(|rise| rise.rate * rise.start).sum();
    // As if all rose from their starts on without an end.
    let mut level = Line { rate, base: given - base }.full().clamp(low, high);
    for _ in 0..TRIES {
        let line = Line::at(rises, given, level);
        let next = line.full();
        if (next - level).abs() <= level * NOISE {
            return Some(next);
        }
        match line.rate * level + line.base < 1.0 {
            true => low = level,
            false => high = level,
        }
        level = if next > low && next < high { next } else { (low + high) / 2.0 };
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rise(start: f64, length: f64, part: f64) -> Rise {
        Rise { start, end: start + length, part, rate: part / length }
    }

    #[test]
    fn the_level_is_where_the_trunk_is_full() {
        let rises = [rise(0.0, 1.0, 1.0), rise(0.5, 1.0, 1.0)];
        assert_eq!(level_of(&rises, 0.0), Some(0.75));
        assert_eq!(level_of(&rises, 0.5), Some(0.5));
        assert_eq!(level_of(&rises[..1], 0.0), None, "full when all is served is not over");
        assert_eq!(level_of(&[], 0.0), None);
    }

    proptest! {
        /// Whatever it says is right, and it says something where the trunk is over well before all
        /// is served.
        #[test]
        fn it_is_found(
            rises in prop::collection::vec((0.0..1.0, 0.001..9.0, 0.01..0.9), 1..40), given in 0.0..0.9,
        ) {
            let rises: Vec<Rise> =
                rises.into_iter().map(|(start, length, part)| rise(start, length, part)).collect();
            let used = |level: f64| {
                let part = |rise: &Rise| rise.part * ((level - rise.start) / (rise.end - rise.start)).clamp(0.0, 1.0);
                given + rises.iter().map(part).sum::<f64>()
            };
            let found = level_of(&rises, given);
            if let Some(level) = found {
                prop_assert!((used(level) - 1.0).abs() < 1e-9, "{} at {level}", used(level));
            }
            prop_assert!(found.is_some() || used(f64::MAX) < 1.01, "not found");
        }
    }
}
