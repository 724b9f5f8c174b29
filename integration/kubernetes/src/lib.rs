//! A kubelet device plugin. An extended resource stands for DAGs of a tenant; each device of it is one
//! binding: virtual functions whose packets go through those DAGs.
//!
//! ```text
//!  kubelet ──Allocate──► plugin ──BindVm──► snicd        a device's UUID follows from node, resource
//!     ▲   ◄──ListAndWatch── │  ◄──Heartbeat──┘           and number: asked again, it is the same
//!     └──── pod resources ──┘  ──UnbindVm──► snicd       binding
//! ```
//!
//! The plugin is stateless: the daemon knows what is bound, the kubelet what is in use. The kubelet
//! does not report when a pod releases a device, so the plugin polls its list of allocated devices and
//! unbinds the rest. If the node dies, the lease expires.
//!
//! Beside it are the driver of claims ([`dra`]) and the controller of `Dag` objects ([`dags`]).
//!
//! One crate, for the three share the daemon's errors, the client of the API server, and the cluster that their tests start.

pub mod daemon;
pub mod dags;
pub mod dra;
pub mod kubelet;
pub mod plugin;
pub mod pool;
pub mod resource_name;
pub mod settings;
pub mod settings_file;
pub mod upkeep;

/// The kubelet's device plugin interface.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::missing_errors_doc,
    clippy::too_many_lines,
    reason = "generated"
)]
pub mod v1beta1 {
    tonic::include_proto!("v1beta1");
}

/// The kubelet's pod resources interface.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::missing_errors_doc,
    clippy::too_many_lines,
    reason = "generated"
)]
pub mod pod_resources {
    tonic::include_proto!("v1");
}

/// The kubelet's interface to drivers of dynamic resource allocation.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::missing_errors_doc,
    clippy::too_many_lines,
    reason = "generated"
)]
pub mod dra_v1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// The kubelet's registration of plugins.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::missing_errors_doc,
    clippy::too_many_lines,
    reason = "generated"
)]
pub mod registration_v1 {
    tonic::include_proto!("pluginregistration");
}

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::pool::DevicePool;
use crate::settings::Settings;

/// Why the plugin stopped.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error(transparent)]
    Settings(#[from] settings_file::InvalidSettings),
    /// The kubelet, or its folder.
    #[error(transparent)]
    Kubelet(#[from] kubelet::KubeletError),
    /// The folder of CDI files.
    #[error(transparent)]
    Devices(#[from] snic_cdi::FolderError),
}

/// Runs until an error that retrying cannot cure.
///
/// # Errors
/// [`PluginError`]; it never returns `Ok`.
pub async fn run(settings: Settings) -> Result<(), PluginError> {
    settings.check()?;
    let settings = Arc::new(settings);
    let mut tasks = JoinSet::new();
    for resource in &settings.resources {
        let pool = Arc::new(DevicePool::open(&settings, resource)?);
        tasks.spawn(upkeep::run(Arc::clone(&pool)));
        tasks.spawn(async move { kubelet::run(pool).await.map_err(PluginError::from) });
    }
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(result) => result?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    Ok(())
}
