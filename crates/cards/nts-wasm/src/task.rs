//! A module at work for one DAG.

use std::time::Duration;

use snic_domain::Timestamp;
use snic_nts::config::InvalidConfiguration;
use snic_nts::{Context, DropReason, ModuleState, ModuleTask, Packet, Verdict};
use wasmtime::{InstancePre, Memory, Store, Trap, TypedFunc};

use crate::abi::{Answer, BUFFER_BYTES, FRAME_BYTES_MAX, HEADROOM_BYTES, VERSION};
use crate::fuel::{FUEL_PER_PACKET, FUEL_TO_CONFIGURE, FUEL_TO_START};
use crate::host::{EMITTED_MAX, Host};
use crate::state::{Restored, StateFunctions};

/// Wait of a module that has failed for the first time, and at most: it doubles with each failure.
const BACKOFF_MIN: Duration = Duration::from_millis(1);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// After this time without a failure, the next one counts as the first.
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);

pub(crate) struct Instance {
    store: Store<Host>,
    memory: Memory,
    /// Where its buffer is in its memory.
    buffer: usize,
    process: TypedFunc<i32, i64>,
    configure: Option<TypedFunc<i32, i32>>,
    state: Option<StateFunctions>,
}

impl Instance {
    /// Makes an instance. In words, why it cannot.
    pub(crate) fn start(module: &InstancePre<Host>) -> Result<Self, String> {
        let failed = |what: &str, error: wasmtime::Error| format!("{what}: {}", cause(&error));
        let mut store = Store::new(module.module().engine(), Host::new());
        store.limiter(|host| &mut host.limits);
        store.set_fuel(FUEL_TO_START).map_err(|error| failed("no fuel", error))?;
        let instance =
            module.instantiate(&mut store).map_err(|error| failed("it does not start", error))?;
        let memory = instance.get_memory(&mut store, "memory").ok_or("it has no memory")?;
        store.data_mut().memory = Some(memory);
        let mut number = |name: &str| {
            let function = instance
                .get_typed_func::<(), i32>(&mut store, name)
                .map_err(|error| failed(name, error))?;
            function.call(&mut store, ()).map_err(|error| failed(name, error))
        };
        let version = number("snic_abi_version")?;
        if version != VERSION {
            return Err(format!(
                "it is for version {version} of the ABI; version {VERSION} is known"
            ));
        }
        let buffer = number("snic_buffer")?.cast_unsigned() as usize;
        let end = buffer.saturating_add(BUFFER_BYTES);
        if end > memory.data_size(&store) {
            return Err(format!(
                "its buffer of {BUFFER_BYTES} bytes at {buffer} ends behind its memory of {} bytes",
                memory.data_size(&store)
            ));
        }
        let process = instance
            .get_typed_func(&mut store, "snic_process")
            .map_err(|error| failed("snic_process", error))?;
        let configure = instance.get_typed_func(&mut store, "snic_configure").ok();
        let state = StateFunctions::of(&instance, &mut store);
        Ok(Self { store, memory, buffer, process, configure, state })
    }

    /// The module's buffer.
    fn buffer(&mut self) -> &mut [u8] {
        // A memory never shrinks.
        &mut self.memory.data_mut(&mut self.store)[self.buffer..self.buffer + BUFFER_BYTES]
    }

    /// Gives it a configuration; says whether it takes it. An error where it failed.
    fn configure(&mut self, json: &str) -> Result<bool, String> {
        let Some(configure) = self.configure.clone() else { return Ok(false) };
        if json.len() > BUFFER_BYTES {
            return Ok(false);
        }
        self.buffer()[..json.len()].copy_from_slice(json.as_bytes());
        self.store.set_fuel(FUEL_TO_CONFIGURE).map_err(|error| cause(&error))?;
        // At most as long as the buffer.
        let answer = configure.call(&mut self.store, json.len() as i32);
        answer.map(|answer| answer == 0).map_err(|error| cause(&error))
    }

    fn save(&mut self) -> Option<ModuleState> {
        self.state.as_ref()?.save(&mut self.store, self.memory)
    }

    fn restore(&mut self, state: &ModuleState) -> Restored {
        let Some(functions) = &self.state else { return Restored::PassedOver };
        functions.restore(&mut self.store, self.memory, state)
    }

    fn process(
        &mut self,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let length = packet.len();
        if length > FRAME_BYTES_MAX {
            return Ok(Verdict::Drop(DropReason::TooLarge));
        }
        self.buffer()[HEADROOM_BYTES..HEADROOM_BYTES + length].copy_from_slice(packet.bytes());
        // It cannot fail: the engine counts fuel.
        let _ = self.store.set_fuel(FUEL_PER_PACKET);
        let emitted_before = context.emitted.len();
        self.store.data_mut().emits_left = EMITTED_MAX;
        std::mem::swap(&mut self.store.data_mut().emitted, context.emitted);
        // At most 9,216.
        let answer = self.process.call(&mut self.store, length as i32);
        std::mem::swap(&mut self.store.data_mut().emitted, context.emitted);
        let answer = answer.map_err(|error| match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => DropReason::ModuleOutOfFuel,
            _ => DropReason::ModuleTrap,
        });
        let verdict = answer
            .and_then(|word| Answer::decode(word.cast_unsigned()))
            .map(|answer| self.take_back(answer, packet));
        if verdict.is_err() {
            // What a module that failed has made is nothing that it meant to send.
            context.emitted.truncate(emitted_before);
        }
        verdict
    }

    fn take_back(&mut self, answer: Answer, packet: &mut Packet) -> Verdict {
        let (start, length, back) = match answer {
            Answer::Ended(verdict) => return verdict,
            Answer::Frame { start, length, back } => (start, length, back),
        };
        let frame = &self.buffer()[start..start + length];
        if length == packet.len() {
            packet.bytes_mut().copy_from_slice(frame);
        } else if packet.replace(frame).is_err() {
            return Verdict::Drop(DropReason::TooLarge);
        }
        if back { Verdict::Reply } else { Verdict::Forward }
    }
}

/// An error without what the runtime adds to it.
fn cause(error: &wasmtime::Error) -> String {
    error.root_cause().to_string()
}

/// A pause after a failure.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Timestamp,
    length: Duration,
}

/// A module's task for one DAG.
pub(crate) struct WasmTask {
    module: InstancePre<Host>,
    running: Option<Instance>,
    /// State that the next instance begins with.
    state: Option<ModuleState>,
    configuration: Option<Box<str>>,
    /// The module did not take its configuration.
    is_refused: bool,
    pause: Option<Pause>,
    restarts: u64,
}

impl WasmTask {
    pub(crate) const fn new(module: InstancePre<Host>) -> Self {
        Self {
            module,
            running: None,
            state: None,
            configuration: None,
            is_refused: false,
            pause: None,
            restarts: 0,
        }
    }

    /// The instance, made where there is none and it does not have to wait.
    fn running(&mut self, now: Timestamp) -> Result<&mut Instance, DropReason> {
        if self.is_refused {
            return Err(DropReason::Unconfigured);
        }
        if self.running.is_none() {
            if self.pause.is_some_and(|pause| now < pause.until) {
                return Err(DropReason::ModuleBackoff);
            }
            let mut running = self.start(now)?;
            // A state is tried once: what fails over it would fail again.
            if let Some(state) = self.state.take()
                && running.restore(&state) == Restored::Failed
            {
                self.restarts += 1;
                running = self.start(now)?;
            }
            self.running = Some(running);
        }
        self.running.as_mut().ok_or(DropReason::ModuleTrap)
    }

    /// An instance with its configuration.
    fn start(&mut self, now: Timestamp) -> Result<Instance, DropReason> {
        let mut running = Instance::start(&self.module).map_err(|_| self.fail(now))?;
        let Some(json) = &self.configuration else { return Ok(running) };
        match running.configure(json) {
            Ok(true) => Ok(running),
            Ok(false) => {
                self.is_refused = true;
                Err(DropReason::Unconfigured)
            }
            Err(_) => Err(self.fail(now)),
        }
    }

    /// It failed: the instance goes with its state, and the next one has to wait.
    fn fail(&mut self, now: Timestamp) -> DropReason {
        self.running = None;
        self.restarts += 1;
        let before = self.pause.filter(|pause| now.since(pause.until) < FORGIVEN_AFTER);
        let length = before.map_or(BACKOFF_MIN, |pause| (pause.length * 2).min(BACKOFF_MAX));
        self.pause = Some(Pause { until: now + length, length });
        DropReason::ModuleTrap
    }
}

impl ModuleTask for WasmTask {
    fn configure(&mut self, json: &str) -> Result<(), InvalidConfiguration> {
        let refused = |why: &str| Err(InvalidConfiguration::field("", "the document", why));
        self.configuration = Some(json.into());
        self.is_refused = false;
        // One that is not started is told when it is.
        let Some(running) = &mut self.running else { return Ok(()) };
        match running.configure(json) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.is_refused = true;
                refused("what the module takes")
            }
            Err(_) => {
                self.running = None;
                self.restarts += 1;
                refused("what the module takes; it failed over it")
            }
        }
    }

    fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict {
        let now = context.now;
        let processed = match self.running(now) {
            Ok(running) => running.process(packet, context),
            Err(reason) => return Verdict::Drop(reason),
        };
        processed.unwrap_or_else(|reason| {
            self.fail(now);
            Verdict::Drop(reason)
        })
    }

    fn save(&mut self) -> Option<ModuleState> {
        match &mut self.running {
            Some(running) => running.save(),
            // It has not begun: what it would have begun with is what it keeps.
            None => self.state.clone(),
        }
    }

    fn restore(&mut self, state: ModuleState) {
        self.state = Some(state);
    }

    fn restarts(&self) -> u64 {
        self.restarts
    }
}
