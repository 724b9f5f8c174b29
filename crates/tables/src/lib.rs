//! The on-card tables: register map, encoding, differences.
