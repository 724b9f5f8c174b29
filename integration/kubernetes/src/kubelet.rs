//! Being a plugin of the kubelet: a socket in its folder, a registration, and both again whenever it
//! starts anew.
//!
//! A kubelet that starts removes all sockets of its folder and makes its own. So what is looked at
//! is whether its socket is the one that we registered at, and whether ours is still there; the
//! system says when the folder changes, and now and then it is looked at anyway.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Request};

use crate::plugin::{OPTIONS, Plugin};
use crate::pool::Pool;
use crate::v1beta1::RegisterRequest;
use crate::v1beta1::device_plugin_server::DevicePluginServer;
use crate::v1beta1::registration_client::RegistrationClient;

/// The interface's version.
const VERSION: &str = "v1beta1";
/// The kubelet's socket in its folder.
const KUBELET: &str = "kubelet.sock";
/// How often the folder is looked at though nothing was said of it, and registration tried again.
const LOOK: Duration = Duration::from_secs(2);
/// How long the kubelet may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Why there is no plugin.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The folder cannot be watched.
    #[error("the kubelet's folder {path}: {source}")]
    Watch {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: notify::Error,
    },
    /// The socket cannot be made.
    #[error("the plugin's socket {path}: {source}")]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The kubelet wants no such plugin.
    #[error("the kubelet refuses {resource}: {message}")]
    Refused {
        /// Which resource.
        resource: String,
        /// What it said.
        message: String,
    },
}

/// Which socket it is: one that is made anew at the same place differs.
type Mark = Option<(u64, i64, i64)>;

fn mark(path: &Path) -> Mark {
    let data = std::fs::metadata(path).ok()?;
    Some((data.ino(), data.ctime(), data.ctime_nsec()))
}

/// Serves and registers until the kubelet refuses.
///
/// # Errors
/// [`KubeletError`].
pub async fn run(pool: Arc<Pool>) -> Result<(), KubeletError> {
    let folder = &pool.settings.kubelet_dir;
    let (_watcher, mut changes) = watch(folder)?;
    let (kubelet, own) = (folder.join(KUBELET), folder.join(pool.resource.socket()));
    loop {
        let server = serve(&own, &pool)?;
        let ours = mark(&own);
        let mut registered = None;
        while mark(&own) == ours && registered.is_none_or(|at| at == mark(&kubelet)) {
            if registered.is_none() {
                let at = mark(&kubelet);
                if at.is_some() && register(&kubelet, &pool).await? {
                    registered = Some(at);
                }
            }
            // What was said meanwhile is one look.
            let _ = tokio::time::timeout(LOOK, changes.recv()).await;
            while changes.try_recv().is_ok() {}
        }
        tracing::info!(resource = pool.resource.name, "the kubelet started anew");
        server.stop().await;
    }
}

/// Says when the folder changes.
fn watch(folder: &Path) -> Result<(RecommendedWatcher, mpsc::Receiver<()>), KubeletError> {
    let failed = |source| KubeletError::Watch { path: folder.to_owned(), source };
    let (sender, changes) = mpsc::channel(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // One that waits to be read stands for all.
            let _ = sender.try_send(());
        }
    })
    .map_err(failed)?;
    watcher.watch(folder, RecursiveMode::NonRecursive).map_err(failed)?;
    Ok((watcher, changes))
}

/// A running server.
struct Serving {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Ends it; streams to a kubelet that is gone are not waited for.
    async fn stop(self) {
        let _ = self.stop.send(());
        self.task.abort();
        let _ = self.task.await;
    }
}

fn serve(socket: &Path, pool: &Arc<Pool>) -> Result<Serving, KubeletError> {
    let failed = |source| KubeletError::Socket { path: socket.to_owned(), source };
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(failed)?;
    let service = DevicePluginServer::new(Plugin::new(Arc::clone(pool)));
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        let router = Server::builder().add_service(service);
        let connections = UnixListenerStream::new(listener);
        if let Err(error) = router.serve_with_incoming_shutdown(connections, stopped).await {
            tracing::warn!(%error, "the plugin's server ended");
        }
    });
    Ok(Serving { stop, task })
}

/// Registers; `false` where the kubelet does not answer yet.
async fn register(kubelet: &Path, pool: &Pool) -> Result<bool, KubeletError> {
    let resource = &pool.resource.name;
    let request = RegisterRequest {
        version: VERSION.into(),
        endpoint: pool.resource.socket(),
        resource_name: resource.clone(),
        options: Some(OPTIONS),
    };
    let asked = async {
        let endpoint = Endpoint::from_shared(format!("unix:{}", kubelet.display())).ok()?;
        let channel = endpoint.connect().await.ok()?;
        Some(RegistrationClient::new(channel).register(Request::new(request)).await)
    };
    let answer = tokio::time::timeout(ANSWER_MAX, asked).await;
    match answer.ok().flatten() {
        Some(Ok(_)) => {
            tracing::info!(resource, "registered");
            Ok(true)
        }
        Some(Err(status)) if !matches!(status.code(), Code::Unavailable | Code::Cancelled) => {
            let message = status.message().to_owned();
            Err(KubeletError::Refused { resource: resource.clone(), message })
        }
        _ => Ok(false),
    }
}
