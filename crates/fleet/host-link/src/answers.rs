//! Calls of the host's API that the leader passes on: each is read and answered over a stream of its own, so that a slow
//! reader holds up neither orders nor other calls.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt as _;
use snic_api::fleet_v1::host_link_service_client::HostLinkServiceClient;
use snic_api::fleet_v1::{AnswerRequest, CallEnd, answer_request::Part};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;

use crate::connection::MESSAGE_BYTES_MAX;
use crate::host::LinkedHost;

/// Answers at once; the leader passes on no more.
const ANSWERS_MAX: usize = 64;
/// Parts of an answer that wait to be sent.
const PARTS_MAX: usize = 4;
/// Longest time until the leader reads the end of an answer: its caller may read slowly.
const END_MAX: Duration = Duration::from_secs(60);
/// Longest time until the leader says what is called.
const CALL_MAX: Duration = Duration::from_secs(5);

/// The answers of a link.
#[derive(Debug, Clone)]
pub(crate) struct Answers(Arc<Semaphore>);

impl Default for Answers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ANSWERS_MAX)))
    }
}

impl Answers {
    /// Begins to answer a call. One that finds no room is not answered, and its caller is told so by the leader.
    pub fn begin(&self, number: u64, channel: Channel, host: &Arc<dyn LinkedHost>) {
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            tracing::warn!(number, "too many calls of the fleet at once; this one is not answered");
            return;
        };
        tokio::spawn(answer(number, channel, Arc::clone(host), permit));
    }
}

async fn answer(
    number: u64,
    channel: Channel,
    host: Arc<dyn LinkedHost>,
    _permit: OwnedSemaphorePermit,
) {
    let (parts, sent) = mpsc::channel(PARTS_MAX);
    // The channel is new, and has room.
    let _ = parts.try_send(AnswerRequest { part: Some(Part::Number(number)) });
    let mut client = HostLinkServiceClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX + 64)
        .max_encoding_message_size(MESSAGE_BYTES_MAX + 64);
    let begun = async {
        let mut calls = client.answer(ReceiverStream::new(sent)).await?.into_inner();
        let call = calls.message().await?;
        Ok::<_, Status>(call.map(|call| (call, calls)))
    };
    let (call, mut calls) = match tokio::time::timeout(CALL_MAX, begun).await {
        Ok(Ok(Some(begun))) => begun,
        Ok(Ok(None)) | Err(_) => return, // Nobody waits any more.
        Ok(Err(status)) => {
            tracing::debug!(number, %status, "a call that the fleet passed on is gone");
            return;
        }
    };
    let path = call.path.clone();
    let answered = async { send_parts(host.answer(call).await, &parts).await };
    tokio::select! {
        () = answered => {}
        // The caller has gone: what it asked for is dropped, as when a connection ends.
        _ = calls.message() => {
            tracing::debug!(number, path, "the caller of a call has gone");
            return;
        }
    }
    drop(parts);
    // Whoever drops the stream now takes back what was not sent yet: the leader ends it when it has everything.
    let _ = tokio::time::timeout(END_MAX, calls.message()).await;
}

/// Takes a reply apart; ends early where nobody takes its parts.
async fn send_parts(reply: Response<Body>, parts: &mpsc::Sender<AnswerRequest>) {
    let send = |part| parts.send(AnswerRequest { part: Some(part) });
    if let Some(status) = Status::from_header_map(reply.headers()) {
        // As below: whoever asked may have gone.
        let _ = send(Part::End(end(&status))).await;
        return;
    }
    let mut body = reply.into_body();
    let mut last = Status::unknown("the reply has no end");
    while let Some(frame) = body.frame().await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => {
                for begin in (0..data.len()).step_by(MESSAGE_BYTES_MAX) {
                    let piece = &data[begin..data.len().min(begin + MESSAGE_BYTES_MAX)];
                    if send(Part::Data(piece.to_vec())).await.is_err() {
                        return;
                    }
                }
            }
            Ok(Err(other)) => {
                if let Some(status) = other.trailers_ref().and_then(Status::from_header_map) {
                    last = status;
                }
            }
            Err(status) => last = status,
        }
    }
    let _ = send(Part::End(end(&last))).await;
}

fn end(status: &Status) -> CallEnd {
    CallEnd {
        code: status.code().into(),
        message: status.message().to_owned(),
        details: status.details().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};

    use tonic::Code;

    use super::*;

    async fn parts(reply: Response<Body>) -> Vec<Part> {
        let (sender, mut receiver) = mpsc::channel(8);
        send_parts(reply, &sender).await;
        drop(sender);
        let mut found = Vec::new();
        while let Some(AnswerRequest { part: Some(part) }) = receiver.recv().await {
            found.push(part);
        }
        found
    }

    #[tokio::test]
    async fn a_reply_is_data_and_an_end() {
        let mut trailers = http::HeaderMap::new();
        let status = Status::with_details(Code::NotFound, "no such region", vec![8, 5].into());
        status.add_header(&mut trailers).expect("plain text");
        let frames = [
            Ok::<_, Status>(http_body::Frame::data(bytes::Bytes::from_static(b"abc"))),
            Ok(http_body::Frame::trailers(trailers)),
        ];
        let body = Body::new(StreamBody::new(tokio_stream::iter(frames)));
        let end = CallEnd { code: 5, message: "no such region".into(), details: vec![8, 5] };
        let found = parts(Response::new(body)).await;
        assert_eq!(found, [Part::Data(b"abc".to_vec()), Part::End(end)]);
    }

    #[tokio::test]
    async fn an_error_alone_and_a_reply_without_an_end_end() {
        let denied = parts(Status::permission_denied("no").into_http()).await;
        assert!(matches!(&denied[..], [Part::End(CallEnd { code: 7, .. })]), "{denied:?}");
        let body = Body::new(Full::new(bytes::Bytes::from(vec![7; MESSAGE_BYTES_MAX + 1])));
        let cut = parts(Response::new(body)).await;
        let sizes: Vec<usize> = cut
            .iter()
            .map(|part| match part {
                Part::Data(data) => data.len(),
                _ => 0,
            })
            .collect();
        assert_eq!(sizes, [MESSAGE_BYTES_MAX, 1, 0]);
        assert!(matches!(&cut[2], Part::End(CallEnd { code: 2, .. })));
    }
}
