//! The seam to a fast path: whoever passes packets of flows with rules in the card's place, such as a program in the kernel.
//!
//! A DAG's packets are the card's, or handed over. While they are handed over, those of flows with rules pass elsewhere, and all else comes
//! to the card, which takes the DAG back at its first frame. So a token bucket has one owner at a time, and no packet overtakes another
//! one of its DAG that waits on the card:
//!
//! ```text
//!   the card's ──── none of its frames is on the card, at a port of its rules, or counted since ────► handed over
//!      ▲            (the other side gets the bucket as it stands)                                         │
//!      └──── a frame of the DAG came to the card, or the tables change (the card gets what passed) ───────┘
//! ```

use std::fmt;
use std::time::Duration;

use snic_card_sim::BucketState;

use crate::header_rules::HeaderRule;

/// Reason why there is no fast path, or why it did not take a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OffloadFailure(pub String);

/// Rule of a flow whose packets pass elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffloadRule {
    /// Change of headers.
    pub headers: HeaderRule,
    /// Number of the port that packets come in by, as [`FlowOffload::open_port`] gave it.
    pub port: u32,
    /// Number of the port that they leave by.
    pub out: u32,
    /// Row of the DAG.
    pub row: u16,
    /// Place of its counts; of no other rule at the same time.
    pub slot: u32,
}

/// Packets of a DAG since the fast path began, as they are on a wire: a merged packet counts as its segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadCounts {
    /// Packets that passed.
    pub packets: u64,
    pub bytes: u64,
    /// Packets that were lost: dropped while the card was to catch up, or because they could not be changed.
    pub lost: u64,
}

/// Use of a slot since the fast path began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadUse {
    pub packets: u64,
    pub bytes: u64,
    /// Time since its last packet; zero before the first.
    pub ago: Duration,
}

/// A fast path. What a call ends has ended when it returns: nothing passes any more by what was. All ends with the value.
pub trait FlowOffload: Send + fmt::Debug {
    /// Takes over the frames that come in by a device. What it does not pass comes to the device `slow`. Returns the port's number.
    ///
    /// # Errors
    /// The device is not there, or takes no fast path.
    fn open_port(&mut self, port: &str, slow: &str) -> Result<u32, OffloadFailure>;

    /// Gives a flow a rule, which has an effect while its DAG is handed over.
    ///
    /// # Errors
    /// There is no room, or such packets cannot be passed.
    fn give(&mut self, rule: &OffloadRule) -> Result<(), OffloadFailure>;

    /// Ends these rules: packets of their flows go to the card from then on.
    ///
    /// # Errors
    /// They may still hold: the card must not go on.
    fn end(&mut self, rules: &[OffloadRule]) -> Result<(), OffloadFailure>;

    /// Ends all rules, and takes all DAGs back.
    ///
    /// # Errors
    /// As [`FlowOffload::end`].
    fn end_all(&mut self) -> Result<(), OffloadFailure>;

    /// Packets of a row's flows with rules that went to the card, so far.
    ///
    /// # Errors
    /// The row is out of range.
    fn slow_packets(&mut self, row: u16) -> Result<u64, OffloadFailure>;

    /// Hands a row's DAG over, with its token bucket as it stands. Its rules hold until one more packet than `slow` went to the card.
    ///
    /// # Errors
    /// The row is out of range.
    fn hand_over(
        &mut self,
        row: u16,
        bucket: &BucketState,
        slow: u64,
    ) -> Result<(), OffloadFailure>;

    /// Drops packets of a row's flows with rules: more come than the card takes, and it has to catch up.
    ///
    /// # Errors
    /// The row is out of range.
    fn hold_back(&mut self, row: u16) -> Result<(), OffloadFailure>;

    /// Takes a row's DAG back.
    ///
    /// # Errors
    /// As [`FlowOffload::end`].
    fn take_back(&mut self, row: u16) -> Result<(), OffloadFailure>;

    /// Counts of a row.
    ///
    /// # Errors
    /// The row is out of range.
    fn passed(&mut self, row: u16) -> Result<OffloadCounts, OffloadFailure>;

    /// Use of a slot.
    ///
    /// # Errors
    /// The slot is out of range.
    fn rule_use(&mut self, slot: u32) -> Result<OffloadUse, OffloadFailure>;
}

/// Makes a fast path that has no ports yet.
pub type OpenOffload = fn() -> Result<Box<dyn FlowOffload>, OffloadFailure>;
