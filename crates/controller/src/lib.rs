//! The control plane as a state machine: events in, effects out.
