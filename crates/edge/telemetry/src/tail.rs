//! The last log lines, kept in memory for support bundles: standard error belongs to whoever started
//! the program, and is often lost.

use std::collections::VecDeque;
use std::io::{self, Write};

use parking_lot::Mutex;

use crate::{LogFormat, text};

/// Most lines kept.
const LINES_KEPT: usize = 2_000;
/// Most bytes of all kept lines together.
const BYTES_KEPT: usize = 1 << 20;

#[derive(Debug)]
struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
}

static TAIL: Mutex<Tail> = Mutex::new(Tail { lines: VecDeque::new(), bytes: 0 });

impl Tail {
    fn push(&mut self, text: &str) {
        for line in text.lines() {
            self.bytes += line.len();
            self.lines.push_back(line.to_owned());
        }
        while self.lines.len() > LINES_KEPT || self.bytes > BYTES_KEPT {
            let Some(line) = self.lines.pop_front() else { return };
            self.bytes -= line.len();
        }
    }
}

/// The last lines, oldest first.
pub fn last_lines() -> Vec<String> {
    TAIL.lock().lines.iter().cloned().collect()
}

/// Writes to standard error, and keeps the last lines.
#[derive(Debug)]
pub(crate) struct StderrTail(pub LogFormat);

impl Write for StderrTail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    /// The subscriber writes each event at once, with the line break at its end.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let line = String::from_utf8_lossy(bytes);
        let line = text::escaped_line(&line, self.0);
        TAIL.lock().push(&line);
        // Whoever read standard error may have left, as `| head` does, or its disk may be full: a program does not end
        // because nobody reads its log. The subscriber would print an error to standard error, and that panics.
        let _ = io::stderr().write_all(line.as_bytes());
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut tail = Tail { lines: VecDeque::new(), bytes: 0 };
        for number in 0..LINES_KEPT + 10 {
            tail.push(&format!("line {number}\n"));
        }
        assert_eq!(tail.lines.len(), LINES_KEPT);
        assert_eq!(tail.lines.front().map(String::as_str), Some("line 10"));
        tail.push(&"x".repeat(BYTES_KEPT));
        assert_eq!(tail.lines.len(), 1, "a long line evicts the others");
        assert!(tail.bytes <= BYTES_KEPT);
        tail.push("more");
        assert_eq!((tail.lines.len(), tail.bytes), (1, 4));
    }
}
