//! Bounds of the frames that pass the card.

/// The smallest frame, in bytes.
pub const FRAME_BYTES_MIN: u32 = snic_domain::limits::PACKET_BYTES_MIN;

/// The largest frame, in bytes: a jumbo frame and what stands around it.
pub const FRAME_BYTES_MAX: u32 = snic_domain::limits::PACKET_BYTES_MAX;
