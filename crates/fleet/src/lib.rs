//! The fleet's state machine: hosts, promises on them, placement over all cards. Pure: events in, effects out.
