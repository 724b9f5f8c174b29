//! Serves the shim: it listens, this side connects, again and again, as a simulator would.

use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_tables::registers::Address;

use crate::device::{Device, DeviceTraffic, REGISTERS_BASE};
use crate::wire::{Call, answer, receive, send_close};

/// Between two tries to reach the shim.
const RETRY: Duration = Duration::from_millis(2);

/// A failure of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceFailure {
    /// The process ends, as if it were killed.
    Die,
    /// It does not reply any more, until another client connects.
    Hang,
    /// It replies with bytes that are not a reply.
    Garbage,
    /// It sends half a reply, and closes.
    Short,
}

/// A fault to come, at the first access to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trap {
    pub at: Address,
    /// A write, else a read.
    pub write: bool,
    /// The kind of failure.
    pub failure: DeviceFailure,
}

/// The state that the threads of a device share.
pub struct Shared {
    pub device: Mutex<Device>,
    /// The accesses over the wire.
    pub traffic: DeviceTraffic,
    /// The next fault.
    pub trap: Mutex<Option<Trap>>,
    /// The second socket, while the shim listens on it.
    back: Mutex<Option<UnixStream>>,
    stop: AtomicBool,
}

impl Shared {
    /// A device that nobody serves yet.
    pub fn new(device: Device) -> Arc<Self> {
        Arc::new(Self {
            device: Mutex::new(device),
            traffic: DeviceTraffic::default(),
            trap: Mutex::new(None),
            back: Mutex::new(None),
            stop: AtomicBool::new(false),
        })
    }

    /// Ends the threads as soon as nobody is connected.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn connect(&self, path: &Path) -> Option<UnixStream> {
        while self.goes_on() {
            match UnixStream::connect(path) {
                Ok(socket) => return Some(socket),
                Err(_) => std::thread::sleep(RETRY),
            }
        }
        None
    }
}

/// Takes a lock; a thread that panicked with it has failed its test already.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The two sockets on which the shim listens for the id `id`.
fn sockets(user: &str, id: &str) -> (PathBuf, PathBuf) {
    let folder = PathBuf::from("/tmp").join(user);
    (folder.join(id), folder.join(format!("D2X_unix_sock_{id}")))
}

/// Starts the threads that serve the shim of a user and an id.
///
/// # Errors
/// The operating system gives no thread.
pub fn start(shared: &Arc<Shared>, user: &str, id: &str) -> io::Result<()> {
    let (calls, back) = sockets(user, id);
    let serving = Arc::clone(shared);
    std::thread::Builder::new().name("device".into()).spawn(move || {
        while let Some(socket) = serving.connect(&calls) {
            // The shim is gone: the next one is waited for.
            let _ = serve(&serving, socket);
            if let Some(back) = &mut *lock(&serving.back) {
                let _ = send_close(back);
            }
        }
    })?;
    let backing = Arc::clone(shared);
    std::thread::Builder::new().name("device-back".into()).spawn(move || {
        while let Some(mut socket) = backing.connect(&back) {
            *lock(&backing.back) = socket.try_clone().ok();
            let mut bytes = [0; 4_096];
            while matches!(socket.read(&mut bytes), Ok(1..)) {}
            *lock(&backing.back) = None;
        }
    })?;
    Ok(())
}

fn serve(shared: &Shared, socket: UnixStream) -> io::Result<()> {
    let mut writer = socket.try_clone()?;
    let mut reader = BufReader::with_capacity(1 << 17, socket);
    loop {
        let call = receive(&mut reader)?;
        let failure = spring(shared, &call);
        if let Some(DeviceFailure::Die) = failure {
            std::process::exit(9);
        }
        let bytes = run(shared, &call);
        let mut frame = answer(&call, bytes);
        match failure {
            Some(DeviceFailure::Hang) => {
                // Until the shim is gone.
                while matches!(reader.read(&mut [0; 64]), Ok(1..)) {}
                return Ok(());
            }
            Some(DeviceFailure::Garbage) => frame.iter_mut().for_each(|byte| *byte = 0xFF),
            Some(DeviceFailure::Short) => {
                frame.truncate(frame.len() / 2);
                return writer.write_all(&frame);
            }
            _ => {}
        }
        writer.write_all(&frame)?;
        if call == Call::Close {
            return Ok(());
        }
    }
}

/// The fault that was set for this call.
fn spring(shared: &Shared, call: &Call) -> Option<DeviceFailure> {
    let (at, write) = match call {
        Call::WriteRegisters { at, .. } => (*at, true),
        Call::ReadRegisters { at, .. } => (*at, false),
        _ => return None,
    };
    let hits = |trap: &mut Trap| register(at) == trap.at && write == trap.write;
    lock(&shared.trap).take_if(hits).map(|trap| trap.failure)
}

/// Addresses below the map wrap around and are no registers.
const fn register(at: u64) -> Address {
    at.wrapping_sub(REGISTERS_BASE) as Address
}

fn run(shared: &Shared, call: &Call) -> Vec<u8> {
    let (mut device, traffic) = (lock(&shared.device), &shared.traffic);
    match call {
        Call::CopyToDevice { at, bytes } => device.copy_in(*at, bytes, traffic),
        Call::CopyToHost { at, bytes } => return device.copy_out(*at, *bytes),
        Call::WriteRegisters { at, words } => {
            for (at, word) in (register(*at)..).step_by(4).zip(words) {
                device.write(at, *word, traffic);
            }
        }
        Call::ReadRegisters { at, words } => {
            let registers = (register(*at)..).step_by(4).take(*words);
            return registers.flat_map(|at| device.read(at, traffic).to_le_bytes()).collect();
        }
        Call::Close | Call::Other | Call::Silent => {}
    }
    Vec::new()
}
