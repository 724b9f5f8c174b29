//! The simulated shell's process, and the frames by which it is driven: `bitstreams/shell/sim/main.cpp` says which.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Response of AXI4-Lite to an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// The access was made.
    Okay,
    /// The slave refused it.
    SlaveError,
    /// No register is there.
    DecodeError,
}

/// Fault of what surrounds the shell: of ICAPE3, of regions that are loaded, of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedFault {
    /// All is well.
    None,
    /// ICAPE3 reports an error (PRERROR) at this word behind the synchronisation.
    ErrorAfter(u32),
    /// From this word on ICAPE3 is not available (AVAIL), until there is another fault or none.
    GoneAfter(u32),
    /// ICAPE3 does not report the end of a stream (PRDONE).
    NeverDone,
    /// The ROM of a region says something else the second time.
    RomChanges,
    /// It has no NT.
    RomEmpty,
    /// Its second slot is empty, its third is not.
    RomGap,
    /// It has no identity.
    RomNobody,
    /// The memory does not answer, until there is another fault or none.
    MemorySilent,
}

impl InjectedFault {
    /// Number of its kind, as the process knows it, and its argument.
    const fn words(self) -> [u32; 2] {
        match self {
            Self::None => [0, 0],
            Self::ErrorAfter(word) => [1, word],
            Self::GoneAfter(word) => [2, word],
            Self::NeverDone => [3, 0],
            Self::RomChanges => [4, 0],
            Self::RomEmpty => [5, 0],
            Self::RomGap => [6, 0],
            Self::RomNobody => [7, 0],
            Self::MemorySilent => [8, 0],
        }
    }
}

/// State of the pins towards the regions, and events at ICAPE3 since power-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// Regions that are coupled, a bit for each.
    pub coupled: u32,
    /// Regions that are held in reset.
    pub in_reset: u32,
    /// Streams that ended.
    pub streams: u32,
    /// Streams that were aborted.
    pub aborts: u32,
}

/// A run of the simulation. It ends when this is dropped.
#[derive(Debug)]
pub struct RtlProcess {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl RtlProcess {
    /// Starts the program. The seed draws what every variable begins with, and when each side of a bus waits.
    ///
    /// # Errors
    /// The program does not start.
    pub fn start(program: &Path, seed: u32) -> io::Result<Self> {
        let mut child = Command::new(program)
            .arg(seed.to_string())
            .arg("+verilator+rand+reset+2")
            .arg(format!("+verilator+seed+{}", seed.max(1)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("no pipe");
        let requests = child.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Self { child, requests, answers })
    }

    pub(crate) fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        parts.iter().try_for_each(|part| self.requests.write_all(part))?;
        self.requests.flush()
    }

    pub(crate) fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.answers.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) const fn answers(&mut self) -> &mut BufReader<ChildStdout> {
        &mut self.answers
    }

    fn response(&mut self) -> io::Result<Response> {
        match self.take()? {
            [0] => Ok(Response::Okay),
            [2] => Ok(Response::SlaveError),
            [3] => Ok(Response::DecodeError),
            [other] => Err(io::Error::other(format!("response {other}"))),
        }
    }

    /// Status of a run of accesses, and how many of them were done.
    fn status(&mut self) -> io::Result<(Response, usize)> {
        Ok((self.response()?, u32::from_le_bytes(self.take()?) as usize))
    }

    /// Reads consecutive words, up to the first that is not answered with OKAY.
    ///
    /// # Errors
    /// The process has ended.
    pub fn read(&mut self, at: u32, words: &mut [u32]) -> io::Result<(Response, usize)> {
        self.send(&[b"R", &at.to_le_bytes(), &(words.len() as u32).to_le_bytes()])?;
        let (response, done) = self.status()?;
        for word in words.iter_mut().take(done) {
            *word = u32::from_le_bytes(self.take()?);
        }
        Ok((response, done))
    }

    /// Writes consecutive words, in the same way.
    ///
    /// # Errors
    /// The process has ended.
    pub fn write(&mut self, at: u32, words: &[u32]) -> io::Result<(Response, usize)> {
        let count = (words.len() as u32).to_le_bytes();
        self.send(&[b"W", &at.to_le_bytes(), &count, &to_bytes(words)])?;
        self.status()
    }

    /// Writes the bytes of a word that `strobes` names, the lowest bit for the lowest byte.
    ///
    /// # Errors
    /// The process has ended.
    pub fn write_bytes(&mut self, at: u32, strobes: u32, word: u32) -> io::Result<Response> {
        self.send(&[b"P", &at.to_le_bytes(), &strobes.to_le_bytes(), &word.to_le_bytes()])?;
        self.response()
    }

    /// Offers a write and a read in the same cycle; the responses to both, and the word.
    ///
    /// # Errors
    /// The process has ended.
    pub fn write_and_read(
        &mut self,
        (at, word): (u32, u32),
        from: u32,
    ) -> io::Result<(Response, Response, u32)> {
        self.send(&[b"X", &at.to_le_bytes(), &word.to_le_bytes(), &from.to_le_bytes()])?;
        Ok((self.response()?, self.response()?, u32::from_le_bytes(self.take()?)))
    }

    /// Writes to the card's memory.
    ///
    /// # Errors
    /// The process has ended: also where the memory does not reach so far.
    pub fn write_memory(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.send(&[b"M", &at.to_le_bytes(), &(bytes.len() as u32).to_le_bytes(), bytes])?;
        self.take().map(|[_]: [u8; 1]| ())
    }

    /// Reads from it.
    ///
    /// # Errors
    /// As [`RtlProcess::write_memory`].
    pub fn read_memory(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.send(&[b"m", &at.to_le_bytes(), &(bytes.len() as u32).to_le_bytes()])?;
        self.answers.read_exact(bytes)
    }

    /// Lets cycles pass; says how many have passed in all, and how many the longest access took.
    ///
    /// # Errors
    /// The process has ended.
    pub fn step(&mut self, cycles: u64) -> io::Result<(u64, u32)> {
        self.send(&[b"S", &cycles.to_le_bytes()])?;
        Ok((u64::from_le_bytes(self.take()?), u32::from_le_bytes(self.take()?)))
    }

    /// Has something go wrong from now on, or nothing any more.
    ///
    /// # Errors
    /// The process has ended.
    pub fn set_fault(&mut self, fault: InjectedFault) -> io::Result<()> {
        let [kind, number] = fault.words();
        self.send(&[b"F", &kind.to_le_bytes(), &number.to_le_bytes()])?;
        self.take().map(|[_]: [u8; 1]| ())
    }

    /// Looks at the pins of regions and configuration port.
    ///
    /// # Errors
    /// The process has ended.
    pub fn surroundings(&mut self) -> io::Result<Surroundings> {
        self.send(&[b"O"])?;
        let mut words = [0; 4];
        for word in &mut words {
            *word = u32::from_le_bytes(self.take()?);
        }
        let [coupled, in_reset, streams, aborts] = words;
        Ok(Surroundings { coupled, in_reset, streams, aborts })
    }

    /// Holds the reset for some cycles.
    ///
    /// # Errors
    /// The process has ended.
    pub fn reset(&mut self, cycles: u64) -> io::Result<()> {
        self.send(&[b"Z", &cycles.to_le_bytes()])?;
        self.take().map(|[_]: [u8; 1]| ())
    }
}

pub(crate) fn to_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Drop for RtlProcess {
    fn drop(&mut self) {
        // It ends by itself once its input does; whoever is in the middle of an access is not waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
