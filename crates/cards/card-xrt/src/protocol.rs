//! The protocol of daemon and worker: one request, one reply, in the frames of
//! [`snic_ports::remote`].
//!
//! A request says which trace it is for, if any, as the W3C header `traceparent`. The worker counts
//! what it does for each trace, and tells that when the trace's step has ended.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use snic_domain::{DeviceReading, Digest, DriverError, PciAddress};
pub(crate) use snic_ports::remote::{Run, receive, send, to_bytes, to_words};

/// Card of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CardSelector {
    /// XRT's index. Another card in the host may change the indices.
    Number(u32),
    /// Address on the PCI bus.
    Pci(PciAddress),
}

impl fmt::Display for CardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Pci(address) => write!(f, "{address}"),
        }
    }
}

/// Words that [`WorkerRequest::Identify`] reads at most.
pub(crate) const IDENTIFY_WORDS: u32 = 4;

/// A request, and the trace that it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TracedRequest {
    pub(crate) parent: Option<String>,
    pub(crate) request: WorkerRequest,
}

/// A request of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkerRequest {
    /// Opens the card and loads its role. The first request; the next three follow in their order.
    Open {
        device: CardSelector,
        /// The role's file.
        role: PathBuf,
        /// The digest of the bytes that were checked; others are not loaded.
        digest: Digest,
        /// Loads the role also where the card holds it already.
        force: bool,
    },
    /// Takes the kernel with the register map for this process alone.
    Take { control: String },
    /// Reads by which registers a map of this driver is known, and what the card can do.
    Identify,
    /// Makes the buffer for transfers in bulk.
    ReserveBulk,
    /// Does one step of an examination, which needs those before it.
    Examine {
        step: ExamineStep,
        device: CardSelector,
        /// The role's file.
        role: PathBuf,
        /// The digest of the bytes that were checked; others are not loaded.
        digest: Digest,
        /// The kernel with the register map.
        control: String,
    },
    /// Reads runs of words, each from a register on, in their order; the reply's payload has the words of all of them.
    Read { runs: Vec<Run> },
    /// Writes runs of words, each from a register on; the payload has the words of all of them.
    Write { runs: Vec<Run> },
    /// Copies the payload into the card's memory.
    Stage,
    /// Gives a buffer back.
    Release { address: u64 },
    /// Asks what was done for this trace, whose step has ended.
    Tell { parent: String },
    /// Has the driver reset a card that nobody has open.
    Reset { device: CardSelector },
    /// Reads what the kernel says of the card whose folder in sysfs this is. It needs no open card.
    ReadDevice { device: PathBuf },
    /// Asks for the last errors that the driver of the open card reported.
    Errors,
    /// Closes the card in an orderly way.
    Close,
}

/// A step of an examination, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ExamineStep {
    LoadXrt,
    ReadRole,
    OpenCard,
    LoadRole,
    AskForRole,
    TakeMap,
    FindMemory,
    CopyBuffer,
    ReadRegister,
    FindMap,
}

impl ExamineStep {
    pub(crate) const ALL: [Self; 10] = [
        Self::LoadXrt,
        Self::ReadRole,
        Self::OpenCard,
        Self::LoadRole,
        Self::AskForRole,
        Self::TakeMap,
        Self::FindMemory,
        Self::CopyBuffer,
        Self::ReadRegister,
        Self::FindMap,
    ];

    /// Purpose of the request, for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LoadXrt => "load XRT",
            Self::ReadRole => "read the role",
            Self::OpenCard => "open the card",
            Self::LoadRole => "load the role",
            Self::AskForRole => "ask for the role's UUID",
            Self::TakeMap => "take the register map",
            Self::FindMemory => "find the memory for buffers",
            Self::CopyBuffer => "copy a buffer to the card and back",
            Self::ReadRegister => "read a register",
            Self::FindMap => "find the register map of this driver",
        }
    }
}

impl WorkerRequest {
    /// Kind of access to an open card, in one word.
    pub(crate) const fn access(&self) -> Option<&'static str> {
        match self {
            Self::Read { .. } => Some("read"),
            Self::Write { .. } => Some("write"),
            Self::Stage => Some("stage"),
            Self::Release { .. } => Some("release"),
            _ => None,
        }
    }
}

/// The result of one step of an examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Step that was tried.
    pub step: String,
    /// Fault, if there was one.
    pub problem: Option<String>,
}

/// The work of a worker for a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedWork {
    /// When the first request for it came, by the wall's clock.
    pub first: SystemTime,
    /// When the last one was answered.
    pub last: SystemTime,
    /// Number of requests.
    pub accesses: u64,
    /// Words that were read and written.
    pub words: u64,
    /// Bytes that were staged.
    pub bytes: u64,
    /// The worker's process id.
    pub pid: u32,
}

/// A reply of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkerReply {
    /// The card is open, with its role.
    Opened {
        /// UUID of the role that it holds.
        uuid: [u8; 16],
        version: String,
    },
    /// The register map is that of this driver.
    Identified {
        /// Whether tables go through a buffer and one doorbell.
        bulk: bool,
    },
    /// Done; words that were read are in the payload.
    Done,
    /// Staged at this device address.
    Staged { address: u64 },
    /// Result of a step of an examination: the fault, if there was one.
    Examined(Option<String>),
    /// Reading of a card's device from the kernel.
    Device(DeviceReading),
    /// The last error of each class that has one.
    Errors(Vec<DriverError>),
    /// Work done for a trace, if there was any.
    Told(Option<TracedWork>),
    /// The card's memory has no room.
    NoMemory,
    /// There is no buffer at that address.
    NoBuffer,
    /// The library, or the driver below it, refused.
    Failed { what: String },
}

#[cfg(test)]
mod tests {
    use std::io;

    use proptest::prelude::*;

    use super::*;

    fn frame(request: &impl Serialize, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        send(&mut bytes, request, payload).expect("it fits");
        bytes
    }

    #[test]
    fn a_frame_cut_anywhere_is_an_error_and_not_a_wait() {
        let run = Run { at: 0x10_0000, words: 2 };
        let bytes = frame(&WorkerRequest::Write { runs: vec![run; 3] }, &[1; 24]);
        for length in 0..bytes.len() {
            assert!(receive::<WorkerRequest>(&mut &bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn garbage_does_not_reserve_memory() {
        let error = receive::<WorkerReply>(&mut &[0xFF; 64][..]).expect_err("garbage");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn messages_arrive_as_they_were_sent(
            runs in prop::collection::vec((any::<u32>(), any::<u32>()), 0..50),
            payload in prop::collection::vec(any::<u8>(), 0..9_000),
            parent in any::<Option<String>>(),
        ) {
            let runs = runs.iter().map(|&(at, words)| Run { at, words }).collect();
            let request = TracedRequest { parent, request: WorkerRequest::Write { runs } };
            let bytes = frame(&request, &payload);
            let (got, with): (TracedRequest, _) = receive(&mut &bytes[..]).expect("just written");
            prop_assert_eq!((got, with), (request, payload));
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = receive::<WorkerRequest>(&mut &bytes[..]);
        }
    }
}
