//! NTs that tenants bring along: modules that a runtime compiles and keeps within limits. Who runs a card
//! says which runtime it has, if any; this crate has none.

use std::fmt;
use std::sync::Arc;

use crate::config::InvalidConfiguration;
use crate::packet::Packet;
use crate::task::Context;
use crate::verdict::Verdict;
use crate::{Counters, DropReason};

/// Why a module cannot be run, in words for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidModule(pub String);

/// A runtime that compiles WebAssembly modules to machine code.
pub trait ModuleRuntime: Send + Sync + fmt::Debug {
    /// Checks and compiles one, and starts it once for a try. Takes milliseconds.
    ///
    /// # Errors
    /// It is damaged, too large, imports or exports something else than it should, or does not start.
    fn compile(&self, module: &[u8]) -> Result<Arc<dyn CompiledModule>, InvalidModule>;
}

/// A module, ready to be started for any number of DAGs.
pub trait CompiledModule: Send + Sync + fmt::Debug {
    /// A task of it, which starts with its first packet.
    fn task(&self) -> Box<dyn ModuleTask>;
}

/// Most bytes of a module's saved state: an eighth of its memory.
pub const MODULE_STATE_BYTES_MAX: usize = 256 << 10;

/// State that a module saved of itself. It is given to a module of the same NT type and DAG only, and taken by one with the
/// same version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleState {
    /// The version of its layout, as the module that saved it has it.
    pub version: u32,
    /// Up to [`MODULE_STATE_BYTES_MAX`] bytes that only the module understands.
    pub bytes: Box<[u8]>,
}

/// A network task that a module is. Like [`crate::NetworkTask`] it answers any bytes with a verdict.
pub trait ModuleTask: Send {
    /// Gives it a configuration, a JSON object. On an error it drops packets until the next one.
    ///
    /// # Errors
    /// The module does not take it, or failed over it.
    fn configure(&mut self, json: &str) -> Result<(), InvalidConfiguration>;

    /// Processes one packet.
    fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict;

    /// State that it keeps; `None` where it does not say so, has no instance, or failed over it.
    fn save(&mut self) -> Option<ModuleState>;

    /// Has its first instance begin with this state. Where the module does not take it, it begins without, which
    /// counts as a restart; a state of another version is passed over.
    fn restore(&mut self, state: ModuleState);

    /// Number of times that it failed and began again without its state.
    fn restarts(&self) -> u64;
}

/// A module's task for one DAG, with its counters.
pub struct ModuleInstance {
    task: Box<dyn ModuleTask>,
    counters: Counters,
}

impl ModuleInstance {
    /// A task of this module.
    pub fn new(module: &dyn CompiledModule) -> Self {
        Self { task: module.task(), counters: Counters::default() }
    }

    /// Gives it a configuration.
    ///
    /// # Errors
    /// As [`ModuleTask::configure`].
    pub fn configure(&mut self, json: &str) -> Result<(), InvalidConfiguration> {
        self.task.configure(json)
    }

    /// Processes one packet, and counts it.
    pub fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict {
        self.counters.received += 1;
        let task = &mut self.task;
        let verdict = self.counters.observe(context, |context| task.process(packet, context));
        self.counters.count(verdict);
        verdict
    }

    /// State that it keeps, as [`ModuleTask::save`] has it.
    pub fn save(&mut self) -> Option<ModuleState> {
        self.task.save()
    }

    /// Has it begin with this state, as [`ModuleTask::restore`] does.
    pub fn restore(&mut self, state: ModuleState) {
        self.task.restore(state);
    }

    /// A packet is dropped before the module sees it.
    pub fn refuse(&mut self, reason: DropReason) -> Verdict {
        self.counters.received += 1;
        self.counters.count_drop(reason);
        Verdict::Drop(reason)
    }

    /// Counts of its packets.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of times that it failed and began again without its state.
    pub fn restarts(&self) -> u64 {
        self.task.restarts()
    }
}
