//! Arguments of `snicctl maintenance`, `snicctl backup` and `snicctl support-bundle`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Verbs of `snicctl maintenance`.
#[derive(Debug, Subcommand)]
pub enum MaintenanceCommand {
    /// Show whether maintenance mode is on
    Status,
    /// Reject new DAGs and VM bindings; existing ones are served
    On {
        /// Reason, shown in rejections
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Accept new DAGs and VM bindings again
    Off,
}

/// The file to write.
#[derive(Debug, Args)]
pub struct BackupFile {
    /// File to write
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub file: PathBuf,
}
