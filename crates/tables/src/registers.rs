//! The register map: byte addresses of 32-bit registers, as the host sees them through one
//! control interface.
//!
//! ```text
//! 0x00_0000  control     identity, table commit, configuration controller
//! 0x00_1000  regions     32 pages of 256 bytes
//! 0x00_4000  counters    packets, drops by cause, errors
//! 0x01_0000  DAG load    1024 rows of 32 bytes: intended and served, by the row of the DAG
//! 0x08_0000  active bank read only
//! 0x10_0000  shadow bank read and write
//! ```

use crate::layout::{BANK_WORDS, RowKey};

/// A byte address, always a multiple of 4.
pub type Address = u32;

/// Reads as [`MAGIC_VALUE`].
pub const MAGIC: Address = 0x000;
/// "SNIC".
pub const MAGIC_VALUE: u32 = 0x534e_4943;
/// Version of this map: [`LAYOUT_VALUE`].
pub const LAYOUT: Address = 0x004;
/// The version described here.
pub const LAYOUT_VALUE: u32 = 1;
/// Bit 0: bulk table writes through a buffer and one doorbell.
pub const CAPABILITIES: Address = 0x008;
/// How many regions the card has.
pub const REGION_COUNT: Address = 0x00c;
/// JTAG id of the part.
pub const IDCODE: Address = 0x010;
/// A number drawn at power-up: differs after the card lost its state.
pub const BOOT_ID: Address = 0x014;

/// Version of the active bank.
pub const TABLE_VERSION: Address = 0x020;
/// Writing active version + 1 swaps the banks; any other value is refused ([`COMMIT_REFUSED`]).
pub const COMMIT: Address = 0x024;
/// Writing 1 makes the shadow bank the same as the active one again.
pub const ABORT: Address = 0x028;
/// One of the `COMMIT_…` values.
pub const COMMIT_STATUS: Address = 0x02c;
/// No commit under way; both banks are the same but for shadow writes since.
pub const COMMIT_IDLE: u32 = 0;
/// Packets that began with the old bank are still under way.
pub const COMMIT_BUSY: u32 = 1;
/// The last commit named a version that is not the next one.
pub const COMMIT_REFUSED: u32 = 2;

/// Region to load.
pub const LOAD_REGION: Address = 0x040;
/// Device address of the staged bitstream, low word.
pub const LOAD_BUFFER_LOW: Address = 0x044;
/// Device address of the staged bitstream, high word.
pub const LOAD_BUFFER_HIGH: Address = 0x048;
/// Its length in bytes.
pub const LOAD_BYTES: Address = 0x04c;
/// Writing 1 starts; refused ([`LOAD_FAILED`]) while busy or while the region is coupled.
pub const LOAD_START: Address = 0x050;
/// One of the `LOAD_…` states.
pub const LOAD_STATUS: Address = 0x054;
/// Nothing was started since power-up.
pub const LOAD_IDLE: u32 = 0;
/// Words are going through the configuration port.
pub const LOAD_BUSY: u32 = 1;
/// The last load ended well.
pub const LOAD_DONE: u32 = 2;
/// The last load failed: see [`LOAD_ERROR`].
pub const LOAD_FAILED: u32 = 3;
/// Bytes that went through.
pub const LOAD_PROGRESS: Address = 0x058;
/// Why the last load failed: one of the `LOAD_ERROR_…` values.
pub const LOAD_ERROR: Address = 0x05c;
/// The CRC of the configuration packets did not match, or they are no packets.
pub const LOAD_ERROR_PACKETS: u32 = 1;
/// The region was still coupled, or does not exist.
pub const LOAD_ERROR_REGION: u32 = 2;
/// A load was under way.
pub const LOAD_ERROR_BUSY: u32 = 3;
/// The region did not identify itself after the load.
pub const LOAD_ERROR_IDENTITY: u32 = 4;

/// First page of the regions.
pub const REGIONS: Address = 0x1000;
/// Bytes of a region's page.
pub const REGION_PAGE: Address = 0x100;
/// In a region's page: one of the `REGION_…` states.
pub const REGION_STATUS: Address = 0x00;
/// Nothing loaded.
pub const REGION_EMPTY: u32 = 0;
/// Being loaded.
pub const REGION_LOADING: u32 = 1;
/// Loaded, identified.
pub const REGION_LOADED: u32 = 2;
/// A load failed; what it holds is garbage.
pub const REGION_BROKEN: u32 = 3;
/// In a region's page: bit 0 decouples it from the crossbar, bit 1 resets its NTs.
pub const REGION_CONTROL: Address = 0x04;
/// See [`REGION_CONTROL`].
pub const REGION_DECOUPLE: u32 = 1;
/// See [`REGION_CONTROL`]; clears itself. A load of the region that is under way ends with it
/// ([`LOAD_FAILED`]), and the region is broken.
pub const REGION_RESET: u32 = 2;
/// In a region's page: packets in it or on the way to it.
pub const REGION_IN_FLIGHT: Address = 0x08;
/// In a region's page: eight words, the digest of what it holds; zero unless loaded.
pub const REGION_DIGEST: Address = 0x10;
/// In a region's page: eight words, the digest that the next successful load leaves in
/// [`REGION_DIGEST`]; the host writes it before it starts the load.
pub const REGION_DIGEST_NEXT: Address = 0x30;
/// In a region's page: eight words, NT codes by slot as the wrappers report them.
pub const REGION_NTS: Address = 0x50;
/// In a region's page: bytes by slot, intended then served, 64 bits each, low word first.
pub const REGION_LOAD: Address = 0x80;

/// Packets that came in, 64 bits, low word first.
pub const PACKETS_IN: Address = 0x4000;
/// Packets that went out.
pub const PACKETS_OUT: Address = 0x4008;
/// First of the drop and error counters, 64 bits each, in the order of `DropCause::ALL`.
pub const DROPS: Address = 0x4010;

/// First row of the DAG load counters.
pub const DAG_LOAD: Address = 0x1_0000;
/// Bytes of a row: packets in, bytes intended, bytes served, packets out; 64 bits each.
pub const DAG_LOAD_ROW: Address = 32;

/// The active bank.
pub const ACTIVE_BANK: Address = 0x8_0000;
/// The shadow bank.
pub const SHADOW_BANK: Address = 0x10_0000;
/// Bytes of a bank.
pub const BANK_BYTES: Address = BANK_WORDS as u32 * 4;

const _: () = assert!(ACTIVE_BANK + BANK_BYTES <= SHADOW_BANK, "the banks overlap");

/// A register of a region's page.
pub const fn region(region: u8, register: Address) -> Address {
    REGIONS + region as u32 * REGION_PAGE + register
}

/// Where a row of the shadow bank begins; `None` where the table has no such row.
pub const fn shadow_row(key: RowKey) -> Option<Address> {
    match key.offset() {
        Some(words) => Some(SHADOW_BANK + words as u32 * 4),
        None => None,
    }
}

/// Where a row of the active bank begins; `None` where the table has no such row.
pub const fn active_row(key: RowKey) -> Option<Address> {
    match key.offset() {
        Some(words) => Some(ACTIVE_BANK + words as u32 * 4),
        None => None,
    }
}
