//! Cards in other processes: the protocol between the daemon and the process that has the card.
//!
//! One request, one reply, each a frame:
//!
//! ```text
//! 4 bytes  length of the message      4 bytes  length of the payload
//! message (postcard)                  payload: words or bytes, as they are
//! ```
//!
//! Bitstreams and table words are not part of the message, so that they are copied once and not
//! encoded byte by byte. A frame longer than the maximum is garbage: the other side is not what it
//! should be.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snic_tables::registers::{self, Address};

use crate::card::CardError;

/// Bytes of a message at most: the longest lists the runs of a whole bank of rows.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a payload at most: a bitstream has up to 16 MiB.
pub const PAYLOAD_BYTES_MAX: usize = 32 << 20;
/// Payloads up to this are sent in one write with their message.
const SHORT_PAYLOAD: usize = 4_096;

/// Writes a frame.
///
/// # Errors
/// The frame is longer than any may be, or the socket fails.
pub fn send<T: Serialize>(out: &mut impl Write, message: &T, payload: &[u8]) -> io::Result<()> {
    let message = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if message.len() > MESSAGE_BYTES_MAX || payload.len() > PAYLOAD_BYTES_MAX {
        return Err(io::Error::other("a frame would be longer than any may be"));
    }
    let mut frame = Vec::with_capacity(8 + message.len() + payload.len().min(SHORT_PAYLOAD));
    // Both fit in 32 bits, as just checked.
    frame.extend((message.len() as u32).to_le_bytes());
    frame.extend((payload.len() as u32).to_le_bytes());
    frame.extend(message);
    if payload.len() <= SHORT_PAYLOAD {
        frame.extend(payload);
        return out.write_all(&frame);
    }
    out.write_all(&frame)?;
    out.write_all(payload)
}

/// Reads a frame: the message and its payload.
///
/// # Errors
/// The socket fails or is closed, or the data is not a frame ([`io::ErrorKind::InvalidData`]).
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<(T, Vec<u8>)> {
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

/// Words as bytes on the wire.
pub fn to_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words of a payload; an incomplete word at the end is dropped.
pub fn to_words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Words for consecutive registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The first register.
    pub at: Address,
    /// Number of words.
    pub words: u32,
}

/// Writes that wait to be sent together, in their order.
#[derive(Debug, Default)]
pub struct Writes {
    runs: Vec<Run>,
    words: Vec<u32>,
}

impl Writes {
    /// Most words that are buffered. A bank has 100,000; two frames for it cost little.
    const WORDS_MAX: usize = 64 << 10;
    /// Most runs that are buffered: their list is far smaller than a message.
    const RUNS_MAX: usize = 16 << 10;

    /// Adds words for consecutive registers.
    pub fn push(&mut self, at: Address, words: &[u32]) {
        // A run is at most a bank.
        let run = Run { at, words: words.len() as u32 };
        match self.runs.last_mut() {
            Some(last) if last.at.wrapping_add(last.words * 4) == at => last.words += run.words,
            _ => self.runs.push(run),
        }
        self.words.extend(words);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether the buffer is full enough to be sent.
    pub fn is_full(&self) -> bool {
        self.words.len() > Self::WORDS_MAX || self.runs.len() > Self::RUNS_MAX
    }

    /// Takes everything that is buffered: the runs, and their words as bytes.
    pub fn take(&mut self) -> (Vec<Run>, Vec<u8>) {
        let payload = to_bytes(&self.words);
        self.words.clear();
        (std::mem::take(&mut self.runs), payload)
    }

    /// Drops everything that is buffered.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.words.clear();
    }
}

/// A card whose registers another process has: writes are buffered here and sent together, in order, before
/// the next read.
pub trait RemoteRegisters {
    /// The writes that wait.
    fn writes(&mut self) -> &mut Writes;

    /// Has the process write these runs, with their words as bytes.
    ///
    /// # Errors
    /// [`CardError::Lost`], or what the process says.
    fn send_writes(&mut self, runs: Vec<Run>, payload: &[u8]) -> Result<(), CardError>;

    /// Has the process read consecutive registers; returns their words as bytes.
    ///
    /// # Errors
    /// [`CardError::Lost`], or what the process says.
    fn receive_words(&mut self, at: Address, words: u32) -> Result<Vec<u8>, CardError>;

    /// Has the process read runs of registers, in their order; returns the words of all of them as
    /// bytes. One request a run, unless the process can do all of them with one.
    ///
    /// # Errors
    /// [`CardError::Lost`], or what the process says.
    fn receive_runs(&mut self, runs: &[Run]) -> Result<Vec<u8>, CardError> {
        let mut bytes = Vec::new();
        for run in runs {
            bytes.extend(self.receive_words(run.at, run.words)?);
        }
        Ok(bytes)
    }

    /// The process broke the protocol: the card counts as lost from now on.
    fn lose(&mut self, reason: String) -> CardError;

    /// Sends the writes that wait.
    ///
    /// # Errors
    /// Those of [`RemoteRegisters::send_writes`].
    fn flush(&mut self) -> Result<(), CardError> {
        if self.writes().is_empty() {
            return Ok(());
        }
        let (runs, payload) = self.writes().take();
        self.send_writes(runs, &payload)
    }

    /// Reads consecutive registers, behind all writes before.
    ///
    /// # Errors
    /// [`CardError::NoRegister`] without asking the process, and those of [`RemoteRegisters::receive_words`].
    fn read_words(&mut self, at: Address, words: &mut [u32]) -> Result<(), CardError> {
        self.read_runs(&mut [(at, words)])
    }

    /// Reads several blocks of consecutive registers, behind all writes before.
    ///
    /// # Errors
    /// [`CardError::NoRegister`] without asking the process, and those of [`RemoteRegisters::receive_runs`].
    fn read_runs(&mut self, blocks: &mut [(Address, &mut [u32])]) -> Result<(), CardError> {
        blocks.iter().try_for_each(|(at, words)| check_registers(*at, words.len()))?;
        self.flush()?;
        // The map has fewer registers than 32 bits count.
        let run = |(at, words): &(Address, &mut [u32])| Run { at: *at, words: words.len() as u32 };
        let runs: Vec<Run> = blocks.iter().map(run).collect();
        let expected: usize = blocks.iter().map(|(_, words)| words.len()).sum();
        let read = to_words(&self.receive_runs(&runs)?);
        if read.len() != expected {
            return Err(self.lose(format!("{} words were read, not {expected}", read.len())));
        }
        let mut left = read.as_slice();
        for (_, words) in blocks {
            let (these, rest) = left.split_at(words.len());
            words.copy_from_slice(these);
            left = rest;
        }
        Ok(())
    }

    /// Writes consecutive registers, now or with the next access.
    ///
    /// # Errors
    /// [`CardError::NoRegister`] without asking the process, and those of [`RemoteRegisters::flush`].
    fn write_words(&mut self, at: Address, words: &[u32]) -> Result<(), CardError> {
        check_registers(at, words.len())?;
        self.writes().push(at, words);
        if self.writes().is_full() { self.flush() } else { Ok(()) }
    }
}

/// Whether all of these are registers of the map.
fn check_registers(at: Address, words: usize) -> Result<(), CardError> {
    let mut addresses = (at..).step_by(4).take(words);
    match addresses.find(|at| !registers::is_register(*at)) {
        Some(at) => Err(CardError::NoRegister(at)),
        None => Ok(()),
    }
}

/// A socket whose reads and writes end at a time, with [`io::ErrorKind::TimedOut`].
#[derive(Debug)]
pub struct Deadlined {
    socket: UnixStream,
    until: Instant,
}

impl Deadlined {
    /// A socket that times out at once until [`Deadlined::allow`] is called.
    pub fn new(socket: UnixStream) -> Self {
        Self { socket, until: Instant::now() }
    }

    /// Lets reads and writes go on for `limit` from now.
    pub fn allow(&mut self, limit: Duration) {
        self.until = Instant::now() + limit;
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

/// A socket reports `WouldBlock` when its timeout has passed.
fn timed_out<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}

impl Read for Deadlined {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        timed_out(self.socket.read(bytes))
    }
}

impl Write for Deadlined {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        timed_out(self.socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_to_neighbours_are_one_run_and_keep_their_order() {
        let mut writes = Writes::default();
        writes.push(0x100, &[1, 2]);
        writes.push(0x108, &[3]);
        writes.push(0x100, &[4]);
        let (runs, payload) = writes.take();
        assert_eq!(runs, [Run { at: 0x100, words: 3 }, Run { at: 0x100, words: 1 }]);
        assert_eq!(to_words(&payload), [1, 2, 3, 4]);
        assert!(writes.is_empty() && writes.take().0.is_empty());
    }

    #[test]
    fn a_socket_that_says_nothing_is_late() {
        let (ours, _theirs) = UnixStream::pair().expect("sockets");
        let mut socket = Deadlined::new(ours);
        socket.allow(Duration::from_millis(5));
        let error = socket.read(&mut [0]).expect_err("nothing was written");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_frame_longer_than_any_may_be_is_refused() {
        let payload = vec![0; PAYLOAD_BYTES_MAX + 1];
        assert!(send(&mut Vec::new(), &0_u8, &payload).is_err());
    }

    /// A process that notes what it is asked for, and reads each register as its address.
    #[derive(Default)]
    struct RecordingProcess {
        writes: Writes,
        asked: Vec<String>,
        words_short: usize,
    }

    impl RemoteRegisters for RecordingProcess {
        fn writes(&mut self) -> &mut Writes {
            &mut self.writes
        }

        fn send_writes(&mut self, runs: Vec<Run>, payload: &[u8]) -> Result<(), CardError> {
            self.asked.push(format!("write {} runs, {} bytes", runs.len(), payload.len()));
            Ok(())
        }

        fn receive_words(&mut self, at: Address, words: u32) -> Result<Vec<u8>, CardError> {
            self.asked.push(format!("read {words}"));
            let addresses: Vec<u32> = (at..).step_by(4).take(words as usize).collect();
            Ok(to_bytes(&addresses[self.words_short..]))
        }

        fn lose(&mut self, reason: String) -> CardError {
            CardError::Lost(reason)
        }
    }

    #[test]
    fn writes_travel_together_before_the_next_read() {
        let mut card = RecordingProcess::default();
        let (first, second) = (registers::SHADOW_BANK, registers::ACTIVE_BANK);
        card.write_words(first, &[1, 2]).expect("registers");
        card.write_words(first + 8, &[3]).expect("the next ones");
        card.write_words(second, &[4]).expect("others");
        assert!(card.asked.is_empty(), "{:?}", card.asked);
        let mut words = [0; 2];
        card.read_words(first, &mut words).expect("registers");
        assert_eq!(words, [first, first + 4]);
        card.read_words(first, &mut words).expect("registers");
        assert_eq!(card.asked, ["write 2 runs, 16 bytes", "read 2", "read 2"]);
    }

    #[test]
    fn several_blocks_are_read_behind_the_writes_and_each_gets_its_own_words() {
        let mut card = RecordingProcess::default();
        let first = registers::SHADOW_BANK;
        card.write_words(first, &[1]).expect("a register");
        let (mut one, mut three) = ([0], [0; 3]);
        let blocks = &mut [(first + 8, &mut one[..]), (first, &mut three[..])];
        card.read_runs(blocks).expect("registers");
        assert_eq!((one, three), ([first + 8], [first, first + 4, first + 8]));
        assert_eq!(card.asked, ["write 1 runs, 4 bytes", "read 1", "read 3"]);
        let beyond = Address::MAX & !3;
        let refused = card.read_runs(&mut [(first, &mut one), (beyond, &mut three)]);
        assert!(matches!(refused, Err(CardError::NoRegister(at)) if at == beyond), "{refused:?}");
        assert_eq!(card.asked.len(), 3, "not even the first block was asked for");
    }

    #[test]
    fn invalid_registers_are_refused_locally_and_a_reply_of_wrong_length_loses_the_card() {
        let mut card = RecordingProcess { words_short: 1, ..RecordingProcess::default() };
        let beyond = Address::MAX & !3;
        let refused = [card.write_words(beyond, &[1]), card.read_words(beyond, &mut [0])];
        for refused in refused {
            assert!(
                matches!(refused, Err(CardError::NoRegister(at)) if at == beyond),
                "{refused:?}"
            );
        }
        assert!(card.asked.is_empty(), "{:?}", card.asked);
        let lost =
            card.read_words(registers::SHADOW_BANK, &mut [0; 3]).expect_err("a word is missing");
        assert_eq!(lost.to_string(), "the card is lost: 2 words were read, not 3");
    }
}
