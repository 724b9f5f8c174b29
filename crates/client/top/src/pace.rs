//! Pauses of the feeds.

use std::time::Duration;

/// Interval at which the server is asked whether it answers.
pub(crate) const PROBE: Duration = Duration::from_millis(500);

/// Pause before a watch that has ended is restarted.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_secs(1);
