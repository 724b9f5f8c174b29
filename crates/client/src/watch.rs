//! Streams of changes that resume after a lost connection.

use std::time::Duration;

use tonic::{Code, Status, Streaming};

use crate::connection::Client;
use crate::failure::Failure;

/// Failed attempts in a row before the watch fails.
const ATTEMPTS_MAX: u32 = 5;

/// Passes every message of a stream to `take`, which returns the revision to resume from. `open` starts the
/// stream after a revision; 0 starts with everything that exists.
///
/// Returns when the server ends the stream.
///
/// # Errors
/// [`Failure`] of `take`, or of the server after `ATTEMPTS_MAX` attempts in a row.
pub async fn follow<T>(
    client: &Client,
    open: impl AsyncFn(u64) -> Result<Streaming<T>, Status>,
    mut take: impl FnMut(T) -> Result<u64, Failure>,
) -> Result<(), Failure> {
    let mut revision = 0;
    let mut attempts = 0;
    loop {
        let lost = match open(revision).await {
            Ok(mut stream) => loop {
                match stream.message().await {
                    Ok(Some(event)) => {
                        attempts = 0;
                        revision = take(event)?;
                    }
                    Ok(None) => return Ok(()),
                    Err(status) => break status,
                }
            },
            Err(status) => status,
        };
        attempts += 1;
        if lost.code() != Code::Unavailable || attempts >= ATTEMPTS_MAX {
            return Err(client.failure(lost));
        }
        tokio::time::sleep(Duration::from_millis(100 << attempts)).await;
    }
}
