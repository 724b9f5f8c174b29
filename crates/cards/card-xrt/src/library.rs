//! XRT as it is found on the machine: loaded at run time, its symbols bound once, each call behind
//! a safe function. With the system calls of `card-soft`, the only unsafe code of the workspace.
//!
//! The contract with the library, once for all blocks below: handles are used only while they
//! are open (a [`Buffer`] and a [`Kernel`] keep their [`Device`] open, and that the library), by one
//! thread, and are closed once; no pointer that is given outlives the call.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::path::Path;
use std::rc::Rc;

use libloading::Library;
use libloading::os::unix::Library as Loaded;
use snic_domain::DriverError;
use uuid::Uuid;

use crate::protocol::CardSelector;

/// The library with the C interface, in the folder `lib` of XRT.
const NAME: &str = "libxrt_coreutil.so.2";

type Handle = *mut c_void;

macro_rules! symbols {
    ($($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used, as XRT names them.
        pub const SYMBOLS: &[&str] = &[$($name),*];

        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn bind(library: &Library) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: the type is that of the declaration in XRT's header of this name.
                    let $field = unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            concat!($name, "\0").as_bytes(),
                        )
                    };
                    if $field.is_err() {
                        missing.push($name);
                    }
                )*
                match ($($field,)*) {
                    ($(Ok($field),)*) => Ok(Self { $($field: *$field,)* }),
                    _ => Err(missing),
                }
            }
        }
    };
}

symbols! {
    device_of_shim = "xrtDeviceToXclDevice": fn(Handle) -> Handle;
    setting = "xrtIniStringSet": fn(*const c_char, *const c_char) -> c_int;
    device_open = "xrtDeviceOpen": fn(u32) -> Handle;
    device_open_by_pci = "xrtDeviceOpenByBDF": fn(*const c_char) -> Handle;
    device_close = "xrtDeviceClose": fn(Handle) -> c_int;
    device_load = "xrtDeviceLoadXclbin": fn(Handle, *const c_void) -> c_int;
    device_uuid = "xrtDeviceGetXclbinUUID": fn(Handle, *mut u8) -> c_int;
    kernel_open = "xrtPLKernelOpenExclusive": fn(Handle, *const u8, *const c_char) -> Handle;
    kernel_close = "xrtKernelClose": fn(Handle) -> c_int;
    kernel_group = "xrtKernelArgGroupId": fn(Handle, c_int) -> c_int;
    kernel_read = "xrtKernelReadRegister": fn(Handle, u32, *mut u32) -> c_int;
    kernel_write = "xrtKernelWriteRegister": fn(Handle, u32, u32) -> c_int;
    buffer_alloc = "xrtBOAlloc": fn(Handle, usize, u64, u32) -> Handle;
    buffer_free = "xrtBOFree": fn(Handle) -> c_int;
    buffer_write = "xrtBOWrite": fn(Handle, *const c_void, usize, usize) -> c_int;
    buffer_read = "xrtBORead": fn(Handle, *mut c_void, usize, usize) -> c_int;
    buffer_sync = "xrtBOSync": fn(Handle, c_int, usize, usize) -> c_int;
    buffer_address = "xrtBOAddress": fn(Handle) -> u64;
}

type ErrorGetLast = unsafe extern "C" fn(Handle, c_uint, *mut u64, *mut u64) -> c_int;
type ErrorGetString = unsafe extern "C" fn(Handle, u64, *mut c_char, usize, *mut usize) -> c_int;

/// The functions for errors that a driver reports by itself. Their declarations lack `extern "C"`, so that they are
/// exported by their C++ names; nothing else depends on them.
#[derive(Clone, Copy)]
struct ErrorFunctions {
    get_last: ErrorGetLast,
    get_string: ErrorGetString,
}

/// Classes of errors: system, hardware, unknown (`xrtErrorClass` in XRT's `xrt_error_code.h`).
const ERROR_CLASSES: [c_uint; 3] = [1, 3, 4];
/// Longest text of an error that is taken.
const ERROR_BYTES: usize = 1_024;

impl ErrorFunctions {
    fn bind(library: &Library) -> Option<Self> {
        const LAST: [&[u8]; 2] =
            [b"xrtErrorGetLast\0", b"_Z15xrtErrorGetLastPv13xrtErrorClassPmS1_\0"];
        const TEXT: [&[u8]; 2] = [b"xrtErrorGetString\0", b"_Z17xrtErrorGetStringPvmPcmPm\0"];
        // SAFETY: the types are those of the declarations in XRT's header `xrt_error.h`; the C++ names say the
        // same types.
        let last = LAST.iter().find_map(|name| unsafe { library.get::<ErrorGetLast>(*name) }.ok());
        // SAFETY: as above.
        let text =
            TEXT.iter().find_map(|name| unsafe { library.get::<ErrorGetString>(*name) }.ok());
        Some(Self { get_last: *last?, get_string: *text? })
    }
}

/// The setting that has a role loaded that the card holds already (`get_force_program_xclbin` in
/// XRT's `config_reader.h`).
const FORCE: &CStr = c"Runtime.force_program_xclbin";

/// The reset that a driver of users' functions does (`XCL_USER_RESET` in XRT's `xrt.h`).
const USER_RESET: c_int = 2;

/// Directions of a synchronisation (`xclBOSyncDirection`).
const TO_CARD: c_int = 0;
const FROM_CARD: c_int = 1;

/// XRT's version, as its file says: `2.13.0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(pub String);

/// Why a call of XRT failed.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It cannot be loaded.
    #[error(
        "XRT cannot be loaded from {path}: {source}; install libxrt1, or set XILINX_XRT in [cards.xrt.environment]"
    )]
    Load {
        path: String,
        #[source]
        source: libloading::Error,
    },
    /// Its version lacks functions that are needed.
    #[error("{path} (version {version}) lacks {}; XRT 2.13, 2.18 or a later 2.x is needed", missing.join(", "))]
    Symbols {
        path: String,
        version: String,
        /// The functions that it lacks.
        missing: Vec<&'static str>,
    },
    /// A call failed.
    #[error("{call} failed: {source}")]
    Call {
        /// Name of the call, and its purpose.
        call: String,
        /// The library's error.
        #[source]
        source: io::Error,
    },
    /// The library for this kind of card cannot do that.
    #[error("XRT's library for this kind of card has no {0}")]
    Missing(&'static str),
    /// A name with a NUL in it.
    #[error("{0:?} contains a NUL")]
    Name(String),
}

impl LibraryError {
    /// The last call failed; it says why in `errno`.
    fn call(call: impl Into<String>) -> Self {
        Self::Call { call: call.into(), source: io::Error::last_os_error() }
    }
}

/// XRT, loaded. It is never unloaded: its threads do not end.
pub(crate) struct Xrt {
    functions: Functions,
    errors: Option<ErrorFunctions>,
    pub(crate) version: Version,
}

/// Loads XRT from its folder and binds what is needed, without calling any of it.
///
/// # Errors
///
/// [`LibraryError::Load`] where XRT cannot be loaded, [`LibraryError::Symbols`] where it lacks a
/// function.
pub fn probe(root: &Path) -> Result<Version, LibraryError> {
    Ok(Xrt::load(root)?.version.clone())
}

impl Xrt {
    /// Loads XRT from `root`, the folder that `XILINX_XRT` names.
    pub(crate) fn load(root: &Path) -> Result<Rc<Self>, LibraryError> {
        let file = root.join("lib").join(NAME);
        let path = file.display().to_string();
        // SAFETY: the library's initialisers do nothing but set up its own data (XRT 2.13); the
        // environment that its later calls rely on was checked before (`environment::check`).
        let library = unsafe { Library::new(&file) }
            .map_err(|source| LibraryError::Load { path: path.clone(), source })?;
        let version = version(&file);
        let functions = Functions::bind(&library).map_err(|missing| {
            let version = version.0.clone();
            LibraryError::Symbols { path, version, missing }
        })?;
        let errors = ErrorFunctions::bind(&library);
        std::mem::forget(library);
        Ok(Rc::new(Self { functions, errors, version }))
    }

    /// From now on a role is also loaded where the card holds it already. XRT reads the setting once
    /// in a process, when it loads the first role.
    pub(crate) fn force_roles(&self) -> Result<(), LibraryError> {
        // SAFETY: both are strings with a NUL at the end, and XRT copies them.
        let failed = unsafe { (self.functions.setting)(FORCE.as_ptr(), c"true".as_ptr()) };
        if failed != 0 {
            return Err(LibraryError::call(
                "setting Runtime.force_program_xclbin (xrtIniStringSet)",
            ));
        }
        Ok(())
    }

    /// Opens a card.
    pub(crate) fn open(self: &Rc<Self>, which: CardSelector) -> Result<Device, LibraryError> {
        let (handle, call) = match which {
            // SAFETY: any number may be asked for.
            CardSelector::Number(number) => {
                (unsafe { (self.functions.device_open)(number) }, "xrtDeviceOpen")
            }
            CardSelector::Pci(address) => {
                let text = c_string(address.to_string().as_bytes())?;
                // SAFETY: a string with a NUL at the end, which lives until the call returns.
                let handle = unsafe { (self.functions.device_open_by_pci)(text.as_ptr()) };
                (handle, "xrtDeviceOpenByBDF")
            }
        };
        if handle.is_null() {
            return Err(LibraryError::call(format!("opening card {which} ({call})")));
        }
        Ok(Device(Rc::new(OpenDevice { xrt: Rc::clone(self), handle })))
    }
}

/// The version behind `.so.` in the name of the file that the link leads to.
fn version(file: &Path) -> Version {
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Version(name.split_once(".so.").map_or("unknown", |(_, version)| version).to_owned())
}

fn c_string(text: &[u8]) -> Result<CString, LibraryError> {
    CString::new(text).map_err(|_| LibraryError::Name(String::from_utf8_lossy(text).into_owned()))
}

struct OpenDevice {
    xrt: Rc<Xrt>,
    handle: Handle,
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // SAFETY: the handle is open and nothing holds it any more; see the module's head.
        // A card that does not close is of no more use than one that does.
        let _ = unsafe { (self.xrt.functions.device_close)(self.handle) };
    }
}

/// A card that is open.
#[derive(Clone)]
pub(crate) struct Device(Rc<OpenDevice>);

impl Device {
    fn functions(&self) -> &Functions {
        &self.0.xrt.functions
    }

    /// Loads a role: the bytes of a whole xclbin that was checked (`snic_bitstream::xclbin`), because XRT
    /// crashes on some. XRT does not load the one that the card holds already.
    pub(crate) fn load(&self, role: &[u8]) -> Result<(), LibraryError> {
        // `struct axlf` wants the alignment of its largest fields, 8 bytes.
        let mut words = vec![0_u64; role.len().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(role.chunks(8)) {
            let mut full = [0; 8];
            full[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(full);
        }
        // SAFETY: open handle; a whole, aligned image that lives until the call returns. The library
        // copies it: its length is in it, and was held against that of the bytes.
        match unsafe { (self.functions().device_load)(self.0.handle, words.as_ptr().cast()) } {
            0 => Ok(()),
            _ => Err(LibraryError::call("loading the role (xrtDeviceLoadXclbin)")),
        }
    }

    /// The role that the card holds.
    pub(crate) fn uuid(&self) -> Result<Uuid, LibraryError> {
        let mut uuid = [0; 16];
        // SAFETY: open handle; the call writes 16 bytes (`xuid_t`).
        match unsafe { (self.functions().device_uuid)(self.0.handle, uuid.as_mut_ptr()) } {
            0 => Ok(Uuid::from_bytes(uuid)),
            _ => Err(LibraryError::call("asking for the role (xrtDeviceGetXclbinUUID)")),
        }
    }

    /// The last error of each class that the driver reported by itself; none of a class where it cannot be asked.
    pub(crate) fn driver_errors(&self) -> Vec<DriverError> {
        let Some(functions) = self.0.xrt.errors else { return Vec::new() };
        let error = |class: &c_uint| {
            let (mut code, mut time) = (0, 0);
            // SAFETY: open handle; both words live until the call returns. It catches what it throws.
            let failed = unsafe {
                (functions.get_last)(self.0.handle, *class, &raw mut code, &raw mut time)
            };
            (failed == 0 && code != 0).then(|| DriverError {
                code,
                time,
                text: self.error_text(functions, code),
            })
        };
        ERROR_CLASSES.iter().filter_map(error).collect()
    }

    fn error_text(&self, functions: ErrorFunctions, code: u64) -> String {
        let mut bytes = vec![0_u8; ERROR_BYTES];
        // SAFETY: open handle; a buffer of this size, whose last byte stays zero; no length is asked for.
        let failed = unsafe {
            let out = bytes.as_mut_ptr().cast();
            (functions.get_string)(self.0.handle, code, out, ERROR_BYTES - 1, std::ptr::null_mut())
        };
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if failed != 0 || text.is_empty() { format!("code {code:#x}") } else { text }
    }

    /// Has the driver reset the card. `xrt::device::reset` does nothing in XRT 2.13; the shim's function, which
    /// `xbutil reset` ends in, does.
    pub(crate) fn reset(&self) -> Result<(), LibraryError> {
        const NAME: &str = "xclResetDevice";
        // SAFETY: the type is that of the declaration in XRT's header `xrt.h`.
        let reset = unsafe {
            Loaded::this().get::<unsafe extern "C" fn(Handle, c_int) -> c_int>(NAME.as_bytes())
        };
        let reset = reset.map_err(|_| LibraryError::Missing(NAME))?;
        // SAFETY: open handle; the shim's own is good for as long.
        let result = unsafe {
            let shim = (self.functions().device_of_shim)(self.0.handle);
            reset(shim, USER_RESET)
        };
        match result {
            0 => Ok(()),
            code => Err(LibraryError::Call {
                call: format!("resetting the card ({NAME})"),
                source: io::Error::from_raw_os_error(code.saturating_abs()),
            }),
        }
    }

    /// Takes a kernel, `kernel:instance`, for this process alone.
    pub(crate) fn kernel(&self, role: Uuid, name: &str) -> Result<Kernel, LibraryError> {
        let (kernel, instance) = name.split_once(':').unwrap_or((name, ""));
        let c_name = c_string(format!("{kernel}:{{{instance}}}").as_bytes())?;
        let uuid = role.into_bytes();
        // SAFETY: open handle; 16 bytes and a name with a NUL, alive until the call returns.
        let handle = unsafe {
            (self.functions().kernel_open)(self.0.handle, uuid.as_ptr(), c_name.as_ptr())
        };
        if handle.is_null() {
            return Err(LibraryError::call(format!("taking {name} (xrtPLKernelOpenExclusive)")));
        }
        Ok(Kernel { device: self.clone(), handle })
    }

    /// A buffer in the memory that `group` names.
    pub(crate) fn buffer(&self, bytes: usize, group: u32) -> Result<Buffer, LibraryError> {
        // SAFETY: open handle; any size may be asked for.
        let handle = unsafe { (self.functions().buffer_alloc)(self.0.handle, bytes, 0, group) };
        if handle.is_null() {
            return Err(LibraryError::call(format!("a buffer of {bytes} bytes (xrtBOAlloc)")));
        }
        Ok(Buffer { device: self.clone(), handle, bytes })
    }
}

/// A kernel that this process has for itself.
pub(crate) struct Kernel {
    device: Device,
    handle: Handle,
}

impl Kernel {
    /// The memory that its argument reaches.
    pub(crate) fn group(&self, argument: u8) -> Result<u32, LibraryError> {
        // SAFETY: open handle; the library checks the number.
        let group = unsafe { (self.device.functions().kernel_group)(self.handle, argument.into()) };
        u32::try_from(group).map_err(|_| LibraryError::call("xrtKernelArgGroupId"))
    }

    /// Reads a register.
    pub(crate) fn read(&self, at: u32) -> Result<u32, LibraryError> {
        let mut value = 0;
        // SAFETY: open handle; the library checks the address and writes one word.
        match unsafe { (self.device.functions().kernel_read)(self.handle, at, &raw mut value) } {
            0 => Ok(value),
            _ => Err(LibraryError::call(format!("reading {at:#x} (xrtKernelReadRegister)"))),
        }
    }

    /// Writes a register.
    pub(crate) fn write(&self, at: u32, value: u32) -> Result<(), LibraryError> {
        // SAFETY: open handle; the library checks the address.
        match unsafe { (self.device.functions().kernel_write)(self.handle, at, value) } {
            0 => Ok(()),
            _ => Err(LibraryError::call(format!("writing {at:#x} (xrtKernelWriteRegister)"))),
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the handle is open and nothing holds it any more.
        let _ = unsafe { (self.device.functions().kernel_close)(self.handle) };
    }
}

/// A buffer in the card's memory, with a copy in this process.
pub(crate) struct Buffer {
    device: Device,
    handle: Handle,
    bytes: usize,
}

impl Buffer {
    /// Where it is on the card.
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: open handle.
        unsafe { (self.device.functions().buffer_address)(self.handle) }
    }

    /// Copies `bytes` to the beginning of the buffer, on the card.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), LibraryError> {
        self.check(bytes.len())?;
        let functions = self.device.functions();
        // SAFETY: open handle; the pointer is good for as many bytes as are named, and the buffer
        // has room for them, as just checked.
        let copied =
            unsafe { (functions.buffer_write)(self.handle, bytes.as_ptr().cast(), bytes.len(), 0) };
        // SAFETY: open handle; the range is within the buffer.
        if copied != 0
            || unsafe { (functions.buffer_sync)(self.handle, TO_CARD, bytes.len(), 0) } != 0
        {
            return Err(LibraryError::call(format!(
                "{} bytes to the card (xrtBOSync)",
                bytes.len()
            )));
        }
        Ok(())
    }

    /// Copies the beginning of the buffer, as it is on the card.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<(), LibraryError> {
        self.check(bytes.len())?;
        let functions = self.device.functions();
        // SAFETY: open handle; the range is within the buffer, as just checked.
        if unsafe { (functions.buffer_sync)(self.handle, FROM_CARD, bytes.len(), 0) } != 0 {
            return Err(LibraryError::call(format!(
                "{} bytes off the card (xrtBOSync)",
                bytes.len()
            )));
        }
        // SAFETY: open handle; the pointer is good for as many bytes as are named.
        let copied = unsafe {
            (functions.buffer_read)(self.handle, bytes.as_mut_ptr().cast(), bytes.len(), 0)
        };
        match copied {
            0 => Ok(()),
            _ => Err(LibraryError::call("xrtBORead")),
        }
    }

    fn check(&self, bytes: usize) -> Result<(), LibraryError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let source = io::Error::from(io::ErrorKind::InvalidInput);
        Err(LibraryError::Call {
            call: format!("{bytes} bytes in a buffer of {}", self.bytes),
            source,
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the handle is open and nothing holds it any more.
        let _ = unsafe { (self.device.functions().buffer_free)(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_xrt_is_not_the_error_says_where_it_was_looked_for() {
        let error = probe(Path::new("/nonexistent")).expect_err("nothing is there").to_string();
        assert!(error.contains("/nonexistent/lib/libxrt_coreutil.so.2"), "{error}");
        assert!(error.contains("libxrt1"), "{error}");
    }

    #[test]
    fn a_library_that_is_not_xrt_is_told_by_what_it_lacks() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("lib")).expect("a folder");
        let other = [
            "/lib/x86_64-linux-gnu/libm.so.6",
            "/lib64/libm.so.6",
            "/lib/aarch64-linux-gnu/libm.so.6",
        ];
        let other = other.iter().find(|path| Path::new(path).exists()).expect("a C library");
        std::os::unix::fs::symlink(other, folder.path().join("lib").join(NAME)).expect("a link");
        let error = probe(folder.path()).expect_err("it is not XRT").to_string();
        assert!(SYMBOLS.iter().all(|symbol| error.contains(symbol)), "{error}");
        assert!(error.contains("version 6"), "{error}");
    }

    #[test]
    fn the_version_is_that_of_the_file_behind_the_link() {
        assert_eq!(version(Path::new("/x/libxrt_coreutil.so.2.13.0")), Version("2.13.0".into()));
        assert_eq!(version(Path::new("/x/libxrt")), Version("unknown".into()));
    }
}
