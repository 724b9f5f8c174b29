//! The worker: the one process that calls XRT, for one card.
//!
//! It does one request after the other and waits for nothing but the library. When the daemon is
//! gone it goes too, also out of a driver call that does not return: a second thread watches the
//! socket and ends the process group.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpgrp, kill_process_group};
use snic_domain::Digest;
use snic_tables::registers::{
    Address, BANK_BYTES, BULK_BUFFER_HIGH, BULK_BUFFER_LOW, BULK_BUSY, BULK_BYTES, BULK_DONE,
    BULK_START, BULK_STATUS, BULK_TO_HOST, BULK_TO_TABLES, CAPABILITIES, CAPABILITY_BULK, MAGIC,
    MAGIC_VALUE, SHADOW_BANK,
};
use uuid::Uuid;

use crate::environment;
use crate::library::{Buffer, Device, Kernel, LibraryError, Xrt};
use crate::protocol::{
    CardSelector, ExamineStep, IDENTIFY_WORDS, Run, TracedRequest, TracedWork, WorkerReply,
    WorkerRequest, receive, send, to_bytes, to_words,
};
use crate::sysfs::read_device;

/// Bytes of the buffer for bulk transfers: twice a bank.
const BULK_BUFFER: usize = 1 << 20;
/// Words from which on a buffer and a doorbell are fewer accesses than the words themselves: five
/// registers and the copy.
const BULK_WORDS_MIN: usize = 16;
/// Bytes of a record before its words: address and number.
const RECORD_HEAD: usize = 8;
/// Time after which a bulk transfer counts as failed: the largest is half a megabyte.
const BULK_LIMIT: Duration = Duration::from_secs(1);
/// The argument of the register map's kernel that reaches the memory for buffers.
const BUFFER_ARGUMENT: u8 = 0;

/// Why the worker ended.
#[derive(Debug, thiserror::Error)]
pub enum WorkerEnd {
    /// The socket to the daemon.
    #[error("the daemon's end of the socket: {0}")]
    Socket(#[from] io::Error),
}

/// Serves the daemon at the other end of `socket` until it closes the card or is gone.
///
/// # Errors
///
/// [`WorkerEnd::Socket`] where the socket to the daemon fails other than by being closed.
pub fn serve(socket: UnixStream) -> Result<(), WorkerEnd> {
    die_with(socket.try_clone()?)?;
    let mut reader = io::BufReader::new(socket.try_clone()?);
    let mut writer = socket;
    let mut worker = Worker::default();
    loop {
        let (TracedRequest { parent, request }, payload) = match receive(&mut reader) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let is_last = request == WorkerRequest::Close;
        let (reply, answer) = worker.answer_for(parent, request, &payload);
        send(&mut writer, &reply, &answer)?;
        if is_last {
            return Ok(());
        }
    }
}

/// Ends this process group when the other end of the socket is closed.
fn die_with(socket: UnixStream) -> io::Result<()> {
    std::thread::Builder::new().name("daemon-watch".into()).spawn(move || {
        loop {
            let mut fds = [PollFd::new(&socket, PollFlags::RDHUP)];
            match poll(&mut fds, None) {
                Ok(_) if fds[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let _ = kill_process_group(getpgrp(), Signal::KILL);
    })?;
    Ok(())
}

/// Result of a request.
type Answer = Result<(WorkerReply, Vec<u8>), LibraryError>;

#[derive(Default)]
struct Worker {
    xrt: Option<Rc<Xrt>>,
    /// A card with its role, whose register map was not taken yet.
    opened: Option<(Device, Uuid)>,
    card: Option<OpenCard>,
    examined: ExaminationFindings,
    /// Work done for traces whose step has not ended.
    work: BTreeMap<String, TracedWork>,
}

/// A card whose register map is this process's own. Handles are closed in this order.
struct OpenCard {
    bulk: Option<Buffer>,
    buffers: BTreeMap<u64, Buffer>,
    group: u32,
    kernel: Kernel,
    device: Device,
}

impl Worker {
    /// An answer, counted for the trace that it is for.
    fn answer_for(
        &mut self,
        parent: Option<String>,
        request: WorkerRequest,
        payload: &[u8],
    ) -> (WorkerReply, Vec<u8>) {
        if let WorkerRequest::Tell { parent } = &request {
            return (WorkerReply::Told(self.work.remove(parent)), Vec::new());
        }
        let Some(parent) = parent else { return self.answer(request, payload) };
        let first = SystemTime::now();
        let (words, bytes) = match &request {
            WorkerRequest::Read { runs } | WorkerRequest::Write { runs } => {
                (runs.iter().map(|run| u64::from(run.words)).sum(), 0)
            }
            WorkerRequest::Stage => (0, payload.len() as u64),
            _ => (0, 0),
        };
        let answer = self.answer(request, payload);
        let none = TracedWork {
            first,
            last: first,
            accesses: 0,
            words: 0,
            bytes: 0,
            pid: std::process::id(),
        };
        let work = self.work.entry(parent).or_insert(none);
        work.accesses += 1;
        work.words += words;
        work.bytes += bytes;
        work.last = SystemTime::now();
        answer
    }

    fn answer(&mut self, request: WorkerRequest, payload: &[u8]) -> (WorkerReply, Vec<u8>) {
        let answer = match request {
            WorkerRequest::Open { device, role, digest, force } => {
                self.open(device, RoleFile { path: &role, digest }, force)
            }
            WorkerRequest::Take { control } => self.take(&control),
            WorkerRequest::Examine { step, device, role, digest, control } => {
                let role = RoleFile { path: &role, digest };
                let problem = self.examine(step, device, role, &control).err();
                Ok((WorkerReply::Examined(problem), Vec::new()))
            }
            WorkerRequest::ReadDevice { device } => {
                Ok((WorkerReply::Device(read_device(&device)), Vec::new()))
            }
            WorkerRequest::Reset { device } => self.reset(device),
            WorkerRequest::Close => {
                (self.card, self.opened) = (None, None);
                Ok((WorkerReply::Done, Vec::new()))
            }
            request => match &mut self.card {
                Some(card) => card.answer(request, payload),
                None => return failed("no card is open"),
            },
        };
        answer.unwrap_or_else(failed)
    }

    fn open(&mut self, which: CardSelector, role: RoleFile<'_>, force: bool) -> Answer {
        (self.card, self.opened) = (None, None);
        let xrt = match self.xrt() {
            Ok(xrt) => xrt,
            Err(what) => return Ok((WorkerReply::Failed { what }, Vec::new())),
        };
        if force {
            xrt.force_roles()?;
        }
        let role = match role.read() {
            Ok(role) => role,
            Err(what) => return Ok((WorkerReply::Failed { what }, Vec::new())),
        };
        let device = xrt.open(which)?;
        device.load(&role)?;
        let uuid = device.uuid()?;
        self.opened = Some((device, uuid));
        let version = xrt.version.0.clone();
        Ok((WorkerReply::Opened { uuid: uuid.into_bytes(), version }, Vec::new()))
    }

    fn reset(&mut self, which: CardSelector) -> Answer {
        (self.card, self.opened) = (None, None);
        match self.xrt() {
            Ok(xrt) => xrt.open(which)?.reset()?,
            Err(what) => return Ok(failed(what)),
        }
        Ok((WorkerReply::Done, Vec::new()))
    }

    fn take(&mut self, control: &str) -> Answer {
        let Some((device, uuid)) = self.opened.take() else {
            return Ok(failed("no card with a role was opened"));
        };
        let kernel = device.kernel(uuid, control)?;
        let group = kernel.group(BUFFER_ARGUMENT)?;
        self.card = Some(OpenCard { bulk: None, buffers: BTreeMap::new(), group, kernel, device });
        Ok((WorkerReply::Done, Vec::new()))
    }

    /// XRT, loaded at the first use: where it would abort, it is not called.
    fn xrt(&mut self) -> Result<Rc<Xrt>, String> {
        if let Some(xrt) = &self.xrt {
            return Ok(Rc::clone(xrt));
        }
        let root = environment::check().map_err(|error| error.to_string())?;
        let xrt = Xrt::load(&root).map_err(|error| error.to_string())?;
        let emulation = std::env::var(environment::EMULATION).ok();
        environment::check_registers(&xrt.version, emulation.as_deref())
            .map_err(|error| error.to_string())?;
        Ok(Rc::clone(self.xrt.insert(xrt)))
    }

    /// Does one step of an examination; says what is wrong.
    fn examine(
        &mut self,
        step: ExamineStep,
        which: CardSelector,
        role: RoleFile<'_>,
        control: &str,
    ) -> Result<(), String> {
        let words = |error: LibraryError| error.to_string();
        let xrt = self.xrt()?;
        let done = &mut self.examined;
        match step {
            ExamineStep::LoadXrt => {}
            ExamineStep::ReadRole => done.role = role.read()?,
            ExamineStep::OpenCard => done.device = Some(xrt.open(which).map_err(words)?),
            ExamineStep::LoadRole => done.device()?.load(&done.role).map_err(words)?,
            ExamineStep::AskForRole => done.uuid = done.device()?.uuid().map_err(words)?,
            ExamineStep::TakeMap => {
                done.kernel = Some(done.device()?.kernel(done.uuid, control).map_err(words)?);
            }
            ExamineStep::FindMemory => {
                done.group = done.kernel()?.group(BUFFER_ARGUMENT).map_err(words)?;
            }
            ExamineStep::CopyBuffer => round_trip(done.device()?, done.group)?,
            ExamineStep::ReadRegister => {
                done.kernel()?.read(MAGIC).map_err(words)?;
            }
            ExamineStep::FindMap => {
                identify(done.kernel()?)?;
            }
        }
        Ok(())
    }
}

/// Findings of an examination's steps, for those after them.
#[derive(Default)]
struct ExaminationFindings {
    role: Vec<u8>,
    uuid: Uuid,
    group: u32,
    kernel: Option<Kernel>,
    device: Option<Device>,
}

impl ExaminationFindings {
    fn device(&self) -> Result<&Device, String> {
        self.device.as_ref().ok_or_else(|| "the card is not open".to_owned())
    }

    fn kernel(&self) -> Result<&Kernel, String> {
        self.kernel.as_ref().ok_or_else(|| "the register map was not taken".to_owned())
    }
}

/// A role's file, and the digest of the bytes that the daemon checked.
#[derive(Clone, Copy)]
struct RoleFile<'a> {
    path: &'a Path,
    digest: Digest,
}

impl RoleFile<'_> {
    /// The file's bytes, if they are those that were checked.
    fn read(self) -> Result<Vec<u8>, String> {
        let name = self.path.display();
        let bytes =
            std::fs::read(self.path).map_err(|error| format!("read the role {name}: {error}"))?;
        match Digest::of(&bytes) {
            found if found == self.digest => Ok(bytes),
            found => Err(format!(
                "the role {name} has changed since it was checked: it has the digest {found} instead of {}",
                self.digest
            )),
        }
    }
}

/// The capabilities of a register map that is this driver's. Reads everything twice: a card that answers garbage may
/// give the right word once.
fn identify(kernel: &Kernel) -> Result<u32, String> {
    let read = |at| kernel.read(at).map_err(|error| error.to_string());
    let mut seen = None;
    for _ in 0..IDENTIFY_WORDS / 2 {
        let mark = read(MAGIC)?;
        if mark != MAGIC_VALUE {
            return Err(format!(
                "the register map starts with {mark:#010x} (register {MAGIC:#x}) instead of \
                 {MAGIC_VALUE:#010x}; the role has another kernel of this name, its registers are not \
                 where they should be, or the card answers garbage"
            ));
        }
        let capabilities = read(CAPABILITIES)?;
        let before = *seen.get_or_insert(capabilities);
        if capabilities != before {
            return Err(format!(
                "the capabilities (register {CAPABILITIES:#x}) were {before:#010x} and are \
                 {capabilities:#010x} now, but never change: the card answers garbage"
            ));
        }
    }
    Ok(seen.unwrap_or_default())
}

/// Bytes of the buffer that is copied back and forth: more than one page, and no whole number.
const TRIP_BYTES: usize = 70_001;

fn round_trip(device: &Device, group: u32) -> Result<(), String> {
    let there: Vec<u8> = (0..TRIP_BYTES).map(|i| (i * 7 % 251) as u8).collect();
    let mut back = vec![0; TRIP_BYTES];
    let mut trip = || {
        let buffer = device.buffer(TRIP_BYTES, group)?;
        buffer.write(&there)?;
        buffer.read(&mut back)
    };
    trip().map_err(|error: LibraryError| error.to_string())?;
    if there == back { Ok(()) } else { Err("other bytes came back".to_owned()) }
}

fn failed(what: impl ToString) -> (WorkerReply, Vec<u8>) {
    (WorkerReply::Failed { what: what.to_string() }, Vec::new())
}

/// Runs that fit the buffer together, in their order.
fn batches(runs: &[Run]) -> Vec<Vec<Run>> {
    /// The most words of a run that has the buffer for itself.
    const WORDS_MAX: u32 = ((BULK_BUFFER - RECORD_HEAD) / 4) as u32;
    let mut batches = vec![Vec::new()];
    let mut bytes = 0;
    for run in runs {
        let Run { mut at, words: mut left } = *run;
        while left > 0 {
            let words = left.min(WORDS_MAX);
            let length = RECORD_HEAD + 4 * words as usize;
            if bytes + length > BULK_BUFFER {
                batches.push(Vec::new());
                bytes = 0;
            }
            bytes += length;
            batches.last_mut().expect("there is always one").push(Run { at, words });
            (at, left) = (at.wrapping_add(4 * words), left - words);
        }
    }
    batches
}

impl OpenCard {
    fn answer(&mut self, request: WorkerRequest, payload: &[u8]) -> Answer {
        match request {
            WorkerRequest::Read { runs } => Ok((WorkerReply::Done, self.read(&runs)?)),
            WorkerRequest::Write { runs } => {
                self.write(&runs, &to_words(payload))?;
                Ok((WorkerReply::Done, Vec::new()))
            }
            WorkerRequest::Stage => match self.device.buffer(payload.len().max(1), self.group) {
                Ok(buffer) => {
                    buffer.write(payload)?;
                    let address = buffer.address();
                    self.buffers.insert(address, buffer);
                    Ok((WorkerReply::Staged { address }, Vec::new()))
                }
                Err(_) => Ok((WorkerReply::NoMemory, Vec::new())),
            },
            WorkerRequest::Release { address } => {
                let removed = self.buffers.remove(&address);
                Ok((
                    if removed.is_some() { WorkerReply::Done } else { WorkerReply::NoBuffer },
                    Vec::new(),
                ))
            }
            WorkerRequest::Identify => match identify(&self.kernel) {
                Ok(capabilities) => {
                    let bulk = capabilities & CAPABILITY_BULK != 0;
                    Ok((WorkerReply::Identified { bulk }, Vec::new()))
                }
                Err(what) => Ok(failed(what)),
            },
            WorkerRequest::ReserveBulk => {
                self.bulk = Some(self.device.buffer(BULK_BUFFER, self.group)?);
                Ok((WorkerReply::Done, Vec::new()))
            }
            WorkerRequest::Errors => {
                Ok((WorkerReply::Errors(self.device.driver_errors()), Vec::new()))
            }
            WorkerRequest::Open { .. }
            | WorkerRequest::ReadDevice { .. }
            | WorkerRequest::Take { .. }
            | WorkerRequest::Examine { .. }
            | WorkerRequest::Tell { .. }
            | WorkerRequest::Reset { .. }
            | WorkerRequest::Close => Ok(failed("that is not asked of an open card")),
        }
    }

    /// Reads runs in their order, many of them in bulk where that is possible.
    fn read(&self, runs: &[Run]) -> Result<Vec<u8>, LibraryError> {
        let total: usize = runs.iter().map(|run| run.words as usize).sum();
        let mut bytes = Vec::with_capacity(4 * total);
        match &self.bulk {
            Some(buffer) if total >= BULK_WORDS_MIN => {
                for batch in batches(runs) {
                    self.read_batch(buffer, &batch, &mut bytes)?;
                }
            }
            _ => {
                for run in runs {
                    for at in (run.at..).step_by(4).take(run.words as usize) {
                        bytes.extend(self.kernel.read(at)?.to_le_bytes());
                    }
                }
            }
        }
        Ok(bytes)
    }

    /// One transfer: a record for each run.
    fn read_batch(
        &self,
        buffer: &Buffer,
        runs: &[Run],
        out: &mut Vec<u8>,
    ) -> Result<(), LibraryError> {
        let mut records = Vec::new();
        let mut heads_end = 0;
        for run in runs {
            records.extend([run.at, run.words]);
            heads_end = 4 * records.len();
            records.resize(records.len() + run.words as usize, 0);
        }
        let mut bytes = to_bytes(&records);
        // What is behind the last head comes from the card.
        buffer.write(&bytes[..heads_end])?;
        self.ring(buffer, BULK_TO_HOST, bytes.len())?;
        buffer.read(&mut bytes)?;
        let mut left = bytes.as_slice();
        for run in runs {
            let (words, rest) = left[RECORD_HEAD..].split_at(4 * run.words as usize);
            out.extend(words);
            left = rest;
        }
        Ok(())
    }

    /// Writes runs in their order: those of the tables through the buffer where that is possible,
    /// all others register by register.
    fn write(&self, runs: &[Run], mut words: &[u32]) -> Result<(), LibraryError> {
        let mut batch = Vec::new();
        for run in runs {
            let Some((these, rest)) = words.split_at_checked(run.words as usize) else { break };
            words = rest;
            let is_table = (SHADOW_BANK..SHADOW_BANK + BANK_BYTES).contains(&run.at);
            let is_batched = self.bulk.is_some() && is_table && these.len() + 2 <= BULK_BUFFER / 4;
            if !is_batched || batch.len() + these.len() + 2 > BULK_BUFFER / 4 {
                self.write_batch(&mut batch)?;
            }
            if is_batched {
                batch.extend([run.at, run.words]);
                batch.extend(these);
            } else {
                self.write_words(run.at, these)?;
            }
        }
        self.write_batch(&mut batch)
    }

    fn write_words(&self, at: Address, words: &[u32]) -> Result<(), LibraryError> {
        (at..).step_by(4).zip(words).try_for_each(|(at, word)| self.kernel.write(at, *word))
    }

    /// A batch of records: address, number of words, words.
    fn write_batch(&self, batch: &mut Vec<u32>) -> Result<(), LibraryError> {
        match &self.bulk {
            Some(buffer) if batch.len() >= BULK_WORDS_MIN => {
                let bytes = to_bytes(batch);
                buffer.write(&bytes)?;
                self.ring(buffer, BULK_TO_TABLES, bytes.len())?;
            }
            _ => {
                let mut left = batch.as_slice();
                while let [at, count, rest @ ..] = left {
                    let (words, rest) = rest.split_at((*count as usize).min(rest.len()));
                    self.write_words(*at, words)?;
                    left = rest;
                }
            }
        }
        batch.clear();
        Ok(())
    }

    fn ring(&self, buffer: &Buffer, what: u32, bytes: usize) -> Result<(), LibraryError> {
        let address = buffer.address();
        self.kernel.write(BULK_BUFFER_LOW, address as u32)?;
        self.kernel.write(BULK_BUFFER_HIGH, (address >> 32) as u32)?;
        // At most a mebibyte.
        self.kernel.write(BULK_BYTES, bytes as u32)?;
        self.kernel.write(BULK_START, what)?;
        let since = Instant::now();
        loop {
            match self.kernel.read(BULK_STATUS)? {
                BULK_BUSY if since.elapsed() < BULK_LIMIT => std::thread::yield_now(),
                BULK_DONE => return Ok(()),
                status => {
                    let call = format!("a bulk transfer of {bytes} bytes (status {status})");
                    let source = io::Error::from(io::ErrorKind::Other);
                    return Err(LibraryError::Call { call, source });
                }
            }
        }
    }
}
