//! The server itself: maintenance, backup, diagnostics.

use std::sync::Arc;

use snic_api::convert::timestamp;
use snic_api::error::ApiError;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::condition::Status as Holds;
use snic_api::v1::system_service_server::SystemService;
use snic_controller::{
    Command, Controller, Reply, SET_ASIDE_BYTES_MAX, SET_ASIDE_MAX, SetAsideAccount,
};
use snic_domain::Caller;
use snic_front::gate::caller;
use snic_ports::store::StoreError;
use snic_ports::store::backup::Writer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{RpcResult, Services, repeat_of};
use crate::error::OperationKind;
use crate::shell::{ControlPlane, PinnedBlobs};

/// Bytes of one chunk of a backup: below the 4 MiB that clients accept.
const CHUNK_BYTES: usize = 1 << 20;
/// Chunks queued for a slow client.
const CHUNKS_WAITING: usize = 4;

#[tonic::async_trait]
impl SystemService for Services {
    async fn get_maintenance(
        &self,
        request: Request<v1::GetMaintenanceRequest>,
    ) -> RpcResult<v1::GetMaintenanceResponse> {
        let caller = caller(&request)?;
        Ok(Response::new(self.maintenance(&caller).await?.into()))
    }

    async fn set_maintenance(
        &self,
        request: Request<v1::SetMaintenanceRequest>,
    ) -> RpcResult<v1::SetMaintenanceResponse> {
        let caller = caller(&request)?;
        let v1::SetMaintenanceRequest { active, reason, request_id } = request.into_inner();
        let repeat = repeat_of(&request_id)?;
        let command = Command::Maintain { reason: active.then_some(reason) };
        match self.ask(&caller, repeat, command, OperationKind::Change).await? {
            Reply::Done => Ok(Response::new(self.maintenance(&caller).await?.into())),
            other => Err(super::unexpected(&other).into()),
        }
    }

    type DownloadBackupStream = ReceiverStream<Result<v1::DownloadBackupResponse, Status>>;

    async fn download_backup(
        &self,
        _: Request<v1::DownloadBackupRequest>,
    ) -> RpcResult<Self::DownloadBackupStream> {
        let (chunks, stream) = mpsc::channel(CHUNKS_WAITING);
        let plane = self.0.plane.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = send_backup(&plane, &chunks) {
                tracing::error!(%error, "backup failed");
                let text = "the store cannot be read; see the server's log for the cause";
                let failure = ApiError::new(ErrorReason::StoreUnavailable, text);
                // It fails only if the client has gone.
                let _ = chunks.blocking_send(Err(failure.into()));
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn get_diagnostics(
        &self,
        request: Request<v1::GetDiagnosticsRequest>,
    ) -> RpcResult<v1::GetDiagnosticsResponse> {
        caller(&request)?;
        // Refreshes the metrics that are read on demand.
        crate::observe::refresh(&self.0.plane, &self.0.card_links)
            .await
            .map_err(|_| snic_front::error::shutting_down())?;
        Ok(Response::new(self.0.diagnostics.collect().into()))
    }
}

impl Services {
    async fn maintenance(&self, caller: &Caller) -> Result<v1::Maintenance, ApiError> {
        let read = |controller: &Controller, _: &Caller| {
            (controller.maintenance().cloned(), store_condition(controller.set_aside()))
        };
        let (record, condition) = self.read(caller, read).await?;
        let mode = record.map_or_else(v1::Maintenance::default, |record| v1::Maintenance {
            active: true,
            reason: record.reason,
            by: record.by,
            since: Some(timestamp(record.since)),
            conditions: Vec::new(),
        });
        Ok(v1::Maintenance { conditions: vec![condition], ..mode })
    }
}

/// Most tenants that the message of a condition names.
const NAMED_TENANTS_MAX: usize = 10;

/// The server's condition `StoreWhole`.
fn store_condition(account: &SetAsideAccount) -> v1::Condition {
    let SetAsideAccount { records, bytes, tenants } = account;
    let mut parts: Vec<String> = tenants
        .iter()
        .take(NAMED_TENANTS_MAX)
        .map(|(tenant, count)| format!("{count} of tenant {tenant}"))
        .collect();
    if tenants.len() > NAMED_TENANTS_MAX {
        parts.push(format!("those of {} more tenants", tenants.len() - NAMED_TENANTS_MAX));
    }
    let of_tenants: usize = tenants.values().sum();
    if of_tenants < *records {
        parts.push(format!("{} whose tenant is not known", records - of_tenants));
    }
    let (status, reason, message) = match records {
        0 => (Holds::True, "ALL_USED", "all records of the store are used".to_owned()),
        _ => (
            Holds::False,
            "SET_ASIDE",
            format!(
                "{records} records of the store ({bytes} bytes) are set aside and not served: {}; at most \
                 {SET_ASIDE_MAX} records and {SET_ASIDE_BYTES_MAX} bytes are kept, beyond which the daemon ends rather than \
                 lose one; do: `snicd store check` lists them, `snicd store take-out FILE` moves them to a file, both while \
                 the daemon is stopped",
                parts.join(", ")
            ),
        ),
    };
    v1::Condition {
        r#type: "StoreWhole".to_owned(),
        status: status.into(),
        reason: reason.to_owned(),
        message,
        last_transition_time: None,
        observed_generation: 0,
    }
}

type Chunks = mpsc::Sender<Result<v1::DownloadBackupResponse, Status>>;

/// Sends the bytes; `false` where the client has gone.
fn send(chunks: &Chunks, bytes: &[u8]) -> bool {
    bytes.chunks(CHUNK_BYTES).all(|part| {
        chunks.blocking_send(Ok(v1::DownloadBackupResponse { data: part.to_vec() })).is_ok()
    })
}

/// Bitstreams that are there are kept until the end; one that is deleted meanwhile is in the
/// backup, and one that is uploaded after the snapshot is not.
fn send_backup(plane: &ControlPlane, chunks: &Chunks) -> Result<(), StoreError> {
    let store = Arc::clone(plane.store());
    let pinned: PinnedBlobs = plane.pin(store.list_blobs()?);
    let folder = tempfile::tempdir().map_err(|e| StoreError::io("make a folder", e))?;
    let path = folder.path().join("snapshot");
    store.snapshot(&path)?;
    let snapshot = std::fs::read(&path).map_err(|e| StoreError::io("read the snapshot", e))?;
    let more = plane.pin(store.list_blobs()?);
    let mut digests = [pinned.digests(), more.digests()].concat();
    digests.sort_unstable();
    digests.dedup();
    let (mut writer, head) = Writer::begin(&snapshot, digests.len() as u64);
    let mut goes_on = send(chunks, &head);
    for digest in digests {
        if !goes_on {
            return Ok(());
        }
        let bytes = store.get_blob(digest)?;
        goes_on = send(chunks, &writer.blob(digest, bytes.len() as u64)) && send(chunks, &bytes);
    }
    if let Some(end) = writer.end().filter(|_| goes_on) {
        send(chunks, &end);
    }
    Ok(())
}
