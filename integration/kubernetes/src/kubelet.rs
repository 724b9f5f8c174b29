//! Registration with the kubelet: a socket in its folder, a Register call, and both again after each
//! restart of the kubelet.
//!
//! A starting kubelet removes all sockets in its folder and creates its own. The plugin therefore
//! checks whether the kubelet's socket is still the one it registered at, and whether its own still
//! exists: on each change of the folder, and periodically in case a notification was lost.

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
use crate::pool::DevicePool;
use crate::v1beta1::RegisterRequest;
use crate::v1beta1::device_plugin_server::DevicePluginServer;
use crate::v1beta1::registration_client::RegistrationClient;

/// The interface's version.
const VERSION: &str = "v1beta1";
/// The kubelet's socket in its folder.
const KUBELET: &str = "kubelet.sock";
/// Interval of checks without a notification, and of registration attempts.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Time limit for the kubelet's answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Why the plugin cannot serve the kubelet.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The folder cannot be watched.
    #[error("cannot watch the kubelet's folder {path}: {source}")]
    Watch {
        path: PathBuf,
        #[source]
        source: notify::Error,
    },
    /// The socket cannot be created.
    #[error("cannot create the plugin's socket {path}: {source}")]
    Socket {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The kubelet rejected the registration.
    #[error("the kubelet rejected the registration of {resource}: {message}")]
    Refused {
        resource: String,
        /// The kubelet's message.
        message: String,
    },
}

/// Identity of a socket file: a new socket at the same path has another.
type SocketId = Option<(u64, i64, i64)>;

fn socket_id(path: &Path) -> SocketId {
    let data = std::fs::metadata(path).ok()?;
    Some((data.ino(), data.ctime(), data.ctime_nsec()))
}

/// Serves and registers until the kubelet rejects the registration.
///
/// # Errors
/// [`KubeletError`].
pub async fn run(pool: Arc<DevicePool>) -> Result<(), KubeletError> {
    let folder = &pool.settings.kubelet_dir;
    let (_watcher, mut changes) = watch(folder)?;
    let (kubelet, own) = (folder.join(KUBELET), folder.join(pool.resource.socket()));
    loop {
        let server = serve(&own, &pool)?;
        let ours = socket_id(&own);
        let mut registered = None;
        while socket_id(&own) == ours && registered.is_none_or(|at| at == socket_id(&kubelet)) {
            if registered.is_none() {
                let at = socket_id(&kubelet);
                if at.is_some() && register(&kubelet, &pool).await? == Attempt::Registered {
                    registered = Some(at);
                }
            }
            // One check covers all notifications so far.
            let _ = tokio::time::timeout(CHECK_INTERVAL, changes.recv()).await;
            while changes.try_recv().is_ok() {}
        }
        tracing::info!(resource = pool.resource.name, "kubelet restarted");
        server.stop().await;
    }
}

/// Notifies of changes in the folder.
fn watch(folder: &Path) -> Result<(RecommendedWatcher, mpsc::Receiver<()>), KubeletError> {
    let failed = |source| KubeletError::Watch { path: folder.to_owned(), source };
    let (sender, changes) = mpsc::channel(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // A pending notification covers this one.
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
    /// Stops the server without waiting for streams to a kubelet that is gone.
    async fn stop(self) {
        let _ = self.stop.send(());
        self.task.abort();
        let _ = self.task.await;
    }
}

fn serve(socket: &Path, pool: &Arc<DevicePool>) -> Result<Serving, KubeletError> {
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

/// Outcome of a registration attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Registered,
    /// The kubelet does not answer yet.
    NoAnswer,
}

/// Attempts to register.
async fn register(kubelet: &Path, pool: &DevicePool) -> Result<Attempt, KubeletError> {
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
            Ok(Attempt::Registered)
        }
        Some(Err(status)) if !matches!(status.code(), Code::Unavailable | Code::Cancelled) => {
            let message = status.message().to_owned();
            Err(KubeletError::Refused { resource: resource.clone(), message })
        }
        _ => Ok(Attempt::NoAnswer),
    }
}
