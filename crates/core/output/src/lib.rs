//! Lines on standard output and standard error that never end a program.
//!
//! The macros of the standard library panic where a line cannot be written, and a reader may leave at any time: `snicd doctor
//! | head -1`. A program goes on in silence then, and its exit code says what it found, whoever reads. A result that cannot be
//! written for another reason, such as a full disk, is an error.
//!
//! All programs use it, so it is below all of them; `cargo xtask tidy` finds who prints otherwise.

#![warn(missing_docs)]

mod folders;
mod remedies;

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

pub use folders::try_folder;
pub use remedies::{remedy, with_remedy};

/// Prints a line of a result: `out!("{} cards", count)?`.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => {
        $crate::line(::std::format_args!($($text)*))
    };
}

/// Says something on standard error, if anybody reads it.
#[macro_export]
macro_rules! complain {
    ($($text:tt)*) => {
        $crate::complain(::std::format_args!($($text)*))
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
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
    };
    write_to(&mut io::stdout().lock(), bytes).map_err(failed)
}

fn write_to(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    unless_closed(to.write_all(bytes).and_then(|()| to.flush()))
}

/// The result of a write, where a reader that has left is no error.
///
/// # Errors
/// Those of the write, apart from [`ErrorKind::BrokenPipe`].
pub fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line to standard error; [`complain!`] calls it.
pub fn complain(text: fmt::Arguments<'_>) {
    // There is nowhere left to report it.
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// The exit code of a program that has printed its usage, its version or an error of its arguments, and does nothing else.
/// `code` is that of a program that could print it.
pub fn exit_code(printed: io::Result<()>, code: i32) -> ExitCode {
    match (u8::try_from(code), unless_closed(printed)) {
        (Ok(0), Err(error)) => {
            complain!("error: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        (Ok(code), _) => ExitCode::from(code),
        (Err(_), _) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that takes some bytes and then fails.
    struct Failing {
        room: usize,
        then: ErrorKind,
    }

    impl Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.room.min(bytes.len()) {
                0 => Err(self.then.into()),
                taken => {
                    self.room -= taken;
                    Ok(taken)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_reader_that_has_left_is_no_error() {
        let write = |room, then| write_to(&mut Failing { room, then }, b"12345678");
        for room in 0..8 {
            assert!(write(room, ErrorKind::BrokenPipe).is_ok(), "{room}");
            let error = write(room, ErrorKind::StorageFull).expect_err("the disk is full");
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{room}");
        }
        assert!(write(8, ErrorKind::StorageFull).is_ok(), "there is room for all of it");
    }

    #[test]
    fn usage_that_cannot_be_printed_is_a_failure() {
        let code = |written: Result<(), ErrorKind>, code| {
            format!("{:?}", exit_code(written.map_err(Into::into), code))
        };
        let is = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(Ok(()), 0), is(0));
        assert_eq!(code(Err(ErrorKind::BrokenPipe), 0), is(0));
        assert_eq!(code(Err(ErrorKind::StorageFull), 0), is(1));
        assert_eq!(code(Err(ErrorKind::StorageFull), 2), is(2));
        assert_eq!(code(Ok(()), 700), is(1));
    }
}
