//! The simulated card: a cycle-level data plane behind the register map.
