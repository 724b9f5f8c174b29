//! The daemon's side: a card in another process.
//!
//! Writes are buffered here until something is read, staged, released or polled: then they are sent together, in
//! their order. What a write does is seen by the next access, as the port says.

use std::io::{self, BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use snic_domain::{CardModel, Timestamp};
use snic_ports::card::{Buffers, Card, CardError, Registers};
use snic_ports::remote::{Deadlined, RemoteRegisters, Run, Writes, receive, send};
use snic_tables::registers::{self, Address};

use crate::SoftCardSettings;
use crate::process::{CardFolder, Program, connect};
use crate::protocol::{ControlReply, ControlRequest, Observation, VERSION};

/// Longest time of an access: the card's thread does one thing after the other, the longest being the check
/// of a bitstream of 16 MiB.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// Interval at which a quiet card is asked whether it is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A card process that was found or started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardProcess {
    /// Its process id.
    pub pid: u32,
}

/// A card in another process.
#[derive(Debug)]
pub struct SoftCard {
    model: CardModel,
    socket: BufReader<Deadlined>,
    writes: Writes,
    link: CardProcess,
    looked: Instant,
    /// Whether a request of [`SoftCard::call_patiently`] has no answer yet.
    awaits_answer: bool,
    /// Why it is lost.
    lost: Option<String>,
}

impl SoftCard {
    /// Connects to the card at `place`, and starts it where none is.
    ///
    /// # Errors
    /// In words: the process cannot be started, or the one that is there has other settings or another
    /// version.
    pub fn open(
        place: &CardFolder,
        program: &Program,
        model: CardModel,
        settings: &SoftCardSettings,
    ) -> Result<Self, String> {
        Self::over(connect(place, program, settings)?, model, settings)
    }

    /// Connects to the card at `place`, if one is there.
    ///
    /// # Errors
    /// In words: none is there, or it has other settings or another version.
    pub fn connect(
        place: &CardFolder,
        model: CardModel,
        settings: &SoftCardSettings,
    ) -> Result<Self, String> {
        let socket = place.socket();
        let stream = UnixStream::connect(&socket)
            .map_err(|error| format!("no card at {}: {error}", socket.display()))?;
        Self::over(stream, model, settings)
    }

    /// A card behind a socket.
    pub(crate) fn over(
        stream: UnixStream,
        model: CardModel,
        settings: &SoftCardSettings,
    ) -> Result<Self, String> {
        let socket = BufReader::new(Deadlined::new(stream));
        let mut card = Self {
            model,
            socket,
            writes: Writes::default(),
            link: CardProcess { pid: 0 },
            looked: Instant::now(),
            awaits_answer: false,
            lost: None,
        };
        let hello = card.call(&ControlRequest::Hello { version: VERSION }, &[]);
        let (reply, _) = hello.map_err(|error| error.to_string())?;
        let ControlReply::Card { version, settings: text, pid } = reply else {
            return Err(format!("the card's process answered {reply:?}"));
        };
        let advice = format!("stop it with `kill {pid}`: the next one starts with empty tables");
        if version != VERSION {
            return Err(format!(
                "the card's process {pid} speaks version {version} of the protocol, not {VERSION}; {advice}"
            ));
        }
        match serde_json::from_str::<SoftCardSettings>(&text) {
            Ok(its) if its == *settings => {}
            _ => {
                let wanted = serde_json::to_string(settings).unwrap_or_default();
                return Err(format!(
                    "the card's process {pid} runs with {text}, the settings say {wanted}; {advice}"
                ));
            }
        }
        card.link = CardProcess { pid };
        Ok(card)
    }

    pub const fn link(&self) -> CardProcess {
        self.link
    }

    /// Counts of its ports and NTs.
    ///
    /// # Errors
    /// [`CardError::Lost`].
    pub fn observe(&mut self) -> Result<Observation, CardError> {
        match self.call(&ControlRequest::Observe, &[])? {
            (ControlReply::Seen(observation), _) => Ok(observation),
            (other, _) => Err(self.lose(format!("the card's process answered {other:?}"))),
        }
    }

    pub(crate) fn call(
        &mut self,
        request: &ControlRequest,
        payload: &[u8],
    ) -> Result<(ControlReply, Vec<u8>), CardError> {
        if let Some(reason) = &self.lost {
            return Err(CardError::Lost(reason.clone()));
        }
        let socket = self.socket.get_mut();
        socket.allow(CALL_LIMIT);
        let answer = send(socket, request, payload).and_then(|()| receive(&mut self.socket));
        self.answered(answer)
    }

    /// The same for a request of a capture or a load, where a card that says nothing is not lost: its process may be
    /// stopped, and goes on with all that it has. `None` where no answer came in time; it is for the next call of this
    /// function then, which has to be about the same.
    pub(crate) fn call_patiently(
        &mut self,
        request: &ControlRequest,
    ) -> Result<Option<(ControlReply, Vec<u8>)>, CardError> {
        if let Some(reason) = &self.lost {
            return Err(CardError::Lost(reason.clone()));
        }
        self.socket.get_mut().allow(CALL_LIMIT);
        if !std::mem::replace(&mut self.awaits_answer, true)
            && let Err(error) = send(self.socket.get_mut(), request, &[])
        {
            return self.answered(Err(error)).map(Some);
        }
        // No byte is taken while it waits, so an answer that comes late is read whole.
        match self.socket.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(None),
            Err(error) => return self.answered(Err(error)).map(Some),
            Ok(_) => {}
        }
        self.socket.get_mut().allow(CALL_LIMIT);
        let answer = receive(&mut self.socket);
        self.awaits_answer = false;
        self.answered(answer).map(Some)
    }

    /// Whether another request can be sent: none waits for its answer.
    pub(crate) const fn is_ready(&self) -> bool {
        !self.awaits_answer
    }

    fn answered(
        &mut self,
        answer: io::Result<(ControlReply, Vec<u8>)>,
    ) -> Result<(ControlReply, Vec<u8>), CardError> {
        match answer {
            Ok((ControlReply::Failed { what }, _)) => Err(self.lose(what)),
            Ok(answer) => Ok(answer),
            Err(error) => {
                let how = match error.kind() {
                    io::ErrorKind::TimedOut => format!("did not answer within {CALL_LIMIT:?}"),
                    io::ErrorKind::InvalidData => format!("answered garbage ({error})"),
                    _ => "is gone".to_owned(),
                };
                Err(self.lose(format!("the card's process {} {how}", self.link.pid)))
            }
        }
    }

    pub(crate) fn done(
        &mut self,
        request: &ControlRequest,
        payload: &[u8],
    ) -> Result<Vec<u8>, CardError> {
        match self.call(request, payload)? {
            (ControlReply::Done, payload) => Ok(payload),
            (ControlReply::NoRegister { at }, _) => Err(CardError::NoRegister(at)),
            (other, _) => Err(self.lose(format!("the card's process answered {other:?}"))),
        }
    }
}

impl RemoteRegisters for SoftCard {
    fn writes(&mut self) -> &mut Writes {
        &mut self.writes
    }

    fn send_writes(&mut self, runs: Vec<Run>, payload: &[u8]) -> Result<(), CardError> {
        self.done(&ControlRequest::Write { runs }, payload).map(|_| ())
    }

    fn receive_words(&mut self, at: Address, words: u32) -> Result<Vec<u8>, CardError> {
        self.done(&ControlRequest::Read { at, words }, &[])
    }

    fn lose(&mut self, reason: String) -> CardError {
        self.writes.clear();
        self.lost = Some(reason.clone());
        CardError::Lost(reason)
    }
}

impl Registers for SoftCard {
    fn read(&mut self, at: Address) -> Result<u32, CardError> {
        let mut word = [0];
        self.read_block(at, &mut word)?;
        Ok(word[0])
    }

    fn write(&mut self, at: Address, value: u32) -> Result<(), CardError> {
        self.write_block(at, &[value])
    }

    fn read_block(&mut self, at: Address, words: &mut [u32]) -> Result<(), CardError> {
        self.read_words(at, words)
    }

    fn read_blocks(&mut self, blocks: &mut [(Address, &mut [u32])]) -> Result<(), CardError> {
        self.read_runs(blocks)
    }

    fn write_block(&mut self, at: Address, words: &[u32]) -> Result<(), CardError> {
        self.write_words(at, words)
    }
}

impl Buffers for SoftCard {
    fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError> {
        self.flush()?;
        match self.call(&ControlRequest::Stage, bytes)? {
            (ControlReply::Staged { address }, _) => Ok(address),
            (ControlReply::NoMemory, _) => Err(CardError::NoMemory { bytes: bytes.len() }),
            (other, _) => Err(self.lose(format!("the card's process answered {other:?}"))),
        }
    }

    fn release(&mut self, address: u64) -> Result<(), CardError> {
        self.flush()?;
        match self.call(&ControlRequest::Release { address }, &[])? {
            (ControlReply::Done, _) => Ok(()),
            (ControlReply::NoBuffer, _) => Err(CardError::NoBuffer(address)),
            (other, _) => Err(self.lose(format!("the card's process answered {other:?}"))),
        }
    }
}

impl Card for SoftCard {
    fn model(&self) -> &CardModel {
        &self.model
    }

    /// The card has a clock of its own; but what was written gets there, and a process that died is
    /// noticed.
    fn poll(&mut self, _now: Timestamp) -> Result<(), CardError> {
        self.flush()?;
        if self.looked.elapsed() >= LOOK_INTERVAL {
            self.looked = Instant::now();
            self.read(registers::BOOT_ID)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use snic_bitstream::catalogue;
    use snic_domain::{ByteSize, CardProfile, ChainIdentity, NtType, ReportedChain};
    use snic_ports::card::conformance::{Fixture, StartLoad};

    use super::*;
    use crate::{control, generator};

    fn profile() -> CardProfile {
        let catalogue = catalogue::builtin().expect("the built-in catalogue");
        let model = CardModel::new("sim-16").expect("a label");
        let profile = catalogue.card(&model).expect("it is there").clone();
        // Slow enough that a busy machine sees a load while it is under way.
        CardProfile { configuration_bytes_per_second: 40 << 20, ..profile }
    }

    /// An image of a chain that takes 50 ms to load.
    fn image(chain: &[&str]) -> Vec<u8> {
        let catalogue = catalogue::builtin().expect("the built-in catalogue");
        let nt = |id: &&str| catalogue.nt_types.iter().find(|nt| nt.id.as_str() == *id);
        let chain: Vec<&NtType> =
            chain.iter().map(|id| nt(id).expect("in the catalogue")).collect();
        snic_bitstream::build_test(&profile(), &chain, ByteSize::from_mib(2)).expect("it fits")
    }

    /// First bytes of what a chain says of itself.
    const ROM_MAGIC: &[u8] = b"SNIC";

    fn fixture() -> Fixture {
        let folder = tempfile::tempdir().expect("a folder").keep();
        let place = CardFolder::new(&folder);
        control::tests::start(&place, profile());
        let nts: [&[&str]; 2] = [&["kv-cache", "nat"], &["firewall"]];
        let images: [Arc<[u8]>; 2] = nts.map(|nts| image(nts).into());
        let chains = nts.map(|nts| {
            let nts: Vec<_> = nts.iter().map(|id| id.parse().expect("a label")).collect();
            ReportedChain::of(&nts, ChainIdentity::of_nts(&nts))
        });
        let mut damaged = images[0].to_vec();
        // Test images have no CRC; what a chain says of itself has one.
        let rom = damaged.windows(4).position(|word| word == ROM_MAGIC).expect("it has a ROM");
        damaged[rom + 12] ^= 0x10;
        let stream = UnixStream::connect(place.socket()).expect("it listens");
        let model = profile().model;
        let settings = SoftCardSettings {
            model: model.to_string(),
            uplink: None,
            functions: Vec::new(),
            guards: Vec::new(),
            failovers: Vec::new(),
            fast_path: false,
        };
        let card = SoftCard::over(stream, model.clone(), &settings).expect("it answers");
        let other = UnixStream::connect(place.socket()).expect("it listens");
        let other = Cell::new(Some(SoftCard::over(other, model, &settings).expect("it answers")));
        let start_load: StartLoad = Box::new(move |load| {
            let card = other.take().expect("one load for each card");
            generator::begin(card, load).expect("a valid load")
        });
        // The socket is open on both ends; nobody needs its name any more.
        let _ = std::fs::remove_dir_all(folder);
        Fixture {
            card: Box::new(card),
            loads: true,
            images,
            chains,
            damaged: damaged.into(),
            step: Duration::from_micros(200),
            wait: std::thread::sleep,
            start_load: Some(start_load),
        }
    }

    snic_ports::card_conformance!(fixture());
}
