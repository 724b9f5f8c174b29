//! Compiles the modules of bitstreams, in a thread of its own: packets do not wait for it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Weak};

use snic_domain::Digest;
use snic_nts::{CompiledModule, InvalidModule, ModuleRuntime};
use snic_ports::card::image::{self, EmbeddedModule};
use snic_tables::registers::LOAD_ERROR_MODULE;

use super::{Slot, Slots};

struct Job {
    bitstream: Arc<[u8]>,
    answer: SyncSender<Result<Slots, u32>>,
}

/// Hands bitstreams to the compiler's thread, which ends with it.
#[derive(Debug)]
pub(super) struct Compiler {
    jobs: Sender<Job>,
}

impl Compiler {
    pub(super) fn start(runtime: Arc<dyn ModuleRuntime>) -> Self {
        let (jobs, inbox) = channel::<Job>();
        let work = move || {
            let mut compiled = Compiled { runtime, modules: BTreeMap::new() };
            for job in inbox {
                // What was compiled before can only be used or compiled again, whatever a mistake of the compiler left.
                let slots = catch_unwind(AssertUnwindSafe(|| compiled.slots(&job.bitstream)));
                // Nobody waits where the load was ended.
                let _ = job.answer.send(slots.unwrap_or(Err(LOAD_ERROR_MODULE)));
            }
        };
        // Without a thread, nothing is compiled, and each load says so.
        let _ = std::thread::Builder::new().name("card-compiler".into()).spawn(work);
        Self { jobs }
    }

    /// Receiver of a bitstream's modules, once they are compiled.
    pub(super) fn compile(&self, bitstream: Arc<[u8]>) -> Receiver<Result<Slots, u32>> {
        let (answer, receiver) = sync_channel(1);
        let _ = self.jobs.send(Job { bitstream, answer });
        receiver
    }
}

/// The modules that are in use somewhere, by digest: regions with the same module share it.
struct Compiled {
    runtime: Arc<dyn ModuleRuntime>,
    modules: BTreeMap<Digest, Weak<dyn CompiledModule>>,
}

impl Compiled {
    fn slots(&mut self, bitstream: &[u8]) -> Result<Slots, u32> {
        let file = image::parse(bitstream).map_err(|_| LOAD_ERROR_MODULE)?;
        let embedded = image::modules(&file).map_err(|_| LOAD_ERROR_MODULE)?;
        let mut slots = Slots::default();
        for module in embedded {
            let compiled = self.compile(&module).map_err(|error| {
                // The card's log is the file that this goes to.
                snic_output::complain!("the module of NT type {}: {error}", module.nt);
                LOAD_ERROR_MODULE
            })?;
            slots[module.slot] = Some(Slot { nt: module.nt.into(), module: compiled });
        }
        Ok(slots)
    }

    fn compile(
        &mut self,
        module: &EmbeddedModule<'_>,
    ) -> Result<Arc<dyn CompiledModule>, InvalidModule> {
        self.modules.retain(|_, module| module.strong_count() > 0);
        let digest = Digest::of(module.bytes);
        if let Some(known) = self.modules.get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let compiled = self.runtime.compile(module.bytes)?;
        self.modules.insert(digest, Arc::downgrade(&compiled));
        Ok(compiled)
    }
}
