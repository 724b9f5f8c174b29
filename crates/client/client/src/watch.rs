//! Streams of changes that resume after a lost connection.

use std::error::Error as _;
use std::time::Duration;

use tonic::{Code, Status, Streaming};

use crate::connection::Client;
use crate::failure::Failure;

/// Failed attempts in a row before the watch fails: after 51 s, in which a daemon starts again.
const ATTEMPTS_MAX: u32 = 9;

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
        if !is_passing(&lost) || attempts >= ATTEMPTS_MAX {
            return Err(client.failure(lost));
        }
        tokio::time::sleep(Duration::from_millis(100 << attempts)).await;
    }
}

/// Whether it is worth another attempt: the server is away, or the connection broke, of which no server told.
fn is_passing(lost: &Status) -> bool {
    lost.code() == Code::Unavailable || lost.source().is_some()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use snic_api::v1::WatchDagsResponse;
    use tonic::codec::{Codec as _, EncodeBody, SingleMessageCompressionOverride};
    use tonic::codegen::http::StatusCode;
    use tonic_prost::ProstCodec;

    use super::*;
    use crate::contexts::{ClientContext, ContextsFile};

    /// Messages of a server before a stream ends, with a status or without one.
    fn stream(revisions: &[u64], end: Option<Status>) -> Streaming<WatchDagsResponse> {
        let mut codec = ProstCodec::<WatchDagsResponse, WatchDagsResponse>::default();
        let events =
            revisions.iter().map(|&revision| WatchDagsResponse { revision, ..Default::default() });
        let items: Vec<_> = events.map(Ok).chain(end.map(Err)).collect();
        let source = tokio_stream::iter(items);
        let single = SingleMessageCompressionOverride::default();
        let body = EncodeBody::new_server(codec.encoder(), source, None, single, None);
        Streaming::new_response(codec.decoder(), body, StatusCode::OK, None, None)
    }

    type Opened = Result<Streaming<WatchDagsResponse>, Status>;

    /// Follows one stream after the other: where each was opened, what was taken, and how it ended.
    async fn followed(streams: Vec<Opened>) -> (Vec<u64>, Vec<u64>, Result<(), Failure>) {
        let context = ClientContext { endpoint: "http://127.0.0.1:1".into(), ..Default::default() };
        let file = ContextsFile { path: "/config.toml".into(), contexts: Default::default() };
        let client = Client::new(&context, &file, Duration::from_secs(60)).expect("it is lazy");
        let streams = RefCell::new(streams.into_iter());
        let (opened, mut taken) = (RefCell::new(Vec::new()), Vec::new());
        let open = async |revision| {
            opened.borrow_mut().push(revision);
            streams.borrow_mut().next().expect("it was to end before")
        };
        let take = |event: WatchDagsResponse| {
            taken.push(event.revision);
            Ok(event.revision)
        };
        let result = follow(&client, open, take).await;
        (opened.into_inner(), taken, result)
    }

    fn away() -> Status {
        Status::unavailable("away")
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_resumes_where_it_was_cut_off() {
        let broken = || Status::from_error(Box::new(std::io::Error::other("broken pipe")));
        assert_ne!(broken().code(), Code::Unavailable);
        for lost in [away, broken] {
            let streams =
                vec![Ok(stream(&[5, 7], Some(away()))), Err(lost()), Ok(stream(&[9], None))];
            let (opened, taken, result) = followed(streams).await;
            result.expect("the server ended it");
            assert_eq!((opened, taken), (vec![0, 7, 7], vec![5, 7, 9]));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_gives_up_when_nothing_comes_any_more() {
        let (opened, _, result) = followed((0..100).map(|_| Err(away())).collect()).await;
        assert_eq!((opened.len(), result.expect_err("too often").exit_code()), (9, 7));
        // Any event in between resets the count.
        let mut streams: Vec<Opened> = (0..4).map(|_| Err(away())).collect();
        streams.push(Ok(stream(&[3], Some(away()))));
        streams.extend((0..3).map(|_| Err(away())));
        streams.push(Ok(stream(&[4], None)));
        let (opened, taken, result) = followed(streams).await;
        result.expect("the server ended it");
        assert_eq!((opened.len(), taken), (9, vec![3, 4]));
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_errors_are_not_retried() {
        let expired = Status::out_of_range("the revision is no longer kept");
        let (opened, _, result) = followed(vec![Ok(stream(&[3], Some(expired)))]).await;
        assert_eq!((opened, result.expect_err("it says why").exit_code()), (vec![0], 2));
    }
}
