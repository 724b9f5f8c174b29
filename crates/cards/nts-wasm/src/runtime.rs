//! Compiles modules, and says what is wrong with those that cannot be used.

use std::fmt;
use std::sync::Arc;

use snic_domain::limits::{MODULE_BYTES_MAX, MODULE_MEMORY_BYTES_MAX};
use snic_nts::{CompiledModule, InvalidModule, ModuleRuntime, ModuleTask};
use wasmtime::{
    Config, Engine, ExternType, FuncType, InstancePre, Linker, Module, OperatorCost, ValType,
};

use crate::host::{Host, linker};
use crate::task::{Instance, WasmTask};

/// Most stack of a call.
pub const STACK_BYTES_MAX: usize = 128 << 10;
/// Fuel of an instruction that has the host do something.
const FUEL_OF_GROWING: u8 = 255;

/// Wasmtime with the limits of modules: fuel, memory and stack.
pub struct WasmRuntime {
    engine: Engine,
    linker: Linker<Host>,
}

impl WasmRuntime {
    /// A runtime.
    ///
    /// # Errors
    /// This machine's processor is none that code is made for.
    pub fn new() -> Result<Self, InvalidModule> {
        let failed = |error: wasmtime::Error| InvalidModule(format!("no runtime: {error:#}"));
        let mut config = Config::new();
        let cost = OperatorCost { MemoryGrow: FUEL_OF_GROWING, ..OperatorCost::new() };
        config
            .consume_fuel(true)
            .operator_cost(cost)
            .max_wasm_stack(STACK_BYTES_MAX)
            // Errors of modules are counted, not shown to anybody.
            .wasm_backtrace_max_frames(None)
            .wasm_memory64(false)
            .wasm_multi_memory(false)
            .wasm_relaxed_simd(false)
            .wasm_tail_call(false);
        let engine = Engine::new(&config).map_err(failed)?;
        let linker = linker(&engine).map_err(failed)?;
        Ok(Self { engine, linker })
    }
}

impl ModuleRuntime for WasmRuntime {
    fn compile(&self, bytes: &[u8]) -> Result<Arc<dyn CompiledModule>, InvalidModule> {
        let invalid = |text: String| Err(InvalidModule(text));
        if bytes.len() > MODULE_BYTES_MAX {
            let size = bytes.len();
            return invalid(format!("it has {size} bytes; at most {MODULE_BYTES_MAX} are allowed"));
        }
        let module = Module::from_binary(&self.engine, bytes)
            .map_err(|error| InvalidModule(format!("it is no valid module: {error:#}")))?;
        check_imports(&module)?;
        check_exports(&module)?;
        let ready = self
            .linker
            .instantiate_pre(&module)
            .map_err(|error| InvalidModule(format!("its import has another type: {error:#}")))?;
        Instance::start(&ready).map_err(InvalidModule)?;
        Ok(Arc::new(WasmModule { ready }))
    }
}

/// A module that was compiled and started once.
pub(crate) struct WasmModule {
    ready: InstancePre<Host>,
}

impl CompiledModule for WasmModule {
    fn task(&self) -> Box<dyn ModuleTask> {
        Box::new(WasmTask::new(self.ready.clone()))
    }
}

/// An import of a memory or a table would be one of the host's.
fn check_imports(module: &Module) -> Result<(), InvalidModule> {
    for import in module.imports() {
        if (import.module(), import.name()) != ("snic", "emit") {
            let shown = |text: &str| text.chars().take(80).collect::<String>();
            return Err(InvalidModule(format!(
                "it imports {}.{}; the only import is snic.emit",
                shown(import.module()),
                shown(import.name())
            )));
        }
    }
    Ok(())
}

/// Functions with their parameters and results, and whether a module needs them.
const FUNCTIONS: [(&str, &[ValType], &[ValType], bool); 8] = [
    ("snic_abi_version", &[], &[ValType::I32], true),
    ("snic_buffer", &[], &[ValType::I32], true),
    ("snic_process", &[ValType::I32], &[ValType::I64], true),
    ("snic_configure", &[ValType::I32], &[ValType::I32], false),
    ("snic_state_version", &[], &[ValType::I32], false),
    ("snic_save", &[], &[ValType::I64], false),
    ("snic_restore_buffer", &[ValType::I32], &[ValType::I32], false),
    ("snic_restore", &[ValType::I32], &[ValType::I32], false),
];

/// A module that saves its state exports all of them.
const STATE_FUNCTIONS: [&str; 4] =
    ["snic_state_version", "snic_save", "snic_restore_buffer", "snic_restore"];

fn check_exports(module: &Module) -> Result<(), InvalidModule> {
    match module.get_export("memory") {
        Some(ExternType::Memory(memory)) => {
            let bytes = memory.minimum().saturating_mul(memory.page_size());
            if bytes > MODULE_MEMORY_BYTES_MAX as u64 {
                return Err(InvalidModule(format!(
                    "its memory begins with {bytes} bytes; at most {MODULE_MEMORY_BYTES_MAX} are allowed: link \
                     it with a smaller stack"
                )));
            }
        }
        _ => return Err(InvalidModule("it does not export its memory as `memory`".to_owned())),
    }
    for (name, parameters, results, is_needed) in FUNCTIONS {
        let export = module.get_export(name);
        if export.is_none() && !is_needed {
            continue;
        }
        let wanted =
            FuncType::new(module.engine(), parameters.iter().cloned(), results.iter().cloned());
        let is_right = matches!(&export, Some(ExternType::Func(found)) if found.matches(&wanted));
        if !is_right {
            return Err(InvalidModule(format!("it does not export {name} as {wanted}")));
        }
    }
    let (there, missing): (Vec<&str>, Vec<&str>) =
        STATE_FUNCTIONS.iter().partition(|name| module.get_export(name).is_some());
    if let ([there, ..], [missing, ..]) = (&there[..], &missing[..]) {
        return Err(InvalidModule(format!(
            "it exports {there} and not {missing}: a module that saves its state exports all of {}",
            STATE_FUNCTIONS.join(", ")
        )));
    }
    Ok(())
}

impl fmt::Debug for WasmRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WasmRuntime")
    }
}

impl fmt::Debug for WasmModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WasmModule")
    }
}
