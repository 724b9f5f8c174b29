//! Wall time without jumps.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use snic_domain::Timestamp;

/// Most by which the controller's time runs faster or slower than the machine's monotonic clock
/// while it approaches wall time: one part in ten. A lease of 30 s that is renewed every 15 s
/// outlives any step of the clock.
const SLEW: u32 = 10;

/// Wall time for the controller: it never goes backwards and never jumps. It runs with the
/// machine's monotonic clock, a little faster or slower until it has reached wall time again: when
/// somebody sets the wall clock, leases must not end, and timers must not stand still.
pub fn wall_clock() -> Timestamp {
    static LAST: Mutex<Option<(Timestamp, Instant)>> = Mutex::new(None);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut last = LAST.lock();
    let now = onwards(*last, Timestamp::ZERO + since, Instant::now());
    *last = Some(now);
    now.0
}

/// The time after `last`, which was given out at an instant, for this wall time.
fn onwards(
    last: Option<(Timestamp, Instant)>,
    wall: Timestamp,
    instant: Instant,
) -> (Timestamp, Instant) {
    let Some((told, at)) = last else { return (wall, instant) };
    let passed = instant.saturating_duration_since(at);
    let slew = passed / SLEW;
    let now = match wall.since(told + passed) {
        ahead if ahead > Duration::ZERO => told + passed + ahead.min(slew),
        _ => told + (passed - (told + passed).since(wall).min(slew)),
    };
    (now, instant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_follows_the_wall_without_a_jump_and_never_goes_back() {
        let (at, second) = (Instant::now(), Duration::from_secs(1));
        let wall = |seconds| Timestamp::ZERO + second * seconds;
        let first = onwards(None, wall(100), at);
        assert_eq!(first.0, wall(100));
        let same = onwards(Some(first), wall(101), at + second);
        assert_eq!(same.0, wall(101), "the wall goes as the machine does");
        // Set forward by two minutes: a second takes 1.1 s until the wall is caught up.
        let mut ahead = onwards(Some(same), wall(222), at + second * 2);
        assert_eq!(ahead.0, wall(102) + second / 10);
        for seconds in 3..1_300 {
            let next = onwards(Some(ahead), wall(220 + seconds), at + second * seconds);
            assert!(next.0.since(ahead.0) <= second + second / 10, "{seconds}");
            ahead = next;
        }
        assert_eq!(ahead.0, wall(220 + 1_299), "caught up");
        // Set back: time goes on, a little slower.
        let back = onwards(Some(ahead), wall(20), at + second * 1_300);
        assert_eq!(back.0.since(ahead.0), second - second / 10);
    }
}
