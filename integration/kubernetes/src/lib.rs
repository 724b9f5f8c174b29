//! A kubelet device plugin: a resource of Kubernetes is a tenant's DAGs with virtual functions that
//! lead to them, and a device of it is one binding of the orchestration service.
//!
//! ```text
//!  kubelet ──Allocate──► plugin ──BindVm──► snicd        a device's UUID follows from node, resource
//!     ▲   ◄──ListAndWatch── │  ◄──Heartbeat──┘           and number: asked again, it is the same
//!     └──── pod resources ──┘  ──UnbindVm──► snicd       binding
//! ```
//!
//! The plugin keeps nothing of its own: what is bound the daemon says, what is in use the kubelet.
//! The kubelet tells nobody when a device is given back, so its list of what pods have is read, and
//! what none has any more is unbound. Where the node dies the lease does that.

pub mod daemon;
pub mod kubelet;
pub mod plugin;
pub mod pool;
pub mod resource_name;
pub mod settings;
pub mod upkeep;

/// The kubelet's device plugin interface.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
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
    clippy::too_many_lines,
    reason = "generated"
)]
pub mod pod_resources {
    tonic::include_proto!("v1");
}

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::pool::Pool;
use crate::settings::Settings;

/// Why the plugin ends.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] settings::InvalidSettings),
    /// The kubelet or its folder.
    #[error(transparent)]
    Kubelet(#[from] kubelet::KubeletError),
    /// The folder of container devices.
    #[error(transparent)]
    Devices(#[from] snic_cdi::FolderError),
}

/// Runs until something makes going on pointless.
///
/// # Errors
/// [`PluginError`] with what that was; it never ends well.
pub async fn run(settings: Settings) -> Result<(), PluginError> {
    settings.check()?;
    let settings = Arc::new(settings);
    let mut tasks = JoinSet::new();
    for resource in &settings.resources {
        let pool = Arc::new(Pool::open(&settings, resource)?);
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
