//! The driver's sockets: one for its service, and one by which the kubelet finds it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::dra::driver::DriverService;
use crate::dra::settings::DraSettings;
use crate::dra::{DRIVER, DraError};
use crate::dra_v1::dra_plugin_server::DraPluginServer;
use crate::registration_v1::registration_server::{Registration, RegistrationServer};
use crate::registration_v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use crate::settings::socket_name;

/// Versions of the kubelet's interface that the driver serves.
const VERSIONS: [&str; 1] = ["v1.DRAPlugin"];

struct Identity {
    endpoint: PathBuf,
    registered: Arc<Notify>,
}

#[tonic::async_trait]
impl Registration for Identity {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".into(),
            name: DRIVER.into(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: VERSIONS.map(str::to_owned).into(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!("registered with the kubelet");
            self.registered.notify_one();
        } else {
            tracing::error!(why = status.error, "the kubelet rejected the driver");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// Creates a socket, in place of one that an earlier run left.
fn listen(path: &Path) -> Result<UnixListenerStream, DraError> {
    let failed = |source| DraError::Socket { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    Ok(UnixListenerStream::new(UnixListener::bind(path).map_err(failed)?))
}

/// Serves the kubelet until a socket fails.
///
/// # Errors
/// [`DraError`] where a socket cannot be created or served.
pub async fn serve(
    settings: &DraSettings,
    service: DriverService,
    registered: Arc<Notify>,
) -> Result<(), DraError> {
    let endpoint = settings.plugins_dir.join(DRIVER).join(socket_name("dra"));
    let connections = listen(&endpoint)?;
    let driver = Server::builder().add_service(DraPluginServer::new(service));
    let driver = driver.serve_with_incoming(connections);
    // The kubelet calls as soon as it sees this socket, so it comes last.
    let registration = listen(&settings.registry_dir.join(socket_name(DRIVER)))?;
    let identity = RegistrationServer::new(Identity { endpoint, registered });
    let registration = Server::builder().add_service(identity).serve_with_incoming(registration);
    tokio::try_join!(driver, registration).map_err(DraError::Serve)?;
    Ok(())
}
