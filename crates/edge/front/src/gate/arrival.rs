//! A request's message must arrive in time.
//!
//! A caller that sends only the headers of a call, or its message byte by byte, would hold a place
//! without using it, up to the call's deadline. So the message has a separate deadline: a fixed
//! time, and more for what has arrived already, so that a long upload is not cut off while it makes
//! progress.
//!
//! A short call begins once its message is there: nobody waits for the turn of a call that waits for its caller.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use tokio::time::{Instant, Sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use crate::settings::Limits;

/// A body with a deadline.
struct DeadlineBody {
    body: Body,
    begun: Instant,
    received: u64,
    grace: Duration,
    bytes_per_second_min: u64,
    late: Pin<Box<Sleep>>,
}

/// The body; reading it fails where it does not arrive in time.
pub(super) fn in_time(body: Body, limits: &Limits) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let begun = Instant::now();
    Body::new(DeadlineBody {
        body,
        begun,
        received: 0,
        grace: limits.message_arrival,
        bytes_per_second_min: limits.message_bytes_per_second_min.max(1),
        late: Box::pin(tokio::time::sleep_until(begun + limits.message_arrival)),
    })
}

impl DeadlineBody {
    fn allowed(&self) -> Duration {
        let micros = u128::from(self.received) * 1_000_000 / u128::from(self.bytes_per_second_min);
        self.grace + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    fn too_late(&self) -> Status {
        let text = format!(
            "the request's message did not arrive in time: {} bytes in {:.0?} (allowed: {:.0?}, and \
             1 s more for each {} bytes)",
            self.received,
            self.begun.elapsed(),
            self.grace,
            self.bytes_per_second_min,
        );
        ApiError::new(ErrorReason::DeadlineExceeded, text).into()
    }
}

impl HttpBody for DeadlineBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            if let Some(Ok(frame)) = &frame {
                self.received += frame.data_ref().map_or(0, |data| data.len() as u64);
                let until = self.begun + self.allowed();
                self.late.as_mut().reset(until);
            }
            return Poll::Ready(frame);
        }
        ready!(self.late.as_mut().poll(cx));
        Poll::Ready(Some(Err(self.too_late())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body of which a part has arrived.
struct PartialBody {
    data: Option<Bytes>,
    /// Frame after that data: trailers, or an error.
    last: Option<Result<Frame<Bytes>, Status>>,
    rest: Body,
}

/// Waits until all of a body has arrived, or it failed, or it is longer than so many bytes. Whoever reads it finds what
/// it would have found before.
pub(super) async fn arrived(mut body: Body, bytes_max: usize) -> Body {
    let (mut data, mut last) = (BytesMut::new(), None);
    while !body.is_end_stream() && data.len() <= bytes_max {
        match body.frame().await.map(|frame| frame.map(Frame::into_data)) {
            None => break,
            Some(Ok(Ok(more))) => data.extend_from_slice(&more),
            Some(Ok(Err(other))) => last = Some(Ok(other)),
            Some(Err(error)) => last = Some(Err(error)),
        }
        if last.is_some() {
            break;
        }
    }
    let data = (!data.is_empty()).then(|| data.freeze());
    Body::new(PartialBody { data, last, rest: body })
}

impl HttpBody for PartialBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(last) = self.last.take() {
            return Poll::Ready(Some(last));
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.last.is_none() && self.rest.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use snic_api::error::reason_of;
    use tokio_stream::StreamExt as _;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    const LIMITS: (Duration, u64) = (Duration::from_secs(5), 1_000);

    /// The result of reading a body of chunks of this size at these intervals, and when it came.
    async fn read(
        bytes: usize,
        interval: Duration,
        chunks: usize,
    ) -> (Result<usize, Status>, Duration) {
        let (sender, chunks_received) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            for _ in 0..chunks {
                tokio::time::sleep(interval).await;
                if sender.send(Bytes::from(vec![0; bytes])).await.is_err() {
                    return;
                }
            }
            if chunks == 0 {
                sender.closed().await;
            }
        });
        let frames =
            ReceiverStream::new(chunks_received).map(|data| Ok::<_, Status>(Frame::data(data)));
        let limits = Limits {
            message_arrival: LIMITS.0,
            message_bytes_per_second_min: LIMITS.1,
            ..Limits::default()
        };
        let begun = Instant::now();
        let body = in_time(Body::new(StreamBody::new(frames)), &limits);
        let read = body.collect().await.map(|all| all.to_bytes().len());
        (read, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_never_comes_ends_after_its_time() {
        let (read, after) = read(0, Duration::ZERO, 0).await;
        let status = read.expect_err("nothing came");
        assert_eq!(reason_of(&status), Some(ErrorReason::DeadlineExceeded), "{status:?}");
        assert!(after.abs_diff(LIMITS.0) < Duration::from_millis(10), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_steady_upload_may_take_long_and_a_trickling_one_may_not() {
        // 2,000 bytes a second for a minute.
        let (fast, _) = read(2_000, Duration::from_secs(1), 60).await;
        assert_eq!(fast.expect("fast enough"), 120_000);
        // 100 bytes a second: after five seconds half a second more.
        let (slow, after) = read(100, Duration::from_secs(1), 60).await;
        let status = slow.expect_err("too slow");
        assert!(status.message().contains("1 s more for each 1000 bytes"), "{}", status.message());
        assert!(after < Duration::from_secs(6), "{after:?}");
    }

    /// A body of these chunks; after them it ends, or goes on for ever.
    fn chunks(chunks: &[usize], ends: bool) -> Body {
        let chunks: Vec<_> = chunks.iter().map(|bytes| Bytes::from(vec![7; *bytes])).collect();
        let frames = tokio_stream::iter(chunks).map(|data| Ok::<_, Status>(Frame::data(data)));
        if ends {
            return Body::new(StreamBody::new(frames));
        }
        Body::new(StreamBody::new(frames.chain(tokio_stream::pending())))
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_arrived_is_read_as_it_came() {
        let read = arrived(chunks(&[3, 0, 4], true), 100).await.collect().await.expect("all of it");
        assert_eq!(read.to_bytes(), vec![7; 7]);
        let long = arrived(chunks(&[60, 60, 60], true), 100).await;
        assert_eq!(long.collect().await.expect("the rest follows").to_bytes().len(), 180);
        let waits = tokio::time::timeout(LIMITS.0, arrived(chunks(&[3], false), 100)).await;
        assert!(waits.is_err(), "it has not ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_left_to_the_reader() {
        let limits = Limits { message_arrival: LIMITS.0, ..Limits::default() };
        let mut body = arrived(in_time(chunks(&[3], false), &limits), 100).await;
        let data = body.frame().await.expect("data").expect("it came in time");
        assert_eq!(data.into_data().ok(), Some(Bytes::from(vec![7; 3])));
        let late = body.frame().await.expect("an end").expect_err("too late");
        assert_eq!(reason_of(&late), Some(ErrorReason::DeadlineExceeded));
    }
}
