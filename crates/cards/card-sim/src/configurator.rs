//! Configurations of NTs: those the host sends, and those that wait for their commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use snic_tables::configuration::{entries, tag};
use snic_tables::registers::{
    Address, CONFIGURE_BUFFER_HIGH, CONFIGURE_BUFFER_LOW, CONFIGURE_BYTES, CONFIGURE_DONE,
    CONFIGURE_IDLE, CONFIGURE_REFUSED, CONFIGURE_STATUS, CONFIGURE_TAG, CONFIGURE_UID,
};

/// DAGs whose configurations wait for a commit at once: as many as a commit has rows of DAGs.
const WAITING_MAX: usize = snic_domain::limits::DAG_ROWS;

/// The registers from `CONFIGURE_BUFFER_LOW` on, and what waits.
#[derive(Debug, Default)]
pub(crate) struct Configurator {
    buffer: [u32; 2],
    bytes: u32,
    uid: u32,
    tag: u32,
    status: u32,
    /// Waiting configurations, by UID and tag.
    waiting: BTreeMap<(u32, u32), Arc<[u8]>>,
}

impl Configurator {
    pub(crate) fn value(&self, at: Address) -> u32 {
        match at {
            CONFIGURE_BUFFER_LOW => self.buffer[0],
            CONFIGURE_BUFFER_HIGH => self.buffer[1],
            CONFIGURE_BYTES => self.bytes,
            CONFIGURE_UID => self.uid,
            CONFIGURE_TAG => self.tag,
            CONFIGURE_STATUS => self.status,
            _ => CONFIGURE_IDLE,
        }
    }

    pub(crate) fn write(&mut self, at: Address, value: u32) {
        match at {
            CONFIGURE_BUFFER_LOW => self.buffer[0] = value,
            CONFIGURE_BUFFER_HIGH => self.buffer[1] = value,
            CONFIGURE_BYTES => self.bytes = value,
            CONFIGURE_UID => self.uid = value,
            CONFIGURE_TAG => self.tag = value,
            _ => {}
        }
    }

    /// Where the bytes are.
    pub(crate) const fn buffer(&self) -> u64 {
        (self.buffer[1] as u64) << 32 | self.buffer[0] as u64
    }

    /// Takes what is in the buffer, if it is what the host says and the card can do it.
    pub(crate) fn take(&mut self, buffer: Option<Arc<[u8]>>, can: impl Fn(&[u8]) -> bool) {
        let bytes = buffer.and_then(|buffer| Some(buffer.get(..self.bytes as usize)?.into()));
        let is_whole =
            |bytes: &Arc<[u8]>| tag(bytes) == self.tag && entries(bytes).is_ok() && can(bytes);
        let has_room = self.waiting.len() < WAITING_MAX;
        self.status = match bytes.filter(is_whole).filter(|_| has_room) {
            Some(bytes) => {
                self.waiting.insert((self.uid, self.tag), bytes);
                CONFIGURE_DONE
            }
            None => CONFIGURE_REFUSED,
        };
    }

    /// A commit has come: what waited is in force or was given up.
    pub(crate) fn committed(&mut self) -> BTreeMap<(u32, u32), Arc<[u8]>> {
        std::mem::take(&mut self.waiting)
    }
}
