//! Fuel that a module may use up for each kind of call.

/// Fuel for one packet: about one unit for each instruction, and for each byte that is copied or filled at once.
pub const FUEL_PER_PACKET: u64 = 50_000;

/// Fuel to start an instance.
pub const FUEL_TO_START: u64 = 500_000;

/// Fuel to take a configuration.
pub const FUEL_TO_CONFIGURE: u64 = 2_000_000;

/// Fuel to save a state, and to take one back.
pub const FUEL_TO_SAVE: u64 = 500_000;
