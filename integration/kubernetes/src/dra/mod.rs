//! A driver for dynamic resource allocation (DRA): a pod's claim names a DAG, the scheduler chooses a card, and the kubelet
//! starts the pod when the card serves the DAG.
//!
//! ```text
//!  scheduler ◄── ResourceSlice: cards, functions, bandwidth ── publisher ◄── cards ── snicd
//!      │ allocates                                                                     ▲
//!  kubelet ──NodePrepareResources──► driver ──BindVm, until the card serves it──────────┤
//!      │                               └─ CDI file with a hook, status of the claim     │
//!  runtime ──hook──► snic-dra attach: the function's interface into the pod             │
//!  kubelet ──NodeUnprepareResources─► driver ── interface back, UnbindVm ───────────────┘
//! ```
//!
//! A binding's UUID follows from the claim and its allocation, so each call may be repeated, by a driver that knows nothing
//! of the one before. What a claim has is noted before it is bound, and forgotten when all is given back.

pub mod ahead;
pub mod driver;
pub mod interface;
pub mod parameters;
pub mod plan;
pub mod publisher;
pub mod quotas;
pub mod records;
pub mod registration;
pub mod settings;
pub mod slices;
pub mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::dra::driver::{ClaimDriver, DriverService};
use crate::dra::publisher::Publisher;
use crate::dra::quotas::QuotaKeeper;
use crate::dra::settings::DraSettings;
use crate::settings_file::InvalidSettings;

/// Name of the driver, in slices, classes and claims.
pub const DRIVER: &str = "snic.dev";
/// Kind of its devices in CDI files: not that of `snic-cdi`, which keeps files of its own for the same bindings.
pub const CDI_KIND: &str = "snic.dev/claim";

/// Why the driver stopped.
#[derive(Debug, thiserror::Error)]
pub enum DraError {
    #[error(transparent)]
    Settings(#[from] InvalidSettings),
    /// The folder of CDI files.
    #[error(transparent)]
    Devices(#[from] snic_cdi::FolderError),
    /// The folder of notes.
    #[error("state_dir: {0}")]
    Records(#[source] std::io::Error),
    /// No credentials for the API server.
    #[error("credentials for the API server: {0}")]
    Credentials(String),
    /// A socket cannot be created.
    #[error("cannot create the socket {path}: {source}")]
    Socket {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The kubelet cannot be served.
    #[error("cannot serve the kubelet: {0}")]
    Serve(#[source] tonic::transport::Error),
}

/// A client of the API server: with the credentials of a file, else of the pod that this program runs in.
///
/// # Errors
/// [`DraError::Credentials`].
pub async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client, DraError> {
    let failed = |error: &dyn std::error::Error| DraError::Credentials(error.to_string());
    let config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(|error| failed(&error))?
        }
        None => kube::Config::incluster().map_err(|error| failed(&error))?,
    };
    kube::Client::try_from(config).map_err(|error| failed(&error))
}

/// Runs until an error that retrying cannot cure.
///
/// # Errors
/// [`DraError`]; it never returns `Ok`.
pub async fn run(settings: DraSettings) -> Result<(), DraError> {
    settings.check()?;
    let settings = Arc::new(settings);
    let api = client(settings.kubeconfig.as_deref()).await?;
    let driver = Arc::new(ClaimDriver::open(&settings, api.clone())?);
    let (keeper, are_bounded) = QuotaKeeper::new(&settings, api.clone());
    let publisher = Publisher::new(&settings, api.clone(), are_bounded)?;
    let registered = Arc::clone(&publisher.wake);
    let publishing = tokio::spawn(publisher.run());
    let bounding = tokio::spawn(keeper.run());
    // It also releases what an earlier run bound for it, so it watches whatever the settings say now.
    let ahead = tokio::spawn(ahead::run(Arc::clone(&driver), api, Arc::clone(&settings)));
    let served = registration::serve(&settings, DriverService(driver), registered).await;
    publishing.abort();
    bounding.abort();
    ahead.abort();
    served
}
