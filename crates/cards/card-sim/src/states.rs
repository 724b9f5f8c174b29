//! The wrappers' handshake: contexts to the save area and back, at the memory's speed.
//!
//! ```text
//!  idle ──SAVE, RESTORE, CLEAR, ERASE──► busy ──bytes / bandwidth──► done
//!    └───── out of the area, no chain ──► refused ◄── foreign, damaged, END, load, reset
//! ```

use snic_domain::ChainIdentity;
use snic_tables::registers::{
    STATE_CHECK, STATE_CLEAR, STATE_COMMAND, STATE_END, STATE_ERASE, STATE_ERROR_BUSY,
    STATE_ERROR_DAMAGED, STATE_ERROR_ENDED, STATE_ERROR_FOREIGN, STATE_ERROR_RANGE,
    STATE_ERROR_REGION, STATE_HEAD, STATE_LENGTH, STATE_MAGIC, STATE_OFFSET, STATE_RESTORE,
    STATE_SAVE, STATE_UID,
};

use crate::card::SimCard;
use crate::crc::crc32c;
use crate::region::{Content, Region};
use crate::wheel::Event;
use crate::wrapper::PendingCommand;

/// The words of a head that are not zero.
fn head(uid: u32, context: &[u8], identity: ChainIdentity) -> Vec<u8> {
    let mut words = vec![STATE_MAGIC, uid, context.len() as u32, crc32c(context)];
    words.extend(identity.words());
    words.resize(STATE_HEAD as usize / 4, 0);
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// A saved context, if it is one of this UID and build of a chain with this CRC.
fn context(saved: &[u8], uid: u32, identity: ChainIdentity, check: u32) -> Result<&[u8], u32> {
    let (head, rest) = saved.split_at_checked(STATE_HEAD as usize).ok_or(STATE_ERROR_RANGE)?;
    let words = head.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    let words: Vec<u32> = words.collect();
    let context = rest.get(..words[2] as usize).ok_or(STATE_ERROR_DAMAGED)?;
    if words[0] != STATE_MAGIC {
        return Err(STATE_ERROR_DAMAGED);
    }
    if words[1] != uid || words[4..8] != identity.words() {
        return Err(STATE_ERROR_FOREIGN);
    }
    let is_whole = words[3] == check && crc32c(context) == check;
    if is_whole { Ok(context) } else { Err(STATE_ERROR_DAMAGED) }
}

impl SimCard {
    pub(crate) fn write_state(&mut self, number: u8, register: u32, value: u32) {
        if register == STATE_COMMAND && usize::from(number) < self.wrappers.len() {
            return self.command_state(number, value);
        }
        let Some(wrapper) = self.wrappers.get_mut(usize::from(number)) else { return };
        match register {
            STATE_UID => wrapper.uid = value,
            STATE_OFFSET => wrapper.offset = value,
            STATE_LENGTH => wrapper.length = value,
            STATE_CHECK => wrapper.check = value,
            // Read only.
            _ => {}
        }
    }

    fn command_state(&mut self, number: u8, command: u32) {
        let at = usize::from(number);
        if let Some(busy) = self.wrappers[at].busy {
            if command == STATE_END {
                self.end_state(number, busy);
            } else {
                self.wrappers[at].outcome = Some(Err(STATE_ERROR_BUSY));
            }
            return;
        }
        if command == STATE_END {
            return;
        }
        match self.bytes_to_move(number, command) {
            Err(code) => self.wrappers[at].end(Err(code)),
            Ok(bytes) => self.start_state(number, command, bytes),
        }
    }

    fn start_state(&mut self, number: u8, command: u32, bytes: u32) {
        let at = usize::from(number);
        let rate = self.profile.save_area.bytes_per_second;
        let cycles = self.plane.clock().cycles_for(bytes.into(), rate);
        let region = &mut self.plane.regions[at];
        let busy =
            PendingCommand { command, epoch: region.epoch, fails: self.fault_rng.state_fails() };
        let wrapper = &mut self.wrappers[at];
        if command != STATE_ERASE {
            region.contexts.moving = Some(wrapper.uid);
        }
        wrapper.busy = Some(busy);
        let generation = wrapper.generation;
        if !self.fault_rng.state_hangs() {
            let event = Event::StateEnds { region: number, generation };
            self.plane.wheel.at(self.plane.now + cycles, event);
        }
    }

    /// Number of bytes that a command moves, or why it cannot be.
    fn bytes_to_move(&self, number: u8, command: u32) -> Result<u32, u32> {
        let (wrapper, region) =
            (&self.wrappers[usize::from(number)], &self.plane.regions[usize::from(number)]);
        let bytes = match command {
            STATE_ERASE => wrapper.length,
            STATE_SAVE | STATE_RESTORE => STATE_HEAD + bytes_of(region)?,
            STATE_CLEAR => return bytes_of(region),
            _ => return Err(STATE_ERROR_RANGE),
        };
        let end = u64::from(wrapper.offset) + u64::from(wrapper.length);
        let fits = bytes <= wrapper.length && end <= self.profile.save_area.bytes.get();
        if fits { Ok(bytes) } else { Err(STATE_ERROR_RANGE) }
    }

    /// The host ends a command, or the region was taken from under it.
    fn end_state(&mut self, number: u8, busy: PendingCommand) {
        let wrapper = &mut self.wrappers[usize::from(number)];
        let region = &mut self.plane.regions[usize::from(number)];
        region.contexts.moving = None;
        match busy.command {
            // Half of it stands there: without a head it is none.
            STATE_SAVE => self.memory.erase(wrapper.offset, STATE_HEAD),
            STATE_RESTORE if region.epoch == busy.epoch => region.contexts.clear(wrapper.uid),
            _ => {}
        }
        wrapper.end(Err(STATE_ERROR_ENDED));
    }

    pub(crate) fn finish_state(&mut self, number: u8, generation: u16) {
        let at = usize::from(number);
        let Some(busy) = self.wrappers[at].busy else { return };
        if self.wrappers[at].generation != generation {
            return;
        }
        let moved = self.plane.regions[at].epoch != busy.epoch && busy.command != STATE_ERASE;
        if busy.fails || moved {
            return self.end_state(number, busy);
        }
        self.plane.regions[at].contexts.moving = None;
        let outcome = self.do_state(number, busy.command);
        self.wrappers[at].end(outcome);
    }

    fn do_state(&mut self, number: u8, command: u32) -> Result<u32, u32> {
        let wrapper = &mut self.wrappers[usize::from(number)];
        let region = &mut self.plane.regions[usize::from(number)];
        match command {
            STATE_SAVE => {
                let context = region.contexts.read(wrapper.uid);
                wrapper.check = crc32c(&context);
                let mut saved = head(wrapper.uid, &context, region.reported.identity);
                saved.extend(context);
                self.memory.write_saved(wrapper.offset, &saved);
                Ok(saved.len() as u32)
            }
            STATE_RESTORE => {
                let saved = self.memory.saved(wrapper.offset, wrapper.length);
                let context =
                    context(&saved, wrapper.uid, region.reported.identity, wrapper.check)?;
                if context.len() != region.contexts.bytes() as usize {
                    return Err(STATE_ERROR_FOREIGN);
                }
                region.contexts.write(wrapper.uid, context);
                Ok(STATE_HEAD + context.len() as u32)
            }
            STATE_ERASE => {
                self.memory.erase(wrapper.offset, wrapper.length);
                Ok(wrapper.length)
            }
            _ => {
                region.contexts.clear(wrapper.uid);
                Ok(region.contexts.bytes())
            }
        }
    }
}

/// Bytes of a context of what a region holds.
fn bytes_of(region: &Region) -> Result<u32, u32> {
    let is_there = region.content == Content::Loaded && region.contexts.bytes() > 0;
    if is_there { Ok(region.contexts.bytes()) } else { Err(STATE_ERROR_REGION) }
}
