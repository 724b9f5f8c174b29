//! A network task in Rust: lets each IPv4 source open so many TCP connections, and drops what begins more. It needs
//! no allocator, takes `{"connections": 100}` as its configuration, and saves who opened how many.
//!
//! Build:
//! `RUSTFLAGS="-C link-arg=-zstack-size=16384" cargo build --release --target wasm32-unknown-unknown`

#![no_std]

use core::cell::UnsafeCell;

/// As in `crates/cards/nts-wasm/include/snic_nt.h`.
const HEADROOM: usize = 128;
const FRAME_BYTES_MAX: usize = 9_216;
const FORWARD: u64 = 1 << 56;
const DROP: u64 = 0;

/// Sources that are known; a new one takes the place of whoever has its place.
const SOURCES: usize = 4_096;
const ETHERNET: usize = 14;
const SYN: u8 = 2;
const ACK: u8 = 16;

#[derive(Clone, Copy)]
struct Source {
    address: [u8; 4],
    opened: u32,
}

/// Whoever changes what is saved gives it another number.
const STATE_VERSION: u32 = 1;
/// A source as it is saved: its address, and the number of its connections in little endian.
const SOURCE_BYTES: usize = 8;

struct Task {
    buffer: [u8; HEADROOM + FRAME_BYTES_MAX],
    sources: [Source; SOURCES],
    /// The sources that are known, as they are saved.
    saved: [u8; SOURCES * SOURCE_BYTES],
    /// None may be opened before the module is told how many.
    connections: u32,
}

/// The module's memory. One call comes after the other.
struct Alone(UnsafeCell<Task>);

// SAFETY: a module has one thread.
unsafe impl Sync for Alone {}

static TASK: Alone = Alone(UnsafeCell::new(Task {
    buffer: [0; HEADROOM + FRAME_BYTES_MAX],
    sources: [Source { address: [0; 4], opened: 0 }; SOURCES],
    saved: [0; SOURCES * SOURCE_BYTES],
    connections: 0,
}));

fn task() -> &'static mut Task {
    // SAFETY: each exported function takes it once, and none calls another.
    unsafe { &mut *TASK.0.get() }
}

#[unsafe(no_mangle)]
extern "C" fn snic_abi_version() -> u32 {
    1
}

#[unsafe(no_mangle)]
extern "C" fn snic_buffer() -> *mut u8 {
    task().buffer.as_mut_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn snic_process(length: u32) -> u64 {
    let task = task();
    let Some(frame) = task.buffer[HEADROOM..].get(..length as usize) else { return DROP };
    let opens = opener(frame);
    let goes_on = FORWARD | (HEADROOM as u64) << 32 | u64::from(length);
    let Some(address) = opens else { return goes_on };
    let source = &mut task.sources[place(address)];
    if source.address != address {
        *source = Source { address, opened: 0 };
    }
    if source.opened >= task.connections {
        return DROP;
    }
    source.opened += 1;
    goes_on
}

fn place(address: [u8; 4]) -> usize {
    (usize::from(address[2] ^ address[0]) << 8 | usize::from(address[3])) % SOURCES
}

/// The source of a packet that opens a TCP connection over IPv4.
fn opener(frame: &[u8]) -> Option<[u8; 4]> {
    let ip = frame.get(ETHERNET..)?;
    let is_tcp = frame[12..14] == [8, 0] && *ip.first()? >> 4 == 4 && *ip.get(9)? == 6;
    let header = usize::from(ip[0] & 15) * 4;
    let flags = *ip.get(header + 13).filter(|_| is_tcp)?;
    (flags & (SYN | ACK) == SYN).then(|| [ip[12], ip[13], ip[14], ip[15]])
}

#[unsafe(no_mangle)]
extern "C" fn snic_configure(length: u32) -> u32 {
    let task = task();
    let told = task.buffer.get(..length as usize).and_then(connections);
    let Some(connections) = told else { return 1 };
    task.connections = connections;
    0
}

#[unsafe(no_mangle)]
extern "C" fn snic_state_version() -> u32 {
    STATE_VERSION
}

#[unsafe(no_mangle)]
extern "C" fn snic_save() -> u64 {
    let task = task();
    let known = task.sources.iter().filter(|source| source.opened > 0);
    let mut length = 0;
    for (source, bytes) in known.zip(task.saved.as_chunks_mut::<SOURCE_BYTES>().0) {
        bytes[..4].copy_from_slice(&source.address);
        bytes[4..].copy_from_slice(&source.opened.to_le_bytes());
        length += SOURCE_BYTES;
    }
    (task.saved.as_ptr() as u64) << 32 | length as u64
}

#[unsafe(no_mangle)]
extern "C" fn snic_restore_buffer(length: u32) -> *mut u8 {
    let room = task().saved.get_mut(..length as usize);
    room.map_or(core::ptr::null_mut(), <[u8]>::as_mut_ptr)
}

#[unsafe(no_mangle)]
extern "C" fn snic_restore(length: u32) -> u32 {
    let task = task();
    let saved = task.saved.get(..length as usize).map(<[u8]>::as_chunks::<SOURCE_BYTES>);
    let Some((saved, [])) = saved else { return 1 };
    for &[a, b, c, d, opened @ ..] in saved {
        let address = [a, b, c, d];
        task.sources[place(address)] = Source { address, opened: u32::from_le_bytes(opened) };
    }
    0
}

/// The digits behind the only key.
fn connections(json: &[u8]) -> Option<u32> {
    let key = b"\"connections\"";
    let at = json.windows(key.len()).position(|part| part == key)?;
    let mut rest = json[at + key.len()..].iter().skip_while(|byte| b" :".contains(byte)).peekable();
    rest.peek().filter(|byte| byte.is_ascii_digit())?;
    rest.take_while(|byte| byte.is_ascii_digit())
        .try_fold(0_u32, |sum, digit| sum.checked_mul(10)?.checked_add(u32::from(digit - b'0')))
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
