//! A card behind a worker.
//!
//! Writes are buffered here until something is read, staged, released or polled: then they are sent
//! together, in order, so that a row does not cost a round trip. The effect of a write is
//! visible to the next access, as the port requires.

use std::fs;
use std::time::{Duration, Instant};

use snic_domain::{CardModel, Digest, Timestamp};
use snic_ports::card::{Buffers, Card, CardError, Registers};
use snic_ports::remote::{RemoteRegisters, Run, Writes};
use snic_tables::registers::Address;
use uuid::Uuid;

use crate::environment;
use crate::launch::{XrtCardSettings, no_folder, spawn};
use crate::monitor::DriverErrors;
use crate::process::WorkerProcess;
use crate::protocol::{
    ExamineStep, Finding, TracedRequest, TracedWork, WorkerReply, WorkerRequest,
};

/// The log of a card's workers.
const LOG: &str = "worker.log";
/// Interval of the check that an idle worker is alive.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of the question for the driver's errors.
const ERRORS_INTERVAL: Duration = Duration::from_secs(5);

/// Properties of an open card beside its registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XrtCardInfo {
    /// The role that the card holds.
    pub role: Uuid,
    pub xrt_version: String,
    /// Whether tables go through a buffer and one doorbell.
    pub bulk: bool,
}

/// A card that is driven through XRT, by a worker.
pub struct XrtCard {
    model: CardModel,
    settings: XrtCardSettings,
    role: Digest,
    worker: Option<WorkerProcess>,
    link: XrtCardInfo,
    writes: Writes,
    looked: Instant,
    parent: Option<String>,
    tell: Option<Tell>,
    observe: Option<Observe>,
    errors: Option<DriverErrors>,
    errors_read: Instant,
}

/// Receives what the worker did for a trace, named by the header `traceparent`.
pub type Tell = fn(&str, TracedWork);

/// Receives what an access was, in one word, and how long it took.
pub type Observe = Box<dyn Fn(&'static str, Duration) + Send>;

impl XrtCard {
    /// Starts a worker, opens the card, and loads its role, which XRT does
    /// only if the card holds another one, or by force. `role` is the digest of the role's file as it was
    /// checked; a file with another digest is not loaded.
    ///
    /// # Errors
    ///
    /// [`CardError::Lost`] where the worker cannot be started, or the card or its role cannot be
    /// opened.
    pub fn open(
        model: CardModel,
        settings: XrtCardSettings,
        role: Digest,
    ) -> Result<Self, CardError> {
        let worker = start(&settings).map_err(CardError::Lost)?;
        let link = XrtCardInfo { role: Uuid::nil(), xrt_version: String::new(), bulk: false };
        let mut card = Self {
            model,
            settings,
            role,
            worker: Some(worker),
            link,
            writes: Writes::default(),
            looked: Instant::now(),
            parent: None,
            tell: None,
            observe: None,
            errors: None,
            errors_read: Instant::now(),
        };
        card.open_role()?;
        Ok(card)
    }

    /// Tests each step of opening a card until one fails, in a separate worker. Each has a deadline of its own.
    pub fn examine(settings: &XrtCardSettings, role: Digest) -> Vec<Finding> {
        let finding = |step: &str, problem| Finding { step: step.to_owned(), problem };
        let mut worker = match start(settings) {
            Ok(worker) => worker,
            Err(what) => return vec![finding("start the XRT worker", Some(what))],
        };
        let mut findings = Vec::new();
        for step in ExamineStep::ALL {
            let request = WorkerRequest::Examine {
                step,
                device: settings.device,
                role: settings.role.clone(),
                digest: role,
                control: settings.control.clone(),
            };
            let limit = settings.deadlines.of(&request);
            let asked = TracedRequest { parent: None, request };
            let (problem, goes_on) = match worker.call(&asked, &[], limit) {
                // The last steps need no buffer.
                Ok((WorkerReply::Examined(problem), _)) => {
                    let goes_on = problem.is_none() || step == ExamineStep::CopyBuffer;
                    (problem, goes_on)
                }
                Ok((other, _)) => (Some(format!("the XRT worker answered {other:?}")), false),
                Err(what) => (Some(what), false),
            };
            findings.push(finding(step.name(), problem));
            if !goes_on {
                break;
            }
        }
        findings
    }

    /// Has XRT's driver reset the card, in a separate worker. Nobody may have it open.
    ///
    /// # Errors
    ///
    /// Resets the card; the error says what went wrong, and the card may be in any state then.
    pub fn reset(settings: &XrtCardSettings) -> Result<(), String> {
        let request = WorkerRequest::Reset { device: settings.device };
        let limit = settings.deadlines.of(&request);
        let asked = TracedRequest { parent: None, request };
        match start(settings)?.call(&asked, &[], limit)? {
            (WorkerReply::Done, _) => Ok(()),
            (WorkerReply::Failed { what }, _) => Err(what),
            (other, _) => Err(format!("the XRT worker answered {other:?}")),
        }
    }

    /// Passes what the worker does for traces to `tell`; by default it is dropped.
    #[must_use]
    pub fn with_tracer(mut self, tell: Tell) -> Self {
        self.tell = Some(tell);
        self
    }

    /// Passes each access and its time to `observe`; by default it is dropped.
    #[must_use]
    pub fn observing(mut self, observe: Observe) -> Self {
        self.observe = Some(observe);
        self
    }

    /// Has the errors that the driver reports by itself read every few seconds, for the card's monitor.
    #[must_use]
    pub fn reporting_to(mut self, errors: DriverErrors) -> Self {
        self.errors = Some(errors);
        self
    }

    /// Properties of the card beside its registers.
    pub const fn link(&self) -> &XrtCardInfo {
        &self.link
    }

    /// The worker's process id, while there is one.
    pub fn worker_id(&self) -> Option<u32> {
        self.worker.as_ref().and_then(WorkerProcess::id)
    }

    fn open_role(&mut self) -> Result<(), CardError> {
        let (device, role) = (self.settings.device, self.settings.role.clone());
        let (digest, force) = (self.role, self.settings.force_role);
        let open = WorkerRequest::Open { device, role, digest, force };
        let (uuid, xrt_version) = match self.step("opening the card with its role", open)? {
            WorkerReply::Opened { uuid, version } => (Uuid::from_bytes(uuid), version),
            other => return Err(self.lose(format!("the XRT worker answered {other:?}"))),
        };
        let control = self.settings.control.clone();
        self.step("taking the register map", WorkerRequest::Take { control })?;
        let bulk = match self.step("reading the first registers", WorkerRequest::Identify)? {
            WorkerReply::Identified { bulk } => bulk,
            other => return Err(self.lose(format!("the XRT worker answered {other:?}"))),
        };
        if bulk {
            self.step("making the buffer for tables", WorkerRequest::ReserveBulk)?;
        }
        self.link = XrtCardInfo { role: uuid, xrt_version, bulk };
        Ok(())
    }

    /// One step of opening: a call with its own deadline, named in errors.
    fn step(&mut self, name: &str, request: WorkerRequest) -> Result<WorkerReply, CardError> {
        match self.call(request, &[]) {
            Ok((reply, _)) => Ok(reply),
            Err(CardError::Lost(what)) => Err(CardError::Lost(format!("{name}: {what}"))),
            Err(other) => Err(other),
        }
    }

    /// One call. After any error the worker is killed.
    fn call(
        &mut self,
        request: WorkerRequest,
        payload: &[u8],
    ) -> Result<(WorkerReply, Vec<u8>), CardError> {
        let limit = self.settings.deadlines.of(&request);
        let Some(worker) = &mut self.worker else {
            return Err(CardError::Lost("its XRT worker is gone".to_owned()));
        };
        let what = request.access();
        let asked = TracedRequest { parent: self.parent.clone(), request };
        let begun = Instant::now();
        let answer = worker.call(&asked, payload, limit);
        if let (Some(observe), Some(what)) = (&self.observe, what) {
            observe(what, begun.elapsed());
        }
        match answer {
            Ok((WorkerReply::Failed { what }, _)) => Err(self.lose(what)),
            Ok(answer) => Ok(answer),
            Err(what) => Err(self.lose(what)),
        }
    }

    fn done(&mut self, request: WorkerRequest, payload: &[u8]) -> Result<Vec<u8>, CardError> {
        match self.call(request, payload)? {
            (WorkerReply::Done, payload) => Ok(payload),
            (other, _) => Err(self.lose(format!("the XRT worker answered {other:?}"))),
        }
    }
}

/// Starts a worker that can call XRT.
fn start(settings: &XrtCardSettings) -> Result<WorkerProcess, String> {
    let folder = &settings.folder;
    let no_folder = |error| no_folder(folder, &error);
    fs::create_dir_all(folder).map_err(no_folder)?;
    let root = environment::find_root(&settings.environment, folder).map_err(no_folder)?;
    let mut emulation = settings.environment.get(environment::EMULATION).cloned();
    emulation = emulation.or_else(|| std::env::var(environment::EMULATION).ok());
    environment::shim(root.as_deref(), emulation.as_deref()).map_err(|error| error.to_string())?;
    spawn(settings, LOG, root.map(|root| (environment::ROOT, root)))
}

impl RemoteRegisters for XrtCard {
    fn writes(&mut self) -> &mut Writes {
        &mut self.writes
    }

    fn send_writes(&mut self, runs: Vec<Run>, payload: &[u8]) -> Result<(), CardError> {
        self.done(WorkerRequest::Write { runs }, payload).map(|_| ())
    }

    fn receive_words(&mut self, at: Address, words: u32) -> Result<Vec<u8>, CardError> {
        self.receive_runs(&[Run { at, words }])
    }

    fn receive_runs(&mut self, runs: &[Run]) -> Result<Vec<u8>, CardError> {
        self.done(WorkerRequest::Read { runs: runs.to_vec() }, &[])
    }

    fn lose(&mut self, reason: String) -> CardError {
        self.worker = None;
        self.writes.clear();
        CardError::Lost(reason)
    }
}

impl Registers for XrtCard {
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

impl Buffers for XrtCard {
    fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError> {
        self.flush()?;
        match self.call(WorkerRequest::Stage, bytes)? {
            (WorkerReply::Staged { address }, _) => Ok(address),
            (WorkerReply::NoMemory, _) => Err(CardError::NoMemory { bytes: bytes.len() }),
            (other, _) => Err(self.lose(format!("the XRT worker answered {other:?}"))),
        }
    }

    fn release(&mut self, address: u64) -> Result<(), CardError> {
        self.flush()?;
        match self.call(WorkerRequest::Release { address }, &[])? {
            (WorkerReply::Done, _) => Ok(()),
            (WorkerReply::NoBuffer, _) => Err(CardError::NoBuffer(address)),
            (other, _) => Err(self.lose(format!("the XRT worker answered {other:?}"))),
        }
    }
}

impl Card for XrtCard {
    fn model(&self) -> &CardModel {
        &self.model
    }

    /// A real card has its own clock; but buffered writes are sent, and a worker that
    /// died is noticed here.
    fn poll(&mut self, _now: Timestamp) -> Result<(), CardError> {
        self.flush()?;
        if self.looked.elapsed() >= LOOK_INTERVAL {
            self.looked = Instant::now();
            if !self.worker.as_mut().is_some_and(WorkerProcess::is_alive) {
                return Err(self.lose("its XRT worker is gone".to_owned()));
            }
        }
        if self.errors.is_some() && self.errors_read.elapsed() >= ERRORS_INTERVAL {
            self.errors_read = Instant::now();
            match self.call(WorkerRequest::Errors, &[])? {
                (WorkerReply::Errors(errors), _) => {
                    self.errors.iter().for_each(|to| to.set(errors.clone()));
                }
                (other, _) => {
                    return Err(self.lose(format!("the XRT worker answered {other:?}")));
                }
            }
        }
        Ok(())
    }

    /// Buffered writes belong to the time before.
    fn trace(&mut self, parent: Option<&str>) {
        if self.tell.is_some() {
            // If this loses the card, the next access reports it.
            let _ = self.flush();
            self.parent = parent.map(str::to_owned);
        }
    }

    fn trace_ended(&mut self, parent: &str) -> Result<(), CardError> {
        let Some(tell) = self.tell else { return Ok(()) };
        self.flush()?;
        self.parent = None;
        match self.call(WorkerRequest::Tell { parent: parent.to_owned() }, &[])? {
            (WorkerReply::Told(work), _) => work.into_iter().for_each(|work| tell(parent, work)),
            (other, _) => return Err(self.lose(format!("the XRT worker answered {other:?}"))),
        }
        Ok(())
    }
}

impl Drop for XrtCard {
    /// Closes the card in an orderly way, where it still answers.
    fn drop(&mut self) {
        if self.worker.is_some() && self.flush().is_ok() {
            // A worker that does not answer is killed.
            let _ = self.call(WorkerRequest::Close, &[]);
        }
    }
}
