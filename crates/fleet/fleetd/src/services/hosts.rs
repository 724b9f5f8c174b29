//! The hosts' links: reports come in, orders go out.

use std::sync::Arc;

use snic_api::connect::LOST_EPOCH_HEADER;
use snic_api::error::ApiError;
use snic_api::fleet_v1::host_link_service_server::HostLinkService;
use snic_api::fleet_v1::{
    AnswerRequest, AnswerResponse, FetchImageRequest, FetchImageResponse, LinkRequest, LinkResponse,
};
use snic_api::v1::ErrorReason;
use snic_domain::Digest;
use snic_fleet::HostId;
use snic_fleet::protocol::{Epoch, HostReport};
use snic_front::error::RETRY_SOON;
use snic_front::gate::passage;
use snic_front::identity::Party;
use snic_ports::store::StoreError;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{RpcResult, Services};
use crate::links::HostLinks;
use crate::runner::{Leadership, RunnerHandle};

/// Bytes of an image in one message.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that wait for a host to read them.
const CHUNKS_MAX: usize = 4;

/// The host that calls, by its certificate.
fn host<T>(request: &Request<T>) -> Result<HostId, Status> {
    let passage = passage(request)?;
    match passage.identity().party() {
        Party::Host(name) => HostId::new(name)
            .map_err(|error| ApiError::new(ErrorReason::IdentityMissing, error).into()),
        Party::Caller(_) | Party::Replica(_) => Err(passage.refused().into()),
    }
}

/// The error for a host whose image cannot be read.
fn unreadable(error: StoreError) -> ApiError {
    let error = error.with_source();
    tracing::warn!(error, "an image cannot be read");
    let text = "the image cannot be read at the moment; try again later";
    ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON)
}

#[tonic::async_trait]
impl HostLinkService for Services {
    type LinkStream = ReceiverStream<Result<LinkResponse, Status>>;

    async fn link(&self, request: Request<Streaming<LinkRequest>>) -> RpcResult<Self::LinkStream> {
        let host = host(&request)?;
        let lost = request.metadata().get(LOST_EPOCH_HEADER).and_then(|epoch| epoch.to_str().ok());
        let lost = lost.and_then(|epoch| epoch.parse().ok()).map(Epoch);
        if let Some(refusal) = elsewhere(&self.0.parts.asking.leadership_after(lost).await) {
            return Err(refusal.into());
        }
        let links = Arc::clone(&self.0.parts.links);
        let (number, orders) = links.begin(&host);
        let runner = self.0.parts.asking.own().clone();
        tokio::spawn(read(request.into_inner(), (host, number), links, runner));
        Ok(Response::new(ReceiverStream::new(orders)))
    }

    type FetchImageStream = ReceiverStream<Result<FetchImageResponse, Status>>;

    async fn fetch_image(
        &self,
        request: Request<FetchImageRequest>,
    ) -> RpcResult<Self::FetchImageStream> {
        host(&request)?;
        let digest: Digest = request.get_ref().digest.parse().map_err(|_| {
            let text = "is not a SHA-256 digest (expected 64 hexadecimal digits)";
            ApiError::in_field(ErrorReason::InvalidField, "digest", text)
        })?;
        let mut pieces = self.0.parts.images.images.pieces(digest).await.map_err(unreadable)?;
        let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
        // All hosts fetch a new image at once: of each only some chunks are in memory. The host compares the digest.
        tokio::spawn(async move {
            while let Some(piece) = pieces.next().await {
                let mut piece = match piece {
                    Ok(piece) => piece,
                    Err(error) => {
                        let _ = sender.send(Err(unreadable(error).into())).await;
                        return;
                    }
                };
                while !piece.is_empty() {
                    let chunk = piece.split_to(piece.len().min(CHUNK_BYTES));
                    if sender.send(Ok(FetchImageResponse { chunk })).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(chunks)))
    }

    type AnswerStream = ReceiverStream<Result<AnswerResponse, Status>>;

    async fn answer(
        &self,
        request: Request<Streaming<AnswerRequest>>,
    ) -> RpcResult<Self::AnswerStream> {
        let host = host(&request)?;
        let calls = Arc::clone(&self.0.parts.calls);
        Ok(Response::new(calls.answer(host, request.into_inner()).await?))
    }
}

/// Where a host is to link itself instead, if not here.
fn elsewhere(leadership: &Leadership) -> Option<ApiError> {
    let refusal = |text| ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON);
    match leadership {
        Leadership::Own => None,
        Leadership::Other { address, .. } => {
            let text = format!("this replica does not lead; {address} does");
            Some(refusal(text).metadata("leader", address))
        }
        Leadership::Nobody => {
            let text = "this replica does not lead, and knows no leader; try the next one";
            Some(refusal(text.to_owned()))
        }
    }
}

/// Passes on a host's reports, one at a time, until it ends its link or has another one.
async fn read(
    mut reports: Streaming<LinkRequest>,
    (host, number): (HostId, u64),
    links: Arc<HostLinks>,
    runner: RunnerHandle,
) {
    while let Ok(Some(message)) = reports.message().await {
        if !links.is_current(&host, number) {
            return;
        }
        match serde_json::from_slice::<HostReport>(&message.report) {
            Ok(report) => {
                if !runner.report(host.clone(), report).await {
                    break;
                }
            }
            // Of a newer version, perhaps: what it does not understand it passes over.
            Err(error) => tracing::warn!(%host, %error, "a report cannot be read"),
        }
    }
    links.end(&host, number);
}
