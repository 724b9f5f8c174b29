//! Fates of packets.

use crate::DropReason;

/// Fate of the processed packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, as the NT has left it.
    Forward,
    /// It goes back to where it came from, as the NT has left it.
    Reply,
    /// The NT has used it up; nothing is wrong.
    Consume,
    /// It is dropped.
    Drop(DropReason),
}
