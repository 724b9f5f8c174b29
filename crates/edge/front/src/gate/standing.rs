//! A stream goes on only as long as its caller may have it: when policies change, it is decided again, and
//! ends where they refuse it now.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::passage::CallAuthorizer;
use crate::authorization::Authorizer;
use crate::error::trailers;

struct RevocableBody {
    body: Body,
    passage: CallAuthorizer,
    changes: WatchStream<Arc<dyn Authorizer>>,
    has_ended: bool,
}

/// The body of a stream's reply, which ends when policies refuse the stream.
pub(super) fn while_allowed(body: Body, passage: CallAuthorizer) -> Body {
    // From the current one on: it may have been replaced since the call was decided.
    let changes = WatchStream::new(passage.authorization().subscribe());
    Body::new(RevocableBody { body, passage, changes, has_ended: false })
}

impl RevocableBody {
    fn refusal() -> HeaderMap {
        let text = "the server's authorization policies have changed and no longer allow this \
                    stream; ask an operator, and see `snicctl auth can-i`";
        trailers(&ApiError::new(ErrorReason::PermissionDenied, text).into())
    }
}

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        // Before the next message, so that none is sent after the change.
        while let Poll::Ready(Some(authorizer)) = Pin::new(&mut self.changes).poll_next(cx) {
            if !self.passage.may_go_on(&*authorizer) {
                self.has_ended = true;
                return Poll::Ready(Some(Ok(Frame::trailers(Self::refusal()))));
            }
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }
}
