//! Commands of the controller to a card, and the card's reports.
//!
//! Each command is one step with a known result: done, failed, or (if the card
//! was lost in between) unknown; then the card is read back.

use std::sync::Arc;
use std::time::Duration;

use snic_domain::{ChainMismatch, DagUid, Digest, RegionId, ReportedChain};

use crate::configuration::DagConfiguration;
use crate::drop_cause::DropCause;
use crate::image::{TableDelta, TableImage};
use crate::latency::LatencyReading;
use crate::registers::{
    LOAD_ERROR_MODULE, LOAD_ERROR_NO_MODULES, LOAD_ERROR_NO_PORT, STATE_ERROR_BUSY,
    STATE_ERROR_DAMAGED, STATE_ERROR_ENDED, STATE_ERROR_FOREIGN, STATE_ERROR_RANGE,
    STATE_ERROR_REGION,
};
use crate::windows::{UnconfiguredNt, WindowChanges};

/// Identifies a command in its report; made by the controller, never reused within a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A step on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardCommand {
    /// Ends what an earlier daemon left unfinished (an open shadow write is discarded, a load that
    /// runs is waited for) and reads back everything.
    ReadBack {
        /// Identifies the command in its report.
        ticket: Ticket,
        /// Reports of regions that were loaded with these bitstreams. One that was left decoupled and
        /// reports something else stays so.
        known: Arc<[(Digest, ReportedChain)]>,
    },
    /// Writes rows to the shadow bank, swaps the banks, waits for the packets under way, and reads
    /// the rows back.
    Program {
        /// Identifies the command in its report.
        ticket: Ticket,
        delta: TableDelta,
        /// Configurations that rows of DAGs among them name and that the card does not hold; they are
        /// in force together with the rows.
        configurations: Vec<DagConfiguration>,
        /// The same for a card whose NTs take configurations by their windows: writes before the commit, erasures after it.
        windows: WindowChanges,
        /// They only set rates of the control loop, which are in no record.
        rates_only: bool,
    },
    /// Loads one region: waits until no packet is in it, decouples it, loads, couples it again.
    /// No table row may lead to the region any more.
    Load {
        /// Identifies the command in its report.
        ticket: Ticket,
        region: RegionId,
        /// Digest of the bitstream's bytes.
        digest: Digest,
        /// Report that the region has to give then.
        chain: ReportedChain,
    },
    /// Makes a region's wrapper save, restore or clear the state that its chain keeps for one DAG. No
    /// table row may lead packets of that DAG to the region.
    State {
        /// Identifies the command in its report.
        ticket: Ticket,
        region: RegionId,
        order: StateOrder,
    },
    /// Reads the counters.
    Sample {
        /// Identifies the command in its report.
        ticket: Ticket,
    },
    /// Closes the card and opens it again with the role that is set for it. Every region is empty
    /// afterwards, and all tables are, where the role is another one or the load is forced.
    LoadRole {
        /// Identifies the command in its report.
        ticket: Ticket,
        /// Also where the card holds that role already.
        force: bool,
    },
    /// Closes the card, has its driver reset it, and opens it again. Every region is empty afterwards, and all
    /// tables are.
    Reset {
        /// Identifies the command in its report.
        ticket: Ticket,
        /// Whatever is under way on the card, and also where it does not answer.
        at_once: bool,
    },
}

impl CardCommand {
    /// Whether it only reads counters or sets the loop's rates: it waits for no record.
    pub const fn needs_no_record(&self) -> bool {
        match self {
            Self::Sample { .. } => true,
            Self::Program { rates_only, .. } => *rates_only,
            Self::ReadBack { .. }
            | Self::Load { .. }
            | Self::State { .. }
            | Self::LoadRole { .. }
            | Self::Reset { .. } => false,
        }
    }

    /// Whether it may be the first command to an opened card: others were decided for what was there before.
    pub const fn begins_session(&self) -> bool {
        matches!(self, Self::ReadBack { .. } | Self::LoadRole { .. } | Self::Reset { .. })
    }

    /// Identifies the command in its report.
    pub const fn ticket(&self) -> Ticket {
        match self {
            Self::ReadBack { ticket, .. }
            | Self::Program { ticket, .. }
            | Self::Load { ticket, .. }
            | Self::State { ticket, .. }
            | Self::LoadRole { ticket, .. }
            | Self::Reset { ticket, .. }
            | Self::Sample { ticket } => *ticket,
        }
    }
}

/// Order to a wrapper about a context, the state that a chain keeps for one DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateOrder {
    /// Copy it to the save area. The context stays in the region.
    Save {
        /// The DAG whose context it is.
        uid: DagUid,
        slot: SaveSlot,
    },
    /// Copy it back.
    Restore {
        /// The DAG whose context it is.
        uid: DagUid,
        slot: SaveSlot,
        /// Its CRC-32C when it was saved.
        check: u32,
    },
    /// Clear it: the DAG starts without state there.
    Clear {
        /// The DAG whose context it is.
        uid: DagUid,
    },
    /// Write zeros over a part of the save area, whatever the region holds.
    Erase { slot: SaveSlot },
}

/// A part of the save area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveSlot {
    /// From its beginning, in bytes.
    pub offset: u32,
    /// Number of bytes.
    pub length: u32,
}

/// The result of a [`StateOrder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateDone {
    /// Bytes that were moved, the head of a saved context included.
    pub bytes: u32,
    /// CRC-32C of the context, after a save and a restore.
    pub check: u32,
    /// Duration of the step.
    pub took: Duration,
}

/// A report of a card.
#[derive(Debug, Clone, PartialEq)]
pub enum CardReport {
    /// The answer to [`CardCommand::ReadBack`].
    ReadBack {
        /// The command that this answers.
        ticket: Ticket,
        /// Content of the card.
        snapshot: Box<CardSnapshot>,
    },
    /// The answer to [`CardCommand::Program`].
    Programmed {
        /// The command that this answers.
        ticket: Ticket,
        /// The version that is active now, or why it is not.
        result: Result<u32, ProgramFailure>,
        /// NTs that do not have what the new rows name.
        unconfigured: Vec<UnconfiguredNt>,
    },
    /// The answer to [`CardCommand::Load`].
    Loaded {
        /// The command that this answers.
        ticket: Ticket,
        region: RegionId,
        /// Duration of the load, or why it failed.
        result: Result<Duration, LoadFailure>,
    },
    /// The answer to [`CardCommand::State`].
    State {
        /// The command that this answers.
        ticket: Ticket,
        region: RegionId,
        result: Result<StateDone, StateFailure>,
    },
    /// The answer to [`CardCommand::Sample`].
    Sampled {
        /// The command that this answers.
        ticket: Ticket,
        counters: Box<CardCounters>,
    },
    /// The answer to [`CardCommand::LoadRole`] where nothing is in the card's regions, and to [`CardCommand::Reset`]
    /// once the card was reset: it is closed and opened again. Ends all commands under way, as [`CardReport::Lost`] does.
    Released {
        /// The command that this answers.
        ticket: Ticket,
    },
    /// The answer to [`CardCommand::LoadRole`] and [`CardCommand::Reset`] where the card is not closed, and is as it was.
    NotReleased {
        /// The command that this answers.
        ticket: Ticket,
        /// Why, and what to do.
        reason: String,
    },
    /// The answer to [`CardCommand::Reset`] where the card was closed, and its driver did not reset it: it is opened again.
    NotReset {
        /// The command that this answers.
        ticket: Ticket,
        /// Why, and what to do.
        reason: String,
    },
    /// Answers nothing: a region kept packets of the old tables for too long. Its NTs were reset, which ended these packets, and it
    /// is decoupled until it is loaded again. Commits no longer wait for it.
    Stuck {
        region: RegionId,
        /// Time that was waited.
        waited: Duration,
    },
    /// The card does not answer (any more): everything about it is unknown until the next
    /// [`CardCommand::ReadBack`] is answered. Ends all commands under way.
    Lost { reason: String },
}

/// Why tables were not programmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramFailure {
    /// The card's active version was not the expected one: another writer, or a card that restarted.
    #[error("the card refused the commit: its tables are at version {active}")]
    Refused {
        /// The card's active version.
        active: u32,
    },
    /// A row names a link to another card that this one does not have.
    #[error("the card refused the commit: a row names a link that it does not have")]
    NoLink,
    /// Packets under way did not finish in time.
    #[error("packets of the old table version are still in flight after {0:?}")]
    DrainTimeout(Duration),
    /// The card did not take the configurations of a DAG's NTs.
    #[error("the card rejected a configuration: {0}")]
    Configuration(&'static str),
    /// The rows read back are not those written.
    #[error("{rows} rows read back differ from what was written")]
    ReadBack { rows: usize },
}

/// Why a region was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadFailure {
    /// Packets did not leave the region in time. The region keeps its old content.
    #[error("{packets} packets are still in the region after {waited:?}")]
    DrainTimeout {
        packets: u32,
        /// Time that was waited.
        waited: Duration,
    },
    /// The store has no such bytes.
    #[error("the bitstream's bytes are missing from the store: {0}")]
    NoBytes(String),
    /// The configuration controller refused, with its code.
    #[error("the configuration controller reports error {code}{}", load_error(*code))]
    Controller {
        /// One of the `LOAD_ERROR_…` values.
        code: u32,
    },
    /// The load ended, and the region reports something else than the bitstream declares.
    #[error(transparent)]
    OtherChain(ChainMismatch),
    /// It did not finish in time. The region's content is unknown.
    #[error("the load did not end within {0:?}")]
    Timeout(Duration),
}

/// Why a wrapper failed. After a failed save the context is unchanged; after a failed
/// restore it is empty or unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateFailure {
    /// The wrapper refused, with its code.
    #[error("the region's wrapper rejected the request: {}", refusal(*code))]
    Refused {
        /// One of the `STATE_ERROR_…` values.
        code: u32,
    },
    /// It did not finish in time and was aborted.
    #[error("the region's wrapper did not finish within {0:?}")]
    Timeout(Duration),
}

impl LoadFailure {
    /// Whether the bitstream would fail so in every region of the card.
    pub const fn is_of_bitstream(&self) -> bool {
        matches!(self, Self::Controller { code: LOAD_ERROR_MODULE | LOAD_ERROR_NO_MODULES })
    }
}

/// Text for a controller's code beyond its number, of those that a tenant can do something about.
const fn load_error(code: u32) -> &'static str {
    match code {
        LOAD_ERROR_MODULE => {
            ": the bitstream has a WebAssembly module that cannot be run; check it with `snic-card check`"
        }
        LOAD_ERROR_NO_MODULES => {
            ": the bitstream has a WebAssembly module, and this card's program runs none; the operator sets \
             `program` in [cards.soft] to `snic-card` and stops the card's process"
        }
        LOAD_ERROR_NO_PORT => ": this shell cannot load regions",
        _ => "",
    }
}

/// A wrapper's code in words.
fn refusal(code: u32) -> String {
    match code {
        STATE_ERROR_RANGE => "the slot is outside of the save area, or too small".to_owned(),
        STATE_ERROR_REGION => "the region holds no chain that keeps state".to_owned(),
        STATE_ERROR_FOREIGN => "the saved context belongs to another DAG or chain".to_owned(),
        STATE_ERROR_DAMAGED => "the saved context is damaged or missing".to_owned(),
        STATE_ERROR_BUSY => "the wrapper is busy".to_owned(),
        STATE_ERROR_ENDED => "the request was aborted".to_owned(),
        code => format!("code {code}"),
    }
}

/// Way in which a card's NTs take configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigurationWay {
    /// The shell takes those of a DAG, and hands them to NTs itself ([`crate::registers::CAPABILITY_CONFIGURE`]).
    Shell,
    /// Each NT takes its own by its window ([`crate::registers::CAPABILITY_WINDOWS`]).
    Windows,
}

/// Everything a card holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardSnapshot {
    /// Drawn at power-up.
    pub boot_id: u32,
    pub idcode: u32,
    /// The active version.
    pub version: u32,
    /// The active bank.
    pub tables: TableImage,
    /// Content of each region.
    pub regions: Vec<RegionSnapshot>,
    /// Way in which its NTs take configurations; `None` where they take none.
    pub configures: Option<ConfigurationWay>,
    /// Whether an NT without a configuration, and without a module, passes packets on unchanged.
    pub passes_through: bool,
    /// Whether ports of functions keep to their rows.
    pub guards: bool,
}

/// Content of one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionSnapshot {
    pub status: RegionStatus,
    /// Whether it is decoupled from the crossbar.
    pub decoupled: bool,
    /// Whether it was decoupled before it was read. Its NTs may have been reset since they kept something.
    pub was_decoupled: bool,
    /// Report of itself; zeros unless loaded.
    pub chain: ReportedChain,
}

/// The state of a region's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionStatus {
    Empty,
    Loading,
    /// Loaded, as the host said with the bitstream of this digest: what it is the region's own report says.
    Loaded(Digest),
    /// A load failed; it holds garbage.
    Broken,
}

/// Counters of one DAG since power-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DagCounters {
    /// Packets that came in.
    pub packets_in: u64,
    /// Bytes that came in, before rate limiting and credits.
    pub bytes_intended: u64,
    /// Bytes that went out.
    pub bytes_served: u64,
    /// Packets that went out.
    pub packets_out: u64,
}

/// Counters of a card since power-up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// Cycles of the card's clock when they were read; `None` on cards that do not count them.
    pub cycles: Option<u64>,
    /// Packets that came in.
    pub packets_in: u64,
    /// Packets that went out.
    pub packets_out: u64,
    /// Drops and errors, in the order of [`DropCause::ALL`].
    pub drops: [u64; DropCause::ALL.len()],
    /// Counters by the row of the DAG; those that never saw a packet are left out.
    pub dags: Vec<(u16, DagCounters)>,
    /// Drops by the row of the DAG, in the order of [`DropCause::ALL`], in the order of the rows: those that
    /// were read, now or before. Behind `dags` by some samples where many DAGs lose packets at once.
    pub dag_drops: Vec<(u16, [u64; DropCause::ALL.len()])>,
    /// Latencies since the sample before; nothing on cards that do not measure them.
    pub latency: LatencyReading,
}

impl CardCounters {
    /// Number of packets that met a fault of the control plane.
    pub fn errors(&self) -> u64 {
        DropCause::ALL.iter().zip(self.drops).filter(|(c, _)| c.is_error()).map(|(_, n)| n).sum()
    }
}
