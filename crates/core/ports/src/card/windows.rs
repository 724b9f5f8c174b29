//! Windows of NTs as the register map describes them, for cards without hardware.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::DagUid;
use snic_domain::limits::{CHAIN_SLOTS_MAX, DAG_CONFIGURATION_BYTES_MAX};
use snic_tables::registers::{
    Address, NT_APPEND, NT_BEGIN, NT_COMMAND, NT_COUNT, NT_DATA, NT_DATA_WORDS, NT_DONE, NT_KEEP,
    NT_REFUSED, NT_STATUS, NT_TAG, NT_TAKE, NT_UID, NT_WORDS_MAX,
};

/// Words that a configuration has at most: as many as those of a whole DAG.
pub const WORDS_MAX: usize = DAG_CONFIGURATION_BYTES_MAX / 4;

/// Place of an NT: region and slot.
type Place = (u8, u8);

/// The windows of all NTs of a card.
#[derive(Debug, Default)]
pub struct NtWindows {
    select: u32,
    /// Slots that have an NT, in regions that are loaded.
    windows: BTreeMap<Place, NtWindow>,
    refusals: u64,
}

/// The window of one NT.
#[derive(Debug, Default)]
struct NtWindow {
    uid: u32,
    tag: u32,
    count: u32,
    status: u32,
    data: Vec<u32>,
    /// A configuration that is begun: whose, and its words.
    begun: Option<((u32, u32), Vec<u32>)>,
    /// Those that were taken, by UID and tag.
    taken: BTreeMap<(u32, u32), Vec<u32>>,
}

/// A configuration that an NT holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldConfiguration {
    pub region: u8,
    pub slot: u8,
    /// UID of the DAG.
    pub uid: u32,
    pub tag: u32,
    pub words: Vec<u32>,
}

impl NtWindows {
    /// The value of `WINDOW_SELECT`.
    pub const fn select(&self) -> u32 {
        self.select
    }

    /// Shows the window of another NT.
    pub const fn show(&mut self, select: u32) {
        self.select = select;
    }

    /// A region holds NTs in these slots and no others, without any configurations.
    pub fn filled(&mut self, region: u8, slots: impl IntoIterator<Item = u8>) {
        self.emptied(region);
        let slots = slots.into_iter().filter(|slot| usize::from(*slot) < CHAIN_SLOTS_MAX);
        self.windows.extend(slots.map(|slot| ((region, slot), NtWindow::default())));
    }

    /// A region holds nothing.
    pub fn emptied(&mut self, region: u8) {
        self.windows.retain(|(at, _), _| *at != region);
    }

    /// A register of the window that is shown, by its place in it.
    pub fn read(&self, register: Address) -> u32 {
        let Some(window) = self.shown().and_then(|shown| self.windows.get(&shown)) else {
            return 0;
        };
        match register {
            NT_WORDS_MAX => WORDS_MAX as u32,
            NT_UID => window.uid,
            NT_TAG => window.tag,
            NT_COUNT => window.count,
            NT_STATUS => window.status,
            // Its data may be keys, so they are not read back.
            _ => 0,
        }
    }

    /// Writes a register of the window that is shown.
    pub fn write(&mut self, register: Address, value: u32) {
        let shown = self.shown();
        let Some(window) = shown.and_then(|shown| self.windows.get_mut(&shown)) else { return };
        match register {
            NT_UID => window.uid = value,
            NT_TAG => window.tag = value,
            NT_COUNT => window.count = value,
            NT_COMMAND => {
                let done = window.run(value);
                window.status = if done { NT_DONE } else { NT_REFUSED };
            }
            NT_DATA.. => {
                window.data.resize(NT_DATA_WORDS, 0);
                window.data[(register - NT_DATA) as usize / 4] = value;
            }
            _ => {}
        }
    }

    /// The NT whose window is shown does not do what it is told, and holds what it held.
    pub fn refuse(&mut self) {
        self.refusals += 1;
        let shown = self.shown();
        if let Some(window) = shown.and_then(|shown| self.windows.get_mut(&shown)) {
            (window.status, window.begun) = (NT_REFUSED, None);
        }
    }

    /// Number of times that an NT was made to refuse.
    pub const fn refusals(&self) -> u64 {
        self.refusals
    }

    /// All configurations that NTs hold.
    pub fn held(&self) -> Vec<HeldConfiguration> {
        let of = |(&(region, slot), window): (&Place, &NtWindow)| {
            let held = window.taken.iter().map(move |(&(uid, tag), words)| HeldConfiguration {
                region,
                slot,
                uid,
                tag,
                words: words.clone(),
            });
            held.collect::<Vec<_>>()
        };
        self.windows.iter().flat_map(of).collect()
    }

    /// `None` where no region has such a number.
    fn shown(&self) -> Option<Place> {
        Some(((self.select >> 8).try_into().ok()?, self.select as u8))
    }
}

impl NtWindow {
    /// Runs a command; whether it was done.
    fn run(&mut self, command: u32) -> bool {
        let named = (self.uid, self.tag);
        match command {
            NT_KEEP => {
                let row = row(self.uid);
                self.taken.retain(|key, _| row_of(key) != row || *key == named);
                true
            }
            NT_BEGIN => {
                self.begun = Some((named, Vec::new()));
                true
            }
            NT_APPEND => self.append(),
            NT_TAKE => self.take(),
            _ => false,
        }
    }

    fn append(&mut self) -> bool {
        let Some((_, words)) = &mut self.begun else { return false };
        self.data.resize(NT_DATA_WORDS, 0);
        let Some(more) = self.data.get(..self.count as usize) else { return false };
        let fits = words.len() + more.len() <= WORDS_MAX;
        if fits {
            words.extend(more);
        }
        fits
    }

    /// Two of a row at most: an NT has room for no more.
    fn take(&mut self) -> bool {
        let Some((key, words)) = self.begun.take() else { return false };
        let others: BTreeSet<_> = self
            .taken
            .keys()
            .filter(|held| row_of(held) == row_of(&key) && **held != key)
            .collect();
        let fits = others.len() < 2;
        if fits {
            self.taken.insert(key, words);
        }
        fits
    }
}

fn row(uid: u32) -> u16 {
    DagUid::from_raw(uid).row()
}

fn row_of((uid, _): &(u32, u32)) -> u16 {
    row(*uid)
}
