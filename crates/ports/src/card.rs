//! The Card port.
