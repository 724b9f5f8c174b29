//! A module's state: out of the memory of one instance, and into that of another.

use snic_nts::{MODULE_STATE_BYTES_MAX, ModuleState};
use wasmtime::{Instance, Memory, Store, TypedFunc};

use crate::fuel::FUEL_TO_SAVE;
use crate::host::Host;

/// The functions of a module that saves its state.
pub(crate) struct StateFunctions {
    version: TypedFunc<(), i32>,
    save: TypedFunc<(), i64>,
    buffer: TypedFunc<i32, i32>,
    restore: TypedFunc<i32, i32>,
}

/// Fate of a state that a module was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restored {
    /// The module has it.
    Taken,
    /// The module was not asked: it has another version, or saves nothing.
    PassedOver,
    /// It refused, or failed over it. What it holds now is neither state.
    Failed,
}

impl StateFunctions {
    /// Those of an instance; `None` where it has none.
    pub(crate) fn of(instance: &Instance, store: &mut Store<Host>) -> Option<Self> {
        Some(Self {
            version: instance.get_typed_func(&mut *store, "snic_state_version").ok()?,
            save: instance.get_typed_func(&mut *store, "snic_save").ok()?,
            buffer: instance.get_typed_func(&mut *store, "snic_restore_buffer").ok()?,
            restore: instance.get_typed_func(&mut *store, "snic_restore").ok()?,
        })
    }

    /// A copy of what the module keeps; `None` where it failed, or names bytes that it does not have.
    pub(crate) fn save(&self, store: &mut Store<Host>, memory: Memory) -> Option<ModuleState> {
        store.set_fuel(FUEL_TO_SAVE).ok()?;
        let version = self.version.call(&mut *store, ()).ok()?.cast_unsigned();
        let word = self.save.call(&mut *store, ()).ok()?.cast_unsigned();
        // The pointer is the upper half, the length the lower one.
        let (start, length) = ((word >> 32) as usize, (word & 0xFFFF_FFFF) as usize);
        if length > MODULE_STATE_BYTES_MAX {
            return None;
        }
        let bytes = memory.data(&*store).get(start..)?.get(..length)?.into();
        Some(ModuleState { version, bytes })
    }

    /// Gives the module a state.
    pub(crate) fn restore(
        &self,
        store: &mut Store<Host>,
        memory: Memory,
        state: &ModuleState,
    ) -> Restored {
        self.try_restore(store, memory, state).unwrap_or(Restored::Failed)
    }

    fn try_restore(
        &self,
        store: &mut Store<Host>,
        memory: Memory,
        state: &ModuleState,
    ) -> Option<Restored> {
        store.set_fuel(FUEL_TO_SAVE).ok()?;
        if self.version.call(&mut *store, ()).ok()?.cast_unsigned() != state.version {
            return Some(Restored::PassedOver);
        }
        let length = i32::try_from(state.bytes.len()).ok()?;
        let start = self.buffer.call(&mut *store, length).ok()?.cast_unsigned() as usize;
        if start == 0 {
            return None;
        }
        let room = memory.data_mut(&mut *store).get_mut(start..)?.get_mut(..state.bytes.len())?;
        room.copy_from_slice(&state.bytes);
        let answer = self.restore.call(&mut *store, length).ok()?;
        (answer == 0).then_some(Restored::Taken)
    }
}
