//! Fast path for a resource that every flow uses, such as a port, when it is the first to fill up.
//!
//! Until some resource is full, no tenant's growth depends on the others. So the level at which
//! the bottleneck alone would be full follows from the tenants' growth without sorting events.
//! Then all uses are counted once at that level: if no other resource is over its capacity, this is
//! where the level stops.

/// Growth of one tenant's use of the bottleneck with the level.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateSegment {
    /// Level at which it starts, and level at which all its load is served.
    pub start: f64,
    pub end: f64,
    /// Fraction of the bottleneck that it takes in all, and per unit of level.
    pub fraction: f64,
    pub rate: f64,
}

/// Use of the bottleneck near a level: `rate × level + base`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct UsageLine {
    rate: f64,
    base: f64,
}

impl UsageLine {
    /// No branch depends on loads, and the four sums are independent, so the loop vectorises.
    fn at(segments: &[RateSegment], given: f64, level: f64) -> Self {
        let one = |segment: &RateSegment| {
            let rate =
                if level >= segment.start && level < segment.end { segment.rate } else { 0.0 };
            let served = if level >= segment.end { segment.fraction } else { 0.0 };
            (rate, served - rate * segment.start)
        };
        let mut sums = [(0.0, 0.0); 4];
        let (chunks, rest) = segments.as_chunks::<4>();
        for chunk in chunks {
            for (sum, segment) in sums.iter_mut().zip(chunk) {
                let (rate, base) = one(segment);
                *sum = (sum.0 + rate, sum.1 + base);
            }
        }
        let all = sums.into_iter().chain(rest.iter().map(one));
        let (rate, base) = all.fold((0.0, 0.0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        Self { rate, base: given + base }
    }

    /// The level at which it is full.
    fn full(self) -> f64 {
        (1.0 - self.base) / self.rate
    }
}

/// Two levels that differ by less than this fraction count as equal.
const NOISE: f64 = 4.0 * f64::EPSILON;
/// Most lines that are tried. Each is the line that holds at the root of the one before, or halves
/// the remaining interval; a few suffice.
const TRIES: usize = 60;

/// The level at which `given` and the segments fill the bottleneck; `None` if they do not fill it,
/// or if the level is not found. Time O(segments) for each line that is tried.
pub(super) fn level_at_full(segments: &[RateSegment], given: f64) -> Option<f64> {
    let (mut low, mut high) = (0.0, segments.iter().map(|segment| segment.end).fold(0.0, f64::max));
    if UsageLine::at(segments, given, high).base <= 1.0 {
        return None;
    }
    let rate: f64 = segments.iter().map(|segment| segment.rate).sum();
    let base: f64 = segments.iter().map(|segment| segment.rate * segment.start).sum();
    // First guess: every tenant grows from its start without an end.
    let mut level = UsageLine { rate, base: given - base }.full().clamp(low, high);
    for _ in 0..TRIES {
        let line = UsageLine::at(segments, given, level);
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

    fn segment(start: f64, length: f64, fraction: f64) -> RateSegment {
        RateSegment { start, end: start + length, fraction, rate: fraction / length }
    }

    #[test]
    fn the_level_is_where_the_bottleneck_is_full() {
        let segments = [segment(0.0, 1.0, 1.0), segment(0.5, 1.0, 1.0)];
        assert_eq!(level_at_full(&segments, 0.0), Some(0.75));
        assert_eq!(level_at_full(&segments, 0.5), Some(0.5));
        assert_eq!(level_at_full(&segments[..1], 0.0), None, "exactly full is not over");
        assert_eq!(level_at_full(&[], 0.0), None);
    }

    proptest! {
        /// Every level it returns is right, and it returns one when the bottleneck is clearly over
        /// its capacity before all load is served.
        #[test]
        fn the_level_is_found(
            segments in prop::collection::vec((0.0..1.0, 0.001..9.0, 0.01..0.9), 1..40),
            given in 0.0..0.9,
        ) {
            let segments: Vec<RateSegment> = segments
                .into_iter()
                .map(|(start, length, fraction)| segment(start, length, fraction))
                .collect();
            let used = |level: f64| {
                let fraction = |segment: &RateSegment| {
                    let progress = (level - segment.start) / (segment.end - segment.start);
                    segment.fraction * progress.clamp(0.0, 1.0)
                };
                given + segments.iter().map(fraction).sum::<f64>()
            };
            let found = level_at_full(&segments, given);
            if let Some(level) = found {
                prop_assert!((used(level) - 1.0).abs() < 1e-9, "{} at {level}", used(level));
            }
            prop_assert!(found.is_some() || used(f64::MAX) < 1.01, "not found");
        }
    }
}
