//! Streams of changes, which go on where they broke off when the connection is lost.

use std::time::Duration;

use tonic::{Code, Status, Streaming};

use crate::connection::Client;
use crate::failure::Failure;

/// How often in a row a stream is taken up again before the watch fails.
const ATTEMPTS_MAX: u32 = 5;

/// Sends every message of a stream to `take`, which answers with the revision to resume from.
/// `open` begins the stream after a revision; 0 begins with everything there is.
///
/// Ends when the server ends the stream.
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
