//! Tests with real processes: the daemon, the client, the kill in the middle.
