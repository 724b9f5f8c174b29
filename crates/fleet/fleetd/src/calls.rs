//! Calls of hosts' own API that are passed on to them, while this replica leads. A host reads the number of a call over its
//! link, opens a stream for it, and answers there:
//!
//! ```text
//!  caller ──► replica ──CallHost──► leader ──number──► host (over its link)
//!                                      ▲ ◄──────────── Answer: number, data, data, end
//! ```

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use snic_api::error::ApiError;
use snic_api::fleet_v1::call_host_response::Part;
use snic_api::fleet_v1::{AnswerRequest, AnswerResponse, CallHostResponse, answer_request};
use snic_api::v1::ErrorReason;
use snic_fleet::HostId;
use snic_front::error::{RETRY_SOON, overloaded};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::links::HostLinks;

/// Longest time until a host begins its answer: longer than a busy host takes, and not too long for whoever waits.
const BEGIN_MAX: Duration = Duration::from_secs(3);
/// Calls that wait for a host to begin.
const WAITING_MAX: usize = 1_024;
/// Parts of an answer that wait for its caller.
const PARTS_MAX: usize = 4;

/// The parts of an answer, the end last. Dropping it ends the call.
pub(crate) type Parts = Pin<Box<dyn Stream<Item = Result<CallHostResponse, Status>> + Send>>;

#[derive(Debug)]
struct PendingCall {
    host: HostId,
    call: AnswerResponse,
    parts: mpsc::Sender<Result<CallHostResponse, Status>>,
    begun: oneshot::Sender<()>,
}

/// Calls that wait until their host begins to answer, by number.
#[derive(Debug, Default)]
pub(crate) struct HostCalls(Mutex<(u64, BTreeMap<u64, PendingCall>)>);

/// Takes a call back unless its host has begun.
struct OfferedCall<'a>(&'a HostCalls, u64);

impl Drop for OfferedCall<'_> {
    fn drop(&mut self) {
        self.0.0.lock().1.remove(&self.1);
    }
}

impl HostCalls {
    /// Passes a call on, and waits until the host begins to answer.
    ///
    /// # Errors
    /// The host is not linked here, knows no such calls, or does not begin in time. It has not carried the call out then.
    pub async fn call(
        &self,
        links: &HostLinks,
        host: &HostId,
        call: AnswerResponse,
    ) -> Result<Parts, ApiError> {
        let (parts, read) = mpsc::channel(PARTS_MAX);
        let (begun, begins) = oneshot::channel();
        let offered = {
            let mut waiting = self.0.lock();
            if waiting.1.len() >= WAITING_MAX {
                return Err(overloaded(
                    "too many calls wait for hosts; try again later",
                    WAITING_MAX,
                ));
            }
            waiting.0 += 1;
            let number = waiting.0;
            waiting.1.insert(number, PendingCall { host: host.clone(), call, parts, begun });
            OfferedCall(self, number)
        };
        links.offer(host, offered.1)?;
        match tokio::time::timeout(BEGIN_MAX, begins).await {
            Ok(Ok(())) => Ok(Box::pin(ReceiverStream::new(read))),
            Ok(Err(_)) | Err(_) => {
                let text = format!(
                    "host {host} did not answer within {} s; see `snicctl fleet host get {host}`",
                    BEGIN_MAX.as_secs()
                );
                Err(ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON))
            }
        }
    }

    /// A host begins an answer: what it is to answer, until the end.
    ///
    /// # Errors
    /// There is no such call of this host, or its caller has gone.
    pub async fn answer(
        self: Arc<Self>,
        host: HostId,
        mut parts: Streaming<AnswerRequest>,
    ) -> Result<ReceiverStream<Result<AnswerResponse, Status>>, Status> {
        let number = match parts.message().await?.and_then(|first| first.part) {
            Some(answer_request::Part::Number(number)) => number,
            _ => return Err(ApiError::required("number").into()),
        };
        let found = {
            let mut waiting = self.0.lock();
            let is_its = waiting.1.get(&number).is_some_and(|call| call.host == host);
            if is_its { waiting.1.remove(&number) } else { None }
        };
        let gone = || Status::from(ApiError::not_found("call", number));
        let PendingCall { call, parts: to, begun, .. } = found.ok_or_else(gone)?;
        begun.send(()).map_err(|()| gone())?;
        let (asked, asking) = mpsc::channel(1);
        // The channel is new, and has room.
        let _ = asked.try_send(Ok(call));
        tokio::spawn(async move {
            tokio::select! {
                () = pass(&mut parts, &to) => {}
                () = to.closed() => {}
            }
            // The host sees the end of its stream, and drops what it does for a caller that has gone.
            drop(asked);
        });
        Ok(ReceiverStream::new(asking))
    }
}

/// Passes the parts on until the end.
async fn pass(
    parts: &mut Streaming<AnswerRequest>,
    to: &mpsc::Sender<Result<CallHostResponse, Status>>,
) {
    loop {
        let part = match parts.message().await {
            Ok(Some(AnswerRequest { part: Some(answer_request::Part::Data(data)) })) => {
                Part::Data(data)
            }
            Ok(Some(AnswerRequest { part: Some(answer_request::Part::End(end)) })) => {
                Part::End(end)
            }
            Ok(_) | Err(_) => {
                let text = "the host's answer broke off, and nobody knows whether a change was made: send it again with \
                            the same request_id, or look at the resource";
                let broken = ApiError::new(ErrorReason::StoreUnavailable, text);
                // The caller may have gone, too.
                let _ = to.send(Err(broken.retry_after(RETRY_SOON).into())).await;
                return;
            }
        };
        let is_end = matches!(part, Part::End(_));
        if to.send(Ok(CallHostResponse { part: Some(part) })).await.is_err() || is_end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostId {
        HostId::new("h1").expect("a name")
    }

    fn call() -> AnswerResponse {
        AnswerResponse { path: "/a/B".into(), caller: "operator/root".into(), ..Default::default() }
    }

    async fn refusal(calls: &HostCalls, links: &HostLinks) -> String {
        let refused = calls.call(links, &host(), call()).await.err().expect("nobody answers");
        assert!(calls.0.lock().1.is_empty(), "it was taken back");
        refused.message().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_cannot_answer_is_told_apart() {
        let (calls, links) = (HostCalls::default(), HostLinks::default());
        assert!(refusal(&calls, &links).await.contains("not linked"));
        let (_, mut orders) = links.begin(&host());
        assert!(refusal(&calls, &links).await.contains("did not answer within 3 s"));
        assert_ne!(orders.try_recv().expect("a number").expect("a number").call, 0);
    }

    #[tokio::test]
    async fn a_caller_that_goes_takes_its_call_back() {
        let (calls, links) = (HostCalls::default(), HostLinks::default());
        let _link = links.begin(&host());
        let host = host();
        let waiting = calls.call(&links, &host, call());
        let left = tokio::time::timeout(Duration::from_millis(20), waiting).await;
        assert!(left.is_err());
        assert!(calls.0.lock().1.is_empty());
    }
}
