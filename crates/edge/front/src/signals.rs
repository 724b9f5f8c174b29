//! Signals that end a program.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that ask a program to stop. From when they are made on, none of them ends the process by itself: one that
/// comes before it is waited for is not lost.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// Hang-up, of a program that a terminal belongs to.
    hangup: Option<Signal>,
}

impl StopSignals {
    /// Ctrl-C and a request to terminate.
    ///
    /// # Errors
    /// The system refuses to report signals.
    pub fn of_daemon() -> io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { interrupt, terminate, hangup: None })
    }

    /// The same, and the end of the terminal; `nohup` has that ignored, and it stays ignored.
    ///
    /// # Errors
    /// As [`StopSignals::of_daemon`].
    pub fn of_terminal() -> io::Result<Self> {
        let ignored =
            std::fs::read_to_string("/proc/self/status").is_ok_and(|of| ignores_hangup(&of));
        let hangup = (!ignored).then(|| signal(SignalKind::hangup())).transpose();
        Ok(Self { hangup: hangup?, ..Self::of_daemon()? })
    }

    /// Waits for one of them.
    pub async fn wait(&mut self) {
        let Self { interrupt, terminate, hangup } = self;
        let hangup = async move {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether the first signal, SIGHUP, is in the mask `SigIgn` of `/proc/self/status`, in hexadecimal digits.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_seen_in_the_mask() {
        for (mask, expected) in
            [("0000000000000001", true), ("0000000000001001", true), ("0000000000001000", false)]
        {
            let status = format!("Name:\tsnicd\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
            assert_eq!(ignores_hangup(&status), expected, "{mask}");
        }
        assert!(!ignores_hangup(""), "nobody says so");
    }
}
