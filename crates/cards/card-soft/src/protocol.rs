//! Messages between daemon and card process; the frames are those of [`snic_ports::remote`].

use serde::{Deserialize, Serialize};
use snic_ports::generator::{GeneratedLoad, LoadReading};
use snic_ports::packets::{FlowTableUse, PortTraffic, SeenPackets};
use snic_ports::remote::Run;

/// The version of this protocol: a daemon and a card process of different versions do not talk.
pub(crate) const VERSION: u32 = 8;

/// Request to the card process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ControlRequest {
    /// Asks for the card's identity. The first request.
    Hello {
        /// [`VERSION`] of who asks.
        version: u32,
    },
    /// Reads words from a register on.
    Read { at: u32, words: u32 },
    /// Writes runs of words; the payload has the words of all of them.
    Write { runs: Vec<Run> },
    /// Copies the payload into the card's memory.
    Stage,
    /// Gives a buffer back.
    Release { address: u64 },
    /// Asks for the counts of ports and NTs.
    Observe,
    /// Keeps what is seen of a DAG's packets from now on, with the first bytes of each.
    Capture { uid: u32, bytes: u32 },
    /// Asks for what was seen since the last time.
    Captured { id: u64 },
    /// Nobody asks for this capture any more.
    EndCapture { id: u64 },
    /// Makes packets for a DAG.
    Generate { load: GeneratedLoad },
    /// Asks for the counts of a load.
    ReadLoad { id: u64 },
    /// Makes no more.
    EndLoad { id: u64 },
}

/// Reply of the card process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ControlReply {
    Card {
        /// [`VERSION`] of the card process.
        version: u32,
        /// Settings that it was started with, as JSON.
        settings: String,
        /// Its process id.
        pid: u32,
    },
    /// Done; words that were read are in the payload.
    Done,
    /// Staged at this device address.
    Staged { address: u64 },
    /// A register address is not in the map.
    NoRegister { at: u32 },
    /// The card's memory has no room.
    NoMemory,
    /// There is no buffer at that address.
    NoBuffer,
    /// Counts of ports and NTs.
    Seen(Observation),
    /// A capture was begun.
    Capturing { id: u64 },
    /// There are as many captures as the card takes.
    TooManyCaptures { most: u32 },
    /// There is no such capture: nobody asked for it for too long, or the card was switched off.
    NoCapture,
    /// Packets that were seen.
    Captured(SeenPackets),
    /// A load was begun.
    Generating { id: u64 },
    /// There are as many loads as the card takes.
    TooManyLoads { most: u32 },
    /// The card makes no such packets.
    InvalidLoad { what: String },
    /// There is no such load: nobody asked for it for too long, or the card was switched off.
    NoLoad,
    /// Counts of a load.
    Load(LoadReading),
    /// The card cannot do that.
    Failed { what: String },
}

/// Counts of a card's ports and NTs since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Traffic of the ports: the uplink first, if there is one, then the functions.
    pub ports: Vec<PortTraffic>,
    /// Counts by DAG and NT.
    pub tasks: Vec<TaskObservation>,
    /// Configurations of DAGs that came into force.
    pub configurations: u64,
    /// NTs that did not take theirs.
    pub configurations_refused: u64,
    /// Regions whose load was started.
    pub loads: u64,
    /// Words of tables that were written.
    pub table_words: u64,
    /// Packets that went in, those of ports and those that NTs made.
    pub packets_in: u64,
    /// Packets that went out.
    pub packets_out: u64,
    /// Packets that were dropped, by the name of the cause.
    pub drops: Vec<(String, u64)>,
    /// Flows of which NTs treat further packets by rules.
    #[serde(default)]
    pub flows: usize,
    /// Those by DAG, and flows that lost their place.
    #[serde(default)]
    pub flows_by_dag: Vec<FlowTableUse>,
    /// Flows whose packets pass by the fast path.
    #[serde(default)]
    pub fast_flows: usize,
    /// Packets that passed by it; they are in all other counts, too.
    #[serde(default)]
    pub fast_packets: u64,
}

/// Counts of an NT of a DAG.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskObservation {
    pub uid: u32,
    /// The NT's type.
    pub nt_type: String,
    /// The tag of its DAG's configurations.
    pub tag: u32,
    /// Packets that went in.
    pub received: u64,
    /// Packets of those that a flow rule treated.
    #[serde(default)]
    pub by_rule: u64,
    /// Packets that went on.
    pub forwarded: u64,
    /// Packets that were sent back.
    pub replied: u64,
    /// Packets that were used up.
    pub consumed: u64,
    /// Packets that it made.
    pub emitted: u64,
    /// Packets that it dropped, by the name of the reason.
    pub dropped: Vec<(String, u64)>,
    /// Number of times that it failed and began again without its state: modules only.
    pub restarts: u64,
}
