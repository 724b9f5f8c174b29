//! Part of the log that failing calls may fill: one caller whose calls all fail leaves it readable, and the disk free.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::identity::CallerIdentity;

/// Lines of one caller within [`WINDOW`].
const LINES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// Caller; `None` without an identity.
type PeerIdentity = Option<CallerIdentity>;

/// Lines for calls that fail.
#[derive(Debug, Default)]
pub(super) struct FailureLines(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    begun: Option<Instant>,
    /// Calls that failed, by caller.
    failed: HashMap<PeerIdentity, u32>,
}

/// Line that is logged now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoggedLine {
    pub this: bool,
    /// Number of calls that were left out in the window before.
    pub left_out: u32,
}

impl FailureLines {
    /// A call of somebody has failed. Time O(1), and O(callers) once a window.
    pub fn take(&self, who: PeerIdentity, now: Instant) -> LoggedLine {
        let mut window = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut left_out = 0;
        if window.begun.is_none_or(|begun| now.duration_since(begun) >= WINDOW) {
            let failed = std::mem::take(&mut window.failed);
            left_out = failed.into_values().map(|calls| calls.saturating_sub(LINES_MAX)).sum();
            window.begun = Some(now);
        }
        let calls = window.failed.entry(who).or_default();
        *calls += 1;
        LoggedLine { this: *calls <= LINES_MAX, left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snic_domain::Caller;

    fn tenant(id: &str) -> PeerIdentity {
        let id = id.parse().expect("an id");
        Some(CallerIdentity::from(Caller::Tenant(id)))
    }

    #[test]
    fn one_caller_takes_no_lines_of_another() {
        let (lines, begin) = (FailureLines::default(), Instant::now());
        let logged = (0..1_000).filter(|_| lines.take(tenant("acme"), begin).this).count();
        assert_eq!(logged, 10);
        assert_eq!(lines.take(tenant("beta"), begin), LoggedLine { this: true, left_out: 0 });
        let next = begin + Duration::from_secs(1);
        assert_eq!(lines.take(tenant("acme"), next), LoggedLine { this: true, left_out: 990 });
        assert_eq!(lines.take(None, next), LoggedLine { this: true, left_out: 0 }, "told once");
    }
}
