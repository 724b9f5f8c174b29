//! Logs and traces: set-up and the names used.
