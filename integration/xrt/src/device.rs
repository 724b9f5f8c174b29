//! The device: the simulated card behind XRT's addresses, with the device memory that buffers are
//! copied to, and the part of the shell that moves tables in bulk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use snic_card_sim::SharedSimCard;
use snic_domain::Timestamp;
use snic_ports::card::{Buffers as _, Card as _, Registers as _};
use snic_tables::registers::*;

use crate::memory::Memory;

/// Where the register map is on the device, as test roles say.
pub const REGISTERS_BASE: u64 = 0x0180_0000;

/// The accesses over the wire.
#[derive(Debug, Default)]
pub struct DeviceTraffic {
    /// Registers read, one call each.
    pub reads: AtomicU64,
    /// Registers written, one call each, but for those of bulk transfers to the host: they change
    /// nothing.
    pub writes: AtomicU64,
    /// Bytes copied to the device's memory.
    pub bytes_in: AtomicU64,
    /// Words of table rows, by register or in bulk.
    pub table_words: AtomicU64,
}

/// Words that a broken device reads as: by register, and how many were read before.
pub type Garbage = fn(Address, u64) -> u32;

/// The device side of a card.
pub struct Device {
    /// Set where the registers answer garbage.
    pub garbage: Option<Garbage>,
    card: SharedSimCard,
    clock: Clock,
    memory: Memory,
    has_bulk: bool,
    bulk_buffer: [u32; 2],
    bulk_bytes: u32,
    bulk_status: u32,
    load_buffer: [u32; 2],
    load_bytes: u32,
    /// Number under which the last load was staged.
    staged: Option<u64>,
}

/// A device's clock.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Wall time, as for a daemon's embedded card.
    Wall,
    /// One that a test sets: nanoseconds.
    Set(Arc<AtomicU64>),
}

impl Clock {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO
            + match self {
                Self::Wall => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
                Self::Set(nanos) => Duration::from_nanos(nanos.load(Ordering::Relaxed)),
            }
    }
}

const fn address([low, high]: [u32; 2]) -> u64 {
    (high as u64) << 32 | low as u64
}

impl Device {
    /// The device side of `card`; with bulk transfers or without.
    pub fn new(card: SharedSimCard, has_bulk: bool, clock: Clock) -> Self {
        Self {
            garbage: None,
            card,
            clock,
            memory: Memory::default(),
            has_bulk,
            bulk_buffer: [0; 2],
            bulk_bytes: 0,
            bulk_status: BULK_IDLE,
            load_buffer: [0; 2],
            load_bytes: 0,
            staged: None,
        }
    }

    pub(crate) fn copy_in(&mut self, at: u64, bytes: &[u8], traffic: &DeviceTraffic) {
        traffic.bytes_in.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.memory.write(at, bytes);
    }

    pub(crate) fn copy_out(&self, at: u64, bytes: usize) -> Vec<u8> {
        self.memory.read(at, bytes)
    }

    /// A register as the host reads it. An address without one reads as all ones, as over PCIe.
    pub(crate) fn read(&mut self, at: Address, traffic: &DeviceTraffic) -> u32 {
        let before = traffic.reads.fetch_add(1, Ordering::Relaxed);
        if let Some(garbage) = self.garbage {
            return garbage(at, before);
        }
        // A card that is lost does not answer.
        if self.card.poll(self.clock.now()).is_err() {
            return u32::MAX;
        }
        match at {
            CAPABILITIES if self.has_bulk => {
                let of_card = self.card.read(at).unwrap_or_default();
                let kept = CAPABILITY_CLOCK
                    | CAPABILITY_DAG_DROPS
                    | CAPABILITY_LATENCY
                    | CAPABILITY_WINDOWS;
                CAPABILITY_BULK | of_card & kept
            }
            BULK_BUFFER_LOW => self.bulk_buffer[0],
            BULK_BUFFER_HIGH => self.bulk_buffer[1],
            BULK_BYTES => self.bulk_bytes,
            BULK_STATUS => self.bulk_status,
            LOAD_BUFFER_LOW => self.load_buffer[0],
            LOAD_BUFFER_HIGH => self.load_buffer[1],
            _ => self.card.read(at).unwrap_or(u32::MAX),
        }
    }

    /// A register as the host writes it.
    pub(crate) fn write(&mut self, at: Address, value: u32, traffic: &DeviceTraffic) {
        if at == BULK_START && value == BULK_TO_HOST {
            // Address and length went before the doorbell.
            traffic.writes.fetch_sub(3, Ordering::Relaxed);
        } else {
            traffic.writes.fetch_add(1, Ordering::Relaxed);
        }
        if self.card.poll(self.clock.now()).is_err() {
            return;
        }
        match at {
            BULK_BUFFER_LOW => self.bulk_buffer[0] = value,
            BULK_BUFFER_HIGH => self.bulk_buffer[1] = value,
            BULK_BYTES => self.bulk_bytes = value,
            BULK_START if self.has_bulk => self.bulk_status = self.bulk(value, traffic),
            LOAD_BUFFER_LOW => self.load_buffer[0] = value,
            LOAD_BUFFER_HIGH => self.load_buffer[1] = value,
            LOAD_START if value == 1 => self.load(),
            _ => {
                if at >= SHADOW_BANK {
                    traffic.table_words.fetch_add(1, Ordering::Relaxed);
                }
                self.forward(at, value);
            }
        }
        if at == LOAD_BYTES {
            self.load_bytes = value;
        }
    }

    /// A write of an address without a register is lost, as over PCIe.
    fn forward(&mut self, at: Address, value: u32) {
        let _ = self.card.write(at, value);
    }

    /// The configuration controller reads from the device's memory: the bytes there are handed to
    /// the simulated card as a separate buffer.
    fn load(&mut self) {
        let is_busy = self.card.read(LOAD_STATUS) == Ok(LOAD_BUSY);
        if !is_busy {
            if let Some(old) = self.staged.take() {
                // It is this device's own, and was not given back.
                let _ = self.card.release(old);
            }
            // The most that a region takes; the card rejects more, whatever the bytes are.
            let bytes = (self.load_bytes as usize).min(64 << 20);
            let image = self.memory.read(address(self.load_buffer), bytes);
            let Ok(staged) = self.card.stage(&image) else { return };
            self.staged = Some(staged);
            self.forward(LOAD_BUFFER_LOW, staged as u32);
            self.forward(LOAD_BUFFER_HIGH, (staged >> 32) as u32);
        }
        self.forward(LOAD_START, 1);
    }

    /// Runs the records of a bulk transfer; the status that it leaves.
    fn bulk(&mut self, what: u32, traffic: &DeviceTraffic) -> u32 {
        let start = address(self.bulk_buffer);
        // A buffer for bulk transfers has a mebibyte.
        let bytes = self.memory.read(start, (self.bulk_bytes as usize).min(1 << 20));
        let mut words: Vec<u32> =
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let mut at = 0;
        while let Some(&[register, count]) =
            words.get(at..at + 2).and_then(|head| head.first_chunk())
        {
            let Some(record) = words.get_mut(at + 2..at + 2 + count as usize) else {
                return BULK_REFUSED;
            };
            let done = match what {
                BULK_TO_TABLES if register >= SHADOW_BANK => {
                    traffic.table_words.fetch_add(u64::from(count), Ordering::Relaxed);
                    self.card.write_block(register, record)
                }
                BULK_TO_HOST => self.card.read_block(register, record),
                _ => return BULK_REFUSED,
            };
            if done.is_err() {
                return BULK_REFUSED;
            }
            at += 2 + count as usize;
        }
        if what == BULK_TO_HOST {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.memory.write(start, &bytes);
        }
        BULK_DONE
    }
}
