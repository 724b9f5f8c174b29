//! The register map: byte addresses of 32-bit registers, as the host sees them through one
//! control interface.
//!
//! ```text
//! 0x00_0000  kernel      left to the kernel's own handshake and arguments: [`FIRST`]
//! 0x00_0040  control     configuration controller, bulk transfers, identity, table commit
//! 0x00_1000  regions     32 pages of 256 bytes
//! 0x00_4000  counters    packets, drops by cause, errors
//! 0x00_5000  states      32 pages of 64 bytes: how a region's wrapper saves and restores state
//! 0x00_5800  links       16 pages of 64 bytes: frames to other cards and from them
//! 0x00_8000  NT window   the 4 KiB of one NT's own registers: of the one that WINDOW_SELECT names
//! 0x01_0000  DAG load    1024 rows of 32 bytes: intended and served, by the row of the DAG
//! 0x02_0000  DAG drops   1024 rows of 128 bytes: drops by cause, by the row of the DAG
//! 0x04_0000  latency     1024 records of 128 bytes, of the packets that were sampled last
//! 0x06_0000  DAG latency 1024 rows of 16 bytes: the largest latencies, and how many packets are sampled
//! 0x08_0000  active bank read only
//! 0x10_0000  shadow bank read and write
//! ```

use snic_domain::limits::{CHAIN_SLOTS_MAX, DAG_ROWS, LINKS_MAX, REGIONS_MAX};

use crate::drop_cause::DropCause;
use crate::layout::{BANK_WORDS, RowKey};

/// A byte address, always a multiple of 4.
pub type Address = u32;

/// The first register of this map. The kernel behind which a role has it is declared `AP_CTRL_HS`, the one kind
/// that XRT gives exclusive register access to. Such a kernel has its handshake from 0x00 to 0x0c (control,
/// interrupt enable and status), and its arguments from 0x10 on (Vitis HLS, "S_AXILITE Control Register Map"; XRT's
/// scheduler writes them where it starts a kernel); here that is the pointer to the memory for bitstreams.
pub const FIRST: Address = 0x040;

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
/// The bitstream has a WebAssembly module that cannot be run.
pub const LOAD_ERROR_MODULE: u32 = 5;
/// The bitstream has a WebAssembly module, and the card runs none.
pub const LOAD_ERROR_NO_MODULES: u32 = 6;
/// The shell has no configuration controller.
pub const LOAD_ERROR_NO_PORT: u32 = 7;

/// Device address of the buffer of a bulk transfer, low word.
///
/// The buffer holds records, one behind the other: the address of a register, a number of words,
/// and that many words. All of them are little endian. It begins at a multiple of 64 bytes.
pub const BULK_BUFFER_LOW: Address = 0x080;
/// Device address of the buffer of a bulk transfer, high word.
pub const BULK_BUFFER_HIGH: Address = 0x084;
/// Bytes of its records: whole words, at most [`BULK_BYTES_MAX`].
pub const BULK_BYTES: Address = 0x088;
/// Most bytes of one transfer.
pub const BULK_BYTES_MAX: u32 = 1 << 20;
/// The doorbell: writing [`BULK_TO_TABLES`] or [`BULK_TO_HOST`] starts a transfer. Without
/// [`CAPABILITY_BULK`], or while one is under way, nothing happens.
pub const BULK_START: Address = 0x08c;
/// The words of every record go to its registers, in the shadow bank alone.
pub const BULK_TO_TABLES: u32 = 1;
/// The words of every record are those that its registers hold.
pub const BULK_TO_HOST: u32 = 2;
/// One of the `BULK_…` states below.
pub const BULK_STATUS: Address = 0x090;
/// Nothing was started since power-up.
pub const BULK_IDLE: u32 = 0;
/// A transfer is under way.
pub const BULK_BUSY: u32 = 1;
/// The last transfer ended well.
pub const BULK_DONE: u32 = 2;
/// The last transfer met a record that is cut, or an address that it may not touch, and ended
/// there.
pub const BULK_REFUSED: u32 = 3;

/// Device address of the save area, low word; read only. No page of an NT lies in it.
pub const SAVE_AREA_LOW: Address = 0x0a0;
/// Device address of the save area, high word; read only.
pub const SAVE_AREA_HIGH: Address = 0x0a4;
/// Bytes of the save area, in whole units of 4096; read only. Zero: the card saves no state.
pub const SAVE_AREA_BYTES: Address = 0x0a8;

/// Device address of the buffer with the configurations of a DAG's NTs, low word: see
/// [`crate::DagConfiguration`].
///
/// They wait on the card until a commit brings the DAG's row that names them ([`crate::DagRow`],
/// `configuration`); from that moment on they are in force for each packet that meets an NT, and the
/// card keeps them while the row names them.
pub const CONFIGURE_BUFFER_LOW: Address = 0x0c0;
/// The same, high word.
pub const CONFIGURE_BUFFER_HIGH: Address = 0x0c4;
/// Its length in bytes.
pub const CONFIGURE_BYTES: Address = 0x0c8;
/// UID of the DAG whose configurations they are.
pub const CONFIGURE_UID: Address = 0x0cc;
pub const CONFIGURE_TAG: Address = 0x0d0;
/// The doorbell: writing 1 has the card take them. Without [`CAPABILITY_CONFIGURE`] nothing happens.
pub const CONFIGURE_START: Address = 0x0d4;
/// One of the `CONFIGURE_…` states below.
pub const CONFIGURE_STATUS: Address = 0x0d8;
/// Nothing was asked since power-up.
pub const CONFIGURE_IDLE: u32 = 0;
/// The card has them.
pub const CONFIGURE_DONE: u32 = 2;
/// The buffer holds none, or others than the tag says.
pub const CONFIGURE_REFUSED: u32 = 3;

/// Records of sampled packets since power-up, of 32 bits; goes over to zero. A record is whole before it counts. Zero
/// without [`CAPABILITY_LATENCY`].
pub const LATENCY_WRITTEN: Address = 0x0e0;

/// The NT whose registers are at [`WINDOW`]: region in bits 8 to 15, slot in bits 0 to 7, zeros above. Windows of all NTs would be 1 MiB,
/// so one is shown at a time. Zero without [`CAPABILITY_WINDOWS`].
pub const WINDOW_SELECT: Address = 0x0f0;

/// Reads as [`MAGIC_VALUE`].
pub const MAGIC: Address = 0x100;
pub const MAGIC_VALUE: u32 = 0x534e_4943;
/// Version of this map: [`LAYOUT_VALUE`].
pub const LAYOUT: Address = 0x104;
/// The version described here.
pub const LAYOUT_VALUE: u32 = 4;
/// Optional features of the shell: see [`CAPABILITY_BULK`].
pub const CAPABILITIES: Address = 0x108;
/// Bulk transfers through a buffer and one doorbell: [`BULK_START`].
pub const CAPABILITY_BULK: u32 = 1;
/// NTs take configurations: [`CONFIGURE_START`].
pub const CAPABILITY_CONFIGURE: u32 = 2;
/// Drops are counted by DAG: [`DAG_DROPS`].
pub const CAPABILITY_DAG_DROPS: u32 = 4;
/// Packets have bytes, and an NT changes them only as its configuration says or the module in its image does. Any
/// other NT passes packets on unchanged.
pub const CAPABILITY_PASS_THROUGH: u32 = 8;
/// Ports of functions keep to the rows of the guard table ([`crate::GuardRow`]).
pub const CAPABILITY_GUARDS: u32 = 16;
/// The card counts the cycles of its clock: [`CLOCK_CYCLES`].
pub const CAPABILITY_CLOCK: u32 = 32;
/// The card measures latencies: [`LATENCY_RECORDS`] and [`DAG_LATENCY`]. It has a clock then, too.
pub const CAPABILITY_LATENCY: u32 = 64;
/// NTs have windows, by which they take configurations: [`WINDOW_SELECT`]. A shell that takes configurations itself has
/// [`CAPABILITY_CONFIGURE`] instead.
pub const CAPABILITY_WINDOWS: u32 = 128;
/// Instances of chains may be on other cards: [`LINK_COUNT`] is not zero. A host writes rows that name a link, or a guest, to no other
/// card; drops that only links cause are counted by these cards alone.
pub const CAPABILITY_LINKS: u32 = 256;
/// Number of regions of the card.
pub const REGION_COUNT: Address = 0x10c;
/// JTAG id of the part.
pub const IDCODE: Address = 0x110;
/// A random number drawn at power-up: it differs after the card lost its state. A card that cannot draw one reads as zero
/// until the host writes one, once; what is written to any other number is ignored.
pub const BOOT_ID: Address = 0x114;
/// Number of links to other cards, at most [`LINKS_MAX`]; zero without [`CAPABILITY_LINKS`].
pub const LINK_COUNT: Address = 0x118;

/// Version of the active bank.
pub const TABLE_VERSION: Address = 0x120;
/// Writing active version + 1 swaps the banks; any other value is refused ([`COMMIT_REFUSED`]).
pub const COMMIT: Address = 0x124;
/// Writing 1 makes the shadow bank the same as the active one again, which may take a while ([`COMMIT_BUSY`]). Ignored while a
/// commit is under way.
pub const ABORT: Address = 0x128;
/// One of the `COMMIT_…` values.
pub const COMMIT_STATUS: Address = 0x12c;
/// No commit under way; both banks are the same but for shadow writes since.
pub const COMMIT_IDLE: u32 = 0;
/// Packets that began with the old bank are still under way, or rows are being copied between the banks: by a commit, also
/// of a card without packets, or by an abort, or because the card has just got power. What is written to the shadow bank
/// meanwhile is ignored.
pub const COMMIT_BUSY: u32 = 1;
/// The last commit named a version that is not the next one.
pub const COMMIT_REFUSED: u32 = 2;
/// A row of the last commit names a link that the card does not have: an instance's or a guest's. The banks are as they were.
pub const COMMIT_NO_LINK: u32 = 3;
/// Regions that a commit under way still waits for, a bit for each, the lowest for region 0: packets that began with the
/// old bank are in them or on the way to them. Zero where no commit is under way, or where it waits for something else.
/// A region that does not let them go is decoupled and reset: it then has no packet left.
pub const COMMIT_WAITS: Address = 0x130;

/// First page of the regions.
pub const REGIONS: Address = 0x1000;
/// Bytes of a region's page.
pub const REGION_PAGE: Address = 0x100;
/// In a region's page: one of the `REGION_…` states.
pub const REGION_STATUS: Address = 0x00;
pub const REGION_EMPTY: u32 = 0;
pub const REGION_LOADING: u32 = 1;
pub const REGION_LOADED: u32 = 2;
/// A load failed; what it holds is garbage.
pub const REGION_BROKEN: u32 = 3;
/// In a region's page: bit 0 decouples it from the crossbar, bit 1 resets its NTs.
pub const REGION_CONTROL: Address = 0x04;
/// Bit 0 of [`REGION_CONTROL`]: while it is set, no packets enter or leave the region.
pub const REGION_DECOUPLE: u32 = 1;
/// See [`REGION_CONTROL`]; clears itself. Packets in the region end, and give back what they hold. A load of the region that
/// is under way ends with it ([`LOAD_FAILED`]), and the region is broken.
pub const REGION_RESET: u32 = 2;
/// In a region's page: packets in it or on the way to it.
pub const REGION_IN_FLIGHT: Address = 0x08;
/// In a region's page: eight words, the digest of what was loaded last, as the host gave it; zero unless
/// loaded. What the region holds is what [`REGION_NTS`] and [`REGION_IDENTITY`] say.
pub const REGION_DIGEST: Address = 0x10;
/// In a region's page: eight words, the digest that the next successful load leaves in
/// [`REGION_DIGEST`]; the host writes it before it starts the load.
pub const REGION_DIGEST_NEXT: Address = 0x30;
/// In a region's page: eight words, NT codes by slot, zero behind the last. They and [`REGION_IDENTITY`] are
/// read from the ROM that is part of what was loaded; zero unless loaded.
pub const REGION_NTS: Address = 0x50;
/// In a region's page: four words, the identity of the chain's build, the most significant first.
pub const REGION_IDENTITY: Address = 0x70;
/// In a region's page: bytes by slot, intended then served, 64 bits each, low word first.
pub const REGION_LOAD: Address = 0x80;

/// Cycles of the card's clock, 64 bits, low word first; zero without [`CAPABILITY_CLOCK`]. It begins anywhere and goes
/// on while the card has power. Read together with the counters it says in which time they counted what they did: a
/// host's clock says something else where an emulation is slow, or where the answer waits on its way.
pub const CLOCK_CYCLES: Address = 0x3ff8;
/// Packets that came in, 64 bits, low word first.
pub const PACKETS_IN: Address = 0x4000;
/// Packets that went out.
pub const PACKETS_OUT: Address = 0x4008;
/// First of the drop and error counters, 64 bits each, in the order of `DropCause::ALL`.
pub const DROPS: Address = 0x4010;

/// First page of the wrappers' handshake for state.
///
/// An NT keeps its state by the UID of a packet's DAG. What a chain keeps for one UID is a context:
/// the states of its slots, one behind the other. A wrapper copies a context to the save area and
/// back; the host says whose and where, and rings. A saved context is a head of [`STATE_HEAD`] bytes
/// and the context's own. The head says, in words, little endian: [`STATE_MAGIC`], the UID, the
/// bytes that follow, their CRC-32C, and (words 4 to 7) the identity in the ROM of the region that it was
/// saved from; the rest is zero. So a context is restored into every image of one build of a chain, and
/// into no other chain.
pub const STATES: Address = 0x5000;
/// Bytes of a page.
pub const STATE_PAGE: Address = 0x40;
/// In a page: the doorbell, one of the `STATE_…` commands below. Anything but [`STATE_END`] is refused
/// while one is under way.
pub const STATE_COMMAND: Address = 0x00;
/// Ends the command under way ([`STATE_ERROR_ENDED`]): what it wrote of a saved context is none, and
/// a context that it wrote is empty.
pub const STATE_END: u32 = 0;
/// Copies the context of [`STATE_UID`] to the save area; zeros where no packet came. No packet of
/// that UID may be in the region. The context stays.
pub const STATE_SAVE: u32 = 1;
/// Copies it back. Refused, before anything is changed, where what stands there is another UID's or
/// another chain's, or is damaged, or has another CRC than [`STATE_CHECK`].
pub const STATE_RESTORE: u32 = 2;
/// Empties the context of [`STATE_UID`].
pub const STATE_CLEAR: u32 = 3;
/// Writes zeros over the named part of the save area.
pub const STATE_ERASE: u32 = 4;
/// In a page: one of the `STATE_…` states below; read only.
pub const STATE_STATUS: Address = 0x04;
/// Nothing was asked since power-up.
pub const STATE_IDLE: u32 = 0;
/// A command is under way.
pub const STATE_BUSY: u32 = 1;
/// The last command ended well.
pub const STATE_DONE: u32 = 2;
/// The last command was refused or ended: see [`STATE_ERROR`].
pub const STATE_REFUSED: u32 = 3;
/// In a page: why, one of the `STATE_ERROR_…` values; read only.
pub const STATE_ERROR: Address = 0x08;
/// The named part is not in the save area, or too short for the context.
pub const STATE_ERROR_RANGE: u32 = 1;
/// The region is not loaded, or what it holds keeps no state.
pub const STATE_ERROR_REGION: u32 = 2;
/// The state there is of another DAG or of another build of a chain.
pub const STATE_ERROR_FOREIGN: u32 = 3;
/// The words there are no saved context, or its CRC is not the right one.
pub const STATE_ERROR_DAMAGED: u32 = 4;
/// Another command was under way.
pub const STATE_ERROR_BUSY: u32 = 5;
/// The host ended it, or the region was reset or loaded meanwhile.
pub const STATE_ERROR_ENDED: u32 = 6;
/// In a page: whose context.
pub const STATE_UID: Address = 0x0c;
/// In a page: where in the save area, in bytes from its beginning.
pub const STATE_OFFSET: Address = 0x10;
/// In a page: how many bytes there are for it.
pub const STATE_LENGTH: Address = 0x14;
/// In a page: CRC-32C of the context's bytes. The wrapper writes it at the end of a save; the host
/// writes before a restore what it must be.
pub const STATE_CHECK: Address = 0x18;
/// In a page: bytes that the last command moved, the head included; read only.
pub const STATE_MOVED: Address = 0x1c;
/// In a page: bytes of a context of what the region holds; zero where it keeps no state; read only.
pub const STATE_BYTES: Address = 0x20;
/// First word of a saved context: "STAT".
pub const STATE_MAGIC: u32 = 0x5354_4154;
/// Bytes of the head of a saved context.
pub const STATE_HEAD: u32 = 64;

/// First page of the links to other cards; zero without [`CAPABILITY_LINKS`].
///
/// A packet whose instance is on a link goes out there behind its descriptor: UID of its DAG, tenant, stage, table version, row of the
/// other card's DAG table, and a number by which it is known when it comes back. The other card takes it where that row names
/// a guest of this link, UID and tenant; whatever else comes is dropped. It serves it as a packet of that row, with the row's
/// token bucket, under its own table version, and sends it back, or a word that it is no more. The home card keeps the packet's place in
/// its packet store and its table version until then, for 2 ms at most: then the packet is lost. So a commit waits no
/// longer than that for packets that are away.
pub const LINKS: Address = 0x5800;
/// Bytes of a page.
pub const LINK_PAGE: Address = 0x40;
/// In a page: frames that went out, 64 bits, low word first, as all counters of the page.
pub const LINK_FRAMES_OUT: Address = 0x00;
/// In a page: their bytes, descriptors included.
pub const LINK_BYTES_OUT: Address = 0x08;
/// In a page: frames that came in.
pub const LINK_FRAMES_IN: Address = 0x10;
/// In a page: packets that came in for no guest.
pub const LINK_REFUSED: Address = 0x18;
/// In a page: answers for no packet that is away, as where they come too late.
pub const LINK_STRAY: Address = 0x20;
/// In a page: bytes of packets that wait for the link or are away.
pub const LINK_AWAY: Address = 0x28;

/// The window of the NT that [`WINDOW_SELECT`] names. Its first registers and its second half are those below, by which it takes
/// configurations, the others are its own. A region that is not loaded reads as zero.
///
/// An NT keeps configurations by UID and tag, and serves a packet by the one that the packet's descriptor names, which is the
/// tag in the DAG's row of the tables that the packet follows: a commit brings it into force with all other rows. A packet of a tag
/// that it does not have is dropped. A load of the region forgets all of them.
pub const WINDOW: Address = 0x8000;
/// Bytes of a window.
pub const WINDOW_BYTES: Address = 0x1000;
/// In a window: words that a configuration has at most; zero where the NT takes none; read only.
pub const NT_WORDS_MAX: Address = 0x00;
/// In a window: UID of the DAG of the next command.
pub const NT_UID: Address = 0x04;
/// In a window: tag of the next command, as in [`crate::DagRow`].
pub const NT_TAG: Address = 0x08;
/// In a window: words that [`NT_APPEND`] takes.
pub const NT_COUNT: Address = 0x0c;
/// In a window: the doorbell, one of the `NT_…` commands below. While one is under way nothing of the window is written.
pub const NT_COMMAND: Address = 0x10;
/// Forgets all configurations of UIDs with the row of [`NT_UID`] but that of [`NT_UID`] and [`NT_TAG`]. What an ended daemon left
/// behind goes with it, so an NT has two of a row at most: the one in force, and the next.
pub const NT_KEEP: u32 = 1;
/// Begins a configuration of [`NT_UID`] and [`NT_TAG`], without words. One that was begun before and not taken is forgotten.
pub const NT_BEGIN: u32 = 2;
/// Appends the first [`NT_COUNT`] words of [`NT_DATA`] to it.
pub const NT_APPEND: u32 = 3;
/// Takes it: it is in force for packets that name it.
pub const NT_TAKE: u32 = 4;
/// In a window: one of the `NT_…` states below; read only.
pub const NT_STATUS: Address = 0x14;
/// Nothing was asked since the region was loaded.
pub const NT_IDLE: u32 = 0;
/// A command is under way.
pub const NT_BUSY: u32 = 1;
/// The last command ended well.
pub const NT_DONE: u32 = 2;
/// The last command was refused: too many words, nothing begun, no room for a further configuration, two others of the row, or
/// words that are no configuration of this NT.
pub const NT_REFUSED: u32 = 3;
/// In a window: first word of what [`NT_APPEND`] takes. They may be keys, so they read as zero.
pub const NT_DATA: Address = 0x800;
/// Words from [`NT_DATA`] on: the second half of the window.
pub const NT_DATA_WORDS: usize = 512;

/// First row of the DAG load counters.
pub const DAG_LOAD: Address = 0x1_0000;
/// Bytes of a row: packets in, bytes intended, bytes served, packets out; 64 bits each.
pub const DAG_LOAD_ROW: Address = 32;

/// First row of the DAG drop counters; zero without [`CAPABILITY_DAG_DROPS`].
pub const DAG_DROPS: Address = 0x2_0000;
/// Bytes of a row: a counter of 64 bits, low word first, for each of [`DropCause::ALL`], in that order.
pub const DAG_DROPS_ROW: Address = 128;

/// First of the records of sampled packets, a ring: record number `i` since power-up is at place `i` modulo
/// [`LATENCY_RING`].
///
/// A card samples one packet in 2^n of each DAG ([`crate::is_sampled`]), of those that came in, as the row's packets are
/// counted. Its record is written when it goes out; a packet that is dropped has none, and so has one that came while
/// [`LATENCY_PLACES`] records were under way, or half as many and [`LATENCY_PLACES_OF_DAG`] of its DAG: packets of a DAG
/// that wait for long leave places to others. What this costs a card is in the crate's README.
pub const LATENCY_RECORDS: Address = 0x4_0000;
/// Number of records that the ring holds.
pub const LATENCY_RING: u32 = 1_024;
/// Bytes of a record, in words of 32 bits: UID of the DAG; cycles in all; cycles of each of [`crate::PathPart::ALL`], in
/// that order; then a word for each NT that it passed: region in bits 31 to 27, slot in bits 26 to 24, cycles in the others;
/// zero behind the last. Cycles are cut to the largest number that the bits can say. The words behind the second sum up to
/// the second.
pub const LATENCY_RECORD: Address = 128;
/// Records that may be under way at once; a packet with branches has one for each of them.
pub const LATENCY_PLACES: usize = 512;
/// Those of one DAG where more than half are taken.
pub const LATENCY_PLACES_OF_DAG: usize = 64;
/// Largest n of one packet in 2^n; a larger one that is written counts as this one.
pub const LATENCY_EXPONENT_MAX: u32 = 16;
/// That of each row after power-up.
pub const LATENCY_EXPONENT_INITIAL: u32 = 6;

/// First row of the largest latencies; zero without [`CAPABILITY_LATENCY`].
///
/// Windows are of 2^[`LATENCY_WINDOW_BITS`] cycles of [`CLOCK_CYCLES`], so the host reads at any time and writes nothing: each
/// row says of which window it is, and has the one before, too.
pub const DAG_LATENCY: Address = 0x6_0000;
/// Bytes of a row: the registers below.
pub const DAG_LATENCY_ROW: Address = 16;
/// In a row: number of the window in which a packet of the DAG went out last, low 32 bits.
pub const DAG_LATENCY_WINDOW: Address = 0;
/// In a row: the largest latency of a packet of that window, in cycles.
pub const DAG_LATENCY_MAX: Address = 4;
/// In a row: the same of the window before; zero where none went out in it.
pub const DAG_LATENCY_MAX_BEFORE: Address = 8;
/// In a row: the n of one packet in 2^n; read and write.
pub const DAG_LATENCY_EXPONENT: Address = 12;
/// A window has 2^25 cycles: 134 ms at 250 MHz.
pub const LATENCY_WINDOW_BITS: u32 = 25;

/// The active bank.
pub const ACTIVE_BANK: Address = 0x8_0000;
/// The shadow bank.
pub const SHADOW_BANK: Address = 0x10_0000;
/// Bytes of a bank.
pub const BANK_BYTES: Address = BANK_WORDS as u32 * 4;
/// The end of this map: what the kernel has to have of registers, in bytes.
pub const END: Address = SHADOW_BANK + BANK_BYTES;

const _: () = assert!(8 * DropCause::ALL.len() <= DAG_DROPS_ROW as usize, "a cause too many");
const _: () = assert!(LOAD_REGION >= FIRST, "the kernel's own registers");
const _: () = assert!(CLOCK_CYCLES + 8 == PACKETS_IN && CLOCK_CYCLES >= REGIONS_END);
const _: () = assert!(DAG_DROPS_END <= LATENCY_RECORDS && LATENCY_RECORDS_END <= DAG_LATENCY);
const _: () = assert!(DAG_LATENCY_END <= ACTIVE_BANK, "rows in the bank");
const _: () = assert!(STATES_END <= LINKS && LINKS_END <= WINDOW);
const _: () = assert!(WINDOW + WINDOW_BYTES <= DAG_LOAD);
const _: () = assert!(NT_DATA as usize + 4 * NT_DATA_WORDS == WINDOW_BYTES as usize);
const _: () = assert!(ACTIVE_BANK + BANK_BYTES <= SHADOW_BANK, "the banks overlap");

/// A register of a region's page.
pub const fn region(region: u8, register: Address) -> Address {
    REGIONS + region as u32 * REGION_PAGE + register
}

/// A register of a DAG's row of latencies.
pub const fn dag_latency(row: u16, register: Address) -> Address {
    DAG_LATENCY + row as u32 * DAG_LATENCY_ROW + register
}

/// A register of the page by which a region's wrapper saves and restores state.
pub const fn state(region: u8, register: Address) -> Address {
    STATES + region as u32 * STATE_PAGE + register
}

/// A register of a link's page.
pub const fn link(link: u8, register: Address) -> Address {
    LINKS + link as u32 * LINK_PAGE + register
}

/// Value of [`WINDOW_SELECT`] for the NT in a slot of a region.
pub const fn window(region: u8, slot: u8) -> u32 {
    (region as u32) << 8 | slot as u32
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

/// Whether the map has a register at `at`. Pages of regions that a card does not have are part of
/// the map and read as zero.
pub const fn is_register(at: Address) -> bool {
    let last_slot = REGION_LOAD + 16 * CHAIN_SLOTS_MAX as u32;
    let is_known = match at {
        LOAD_REGION..=LOAD_ERROR | MAGIC..=LINK_COUNT | TABLE_VERSION..=COMMIT_WAITS => true,
        BULK_BUFFER_LOW..=BULK_STATUS | SAVE_AREA_LOW..=SAVE_AREA_BYTES => true,
        CONFIGURE_BUFFER_LOW..=CONFIGURE_STATUS | LATENCY_WRITTEN | WINDOW_SELECT => true,
        WINDOW..WINDOW_END => true,
        LATENCY_RECORDS..LATENCY_RECORDS_END | DAG_LATENCY..DAG_LATENCY_END => true,
        LINKS..LINKS_END => (at - LINKS) % LINK_PAGE < LINK_AWAY + 8,
        STATES..STATES_END => (at - STATES) % STATE_PAGE <= STATE_BYTES,
        REGIONS..REGIONS_END => {
            let register = (at - REGIONS) % REGION_PAGE;
            register <= REGION_IN_FLIGHT
                || register >= REGION_DIGEST && register < REGION_IDENTITY + 16
                || register >= REGION_LOAD && register < last_slot
        }
        CLOCK_CYCLES..DROPS_END | DAG_LOAD..DAG_LOAD_END | DAG_DROPS..DAG_DROPS_END => true,
        ACTIVE_BANK..ACTIVE_BANK_END | SHADOW_BANK..END => true,
        _ => false,
    };
    is_known && at.is_multiple_of(4)
}

const REGIONS_END: Address = REGIONS + REGIONS_MAX as u32 * REGION_PAGE;
const WINDOW_END: Address = WINDOW + WINDOW_BYTES;
const STATES_END: Address = STATES + REGIONS_MAX as u32 * STATE_PAGE;
const LINKS_END: Address = LINKS + LINKS_MAX as u32 * LINK_PAGE;
const DROPS_END: Address = DROPS + 8 * DropCause::ALL.len() as u32;
const DAG_LOAD_END: Address = DAG_LOAD + DAG_ROWS as u32 * DAG_LOAD_ROW;
const DAG_DROPS_END: Address = DAG_DROPS + DAG_ROWS as u32 * DAG_DROPS_ROW;
const LATENCY_RECORDS_END: Address = LATENCY_RECORDS + LATENCY_RING * LATENCY_RECORD;
const DAG_LATENCY_END: Address = DAG_LATENCY + DAG_ROWS as u32 * DAG_LATENCY_ROW;
const ACTIVE_BANK_END: Address = ACTIVE_BANK + BANK_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_that_has_a_name_is_in_the_map_and_gaps_are_not() {
        let named = [MAGIC, BOOT_ID, COMMIT_WAITS, LOAD_ERROR, BULK_STATUS, PACKETS_IN, DAG_LOAD];
        let of_region =
            [REGION_STATUS, REGION_IN_FLIGHT, REGION_DIGEST_NEXT, REGION_IDENTITY, REGION_LOAD];
        let last = REGIONS_MAX as u8 - 1;
        assert!(named.iter().all(|at| is_register(*at)));
        assert!(of_region.iter().all(|register| is_register(region(last, *register))));
        assert!(is_register(END - 4) && is_register(ACTIVE_BANK));
        assert!(is_register(state(last, STATE_BYTES)) && is_register(SAVE_AREA_BYTES));
        assert!(!is_register(state(0, STATE_BYTES + 4)) && !is_register(LINKS_END));
        assert!(is_register(LINK_COUNT) && is_register(link(15, LINK_AWAY + 4)));
        assert!(is_register(CONFIGURE_BUFFER_LOW) && is_register(CONFIGURE_STATUS));
        assert!(is_register(WINDOW_SELECT) && is_register(WINDOW + NT_STATUS));
        assert!(!is_register(WINDOW_SELECT + 4) && !is_register(WINDOW - 4));
        assert!(is_register(WINDOW + WINDOW_BYTES - 4) && !is_register(WINDOW + WINDOW_BYTES));
        let gaps = [
            LINK_COUNT + 4,
            link(0, LINK_AWAY + 8),
            link(LINKS_MAX as u8, 0),
            COMMIT_WAITS + 4,
            LOAD_ERROR + 4,
            BULK_STATUS + 4,
            REGIONS_END,
            DROPS_END,
        ];
        assert!(is_register(LATENCY_WRITTEN) && is_register(dag_latency(1_023, 12)));
        assert!(!is_register(CONFIGURE_STATUS + 4) && !is_register(CONFIGURE_BUFFER_LOW - 4));
        assert!(gaps.iter().all(|at| !is_register(*at)));
        assert!(!is_register(region(0, REGION_IN_FLIGHT + 4)));
        assert!(!is_register(MAGIC + 1) && !is_register(END));
    }
}
