//! What daemon and worker say to each other: one request, one reply, each a frame.
//!
//! ```text
//! 4 bytes  length of the message      4 bytes  length of what goes with it
//! message (postcard)                  words or bytes, as they are
//! ```
//!
//! A request says which trace it is for, if any, as the W3C header `traceparent`. The worker counts
//! what it does for each trace, and tells that when the trace's step has ended.
//!
//! Bitstreams and table words are not part of the message, so that they are copied once, not
//! encoded byte by byte. A frame that is longer than any can be is garbage: the other side is not
//! what it should be.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of a message at most: the longest lists the runs of a whole bank of rows.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of what goes with a message at most: a bitstream has up to 16 MiB.
const PAYLOAD_BYTES_MAX: usize = 32 << 20;

/// A request, and the trace that it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) parent: Option<String>,
    pub(crate) request: Request,
}

/// What the daemon asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Opens the card, loads its role and takes the register map for itself. The first request.
    Open {
        /// The card's number.
        device: u32,
        /// The role's file.
        role: PathBuf,
        /// The kernel with the register map.
        control: String,
        /// Loads the role also where the card holds it already.
        force: bool,
    },
    /// Goes through the same and a buffer, step by step, and says how each step went.
    Examine {
        /// The card's number.
        device: u32,
        /// The role's file.
        role: PathBuf,
        /// The kernel with the register map.
        control: String,
    },
    /// Reads words from a register on.
    Read { at: u32, words: u32 },
    /// Writes runs of words, each from a register on; the payload has the words of all of them.
    Write { runs: Vec<Run> },
    /// Copies the payload into the card's memory.
    Stage,
    /// Gives a buffer back.
    Release { address: u64 },
    /// What was done for this trace? Its step has ended.
    Tell { parent: String },
    /// Closes the card in an orderly way.
    Close,
}

/// Words for consecutive registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) at: u32,
    pub(crate) words: u32,
}

/// How a step of an examination went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was tried.
    pub step: String,
    /// What was wrong, if anything was.
    pub problem: Option<String>,
}

/// What a worker did for a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// When the first request for it came, by the wall's clock.
    pub first: SystemTime,
    /// When the last one was answered.
    pub last: SystemTime,
    /// How many requests there were.
    pub accesses: u64,
    /// Words that were read and written.
    pub words: u64,
    /// Bytes that were staged.
    pub bytes: u64,
    /// The worker's process id.
    pub pid: u32,
}

/// What the worker answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The card is open.
    Opened {
        /// UUID of the role that it holds.
        uuid: [u8; 16],
        /// XRT's version.
        version: String,
        /// Whether tables go through a buffer and one doorbell.
        bulk: bool,
    },
    /// Done; words that were read are in the payload.
    Done,
    /// Staged at this device address.
    Staged { address: u64 },
    /// How the steps of an examination went.
    Findings(Vec<Finding>),
    /// What was done for a trace, if anything was.
    Told(Option<Work>),
    /// The card's memory has no room.
    NoMemory,
    /// There is no buffer at that address.
    NoBuffer,
    /// The library, or the driver below it, refused.
    Failed { what: String },
}

/// Writes a frame.
pub(crate) fn send<T: Serialize>(
    out: &mut impl Write,
    message: &T,
    payload: &[u8],
) -> io::Result<()> {
    let message = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if message.len() > MESSAGE_BYTES_MAX || payload.len() > PAYLOAD_BYTES_MAX {
        return Err(io::Error::other("a frame would be longer than any may be"));
    }
    let mut frame = Vec::with_capacity(8 + message.len());
    // Both fit in 32 bits, as just checked.
    frame.extend((message.len() as u32).to_le_bytes());
    frame.extend((payload.len() as u32).to_le_bytes());
    frame.extend(message);
    if payload.len() <= 4_096 {
        frame.extend(payload);
        return out.write_all(&frame);
    }
    out.write_all(&frame)?;
    out.write_all(payload)
}

/// Reads a frame: the message, and what goes with it.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<(T, Vec<u8>)> {
    let mut lengths = [0; 8];
    from.read_exact(&mut lengths)?;
    let [a, b, c, d, e, f, g, h] = lengths;
    let message = u32::from_le_bytes([a, b, c, d]) as usize;
    let payload = u32::from_le_bytes([e, f, g, h]) as usize;
    if message > MESSAGE_BYTES_MAX || payload > PAYLOAD_BYTES_MAX {
        let what = format!("a frame of {message} and {payload} bytes is garbage");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut bytes = vec![0; message];
    from.read_exact(&mut bytes)?;
    let message = postcard::from_bytes(&bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    bytes.resize(payload, 0);
    from.read_exact(&mut bytes)?;
    Ok((message, bytes))
}

/// Words as they travel.
pub(crate) fn to_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words of a payload; bytes that make no word are dropped.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[cfg(test)]
mod tests {
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
        let bytes = frame(&Request::Write { runs: vec![run; 3] }, &[1; 24]);
        for length in 0..bytes.len() {
            assert!(receive::<Request>(&mut &bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn garbage_does_not_reserve_memory() {
        let error = receive::<Reply>(&mut &[0xFF; 64][..]).expect_err("garbage");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn what_is_sent_is_received(
            runs in prop::collection::vec((any::<u32>(), any::<u32>()), 0..50),
            payload in prop::collection::vec(any::<u8>(), 0..9_000),
            parent in any::<Option<String>>(),
        ) {
            let runs = runs.iter().map(|&(at, words)| Run { at, words }).collect();
            let request = Asked { parent, request: Request::Write { runs } };
            let bytes = frame(&request, &payload);
            let (got, with): (Asked, _) = receive(&mut &bytes[..]).expect("just written");
            prop_assert_eq!((got, with), (request, payload));
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = receive::<Request>(&mut &bytes[..]);
        }
    }
}
