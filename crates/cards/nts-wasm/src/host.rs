//! Host of a module's instance.

use snic_domain::limits::MODULE_MEMORY_BYTES_MAX;
use snic_nts::{Direction, Emitted, Pool};
use wasmtime::{Caller, Linker, Memory, StoreLimits, StoreLimitsBuilder};

use crate::abi::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};

/// Most frames that a module makes of one packet.
pub const EMITTED_MAX: usize = 4;
/// Most entries of a module's tables of functions.
const TABLE_ENTRIES_MAX: usize = 10_000;

/// The host's side of an instance.
pub(crate) struct Host {
    pub(crate) limits: StoreLimits,
    /// Where its memory is, once it is there.
    pub(crate) memory: Option<Memory>,
    /// The card's, while a packet is processed; else one without room.
    pub(crate) emitted: Emitted,
    /// Frames that may still be made of this packet.
    pub(crate) emits_left: usize,
}

impl Host {
    pub(crate) fn new() -> Self {
        let limits = StoreLimitsBuilder::new()
            .memory_size(MODULE_MEMORY_BYTES_MAX)
            .table_elements(TABLE_ENTRIES_MAX)
            .instances(1)
            .tables(4)
            .memories(1)
            .build();
        Self { limits, memory: None, emitted: Emitted::new(Pool::new(0, 0)), emits_left: 0 }
    }
}

/// The imports that there are.
pub(crate) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    linker.func_wrap("snic", "emit", emit)?;
    Ok(linker)
}

/// `snic.emit(direction, pointer, length)`: 1 where the frame was made, else 0.
fn emit(mut caller: Caller<'_, Host>, direction: i32, pointer: i32, length: i32) -> i32 {
    let Some(memory) = caller.data().memory else { return 0 };
    let (bytes, host) = memory.data_and_store_mut(&mut caller);
    let direction = match direction {
        0 => Direction::Onward,
        1 => Direction::Back,
        _ => return 0,
    };
    // Addresses and lengths are unsigned.
    let (start, length) = (pointer.cast_unsigned() as usize, length.cast_unsigned() as usize);
    let frame = bytes.get(start..).and_then(|rest| rest.get(..length));
    let fits = (FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&length) && host.emits_left > 0;
    let Some(frame) = frame.filter(|_| fits) else { return 0 };
    host.emits_left -= 1;
    let before = host.emitted.len();
    host.emitted.copy(direction, frame);
    i32::from(host.emitted.len() > before)
}
