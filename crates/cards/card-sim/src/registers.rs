//! The register file: every address of the map, read and written.

use snic_ports::card::CardError;
use snic_ports::card::windows::NtWindows;
use snic_tables::BANK_WORDS;
use snic_tables::Table;
use snic_tables::registers::*;
use snic_tables::{DagCounters, DropCause};

use crate::banks::CommitState;
use crate::card::SimCard;
use crate::region::Region;

/// Words of a row of DAGs' counters, and of all rows.
const DAG_LOAD_ROW_WORDS: usize = DAG_LOAD_ROW as usize / 4;
const DAG_LOAD_WORDS: usize = Table::Dag.rows() * DAG_LOAD_ROW_WORDS;

/// Capabilities of every simulated card.
const CAPABILITIES_KEPT: u32 =
    CAPABILITY_CLOCK | CAPABILITY_DAG_DROPS | CAPABILITY_GUARDS | CAPABILITY_LATENCY;

/// A DAG's counters, in the order of its row.
const fn dag_load(dag: DagCounters) -> [u64; DAG_LOAD_ROW_WORDS / 2] {
    [dag.packets_in, dag.bytes_intended, dag.bytes_served, dag.packets_out]
}

/// One half of a 64-bit counter, the low one first.
const fn half(value: u64, at: Address) -> u32 {
    if at & 4 == 0 { value as u32 } else { (value >> 32) as u32 }
}

/// The word that `at` names in a run of `count` words from `first`.
fn word(at: Address, first: Address, count: usize) -> Option<usize> {
    let index = (at.checked_sub(first)? / 4) as usize;
    (index < count).then_some(index)
}

/// The register of the window of an NT.
const fn in_window(at: Address) -> Option<Address> {
    if WINDOW <= at && at < WINDOW + WINDOW_BYTES { Some(at - WINDOW) } else { None }
}

/// The region's page, of pages of `bytes` from `first` on, that `at` is in, and the place in it.
fn page(at: Address, first: Address, bytes: Address) -> Option<(u8, Address)> {
    let offset = at.checked_sub(first)?;
    let number = offset / bytes;
    (number < Table::Region.rows() as u32).then_some((number as u8, offset % bytes))
}

impl SimCard {
    pub(crate) fn read_register(&self, at: Address) -> Result<u32, CardError> {
        let value = if at.is_multiple_of(4) { self.value(at) } else { None };
        value.ok_or(CardError::NoRegister(at))
    }

    /// The words of a bank, where all of them are in one.
    pub(crate) fn bank_words(&self, at: Address, count: usize) -> Option<&[u32]> {
        if !at.is_multiple_of(4) || count == 0 {
            return None;
        }
        [(ACTIVE_BANK, false), (SHADOW_BANK, true)].into_iter().find_map(|(bank, shadow)| {
            let first = word(at, bank, BANK_WORDS)?;
            self.plane.banks.words(shadow).get(first..first + count)
        })
    }

    /// Copies counters of DAGs, from the first one of a row on: the daemon reads those of all rows each epoch. Whether the
    /// words are such counters.
    pub(crate) fn copy_dag_load(&self, at: Address, words: &mut [u32]) -> bool {
        let Some(first) = word(at, DAG_LOAD, DAG_LOAD_WORDS) else { return false };
        let is_row = at.is_multiple_of(4) && first.is_multiple_of(DAG_LOAD_ROW_WORDS);
        if !is_row || first + words.len() > DAG_LOAD_WORDS {
            return false;
        }
        let rows = first / DAG_LOAD_ROW_WORDS..;
        for (row, words) in rows.zip(words.chunks_mut(DAG_LOAD_ROW_WORDS)) {
            let counters = dag_load(self.plane.stats.dag(row as u16));
            let halves = counters.iter().flat_map(|value| [*value as u32, (value >> 32) as u32]);
            words.iter_mut().zip(halves).for_each(|(word, half)| *word = half);
        }
        true
    }

    fn value(&self, at: Address) -> Option<u32> {
        if let Some([value]) = self.bank_words(at, 1) {
            return Some(*value);
        }
        if at >= LINKS && is_register(at) && at < WINDOW {
            let offset = at - LINKS;
            return Some(self.link_value((offset / LINK_PAGE) as u8, offset % LINK_PAGE));
        }
        if let Some((number, register)) = page(at, STATES, STATE_PAGE) {
            return is_register(at).then(|| self.state_value(number, register));
        }
        if let Some((number, register)) = page(at, REGIONS, REGION_PAGE) {
            return region_value(self.plane.regions.get(usize::from(number)), register);
        }
        if let Some(register) = in_window(at) {
            return Some(self.windows.as_ref().map_or(0, |windows| windows.read(register)));
        }
        self.control_value(at).or_else(|| self.counter_value(at))
    }

    fn control_value(&self, at: Address) -> Option<u32> {
        let (banks, controller) = (&self.plane.banks, &self.controller);
        Some(match at {
            MAGIC => MAGIC_VALUE,
            LAYOUT => LAYOUT_VALUE,
            // No bulk transfers: every row goes through the shadow bank's registers.
            CAPABILITIES => self.capabilities(),
            WINDOW_SELECT => self.windows.as_ref().map_or(0, NtWindows::select),
            LATENCY_WRITTEN => self.plane.latencies.written(),
            BULK_BUFFER_LOW..=BULK_STATUS => 0,
            CONFIGURE_START => 0,
            CONFIGURE_BUFFER_LOW..=CONFIGURE_STATUS => self.configurator.value(at),
            REGION_COUNT => self.plane.regions.len() as u32,
            IDCODE => self.profile.idcode,
            BOOT_ID => self.boot_id,
            LINK_COUNT => self.plane.links.count().into(),
            TABLE_VERSION => banks.version(banks.active()),
            COMMIT_STATUS => match banks.state(self.plane.now) {
                CommitState::Idle => COMMIT_IDLE,
                CommitState::Busy => COMMIT_BUSY,
                CommitState::Refused => COMMIT_REFUSED,
                CommitState::NoLink => COMMIT_NO_LINK,
            },
            COMMIT_WAITS => self.plane.commit_waits(),
            COMMIT | ABORT | LOAD_START => 0,
            LOAD_REGION => controller.request.region,
            LOAD_BUFFER_LOW => controller.request.buffer_low,
            LOAD_BUFFER_HIGH => controller.request.buffer_high,
            LOAD_BYTES => controller.request.bytes,
            LOAD_STATUS => controller.status(),
            LOAD_PROGRESS => controller.progress(self.plane.now),
            LOAD_ERROR => controller.error(),
            SAVE_AREA_LOW | SAVE_AREA_HIGH => {
                half(self.memory.save_area_base(), if at == SAVE_AREA_LOW { 0 } else { 4 })
            }
            SAVE_AREA_BYTES => self.profile.save_area.bytes.get() as u32,
            _ => return None,
        })
    }

    fn capabilities(&self) -> u32 {
        let way = if self.windows.is_some() { CAPABILITY_WINDOWS } else { CAPABILITY_CONFIGURE };
        let bytes = if self.plane.has_frames() { CAPABILITY_PASS_THROUGH } else { 0 };
        let links = if self.plane.links.count() > 0 { CAPABILITY_LINKS } else { 0 };
        CAPABILITIES_KEPT | way | bytes | links
    }

    /// A register of a link's page; pages of links that the card does not have read as zero.
    fn link_value(&self, number: u8, register: Address) -> u32 {
        let counters = self.plane.links.counters(number);
        let value = match register & !4 {
            LINK_FRAMES_OUT => counters.frames_out,
            LINK_BYTES_OUT => counters.bytes_out,
            LINK_FRAMES_IN => counters.frames_in,
            LINK_REFUSED => counters.refused,
            LINK_STRAY => counters.stray,
            LINK_AWAY => counters.away,
            _ => 0,
        };
        half(value, register)
    }

    fn state_value(&self, number: u8, register: Address) -> u32 {
        let at = usize::from(number);
        match (self.wrappers.get(at), register) {
            (None, _) => 0,
            (Some(_), STATE_BYTES) => self.plane.regions[at].contexts.bytes(),
            (Some(wrapper), _) => wrapper.value(register),
        }
    }

    fn counter_value(&self, at: Address) -> Option<u32> {
        let stats = &self.plane.stats;
        if let Some(index) = word(at, DROPS, 2 * DropCause::ALL.len()) {
            return Some(half(stats.drops[index / 2], at));
        }
        if let Some(index) = word(at, DAG_LOAD, DAG_LOAD_WORDS) {
            let counters = dag_load(stats.dag((index / DAG_LOAD_ROW_WORDS) as u16));
            return Some(half(counters[index % DAG_LOAD_ROW_WORDS / 2], at));
        }
        if let Some(index) = word(at, DAG_DROPS, Table::Dag.rows() * DAG_DROPS_ROW as usize / 4) {
            let words = DAG_DROPS_ROW as usize / 4;
            let drops = stats.dag_drops((index / words) as u16);
            return Some(drops.get(index % words / 2).map_or(0, |drops| half(*drops, at)));
        }
        if let Some(value) = self.plane.latencies.value(at) {
            return Some(value);
        }
        match at & !4 {
            CLOCK_CYCLES => Some(half(self.plane.now, at)),
            PACKETS_IN => Some(half(stats.packets_in, at)),
            PACKETS_OUT => Some(half(stats.packets_out, at)),
            _ => None,
        }
    }

    pub(crate) fn write_register(&mut self, at: Address, value: u32) -> Result<(), CardError> {
        self.read_register(at)?;
        if let Some(index) = word(at, SHADOW_BANK, BANK_WORDS) {
            self.accesses.table_words += 1;
            self.plane.banks.write_shadow(self.plane.now, index, value);
        } else if let Some((number, register)) = page(at, STATES, STATE_PAGE) {
            self.write_state(number, register, value);
        } else if let Some((number, register)) = page(at, REGIONS, REGION_PAGE) {
            self.write_region(number, register, value);
        } else if let Some(register) = in_window(at) {
            self.write_window(register, value);
        } else if at >= DAG_LATENCY {
            self.plane.latencies.write(at, value);
        } else {
            self.write_control(at, value);
        }
        Ok(())
    }

    fn write_window(&mut self, register: Address, value: u32) {
        let Some(windows) = &mut self.windows else { return };
        if (register, value) == (NT_COMMAND, NT_TAKE) && self.fault_rng.window_refuses() {
            windows.refuse();
        } else {
            windows.write(register, value);
        }
    }

    fn write_control(&mut self, at: Address, value: u32) {
        let request = &mut self.controller.request;
        match at {
            COMMIT => self.commit(value),
            ABORT if value == 1 && self.plane.banks.abort(self.plane.now) => {
                self.configurator.committed();
            }
            LOAD_REGION => request.region = value,
            LOAD_BUFFER_LOW => request.buffer_low = value,
            LOAD_BUFFER_HIGH => request.buffer_high = value,
            LOAD_BYTES => request.bytes = value,
            LOAD_START if value == 1 => self.start_load(),
            CONFIGURE_START if value == 1 && self.windows.is_none() => self.configure(),
            WINDOW_SELECT => self.windows.iter_mut().for_each(|windows| windows.show(value)),
            CONFIGURE_BUFFER_LOW..CONFIGURE_START => self.configurator.write(at, value),
            // Read only.
            _ => {}
        }
    }

    fn write_region(&mut self, number: u8, register: Address, value: u32) {
        let Some(region) = self.plane.regions.get_mut(usize::from(number)) else { return };
        if register == REGION_CONTROL {
            self.control_region(number, value);
        } else if let Some(index) = word(register, REGION_DIGEST_NEXT, 8) {
            region.digest_next[index] = value;
        }
    }
}

/// A register of a region's page; pages of regions that the card does not have read as zero.
fn region_value(region: Option<&Region>, register: Address) -> Option<u32> {
    let Some(region) = region else { return Some(0) };
    if let Some(index) = word(register, REGION_LOAD, 4 * region.load.len()) {
        let load = region.load[index / 4];
        return Some(half(if index % 4 < 2 { load.intended } else { load.served }, register));
    }
    let words = [
        (REGION_DIGEST, region.digest),
        (REGION_DIGEST_NEXT, region.digest_next),
        (REGION_NTS, region.reported.nts.map(|nt| nt.0)),
    ];
    for (first, values) in words {
        if let Some(index) = word(register, first, values.len()) {
            return Some(values[index]);
        }
    }
    if let Some(index) = word(register, REGION_IDENTITY, 4) {
        return Some(region.reported.identity.words()[index]);
    }
    match register {
        REGION_STATUS => Some(region.content.code()),
        REGION_CONTROL => Some(u32::from(region.decoupled)),
        REGION_IN_FLIGHT => Some(region.in_flight),
        _ => None,
    }
}
