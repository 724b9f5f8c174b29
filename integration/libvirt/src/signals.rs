//! Signals of the heartbeat, which runs as a service beside the daemon; as in `snic_cdi::signals`, of which the hook needs
//! nothing else.

use std::io;
use std::pin::pin;

use snic_output::complain;
use tokio::signal::unix::{SignalKind, signal};

/// Runs a service until it ends, or SIGTERM or SIGINT ask it to: `None` then.
///
/// SIGHUP changes nothing. By default it would end the service where its terminal is closed, and systemd, for which that is a
/// clean end, would not start it again.
///
/// # Errors
/// Signals cannot be waited for.
pub async fn until_stopped<T>(
    program: &str,
    service: impl Future<Output = T>,
) -> io::Result<Option<T>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut service = pin!(service);
    loop {
        tokio::select! {
            ended = &mut service => return Ok(Some(ended)),
            _ = interrupt.recv() => return Ok(None),
            _ = terminate.recv() => return Ok(None),
            _ = hangup.recv() => {
                complain!("{program}: SIGHUP changes nothing; restart it to have its settings read again");
            }
        }
    }
}
