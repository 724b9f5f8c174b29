//! Frames: packets that have bytes, from outside of the model.
//!
//! The model knows a packet's length, not its bytes. Whoever holds the bytes gives each frame a number,
//! sends it through the model with [`crate::SimCard::inject`], and is called back at every NT that it
//! passes and when it leaves.
//!
//! ```text
//!   port ── inject ──► ingress ─► scheduler ─► NT ─► NT ─► egress ── out ──► port
//!                         │                    │ pass        │
//!                         └── gone             └── made: frames that an NT adds
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use snic_domain::{DagUid, NtNumber, Timestamp};
use snic_ports::packets::PacketStep;
use snic_tables::{DagRow, DropCause, GuardRow};

/// Names a frame; chosen by who holds its bytes, and used again after it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// A frame has passed through an NT's pipeline: now its bytes are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameAtNt {
    pub frame: FrameId,
    pub bytes: u32,
    /// The NT type's number, as the region's row has it.
    pub nt: NtNumber,
    /// The region that the NT is in.
    pub region: u8,
    /// The NT's slot of the region.
    pub slot: u8,
    /// UID of the DAG that it belongs to.
    pub uid: DagUid,
    /// The card's time.
    pub now: Timestamp,
}

/// Result of an NT for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NtOutcome {
    /// It goes on with this length.
    On {
        /// Its length now.
        bytes: u32,
    },
    /// It goes back to where it came from with this length, past all other NTs.
    Back {
        /// Its length now.
        bytes: u32,
    },
    /// The NT dropped it.
    Dropped,
    /// The NT used it up, and nothing is wrong.
    UsedUp,
}

/// A frame that an NT made while another one passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadeFrame {
    pub frame: FrameId,
    pub bytes: u32,
    /// Whether it goes back to where the passing one came from, and not on behind the NT.
    pub back: bool,
}

/// A packet was seen somewhere on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    pub frame: FrameId,
    /// UID of the DAG that it belongs to.
    pub uid: DagUid,
    pub step: PacketStep,
    /// The card's time.
    pub now: Timestamp,
}

/// Whether who holds the frames can work with a bitstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preparation {
    /// It is looked at.
    UnderWay,
    /// The region can be filled.
    Ready,
    /// It cannot, with this error of the configuration controller.
    Refused(u32),
}

/// Holder of the bytes of frames, which knows what NTs do with them.
pub trait Frames: Any + Send + fmt::Debug {
    /// A frame passes an NT.
    fn pass(&mut self, passage: &FrameAtNt) -> NtOutcome;

    /// The next frame that an NT made in the last [`Frames::pass`].
    fn made(&mut self) -> Option<MadeFrame>;

    /// A packet is somewhere on its way. Only called while somebody watches ([`crate::SimCard::watch`]).
    fn saw(&mut self, sighting: &Sighting);

    /// A frame leaves the card: at the egress, or back to where it came from.
    fn out(&mut self, frame: FrameId, back: bool, now: Timestamp);

    /// A frame is no more.
    fn gone(&mut self, frame: FrameId, cause: DropCause);

    /// New packets read these rows of DAGs from now on; `None` where a row is empty. `configurations` are
    /// those that came with the commit, by UID and tag, as [`snic_tables::configuration`] reads them.
    fn committed(
        &mut self,
        now: Timestamp,
        dags: &[(u16, Option<DagRow>)],
        configurations: &BTreeMap<(u32, u32), Arc<[u8]>>,
    );

    /// The ports of these functions keep to their rows from now on; `None` where a row is empty.
    fn guarded(&mut self, _ports: &[(u16, Option<GuardRow>)]) {}

    /// The load of a region with this bitstream began: what its NTs need to work on bytes is prepared
    /// meanwhile.
    fn load_began(&mut self, _region: u8, _bitstream: &Arc<[u8]>) {}

    /// The words of the load are through: whether it is prepared too.
    fn preparation(&mut self, _region: u8) -> Preparation {
        Preparation::Ready
    }

    /// Bytes of a frame that goes to another card. It is still held, until it comes back or is no more.
    fn lend(&mut self, _frame: FrameId) -> Arc<[u8]> {
        Arc::default()
    }

    /// A frame is back from another card with these bytes.
    fn replace(&mut self, _frame: FrameId, _bytes: &Arc<[u8]>) {}

    /// A frame of another card is here with these bytes; `None` where the card's packets have no bytes.
    fn receive(&mut self, _bytes: &Arc<[u8]>) -> Option<FrameId> {
        None
    }

    /// Bytes of another card's frame that goes back, and is no longer held.
    fn send_back(&mut self, _frame: FrameId) -> Arc<[u8]> {
        Arc::default()
    }

    /// A region holds nothing any more.
    fn emptied(&mut self, _region: u8) {}

    /// The power failed: all that was held is gone.
    fn power_lost(&mut self);
}
