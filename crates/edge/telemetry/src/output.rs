//! Lines on standard output and standard error that never end a program.
//!
//! The macros of the standard library panic where a line cannot be written, and a reader may leave at any time: `snicd doctor
//! | head -1`. A program goes on in silence then, and its exit code says what it found, whoever reads.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};

/// Prints a line of a result: `out!("{} cards", count)?`.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => {
        $crate::output::line(::std::format_args!($($text)*))
    };
}

/// Says something on standard error, if anybody reads it.
#[macro_export]
macro_rules! complain {
    ($($text:tt)*) => {
        $crate::output::complain(::std::format_args!($($text)*))
    };
}

/// Writes a line to standard output; [`out!`] calls it.
///
/// # Errors
/// It cannot be written, for instance because the disk is full. A reader that has left is no error.
pub fn line(text: fmt::Arguments<'_>) -> io::Result<()> {
    bytes(format!("{text}\n").as_bytes())
}

/// Writes bytes to standard output, such as a manual page.
///
/// # Errors
/// As [`line()`].
pub fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line to standard error; [`complain!`] calls it.
pub fn complain(text: fmt::Arguments<'_>) {
    // There is nowhere left to report it.
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}
