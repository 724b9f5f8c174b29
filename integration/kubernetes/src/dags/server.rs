//! The controller's calls to the server: the daemon of a host, or the endpoint of a fleet.

use std::time::Duration;

use prost_types::FieldMask;
use snic_api::connect::{ACTING_FOR_HEADER, Connection, Target};
use snic_api::error::reason_of;
use snic_api::replies::OneItem as _;
use snic_api::v1::dag_service_client::DagServiceClient;
use snic_api::v1::{
    CreateDagRequest, Dag, DeleteDagRequest, ErrorReason, EventType, GetDagRequest,
    ListDagsRequest, UpdateDagRequest, WatchDagsRequest,
};
use tokio::sync::{Mutex, mpsc};
use tonic::{Code, Request, Status};

use super::status;
use crate::daemon::is_down;

/// Time limit of reads.
const READ_MAX: Duration = Duration::from_secs(5);
/// Time limit of changes: the server has one without room wait for ten seconds.
const CHANGE_MAX: Duration = Duration::from_secs(13);
/// Wait before a lost stream is opened again.
const REOPEN_AFTER: Duration = Duration::from_secs(1);
/// DAGs of a page of a list.
const PAGE: i32 = 500;
/// All tenants.
const ALL: &str = "tenants/-";

type Client = DagServiceClient<Connection>;

/// Has a request made for the tenant of this DAG, as if that tenant had asked: what its policies forbid is refused.
fn act_for_tenant<T>(request: &mut Request<T>, dag: &str) -> Result<(), Status> {
    let tenant = dag.strip_prefix("tenants/").and_then(|rest| rest.split('/').next());
    let value = tenant.and_then(|tenant| format!("tenant/{tenant}").parse().ok());
    let value = value.ok_or_else(|| Status::invalid_argument(format!("{dag} names no tenant")))?;
    request.metadata_mut().insert(ACTING_FOR_HEADER, value);
    Ok(())
}

/// News of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerNews {
    /// A DAG has changed, or has gone.
    Changed(String),
    /// Changes may have been missed.
    Gap,
    /// Served rates, by name.
    Served(Vec<(String, u64)>),
}

/// A lazy connection to the server, renewed after a call got no answer.
#[derive(Debug)]
pub struct DagServer {
    target: Target,
    client: Mutex<Option<Client>>,
}

fn deletion(name: &str, etag: &str) -> Request<DeleteDagRequest> {
    Request::new(DeleteDagRequest {
        name: name.to_owned(),
        etag: etag.to_owned(),
        allow_missing: true,
        ..DeleteDagRequest::default()
    })
}

impl DagServer {
    /// At this address. Connects with the first call.
    pub fn new(target: &Target) -> Self {
        Self { target: target.clone(), client: Mutex::default() }
    }

    async fn client(&self) -> Result<Client, Status> {
        let mut client = self.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let connection = self.target.connect().await.map_err(|error| {
            Status::unavailable(format!("the SmartNIC server cannot be reached: {error}"))
        })?;
        Ok(client.insert(DagServiceClient::new(connection)).clone())
    }

    /// Drops a connection that gave no answer.
    async fn answer<T>(&self, result: Result<tonic::Response<T>, Status>) -> Result<T, Status> {
        if result.as_ref().is_err_and(is_down) {
            self.client.lock().await.take();
        }
        result.map(tonic::Response::into_inner)
    }

    /// A DAG, if it exists.
    ///
    /// # Errors
    /// The server's status.
    pub async fn get(&self, name: &str) -> Result<Option<Dag>, Status> {
        let mut request = Request::new(GetDagRequest { name: name.to_owned() });
        request.set_timeout(READ_MAX);
        let reply = self.client().await?.get_dag(request).await;
        match self.answer(reply).await {
            Ok(reply) => reply.into_item().map(Some),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Creates a DAG for its tenant; its name says where.
    ///
    /// # Errors
    /// The server's status.
    pub async fn create(&self, mut dag: Dag) -> Result<(), Status> {
        let name = std::mem::take(&mut dag.name);
        let (parent, id) = name.split_once("/dags/").unwrap_or((&name, ""));
        let mut request = Request::new(CreateDagRequest {
            parent: parent.to_owned(),
            dag_id: id.to_owned(),
            dag: Some(dag),
            ..CreateDagRequest::default()
        });
        act_for_tenant(&mut request, parent)?;
        request.set_timeout(CHANGE_MAX);
        let reply = self.client().await?.create_dag(request).await;
        self.answer(reply).await.map(drop)
    }

    /// Sets all that may be set of a DAG for its tenant, if it has this etag.
    ///
    /// # Errors
    /// The server's status.
    pub async fn update(&self, dag: Dag) -> Result<(), Status> {
        let name = dag.name.clone();
        let mut request = Request::new(UpdateDagRequest {
            dag: Some(dag),
            update_mask: Some(FieldMask { paths: vec!["*".to_owned()] }),
            ..UpdateDagRequest::default()
        });
        act_for_tenant(&mut request, &name)?;
        request.set_timeout(CHANGE_MAX);
        let reply = self.client().await?.update_dag(request).await;
        self.answer(reply).await.map(drop)
    }

    /// Deletes a DAG for its tenant, if it has this etag. One that does not exist is no error.
    ///
    /// # Errors
    /// The server's status.
    pub async fn delete(&self, name: &str, etag: &str) -> Result<(), Status> {
        let mut request = deletion(name, etag);
        act_for_tenant(&mut request, name)?;
        self.send_deletion(request).await
    }

    /// The same as the operator, where nobody asked for it: what the DAG was made for has gone.
    ///
    /// # Errors
    /// The server's status.
    pub async fn clear(&self, name: &str, etag: &str) -> Result<(), Status> {
        self.send_deletion(deletion(name, etag)).await
    }

    async fn send_deletion(&self, mut request: Request<DeleteDagRequest>) -> Result<(), Status> {
        request.set_timeout(CHANGE_MAX);
        let reply = self.client().await?.delete_dag(request).await;
        self.answer(reply).await.map(drop)
    }

    /// Served rates of all DAGs.
    async fn rates(&self) -> Result<Vec<(String, u64)>, Status> {
        let (mut rates, mut page_token) = (Vec::new(), String::new());
        loop {
            let mut request = Request::new(ListDagsRequest {
                parent: ALL.to_owned(),
                page_size: PAGE,
                page_token: std::mem::take(&mut page_token),
                ..ListDagsRequest::default()
            });
            request.set_timeout(READ_MAX);
            let reply = self.client().await?.list_dags(request).await;
            let reply = self.answer(reply).await?;
            rates.extend(reply.dags.iter().map(|dag| (dag.name.clone(), status::served(dag))));
            page_token = reply.next_page_token;
            if page_token.is_empty() {
                return Ok(rates);
            }
        }
    }

    /// Follows all DAGs until the stream breaks; returns the revision to go on from.
    async fn follow(
        &self,
        mut revision: u64,
        news: &mpsc::Sender<ServerNews>,
    ) -> (u64, Option<Status>) {
        let request = WatchDagsRequest { parent: ALL.to_owned(), resume_revision: revision };
        let opened = match self.client().await {
            Ok(mut client) => client.watch_dags(request).await,
            Err(status) => return (revision, Some(status)),
        };
        let mut stream = match self.answer(opened).await {
            Ok(stream) => stream,
            Err(status) => return (revision, Some(status)),
        };
        // From the beginning, deletions before it are not told.
        let mut has_begun = revision != 0;
        loop {
            let event = match stream.message().await {
                Ok(Some(event)) => event,
                Ok(None) => return (revision, None),
                Err(status) => return (revision, Some(status)),
            };
            if event.revision != 0 {
                revision = event.revision;
            }
            let item = match (event.r#type(), event.dag) {
                (EventType::Bookmark, _) if !has_begun => {
                    has_begun = true;
                    ServerNews::Gap
                }
                // What exists is looked at after the gap.
                (EventType::Added, Some(_)) if !has_begun => continue,
                (_, Some(dag)) => ServerNews::Changed(dag.name),
                (_, None) => continue,
            };
            if news.send(item).await.is_err() {
                return (revision, None);
            }
        }
    }

    /// Reports changes of DAGs until nobody takes them: from where a stream broke, or all over where the server does not
    /// know what was since.
    pub async fn watch(&self, news: mpsc::Sender<ServerNews>) {
        let mut revision = 0;
        while !news.is_closed() {
            let (next, ended) = self.follow(revision, &news).await;
            revision = next;
            if let Some(status) = ended {
                tracing::warn!(code = ?status.code(), why = status.message(), "the watch of DAGs broke");
                let lost = [ErrorReason::RevisionExpired, ErrorReason::WatcherTooSlow];
                if reason_of(&status).is_some_and(|reason| lost.contains(&reason))
                    || matches!(status.code(), Code::OutOfRange | Code::InvalidArgument)
                {
                    revision = 0;
                }
            }
            tokio::time::sleep(REOPEN_AFTER).await;
        }
    }

    /// Reports served rates until nobody takes them. The watch does not: they change all the time.
    pub async fn read_rates(&self, every: Duration, news: mpsc::Sender<ServerNews>) {
        while !news.is_closed() {
            tokio::time::sleep(every).await;
            match self.rates().await {
                Ok(rates) => drop(news.send(ServerNews::Served(rates)).await),
                Err(status) => {
                    tracing::debug!(code = ?status.code(), "served rates cannot be read");
                }
            }
        }
    }
}
